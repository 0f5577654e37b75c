"""
Output of programs that change nothing. It stays the same as long as the files that the program reads do.

A resident process notes such a question when a run asks it, and repeats it later to see whether the answer changed.
"""

import contextlib
import os
import subprocess
from typing import Callable, ContextManager, List, Mapping, NamedTuple, Optional, Tuple

DEADLINE = 15.0


class ProgramCall(NamedTuple):
	"""All that the answer depends on besides the files that the program reads."""

	command: Tuple[str, ...]
	environ: Tuple[Tuple[str, str], ...]
	cwd: str

	def ask(self) -> "Answer":
		"""Run the program. Raises what ``subprocess`` raises if there is no such program, or if it does not end."""
		done = subprocess.run(
			self.command,
			env=dict(self.environ),
			cwd=self.cwd,
			stdin=subprocess.DEVNULL,
			capture_output=True,
			timeout=DEADLINE,
			check=False,
		)
		return Answer(done.returncode, done.stdout, done.stderr)


class Answer(NamedTuple):
	status: int
	out: bytes
	err: bytes


class Observer:
	"""The resident process, if we are in one: it notes what a run looks at, but not what we look at ourselves."""

	hear: Optional[Callable[[ProgramCall], Answer]] = None
	look_away: Callable[[], ContextManager[object]] = contextlib.nullcontext


def ask(command: List[str], environ: Mapping[str, str]) -> Answer:
	"""The output of a program that changes nothing and depends only on its variables and on files."""
	call = ProgramCall(tuple(command), tuple(sorted(environ.items())), os.getcwd())
	return call.ask() if Observer.hear is None else Observer.hear(call)
