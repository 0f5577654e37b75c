"""What befalls a cluster while a build uses it. Each kind strikes once, at a moment that is drawn."""

import random
import signal
import time
from typing import Dict, List

from benchmark.session import send

from .ground import KEEPALIVE, Client, Ground
from .lies import LIES, Liar
from .worker import Worker


class Upset:
	"""One fault of one trial. All that is random is drawn from the trial's own generator."""

	needs_root = False
	is_early = False  # it is there before the build begins
	disturbs = True  # the cluster needs a while to be well again

	def __init__(self, ground: Ground, client: Client, rng: random.Random) -> None:
		self.ground, self.client, self.rng = ground, client, rng
		self.notes: List[str] = []

	def strike(self) -> None:
		raise NotImplementedError

	def end(self) -> None:
		"""Before the ground is mended."""

	def one_worker(self) -> Worker:
		return self.rng.choice(self.ground.workers)


class Nothing(Upset):
	"""a build that nothing disturbs"""

	disturbs = False

	def strike(self) -> None:
		pass


class WorkerKilled(Upset):
	"""a worker is killed, with the commands that it runs"""

	def strike(self) -> None:
		self.one_worker().kill()


class WorkersKilled(Upset):
	"""all workers are killed"""

	def strike(self) -> None:
		for worker in self.ground.workers:
			worker.kill()


class WorkerStopped(Upset):
	"""a worker stands still, longer than the server waits for it"""

	def strike(self) -> None:
		self.ground.signal(self.one_worker().process, signal.SIGSTOP)
		time.sleep(self.rng.choice((0.5, 2 * KEEPALIVE)))


class WorkerEnded(Upset):
	"""a worker is asked to end, and finishes what it runs"""

	def strike(self) -> None:
		self.ground.signal(self.one_worker().process, signal.SIGTERM)


class ServerRestarted(Upset):
	"""the server is killed, and started again"""

	def strike(self) -> None:
		self.ground.cluster.kill()
		time.sleep(self.rng.choice((0.0, 1.0, 4.0)))
		self.ground.cluster.start()


class ServerStopped(Upset):
	"""the server stands still, and its connections with it"""

	def strike(self) -> None:
		self.ground.signal(self.ground.cluster.process, signal.SIGSTOP)


class DatabaseRestarted(Upset):
	"""PostgreSQL ends all connections, and starts again"""

	def strike(self) -> None:
		self.ground.database.restart()


class ContentsLost(Upset):
	"""the server loses contents that it said it has"""

	disturbs = False

	def strike(self) -> None:
		share = self.rng.choice((0.1, 0.5, 1.0))
		self.notes.append("%d contents were lost" % self.ground.lose(self.rng, share))


class ContentsLostOften(ContentsLost):
	"""the server loses contents again and again"""

	def strike(self) -> None:
		for _ in range(20):
			super().strike()
			time.sleep(0.1)
		del self.notes[1:]


class DiskFull(Upset):
	"""the disks of all workers are full"""

	needs_root = True

	def strike(self) -> None:
		self.fillers = [self.ground.fill(worker) for worker in self.ground.workers]

	def end(self) -> None:
		for filler in getattr(self, "fillers", []):
			if filler is not None:
				filler.unlink(missing_ok=True)


class LineCut(Upset):
	"""the client's line is cut, and works again later"""

	disturbs = False

	def strike(self) -> None:
		self.ground.front.cut()
		time.sleep(self.rng.choice((0.1, 1.0, 3.0)))
		self.ground.front.open()


class LineDown(Upset):
	"""the client's line is cut for the rest of the build"""

	disturbs = False

	def strike(self) -> None:
		self.ground.front.cut()


class LineSilent(Upset):
	"""what the client sends is swallowed, and no connection ends"""

	disturbs = False

	def strike(self) -> None:
		self.ground.front.is_silent = True


class LineSlow(Upset):
	"""each message of the client takes a while"""

	is_early = True
	disturbs = False

	def strike(self) -> None:
		self.ground.front.delay = self.rng.choice((0.05, 0.3, 1.0))


class WorkersCut(Upset):
	"""the line of the workers is cut for the rest of the build"""

	def strike(self) -> None:
		self.ground.back.cut()


class WorkersSilent(Upset):
	"""the workers cannot reach the server, and no connection ends"""

	def strike(self) -> None:
		self.ground.back.is_silent = True


class ProgramKilled(Upset):
	"""wafd-cluster, which speaks for the engine, is killed"""

	disturbs = False
	number = signal.SIGKILL

	def strike(self) -> None:
		pids = self.client.speakers()
		self.notes.append("%d processes" % len(pids))
		for pid in pids:
			send(pid, self.number)


class ProgramStopped(ProgramKilled):
	"""wafd-cluster stands still"""

	number = signal.SIGSTOP

	def end(self) -> None:
		for pid in self.client.speakers():
			send(pid, signal.SIGCONT)


class Lie(Upset):
	"""a worker lies"""

	is_early = True
	disturbs = False
	lie = ""

	def strike(self) -> None:
		self.liar = Liar(self.ground.cluster.port, self.lie, self.rng)
		self.ground.back.change = self.liar.change

	def end(self) -> None:
		self.notes.append("%d lies" % self.liar.told)
		self.liar.close()


UPSETS: Dict[str, "type[Upset]"] = {
	"nothing": Nothing,
	"worker-killed": WorkerKilled,
	"workers-killed": WorkersKilled,
	"worker-stopped": WorkerStopped,
	"worker-ended": WorkerEnded,
	"server-restarted": ServerRestarted,
	"server-stopped": ServerStopped,
	"database-restarted": DatabaseRestarted,
	"contents-lost": ContentsLost,
	"contents-lost-often": ContentsLostOften,
	"disk-full": DiskFull,
	"line-cut": LineCut,
	"line-down": LineDown,
	"line-silent": LineSilent,
	"line-slow": LineSlow,
	"workers-cut": WorkersCut,
	"workers-silent": WorkersSilent,
	"program-killed": ProgramKilled,
	"program-stopped": ProgramStopped,
	**{
		"lie-%s" % name: type("Lie", (Lie,), {"lie": name, "__doc__": "a worker lies: %s" % (tell.__doc__ or "")})
		for name, tell in LIES.items()
	},
}


def about(kind: "type[Upset]") -> str:
	return (kind.__doc__ or "").strip()
