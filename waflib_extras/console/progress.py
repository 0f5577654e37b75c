"""
The line of ``waf -p``: how far the build is, its rate, the share of hits, and how long it will take.

It replaces Waf's own line while prefork is in place. The time that is left is estimated from the times of the same
tasks in earlier builds, as far as they are known, and from the present speed.
"""

import collections
import os
import sys
import time
from typing import TYPE_CHECKING, Deque, Dict, List, NamedTuple, Optional, TextIO, Tuple

from waflib import Logs

from ..hooks import lifecycle
from . import history

if TYPE_CHECKING:
	import logging

	from waflib.Build import BuildContext
	from waflib.Task import Task

LEAST_PAUSE = 0.1
"""Seconds between two lines at least; Waf would write one for each task."""
SHARE = 50
"""The pause between two lines is at least so many times as long as making a line takes."""
WINDOW = 15.0
"""Seconds over which the present speed is measured."""
DUMB_PAUSE = 5.0
"""Seconds between two lines where a line cannot be overwritten."""
DUMB = ("", "dumb", "emacs")
LEAST_BAR = 8
ERASE = "\r\x1b[K"


class View(NamedTuple):
	"""The values that a line shows."""

	done: int
	total: int
	rate: float
	"""Tasks per second; 0 if it is not known."""
	hits: Optional[float]
	"""The share of hits among the commands that the cache was asked for; None if there were none."""
	left: Optional[float]
	"""In seconds; None if it is not known."""
	elapsed: float


