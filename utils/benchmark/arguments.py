"""The command line of ``bench.py``."""

import argparse
import os
import shutil
import sys
import time
from typing import Any, Callable, List, Mapping, NoReturn, Optional, Sequence, Tuple

from . import ablation, contender, large, price, readme, scenario, served
from .interpreter import ROOT
from .interrupt import Interrupted
from .mistake import Mistake

DESCRIPTION = (
	"Measure builds, scenarios by contenders by compilers by interpreters, in turn, and keep the raw values as JSON."
)

EXAMPLES = """
examples:
  bench.py                                            full, noop and onefile, 500 small C++ files, every contender here
  bench.py full --contenders waf,prefork,ninja --compilers g++,clang++ --size 50,100,15,5 --repeat 5
  bench.py noop --contenders waf,ninja --interpreters python3,pypy3 --baseline ninja
  bench.py warm --contenders ninja+ccache,ninja+sccache,ninja+wafcc,waf+wafcc
  bench.py full --weight realistic --language both --json full.json --work /var/tmp
  bench.py full --size 1,100,15,0 --weight realistic --common 15 --contenders ninja,ninja+wafcc,ninja+wafcc-shared
                                                      sources that begin alike
  bench.py curve --contenders waf,prefork,ninja,bare --jobs 256 --commands 50
  bench.py spawn --interpreters python3,pypy3 --parents 10,1000
  bench.py sources --compilers clang,gcc              zstd, Lua and zlib, which cargo fetches (yours: --sources DIR)
  bench.py project --contenders ninja,ninja+ccache    CaDiCaL and LevelDB, in C++, with caches cold and warm
  bench.py precompiled --compilers g++,clang++        C++ code with a precompiled header of Boost
  bench.py boards --size 1,50,15,0 --common 5 --contenders ninja,ninja+ccache,ninja+wafcc-texts
  bench.py header --size 1,50,15,0 --common 5 --contenders ninja,ninja+ccache,ninja+wafcc-texts
  bench.py large --contenders large --interpreters pypy3 --tasks 100000,500000 --repeat 1
  bench.py flags --compilers g++,clang++ --weight realistic --contenders ninja+wafcc
  bench.py stores --repeat 1                          our store, LMDB and redb: times, sizes, damage
  bench.py filesystems --commands 20000               ext4, xfs, btrfs, tmpfs and overlayfs under builds (as root)
  bench.py memory --repeat 1                          builds within a limit of memory (as root)
  bench.py second-machine --size 50,100,15,5          a first build from a server that another machine has filled
  bench.py full warm --engine old=/tmp/old/engine/target/release --contenders ninja+wafcc@old,ninja+wafcc
                                                      two builds of the engine in turn
  bench.py ablation --parts front,lead                what parts of ours save, by builds without each of them
  bench.py readme                                     the table of the README, in about half an hour
  bench.py show full.json                             print the tables of a record again
"""

ROUNDS, FEW = 5, "4,25,15,5"  # repetitions, and the size of the project, where parts are taken out


class Parser(argparse.ArgumentParser):
	"""A parser that says in one line what is wrong."""

	def __init__(self, prog: str, description: str, epilog: str = "") -> None:
		look = argparse.RawDescriptionHelpFormatter
		super().__init__(prog=prog, description=description, epilog=epilog, formatter_class=look)

	def add_project(self, flags: str) -> None:
		"""The options of a generated project, and of what compiles it."""
		self.add_argument("--compilers", type=names, metavar="A,B", default=["g++"], help="default g++")
		self.add_argument("--language", choices=("c", "c++", "both"), default="c++", help="default c++")
		self.add_argument("--weight", choices=("light", "realistic", "heavy"), help="of the headers (default light)")
		common = "classes whose headers all sources of a library include first (default none)"
		self.add_argument("--common", type=int, metavar="N", help=common)
		self.add_argument("--flags", help=flags)
		self.add_argument("--seed", type=int, metavar="N", default=0, help="of the generated project (default 0)")

	def error(self, message: str) -> NoReturn:
		raise Mistake("%s: see %s --help" % (message, self.prog.split()[0]))


