"""
A cluster as a queue: what it does with more workers than there are here.

A command takes the time of several parts. Some do one thing after the other (the server's interpreter, the thread that
assigns commands), processors of the server's host do some at once, and the rest is delay. A client waits for each
worker's command, and then sends the next one. Pure, and the same at each run.
"""

import heapq
import statistics
from collections import deque
from typing import Callable, Deque, Dict, Generator, List, NamedTuple, Sequence, Tuple

from .scale import Row, Seconds

TICK = 0.05  # seconds between two times at which the server answers what workers ask meanwhile
ASKED = 60  # such times without an answer: a worker asks again only when it has one, and does so after 3 s at least
ROUNDS = 6  # commands of each worker at least, of which a third is not counted
LEAST = 200  # commands of a simulation
PATIENCE = 10  # times the time that all rounds take at most
GOOD = 0.8  # of what the workers could do: less is no scaling
BUSY = 0.9  # of its time: a part that does more is the limit


class Costs(NamedTuple):
	"""Seconds of one command, and seconds of each second for what goes on without commands."""

	server: float
	database: float
	delay: float
	alone: float
	"""What server and database do without any worker."""
	waiting: float
	"""What they do for each worker that waits."""
	sleeping: float
	"""What they do for each worker that runs a command."""
	own: float
	"""What worker and client do. It takes processors of the server's host only if all are on one machine."""
	processors: int


class Found(NamedTuple):
	"""What a simulated cluster did."""

	workers: int
	seconds: float
	rate: float
	overhead: float
	shares: Seconds
	"""The part of its time in which each part was busy."""

	@property
	def efficiency(self) -> float:
		return self.rate * self.seconds / self.workers

	@property
	def limit(self) -> str:
		"""The part that is the limit; the workers, if no other one is."""
		name = max(self.shares, key=lambda part: self.shares[part])
		return name if self.shares[name] >= BUSY else "workers"


Step = Generator[Callable[[Callable[[], None]], None], None, None]


class Clock:
	"""Time passes from one event to the next one."""

	def __init__(self) -> None:
		self.now = 0.0
		self.count = 0
		self.events: List[Tuple[float, int, Callable[[], None]]] = []

	def after(self, seconds: float, then: Callable[[], None]) -> None:
		self.count += 1
		heapq.heappush(self.events, (self.now + seconds, self.count, then))

	def pause(self, seconds: float) -> Callable[[Callable[[], None]], None]:
		return lambda then: self.after(seconds, then)

	def begin(self, step: Step) -> None:
		"""Do what a generator asks for, one after the other."""

		def go_on() -> None:
			wanted = next(step, None)
			if wanted:
				wanted(go_on)

		go_on()

	def run(self, is_done: Callable[[], bool]) -> None:
		while self.events and not is_done():
			self.now, _, then = heapq.heappop(self.events)
			then()


class Part:
	"""It does so many things at once. The others wait, first come, first served."""

	def __init__(self, clock: Clock, places: int) -> None:
		self.clock, self.places, self.free = clock, places, places
		self.waiting: Deque[Callable[[], None]] = deque()
		self.busy, self.since = 0.0, 0.0

	def take(self, then: Callable[[], None]) -> None:
		if self.free:
			self.tally()
			self.free -= 1
			then()
		else:
			self.waiting.append(then)

	def leave(self) -> None:
		if self.waiting:
			self.clock.after(0.0, self.waiting.popleft())
		else:
			self.tally()
			self.free += 1

	def tally(self) -> float:
		"""The time that its places were taken until now, all together."""
		self.busy += (self.places - self.free) * (self.clock.now - self.since)
		self.since = self.clock.now
		return self.busy


