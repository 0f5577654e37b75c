"""
Which slots were idle, and why.

Pure: it knows spans of time and numbers, and no build.
"""

import bisect
from typing import Dict, List, NamedTuple, Sequence, Tuple

REASONS = (
	"before the first task: reading wscripts and the database",
	"Waf makes tasks (posting)",
	"Waf's own thread is busy: comparing, scanning, making commands",
	"the engine has commands, and starts them or asks its cache",
	"other builds have the slots",
	"nothing is ready: all wait for others",
	"nothing is left but the last ones",
	"between two commands",
	"after the last task: writing the database",
	"the commands are on a cluster: -j counts them, too",
	"compiles wait for a processor here, or for the cluster",
)
BEFORE, POSTING, BUSY, ENGINE, OTHERS, DEPENDENCY, TAIL, BETWEEN, AFTER, CLUSTER, HELD = range(len(REASONS))
MAIN = ("waiting", "busy", "posting", "wscripts", "database")
NEAR = 1.5
"""A sample tells for so many seconds around it what other builds do."""
BRIEF = 0.0005
"""A task starts so many seconds after its dependency at the earliest."""


class Span(NamedTuple):
	"""A task that ran: when it was sent, began and ended."""

	start: float
	end: float
	sent: float
	number: int
	blocker: int
	"""The number of the dependency that ended last; -1 for none."""
	pauses: Sequence[Tuple[float, float]] = ()
	"""When it waited for the engine in the middle of its work."""
	away: Sequence[Tuple[float, float]] = ()
	"""When it was on a cluster, and used no slot here. Such a stretch is before its start, or within its work."""


class Circumstances(NamedTuple):
	"""The build around the tasks."""

	begun: float
	ended: float
	jobs: int
	schedules: List[Tuple[float, float]]
	posts: List[Tuple[float, float]]
	waits: List[Tuple[float, float]]
	others: List[Tuple[float, int]]
	"""Samples: the time, and the number of commands that ran for other builds."""
	processors: int = 0
	"""If there is a cluster: how many compiles run here at once. The number of slots may be larger."""


# from when, to when, how many slots, the reason, and the number of the task that was waited for (-1: none)
Segment = Tuple[float, float, float, int, int]


class Idle(NamedTuple):
	segments: List[Segment]
	busy: float
	"""The seconds of all slots that were in use."""


def find_idle(build: Circumstances, spans: List[Span]) -> Idle:
	"""Each stretch in which fewer tasks ran than there were slots, with its reason."""
	spans = sorted(spans)
	running = queued = waiting = posting = scheduled = away = 0
	events: List[Tuple[float, int, int]] = []
	for span in spans:
		events += ((span.start, 0, 1), (span.end, 0, -1))
		if span.start > span.sent:
			events += ((span.sent, 1, 1), (span.start, 1, -1))
		for begin, end in span.pauses:
			events += ((begin, 0, -1), (begin, 1, 1), (end, 0, 1), (end, 1, -1))
		for begin, end in span.away:
			kind = 1 if begin < span.start else 0
			events += ((begin, kind, -1), (begin, 5, 1), (end, kind, 1), (end, 5, -1))
	for kind, stretches in enumerate((build.waits, build.posts, build.schedules), 2):
		for begin, end in stretches:
			events += ((begin, kind, 1), (end, kind, -1))
	events.append((build.ended, 0, 0))
	events.sort()
	judge = Judge(build, spans)
	segments: List[Segment] = []
	latest: Dict[Tuple[int, int, int], int] = {}
	busy = 0.0
	last = build.begun

	def add(end: float, slots: int, reason: int, blamed: int) -> None:
		"""Add a stretch, or make the last one longer if it has the same reason."""
		place = latest.get((slots, reason, blamed), -1)
		if place >= 0 and segments[place][1] == last:
			segments[place] = (segments[place][0], end, slots, reason, blamed)
		else:
			latest[slots, reason, blamed] = len(segments)
			segments.append((last, end, slots, reason, blamed))

	for at, kind, change in events:
		if at > last:
			used = max(0, min(running, build.jobs))
			busy += used * (at - last)
			free = build.jobs - used
			elsewhere = min(free, away)
			if elsewhere:
				add(at, elsewhere, CLUSTER, -1)
				free -= elsewhere
			if free:
				late = min(free, queued) if scheduled else 0
				if late:
					add(at, late, judge.judge_engine(last, running), -1)
				if free > late:
					reason, blamed = judge.judge(last, at, waiting, posting, scheduled)
					add(at, free - late, reason, blamed)
			last = at
		if kind == 0:
			running += change
		elif kind == 1:
			queued += change
		elif kind == 2:
			waiting += change
		elif kind == 3:
			posting += change
		elif kind == 4:
			scheduled += change
		else:
			away += change
	return Idle(segments, busy)


