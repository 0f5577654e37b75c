#!/usr/bin/env python3
"""
Build jack2, a real project on an old Waf, stock and with our tools in turn; tell times, and whether outputs are equal.

Its Waf is 2.0.12, which predates Python 3.11: another Python runs it. Nothing of jack2 is changed (see waf_with.py).
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
from typing import Dict, List, NamedTuple, Sequence

import twins
from benchmark import interpreter
from benchmark.machine import cores, processor, version_of
from benchmark.mistake import Failed, Mistake
from benchmark.service import Engine, find_engine
from benchmark.summary import paired_ratio, summarize

HERE = pathlib.Path(__file__).resolve().parent
STOCK = "stock"
EXAMPLES = """\
examples:
  utils/jack.py                          three rounds with PyPy, sources below build/sources
  utils/jack.py --rounds 1 --interpreter python3.9 --sources ~/src/jack2-1.9.21
  utils/jack.py --configure '--classic --alsa=no' -j1 --keep

.ci/run fetches the sources (Debian's source package jackd2) and tells which libraries jack2 finds useful.
"""

# what would make the two sides differ, or differ from what a plain `waf configure build` does
MEDDLING = ("WAF_WITH", "WAF_NO_PREFORK", "WAF_PREFORK_TRANSPORT", "WAFDIR", "JOBS", "NOCLIMB", "DESTDIR", "PREFIX")


class Plan(NamedTuple):
	"""What to build, and how."""

	sources: pathlib.Path
	room: pathlib.Path  # an empty folder for everything that comes of it
	interpreter: str
	jobs: int
	tools: str = "prefork"
	configure: str = "--example-tools"

	def sides(self) -> List[str]:
		return [STOCK, self.tools]

	def commands(self) -> List[List[str]]:
		"""Configuration and build, each a run of Waf: they are timed apart."""
		waf = [self.interpreter, str(HERE / "waf_with.py")]
		return [[*waf, "configure", *self.configure.split()], [*waf, "build", f"-j{self.jobs}"]]

	def environment(self, side: str) -> Dict[str, str]:
		"""The variables of one side."""
		env = {name: value for name, value in os.environ.items() if name not in MEDDLING}
		env.update(
			WAFDIR=".",
			LANG="C.UTF-8",
			PYTHONHASHSEED="1",
			PYTHONPYCACHEPREFIX=str(self.room / "bytecode"),
			SOURCE_DATE_EPOCH="1600000000",
		)
		# stock Waf does not say what was saved
		return env if side == STOCK else dict(env, WAF_WITH=side, WAF_PREFORK_SUMMARY="no")


# ---- building


def build(plan: Plan, side: str, number: int, engine: Engine, commands: int = 2) -> twins.Build:
	"""Build jack2 once, or do only the first of its commands; the result is kept under `number`."""
	env = dict(plan.environment(side), **engine.environment)
	sources = {plan.sources: pathlib.Path("jack2")}
	aside = plan.room / f"{number}-{side}"
	# always at one path, which goes into the outputs
	built = twins.build_aside(sources, plan.room / "work", aside, plan.commands()[:commands], env, "jack2")
	if not built.succeeded:
		raise Failed(f"jack2 does not build ({side})", str(built.runs[-1]))
	return built


def build_rounds(plan: Plan, rounds: int, engine: Engine) -> Dict[str, List[twins.Build]]:
	"""Build with each side in turn, so many times; the side that begins changes."""
	build(plan, plan.tools, 0, engine, commands=1)  # nobody's time: imports and compilers are read from the disk
	built: Dict[str, List[twins.Build]] = {side: [] for side in plan.sides()}
	for number in range(1, rounds + 1):
		for side in plan.sides() if number % 2 else reversed(plan.sides()):
			built[side].append(build(plan, side, number, engine))
			print(f"round {number}, {side}: {built[side][-1].seconds:.1f} s", file=sys.stderr)
	return built


def find_differences(plan: Plan, built: Dict[str, List[twins.Build]]) -> List[str]:
	"""In what the builds differ from the first stock one."""
	first = built[STOCK][0]
	standard = twins.Standard(ordered=plan.jobs == 1)
	found = []
	for side in plan.sides():
		for number, other in enumerate(built[side], 1):
			found += [f"{side} {number}: {line}" for line in twins.compare_builds(first, other, standard)]
	return found


def count_executed(engine: Engine) -> int:
	"""How many commands the engine has run."""
	answer = engine.ask("status", "--json")
	totals = json.loads(answer.stdout)["totals"] if answer.returncode == 0 else {}
	return totals.get("succeeded", 0) + totals.get("failed", 0)


# ---- the command line


def print_table(plan: Plan, built: Dict[str, List[twins.Build]]) -> None:
	"""Medians, and each side's total in relation to stock Waf's of the same round."""
	totals = {side: {n: one.seconds for n, one in enumerate(builds)} for side, builds in built.items()}
	print("%-10s %10s %10s %10s %8s" % ("", "configure", "build", "total", "ratio"))
	for side, builds in built.items():
		seconds = [summarize([one.runs[n].seconds for one in builds]).median for n in (0, 1)]
		seconds.append(summarize(list(totals[side].values())).median)
		ratio = paired_ratio(totals[side], totals[STOCK])
		print("%-10s %8.1f s %8.1f s %8.1f s %8.2f" % (side, *seconds, ratio))


def find_sources() -> pathlib.Path:
	"""Where the tests have their sources."""
	folder = pathlib.Path(os.environ.get("WAF_SOURCES") or HERE.parent / "build" / "sources")
	found = sorted(folder.glob("jack2-*"))
	return found[-1] if found else folder / "jack2"


def parse(argv: Sequence[str]) -> argparse.Namespace:
	parser = argparse.ArgumentParser(
		description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
	)
	parser.add_argument("--sources", type=pathlib.Path, default=find_sources(), help="jack2's tree [%(default)s]")
	parser.add_argument("--rounds", type=int, default=3, help="how often to build with each side [%(default)s]")
	parser.add_argument("--interpreter", default="pypy3", help="the Python that runs Waf [%(default)s]")
	parser.add_argument("--tools", default="prefork", help="what to load, as opt.load takes it [%(default)s]")
	parser.add_argument("--configure", default="--example-tools", help="options of jack2's own [%(default)s]")
	parser.add_argument("-j", "--jobs", type=int, default=cores(), help="commands at once [%(default)s]")
	parser.add_argument("--keep", action="store_true", help="leave the folder with all builds behind, and name it")
	return parser.parse_args(argv)


def check(options: argparse.Namespace) -> None:
	"""Refuse what cannot be done, before anything is built."""
	if not (options.sources / "waflib").is_dir():
		raise Mistake(f"no jack2 with a waflib in {options.sources}: run .ci/run, or give --sources")
	if not shutil.which(options.interpreter):
		raise Mistake(f"no interpreter {options.interpreter}: apt install pypy3, or give --interpreter")
	if not find_engine():
		raise Mistake("no wafd: build it with ./waf check, or set WAFD")
	if options.rounds < 1 or options.jobs < 1:
		raise Mistake("--rounds and --jobs must be at least 1")


def run(options: argparse.Namespace) -> int:
	"""Build, compare, report; status 1 when something differs."""
	check(options)
	room = pathlib.Path(tempfile.mkdtemp(prefix="jack-"))
	plan = Plan(options.sources.resolve(), room, options.interpreter, options.jobs, options.tools, options.configure)
	engine = Engine(str(room), dict(os.environ))
	try:
		built = build_rounds(plan, options.rounds, engine)
		differences = find_differences(plan, built)
		executed = count_executed(engine)
	finally:
		engine.stop()
		if options.keep:
			print(f"kept: {room}", file=sys.stderr)
		else:
			shutil.rmtree(room, ignore_errors=True)
	python = interpreter.ask(plan.interpreter, plan.interpreter, dict(os.environ))["version"]
	print(f"{plan.sources.name}, {python}, {version_of('gcc', '--version')}")
	print(f"{processor()}, {cores()} cores, -j{plan.jobs}, {options.rounds} rounds")
	print_table(plan, built)
	print(f"{executed} commands ran in the engine")
	print("\n".join(differences[:50]) or "outputs and messages are the same in all builds")
	return 1 if differences or not executed else 0


def main(argv: Sequence[str]) -> int:
	try:
		return run(parse(argv))
	except Mistake as e:
		print(f"jack.py: {e}", file=sys.stderr)
		return 2
	except Failed as e:
		print(f"{e.tail}\njack.py: {e}", file=sys.stderr)
		return 1
	except KeyboardInterrupt:
		return 130


if __name__ == "__main__":
	sys.exit(main(sys.argv[1:]))
