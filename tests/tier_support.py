"""Machines that share a store, and the stores: real servers that a test starts, and some that misbehave."""

import contextlib
import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterator, List, Optional, Tuple

import pytest
from cache_support import COMPILERS, PATIENCE, Lab
from conftest import list_processes, wait_until_gone

Handler = Callable[[socket.socket], None]
LINE = COMPILERS[0] + " -c x.c -o x.o" if COMPILERS else ""
# for servers that answer, on a machine that may be busy with other tests
PATIENT = "|timeout=20000|connect-timeout=20000|operation-timeout=30000"


class Machine(Lab):
	"""A lab with a runtime folder and a store of its own; its folder of sources is shared by all machines."""

	def __init__(self, engine: str, folder: pathlib.Path, place: pathlib.Path, remote: str) -> None:
		super().__init__(engine, folder, place / "home")
		self.runtime = pathlib.Path(tempfile.mkdtemp(prefix="wafd-"))
		self.environ.update(WAFD_RUNTIME_DIR=str(self.runtime), WAFCC_REMOTE=remote)

	def ask(self, *options: str) -> str:
		argv = [*self.prefix, self.wafcc, *options]
		return subprocess.run(
			argv, env=self.environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
		).stdout

	def remote(self) -> dict:
		return json.loads(self.ask("--show-stats", "--json"))["remote"]

	def write_noise(self) -> pathlib.Path:
		"""A source whose object has some megabytes, because it includes a large file, and is a separate blob."""
		noise = self.write("noise", "")
		noise.write_bytes(random.Random(1).getrandbits(24 << 20).to_bytes(3 << 20, "little"))
		self.write("x.c", '__asm__(".incbin \\"noise\\"");\n')
		return noise

	def until_uploaded(self, count: int = 1) -> dict:
		deadline = time.monotonic() + PATIENCE
		while True:
			remote = self.remote()
			if remote["uploads"] >= count:
				return remote
			assert time.monotonic() < deadline, remote
			time.sleep(0.02)

	def stop(self) -> None:
		if list_processes(self.runtime):
			self.ask("--shutdown")
		left = wait_until_gone(self.runtime)
		for pid in left:
			with contextlib.suppress(ProcessLookupError):
				os.kill(pid, signal.SIGKILL)
		shutil.rmtree(self.runtime, ignore_errors=True)
		assert not left, f"processes were left behind: {left}"


Make = Callable[[str], Machine]


@pytest.fixture
def machine(engine: str, tmp_path: pathlib.Path) -> Iterator[Make]:
	"""A function that makes one more machine with these remote stores."""
	folder = tmp_path / "lab"
	folder.mkdir()
	machines: List[Machine] = []

	def make(remote: str) -> Machine:
		machines.append(Machine(engine, folder, tmp_path / f"machine {len(machines)}", remote))
		return machines[-1]

	with contextlib.ExitStack() as stack:
		stack.callback(lambda: [stack.callback(each.stop) for each in machines])
		yield make


def free_port() -> int:
	with socket.socket() as probe:
		probe.bind(("127.0.0.1", 0))
		return probe.getsockname()[1]


def until_listens(port: int, process: "subprocess.Popen[bytes]") -> None:
	deadline = time.monotonic() + PATIENCE
	while True:
		with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
			return
		assert process.poll() is None, f"{process.args} has ended"
		assert time.monotonic() < deadline, f"{process.args} does not listen"
		time.sleep(0.02)


@contextlib.contextmanager
def running(argv: List[str], port: int, **more: object) -> Iterator["subprocess.Popen[bytes]"]:
	"""A server, until the end of the block."""
	process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more)  # type: ignore[call-overload]
	try:
		until_listens(port, process)
		yield process
	finally:
		process.terminate()
		process.wait(PATIENCE)


class RedisServer:
	"""A real one, which wants a password."""

	def __init__(self, folder: pathlib.Path) -> None:
		self.port, self.password = free_port(), secrets.token_hex(8)
		self.folder = folder

	@property
	def address(self) -> str:
		return f"redis://:{self.password}@127.0.0.1:{self.port}/1{PATIENT}"

	@contextlib.contextmanager
	def run(self, *more: str) -> "Iterator[subprocess.Popen[bytes]]":
		settings = self.folder / "redis.conf"
		self.folder.mkdir(exist_ok=True)
		lines = ["bind 127.0.0.1", f"port {self.port}", f"requirepass {self.password}", "appendonly no"]
		settings.write_text("\n".join([*lines, 'save ""', f'dir "{self.folder}"', ""]))
		with running(["redis-server", str(settings), *more], self.port) as process:
			yield process

	def ask(self, *words: str) -> str:
		argv = ["redis-cli", "-p", str(self.port), "-n", "1", *words]
		environ = dict(os.environ, REDISCLI_AUTH=self.password)
		return subprocess.run(argv, env=environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True).stdout


