"""
What is done with a contender: it builds with an empty cache and once more, and if asked for, into another folder, and
after an edit and back.
"""

import pathlib
import shutil
import time
from typing import Any, Callable, Dict, Generator, List, NamedTuple, Optional, Tuple

from benchmark.cache import CompilerCache, Wafcc
from benchmark.interrupt import INTERRUPTS
from benchmark.machine import busy, load
from benchmark.mistake import Failed
from commands.contender import CONTENDERS as KNOWN
from commands.contender import PLAIN, Contender

from .outputs import Digests
from .workspace import Workspace

CONTENDERS = {name: KNOWN[name] for name in ("plain", "sccache", "wafcc", "wafcc-proved")}
STEPS = {
	"cold": "with an empty cache and an empty target folder",
	"warm": "with that cache and an empty target folder",
	"elsewhere": "with that cache and another target folder, which is empty",
	"edit": "a function was appended to a source",
	"back": "that edit was taken back",
}
FROM_NOTHING = ("cold", "warm", "elsewhere")
STATES = {"cold": "whole", "warm": "whole", "elsewhere": "elsewhere", "edit": "edit", "back": "back"}
"""By step: the name of the outputs that must be alike."""


class Done(NamedTuple):
	"""One build of one contender."""

	step: str
	wall: float
	calls: int
	"""Runs of rustc that cargo told of."""
	hits: Optional[int]
	asked: Optional[int]
	"""The commands that its cache was given, also questions such as ``rustc -vV``."""
	waited: float
	"""Seconds for what the cache does in idle times, after the build and not counted in it."""
	late: str
	"""What the cache had not done when our patience was over; empty if it had done all."""
	made: Digests
	load: str
	busy: Optional[float]
	"""The share of the processors that was used just before the build."""

	@property
	def state(self) -> str:
		return STATES[self.step]

	def told(self) -> Dict[str, Any]:
		"""The values for the record."""
		return {name: value for name, value in self._asdict().items() if name != "made"}


class Trial:
	"""All builds of one contender in one round."""

	def __init__(self, contender: Contender, workspace: Workspace, place: pathlib.Path, patience: float) -> None:
		self.contender = contender
		self.workspace = workspace
		self.place = place
		self.patience = patience

	def run(self, steps: List[str], begin: Callable[[str], None]) -> Generator[Done, None, None]:
		"""Do these steps with a cache that is empty at first; nothing of it is left."""
		cache = None
		try:
			if self.contender.cache:
				cache = self.contender.cache(str(self.place), self.workspace.env)
				if isinstance(cache, Wafcc):
					cache.patience = self.patience
				cache.start()
			for step in steps:
				begin("%s: %s, %s" % (self.contender.name, step, STEPS[step]))
				yield self.take(step, cache)
		finally:
			with INTERRUPTS.held():
				if cache:
					cache.stop()
				self.workspace.take_back()
				self.workspace.clean()
				self.workspace.clean(is_elsewhere=True)
				shutil.rmtree(self.place, ignore_errors=True)

	def take(self, step: str, cache: Optional[CompilerCache]) -> Done:
		self.prepare(step)
		seen = load(), busy()
		hits, asked = self.count(cache)
		built = self.workspace.build(self.variables(cache), step == "elsewhere")
		later = self.count(cache)
		began, late = time.monotonic(), ""
		try:
			if cache:
				cache.rest()
		except Failed as e:
			late = str(e)
		waited = time.monotonic() - began
		grown = minus(later[0], hits), minus(later[1], asked)
		return Done(step, built.wall, built.calls, *grown, waited, late, built.made, *seen)

	def prepare(self, step: str) -> None:
		if step in FROM_NOTHING:
			self.workspace.clean(step == "elsewhere")
		elif step == "edit":
			self.workspace.edit()
		else:
			self.workspace.take_back()

	def variables(self, cache: Optional[CompilerCache]) -> Dict[str, str]:
		if not cache:
			return {}
		return {**cache.environment, "RUSTC_WRAPPER": cache.find() or cache.program}

	@staticmethod
	def count(cache: Optional[CompilerCache]) -> Tuple[Optional[int], Optional[int]]:
		"""The hits and the commands so far."""
		return (cache.hits(), cache.asked()) if cache else (None, None)


def minus(later: Optional[int], sooner: Optional[int]) -> Optional[int]:
	return None if later is None or sooner is None else later - sooner


def steps_of(contender: Contender, turn: int, is_edited: bool, is_moved: bool = False) -> List[str]:
	"""Plainly, a second build tells nothing new but which files are not made alike: once is enough."""
	steps = ["cold"] if contender is PLAIN and turn else ["cold", "warm"]
	# edits need what was built in the first folder, and a build in the other one removes nothing of it
	moved = ["elsewhere"] if is_moved else []
	return [*steps, *moved, *(["edit", "back"] if is_edited else [])]
