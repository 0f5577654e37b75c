"""Precompiled headers in two checkouts: one serves the other where that is right, and is never named there."""

import os
import pathlib
import shutil
import subprocess
import time
from typing import Dict, List, NamedTuple, Tuple

import pytest
from cache_support import PATIENCE, Lab

CHECKOUTS = ("one", "deeper/other")
"""The folders of two checkouts. Their names have different lengths, and lie at different depths."""
SHARED = {"WAFCC_SHARECHECKOUTS": "1"}

HEADER = """\
#ifndef ALL_H
#define ALL_H
#include "inc/deep.h"
inline const char *own() { return __FILE__; }
inline const char *asked(const char *file = __builtin_FILE()) { return file; }
template <class T> const char *late(T) { return __builtin_FILE(); }
template <class T> int sum(T a) { return a + DEEP + int(sizeof __FILE__); }
#endif
"""
SOURCE = "const char *names[] = {own(), asked(), late(1)};\nint f() { return sum(2); }\n"
"""It tells how the header is named, in what the header defines and in what is instantiated here."""

FORMS = {
	"option": ("-x c++-header all.h -o HEADER", "-include all.h -MD -c src/x.cc -o x.o"),
	"include": ("-x c++-header -I. -MD -MF h.d all.h -o HEADER", "-I. -MD -c src/x.cc -o x.o"),
	"cmake": (
		"-x c++-header -include TOP/all.h -MD -MT HEADER -MF h.d -o HEADER -c TOP/empty.cc",
		"-include TOP/all.h -MD -MT x.o -MF x.d -o x.o -c TOP/src/x.cc",
	),
	"pch": ("-x c++-header all.h -o HEADER", "-include-pch HEADER -MD -c src/x.cc -o x.o"),
	"emit": (
		"-Xclang -emit-pch -Xclang -include -Xclang TOP/all.h -x c++-header -o HEADER -c TOP/empty.cc",
		"-Xclang -include-pch -Xclang TOP/HEADER -Xclang -include -Xclang TOP/all.h -MD -o x.o -c TOP/src/x.cc",
	),
}
"""How people make a precompiled header and use it: by hand, and as CMake does it."""
UNTIMED = "-Xclang -fno-pch-timestamp "


class Made(NamedTuple):
	"""The effects of both commands, except for gcc's header, which is never the same twice."""

	statuses: Tuple[int, int]
	messages: Tuple[bytes, bytes]
	files: Dict[str, bytes]


