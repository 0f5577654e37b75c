"""waflib_extras.engine against fake engines that say, byte by byte, what a test makes them say."""

import array
import contextlib
import fcntl
import os
import pathlib
import queue
import signal
import socket
import struct
import sys
import tempfile
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import pytest

from waflib_extras import engine, protocol
from waflib_extras.version import VERSION

SOON = engine.Deadlines(greeting=0.3, start=0.5)
PATIENT = 30  # seconds; only a failing test waits so long


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
	"""What an engine does: every command is a success without output."""
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
	"""A runtime folder, and no real wafd in reach."""
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
		made.append(engine.Session("/project", 2, **{"deadlines": SOON, **arguments}))
		return made[-1]

	yield make
	for one in made:
		one.close()


def write_wafd(folder: pathlib.Path, script: str) -> pathlib.Path:
	"""Make a program of what `wafd start` shall do; each run adds its arguments to the file "started"."""
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


# ---- where the engine is


def test_the_runtime_folder_is_the_first_that_applies(monkeypatch: pytest.MonkeyPatch) -> None:
	"""WAFD_RUNTIME_DIR, XDG_RUNTIME_DIR, /tmp; an empty variable counts as none."""
	monkeypatch.setenv("WAFD_RUNTIME_DIR", "/one")
	monkeypatch.setenv("XDG_RUNTIME_DIR", "/two")
	assert engine.runtime_file("sock") == "/one/wafd-%s.sock" % VERSION
	monkeypatch.setenv("WAFD_RUNTIME_DIR", "")
	assert engine.runtime_folder() == "/two/wafd"
	monkeypatch.delenv("XDG_RUNTIME_DIR")
	assert engine.runtime_folder() == "/tmp/wafd-%d" % os.geteuid()


def test_a_folder_that_others_can_enter_is_refused(fake: FakeEngine, folder: pathlib.Path, session: Any) -> None:
	"""Somebody else could have put the socket there; the remedy is named."""
	folder.chmod(0o750)
	fails(session(), "chmod 700")
	assert not fake.peers


def test_a_relative_folder_is_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A runtime folder that depends on the current folder would be another for the engine, which runs in the root."""
	monkeypatch.setenv("WAFD_RUNTIME_DIR", "run")
	fails(session(), "not an absolute path; set WAFD_RUNTIME_DIR")


def test_a_folder_of_somebody_else_is_refused(fake: FakeEngine, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""Even with the right mode."""
	other = os.geteuid() + 1
	monkeypatch.setattr(os, "geteuid", lambda: other)
	fails(session(), "not a folder of this user")
	assert not fake.peers


