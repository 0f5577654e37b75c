"""Engines that answer byte by byte as a test of waflib_extras.client.engine prescribes."""

import array
import os
import pathlib
import socket
import struct
import tempfile
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import pytest

from waflib_extras.client import engine, protocol
from waflib_extras.version import VERSION

SOON = 0.4
PATIENT = 30  # seconds; only a failing test waits this long


class Request(NamedTuple):
	kind: int
	body: bytes
	fds: Tuple[int, ...]


def frame(kind: int, body: bytes) -> bytes:
	return struct.pack("<IB", len(body) + 1, kind) + body


def text(data: bytes) -> bytes:
	return struct.pack("<I", len(data)) + data


def welcome(pid: int = 1, version: int = 1, of: str = VERSION) -> bytes:
	return frame(0x81, struct.pack("<HII", version, pid, 2) + text(of.encode()))


def refused(why: int, reason: str = "because") -> bytes:
	return frame(0x82, bytes((why,)) + text(reason.encode()))


def output(number: int, stream: int, data: bytes) -> bytes:
	return frame(0x83, struct.pack("<IB", number, stream) + text(data))


def outcome(number: int, code: int = 0) -> bytes:
	return frame(0x84, struct.pack("<IBBiQQQQQ", number, 0, 0, code, 0, 0, 0, 0, 0))


class Peer:
	"""The engine's end of one connection."""

	def __init__(self, sock: socket.socket) -> None:
		self.sock = sock
		self.hello = b""
		self.environments: Dict[int, Dict[bytes, bytes]] = {}

	def read(self, count: int) -> Tuple[bytes, Tuple[int, ...]]:
		data, fds = b"", array.array("i")
		while len(data) < count:
			received, rights, _, _ = self.sock.recvmsg(count - len(data), socket.CMSG_SPACE(12))
			if not received:
				return b"", ()
			data += received
			for _, _, numbers in rights:
				fds.frombytes(numbers)
		return data, tuple(fds)

	def request(self) -> Request:
		"""The next request; of the kind 0 when the connection has ended."""
		head, fds = self.read(5)
		if not head:
			return Request(0, b"", ())
		length, kind = struct.unpack("<IB", head)
		return Request(kind, self.read(length - 1)[0] if length > 1 else b"", fds)

	def say(self, *frames: bytes) -> None:
		self.sock.sendall(b"".join(frames))

	def greet(self, pid: int = 1) -> None:
		self.hello = self.request().body
		self.say(welcome(pid))

	def execute(self) -> Tuple[int, int, Request]:
		"""The next command's number and environment, and its request; 0 of everything when the connection has ended."""
		while True:
			request = self.request()
			if request.kind == 2:
				number, _, _ = struct.unpack_from("<III", request.body)
				entries = request.body[12:].split(b"\0")[:-1]
				self.environments[number] = dict(tuple(entry.split(b"=", 1)) for entry in entries)
			elif request.kind == 3:
				return struct.unpack_from("<II", request.body) + (request,)
			else:
				return 0, 0, request

	def is_at_end(self) -> bool:
		"""Wait for the end of the connection."""
		return self.request().kind == 0


Script = Callable[[Peer], None]


def serve(peer: Peer) -> None:
	"""The usual behavior of an engine: every command succeeds without output."""
	peer.greet()
	number, _, request = peer.execute()
	while request.kind:
		peer.say(outcome(number))
		number, _, request = peer.execute()


class FakeEngine:
	"""Listens where the engine would; the n-th connection is treated as the n-th script says, the rest as the last."""

	def __init__(self, path: str) -> None:
		self.path = path
		self.scripts: List[Script] = [serve]
		self.peers: List[Peer] = []
		self.errors: List[BaseException] = []
		self.threads: List[threading.Thread] = []
		self.listener = socket.socket(socket.AF_UNIX)
		self.listener.bind(path)
		self.listener.listen(64)
		self._start(self._accept)

	def _start(self, function: Callable[..., None], *arguments: Any) -> None:
		thread = threading.Thread(target=self._guard, args=(function, *arguments))
		self.threads.append(thread)
		thread.start()

	def _guard(self, function: Callable[..., None], *arguments: Any) -> None:
		try:
			function(*arguments)
		except BaseException as e:
			self.errors.append(e)

	def _accept(self) -> None:
		while True:
			try:
				sock, _ = self.listener.accept()
			except OSError:
				return
			sock.settimeout(PATIENT)
			script = self.scripts[min(len(self.peers), len(self.scripts) - 1)]
			peer = Peer(sock)
			self.peers.append(peer)
			self._start(self._play, script, peer)

	def _play(self, script: Script, peer: Peer) -> None:
		with peer.sock:
			script(peer)

	def stop(self) -> None:
		self.listener.shutdown(socket.SHUT_RDWR)
		for thread in self.threads:
			thread.join(PATIENT)
		self.listener.close()
		assert not self.errors, self.errors


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
	"""A runtime folder, and no real wafd that could be found."""
	with tempfile.TemporaryDirectory(prefix="wafd-") as name:
		monkeypatch.setenv("WAFD_RUNTIME_DIR", name)
		monkeypatch.setenv("WAFD", os.path.join(name, "wafd"))
		yield pathlib.Path(name)


@pytest.fixture
def fake(folder: pathlib.Path) -> Iterator[FakeEngine]:
	found = FakeEngine(engine.runtime_file("sock"))
	yield found
	found.stop()


@pytest.fixture
def session() -> Iterator[Callable[..., engine.Session]]:
	"""Makes sessions that are closed when the test is over."""
	made: List[engine.Session] = []

	def make(**arguments: Any) -> engine.Session:
		made.append(engine.Session("/project", 2, **{"patience": SOON, **arguments}))
		return made[-1]

	yield make
	for one in made:
		one.close()


def write_wafd(folder: pathlib.Path, script: str) -> pathlib.Path:
	"""Write a program that stands in for `wafd start`. Each run adds its arguments to the file "started"."""
	program = folder / "wafd"
	program.write_text('#!/bin/sh\necho "$@" >> %s/started\n%s\n' % (folder, script))
	program.chmod(0o755)
	return program


def ready(path: str) -> str:
	return "echo ready unix " + path


def starts(folder: pathlib.Path) -> List[str]:
	started = folder / "started"
	return started.read_text().splitlines() if started.exists() else []


def command(*argv: str, stdin: int = 0, stdout: int = 1, stderr: int = 1) -> bytes:
	return protocol.encode_command(0, stdin, stdout, stderr, 0, b"/", argv or ("true",))


def fails(session: engine.Session, match: str) -> engine.EngineError:
	"""The session fails with this reason, and with the same one, without trying, ever after."""
	with pytest.raises(engine.EngineError, match=match) as caught:
		session.execute(command())
	with pytest.raises(engine.EngineError, match=match):
		session.execute(command())
	return caught.value
