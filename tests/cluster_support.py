"""A cluster for tests: BuildGrid with PostgreSQL as a server of the Remote Execution API, and workers of ours."""

import contextlib
import glob
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

import pytest
from cache_support import PATIENCE
from conftest import leave_out
from tier_support import PATIENT, free_port, until_listens

INSTANCE = "team"
USER = "postgres"  # of Debian's package; PostgreSQL does not run as root
OWNER = "buildgrid"  # of the databases
TEMPLATE = "with_tables"
PROGRAMS = os.path.dirname(sys.executable)
BUILDGRID = shutil.which("bgd", path=os.pathsep.join((PROGRAMS, os.environ["PATH"])))
WHY_NOT = "pip install 'buildgrid[database]==0.4.4' psycopg2-binary 'SQLAlchemy<2.1'"

CONFIGURATION = """\
server:
  - !channel
    address: "127.0.0.1:{port}"
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


def find_programs() -> str:
	"""The folder of PostgreSQL's programs, which Debian does not put into PATH."""
	found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
	program = found[-1] if found else shutil.which("initdb")
	if not program or (os.geteuid() == 0 and not shutil.which("setpriv")):
		leave_out("apt-get install postgresql")
	return os.path.dirname(program)


def as_other_user() -> List[str]:
	"""What is before a command of PostgreSQL's so that it does not run as root; the command keeps its process."""
	return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []


