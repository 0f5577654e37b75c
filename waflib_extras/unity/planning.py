"""
Has forked processes plan targets whose turn comes later, while this process goes on.

Each begins with the last of its targets, so that it meets this process, and no process waits for another. A plan is
used only if it is valid when the turn of its target comes. All other targets are planned here. This file knows nothing
of how a target is planned.
"""

import contextlib
import gc
import marshal
import os
import signal
import tempfile
from typing import TYPE_CHECKING, Callable, List, Sequence

from . import memory

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.TaskGen import task_gen

LEAST = 200
"""A process is started for so many sources."""
NUMBERS = 4  # bytes of a length


class Helper:
	"""A forked process, and the file in which it leaves what it has found."""

	def __init__(self, pid: int, file: int) -> None:
		self.pid = pid
		self.file = file
		self.read = 0

	def take(self) -> List[memory.News]:
		"""The plans that it has written since the last call."""
		found = []
		size = os.fstat(self.file).st_size
		while self.read + NUMBERS <= size:
			length = int.from_bytes(os.pread(self.file, NUMBERS, self.read), "big")
			if self.read + NUMBERS + length > size:
				break
			found.append(marshal.loads(os.pread(self.file, length, self.read + NUMBERS)))
			self.read += NUMBERS + length
		return found

	def drop(self) -> None:
		"""End the process, which is not needed any more."""
		os.close(self.file)
		with contextlib.suppress(OSError):
			os.kill(self.pid, signal.SIGKILL)
			os.waitpid(self.pid, 0)


class Ahead:
	"""The helpers of one build."""

	def __init__(self, remembered: memory.BuildMemory, make: Callable[["task_gen"], None]) -> None:
		self.remembered = remembered
		self.make = make
		"""Makes the plans of a task generator and adds them to ``remembered``."""
		self.helpers: List[Helper] = []
		self.misses = 0
		self.count = 0
		"""The number of plans that helpers have made."""

	def note_miss(self, gen: "task_gen") -> None:
		"""
		Note that a target has to be planned here.

		A single one may have been edited. After the second one it is likely that others follow, which helpers plan.
		"""
		self.misses += 1
		if self.misses == 2:
			self.begin(find_followers(gen), find_processes(gen.bld) - 1)

	def begin(self, gens: List["task_gen"], count: int) -> None:
		weights = [memory.count_sources(gen) for gen in gens]
		shares = part(weights, min(count, sum(weights) // LEAST))
		for share in shares:
			try:
				self.helpers.append(self.fork([gens[i] for i in reversed(share)]))
			except OSError:
				return  # the system may allow no more processes or files

	def fork(self, gens: List["task_gen"]) -> Helper:
		file = make_file()
		try:
			pid = os.fork()
		except OSError:
			os.close(file)
			raise
		if pid == 0:
			self.be_helper(gens, file)
		return Helper(pid, file)

	def be_helper(self, gens: List["task_gen"], file: int) -> None:
		"""The body of a forked process."""
		parent = os.getppid()
		try:
			signal.signal(signal.SIGINT, signal.SIG_DFL)
			gc.disable()
			self.remembered.ahead = None
			self.remembered.open_facts()
			self.remembered.take_new()
			for gen in gens:
				with contextlib.suppress(Exception):  # a source may not exist yet
					self.make(gen)
				new = self.remembered.take_new()
				data = marshal.dumps(new, memory.ENCODING)  # type: ignore[arg-type]  # for the stubs, a TypedDict is no dict
				view = memoryview(len(data).to_bytes(NUMBERS, "big") + data)
				while view:
					view = view[os.write(file, view) :]
				if os.getppid() != parent:
					break
		finally:
			os._exit(0)

	def fetch(self) -> bool:
		"""Take what helpers have found since the last call. Tell whether there was anything."""
		found = [told for helper in self.helpers for told in helper.take()]
		for told in found:
			self.remembered.put_new(told)
			self.count += len(told["plans"]["targets"])
		return bool(found)

	def end(self) -> None:
		"""End all helpers."""
		while self.helpers:
			self.helpers.pop().drop()


def make_file() -> int:
	"""A file without a name."""
	if hasattr(os, "memfd_create"):
		with contextlib.suppress(OSError):
			return os.memfd_create("unity")
	with tempfile.TemporaryFile() as file:
		return os.dup(file.fileno())


def find_followers(gen: "task_gen") -> "List[task_gen]":
	"""The task generators of the same group whose turn comes later."""
	bld = gen.bld
	group = bld.groups[bld.current_group]
	if gen not in group:
		return []
	after = group[group.index(gen) + 1 :]
	return [each for each in after if hasattr(each, "source") and not getattr(each, "posted", None)]


def find_processes(bld: "BuildContext") -> int:
	"""The number of processes that may work at the same time."""
	affinity = getattr(os, "sched_getaffinity", None)
	return min(getattr(bld, "jobs", 1), len(affinity(0)) if affinity else os.cpu_count() or 1)


def part(weights: Sequence[int], count: int) -> List[List[int]]:
	"""Split a list into so many parts of about the same weight. Returns the numbers of their elements."""
	runs: List[List[int]] = [[] for _ in range(count)]
	whole = sum(weights) or 1
	before = 0
	for i, weight in enumerate(weights if count > 0 else ()):
		runs[min((before + weight // 2) * count // whole, count - 1)].append(i)
		before += weight
	return [run for run in runs if run]
