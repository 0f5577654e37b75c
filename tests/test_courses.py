"""Commands of gcc's drivers that run as their parts have the same effects, to the byte, as with the driver."""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time
from typing import Callable, Dict, List

import pytest
from compiler_support import Comparison, compare, judge_programs, read_report, split

PATIENCE = 60.0  # seconds
SEED = "-frandom-seed=1"
SIMPLE = [
	"-c a.c -o a.o",
	"-c -o a.o a.c",
	"-I. a.c -c -osub/a.c.1.o",
	"-c a.c -o b.o",
	"-c a.c -o sub/out.o",
	"-c a.c -o a.c.1.o",
	"-c sub/a.b.c -o sub/a.b.c.o",
	"-c ./sub/../a.c -o ./sub/../x.o",
	"-O2 -g -c a.c -o sub/out.o",
	"-g3 -gdwarf-5 -c a.c -o a.o",
	"-Wall -Wextra -fdiagnostics-color=always -c warn.c -o warn.o",
	"-Wall -Werror -c warn.c -o warn.o",
	"-MMD -MP -c a.c -o sub/a.o",
	"-MD -MF sub/a.d -MT sub/target.x -c a.c -o a.o",
	f"--coverage {SEED} -c a.c -o sub/a.o",
	"-std=c11 -Isub -I . '-DNAME=\"a b\"' -UTWO -c a.c -o a.o",
	"-include sub/a.h -c a.c -o a.o",
	"-march=native -fPIC -pthread -c a.c -o a.o",
	"-c a.c -o missing/out.o",
	"-c wrong.c -o wrong.o",
	"-c badasm.c -o badasm.o",
	"-Dno/such -c a.c -o a.o",
]
SIMPLE_CXX = ["-c b.cc -o b.o", "-O2 -g -std=c++20 -MMD -c b.cc -o sub/b.o", "-c wrong.cc -o wrong.o"]
OTHER = [
	"-c a.c",
	"-pipe -c a.c -o a.o",
	"-save-temps -c a.c -o a.o",
	"-v -c a.c -o a.o",
	"-g -gsplit-dwarf -c a.c -o a.o",
	f"-flto {SEED} -c a.c -o a.o",
	"-E a.c -o a.i",
	"-c asm2.S -o asm.o",
	"-Wa,-L -c a.c -o a.o",
	"a.c main.c -o prog",
	"-B sub -c a.c -o a.o",
	"-x c -c a.c -o a.o",
]


def read_courses(engine: str) -> Dict:
	"""The engine's report about the courses that it knows."""
	return read_report(engine)["courses"]


def learn(comparison: Comparison, engine: str, argv: List[str], env: Dict[str, str]) -> None:
	"""Run a command until it is run as its parts."""
	before = read_courses(engine)["commands"]
	deadline = time.monotonic() + PATIENCE
	while read_courses(engine)["commands"] == before:
		comparison.run(argv, env, True)
		assert time.monotonic() < deadline, f"{argv} is not run as its parts: {read_report(engine)}"


def learn_and_compare(comparison: Comparison, engine: str, argv: List[str], env: Dict[str, str]) -> None:
	"""Fail if a command that runs as its parts has other effects than the driver."""
	learn(comparison, engine, argv, env)
	before = read_courses(engine)["commands"]
	compare(comparison, [(argv, env)])
	assert read_courses(engine)["commands"] == before + 1


@pytest.mark.parametrize("compiler, lines", [("gcc", SIMPLE), ("g++", SIMPLE_CXX)])
def test_options(compiler: str, lines: List[str], comparison: Comparison, engine: str) -> None:
	"""Status, output, messages and files are the same, also of compiles that fail, in the compiler or the assembler."""
	judge_programs(comparison, engine, [[compiler, "-c", "b.cc" if compiler == "g++" else "a.c"]])
	for line in lines:
		learn_and_compare(comparison, engine, [compiler, *split(line)], {})


def test_other_commands_keep_their_driver(comparison: Comparison, engine: str) -> None:
	"""A command with more than compiler and assembler, or with output of the driver itself, is left to the driver."""
	judge_programs(comparison, engine, [["gcc", "-c", "a.c"]])
	for line in OTHER:
		for _ in range(4):
			comparison.run(["gcc", *split(line)], {}, True)
	compare(comparison, [(["gcc", *split(line)], {}) for line in OTHER])
	assert read_courses(engine)["commands"] == 0


