"""A compiler under test: one name that stands for its C and its C++ command."""

import re
import shutil
from typing import Collection, NamedTuple

from .machine import version_of
from .mistake import Mistake

PAIRS = (("clang++", "clang"), ("g++", "gcc"), ("c++", "cc"))


class Compiler(NamedTuple):
	"""Both commands of a compiler, under the name that the user gave it."""

	name: str
	cc: str
	cxx: str

	@property
	def version(self) -> str:
		return version_of(self.name, "--version")


def both_commands(name: str) -> Compiler:
	"""Complete a compiler's C or C++ command by the other one: ``clang++-14`` goes with ``clang-14``."""
	folder, slash, program = name.rpartition("/")
	for cxx, cc in PAIRS:
		for mine, other, is_cxx in ((cxx, cc, True), (cc, cxx, False)):
			# the name may have a target before it and a version behind it
			found = re.fullmatch(r"(.*-)?%s(-[\d.]+)?" % re.escape(mine), program)
			if found:
				twin = folder + slash + (found.group(1) or "") + other + (found.group(2) or "")
				return Compiler(name, twin, name) if is_cxx else Compiler(name, name, twin)
	return Compiler(name, name, name)


def find_compiler(name: str, languages: Collection[str]) -> Compiler:
	"""The compiler of that name, if it can compile these languages."""
	compiler = both_commands(name)
	needed = {"c": [compiler.cc], "c++": [compiler.cxx], "both": [compiler.cc, compiler.cxx]}
	for program in dict.fromkeys(program for language in sorted(languages) for program in needed[language]):
		if not shutil.which(program):
			raise Mistake("compiler %s was not found: install it, or choose others with --compilers" % program)
	return compiler
