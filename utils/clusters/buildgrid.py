"""BuildGrid, a server of the Remote Execution API."""

import contextlib
import os
import pathlib
import secrets
import signal
import subprocess
import time
from typing import Iterator, List, NamedTuple, Optional, Union

from benchmark.hosts import Host
from benchmark.machine import read
from benchmark.mistake import Failed
from benchmark.servers import LISTENS, LOOPBACK, free_port

from .database import BUILDGRID, PATIENCE, Database, call_buildgrid, python_of_buildgrid
from .forks import PROGRAM, READY, Fork
from .worker import Worker

INSTANCE = "team"

CONFIGURATION = """\
server:
  - !channel
    address: "{address}"
{channel}
authorization:
{authorization}
connections:
  - !sql-connection &sql
    connection-string: "{database}"
    pool-size: 20
    max-overflow: 40
storages:
{storage}
caches:
  - !lru-action-cache &results
    storage: *contents
    max-cached-refs: 100000
    allow-updates: {updates}
schedulers:
  - !sql-scheduler &scheduler
    sql: *sql
    storage: *contents
    action-cache: *results
    poll-interval: 0.05
    bot-poll-interval: 0.05
    bot-session-keepalive-timeout: {keepalive}
    session-expiry-timer-interval: 1
    max-execution-timeout: 600
    property-set: !dynamic-property-set
      match-property-keys: [OSFamily, ISA, pool]
    assigners:
      - !priority-age-assigner
        count: 1
        interval: 0.02
        jitter-factor: 0
        failure-backoff: 0.1
instances:
  - name: "{instance}"
    services:
      - !action-cache
        cache: *results
      - !execution
        scheduler: *scheduler
      - !cas
        storage: *contents
      - !bytestream
        storage: *contents
# the number of requests at once, and a worker that waits for work is one of them
thread-pool-size: 200
"""


class Papers(NamedTuple):
	"""Files in PEM: who signs, the server's certificate, and a client's."""

	ca: pathlib.Path
	server: pathlib.Path
	server_key: pathlib.Path
	client: pathlib.Path
	client_key: pathlib.Path


