"""`wafx` with the copies of Waf that can be had: a small project is built as each Waf builds it by itself."""

import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Callable, Dict, List

import pytest
from conftest import find_source
from debian.wafs import CARRIERS, Carrier
from wafx_support import Own, list_words

from waflib_extras import TOOLS

pytestmark = pytest.mark.timeout(900)  # others use the machine, too

OLDER = "pypy3"
"""A Python that runs what is too old for newer ones."""
SCRIPT = """\
#!%s
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from waflib import Context, Scripting
Scripting.waf_entry_point(os.getcwd(), Context.WAFVERSION, sys.path[0])
"""
PROJECT = {
	"wscript": """\
def options(opt):
	opt.load('compiler_c')
def configure(conf):
	conf.load('compiler_c')
	conf.check(header_name='stdio.h')
	conf.define('ANSWER', 42)
	conf.write_config_header('config.h')
def build(bld):
	# The header is not used in the tick of the clock in which it is written: a compile would not be stored at once.
	bld(rule='echo "int generated(void);" > ${TGT}; sleep 0.02', target='generated.h')
	bld.stlib(source='b.c', target='b', includes='.')
	bld.shlib(source='c.c', target='shared', includes='.')
	bld.program(source='main.c', target='app', use='b shared', includes='.')
""",
	"b.h": "int b(void);\n",
	"b.c": '#include "b.h"\n#include "config.h"\nint b(void) { return ANSWER - 42; }\n',
	"c.c": '#include "b.h"\n#include "generated.h"\nint c(void) { return 0; }\n',
	"main.c": '#include "b.h"\nint c(void);\nint main(void) { return b() + c(); }\n',
}
EMPTY = """\
def options(opt):
	opt.load('compiler_c')
def configure(conf): pass
def build(bld): pass
"""
FORGOTTEN = ("WAFDIR", "NOCLIMB", "JOBS", "PYTHONSAFEPATH", "WAFX_WITH", "PYTHONPYCACHEPREFIX")
"""Variables that would change what a Waf does, or where its compiled modules lie."""
COMPILES = 3
CACHED = COMPILES + 3
"""The libraries and the program are cached, too."""


class Copy:
	"""A copy of Waf, and a Python that runs it."""

	def __init__(self, carrier: Carrier, folder: pathlib.Path) -> None:
		self.carrier = carrier
		self.folder = folder
		self.python = ""
		self.refusals: Dict[str, str] = {}
		"""What a Python says that cannot run it."""

	def put(self, folder: pathlib.Path, python: str) -> None:
		"""Give a project this Waf."""
		shutil.copytree(self.folder / "waflib", folder / "waflib")
		(folder / "waf").write_text(SCRIPT % python)
		(folder / "waf").chmod(0o755)


def find_copy(carrier: Carrier, folder: pathlib.Path) -> Copy:
	"""The copy of Waf that a package carries, with the first Python here that runs it."""
	copy = Copy(carrier, find_source(str(pathlib.PurePath(carrier.suite, carrier.sources))) / carrier.place)
	said = (copy.folder / "waflib" / "Context.py").read_text(encoding="utf-8")
	is_known = 'WAFVERSION="%s"' % carrier.version in said.replace(" ", "")
	assert is_known or not (carrier.suite and carrier.package), "it carries another Waf now"
	for python in (sys.executable, shutil.which(OLDER)):
		if python and python not in copy.refusals and not copy.python:
			place = folder / ("try-%d" % len(copy.refusals))
			place.mkdir()
			(place / "wscript").write_text(EMPTY)
			copy.put(place, python)
			environ = {k: v for k, v in os.environ.items() if k not in FORGOTTEN}
			done = subprocess.run(
				["./waf", "configure", "build"],
				cwd=place,
				env=environ,
				capture_output=True,
				encoding="utf-8",
				timeout=100,
			)
			if done.returncode:
				copy.refusals[python] = done.stdout + done.stderr
			else:
				copy.python = python
				copy.folder = place  # with compiled modules
	return copy


@pytest.fixture(params=CARRIERS, ids=[carrier.version for carrier in CARRIERS])
def copy(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
	"""Each copy of Waf in turn; those that no Python here can run are left out by name."""
	for name in FORGOTTEN:
		monkeypatch.delenv(name, raising=False)
	found = find_copy(request.param, tmp_path)
	if not found.python:
		version = "%d.%d" % sys.version_info[:2]
		pytest.skip("Waf %s is too old for Python %s: apt-get install %s" % (found.carrier.version, version, OLDER))
	return found


@pytest.fixture
def own(
	copy: Copy, runtime: pathlib.Path, engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Own]:
	"""A function that makes the project anew in its folder, with this Waf."""
	monkeypatch.setenv("WAFD", engine)
	folder = tmp_path / "project"

	def make() -> Own:
		shutil.rmtree(folder, ignore_errors=True)
		folder.mkdir()
		for name, text in PROJECT.items():
			(folder / name).write_text(text)
		copy.put(folder, copy.python)
		return Own(folder, tmp_path / "cache")

	return make


def edit(own: Own) -> None:
	(own.folder / "b.h").write_text("int b(void);\n#define EDITED 1\n")


def test_builds_as_by_itself(own: Any) -> None:
	"""All files are those that this Waf makes by itself: cold, cached, after an edit of a header, with all tools."""
	one = own()
	one.plain("configure", "build")
	expected = one.read_made()
	edit(one)
	one.plain("build")
	edited = one.read_made()
	one = own()
	cold = one.wafx("./waf", "configure", "build")
	assert list_words(cold.stderr) == [] and one.read_made() == expected
	one = own()
	one.wafx("./waf", "configure")
	assert one.count("build") == (CACHED, 0)
	assert one.read_made() == expected
	edit(one)
	assert one.count("build")[1] == COMPILES
	assert one.read_made() == edited
	assert one.count("build") == (0, 0)
	one.plain("build")
	assert one.read_made() == edited
	# all tools load into this Waf without a word, and the build makes the same files
	one = own()
	tools = ",".join(tool for tool in TOOLS if tool != "resident")
	done = one.wafx("--with=" + tools, "./waf", "configure", "build")
	assert list_words(done.stderr) == [] and "going on without" not in done.stderr
	assert one.read_made() == expected


@pytest.mark.parametrize("carrier", [one for one in CARRIERS if one.is_old], ids=lambda one: one.version)
@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python runs all of them")
def test_python_that_is_too_new(carrier: Carrier, tmp_path: pathlib.Path, engine: str, runtime: pathlib.Path) -> None:
	"""A Waf that is older than this Python fails with `wafx` as it does by itself, and no word of ours is in it."""
	found = find_copy(carrier, tmp_path)
	said = found.refusals[sys.executable]
	assert "invalid mode: 'rU" in said or "No module named 'imp'" in said, said
	place = tmp_path / "project"
	place.mkdir()
	for name, text in PROJECT.items():
		(place / name).write_text(text)
	found.put(place, sys.executable)
	one = Own(place, tmp_path / "cache")
	plain, ours = one.plain("configure", status=None), one.wafx("./waf", "configure", status=None)
	assert plain.returncode == ours.returncode != 0
	assert last_line(ours.stderr) == last_line(plain.stderr)


def last_line(text: str) -> str:
	lines: List[str] = text.strip().splitlines()
	return lines[-1]
