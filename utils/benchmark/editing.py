"""
The scenario ``edit``: in some sources of real C++ code, a random function body is edited again and again.

After each edit, everything is built. The first edits of a source are not measured: from them a cache may learn, and
then it gets the time for it, as it has when a person edits. All objects of the sources are compared at the end.
"""

import os
import random
import re
import time
from typing import TYPE_CHECKING, Dict, List

from .mistake import Failed

if TYPE_CHECKING:
	from .run import Run

UNMEASURED, MEASURED = 2, 3  # edits of a source
PATIENCE = 20.0  # seconds for a cache to learn, if it does
PAUSE = 0.2
BODY = re.compile(r"^[A-Za-z_].*\).*\{$", re.M)
"""The line with which a function body begins, at least in the code of the packages that we fetch."""
STATEMENT = "\n  volatile int edited_here = %d; (void) edited_here;"


class Edits:
	"""The edits of one run. All runs make the same ones, beginning with the original sources and an empty cache."""

	def __init__(self, run: "Run") -> None:
		self.run = run
		self.originals: Dict[str, str] = {}
		self.draw = random.Random(0)
		self.count = run.settings["commands"]["edit"]
		self.number = 0
		self.lessons = 0

	def take(self) -> None:
		"""Build everything, then edit and build, and keep the sum of what all measured builds took."""
		run = self.run
		run.new_folder()
		run.aside("build", run.lane.contender.builder.command(run))
		sums = {"wall": 0.0, "processor": 0.0}
		try:
			for source in self.choose():
				for edit in range(UNMEASURED + MEASURED):
					self.edit(source)
					if edit < UNMEASURED:
						run.aside("learn", run.lane.contender.builder.command(run))
						self.let_learn(edit)
						continue
					reading = run.execute(run.lane.contender.builder.command(run))
					sums["wall"] += reading.wall
					sums["processor"] += reading.used.user + reading.used.system
			run.results.append(("", {name: value / (self.count * MEASURED) for name, value in sums.items()}))
			self.compare()
			told = run.cache.told() if run.cache else ""
			if told:
				run.settings["notes"]["edit, %s" % run.lane.contender.name] = told
		finally:
			self.restore()

	def choose(self) -> List[str]:
		"""Some sources in which a function begins."""
		sources = [source for source in self.run.project.sources() if BODY.search(self.run.project.read(source))]
		if len(sources) < self.count:
			raise Failed("it has %d sources with functions: ask for fewer with --commands" % len(sources))
		return sorted(self.draw.sample(sorted(sources), self.count))

	def edit(self, source: str) -> None:
		original = self.originals.setdefault(source, self.run.project.read(source))
		self.number += 1
		begins = self.draw.choice(list(BODY.finditer(original)))
		self.write(source, original[: begins.end()] + STATEMENT % self.number + original[begins.end() :])

	def write(self, source: str, text: str) -> None:
		with open(os.path.join(self.run.root, source), "w", encoding="utf-8") as f:
			f.write(text)

	def let_learn(self, edit: int) -> None:
		"""Give the cache time after the last edit that is not measured, if it learns anything of edits."""
		cache = self.run.cache
		if edit + 1 < UNMEASURED or not cache or cache.lessons() is None:
			return
		deadline = time.monotonic() + PATIENCE
		while cache.lessons() == self.lessons and time.monotonic() < deadline:
			time.sleep(PAUSE)
		self.lessons = cache.lessons() or 0

	def compare(self) -> None:
		"""Fail unless the objects are those of the first contender."""
		first, different = self.run.project.compare(self.run.folder, self.run.lane.text)
		if different:
			said = (len(different), first, different[0])
			raise Failed("%d of its objects differ from those of %s: that of %s" % said)

	def restore(self) -> None:
		for source, original in self.originals.items():
			self.write(source, original)
