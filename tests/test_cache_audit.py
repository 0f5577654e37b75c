"""Hits that are compiled again in the background: right results are confirmed, and wrong ones are reported."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from typing import Any, Dict

import pytest
from cache_support import COMPILERS, PATIENCE, Lab, in_turn
from conftest import list_processes

# A compiler whose result depends on something that is no fact: its rank. Audits have the lowest.
UNSEEN = '#!/bin/sh\nexec %s -DN=$(nice) "$@"\n'
# A compiler that writes that rank, and waits.
SLOW = '#!/bin/sh\n[ "$(nice)" = 19 ] && nice >begun && sleep 100\nexec %s "$@"\n'


def ours(lab: Lab, *options: str) -> "subprocess.CompletedProcess[str]":
	"""Run wafcc with options of its own."""
	argv = [lab.wafcc, *options]
	return subprocess.run(argv, env=lab.environ, capture_output=True, text=True, timeout=PATIENCE, check=False)


def count(lab: Lab) -> Dict[str, Any]:
	"""All counts."""
	return json.loads(ours(lab, "--show-stats", "--json").stdout)


def wait_for_audits(lab: Lab, number: int) -> Dict[str, Any]:
	"""Wait until so many hits were audited or left out; the counts then."""
	deadline = time.monotonic() + PATIENCE
	while True:
		counts = count(lab)
		done = counts["audited"] + sum(counts["not_audited"].values())
		if done >= number and counts["audits_waiting"] == 0:
			return counts
		assert time.monotonic() < deadline, counts
		time.sleep(0.05)


def install(lab: Lab, text: str) -> pathlib.Path:
	"""A compiler of our own."""
	real = shutil.which("gcc") or pytest.skip("needs gcc")
	tool = lab.folder / "tool" / "gcc"
	tool.parent.mkdir()
	tool.write_text(text % real)
	tool.chmod(0o755)
	return tool


@in_turn("options", ["-c x.c", "-g -O1 -MMD -c x.c -o out/x.o", "-Wall -MD -MF d -MT t -S x.c -o x.s"])
def test_hits_are_compiled_again(cc: str, options: str, lab: Lab) -> None:
	"""Every audited hit is served as a hit. A compile elsewhere gives the same, and leaves nothing there."""
	lab.write("f.h", "#define F 1\n")
	lab.write("x.c", '#include "f.h"\nstatic int f = F;\n')
	(lab.folder / "out").mkdir()
	line = f"{cc} {options}"
	lab.until_hit(line)
	assert ours(lab, "--audit", "100").returncode == 0
	before = lab.look()
	assert [lab.same(line).partition(":")[0] for _ in range(3)] == ["hit"] * 3
	counts = wait_for_audits(lab, 3)
	assert (counts["audited"], counts["different"], counts["not_audited"]) == (3, 0, {}), counts
	assert lab.look() == before
	report = ours(lab, "--audit-report")
	assert report.returncode == 0 and re.search(r"Audited hits: +3\n +Different: +0\n", report.stdout), report


def test_a_share_of_hits(lab: Lab) -> None:
	"""With a share of one half, three of six hits are compiled again."""
	if not COMPILERS:
		pytest.skip("needs a compiler")
	lab.write("x.c", "int f;\n")
	line = f"{COMPILERS[0]} -c x.c"
	lab.until_hit(line)
	ours(lab, "--audit", "50")
	assert [lab.same(line).partition(":")[0] for _ in range(6)] == ["hit"] * 6
	assert wait_for_audits(lab, 3)["audited"] == 3


def test_a_result_that_tells_its_name_is_compiled_in_its_place(lab: Lab) -> None:
	"""A command that cannot be run elsewhere is run instead of served, and compared as well."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	lab.write("x.c", "int f(void) { return 1; }\n")
	line = "gcc -fstack-usage -c x.c -o x.o"
	lab.until_hit(line)
	ours(lab, "--audit", "100")
	assert lab.same(line).startswith("miss: it is known, and compiled again")
	counts = count(lab)
	assert (counts["audited"], counts["different"]) == (1, 0), counts


