"""The places where the client looks for its engine: runtime folder and program; and how it starts one."""

import os
import pathlib
import socket
import sys
import threading
from typing import Any

import pytest
from fake_engine import PATIENT, FakeEngine, Peer, command, fails, outcome, ready, starts, write_wafd

from waflib_extras.client import engine
from waflib_extras.version import VERSION


def test_the_runtime_folder_is_the_first_that_applies(monkeypatch: pytest.MonkeyPatch) -> None:
	"""WAFD_RUNTIME_DIR, XDG_RUNTIME_DIR and /tmp are tried in turn; an empty variable is ignored."""
	monkeypatch.setenv("WAFD_RUNTIME_DIR", "/one")
	monkeypatch.setenv("XDG_RUNTIME_DIR", "/two")
	assert engine.runtime_file("sock") == "/one/wafd-%s.sock" % VERSION
	monkeypatch.setenv("WAFD_RUNTIME_DIR", "")
	assert engine.runtime_folder() == "/two/wafd"
	monkeypatch.delenv("XDG_RUNTIME_DIR")
	assert engine.runtime_folder() == "/tmp/wafd-%d" % os.geteuid()


def test_a_folder_that_others_can_enter_is_refused(fake: FakeEngine, folder: pathlib.Path, session: Any) -> None:
	"""Another user could have put the socket there. The remedy is named."""
	folder.chmod(0o750)
	fails(session(), "chmod 700")
	assert not fake.peers


def test_a_relative_folder_is_refused(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A runtime folder that depends on the current folder would be another for the engine, which runs in the root."""
	monkeypatch.setenv("WAFD_RUNTIME_DIR", "run")
	fails(session(), "not an absolute path; set WAFD_RUNTIME_DIR")


def test_a_folder_of_another_user_is_refused(fake: FakeEngine, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A folder of another user is refused even with the right mode."""
	other = os.geteuid() + 1
	monkeypatch.setattr(os, "geteuid", lambda: other)
	fails(session(), "not a folder of this user")
	assert not fake.peers


def test_a_link_to_a_folder_is_refused(
	fake: FakeEngine, folder: pathlib.Path, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""In a shared /tmp, another user could have made a link."""
	link = folder / "link"
	link.symlink_to(folder)
	monkeypatch.setenv("WAFD_RUNTIME_DIR", str(link))
	fails(session(), "not a folder of this user")
	assert not fake.peers


def test_a_listener_of_another_user_is_refused(fake: FakeEngine, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""The kernel tells the listener's user. Nothing is sent to another user."""
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
	"""The user has named the program, so no other one is used instead."""
	fails(session(), "WAFD=.* is no program")


def test_a_missing_engine_names_the_remedy(folder: pathlib.Path, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
	"""The program is neither beside the interpreter nor in PATH."""
	monkeypatch.delenv("WAFD")
	monkeypatch.setenv("PATH", str(folder))
	monkeypatch.setattr(sys, "executable", str(folder / "python"))
	monkeypatch.setattr("sysconfig.get_path", lambda *_: str(folder))
	fails(session(), "there is no wafd .* install waflib-extras, or set WAFD")
	write_wafd(folder, "")
	assert engine.find_wafd() == str(folder / "wafd")


def test_wafd_is_found_beside_the_interpreter_first(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A virtual environment uses its own wafd; the link to the interpreter is not followed."""
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
	"""There is one `wafd start`, then the connection; a socket that a dead engine left has no effect."""
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
	"""The first client that finds none starts it. The others wait, and each gets a connection of the same session."""
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
		("exec sleep 60", "not done after 0.4 seconds"),
	],
	ids=["says why", "does not say why", "killed", "nonsense", "another version", "does not end"],
)
def test_a_start_that_fails_is_reported(folder: pathlib.Path, session: Any, script: str, reason: str) -> None:
	"""The message has the program's own words, if there are any. The start is not tried again."""
	write_wafd(folder, script)
	fails(session(), reason)
	assert starts(folder) == ["start"]


def test_a_start_that_promises_too_much_is_reported(folder: pathlib.Path, session: Any) -> None:
	"""`wafd start` says that an engine listens, and none does."""
	write_wafd(folder, ready(engine.runtime_file("sock")))
	fails(session(), "none does")


def test_a_program_that_cannot_be_run_is_reported(folder: pathlib.Path, session: Any) -> None:
	"""The program is, for example, one for another processor."""
	write_wafd(folder, "").write_bytes(b"\x7fELF nonsense")
	fails(session(), "Exec format error")
