"""The project of real C or C++ code: its packages, copied, with the files of each build system."""

import json
import os
import shutil
from typing import Dict, List, NamedTuple, Sequence

from .compiler import Compiler
from .contender import XARGS_FOLDER
from .mistake import Mistake
from .package import Package
from .project import HERE, Project, write_files

FOLDER = "packages"  # the folder of the copies, so that no file of theirs hides one of ours
TEMPLATES = os.path.join(HERE, "projects", "sources")
FLAGS = {"c": "-O2", "c++": "-O2 -std=c++17"}


class Dialect(NamedTuple):
	"""The names that build systems have for a language."""

	name: str  # ninja's variable and rule, and the end of Waf's tool
	variable: str  # make's


DIALECTS = {"c": Dialect("c", "CC"), "c++": Dialect("cxx", "CXX")}


class SourceProject(Project):
	"""A folder with packages of one language."""

	def __init__(self, root: str, packages: Sequence[Package]) -> None:
		super().__init__(root, packages[0].language)
		self.packages = packages

	def sources(self) -> List[str]:
		return [source for package in self.packages for source in sources_of(package)]


def write_sources(root: str, packages: Sequence[Package], compiler: Compiler, flags: str) -> SourceProject:
	"""Copy packages into a folder and write how each build system compiles them."""
	for package in packages:
		try:
			package.copy(os.path.join(root, folder_of(package)))
		except OSError as e:
			raise Mistake("cannot copy %s: %s" % (e.filename or package.root, e.strerror)) from None
	shutil.copyfile(os.path.join(TEMPLATES, "wscript"), os.path.join(root, "wscript"))
	words = flags.split()
	program = compiler.cc if packages[0].language == "c" else compiler.cxx
	names = {"@compiler@": program, "@flags@": " ".join(words)}
	texts = {
		"packages.json": json.dumps(describe(packages, words), indent=1),
		"build.ninja": ninja_text(packages, names),
		"Makefile": makefile_text(packages, names),
		"commands.txt": commands_text(packages, [program, *words]),
	}
	write_files(root, texts)
	return SourceProject(root, packages)


def folder_of(package: Package) -> str:
	return os.path.join(FOLDER, package.name)


def sources_of(package: Package) -> List[str]:
	return [os.path.join(folder_of(package), source) for source in package.sources]


def options_of(package: Package) -> List[str]:
	return [*("-I" + folder for folder in includes_of(package)), *("-D" + define for define in package.defines)]


def includes_of(package: Package) -> List[str]:
	return [os.path.normpath(os.path.join(folder_of(package), folder)) for folder in package.includes]


def describe(packages: Sequence[Package], flags: Sequence[str]) -> Dict[str, object]:
	"""The data of ``packages.json``, which the wscript reads."""
	described = [
		{"name": one.name, "includes": includes_of(one), "sources": sources_of(one), "defines": one.defines}
		for one in packages
	]
	return {"language": DIALECTS[packages[0].language].name, "flags": flags, "packages": described}


def load(name: str, names: Dict[str, str]) -> str:
	"""The beginning of a build file, with names filled in."""
	with open(os.path.join(TEMPLATES, name), encoding="utf-8") as f:
		text = f.read()
	for token, value in names.items():
		text = text.replace(token, value)
	return text


def ninja_text(packages: Sequence[Package], names: Dict[str, str]) -> str:
	rule = DIALECTS[packages[0].language].name
	lines = [load("build.ninja", {**names, "@name@": rule})]
	for package in packages:
		own = " ".join(options_of(package))
		sources = sources_of(package)
		lines += ["build $folder/%s.o: %s %s\n  own = %s\n" % (source, rule, source, own) for source in sources]
		objects = " ".join("$folder/%s.o" % source for source in sources)
		lines.append("build $folder/lib%s.a: ar %s\n" % (package.name, objects))
	return "".join(lines)


def makefile_text(packages: Sequence[Package], names: Dict[str, str]) -> str:
	folders = dict.fromkeys(os.path.dirname(source) for package in packages for source in sources_of(package))
	variable = DIALECTS[packages[0].language].variable
	lines = [load("Makefile", {**names, "@variable@": variable, "@folders@": " ".join(folders)})]
	for suffix in sorted({os.path.splitext(source)[1] for package in packages for source in package.sources}):
		lines.append(load("compile.mk", {**names, "@variable@": variable, "@suffix@": suffix}))
	for package in packages:
		sources = sources_of(package)
		lines.append("\nobjects := %s\n" % " ".join("$(out)/%s.o" % source for source in sources))
		lines.append("$(objects): own = %s\n" % " ".join(options_of(package)))
		lines += ["$(out)/%s.o: | $(out)/%s\n" % (source, os.path.dirname(source)) for source in sources]
		lines.append("all: $(out)/lib%s.a\n$(out)/lib%s.a: $(objects)\n" % (package.name, package.name))
		lines.append("-include $(wildcard $(objects:.o=.d))\n")
	return "".join(lines)


def commands_text(packages: Sequence[Package], start: Sequence[str]) -> str:
	"""The project for no build system: one command per source, of words that need no shell."""
	lines = []
	for package in packages:
		for source in sources_of(package):
			words = [*start, *options_of(package), "-c", source, "-o", "%s/%s.o" % (XARGS_FOLDER, source)]
			lines.append(" ".join(words) + "\n")
	return "".join(lines)
