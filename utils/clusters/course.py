"""A project that is built by a cluster, round by round, on hosts with a line between them that takes time."""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import hunt
from benchmark.environment import plain_environment
from benchmark.hosts import Host, Hosts
from benchmark.mistake import Failed

from .buildgrid import Cluster
from .database import Database

PATIENT = "|timeout=20000|connect-timeout=20000|operation-timeout=60000"
PATIENCE = 600  # seconds for one command
LEAVING = 60  # seconds for an engine that ends, and uploads what is left
OLD = 3600  # seconds: sources are as old as those of a checkout that was not just made


class Traffic(NamedTuple):
	"""What a host has sent and received."""

	sent: int
	received: int
	packets: int
	turns: int

	def since(self, before: "Traffic") -> "Traffic":
		return Traffic(*(now - then for now, then in zip(self, before)))


def traffic(hosts: Hosts, host: Host) -> Traffic:
	"""By the counters of its interfaces, without loopback, and by the line."""
	table = subprocess.run(
		host.enter(["cat", "/proc/net/dev"]), capture_output=True, encoding="utf-8", check=True
	).stdout
	numbers = [line.split(":") for line in table.splitlines()[2:]]
	counts = [[int(x) for x in values.split()] for name, values in numbers if name.strip() != "lo"]
	return Traffic(*(sum(each[column] for each in counts) for column in (8, 0, 9)), hosts.turns(host))


class Machine:
	"""A client: an engine with a store of its own on a host."""

	def __init__(self, hosts: Hosts, host: Host, engine: str, place: pathlib.Path, address: str) -> None:
		self.hosts, self.host, self.engine, self.place = hosts, host, engine, place
		self.wafcc = os.path.join(os.path.dirname(os.path.realpath(engine)), "wafcc")
		(place / "run").mkdir(parents=True, mode=0o700)
		variables = {"WAFD": engine, "WAFD_RUNTIME_DIR": str(place / "run"), "WAFCC_DIR": str(place / "store")}
		self.environ = {**plain_environment(), **variables, "WAFCC_REMOTE": address, "HOME": str(place)}

	def traffic(self) -> Traffic:
		return traffic(self.hosts, self.host)

	def run(self, command: List[str], folder: pathlib.Path) -> None:
		done = hunt.run(self.host.enter([self.wafcc, *command]), folder, self.environ, PATIENCE)
		if done.returncode:
			raise Failed("%s ended with status %d" % (shlex.join(command), done.returncode), done.stdout)

	def counts(self) -> Dict[str, Any]:
		return json.loads(self.ask("--show-stats", "--json"))

	def ask(self, *options: str) -> str:
		argv = self.host.enter([self.wafcc, *options])
		done = subprocess.run(
			argv, env=self.environ, capture_output=True, encoding="utf-8", timeout=LEAVING, check=False
		)
		if done.returncode:
			raise Failed("wafcc %s ended with status %d" % (" ".join(options), done.returncode), done.stderr)
		return done.stdout

	def leave(self) -> None:
		"""End its engine. What it still had to upload is there then."""
		self.ask("--shutdown")


class Project:
	"""Sources, and the commands that compile them: words that need no shell, with their outputs behind `-o`."""

	def __init__(self, name: str, folder: pathlib.Path) -> None:
		self.name, self.folder = name, folder
		self.commands = self.read_commands()
		for output in self.outputs():
			(folder / output).parent.mkdir(parents=True, exist_ok=True)
		self.grow_old()

	def read_commands(self) -> List[List[str]]:
		lines = (self.folder / "commands.txt").read_text(encoding="utf-8").splitlines()
		return [shlex.split(line) for line in lines]

	def compile(self, jobs: int, machine: Optional[Machine] = None) -> None:
		"""Make all outputs on a machine, or plainly."""
		with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
			run = self.run_plainly if machine is None else machine.run
			list(pool.map(lambda command: run(command, self.folder), self.commands))

	@staticmethod
	def run_plainly(command: List[str], folder: pathlib.Path) -> None:
		subprocess.run(command, cwd=folder, env=plain_environment(), check=True, timeout=PATIENCE)

	def outputs(self) -> List[str]:
		return [command[command.index("-o") + 1] for command in self.commands]

	def sources(self) -> List[pathlib.Path]:
		return [self.folder / command[command.index("-c") + 1] for command in self.commands]

	def header(self) -> pathlib.Path:
		"""The header that most files name, of those beside sources."""
		names: Dict[str, int] = {}
		headers = sorted(self.folder.rglob("*.h"))
		for source in [*self.sources(), *headers]:
			for line in source.read_text(encoding="utf-8", errors="replace").splitlines():
				if line.startswith('#include "'):
					name = os.path.basename(line.split('"')[1])
					names[name] = names.get(name, 0) + 1
		return max(headers, key=lambda path: names.get(path.name, 0))

	def edit(self, path: pathlib.Path, number: int) -> None:
		"""Change what compilers make of a file as little as can be: a declaration that no code uses."""
		with open(path, "a", encoding="utf-8") as file:
			file.write("\nextern int edited_%d;\n" % number)
		self.grow_old()

	def grow_old(self) -> None:
		"""The cache does not trust files that were written just before."""
		then = time.time() - OLD
		for path in self.folder.rglob("*"):
			if path.is_file():
				os.utime(path, (then, then))

	def remove_outputs(self) -> None:
		for output in self.outputs():
			(self.folder / output).unlink(missing_ok=True)

	def digests(self) -> Dict[str, str]:
		return {x: hashlib.sha256((self.folder / x).read_bytes()).hexdigest() for x in self.outputs()}


