"""
Servers that are asked over many connections at once: the contenders of the scenarios ``served`` and ``crowd``.

Each server is started anew and is empty. The load comes from ``load_server``, an example program of the engine: one
thread, with one request under way on each busy connection.
"""

import json
import subprocess
from typing import TYPE_CHECKING, Dict, Iterator, List, NamedTuple, Optional, Type

from .builder import SERVE, Builder
from .meter import NONE_USED, grown, used_by
from .mistake import Failed
from .servers import Server, allow_many_files
from .service import find_example, missing_example

if TYPE_CHECKING:
	from .run import Run

LOAD = "load_server"
KIB = 1 << 10
SIZES = {"1 KiB": (KIB, 1), "16 KiB": (16 * KIB, 4), "1 MiB": (1 << 20, 200)}
"""The sizes of values, each with the factor by which it has fewer requests than the smallest."""
CONNECTIONS = (1, 4, 16, 64, 256)
LEAST = 4  # requests for each connection, or it is not measured with so many
GETS = 2  # each value is got so often
CROWDS = (10, 100, 200, 1000, 3000, 10000)
BUSY = 200  # connections of a crowd that do something
KEYS = 1000  # values that a crowd asks for
PATIENCE = 300  # seconds


class Cell(NamedTuple):
	"""One act with values of one size over so many connections."""

	name: str
	act: str
	size: int
	connections: int
	first: int  # the number of its first value
	values: int

	@property
	def requests(self) -> int:
		return self.values if self.act == "put" else self.values * GETS


def cells(most: int) -> Iterator[Cell]:
	"""The cells for a number of requests of the smallest values. All values that are got were put before."""
	first = 0
	for size, (length, share) in SIZES.items():
		for connections in CONNECTIONS:
			if connections > 1 and connections * LEAST > most:
				continue
			values = max(most // share, 2 * connections)
			for act in ("put", "get"):
				yield Cell("%s %s, %d" % (act, size, connections), act, length, connections, first, values)
			first += values


class Served(Builder):
	"""A server, and the protocol by which it is asked."""

	abilities = frozenset((SERVE,))

	def __init__(self, server: Type[Server], language: str, note: str = "") -> None:
		self.server = server
		self.language = language
		self.note = note

	def missing(self) -> Optional[str]:
		return self.server.missing() or missing_example(LOAD)

	def start(self, run: "Run", name: str) -> Server:
		"""A new server, in a folder of that name."""
		return run.workshop.start_server(self.server, run.path(name))

	def take_served(self, run: "Run") -> Iterator[tuple]:
		"""Measure a server with values of all sizes, over few connections and many."""
		server = self.start(run, "server")
		for cell in cells(run.settings["commands"]["served"]):
			options = {"size": cell.size, "connections": cell.connections, "count": cell.requests}
			yield cell.name, self.load(server, cell.act, first=cell.first, keys=cell.values, **options)
		run.workshop.end_server(server)

	def take_crowd(self, run: "Run", connections: int) -> Dict[str, float]:
		"""Measure a new server with this number of connections, of which some are busy."""
		count = run.settings["commands"]["crowd"]
		server = self.start(run, "server-%d" % connections)
		self.load(server, "put", count=KEYS)
		busy = min(BUSY, connections)
		values = self.load(
			server,
			"get",
			count=max(count, busy),
			keys=KEYS,
			connections=busy,
			idle=connections - busy,
			processes=",".join(map(str, server.pids())),
		)
		added = values.pop("resident_after") - values.pop("resident_before")
		run.workshop.end_server(server)
		return dict(values, connections=connections, each=added / KIB / connections)

	def load(self, server: Server, act: str, **options: object) -> Dict[str, float]:
		"""Run the load generator; its results, and the processor time of the server for a request."""
		argv: List[str] = [find_example(LOAD) or LOAD, self.language, server.place, act]
		argv += [word for name, value in options.items() for word in ("--" + name, str(value))]
		before = {pid: used_by(pid) for pid in server.pids()}
		done = subprocess.run(
			argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, preexec_fn=allow_many_files
		)
		if done.returncode:
			said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
			raise Failed("%s %s: %s" % (LOAD, act, said[-1]))
		used = [grown(before.get(pid, NONE_USED), used_by(pid)) for pid in server.pids()]
		values = json.loads(done.stdout.decode())
		return dict(values, server=1e6 * sum(one.user + one.system for one in used) / int(str(options["count"])))
