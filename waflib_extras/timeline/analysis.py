"""
Makes of a recorded build what is drawn: a row for each task and command, their lanes, and sums.
"""

import bisect
import heapq
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from ..client import protocol
from ..hooks import stock
from . import chains, idle, recording

if TYPE_CHECKING:
	from waflib.Node import Node
	from waflib.Task import Task

	from . import meter

# the kinds of rows; the page and the trace have the same order
KINDS = ("hit", "miss", "not cacheable", "parked", "spawned", "Waf's own way", "Python", "failed", "cut off", "in vain")
HIT, MISS, UNCACHED, PARKED, SPAWNED, OWN_WAY, PYTHON, FAILED, CUT_OFF, IN_VAIN = range(len(KINDS))
# how a command was started
WAYS = ("", "forked from a parked program", "started from its file", "run on a cluster")
ON_CLUSTER = 3
FAILURES = (1, 2, 3)  # Task.MISSING, CRASHED, EXCEPTION
SKIPPED = 8
LITTLE = 0.005
"""Python code around a command has no row of its own if it takes less seconds than this, or less than a tenth."""


class Row:
	"""A task that ran, or a command of such a task, or a command outside of any task."""

	__slots__ = (
		"away",
		"blocker",
		"code",
		"end",
		"heard",
		"kind",
		"lane",
		"name",
		"owner",
		"pauses",
		"peak",
		"place",
		"processor",
		"queued",
		"ready",
		"sent",
		"stage",
		"start",
		"target",
		"task",
		"way",
		"what",
		"words",
	)

	def __init__(self, task: "Union[Task, str, None]", start: float, end: float, kind: int) -> None:
		self.task = task
		self.start = start
		self.end = end
		self.kind = kind
		self.way = 0
		self.lane = 0
		self.stage = 0
		self.sent = start
		self.heard = end
		self.queued = 0.0
		"""How long it waited in the engine before it started, in seconds."""
		self.ready = 0.0
		"""When all its dependencies had ended."""
		self.blocker = -1
		"""The row of the dependency that ended last."""
		self.pauses: Sequence[Tuple[float, float]] = ()
		"""When a task of Python code waited until its command had a slot."""
		self.away: Sequence[Tuple[float, float]] = ()
		"""When it was on a cluster and did not run here."""
		self.owner = -1
		"""The row of the task that has run this command. The command's time is a part of the task's."""
		self.processor = 0.0
		self.peak = 0
		"""The peak of its memory, in KiB."""
		self.code = 0
		self.words = ""
		self.place = ""
		"""Where it ran, in words, if it could run on a cluster."""
		self.name = ""
		self.target = ""
		self.what = ""

	@property
	def worked(self) -> float:
		"""Its seconds without those in which it waited for a slot."""
		return self.end - self.start - sum(end - begin for begin, end in self.pauses)

	@property
	def is_task(self) -> bool:
		return self.owner < 0 and self.task.__class__ is not str


class Lane(NamedTuple):
	kind: str
	"""``slot``, ``thread``, ``cluster`` or ``cache``."""
	number: int


class Built(NamedTuple):
	"""A build that is over, as the page and the trace show it. All times are seconds of one clock."""

	name: str
	outcome: str
	begun: float
	ended: float
	jobs: int
	total: int
	processor: float
	rows: List[Row]
	lanes: List[Lane]
	chain: List[int]
	chain_seconds: float
	idle: "idle.Idle"
	main: List[Tuple[float, float, int]]
	samples: "List[meter.Sample]"
	doings: List[Tuple[float, str]]
	about: Dict[str, str]


def make_build(rec: "recording.Recording") -> Built:
	"""The rows, lanes and sums of a recorded build. The result refers to no task."""
	rows = collect(rec)
	lanes = place(rows, rec.jobs)
	tasks = [number for number, row in enumerate(rows) if row.is_task]
	graph = find_chains(rec, rows, tasks)
	for position, number in enumerate(tasks):
		link = graph.link(position)
		row = rows[number]
		row.blocker = tasks[link.blocker] if link.blocker >= 0 else -1
		row.ready = link.ready or stage_begin(rec, row)
	chain = [tasks[position] for position in graph.longest()]
	busy = [
		idle.Span(row.start, row.end, row.sent, n, row.blocker, row.pauses, row.away)
		for n, row in enumerate(rows)
		if row.is_task
	]
	others = [(sample.at, sample.others) for sample in rec.sampler.samples]
	processors = recording.count_processors() if any(row.place for row in rows) else 0
	surroundings = idle.Circumstances(
		rec.begun, rec.ended, rec.jobs, rec.schedules, rec.posts, rec.waits, others, processors
	)
	for row in rows:
		describe(row)
		row.task = None if row.is_task else ""
	cmd = getattr(rec.bld, "cmd", "") or "build"
	return Built(
		name=cmd,
		outcome=rec.outcome,
		begun=rec.begun,
		ended=rec.ended,
		jobs=rec.jobs,
		total=rec.total,
		processor=rec.processor,
		rows=rows,
		lanes=lanes,
		chain=chain,
		chain_seconds=sum(rows[n].worked for n in chain),
		idle=idle.find_idle(surroundings, busy),
		main=idle.find_main(surroundings),
		samples=rec.sampler.samples,
		doings=rec.sampler.doings,
		about=recording.describe_process(),
	)


