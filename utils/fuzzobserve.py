#!/usr/bin/env python3
"""
Look for what the observation of commands does not see: random C programs, run under strace while they are observed.

Each path that the kernel was given must be in what the command noted, and each program that was executed must have
begun to note; or the command must be marked as not observable. The programs use files by the C library, by `syscall`
and by instructions of their own, lead names astray by links, folders and descriptors, and start each other in all
ways: linked dynamically, statically, without a C library, for 32 bits, as scripts, and with the setuid bit. A program
that did more than was noted is made smaller, and what is left of it is told.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import shutil
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional

from hunt import Mistake, Parser, choose_seed, tell_progress
from witness.action import Action, list_actions
from witness.program import Chooser, Node, list_singles
from witness.trial import Campaign, draw

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = """\
examples:
  cargo build --release --example observe           in engine/: it observes the programs
  utils/fuzzobserve.py                              1,000 programs with a seed of their own, which is told
  utils/fuzzobserve.py --programs 10000 --seed 7 --jobs 2
  utils/fuzzobserve.py --seed 7 --only 4711         that one again, and what it does
  utils/fuzzobserve.py --go-on --json               all kinds of misses
  utils/fuzzobserve.py --singles --go-on            each action by itself
  utils/fuzzobserve.py --singles --actions 'do_reopen*,start_*'
  utils/fuzzobserve.py --without 'own_*,old_*'      no system calls by instructions of its own
  utils/fuzzobserve.py --forget a.txt               finds a miss, since what is noted of a.txt is thrown away

