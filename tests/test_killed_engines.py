"""Engine and guardian are killed in any order while compilers run: the build goes on, and no process is left."""

import json
import os
import pathlib
import signal
import subprocess
import time
from typing import Callable, Dict, Tuple

import pytest
from benchmark.session import status_of
from cache_support import PATIENCE, Lab

SOURCE = '#include "gate.h"\nint value = VALUE;\n'
OPEN = "#define VALUE 1\n"


class Sandbox(Lab):
	"""Compilers that wait at a gate, a header that is a pipe, and the processes of their engine."""

	@property
	def temporary(self) -> pathlib.Path:
		return self.folder / "tmp"

	def status(self) -> Dict[str, object]:
		done = subprocess.run(
			[self.engine, "status", "--json"], env=self.environ, capture_output=True, timeout=PATIENCE
		)
		return dict(json.loads(done.stdout)) if done.returncode == 0 else {}

	def close_gate(self) -> None:
		(self.folder / "gate.h").unlink(missing_ok=True)
		os.mkfifo(self.folder / "gate.h")

	def open_gate(self) -> None:
		"""Open the gate for later compilers. Those that wait already go on waiting."""
		self.write("gate", OPEN).rename(self.folder / "gate.h")

	def compile(self, name: str) -> "subprocess.Popen[bytes]":
		line = [self.wafcc, "gcc", "-c", f"{name}.c", "-o", f"{name}.o"]
		environ = dict(self.environ, TMPDIR=str(self.temporary), WAFCC_RECACHE="1")
		with open(self.folder / "said", "w") as said:
			return subprocess.Popen(line, cwd=self.folder, env=environ, stdin=subprocess.DEVNULL, stderr=said)

	def is_compiling(self) -> bool:
		"""Wait until a compiler has been at the gate for a while: at other times only its driver knows its file."""
		for _ in range(5):
			if not any(name == "cc1" and state_of(pid) == "S" for pid, name in self.find_compilers().items()):
				return False
			time.sleep(0.01)
		return True

	def find_compilers(self) -> Dict[int, str]:
		"""Processes that work in the folder, with the names of their programs."""
		found = {}
		for entry in pathlib.Path("/proc").iterdir():
			try:
				if entry.name.isdecimal() and os.readlink(entry / "cwd") == str(self.folder):
					name = (entry / "comm").read_text().strip()
					if name in ("gcc", "cc1", "as"):
						found[int(entry.name)] = name
			except OSError:
				continue
		return found


def state_of(pid: int) -> str:
	"""The letter of a process's state; empty if it has ended meanwhile."""
	status = status_of(pid)
	return status.state if status else ""


def wait_until(is_so: Callable[[], object], what: str) -> None:
	deadline = time.monotonic() + PATIENCE
	while not is_so():
		assert time.monotonic() < deadline, what
		time.sleep(0.01)


@pytest.fixture(params=["off", "proved"])
def sandbox(
	request: pytest.FixtureRequest,
	engine: str,
	runtime: pathlib.Path,
	tmp_path: pathlib.Path,
	monkeypatch: pytest.MonkeyPatch,
) -> Sandbox:
	"""With a driver that runs, and with its parts alone."""
	for name, value in {"WAFD_PARK": request.param, "WAFD_PARK_AFTER": "1"}.items():
		monkeypatch.setenv(name, value)
	folder = tmp_path / "sandbox"
	(folder / "tmp").mkdir(parents=True)
	sandbox = Sandbox(engine, folder, tmp_path / "home")
	for name in "ab":
		sandbox.write(f"{name}.c", SOURCE)
	sandbox.open_gate()
	ended = sandbox.compile("a").wait(PATIENCE)
	assert ended == 0
	if request.param == "proved":
		wait_until(
			lambda: sandbox.compile("a").wait(PATIENCE) == 0 and is_by_course(sandbox), "gcc is not run as its parts"
		)
	return sandbox


def is_by_course(sandbox: Sandbox) -> bool:
	"""A compiler without a driver runs."""
	sandbox.close_gate()
	child = sandbox.compile("b")
	try:
		wait_until(lambda: "cc1" in sandbox.find_compilers().values(), "no compiler runs")
		names = set(sandbox.find_compilers().values())
		with open(sandbox.folder / "gate.h", "w") as gate:
			gate.write(OPEN)
		sandbox.open_gate()
		assert child.wait(PATIENCE) == 0
	finally:
		child.kill()
		child.wait()
	return names == {"cc1"}


def kill_engine(engine: int, guardian: int) -> None:
	os.kill(engine, signal.SIGKILL)


def kill_both(engine: int, guardian: int) -> None:
	for pid in (guardian, engine):
		os.kill(pid, signal.SIGKILL)


def stop_engine_and_kill_guardian(engine: int, guardian: int) -> None:
	"""The stopped engine makes no other guardian; the next start kills it."""
	os.kill(engine, signal.SIGSTOP)
	wait_until(lambda: state_of(engine) == "T", "the engine is not stopped")
	os.kill(guardian, signal.SIGKILL)


def stop_guardian(engine: int, guardian: int) -> None:
	"""The next start wakes it."""
	os.kill(guardian, signal.SIGSTOP)
	os.kill(engine, signal.SIGKILL)


WAYS = [kill_engine, kill_both, stop_engine_and_kill_guardian, stop_guardian]


def find_engine(sandbox: Sandbox) -> Tuple[int, int]:
	engine = int(str(sandbox.status()["pid"]))
	stat = pathlib.Path(f"/proc/{engine}/stat").read_text()
	return engine, int(stat.rpartition(")")[2].split()[1])


@pytest.mark.parametrize("way", WAYS)
def test_compilers_leave_nothing(way: Callable[[int, int], None], sandbox: Sandbox) -> None:
	"""When the compile has been done again, there is no process and no temporary file left."""
	sandbox.close_gate()
	child = sandbox.compile("a")
	try:
		wait_until(
			lambda: list(sandbox.temporary.iterdir()) and sandbox.is_compiling(), "no compiler waits at the gate"
		)
		waiting = sandbox.find_compilers()
		sandbox.open_gate()
		way(*find_engine(sandbox))
		status = child.wait(PATIENCE)
	finally:
		child.kill()
		child.wait()
	assert status == 0, (sandbox.folder / "said").read_text()
	if way is not kill_engine and not sandbox.status():
		sandbox.compile("b").wait(PATIENCE)
	left = [pid for pid in waiting if pid in sandbox.find_compilers()]
	assert (left, [path.name for path in sandbox.temporary.iterdir()]) == ([], [])
	assert (sandbox.folder / "a.o").is_file()
