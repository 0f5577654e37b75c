"""Which classes and files a project has, which class includes which, and which numbers describe no project."""

import re
from dataclasses import dataclass
from typing import Iterator, List, NamedTuple, Tuple

from .draws import Draws

LANGUAGES = ("c", "c++", "both")
WEIGHTS = ("light", "realistic", "heavy")
SUFFIX = {"c": ".c", "c++": ".cpp"}
BUILD_FILES = {"waf": "wscript", "cmake": "CMakeLists.txt", "ninja": "build.ninja", "make": "Makefile"}

# Limits of the build systems: `make` and Waf pass all objects of a library to `ar` in one command line.
MOST_LIBS = 10000
MOST_CLASSES = 10000
MOST_FILES = 1000000
MOST_INCLUDES = 100000000


class Impossible(ValueError):
	"""The parameters describe no project; the message is one line that says which, and what would do."""


class Class(NamedTuple):
	"""One class: where it lives, and the language of its source."""

	lib: int
	number: int
	language: str

	@property
	def stem(self) -> str:
		return "lib_%d/class_%d" % (self.lib, self.number)

	@property
	def source(self) -> str:
		return self.stem + SUFFIX[self.language]

	@property
	def c_name(self) -> str:
		return "lib_%d_class_%d" % (self.lib, self.number)

	@property
	def cxx_name(self) -> str:
		return "lib_%d::class_%d" % (self.lib, self.number)


@dataclass(frozen=True)
class Plan:
	"""
	A benchmark project by its parameters, without the text of its files; the same parameters make the same plan.

	Raises `Impossible` when they describe none.
	"""

	libs: int
	classes: int
	internal: int
	external: int
	language: str = "c++"
	weight: str = "light"
	seed: int = 0
	program: bool = False
	build_files: Tuple[str, ...] = tuple(BUILD_FILES)
	cxx: str = "g++"
	cc: str = "gcc"
	flags: str = ""
	common: int = 0  # the classes of each library whose headers all of its sources include first, by one header

	def __post_init__(self) -> None:
		object.__setattr__(self, "build_files", tuple(self.build_files))
		check_numbers(self)
		check_words(self)

	def language_of(self, lib: int, number: int) -> str:
		"""The language of one source; of both, every other one is C, and libraries begin with either in turn."""
		if self.language != "both":
			return self.language
		return ("c++", "c")[(lib + number) % 2]

	def class_at(self, lib: int, number: int) -> Class:
		return Class(lib, number, self.language_of(lib, number))

	def library(self, lib: int) -> List[Class]:
		return [self.class_at(lib, number) for number in range(self.classes)]

	def languages(self) -> List[str]:
		"""Which of c and c++ the compilers are needed for, the one that links first."""
		return {"c": ["c"], "c++": ["c++"], "both": ["c++", "c"]}[self.language]

	def includes(self, unit: Class) -> Tuple[List[Class], List[Class]]:
		"""
		The classes of its own library and of lower ones that a source includes, besides its own header.

		As with Waf's own generator, its own may be among the internal ones, and the first library has no external ones.
		"""
		draws = Draws(self.seed, unit.lib, unit.number)
		internal = [self.class_at(unit.lib, number) for number in draws.sample(self.classes, self.internal)]
		if not unit.lib:
			return internal, []
		numbers = draws.sample(self.classes, self.external)
		return internal, [self.class_at(draws.below(unit.lib), number) for number in numbers]

	def program_sources(self) -> List[str]:
		"""The sources of the program, the main one first; there are none without --program."""
		suffix = SUFFIX[self.languages()[0]]
		names = ["main"] + ["lib_%d" % lib for lib in range(self.libs)]
		return ["program/%s%s" % (name, suffix) for name in names] if self.program else []

	def sources(self) -> Iterator[str]:
		"""Every file that a compiler is started for."""
		for lib in range(self.libs):
			for unit in self.library(lib):
				yield unit.source
		yield from self.program_sources()

	def source_folders(self) -> List[str]:
		return ["lib_%d" % lib for lib in range(self.libs)] + ["program"] * self.program

	def folders(self) -> List[str]:
		"""Every folder, parents first."""
		return self.source_folders() + ["out-xargs"] + ["out-xargs/" + folder for folder in self.source_folders()]

	def summary(self) -> str:
		"""The arguments that make the same sources."""
		numbers = "%d %d %d %d" % (self.libs, self.classes, self.internal, self.external)
		words = " --language %s --weight %s --seed %d" % (self.language, self.weight, self.seed)
		return numbers + words + " --program" * self.program + (" --common %d" % self.common if self.common else "")


def check_numbers(plan: Plan) -> None:
	classes = plan.classes
	why_internal = ": a library has %d classes, and each is included once; or give more classes" % classes
	why_external = ": at most one of each of the %d class numbers; or give more classes" % classes
	bounds = (
		("libs", 1, MOST_LIBS, ""),
		("classes", 1, MOST_CLASSES, ""),
		("internal", 0, classes, why_internal),
		("external", 0, classes, why_external),
		("seed", 0, Draws.MASK, ""),
		("common", 0, classes, ": a library has %d classes; or give more classes" % classes),
	)
	for name, lowest, highest, why in bounds:
		number = getattr(plan, name)
		if not lowest <= number <= highest:
			raise Impossible("%s is %d, give %d to %d%s" % (name, number, lowest, highest, why))

	files = plan.libs * classes
	if files > MOST_FILES:
		raise Impossible("libs x classes is %d, give at most %d: take fewer of either" % (files, MOST_FILES))
	lines = files * (plan.internal + plan.external)
	if lines > MOST_INCLUDES:
		limit = "give at most %d: take smaller numbers" % MOST_INCLUDES
		raise Impossible("libs x classes x (internal + external) is %d, %s" % (lines, limit))


def check_words(plan: Plan) -> None:
	choices = (
		("language", LANGUAGES, [plan.language]),
		("weight", WEIGHTS, [plan.weight]),
		("build-files", tuple(BUILD_FILES), plan.build_files),
	)
	for name, known, given in choices:
		for word in given:
			if word not in known:
				raise Impossible("%s does not know %r, choose of: %s" % (name, word, " ".join(known)))
	if len(set(plan.build_files)) < len(plan.build_files):
		raise Impossible("build-files names something twice: name each once")

	# Five programs read these words, each with quoting rules of its own: so only words that need no quotes anywhere.
	for name, required in (("cxx", True), ("cc", True), ("flags", False)):
		words = getattr(plan, name)
		if re.search(r"[^-A-Za-z0-9_+=:,./@% ]", words):
			allowed = "letters, digits, blanks and any of -_+=:,./@%"
			raise Impossible("%s is %r, give plain words: %s" % (name, words, allowed))
		if required and not words.strip():
			raise Impossible("%s is empty, name a compiler" % name)