exit status: 0 nothing was missed, 1 something was (what shows it is kept), 2 it could not begin
"""


def find_observer(named: Optional[str]) -> str:
	"""The program that runs commands as the engine observes them."""
	target = HERE.parent / "engine" / "target"
	built = [target / kind / "examples" / "observe" for kind in ("release", "check/release", "debug")]
	newest = sorted((path for path in built if path.is_file()), key=lambda path: path.stat().st_mtime)
	if newest and not named:
		sources = [*(target.parent / "park").iterdir(), *(target.parent / "src" / "observe").glob("trace*/*")]
		built_at = newest[-1].stat().st_mtime
		changed = [path for path in sources if path.name != "tests.rs" and path.stat().st_mtime > built_at]
		if changed:
			hint = "cargo build --release --example observe (in engine/)"
			raise Mistake("%s is older than %s: %s" % (newest[-1], changed[0].name, hint))
	found = named or (str(newest[-1]) if newest else "")
	if not found or not os.access(found, os.X_OK):
		hint = "cargo build --release --example observe (in engine/), or name one with --observer"
		raise Mistake("%s: no such program: %s" % (found or "observe", hint))
	return os.path.abspath(found)


def find_actions(only: str, without: str) -> List[Action]:
	actions = list_actions()
	for pattern in [*only.split(","), *without.split(",")]:
		if pattern and not fnmatch.filter((action.name for action in actions), pattern):
			raise Mistake("%s: no such action: utils/witness/pieces/*.c define them" % pattern)
	wanted = [a for a in actions if a.is_bare or any(fnmatch.fnmatchcase(a.name, one) for one in only.split(","))]
	return [a for a in wanted if not any(fnmatch.fnmatchcase(a.name, one) for one in without.split(","))]


def check_tools() -> None:
	missing = [name for name in ("gcc", "strace") if not shutil.which(name)]
	if missing:
		raise Mistake("%s: not found along PATH: install it" % " and ".join(missing))


def list_programs(
	options: argparse.Namespace, seed: int, actions: List[Action]
) -> Callable[[List[str]], Dict[int, Node]]:
	if options.singles:

		def choose(flavours: List[str]) -> Dict[int, Node]:
			singles = dict(enumerate(list_singles(Chooser(actions, flavours))))
			return singles if options.only is None else {options.only: singles[options.only]}

		return choose
	return draw(seed, range(options.programs) if options.only is None else [options.only], actions)


def tell(campaign: Campaign, seed: int, options: argparse.Namespace) -> Dict[str, Any]:
	"""The results as JSON."""
	return {
		"seed": seed,
		"programs": campaign.done,
		"compared": campaign.compared,
		"not observable": dict(campaign.blind.most_common()),
		"not made here": campaign.missing,
		"misses": [
			{
				"kind": kind,
				"programs": campaign.counts[kind],
				"only": result.number,
				"program": result.program.tell().split("\n"),
				"missed": result.missed,
			}
			for kind, result in campaign.misses.items()
		],
	}


def say_all(campaign: Campaign, seed: int, options: argparse.Namespace) -> None:
	again = "--singles --only %d" if options.singles else "--seed %d --only %%d" % seed
	for kind, result in campaign.misses.items():
		count = campaign.counts[kind]
		print("missed (%d program%s, %s): %s" % (count, "" if count == 1 else "s", again % result.number, kind))
		print(result.program.tell("  "))
		print("".join("  %s\n" % line for line in result.missed[:3]), end="")
	if campaign.missing:
		print("not made here: %s" % ", ".join(campaign.missing))
	words = (campaign.done, campaign.compared, campaign.done - campaign.compared)
	found = "%d kinds of misses" % len(campaign.misses) if campaign.misses else "nothing was missed"
	print("%d programs, %d compared, %d not observable: %s" % (*words, found))


def main() -> int:
	parser = Parser(__doc__ or "", EXAMPLES, "keep the folder; what shows a miss is kept anyway")
	parser.add_argument("--programs", type=int, default=1000, metavar="N", help="how many (default 1000)")
	parser.add_argument("--only", type=int, metavar="N", help="the program of this number alone")
	parser.add_argument(
		"--singles", action="store_true", help="the smallest programs, an action each, none of them random"
	)
	parser.add_argument("--actions", default="*", metavar="A,B", help="only these; * stands for anything (default all)")
	parser.add_argument("--without", default="", metavar="A,B", help="leave these actions out")
	parser.add_argument(
		"--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="at once (default: processors)"
	)
	parser.add_argument("--go-on", action="store_true", help="after a miss, to find all kinds of them")
	parser.add_argument(
		"--traced", action="store_true", help="by the second witness, which observes static programs; all are"
	)
	parser.add_argument("--forget", default=[], action="append", metavar="PATH", help="throw away what is noted of it")
	parser.add_argument("--json", action="store_true", help="what came of it as JSON")
	parser.add_argument(
		"--observer", metavar="FILE", help="the engine's example `observe` (default the one built here)"
	)
	options = parser.parse_args()
	try:
		check_tools()
		observer, actions = find_observer(options.observer), find_actions(options.actions, options.without)
	except Mistake as e:
		print("fuzzobserve: %s" % e, file=sys.stderr)
		return 2
	seed = choose_seed(options, is_told=not options.json)
	root = pathlib.Path(tempfile.mkdtemp(prefix="fuzzobserve-", dir=options.work))
	root.chmod(0o755)  # programs with the setuid bit run as others
	campaign = Campaign(
		root, observer, actions, tell_progress("programs", 500), options.go_on, options.forget, options.traced
	)
	try:
		campaign.run(list_programs(options, seed, actions), max(options.jobs, 1))
	except Mistake as e:
		print("fuzzobserve: %s" % e, file=sys.stderr)
		return 2
	if sys.stderr.isatty():
		print(file=sys.stderr)
	if options.json:
		print(json.dumps(tell(campaign, seed, options), indent=1))
	else:
		say_all(campaign, seed, options)
	if campaign.misses and not options.json:
		print("kept in %s" % root)
	if not options.keep:
		campaign.clear()
		if not campaign.misses:
			root.rmdir()
	return 1 if campaign.misses else 0


if __name__ == "__main__":
	sys.exit(main())
