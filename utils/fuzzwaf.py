#!/usr/bin/env python3
"""
Look for a rebuild that Waf leaves out with our tools: random wscripts and edits, compared with builds from nothing.

A project has rules of random shell commands, chained, some with cache=True, and a C program. Edits keep size and time,
change modes, turn links, add files to folders that are listed, rename over, change variables. Each is followed by a
build with a random choice of tools, sometimes without an engine or with a new one; then all that it left is compared
with what stock Waf makes from nothing.
"""

import argparse
import os
import pathlib
import random
import shutil
import sys
import tempfile
from typing import Callable, Optional, TextIO

from fuzzer.mistake import Mistake
from wafrules import trial

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = """\
examples:
  utils/fuzzwaf.py                         200 edits with a seed of their own, which is told
  utils/fuzzwaf.py --edits 2000 --seed 7
  utils/fuzzwaf.py --tools "prefork wafcc unity" --keep

It needs waflib: run it with the Python of an environment that has it.
exit status: 0 nothing differed, 1 something did (the folder is kept), 2 it could not begin
"""


def find_wafd(named: Optional[str]) -> str:
	built = HERE.parent / "engine" / "target" / "release" / "wafd"
	found = named or os.environ.get("WAFD") or (str(built) if built.is_file() else None) or shutil.which("wafd")
	if not found or not os.access(found, os.X_OK):
		raise Mistake("%s: no such program: build the engine, or name one with --wafd" % (found or "wafd"))
	try:
		import waflib  # noqa: F401
	except ImportError:
		raise Mistake("no waflib for %s: pip install waflib" % sys.executable) from None
	return os.path.abspath(found)


def tell_progress(file: TextIO) -> Callable[[int, int], None]:
	"""Each edit on a terminal; in a log now and then."""
	is_shown = file.isatty()

	def say(step: int, steps: int) -> None:
		if is_shown or step % 50 == 0:
			print("%s%d of %d edits" % ("\r" if is_shown else "", step, steps), end="" if is_shown else "\n", file=file)
			file.flush()

	return say


def main() -> int:
	parser = argparse.ArgumentParser(
		description=(__doc__ or "").strip(), epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
	)
	parser.add_argument("--edits", type=int, default=200, metavar="N", help="how many (default 200)")
	parser.add_argument("--each", type=int, default=25, metavar="N", help="of each project (default 25)")
	parser.add_argument("--seed", type=int, metavar="N", help="of everything that is chosen (default a fresh one)")
	parser.add_argument("--tools", metavar="'A B'", help="with which to build (default wafcc and others by chance)")
	parser.add_argument("--wafd", metavar="FILE", help="the engine (default $WAFD, or the one built here)")
	parser.add_argument("--work", metavar="DIR", help="where to work, in a new folder (default the system's)")
	parser.add_argument("--keep", action="store_true", help="keep the folder; it is kept where something differs")
	options = parser.parse_args()
	try:
		wafd = find_wafd(options.wafd)
	except Mistake as e:
		print("fuzzwaf: %s" % e, file=sys.stderr)
		return 2
	seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
	root = pathlib.Path(tempfile.mkdtemp(prefix="fuzzwaf-", dir=options.work))
	print("seed %d" % seed, flush=True)
	yard = trial.Yard(root, wafd, random.Random(seed), options.tools)
	try:
		wrong = trial.fuzz(yard, options.edits, max(options.each, 1), tell_progress(sys.stderr))
	finally:
		yard.end()
	if wrong:
		print("%s\nkept in %s" % (wrong, root))
		return 1
	print("%d edits, nothing differs" % options.edits)
	if not options.keep:
		shutil.rmtree(root)
	return 0


if __name__ == "__main__":
	sys.exit(main())
