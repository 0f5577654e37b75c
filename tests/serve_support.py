"""A `wafd serve` for one test, and a small client of `docs/room.md`."""

import contextlib
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time
from typing import Callable, ContextManager, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest

PATIENCE = 30  # seconds
PLAIN = 0
TOKEN = "a-token-of-the-tests"
OTHER = "another-token-of-the-tests"
Papers = Dict[str, pathlib.Path]


class Refused(Exception):
	"""The server's `refused`."""


class Found(NamedTuple):
	number: int
	entry: bytes
	contents: Dict[bytes, bytes]


def frame(kind: int, *parts: bytes) -> bytes:
	body = bytes([kind]) + b"".join(parts)
	return struct.pack("<I", len(body)) + body


def text(value: bytes) -> bytes:
	return struct.pack("<I", len(value)) + value


def digests(values: Sequence[bytes]) -> bytes:
	return struct.pack("<H", len(values)) + b"".join(values)


def hello(token: str = "", namespace: str = "", lowest: int = 1, highest: int = 1) -> bytes:
	versions = struct.pack("<HH", lowest, highest)
	return frame(0x01, b"WAFR", versions, text(token.encode()), text(namespace.encode()), text(b"test"))


class RoomClient:
	"""A connection such as another wafd has."""

	def __init__(self, address: Tuple[str, int]) -> None:
		self.socket = socket.create_connection(address, timeout=PATIENCE)
		self.waiting = b""
		self.id = 0

	def greet(self, token: str, namespace: str) -> None:
		self.send(hello(token, namespace))
		kind, body = self.receive()
		if kind == 0x82:
			raise Refused(body[0], body[5:].decode())
		assert kind == 0x81
		self.version, self.rights, self.largest = struct.unpack_from("<HBQ", body)

	def send(self, data: bytes) -> None:
		self.socket.sendall(data)

	def close(self) -> None:
		self.socket.close()

	def receive(self) -> Tuple[int, bytes]:
		"""The next frame: its kind, and what follows that."""
		head = self.read(4)
		body = self.read(struct.unpack("<I", head)[0])
		return body[0], body[1:]

	def read(self, count: int) -> bytes:
		while len(self.waiting) < count:
			data = self.socket.recv(1 << 20)
			if not data:
				raise EOFError
			self.waiting += data
		data, self.waiting = self.waiting[:count], self.waiting[count:]
		return data

	def is_closed(self) -> bool:
		"""Wait for the end of the connection. Anything that comes before it is ignored."""
		try:
			while self.socket.recv(1 << 16):
				pass
		except ConnectionError:
			pass
		return True

	def number(self) -> bytes:
		self.id += 1
		return struct.pack("<I", self.id)

	def ask(self, kind: int, *parts: bytes) -> Tuple[int, bytes]:
		"""The only answer to a request, without its number."""
		number = self.number()
		self.send(frame(kind, number, *parts))
		kind, body = self.receive()
		assert body[:4] == number
		return kind, body[4:]

	def upload(self, digest: bytes, content: bytes, coding: int = PLAIN, piece: int = 1 << 20) -> Tuple[int, bytes]:
		number = self.number()
		begun = digest + bytes([coding]) + struct.pack("<Q", len(content))
		parts = [content[at : at + piece] for at in range(0, len(content), piece)] or [b""]
		self.send(frame(0x05, number, begun, parts[0]))
		for part in parts[1:]:
			self.send(frame(0x06, number, part))
		kind, body = self.receive()
		assert body[:4] == number
		return kind, body[4:]

	def put(self, content: bytes) -> bytes:
		"""Upload it. The server compares the digest of the content with the announced one."""
		kind, body = self.upload(bytes(32), content)
		assert (kind, body[0]) == (0x8A, 4), body
		digest = bytes.fromhex(re.findall(r"[0-9a-f]{64}", body.decode(errors="replace"))[0])
		kind, body = self.upload(digest, content)
		assert kind == 0x89, body
		return digest

	def put_entry(self, key: bytes, needs: Sequence[bytes], content: bytes) -> Tuple[int, bytes]:
		return self.ask(0x07, key, digests(needs), content)

	def find(self, keys: Sequence[bytes], inline: int = 0) -> List[Found]:
		number = self.number()
		self.send(frame(0x02, number, struct.pack("<I", inline), digests(keys)))
		found = []
		while True:
			kind, body = self.receive()
			assert body[:4] == number
			if kind == 0x84:
				return found
			assert kind == 0x83
			found.append(self.read_found(body[4:]))

	@staticmethod
	def read_found(body: bytes) -> Found:
		number, length = struct.unpack_from("<HI", body)
		entry, rest = body[6 : 6 + length], body[6 + length :]
		(count,), rest = struct.unpack_from("<H", rest), rest[2:]
		contents = {}
		for _ in range(count):
			digest, coding, (size,) = rest[:32], rest[32], struct.unpack_from("<I", rest, 33)
			assert coding == PLAIN, "the tests store nothing that can be packed"
			contents[digest], rest = rest[37 : 37 + size], rest[37 + size :]
		assert not rest
		return Found(number, entry, contents)

	def get(self, wanted: Sequence[bytes]) -> List[Optional[bytes]]:
		number = self.number()
		self.send(frame(0x03, number, digests(wanted)))
		contents: List[Optional[bytes]] = []
		while True:
			kind, body = self.receive()
			assert body[:4] == number
			body = body[4:]
			if kind == 0x84:
				return contents
			if kind == 0x87:
				contents.append(None)
				continue
			assert kind == 0x85
			coding, (size,), content = body[32], struct.unpack_from("<Q", body, 33), body[41:]
			assert coding == PLAIN, "the tests store nothing that can be packed"
			while len(content) < size:
				kind, body = self.receive()
				assert (kind, body[:4]) == (0x86, number)
				content += body[4:]
			contents.append(content)


