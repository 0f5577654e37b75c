#!/usr/bin/env python3
"""
Run everyday commands twice, plainly and with each cache, and tell which are answered the second time, whether anything
differs, and how long they take.

Each command has a folder of its own, with inputs that are an hour old. After each run, what it made is removed, and
what it changed is put back. Two plain runs tell what is right: files with their kinds, modes and contents, output,
messages and exit status; also the times of files for commands that set them. A command whose plain runs differ must
not be answered with an old result.
"""

import argparse
import os
import pathlib
import sys
from typing import List

from benchmark.arguments import choose, names
from benchmark.carry_out import carry_out
from benchmark.environment import plain_environment
from benchmark.interrupt import INTERRUPTS
from benchmark.machine import load
from benchmark.mistake import Failed, Mistake
from benchmark.record import Parser, Record, add_places, check_places
from benchmark.scratch import scratch
from commands.command import Everyday
from commands.contender import CONTENDERS, PLAIN, Contender
from commands.report import Report
from commands.table import COMMANDS, KIND_OF, KINDS
from commands.trial import Caches, Trial

EXAMPLES = """\
examples:
  utils/everyday.py                                        all commands, all contenders that are here: some minutes
  utils/everyday.py --kinds texts,archives --contenders plain,wafcc
  utils/everyday.py --commands sort,tar-x,date --json out.json
  utils/everyday.py --kinds compilers --contenders plain,wafcc,ccache --repeat 5
  utils/everyday.py --list                                 kinds with their commands, and contenders

A command whose program is not installed is left out, and named. So is a contender that is missing.
exit status: 0 all is right, 1 something is wrong or failed, 2 it could not begin, 128 and more: a signal
"""


class Options(Parser):
	"""All that can be asked for."""

	def __init__(self) -> None:
		super().__init__(__doc__, EXAMPLES)
		self.add_argument("--kinds", type=names, metavar="A,B", help="of %s (default all)" % ", ".join(KINDS))
		self.add_argument("--commands", type=names, metavar="A,B", help="by their names, of these kinds: --list")
		self.add_argument("--contenders", type=names, metavar="A,B", help="of %s (default all)" % ", ".join(CONTENDERS))
		self.add_argument("--repeat", type=int, default=1, metavar="N", help="rounds with empty caches (default 1)")
		add_places(self, "run them", "command")
		self.add_argument("--list", action="store_true", help="list commands and contenders, and end")


def choose_commands(options: argparse.Namespace) -> List[Everyday]:
	kinds = choose({kind: kind for kind in KINDS}, options.kinds, "--kinds")
	return choose({name: COMMANDS[name] for name in COMMANDS if KIND_OF[name] in kinds}, options.commands, "--commands")


def check(options: argparse.Namespace) -> None:
	"""Say what cannot be done, before anything is."""
	if options.repeat < 1:
		raise Mistake("--repeat: %d rounds are none: 1 or more" % options.repeat)
	check_places(options)


class Campaign(Record):
	"""All that was asked for."""

	def run(self, commands: List[Everyday], contenders: List[Contender]) -> None:
		commands = [command for command in commands if self.has(command.name, command.missing(), "is not installed")]
		others = [contender for contender in contenders if contender is not PLAIN]
		others = [contender for contender in others if self.has(contender.name, contender.missing() or "")]
		with scratch("everyday-", self.options.work) as work:
			for turn in range(self.options.repeat):
				begin = turn % max(len(others), 1)
				self.run_round(turn, commands, [*others[begin:], *others[:begin]], pathlib.Path(os.path.realpath(work)))

	def has(self, name: str, lack: str, why: str = "") -> bool:
		if lack:
			self.leave_out(name, ("%s %s" % (lack, why)).rstrip())
		return not lack

	def run_round(self, turn: int, commands: List[Everyday], others: List[Contender], work: pathlib.Path) -> None:
		"""Run all commands, with caches that are empty at first."""
		caches: Caches = []
		try:
			for contender in others:
				if contender.cache:
					folder = work / ("%s-%d" % (contender.name, turn))
					cache = contender.cache(str(folder), plain_environment())
					caches.append((contender, cache))
					cache.start()
			for number, command in enumerate(commands):
				rest = [(other.name, 1) for other in commands[number:]]
				rest += [(other.name, 1) for other in commands] * (self.options.repeat - turn - 1)
				self.progress.begin("%s: %s" % (KIND_OF[command.name], command.name), rest)
				self.measure(turn, command, [pair for pair in caches if pair[0].takes(command)], work)
				self.progress.done(command.name)
		finally:
			with INTERRUPTS.held():
				for _, cache in caches:
					cache.stop()

	def measure(self, turn: int, command: Everyday, caches: Caches, work: pathlib.Path) -> None:
		try:
			done = Trial(command, work).run(caches)
		except Failed as e:
			self.fail(command.name, e)
			return
		told = {"command": command.name, "kind": KIND_OF[command.name], "round": turn}
		for name, one in done.items():
			self.values.append({**told, "contender": name, **one._asdict(), "load": load()})
			if one.wrong:
				self.progress.say("WRONG: %s, %s, %s" % (command.name, name, one.wrong))
		self.write()

	def tell(self) -> None:
		for line in Report(self.values).lines(sys.stdout.isatty()) if self.values else []:
			print(line)


def main() -> int:
	options = Options().parse_args()
	return carry_out("everyday", lambda: work(options))


def work(options: argparse.Namespace) -> int:
	"""Do what was asked for, and return the exit status."""
	commands = choose_commands(options)
	contenders = choose(CONTENDERS, options.contenders, "--contenders")
	if options.list:
		for kind in dict.fromkeys(KIND_OF[command.name] for command in commands):
			print("%-16s %s" % (kind, " ".join(each.name for each in commands if KIND_OF[each.name] == kind)))
		print("%-16s %s" % ("contenders", " ".join(contender.name for contender in contenders)))
		return 0
	check(options)
	campaign = Campaign(options)
	campaign.run(commands, contenders)
	return campaign.finish()


if __name__ == "__main__":
	sys.exit(main())
