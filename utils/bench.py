#!/usr/bin/env python3
"""
Measure builds, in turn and repeatedly, and print medians, spreads and ratios.

``bench.py --help`` shows examples, ``bench.py --list`` what there is to measure. The work is done by ``benchmark``.
"""

import argparse
import os
import sys
import tempfile
from typing import Any, Dict, List, Optional, Sequence, Tuple

from benchmark import ablation, arguments, contender, ledger, readme
from benchmark.campaign import Campaign, Step, notes_of, plan
from benchmark.contender import Contender
from benchmark.interpreter import labels_of
from benchmark.interrupt import INTERRUPTS, Interrupted
from benchmark.lanes import lanes_of, sort_out, versions_of
from benchmark.machine import cores, describe_machine
from benchmark.mistake import Mistake
from benchmark.package import find_packages
from benchmark.plot import write_pictures
from benchmark.precompiled import find_code
from benchmark.progress import Progress
from benchmark.report import report
from benchmark.run import Lane
from benchmark.scenario import COMMANDS, SCENARIOS, Scenario
from benchmark.session import adopt_orphans
from benchmark.sources import FLAGS
from benchmark.workshop import COMPILED, PRECOMPILED, REAL, Workshop


def main(argv: Sequence[str]) -> int:
	"""Do what the command line says, and return the exit status."""
	return arguments.answer("bench.py", run, argv)


def run(argv: Sequence[str]) -> int:
	"""Do what the command line says; raises ``Mistake``."""
	if argv[:1] == ["show"]:
		print(report(ledger.read_record(arguments.parse_show(argv[1:])), sys.stdout.isatty()))
		return 0
	if argv[:1] == ["readme"]:
		return measure_readme(arguments.parse_readme(argv[1:]))
	options = arguments.parse(argv)
	if options.list:
		print(arguments.listing())
		return 0
	return measure(options, ["bench.py", *argv])


def measure_readme(options: argparse.Namespace) -> int:
	"""Run the campaigns of the README's table, and print it with all records that there are."""
	progress = Progress(sys.stderr)
	status = 0
	for name, campaign in {} if options.show else options.campaigns.items():
		path = os.path.join(options.records, "%s.json" % name)
		ledger.make_place(path)
		is_quiet = readme.wait_until_quiet(progress.say)
		words = readme.words_of(campaign, options.repeat, options.pythons)
		work = ["--work", options.work] if options.work else []
		try:
			result = measure(arguments.parse([*words, *work, "--json", path]), ["bench.py", *words])
		except Mistake as e:
			progress.say("bench.py: %s: %s" % (name, e))
			status = 1
			continue
		record = ledger.read_record(path)
		record["machine"]["quiet"] = is_quiet
		ledger.write_record(record, path)
		status = status or result
		if not record["finished"]:
			break
	print(readme.show(options.records))
	return status


def measure(options: argparse.Namespace, command: List[str]) -> int:
	"""Run a campaign, keep its record and print its report."""
	if options.parts:
		with tempfile.TemporaryDirectory(prefix="bench-") as folder:
			engines = ablation.build_engines(options.parts, folder, Progress(sys.stderr).say)
		options.engines = engines
	contenders, left_out = choose_contenders(options)
	settings = settle(options, contenders)
	progress = Progress(sys.stderr)
	raw: ledger.Record = {}
	status = 0
	ledger.make_place(options.json)
	adopt_orphans()
	INTERRUPTS.listen()
	workshop = Workshop(options.work, settings)
	try:
		scenarios = [SCENARIOS[name] for name in options.scenarios]
		for kind in dict.fromkeys(scenario.project for scenario in scenarios if scenario.project in REAL):
			language = COMPILED[kind]
			found = find_packages(options.sources, progress.say, language=language)
			workshop.packages[kind] = found
			flags = FLAGS[language] if options.flags is None else options.flags
			settings["real"][kind] = {"packages": [package.summary for package in found], "flags": flags}
		if any(scenario.project == PRECOMPILED for scenario in scenarios):
			workshop.code = find_code(options.sources, progress.say)
		lanes = lanes_for_scenarios(options, contenders, scenarios, workshop)
		steps = plan(scenarios, lanes, options.repeat, options.jobs)
		if options.parts:
			steps = [step for step in steps if is_compared(step, settings["ablation"])]
		refuse_idle(scenarios, steps, dict(left_out))
		settings["notes"] = notes_of(steps)
		machine = describe_machine(workshop.path, command, versions_of(step.lane for step in steps))
		abouts = {s.name: about(s, options.baseline, contenders) for s in scenarios}
		raw = ledger.new_record(settings, machine, abouts, left_out)
		Campaign(steps, workshop, raw, progress).go(lambda: ledger.write_record(raw, options.json))
	except Interrupted as e:
		progress.say("bench.py: %s" % e)
		status = e.exit_status
	finally:
		with INTERRUPTS.held():
			close(workshop, options.keep, progress)
			if raw:
				ledger.write_record(raw, options.json)
	if raw:
		print("%s\n\nraw values %s" % (report(raw, sys.stdout.isatty()), options.json))
		for name in write_pictures(raw, options.json):
			print("picture    %s" % name)
	return status or (1 if raw.get("failures") else 0)


