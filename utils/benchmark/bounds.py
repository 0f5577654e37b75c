"""
What a machine bears: which sizes are not tried because time, memory or disk would not do, judged by smaller ones.

Everything is taken to grow in proportion, which is the least that it does; a little is added for what grows faster.
"""

import os
from typing import Dict, Hashable, Optional, Tuple

from .machine import memory_free

MARGIN = 1.25
ASIDE = 100  # MiB that a build system takes for nothing
MEMORY = {"idle": 6 / 1024, "compile": 12 / 1024}  # MiB that it takes for a task, as long as nothing is known
BYTES = {"idle": 1500, "compile": 40000}  # that a build folder and its part of the project take for a task
FILES = {"idle": 1.1, "compile": 4.0}
SPARE = 0.9  # of the disk that may be used


class Bounds:
	"""What is known of this machine, and of what took part on it."""

	def __init__(self, work: str, folder: str, limit: float) -> None:
		self.work = work
		self.folder = folder
		self.limit = limit
		self.walls: Dict[Hashable, Tuple[int, float]] = {}
		self.peaks: Dict[Hashable, Tuple[int, float]] = {}
		self.bytes_each = float(BYTES[work])

	def learn(self, lane: Hashable, tasks: int, wall: float, peak: Optional[float]) -> None:
		"""Take what a run has taken: the most of a size counts, and of sizes the largest one."""
		for known, value in ((self.walls, wall), (self.peaks, peak or 0.0)):
			before = known.get(lane, (0, 0.0))
			if (tasks, value) > before:
				known[lane] = tasks, value

	def refuse_lane(self, lane: Hashable, tasks: int) -> str:
		"""Why a lane does not take part in a size; empty when it does."""
		return self.too_long(lane, tasks) or self.too_large(lane, tasks)

	def too_long(self, lane: Hashable, tasks: int) -> str:
		"""Why it would take too long."""
		size, wall = self.walls.get(lane, (tasks, 0.0))
		if size < tasks and wall * tasks / size > self.limit:
			return "%d tasks took %.0f s, and the limit is %d s" % (size, wall, self.limit)
		return ""

	def too_large(self, lane: Hashable, tasks: int) -> str:
		"""Why memory would not do."""
		free = memory_free()
		size, peak = self.peaks.get(lane, (0, 0.0))
		wanted = MARGIN * (peak * max(tasks / size, 1.0) if peak else ASIDE + tasks * MEMORY[self.work])
		if free is not None and wanted > free:
			return "it would need about %d MiB of memory, and %d are free" % (wanted, free)
		return ""

	def refuse_size(self, tasks: int, folders: int) -> str:
		"""Why the disk does not hold so many build folders of a size; empty when it does."""
		space = os.statvfs(self.folder)
		wanted, free = self.bytes_each * tasks * folders, space.f_bavail * space.f_frsize * SPARE
		if wanted > free:
			return "%d build folders would take about %d MiB of disk, and %d may be used" % (
				folders,
				wanted / 2**20,
				free / 2**20,
			)
		files = FILES[self.work] * tasks * folders
		if space.f_files and files > space.f_favail * SPARE:
			return "%d build folders would take about %d files, and the disk has room for %d" % (
				folders,
				files,
				space.f_favail,
			)
		return ""

	def used(self) -> int:
		"""The bytes that are in use on the disk, by whomever."""
		space = os.statvfs(self.folder)
		return (space.f_blocks - space.f_bfree) * space.f_frsize

	def learn_size(self, before: int, tasks: int, folders: int) -> None:
		"""Take what the build folders of a size have taken, when they take more than was thought."""
		if folders:
			self.bytes_each = max(self.bytes_each, (self.used() - before) / (tasks * folders))
