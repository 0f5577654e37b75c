"""The scenarios of utils/bench.py about very many tasks."""

import pathlib
import sys
import types
from typing import Any

from test_bench_campaign import BENCH, finish, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import contender, large
from benchmark.meter import Command, Reading
from benchmark.mistake import Failed
from benchmark.session import Usage

from waflib_extras import large as tool


def test_shapes_are_measured(tmp_path: pathlib.Path) -> None:
	"""Each size from nothing and once more, with its memory; each measure has a picture."""
	argv = ["large", "large-archive", "--contenders", "waf,large", "--tasks", "20,40", "--repeat", "1", "--jobs", "2"]
	done = finish(tmp_path, start(tmp_path, *argv))
	assert done.status == 0, done.err
	for name, second in (("large", "no-op"), ("large-archive", "again")):
		runs = [run for run in done.record["runs"] if (run["scenario"], run["contender"]) == (name, "large")]
		wanted = ["%s, %d tasks" % (part, count) for count in (20, 40) for part in ("full", second)]
		assert [run["part"] for run in runs] == wanted
		assert all(run["values"]["peak"] > 1 for run in runs)
		assert ["growth" in run["values"] for run in runs] == [False, False, True, True]
		assert (tmp_path / ("r-%s-peak.svg" % name)).exists()


def test_each_patch_can_be_left_out() -> None:
	"""There is a contender without it."""
	assert sorted(contender.PATCHES) == sorted(patch.name for patch in tool.PATCHES)


class FakeRun:
	"""A run whose builds take as long as they are told to."""

	def __init__(self, tmp_path: pathlib.Path, walls: Any, done: Any = None) -> None:
		self.settings = {"limit": 10, "tasks": [10, 20, 40], "notes": {}}
		self.lane = types.SimpleNamespace(
			names=("waf", "", "python3"), text="waf python3", contender=types.SimpleNamespace(builder=self)
		)
		self.jobs = 2
		self.results: list = []
		self.walls = iter(walls)
		self.done = done
		self.folder = tmp_path

	def new_folder(self) -> None:
		self.fresh = True

	def path(self, name: str) -> str:
		return str(self.folder / name)

	def waf(self, run: Any, *args: str, **variables: str) -> Command:
		self.count = int(variables["BENCH_COMMANDS"])
		return Command(["waf", *args], "/", {})

	def execute(self, command: Command) -> Reading:
		wall = next(self.walls)
		if wall is None:
			raise Failed("exit status 2", "Traceback\nRecursionError: too deep\n")
		ran = self.count if self.fresh else 0
		self.fresh = False
		(self.folder / "done").write_text(str(ran if self.done is None else self.done))
		return Reading(wall, Usage(1.0, 1.0, 2048))


def test_who_would_take_too_long_is_left_out(tmp_path: pathlib.Path) -> None:
	"""What a size took tells what the next one takes at least; a note says so."""
	run = FakeRun(tmp_path, [2.0, 1.0, 6.0, 1.0])
	large.Sizes(run, "large").take()
	assert [part for part, _ in run.results] == [
		"full, 10 tasks",
		"no-op, 10 tasks",
		"full, 20 tasks",
		"no-op, 20 tasks",
	]
	assert run.results[2][1]["growth"] == 3
	assert run.settings["notes"] == {
		"large, waf python3, from 40 tasks on": "left out, as 20 tasks took 6 s and the limit is 10 s"
	}


def test_who_fails_is_left_out(tmp_path: pathlib.Path) -> None:
	"""From that size on, with the reason; also who did not run all tasks."""
	run = FakeRun(tmp_path, [2.0, 1.0, None])
	large.Sizes(run, "large-chain").take()
	assert len(run.results) == 2
	assert "RecursionError: too deep" in run.settings["notes"]["large-chain, waf python3, from 20 tasks on"]
	lazy = FakeRun(tmp_path, [2.0], done=3)
	large.Sizes(lazy, "large").take()
	assert not lazy.results
	assert "it ran 3 tasks instead of 10" in str(lazy.settings["notes"])
