"""
Where trials of faults take place: a server with its database, two workers with small disks, and two lines to the
server, one of the clients and one of the workers.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from benchmark.environment import plain_environment
from benchmark.mistake import Failed
from benchmark.servers import LOOPBACK
from benchmark.session import status_of
from sabotage.processes import describe, kill, list_processes, read, wait_until_gone

from .buildgrid import INSTANCE, Cluster
from .database import Database
from .line import Line
from .worker import Worker

WORKERS = 2
SLOTS = 2
JOBS = 8
DISK = 600  # MiB of a worker
KEEPALIVE = 5  # seconds without a sign of life after which a worker's command is given to another one
RETURN = 90.0  # seconds in which a cluster must be well again
ANSWER = 30.0  # seconds for a question to the engine
LEAVING = 60.0  # seconds for an engine that ends, and uploads what is left
GONE = 10.0  # seconds in which wafd-cluster ends behind its engine
SPEAKER = "wafd-cluster"
PIECE = 1 << 20
ON_DISK = 'mount -t tmpfs -o "size=$1m" clusterfaults "$2" && shift 2 && exec "$@"'


class Ground:
	"""All that is shared by trials. A fault breaks some of it, and mends it afterwards."""

	def __init__(self, engine: str, folder: pathlib.Path, database: Database, cluster: Cluster) -> None:
		self.engine, self.folder, self.database, self.cluster = engine, folder, database, cluster
		self.wafcc = os.path.join(os.path.dirname(engine), "wafcc")
		self.is_root = os.geteuid() == 0
		self.front, self.back = Line(cluster.port), Line(cluster.port)
		self.workers: List[Worker] = []

	@property
	def address(self) -> str:
		"""As clients name it. Its time-outs are those of a user who sets none."""
		return "grpc://%s:%d/%s|execute=%d" % (LOOPBACK, self.front.port, INSTANCE, JOBS)

	def add_worker(self) -> None:
		"""A worker, as root with a small disk of its own, in a mount namespace in which only it is."""
		place = self.folder / ("worker-%d" % len(self.workers))
		disk = place / "disk"
		disk.mkdir(parents=True)
		address = "grpc://%s:%d/%s" % (LOOPBACK, self.back.port, INSTANCE)
		command = [self.engine, "worker", "--folder", str(disk / "place"), "--slots", str(SLOTS), "--name", place.name]
		if self.is_root:
			small = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ON_DISK, "sh", str(DISK), str(disk)]
			command = [*small, *command]
		else:
			command.append("--no-isolation")
		self.workers.append(Worker([*command, address], place, plain_environment()))
		self.workers[-1].start()

	def disk_of(self, worker: Worker) -> Optional[pathlib.Path]:
		"""A worker's disk, which only its own namespace shows."""
		if not worker.process:
			return None
		return pathlib.Path("/proc/%d/root" % worker.process.pid) / str(worker.folder / "disk").lstrip("/")

	def fill(self, worker: Worker) -> Optional[pathlib.Path]:
		"""Write until nothing more goes to a worker's disk; the file."""
		disk = self.disk_of(worker)
		if disk is None:
			return None
		filler = disk / "filler"
		with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
			while True:
				file.write(bytes(PIECE))
		with contextlib.suppress(OSError), open(filler, "ab", buffering=0) as file:
			while True:
				file.write(b"x")
		return filler

	def lose(self, rng: random.Random, share: float) -> int:
		"""Remove some of the contents from the server's disk; how many."""
		count = 0
		for path in sorted((self.cluster.folder / "contents").rglob("*")):
			if path.is_file() and rng.random() < share:
				path.unlink(missing_ok=True)
				count += 1
		return count

	def await_health(self) -> None:
		"""Wait until a worker runs a command again, and its result comes back."""
		place = self.folder / "empty"
		place.mkdir(exist_ok=True)
		deadline = time.monotonic() + RETURN
		while True:
			# by another argument, so that no earlier result answers
			try:
				self.cluster.ask("execute", "command", str(place), "--", "/bin/true", str(time.monotonic_ns()))
				return
			except (Failed, subprocess.TimeoutExpired) as e:
				if time.monotonic() > deadline:
					raise Failed("the cluster is not well again: %s" % e, getattr(e, "tail", "")) from None

	def signal(self, process: Any, number: int) -> None:
		if process and process.poll() is None:
			process.send_signal(number)

	def mend(self) -> None:
		"""As it was, whatever a trial has done to it."""
		for process in (self.cluster.process, *(worker.process for worker in self.workers)):
			self.signal(process, signal.SIGCONT)
		self.front.heal()
		self.back.heal()
		for worker in self.workers:
			if worker.process is None or worker.process.poll() is not None:
				worker.process = None
				worker.start()

	def close(self) -> None:
		self.mend()
		with contextlib.ExitStack() as stack:
			stack.callback(self.back.close)
			stack.callback(self.front.close)
			for worker in self.workers:
				stack.callback(worker.kill)


