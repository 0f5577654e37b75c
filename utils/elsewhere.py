#!/usr/bin/env python3
"""
Build real code, generated code, and a project of Waf that generates headers, on a cluster of hosts on this machine.
Compare all objects with plain ones, and tell what went over the line.

BuildGrid, each worker and each client are in network namespaces of their own. A client builds a project when nothing is
there, another one does after it, and the first one once more when the most used header, and then all sources were
edited. All of them share the processors of this machine, so the times say nothing about a real cluster.
"""

import argparse
import pathlib
import sys
from typing import Dict, List

from benchmark.arguments import choose, names, positive, size
from benchmark.carry_out import carry_out
from benchmark.compiler import find_compiler
from benchmark.hosts import missing_hosts
from benchmark.mistake import Failed, Mistake
from benchmark.package import find_packages
from benchmark.record import Parser, Record, add_places, check_places
from benchmark.scratch import scratch
from benchmark.service import find_engine, missing_engine
from benchmark.sources import write_sources
from benchmark.table import layout
from clusters.course import Project, Round, laboratory, rounds
from clusters.database import missing
from clusters.wafproject import WafProject
from clusters.wafproject import write as write_waf
from genbench import Project as Generated
from genbench import generate

EXAMPLES = """\
examples:
  utils/elsewhere.py                                    all projects, two workers, 1 ms each way: some minutes
  utils/elsewhere.py --projects generated --size 10,50,15,5 --json out.json
  utils/elsewhere.py --projects leveldb --workers 4 --delay 20

It needs root, BuildGrid with PostgreSQL (tests/cluster_support.py says what is missing), and the example `wire` of the
engine. exit status: 0 all objects are right, 1 some are not, or something failed, 2 it could not begin
"""
PROJECTS = ("generated", "leveldb", "waf")


class Options(Parser):
	"""All that can be asked for."""

	def __init__(self) -> None:
		super().__init__(__doc__, EXAMPLES)
		self.add_argument("--projects", type=names, metavar="A,B", help="of %s (default all)" % ", ".join(PROJECTS))
		self.add_argument("--size", type=size, default="5,10,8,3", help="of generated and waf, as genbench takes it")
		self.add_argument("--weight", default="realistic", help="of the generated one (default realistic)")
		self.add_argument("--workers", type=positive, default=2, metavar="N", help="hosts that work (default 2)")
		self.add_argument("--slots", type=positive, default=1, metavar="N", help="commands at once on each (default 1)")
		self.add_argument(
			"--jobs", type=positive, default=8, metavar="N", help="commands at once of a build (default 8)"
		)
		self.add_argument("--delay", type=float, default=1, metavar="MS", help="of each packet, each way (default 1)")
		add_places(self, "build", "round")


def check(options: argparse.Namespace) -> None:
	"""Say what cannot be done, before anything is."""
	lack = missing() or missing_hosts() or missing_engine()
	if lack:
		raise Mistake(lack)
	check_places(options)


def write_project(name: str, options: argparse.Namespace, folder: pathlib.Path) -> Project:
	"""The sources of a project, in a folder of its own."""
	numbers = [int(x) for x in options.size.split(",")]
	if name == "waf":
		libs, classes = numbers[:2]
		write_waf(folder, tables=classes, sources=libs * classes)
		return WafProject(name, folder, folder.with_name("python"))
	if name == "generated":
		generate(Generated(*numbers, weight=options.weight, flags="-O2"), str(folder))
	else:
		packages = [x for x in find_packages(None, print, language="c++") if x.name == name]
		folder.mkdir()
		write_sources(str(folder), packages, find_compiler("g++", ["c++"]), "-O2 -std=c++17")
	return Project(name, folder)


def show(done: List[Round]) -> str:
	"""A row for each round."""
	head = ("project", "round", "commands", "hits", "there", "here", "seconds", "plainly")
	head += ("sent", "received", "packets", "turns", "different")
	rows = []
	for one in done:
		ran = one.commands - one.hits - one.there
		each = ["%.1f kB" % (x / 1e3 / one.commands) for x in one.traffic[:2]]
		each += ["%.1f" % (x / one.commands) for x in one.traffic[2:]]
		counts = [str(x) for x in (one.commands, one.hits, one.there, ran)]
		rows.append([one.project, one.name, *counts, "%.1f" % one.seconds, "%.1f" % one.plainly, *each, str(one.wrong)])
	return layout(head, rows, 2, sys.stdout.isatty())


class Campaign(Record):
	"""All that was asked for."""

	def run(self, projects: List[str]) -> None:
		self.done: List[Round] = []
		options = self.options
		with scratch("elsewhere-", options.work) as work:
			for name in projects:
				place = pathlib.Path(work).resolve() / name
				place.mkdir()
				try:
					project = write_project(name, options, place / "project")
					engine = find_engine() or ""
					with laboratory(engine, place, options.workers, options.slots, options.delay / 1e3) as lab:
						for one in rounds(project, lab, options.jobs):
							self.keep(one)
				except Failed as e:
					self.fail(name, e)

	def keep(self, one: Round) -> None:
		self.done.append(one)
		self.values.append({**one.values(), "wrong": one.wrong})
		self.progress.say("%s: %s: %d there" % (one.project, one.name, one.there))
		for reason, count in sorted(one.here.items()):
			self.progress.say("  %d here: %s" % (count, reason))
		self.write()

	def tell(self) -> None:
		if self.done:
			print(show(self.done))
			print("  plainly: the compiler alone; sent, received and packets: of the client, for each command")
			print("  turns: how often the client sent data after data had come, and so may have waited for it")


def main() -> int:
	options = Options().parse_args()
	return carry_out("elsewhere", lambda: work(options))


def work(options: argparse.Namespace) -> int:
	"""Do what was asked for, and return the exit status."""
	known: Dict[str, str] = {name: name for name in PROJECTS}
	projects = choose(known, options.projects, "--projects")
	check(options)
	campaign = Campaign(options)
	campaign.run(projects)
	return campaign.finish()


if __name__ == "__main__":
	sys.exit(main())
