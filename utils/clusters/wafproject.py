"""A project of Waf whose headers are made while it is built, by a generator of its own."""

import pathlib
import shutil
import sys
from typing import Any, List, Optional

import hunt
from benchmark.environment import plain_environment
from benchmark.interpreter import find_interpreter
from benchmark.mistake import Failed

from .course import PATIENCE, Machine, Project

WSCRIPT = """\
import os

top, out = ".", "build"
TOOLS = os.environ.get("ELSEWHERE_TOOLS", "").split()


def options(opt):
	opt.load("compiler_cxx")
	for tool in TOOLS:
		opt.load("waflib_extras." + tool)


def configure(conf):
	conf.load("compiler_cxx")
	for tool in TOOLS:
		conf.load("waflib_extras." + tool)
	conf.find_program("python3", var="PYTHON3")
	conf.env.CXXFLAGS = ["-O2"]


def build(bld):
	for table in bld.path.ant_glob("tables/*.txt"):
		name = table.name[:-4] + ".h"
		bld(rule="${PYTHON3} ${SRC[0].abspath()} ${SRC[1].abspath()} ${TGT[0].abspath()}",
			source=[bld.path.find_node("generate.py"), table], target="made/" + name, ext_out=[".h"])
	bld.objects(source=bld.path.ant_glob("src/*.cpp"), includes=". made", target="objects")
"""
GENERATOR = """\
import os, sys

table, header = sys.argv[1:]
name = os.path.basename(table)[:-4]
rows = [line.split() for line in open(table)]
values = ", ".join('{"%s", %s}' % tuple(row) for row in rows)
with open(header, "w") as file:
	file.write("#pragma once\\n#include <map>\\n#include <string>\\n")
	file.write("inline const std::map<std::string, int> %s = {%s};\\n" % (name, values))
"""
SOURCE = """\
#include "base.h"
{includes}
#include <algorithm>
#include <vector>

std::string print_{number}(int limit) {{
	std::vector<std::string> found;
	for (const auto *table : {{{tables}}})
		for (const auto &row : *table)
			if (row.second + {number} < limit)
				found.push_back(row.first);
	std::sort(found.begin(), found.end());
	std::string told;
	for (const auto &each : found)
		told += each + separator;
	return told;
}}
"""
EACH = 3  # tables that a source includes


def write(folder: pathlib.Path, tables: int, sources: int) -> None:
	"""So many headers are generated, and each source includes three of them."""
	for name in ("tables", "src"):
		(folder / name).mkdir(parents=True)
	(folder / "wscript").write_text(WSCRIPT)
	(folder / "generate.py").write_text(GENERATOR)
	(folder / "base.h").write_text("#pragma once\ninline const char separator = ' ';\n")
	for table in range(tables):
		rows = "".join("row%d %d\n" % (row, row * (table + 1) % 97) for row in range(20))
		(folder / "tables" / ("table%d.txt" % table)).write_text(rows)
	for number in range(sources):
		names = ["table%d" % ((number + step) % tables) for step in range(EACH)]
		includes = "\n".join('#include "%s.h"' % name for name in names)
		text = SOURCE.format(number=number, includes=includes, tables=", ".join("&" + name for name in names))
		(folder / "src" / ("print%d.cpp" % number)).write_text(text)


class WafProject(Project):
	"""It is built by Waf with `prefork wafcc`, and plainly by Waf alone, in the same folder."""

	def __init__(self, name: str, folder: pathlib.Path, room: pathlib.Path) -> None:
		room.mkdir()
		self.python = find_interpreter(sys.executable, "python", str(room), plain_environment())
		self.objects: List[str] = []
		super().__init__(name, folder)

	def read_commands(self) -> List[List[str]]:
		return []  # Waf has them

	def outputs(self) -> List[str]:
		return self.objects

	def sources(self) -> List[pathlib.Path]:
		return sorted((self.folder / "src").iterdir())

	def header(self) -> pathlib.Path:
		"""The table of which a header is made."""
		return self.folder / "tables" / "table0.txt"

	def edit(self, path: pathlib.Path, number: int) -> None:
		if path != self.header():
			super().edit(path, number)
			return
		with open(path, "a", encoding="utf-8") as file:
			file.write("edited %d\n" % number)
		self.grow_old()

	def remove_outputs(self) -> None:
		shutil.rmtree(self.folder / "build", ignore_errors=True)

	def compile(self, jobs: int, machine: Optional[Machine] = None) -> None:
		environ = {**(machine.environ if machine else plain_environment()), **self.python.environment}
		environ["ELSEWHERE_TOOLS"] = "prefork wafcc" if machine else ""
		command: List[Any] = [self.python.path, "-m", "waflib_extras.launcher", "configure", "build", "-j%d" % jobs]
		done = hunt.run(machine.host.enter(command) if machine else command, self.folder, environ, PATIENCE)
		if done.returncode:
			raise Failed("waf ended with status %d" % done.returncode, done.stdout)
		found = (self.folder / "build").rglob("*.o")
		self.objects = sorted(str(path.relative_to(self.folder)) for path in found)
