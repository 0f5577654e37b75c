"""How many commands a cluster runs in a second, by the number of its workers, and what each of them costs."""

import asyncio
import pathlib
import statistics
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from benchmark.mistake import Failed
from benchmark.session import processes

from .buildgrid import INSTANCE, Cluster
from .database import Database

WATCHED = 4.0  # seconds in which workers only wait, or only sleep, and the server is watched
MARGIN = 3.0  # seconds for all workers to begin

Seconds = Dict[str, float]
"""Processor time, by the part of the cluster that spent it."""


class Row(NamedTuple):
	"""A number of workers, and what was measured with it. Times are in seconds, those of processors by part."""

	workers: int
	seconds: float
	commands: int
	elapsed: float
	overheads: List[float]
	waits: List[float]
	used: Seconds
	waiting: Seconds
	sleeping: Seconds

	@property
	def rate(self) -> float:
		return self.commands / self.elapsed

	@property
	def ideal(self) -> float:
		return self.workers / self.seconds

	@property
	def efficiency(self) -> float:
		return self.rate / self.ideal

	def each(self, part: str) -> float:
		"""The processor time that one command takes of a part."""
		return self.used[part] / self.commands


def quantile(values: Sequence[float], share: float) -> float:
	"""The value below which this share of them is."""
	ordered = sorted(values)
	return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def trees(roots: Dict[str, List[int]]) -> Seconds:
	"""The processor time of processes, and of all that they have started."""
	children: Dict[int, List[int]] = {}
	spent: Dict[int, float] = {}
	for status in processes():
		children.setdefault(status.parent, []).append(status.pid)
		spent[status.pid] = status.user + status.system
	times = {}
	for name, pids in roots.items():
		todo, found = list(pids), 0.0
		while todo:
			pid = todo.pop()
			found += spent.get(pid, 0.0)
			todo += children.get(pid, [])
		times[name] = found
	return times


class Rig:
	"""One server with PostgreSQL, and workers of one slot each, which come as they are needed."""

	def __init__(self, engine: str, folder: pathlib.Path) -> None:
		self.engine, self.folder, self.sent = engine, folder, 0

	def measure(self, database: Database, workers: int, seconds: float, commands: int) -> Row:
		"""A new server with so many workers."""
		with Cluster(database, self.folder / str(workers)).run() as cluster:
			for number in range(workers):
				cluster.worker(self.engine, "--slots", "1", "--name", "worker-%d" % number)
			for worker in cluster.workers:
				worker.until_said("works for")
			return asyncio.run(self.load(cluster, database, seconds, commands))

	async def load(self, cluster: Cluster, database: Database, seconds: float, commands: int) -> Row:
		from .load import Client, keep_busy  # needs BuildGrid

		def used() -> Seconds:
			workers = [worker.process.pid for worker in cluster.workers if worker.process]
			server, tables = cluster.process, database.process
			if not server or not tables:
				raise Failed("the server has ended")
			times = trees({"server": [server.pid], "database": [tables.pid], "workers": workers})
			return {**times, "client": time.process_time()}

		def since(before: Seconds) -> Seconds:
			return {name: value - before[name] for name, value in used().items()}

		async def watch() -> Seconds:
			before, begin = used(), time.monotonic()
			await asyncio.sleep(WATCHED)
			elapsed = time.monotonic() - begin
			return {name: value / elapsed for name, value in since(before).items()}

		count = len(cluster.workers)
		client = Client("%s:%d" % (cluster.listens, cluster.port), INSTANCE)
		try:
			# the first command of a slot makes its place
			first = await client.prepare(0, 2 * count, 0.1)
			await keep_busy(client, first, 0.1, count)
			waiting = await watch()
			long = 2 * MARGIN + WATCHED + count * 0.05
			slow = asyncio.ensure_future(keep_busy(client, await client.prepare(2 * count, count, long), long, count))
			await asyncio.sleep(MARGIN + count * 0.05)
			sleeping = await watch()
			await slow
			actions = await client.prepare(3 * count, commands, seconds)
			before, begin = used(), time.monotonic()
			done = await keep_busy(client, actions, seconds, count)
			elapsed, spent = time.monotonic() - begin, since(before)
		finally:
			await client.channel.close()
		overheads = sorted(each.seconds - seconds for each in done)
		waits = sorted(each.waited for each in done)
		return Row(count, seconds, len(done), elapsed, overheads, waits, spent, waiting, sleeping)


def measure(
	engine: str, folder: pathlib.Path, workers: Sequence[int], seconds: float, commands: Optional[int]
) -> Iterator[Row]:
	"""One row after the other, each with a new server on the same PostgreSQL."""
	database = Database()
	try:
		database.make()
		database.start()
		rig = Rig(engine, folder)
		for count in workers:
			yield rig.measure(database, count, seconds, commands or max(20, 10 * count))
	finally:
		database.remove()


HEAD = ["workers", "commands/s", "ideal", "efficiency", "overhead", "90 %", "wait"]
HEAD += ["server", "PostgreSQL", "workers' own", "client"]


def cells(row: Row) -> List[str]:
	"""A row of the table: rates, then milliseconds for each command."""
	middle = statistics.median(row.overheads)
	times = [middle, quantile(row.overheads, 0.9), statistics.median(row.waits)]
	times += [row.each(part) for part in ("server", "database", "workers", "client")]
	shares = ["%.1f" % row.rate, "%.1f" % row.ideal, "%.0f %%" % (100 * row.efficiency)]
	return [str(row.workers), *shares, *("%.1f" % (1e3 * value) for value in times)]


def from_values(values: Dict[str, Any]) -> Row:
	"""What was written with a row's ``_asdict``."""
	return Row(**{name: values[name] for name in Row._fields})