def stage_begin(rec: "recording.Recording", row: Row) -> float:
	"""When a task could begin that has no dependency."""
	return rec.posts[row.stage][1] if row.stage < len(rec.posts) else rec.begun


def find_chains(rec: "recording.Recording", rows: List[Row], tasks: List[int]) -> "chains.Chains":
	begins = [begin for begin, _ in rec.posts]
	for row in rows:
		row.stage = max(0, bisect.bisect_right(begins, row.start) - 1)
	ran = [chains.Ran(rows[n].task, rows[n].start, rows[n].end, rows[n].stage, rows[n].worked) for n in tasks]
	makers = {new: rows[n].task for n in tasks for new in getattr(rows[n].task, "more_tasks", None) or ()}
	return chains.Chains(ran, rec.groups, rec.heirs, makers)


# ---- rows


def collect(rec: "recording.Recording") -> List[Row]:
	"""A row for each task and command that ran, in the order of their starts."""
	rows = []
	owners: List[Tuple[Row, List[Row]]] = []
	for each in rec.commands:
		row = make_command(*each)
		rows.append(row)
		owners += find_vain(row, each[-1])
	calls: Dict[Task, List[Row]] = {}
	strays = []
	for each in rec.calls:
		row = make_command(*each, True)
		owners += find_vain(row, each[-1])
		if each[0].__class__ is str:
			strays.append(row)
		else:
			calls.setdefault(each[0], []).append(row)
	for task, begin, end in rec.tasks:
		own = calls.pop(task, ()) if calls else ()
		if len(own) == 1 and end and (stock.is_compiled(task.__class__.run) or is_all(own[0], begin, end)):
			rows.append(own[0])
			continue
		row = Row(task, begin, end or rec.ended, OWN_WAY if stock.is_compiled(task.__class__.run) else PYTHON)
		if not end:
			row.kind = CUT_OFF
		rows.append(row)
		if own:
			owners.append((row, own))
			row.pauses = join([pause for each in own for pause in find_pauses(each)])
			row.away = join([stretch for each in own for stretch in each.away])
			rows += own
	for own in calls.values():
		rows += own
	rows += strays
	for task, sent in rec.sent.items():
		row = Row(task, sent, rec.ended, CUT_OFF)
		rows.append(row)
	rows += [row for owner, vain in owners for row in vain if row.kind == IN_VAIN]
	rows.sort(key=lambda row: row.start)
	if owners:
		numbers = {id(row): number for number, row in enumerate(rows)}
		for owner, own in owners:
			for row in own:
				row.owner = numbers[id(owner)]
	for row in rows:
		if row.is_task and getattr(row.task, "hasrun", 0) in FAILURES:
			row.kind = FAILED
	return rows


def make_command(
	task: "Union[Task, str]",
	sent: float,
	heard: float,
	outcome: protocol.Outcome,
	told: Optional[protocol.Told],
	elsewhere: Optional[protocol.Elsewhere] = None,
	is_prompt: bool = False,
) -> Row:
	"""
	The row of a command that the engine ran, or answered from its cache.

	The engine tells how long the command waited and ran, but not when it began. A thread that waits for this command
	alone hears of its end at once (``is_prompt``), but may have had to connect and to start an engine before. Waf's own
	thread has sent the command over an open connection, and hears of its end when it has time.
	"""
	queued, wall = outcome.queued / 1e6, outcome.wall / 1e6
	is_hit = told is not None and told.known == protocol.HIT
	start = max(sent, heard - wall if is_prompt else min(sent + queued, heard - wall))
	row = Row(task, start, min(start + wall, heard), HIT if is_hit else SPAWNED)
	row.sent = sent
	row.heard = heard
	row.queued = min(queued, start - sent)
	row.processor = (outcome.user + outcome.system) / 1e6
	row.peak = outcome.peak
	row.code = outcome.code
	if not is_hit:
		is_parked = outcome.step == protocol.PARKED
		row.way = 1 if is_parked else 2
		row.kind = PARKED if is_parked else SPAWNED
		if told is not None:
			row.kind = MISS if told.known == protocol.MISS else UNCACHED
	if told is not None:
		row.words = told.show()
	if elsewhere is not None:
		arrived = max(sent, heard - queued - wall) if is_prompt else sent
		note_elsewhere(row, arrived, elsewhere)
	return row


def note_elsewhere(row: Row, arrived: float, elsewhere: protocol.Elsewhere) -> None:
	"""Note where a command ran that could run on a cluster. If its result is from there, so are its times."""
	begin = min(arrived + elsewhere.after / 1e6, row.heard)
	end = min(begin + elsewhere.there / 1e6, row.heard)
	is_there = not elsewhere.words
	row.place = describe_place(elsewhere)
	if is_there:
		row.start, row.end, row.queued, row.way = begin, end, begin - row.sent, ON_CLUSTER
	# the part in which it did not run here
	end = end - elsewhere.here / 1e6 if is_there else min(end, row.start)
	if end > begin:
		row.away = ((begin, end),)


