"""utils/scaling.py: the simulation against cases that are worked out by hand, the tables, and a small measurement."""

import json
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

import pytest
from conftest import ROOT, leave_out

sys.path.insert(0, str(ROOT / "utils"))

import scaling
from clusters import scale
from clusters.database import missing
from clusters.scale import Row
from clusters.simulation import Costs, compare, costs_of, line, reach, simulate

PROGRAM = ROOT / "utils" / "scaling.py"
PATIENCE = 300  # seconds
FREE = Costs(server=0, database=0, delay=0, alone=0, waiting=0, sleeping=0, own=0, processors=1)


def row(workers: int = 1, **changes: Any) -> Row:
	"""A row in which each command of one second takes 0.1 s more, of which server and database work 0.03 s."""
	nothing = {"server": 0.0, "database": 0.0, "workers": 0.0, "client": 0.0}
	values = {
		"workers": workers,
		"seconds": 1.0,
		"commands": 10 * workers,
		"elapsed": 11.0,
		"overheads": [0.1] * 10,
		"waits": [0.05] * 10,
		"used": {
			"server": 0.2 * workers,
			"database": 0.1 * workers,
			"workers": 0.05 * workers,
			"client": 0.05 * workers,
		},
		"waiting": nothing,
		"sleeping": nothing,
	}
	return Row(**{**values, **changes})


def run(*words: object) -> "subprocess.CompletedProcess[str]":
	command = [sys.executable, str(PROGRAM), *map(str, words)]
	return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False)


def write(path: pathlib.Path, rows: List[Row]) -> pathlib.Path:
	machine: Dict[str, Any] = {"processor": "some", "system": "other", "load": "0.00 0.00 0.00"}
	record = {"runs": [each._asdict() for each in rows], "processors": 2, "machine": machine}
	path.write_text(json.dumps(record), encoding="utf-8")
	return path


# ---- the simulation


def test_workers_are_the_limit() -> None:
	"""Where nothing costs anything, each worker runs one command after the other."""
	found = simulate(FREE, 10, 2)
	assert found.rate == pytest.approx(5, rel=0.01)
	assert found.overhead == pytest.approx(0, abs=1e-6)
	assert found.limit == "workers"


def test_one_worker() -> None:
	"""All that a command takes adds up, as no other one is in its way."""
	costs = FREE._replace(server=0.1, database=0.2, delay=0.3, own=0.4)
	found = simulate(costs, 1, 1)
	assert found.overhead == pytest.approx(1)
	assert found.rate == pytest.approx(0.5, rel=0.01)


def test_delay_is_the_limit() -> None:
	"""A delay costs each worker the same, however many there are."""
	for workers in (1, 100):
		found = simulate(FREE._replace(delay=1), workers, 1)
		assert found.efficiency == pytest.approx(0.5, rel=0.02)
		assert found.limit == "workers"


def test_server_is_the_limit() -> None:
	"""A server of many processors still does one thing after the other: ten commands a second if each takes 0.1 s."""
	found = simulate(FREE._replace(server=0.1, processors=8), 50, 1)
	assert found.rate == pytest.approx(10, rel=0.02)
	assert found.limit == "server"
	# 50 commands are on their way at any time, so each one comes back after 5 s
	assert found.overhead == pytest.approx(4, rel=0.02)


def test_processors_are_the_limit() -> None:
	"""A database uses all processors of its host."""
	for processors, rate in ((1, 10), (2, 20)):
		found = simulate(FREE._replace(database=0.1, processors=processors), 50, 1)
		assert found.rate == pytest.approx(rate, rel=0.02)
		assert found.limit == "processors"


def test_one_machine() -> None:
	"""What workers and clients do takes processors only if they share them with the server."""
	costs = FREE._replace(own=0.1)
	assert simulate(costs, 50, 1).limit == "workers"
	assert simulate(costs, 50, 1, is_shared=True).rate == pytest.approx(10, rel=0.02)


def test_workers_cost_without_commands() -> None:
	"""What the server does for each worker that is busy leaves less of it for commands."""
	costs = FREE._replace(server=0.1)
	found = simulate(costs._replace(sleeping=0.02), 20, 1)
	assert found.rate < 0.9 * simulate(costs, 20, 1).rate
	assert found.limit == "server"


def test_simulations_repeat() -> None:
	"""The same is found each time."""
	costs = FREE._replace(server=0.01, database=0.02, delay=0.03, alone=0.04, waiting=0.001, own=0.05)
	assert simulate(costs, 30, 0.5) == simulate(costs, 30, 0.5)


# ---- what it is fed with


def test_costs() -> None:
	"""Processor times are shared among commands, and the delay is what is left of the overhead."""
	costs = costs_of([row(1), row(2)], 2)
	assert costs.server == pytest.approx(0.02) and costs.database == pytest.approx(0.01)
	assert costs.own == pytest.approx(0.01) and costs.delay == pytest.approx(0.06)
	assert (costs.alone, costs.waiting, costs.sleeping, costs.processors) == (0, 0, 0, 2)


