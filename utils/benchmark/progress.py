"""Progress lines, and what they estimate to remain."""

import shutil
import threading
import time
from typing import Collection, Dict, Hashable, Optional, Sequence, Set, TextIO, Tuple


class Progress:
	"""What runs now, which of how many, and how long the others will take, judged by those that are done."""

	def __init__(self, stream: TextIO, kinds: Sequence[Hashable] = ()) -> None:
		self.stream = stream
		self.kinds = list(kinds)
		self.ahead = Ahead()
		self.dropped: Set[Hashable] = set()
		self.started = 0.0

	def begin(self, number: int, text: str) -> None:
		"""Say that a step begins."""
		left = self.remaining(number)
		tail = "" if left is None else ", about %s left" % duration(left)
		self.say("[%*d/%d] %s%s" % (len(str(len(self.kinds))), number + 1, len(self.kinds), text, tail))
		self.started = time.monotonic()

	def done(self, number: int) -> None:
		"""Take the time of a step that has ended."""
		self.ahead.learn(self.kinds[number], 1, time.monotonic() - self.started)

	def drop(self, kinds: Collection[Hashable]) -> None:
		"""Count on steps of these kinds no more."""
		self.dropped.update(kinds)

	def remaining(self, number: int) -> Optional[float]:
		"""Estimate the steps from a number on: each as its own kind took last time, or as the mean of all kinds."""
		return self.ahead.estimate([(kind, 1) for kind in self.kinds[number:] if kind not in self.dropped])

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


class Ahead:
	"""What remains of steps that differ in size: from those of the same kind, as a line through the last two sizes."""

	def __init__(self) -> None:
		self.known: Dict[Hashable, Dict[int, float]] = {}

	def learn(self, kind: Hashable, size: int, seconds: float) -> None:
		"""Take the time of a step that has ended."""
		self.known.setdefault(kind, {})[size] = seconds

	def estimate(self, steps: Sequence[Tuple[Hashable, int]]) -> Optional[float]:
		"""How long steps, kind and size, will take; nothing is known before the first one has ended."""
		rates = [seconds / size for sizes in self.known.values() for size, seconds in sizes.items()]
		if not rates:
			return None
		mean = sum(rates) / len(rates)
		return sum(self.time(kind, size) if kind in self.known else mean * size for kind, size in steps)

	def time(self, kind: Hashable, size: int) -> float:
		"""How long a step of a kind that is known takes in a size."""
		sizes = self.known[kind]
		if size in sizes:
			return sizes[size]
		*others, last = sorted(sizes)
		rate = sizes[last] / last
		if others:
			rate = max((sizes[last] - sizes[others[-1]]) / (last - others[-1]), 0.0)
		return max(sizes[last] + rate * (size - last), 0.0)


class Ticker:
	"""
	One line that lives: what runs now, for how long, and what remains.

	Where there is no terminal, a line for each step that has ended. The thread only wakes once a second, so that what
	is measured is not disturbed.
	"""

	PERIOD = 1.0

	def __init__(self, stream: TextIO) -> None:
		self.stream = stream
		self.is_live = stream.isatty()
		self.text = ""
		self.left: Optional[float] = None
		self.started = 0.0
		self.stopped = threading.Event()
		self.lock = threading.Lock()
		self.thread: Optional[threading.Thread] = None

	def begin(self, text: str, left: Optional[float]) -> None:
		"""Say that a step begins."""
		with self.lock:
			self.text, self.left, self.started = text, left, time.monotonic()
		if self.is_live and not self.thread:
			self.thread = threading.Thread(target=self.tick, daemon=True)
			self.thread.start()

	def tick(self) -> None:
		"""Show the line again and again."""
		while not self.stopped.wait(self.PERIOD):
			with self.lock:
				self.show()

	def show(self) -> None:
		"""Show the line as it is now, cut where the terminal ends: a second line would stay."""
		if self.text:
			gone = time.monotonic() - self.started
			left = "" if self.left is None else ", about %s left" % duration(max(self.left - gone, 0))
			line = "%s: %s%s" % (self.text, duration(gone), left)
			width = shutil.get_terminal_size().columns - 1
			self.stream.write("\r%s\033[K" % line[:width])
			self.stream.flush()

	def done(self, said: str, left: Optional[float]) -> None:
		"""Say what came of a step."""
		with self.lock:
			line = "%s: %s" % (self.text, said)
			self.text = ""
		self.say(line if left is None else "%s, about %s left" % (line, duration(left)))

	def say(self, line: str) -> None:
		"""Print a line that stays."""
		with self.lock:
			print("%s%s" % ("\r\033[K" if self.is_live else "", line), file=self.stream, flush=True)

	def stop(self) -> None:
		"""Show no more."""
		with self.lock:
			self.text = ""
		self.stopped.set()
