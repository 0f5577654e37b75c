"""
Links and archives of growing size, plainly and behind the cache: the contenders of the scenario ``links``.

Each is made under some new names, which are misses, and then once more under the same names, which are hits. The time
of a miss has observing and storing in it, so it tells what caching a link costs where it is never a hit.
"""

import os
import shutil
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Dict, Iterator, List, NamedTuple, Tuple

from .builder import LINK, Builder
from .meter import Command
from .mistake import Failed
from .project import C_COMPILER, digest_of

if TYPE_CHECKING:
	from .run import Run

KIB = 1 << 10
SIZES = (256, 1 << 10, 4 << 10, 16 << 10, 64 << 10)
"""KiB that the objects have together."""
OBJECT = 128 << 10
"""The least that an object has, in bytes."""
FUNCTIONS = 20  # of the first source that is tried: the functions are doubled until the object is large enough
QUIET = 0.5  # seconds: caches do not trust what was written just before
PATIENCE = 600


class Kind(NamedTuple):
	"""A way to put objects together."""

	name: str
	argv: List[str]
	"""What goes before the objects. ``{}`` is the output."""
	program: str


KINDS = (Kind("link", [C_COMPILER, "-o", "{}", "main.o"], C_COMPILER), Kind("archive", ["ar", "rcs", "{}"], "ar"))


class Linker(Builder):
	"""The system's linker, which the compiler starts, and its archiver."""

	program = C_COMPILER
	abilities = frozenset((LINK,))
	note = "gcc as the linker, and ar; with a cache, the first row of each size is a miss, and the second one a hit"

	def take(self, run: "Run") -> Iterator[Tuple[str, float]]:
		"""Milliseconds of each kind and size: the first time, and once more."""
		names = make_objects(run.path(""), max(SIZES), run.environment)
		size = os.path.getsize(run.path(names[0])) / KIB
		time.sleep(QUIET)
		for kind in KINDS:
			for wanted in SIZES:
				objects = names[: max(round(wanted / size), 1)]
				for when, value in zip(("first", "again"), self.measure(run, kind, objects)):
					yield "%s of %g MiB, %s, ms" % (kind.name, wanted / KIB, when), value

	def measure(self, run: "Run", kind: Kind, objects: List[str]) -> Tuple[float, float]:
		outputs = ["%s-%d-%d" % (kind.name, len(objects), n) for n in range(run.settings["commands"]["links"])]
		first = [self.make(run, kind, output, objects) for output in outputs]
		before = run.cache.hits() if run.cache else None
		for output in outputs:
			os.unlink(run.path(output))
		again = [self.make(run, kind, output, objects) for output in outputs]
		if run.cache and before is not None and (run.cache.hits() or 0) - before < len(outputs):
			raise Failed("only %d of %d were hits" % ((run.cache.hits() or 0) - before, len(outputs)))
		return 1000 * statistics.median(first), 1000 * statistics.median(again)

	def make(self, run: "Run", kind: Kind, output: str, objects: List[str]) -> float:
		"""Make one, and return the seconds that it took."""
		wrapped = [*run.wrapped, "run", "--"] if run.wrapped else []
		argv = [*wrapped, *(word.replace("{}", output) for word in kind.argv), *objects]
		return run.execute(Command(argv, run.path(""), run.environment)).wall

	def digests(self, run: "Run") -> Dict[str, str]:
		"""The digest of each output that is left."""
		found = sorted(name for name in os.listdir(run.path("")) if name.startswith(tuple(k.name + "-" for k in KINDS)))
		return {name: digest_of(run.path(name)) for name in found}


def make_objects(folder: str, size: int, env: Dict[str, str]) -> List[str]:
	"""Make objects that have ``size`` KiB together, all with symbols of their own, and ``main.o``, which needs one."""

	def call(*argv: str) -> None:
		done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, timeout=PATIENCE)
		if done.returncode:
			raise Failed("%s: %s" % (argv[0], done.stderr.decode("utf-8", "replace").strip()))

	functions = FUNCTIONS
	while True:
		write(folder, "base.c", source_of(functions))
		call(C_COMPILER, "-O1", "-c", "base.c", "-o", "base.o")
		if os.path.getsize(os.path.join(folder, "base.o")) >= OBJECT:
			break
		functions *= 2
	write(folder, "main.c", "int p0_f0(int);\nint main(void) { return p0_f0(1); }\n")
	call(C_COMPILER, "-c", "main.c", "-o", "main.o")
	count = -(-size * KIB // os.path.getsize(os.path.join(folder, "base.o")))
	names = ["part_%d.o" % n for n in range(count)]
	if not shutil.which("objcopy"):
		raise Failed("objcopy is not installed: it is a part of binutils")
	for number, name in enumerate(names):
		call("objcopy", "--prefix-symbols=p%d_" % number, "base.o", name)
	return names


def source_of(functions: int) -> str:
	"""Functions that call each other and have constants of their own, as real code has."""
	lines = ["int f%d(int x);" % n for n in range(functions)]
	for n in range(functions):
		lines.append('const char *const name%d = "the name of the function with the number %d";' % (n, n))
		lines.append("static int table%d[] = {%s};" % (n, ", ".join(str(n * k) for k in range(16))))
		lines.append("int f%d(int x)" % n)
		lines.append("{")
		lines.append("\tif (x > %d)" % n)
		lines.append("\t\treturn f%d(x - 1) + table%d[x %% 16];" % ((n + 1) % functions, n))
		lines.append("\treturn name%d[x %% 8] + f%d(x / 2);" % (n, (7 * n + 3) % functions))
		lines.append("}")
	return "\n".join(lines) + "\n"


def write(folder: str, name: str, text: str) -> None:
	with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
		f.write(text)
