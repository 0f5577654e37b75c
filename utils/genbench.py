#! /usr/bin/env python3

"""
Generate a project to measure build systems with: LIBS static libraries of CLASSES small files each.

	genbench.py root libs classes internal external

The command line is that of Waf's own ``utils/genbench.py``: library I holds ``lib_I/class_J.cpp`` and
``lib_I/class_J.h``; each source includes its own header, INTERNAL headers of its own library and EXTERNAL headers of
libraries with lower numbers. The same arguments give the same bytes, on every machine and every Python.

Build files for Waf, CMake, ninja and make lie in the root; ``--help`` says how to call them. All of them build the same
files with the same flags, each into a folder of its own. ``CXX``, ``CC``, ``CXXFLAGS`` and ``CFLAGS`` are taken from
the environment by Waf, CMake and make. Ninja and commands.txt cannot look there: for them ``--cxx``, ``--cc`` and
``--flags`` set what is written, which is also what the others take when the environment says nothing.

genbench makes the folders below out-xargs/, as a compiler does not; to run commands.txt again from nothing, do
``find out-xargs -name '*.o' -delete`` first.

The work is done by ``generator``: look there for what the files are made of.
"""

import argparse
import re
import sys
from typing import Callable, List, Optional, Sequence

from generator import VERSION
from generator.buildfiles import commands_text, ninja_text
from generator.draws import Draws
from generator.plan import BUILD_FILES, LANGUAGES, WEIGHTS, Impossible
from generator.project import Project
from generator.writing import Refused, generate

# the names for programs that import this one
__all__ = ["LANGUAGES", "VERSION", "WEIGHTS", "Draws", "Impossible", "Project", "Refused", "commands_text"]
__all__ += ["generate", "main", "ninja_text"]

EXAMPLES = """\
examples:
  genbench.py /tmp/bench 50 100 15 5                 5,000 tiny C++ files, the usual benchmark
  genbench.py /tmp/bench 10 50 15 5 --weight realistic
                                                     files that compile as long as those of an application
  genbench.py /tmp/bench 10 50 15 5 --language both --program
                                                     half of them C, and a program that prints a checksum
  genbench.py /tmp/bench 50 100 15 5 --cxx clang++ --flags '-O2 -g' --force
                                                     replaces what genbench made there before

building it, in the folder:
  waf configure build                                into out/; GENBENCH_TOOLS names extra tools to load
  cmake -B out-cmake && cmake --build out-cmake -j2
  ninja                                              into out-ninja/
  make -j2                                           into out-make/
  xargs -P2 -L1 env < commands.txt                   into out-xargs/; the compilers alone, objects only
"""


WEIGHT_HELP = """\
light (default: headers as tiny as those of Waf's own generator), realistic (templates, inline functions, a few system
headers: about 150 ms a file with g++, 50 with gcc) or heavy (several times that)"""

COMMON_HELP = """all sources of a library begin with one header, which includes those of its first N classes and the
system headers of the weight (default 0: none)"""


class Parser(argparse.ArgumentParser):
	"""Says what is wrong in one line."""

	def error(self, message: str) -> None:  # type: ignore[override]
		self.exit(2, "genbench: %s; see genbench.py --help\n" % message)


def whole_number(text: str) -> int:
	if not re.fullmatch(r"[+-]?[0-9]{1,100}", text):
		raise argparse.ArgumentTypeError("%.40r is not a whole number, give digits" % text)
	return int(text)


def command_line() -> Parser:
	parser = Parser(
		prog="genbench.py",
		description="Generate a project to measure build systems with. The same arguments give the same files.",
		epilog=EXAMPLES,
		formatter_class=argparse.RawDescriptionHelpFormatter,
		allow_abbrev=False,
	)
	add = parser.add_argument
	add("root", help="folder to make the project in")
	add("libs", type=whole_number, help="number of static libraries; each uses only those with lower numbers")
	add("classes", type=whole_number, help="number of classes per library: one source and one header each")
	add("internal", type=whole_number, help="number of headers of its own library that each source includes")
	add("external", type=whole_number, help="number of headers of other libraries that each source includes")
	add("--seed", type=whole_number, default=0, metavar="N", help="another number, another project (default 0)")
	add("--language", default="c++", metavar="L", help="c, c++ (default) or both: every other class in C")
	add("--weight", default="light", metavar="W", help=WEIGHT_HELP)
	add("--common", type=whole_number, default=0, metavar="N", help=COMMON_HELP)
	add("--program", action="store_true", help="add a program that calls every class and prints a checksum")
	everything = ",".join(BUILD_FILES)
	add("--build-files", default=everything, metavar="LIST", help="for which build systems (default %s)" % everything)
	add("--cxx", default="g++", metavar="COMMAND", help="the C++ compiler that is written (default g++)")
	add("--cc", default="gcc", metavar="COMMAND", help="the C compiler that is written (default gcc)")
	add("--flags", default="", metavar="FLAGS", help="the compilers' flags that are written (default none)")
	add("--force", action="store_true", help="write into a folder that is not empty; replaces what genbench made there")
	add("--quiet", action="store_true", help="print nothing but errors")
	add("--version", action="version", version="genbench " + VERSION)
	return parser


def planned(arguments: argparse.Namespace) -> Project:
	given = dict(vars(arguments))
	for other in ("root", "force", "quiet"):
		del given[other]
	given["build_files"] = given["build_files"].replace(",", " ").split()
	return Project(**given)


def flags_joined(argv: Sequence[str]) -> List[str]:
	"""``--flags -O2`` as ``--flags=-O2``: argparse takes a value that begins with a dash for another option"""
	joined: List[str] = []
	for word in argv:
		if joined and joined[-1] == "--flags":
			joined[-1] += "=" + word
		else:
			joined.append(word)
	return joined


def progress(project: Project, quiet: bool) -> Callable[[int], None]:
	"""A counter on a terminal, when there is something to wait for."""
	total = project.count()
	if quiet or total < 2000 or not sys.stderr.isatty():
		return lambda written: None

	def show(written: int) -> None:
		if written % 500 == 0 or written == total:
			# The cursor goes back before the line ends, so that an error takes the counter's place.
			sys.stderr.write("%d of %d files%s" % (written, total, "\n" if written == total else "\r"))
			sys.stderr.flush()

	return show


def main(argv: Optional[Sequence[str]] = None) -> int:
	parser = command_line()
	arguments = parser.parse_args(flags_joined(sys.argv[1:] if argv is None else argv))
	root = arguments.root
	if not root:
		parser.error("root is empty, name a folder")
	try:
		project = planned(arguments)
	except Impossible as error:
		parser.error(str(error))
	try:
		generate(project, root, arguments.force, progress(project, arguments.quiet))
	except Refused as error:
		parser.exit(1, "genbench: %s\n" % error)
	except OSError as error:
		where, why = error.filename or root, error.strerror or error
		parser.exit(1, "genbench: cannot write %s: %s; name a folder that can be written\n" % (where, why))
	except KeyboardInterrupt:
		parser.exit(130, "genbench: interrupted, %s is incomplete; --force begins again\n" % root)
	if not arguments.quiet:
		numbers = (project.libs * project.classes, project.libs, project.count())
		print("%d classes in %d libraries, %d files. How to build them: --help" % numbers)
	return 0


if __name__ == "__main__":
	sys.exit(main())