def test_one_shape_for_many_names(comparison: Comparison, engine: str) -> None:
	"""A known course serves all commands of its shape. A missing source is left to the driver, which reports it."""
	judge_programs(comparison, engine, [["gcc", "-c", "a.c"]])
	learn(comparison, engine, split("gcc -c a.c -o a.o"), {})
	before = read_courses(engine)["commands"]
	compare(
		comparison,
		[(["gcc", "-c", f"{name}.c", "-o", f"{name}.o"], {}) for name in ("main", "warn", "wrong", "usepre")],
	)
	assert read_courses(engine)["commands"] == before + 4
	compare(comparison, [(["gcc", "-c", "missing.c", "-o", "missing.o"], {})])
	assert read_courses(engine)["commands"] == before + 4


def test_environments(comparison: Comparison, engine: str) -> None:
	"""Each environment has its own course, and its parts get the environment that the driver would give them."""
	judge_programs(comparison, engine, [["gcc", "-c", "a.c"]])
	for env in ({"CPATH": "sub"}, {"DEPENDENCIES_OUTPUT": "deps"}, {"GCC_COLORS": "error=01;32"}):
		learn_and_compare(comparison, engine, split("gcc -c a.c -o a.o"), env)


def add_assembler(folder: pathlib.Path, word: str) -> None:
	"""Put an assembler into a folder that says a word before it works."""
	path = folder / "fresh"
	path.write_text(f'#!/bin/sh\necho {word}\nexec {shutil.which("as")} "$@"\n')
	path.chmod(0o755)
	path.rename(folder / "as")


def test_an_assembler_that_comes_later(comparison: Comparison, engine: str) -> None:
	"""An assembler that appears where the driver looks first is used from then on, and no other after it is gone."""
	tools = comparison.base / "tools"
	tools.mkdir()
	env = {"COMPILER_PATH": str(tools)}
	judge_programs(comparison, engine, [["gcc", "-c", "a.c"]])
	learn_and_compare(comparison, engine, split("gcc -c a.c -o a.o"), env)
	for word in ("first", "second"):
		add_assembler(tools, word)
		deadline = time.monotonic() + PATIENCE
		while comparison.run(split("gcc -c a.c -o a.o"), env, True).stdout != f"{word}\n":
			assert time.monotonic() < deadline, f"the assembler that says {word} is not used"
		learn_and_compare(comparison, engine, split("gcc -c a.c -o a.o"), env)
	(tools / "as").unlink()
	deadline = time.monotonic() + PATIENCE
	while comparison.run(split("gcc -c a.c -o a.o"), env, True).stdout:
		assert time.monotonic() < deadline, "the assembler that is gone is still used"
	learn_and_compare(comparison, engine, split("gcc -c a.c -o a.o"), env)


@pytest.mark.parametrize("size", [100, 1500])
def test_a_part_that_a_signal_ends(size: int, comparison: Comparison, engine: str) -> None:
	"""If a signal ends the compiler or the assembler, the driver reports that in its own words."""
	judge_programs(comparison, engine, [["gcc", "-c", "a.c"]])
	argv = split("gcc -g -c a.c -o a.o")
	comparison.prepare = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
	learn_and_compare(comparison, engine, argv, {})
	assert "signal terminated program" in comparison.run(argv, {}, True).stderr


def wait_for(what: str, condition: Callable[[], bool]) -> None:
	"""Wait until a condition holds."""
	deadline = time.monotonic() + PATIENCE
	while not condition():
		assert time.monotonic() < deadline, what
		time.sleep(0.01)


@pytest.mark.parametrize("name, sign", [("endless.c", b""), ("endlessasm.c", b".ident")])
def test_an_interrupt_leaves_nothing(name: str, sign: bytes, comparison: Comparison, engine: str) -> None:
	"""A command that is interrupted in one of its parts ends soon, and leaves neither object nor temporary file."""
	judge_programs(comparison, engine, [["gcc", "-c", "a.c"]])
	learn(comparison, engine, split("gcc -O3 -c a.c -o b.o"), {})
	before = read_courses(engine)["commands"]
	temporary, work = comparison.base / "tmp", comparison.base / "work"
	gcc = shutil.which("gcc") or "gcc"  # by the name with which its course was learned
	argv = [comparison.wafcc, "run", "--no-cache", "--", gcc, *split(f"-O3 -c {name} -o object.o")]
	child = subprocess.Popen(argv, cwd=work, env=comparison.environ, stderr=subprocess.PIPE)
	wait_for("its part does not run", lambda: any(sign in path.read_bytes() for path in temporary.iterdir()))
	child.send_signal(signal.SIGINT)
	child.communicate(timeout=PATIENCE)
	assert child.returncode == -signal.SIGINT
	assert read_courses(engine)["commands"] == before + 1
	wait_for("temporary files stay", lambda: not any(temporary.iterdir()))
	assert not os.path.exists(work / "object.o")
