"""utils/bench.py as a command: its answers to mistakes, and small real campaigns."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Callable, Dict, List

import pytest
from conftest import leave_out

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "utils" / "bench.py"
sys.path.insert(0, str(BENCH.parent))

from benchmark import service  # noqa: E402

TINY = ("--size", "2,3,2,1")
MARK = "TEST_OF_BENCH"  # a variable that every process of a campaign inherits


def need(*programs: str) -> None:
	"""Leave a test out when a program that it needs is missing, but not in CI."""
	missing = [program for program in programs if not shutil.which(program)]
	if missing:
		leave_out("not installed: %s" % ", ".join(missing))


def need_example(name: str) -> str:
	"""The path of an example program of the engine, without which a test is left out, but not in CI."""
	reason = service.missing_example(name)
	if reason:
		leave_out(reason)
	return str(service.find_example(name))


# ---- mistakes


@pytest.mark.parametrize(
	("argv", "words"),
	[
		(["fool"], "scenario fool is not known: choose from full, warm, second-machine"),
		(["--contenders", "ninja,jam"], "contender jam is not known: choose from waf"),
		(["--contenders", "ninja+nocache"], "contender ninja+nocache is not known"),
		(["--contenders", ","], "it names nothing"),
		(["--contenders", "ninja", "--baseline", "make"], "baseline make takes no part: choose one of ninja"),
		(["--contenders", "ninja+wafcc@old"], "no engine is named so: say --engine old=DIR"),
		(["--engine", "old"], "is not a name and a folder"),
		(["--engine", "old=/dev"], "there is no program wafd in /dev"),
		(["--engine", "old=/dev", "--list"], "there is no program wafd in /dev"),
		(["--size", "1,2,3"], "is not four numbers"),
		(["--repeat", "0"], "is not a number above zero"),
		(["--jobs", "-1"], "--jobs"),
		(["--language", "d"], "invalid choice"),
		(["--compilers", "no-such-g++"], "compiler no-such-g++ was not found"),
		(["--interpreters", "no-such-python"], "interpreter no-such-python was not found"),
		(["--interpreters", "/bin/true"], "interpreter /bin/true does not work"),
		(["--work", "/dev/null/x"], "cannot work in /dev/null/x"),
		(["--json", "/dev/null/x/y.json"], "cannot make /dev/null/x"),
		(["noop", "--contenders", "xargs"], "scenario noop: no contender can run it"),
		(["full", "--contenders", "xargs", "--size", "2,3,9,9"], "genbench.py could not write the project"),
		(["sources", "--sources", "/no/such/folder"], "cannot read /no/such/folder"),
		(["show"], "FILE.json"),
		(["show", "/no/such/file.json"], "cannot read /no/such/file.json"),
	],
)
def test_mistakes(tmp_path: pathlib.Path, argv: List[str], words: str) -> None:
	"""Every mistake is answered with one line that says what to do, and exit status 2; nothing stays behind."""
	need("g++", "xargs")
	args = argv
	if argv[0] != "show":
		args = [
			"--work",
			str(tmp_path / "work"),
			"--json",
			str(tmp_path / "r.json"),
			"--contenders",
			"waf-nopool",
			*argv,
		]
	done = subprocess.run([sys.executable, str(BENCH), *args], capture_output=True, encoding="utf-8", timeout=60)
	assert done.returncode == 2, done.stderr
	assert done.stdout == ""
	*others, complaint = done.stderr.splitlines()
	assert complaint.startswith("bench.py: ") and words in complaint, done.stderr
	assert all(line.startswith(("generating a project", "deleting what was built")) for line in others), done.stderr
	assert not (tmp_path / "work").exists() or not os.listdir(str(tmp_path / "work"))


# ---- real campaigns


class Done:
	"""A campaign that has ended."""

	def __init__(self, folder: pathlib.Path, status: int, out: str, err: str) -> None:
		self.status = status
		self.out = out
		self.err = err
		self.work = folder / "work"
		self.record = json.loads((folder / "r.json").read_text())
		self.left = processes_marked(folder)

	def values(self, scenario_name: str) -> Dict[str, List[Dict[str, float]]]:
		"""What a scenario measured, by contender."""
		found: Dict[str, List[Dict[str, float]]] = {}
		for run in self.record["runs"]:
			if run["scenario"] == scenario_name:
				found.setdefault(run["contender"], []).append(run["values"])
		return found


def processes_marked(folder: pathlib.Path) -> List[str]:
	"""The processes that a campaign in this folder has left behind."""
	wanted = os.fsencode("\0%s=%s\0" % (MARK, folder))
	found = []
	for process in pathlib.Path("/proc").glob("[0-9]*"):
		try:
			if wanted in b"\0" + (process / "environ").read_bytes():
				found.append(os.fsdecode((process / "cmdline").read_bytes().replace(b"\0", b" ")))
		except OSError:  # gone meanwhile, or not ours
			continue
	return found


SMALLER = "import sys; sys.path.insert(0, %r); import bench; %s; sys.exit(bench.main(sys.argv[1:]))"


def start(folder: pathlib.Path, *args: str, smaller: str = "", **variables: str) -> "subprocess.Popen[str]":
	"""
	Start a campaign in a folder of its own.

	``smaller`` is a line of Python that changes what a scenario measures, where no option does that.
	"""
	program = ["-c", SMALLER % (str(BENCH.parent), smaller)] if smaller else [str(BENCH)]
	argv = [sys.executable, *program, *args, "--json", str(folder / "r.json"), "--work", str(folder / "work")]
	return subprocess.Popen(
		argv,
		env={**os.environ, MARK: str(folder), **variables},
		stdout=subprocess.PIPE,
		stderr=subprocess.PIPE,
		encoding="utf-8",
	)


def finish(folder: pathlib.Path, started: "subprocess.Popen[str]", patience: float = 90) -> Done:
	"""Wait for a campaign."""
	try:
		out, err = started.communicate(timeout=patience)
	finally:
		started.kill()
	return Done(folder, started.returncode, out, err)


def compare_texts(folder: pathlib.Path, engine: str, scenario: str, size: str, patience: float) -> Dict[str, Dict]:
	"""The hits of each contender in each part of a scenario in which texts are compared."""
	need("g++", "ninja")
	project = ["--size", size, "--common", "2", "--language", "c++", "--weight", "realistic", "--flags=-O0"]
	words = [scenario, *project, "--repeat", "1", "--contenders", "ninja,ninja+wafcc,ninja+wafcc-texts"]
	done = finish(folder, start(folder, *words, WAFD=engine), patience)
	assert done.status == 0, done.err
	assert done.left == [] and list(done.work.iterdir()) == []
	hits: Dict[str, Dict] = {}
	for run in done.record["runs"]:
		hits.setdefault(run["contender"], {})[run["part"]] = run["values"].get("hits")
	return hits


@pytest.fixture(scope="module")
def campaign_done(tmp_path_factory: pytest.TempPathFactory) -> Done:
	"""One campaign of the three scenarios that build, twice."""
	need("g++", "ninja")
	folder = tmp_path_factory.mktemp("bench")
	done = finish(
		folder,
		start(folder, "onefile", "full", "noop", "--contenders", "waf-nopool,ninja", *TINY, "--repeat", "2"),
	)
	assert done.status == 0, done.err
	return done


@pytest.mark.parametrize("name", ["full", "noop", "onefile"])
def test_scenario(campaign_done: Done, name: str) -> None:
	"""A real campaign measures each contender as often as it was asked to, with all that belongs to a measurement."""
	values = campaign_done.values(name)
	assert sorted(values) == ["ninja", "waf-nopool"]
	for measured in values.values():
		assert len(measured) == 2
		for value in measured:
			assert sorted(value) == ["peak", "processor", "system", "user", "wall"]
			assert value["wall"] > 0 and value["peak"] > 0
			assert value["processor"] == pytest.approx(value["user"] + value["system"])


def test_campaign_is_complete(campaign_done: Done) -> None:
	"""A campaign ends finished, without failures, without processes, and with nothing in its work folder."""
	assert campaign_done.record["finished"] and campaign_done.record["failures"] == []
	assert campaign_done.left == []
	assert os.listdir(str(campaign_done.work)) == []
	assert {"ninja", "g++"} <= set(campaign_done.record["machine"]["versions"])


def test_progress_lines(campaign_done: Done) -> None:
	"""Every step is announced with its number, and all but the first with an estimate."""
	steps = re.findall(r"^\[ *(\d+)/12\] \w+, .*$", campaign_done.err, re.MULTILINE)
	assert [int(number) for number in steps] == list(range(1, 13))
	assert campaign_done.err.count(" left\n") >= 11


def test_show_prints_the_same_again(campaign_done: Done, tmp_path: pathlib.Path) -> None:
	"""``show`` prints from the record what the campaign printed when it ended."""
	path = tmp_path / "again.json"
	path.write_text(json.dumps(campaign_done.record))
	argv = [sys.executable, str(BENCH), "show", str(path)]
	shown = subprocess.run(argv, stdout=subprocess.PIPE, encoding="utf-8", check=True, timeout=60).stdout
	assert shown.strip() and campaign_done.out.startswith(shown.rstrip("\n"))


@pytest.fixture
def compiler(tmp_path: pathlib.Path) -> Callable[[str], str]:
	"""A function that makes a g++ of which some commands go another way, given as branches of a shell's ``case``."""
	need("g++", "xargs", "ninja")

	def make(branches: str) -> str:
		path = tmp_path / "odd-g++"
		path.write_text('#!/bin/sh\ncase "$*" in\n%s\nesac\nexec g++ "$@"\n' % branches)
		path.chmod(0o755)
		return str(path)

	return make


