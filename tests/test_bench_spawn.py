"""The scenario ``spawn`` of utils/bench.py: the programs that are measured, and small real campaigns."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Callable, Dict, List, Tuple

import pytest
from test_bench_campaign import BENCH, Done, finish, need, start

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPAWN = ROOT / "utils" / "benchmark" / "projects" / "spawn"
sys.path.insert(0, str(BENCH.parent))

import bench  # noqa: E402
from benchmark import contender, report  # noqa: E402
from benchmark.scenario import SCENARIOS  # noqa: E402

C_WAYS = ("vfork", "posix_spawn", "fork")
PYTHON_WAYS = ("subprocess", "waf")
WAYS = [(way, piped) for way in (*C_WAYS, *PYTHON_WAYS) for piped in (0, 1)]

# ---- the programs that are measured


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> str:
	"""The program that starts others in each way that C has."""
	need("cc")
	path = tmp_path_factory.mktemp("spawn") / "spawn"
	subprocess.run(["cc", "-o", str(path), str(SPAWN / "spawn.c")], check=True)
	return str(path)


Spawns = Callable[..., Tuple["subprocess.CompletedProcess[str]", Dict[str, float]]]


@pytest.fixture
def spawns(starter: str, tmp_path: pathlib.Path) -> Spawns:
	"""A function that lets a parent start a shell script many times."""

	def run(
		script: str, way: str, piped: int, count: int = 3, parent: int = 1
	) -> Tuple["subprocess.CompletedProcess[str]", Dict[str, float]]:
		program, answer = tmp_path / "program", tmp_path / "answer.json"
		program.write_text("#!/bin/sh\n%s\n" % script)
		program.chmod(0o755)
		argv = [starter] if way in C_WAYS else [sys.executable, str(SPAWN / "spawn.py")]
		argv += [way, str(piped), "0", str(count // 10 + 1), str(count), str(parent), str(answer), str(program)]
		done = subprocess.run(
			argv, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=60, cwd=str(tmp_path)
		)
		return done, json.loads(answer.read_text()) if answer.exists() else {}

	return run


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_warnings(tmp_path: pathlib.Path, compiler: str) -> None:
	"""The C sources give no warning."""
	need(compiler)
	flags = ["-O2", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror"]
	for source in sorted(SPAWN.glob("*.c")):
		argv = [compiler, *flags, "-o", str(tmp_path / "program"), str(source)]
		assert subprocess.run(argv, capture_output=True, encoding="utf-8").stderr == "", source


@pytest.mark.parametrize(("way", "piped"), WAYS)
def test_every_start_is_real(spawns: Spawns, tmp_path: pathlib.Path, way: str, piped: int) -> None:
	"""Each way runs the program as often as it says and a tenth more before, and answers with times."""
	done, values = spawns("echo x >> runs", way, piped, count=20)
	assert done.returncode == 0, done.stderr
	assert (tmp_path / "runs").read_text().count("x") == 20 + 3
	assert {"system", "user", "wall"} <= set(values)
	assert values["wall"] > 0 and values["user"] >= 0 and values["system"] >= 0


@pytest.mark.parametrize(("way", "piped"), WAYS)
def test_pipes(spawns: Spawns, way: str, piped: int) -> None:
	"""What the program writes is taken with pipes, and goes where the parent's goes without."""
	done, _ = spawns("echo output; echo error >&2", way, piped)
	assert done.returncode == 0, done.stderr
	runs = 3 + 1
	assert done.stdout == ("" if piped else "output\n" * runs)
	assert done.stderr == ("" if piped else "error\n" * runs)


@pytest.mark.parametrize("way", ["vfork", "posix_spawn", "fork", "subprocess", "waf"])
def test_pipes_are_read_while_it_runs(spawns: Spawns, way: str) -> None:
	"""A program that writes more than a pipe holds does not wait for ever."""
	done, _ = spawns("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2", way, 1, count=1)
	assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("way", "piped"), WAYS)
