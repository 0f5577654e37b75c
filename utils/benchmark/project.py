"""The projects that are built: generated sources, or commands that only sleep."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .compiler import Compiler
from .mistake import Failed, Mistake

HERE = os.path.dirname(os.path.abspath(__file__))
GENBENCH = os.path.join(os.path.dirname(HERE), "genbench.py")
SOURCES = (".c", ".cpp")
NAP = 0.1  # seconds that a command of the sleeping project takes
HIT_HEADERS, HIT_FOLDERS = 20, 4  # of the small file whose compile is asked of caches
SPAWN = os.path.join(HERE, "projects", "spawn")  # the programs in C that measure
COSTLY = os.path.join(os.path.dirname(os.path.dirname(HERE)), "playground", "batch", "costly.py")
PATIENCE = 600  # seconds that a project may take to be written, or a small program to be compiled
SHAPES = 40  # sources of the compiler with a costly start
C_COMPILER = "cc"  # of programs that a project needs itself

Snapshot = Dict[str, "Stamp"]


class Stamp(NamedTuple):
	"""Changes whenever a file is written again."""

	mtime: int
	inode: int
	size: int


class Answers(NamedTuple):
	"""The results of a configure, and the contender."""

	who: str
	texts: Dict[str, str]


class Project:
	"""A folder with the same project for every build system."""

	def __init__(self, root: str, language: str = "") -> None:
		self.root = root
		self.language = language
		"""The language of its sources; empty if nothing is compiled."""
		self.folders = 0
		self.originals: Dict[str, str] = {}
		self.answers: Optional[Answers] = None
		"""The results of the first contender's configure."""
		self.first: Optional[Tuple[str, Dict[str, str]]] = None
		"""The first contender whose objects were compared, and their digests by source."""

	@property
	def commands(self) -> List[str]:
		"""The commands of the project without any build system."""
		return self.read("commands.txt").splitlines()

	def read(self, name: str) -> str:
		with open(os.path.join(self.root, name), encoding="utf-8") as f:
			return f.read()

	def new_folder(self, label: str) -> str:
		"""
		A folder for one build, relative to the root, that no build had before.

		It is never emptied for the next one: on ext4, creating files just after others were deleted costs ten times
		more, and the contender that comes next would pay for it.
		"""
		self.folders += 1
		folder = os.path.join("builds", "%03d-%s" % (self.folders, label))
		os.makedirs(os.path.join(self.root, folder))
		return folder

	def move_aside(self, folder: str) -> None:
		"""Rename a build folder, which stays until the end, and make a new one in its place."""
		path = os.path.join(self.root, folder)
		os.rename(path, path + "-before")
		os.makedirs(path)

	def objects(self, folder: str) -> Snapshot:
		"""The object files below a folder, empty ones left out: a compiler that was stopped leaves such."""
		found = {}
		for path, _, names in os.walk(os.path.join(self.root, folder)):
			for name in names:
				if name.endswith(".o"):
					info = os.stat(os.path.join(path, name))
					if info.st_size:
						found[os.path.join(path, name)] = Stamp(info.st_mtime_ns, info.st_ino, info.st_size)
		return found

	def found(self, folder: str, ending: str) -> List[str]:
		"""The files below a folder whose names end so; builds in it left out, unless it is one."""
		names = []
		for path, folders, files in os.walk(os.path.join(self.root, folder)):
			folders[:] = [name for name in folders if name != "builds"]
			names += [os.path.join(path, name) for name in files if name.endswith(ending)]
		return names

	def compare(self, folder: str, name: str) -> Tuple[str, List[str]]:
		"""The contender whose objects were compared first, and the sources whose objects differ from those."""
		digests = {}
		for path in self.objects(folder):
			source = source_of(os.path.relpath(path, os.path.join(self.root, folder)))
			digests[source] = digest_of(path)
		return self.compare_digests(digests, name)

	def compare_digests(self, digests: Dict[str, str], name: str) -> Tuple[str, List[str]]:
		"""Compare digests instead of files."""
		self.first = self.first or (name, digests)
		first, wanted = self.first
		return first, sorted(source for source in {*digests, *wanted} if digests.get(source) != wanted.get(source))

	def sources(self) -> List[str]:
		libs = sorted(name for name in os.listdir(self.root) if name.startswith("lib_"))
		found = []
		for lib in libs:
			names = sorted(os.listdir(os.path.join(self.root, lib)))
			found += [os.path.join(lib, name) for name in names if name.endswith(SOURCES)]
		return found

	def edit(self, version: int) -> str:
		"""
		Bring one source to a version, and name it.

		All contenders build the same tree and go through the same edits in step. The first to come edits; for the
		others the file has changed just as much since they last built it.
		"""
		sources = self.sources()
		source = sources[len(sources) // 2]
		original = self.originals.setdefault(source, self.read(source))
		text = "%s\nint edited_by_bench(void) { return %d; }\n" % (original, version)
		if self.read(source) != text:
			with open(os.path.join(self.root, source), "w", encoding="utf-8") as f:
				f.write(text)
		return source


def generate_sources(root: str, settings: Dict[str, object], compiler: Compiler, env: Dict[str, str]) -> Project:
	argv = [sys.executable, GENBENCH, root, *str(settings["size"]).split(","), "--quiet"]
	argv += ["--seed", str(settings["seed"]), "--language", str(settings["language"])]
	argv += ["--cc", compiler.cc, "--cxx", compiler.cxx]
	for option in ("weight", "flags", "common"):
		if settings.get(option) is not None:
			argv.append("--%s=%s" % (option, settings[option]))
	said = complaint(argv, env)
	if said:
		raise Mistake("genbench.py could not write the project: %s" % said[-1])
	return Project(root, str(settings["language"]))


def complaint(argv: List[str], env: Dict[str, str], cwd: Optional[str] = None) -> List[str]:
	"""Run a command; the lines that it has printed if it has failed, one at least."""
	pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
	try:
		done = subprocess.run(argv, cwd=cwd, env=env, timeout=PATIENCE, **pipes)
	except (OSError, subprocess.TimeoutExpired) as e:
		return [str(e)]
	lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
	return (lines or ["exit status %d" % done.returncode]) if done.returncode else []


def write_files(root: str, files: Dict[str, str]) -> None:
	for name, text in files.items():
		with open(os.path.join(root, name), "w", encoding="utf-8") as f:
			f.write(text)


def write_sleeps(root: str, count: int) -> Project:
	"""Write a project of commands that only sleep."""
	shutil.copytree(os.path.join(HERE, "projects", "sleeps"), root)
	command = "sleep %s" % NAP
	names = ["nap_%d" % n for n in range(count)]
	files = {
		"commands.txt": "".join("%s\n" % command for _ in names),
		"build.ninja": ninja_of(command, names),
		"Makefile": "all: %s\n%s:\n\t%s\n.PHONY: all %s\n" % ((" ".join(names),) * 2 + (command, " ".join(names))),
	}
	write_files(root, files)
	return Project(root)


def copy_project(name: str, root: str) -> Project:
	"""Copy a project that is the same for all, for Waf only."""
	shutil.copytree(os.path.join(HERE, "projects", name), root)
	return Project(root)


def write_costly(root: str) -> Project:
	"""Write the project of a compiler with a costly start, for Waf only."""
	project = copy_project("costly", root)
	shutil.copy(COSTLY, root)
	write_files(root, {"s%d.shape" % n: "%d\n" % n for n in range(SHAPES)})
	return project


def write_nothing(root: str) -> Project:
	"""Make an empty folder, for servers and stores."""
	os.makedirs(root)
	return Project(root)


def write_spawns(root: str, env: Dict[str, str]) -> Project:
	"""Compile the smallest program, and the one that starts it in each way that C has."""
	project = copy_project("spawn", root)
	compile_programs(root, ("nothing", "spawn"), env)
	return project


def write_hits(root: str, compiler: Compiler, env: Dict[str, str]) -> Project:
	"""Compile the programs that ask for one result again and again, and write what that comes from."""
	shutil.copytree(os.path.join(HERE, "projects", "hits"), root)
	compile_programs(root, ("spawn", "ask"), env)
	headers = ["part_%d/header_%d.h" % (n % HIT_FOLDERS, n) for n in range(HIT_HEADERS)]
	for folder in {os.path.dirname(header) for header in headers}:
		os.makedirs(os.path.join(root, folder))
	files = {header: "#pragma once\nstruct S%d { int get() const; };\n" % n for n, header in enumerate(headers)}
	used = "".join("int S%d::get() const { return %d; }\n" % (n, n) for n in range(HIT_HEADERS))
	files["small.cpp"] = "".join('#include "%s"\n' % header for header in headers) + used
	files["commands.txt"] = "%s -c small.cpp -o small.o\n" % compiler.cxx
	write_files(root, files)
	return Project(root, "c++")


def compile_programs(root: str, names: Sequence[str], env: Dict[str, str]) -> None:
	"""Compile programs that a project needs itself."""
	for name in names:
		said = complaint([C_COMPILER, "-O2", "-o", name, os.path.join(SPAWN, name + ".c")], env, root)
		if said:
			raise Mistake("%s could not compile %s.c: %s" % (C_COMPILER, name, said[0]))


def write_configure(root: str, compiler: Compiler) -> Project:
	"""Write the project that is only configured, by Waf alone. Its one command warms a compiler up."""
	shutil.copytree(os.path.join(HERE, "projects", "configure"), root)
	files = {"main.c": "int main(void) { return 0; }\n", "commands.txt": "%s -c main.c -o main.o\n" % compiler.cc}
	write_files(root, files)
	return Project(root, "c")


def ninja_of(command: str, names: List[str]) -> str:
	rule = "folder = out-ninja\nbuilddir = $folder\nrule nap\n  command = %s\n" % command
	return rule + "".join("build %s: nap\n" % name for name in names)


def rebind(text: str, name: str, value: str) -> str:
	"""
	Give a variable of a ninja file another value.

	ninja takes no variables on its command line, so the file is written anew for every build folder.
	"""
	text, found = re.subn(r"(?m)^%s\s*=.*$" % re.escape(name), lambda _: "%s = %s" % (name, value), text, count=1)
	if not found:
		raise Failed("build.ninja binds no variable named %s" % name)
	return text


def digest_of(path: str) -> str:
	with open(path, "rb") as f:
		return hashlib.sha256(f.read()).hexdigest()


def source_of(path: str) -> str:
	"""The source of an object: Waf puts the number of a library before the ending, the others put nothing."""
	return re.sub(r"(\.c|\.cc|\.cpp|\.cxx)(\.\d+)?\.o$", r"\1", path)


def program_of(lines: List[str]) -> Optional[List[str]]:
	"""The words before the first option, when all the command lines begin with the same ones."""
	heads = set()
	for line in lines:
		words = line.split()
		options = [n for n, word in enumerate(words) if word.startswith("-")]
		heads.add(tuple(words[: options[0]] if options else words[:1]))
	return list(heads.pop()) if len(heads) == 1 else None