def test_failing_compiler(tmp_path: pathlib.Path, compiler: Callable[[str], str]) -> None:
	"""A build that fails is shown with its output and ends its contender with exit status 1; the others go on."""
	odd = compiler('*-ninja-*class_1.cpp*|*class_1.cpp*-ninja-*) echo "broken on purpose" >&2; exit 3 ;;')
	args = ("full", "--contenders", "ninja,xargs", "--compilers", odd, *TINY, "--repeat", "2")
	done = finish(tmp_path, start(tmp_path, *args))
	assert done.status == 1, done.err
	assert "| broken on purpose" in done.err
	assert "FAILED: full (ninja" in done.out
	assert [len(v) for v in done.values("full").values()] == [2] and "xargs" in done.values("full")
	assert [failure["contender"] for failure in done.record["failures"]] == ["ninja"]
	assert done.left == [] and os.listdir(str(done.work)) == []


def test_missing_objects(tmp_path: pathlib.Path, compiler: Callable[[str], str]) -> None:
	"""A contender that left a source out is no winner: the build counts as failed."""
	odd = compiler("*-xargs-*class_2.cpp*|*class_2.cpp*-xargs-*) exit 0 ;;")
	done = finish(
		tmp_path, start(tmp_path, "full", "--contenders", "xargs", "--compilers", odd, *TINY, "--repeat", "1")
	)
	assert done.status == 1, done.err
	assert done.record["failures"][0]["reason"] == "it made 4 objects of 6 sources"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path: pathlib.Path, compiler: Callable[[str], str], number: int) -> None:
	"""A campaign that is stopped keeps what it has measured, and leaves no process and no folder."""
	reached = tmp_path / "reached"
	odd = compiler("*002-ninja*) : > %s; sleep 600 ;;" % reached)
	args = ("full", "--contenders", "xargs,ninja", "--compilers", odd, *TINY)
	started = start(tmp_path, *args)
	try:
		await_file(reached, started)
		started.send_signal(number)
	except BaseException:
		started.kill()
		raise
	done = finish(tmp_path, started)
	assert done.status == 128 + number, done.err
	assert list(done.values("full")) == ["xargs"]
	assert not done.record["finished"] and done.record["failures"] == []
	assert "not finished" in done.out
	assert done.left == [] and os.listdir(str(done.work)) == []