class Project:
	"""A header and a source in two checkouts."""

	def __init__(self, lab: Lab, cc: str, form: str, options: str = "", **env: str) -> None:
		if not shutil.which(cc):
			pytest.skip("needs " + cc)
		self.lab, self.cc, self.options = lab, cc, options
		self.environ = {**lab.environ, **env}
		self.header, self.user = FORMS[form]
		self.name = "all.pch" if form in ("pch", "emit") else "all.h.gch"
		for checkout in CHECKOUTS:
			(lab.folder / checkout / ".git").mkdir(parents=True)
			source = '#include "all.h"\n' + SOURCE if form == "include" else SOURCE
			for name, text in {"all.h": HEADER, "inc/deep.h": "#define DEEP 10\n", "src/x.cc": source}.items():
				lab.write(f"{checkout}/{name}", text)
			lab.write(f"{checkout}/empty.cc", "")

	def run(self, checkout: str, line: str, prefix: List[str], options: str) -> Tuple[int, bytes]:
		top = self.lab.folder / checkout
		words = f"{self.cc} {options} {line}".replace("HEADER", self.name).replace("TOP", str(top)).split()
		done = subprocess.run(
			[*prefix, *words],
			cwd=top,
			env={**self.environ, "PWD": str(top)},
			stdin=subprocess.DEVNULL,
			capture_output=True,
			timeout=PATIENCE,
			check=False,
		)
		return done.returncode, done.stdout + done.stderr

	def build(self, checkout: str, cached: bool, options: str = "", only_user: str = "") -> Made:
		"""Make the header and use it. gcc is told to complain if it does not."""
		prefix = [self.lab.wafcc] if cached else []
		options = f"{self.options} {options}"
		self.remove(checkout)
		header = self.run(checkout, self.header, prefix, options)
		only_user += " -Winvalid-pch" if self.cc == "g++" else ""
		user = self.run(checkout, self.user, prefix, f"{options} {only_user}")
		return Made((header[0], user[0]), (header[1], user[1]), self.look(checkout))

	def remove(self, checkout: str) -> None:
		for name in (self.name, "x.o", "x.d", "h.d"):
			path = self.lab.folder / checkout / name
			if path.exists():
				path.unlink()

	def look(self, checkout: str) -> Dict[str, bytes]:
		names = ["x.o", "x.d", "h.d", *([self.name] if self.cc != "g++" else [])]
		paths = {name: self.lab.folder / checkout / name for name in names}
		return {name: path.read_bytes() for name, path in paths.items() if path.exists()}

	def same(self, checkout: str, options: str = "") -> Tuple[str, str]:
		"""
		Build through wafcc and without it, with further options. Both must make the same.

		Returns what wafcc says of the header and of its user.
		"""
		found = self.build(checkout, True)
		said = tuple(self.lab.explain(self.lab.folder / checkout / name) for name in (self.name, "x.o"))
		assert found == self.build(checkout, False, options), said
		assert found.statuses == (0, 0), found.messages
		return said[0], said[1]

	def verdicts(self, checkout: str, options: str = "") -> Tuple[str, str]:
		header, user = self.same(checkout, options)
		return header.split(":")[0], user.split(":")[0]

	def until_hit(self, checkout: str, options: str = "") -> None:
		"""A file that was written just before is not trusted yet."""
		deadline = time.monotonic() + PATIENCE
		while self.verdicts(checkout, options) != ("hit", "hit"):
			assert time.monotonic() < deadline, "it is never a hit"

	def top(self, checkout: str) -> pathlib.Path:
		return self.lab.folder / checkout


def mapped(project: Project, checkout: str) -> str:
	return f"-ffile-prefix-map={project.top(checkout)}=."


@pytest.mark.parametrize(
	("form", "options"), [("option", ""), ("option", "-O2 -std=c++17 -fPIC"), ("include", "-g0 -fpch-deps")]
)
def test_another_checkout_hits(form: str, options: str, lab: Lab) -> None:
	"""g++'s header names its parts as they were given, so with relative names it serves every checkout."""
	project = Project(lab, "g++", form, options)
	project.until_hit(CHECKOUTS[0])
	assert project.verdicts(CHECKOUTS[1]) == ("hit", "hit")


@pytest.mark.parametrize("options", ["-g", "-g3 -O2"])
def test_debug_information_tells_the_checkout(options: str, lab: Lab) -> None:
	"""The header does not tell it, so it is a hit. Its user does, unless ``share_checkouts`` is set."""
	project = Project(lab, "g++", "option", options)
	project.until_hit(CHECKOUTS[0])
	assert project.verdicts(CHECKOUTS[1]) == ("hit", "miss")
	project.environ.update(SHARED)
	project.until_hit(CHECKOUTS[0], mapped(project, CHECKOUTS[0]))
	assert project.verdicts(CHECKOUTS[1], mapped(project, CHECKOUTS[1])) == ("hit", "hit")


@pytest.mark.parametrize("options", ["-g -ffile-prefix-map=TOP=/x", "-g -fdebug-prefix-map=TOP=/x"])
def test_maps_of_the_user(options: str, lab: Lab) -> None:
	"""A header that is made with a prefix map is shared, as its users are."""
	project = Project(lab, "g++", "option", options, **SHARED)
	project.until_hit(CHECKOUTS[0])
	assert project.verdicts(CHECKOUTS[1]) == ("hit", "hit")


