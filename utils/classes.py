#!/usr/bin/env python3
"""
Build Waf's own projects with each task class cached, and tell which commands are hits the second time, and whether
anything differs from stock Waf.

The projects are the demos, tests and playground of Waf. Each is built three times in one place: with stock Waf; with
prefork and wafcc and an empty store; and again with new copies of all its sources and the store of before. Each task
that declares outputs is cached, as if its class had "cache = True".

It is wrong if a build leaves other files than stock Waf's, or files with another mode or content; if a run of Waf has
another exit status; and if a message is missing or is additional. Known differences between two stock builds are left
out (utils/conformance/projects.py). Waf may show a task once more than stock Waf does: its input was written anew with
the same content, and it is a hit; or its result is not stored. These lines are counted, and are not wrong.
"""

import argparse
import fnmatch
import os
import pathlib
import sys
from typing import List

from benchmark.arguments import names
from benchmark.carry_out import carry_out
from benchmark.machine import load
from benchmark.mistake import Failed, Mistake
from benchmark.record import Parser, Record, add_places, check_places
from benchmark.scratch import scratch
from benchmark.service import missing_engine
from conformance.cached import Done, Missing, Trial, make_workbench
from conformance.projects import PROJECTS, Project
from conformance.report import Report

TREE = pathlib.Path(__file__).resolve().parent.parent
SOURCES = "waflib-2.1.*/submodules/waf"
EXAMPLES = """\
examples:
  utils/classes.py                                         all projects: some minutes
  utils/classes.py --projects 'demos/*,playground/strip'
  utils/classes.py --projects demos/bisonflex --json out.json
  utils/classes.py --sources /tmp/sources                  a folder with waflib-2.1.4/submodules/waf
  utils/classes.py --list                                  the projects

A project that stock Waf does not build here is left out, and named: it needs a program that is not installed.
exit status: 0 all is as with stock Waf, 1 something differs or failed, 2 it could not begin, 128 and more: a signal
"""


class Options(Parser):
	"""All that can be asked for."""

	def __init__(self) -> None:
		super().__init__(__doc__, EXAMPLES)
		default = TREE / "build" / "sources"
		self.add_argument("--projects", type=names, metavar="A,B", help="patterns for their names (default all)")
		fetched = "where Waf's sources are (default %s, into which ./waf check fetches them)" % default
		self.add_argument("--sources", type=pathlib.Path, default=default, metavar="DIR", help=fetched)
		add_places(self, "build", "project")
		self.add_argument("--list", action="store_true", help="list the projects, and end")


def choose_projects(patterns: List[str]) -> List[Project]:
	for pattern in patterns:
		if not fnmatch.filter([project.name for project in PROJECTS], pattern):
			raise Mistake("--projects: no %s: see --list" % pattern)
	return [one for one in PROJECTS if any(fnmatch.fnmatchcase(one.name, pattern) for pattern in patterns or ["*"])]


def find_tree(sources: pathlib.Path) -> pathlib.Path:
	found = sorted(sources.glob(SOURCES))
	if not found:
		raise Mistake("--sources: no %s in %s: ./waf check fetches it" % (SOURCES, sources))
	return found[-1].resolve()


def check(options: argparse.Namespace) -> None:
	"""Say what cannot be done, before anything is."""
	missing = missing_engine()
	if missing:
		raise Mistake(missing)
	check_places(options)


class Campaign(Record):
	"""All that was asked for."""

	def run(self, projects: List[Project], tree: pathlib.Path) -> None:
		with scratch("classes-", self.options.work) as work:
			workbench = make_workbench(tree, pathlib.Path(os.path.realpath(work)))
			for number, project in enumerate(projects):
				self.progress.begin(project.name, [(other.name, 1) for other in projects[number:]])
				try:
					self.keep(project, Trial(workbench, project).run())
				except Missing as e:
					self.leave_out(project.name, str(e))
				except Failed as e:
					self.fail(project.name, e)
				self.progress.done(project.name)

	def keep(self, project: Project, done: Done) -> None:
		self.values.append({"project": project.name, **done.told(), "load": load()})
		for one in done.wrong:
			self.progress.say("WRONG: %s, %s, %s" % (project.name, one.step, one.what))
		self.write()

	def tell(self) -> None:
		for line in Report(self.values).lines(sys.stdout.isatty()) if self.values else []:
			print(line)


def main() -> int:
	options = Options().parse_args()
	return carry_out("classes", lambda: work(options))


def work(options: argparse.Namespace) -> int:
	"""Do what was asked for, and return the exit status."""
	projects = choose_projects(options.projects or [])
	if options.list:
		for project in projects:
			print("%-40s %s" % (project.name, project.needs) if project.needs else project.name)
		return 0
	check(options)
	campaign = Campaign(options)
	campaign.run(projects, find_tree(options.sources))
	return campaign.finish()


if __name__ == "__main__":
	sys.exit(main())
