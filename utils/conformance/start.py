"""
The `waf` of the conformance tests: it runs the `waflib` of $WAFDIR, and has what makes two builds comparable.

On both sides, tasks are numbered: Waf walks sets of them, and would do so in the order of their addresses in memory,
which any tool that allocates a little changes. Stock Waf's commands are tallied, one byte for each call of
`Utils.run_process` in the file $CONFORMANCE_TALLY: the engine's own count is held against that. With tools loaded
there is no tally, so that nothing but the tools stands between Waf and its commands.

With $CONFORMANCE_JOURNAL, each task class is cached, and that file gets a line of JSON for each command of a task.
"""

import atexit
import itertools
import json
import os
import sys
import threading
from typing import Any, Optional


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


class WithoutOutputs:
	"""The attribute ``nocache`` of all tasks: those that declare no outputs are not cached. A task may set its own."""

	def __get__(self, task: Any, cls: type) -> bool:
		return task is not None and not task.outputs


def cache_all_classes(journal: str) -> None:
	"""Have each task class cached, as if all wscripts said so, and write down what came of each command of a task."""
	from waflib import Scripting, Task

	Task.Task.cache = True
	Task.Task.nocache = WithoutOutputs()
	parse_options = Scripting.parse_options
	lines = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

	def write(entry: "dict[str, Any]") -> None:
		os.write(lines, json.dumps(entry).encode() + b"\n")

	def parse_and_hear() -> None:
		parse_options()
		# this has loaded the tools: if our package is imported before, a project gets our tools instead of Waf's
		from waflib_extras.hooks import lifecycle

		build = lifecycle.find()

		def hear(ended: Any) -> None:
			# a task that runs a command in a way of its own is not told
			task = ended.task or build.runner.running.get(threading.get_ident())
			# without an outcome, Python code has run and no command
			if task is not None and ended.outcome is not None:
				write(describe(task, ended.told))

		build.on_outcome.append(hear)
		if build.runner is not None:
			atexit.register(lambda: write({"past_engine": build.runner.reasons}))

	Scripting.parse_options = parse_and_hear


def describe(task: Any, told: Optional[Any]) -> "dict[str, Any]":
	"""A command of a task, and what the cache said of it."""
	cls = task.__class__
	return {
		"class": cls.__name__,
		"module": cls.__module__,
		"is_rule": "rule" in task.generator.__dict__,
		"task": " ".join(filter(None, (task.keyword(), str(task)))),
		"outputs": [node.abspath() for node in task.outputs],
		"known": told.known if told else None,
		"words": told.words if told else "",
		"unstored": told.unstored_words if told and told.unstored else "",
	}


cwd, wafdir = os.getcwd(), os.path.abspath(os.environ["WAFDIR"])
sys.path.insert(0, wafdir)
number_tasks()
if not os.environ.get("WAFX_WITH"):
	keep_tally(os.environ["CONFORMANCE_TALLY"])

from waflib import Context, Scripting  # noqa: E402  # of $WAFDIR

if os.environ.get("WAFX_WITH") and os.environ.get("CONFORMANCE_JOURNAL"):
	cache_all_classes(os.environ["CONFORMANCE_JOURNAL"])

Scripting.waf_entry_point(cwd, Context.WAFVERSION, wafdir)
