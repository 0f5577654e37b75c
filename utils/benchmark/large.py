"""
Builds of very many tasks that do next to nothing, which measure Waf itself, with our tool and without it.

Sizes follow each other. A contender whose build fails, or takes longer than the limit, has no numbers for that size
and for larger ones, and a note says why: Waf alone ends a chain of a thousand tasks with a RecursionError.
"""

import os
import shutil
from typing import TYPE_CHECKING, Dict, Iterable, Iterator, List, Optional, Tuple

from .meter import Command, Reading
from .mistake import Failed

if TYPE_CHECKING:
	from .run import Run

MIB = 1024.0
SIZES = {"large": (20000,), "large-rules": (1000, 2000), "large-chain": (500, 20000), "large-archive": (2000, 10000)}
"""The default numbers of tasks."""
LIMIT = 900  # seconds that a build may take
REPEATED = ("large-archive",)  # in these, all tasks run in each build


class Sizes:
	"""A shape, in one size after the other."""

	def __init__(self, run: "Run", scenario: str) -> None:
		self.run = run
		self.scenario = scenario
		self.limit = run.settings["limit"]
		self.before: Dict[str, Tuple[int, float]] = {}
		"""By part, the size before and its time."""

	def take(self) -> None:
		for count in self.run.settings["tasks"] or SIZES[self.scenario]:
			reason = too_long(self.before.values(), count, self.limit)
			reason = "left out, as %s" % reason if reason else self.build_both(count)
			if reason:
				where = (self.scenario, self.run.lane.text, count)
				self.run.settings["notes"]["%s, %s, from %d tasks on" % where] = reason
				return

	def build_both(self, count: int) -> str:
		"""Build from nothing, and once more; the reason if that failed."""
		try:
			for part, reading in self.readings(count):
				self.keep(part if self.scenario not in REPEATED or part == "full" else "again", count, reading)
		except Failed as e:
			return last_line(e)
		return ""

	def readings(self, count: int) -> Iterator[Tuple[str, Reading]]:
		"""Measure a build from nothing, and once more."""
		self.run.new_folder()
		for part in ("full", "no-op"):
			os.sync()
			reading = self.run.execute(self.command(count))
			check_done(self.run, count if part == "full" or self.scenario in REPEATED else 0)
			yield part, reading

	def command(self, count: int) -> Command:
		shape = self.scenario.rpartition("large-")[2] if self.scenario != "large" else "files"
		variables = {"BENCH_COMMANDS": str(count), "BENCH_SHAPE": shape}
		command = self.run.lane.contender.builder.waf(self.run, "build", "-j%d" % self.run.jobs, **variables)
		return command._replace(argv=[*limiter(self.limit), *command.argv])

	def keep(self, part: str, count: int, reading: Reading) -> None:
		used = reading.used
		values = {
			"wall": reading.wall,
			"processor": used.user + used.system,
			"peak": used.peak_kib / MIB,
			"tasks": count,
		}
		if part in self.before:
			values["growth"] = reading.wall / self.before[part][1]
		self.before[part] = count, reading.wall
		self.run.results.append(("%s, %d tasks" % (part, count), values))


def too_long(known: Iterable[Tuple[int, float]], count: int, limit: int) -> str:
	"""The reason not to try a size: at the pace of a smaller one it would exceed the limit; empty if there is none."""
	for size, wall in known:
		if wall * count / size > limit:
			return "%d tasks took %.0f s and the limit is %d s" % (size, wall, limit)
	return ""


def check_done(run: "Run", wanted: int) -> None:
	"""Fail unless this number of tasks ran."""
	with open(run.path("done"), encoding="utf-8") as f:
		done = int(f.read())
	if done != wanted:
		raise Failed("it ran %d tasks instead of %d" % (done, wanted))


def limiter(seconds: int) -> List[str]:
	"""The words before a command that limit its time; none without the program ``timeout``."""
	program: Optional[str] = shutil.which("timeout")
	return [program, "-k", "10", str(seconds)] if program else []


def last_line(failure: Failed) -> str:
	"""The last error of a build, or how it ended."""
	lines = [line.strip() for line in failure.tail.splitlines() if "Error" in line]
	return "%s (%s)" % (lines[-1], failure) if lines else str(failure)
