"""utils/bench.py configure: what it checks, and that nobody wins by finding less."""

import os
import pathlib
import sys
from types import SimpleNamespace
from typing import Any, Dict

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "utils" / "bench.py"
sys.path.insert(0, str(BENCH.parent))

import bench  # noqa: E402
from benchmark import contender, phases, scenario, workshop  # noqa: E402
from benchmark.compiler import both_commands  # noqa: E402
from benchmark.mistake import Failed  # noqa: E402
from benchmark.project import Project  # noqa: E402
from benchmark.run import Lane, Run  # noqa: E402
from test_bench_campaign import finish, need, start  # noqa: E402


def test_configure_by_all_of_waf(tmp_path: pathlib.Path, engine: str) -> None:
	"""Waf with its pool, without it and with prefork find the same; sizes of genbench are no part of the settings."""
	need("gcc")
	args = ("configure", "--contenders", "waf,waf-nopool,prefork", "--compilers", "gcc", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, "--commands", "18", WAFD=engine))
	assert done.status == 0, done.err
	assert sorted(done.values("configure")) == ["prefork", "waf", "waf-nopool"]
	assert {run["compiler"] for run in done.record["runs"]} == {"gcc"}
	assert "18 commands in configure" in done.out and "genbench" not in done.out
	assert done.left == [] and os.listdir(str(done.work)) == []


def test_a_compiler_that_answers_differently(tmp_path: pathlib.Path) -> None:
	"""Who finds something else than the first contender has failed, and the first difference is told."""
	need("gcc")
	odd = tmp_path / "odd-gcc"
	# Waf without its pool says so in the environment of its compilers
	odd.write_text('#!/bin/sh\n[ -n "$WAF_NO_PREFORK" ] && case "$*" in *-Wall*) exit 1;; esac\nexec gcc "$@"\n')
	odd.chmod(0o755)
	args = ("configure", "--contenders", "waf,waf-nopool", "--compilers", str(odd), "--repeat", "1", "--commands", "9")
	done = finish(tmp_path, start(tmp_path, *args))
	assert done.status == 1, done.err
	assert list(done.values("configure")) == ["waf"]
	reason = done.record["failures"][0]["reason"]
	assert "its answers has '6 compiler flags -Wall: None' where that of waf-" in reason
	assert reason.endswith("has '6 compiler flags -Wall: True'")


def test_a_configure_that_wrote_nothing(tmp_path: pathlib.Path) -> None:
	"""A configure without its files is a failure that names the file."""
	project = Project(str(tmp_path), "c")
	run = SimpleNamespace(project=project, lane=SimpleNamespace(label="waf"), path=lambda name: str(tmp_path / name))
	with pytest.raises(Failed, match="it wrote no answers: No such file"):
		phases.compare_answers(run)  # type: ignore[arg-type]


def load_project() -> Dict[str, Any]:
	"""The names of the project's wscript."""
	path = pathlib.Path(scenario.__file__).parent / "projects" / "configure" / "wscript"
	names: Dict[str, Any] = {}
	exec(compile(path.read_text(), str(path), "exec"), names)
	return names


def test_all_checks_are_made_by_default() -> None:
	"""The default number of checks is all that there are, each once: no two have the same message."""
	checks = load_project()["interleaved"]()
	options = bench.arguments.parse(["configure"])
	count = bench.settle(options, [contender.find_contender("waf")])["commands"]["configure"]
	assert len({check["msg"] for check in checks}) == len(checks) == count
	assert {"header stdio.h", "function strtoll", "size of long", "library m"} <= {check["msg"] for check in checks}


def test_compilers_are_asked_for_c_only() -> None:
	"""Each compiler has a table of its own, and its C command is what is used, whatever --language says."""
	configure = scenario.SCENARIOS["configure"]
	assert configure.compiles and not configure.is_generated
	assert configure.language("c++") == "c"
	assert scenario.SCENARIOS["full"].language("c++") == "c++" and scenario.SCENARIOS["full"].is_generated
	assert not scenario.SCENARIOS["client"].compiles


def test_a_run_has_the_compilers_of_its_project(tmp_path: pathlib.Path) -> None:
	"""A project of C gives its builds CC, one of C++ CXX, and one without sources neither."""
	place = workshop.Workshop(str(tmp_path), {})
	lane = Lane(contender.find_contender("waf"), both_commands("clang++"), None)
	wanted = {"c": {"CC": "clang"}, "c++": {"CXX": "clang++"}, "both": {"CC": "clang", "CXX": "clang++"}}
	for language, compilers in wanted.items():
		assert Run(lane, Project(str(tmp_path), language), place, 1, 0).compilers == compilers
	assert Run(lane._replace(compiler=None), Project(str(tmp_path)), place, 1, 0).compilers == {}
	assert place.close(keep=False) == []