@pytest.fixture
def redis(tmp_path: pathlib.Path) -> Iterator[RedisServer]:
	server = RedisServer(tmp_path / "redis")
	with server.run():
		yield server


class Oddity:
	"""A server on a port of its own that does with each connection what a function says; it counts them."""

	def __init__(self, handle: Optional[Handler], context: Optional[ssl.SSLContext] = None) -> None:
		self.context = context
		self.listener = socket.create_server(("127.0.0.1", 0))
		self.port: int = self.listener.getsockname()[1]
		self.handle = handle
		self.connections: List[socket.socket] = []
		threading.Thread(target=self.serve, daemon=True).start()

	def serve(self) -> None:
		with contextlib.suppress(OSError):
			while True:
				connection, _ = self.listener.accept()
				self.connections.append(connection)
				threading.Thread(target=self.serve_one, args=(connection,), daemon=True).start()

	def serve_one(self, connection: socket.socket) -> None:
		with contextlib.suppress(OSError):
			if self.context:
				connection = self.context.wrap_socket(connection, server_side=True)
				self.connections.append(connection)
			if self.handle:
				self.handle(connection)

	def close(self) -> None:
		with contextlib.suppress(OSError):
			self.listener.shutdown(socket.SHUT_RDWR)
		for each in [self.listener, *self.connections]:
			each.close()


@pytest.fixture
def oddity() -> Iterator[Callable[[Optional[Handler]], Oddity]]:
	"""A function that starts a server which misbehaves."""
	servers: List[Oddity] = []

	def start(handle: Optional[Handler]) -> Oddity:
		servers.append(Oddity(handle))
		return servers[-1]

	yield start
	for server in servers:
		server.close()


def pump(source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]) -> None:
	"""Pass on the data of one side, changed."""
	with contextlib.suppress(OSError):
		while True:
			data = source.recv(65536)
			if not data:
				break
			sink.sendall(change(data))
	for each in (source, sink):
		with contextlib.suppress(OSError):
			each.shutdown(socket.SHUT_RDWR)


def between(port: int, change: Callable[[bytes], bytes]) -> Handler:
	"""Returns a server that passes on the data of another one, changed."""

	def handle(connection: socket.socket) -> None:
		with socket.create_connection(("127.0.0.1", port)) as other:
			back = threading.Thread(target=pump, args=(other, connection, change), daemon=True)
			back.start()
			pump(connection, other, lambda data: data)
			back.join()

	return handle


def bent(data: bytes, mark: bytes, distance: int) -> bytes:
	"""Flip a bit at this distance after a mark, if the mark is there."""
	at = data.find(mark) + distance
	return data if at < distance else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def shared(first: Machine, second: Machine, line: str) -> Tuple[str, dict]:
	"""A compile on one machine is a hit on the other. Returns the verdict and the counts."""
	first.until_hit(line)
	first.until_uploaded()
	said = second.same(line)
	return said, second.remote()


MANY = 60


def compile_many(at: Machine, parallel: int, count: int = MANY) -> None:
	"""Compile so many sources, and so many of them at once."""

	def one(n: int) -> None:
		argv = [at.wafcc, COMPILERS[0], "-c", f"x{n}.c", "-o", f"x{n}.o"]
		subprocess.run(argv, cwd=at.folder, env=at.environ, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=True)

	with ThreadPoolExecutor(parallel) as pool:
		list(pool.map(one, range(count)))


def upload_many(first: Machine) -> None:
	"""Write sources, two of each kind, and compile them until the store has all results."""
	for n in range(MANY):
		first.write(f"x{n}.c", f"int f{n // 2};\n")
	deadline = time.monotonic() + PATIENCE
	while first.remote()["uploads"] < MANY:
		assert time.monotonic() < deadline, first.remote()
		compile_many(first, 4)


def check_other_headers(machine: Make, address: str) -> None:
	"""The results of two machines with other headers are kept beside each other in a store."""
	first, second = machine(address), machine(address)
	header = first.write("f.h", "int f;\n")
	first.write("x.c", '#include "f.h"\n')
	assert "does not have it" in first.same(LINE)
	first.until_hit(LINE)
	first.until_uploaded()
	header.write_text("int other;\n")
	assert "has it, but f.h has changed" in second.same(LINE)
	second.until_hit(LINE)
	second.until_uploaded()
	assert machine(address).same(LINE).startswith("hit")
	header.write_text("int f;\n")
	assert machine(address).same(LINE).startswith("hit")
