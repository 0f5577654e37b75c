"""The table of the README: its rows name what is measured, and it is printed from the records of its campaigns."""

import json
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

import pytest
from benchmark import arguments, machine, readme, scenario
from benchmark.contender import find_contender
from benchmark.mistake import Mistake
from benchmark.scenario import SCENARIOS
from test_bench_campaign import BENCH, need


def bench(*argv: str) -> "subprocess.CompletedProcess[str]":
	return subprocess.run(
		[sys.executable, str(BENCH), "readme", *argv], capture_output=True, encoding="utf-8", timeout=300, check=False
	)


@pytest.mark.parametrize("row", readme.ROWS, ids=lambda row: row.text)
def test_rows_name_what_is_measured(row: readme.Row) -> None:
	"""The campaign of a row has its scenario and its contenders, and these can run it."""
	campaign = readme.CAMPAIGNS[row.campaign]
	options = arguments.parse(readme.words_of(campaign, 1, {readme.CPYTHON: "python3", readme.PYPY: "pypy3"}))
	assert row.scenario in options.scenarios
	assert row.compiler in ("", *options.compilers)
	assert campaign.on_pypy == (row.python == readme.PYPY) or row.python == readme.CPYTHON
	for name in (row.ours, row.peer):
		assert name in options.contenders
		assert SCENARIOS[row.scenario].needs in find_contender(name, {}).abilities
	assert options.baseline in options.contenders


def make_record(runs: List[Dict[str, Any]], **more: Any) -> Dict[str, Any]:
	known = {"measures": scenario.TIMES, "baseline": "ninja", "title": "", "note": ""}
	machine_of = {"load": "0.25 0.10 0.05", "versions": {"ninja": "1.13"}, "quiet": True}
	return {
		"format": "waflib-extras bench",
		"version": 0,
		"scenarios": {"onefile": known},
		"machine": {**machine_of, **more},
		"runs": runs,
		"left_out": [],
		"failures": [],
		"finished": True,
	}


def run_of(contender: str, repetition: int, wall: float, interpreter: str = "") -> Dict[str, Any]:
	lane = {"contender": contender, "interpreter": interpreter or None, "compiler": "g++"}
	return {"scenario": "onefile", "part": "", "repetition": repetition, "values": {"wall": wall}, **lane}


RUNS = [
	*(run_of("ninja", number, wall) for number, wall in enumerate((0.2, 0.1, 0.3))),
	*(run_of("resident", number, wall, "python3") for number, wall in enumerate((0.1, 0.08, 0.09))),
	*(run_of("resident", number, 9.0, "pypy3") for number in range(3)),
	*(run_of("waf+wafcc-resident", number, wall, "python3") for number, wall in enumerate((0.3, 0.2, 6.0))),
]


def test_the_table() -> None:
	"""Medians, the median of ratios within rounds, and the load; bold where ours is quicker."""
	table = readme.show_table({"edits": make_record(RUNS)})
	assert "with `resident`, and ninja | **0.090 s** | 0.20 s | **0.50** | 0.25 |" in table
	assert "wafcc large resident`, and ninja | 0.30 s | 0.20 s | 2.00 | 0.25 |" in table
	assert table.count("not measured") == len(readme.ROWS) - 2
	assert "| 0.25, busy |" in readme.show_table({"edits": make_record(RUNS, quiet=False)})


def test_reasons() -> None:
	record = make_record([])
	record["left_out"] = [("ninja", "not installed")]
	record["failures"] = [{"scenario": "noop", "contender": "resident", "reason": "it has ended"}]
	told = readme.show_reasons({"edits": record, "full": make_record([])})
	assert told == ["left out: ninja: not installed", "FAILED: noop, resident: it has ended", "version    ninja: 1.13"]


def test_waiting_for_an_idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
	"""It says what it waits for, and how it ended."""
	said: List[str] = []
	shares = [0.5, 0.04]
	monkeypatch.setattr(readme, "busy", lambda seconds: shares.pop(0))
	assert readme.wait_until_quiet(said.append)
	assert said == ["waiting until the machine is idle: 50 % of its processors are busy"]
	monkeypatch.setattr(readme, "busy", lambda seconds: 0.5)
	monkeypatch.setattr(readme, "PATIENCE", 0)
	assert not readme.wait_until_quiet(said.append)
	# the kernel does not tell
	monkeypatch.setattr(readme, "busy", lambda seconds: None)
	assert readme.wait_until_quiet(said.append)
	assert machine.busy(0.01) is None or machine.busy(0.01) <= 1


@pytest.mark.parametrize(
	("value", "text"), [(0.0271, "0.027 s"), (0.38, "0.38 s"), (8.26, "8.3 s"), (1396.4, "1,396 s")]
)
def test_digits(value: float, text: str) -> None:
	assert readme.write_time(value, "s") == text


@pytest.mark.parametrize(
	("argv", "words"),
	[
		(["--only", "fool"], "no campaign fool: there are full, cache"),
		(["--interpreters", "a,b,c"], "name one CPython"),
		(["--records", "/nowhere", "--show"], "/nowhere has no records yet: run bench.py readme"),
	],
)
def test_mistakes(argv: List[str], words: str) -> None:
	done = bench(*argv)
	assert done.returncode == 2
	assert words in done.stderr
	assert done.stderr.count("\n") == 1


SMALLER = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
import bench
from benchmark import readme
readme.PATIENCE = 0
whole = readme.CAMPAIGNS["tasks"]
readme.CAMPAIGNS["tasks"] = whole._replace(words=tuple(word.replace("100000", "1000") for word in whole.words))
sys.exit(bench.main(sys.argv[1:]))
"""


def test_a_campaign(tmp_path: pathlib.Path) -> None:
	"""One campaign of one round, whose row the table has then; and the table again, without measuring."""
	need("gcc")
	argv = ["readme", "--only", "tasks", "--repeat", "1", "--records", str(tmp_path), "--interpreters", sys.executable]
	command = [sys.executable, "-c", SMALLER, str(BENCH.parent), *argv]
	done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300, check=False)
	assert done.returncode == 0, done.stderr
	(row,) = [line for line in done.stdout.splitlines() if line.startswith("| 100,000 tasks of Python")]
	assert row.count(" s") >= 2
	assert "quiet" in json.loads((tmp_path / "tasks.json").read_text())["machine"]
	assert row in bench("--records", str(tmp_path), "--show").stdout
	with pytest.raises(Mistake):
		readme.show(str(tmp_path / "none"))