class Plain(NamedTuple):
	"""The digests of the right objects, and the time in which the compiler alone makes them."""

	digests: Dict[str, str]
	seconds: float


def compile_plainly(project: Project) -> Plain:
	project.remove_outputs()
	start = time.monotonic()
	project.compile(os.cpu_count() or 1)
	return Plain(project.digests(), time.monotonic() - start)


class Round(NamedTuple):
	"""A build with what it took."""

	project: str
	name: str
	commands: int
	hits: int
	there: int
	here: Dict[str, int]
	seconds: float
	plainly: float
	traffic: Traffic
	wrong: int

	def values(self) -> Dict[str, Any]:
		return {**self._asdict(), "traffic": self.traffic._asdict()}


def build(project: Project, name: str, machine: Machine, jobs: int, right: Plain) -> Round:
	"""Build all of it on a machine, and compare it with what is right."""
	project.remove_outputs()
	before, counted = machine.traffic(), machine.counts()
	start = time.monotonic()
	project.compile(jobs, machine)
	seconds = time.monotonic() - start
	counts = machine.counts()
	made = project.digests()

	def grown(*path: str) -> Any:
		now, then = counts, counted
		for part in path:
			now, then = now.get(part, {}), then.get(part, {})
		if isinstance(now, dict):
			return {key: now[key] - (then or {}).get(key, 0) for key in now if now[key] != (then or {}).get(key, 0)}
		return now - (then or 0)

	return Round(
		project.name,
		name,
		len(project.outputs()),
		grown("hits"),
		grown("remote", "executed"),
		grown("remote", "not_executed"),
		seconds,
		right.seconds,
		machine.traffic().since(before),
		sum(made[x] != digest for x, digest in right.digests.items()),
	)


class Lab:
	"""A server, workers and clients, each on a host of its own."""

	def __init__(self, engine: str, folder: pathlib.Path, hosts: Hosts, cluster: Cluster, workers: int) -> None:
		self.engine, self.folder, self.hosts, self.cluster = engine, folder, hosts, cluster
		self.clients = hosts.hosts[1 + workers :]
		self.machines: List[Machine] = []

	def machine(self, jobs: int) -> Machine:
		"""One more client, whose store is empty."""
		number = len(self.machines)
		address = "%s%s|execute=%d" % (self.cluster.address, PATIENT, jobs)
		host, place = self.clients[number % len(self.clients)], self.folder / ("machine-%d" % number)
		self.machines.append(Machine(self.hosts, host, self.engine, place, address))
		return self.machines[-1]


@contextlib.contextmanager
def laboratory(engine: str, folder: pathlib.Path, workers: int, slots: int, delay: float) -> Iterator[Lab]:
	"""A cluster that has seen nothing yet. Each packet takes so many seconds."""
	with contextlib.ExitStack() as stack:
		database = Database()
		stack.callback(database.remove)
		database.make()
		database.start()
		hosts = Hosts(1 + workers + 2)
		stack.callback(hosts.close)
		hosts.delay(delay)
		cluster = stack.enter_context(Cluster(database, folder / "cluster", host=hosts.hosts[0]).run())
		for host in hosts.hosts[1 : 1 + workers]:
			cluster.worker(engine, "--slots", str(slots), "--name", "host-%d" % host.number, host=host)
		for worker in cluster.workers:
			worker.until_said("works for")
		lab = Lab(engine, folder, hosts, cluster, workers)
		stack.callback(lambda: [machine.leave() for machine in lab.machines])
		yield lab


def rounds(project: Project, lab: Lab, jobs: int) -> Iterator[Round]:
	"""From an empty cluster to edits."""
	right = compile_plainly(project)
	first = lab.machine(jobs)
	yield build(project, "nothing is there", first, jobs, right)
	first.leave()
	yield build(project, "on a second machine", lab.machine(jobs), jobs, right)
	project.edit(project.header(), 1)
	right = compile_plainly(project)
	yield build(project, "a header was edited", first, jobs, right)
	for number, source in enumerate(project.sources()):
		project.edit(source, 2 + number)
	right = compile_plainly(project)
	yield build(project, "all sources were edited", first, jobs, right)
