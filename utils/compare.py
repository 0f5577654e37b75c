#!/usr/bin/env python3
"""
Compare interpreters and build systems over numbers of tasks: time and memory as tables, and as a page with plots.

``compare.py --help`` shows examples. The runs are in a ledger, from which an interrupted comparison goes on.
The work is done by ``benchmark``.
"""

import argparse
import os
import shutil
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from benchmark import contender, courses, ledger, page, sheet
from benchmark.arguments import Parser, answer, commas, counts, names, positive, rounds
from benchmark.comparison import Comparison, make_folder, remove_leftovers
from benchmark.contender import Contender
from benchmark.figures import figures_of, unfree
from benchmark.interpreter import ROOT, discover_interpreters, find_interpreter, labels_of
from benchmark.interrupt import INTERRUPTS, Interrupted
from benchmark.lanes import lanes_of, sort_out, versions_of
from benchmark.ledger import Ledger, Writer, differences, read_ledger, unlike
from benchmark.machine import describe_machine
from benchmark.mistake import Mistake
from benchmark.progress import Progress
from benchmark.run import Lane
from benchmark.session import adopt_orphans
from benchmark.workshop import clean_environment

DESCRIPTION = """Compare interpreters and build systems over numbers of tasks: time, processor time and peak memory of
full, cold, warm, no-op and one-file builds. Each run is in the ledger (--json) before the next one begins: the same
command goes on after an interruption."""

EXAMPLES = """
examples:
  compare.py                                          small C++ projects, every contender and every Python that is here
  compare.py --work idle --contenders waf,large --interpreters python3,pypy3 --html compare.html
                                                      Waf itself, with 1,000 to 100,000 tasks
  compare.py --contenders prefork,ninja,make --scenarios full,noop --tasks 500,1000,5000 --repeat 5
  compare.py --tasks 1000,10000 --repeat 5,2          more rounds of what is quick
  compare.py --json all.jsonl                         begin, or go on with what all.jsonl lacks
  compare.py show all.jsonl --html all.html           show it again

A contender that needs more than --limit seconds, or would need them in proportion to a smaller size, is left out from
that size on, with a notice.
"""

TASKS = {courses.COMPILE: [1000, 3000, 10000], courses.IDLE: [1000, 3000, 10000, 30000, 100000]}
LIMIT = 300
HTML = "also write the figures there, as a page with plots"
PROJECT = ("compilers", "language", "weight", "common", "flags", "seed")
SETTINGS = ("work", "scenarios", "tasks", "repeat", *PROJECT, "jobs", "limit")


def main(argv: Sequence[str]) -> int:
	"""Do what the command line says, and return the exit status."""
	return answer("compare.py", run, argv)


def run(argv: Sequence[str]) -> int:
	"""Do what the command line says; raises ``Mistake``."""
	if argv[:1] == ["show"]:
		return show(argv[1:])
	return compare(parse(argv), ["compare.py", *argv])


def parser() -> Parser:
	p = Parser("compare.py", DESCRIPTION, EXAMPLES)
	works = "compile: small sources of C or C++; idle: tasks that do next to nothing (default compile)"
	p.add_argument("--work", choices=tuple(courses.WORKS), default=courses.COMPILE, help=works)
	scenarios = "of %s (default all that the work has)" % ", ".join(courses.SCENARIOS)
	p.add_argument("--scenarios", type=names, metavar="A,B", help=scenarios)
	p.add_argument("--contenders", type=names, metavar="A,B", help="who builds (default all that are here)")
	p.add_argument("--interpreters", type=names, metavar="A,B", help="Pythons that run Waf (default all in PATH)")
	sizes = "; ".join("%s for %s" % (commas(sizes), work) for work, sizes in TASKS.items())
	sizes = "how many, one size after the other (default %s)" % sizes
	p.add_argument("--tasks", type=counts, metavar="M,N", help=sizes)
	each = "rounds, of all sizes or of each (default 3)"
	p.add_argument("--repeat", type=rounds, metavar="N", default=[3], help=each)
	p.add_argument("--limit", type=positive, metavar="SECONDS", default=LIMIT, help="of one build (default %d)" % LIMIT)
	p.add_project("compiler flags (default none)")
	p.add_argument("--jobs", type=positive, metavar="N", help="at once (default the processors)")
	p.add_argument("--baseline", metavar="CONTENDER", help="what ratios refer to (default the first contender)")
	p.add_argument("--json", metavar="FILE", help="the ledger, JSON lines (default build/bench/compare-DATE.jsonl)")
	p.add_argument("--folder", metavar="DIR", help="where to build, in a new folder (default the temporary one)")
	p.add_argument("--html", metavar="FILE", help=HTML)
	p.add_argument("--anyway", action="store_true", help="go on although options differ, with a warning")
	return p


