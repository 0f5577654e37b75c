"""
Plans of targets whose turn comes later: processes that are forked make them while this one goes on.

What they found is used only where it is the plan for what is there when the turn of its target has come. What does not
come, or not in time, is planned here as if nobody had been asked. Knows nothing of how a target is planned.
"""

import gc
import marshal
import os
import select
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from . import ledger

LEAST = 200
"""So many sources are worth a process."""
PATIENCE = 60.0
"""Seconds for what a process has found, from when it is needed."""


class Helper:
	"""A forked process, and whose plans it makes."""

	def __init__(self, gens: Sequence[Any], pid: int, pipe: int) -> None:
		self.gens = gens
		self.pid = pid
		self.pipe = pipe

	def read(self) -> bytes:
		"""All that it says; nothing if it does not end in time."""
		pieces: List[bytes] = []
		end = time.monotonic() + PATIENCE
		poll = select.poll()
		poll.register(self.pipe, select.POLLIN)
		try:
			while True:
				left = end - time.monotonic()
				if left <= 0 or not poll.poll(left * 1000):
					os.kill(self.pid, signal.SIGKILL)
					return b""
				piece = os.read(self.pipe, 1 << 20)
				if not piece:
					return b"".join(pieces)
				pieces.append(piece)
		finally:
			os.close(self.pipe)
			self.reap()

	def reap(self) -> None:
		try:
			os.waitpid(self.pid, 0)
		except OSError:
			pass  # somebody waits for all children

	def drop(self) -> None:
		"""Nobody needs it any more."""
		os.close(self.pipe)
		os.kill(self.pid, signal.SIGKILL)
		self.reap()


class Ahead:
	"""The helpers of one build."""

	def __init__(self, book: ledger.Ledger, make: Callable[[Any], None]) -> None:
		self.book = book
		self.make = make
		"""Makes the plans of a task generator, and leaves them in the book."""
		self.helpers: List[Helper] = []
		self.misses = 0

	def note_miss(self, gen: Any) -> None:
		"""
		A target has to be planned here.

		A single one is what somebody edits. With the second one it is likely that others follow, and those that do
		are shared out.
		"""
		self.misses += 1
		if self.misses == 2:
			self.begin(find_followers(gen), find_processes(gen.bld))

	def begin(self, gens: List[Any], processes: int) -> None:
		weights = [ledger.count_sources(gen) for gen in gens]
		processes = min(processes, sum(weights) // LEAST + 1)
		# ours come first, since we get to them at once
		for share in reversed(part(weights, processes)[1:]):
			helper = self.fork([gens[i] for i in share])
			if helper is None:
				return
			self.helpers.append(helper)

	def fork(self, gens: List[Any]) -> Optional[Helper]:
		reading, writing = os.pipe()
		try:
			pid = os.fork()
		except OSError:  # there may be no more of us
			os.close(reading)
			os.close(writing)
			return None
		if pid == 0:
			self.be_helper(gens, writing)
		os.close(writing)
		return Helper(gens, pid, reading)

	def be_helper(self, gens: List[Any], pipe: int) -> None:
		"""All that a forked process does."""
		status = 1
		try:
			gc.disable()
			self.book.ahead = None
			told = self.find(gens)
			view = memoryview(marshal.dumps(told, ledger.ENCODING))
			while view:
				view = view[os.write(pipe, view) :]
			status = 0
		except BaseException:
			pass  # it is done where it is needed, and if it fails there, that is seen
		finally:
			os._exit(status)

	def find(self, gens: List[Any]) -> Dict[str, Any]:
		"""The plans of these, and all facts that were not known before."""
		shelf = self.book.open_facts()
		facts = self.book.facts
		before = {kind: dict(facts[kind]) for kind in ("files", "systems", "folders")}
		known = {name: target.get("key") for name, target in self.book.plans.items()}
		for gen in gens:
			try:
				self.make(gen)
			except Exception:  # a source that is not there, or not yet
				continue
		plans = {name: each for name, each in self.book.plans.items() if each and each.get("key") != known.get(name)}
		new = {kind: pick_new(facts[kind], before[kind]) for kind in before}
		return {"plans": plans, "is_new": shelf.is_new, **new}

	def fetch(self, gen: Any) -> bool:
		"""Have what was found of the targets that this one was shared out with; tell whether there is any."""
		for helper in self.helpers:
			if gen in helper.gens:
				self.helpers.remove(helper)
				data = helper.read()
				if data:
					self.take(marshal.loads(data))
				return bool(data)
		return False

	def take(self, told: Dict[str, Any]) -> None:
		self.book.open_facts().is_new |= told["is_new"]
		for kind in ("files", "systems", "folders"):
			self.book.facts[kind].update(told[kind])
		for name, saved in told["plans"].items():
			self.book.target(name).saved.update(saved)
			self.book.is_new = True

	def end(self) -> None:
		"""The build is over, perhaps before all were needed."""
		while self.helpers:
			self.helpers.pop().drop()


def find_followers(gen: Any) -> List[Any]:
	"""The task generators of its group whose turn comes after it."""
	bld = gen.bld
	group = bld.groups[bld.current_group]
	if gen not in group:
		return []
	after = group[group.index(gen) + 1 :]
	return [each for each in after if hasattr(each, "source") and not getattr(each, "posted", None)]


def find_processes(bld: Any) -> int:
	affinity = getattr(os, "sched_getaffinity", None)
	return min(getattr(bld, "jobs", 1), len(affinity(0)) if affinity else os.cpu_count() or 1)


def part(weights: Sequence[int], count: int) -> List[List[int]]:
	"""The numbers of a list, parted into so many runs of about the same weight."""
	runs: List[List[int]] = [[] for _ in range(count)]
	whole = sum(weights) or 1
	before = 0
	for i, weight in enumerate(weights):
		runs[min((before + weight // 2) * count // whole, count - 1)].append(i)
		before += weight
	return runs


def pick_new(now: Dict[str, Any], before: Dict[str, Any]) -> Dict[str, Any]:
	return {key: value for key, value in now.items() if before.get(key) is not value}
