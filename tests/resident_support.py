"""A project with a resident Waf, and a second one without it, which shows what the answers must be."""

import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest
from conftest import ROOT, Completed, find_engine, list_processes
from ready_python import ReadyPython

from waflib_extras.launcher import caller, residents

SCRIPT = "from waflib_extras.launcher import main\nmain()\n"
CLIENTS = ("python", "native") if sys.implementation.name == "cpython" else ("python",)
"""The ``waf`` of Python, and the engine's, which answers from records. PyPy's processes take long to start."""
by_python = pytest.mark.parametrize("client", ["python"], indirect=True)
"""
For what the resident does, whichever ``waf`` has called it.

The engine's becomes that of Python, unless there is a record that it may use: `test_resident_native.py` has that.
"""
DEADLINE = 60.0
TRIES = 40  # the first ones follow too close on what was built


class Resident:
	"""A project, and the resident process that its builds leave behind."""

	def __init__(
		self, folder: pathlib.Path, script: pathlib.Path, python: ReadyPython, is_native: bool = False
	) -> None:
		self.folder = folder
		self.script = script
		self.python = python
		self.is_native = is_native

	def command(self, *args: str) -> List[str]:
		return [*([] if self.is_native else [sys.executable]), str(self.script), *args]

	def environ(self, env: Optional[Dict[str, str]] = None) -> Dict[str, str]:
		own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
		return {**own, "PYTHONPATH": str(ROOT), **(env or {})}

	def run(
		self, *args: str, env: Optional[Dict[str, str]] = None, cwd: str = "", status: Optional[int] = 0, **kw: Any
	) -> "Completed[str]":
		done = None
		if not self.is_native and not kw:
			# a fork of a Python that has started: its start is most of what a call costs
			done = self.python.run(self.command(*args)[1:], self.folder / cwd, self.environ(env), 60)
		done = done or subprocess.run(
			self.command(*args),
			cwd=self.folder / cwd,
			env=self.environ(env),
			stdin=subprocess.DEVNULL,
			capture_output=True,
			encoding="utf-8",
			timeout=60,
			check=False,
			**kw,
		)
		if status is not None:
			assert done.returncode == status, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}"
		return done

	def told(self) -> Dict[str, Any]:
		"""The reports of this folder's residents, one for each environment; empty if there is none."""
		all_told = [residents.ask(sock, "list") for _, sock in residents.find_all()]
		ours = [told for told in all_told if told.get("project") == str(self.folder)]
		if len(ours) > 1:
			counts: Dict[str, int] = {}
			for told in ours:
				for name, number in told["counts"].items():
					counts[name] = counts.get(name, 0) + number
			return dict(ours[0], counts=counts)
		return ours[0] if ours else {}

	def count(self, what: str) -> int:
		counts: Dict[str, int] = self.told().get("counts", {})
		return counts.get(what, 0)

	def wait(self, condition: Callable[[], Any]) -> Any:
		"""Wait for something to be true."""
		deadline = time.monotonic() + DEADLINE
		while True:
			found = condition()
			if found:
				return found
			assert time.monotonic() < deadline, f"it does not come about: {self.told()}"
			time.sleep(0.02)

	def serve(self, *args: str, **kw: Any) -> "Completed[str]":
		"""Run a command line until a resident has served it: the next one may not listen yet when one has left."""
		for _ in range(TRIES):
			before = self.wait(self.told)
			done = self.run(*args, **kw)
			after = self.told()
			if after.get("pid") == before["pid"] and count_served(after) > count_served(before):
				return done
		pytest.fail(f"it is never served: {self.told()}\n{done.stdout}{done.stderr}")

	def settle(self, *args: str, **kw: Any) -> "Completed[str]":
		"""Run a command line until a resident has answered it from memory."""
		for _ in range(TRIES):
			self.wait(self.told)
			before = self.count("answered")
			done = self.run(*args, **kw)
			if self.count("answered") > before:
				return done
		pytest.fail(f"it is never answered: {self.told()}\n{done.stdout}{done.stderr}")

	def result(self) -> Dict[str, bytes]:
		"""The contents of all built files."""
		found = {}
		for path in sorted((self.folder / "out").rglob("*")):
			if path.is_file() and not path.name.startswith((".wafpickle", ".lock", "config.log")):
				found[str(path.relative_to(self.folder))] = path.read_bytes().replace(bytes(self.folder), b"FOLDER")
		return found