class Judge:
	"""Finds the reason why slots were idle."""

	def __init__(self, build: Circumstances, spans: List[Span]) -> None:
		self.build = build
		self.spans = spans
		self.starts = [span.start for span in spans]
		self.by_number = {span.number: span for span in spans}
		self.ends = sorted((span.end, span.number) for span in spans)
		self.times = [at for at, _ in build.others]
		self.first = build.schedules[0][0] if build.schedules else build.ended

	def judge(self, begin: float, end: float, waiting: int, posting: int, scheduled: int) -> Tuple[int, int]:
		if not scheduled:
			return (BEFORE if begin < self.first else AFTER), -1
		if posting:
			return POSTING, -1
		position = bisect.bisect_left(self.starts, end)
		is_last = position == len(self.spans)
		if not waiting and not (is_last and self.is_running(begin)):
			return BUSY, -1
		if is_last:
			return TAIL, self.ends[-1][1] if self.ends else -1
		following = self.spans[position]
		blocker = self.by_number.get(following.blocker)
		if blocker is None:
			# all tasks of a build group have to end before the next group
			place = bisect.bisect_right(self.ends, (following.start, 1 << 60)) - 1
			blocker = self.by_number[self.ends[place][1]] if place >= 0 else None
		if blocker is None or blocker.end < end - BRIEF:
			return BETWEEN, -1
		return DEPENDENCY, blocker.number

	def is_running(self, at: float) -> bool:
		return bool(self.ends) and self.ends[-1][0] > at

	def judge_engine(self, at: float, running: int) -> int:
		"""The reason while a command waits in the engine: whether the processors or other builds hold it up."""
		if 0 < self.build.processors <= running:
			return HELD
		place = bisect.bisect_left(self.times, at)
		for near in (place - 1, place):
			if 0 <= near < len(self.times) and abs(self.times[near] - at) < NEAR and self.build.others[near][1]:
				return OTHERS
		return ENGINE


def sum_reasons(idle: Idle) -> List[Tuple[int, int, float]]:
	"""By reason and task that was waited for: the seconds of idle slots, the largest first."""
	sums: Dict[Tuple[int, int], float] = {}
	for begin, end, slots, reason, who in idle.segments:
		sums[reason, who] = sums.get((reason, who), 0.0) + slots * (end - begin)
	return sorted(((reason, who, spent) for (reason, who), spent in sums.items()), key=lambda each: -each[2])


def thin(segments: List[Segment], begun: float, ended: float, most: int) -> List[Segment]:
	"""At most so many stretches of equal length, each with the mean number of idle slots for each reason."""
	if len(segments) <= most or ended <= begun:
		return segments
	count = most // len(REASONS)
	width = (ended - begun) / count
	sums: Dict[Tuple[int, int], float] = {}
	for begin, end, slots, reason, _ in segments:
		first, last = int((begin - begun) / width), min(int((end - begun) / width), count - 1)
		for number in range(first, last + 1):
			left, right = begun + number * width, begun + (number + 1) * width
			part = min(end, right) - max(begin, left)
			if part > 0:
				sums[number, reason] = sums.get((number, reason), 0.0) + part * slots
	return [
		(begun + number * width, begun + (number + 1) * width, spent / width, reason, -1)
		for (number, reason), spent in sorted(sums.items())
	]


def sum_main(stretches: List[Tuple[float, float, int]]) -> List[float]:
	"""The seconds that Waf's own thread spent with each activity of ``MAIN``."""
	sums = [0.0] * len(MAIN)
	for begin, end, doing in stretches:
		sums[doing] += end - begin
	return sums


def find_main(build: Circumstances) -> List[Tuple[float, float, int]]:
	"""The activities of Waf's own thread: from when to when, and the number in ``MAIN``."""
	events: List[Tuple[float, int, int]] = []
	for kind, stretches in enumerate((build.schedules, build.posts, build.waits)):
		for begin, end in stretches:
			events += ((begin, kind, 1), (end, kind, -1))
	events.sort()
	events.append((build.ended, 0, 0))
	counts = [0, 0, 0]
	found: List[Tuple[float, float, int]] = []
	last, seen = build.begun, False
	for at, kind, change in events:
		if at > last:
			if not counts[0]:
				doing = 4 if seen else 3
			else:
				doing = 2 if counts[1] else 0 if counts[2] else 1
			if found and found[-1][2] == doing and found[-1][1] == last:
				found[-1] = (found[-1][0], at, doing)
			else:
				found.append((last, at, doing))
			last = at
		seen = seen or kind == 0
		counts[kind] += change
	return found
