"""The client's commands: their outputs, environments and descriptors, and connections that end before they do."""

import fcntl
import os
import pathlib
import signal
import struct
import threading
from typing import Any, Callable, Dict, List, Tuple

import pytest
from fake_engine import PATIENT, FakeEngine, Peer, command, fails, frame, outcome, output, serve, welcome

from waflib_extras.client import engine, protocol


def test_output_is_complete_in_any_pieces(fake: FakeEngine, session: Any) -> None:
	"""Both streams come back byte by byte, in turn."""

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
	"""Commands that follow each other need one connection."""
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
	"""The output of the first run is dropped."""
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
	"""The engine lives, but does not run the command."""
	fake.scripts = [lambda peer: die(peer, 1)]
	fails(session(), "the connection to the engine ended")
	assert len(fake.peers) == 2


def test_after_three_deaths_the_build_goes_on_without(fake: FakeEngine, session: Any) -> None:
	"""A command that kills engines, or a machine without memory, is tried only a few times."""
	fake.scripts = [lambda peer: die(peer, len(fake.peers))]
	fails(session(), "4 engines ended")
	assert len(fake.peers) == 4


def test_idle_connections_of_a_dead_engine_are_not_used(fake: FakeEngine, session: Any) -> None:
	"""After a command has found its engine dead, the engine's other connections are not tried one by one."""
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
	"""A command gets the content of os.environ when it runs, without the removed variables."""
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
	"""The connection forgets environments when there are more than it remembers, and learns them again."""
	one = session()
	order = [n * n % 23 for n in range(200)] + list(range(40)) * 2
	for n in order:
		one.execute(command(), {"N": str(n)})
		one.execute(command())
	assert [variables[b"N"] for _, variables in seen[::2]] == [b"%d" % n for n in order]
	assert {number for number, _ in seen[1::2]} == {0}
	assert len({number for number, _ in seen}) == engine.ENVIRONMENTS


def test_an_environment_that_cannot_be_sent_does_no_harm(seen: Any, session: Any) -> None:
	"""The connection stays, and keeps the environments that it knows."""
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
	"""Descriptors arrive also after an environment, and with a command that is larger than the socket's buffer."""

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
	"""Connections in use are closed when their command is done."""
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
	"""Ctrl-C closes the connection, so the engine ends the command, and no later command reads its outcome."""
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the risk of fork with threads is what this tests
def test_a_forked_child_is_a_build_of_its_own(fake: FakeEngine, session: Any) -> None:
	"""The child closes the inherited connections, so that the parent's end is noticed, and has its own session."""
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
