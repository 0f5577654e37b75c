"""
The ways of starting a program: the contenders of the scenario ``spawn``.

The work is done by ``projects/spawn``: ``spawn.c`` for the ways of C, ``spawn.py`` for those of Python. Either is the
parent that is measured, holds as much memory as it is told to, and starts the same program that does nothing.
"""

import os
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from .builder import SPAWN, Builder
from .meter import Command
from .mistake import Failed
from .project import C_COMPILER

if TYPE_CHECKING:
	from .run import Run

Status = Dict[str, Any]
FEW = 10  # commands that let an engine start, and see a program often enough to try whether it can be parked
SMALL = 1  # MiB
PATIENCE = 30.0  # seconds that parking a program may take

POOL = "always with two pipes: what needs none does not go to Waf's pool"


class Spawner(Builder):
	"""A way to start programs in C."""

	program = C_COMPILER
	abilities = frozenset((SPAWN,))

	def __init__(self, way: str, piped: bool = False, note: str = "") -> None:
		self.way = way
		self.piped = piped
		self.note = note

	def spawn(self, run: "Run", parent: int) -> Dict[str, float]:
		"""Start many programs from a parent that holds ``parent`` MiB; the time of one start, in microseconds."""
		values = self.start(run, parent, run.settings["commands"]["spawn"])
		user, system = values["user"], values["system"]
		return {"wall": values["wall"], "user": user, "system": system, "processor": user + system}

	def start(self, run: "Run", parent: int, count: int) -> Dict[str, float]:
		numbers = map(str, (int(self.piped), 0, count // 10 + 1, count, parent))
		argv = [*self.starter(run), self.way, *numbers, run.answer]
		argv += [os.path.join(run.root, "nothing"), *map(str, self.helpers(run))]
		return run.ask("spawn", Command(argv, run.root, run.environment))

	def starter(self, run: "Run") -> List[str]:
		return [os.path.join(run.root, "spawn")]

	def helpers(self, run: "Run") -> List[int]:
		"""The processes beside the parent that do a part of the work."""
		return []


class PythonSpawner(Spawner):
	"""A way to start programs in Python."""

	runs_python = True

	def starter(self, run: "Run") -> List[str]:
		return [run.lane.interpreter.path, os.path.join(run.root, "spawn.py")]


class EngineSpawner(PythonSpawner):
	"""Through the engine, which has parking turned off and so starts every command from its file."""

	needs_engine = True
	engine_environment = {"WAFD_PARK": "no"}

	def __init__(self, piped: bool = False) -> None:
		super().__init__("prefork", piped)

	def prepare(self, run: "Run") -> None:
		super().start(run, SMALL, FEW)

	def start(self, run: "Run", parent: int, count: int) -> Dict[str, float]:
		before = self.done(run)
		values = super().start(run, parent, count)
		done = self.done(run) - before
		if done < count:
			raise Failed("%d of %d commands went that way: %s" % (done, count, self.explain(run)))
		return values

	def helpers(self, run: "Run") -> List[int]:
		return run.daemons()

	def done(self, run: "Run") -> int:
		"""The number of commands that the engine has run this way."""
		status = status_of(run)
		return status["totals"]["succeeded"] - status["parking"]["commands"]

	def explain(self, run: "Run") -> str:
		"""Why there may be fewer of them than were asked for."""
		return "the engine ran %d in all" % status_of(run)["totals"]["succeeded"]


class ParkedSpawner(EngineSpawner):
	"""Through the engine, which has started the program once and forks it for each command, whatever that saves."""

	engine_environment = {"WAFD_PARK": "proved"}

	def prepare(self, run: "Run") -> None:
		deadline = time.monotonic() + PATIENCE
		while True:
			super().prepare(run)
			program = program_of(status_of(run), os.path.join(run.root, "nothing"))
			state, words = (program["state"], program["words"]) if program else ("", "the engine did not see it")
			if state == "parked":
				return
			if state == "refused" or time.monotonic() > deadline:
				raise Failed("the program is not parked: %s" % words)

	def done(self, run: "Run") -> int:
		return status_of(run)["parking"]["commands"]

	def explain(self, run: "Run") -> str:
		spawned = status_of(run)["parking"]["spawned"].items()
		return "; ".join("%d spawned in all: %s" % (count, reason) for reason, count in spawned)


def status_of(run: "Run") -> Status:
	status = run.engine.status() if run.engine else None
	if not status:
		raise Failed("no engine runs")
	return status


def program_of(status: Status, path: str) -> Optional[Dict[str, Any]]:
	programs = status["parking"]["programs"]
	return next((program for program in programs if program["path"] == os.path.realpath(path)), None)


SPAWNERS: Dict[str, Builder] = {
	"vfork": Spawner("vfork"),
	"vfork-pipes": Spawner("vfork", piped=True),
	"posix_spawn": Spawner("posix_spawn"),
	"posix_spawn-pipes": Spawner("posix_spawn", piped=True),
	"fork": Spawner("fork"),
	"fork-pipes": Spawner("fork", piped=True),
	"subprocess": PythonSpawner("subprocess"),
	"subprocess-pipes": PythonSpawner("subprocess", piped=True),
	"wafpool": PythonSpawner("waf", piped=True, note=POOL),
	"daemon": EngineSpawner(),
	"daemon-pipes": EngineSpawner(piped=True),
	"parked": ParkedSpawner(),
	"parked-pipes": ParkedSpawner(piped=True),
}
