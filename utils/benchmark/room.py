"""
What our engine takes when its store holds many entries: the contender of the scenario ``room``.

One compile is stored by the engine itself, then `fill_store`, an example program of the engine, adds entries like it.
What is measured is the time from nothing to the first answered hit, as whoever builds first in the morning waits for
it, and the memory of the engine after that.
"""

import os
import re
import statistics
from typing import TYPE_CHECKING, Dict, List, Optional

from .builder import ROOM, Builder
from .hit import repeat
from .machine import read
from .meter import Command
from .mistake import Failed
from .project import C_COMPILER
from .service import find_example, missing_example

if TYPE_CHECKING:
	from .run import Run

FILLER = "fill_store"
LEAST = 1000  # entries of the first store that counts as filled; the others have ten times more each
STARTS = 3  # of the engine for each size: their median counts
SOURCE = "small.cpp"
KIB, MIB = 1 << 10, 1 << 20


def sizes(most: int) -> List[int]:
	"""The numbers of entries that a store gets, one after the other, up to this one."""
	found, size = [1], LEAST
	while size < most:
		found.append(size)
		size *= 10
	return sorted({*found, most})


class Full(Builder):
	"""Our engine with a store that is more and more full."""

	program = C_COMPILER
	abilities = frozenset((ROOM,))

	def missing(self) -> Optional[str]:
		return missing_example(FILLER) or super().missing()

	def fill(self, run: "Run", entries: int) -> None:
		"""Have so many entries in the store of an engine that does not run."""
		store = run.cache.ask("--get-config", "store").strip()
		run.cache.engine.leave()
		run.aside("fill", Command([find_example(FILLER) or FILLER, store, str(entries)], run.root, run.environment))
		os.sync()

	def start(self, run: "Run") -> float:
		"""Start the engine by a compile that is a hit: the milliseconds until that is done."""
		run.cache.engine.leave()
		wall = self.compile(run)["wall"]
		return wall / 1000

	def compile(self, run: "Run") -> Dict[str, float]:
		"""Compile the source that is in the store, through the wrapper."""
		compiler = [run.cache.find() or run.cache.program, run.lane.compiler.cxx]
		return repeat(run, [*compiler, "-c", SOURCE, "-o", os.path.join(run.folder, SOURCE + ".o")], 0, 1)

	def take_room(self, run: "Run", entries: int) -> Dict[str, float]:
		"""What a store of so many entries costs."""
		self.fill(run, entries)
		before = run.cache.hits()
		starts = [self.start(run) for _ in range(STARTS)]
		if run.cache.hits() - before != STARTS:
			raise Failed("%d of %d compiles were no hits" % (STARTS + before - run.cache.hits(), STARTS))
		counts = run.cache.counts()
		if counts["entries"] != entries:
			raise Failed("the store holds %d entries instead of %d" % (counts["entries"], entries))
		values = {"start": statistics.median(starts), "disk": counts["bytes"] / MIB}
		return dict(values, memory=resident(self.pid(run)) / MIB)

	def pid(self, run: "Run") -> int:
		"""The engine's process."""
		status = run.cache.engine.status()
		if not status:
			raise Failed("no engine runs")
		return status["pid"]


def resident(pid: int) -> int:
	"""The memory that a process holds, in bytes."""
	found = re.search(r"^VmRSS:\s*(\d+) kB", read("/proc/%d/status" % pid), re.MULTILINE)
	if not found:
		raise Failed("the system does not tell the memory of the engine")
	return int(found.group(1)) * KIB
