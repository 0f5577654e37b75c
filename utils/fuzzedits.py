#!/usr/bin/env python3
"""
Look for a compile that began after its headers and has another result: random edits of real sources.

Bodies, includes, macros and headers are edited, headers are shadowed, flags change, and all files go back to an earlier
state, as when a branch is switched. Some edits have errors and warnings. After each edit the source is compiled through
wafcc with preambles and without it: object, dependency file, status and messages must be the same. Between some of the
edits the engine gets the time to prepare the source.
"""

import pathlib
import random
import sys
import tempfile

from benchmark.package import KEPT, find_packages
from hunt import Mistake, Parser, choose_seed, conclude, find_built, find_program, tell_progress
from sourcefuzz.trial import Trials

EXAMPLES = """\
examples:
  utils/fuzzedits.py                                 200 edits of LevelDB and CaDiCaL, which cargo fetches
  utils/fuzzedits.py --edits 1000 --seed 7
  utils/fuzzedits.py --compilers clang++ --sources ~/src  projects of your own, one per folder
  utils/fuzzedits.py --flags='-O2;-O0 -g'            the flags between which edits change, separated by semicolons

exit status: 0 nothing differed, 1 something did (the folder is kept), 2 it could not begin
"""
FLAGS = "-O0 -g;-O2;-O1 -DNDEBUG -fPIC"


def main() -> int:
	parser = Parser(__doc__ or "", EXAMPLES, "keep the folder; it is kept where something differs")
	parser.add_argument("--edits", type=int, default=200, metavar="N", help="how many (default 200)")
	parser.add_argument("--compilers", default="g++", metavar="A,B", help="default g++")
	parser.add_argument("--sources", metavar="DIR", help="with C++ sources (default packages of the registry)")
	parser.add_argument("--flags", default=FLAGS, metavar="A;B", help="sets of flags (default %s)" % FLAGS)
	parser.add_argument("--wafcc", metavar="FILE", help="the wrapper (default the one built here)")
	options = parser.parse_args()
	try:
		wafcc = find_program("wafcc", "--wafcc", options.wafcc, find_built("wafcc"))
		packages = find_packages(options.sources, lambda text: print(text, file=sys.stderr), KEPT, "c++")
	except Mistake as e:
		print("fuzzedits: %s" % e, file=sys.stderr)
		return 2
	seed = choose_seed(options)
	root = pathlib.Path(tempfile.mkdtemp(prefix="fuzzedits-", dir=options.work)).resolve()
	trials = Trials(root, wafcc, packages, options.compilers.split(","), options.flags.split(";"), random.Random(seed))
	try:
		wrong = trials.run(options.edits, tell_progress("edits", 50))
	finally:
		told = trials.close()
	print(told)
	return conclude(wrong, "%d edits" % options.edits, root, options.keep)


if __name__ == "__main__":
	sys.exit(main())