def test_failing_program(spawns: Spawns, way: str, piped: int) -> None:
	"""A program that does not succeed is told of, and nothing is answered."""
	done, values = spawns("exit 3", way, piped)
	assert done.returncode == 1 and values == {}
	assert "the program ended with the status" in done.stderr


@pytest.mark.parametrize("way", ["vfork", "subprocess"])
def test_parent_holds_memory(spawns: Spawns, tmp_path: pathlib.Path, way: str) -> None:
	"""What the parent was told to hold is in memory while it starts programs."""
	held = []
	for size in (1, 65):
		(tmp_path / "sizes").write_text("")
		done, _ = spawns("grep VmRSS /proc/$PPID/status >> sizes", way, 0, parent=size)
		assert done.returncode == 0, done.stderr
		held.append(min(int(line.split()[1]) for line in (tmp_path / "sizes").read_text().splitlines()))
	assert 60 * 1024 < held[1] - held[0] < 68 * 1024


# ---- what is chosen


def options(**changes: object) -> argparse.Namespace:
	"""A command line's options."""
	given = {"scenarios": ["spawn"], "contenders": None, "baseline": None, "engines": {}}
	return argparse.Namespace(**{**given, **changes})


def test_baseline_of_each_scenario() -> None:
	"""Ratios refer to who was asked for, to stock Waf, or to the first one, whichever can run the scenario."""
	chosen = [contender.find_contender(name) for name in ("prefork", "waf", "vfork", "daemon")]
	full, spawn = SCENARIOS["full"], SCENARIOS["spawn"]
	assert bench.choose_baseline(full, None, chosen) == "waf"
	assert bench.choose_baseline(full, "prefork", chosen) == "prefork"
	assert bench.choose_baseline(full, "daemon", chosen) == "waf"
	assert bench.choose_baseline(spawn, "prefork", chosen) == "vfork"
	assert bench.choose_baseline(spawn, "daemon", chosen) == "daemon"
	assert bench.choose_baseline(spawn, None, chosen[:2]) is None


def test_contenders_of_the_scenario() -> None:
	"""Nobody takes part by default who can run none of the scenarios, and what such a one lacks is not told."""
	need("cc")
	chosen, left_out = bench.choose_contenders(options())
	names = contender.names_of(chosen)
	assert names[0] == "vfork" and "waf" not in names
	assert all("spawn" in contender.find_contender(name).abilities for name, _ in left_out)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
	"""Without a C compiler there is nothing to start, and the reason is told."""
	monkeypatch.setenv("PATH", str(tmp_path))
	assert contender.find_contender("vfork").missing() == "cc is not installed"
	assert contender.find_contender("subprocess").missing() == "cc is not installed"


def test_legend_with_two_baselines() -> None:
	"""The legend says what ratios refer to in which scenario, and what must be known of one."""
	run = {"part": "", "compiler": None, "interpreter": None, "repetition": 0, "values": {"wall": 1.0}}
	about = {"title": "", "measures": [["wall", "s"]], "compiles": False}
	record = {
		"settings": {"baseline": None, "notes": {}},
		"left_out": [],
		"failures": [],
		"finished": True,
		"scenarios": {
			"full": {**about, "baseline": "waf"},
			"noop": {**about, "baseline": "waf"},
			"spawn": {**about, "baseline": "vfork", "note": "handle with care"},
		},
		"runs": [{**run, "scenario": name, "contender": "any"} for name in ("full", "noop", "spawn")],
	}
	text = report.legend(record)
	assert "the one of waf in full and noop, vfork in spawn." in text
	assert "spawn: handle with care" in text


# ---- campaigns


def parts_of(done: Done) -> Dict[str, List[str]]:
	"""The parts that each contender has measured."""
	found: Dict[str, List[str]] = {}
	for run in done.record["runs"]:
		found.setdefault(run["contender"], []).append(run["part"])
	return found


