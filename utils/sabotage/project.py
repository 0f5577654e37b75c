"""
A small project in C and C++, with generated headers, an archive and a program: its files in each state.

It knows nothing of caches and faults. The same seed gives the same files.
"""

import os
import pathlib
import random
import shutil
from typing import Dict, List, NamedTuple, Tuple

OUT = "out"
BIG = 90000  # bytes of an array: an object that the store keeps as a file of its own

WSCRIPT = """\
import os

top = "."
out = "out"
TOOLS = os.environ.get("TRIAL_TOOLS", "").split()


def options(opt):
	opt.load("compiler_c compiler_cxx")
	if TOOLS:
		opt.load(" ".join(TOOLS))


def configure(conf):
	conf.load("compiler_c compiler_cxx")
	conf.env.append_value("CFLAGS", %(flags)r.split())
	conf.env.append_value("CXXFLAGS", %(flags)r.split())


def build(bld):
	for tool in ("unity", "batch"):
		if tool in TOOLS:
			bld.load(tool)
	bld(rule="sed s/@VALUE@/%(value)d/ ${SRC} > ${TGT}", source="version.in", target="version.h", cache=True)
	bld(rule="sort ${SRC} > ${TGT}", source="table.in", target="table.h", cache=True)
	bld.stlib(source=%(parts)r, target="parts", includes=". inc")
	bld.program(source=%(mains)r, target="prog", includes=". inc", use="parts")
"""

NINJA = """\
ninja_required_version = 1.3
builddir = out
launcher = %(launcher)s
flags = %(flags)s -Iinc -Iout
rule c
  command = $launcher gcc -MMD -MF $out.d $flags -c $in -o $out
  depfile = $out.d
%(deps)srule cxx
  command = $launcher g++ -MMD -MF $out.d $flags -c $in -o $out
  depfile = $out.d
%(deps)srule ar
  command = rm -f $out && ar rcs $out $in
rule link
  command = %(linker)s g++ -o $out $in
rule sed
  command = sed s/@VALUE@/%(value)d/ $in > $out
rule sort
  command = sort $in > $out
build out/version.h: sed version.in
build out/table.h: sort table.in
"""


class State(NamedTuple):
	"""The edits of a project so far."""

	edits: Tuple[int, ...] = ()
	is_broken: bool = False