@pytest.mark.parametrize("options", ["-O1", "-g"])
@pytest.mark.parametrize("env", [{}, SHARED], ids=["plain", "shared"])
def test_absolute_names_are_in_the_header(options: str, env: Dict[str, str], lab: Lab) -> None:
	"""g++'s header names its parts as CMake gave them, and no map reaches these names: each checkout makes its own."""
	project = Project(lab, "g++", "cmake", options, **env)
	maps = {checkout: mapped(project, checkout) if env else "" for checkout in CHECKOUTS}
	project.until_hit(CHECKOUTS[0], maps[CHECKOUTS[0]])
	assert project.verdicts(CHECKOUTS[1], maps[CHECKOUTS[1]]) == ("miss", "miss")
	project.until_hit(CHECKOUTS[1], maps[CHECKOUTS[1]])


@pytest.mark.parametrize("options", ["", "-ffile-prefix-map=TOP=/x"])
def test_a_header_that_names_its_checkout(options: str, lab: Lab) -> None:
	"""A part is included by its absolute name, which is then in the header: it is no hit in another checkout."""
	project = Project(lab, "g++", "option", options, **(SHARED if options else {}))
	for checkout in CHECKOUTS:
		path = project.top(CHECKOUTS[0]) / "inc" / "deep.h"
		lab.write(f"{checkout}/all.h", HEADER.replace("inc/deep.h", str(path)))
	project.until_hit(CHECKOUTS[0])
	header, _ = project.same(CHECKOUTS[1])
	assert header.startswith("miss: the checkout's folder" if options else "miss: PWD is"), header


def test_a_header_that_is_edited_in_one_checkout(lab: Lab) -> None:
	"""The other checkout goes on to get its own, whichever of both is built first."""
	project = Project(lab, "g++", "option")
	project.until_hit(CHECKOUTS[0])
	lab.write(f"{CHECKOUTS[1]}/inc/deep.h", "#define DEEP 11\n")
	assert project.verdicts(CHECKOUTS[1]) == ("miss", "miss")
	assert project.verdicts(CHECKOUTS[0]) == ("hit", "hit")
	project.until_hit(CHECKOUTS[1])
	lab.write(f"{CHECKOUTS[0]}/inc/deep.h", "#define DEEP 11\n")
	assert project.verdicts(CHECKOUTS[0]) == ("hit", "hit")


def test_a_header_of_equal_size_and_time(lab: Lab) -> None:
	"""Its content counts."""
	project = Project(lab, "g++", "option")
	lab.write(f"{CHECKOUTS[1]}/inc/deep.h", "#define DEEP 20\n")
	for checkout in CHECKOUTS:
		os.utime(project.top(checkout) / "inc" / "deep.h", (10**9, 10**9))
	project.until_hit(CHECKOUTS[0])
	assert project.verdicts(CHECKOUTS[1]) == ("miss", "miss")


def test_a_precompiled_header_that_is_old(lab: Lab) -> None:
	"""gcc uses a header that is older than its parts, or was made of other ones, and so does a hit."""
	project = Project(lab, "g++", "option")
	project.until_hit(CHECKOUTS[0])
	top = project.top(CHECKOUTS[1])
	assert project.verdicts(CHECKOUTS[1]) == ("hit", "hit")
	project.build(CHECKOUTS[1], True)
	os.utime(top / project.name, (10**9, 10**9))
	lab.write(f"{CHECKOUTS[1]}/inc/deep.h", "#define DEEP 12\n")
	for _ in range(2):
		(top / "x.o").unlink()
		assert project.run(CHECKOUTS[1], project.user, [lab.wafcc], "-Winvalid-pch") == (0, b"")
		found = project.look(CHECKOUTS[1])
		assert project.run(CHECKOUTS[1], project.user, [], "-Winvalid-pch") == (0, b"")
		assert found == project.look(CHECKOUTS[1])
	assert project.verdicts(CHECKOUTS[1]) == ("miss", "miss")


def test_a_checkout_that_is_moved(lab: Lab) -> None:
	"""All is a hit at the new place, also if another project is at the old one."""
	project = Project(lab, "g++", "option")
	project.until_hit(CHECKOUTS[0])
	project.remove(CHECKOUTS[0])
	(lab.folder / CHECKOUTS[0]).rename(lab.folder / "moved")
	assert project.verdicts("moved") == ("hit", "hit")
	lab.write(f"{CHECKOUTS[0]}/all.h", "#define P 1\n")
	lab.write(f"{CHECKOUTS[0]}/src/x.cc", "int f() { return P; }\n")
	assert project.verdicts(CHECKOUTS[0]) == ("miss", "miss")
	assert project.verdicts("moved") == ("hit", "hit")