def test_campaign(tmp_path: pathlib.Path) -> None:
	"""Each contender is measured from each parent, and compared with the first one."""
	need("cc")
	names = ["posix_spawn", "fork-pipes", "subprocess", "wafpool"]
	args = ("spawn", "--contenders", ",".join(names), "--commands", "5", "--parents", "1,2", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args))
	assert done.status == 0, done.err
	assert parts_of(done) == {name: ["parent of 1 MiB", "parent of 2 MiB"] for name in names}
	for run in done.record["runs"]:
		assert sorted(run["values"]) == ["processor", "system", "user", "wall"]
		assert run["values"]["processor"] == pytest.approx(run["values"]["user"] + run["values"]["system"])
	assert "as a multiple of the one of posix_spawn." in done.out
	assert re.search(r"^wafpool: always with two pipes", done.out, re.MULTILINE)
	assert "5 commands in spawn" in done.out
	assert done.left == [] and os.listdir(str(done.work)) == []


def test_through_the_engine(tmp_path: pathlib.Path, engine: str) -> None:
	"""Commands go through an engine of their own plainly, and through another one parked, or the run would fail."""
	need("cc")
	names = ["daemon", "daemon-pipes", "parked", "parked-pipes"]
	args = ("spawn", "--contenders", ",".join(names), "--commands", "20", "--parents", "1", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert parts_of(done) == {name: ["parent of 1 MiB"] for name in names}
	assert done.left == [] and os.listdir(str(done.work)) == []


def test_odd_work_folder(tmp_path: pathlib.Path, engine: str) -> None:
	"""The name of the work folder does not matter to what is preloaded for parking."""
	need("cc")
	folder = tmp_path / "it's $HOME"
	folder.mkdir()
	args = ("spawn", "--contenders", "fork-pipes,parked", "--commands", "5", "--parents", "1", "--repeat", "1")
	done = finish(folder, start(folder, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert sorted(parts_of(done)) == ["fork-pipes", "parked"]
	assert done.left == [] and os.listdir(str(done.work)) == []


def test_not_parked(tmp_path: pathlib.Path, engine: str) -> None:
	"""Where the engine does not park the program, nothing is measured as parked, and the engine's reason is told."""
	need("cc")
	compiler = tmp_path / "bin" / "cc"
	compiler.parent.mkdir()
	compiler.write_text('#!/bin/sh\nexec %s -static "$@"\n' % shutil.which("cc"))
	compiler.chmod(0o755)
	path = "%s:%s" % (compiler.parent, os.environ["PATH"])
	args = ("spawn", "--contenders", "parked,vfork", "--commands", "5", "--parents", "1", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine, PATH=path))
	assert done.status == 1, done.err
	assert list(parts_of(done)) == ["vfork"]
	(failure,) = done.record["failures"]
	assert failure["contender"] == "parked"
	assert re.match(r"the program is not parked: .*static", failure["reason"]), failure
	assert done.left == []


@pytest.mark.parametrize(
	("argv", "words"),
	[
		(["--parents", "10,x"], "'x' is not a number above zero"),
		(["--contenders", "waf"], "scenario spawn: no contender can run it: add one of vfork"),
		(["--contenders", "vfork+ccache"], "no contender can run it"),
	],
)
def test_mistakes(tmp_path: pathlib.Path, argv: List[str], words: str) -> None:
	"""What cannot be done is refused in one line."""
	need("cc", "ccache")
	work = ["--work", str(tmp_path / "work"), "--json", str(tmp_path / "r.json")]
	done = subprocess.run(
		[sys.executable, str(BENCH), "spawn", *work, *argv], capture_output=True, encoding="utf-8", timeout=60
	)
	assert done.returncode == 2 and done.stdout == ""
	complaint = done.stderr.splitlines()[-1]
	assert complaint.startswith("bench.py: ") and words in complaint, done.stderr