def choose_contenders(options: argparse.Namespace) -> Tuple[List[Contender], List[Tuple[str, str]]]:
	"""The contenders that take part, and those that were not named and cannot, each with the reason."""
	needed = {SCENARIOS[name].needs for name in options.scenarios}
	found = [contender.find_contender(name, options.engines) for name in options.contenders or contender.DEFAULT]
	found = [one for one in found if options.contenders or needed & one.abilities]
	reasons = [(one, one.missing()) for one in found]
	return sort_out(reasons, options.contenders or [options.baseline])


def settle(options: argparse.Namespace, contenders: Sequence[Contender]) -> Dict[str, Any]:
	"""All settings, defaults included, as the record keeps them."""
	names = contender.names_of(contenders)
	if options.baseline and options.baseline not in names:
		raise Mistake("baseline %s takes no part: choose one of %s" % (options.baseline, ", ".join(names)))
	given = ("size", "language", "weight", "common", "flags", "seed", "jobs", "repeat")
	settings = {key: getattr(options, key) for key in given}
	settings.update(
		cores=cores(),
		contenders=names,
		compilers=options.compilers,
		interpreters=labels_of(options.interpreters),
		baseline=options.baseline,
		parents=list(options.parents),
		crowds=list(options.crowds),
		tasks=options.tasks,
		extras=options.extras,
		limit=options.limit,
		commands={name: options.commands or count for name, count in COMMANDS.items()},
		real={},
		notes={},
	)
	if options.parts:
		settings["ablation"] = ablation.settings_of(options.parts)
	return settings


def is_compared(step: Step, pairs: Sequence[Dict[str, Any]]) -> bool:
	"""Tell whether a step is one of those that parts are judged by."""
	name = step.lane.contender.name
	return any(step.scenario.name == pair["scenario"] and name in (pair["with"], pair["without"]) for pair in pairs)


def lanes_for_scenarios(
	options: argparse.Namespace, contenders: Sequence[Contender], scenarios: Sequence[Scenario], workshop: Workshop
) -> List[Lane]:
	languages = {scenario.language(options.language) for scenario in scenarios if scenario.compiles}
	return lanes_of(options, contenders, languages, workshop.path, workshop.environment)


def refuse_idle(scenarios: Sequence[Scenario], steps: Sequence[Step], left_out: Dict[str, str]) -> None:
	"""Refuse a scenario that no contender of this campaign can run."""
	for scenario in scenarios:
		if not any(step.scenario is scenario for step in steps):
			able = [name for name, builder in contender.BUILDERS.items() if scenario.needs in builder.abilities]
			reasons = list(dict.fromkeys(left_out[name] for name in able if name in left_out))
			remedy = "; ".join(reasons) or "add one of %s" % ", ".join(able)
			raise Mistake("scenario %s: no contender can run it: %s" % (scenario.name, remedy))


def about(scenario: Scenario, baseline: Optional[str], contenders: Sequence[Contender]) -> Dict[str, Any]:
	"""The facts about a scenario that a record keeps, so that it can be shown later."""
	return {
		"title": scenario.title,
		"measures": scenario.measures,
		"compiles": scenario.compiles,
		"generated": scenario.is_generated,
		"jobs": list(scenario.jobs),
		"per_slot": scenario.is_per_slot,
		"baseline": choose_baseline(scenario, baseline, contenders),
		"counts": scenario.counts,
		"note": scenario.note,
		"against": scenario.against,
		"drawn": list(scenario.drawn),
		"rows": list(scenario.rows),
		"across": scenario.is_across,
	}


def choose_baseline(scenario: Scenario, wanted: Optional[str], contenders: Sequence[Contender]) -> Optional[str]:
	"""The contender that the others are compared with: the one asked for, stock Waf, or the first that is able."""
	able = [one.name for one in contenders if scenario.needs in one.abilities]
	return next((name for name in (wanted, "waf") if name in able), able[0] if able else None)


def close(workshop: Workshop, keep: bool, progress: Progress) -> None:
	"""End everything that was started, and delete everything that was made unless it is to stay."""
	progress.say("kept %s" % workshop.path if keep else "deleting what was built")
	for trouble in workshop.close(keep):
		progress.say("bench.py: %s" % trouble)


if __name__ == "__main__":
	sys.exit(main(sys.argv[1:]))