def await_file(path: pathlib.Path, process: "subprocess.Popen[str]", seconds: float = 60) -> None:
	"""Wait until a file is there."""
	deadline = time.monotonic() + seconds
	while not path.exists():
		assert process.poll() is None, process.communicate()
		assert time.monotonic() < deadline, "%s did not come" % path
		time.sleep(0.02)


def test_commands_without_compilers(tmp_path: pathlib.Path) -> None:
	"""``client`` measures one thread and two, ``curve`` everybody who can run commands at all."""
	need("ninja", "make", "xargs")
	args = (
		"client",
		"curve",
		"--contenders",
		"waf-nopool,ninja,make,xargs",
		"--jobs",
		"2",
		"--commands",
		"8",
		"--repeat",
		"1",
	)
	done = finish(tmp_path, start(tmp_path, *args))
	assert done.status == 0, done.err
	parts = [run["part"] for run in done.record["runs"] if run["scenario"] == "client"]
	assert parts == ["1 thread", "2 threads"]
	assert sorted(done.values("curve")) == ["make", "ninja", "waf-nopool", "xargs"]
	assert done.left == []


def test_tasks_that_do_nothing(tmp_path: pathlib.Path) -> None:
	"""``tasks`` measures only Waf, and sees that no task was left out."""
	args = ("tasks", "--contenders", "waf,waf-nopool", "--commands", "50", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args))
	assert done.status == 0, done.err
	assert sorted(done.values("tasks")) == ["waf", "waf-nopool"]
	assert done.left == []


def test_prefork_with_an_engine_of_its_own(tmp_path: pathlib.Path, engine: str) -> None:
	"""``prefork`` takes part with a private engine, which is gone when the campaign ends."""
	need("g++")
	args = ("full", "--contenders", "waf,prefork", *TINY, "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert sorted(done.values("full")) == ["prefork", "waf"]
	assert "wafd" in done.record["machine"]["versions"]
	assert done.left == [] and os.listdir(str(done.work)) == []
