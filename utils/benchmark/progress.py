"""Progress lines, and what they estimate to remain."""

import time
from typing import Collection, Dict, Hashable, Optional, Sequence, TextIO


class Progress:
	"""What runs now, which of how many, and how long the others will take, judged by those that are done."""

	def __init__(self, stream: TextIO, kinds: Sequence[Hashable] = ()) -> None:
		self.stream = stream
		self.kinds = list(kinds)
		self.seconds: Dict[Hashable, float] = {}
		self.started = 0.0

	def begin(self, number: int, text: str) -> None:
		"""Say that a step begins."""
		left = self.remaining(number)
		tail = "" if left is None else ", about %s left" % duration(left)
		self.say("[%*d/%d] %s%s" % (len(str(len(self.kinds))), number + 1, len(self.kinds), text, tail))
		self.started = time.monotonic()

	def done(self, number: int) -> None:
		"""Take the time of a step that has ended."""
		self.seconds[self.kinds[number]] = time.monotonic() - self.started

	def drop(self, kinds: Collection[Hashable]) -> None:
		"""Count on steps of these kinds no more."""
		self.seconds.update(dict.fromkeys(kinds, 0.0))

	def remaining(self, number: int) -> Optional[float]:
		"""Estimate the steps from a number on: each as its own kind took last time, or as the mean of all kinds."""
		known = [seconds for seconds in self.seconds.values() if seconds]
		if not known:
			return None
		mean = sum(known) / len(known)
		return sum(self.seconds.get(kind, mean) for kind in self.kinds[number:])

	def say(self, line: str) -> None:
		"""Print a line at once."""
		print(line, file=self.stream, flush=True)


def duration(seconds: float) -> str:
	"""A duration as people say it."""
	whole = round(seconds)
	if whole < 60:
		return "%d s" % whole
	if whole < 3600:
		return "%d min %02d s" % divmod(whole, 60)
	return "%d h %02d min" % divmod(whole // 60, 60)