def end_process(process: "subprocess.Popen[bytes]", how: int) -> int:
	"""End a server, if it runs, and return its exit status."""
	if process.poll() is None:
		process.send_signal(how)
	status = process.wait(PATIENCE)
	if process.stdout:
		process.stdout.close()
	return status


class Server:
	"""A `wafd serve` in a folder."""

	listen = "127.0.0.1:0"

	def __init__(self, engine: str, folder: pathlib.Path, *options: str, **env: str) -> None:
		self.engine, self.folder, self.options, self.env = engine, folder, options, env
		self.log = folder / "serve.log"
		self.clients: List[RoomClient] = []
		self.start()

	def start(self) -> None:
		command = [
			*self.prefix(),
			self.engine,
			"serve",
			"--listen",
			self.listen,
			"--store",
			str(self.folder / "store"),
			*self.options,
		]
		environ = {name: value for name, value in os.environ.items() if not name.startswith("WAFD_")}
		with self.log.open("ab") as log:
			self.process = subprocess.Popen(
				command, env={**environ, **self.env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
			)
		assert self.process.stdout
		line = self.process.stdout.readline().decode()
		assert line.startswith("serves "), self.log.read_text()
		host, port = line.split()[1].rsplit(":", 1)
		self.address = (host, int(port))

	def prefix(self) -> List[str]:
		"""The words before the server's command."""
		return []

	def reached(self) -> ContextManager[None]:
		"""The address at which clients reach it."""
		return contextlib.nullcontext()

	def end(self, how: int = signal.SIGTERM) -> int:
		"""End it, and return its exit status."""
		return end_process(self.process, how)

	def again(self, how: int = signal.SIGTERM) -> None:
		self.end(how)
		self.start()

	def room(self, token: str = "", namespace: str = "") -> RoomClient:
		"""A client that has been greeted; it is closed when the test ends."""
		with self.reached():
			self.clients.append(RoomClient(self.address))
		self.clients[-1].greet(token, namespace)
		return self.clients[-1]

	def http(self) -> http.client.HTTPConnection:
		return http.client.HTTPConnection(*self.address, timeout=PATIENCE)

	def request(
		self, method: str, path: str, body: Optional[bytes] = None, token: str = "", **headers: str
	) -> Tuple[int, bytes]:
		"""Status and body, over a connection of its own."""
		if token:
			headers["Authorization"] = "Bearer " + token
		with self.reached(), contextlib.closing(self.http()) as connection:
			connection.request(method, path, body, headers)
			answer = connection.getresponse()
			return answer.status, answer.read()

	def metrics(self, token: str = "") -> Dict[str, int]:
		status, body = self.request("GET", "/metrics", token=token)
		assert status == 200, body
		lines = [line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#")]
		return {name: int(value) for name, value in lines}

	def resident(self) -> int:
		"""The memory that the server uses, in bytes."""
		status = pathlib.Path("/proc", str(self.process.pid), "status").read_text()
		return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024


def wait_until(what: str, holds: Callable[[], bool]) -> None:
	deadline = time.monotonic() + PATIENCE
	while not holds():
		assert time.monotonic() < deadline, "never: " + what
		time.sleep(0.02)


def write_tokens(path: pathlib.Path, *lines: str) -> pathlib.Path:
	"""A file of tokens, whole at once."""
	fresh = path.with_suffix(".new")
	fresh.touch(0o600)
	fresh.write_text("".join(line + "\n" for line in lines))
	fresh.rename(path)
	return path


@pytest.fixture
def serve(engine: str, tmp_path: pathlib.Path) -> Iterator[Callable[..., Server]]:
	"""A function that starts a server with options; all end as they should when the test ends."""
	servers: List[Server] = []

	def start(*options: str, **env: str) -> Server:
		folder = tmp_path / ("server-%d" % len(servers))
		folder.mkdir()
		servers.append(Server(engine, folder, *options, **env))
		return servers[-1]

	yield start
	for server in servers:
		for client in server.clients:
			client.close()
		if server.process.poll() is None:
			status = server.end()
			assert status == 0, server.log.read_text()
		else:
			server.end()


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
	"""Certificates and keys by their names: of the server, of a client, and of an unknown party."""
	if not shutil.which("openssl"):
		pytest.skip("there is no openssl to make certificates with")
	folder = tmp_path_factory.mktemp("papers")
	found = {}
	for name in ("server", "client", "stranger"):
		found[name], found[name + " key"] = folder / (name + ".pem"), folder / (name + ".key")
		command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
		command += ["-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
		command += ["-addext", "basicConstraints=critical,CA:FALSE"]
		command += ["-keyout", str(found[name + " key"]), "-out", str(found[name])]
		subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
	return found


def trust(papers: Papers, client: Optional[str] = None) -> ssl.SSLContext:
	context = ssl.create_default_context(cafile=str(papers["server"]))
	if client:
		context.load_cert_chain(str(papers[client]), str(papers[client + " key"]))
	return context


def ask_with(
	server: Server, context: ssl.SSLContext, method: str, path: str, body: Optional[bytes] = None
) -> Tuple[int, bytes]:
	"""Status and body of an answer over TLS, to the holder of the token."""
	connection = http.client.HTTPSConnection(*server.address, timeout=PATIENCE, context=context)
	with contextlib.closing(connection):
		connection.request(method, path, body, {"Authorization": "Bearer " + TOKEN})
		answer = connection.getresponse()
		return answer.status, answer.read()


def ask_over_tls(
	server: Server, papers: Papers, method: str, path: str, body: Optional[bytes] = None
) -> Tuple[int, bytes]:
	return ask_with(server, trust(papers), method, path, body)


def start_with_plain(serve: Callable[..., Server], papers: Papers) -> Tuple[Server, Tuple[str, int]]:
	"""A server with TLS, and where it listens without."""
	names = ["--tls-cert", str(papers["server"]), "--tls-key", str(papers["server key"])]
	server = serve(*names, "--plain", "127.0.0.1:0", WAFD_SERVE_TOKEN=TOKEN)
	assert server.process.stdout
	words = server.process.stdout.readline().decode().split()
	assert words[0] == "serves" and words[2:] == ["without", "TLS"]
	host, port = words[1].rsplit(":", 1)
	return server, (host, int(port))
