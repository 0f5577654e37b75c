"""Precompiled headers and their users are never stale (the cases of ccache's issue 1686)."""

import json
import os
import shutil
import subprocess
import time
from typing import List

import pytest
from cache_support import PATIENCE, Lab, Trace, each

USES = {"include": '#include "p.h"\nint f = P + DEEP;\n', "option": "int f = P + DEEP;\n"}
OPTION = {"include": [], "option": ["-include", "p.h"]}


def precompiled(cc: str) -> str:
	return "p.h.gch" if cc == "gcc" else "p.h.pch"


class Project:
	"""A source that uses a precompiled header, which each build makes first, as makefiles do."""

	def __init__(self, lab: Lab, cc: str, use: str) -> None:
		self.lab, self.cc = lab, cc
		self.name = precompiled(cc)
		self.options: List[str] = []
		self.source: List[str] = ["-c", "x.c", "-o", "x.o", *OPTION[use]]
		lab.write("deep.h", "#define DEEP 10\n")
		lab.write("p.h", '#include "deep.h"\n#define P 1\n')
		lab.write("x.c", USES[use])

	def run(self, cached: bool, *words: str) -> Trace:
		"""Run a compiler and keep what it makes."""
		done = subprocess.run(
			[self.lab.wafcc, self.cc, *words] if cached else [self.cc, *words],
			cwd=self.lab.folder,
			env=self.lab.environ,
			stdin=subprocess.DEVNULL,
			capture_output=True,
			timeout=PATIENCE,
			check=False,
		)
		return Trace(done.returncode, done.stdout, done.stderr, {}, {})

	def make_header(self, cached: bool) -> Trace:
		return self.run(cached, *self.options, "-x", "c-header", "p.h", "-o", self.name)

	def compile(self, cached: bool) -> Trace:
		path = self.lab.folder / "x.o"
		if path.exists():
			path.unlink()
		found = self.run(cached, *self.options, *self.source)
		return found._replace(files={"x.o": path.read_bytes()} if path.exists() else {})

	def same(self) -> str:
		"""The header as it is now: a compile through wafcc is like a plain one. Returns the verdict."""
		found = self.compile(True)
		said = self.lab.explain(self.lab.folder / "x.o")
		assert found == self.compile(False), said
		return said

	def until_hit(self) -> None:
		deadline = time.monotonic() + PATIENCE
		while not self.same().startswith("hit"):
			assert time.monotonic() < deadline, "it is never a hit"

	def until_header_hit(self) -> None:
		"""Make the header through wafcc until that is a hit, and compare it with a plain one."""
		deadline = time.monotonic() + PATIENCE
		path = self.lab.folder / self.name
		said = ""
		while not said.startswith("hit"):
			assert time.monotonic() < deadline, f"it is never a hit: {said}"
			if path.exists():
				path.unlink()
			found = self.make_header(True)
			content = path.read_bytes() if path.exists() else b""
			said = self.lab.explain(path)
			path.unlink()
			assert found == self.make_header(False), said
			if self.cc != "gcc":  # gcc's own headers differ from run to run
				assert content == path.read_bytes(), said
			path.write_bytes(content)


@pytest.fixture(params=["include", "option"])
def use(request: pytest.FixtureRequest) -> str:
	return str(request.param)


@each
def test_stale_results(cc: str, use: str, lab: Lab) -> None:
	"""If a precompiled header or its parts change, a compile gives what it gives without the cache."""
	if use == "include" and cc != "gcc":
		pytest.skip("clang uses precompiled headers by an option only")
	project = Project(lab, cc, use)
	pch = lab.folder / project.name

	project.until_hit()  # without a precompiled header
	project.make_header(True)
	project.until_hit()
	lab.write("p.h", '#include "deep.h"\n#define P 2\n')  # edited, and not made anew
	project.same()
	project.same()
	project.make_header(True)
	project.until_hit()
	lab.write("deep.h", "#define DEEP 20\n")  # a part of it is edited
	project.same()
	project.make_header(True)
	project.until_hit()
	project.make_header(True)  # made anew, with the same content
	project.same()
	project.make_header(False)
	project.same()
	os.utime(pch, (10**9, 10**9))
	project.same()
	os.utime(lab.folder / "deep.h", (10**9, 10**9))  # a part of it is touched
	project.same()
	project.make_header(True)
	project.until_hit()
	pch.unlink()  # removed
	project.until_hit()
	project.options = ["-O2", "-DOTHER=1"]  # other options than those of its users
	project.make_header(True)
	project.options = []
	project.same()
	project.same()
	pch.write_bytes(b"nothing")  # damaged
	project.same()
	project.same()


