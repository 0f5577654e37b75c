"""utils/fuzzedits.py: random edits of real sources show no difference, and a wrapper that lies is found."""

import pathlib
import random
import re
import shutil
import subprocess
import sys
from typing import Callable

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "utils"))

from sourcefuzz.edit import Tree  # noqa: E402

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")]
FILES = {
	"one/src/a.cc": '#include <iostream>\n#include <map>\n#include <string>\n#include "a.h"\nint a() { return A; }\n',
	"one/src/a.h": "#pragma once\n#define A 1\n",
}
LYING = """\
#!/bin/sh
case "$1" in --*) exec %s "$@";; esac
"$@" || exit
grep -q fuzzed_ %s/*/src/a.cc && echo >> fuzzed.o
exit 0
"""


@pytest.fixture
def code(project: Callable[..., pathlib.Path]) -> pathlib.Path:
	"""A folder with a package of C++ code."""
	return project(FILES, "code")


def fuzz(code: pathlib.Path, work: pathlib.Path, *options: str) -> "subprocess.CompletedProcess[str]":
	argv = [sys.executable, str(ROOT / "utils" / "fuzzedits.py"), "--sources", str(code), "--work", str(work)]
	return subprocess.run([*argv, *options], capture_output=True, encoding="utf-8", timeout=550, check=False)


def test_nothing_differs(code: pathlib.Path, engine: str, tmp_path: pathlib.Path) -> None:
	"""Edits of all kinds are made, some compiles begin after their headers, and nothing is left."""
	wafcc = str(pathlib.Path(engine).with_name("wafcc"))
	done = fuzz(code, tmp_path, "--wafcc", wafcc, "--edits", "20", "--seed", "1", "--flags=-O0 -g")
	assert done.returncode == 0, done
	assert "20 edits, nothing differs" in done.stdout
	told = re.search(r"(\d+) compiles began after their headers, (\d+) preambles were made", done.stdout)
	assert told and int(told.group(1)) > 0 and int(told.group(2)) > 0, done.stdout
	assert not list(tmp_path.glob("fuzzedits-*"))


def test_a_lie_is_found(code: pathlib.Path, engine: str, tmp_path: pathlib.Path) -> None:
	"""A wrapper whose object is another one is found, with the edit that shows it; the folder is kept."""
	lying = tmp_path / "lying"
	lying.write_text(LYING % (pathlib.Path(engine).with_name("wafcc"), tmp_path / "fuzzedits-*"))
	lying.chmod(0o755)
	done = fuzz(code, tmp_path, "--wafcc", str(lying), "--edits", "40", "--seed", "3")
	assert done.returncode == 1, done
	assert re.search(r"after edit \d+ \(.+\): g\+\+ .*: another files than without wafcc\nkept in ", done.stdout)
	assert list(tmp_path.glob("fuzzedits-*"))


def test_edits_are_taken_back(code: pathlib.Path) -> None:
	"""An earlier state has the content that the files had."""
	tree = Tree(code / "one", "src/a.cc", ["src/a.h"], random.Random(5))
	for edit in (tree.edit_body, tree.add_include, tree.add_macro, tree.edit_header):
		edit()
	assert (code / "one" / "src" / "a.cc").read_text() != FILES["one/src/a.cc"]
	tree.go_back()
	assert {name: (code / name).read_text() for name in FILES} == FILES
