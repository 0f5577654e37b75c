"""utils/bench.py project: real C++ code, with caches cold and warm."""

import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List

import pytest
from conftest import leave_out
from test_bench_campaign import BENCH, Done, finish, need, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import package
from benchmark.compiler import both_commands
from benchmark.mistake import Mistake
from benchmark.package import Crate, packages_in
from benchmark.sources import write_sources

FILES = {
	"one/one.cpp": '#include <string>\n#include "two.hpp"\nstd::string one() { return std::string(TWO, 0); }\n',
	"one/two.cc": '#include "two.hpp"\nint two() { return TWO; }\n',
	"one/two.hpp": "#define TWO 2\n",
	"one/plain.c": "not of this language\n",
}


@pytest.fixture
def code(project: Callable[..., pathlib.Path]) -> pathlib.Path:
	"""A folder with a package of C++ code."""
	return project(FILES, "code")


def test_packages_of_a_language(code: pathlib.Path) -> None:
	"""A package of C++ consists of what is compiled as such, whatever it ends with, and of headers."""
	(one,) = packages_in(str(code), "c++")
	assert (one.sources, list(one.files)) == (["one.cpp", "two.cc"], ["one.cpp", "two.cc", "two.hpp"])
	(code / "one" / "one.cpp").unlink()
	(code / "one" / "two.cc").unlink()
	with pytest.raises(Mistake, match=r"holds no C\+\+ sources"):
		packages_in(str(code), "c++")


def test_what_a_crate_leaves_out(tmp_path: pathlib.Path) -> None:
	"""Of a crate there are the folders that are named, without the files that are left out by a part of their names."""
	crate = Crate(
		"any", "any-sys", "1", "", ("src",), ("A=1",), "c++", (".", "include"), ("include/any",), "test|^main"
	)
	for name in ("src/a.cc", "src/a_test.cc", "src/main.cc", "src/amain.cc", "include/any/a.h", "other/b.cc"):
		path = tmp_path / crate.title / name
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_text("")
	found = crate.found_in(str(tmp_path))
	assert list(found.files) == ["src/a.cc", "src/amain.cc", "include/any/a.h"]
	assert found.sources == ["src/a.cc", "src/amain.cc"]
	written = write_sources(str(tmp_path / "project"), [found], both_commands("g++"), "-O1")
	options = "-O1 -Ipackages/any -Ipackages/any/include -DA=1"
	assert written.commands[0] == "g++ %s -c packages/any/src/a.cc -o out-xargs/packages/any/src/a.cc.o" % options


# ---- campaigns


def measured(done: Done) -> Dict[str, List[str]]:
	"""The parts that each contender has measured."""
	found: Dict[str, List[str]] = {}
	for run in done.record["runs"]:
		found.setdefault(run["contender"], []).append(run["part"])
	return found


def test_cold_and_warm(tmp_path: pathlib.Path, code: pathlib.Path, engine: str) -> None:
	"""All make the same objects, with whatever cache; the warm build's come from the cache, the cold one's do not."""
	need("g++", "ninja", "make", "ccache")
	names = ["ninja", "ninja+ccache", "ninja+wafcc", "make+wafcc", "waf+ccache", "waf+wafcache"]
	args = ("project", "--sources", str(code), "--contenders", ",".join(names), "--flags=-O1 -g", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert measured(done) == {name: ["cold", "warm"] for name in names}
	hits = {(run["contender"], run["part"]): run["values"].get("hits") for run in done.record["runs"]}
	for name in ("ninja+ccache", "ninja+wafcc", "make+wafcc", "waf+ccache"):
		assert (hits[name, "cold"], hits[name, "warm"]) == (0, 100)
	assert hits["ninja", "warm"] is None
	assert done.record["settings"]["real"] == {"project": {"packages": ["one (2 files)"], "flags": "-O1 -g"}}
	assert "one (2 files), compiled with -O1 -g" in done.out
	assert done.left == []


def test_who_makes_another_object_is_out(tmp_path: pathlib.Path, code: pathlib.Path) -> None:
	"""A contender whose objects differ is reported, and not compared."""
	need("g++", "ninja", "xargs")
	odd = tmp_path / "odd-g++"
	odd.write_text('#!/bin/sh\ncase "$*" in *-ninja*) exec g++ "$@" -g ;; *) exec g++ "$@" ;; esac\n')
	odd.chmod(0o755)
	args = ("project", "--sources", str(code), "--contenders", "xargs,ninja", "--compilers", str(odd), "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args))
	assert done.status == 1, done.err
	assert measured(done) == {"xargs": ["cold", "warm"]}
	assert done.record["failures"][0]["reason"].startswith("2 of its objects differ from those of xargs")


def test_the_real_packages(tmp_path: pathlib.Path) -> None:
	"""What the registry gives is what is expected, and all of it compiles."""
	need("g++", *([] if package.find_cargo() else ["cargo"]))
	try:
		found = package.find_packages(None, lambda line: None, language="c++")
	except Mistake as e:
		if "could not fetch" not in str(e):
			raise
		leave_out(str(e))
	assert [one.summary for one in found] == ["cadical-0.1.16 (81 files)", "leveldb-sys-2.0.9 (40 files)"]
	written = write_sources(str(tmp_path / "project"), found, both_commands("g++"), "-std=c++17")
	with ThreadPoolExecutor(2) as pool:
		complaints = list(pool.map(lambda command: preprocess(command, written.root), written.commands))
	assert (len(complaints), set(complaints)) == (121, {""})


def preprocess(command: str, folder: str) -> str:
	"""What a compiler says of a source and of the headers that it names."""
	argv = command.replace(" -c ", " -E ").split()
	argv[argv.index("-o") + 1] = os.devnull
	return subprocess.run(argv, cwd=folder, capture_output=True, encoding="utf-8", timeout=60).stderr