def parse(argv: Sequence[str]) -> argparse.Namespace:
	"""Read a command line, with all defaults filled in except contenders and interpreters."""
	options = parser().parse_args(list(argv))
	options.tasks = sorted(set(options.tasks or TASKS[options.work]))
	if len(options.repeat) == 1:
		options.repeat *= len(options.tasks)
	if len(options.repeat) != len(options.tasks):
		raise Mistake("--repeat names %d sizes and --tasks %d: see --help" % (len(options.repeat), len(options.tasks)))
	able = courses.SCENARIOS if options.work == courses.COMPILE else ("full", "noop")
	for name in options.scenarios or ():
		if name not in able:
			raise Mistake("scenario %s is none of %s work: choose from %s" % (name, options.work, ", ".join(able)))
	options.scenarios = [name for name in able if name in (options.scenarios or able)]
	if options.work == courses.IDLE:
		options.compilers = []
	for tasks in options.tasks if options.work == courses.COMPILE else ():
		try:
			courses.size_of(tasks)
		except ValueError as e:
			raise Mistake("--tasks: %s, of which there are as many in each library" % e) from None
	options.json = options.json or os.path.join(ROOT, "build", "bench", time.strftime("compare-%Y%m%d-%H%M%S.jsonl"))
	return options


def compare(options: argparse.Namespace, command: List[str]) -> int:
	"""Measure the runs that the ledger lacks, and show all of it."""
	progress = Progress(sys.stderr)
	for path in filter(None, (options.json, options.html)):
		ledger.make_place(path)
	adopt_orphans()
	INTERRUPTS.listen()
	writer = Writer(options.json)
	status = 0
	try:
		comparison = prepare(options, command, writer, progress)
		try:
			comparison.go()
		except Interrupted as e:
			progress.say("compare.py: %s: the same command goes on from here" % e)
			status = e.exit_status
		finally:
			with INTERRUPTS.held():
				progress.say("deleting what was built")
				for trouble in comparison.close():
					progress.say("compare.py: %s" % trouble)
	finally:
		writer.close()
	present(read_ledger(options.json), options.html)
	print("\nledger     %s" % options.json)
	return status or (1 if comparison.failed else 0)


def prepare(options: argparse.Namespace, command: List[str], writer: Writer, progress: Progress) -> Comparison:
	"""Find the lanes and the state of the ledger. If that fails, no file is left behind."""
	env = clean_environment(dict(os.environ))
	folder = ""
	try:
		folder = make_folder(options.folder, options.json)
		chosen, told = choose_contenders(options)
		told += choose_interpreters(options, chosen, folder, env)
		languages = {options.language} if options.work == courses.COMPILE else set()
		lanes = [lane for lane in lanes_of(options, chosen, languages, folder, env) if takes_part(options, lane)]
		for name, reason in told:
			progress.say("left out: %s: %s" % (name, reason))
		comparison = Comparison(settle(options, chosen), lanes, folder, writer, progress)
		machine = describe_machine(folder, command, versions_of(lanes))
		found = writer.begin(comparison.options)
		if found:
			resume(comparison, found, machine, options, env)
		if not found or not found.is_finished or comparison.missing():
			writer.write(kind="machine", machine=machine, folder=folder)
		return comparison
	except BaseException:
		with INTERRUPTS.held():
			shutil.rmtree(folder, ignore_errors=True)
			writer.discard()
		raise


