"""The client's greeting, over a Unix socket and over TCP, and the answers to it."""

import contextlib
import os
import pathlib
import queue
import socket
import struct
import threading
from typing import Any, Iterator

import pytest
from fake_engine import (
	PATIENT,
	FakeEngine,
	Peer,
	Script,
	command,
	fails,
	frame,
	outcome,
	ready,
	refused,
	serve,
	starts,
	text,
	welcome,
	write_wafd,
)

from waflib_extras.client import engine, protocol


def test_the_greeting_is_what_the_protocol_says(fake: FakeEngine, session: Any) -> None:
	"""Versions, session, jobs, wishes, our process, no token on a Unix socket, the project's name."""
	one = session(wishes=protocol.PIN)
	one.execute(command())
	wanted = protocol.encode_hello((1, 1), one.id, 2, 1, os.getpid(), b"", b"/project")
	assert frame(1, fake.peers[0].hello) == wanted


@pytest.mark.parametrize("why", [1, 3, 6, 77])
def test_a_refusal_ends_the_matter(fake: FakeEngine, session: Any, why: int) -> None:
	"""The engine's reason is passed on, and the engine is not asked again."""
	fake.scripts = [lambda peer: peer.request() and peer.say(refused(why, "another root folder"))]
	error = fails(session(), "the engine refuses: another root folder")
	assert isinstance(error, engine.Refused)
	assert error.why == why
	assert len(fake.peers) == 1


def test_too_many_connections_are_a_matter_of_the_moment(fake: FakeEngine, session: Any) -> None:
	"""The command runs without the engine; the next one may try again."""
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
	"""Another engine is started, which is asked once."""
	write_wafd(folder, ready(fake.path))
	fake.scripts = [script, serve]
	assert session().execute(command())[0].code == 0
	assert starts(folder) == ["start"]


@pytest.mark.parametrize("script", LEAVING)
def test_engines_that_keep_leaving_are_given_up(
	fake: FakeEngine, folder: pathlib.Path, session: Any, script: Script
) -> None:
	"""When the second engine leaves, no third one is tried."""
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
	"""A stopped engine must not stop a build, and half an answer is no answer."""
	fake.scripts = [script]
	fails(session(), "does not answer the greeting within 0.4 seconds")
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
		fails(session(), "takes no connection within 0.4 seconds")


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
	"""The listener is not our engine, and nothing more is sent to it."""
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
	"""The token is read from a file that only the user can read."""
	one = session(transport=engine.TCP)
	assert one.execute(command())[0].code == 0
	one.close()
	assert text(b"ab" * 32) in over_tcp.get(timeout=PATIENT)


def test_the_port_is_opened_when_it_is_not(folder: pathlib.Path, session: Any) -> None:
	"""The port is opened by `wafd start --tcp`; a stale token file has no effect."""
	with socket.socket() as free:
		free.bind(("127.0.0.1", 0))
		pathlib.Path(engine.runtime_file("tcp")).write_text("%d abc\n" % free.getsockname()[1])
	write_wafd(folder, "echo 'no port is free' >&2; exit 1")
	fails(session(transport=engine.TCP), "no port is free")
	assert starts(folder) == ["start --tcp"]


@pytest.mark.parametrize("content", ["", "1", "x y"])
def test_a_broken_token_file_is_named(folder: pathlib.Path, session: Any, content: str) -> None:
	"""The error names the file; it does not say that no engine runs."""
	pathlib.Path(engine.runtime_file("tcp")).write_text(content)
	fails(session(transport=engine.TCP), "connect by .*tcp")
