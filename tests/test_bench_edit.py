"""utils/bench.py edit: function bodies are edited, and each contender builds after each edit."""

import pathlib
from typing import Callable

import pytest
from test_bench_campaign import finish, need, start

HEAD = "#include <iostream>\n#include <map>\n#include <string>\n"
BODY = 'int %s(int a) {\n  return std::string("%s").size() + a;\n}\n'
FILES = {"one/src/%s.cpp" % name: HEAD + BODY % (name, name) for name in ("one", "two")}


@pytest.fixture
def code(project: Callable[..., pathlib.Path]) -> pathlib.Path:
	"""A folder with a package of C++ code."""
	return project(FILES, "code")


def test_edits(tmp_path: pathlib.Path, code: pathlib.Path, engine: str) -> None:
	"""All make the same objects, also after their headers; the sources are as before, and nothing is left."""
	need("g++", "ninja", "ccache")
	names = ["ninja", "ninja+ccache", "ninja+wafcc", "ninja+wafcc-preambles", "waf+wafcc-preambles"]
	args = ("edit", "--sources", str(code), "--contenders", ",".join(names), "--flags=-O0", "--commands", "1")
	done = finish(tmp_path, start(tmp_path, *args, "--repeat", "1", WAFD=engine))
	assert done.status == 0, done.err
	assert [run["contender"] for run in done.record["runs"]] == names
	assert all(run["values"]["wall"] > 0 for run in done.record["runs"])
	assert done.left == []
	assert {name: (code / name).read_text() for name in FILES} == FILES


def test_too_few_sources(tmp_path: pathlib.Path, code: pathlib.Path) -> None:
	"""Where fewer sources have functions than are to be edited, that is said, with the remedy."""
	need("g++", "ninja")
	args = ("edit", "--sources", str(code), "--contenders", "ninja", "--commands", "9", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args))
	assert done.status == 1
	assert "it has 2 sources with functions: ask for fewer with --commands" in done.record["failures"][0]["reason"]