def describe_place(elsewhere: protocol.Elsewhere) -> str:
	"""Where a command ran, and why not on the cluster, in words."""
	if not elsewhere.words:
		return "on %s%s" % (elsewhere.address, ", and here, too, until that was done" if elsewhere.here else "")
	words = "was on %s, too: %s" if elsewhere.there else "not on %s: %s"
	return words % (elsewhere.address, elsewhere.words)


def find_vain(row: Row, elsewhere: Optional[protocol.Elsewhere]) -> List[Tuple[Row, List[Row]]]:
	"""A command with its run in the other place, of which the result did not count; nothing if there was none."""
	if elsewhere is None or not (elsewhere.here or (elsewhere.words and elsewhere.there)):
		return []
	if elsewhere.words:
		begin = row.away[0][0] if row.away else row.start
		vain = Row(row.task, begin, min(begin + elsewhere.there / 1e6, row.heard), IN_VAIN)
		vain.way = ON_CLUSTER
	else:
		vain = Row(row.task, max(row.start, row.end - elsewhere.here / 1e6), row.end, IN_VAIN)
		vain.way = 2
	vain.place = row.place
	return [(row, [vain])]


def find_pauses(command: Row) -> List[Tuple[float, float]]:
	"""When a command had been sent, and waited in the engine: it did not run, and was not on a cluster."""
	begin, pauses = command.sent, []
	for away, back in command.away:
		if away < command.start:
			pauses.append((begin, away))
			begin = back
	pauses.append((begin, command.start))
	return [pause for pause in pauses if pause[1] > pause[0]]


def is_all(command: Row, begin: float, end: float) -> bool:
	"""Tell whether a task takes hardly longer than its command."""
	return (command.sent - begin) + (end - command.heard) <= max(LITTLE, 0.1 * (command.end - command.start))


def join(stretches: List[Tuple[float, float]]) -> List[Tuple[float, float]]:
	"""The same stretches of time, merged where they overlap."""
	joined: List[Tuple[float, float]] = []
	for begin, end in sorted(stretches):
		if joined and begin <= joined[-1][1]:
			joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
		else:
			joined.append((begin, end))
	return joined


def describe(row: Row) -> None:
	"""Describe a row in words, as long as its task is known."""
	task = row.task
	if task.__class__ is str:
		row.name, row.what = task, "command of no task"
		return
	nodes = getattr(task, "outputs", None) or getattr(task, "inputs", None)
	row.what = task.__class__.__name__
	generator = getattr(task, "generator", None)
	row.target = str(getattr(generator, "name", "") or getattr(generator, "target", "") or "")
	row.name = find_path(nodes[0]) if nodes else row.target or row.what


def find_path(node: "Node") -> str:
	"""The path of a node, relative to the build folder or the project."""
	try:
		path: str = node.bldpath() if node.is_bld() else node.srcpath()
		return path
	except (AttributeError, TypeError, ValueError):
		return str(node)


# ---- lanes


class Lanes:
	"""The lanes of one kind. Each row gets the first one that is free."""

	def __init__(self, most: int) -> None:
		self.most = most
		self.free: List[int] = []
		self.busy: List[Tuple[float, int]] = []
		self.count = 0

	def take(self, row: Row) -> int:
		busy, free = self.busy, self.free
		while busy and busy[0][0] <= row.start:
			heapq.heappush(free, heapq.heappop(busy)[1])
		if free:
			lane = heapq.heappop(free)
		elif self.count >= self.most and busy and busy[0][0] < (row.start + row.end) / 2:
			# all are taken: rows overlap where Waf heard of an end late
			end, lane = heapq.heappop(busy)
			row.start = min(end, row.end)
		else:
			lane = self.count
			self.count += 1
		heapq.heappush(busy, (max(row.end, row.start), lane))
		return lane


def place(rows: List[Row], jobs: int) -> List[Lane]:
	"""
	Give each row its lane: a slot for a command, a lane of the cluster for one that ran there, a thread for Python
	code, and one lane for all hits.
	"""
	kinds: Dict[str, Lanes] = {"slot": Lanes(jobs), "cluster": Lanes(1 << 30), "thread": Lanes(1 << 30)}
	places: List[Optional[Tuple[str, int]]] = []
	has_hits = False
	for row in rows:
		if row.kind == HIT:
			has_hits = True
			places.append(None)
			continue
		in_thread = row.way == 0 and not (row.kind == CUT_OFF and row.queued)
		kind = "cluster" if row.way == ON_CLUSTER else "thread" if in_thread else "slot"
		places.append((kind, kinds[kind].take(row)))
	lanes = [Lane("cache", 1)] if has_hits else []
	first = {}
	for kind in kinds:
		first[kind] = len(lanes)
		count = kinds[kind].count
		if kind == "slot" and count:
			count = max(count, jobs)
		lanes += [Lane(kind, number + 1) for number in range(count)]
	for row, found in zip(rows, places):
		row.lane = 0 if found is None else first[found[0]] + found[1]
	return lanes
