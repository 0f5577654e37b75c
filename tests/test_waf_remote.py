"""The option ``--remote`` of Waf: shared stores and a cluster for one build."""

import os
import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Optional

import pytest
from cache_support import COMPILERS, PATIENCE
from execute_support import Impostor
from resident_support import Resident
from room_server import Room
from test_execute import slots_taken, until
from tier_support import Machine

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a compiler")

WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c prefork wafcc%s")
def configure(conf):
	conf.load("compiler_c")
def build(bld):
	print("jobs: %%d" %% bld.jobs)
	for name in "abcdefgh":
		bld.objects(source=name + ".c", target=name)
"""
FILES = {name + ".c": "int %s(void) { return 1; }\n" % name for name in "abcdefgh"}
TOKEN = "s3cret-t0ken"
NOWHERE = "grpc://127.0.0.1:1/none"
PROCESSORS = os.cpu_count() or 1
Run = Callable[..., Any]


@pytest.fixture
def folder(project: Any) -> pathlib.Path:
	written: pathlib.Path = project({"wscript": WSCRIPT % "", **FILES})
	return written


@pytest.fixture
def run(waf: Any, folder: pathlib.Path) -> Run:
	"""A function that runs Waf as a client of a machine's engine."""

	def start(at: Machine, *words: str, status: Optional[int] = 0) -> Any:
		names = ("HOME", "LC_ALL", "WAFD_RUNTIME_DIR", "WAFCC_REMOTE")
		env: Dict[str, Optional[str]] = {name: at.environ[name] for name in names}
		return waf(folder, *words, env={**env, "WAFD": at.engine, "JOBS": None}, status=status)

	return start


def jobs(done: Any) -> int:
	return int(done.stdout.partition("jobs: ")[2].split()[0])


class TestStores:
	def test_a_build_names_its_own(self, run: Run, machine: Callable[[str], Machine], room: Room) -> None:
		"""Its results are hits on a second machine in a build that names the same store, and in no other build."""
		first, second = machine(""), machine("")
		run(first, "configure", "build", "--remote=" + room.address)
		first.until_uploaded(len(FILES))
		run(second, "clean", "build")
		assert (second.remote()["hits"], second.remote()["misses"]) == (0, 0)
		second.ask("--clear")
		run(second, "clean", "build", "--remote=" + room.address)
		assert second.remote()["hits"] == len(FILES)

	def test_off(self, run: Run, machine: Callable[[str], Machine], room: Room) -> None:
		"""The engine's own store is not asked, and gets nothing. In a build without the option, it does."""
		here = machine(room.address)
		run(here, "configure", "build", "--remote=off")
		assert here.remote()["uploads"] == 0 and not room.entries
		here.ask("--clear")
		run(here, "clean", "build")
		here.until_uploaded(len(FILES))

	def test_tokens_are_in_no_file(
		self, run: Run, machine: Callable[[str], Machine], room: Room, folder: pathlib.Path
	) -> None:
		"""Neither the log of ``configure`` nor Waf's memory has what lets in, and the build has used it."""
		here = machine("")
		done = run(here, "configure", "build", "-v", "--zones=wafcc,prefork", "--remote=" + room.address)
		here.until_uploaded(len(FILES))
		files = [path for path in [*folder.rglob("*"), *here.runtime.rglob("*.log")] if path.is_file()]
		assert [path.name for path in files if room.TOKEN.encode() in path.read_bytes()] == []
		assert room.TOKEN not in done.stdout + done.stderr
		assert "***@127.0.0.1" in (folder / "build" / "config.log").read_text()


class TestMistakes:
	@pytest.mark.parametrize(
		("address", "remedy"),
		[
			("grpcs://build.example.com/team|execute", "grpcs://build.example.com/team|execute: it lacks a port"),
			("build.example.com:1", "not an address; write tcp://"),
			("grpc://h:1|execute=many", "write execute=64"),
			("tcp://%s@h:0" % TOKEN, "tcp://***@h:0: its port"),
			("", "write --remote=grpcs://HOST:PORT/NAME or --remote=off"),
		],
	)
	def test_a_wrong_address(self, run: Run, machine: Callable[[str], Machine], address: str, remedy: str) -> None:
		"""One line says what is wrong and how to mend it, and Waf does not begin."""
		done = run(machine(""), "configure", "--remote=" + address, status=None)
		assert done.returncode not in (0, None)
		assert len(done.stderr.splitlines()) == 1 and remedy in done.stderr, done.stderr
		assert TOKEN not in done.stderr and "Setting top" not in done.stdout


class TestCluster:
	def test_jobs(self, run: Run, machine: Callable[[str], Machine]) -> None:
		"""Waf runs as many tasks as there are processors and jobs of the cluster, unless the user gives a number."""
		here = machine("")
		run(here, "configure")
		for words, expected in (
			(["--remote=%s|execute=64" % NOWHERE], PROCESSORS + 64),
			(["--remote=%s|execute=64" % NOWHERE, "-j3"], 3),
			(["--remote=%s" % NOWHERE], PROCESSORS),
			(["--remote=off"], PROCESSORS),
			([], PROCESSORS),
		):
			assert jobs(run(here, "build", *words)) == expected, words

	def test_compiles_go_there(self, run: Run, impostor: Impostor) -> None:
		"""What waits for a slot goes to the cluster of its build. A build without one sends nothing."""
		here = impostor("put(stream, 0x83, id, b'\\x03it is not permitted')")
		address = here.environ["WAFCC_REMOTE"]
		here.environ["WAFCC_REMOTE"] = ""
		run(here, "configure")
		with ThreadPoolExecutor() as threads, slots_taken(here):
			run(here, "build", "-j8")
			assert here.remote()["not_executed"] == {}
			here.ask("--clear")
			build = threads.submit(run, here, "clean", "build", "--remote=" + address)
			until(lambda: here.remote()["not_executed"] == {"the cluster declined it": len(FILES)}, "all were there")
		build.result(PATIENCE)


def test_with_resident(
	resident: Callable[..., Resident], engine: str, room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
	"""A resident process runs a build with the option, and one without it, each as it is meant."""
	for name in list(os.environ):
		if name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG")):
			monkeypatch.delenv(name)
	monkeypatch.setenv("HOME", str(tmp_path / "home"))
	made = resident({"wscript": WSCRIPT % " resident", **FILES})
	made.run("configure")
	made.run("clean", "build", "--remote=off")
	assert not room.entries
	address = room.address
	for _ in range(2):
		(made.folder / "a.c").write_text("int a(void) { return 2; }\n")
		made.run("build", "--remote=" + address)
	made.wait(lambda: room.entries)