def test_costs_without_commands() -> None:
	"""What goes on without commands counts for none of them."""
	rows = []
	for workers in (1, 2, 4):
		rest = {"server": 0.01 + 0.001 * workers, "database": 0.0, "workers": 0.0, "client": 0.0}
		busy = {**rest, "server": 0.01 + 0.002 * workers}
		used = {**row(workers).used, "server": 0.2 * workers + 11 * busy["server"]}
		rows.append(row(workers, waiting=rest, sleeping=busy, used=used))
	costs = costs_of(rows, 2)
	assert costs.alone == pytest.approx(0.01) and costs.waiting == pytest.approx(0.001)
	assert costs.sleeping == pytest.approx(0.002) and costs.server == pytest.approx(0.02)


def test_line() -> None:
	"""A line goes through points that are on one. It does not fall, and does not begin below zero."""
	assert line([(1, 3), (2, 5), (3, 7)]) == pytest.approx((1, 2))
	assert line([(1, 3), (2, 1)]) == pytest.approx((2, 0))
	assert line([(4, 3)]) == pytest.approx((3, 0))


def test_comparison() -> None:
	"""A simulation finds the rate again that it was fed with."""
	rows = [row(1), row(2)]
	for one in compare(rows, costs_of(rows, 2)):
		assert one.deviation == pytest.approx(0, abs=0.02)


def test_reach() -> None:
	"""The largest number counts up to which all were good, in any order."""
	costs = FREE._replace(server=0.1)
	found = [simulate(costs, workers, 1) for workers in (40, 2, 4, 1)]
	assert reach(found) == 4
	assert reach(found[:1]) == 0


# ---- the program


def test_show(tmp_path: pathlib.Path) -> None:
	"""The table has a line for each row, by their numbers of workers, and the pictures both curves."""
	record = write(tmp_path / "record.json", [row(2), row(1)])
	done = run("show", record, "--svg", tmp_path / "picture.svg", "--overheads", tmp_path / "overheads.svg")
	assert done.returncode == 0, done.stderr
	lines = [line.split() for line in done.stdout.splitlines()]
	assert lines[1][:5] == ["1", "0.9", "1.0", "91", "%"] and lines[2][:3] == ["2", "1.8", "2.0"]
	assert lines[1][5:] == ["100.0", "100.0", "50.0", "20.0", "10.0", "5.0", "5.0"]
	picture = (tmp_path / "picture.svg").read_text(encoding="utf-8")
	assert picture.count("<polyline") == 4 and "ideal" in picture
	overheads = (tmp_path / "overheads.svg").read_text(encoding="utf-8")
	assert overheads.count("<polyline") == 4 and "for 90 %" in overheads


def test_a_number_of_workers_that_was_measured_several_times_is_one_point() -> None:
	several = [row(2)._replace(elapsed=elapsed) for elapsed in (10.0, 20.0, 40.0)]
	assert scaling.rates(several)["measured"] == [(2, several[1].rate)]


def test_simulate(tmp_path: pathlib.Path) -> None:
	"""It says how far it is from what was measured, where the end is, and why."""
	record = write(tmp_path / "record.json", [row(1), row(2)])
	done = run("simulate", record, "--workers", "10,200", "--command-seconds", "1,20")
	assert done.returncode == 0, done.stderr
	assert "at least 80 % of the ideal up to 10 workers, then the limit: server" in done.stdout
	assert "commands of 20 s: at least 80 % of the ideal up to 200 workers, which is all" in done.stdout
	assert "deviation" in done.stdout


@pytest.mark.parametrize("text", ["", "[]", '{"runs": [], "processors": 2, "machine": {"load": ""}}', '{"runs": [{}]}'])
def test_wrong_record(tmp_path: pathlib.Path, text: str) -> None:
	"""A file that is something else is named in one line."""
	(tmp_path / "record.json").write_text(text, encoding="utf-8")
	done = run("show", tmp_path / "record.json")
	assert done.returncode == 2 and str(tmp_path / "record.json") in done.stderr
	assert len(done.stderr.splitlines()) == 1


@pytest.mark.thorough
@pytest.mark.timeout(PATIENCE + 60)
def test_measure(tmp_path: pathlib.Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
	"""Two workers on a real server: all commands ran, and both parts of the server have worked."""
	lack = missing()
	if sys.version_info < (3, 11):
		pytest.skip(lack)
	if lack:
		leave_out(lack)
	monkeypatch.setenv("WAFD", engine)
	record = tmp_path / "record.json"
	done = run("measure", "--workers", "1,2", "--seconds", "0.2", "--commands", "6", "--json", record)
	assert done.returncode == 0, done.stderr
	values = json.loads(record.read_text(encoding="utf-8"))
	rows = [scale.from_values(each) for each in values["runs"]]
	assert [(each.workers, each.commands) for each in rows] == [(1, 6), (2, 6)]
	for each in rows:
		assert min(each.overheads) > 0 and 0 < each.efficiency < 1
		assert each.used["server"] > 0 and each.used["database"] > 0
	assert run("simulate", record, "--workers", "10").returncode == 0
