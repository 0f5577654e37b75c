"""utils/bench.py curve: commands for more and more slots, and the program of C that it is held against."""

import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import List

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "utils" / "bench.py"
sys.path.insert(0, str(BENCH.parent))

from benchmark import campaign, contender, phases, report, scenario  # noqa: E402
from benchmark.mistake import Failed  # noqa: E402
from benchmark.run import Lane  # noqa: E402
from test_bench import filled_record, run_of  # noqa: E402
from test_bench_campaign import finish, need, start  # noqa: E402

CURVE = scenario.SCENARIOS["curve"]

# ---- the plan


def test_points_of_a_scenario() -> None:
	"""A scenario has the numbers of jobs that were asked for, or else its own, or else leaves it to the processors."""
	assert CURVE.points(None) == (2, 4, 8, 16, 32, 64, 128, 256, 512)
	assert scenario.SCENARIOS["full"].points(None) == (0,)
	assert {one.points(3) for one in scenario.SCENARIOS.values()} == {(3,)}


def test_commands_grow_with_the_slots() -> None:
	"""A curve has so many commands for each slot, and others have none."""
	settings = {"commands": {"curve": 20, "tasks": 7}}
	assert [CURVE.commands(settings, jobs) for jobs in (2, 512)] == [40, 10240]
	assert scenario.SCENARIOS["tasks"].commands(settings, 2) == scenario.SCENARIOS["full"].commands(settings, 2) == 0


def test_lanes_stand_side_by_side_at_each_point() -> None:
	"""Everybody runs with 2 jobs before anybody runs with 4, and each repetition begins with another one."""
	lanes = [Lane(contender.find_contender(name), None, None) for name in ("ninja", "xargs")]
	steps = campaign.plan([CURVE._replace(jobs=(2, 4))], lanes, 2)
	assert [(step.repetition, step.part, step.lane.contender.name) for step in steps] == [
		*((0, "-j2", name) for name in ("ninja", "xargs")),
		*((0, "-j4", name) for name in ("ninja", "xargs")),
		*((1, "-j2", name) for name in ("xargs", "ninja")),
		*((1, "-j4", name) for name in ("xargs", "ninja")),
	]
	assert len({step.kind for step in steps}) == 4
	assert steps[2].text == "curve -j4, ninja, repetition 1"
	assert [step.part for step in campaign.plan([CURVE._replace(jobs=(64,))], lanes, 1)] == ["", ""]


# ---- what it notes


def naps(wall: float, jobs: int = 4, count: int = 8) -> SimpleNamespace:
	"""A run of commands that sleep, as far as its check looks at it."""
	return SimpleNamespace(jobs=jobs, results=[("", {"wall": wall})], project=SimpleNamespace(commands=["x"] * count))


def test_occupancy_of_the_slots() -> None:
	"""It is the time that the commands sleep in percent of what the slots could have slept meanwhile."""
	run = naps(0.4)
	phases.check_naps(run)  # type: ignore[arg-type]
	assert run.results[0][1]["occupancy"] == pytest.approx(50.0)


def test_too_short_a_run_is_refused() -> None:
	"""Who is done before the commands can have slept has left some out."""
	with pytest.raises(Failed, match=r"8 commands took 0\.190 s, which is less than the 0\.200 s that they sleep"):
		phases.check_naps(naps(0.19))  # type: ignore[arg-type]


# ---- the report


def test_many_parts_side_by_side() -> None:
	"""Four parts and more are also shown in one table of medians: a column per part, a block per measure."""
	filled = filled_record()
	filled["runs"] = [
		run_of(name, repetition, wall * n, part="-j%d" % n)
		for n in (2, 4, 8, 16)
		for repetition in (0, 1)
		for name, wall in (("fast", 1.0), ("slow", 2.0 + repetition))
		if (name, n) != ("fast", 16)
	]
	lines = report.report(filled).splitlines()
	first = lines.index("spin, g++, medians: round and round")
	rows = [line.split() for line in lines[first + 1 : first + 8]]
	assert rows == [
		["measure", "contender", "interpreter", "-j2", "-j4", "-j8", "-j16"],
		["wall", "s", "slow", "-", "5.000", "10.00", "20.00", "40.00"],
		["wall", "s", "fast", "-", "2.000", "4.000", "8.000", "-"],
		["paired", "slow", "-", "1.00", "1.00", "1.00", "1.00"],
		["paired", "fast", "-", "0.42", "0.42", "0.42", "-"],
		["peak", "MiB", "slow", "-", "8.000", "8.000", "8.000", "8.000"],
		["peak", "MiB", "fast", "-", "8.000", "8.000", "8.000", "-"],
	]
	assert "spin, -j2, g++: round and round" in lines[:first]


def test_few_parts_have_no_table_of_their_own() -> None:
	"""A few parts can be compared where they stand."""
	filled = filled_record()
	filled["runs"] = [run_of("fast", 0, 1.0, part=part) for part in ("1", "2", "3")]
	assert "medians" not in report.report(filled)