def count_served(told: Dict[str, Any]) -> int:
	"""The number of command lines that a resident has run or answered."""
	return sum(number for name, number in told["counts"].items() if name in ("answered", "forked", "thawed"))


def said(done: "Completed[str]", folder: pathlib.Path) -> str:
	"""The output of a run, without the parts that differ each time."""
	text = re.sub(r"\d+\.\d{3}s", "SECONDS", done.stdout + done.stderr)
	text = re.sub(r"\[\s*\d+/\d+\]", "[N/M]", text)  # which of two tasks is first depends on their addresses
	return "\n".join(sorted([str(done.returncode), *text.replace(str(folder), "FOLDER").splitlines()]))


class Pair:
	"""A project with a resident and one without, which are changed in the same way."""

	def __init__(self, ours: Resident, twin: Resident) -> None:
		self.ours = ours
		self.twin = twin

	def change(self, change: Callable[[pathlib.Path], None]) -> None:
		for each in (self.ours, self.twin):
			change(each.folder)

	def run_alike(self, *args: str, env: Optional[Dict[str, str]] = None, cwd: str = "") -> str:
		"""Run both, check that output and results are the same, and return the output."""
		ours = said(self.ours.run(*args, env=env, cwd=cwd, status=None), self.ours.folder)
		off = {**(env or {}), caller.OFF: "1"}
		twin = said(self.twin.run(*args, env=off, cwd=cwd, status=None), self.twin.folder)
		assert ours == twin
		assert self.ours.result() == self.twin.result()
		return ours


def install(folder: pathlib.Path, is_native: bool) -> pathlib.Path:
	"""Put a ``waf`` into a folder as an installation does. Returns its path."""
	folder.mkdir()
	path = folder / "waf"
	if is_native:
		(folder / "waf-python").write_text("#!%s\n%s" % (sys.executable, SCRIPT))
		(folder / "waf-python").chmod(0o755)
		path.symlink_to(pathlib.Path(find_engine() or "").parent / "waf")
	else:
		path.write_text(SCRIPT)
	return path


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
	"""Which ``waf`` is called."""
	name: str = request.param
	native = pathlib.Path(find_engine() or "").parent / "waf"
	if name == "native" and not os.access(native, os.X_OK):
		pytest.skip("the engine is not built: run ./waf check")
	return name


@pytest.fixture(scope="session")
def calling_python() -> Iterator[ReadyPython]:
	"""The process in whose forks ``waf`` is called. It has started with other variables than `ready_python`."""
	ready = ReadyPython()
	yield ready
	ready.end()


@pytest.fixture
def resident(
	client: str, runtime: pathlib.Path, tmp_path: pathlib.Path, calling_python: ReadyPython
) -> Iterator[Callable[..., Resident]]:
	"""A function that makes a project of these files. Its first builds start a resident process."""
	script = install(tmp_path / "bin", client == "native")

	def make(files: Dict[str, str], name: str = "project", start: bool = True) -> Resident:
		made = Resident(tmp_path / name, script, calling_python, client == "native")
		for path, content in files.items():
			file = made.folder / path
			file.parent.mkdir(parents=True, exist_ok=True)
			file.write_text(content)
		if start:
			made.run("configure", "build")
			made.wait(made.told)
		return made

	yield make
	# a resident that has just been started does not answer yet
	deadline = time.monotonic() + DEADLINE
	while any("--resident" in command for command in list_processes(runtime).values()):
		for _, sock in residents.find_all():
			residents.ask(sock, "stop")
		assert time.monotonic() < deadline, list_processes(runtime)
		time.sleep(0.02)


@pytest.fixture
def pair(resident: Callable[..., Resident]) -> Callable[..., Pair]:
	"""A function that makes two equal projects, one with a resident."""

	def make(files: Dict[str, str]) -> Pair:
		twin = resident(files, "twin", start=False)
		if twin.is_native:  # what it would start itself, which is cheaper to begin with
			twin.script, twin.is_native = twin.script.with_name("waf-python"), False
		twin.run("configure", "build", env={caller.OFF: "1"})
		ours = resident(files)
		return Pair(ours, twin)

	return make
