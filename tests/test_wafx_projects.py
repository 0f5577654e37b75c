"""Real projects with their own copies of Waf: `wafx` makes the same files, and then has hits."""

import os
import pathlib
import re
import shutil
import sys
from typing import List, NamedTuple, Tuple

import pytest
from conformance import twins
from conformance.twins import Exemption, blur
from conftest import find_source, leave_out

pytestmark = pytest.mark.timeout(2400)  # others use the machine, too
LONGEST = 1000  # seconds for one run of Waf


class Real(NamedTuple):
	pattern: str
	"""Its folder below the sources that .ci/run fetches."""
	python: str
	options: Tuple[str, ...]
	targets: str
	"""What is built; all if it is empty."""
	cached: int
	"""At least so many commands are stored, and are hits then."""
	exemptions: Tuple[Exemption, ...] = ()


REAL = [
	# Its Waf 2.0.12 is too old for Python 3.11. What is built of it is a third: the library for clients, in C and C++
	Real(
		"jack2-*",
		"pypy3",
		tuple("--%s=no" % part for part in ("alsa", "db", "opus", "samplerate", "sndfile", "zalsa")),
		"clientlib",
		30,
	),
	Real(
		"ntpsec-*",
		sys.executable,
		("--notests",),
		"",
		100,
		(Exemption("*/ntp_keyword.h", blur(r"Generated .*"), "a generator writes the time of day"),),
	),
]


@pytest.mark.parametrize("real", REAL, ids=[real.pattern[:-2] for real in REAL])
def test_builds_the_same(
	real: Real, engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""A project gives the same files with `prefork` and `wafcc`. Built anew in its place, its compiles are hits."""
	source = find_source(real.pattern)
	env = {k: v for k, v in os.environ.items() if k not in ("WAFDIR", "NOCLIMB", "JOBS", "DESTDIR", "PREFIX")}
	env.update(WAFD=engine, WAFCC_DIR=str(tmp_path / "cache"), LANG="C.UTF-8", PYTHONHASHSEED="1")
	env.update(PYTHONPYCACHEPREFIX=str(tmp_path / "bytecode"), CFLAGS="-O0", CXXFLAGS="-O0")
	env["SOURCE_DATE_EPOCH"] = "1600000000"
	if not shutil.which(real.python):
		pytest.skip("apt-get install pypy3")
	waf = [real.python, "./waf"]
	wafx = [sys.executable, "-m", "waflib_extras.wafx", *waf]

	def build(command: List[str], side: str, *more: str) -> twins.Build:
		chosen = ["--targets=" + real.targets] if real.targets else []
		lines = [[*command, "configure", *real.options], [*command, "build", "-j2", *real.options, *chosen, *more]]
		sources = {source: pathlib.Path("it")}
		return twins.build_aside(sources, tmp_path / "work", tmp_path / side, lines, env, "it", LONGEST)

	stock = build(waf, "stock")
	if not stock.succeeded:
		leave_out(f"{real.pattern} does not build with its own Waf here\n{stock.runs[-1]}")
	cold = build(wafx, "cold")
	assert cold.succeeded, str(cold.runs[-1])
	standard = twins.Standard(ordered=False, exemptions=real.exemptions)
	assert twins.compare_builds(stock, cold, standard) == []
	shutil.rmtree(cold.folder)
	warm = build(wafx, "warm", "--zones=wafcc")
	assert twins.compare_trees(stock.folder, warm.folder, standard) == []
	found = re.search(rb"wafcc (\d+) hits, (\d+) misses", warm.runs[-1].stdout + warm.runs[-1].stderr)
	assert found and int(found.group(1)) >= real.cached and int(found.group(2)) <= real.cached // 10, found
