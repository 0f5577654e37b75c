#!/usr/bin/env python3
"""
Build a program of many Rust crates with cargo, plainly and with each cache before rustc, and compare times, hits and
bytes.

The program is a published crate with a lock file of its own, so the same crates are built each time. It is copied, and
all contenders build it in the same folder, one after the other: with an empty cache and an empty target folder (cold),
once more with that cache and an empty target folder (warm), with --elsewhere into another target folder, and with
--edit after a function was appended to its source (edit) and taken away again (back). Libraries, their metadata,
programs and build scripts are compared with those of plain builds. A file that two plain builds do not make alike is
not compared.
"""

import argparse
import contextlib
import os
import pathlib
import sys
from typing import Dict, List, Tuple

from benchmark.arguments import choose, names, positive
from benchmark.carry_out import carry_out
from benchmark.machine import cores, version_of
from benchmark.mistake import Failed, Mistake
from benchmark.package import find_cargo
from benchmark.record import Parser, Record, add_places, check_places
from benchmark.scratch import scratch
from commands.contender import PLAIN, Contender
from graph.outputs import Digests, Judge
from graph.report import Report
from graph.source import Source, find_crate, find_project
from graph.trial import CONTENDERS, Done, Trial, steps_of
from graph.workspace import Workspace

CRATE = "tokei=12.1.2"
PATIENCE = 300
EXAMPLES = """\
examples:
  utils/crates.py                                          all contenders that are here, three rounds: some minutes
  utils/crates.py --edit --json crates.json                also after an edit of the program, and after that was undone
  utils/crates.py --elsewhere                              also into another target folder
  utils/crates.py --contenders plain,wafcc --repeat 1
  utils/crates.py --crate NAME=VERSION --release           another program, with the compiler's optimizations
  utils/crates.py --project ~/my-program                   one of your own, with a Cargo.lock

A contender that is missing is left out, and named. The plain builds are always made: the others are compared with them.
exit status: 0 all was built and is right, 1 something is wrong or failed, 2 it could not begin, 128 and more: a signal
"""


class Options(Parser):
	"""All that can be asked for."""

	def __init__(self) -> None:
		super().__init__(__doc__, EXAMPLES)
		sources = self.add_mutually_exclusive_group()
		sources.add_argument("--crate", default=CRATE, metavar="NAME=VERSION", help="default %s" % CRATE)
		sources.add_argument("--project", metavar="DIR", help="a package or a workspace with a Cargo.lock, instead")
		self.add_argument("--contenders", type=names, metavar="A,B", help="of %s (default all)" % ", ".join(CONTENDERS))
		self.add_argument("--repeat", type=int, default=3, metavar="N", help="rounds with empty caches (default 3)")
		elsewhere = "build into another target folder, too"
		self.add_argument("--elsewhere", action="store_true", help=elsewhere)
		self.add_argument("--edit", action="store_true", help="build after an edit, and after it was taken back, too")
		self.add_argument("--release", action="store_true", help="cargo's release profile, and not its dev profile")
		self.add_argument("--jobs", type=positive, default=cores(), metavar="N", help="default the processors")
		proofs = "how long second runs of wafcc-proved are waited for (default %d)" % PATIENCE
		self.add_argument("--patience", type=positive, default=PATIENCE, metavar="SECONDS", help=proofs)
		add_places(self, "build", "build")


def check(options: argparse.Namespace) -> None:
	"""Say what cannot be done, before anything is."""
	if options.repeat < 1:
		raise Mistake("--repeat: %d rounds are none: 1 or more" % options.repeat)
	check_places(options)
	if not find_cargo():
		raise Mistake("cargo is missing: install Rust, for example by rustup")


def versions_of(contenders: List[Contender]) -> Dict[str, str]:
	"""The versions of all programs that take part."""
	caches = {contender.cache.program: contender.cache.find() for contender in contenders if contender.cache}
	programs = {"cargo": find_cargo(), "rustc": "rustc", **caches}
	return {name: version_of(path or name, "--version") for name, path in programs.items()}


class Campaign(Record):
	"""All that was asked for."""

	def __init__(self, options: argparse.Namespace, contenders: List[Contender]) -> None:
		self.others = [one for one in contenders if one is not PLAIN and not one.missing()]
		super().__init__(options, versions_of([PLAIN, *self.others]))
		self.judge = Judge()
		self.title = ""
		self.made: List[Tuple[str, Digests]] = []
		"""For each value: the state of the sources, and the outputs."""
		for contender in contenders:
			if contender.missing():
				self.leave_out(contender.name, contender.missing() or "")

	def run(self, source: Source) -> None:
		self.title = "%s, %s profile" % (source.title, "release" if self.options.release else "dev")
		with scratch("crates-", self.options.work) as folder:
			work = pathlib.Path(os.path.realpath(folder))
			workspace = Workspace(source, work, self.options.release, self.options.jobs)
			workspace.prepare()
			if self.options.edit:
				workspace.find_edited()
			for turn in range(self.options.repeat):
				begin = turn % max(len(self.others), 1)
				# plain builds come first, since the others are compared with them
				for contender in [PLAIN, *self.others[begin:], *self.others[:begin]]:
					self.measure(turn, contender, workspace, work)

	def measure(self, turn: int, contender: Contender, workspace: Workspace, work: pathlib.Path) -> None:
		trial = Trial(contender, workspace, work / contender.name, self.options.patience)
		try:
			steps = steps_of(contender, turn, self.options.edit, self.options.elsewhere)
			with contextlib.closing(trial.run(steps, self.progress.say)) as builds:
				for done in builds:
					self.keep(turn, contender, done)
		except Failed as e:
			if contender is PLAIN:
				raise
			self.fail(contender.name, e)

	def keep(self, turn: int, contender: Contender, done: Done) -> None:
		if contender is PLAIN:
			self.judge.learn(done.state, done.made)
		self.values.append({"round": turn, "contender": contender.name, **done.told()})
		self.made.append((done.state, done.made))
		# once more for all: a later plain build may have shown that a file is never the same
		for value, (state, made) in zip(self.values, self.made):
			value["compared"] = len(self.judge.compared(state))
			value["wrong"] = self.judge.wrong(state, made)
		for path in self.values[-1]["wrong"]:
			self.progress.say("WRONG: %s, %s, %s" % (contender.name, done.step, path))
		self.write(title=self.title, unsteady=sorted(self.judge.unsteady))

	def tell(self) -> None:
		print("%s, medians of %d" % (self.title, self.options.repeat))
		for line in Report(self.values).lines(sys.stdout.isatty()):
			print(line)
		if self.judge.unsteady:
			print("plain builds differ: %s" % " ".join(sorted(self.judge.unsteady)))
		print(", ".join(self.machine["versions"].values()))


def main() -> int:
	options = Options().parse_args()
	return carry_out("crates", lambda: work(options))


def work(options: argparse.Namespace) -> int:
	"""Do what was asked for, and return the exit status."""
	contenders = choose(CONTENDERS, options.contenders, "--contenders")
	check(options)
	campaign = Campaign(options, contenders)
	source = find_project(options.project) if options.project else find_crate(options.crate, campaign.progress.say)
	campaign.run(source)
	return campaign.finish()


if __name__ == "__main__":
	sys.exit(main())