@contextlib.contextmanager
def found(engine: str, folder: pathlib.Path) -> Iterator[Ground]:
	"""A ground whose cluster works."""
	with contextlib.ExitStack() as stack:
		database = Database()
		stack.callback(database.remove)
		database.make()
		database.start()
		grid = Cluster(database, folder / "cluster", is_kept=True, keepalive=KEEPALIVE)
		cluster = stack.enter_context(grid.run())
		ground = Ground(engine, folder, database, cluster)
		stack.callback(ground.close)
		for _ in range(WORKERS):
			ground.add_worker()
		ground.await_health()
		yield ground


class Client:
	"""An engine with an empty store, for one build."""

	def __init__(self, ground: Ground, place: pathlib.Path) -> None:
		self.ground, self.place = ground, place
		self.wafcc = ground.wafcc
		self.runtime = pathlib.Path(tempfile.mkdtemp(prefix="wafd-"))  # short, as paths of sockets must be
		place.mkdir()
		variables = {
			"WAFD": ground.engine,
			"WAFD_RUNTIME_DIR": str(self.runtime),
			"XDG_CACHE_HOME": str(place / "cache"),
		}
		variables["WAFCC_CONFIGPATH"] = str(place / "none")
		self.environ = {**plain_environment(), **variables, "WAFCC_REMOTE": ground.address, "HOME": str(place)}

	def run(self, command: List[str], folder: pathlib.Path, seconds: float) -> Tuple[Optional[int], str]:
		"""A compile: its status, or None if it does not end, and what it says."""
		argv = [self.wafcc, *command]
		process = subprocess.Popen(
			argv,
			cwd=folder,
			env=self.environ,
			stdin=subprocess.DEVNULL,
			stdout=subprocess.PIPE,
			stderr=subprocess.STDOUT,
		)
		try:
			said, _ = process.communicate(timeout=max(seconds, 0.1))
		except subprocess.TimeoutExpired:
			process.kill()
			process.communicate()
			return None, ""
		return process.returncode, said.decode(errors="replace")

	def ask(self, program: str, *words: str) -> Dict[str, Any]:
		done = subprocess.run(
			[program, *words],
			env=self.environ,
			stdin=subprocess.DEVNULL,
			capture_output=True,
			encoding="utf-8",
			timeout=ANSWER,
			check=False,
		)
		if done.returncode:
			raise Failed("%s %s ended with status %d" % (os.path.basename(program), " ".join(words), done.returncode))
		return dict(json.loads(done.stdout))

	def counts(self) -> Tuple[int, int, Dict[str, int]]:
		"""How many commands were sent, how many results were used, and why others were not."""
		cluster = self.ask(self.ground.engine, "status", "--json").get("cluster") or {}
		remote = self.ask(self.wafcc, "--show-stats", "--json")["remote"]
		return cluster.get("sent", 0), remote["executed"], remote["not_executed"]

	def speakers(self) -> List[int]:
		"""The processes of wafd-cluster, which speak for the engine. They do not have its environment."""
		engines = list_processes(self.runtime)
		found = []
		for process in pathlib.Path("/proc").glob("[0-9]*"):
			status = status_of(int(process.name))
			if status and status.parent in engines and read(process / "comm") == SPEAKER:
				found.append(status.pid)
		return found

	def leave(self) -> List[str]:
		"""End its engine; what is left of it."""
		troubles = []
		speakers = self.speakers()
		try:
			argv = [self.wafcc, "--shutdown"]
			subprocess.run(argv, env=self.environ, capture_output=True, timeout=LEAVING, check=False)
		except subprocess.TimeoutExpired:
			troubles.append("the engine does not end")
		left = wait_until_gone(self.runtime)
		if left:
			troubles += ["processes were left:", *describe(left)]
			kill(left)
			wait_until_gone(self.runtime)
		orphans = await_end(speakers)
		if orphans:
			troubles.append("%s was left: %s" % (SPEAKER, orphans))
			kill(dict.fromkeys(orphans, ""))
		shutil.rmtree(str(self.runtime), ignore_errors=True)
		return troubles


def await_end(pids: List[int]) -> List[int]:
	"""Those of the processes that do not end."""
	deadline = time.monotonic() + GONE
	while True:
		left = [one.pid for one in map(status_of, pids) if one and one.state not in "ZX"]
		if not left or time.monotonic() > deadline:
			return left
		time.sleep(0.02)