@pytest.mark.parametrize("form", ["option", "include"])
def test_a_header_that_is_read_once(form: str, lab: Lab) -> None:
	"""``#pragma once`` and two names of a file: gcc compares the times of copies, which checkouts may differ in."""
	project = Project(lab, "g++", form)
	once = "#pragma once\nconst int counted = __COUNTER__;\n"
	for checkout in CHECKOUTS:
		for name in ("inc/a.h", "inc/b.h"):
			path = lab.write(f"{checkout}/{name}", once)
			os.utime(path, (10**9, 10**9))
		lab.write(f"{checkout}/all.h", '#include "inc/a.h"\n#include "inc/../inc/a.h"\n' + HEADER)
		source = '#include "inc/b.h"\nint last = __COUNTER__;\n' + SOURCE
		lab.write(f"{checkout}/src/x.cc", '#include "../all.h"\n' + source.replace("inc/", "../inc/"))
	project.until_hit(CHECKOUTS[0])
	assert project.verdicts(CHECKOUTS[1]) == ("hit", "hit")
	# the same content at the same time is one file to gcc, and at another time it is two
	lab.write("one/all.h", '#include "inc/a.h"\n#include "inc/b.h"\n' + HEADER)
	lab.write("deeper/other/all.h", '#include "inc/a.h"\n#include "inc/b.h"\n' + HEADER)
	project.until_hit(CHECKOUTS[0])
	os.utime(project.top(CHECKOUTS[1]) / "inc" / "b.h", (10**9 + 5, 10**9 + 5))
	found = project.build(CHECKOUTS[1], True)
	assert found == project.build(CHECKOUTS[1], False)
	assert found.statuses[0] == 1


@pytest.mark.parametrize(
	("form", "options", "env"),
	[
		("pch", "-O1", {}),
		("pch", "-g", SHARED),
		("pch", UNTIMED + "-O1", SHARED),
		("emit", "-g", {}),
		("emit", "-O1", SHARED),
		("emit", UNTIMED + "-O1", SHARED),
		("option", "-g", SHARED),
		("option", UNTIMED + "-O1", {}),
	],
)
def test_clang_writes_the_folder_into_its_header(form: str, options: str, env: Dict[str, str], lab: Lab) -> None:
	"""So each checkout makes its own, and nothing that comes of it names another checkout."""
	project = Project(lab, "clang++", form, options, **env)
	for checkout in (*CHECKOUTS, *CHECKOUTS):
		# a command that names the folder gets a map
		own = mapped(project, checkout) if env else ""
		both, only_user = (own, "") if form == "emit" else ("", own if "-g" in options else "")
		found = project.build(checkout, True)
		header = (project.top(checkout) / project.name).read_bytes()
		for content in (header, *found.files.values()):
			assert os.fsencode(project.top(CHECKOUTS[checkout == CHECKOUTS[0]])) not in content
		assert found.statuses == (0, 0), found.messages
		assert found == project.build(checkout, False, both, only_user)
	project.build(CHECKOUTS[0], True)
	assert lab.explain(project.top(CHECKOUTS[0]) / project.name).startswith("hit")


@pytest.mark.parametrize("form", ["pch", "emit", "option"])
def test_clang_in_a_fresh_checkout_at_the_same_place(form: str, lab: Lab) -> None:
	"""Without times in the header all is a hit, whenever the files were written."""
	project = Project(lab, "clang++", form, UNTIMED)
	project.until_hit(CHECKOUTS[0])
	for name in ("all.h", "inc/deep.h", "src/x.cc"):
		path = project.top(CHECKOUTS[0]) / name
		text = path.read_text()
		path.unlink()
		lab.write(f"{CHECKOUTS[0]}/{name}", text)
		os.utime(path, (10**9, 10**9))
	assert project.verdicts(CHECKOUTS[0]) == ("hit", "hit")