def test_jobs_in_the_settings() -> None:
	"""The settings name the jobs of scenarios that have their own, those of the processors, or those asked for."""
	filled = filled_record()
	filled["scenarios"]["curve"] = dict(filled["scenarios"]["spin"], jobs=[2, 4, 512], per_slot=True)
	filled["settings"]["commands"] = {"curve": 20, "client": 1}
	line = report.describe(filled)[0]
	assert "-j2 (cores), -j2 to 512 in curve, 2 repetitions" in line and line.endswith("20 commands per slot in curve")
	filled["settings"]["jobs"] = 3
	assert "settings   -j3, 2 repetitions" in report.describe(filled)[0]


# ---- the program of C


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
	"""The program, compiled with all warnings on."""
	need("cc")
	path = str(tmp_path_factory.mktemp("bare") / "bare")
	flags = ["-std=gnu99", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror"]
	subprocess.run(["cc", *flags, "-o", path, contender.BARE], check=True, timeout=60)
	return path


def run_bare(bare: str, folder: pathlib.Path, jobs: str, lines: List[str]) -> "subprocess.CompletedProcess[str]":
	"""Let it run the commands of a file."""
	(folder / "commands").write_text("".join("%s\n" % line for line in lines))
	argv = [bare, jobs, "commands"]
	return subprocess.run(argv, cwd=str(folder), capture_output=True, encoding="utf-8", timeout=60, check=False)


def test_bare_runs_every_command(tmp_path: pathlib.Path, bare: str) -> None:
	"""Each line is one command, from the PATH or by its path, and empty lines are none."""
	need("touch")
	found = run_bare(bare, tmp_path, "3", [*("touch  a%d\tb%d" % (n, n) for n in range(7)), "", "/bin/sh -c exit"])
	assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
	wanted = {"%s%d" % (letter, n) for letter in "ab" for n in range(7)}
	assert set(os.listdir(str(tmp_path))) == wanted | {"commands"}


def test_bare_never_runs_more_at_once(tmp_path: pathlib.Path, bare: str) -> None:
	"""With two jobs at most two commands have begun that have not ended, and with one never two."""
	script = tmp_path / "step"
	script.write_text("#!/bin/sh\necho + >> log\necho - >> log\n")
	script.chmod(0o755)
	for jobs in (1, 2):
		(tmp_path / "log").write_text("")
		assert run_bare(bare, tmp_path, str(jobs), ["./step"] * 20).returncode == 0
		running = most = 0
		for mark in (tmp_path / "log").read_text().split():
			running += 1 if mark == "+" else -1
			most = max(most, running)
		assert running == 0 and 1 <= most <= jobs


def test_bare_tells_failures(tmp_path: pathlib.Path, bare: str) -> None:
	"""A command that fails makes it fail after all have run; what cannot be started is named."""
	found = run_bare(bare, tmp_path, "2", ["false", "touch after"])
	assert found.returncode == 1 and (tmp_path / "after").exists()
	found = run_bare(bare, tmp_path, "2", ["no-such-program x"])
	assert (found.returncode, found.stderr) == (2, "bare: find no-such-program: No such file or directory\n")
	assert run_bare(bare, tmp_path, "0", []).stderr == "usage: bare JOBS FILE\n"


def test_bare_without_a_compiler(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""Where there is no cc, ``bare`` cannot take part, and says why."""
	monkeypatch.setenv("PATH", str(tmp_path))
	assert contender.find_contender("bare").missing() == "cc is not installed"


# ---- real campaigns


def test_a_whole_curve(tmp_path: pathlib.Path) -> None:
	"""All points are measured, each with as many commands for a slot, and the table of all is printed last."""
	need("cc", "xargs")
	done = finish(tmp_path, start(tmp_path, "curve", "--contenders", "bare,xargs", "--commands", "1", "--repeat", "1"))
	assert done.status == 0, done.err
	parts = [run["part"] for run in done.record["runs"] if run["contender"] == "bare"]
	assert parts == ["-j%d" % 2**n for n in range(1, 10)]
	assert all(0 < run["values"]["occupancy"] <= 100 for run in done.record["runs"])
	table = done.out[done.out.index("curve, medians:") :]
	assert re.search(r"^ +measure .* -j2 .* -j512$", table, re.MULTILINE)
	for measure in ("wall s", "paired", "occupancy %", "processor s"):
		assert re.search(r"^  %s +bare .*[0-9]$" % measure, table, re.MULTILINE), table
	assert "1 commands per slot in curve" in table
	assert done.left == [] and os.listdir(str(done.work)) == []


def test_one_point_of_a_curve(tmp_path: pathlib.Path, engine: str) -> None:
	"""``--jobs`` makes one point of it, for everybody who can run commands."""
	need("cc", "ninja", "make", "xargs")
	names = "waf-nopool,prefork,ninja,make,xargs,bare"
	args = ("curve", "--contenders", names, "--jobs", "3", "--commands", "2", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert sorted(done.values("curve")) == sorted(names.split(","))
	assert {(run["part"], run["jobs"]) for run in done.record["runs"]} == {("-j3", 3)}
	assert "medians" not in done.out
	assert done.left == [] and os.listdir(str(done.work)) == []
