#!/usr/bin/env python3
"""
Look for a rebuild that Waf leaves out with our tools: random wscripts and edits, compared with builds from nothing.

A project has rules of random shell commands, chained, some with cache=True, and a C program. Edits keep size and time,
change modes, turn links, add files to folders that are listed, rename over, change variables. Each is followed by a
build with a random choice of tools, sometimes without an engine or with a new one; then all that it left is compared
with what stock Waf makes from nothing.
"""

import os
import pathlib
import random
import shutil
import sys
import tempfile
from typing import Optional

from hunt import Mistake, Parser, choose_seed, conclude, find_built, find_program, need_waflib, tell_progress
from wafrules import trial

EXAMPLES = """\
examples:
  utils/fuzzwaf.py                         200 edits with a seed of their own, which is told
  utils/fuzzwaf.py --edits 2000 --seed 7
  utils/fuzzwaf.py --tools "prefork wafcc unity" --keep

It needs waflib: run it with the Python of an environment that has it.
exit status: 0 nothing differed, 1 something did (the folder is kept), 2 it could not begin
"""


def find_wafd(named: Optional[str]) -> str:
	found = find_program("wafd", "--wafd", named, os.environ.get("WAFD"), find_built("wafd"), shutil.which("wafd"))
	need_waflib()
	return found


def main() -> int:
	parser = Parser(__doc__ or "", EXAMPLES, "keep the folder; it is kept where something differs")
	parser.add_argument("--edits", type=int, default=200, metavar="N", help="how many (default 200)")
	parser.add_argument("--each", type=int, default=25, metavar="N", help="of each project (default 25)")
	parser.add_argument("--tools", metavar="'A B'", help="with which to build (default wafcc and others by chance)")
	parser.add_argument("--wafd", metavar="FILE", help="the engine (default $WAFD, or the one built here)")
	options = parser.parse_args()
	try:
		wafd = find_wafd(options.wafd)
	except Mistake as e:
		print("fuzzwaf: %s" % e, file=sys.stderr)
		return 2
	seed = choose_seed(options)
	root = pathlib.Path(tempfile.mkdtemp(prefix="fuzzwaf-", dir=options.work))
	yard = trial.Yard(root, wafd, random.Random(seed), options.tools)
	try:
		wrong = trial.fuzz(yard, options.edits, max(options.each, 1), tell_progress("edits", 50))
	finally:
		yard.end()
	told = options.edits, yard.answered, yard.continued
	work = "%d edits, %d builds answered by resident processes, %d begun ahead" % told
	return conclude(wrong, work, root, options.keep)


if __name__ == "__main__":
	sys.exit(main())