def answer(program: str, do: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
	"""Do what the command line says, and return the exit status."""
	sys.stdout.reconfigure(errors="replace")  # "µs" where only ASCII goes
	try:
		return do(argv)
	except Interrupted as e:
		return e.exit_status  # while the report was printed, or once more while everything was cleaned up
	except Mistake as e:
		print("%s: %s" % (program, e), file=sys.stderr)
		return 2
	except BrokenPipeError:
		# the reader of our output has gone: without this, Python would complain when it flushes at exit
		os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
		return 1


def names(text: str) -> List[str]:
	"""A list of names, separated by commas, each once."""
	found = list(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
	if not found:
		raise argparse.ArgumentTypeError("it names nothing")
	return found


def choose(known: Mapping[str, Any], wanted: Optional[List[str]], option: str) -> List[Any]:
	"""Those that are wanted by their names, or all."""
	unknown = [name for name in wanted or [] if name not in known]
	if unknown:
		raise Mistake("%s: no %s: there are %s" % (option, unknown[0], ", ".join(known)))
	return [known[name] for name in wanted or known]


def positive(text: str) -> int:
	if not text.isdigit() or not int(text):
		raise argparse.ArgumentTypeError("%r is not a number above zero" % text)
	return int(text)


def counts(text: str) -> List[int]:
	return [positive(part) for part in names(text)]


def rounds(text: str) -> List[int]:
	"""A list of numbers, in which a number may repeat."""
	return [positive(part.strip()) for part in text.split(",")]


def size(text: str) -> str:
	"""The four numbers of genbench, which checks itself whether they fit together."""
	parts = [part.strip() for part in text.split(",")]
	if len(parts) != 4 or not all(part.isdigit() for part in parts):
		raise argparse.ArgumentTypeError("%r is not four numbers such as 10,50,15,5" % text)
	return ",".join(parts)


def engine(text: str) -> Tuple[str, str]:
	"""A name, and a folder with programs of ours."""
	name, _, folder = text.partition("=")
	if not name or not folder:
		raise argparse.ArgumentTypeError("%r is not a name and a folder such as old=/tmp/old" % text)
	for program in ("wafd", "wafcc"):
		if not os.access(os.path.join(folder, program), os.X_OK):
			raise argparse.ArgumentTypeError("there is no program %s in %s" % (program, folder))
	return name, os.path.abspath(folder)


def commas(numbers: Sequence[int]) -> str:
	"""Numbers as they are typed."""
	return ",".join(map(str, numbers))


def parser() -> Parser:
	p = Parser("bench.py", DESCRIPTION, EXAMPLES)
	default = ", ".join(scenario.DEFAULT)
	p.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="what, see --list (default %s)" % default)
	p.add_argument("--contenders", type=names, metavar="A,B", help="who builds, see --list (default all that are here)")
	p.add_argument("--interpreters", type=names, metavar="A,B", help="which Pythons run Waf (default the one running)")
	p.add_argument("--size", type=size, metavar="L,C,I,E", default="10,50,15,5", help="genbench's: default 10,50,15,5")
	p.add_project("compiler flags, such as '-O2 -g' (default none; -O2 in sources and project)")
	real = "in sources, project and precompiled: build the code in DIR (default crates, and Boost's headers)"
	p.add_argument("--sources", metavar="DIR", help=real)
	p.add_argument("--jobs", type=positive, metavar="N", help="at once (default the processors; 2 to 512 in curve)")
	p.add_argument("--repeat", type=positive, metavar="N", default=3, help="how often (default 3)")
	numbers = ", ".join("%s (%d)" % item for item in scenario.COMMANDS.items())
	p.add_argument("--commands", type=positive, metavar="N", help="of %s" % numbers)
	held = "MiB that the starting process holds in spawn (default %s)" % commas(scenario.PARENTS)
	p.add_argument("--parents", type=counts, metavar="M,N", default=scenario.PARENTS, help=held)
	crowds = "connections in crowd (default %s)" % commas(served.CROWDS)
	p.add_argument("--crowds", type=counts, metavar="M,N", default=served.CROWDS, help=crowds)
	sizes = ", ".join("%s (%s)" % (name, commas(n)) for name, n in large.SIZES.items())
	p.add_argument("--tasks", type=counts, metavar="M,N", help="of %s" % sizes)
	limit = "of a build in large and its kin: who needs longer is left out (default %d)" % large.LIMIT
	p.add_argument("--limit", type=positive, metavar="SECONDS", default=large.LIMIT, help=limit)
	extras = "in flags: %s, or any other (default all that the compiler takes)" % ", ".join(price.FLAGS)
	p.add_argument("--extras", type=names, metavar="A,B", help=extras)
	p.add_argument(
		"--engine",
		dest="engines",
		type=engine,
		action="append",
		default=[],
		metavar="NAME=DIR",
		help="another build of wafd and wafcc, for contenders such as ninja+wafcc@NAME (as often as wanted)",
	)
	p.add_argument("--baseline", metavar="CONTENDER", help="what ratios refer to (default waf, or else the first able)")
	p.add_argument("--json", metavar="FILE", help="where the raw record goes (default build/bench/DATE.json)")
	p.add_argument("--work", metavar="DIR", help="where to work, in a new folder (default the system's temporary one)")
	p.add_argument("--keep", action="store_true", help="keep all that was built")
	p.add_argument("--list", action="store_true", help="list scenarios and contenders, and end")
	return p


def parse_ablation(argv: Sequence[str]) -> argparse.Namespace:
	"""Read the command line of ``ablation``: the scenarios and the contenders follow from the parts."""
	p = parser()
	known = ", ".join(ablation.PARTS)
	p.add_argument("--parts", type=names, metavar="A,B", default=list(ablation.PARTS), help="which: %s" % known)
	p.set_defaults(repeat=ROUNDS, size=FEW)
	options = p.parse_args(list(argv))
	given = [name for name in ("scenarios", "contenders", "engines", "baseline") if getattr(options, name)]
	if given:
		raise Mistake("ablation chooses its %s itself: see --parts" % given[0])
	unknown = [part for part in options.parts if part not in ablation.PARTS]
	if unknown:
		raise Mistake("part %s is not known: choose from %s" % (unknown[0], known))
	options.scenarios = ablation.scenarios_of(options.parts)
	options.contenders = ablation.contenders_of(options.parts)
	return complete(options)


def parse(argv: Sequence[str]) -> argparse.Namespace:
	"""Read a command line, with all defaults filled in."""
	if argv[:1] == ["ablation"]:
		return parse_ablation(argv[1:])
	options = parser().parse_args(list(argv))
	options.parts = []
	return complete(options)


def complete(options: argparse.Namespace) -> argparse.Namespace:
	unknown = [name for name in options.scenarios if name not in scenario.SCENARIOS]
	if unknown:
		raise Mistake("scenario %s is not known: choose from %s" % (unknown[0], ", ".join(scenario.SCENARIOS)))
	# in the order of the table, which is also the one in which they can follow each other
	wanted = options.scenarios or scenario.DEFAULT
	options.scenarios = [name for name in scenario.SCENARIOS if name in wanted]
	options.engines = dict(options.engines)
	options.interpreters = options.interpreters or [sys.executable]
	options.json = options.json or os.path.join(ROOT, "build", "bench", time.strftime("%Y%m%d-%H%M%S.json"))
	if options.contenders and options.baseline and options.baseline not in options.contenders:
		raise Mistake("baseline %s takes no part: choose one of %s" % (options.baseline, ", ".join(options.contenders)))
	return options


README = "Measure all that the table of the README compares, and print the table."
README_EXAMPLES = """
examples:
  bench.py readme                  measure all, in about half an hour
  bench.py readme --only edits     measure one campaign again, and print the table with what was measured before
  bench.py readme --show           print the table of what was measured before
"""


def parse_readme(argv: Sequence[str]) -> argparse.Namespace:
	"""Read the command line of ``readme``."""
	p = Parser("bench.py readme", README, README_EXAMPLES)
	known = ", ".join(readme.CAMPAIGNS)
	p.add_argument("--only", type=names, metavar="A,B", help="these campaigns: %s" % known)
	p.add_argument("--repeat", type=positive, metavar="N", default=readme.ROUNDS, help="default %d" % readme.ROUNDS)
	pythons = "CPython, and PyPy if there is one (default this one, and pypy3 along PATH)"
	p.add_argument("--interpreters", type=names, metavar="A,B", help=pythons)
	p.add_argument("--records", metavar="DIR", help="where the raw records are kept (default build/bench/readme)")
	p.add_argument("--work", metavar="DIR", help="where to work, in a new folder (default the system's temporary one)")
	p.add_argument("--show", action="store_true", help="measure nothing")
	options = p.parse_args(list(argv))
	options.records = options.records or os.path.join(ROOT, "build", "bench", "readme")
	options.campaigns = readme.choose(options.only)
	found = options.interpreters or [sys.executable, *filter(None, [shutil.which("pypy3")])]
	if len(found) > 2:
		raise Mistake("--interpreters: name one CPython, and one PyPy or none")
	options.pythons = dict(zip((readme.CPYTHON, readme.PYPY), found))
	return options


def parse_show(argv: Sequence[str]) -> str:
	p = Parser("bench.py show", "Print the tables of a record again.")
	p.add_argument("file", metavar="FILE.json")
	return p.parse_args(list(argv)).file


def listing() -> str:
	"""Scenarios and contenders, with what is missing for some of them."""
	lines = ["scenarios:"]
	width = max(map(len, scenario.SCENARIOS))
	lines += ["  %-*s  %s" % (width, s.name, s.title) for s in scenario.SCENARIOS.values()]
	width = max(map(len, (*contender.DEFAULT, *contender.BY_NAME)))
	for title, found in (
		("contenders", contender.DEFAULT),
		("contenders that take part only by name", contender.BY_NAME),
	):
		lines.append("%s:" % title)
		for name in found:
			lines.append("  %-*s  %s" % (width, name, availability(contender.find_contender(name).missing())))
	lines.append("more contenders: BUILDER+CACHE, such as make+ccache")
	return "\n".join(lines)


def availability(missing: Optional[str]) -> str:
	return "left out: %s" % missing if missing else "ready"