def test_a_wrong_entry(lab: Lab) -> None:
	"""A hit that differs from a compile is counted and reported, the report has a status, and the entry is removed."""
	tool = install(lab, UNSEEN)
	lab.write("x.c", "int n = N;\n")
	line = f"{tool} -c x.c"
	lab.until_hit(line)
	ours(lab, "--audit", "100")
	right = lab.run(line, False)
	assert lab.run(line, True) == right and lab.explain(lab.folder / "x.o").startswith("hit")
	counts = wait_for_audits(lab, 1)
	assert (counts["audited"], counts["different"]) == (1, 1), counts
	report = ours(lab, "--audit-report")
	assert report.returncode == 1 and "files: " in report.stdout and str(tool) in report.stdout, report
	assert "1 results of the cache were different" in report.stderr and report.stderr.count("\n") == 1
	assert lab.run(line, True) == right
	assert lab.explain(lab.folder / "x.o").startswith("miss: it was not seen before"), "the entry is there still"
	assert ours(lab, "--zero-stats").returncode == ours(lab, "--audit-report").returncode == 0


def test_inputs_that_changed_meanwhile(lab: Lab) -> None:
	"""A header that has changed meanwhile is no difference."""
	if not COMPILERS:
		pytest.skip("needs a compiler")
	header = lab.write("f.h", "#define F 1\n")
	lab.write("x.c", '#include "f.h"\nint f = F;\n')
	line = f"{COMPILERS[0]} -c x.c"
	lab.until_hit(line)
	ours(lab, "--audit", "100")
	assert lab.same(line).startswith("hit")
	header.write_text("#define F 2\n")
	counts = wait_for_audits(lab, 1)
	assert (counts["different"], counts["not_audited"]) == (0, {"its inputs have changed": 1}), counts


def test_a_compiler_that_draws_lots(lab: Lab) -> None:
	"""The random numbers that gcc writes for the linker's optimization are no difference."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	lab.write("x.c", "int f;\n")
	deadline = time.monotonic() + PATIENCE
	while lab.run("gcc -flto -c x.c", True) and not lab.explain(lab.folder / "x.o").startswith("hit"):
		assert time.monotonic() < deadline, "never a hit"
	ours(lab, "--audit", "100")
	assert lab.run("gcc -flto -c x.c", True).status == 0
	counts = wait_for_audits(lab, 1)
	assert counts["different"] == 0 and not set(counts["not_audited"]) - {"its results differ from run to run"}, counts


def wait_for(path: pathlib.Path) -> str:
	"""Wait until a file has some content, and return that."""
	deadline = time.monotonic() + PATIENCE
	while not path.exists() or not path.read_text():
		assert time.monotonic() < deadline, f"{path} does not appear"
		time.sleep(0.02)
	return path.read_text()


def begin_slowly(lab: Lab) -> pathlib.Path:
	"""Have an audit begin that takes long; the file that it writes first."""
	tool = install(lab, SLOW)
	lab.write("x.c", "int f;\n")
	lab.until_hit(f"{tool} -c x.c")
	ours(lab, "--audit", "100")
	assert lab.run(f"{tool} -c x.c", True).status == 0
	ours(lab, "--audit", "0")
	return lab.folder / "begun"


def test_a_command_comes_first(lab: Lab) -> None:
	"""An audit has the lowest rank, is killed when a command comes, and is given up after three times."""
	begun = begin_slowly(lab)
	lab.write("y.c", "int g;\n")
	for _ in range(3):
		assert wait_for(begun).strip() == "19"
		begun.unlink()
		assert lab.run("gcc -c y.c", True).status == 0
	counts = wait_for_audits(lab, 1)
	assert (counts["audited"], counts["not_audited"]) == (0, {"it was interrupted": 1}), counts
	assert not begun.exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_engine_that_ends(is_killed: bool, lab: Lab, runtime: pathlib.Path) -> None:
	"""When the engine ends, also when it is killed, its audits end with it."""
	wait_for(begin_slowly(lab))
	tool = str(lab.folder / "tool" / "gcc")
	slow = {process for process, command in list_processes(runtime).items() if tool in command}
	assert slow
	if is_killed:
		status = subprocess.run(
			[lab.engine, "status", "--json"], env=lab.environ, stdout=subprocess.PIPE, timeout=PATIENCE, check=True
		)
		os.kill(json.loads(status.stdout)["pid"], signal.SIGKILL)
	else:
		assert ours(lab, "--shutdown").returncode == 0
	deadline = time.monotonic() + PATIENCE
	while slow & set(list_processes(runtime)):
		assert time.monotonic() < deadline, "it runs still"
		time.sleep(0.02)
	assert count(lab)["not_audited"] == ({} if is_killed else {"it was interrupted": 1})
