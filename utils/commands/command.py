"""An everyday command, with what it needs and what is there before it."""

import shlex
import shutil
from typing import Dict, List, NamedTuple, Tuple

AGAIN = 1.1  # seconds after which a plain run shows that it depends on the time


class Everyday(NamedTuple):
	"""A command that makes something in its folder, or prints something."""

	name: str
	line: str
	files: Dict[str, str]
	"""By path: what is there before. What begins with ``#!`` may be executed."""
	shell: str = ""
	"""The shell that gets the line; without one, the line is split into words."""
	setup: str = ""
	"""A line for ``sh`` that prepares the folder."""
	also: Tuple[str, ...] = ()
	"""The programs that it needs beside its own, also in its setup."""
	status: int = 0
	"""The exit status that is right."""
	sets_times: bool = False
	"""Whether the times of files belong to its result."""
	is_compile: bool = False
	"""Whether caches for compilers have something to do."""
	again: float = AGAIN

	@property
	def argv(self) -> List[str]:
		return [self.shell, "-c", self.line] if self.shell else shlex.split(self.line)

	@property
	def needs(self) -> List[str]:
		"""The programs that must be installed; one with a slash is made by the setup."""
		return [program for program in (self.argv[0], *self.also) if "/" not in program]

	def missing(self) -> str:
		"""The first program that is not installed; empty if all are."""
		return next((program for program in self.needs if not shutil.which(program)), "")