class Project:
	"""The files of a project, by its seed."""

	def __init__(self, seed: int) -> None:
		self.seed = seed
		rng = random.Random("project %d" % seed)
		self.flags = rng.choice(("-O0", "-O0 -g", "-O0 -Wall", "-O1"))
		self.keeps_depfiles = rng.random() < 0.5
		self.value = rng.randint(100, 999)
		self.headers = ["h%d.h" % n for n in range(rng.randint(3, 5))]
		self.parts = ["src/p%d.%s" % (n, rng.choice(("c", "c", "cpp"))) for n in range(rng.randint(5, 9))]
		self.mains = ["src/main.c", *("src/m%d.c" % n for n in range(rng.randint(1, 3)))]
		self.functions = [os.path.splitext(os.path.basename(name))[0] for name in self.parts + self.mains[1:]]
		self.big = rng.choice(self.parts)

	@property
	def sources(self) -> List[str]:
		return self.parts + self.mains

	def files(self, state: State) -> Dict[str, str]:
		"""All files that people would write, with their texts."""
		rng = random.Random("files %d" % self.seed)
		numbers = {name: rng.randint(100, 999) for name in (*self.headers, *self.sources, "version.in", "table.in")}
		for edit in state.edits:
			changed = random.Random("edit %d %d" % (self.seed, edit))
			# the size stays: only the content tells
			numbers[changed.choice(sorted(numbers))] = changed.randint(100, 999)
		files = {"inc/%s" % name: self.header(name, numbers[name], rng) for name in self.headers}
		for name in self.parts + self.mains[1:]:
			files[name] = self.source(name, numbers[name], rng)
		files["src/main.c"] = self.main(numbers["src/main.c"])
		files["version.in"] = "#define VERSION (@VALUE@ + %d)\n" % numbers["version.in"]
		files["table.in"] = "#define TABLE_B %d\n#define TABLE_A 1\n" % numbers["table.in"]
		if state.is_broken:
			files[self.parts[0]] += "int broken = no_such_name;\n"
		words = {"flags": self.flags, "value": self.value, "parts": self.parts, "mains": self.mains}
		files["wscript"] = WSCRIPT % words
		return files

	def header(self, name: str, number: int, rng: random.Random) -> str:
		symbol = name.replace(".", "_").upper()
		later = [other for other in self.headers if other > name]
		nested = '#include "%s"\n' % rng.choice(later) if later and rng.random() < 0.5 else ""
		return "#ifndef %s\n%s#define %s %d\n#endif\n" % (symbol, nested, symbol, number)

	def source(self, name: str, number: int, rng: random.Random) -> str:
		used = rng.sample(self.headers, rng.randint(1, 2))
		made = rng.choice(([], [], ["version.h"], ["table.h"]))
		function = os.path.splitext(os.path.basename(name))[0]
		terms = [str(number), *(h.replace(".", "_").upper() for h in used)]
		terms += {"version.h": ["VERSION"], "table.h": ["TABLE_A", "TABLE_B"]}[made[0]] if made else []
		lines = ['#include "%s"' % header for header in used + made]
		if name == self.big:
			lines.append("char big_array[%d] = {%d %% 100};" % (BIG, number))
		if name.endswith(".cpp"):
			lines.append('extern "C" int %s(void);\ntemplate <int N> static int value() { return N; }' % function)
			terms[0] = "value<%d>()" % number
		lines.append("int %s(void) { return %s; }" % (function, " + ".join(terms)))
		return "\n".join([*lines, ""])

	def main(self, number: int) -> str:
		lines = ["#include <stdio.h>", *("int %s(void);" % name for name in self.functions)]
		lines.append("int main(void) {\n\tunsigned sum = %d;" % number)
		lines += ["\tsum = sum * 31 + (unsigned)%s();" % name for name in self.functions]
		return "\n".join([*lines, '\tprintf("%u\\n", sum);', "\treturn 0;", "}", ""])

	def ninja(self, launcher: str, linker: str) -> str:
		"""A build file of ninja; `launcher` goes before compilers."""
		deps = "" if self.keeps_depfiles else "  deps = gcc\n"
		words = {"launcher": launcher, "linker": linker, "flags": self.flags, "deps": deps, "value": self.value}
		lines = [NINJA % words]
		objects = {name: "out/%s.o" % os.path.basename(name) for name in self.sources}
		for name, made in objects.items():
			rule = "cxx" if name.endswith(".cpp") else "c"
			lines.append("build %s: %s %s || out/version.h out/table.h\n" % (made, rule, name))
		lines.append("build out/libparts.a: ar %s\n" % " ".join(objects[name] for name in self.parts))
		mains = " ".join(objects[name] for name in self.mains)
		lines.append("build out/prog: link %s out/libparts.a\n" % mains)
		return "".join(lines)

	def write(self, folder: pathlib.Path, state: State) -> List[pathlib.Path]:
		"""Bring the files into a state; the files that were changed."""
		changed = []
		for name, text in self.files(state).items():
			path = folder / name
			if not path.exists() or path.read_text() != text:
				path.parent.mkdir(parents=True, exist_ok=True)
				path.write_text(text)
				changed.append(path)
		return changed


def remove_outputs(folder: pathlib.Path) -> None:
	"""Remove all files of a build, except those of Waf's `configure`."""
	for path in (folder / OUT).glob("*"):
		if path.name in ("c4che", "config.log") or path.name.startswith(".lock-waf"):
			continue
		if path.is_dir() and not path.is_symlink():
			shutil.rmtree(str(path))
		else:
			path.unlink()
