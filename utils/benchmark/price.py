"""
Measures the cost of compiler flags on a project, and how much of it a cache saves.

The same project is built once for each set of flags, in turn, into a new folder with an empty cache, and then once more
from nothing. The second folder has the name of the first, because debug information contains it. Flags that a compiler
refuses are left out, and a note has its reason.
"""

import os
from typing import TYPE_CHECKING, Callable, Dict, Optional, Sequence

from .compiler import Compiler
from .mistake import Failed
from .project import complaint

if TYPE_CHECKING:
	from .run import Run

PLAIN = "plain"
FLAGS = (
	*("-Wall", "-Wall -Wextra", "-O0", "-O1", "-O2", "-O3", "-g", "-fsanitize=address", "-fsanitize=undefined"),
	*("-fanalyzer", "--analyze"),
)
NOTES = {"--analyze": "clang analyzes and compiles nothing"}
PROBES = {"c": "probe.c", "c++": "probe.cpp"}
PROBE = "int probe(int n) { return n + 1; }\n"


def flag_sets(wanted: Optional[Sequence[str]]) -> Dict[str, str]:
	"""The flags that are compared, by name; the build without any comes first."""
	return {PLAIN: "", **{flags: flags for flags in wanted or FLAGS}}


def find_refusal(flags: str, compiler: Compiler, language: str, folder: str, env: Dict[str, str]) -> str:
	"""The reason why a compiler refuses flags, by compiling a small file with them; empty if it takes them."""
	for one in ["c", "c++"] if language == "both" else [language]:
		source = os.path.join(folder, PROBES[one])
		with open(source, "w", encoding="utf-8") as f:
			f.write(PROBE)
		made = source + ".o"
		if os.path.exists(made):
			os.unlink(made)
		argv = [compiler.cc if one == "c" else compiler.cxx, *flags.split(), "-c", source, "-o", made]
		reason = next(iter(complaint(argv, env)), "") or ("" if os.path.exists(made) else "it made no object")
		if reason:
			return reason
	return ""


class Prices:
	"""All sets of flags of one lane, in one repetition."""

	def __init__(self, run: "Run", build: Callable[["Run"], None], check: Callable[["Run"], None]) -> None:
		"""``build`` builds and keeps the result, ``check`` fails if a source was left out."""
		self.run = run
		self.build = build
		self.check = check

	def take(self) -> None:
		"""Measure the flags that this compiler takes; each repetition begins with others."""
		able = self.able()
		turn = self.run.version % len(able)
		for name in [*able[turn:], *able[:turn]]:
			try:
				self.run.results.append((name, self.price(name)))
			except Failed as e:
				if name == PLAIN:
					raise
				# flags that work for a small file may not work for the project
				lane = ", ".join(filter(None, ("flags", name, *self.run.lane.names)))
				self.run.settings["notes"][lane] = "left out: %s" % e

	def able(self) -> Sequence[str]:
		"""The flags that this compiler takes. It is asked once, and the others get a note."""
		workshop, compiler = self.run.workshop, self.run.lane.compiler
		if compiler.name not in workshop.able:
			able = workshop.able[compiler.name] = []
			notes = workshop.settings["notes"]
			for name, flags in flag_sets(self.run.settings["extras"]).items():
				language = self.run.project.language
				reason = find_refusal(flags, compiler, language, workshop.path, workshop.environment)
				if reason and name == PLAIN:
					raise Failed("compiler %s cannot compile: %s" % (compiler.name, reason))
				if reason:
					notes["flags, %s, %s" % (name, compiler.name)] = "left out: %s" % reason
					continue
				able.append(name)
				if name in NOTES:
					notes["flags, %s" % name] = NOTES[name]
		return workshop.able[compiler.name]

	def price(self, name: str) -> Dict[str, float]:
		"""Build with an empty cache, and then once more from nothing with the cache of the first build."""
		run = self.run
		flags = flag_sets(run.settings["extras"])[name]
		project = run.workshop.project_with(name, flags, run.lane.compiler)
		mine = type(run)(run.lane, project, run.workshop, run.jobs, run.version)
		mine.new_folder()
		os.sync()
		self.build(mine)
		self.check(mine)
		project.move_aside(mine.folder)
		run.lane.contender.builder.prepare(mine)
		os.sync()
		self.build(mine)
		self.check(mine)
		first, second = (values for _, values in mine.results)
		for step, seconds in mine.seconds_aside.items():
			run.seconds_aside[step] = run.seconds_aside.get(step, 0.0) + seconds
		values = {"wall": first["wall"], "processor": first["processor"], "warm": second["wall"]}
		if "hits" in second:
			values["hits"] = second["hits"]
		if values.get("hits", 1):  # without hits, a difference between the two builds is not due to the cache
			values["back"] = 100 * (1 - second["wall"] / first["wall"])
		return values