def make_papers(folder: pathlib.Path) -> Papers:
	def openssl(words: str) -> None:
		subprocess.run(["openssl", *words.split()], cwd=folder, capture_output=True, timeout=PATIENCE, check=True)

	new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
	openssl(f"req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=cluster")
	(folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
	for number, name in enumerate(("server", "client"), 2):
		openssl(f"req {new} -keyout {name}.key -out {name}.request -subj /CN={name}")
		signed = f"-CA ca.pem -CAkey ca.key -days 2 -extfile names -set_serial {number}"
		openssl(f"x509 -req -in {name}.request -out {name}.pem {signed}")
	return Papers(*(folder / x for x in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")))


def name_buildgrid() -> List[str]:
	"""The command `bgd`. If its Python is beside it, a script of ours stands in for it, which is quicker."""
	python = python_of_buildgrid()
	# -P: the folder of that script has modules of ours, and one is called like theirs
	return [python, "-P", str(PROGRAM)] if python else [str(BUILDGRID)]


class Cluster:
	"""
	BuildGrid on a port of its own, with a database of its own, and its workers.

	`papers` makes it speak TLS, `is_mutual` with clients that have certificates only. `has_tokens` makes it want
	tokens, which are signed with its `secret`. `is_kept` keeps contents on disk, where a restart of the server finds
	them; else they are in its memory, and a restart loses all of them. `can_write` is false where clients may only
	read results.
	"""

	def __init__(
		self,
		database: Database,
		folder: pathlib.Path,
		papers: Optional[Papers] = None,
		is_mutual: bool = False,
		has_tokens: bool = False,
		is_kept: bool = False,
		can_write: bool = True,
		keepalive: int = 15,
		host: Optional[Host] = None,
	) -> None:
		self.database, self.folder, self.port, self.host = database, folder, free_port(), host
		self.listens = host.address if host else LOOPBACK
		self.papers, self.is_mutual = papers, is_mutual
		self.secret = secrets.token_hex(32)
		self.workers: List[Worker] = []
		self.log = folder / "server.log"
		self.process: Union[subprocess.Popen[bytes], Fork, None] = None
		folder.mkdir(parents=True, exist_ok=True)
		self.token_file: Optional[pathlib.Path] = None
		if has_tokens:
			self.token_file = folder / "token"
			self.token_file.write_text(self.sign(3600) + "\n")
			(folder / "secret").write_text(self.secret)
			for private in (self.token_file, folder / "secret"):
				private.chmod(0o600)
		storage = "  - !lru-storage &contents\n    size: 512M"
		if is_kept:
			storage = f'  - !disk-storage &contents\n    path: "{folder}/contents"'
		(folder / "config.yml").write_text(
			CONFIGURATION.format(
				address=f"{self.listens}:{self.port}",
				channel=self.configure_channel(),
				authorization=self.configure_tokens(),
				database=database.add(),
				storage=storage,
				updates=str(can_write).lower(),
				keepalive=keepalive,
				instance=INSTANCE,
			)
		)

	def configure_channel(self) -> str:
		if not self.papers:
			return "    insecure-mode: true"
		pem = {"tls-server-key": self.papers.server_key, "tls-server-cert": self.papers.server}
		if self.is_mutual:
			pem["tls-client-certs"] = self.papers.ca
		lines = "".join(f'\n      {name}: "{path}"' for name, path in pem.items())
		return f"    insecure-mode: false\n    credentials:{lines}"

	def configure_tokens(self) -> str:
		if not self.token_file:
			return "  method: none"
		return f'  method: jwt\n  algorithm: hs256\n  secret: "{self.folder}/secret"'

	def sign(self, seconds: int, secret: Optional[str] = None) -> str:
		"""A token that is good for so long, or has been until so long ago."""
		import jwt  # BuildGrid brings it

		claims = {"sub": "tests", "exp": int(time.time()) + seconds}
		return jwt.encode(claims, secret or self.secret, algorithm="HS256")

	@property
	def address(self) -> str:
		"""The address with what is needed to be let in."""
		address = f"{'grpcs' if self.papers else 'grpc'}://{self.listens}:{self.port}/{INSTANCE}"
		if self.papers:
			address += f"|ca={self.papers.ca}"
		if self.papers and self.is_mutual:
			address += f"|cert={self.papers.client}|key={self.papers.client_key}"
		return address + (f"|token-file={self.token_file}" if self.token_file else "")

	def enter(self, command: List[str]) -> List[str]:
		"""A command as it runs on the server's host."""
		return self.host.enter(command) if self.host else command

	def start(self) -> None:
		words = ["server", "start", str(self.folder / "config.yml")]
		python = python_of_buildgrid()
		with open(self.log, "ab") as log:
			if python and not self.host:
				self.process = READY.start(python, words, self.folder, 2 * [log.fileno()])
			else:
				environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
				self.process = subprocess.Popen(
					self.enter([*name_buildgrid(), *words]),
					cwd=self.folder,
					env=environ,
					stdin=subprocess.DEVNULL,
					stdout=log,
					stderr=log,
				)
		self.await_listening()

	def await_listening(self) -> None:
		"""Wait until it takes connections, which its own host's table of sockets tells."""
		process = self.process
		wanted = f":{self.port:04X}"
		deadline = time.monotonic() + PATIENCE
		while process:
			# gRPC listens on an address of IPv6 that stands for the other one
			tables = "".join(read(f"/proc/{process.pid}/net/{name}") for name in ("tcp", "tcp6"))
			sockets = [line.split() for line in tables.splitlines()]
			if any(socket[1].endswith(wanted) and socket[3] == LISTENS for socket in sockets):
				return
			if process.poll() is not None or time.monotonic() > deadline:
				raise Failed("BuildGrid does not start", read(str(self.log)))
			time.sleep(0.02)

	def stop(self, number: int = signal.SIGTERM) -> None:
		process, self.process = self.process, None
		if process:
			process.send_signal(number)
			try:
				process.wait(PATIENCE)
			except subprocess.TimeoutExpired:
				process.kill()  # it waits for streams that clients keep open
				process.wait()

	def kill(self) -> None:
		self.stop(signal.SIGKILL)

	def restart(self) -> None:
		"""End it at once, as a crash does, and start it on the same port."""
		self.kill()
		self.start()

	def worker(self, engine: str, *options: str, host: Optional[Host] = None, **environ: str) -> Worker:
		"""Start one more worker, with these options of `wafd worker`."""
		folder = self.folder / f"worker {len(self.workers)}"
		folder.mkdir()
		command = [engine, "worker", "--folder", str(folder / "place"), *options, self.address]
		command = host.enter(command) if host else command
		self.workers.append(Worker(command, folder, {**os.environ, **environ}))
		self.workers[-1].start()
		return self.workers[-1]

	def ask(self, group: str, *words: str) -> str:
		"""What BuildGrid's own client prints, as another client of the same server: `cas` or `execute`."""
		options = [f"--remote={'https' if self.papers else 'http'}://{self.listens}:{self.port}"]
		options += [f"--instance-name={INSTANCE}"]
		if self.papers:
			options += [f"--server-cert={self.papers.ca}"]
		if self.papers and self.is_mutual:
			options += [f"--client-cert={self.papers.client}", f"--client-key={self.papers.client_key}"]
		if self.token_file:
			options += [f"--auth-token={self.token_file}"]
		return call_buildgrid(group, *options, *words)

	@contextlib.contextmanager
	def run(self) -> Iterator["Cluster"]:
		"""The server, until the end of the block, and its workers, which end before."""
		try:
			self.start()
			yield self
		finally:
			with contextlib.ExitStack() as stack:
				stack.callback(self.stop)
				for worker in self.workers:
					stack.callback(worker.stop)