class Model:
	"""A number of workers and their server. All workers have something to do."""

	def __init__(self, costs: Costs, workers: int, seconds: float, is_shared: bool) -> None:
		self.costs, self.workers, self.seconds, self.is_shared = costs, workers, seconds, is_shared
		self.clock = Clock()
		self.parts = {"server": Part(self.clock, 1), "processors": Part(self.clock, costs.processors)}
		self.sleeping, self.asked, self.served = 0, 0, 0.0
		self.done: List[float] = []

	def serve(self, seconds: float) -> Step:
		"""The server's interpreter does one thing at a time, and needs a processor for it."""
		server, processors = self.parts["server"], self.parts["processors"]
		yield server.take
		yield processors.take
		yield self.clock.pause(seconds)
		self.served += seconds
		processors.leave()
		server.leave()

	def compute(self, seconds: float) -> Step:
		processors = self.parts["processors"]
		yield processors.take
		yield self.clock.pause(seconds)
		processors.leave()

	def spend(self) -> Step:
		"""Half of what is done for a command, before or after it runs."""
		costs = self.costs
		yield self.clock.pause(costs.delay / 2)
		yield from self.serve(costs.server / 2)
		yield from self.compute(costs.database / 2)
		if self.is_shared:
			yield from self.compute(costs.own / 2)
		else:
			yield self.clock.pause(costs.own / 2)

	def work(self) -> Step:
		"""A worker, and the client that waits for it."""
		while True:
			begin = self.clock.now
			yield from self.spend()
			self.sleeping += 1
			yield self.clock.pause(self.seconds)
			self.sleeping -= 1
			yield from self.spend()
			self.done.append(self.clock.now - begin)

	def attend(self) -> Step:
		"""What the server does without commands, in small pieces."""
		costs = self.costs
		while True:
			yield self.clock.pause(TICK)
			each = self.sleeping * costs.sleeping + (self.workers - self.sleeping) * costs.waiting
			if costs.alone + each and self.asked < ASKED:
				self.asked += 1
				self.clock.begin(self.answer(TICK * (costs.alone + each)))

	def answer(self, seconds: float) -> Step:
		yield from self.serve(seconds)
		self.asked -= 1

	def busy(self) -> Seconds:
		"""For how long each part has worked until now. A server that waits for a processor does not."""
		return {"server": self.served, "processors": self.parts["processors"].tally() / self.costs.processors}

	def run(self) -> Found:
		costs = self.costs
		for _ in range(self.workers):
			self.clock.begin(self.work())
		self.clock.begin(self.attend())
		rounds = max(ROUNDS, -(-LEAST // self.workers))
		total, warm = rounds * self.workers, rounds // 3 * self.workers
		one = self.seconds + costs.delay + costs.own + self.workers * (costs.server + costs.database + costs.own)
		latest = PATIENCE * rounds * one
		self.clock.run(lambda: len(self.done) >= warm or self.clock.now > latest)
		start, counted, before = self.clock.now, len(self.done), self.busy()
		self.clock.run(lambda: len(self.done) >= total or self.clock.now > 2 * latest)
		elapsed = max(self.clock.now - start, TICK)
		shares = {name: (value - before[name]) / elapsed for name, value in self.busy().items()}
		overhead = statistics.median(self.done[counted:] or [latest]) - self.seconds
		return Found(self.workers, self.seconds, (len(self.done) - counted) / elapsed, overhead, shares)


def simulate(costs: Costs, workers: int, seconds: float, is_shared: bool = False) -> Found:
	"""So many workers with commands of so many seconds; `is_shared` if all of them are on the server's host."""
	return Model(costs, workers, seconds, is_shared).run()


def line(points: Sequence[Tuple[float, float]]) -> Tuple[float, float]:
	"""The straight line nearest to some points: where it starts, and by how much it rises; it never falls."""
	middle = statistics.mean(x for x, _ in points)
	height = statistics.mean(y for _, y in points)
	spread = sum((x - middle) ** 2 for x, _ in points)
	rise = sum((x - middle) * (y - height) for x, y in points) / spread if spread else 0.0
	rise = max(rise, 0.0)
	return max(height - rise * middle, 0.0), rise


def costs_of(rows: Sequence[Row], processors: int) -> Costs:
	"""
	What measured rows say of one command.

	What goes on without commands is taken from what the processors did while workers only waited, or only slept. The
	delay is what is left of the overhead in the row with the fewest workers, in which no command waits for another.
	"""
	both = ("server", "database")
	alone, waiting = line([(row.workers, sum(row.waiting[part] for part in both)) for row in rows])
	extra = [(sum(row.sleeping[part] for part in both) - alone) / row.workers for row in rows[-1:]]
	each: Dict[str, float] = {}
	for part in (*both, "workers", "client"):
		spent = [(row.used[part] - row.sleeping[part] * row.elapsed) / row.commands for row in rows]
		each[part] = max(statistics.median(spent), 0.0)
	first = min(rows, key=lambda row: row.workers)
	own = each["workers"] + each["client"]
	delay = statistics.median(first.overheads) - each["server"] - each["database"] - own
	return Costs(
		each["server"], each["database"], max(delay, 0.0), alone, waiting, max(0.0, *extra), own, max(processors, 1)
	)


class Comparison(NamedTuple):
	"""A measured row beside a simulated one."""

	workers: int
	measured: float
	simulated: float

	@property
	def deviation(self) -> float:
		return self.simulated / self.measured - 1


def compare(rows: Sequence[Row], costs: Costs) -> List[Comparison]:
	"""Simulate what was measured, with all of it on one machine."""
	found = [(row, simulate(costs, row.workers, row.seconds, True)) for row in rows]
	return [Comparison(row.workers, row.rate, one.rate) for row, one in found]


def reach(found: Sequence[Found]) -> int:
	"""The largest number of workers that all still have most of their work; 0 if there is none."""
	good = 0
	for one in sorted(found, key=lambda each: each.workers):
		if one.efficiency < GOOD:
			break
		good = one.workers
	return good