def test_a_link_to_a_folder_is_refused(
	fake: FakeEngine, folder: pathlib.Path, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""In a shared /tmp, a link could be somebody else's."""
	link = folder / "link"
	link.symlink_to(folder)
	monkeypatch.setenv("WAFD_RUNTIME_DIR", str(link))
	fails(session(), "not a folder of this user")
	assert not fake.peers


def test_a_listener_of_another_user_is_refused(fake: FakeEngine, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""The kernel says who listens; nothing is sent to anybody else."""
	other = os.geteuid() + 1
	monkeypatch.setattr(engine, "check_folder", lambda: None)
	monkeypatch.setattr(os, "geteuid", lambda: other)
	fake.scripts = [lambda peer: None if peer.is_at_end() else pytest.fail("something was sent")]
	fails(session(), "its listener is the user")


def test_a_path_that_is_too_long_names_the_remedy(session: Any, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
	"""The address of a Unix socket has about a hundred bytes."""
	deep = tmp_path / ("x" * 120)
	deep.mkdir(mode=0o700)
	monkeypatch.setenv("WAFD_RUNTIME_DIR", str(deep))
	fails(session(), "path too long; set WAFD_RUNTIME_DIR")


# ---- finding and starting it


def test_a_wrong_wafd_variable_is_named(folder: pathlib.Path, session: Any) -> None:
	"""The user said which program; another one is not taken instead."""
	fails(session(), "WAFD=.* is no program")


def test_a_missing_engine_names_the_remedy(folder: pathlib.Path, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""Neither beside the interpreter nor along PATH."""
	monkeypatch.delenv("WAFD")
	monkeypatch.setenv("PATH", str(folder))
	monkeypatch.setattr(sys, "executable", str(folder / "python"))
	monkeypatch.setattr("sysconfig.get_path", lambda *_: str(folder))
	fails(session(), "there is no wafd .* install waflib-extras, or set WAFD")
	write_wafd(folder, "")
	assert engine.find_wafd() == str(folder / "wafd")


def test_wafd_is_found_beside_the_interpreter_first(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""So that a virtual environment uses its own; the link to the interpreter is not followed."""
	beside = folder / "venv"
	beside.mkdir()
	monkeypatch.delenv("WAFD")
	monkeypatch.setenv("PATH", str(folder))
	monkeypatch.setattr(sys, "executable", str(beside / "python"))
	(beside / "python").symlink_to(folder / "python")
	write_wafd(folder, "")
	assert engine.find_wafd() != str(beside / "wafd")
	write_wafd(beside, "")
	assert engine.find_wafd() == str(beside / "wafd")


def test_an_engine_is_started_when_none_listens(folder: pathlib.Path, session: Any) -> None:
	"""One `wafd start`, then the connection; a socket that a dead engine left does not matter."""
	path = engine.runtime_file("sock")
	with socket.socket(socket.AF_UNIX) as stale:
		stale.bind(path)
	fake = FakeEngine(str(folder / "hidden"))
	write_wafd(folder, "mv %s/hidden %s; %s" % (folder, path, ready(path)))
	one = session()
	assert one.execute(command())[0].code == 0
	assert starts(folder) == ["start"]
	one.close()
	fake.stop()


def test_many_commands_at_once_start_one_engine(folder: pathlib.Path, session: Any) -> None:
	"""The first that finds none starts it; the others wait for that, and each gets a connection of the same session."""
	path = engine.runtime_file("sock")
	fake = FakeEngine(str(folder / "hidden"))
	together = threading.Barrier(8)

	def hold(peer: Peer) -> None:
		peer.greet()
		number, _, _ = peer.execute()
		together.wait(PATIENT)
		peer.say(outcome(number))
		assert peer.is_at_end()

	fake.scripts = [hold]
	write_wafd(folder, "mv %s/hidden %s; %s" % (folder, path, ready(path)))
	one = session()
	threads = [threading.Thread(target=one.execute, args=(command(),)) for _ in range(8)]
	for thread in threads:
		thread.start()
	for thread in threads:
		thread.join(PATIENT)
	assert starts(folder) == ["start"]
	assert len(fake.peers) == 8
	assert {peer.hello[8:24] for peer in fake.peers} == {one.id}
	one.close()
	fake.stop()


@pytest.mark.parametrize(
	"script, reason",
	[
		("echo 'the disk is full' >&2; exit 1", "the disk is full"),
		("exit 3", "the status 3"),
		("kill -9 $$", "the status -9"),
		("echo 'hello'", "not understood"),
		("echo ready unix /elsewhere/wafd-0.sock", "of another version"),
		("exec sleep 60", "not done after 0.5 seconds"),
	],
	ids=["says why", "does not say why", "killed", "nonsense", "another version", "does not end"],
)
def test_a_start_that_fails_is_reported(folder: pathlib.Path, session: Any, script: str, reason: str) -> None:
	"""With the program's own words if there are any; it is not tried again."""
	write_wafd(folder, script)
	fails(session(), reason)
	assert starts(folder) == ["start"]


def test_a_start_that_promises_too_much_is_reported(folder: pathlib.Path, session: Any) -> None:
	"""`wafd start` says that an engine listens, and none does."""
	write_wafd(folder, ready(engine.runtime_file("sock")))
	fails(session(), "none does")


def test_a_program_that_cannot_be_run_is_reported(folder: pathlib.Path, session: Any) -> None:
	"""For example one for another processor."""
	write_wafd(folder, "").write_bytes(b"\x7fELF nonsense")
	fails(session(), "Exec format error")


# ---- the greeting


def test_the_greeting_is_what_the_protocol_says(fake: FakeEngine, session: Any) -> None:
	"""Versions, session, jobs, wishes, our process, no token on a Unix socket, the project's name."""
	one = session(wishes=protocol.PIN)
	one.execute(command())
	wanted = protocol.encode_hello((1, 1), one.id, 2, 1, os.getpid(), b"", b"/project")
	assert frame(1, fake.peers[0].hello) == wanted


@pytest.mark.parametrize("why", [1, 3, 6, 77])
def test_a_refusal_ends_the_matter(fake: FakeEngine, session: Any, why: int) -> None:
	"""The engine's reason is passed on, and it is not asked again."""
	fake.scripts = [lambda peer: peer.request() and peer.say(refused(why, "another root folder"))]
	error = fails(session(), "the engine refuses: another root folder")
	assert isinstance(error, engine.Refused)
	assert error.why == why
	assert len(fake.peers) == 1


def test_too_many_connections_are_a_matter_of_the_moment(fake: FakeEngine, session: Any) -> None:
	"""That command does without the engine; the next may try again."""
	fake.scripts = [lambda peer: peer.request() and peer.say(refused(protocol.CROWDED)), serve]
	one = session()
	with pytest.raises(engine.Refused):
		one.execute(command())
	assert one.execute(command())[0].code == 0


def leave_at_once(peer: Peer) -> None:
	peer.request()


def refuse_because_leaving(peer: Peer) -> None:
	peer.request()
	peer.say(refused(protocol.LEAVING))


def refuse_the_token(peer: Peer) -> None:
	peer.request()
	peer.say(refused(protocol.TOKEN_REFUSED))


LEAVING = [leave_at_once, refuse_because_leaving, refuse_the_token]


@pytest.mark.parametrize("script", LEAVING)
def test_an_engine_that_was_just_leaving_is_replaced(
	fake: FakeEngine, folder: pathlib.Path, session: Any, script: Script
) -> None:
	"""Another is started, which is asked once."""
	write_wafd(folder, ready(fake.path))
	fake.scripts = [script, serve]
	assert session().execute(command())[0].code == 0
	assert starts(folder) == ["start"]


@pytest.mark.parametrize("script", LEAVING)
def test_engines_that_keep_leaving_are_given_up(
	fake: FakeEngine, folder: pathlib.Path, session: Any, script: Script
) -> None:
	"""The second that leaves is the last."""
	write_wafd(folder, ready(fake.path))
	fake.scripts = [script]
	fails(session(), "left before|refuses")
	assert len(fake.peers) == 2


def say_half(peer: Peer) -> None:
	peer.request()
	peer.say(welcome()[:10])
	assert peer.is_at_end()


def say_nothing(peer: Peer) -> None:
	peer.request()
	assert peer.is_at_end()


@pytest.mark.parametrize("script", [say_nothing, say_half])
def test_silence_has_a_deadline(fake: FakeEngine, session: Any, script: Script) -> None:
	"""A stopped engine must not stop a build; half an answer is none."""
	fake.scripts = [script]
	fails(session(), "does not answer the greeting within 0.3 seconds")
	assert len(fake.peers) == 1


def test_a_full_queue_has_a_deadline(folder: pathlib.Path, session: Any) -> None:
	"""An engine that takes no more connections must not stop a build either."""
	path = engine.runtime_file("sock")
	with contextlib.ExitStack() as stack:
		listener = stack.enter_context(socket.socket(socket.AF_UNIX))
		listener.bind(path)
		listener.listen(0)
		with pytest.raises(BlockingIOError):
			while True:  # the queue of 0 has room for some, by system and interpreter
				client = stack.enter_context(socket.socket(socket.AF_UNIX))
				client.setblocking(False)
				client.connect(path)
		fails(session(), "takes no connection within 0.3 seconds")


@pytest.mark.parametrize(
	"answer, reason",
	[
		(b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame of"),
		(struct.pack("<I", 0), "a frame of 0 bytes"),
		(struct.pack("<I", 4097), "a frame of 4097 bytes"),
		(frame(0x99, b""), "unknown kind"),
		(frame(0x81, b"x"), "a body of 1 bytes"),
		(outcome(1), "answers the greeting with"),
		(welcome(version=2), "answers the greeting with"),
		(welcome() + outcome(1), "not a whole frame"),
		(welcome(of="9.9.9"), "of the version 9.9.9"),
	],
	ids=["http", "nothing", "too long", "kind", "short", "outcome", "version", "more", "engine"],
)
def test_a_wrong_answer_to_the_greeting_ends_the_matter(
	fake: FakeEngine, session: Any, answer: bytes, reason: str
) -> None:
	"""Whatever listens there is not our engine, and is told nothing more."""
	fake.scripts = [lambda peer: peer.request() and peer.say(answer)]
	fails(session(), reason)
	assert len(fake.peers) == 1


# ---- over TCP


@pytest.fixture
def over_tcp(folder: pathlib.Path) -> Iterator["queue.Queue[bytes]"]:
	"""A listener on loopback with its token file; the queue gets the greeting of its one client."""
	greetings: queue.Queue[bytes] = queue.Queue()
	with socket.socket() as listener:
		listener.bind(("127.0.0.1", 0))
		listener.listen()
		listener.settimeout(PATIENT)

		def run() -> None:
			sock, _ = listener.accept()
			with sock:
				peer = Peer(sock)
				serve(peer)
				greetings.put(peer.hello)

		thread = threading.Thread(target=run)
		thread.start()
		pathlib.Path(engine.runtime_file("tcp")).write_text("%d %s\n" % (listener.getsockname()[1], "ab" * 32))
		yield greetings
		thread.join(PATIENT)


def test_over_tcp_the_token_is_shown(over_tcp: "queue.Queue[bytes]", session: Any) -> None:
	"""It is read from the file that only the user can read."""
	one = session(transport=engine.TCP)
	assert one.execute(command())[0].code == 0
	one.close()
	assert text(b"ab" * 32) in over_tcp.get(timeout=PATIENT)


def test_the_port_is_opened_when_it_is_not(folder: pathlib.Path, session: Any) -> None:
	"""By `wafd start --tcp`; a stale token file does not matter."""
	with socket.socket() as free:
		free.bind(("127.0.0.1", 0))
		pathlib.Path(engine.runtime_file("tcp")).write_text("%d abc\n" % free.getsockname()[1])
	write_wafd(folder, "echo 'no port is free' >&2; exit 1")
	fails(session(transport=engine.TCP), "no port is free")
	assert starts(folder) == ["start --tcp"]


@pytest.mark.parametrize("content", ["", "1", "x y"])
def test_a_broken_token_file_is_named(folder: pathlib.Path, session: Any, content: str) -> None:
	"""It is not taken for an engine that does not run."""
	pathlib.Path(engine.runtime_file("tcp")).write_text(content)
	fails(session(transport=engine.TCP), "connect by .*tcp")


# ---- commands


def test_output_is_whole_however_it_comes(fake: FakeEngine, session: Any) -> None:
	"""Byte by byte, both streams in turn."""

	def answer(peer: Peer) -> None:
		peer.greet()
		number, _, _ = peer.execute()
		frames = (
			output(number, 1, b"one ") + output(number, 2, b"err") + output(number, 1, b"two") + outcome(number, -9)
		)
		for n in range(len(frames)):
			peer.say(frames[n : n + 1])
		assert peer.is_at_end()

	fake.scripts = [answer]
	one = session()
	result, out, err = one.execute(command())
	assert (result.code, out, err) == (-9, b"one two", b"err")
	one.close()


def test_many_outputs_may_come_at_once(fake: FakeEngine, session: Any) -> None:
	"""Frames do not end where a read does."""

	def answer(peer: Peer) -> None:
		peer.greet()
		number, _, _ = peer.execute()
		peer.say(*[output(number, n % 2 + 1, b"%d" % n * 999) for n in range(2000)], outcome(number))
		assert peer.is_at_end()

	fake.scripts = [answer]
	one = session()
	_, out, err = one.execute(command())
	assert out == b"".join(b"%d" % n * 999 for n in range(0, 2000, 2))
	assert err == b"".join(b"%d" % n * 999 for n in range(1, 2000, 2))
	one.close()


def test_a_connection_is_used_again(fake: FakeEngine, session: Any) -> None:
	"""One command after the other needs one connection."""
	one = session()
	for _ in range(5):
		one.execute(command())
	assert len(fake.peers) == 1
	assert one.sent == 5


@pytest.mark.parametrize(
	"answer",
	[
		lambda n: outcome(n + 1),
		lambda n: output(n + 1, 1, b"x") + outcome(n),
		lambda n: output(n, 2, b"x") + outcome(n),
		lambda n: output(n, 3, b"x") + outcome(n),
		lambda n: outcome(n) + b"\0",
		lambda n: welcome(),
		lambda n: frame(0x55, b"x" * 50),
		lambda n: b"\xff" * 55,
		lambda n: struct.pack("<I", protocol.FRAME_CAP + 1),
	],
	ids=["number", "output's number", "not piped", "stream", "more", "welcome", "kind", "garbage", "too long"],
)
def test_a_broken_answer_is_not_guessed_at(fake: FakeEngine, session: Any, answer: Callable[[int], bytes]) -> None:
	"""The connection is closed, so that the engine ends the command, and the engine is not used any more."""

	def play(peer: Peer) -> None:
		peer.greet()
		number, _, _ = peer.execute()
		peer.say(answer(number))
		assert peer.is_at_end()

	fake.scripts = [play]
	one = session()
	with pytest.raises(protocol.ProtocolError):
		one.execute(command(stderr=0))
	fails(one, "the engine answers|frame|unknown kind|outcome|output")
	assert len(fake.peers) == 1


def die(peer: Peer, pid: int, said: bytes = b"") -> None:
	peer.greet(pid)
	peer.execute()
	peer.say(said)


@pytest.mark.parametrize("said", [b"", outcome(1)[:20], output(1, 1, b"lost")], ids=["nothing", "half", "output"])
def test_a_command_that_was_lost_runs_again_in_another_engine(
	fake: FakeEngine, folder: pathlib.Path, session: Any, said: bytes
) -> None:
	"""Its first output is forgotten."""
	requests: List[bytes] = []

	def answer(peer: Peer) -> None:
		peer.greet(2)
		number, _, request = peer.execute()
		requests.append(request.body)
		peer.say(output(number, 1, b"found"), outcome(number))
		assert peer.is_at_end()

	fake.scripts = [lambda peer: die(peer, 1, said), answer]
	one = session()
	result, out, _ = one.execute(command("some", "thing"))
	assert (result.code, out, one.engine) == (0, b"found", 2)
	assert requests[0].endswith(command("some", "thing"))
	one.close()


def test_an_engine_that_drops_a_command_twice_is_given_up(fake: FakeEngine, session: Any) -> None:
	"""It is not dead, it just does not do what it should."""
	fake.scripts = [lambda peer: die(peer, 1)]
	fails(session(), "the connection to the engine ended")
	assert len(fake.peers) == 2


def test_after_three_deaths_the_build_goes_on_without(fake: FakeEngine, session: Any) -> None:
	"""A command that kills engines, or a machine without memory, ends somewhere."""
	fake.scripts = [lambda peer: die(peer, len(fake.peers))]
	fails(session(), "4 engines ended")
	assert len(fake.peers) == 4


def test_idle_connections_of_a_dead_engine_are_not_used(fake: FakeEngine, session: Any) -> None:
	"""A command that finds its engine dead does not try the engine's other connections, one by one."""
	both, dead = threading.Barrier(2), threading.Event()

	def old(peer: Peer) -> None:
		peer.greet(1)
		number, _, _ = peer.execute()
		both.wait(PATIENT)
		peer.say(outcome(number))
		assert dead.wait(PATIENT)

	def new(peer: Peer) -> None:
		peer.greet(2)
		number, _, _ = peer.execute()
		peer.say(outcome(number))
		assert peer.is_at_end()

	fake.scripts = [old, old, new]
	one = session()
	threads = [threading.Thread(target=one.execute, args=(command(),)) for _ in range(2)]
	for thread in threads:
		thread.start()
	for thread in threads:
		thread.join(PATIENT)
	assert len(one.idle) == 2
	dead.set()
	assert one.execute(command())[0].code == 0
	assert len(fake.peers) == 3
	one.close()


# ---- environments


def told(peer: Peer, seen: List[Tuple[int, Dict[bytes, bytes]]]) -> None:
	"""Serve, and note for each command which environment its number stands for."""
	peer.greet()
	number, env, request = peer.execute()
	while request.kind:
		assert env < 64
		seen.append((env, peer.environments[env]))
		peer.say(outcome(number))
		number, env, request = peer.execute()


@pytest.fixture
def seen(fake: FakeEngine) -> List[Tuple[int, Dict[bytes, bytes]]]:
	noted: List[Tuple[int, Dict[bytes, bytes]]] = []
	fake.scripts = [lambda peer: told(peer, noted)]
	return noted


def encoded(env: Dict[Any, Any]) -> Dict[bytes, bytes]:
	return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def test_our_own_environment_is_followed(seen: Any, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""Whatever os.environ holds when the command is run, its removals included."""
	one = session()
	wanted = []
	for name, value in (("A", "1"), ("A", "1"), ("A", "2"), ("B", "\udcff"), ("A", None)):
		if value is None:
			monkeypatch.delenv(name)
		else:
			monkeypatch.setenv(name, value)
		one.execute(command())
		wanted.append((0, encoded(dict(os.environ))))
	assert seen == wanted


def test_a_dict_that_changes_is_another_environment(seen: Any, session: Any) -> None:
	"""Callers change the dict that they passed before, and an equal dict is the same environment."""
	one = session()
	env: Dict[Any, Any] = {"A": "1"}
	one.execute(command(), env)
	env["A"] = "2"
	one.execute(command(), env)
	one.execute(command(), {"A": "1"})
	one.execute(command(), {b"A": b"1", "B": b"\xff"})
	one.execute(command(), {})
	assert [variables for _, variables in seen] == [
		{b"A": b"1"},
		{b"A": b"2"},
		{b"A": b"1"},
		{b"A": b"1", b"B": b"\xff"},
		{},
	]
	assert seen[0][0] == seen[2][0]


def test_any_number_of_environments_can_take_turns(seen: Any, session: Any) -> None:
	"""More than a connection remembers, in an order that makes it forget and learn again."""
	one = session()
	order = [n * n % 23 for n in range(200)] + list(range(40)) * 2
	for n in order:
		one.execute(command(), {"N": str(n)})
		one.execute(command())
	assert [variables[b"N"] for _, variables in seen[::2]] == [b"%d" % n for n in order]
	assert {number for number, _ in seen[1::2]} == {0}
	assert len({number for number, _ in seen}) == engine.ENVIRONMENTS


def test_an_environment_that_cannot_be_sent_does_no_harm(seen: Any, session: Any) -> None:
	"""The connection and what it knows stay as they were."""
	one = session()
	one.execute(command(), {"A": "1"})
	for _ in range(2):
		with pytest.raises(engine.Unsendable):
			one.execute(command(), {"A": 1})
	one.execute(command(), {"A": "1"})
	assert [variables for _, variables in seen] == [{b"A": b"1"}] * 2
	assert one.sent == 2


# ---- descriptors


def test_descriptors_travel_with_their_command(fake: FakeEngine, session: Any, tmp_path: pathlib.Path) -> None:
	"""Even when an environment goes before it, and when the command is larger than a socket's buffer."""

	def write(peer: Peer) -> None:
		peer.greet()
		for word in (b"first", b"second"):
			number, _, request = peer.execute()
			for fd in request.fds:
				os.write(fd, word)
				os.close(fd)
			peer.say(outcome(number))
		assert peer.is_at_end()

	fake.scripts = [write]
	one = session()
	paths = [tmp_path / "first", tmp_path / "second"]
	for path, argv in zip(paths, (("true",), ("true", "x" * 2000000))):
		with open(path, "wb") as f:
			one.execute(command(*argv, stdout=2, stderr=0), {"A": path.name}, [f.fileno()])
	assert [path.read_text() for path in paths] == ["first", "second"]
	one.close()


def test_a_closed_descriptor_does_no_harm(fake: FakeEngine, session: Any) -> None:
	"""The command is not sent, and the connection goes on."""
	one = session()
	unused = fcntl.fcntl(1, fcntl.F_DUPFD, 500)  # so high that nothing else gets it
	os.close(unused)
	with pytest.raises(engine.Unsendable, match="Bad file descriptor"):
		one.execute(command(stdout=2), None, [unused])
	assert one.execute(command())[0].code == 0
	assert len(fake.peers) == 1


# ---- the end


def test_a_closed_session_closes_its_connections(fake: FakeEngine, session: Any) -> None:
	"""Those in use when their command is done."""
	hold, ended = threading.Event(), threading.Event()

	def play(peer: Peer) -> None:
		peer.greet()
		number, _, _ = peer.execute()
		hold.wait(PATIENT)
		peer.say(outcome(number))
		assert peer.is_at_end()
		ended.set()

	fake.scripts = [play]
	one = session()
	thread = threading.Thread(target=one.execute, args=(command(),))
	thread.start()
	one.close()
	hold.set()
	thread.join(PATIENT)
	assert ended.wait(PATIENT)
	assert one.sent == 1


def test_ctrl_c_ends_the_connection(fake: FakeEngine, session: Any) -> None:
	"""So the engine ends the command, and no later command reads its outcome."""
	ended = threading.Event()

	def interrupt(peer: Peer) -> None:
		peer.greet()
		peer.execute()
		signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
		assert peer.is_at_end()
		ended.set()

	fake.scripts = [interrupt, serve]
	one = session()
	with pytest.raises(KeyboardInterrupt):
		one.execute(command())
	assert ended.wait(PATIENT)
	assert one.execute(command())[0].code == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # that fork and threads are a risk: that is what is tested
def test_a_forked_child_is_a_build_of_its_own(fake: FakeEngine, session: Any) -> None:
	"""It closes what it inherited, so that the parent's end is seen while it lives, and has a session of its own."""
	ended = threading.Event()

	def play(peer: Peer) -> None:
		serve(peer)
		ended.set()

	fake.scripts = [play, serve]
	one = session()
	one.execute(command())
	reader, writer = os.pipe()
	child = os.fork()
	if child == 0:
		status = 1
		try:
			one.execute(command())
			os.read(reader, 1)
			status = 0
		finally:
			os._exit(status)
	try:
		one.close()
		assert ended.wait(PATIENT), "the child holds the parent's connection"
	finally:
		os.write(writer, b"x")
		assert os.waitpid(child, 0)[1] == 0
		os.close(reader)
		os.close(writer)
	first, second = (peer.hello for peer in fake.peers)
	assert first[8:24] != second[8:24]
	assert struct.unpack_from("<I", second, 32) == (child,)
