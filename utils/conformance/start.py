"""
The `waf` of the conformance tests: it runs the `waflib` of $WAFDIR, and has what makes two builds comparable.

On both sides, tasks are numbered: Waf walks sets of them, and would do so in the order of their addresses in memory,
which any tool that allocates a little changes. Stock Waf's commands are tallied, one byte for each call of
`Utils.run_process` in the file $CONFORMANCE_TALLY: the engine's own count is held against that. With tools loaded
there is no tally, so that nothing but the tools stands between Waf and its commands.
"""

import itertools
import os
import sys
from typing import Any


def number_tasks() -> None:
	"""Let sets of tasks have an order that is the same in each process."""
	from waflib import Task

	numbers = itertools.count()

	def find_number(self: Any) -> int:
		if "number" not in self.__dict__:
			self.number = next(numbers)
		return self.number

	Task.Task.__hash__ = find_number
	Task.TaskGroup.__hash__ = find_number


def keep_tally(path: str) -> None:
	"""Add a byte to a file whenever Waf runs a command."""
	from waflib import Utils

	run_process = Utils.run_process
	tally = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

	def run_and_count(*args: Any, **kwargs: Any) -> Any:
		os.write(tally, b".")
		return run_process(*args, **kwargs)

	Utils.run_process = run_and_count


cwd, wafdir = os.getcwd(), os.path.abspath(os.environ["WAFDIR"])
sys.path.insert(0, wafdir)
number_tasks()
if not os.environ.get("WAFX_WITH"):
	keep_tally(os.environ["CONFORMANCE_TALLY"])

from waflib import Context, Scripting  # noqa: E402  # of $WAFDIR

Scripting.waf_entry_point(cwd, Context.WAFVERSION, wafdir)
