"""The scenario ``room`` of utils/bench.py: a store that is filled, and the engine that opens it."""

import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Dict

import pytest
from test_bench_campaign import BENCH, finish, need, need_example, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import cache, room


@pytest.fixture
def filler() -> str:
	"""The program that fills stores."""
	return need_example(room.FILLER)


def test_sizes() -> None:
	"""A store grows from one entry by powers of ten to what was asked for."""
	assert room.sizes(100000) == [1, 1000, 10000, 100000]
	assert room.sizes(2500) == [1, 1000, 2500]
	assert room.sizes(20) == [1, 20]
	assert room.sizes(1) == [1]


def fill(filler: str, store: pathlib.Path, count: object) -> "subprocess.CompletedProcess[str]":
	"""Run the program."""
	return subprocess.run([filler, str(store), str(count)], capture_output=True, encoding="utf-8", timeout=60)


@pytest.mark.parametrize("argv", [("nowhere", "3"), ("nowhere", "many")])
def test_stores_that_cannot_be_filled(filler: str, tmp_path: pathlib.Path, argv: tuple) -> None:
	"""Without an entry that others could be like, or without a number, nothing is made."""
	done = fill(filler, tmp_path / argv[0], argv[1])
	assert done.returncode == 1 and done.stdout == ""
	assert list(tmp_path.iterdir()) == []


def test_filled_store(filler: str, tmp_path: pathlib.Path, engine: str, runtime, monkeypatch) -> None:
	"""A filled store has so many entries with facts and objects, and the engine answers from it what it did before."""
	need("cc")
	monkeypatch.setenv("WAFD", engine)
	ours = cache.Wafcc(str(tmp_path / "cache"), {"PATH": "/usr/bin:/bin"})
	environ = dict(os.environ, **ours.environment)
	(tmp_path / "a.cpp").write_text("int a;\n")
	argv = [str(ours.find()), "g++", "-c", "a.cpp", "-o", "a.o"]

	def compile_until(hits: int) -> None:
		deadline = time.monotonic() + 30
		while ours.hits() < hits:  # what has just been written is not kept at once
			assert time.monotonic() < deadline
			subprocess.run(argv, cwd=str(tmp_path), env=environ, check=True, timeout=60)

	try:
		compile_until(1)
		store = pathlib.Path(ours.ask("--get-config", "store").strip())
		ours.engine.leave()
		told: Dict[str, int] = json.loads(room_filled(filler, store, 12).stdout)
		assert told["entries"] == 12 and told["facts"] > 10 and told["bytes"] > 100 and told["object"] > 100
		assert json.loads(room_filled(filler, store, 5).stdout)["entries"] == 12
		before = ours.hits()
		subprocess.run(argv, cwd=str(tmp_path), env=environ, check=True, timeout=60)
		counts = ours.counts()
		assert (counts["hits"] - before, counts["entries"]) == (1, 12)
	finally:
		ours.stop()


def room_filled(filler: str, store: pathlib.Path, count: int) -> "subprocess.CompletedProcess[str]":
	"""Fill a store, which the engine must have left."""
	done = fill(filler, store, count)
	assert done.returncode == 0, done.stderr
	return done


def test_campaign(tmp_path: pathlib.Path, engine: str, filler: str) -> None:
	"""The engine is measured with one entry and with many, and the entries are told of."""
	need("cc", "g++")
	done = finish(tmp_path, start(tmp_path, "room", "--commands", "30", "--repeat", "1", WAFD=engine))
	assert done.status == 0, done.err
	values = {run["part"]: run["values"] for run in done.record["runs"]}
	assert {part: sorted(value) for part, value in values.items()} == {
		"1 entry": ["disk", "memory", "start"],
		"30 entries": ["disk", "entry", "memory", "start"],
	}
	assert values["30 entries"]["disk"] > values["1 entry"]["disk"] > 0
	assert all(value["memory"] > 1 and value["start"] > 0 for value in values.values())
	assert "30 entries in room" in done.out
	assert done.left == [] and list(done.work.iterdir()) == []