class Database:
	"""PostgreSQL in a folder of its own, which is reached by a Unix socket only. Nothing is synced to the disk."""

	def __init__(self) -> None:
		self.programs = find_programs()
		# short, as a socket's path has about a hundred bytes
		self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pg-"))
		self.process: Optional[subprocess.Popen[bytes]] = None
		self.count = 0

	def ask(self, program: str, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
		"""Run one of its small programs."""
		command = [*as_other_user(), os.path.join(self.programs, program), *words]
		done = subprocess.run(
			command, cwd=self.folder, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False
		)
		if check and done.returncode:
			pytest.fail(f"{program} ended with status {done.returncode}: {done.stdout}{done.stderr}", pytrace=False)
		return done

	def make(self) -> None:
		if os.geteuid() == 0:
			shutil.chown(self.folder, USER, USER)
		words = ["--auth=trust", f"--username={OWNER}", "--encoding=UTF8", "--locale=C", "--no-sync"]
		self.ask("initdb", *words, "--pgdata", str(self.folder / "data"))

	def start(self) -> None:
		settings = [
			"listen_addresses=",
			f"unix_socket_directories={self.folder}",
			"fsync=off",
			"full_page_writes=off",
			"synchronous_commit=off",
			"max_connections=400",
			"shared_buffers=32MB",
		]
		command = [*as_other_user(), os.path.join(self.programs, "postgres"), "-D", str(self.folder / "data")]
		with open(self.folder.with_suffix(".log"), "ab") as log:
			self.process = subprocess.Popen(
				[*command, *(word for each in settings for word in ("-c", each))],
				cwd=self.folder,
				stdin=subprocess.DEVNULL,
				stdout=log,
				stderr=log,
			)
		deadline = time.monotonic() + PATIENCE
		while self.ask("pg_isready", "-h", str(self.folder), "-U", OWNER, check=False).returncode:
			assert self.process.poll() is None, self.folder.with_suffix(".log").read_text()
			assert time.monotonic() < deadline, "PostgreSQL does not start"
			time.sleep(0.02)

	def stop(self, number: int = signal.SIGINT) -> None:
		"""End it, and all connections; the default is its quick but orderly way."""
		if self.process:
			self.process.send_signal(number)
			self.process.wait(PATIENCE)
			self.process = None

	def restart(self) -> None:
		self.stop(signal.SIGQUIT)
		self.start()

	def remove(self) -> None:
		self.stop()
		shutil.rmtree(self.folder, ignore_errors=True)
		self.folder.with_suffix(".log").unlink()

	def name(self, database: str) -> str:
		"""The address of one of its databases, as SQLAlchemy takes it."""
		return f"postgresql://{OWNER}@/{database}?host={self.folder}"

	def add(self) -> str:
		"""A database with BuildGrid's tables, which are made once; its address."""
		connection = ["-h", str(self.folder), "-U", OWNER]
		if not self.count:
			self.ask("createdb", *connection, TEMPLATE)
			call_buildgrid("migrate", "apply", self.name(TEMPLATE))
		self.count += 1
		database = f"cluster{self.count}"
		self.ask("createdb", *connection, "--template", TEMPLATE, database)
		return self.name(database)


def call_buildgrid(*words: str) -> str:
	"""Run `bgd`; what it prints."""
	environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
	command = [str(BUILDGRID), *words]
	done = subprocess.run(command, env=environ, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False)
	assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
	return done.stdout


class Papers(NamedTuple):
	"""Files in PEM: who signs, the server's certificate, and a client's."""

	ca: pathlib.Path
	server: pathlib.Path
	server_key: pathlib.Path
	client: pathlib.Path
	client_key: pathlib.Path


def make_papers(folder: pathlib.Path) -> Papers:
	if not shutil.which("openssl"):
		leave_out("apt-get install openssl")

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


class Worker:
	"""`wafd worker` as a process of its own, in a folder that is left when it has ended."""

	def __init__(self, command: List[str], folder: pathlib.Path, environ: Dict[str, str]) -> None:
		self.command, self.folder, self.environ = command, folder, environ
		self.log = folder / "worker.log"
		self.process: Optional[subprocess.Popen[bytes]] = None

	def start(self) -> None:
		with open(self.log, "ab") as log:
			self.process = subprocess.Popen(
				self.command, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
			)

	def until_said(self, words: str) -> str:
		"""Wait until its log has these words; the log."""
		deadline = time.monotonic() + PATIENCE
		while True:
			said = self.log.read_text(encoding="utf-8", errors="replace")
			if words in said:
				return said
			assert self.process is None or self.process.poll() is None, f"the worker has ended: {said}"
			assert time.monotonic() < deadline, f"the worker does not say {words!r}: {said}"
			time.sleep(0.02)

	def stop(self) -> int:
		"""Let it finish what it does; its status."""
		return self.end(signal.SIGTERM)

	def kill(self) -> None:
		self.end(signal.SIGKILL)

	def end(self, number: int) -> int:
		process, self.process = self.process, None
		if process is None:
			return 0
		process.send_signal(number)
		try:
			return process.wait(PATIENCE)
		except subprocess.TimeoutExpired:
			process.kill()
			process.wait()
			pytest.fail(f"the worker does not end: {self.log.read_text(errors='replace')}", pytrace=False)


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
	) -> None:
		self.database, self.folder, self.port = database, folder, free_port()
		self.papers, self.is_mutual = papers, is_mutual
		self.secret = secrets.token_hex(32)
		self.workers: List[Worker] = []
		self.log = folder / "server.log"
		self.process: Optional[subprocess.Popen[bytes]] = None
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
				port=self.port,
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
	def bare_address(self) -> str:
		"""The address with what is needed to be let in."""
		address = f"{'grpcs' if self.papers else 'grpc'}://127.0.0.1:{self.port}/{INSTANCE}"
		if self.papers:
			address += f"|ca={self.papers.ca}"
		if self.papers and self.is_mutual:
			address += f"|cert={self.papers.client}|key={self.papers.client_key}"
		return address + (f"|token-file={self.token_file}" if self.token_file else "")

	@property
	def address(self) -> str:
		"""The same with time-outs for a machine that may be busy with other tests."""
		return self.bare_address + PATIENT

	def start(self) -> None:
		environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
		command = [str(BUILDGRID), "server", "start", str(self.folder / "config.yml")]
		with open(self.log, "ab") as log:
			self.process = subprocess.Popen(
				command, cwd=self.folder, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
			)
		until_listens(self.port, self.process)

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

	def worker(self, engine: str, *options: str, **environ: str) -> Worker:
		"""Start one more worker, with these options of `wafd worker`."""
		folder = self.folder / f"worker {len(self.workers)}"
		folder.mkdir()
		command = [engine, "worker", "--folder", str(folder / "place"), *options, self.address]
		self.workers.append(Worker(command, folder, {**os.environ, **environ}))
		self.workers[-1].start()
		return self.workers[-1]

	def ask(self, group: str, *words: str) -> str:
		"""What BuildGrid's own client prints, as another client of the same server: `cas` or `execute`."""
		options = [f"--remote={'https' if self.papers else 'http'}://127.0.0.1:{self.port}"]
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
		self.start()
		try:
			yield self
		finally:
			with contextlib.ExitStack() as stack:
				stack.callback(self.stop)
				for worker in self.workers:
					stack.callback(worker.stop)


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
	"""One PostgreSQL for all clusters of a session. A test that ends it starts it again."""
	if sys.version_info < (3, 11):
		pytest.skip("BuildGrid needs Python 3.11 or newer")
	if not BUILDGRID:
		leave_out(WHY_NOT)
	server = Database()
	with contextlib.ExitStack() as stack:
		stack.callback(server.remove)
		server.make()
		server.start()
		yield server


@pytest.fixture
def buildgrid(database: Database, tmp_path: pathlib.Path) -> Iterator[Cluster]:
	"""A server without TLS and tokens, empty at first."""
	with Cluster(database, tmp_path / "cluster").run() as cluster:
		yield cluster


Build = Callable[..., Cluster]


@pytest.fixture
def build_cluster(database: Database, tmp_path: pathlib.Path) -> Iterator[Build]:
	"""A function that starts a server with the options of `Cluster`."""
	with contextlib.ExitStack() as stack:

		def build(**options: object) -> Cluster:
			folder = tmp_path / f"cluster {secrets.token_hex(4)}"
			return stack.enter_context(Cluster(database, folder, **options).run())  # type: ignore[arg-type]

		yield build


@pytest.fixture(scope="session")
def cluster_papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
	"""Certificates for loopback: a server's, and a client's."""
	return make_papers(tmp_path_factory.mktemp("papers"))
