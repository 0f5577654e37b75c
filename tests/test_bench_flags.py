"""The scenario of utils/bench.py about what flags and checks cost."""

import os
import pathlib
import sys
from typing import Any

import pytest
from test_bench_campaign import BENCH, finish, need, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import price, report
from benchmark.compiler import both_commands
from benchmark.contender import DEFAULT, find_contender
from benchmark.scenario import SCENARIOS

TINY = ("--language", "c", "--compilers", "gcc", "--size", "1,2,1,1")


def test_flags_are_priced(tmp_path: pathlib.Path, engine: str) -> None:
	"""Each set of flags that the compiler knows is built cold and warm; what it refuses is left out, and told of."""
	need("gcc", "ninja")
	argv = ("flags", "--contenders", "ninja+wafcc", *TINY, "--repeat", "2", "--extras=-Wall,-O2 -g,--analyze")
	done = finish(tmp_path, start(tmp_path, *argv, WAFD=engine))
	assert done.status == 0, done.err
	runs = done.record["runs"]
	parts = [run["part"] for run in runs if run["repetition"] == 0]
	assert sorted(parts) == ["-O2 -g", "-Wall", "plain"]
	assert parts[0] != next(run["part"] for run in runs if run["repetition"] == 1)
	assert "flags, --analyze, gcc: left out: gcc" in done.out
	for run in runs:
		values = run["values"]
		assert values["back"] == pytest.approx(100 * (1 - values["warm"] / values["wall"]))
		assert values["hits"] >= 100, run
	rows = [line for line in done.out.splitlines() if "  ninja+wafcc  " in line]
	assert [row.split("  ninja")[0].strip() for row in rows] == ["plain", "-Wall", "-O2 -g"]
	assert rows[0].split()[6] == "1.00" and done.left == []


def test_what_fails_on_the_project_is_left_out(tmp_path: pathlib.Path, engine: str) -> None:
	"""Flags with which something small compiles but the project does not are told of; the others are measured."""
	need("gcc", "ninja")
	odd = tmp_path / "odd-gcc"
	odd.write_text('#!/bin/sh\ncase "$*" in *-O3*lib_0*) echo "too hard" >&2; exit 1 ;; esac\nexec gcc "$@"\n')
	odd.chmod(0o755)
	argv = ("flags", "--contenders", "ninja+wafcc", *TINY[:2], *TINY[4:], "--compilers", str(odd), "--repeat", "1")
	argv = (*argv, "--extras=-O2,-O3")
	done = finish(tmp_path, start(tmp_path, *argv, WAFD=engine))
	assert done.status == 0, done.err
	parts = {run["part"] for run in done.record["runs"]}
	assert "-O2" in parts and "-O3" not in parts
	assert "flags, -O3, ninja+wafcc" in done.out and "left out: exit status 1" in done.out


def test_probes(tmp_path: pathlib.Path) -> None:
	"""A compiler is asked by having it compile; why it cannot is what it says."""
	need("gcc")
	compiler = both_commands("gcc")
	env = dict(os.environ)
	assert price.find_refusal("-O2", compiler, "both", str(tmp_path), env) == ""
	assert "no-such-flag" in price.find_refusal("-fno-such-flag", compiler, "c", str(tmp_path), env)


def test_extras() -> None:
	"""Flags that nobody thought of are compared as they are; the plain build always comes first."""
	assert list(price.flag_sets(None)) == [price.PLAIN, *price.FLAGS]
	assert list(price.flag_sets(["-O2 -flto", "-g"]).values()) == ["", "-O2 -flto", "-g"]


def test_who_takes_part() -> None:
	"""Whoever builds with a cache that we know how to empty."""
	able = [name for name in DEFAULT if SCENARIOS["flags"].needs in find_contender(name).abilities]
	assert able == ["waf+ccache", "waf+wafcc", "ninja+ccache", "ninja+wafcc"]


def run_of(part: str, repetition: int, wall: float) -> Any:
	"""A run as records hold it."""
	values = {"wall": wall, "warm": wall / 10, "back": 90.0}
	base = {"scenario": "flags", "contender": "ninja+wafcc", "compiler": "gcc", "interpreter": None}
	return {**base, "part": part, "repetition": repetition, "values": values}


def test_ratios_are_to_plain() -> None:
	"""The table is in the order of the flags, each is paired with the plain build of its repetition."""
	runs = [run_of("-O2", 0, 3.0), run_of("plain", 0, 1.0), run_of("plain", 1, 10.0), run_of("-O2", 1, 40.0)]
	about = {
		"title": "t",
		"measures": [["wall", "s"], ["warm", "s"], ["back", "%"]],
		"rows": ["plain", "-O2"],
		"baseline": None,
	}
	settings = {"contenders": ["ninja+wafcc"], "interpreters": [], "baseline": None}
	record = {"runs": runs, "scenarios": {"flags": about}, "settings": settings}
	(text,) = report.show_all_rows(record, "flags", report.tables_of(runs), False)
	rows = [line.split() for line in text.splitlines()[2:]]
	assert [row[0] for row in rows] == ["plain", "-O2"]
	assert [row[6] for row in rows] == ["1.00", "3.50"] and rows[1][-1] == "2"
