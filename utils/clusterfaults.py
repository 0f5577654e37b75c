#!/usr/bin/env python3
"""
Disturb the cluster that a build uses, and compare the build with a plain one: the same objects, and no failed command.

BuildGrid with PostgreSQL, two workers and a client are on this machine. A trial builds a small generated project with
an empty store, so that its compiles go to the workers. Meanwhile processes are killed or stopped, lines are cut,
contents are lost, disks fill up, or a worker lies. The seed and the number of a trial decide all that is drawn; a fault
strikes when a drawn share of the objects is there, so that the moment varies a little from run to run.
"""

import argparse
import os
import pathlib
import random
import shutil
import sys
from typing import List

from benchmark.carry_out import carry_out
from benchmark.mistake import Mistake
from benchmark.scratch import scratch
from benchmark.table import layout
from clusters.database import missing
from clusters.ground import found
from clusters.trial import Result, Sources, Trial
from clusters.upsets import UPSETS, about
from genbench import Project as Generated
from genbench import generate
from hunt import Parser, choose_seed, find_program, tell_progress, write_json

FILES = (2, 6, 4, 3)  # of the project, as genbench takes them: 12 sources
EXAMPLES = """\
examples:
  utils/clusterfaults.py                            every kind of fault twice or more: 60 trials
  utils/clusterfaults.py --trials 200 --json faults.json
  utils/clusterfaults.py --seed 7 --only 12         one trial again
  utils/clusterfaults.py --kinds lie,worker-killed  only these, by their names or by how these begin
  utils/clusterfaults.py --list                     all kinds

Disks that fill up, and isolated workers, need root.
exit status: 0 all objects are right, 1 some trial had trouble, 2 it could not begin, 128 and more: a signal
"""


def find_kinds(wanted: List[str], is_root: bool) -> List[str]:
	"""The kinds that can take part, of those that are asked for."""
	kinds = [name for name in UPSETS if not wanted or any(name.startswith(begin) for begin in wanted)]
	unknown = [begin for begin in wanted if not any(name.startswith(begin) for name in UPSETS)]
	if unknown:
		raise Mistake("no kind %s: --list shows all" % unknown[0])
	possible = [name for name in kinds if is_root or not UPSETS[name].needs_root]
	if not possible:
		raise Mistake("%s: only for root" % ", ".join(kinds))
	return possible


def kind_of(kinds: List[str], seed: int, number: int) -> str:
	"""Each kind once in each round, in a drawn order."""
	turn, place = divmod(number, len(kinds))
	return random.Random("order %d %d" % (seed, turn)).sample(kinds, len(kinds))[place]


def show(results: List[Result]) -> str:
	"""A row for each kind."""
	head = ("kind", "trials", "sent", "used", "failed", "different", "troubles", "longest")
	rows = []
	for kind in UPSETS:
		some = [one for one in results if one.kind == kind]
		if some:
			sums = [len(some), sum(one.sent for one in some), sum(one.used for one in some)]
			sums += [sum(len(each) for each in column) for column in zip(*(bad(one) for one in some))]
			rows.append([kind, *map(str, sums), "%.1f s" % max(one.seconds for one in some)])
	return layout(head, rows, 1, sys.stdout.isatty())


def bad(one: Result) -> List[List[str]]:
	return [one.failed, one.different, one.troubles]


def report(one: Result, again: str) -> str:
	lines = ["trial %d: %s" % (one.number, "; ".join([one.kind, *one.notes]))]
	lines += ["  ! %s" % line for failed in one.failed for line in failed.splitlines()]
	lines += ["  ! %s has other content" % name for name in one.different]
	lines += ["  ! %s" % trouble for trouble in one.troubles]
	lines += ["  %d not used: %s" % (count, reason) for reason, count in sorted(one.reasons.items())]
	return "\n".join([*lines, "  again: %s" % again])


def parse() -> argparse.Namespace:
	parser = Parser(__doc__ or "", EXAMPLES, "keep the folder of the cluster, with its logs")
	parser.add_faults(60, 180.0, "where wafd, wafcc and wafd-cluster are (default: of $WAFD)")
	return parser.parse_args()


def copy_programs(folder: str, to: pathlib.Path) -> str:
	"""Copies of the three programs, which no build replaces meanwhile; the path of the engine."""
	to.mkdir()
	for name in ("wafd", "wafcc", "wafd-cluster"):
		shutil.copy2(find_program(name, "--programs", os.path.join(folder, name)), str(to / name))
	return str(to / "wafd")


def run(options: argparse.Namespace) -> int:
	lack = missing()
	if lack:
		raise Mistake(lack)
	kinds = find_kinds(options.kinds.split(",") if options.kinds else [], os.geteuid() == 0)
	place = options.programs or os.path.dirname(os.environ.get("WAFD", ""))
	if not place:
		raise Mistake("no programs: name their folder with --programs, or wafd with $WAFD")
	seed = choose_seed(options)
	numbers = [options.only] if options.only is not None else list(range(options.trials))
	say = tell_progress("trials", 10)
	results: List[Result] = []
	with scratch("clusterfaults-", options.work) as work:
		root = pathlib.Path(work).resolve()
		root.chmod(0o755)  # the users of slots are others
		engine = copy_programs(place, root / "bin")
		generate(Generated(*FILES, weight="realistic", flags="-O1"), str(root / "project"))
		sources = Sources(root / "project")
		try:
			with found(engine, root / "ground") as ground:
				for number in numbers:
					kind = kind_of(kinds, seed, number)
					result = Trial(ground, sources, seed, number, kind, options.patience).run()
					results.append(result)
					if not result.is_good:
						print(report(result, again(options, seed, number)), flush=True)
					write_json(options.json, {"seed": seed, "trials": [one._asdict() for one in results]})
					say(len(results), len(numbers))
		finally:
			if options.keep:
				kept = root.with_name(root.name + "-kept")
				shutil.copytree(str(root / "ground"), str(kept), symlinks=True, ignore_dangling_symlinks=True)
				print("kept in %s" % kept)
	print(show(results))
	return 0 if all(one.is_good for one in results) else 1


def again(options: argparse.Namespace, seed: int, number: int) -> str:
	"""The command that repeats a trial. It names the same kinds, because they change the random choices."""
	words = ["utils/clusterfaults.py", "--seed", str(seed), "--only", str(number), "--keep"]
	return " ".join([*words, "--kinds", options.kinds] if options.kinds else words)


def main() -> int:
	options = parse()
	if options.list:
		for name, kind in UPSETS.items():
			print("%-20s %s%s" % (name, about(kind), " (root only)" if kind.needs_root else ""))
		return 0
	return carry_out("clusterfaults", lambda: run(options))


if __name__ == "__main__":
	sys.exit(main())
