"""
What compilers' flags and checks cost on a project, and what of it a cache gives back.

The same project is built once for each set of flags, in turn, into a new folder with an empty cache, and then once more
from nothing, into a folder of the same name, with what that has left in the cache: debug information names the folder.
Where a compiler cannot do something, that is left out, and a note says why.
"""

import os
from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Sequence

from .compiler import Compiler
from .mistake import Failed
from .project import complaint

if TYPE_CHECKING:
	from .run import Run

PLAIN = "plain"


class Extra(NamedTuple):
	"""Something that is asked of a compiler in addition to what is to be done anyway."""

	name: str
	flags: str = ""
	checker: str = ""  # a program that looks at each source before it is compiled


EXTRAS = (
	Extra(PLAIN),
	Extra("-Wall", "-Wall"),
	Extra("-Wall -Wextra", "-Wall -Wextra"),
	Extra("-O0", "-O0"),
	Extra("-O1", "-O1"),
	Extra("-O2", "-O2"),
	Extra("-O3", "-O3"),
	Extra("-g", "-g"),
	Extra("-fsanitize=address", "-fsanitize=address"),
	Extra("-fsanitize=undefined", "-fsanitize=undefined"),
	Extra("-fanalyzer", "-fanalyzer"),
	Extra("--analyze", "--analyze"),
	Extra("clang-tidy", checker="clang-tidy"),
)
CHECKS = "--checks=clang-analyzer-*,bugprone-*"
NOTES = {
	"--analyze": "clang analyzes and compiles nothing",
	"clang-tidy": "a script runs it (%s), then the compiler; to a cache that is one command" % CHECKS,
}
PROBES = {"c": "probe.c", "c++": "probe.cpp"}
PROBE = "int probe(int n) { return n + 1; }\n"

# clang-tidy and the compiler as one command, as CMake has it; what is no compile of a source goes to the compiler only
SCRIPT = """#!/bin/sh
for word; do case "$word" in *.c|*.cpp) %s --quiet '%s' "$word" -- "$@" || exit ;; esac; done
exec %s "$@"
"""


def extras_of(wanted: Optional[Sequence[str]]) -> List[Extra]:
	"""What is compared with the plain build: all that is known, or what was asked for, of which the rest are flags."""
	known = {extra.name: extra for extra in EXTRAS}
	return [known.get(name) or Extra(name, name) for name in dict.fromkeys((PLAIN, *(wanted or known)))]


class Probe(NamedTuple):
	"""A compiler with something extra, or why it cannot do that."""

	extra: Extra
	compiler: Compiler
	reason: str


def probe(extra: Extra, compiler: Compiler, language: str, folder: str, env: Dict[str, str]) -> Probe:
	"""See by compiling something small whether a compiler can do it."""
	place = os.path.join(
		folder, "".join(c if c.isalnum() else "_" for c in "probe %s %s" % (compiler.name, extra.name))
	)
	os.makedirs(place, exist_ok=True)
	if extra.checker:
		compiler = checked(extra.checker, compiler, place)
	languages = ["c", "c++"] if language == "both" else [language]
	for one in languages:
		source = os.path.join(place, PROBES[one])
		with open(source, "w", encoding="utf-8") as f:
			f.write(PROBE)
		program = compiler.cc if one == "c" else compiler.cxx
		argv = [program, *extra.flags.split(), "-c", source, "-o", source + ".o"]
		reason = next(iter(complaint(argv, env)), "") or ("" if os.path.exists(source + ".o") else "it made no object")
		if reason:
			return Probe(extra, compiler, reason)
	return Probe(extra, compiler, "")


def checked(checker: str, compiler: Compiler, place: str) -> Compiler:
	"""Both commands of a compiler with a checker before them."""
	both = []
	for name, program in (("cc", compiler.cc), ("cxx", compiler.cxx)):
		path = os.path.join(place, name)
		with open(path, "w", encoding="utf-8") as f:
			f.write(SCRIPT % (checker, CHECKS, program))
		os.chmod(path, 0o755)
		both.append(path)
	return Compiler(compiler.name, *both)


class Prices:
	"""All extras of one lane, in one repetition."""

	def __init__(self, run: "Run", build: Callable[["Run"], None], check: Callable[["Run"], None]) -> None:
		"""``build`` builds and takes the result, ``check`` sees that nothing was left out."""
		self.run = run
		self.build = build
		self.check = check

	def take(self) -> None:
		"""Measure what this compiler can do; another one begins in each repetition."""
		able = [found for found in self.probes() if not found.reason]
		turn = self.run.version % len(able)
		for found in [*able[turn:], *able[:turn]]:
			try:
				self.run.results.append((found.extra.name, self.price(found)))
			except Failed as e:
				if found.extra.name == PLAIN:
					raise
				# what does for something small need not do for the project, such as a checker that lacks headers
				who = ", ".join(filter(None, ("flags", found.extra.name, *self.run.lane.names)))
				self.run.settings["notes"][who] = "left out: %s" % e

	def probes(self) -> List[Probe]:
		"""What this compiler can do, asked once; what it cannot is noted."""
		workshop, compiler = self.run.workshop, self.run.lane.compiler
		if compiler.name not in workshop.probes:
			found = [
				probe(extra, compiler, self.run.project.language, workshop.path, workshop.environment)
				for extra in extras_of(self.run.settings["extras"])
			]
			workshop.probes[compiler.name] = found
			notes = workshop.settings["notes"]
			for extra, _, reason in found:
				if reason:
					notes["flags, %s, %s" % (extra.name, compiler.name)] = "left out: %s" % reason
				elif extra.name in NOTES:
					notes["flags, %s" % extra.name] = NOTES[extra.name]
			if found[0].reason:
				raise Failed("compiler %s cannot compile: %s" % (compiler.name, found[0].reason))
		return workshop.probes[compiler.name]

	def price(self, found: Probe) -> Dict[str, float]:
		"""Build with an empty cache, and then once more from nothing with what that has left in it."""
		run = self.run
		lane = run.lane._replace(compiler=found.compiler)
		project = run.workshop.project_with(found.extra.name, found.extra.flags, found.compiler)
		mine = type(run)(lane, project, run.workshop, run.jobs, run.version)
		mine.new_folder()
		os.sync()
		self.build(mine)
		self.check(mine)
		project.move_aside(mine.folder)
		lane.contender.builder.prepare(mine)
		os.sync()
		self.build(mine)
		self.check(mine)
		first, second = (values for _, values in mine.results)
		for name, seconds in mine.seconds_aside.items():
			run.seconds_aside[name] = run.seconds_aside.get(name, 0.0) + seconds
		values = {"wall": first["wall"], "processor": first["processor"], "warm": second["wall"]}
		if "hits" in second:
			values["hits"] = second["hits"]
		if values.get("hits", 1):  # without hits, what the second build took less is nothing that a cache gave
			values["back"] = 100 * (1 - second["wall"] / first["wall"])
		return values