@each
def test_a_header_is_served(cc: str, lab: Lab) -> None:
	"""A precompiled header of unchanged parts is a hit, also clang's, which holds times; its users are hits, too."""
	project = Project(lab, cc, "option")
	project.until_header_hit()
	project.until_hit()
	(lab.folder / project.name).unlink()
	project.make_header(True)
	assert lab.explain(lab.folder / project.name).startswith("hit")
	assert project.same().startswith("hit")


def test_a_header_of_clang_whose_parts_are_touched(lab: Lab) -> None:
	"""clang's precompiled header holds the times of its parts, so it is made anew for others."""
	if not shutil.which("clang"):
		pytest.skip("needs clang")
	project = Project(lab, "clang", "option")
	project.until_header_hit()
	for moment in (10**9, 10**9 + 5):
		os.utime(lab.folder / "deep.h", (moment, moment))
		(lab.folder / project.name).unlink()
		project.make_header(True)
		assert lab.explain(lab.folder / project.name).startswith("miss")
		project.same()
		project.until_header_hit()


def test_preprocessing_with_a_precompiled_header(lab: Lab) -> None:
	"""``-fpch-preprocess`` names the precompiled header in gcc's output, as long as there is one."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	project = Project(lab, "gcc", "include")

	def preprocessed(cached: bool) -> bytes:
		return project.run(cached, "-E", "-fpch-preprocess", "x.c").stdout

	for _ in range(3):
		assert preprocessed(True) == preprocessed(False)
	project.make_header(True)
	assert b"GCC pch_preprocess" in preprocessed(False)
	for _ in range(3):
		assert preprocessed(True) == preprocessed(False)
	(lab.folder / project.name).unlink()
	for _ in range(2):
		assert preprocessed(True) == preprocessed(False)


@each
def test_a_plain_build_afterwards(cc: str, lab: Lab) -> None:
	"""Make rebuilds nothing without wafcc after a build with it, also if that build took everything from the cache."""
	if not shutil.which("make"):
		pytest.skip("needs make")
	name = precompiled(cc)
	Project(lab, cc, "option")
	lab.write(
		"Makefile",
		f"all: x.o\n{name}: p.h deep.h\n\t$(CC) -x c-header p.h -o $@\n"
		f"x.o: x.c {name}\n\t$(CC) -include p.h -c x.c -o $@\n",
	)

	def make(compiler: str) -> bytes:
		return subprocess.run(
			["make", f"CC={compiler}"],
			cwd=lab.folder,
			env=lab.environ,
			stdout=subprocess.PIPE,
			timeout=PATIENCE,
			check=True,
		).stdout

	deadline = time.monotonic() + PATIENCE
	hits = 0
	while hits < 2:
		assert time.monotonic() < deadline, "it is never taken from the cache"
		before = count(lab)
		for made in (name, "x.o"):
			path = lab.folder / made
			if path.exists():
				path.unlink()
		make(f"{lab.wafcc} {cc}")
		hits = count(lab) - before
	assert cc.encode() not in make(cc)


def count(lab: Lab) -> int:
	done = subprocess.run(
		[lab.wafcc, "--show-stats", "--json"], env=lab.environ, stdout=subprocess.PIPE, timeout=PATIENCE, check=True
	)
	return int(json.loads(done.stdout)["hits"])


UNTIMED = ["-Xclang", "-fno-pch-timestamp"]


class Untimed(Project):
	"""clang's header without the times of its parts."""

	def __init__(self, lab: Lab) -> None:
		if not shutil.which("clang"):
			pytest.skip("needs clang")
		super().__init__(lab, "clang", "option")
		self.options = UNTIMED
		self.source = ["-c", "x.c", "-o", "x.o", "-include-pch", self.name]

	def touch(self, name: str, second: int) -> None:
		os.utime(self.lab.folder / name, (second, second))


