#!/usr/bin/env python3
"""
Compare interpreters and build systems over numbers of tasks: time and memory as tables, and as a page with plots.

``compare.py --help`` shows examples. What was measured is in a ledger, from which an interrupted comparison goes on.
The work is done by ``benchmark``.
"""

import argparse
import os
import shutil
import sys
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

from benchmark import contender, courses, ledger, page, sheet
from benchmark.arguments import Parser, answer, commas, counts, names, positive, rounds
from benchmark.comparison import Comparison, make_folder, remove_leftovers
from benchmark.contender import Contender
from benchmark.figures import Figures, figures_of, unfree
from benchmark.interpreter import ROOT, discover_interpreters, find_interpreter, labels_of
from benchmark.interrupt import INTERRUPTS, Interrupted
from benchmark.lanes import lanes_of, sort_out, versions_of
from benchmark.ledger import Ledger, Writer, differences, read_ledger, unlike
from benchmark.machine import describe_machine
from benchmark.mistake import Mistake
from benchmark.progress import Ticker
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
  compare.py show here.jsonl there.jsonl --different-machines
                                                      two machines side by side, marked as that

Who would need more than --limit seconds, more memory than there is, or more room on the disk, is left out from that
size on, and told of.
"""

TASKS = {courses.COMPILE: [1000, 3000, 10000], courses.IDLE: [1000, 3000, 10000, 30000, 100000]}
LIMIT = 300
FORMATS: Dict[str, Callable[[Figures], str]] = {
	"csv": sheet.csv_of,
	"markdown": sheet.markdown_of,
	"html": page.page_of,
}
SETTINGS = ("work", "scenarios", "tasks", "repeat", "compilers", "language", "weight", "flags", "seed", "jobs", "limit")


def main(argv: Sequence[str]) -> int:
	"""Do what the command line says; the exit status."""
	return answer("compare.py", run, argv)


def run(argv: Sequence[str]) -> int:
	"""The same, as far as nothing goes wrong."""
	if argv[:1] == ["show"]:
		return show(argv[1:])
	return compare(parse(argv), ["compare.py", *argv])


def parser() -> Parser:
	"""The options of a comparison."""
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
	add_outputs(p)
	return p


def add_outputs(p: Parser) -> None:
	"""The options that a comparison and ``show`` have in common."""
	for name in FORMATS:
		p.add_argument("--%s" % name, metavar="FILE", help="write the figures there, too")
	p.add_argument("--different-machines", action="store_true", help="put runs of different machines together, marked")
	p.add_argument("--anyway", action="store_true", help="go on, or show, although options differ, with a warning")


def parse(argv: Sequence[str]) -> argparse.Namespace:
	"""Read a command line, with all defaults filled in but who takes part."""
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
	"""Measure what the ledger lacks, and show what it has then."""
	ticker = Ticker(sys.stderr)
	for path in (options.json, *outputs(options).values()):
		ledger.make_place(path)
	adopt_orphans()
	INTERRUPTS.listen()
	writer = Writer(options.json)
	status = 0
	try:
		comparison = prepare(options, command, writer, ticker)
		try:
			comparison.go()
		except Interrupted as e:
			ticker.say("compare.py: %s: the same command goes on from here" % e)
			status = e.exit_status
		finally:
			with INTERRUPTS.held():
				ticker.stop()
				ticker.say("deleting what was built")
				for trouble in comparison.close():
					ticker.say("compare.py: %s" % trouble)
	finally:
		writer.close()
	present([read_ledger(options.json)], options)
	print("\nledger     %s" % options.json)
	return status or (1 if comparison.failed else 0)


def prepare(options: argparse.Namespace, command: List[str], writer: Writer, ticker: Ticker) -> Comparison:
	"""Find who takes part, and what the ledger has already; if that cannot go on, nothing is left of it."""
	env = clean_environment(dict(os.environ))
	folder = ""
	try:
		folder = make_folder(options.folder, options.json)
		chosen, told = choose_contenders(options)
		told += choose_interpreters(options, chosen, folder, env)
		languages = {options.language} if options.work == courses.COMPILE else set()
		lanes = [lane for lane in lanes_of(options, chosen, languages, folder, env) if takes_part(options, lane)]
		for name, reason in told:
			ticker.say("left out: %s: %s" % (name, reason))
		comparison = Comparison(settle(options, chosen), lanes, folder, writer, ticker)
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
	"""Those who take part; and of those that nobody asked for by name, the ones that cannot, with the reason."""
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
	"""Settle on interpreters; of those that nobody asked for, the ones that cannot run Waf, with the reason."""
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
	"""Tell whether a lane has anything to do."""
	return bool(courses.courses_of(options.work, options.scenarios, lane.contender))


def settle(options: argparse.Namespace, chosen: Sequence[Contender]) -> Dict[str, Any]:
	"""What was asked for, with nothing left open, as the ledger keeps it."""
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
	"""Go on with a ledger, if that is the same comparison on the same machine."""
	writer = comparison.writer
	changed = differences(found.options, comparison.options)
	if changed and not options.anyway:
		raise Mistake(
			"%s was begun with other options (%s): name another file, or add --anyway" % (found.path, changed)
		)
	for known in found.machines:
		why = unlike(known, machine)
		if why and not options.different_machines:
			raise Mistake(
				"%s was begun on another machine (%s): name another file, or add --different-machines"
				% (found.path, why)
			)
	if changed:
		if unfree(found.options) != unfree(comparison.options):
			writer.write(kind="note", text="options were changed on the way: %s" % changed)
		writer.write(kind="options", options=comparison.options)
	if found.folder and remove_leftovers(found.folder, found.path, env):
		comparison.ticker.say("deleted %s, which was left behind" % found.folder)
	comparison.learn(found)
	comparison.ticker.say("going on with %s: %d runs are there" % (found.path, len(found.runs)))


def outputs(options: argparse.Namespace) -> Dict[str, str]:
	"""The files that the figures are written to, by format."""
	return {name: getattr(options, name) for name in FORMATS if getattr(options, name)}


def present(ledgers: Sequence[Ledger], options: argparse.Namespace) -> None:
	"""Print the figures, and write them wherever that was asked for."""
	figures = figures_of(ledgers, options.different_machines, options.anyway)
	print(sheet.text_of(figures, sys.stdout.isatty()))
	for name, path in outputs(options).items():
		ledger.write_text(FORMATS[name](figures), path)


def show(argv: Sequence[str]) -> int:
	"""Show ledgers again, several of them together."""
	p = Parser("compare.py show", "Show what was measured, of several ledgers together.")
	p.add_argument("files", metavar="FILE.jsonl", nargs="+")
	add_outputs(p)
	options = p.parse_args(list(argv))
	for path in outputs(options).values():
		ledger.make_place(path)
	present([read_ledger(path) for path in options.files], options)
	return 0


if __name__ == "__main__":
	sys.exit(main(sys.argv[1:]))
