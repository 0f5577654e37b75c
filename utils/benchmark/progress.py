"""Progress lines, with an estimate of the time that remains."""

import time
from typing import Dict, Hashable, Optional, Sequence, TextIO, Tuple

Steps = Sequence[Tuple[Hashable, int]]
"""Steps that are still to be done: the kind and the size of each."""


def duration(seconds: float) -> str:
	"""A duration for people."""
	whole = round(seconds)
	if whole < 60:
		return "%d s" % whole
	if whole < 3600:
		return "%d min %02d s" % divmod(whole, 60)
	return "%d h %02d min" % divmod(whole // 60, 60)


class Progress:
	"""Says which step runs now and how long the rest will take, judged by the steps that are done."""

	def __init__(self, stream: TextIO) -> None:
		self.stream = stream
		self.known: Dict[Hashable, Dict[int, float]] = {}
		"""The seconds that steps took, by kind and size."""
		self.started = 0.0

	def say(self, line: str) -> None:
		"""Print a line at once."""
		print(line, file=self.stream, flush=True)

	def begin(self, text: str, steps: Steps = ()) -> None:
		"""Say that a step begins; ``steps`` are those that remain, with this one."""
		left = self.estimate(steps)
		self.say(text if left is None else "%s, about %s left" % (text, duration(left)))
		self.started = time.monotonic()

	def done(self, kind: Hashable, size: int = 1) -> float:
		"""Keep the time of the step that has ended, and return it."""
		took = time.monotonic() - self.started
		self.learn(kind, size, took)
		return took

	def learn(self, kind: Hashable, size: int, seconds: float) -> None:
		self.known.setdefault(kind, {})[size] = seconds

	def estimate(self, steps: Steps) -> Optional[float]:
		"""The time of some steps: by steps of the same kind, or else by the mean; None if nothing is known."""
		rates = [seconds / size for sizes in self.known.values() for size, seconds in sizes.items()]
		if not rates or not steps:
			return None
		mean = sum(rates) / len(rates)
		return sum(self.time(kind, size) if kind in self.known else mean * size for kind, size in steps)

	def time(self, kind: Hashable, size: int) -> float:
		"""The time of a step of a known kind: on the line through the last two sizes that were measured."""
		sizes = self.known[kind]
		if size in sizes:
			return sizes[size]
		*others, last = sorted(sizes)
		rate = sizes[last] / last
		if others:
			rate = max((sizes[last] - sizes[others[-1]]) / (last - others[-1]), 0.0)
		return max(sizes[last] + rate * (size - last), 0.0)