def test_parts_of_a_header_without_times_are_touched(lab: Lab) -> None:
	"""Neither the header nor its user depends on when the parts were written, as in a fresh checkout."""
	project = Untimed(lab)
	project.until_header_hit()
	project.until_hit()
	for name in ("p.h", "deep.h", "x.c"):
		project.touch(name, 10**9)
	project.until_header_hit()
	assert project.same().startswith("hit")


def test_parts_of_a_header_without_times_are_edited(lab: Lab) -> None:
	"""clang then compares sizes only: it refuses the old header, or uses it, and so does wafcc."""
	project = Untimed(lab)
	lab.write("apart.h", "#define APART 1\n")  # its size is all that the user asks for
	lab.write("p.h", '#include "deep.h"\n#include "apart.h"\n#define P 1\n')
	project.until_header_hit()
	project.until_hit()
	for name in ("deep.h", "apart.h"):
		text = (lab.folder / name).read_text()
		lab.write(name, text.replace("1", "2"))
		project.same()
		project.until_hit()
		lab.write(name, text.replace("1", "100"))
		failed = project.compile(True)
		assert failed == project.compile(False) and failed.status == 1, name
		lab.write(name, text)
		assert project.same().startswith("hit"), name
		(lab.folder / name).unlink()
		failed = project.compile(True)
		assert failed == project.compile(False) and failed.status == 1, name
		lab.write(name, text)


def test_times_of_1970_are_times(lab: Lab) -> None:
	"""A header with times may be of parts that were all written at the time zero, which is like none in it."""
	project = Untimed(lab)
	project.options = []
	for second in (0, 10**9):
		for name in ("p.h", "deep.h"):
			project.touch(name, second)
		project.until_header_hit()
		project.until_hit()
	lab.write("x.c", '#include "deep.h"\nint f = P + DEEP;\n')
	project.same()
	project.touch("deep.h", 0)
	failed = project.compile(True)
	assert failed == project.compile(False)


@pytest.mark.parametrize("upper", [UNTIMED, []], ids=["upper untimed", "upper timed"])
@pytest.mark.parametrize("lower", [UNTIMED, []], ids=["lower untimed", "lower timed"])
def test_a_header_upon_another_one(lower: List[str], upper: List[str], lab: Lab) -> None:
	"""clang's header can go on from another header. Both count for their user, and either may hold times."""
	project = Untimed(lab)
	project.options = lower
	lab.write("more.h", "#define MORE 5\n")
	lab.write("x.c", "int f = P + DEEP + MORE;\n")
	project.source = ["-c", "x.c", "-o", "x.o", "-include-pch", "more.pch"]
	more = [*upper, "-x", "c-header", "-include-pch", project.name, "more.h", "-o", "more.pch"]
	for edit in ("", "deep.h", "more.h"):
		if edit:
			lab.write(edit, (lab.folder / edit).read_text().replace("0", "1").replace("5", "6"))
		project.make_header(True)
		project.run(True, *more)
		project.until_hit()
		for name in ("more.h", "deep.h"):
			project.touch(name, 10**9 + len(edit))
			assert project.compile(True) == project.compile(False), name


def test_a_header_that_says_once(lab: Lab) -> None:
	"""A part with ``#pragma once`` is included by another name, too: it is read again, or not, as without wafcc."""
	project = Untimed(lab)
	lab.write("deep.h", "#pragma once\n#define DEEP 10\nstatic const int counted = __COUNTER__;\n")
	(lab.folder / "sub").mkdir()
	for name in ("./deep.h", "sub/../deep.h", "copy.h", "link.h"):
		lab.write("x.c", f'#include "{name}"\nint f = P + DEEP, last = __COUNTER__;\n')
		lab.write("copy.h", (lab.folder / "deep.h").read_text().replace("counted", "copied"))
		if name == "link.h":
			(lab.folder / name).symlink_to("deep.h")
		project.until_header_hit()
		project.until_hit()
		project.touch("deep.h", 10**9)
		project.touch("copy.h", 10**9)
		project.until_header_hit()
		project.same()
