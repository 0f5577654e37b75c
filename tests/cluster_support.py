"""A cluster for tests: BuildGrid with PostgreSQL as a server of the Remote Execution API, and workers of ours."""

import contextlib
import pathlib
import secrets
import shutil
import sys
from typing import Callable, Iterator

import pytest
from conftest import ROOT, leave_out
from tier_support import PATIENT, Machine, Make

sys.path.insert(0, str(ROOT / "utils"))

from clusters import buildgrid as server
from clusters.buildgrid import INSTANCE, Papers, make_papers
from clusters.database import BUILDGRID, OWNER, Database, call_buildgrid, missing
from clusters.worker import Worker

__all__ = [
	"BUILDGRID",
	"INSTANCE",
	"OWNER",
	"Build",
	"Cluster",
	"Database",
	"Impostor",
	"Papers",
	"Worker",
	"call_buildgrid",
]


class Cluster(server.Cluster):
	"""BuildGrid with the options of `clusters.buildgrid`, for clients that are patient with a busy machine."""

	@property
	def bare_address(self) -> str:
		"""The address with what is needed to be let in."""
		return super().address

	@property
	def address(self) -> str:
		"""The same with time-outs for a machine that may be busy with other tests."""
		return self.bare_address + PATIENT


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
	"""One PostgreSQL for all clusters of a session. A test that ends it starts it again."""
	lack = missing()
	if sys.version_info < (3, 11):
		pytest.skip(lack)
	if lack:
		leave_out(lack)
	postgresql = Database()
	with contextlib.ExitStack() as stack:
		stack.callback(postgresql.remove)
		postgresql.make()
		postgresql.start()
		yield postgresql


@pytest.fixture
def buildgrid(database: Database, tmp_path: pathlib.Path) -> Iterator[Cluster]:
	"""A server without TLS and tokens, empty at first."""
	with Cluster(database, tmp_path / "cluster").run() as cluster:
		yield cluster


IMPOSTOR = """\
#!{python}
# Stands for wafd-cluster: it takes commands, and answers in its own way.
import os, socket, struct, sys, threading

def receive(stream, count):
	bytes = b""
	while len(bytes) < count:
		more = stream.recv(count - len(bytes))
		if not more:
			sys.exit()
		bytes += more
	return bytes

def serve(stream):
	while True:
		length = struct.unpack("<I", receive(stream, 4))[0]
		frame = receive(stream, length)
		kind, id = struct.unpack("<BI", frame[:5])
		if kind == 1:
			answer(stream, id)

def put(stream, kind, id, body):
	stream.sendall(struct.pack("<IBI", 5 + len(body), kind, id) + body)

def give(stream, id, folder):
	# the entry that is in a folder, as WAFCC_EXPORT leaves it there
	read = lambda *names: open(os.path.join(folder, *names), "rb").read()
	for name in os.listdir(os.path.join(folder, "blobs")):
		put(stream, 0x81, id, read("blobs", name))
	put(stream, 0x82, id, bytes.fromhex(read("key").decode()) + read("entry"))

def answer(stream, id):
	{answer}

control = socket.socket(fileno=0)
while True:
	kind, sockets, _, _ = socket.recv_fds(control, 1, 1)
	if not kind:
		os._exit(0)
	stream = socket.socket(fileno=sockets[0])
	if kind == b"X":
		threading.Thread(target=serve, args=(stream,), daemon=True).start()
	else:
		stream.close()
"""

Impostor = Callable[[str], Machine]


@pytest.fixture
def impostor(machine: Make, engine: str, tmp_path: pathlib.Path) -> Impostor:
	"""A function that makes a machine whose program `wafd-cluster` answers in this way."""

	def make(answer: str) -> Machine:
		folder = tmp_path / "programs"
		folder.mkdir()
		for name in ("wafd", "wafcc"):
			shutil.copy(pathlib.Path(engine).with_name(name), folder / name)
		program = folder / "wafd-cluster"
		program.write_text(IMPOSTOR.format(python=sys.executable, answer=answer))
		program.chmod(0o755)
		found = machine("grpc://127.0.0.1:1/none|execute|pause=600000")
		found.engine, found.wafcc = str(folder / "wafd"), str(folder / "wafcc")
		return found

	return make


Build = Callable[..., Cluster]


@pytest.fixture
def build_cluster(database: Database, tmp_path: pathlib.Path) -> Iterator[Build]:
	"""A function that starts a server with the options of `Cluster`."""
	with contextlib.ExitStack() as stack:

		def build(**options: object) -> Cluster:
			folder = tmp_path / f"cluster-{secrets.token_hex(4)}"
			return stack.enter_context(Cluster(database, folder, **options).run())  # type: ignore[arg-type]

		yield build


@pytest.fixture(scope="session")
def cluster_papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
	"""Certificates for loopback: a server's, and a client's."""
	return make_papers(tmp_path_factory.mktemp("papers"))
