#!/usr/bin/env python3
"""
Disturb builds, and compare them with plain builds: the same files, the same status, and nothing left behind.

A trial builds a small random project with ninja or Waf through our programs: from nothing, from the cache, or after an
edit. Meanwhile processes are killed or stopped, disks fill up, files of the store are damaged, system calls are
refused, times of files are moved. Then every object is compared with that of a plain build. The next build must have
nothing to do, and no process, temporary file or other file may be left. If a plain build could have failed, too, the
build is run again. The seed and the number of a trial decide all that is drawn; a fault strikes when a drawn
share of the outputs is there, so that the moment varies a little from run to run.
"""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile
from typing import Any, Dict, List, Optional

from benchmark.interrupt import INTERRUPTS, Interrupted
from hunt import Mistake, Parser, choose_seed, find_built, find_program, need_waflib, tell_progress, write_json
from sabotage.builders import Configured
from sabotage.kinds import KINDS, find_kinds
from sabotage.reference import References
from sabotage.scene import Tools
from sabotage.trial import Result, Shop, Trial

SYSTEMS = ("ninja", "waf")
EXAMPLES = """\
examples:
  utils/faults.py                            100 trials with a seed of their own, which is told
  utils/faults.py --trials 1000 --json faults.json
  utils/faults.py --seed 7 --only 12 --keep  one trial again, and its folder is kept
  utils/faults.py --kinds kill,stop-engine   only these, by their names or by how these begin
  utils/faults.py --list                     all kinds

exit status: 0 no trouble, 1 some trial had one, 2 it could not begin, 128 and more: a signal
"""


def find_ours(name: str, folder: Optional[str]) -> str:
	"""One of our programs: in a folder that was named, or that of $WAFD, or built here, or along PATH."""
	beside = os.path.join(os.path.dirname(os.environ.get("WAFD", "")), name)
	places = (beside if os.access(beside, os.X_OK) else None, find_built(name), shutil.which(name))
	return find_program(name, "--programs", *([os.path.join(folder, name)] if folder else places))


def find_systems(named: Optional[str]) -> List[str]:
	wanted = named.split(",") if named else list(SYSTEMS)
	unknown = [name for name in wanted if name not in SYSTEMS]
	if unknown:
		raise Mistake("no build system %s: there are %s" % (unknown[0], ", ".join(SYSTEMS)))
	missing = {name: reason for name in wanted for reason in [obstacle(name)] if reason}
	if missing and (named or len(missing) == len(wanted)):
		raise Mistake("; ".join(missing.values()))
	for name, reason in missing.items():
		print("%s takes no part: %s" % (name, reason), file=sys.stderr)
	return [name for name in wanted if name not in missing]


def obstacle(system: str) -> str:
	"""Why a build system cannot take part."""
	if system == "ninja":
		return "" if shutil.which("ninja") else "there is no ninja: apt-get install ninja-build"
	try:
		need_waflib()
	except Mistake as e:
		return str(e)
	return ""


def report(result: Result, again: str, kept: Optional[pathlib.Path]) -> str:
	lines = ["trial %d: %s; %s; %s" % (result.number, ", ".join(result.kinds), result.builder, result.state)]
	lines += ["  %s" % note for note in result.notes]
	for trouble in result.troubles:
		lines += ["  ! %s" % line if n == 0 else "    %s" % line for n, line in enumerate(trouble.splitlines())]
	lines.append("  again: %s" % again)
	if kept:
		lines.append("  kept in %s" % kept)
	return "\n".join(lines)


def summarize(results: List[Result]) -> Dict[str, Any]:
	"""The kinds, with how many trials each took part in."""
	kinds: Dict[str, Dict[str, int]] = {}
	for result in results:
		for name in result.kinds:
			counts = kinds.setdefault(name, {"trials": 0, "troubles": 0})
			counts["trials"] += 1
			counts["troubles"] += bool(result.troubles)
	return dict(sorted(kinds.items()))


def main() -> int:
	parser = Parser(__doc__ or "", EXAMPLES, "keep the folders of trials that had trouble")
	parser.add_faults(100, 20.0, "where wafd and wafcc are (default those built here)")
	parser.add_argument("--systems", metavar="A,B", help="ninja, waf (default both, as far as they are here)")
	options = parser.parse_args()
	if options.list:
		for name, kind in KINDS.items():
			print("%-16s %s%s" % (name, kind.about, " (root only)" if kind.needs_root else ""))
		return 0
	INTERRUPTS.listen()
	root = pathlib.Path(tempfile.mkdtemp(prefix="faults-", dir=options.work))
	kept: List[pathlib.Path] = []
	try:
		return run(options, root, kept)
	except Mistake as e:
		print("faults: %s" % e, file=sys.stderr)
		return 2
	except Interrupted as e:
		print("faults: %s" % e, file=sys.stderr)
		return e.exit_status
	finally:
		for path in root.iterdir():
			if not any(path.name.startswith(one.name) for one in kept):
				shutil.rmtree(str(path), ignore_errors=True) if path.is_dir() else path.unlink()
		if not kept:
			root.rmdir()


def run(options: argparse.Namespace, root: pathlib.Path, kept: List[pathlib.Path]) -> int:
	programs = [find_ours(name, options.programs) for name in ("wafd", "wafcc")]
	systems = find_systems(options.systems)
	tools = Tools(root, *programs)
	kinds = find_kinds(options.kinds.split(",") if options.kinds else [], tools.is_root)
	shop = Shop(tools, References(), Configured(root / "configured"), systems, kinds, options.patience)
	seed = choose_seed(options)
	numbers = [options.only] if options.only is not None else list(range(options.trials))
	say = tell_progress("trials", 20)
	results: List[Result] = []
	failed = 0
	try:
		for number in numbers:
			trial = Trial(shop, seed, number)
			aside = None
			try:
				result = trial.run()
				results.append(result)
				if result.troubles:
					failed += 1
					if options.keep:
						aside = root / ("trial-%d" % number)
						kept.append(aside)
					print(report(result, again(options, seed, number), aside), flush=True)
			finally:
				trial.close(aside)
			say(len(results), len(numbers))
	finally:
		trials = [result._asdict() for result in results]
		write_json(options.json, {"seed": seed, "kinds": summarize(results), "trials": trials})
	if failed:
		print("%d of %d trials had trouble" % (failed, len(results)))
		return 1
	print("%d trials, no trouble" % len(results))
	return 0


def again(options: argparse.Namespace, seed: int, number: int) -> str:
	"""The command that repeats a trial. It has the other options, too, because they change the random choices."""
	words = ["utils/faults.py", "--seed", str(seed), "--only", str(number), "--keep"]
	for name in ("kinds", "systems"):
		if getattr(options, name):
			words += ["--%s" % name, getattr(options, name)]
	return " ".join(words)


if __name__ == "__main__":
	sys.exit(main())
