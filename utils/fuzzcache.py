#!/usr/bin/env python3
"""
Look for a wrong answer of the cache: random edits of a random project, and every result compared with a fresh compile.

Two checkouts of one project are edited, apart and together, in all the ways by which caches were seen to return a wrong
object: headers come, go, shadow others, change at the same size and time, are restored; flags, variables, folder and
compiler change; some edits happen while a compile runs. A step is one edit and one command, through wafcc and without
it. Results that differ between two plain runs are not compared. Any other wrapper, such as ccache, can be tried, too.
With --by-facts some commands are links, archives and scripts of random lines, as `wafcc run --` caches them; with
--kinds some go through wrappers, helpers and libraries of the project's own, which are edited too.
"""

import pathlib
import random
import shutil
import sys
import tempfile
from typing import List, Optional

from fuzzer.kinds import COMPILES, KINDS, find_kinds
from fuzzer.texts import Texts
from fuzzer.trial import Fuzzer, fuzz
from hunt import Mistake, Parser, choose_seed, conclude, find_built, find_program, run, tell_progress

EXAMPLES = """\
examples:
  utils/fuzzcache.py                         1,000 steps with a seed of their own, which is told
  utils/fuzzcache.py --steps 10000 --seed 7
  utils/fuzzcache.py --by-facts 50           half of them are no compiles
  utils/fuzzcache.py --kinds compiles,wrappers,helpers,tools,links,libraries,processors,checkouts
  utils/fuzzcache.py --kinds configured,precompiled,texts
  utils/fuzzcache.py --compilers gcc,clang --wafcc ./wafcc --keep

exit status: 0 nothing differed, 1 something did (the folder is kept), 2 it could not begin
"""


def find_compilers(named: Optional[str]) -> List[str]:
	wanted = named.split(",") if named else [name for name in ("gcc", "clang") if shutil.which(name)]
	missing = [name for name in wanted if not shutil.which(name)]
	if missing or not wanted:
		raise Mistake("no compiler %s: name others with --compilers" % ", ".join(missing or ["gcc or clang"]))
	return wanted


def main() -> int:
	parser = Parser(__doc__ or "", EXAMPLES, "keep the folder; it is kept where something differs")
	parser.add_argument("--steps", type=int, default=1000, metavar="N", help="how many (default 1000)")
	parser.add_argument("--compilers", metavar="A,B", help="default gcc and clang, as far as they are here")
	parser.add_argument(
		"--by-facts", type=int, default=0, metavar="PERCENT", help="of the commands are no compiles (default 0)"
	)
	told = "; ".join("%s: %s" % (name, kind.about) for name, kind in KINDS.items())
	parser.add_argument(
		"--kinds", metavar="A,B", help="of commands (default %s: a compiler and nothing else); %s" % (COMPILES, told)
	)
	parser.add_argument("--wafcc", metavar="FILE", help="the wrapper (default along PATH, or the one built here)")
	options = parser.parse_args()
	try:
		wafcc = find_program("wafcc", "--wafcc", options.wafcc, shutil.which("wafcc"), find_built("wafcc"))
		compilers = find_compilers(options.compilers)
		kinds = find_kinds(options.kinds)
	except Mistake as e:
		print("fuzzcache: %s" % e, file=sys.stderr)
		return 2
	seed = choose_seed(options)
	root = pathlib.Path(tempfile.mkdtemp(prefix="fuzzcache-", dir=options.work))
	fuzzer = Fuzzer(root, wafcc, random.Random(seed))
	try:
		wrong = fuzz(fuzzer, options.steps, compilers, tell_progress("steps", 500), options.by_facts, kinds)
	except Mistake as e:
		print("fuzzcache: %s" % e, file=sys.stderr)
		return 2
	finally:
		if Texts.name in kinds:
			print(fuzzer.tell_hits())
		run([wafcc, "--shutdown"], env={**fuzzer.environ, **fuzzer.ours})
	return conclude(wrong, "%d steps" % options.steps, root, options.keep)


if __name__ == "__main__":
	sys.exit(main())