def choose_contenders(options: argparse.Namespace) -> Tuple[List[Contender], List[Tuple[str, str]]]:
	"""The contenders that take part, and those that were not named and cannot, each with the reason."""
	idle = "it has nothing to do in %s of %s work" % (", ".join(options.scenarios), options.work)
	found = [contender.find_contender(name) for name in options.contenders or courses.CONTENDERS[options.work]]
	reasons = [
		(one, one.missing() or ("" if courses.courses_of(options.work, options.scenarios, one) else idle))
		for one in found
	]
	chosen, left_out = sort_out(reasons, options.contenders or ())
	if options.baseline and options.baseline not in contender.names_of(chosen):
		raise Mistake("baseline %s takes no part: see --contenders" % options.baseline)
	return chosen, left_out


def choose_interpreters(
	options: argparse.Namespace, chosen: Sequence[Contender], folder: str, env: Dict[str, str]
) -> List[Tuple[str, str]]:
	"""Choose the interpreters; those that were found but cannot run Waf, each with the reason."""
	if not any(one.builder.runs_python for one in chosen):
		options.interpreters = []
		return []
	if options.interpreters:
		return []
	options.interpreters, left_out = [], []
	for name in discover_interpreters(env):
		try:
			find_interpreter(name, name, folder, env)
			options.interpreters.append(name)
		except Mistake as e:
			left_out.append((name, str(e)))
	if not options.interpreters:
		raise Mistake("no Python in PATH can run Waf: name one with --interpreters")
	return left_out


def takes_part(options: argparse.Namespace, lane: Lane) -> bool:
	return bool(courses.courses_of(options.work, options.scenarios, lane.contender))


def settle(options: argparse.Namespace, chosen: Sequence[Contender]) -> Dict[str, Any]:
	"""All options, defaults included, as the ledger keeps them."""
	settings = {name: getattr(options, name) for name in SETTINGS}
	settings.update(
		contenders=contender.names_of(chosen),
		interpreters=labels_of(options.interpreters),
		baseline=options.baseline or chosen[0].name,
	)
	return settings


def resume(
	comparison: Comparison, found: Ledger, machine: Dict[str, Any], options: argparse.Namespace, env: Dict[str, str]
) -> None:
	"""Continue a ledger, if it is of the same comparison on the same machine."""
	writer = comparison.writer
	changed = differences(found.options, comparison.options)
	if changed and not options.anyway:
		raise Mistake(
			"%s was begun with other options (%s): name another file, or add --anyway" % (found.path, changed)
		)
	for known in found.machines:
		why = unlike(known, machine)
		if why:
			raise Mistake("%s was begun on another machine (%s): name another file" % (found.path, why))
	if changed:
		if unfree(found.options) != unfree(comparison.options):
			writer.write(kind="note", text="options were changed on the way: %s" % changed)
		writer.write(kind="options", options=comparison.options)
	if found.folder and remove_leftovers(found.folder, found.path, env):
		comparison.progress.say("deleted %s, which was left behind" % found.folder)
	comparison.learn(found)
	comparison.progress.say("going on with %s: %d runs are there" % (found.path, len(found.runs)))


def present(found: Ledger, html: Optional[str]) -> None:
	"""Print the figures, and write the page if that was asked for."""
	figures = figures_of(found)
	print(sheet.text_of(figures, sys.stdout.isatty()))
	if html:
		ledger.write_text(page.page_of(figures), html)


def show(argv: Sequence[str]) -> int:
	p = Parser("compare.py show", "Show what was measured.")
	p.add_argument("file", metavar="FILE.jsonl")
	p.add_argument("--html", metavar="FILE", help=HTML)
	options = p.parse_args(list(argv))
	if options.html:
		ledger.make_place(options.html)
	present(read_ledger(options.file), options.html)
	return 0


if __name__ == "__main__":
	sys.exit(main(sys.argv[1:]))
