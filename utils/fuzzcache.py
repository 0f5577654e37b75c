#!/usr/bin/env python3
"""
Look for a wrong answer of the cache: random edits of a random project, and every result compared with a fresh compile.

Two checkouts of one project are edited, apart and together, in all the ways by which caches were seen to return a wrong
object: headers come, go, shadow others, change at the same size and time, are restored; flags, variables, folder and
compiler change; some edits happen while a compile runs. A step is one edit and one command, through wafcc and without
it. What differs between two plain runs as well is not compared. Any other wrapper, such as ccache, can be tried too.
With --by-facts some commands are links, archives and scripts of random lines, as `wafcc run --` caches them; with
--kinds some go through wrappers, helpers and libraries of the project's own, which are edited too.
"""

import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
from typing import Callable, List, Optional, TextIO

from fuzzer.kinds import COMPILES, KINDS, find_kinds
from fuzzer.mistake import Mistake
from fuzzer.patience import PATIENCE
from fuzzer.trial import Fuzzer, fuzz

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = """\
examples:
  utils/fuzzcache.py                         1,000 steps with a seed of their own, which is told
  utils/fuzzcache.py --steps 10000 --seed 7
  utils/fuzzcache.py --by-facts 50           half of them are no compiles
  utils/fuzzcache.py --kinds compiles,wrappers,helpers,tools,links,libraries,processors
  utils/fuzzcache.py --compilers gcc,clang --wafcc ./wafcc --keep

exit status: 0 nothing differed, 1 something did (the folder is kept), 2 it could not begin
"""


def find_wafcc(named: Optional[str]) -> str:
	"""The wrapper that is to be tried."""
	built = HERE.parent / "engine" / "target" / "release" / "wafcc"
	found = named or shutil.which("wafcc") or (str(built) if built.is_file() else None)
	if not found or not os.access(found, os.X_OK):
		raise Mistake("%s: no such program: build the engine, or name one with --wafcc" % (found or "wafcc"))
	return os.path.abspath(found)


def find_compilers(named: Optional[str]) -> List[str]:
	wanted = named.split(",") if named else [name for name in ("gcc", "clang") if shutil.which(name)]
	missing = [name for name in wanted if not shutil.which(name)]
	if missing or not wanted:
		raise Mistake("no compiler %s: name others with --compilers" % ", ".join(missing or ["gcc or clang"]))
	return wanted


def tell_progress(file: TextIO) -> Callable[[int, int], None]:
	"""Each step on a terminal; in a log now and then."""
	is_shown = file.isatty()

	def say(step: int, steps: int) -> None:
		if is_shown or step % 500 == 0:
			print("%s%d of %d steps" % ("\r" if is_shown else "", step, steps), end="" if is_shown else "\n", file=file)

	return say


def main() -> int:
	parser = argparse.ArgumentParser(
		description=(__doc__ or "").strip(), epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
	)
	parser.add_argument("--steps", type=int, default=1000, metavar="N", help="how many (default 1000)")
	parser.add_argument("--seed", type=int, metavar="N", help="of everything that is chosen (default a fresh one)")
	parser.add_argument("--compilers", metavar="A,B", help="default gcc and clang, as far as they are here")
	parser.add_argument(
		"--by-facts", type=int, default=0, metavar="PERCENT", help="of the commands are no compiles (default 0)"
	)
	told = "; ".join("%s: %s" % (name, kind.about) for name, kind in KINDS.items())
	parser.add_argument(
		"--kinds", metavar="A,B", help="of commands (default %s: a compiler and nothing else); %s" % (COMPILES, told)
	)
	parser.add_argument("--wafcc", metavar="FILE", help="the wrapper (default along PATH, or the one built here)")
	parser.add_argument("--work", metavar="DIR", help="where to work, in a new folder (default the system's)")
	parser.add_argument("--keep", action="store_true", help="keep the folder; it is kept where something differs")
	options = parser.parse_args()
	try:
		wafcc, compilers = find_wafcc(options.wafcc), find_compilers(options.compilers)
		kinds = find_kinds(options.kinds)
	except Mistake as e:
		print("fuzzcache: %s" % e, file=sys.stderr)
		return 2
	seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
	root = pathlib.Path(tempfile.mkdtemp(prefix="fuzzcache-", dir=options.work))
	print("seed %d" % seed, flush=True)
	fuzzer = Fuzzer(root, wafcc, random.Random(seed))
	try:
		wrong = fuzz(fuzzer, options.steps, compilers, tell_progress(sys.stderr), options.by_facts, kinds)
	except Mistake as e:
		print("fuzzcache: %s" % e, file=sys.stderr)
		return 2
	finally:
		subprocess.run(
			[wafcc, "--shutdown"],
			env={**fuzzer.environ, **fuzzer.ours},
			stdout=subprocess.DEVNULL,
			stderr=subprocess.DEVNULL,
			timeout=PATIENCE,
			check=False,
		)
	if wrong:
		print("%s\nkept in %s" % (wrong, root))
		return 1
	print("%d steps, nothing differs" % options.steps)
	if not options.keep:
		shutil.rmtree(root)
	return 0


if __name__ == "__main__":
	sys.exit(main())