def compose(view: View, columns: int, col1: str = "", col2: str = "") -> str:
	"""The line, shorter than the terminal is wide. The least important parts are left out first."""
	width = len(str(view.total))
	percent = "%3d%%" % (100 * view.done // max(view.total, 1))
	head = "[%*d/%d]" % (width, view.done, view.total)
	rate = "%.0f/s" % view.rate if view.rate >= 10 else "%.1f/s" % view.rate
	time_left = "%s left" % clock(view.left) if view.left is not None else clock(view.elapsed)
	# the most important first; the numbers are their places in the line
	parts: List[Tuple[int, str]] = [(0, head), (2, percent), (5, time_left)]
	if view.rate:
		parts.append((3, rate))
	if view.hits is not None:
		parts.append((4, "%d%% hits" % (100 * view.hits)))
	most = columns - 1
	while len(parts) > 1 and sum(len(text) + 1 for _, text in parts) - 1 > most:
		parts.pop()
	free = most - sum(len(text) + 1 for _, text in parts)
	if free >= LEAST_BAR + 2:
		inner = min(free, 42) - 2
		filled = inner * view.done // max(view.total, 1)
		parts.append((1, "[%s]" % ("=" * max(filled - 1, 0) + ">" * (filled > 0)).ljust(inner)))
	texts = dict(parts)
	texts[0] = texts[0][:most]
	if 2 in texts:
		texts[2] = col1 + texts[2] + col2
	return " ".join(texts[place] for place in sorted(texts))


def clock(seconds: float) -> str:
	"""A duration such as 12 s, 1:07 or 1:02:03."""
	whole = int(seconds + 0.5)
	if whole < 60:
		return "%d s" % whole
	if whole < 3600:
		return "%d:%02d" % divmod(whole, 60)
	return "%d:%02d:%02d" % (whole // 3600, whole // 60 % 60, whole % 60)


def find_columns(stream: TextIO) -> int:
	"""The present width of the terminal, which the user may have resized."""
	try:
		columns = os.get_terminal_size(stream.fileno()).columns
	except (OSError, ValueError, AttributeError):
		columns = 0
	return columns or int(os.environ.get("COLUMNS") or 0 if os.environ.get("COLUMNS", "").isdigit() else 0) or 80


class Meter:
	"""The progress of one build context."""

	def __init__(self, bld: "BuildContext", now: float) -> None:
		self.bld = bld
		self.began = now
		self.due = 0.0
		self.is_dumb = not Logs.colors_lst["USE"] and os.environ.get("TERM", "") in DUMB
		self.known_times = history.read(history.find_file(bld, history.TIMES))
		self.points: Deque[Tuple[float, float, int]] = collections.deque()
		self.counted = (-1, 0)
		self.weights: Dict[int, float] = {}
		self.is_over = False
		self.tasks: List[Task] = []

	def draw(self, done: int, total: int, col1: str, col2: str) -> str:
		now = time.monotonic()
		if now < self.due and done < total:
			return ""
		view = self.look(now, done, total)
		line = compose(view, find_columns(sys.stderr), col1, col2)
		cost = time.monotonic() - now
		if self.is_dumb:
			self.due = now + DUMB_PAUSE
			if done < total and not self.is_over:
				return line + "\n"
			# Waf ends the last line itself
			return line if self.is_over else ""
		self.due = now + max(LEAST_PAUSE, cost * SHARE)
		Shown.is_last = self.is_over
		install_eraser()
		return ERASE + line

	def look(self, now: float, done: int, total: int) -> View:
		weight, finished, whole = self.weigh(total)
		points = self.points
		points.append((now, weight, finished))
		while len(points) > 2 and now - points[1][0] > WINDOW:
			points.popleft()
		then, before, were = points[0]
		passed = now - then
		speed = (weight - before) / passed if passed > 0.2 else 0.0
		rate = (finished - were) / passed if passed > 0.2 else 0.0
		producer = getattr(self.bld, "producer", None)
		self.is_over = finished == len(self.tasks) or bool(producer and (producer.stop or producer.error))
		# the speed in the first second is not typical
		is_known = speed > 0 and now - self.began >= 1 and not self.is_over
		left = (whole - weight) / speed if is_known else None
		return View(done, total, rate, self.find_hits(), left, now - self.began)

	def weigh(self, total: int) -> Tuple[float, int, float]:
		"""The work done, in seconds of earlier builds; the number of tasks done; and all the work."""
		groups = self.bld.groups
		if self.counted[0] != total:
			self.counted = (total, 0)
			self.tasks = [task for group in groups for one in group for task in getattr(one, "tasks", (one,))]
			known = [self.known_times.get(history.name(self.bld, task)) for task in self.tasks]
			told = [micros for micros in known if micros]
			# an unknown task is taken for an average one
			usual = sum(told) / len(told) if told else 1e6
			self.weights = {id(task): micros or usual for task, micros in zip(self.tasks, known)}
		weights = self.weights
		over = [weights[id(task)] for task in self.tasks if getattr(task, "hasrun", 0)]
		return sum(over) / 1e6, len(over), sum(weights.values()) / 1e6

	def find_hits(self) -> Optional[float]:
		cache = lifecycle.find().cache
		_, hits, misses = cache.counts if cache is not None else (0, 0, 0)
		return hits / (hits + misses) if hits + misses else None


class Eraser:
	"""A filter of Waf's log that erases our line before another message is written."""

	def filter(self, record: "logging.LogRecord") -> bool:
		# our line comes here, too: Task.log_display writes it to the log
		is_line = str(record.msg).startswith(ERASE)
		if Shown.is_there and not is_line:
			sys.stderr.write(ERASE)
			sys.stderr.flush()
		Shown.is_there = is_line and not Shown.is_last
		return True


class Shown:
	"""Our line in the terminal."""

	is_there = False
	is_last = False
	eraser: Optional[Eraser] = None


def install_eraser() -> None:
	"""Have our line erased before another message is written, from now on."""
	if Shown.eraser is None and Logs.log is not None:
		Shown.eraser = Eraser()
		Logs.log.addFilter(Shown.eraser)


def draw(bld: "BuildContext", idx: int, total: int, col1: str, col2: str) -> str:
	"""Stands in for Waf's ``progress_line``."""
	if not sys.stderr.isatty():
		return ""
	meter: Optional[Meter] = bld.__dict__.get("prefork_meter")
	if meter is None:
		meter = bld.prefork_meter = Meter(bld, time.monotonic())
	return meter.draw(idx, total, col1, col2)
