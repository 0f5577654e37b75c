#!/usr/bin/env python3
"""
Tell how far a cluster scales: what dispatching a command costs, measured and simulated.

``measure`` starts BuildGrid with PostgreSQL and workers of ours on this machine. Commands only sleep, so that many
workers fit beside each other. ``simulate`` takes what was measured, and goes on to more workers than fit.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import sys
from typing import Any, Callable, Dict, List, Sequence, Tuple

from benchmark.arguments import counts, names, positive
from benchmark.carry_out import carry_out
from benchmark.ledger import write_text
from benchmark.machine import busy, cores
from benchmark.mistake import Failed, Mistake
from benchmark.plot import Curves, draw
from benchmark.record import Parser, Record, add_places, check_places
from benchmark.scratch import scratch
from benchmark.service import find_engine, missing_engine
from benchmark.table import layout, percent
from clusters import scale
from clusters.database import missing
from clusters.scale import Row
from clusters.simulation import GOOD, Costs, Found, compare, costs_of, reach, simulate

EXAMPLES = """\
examples:
  utils/scaling.py measure --json cluster.json             1 to 64 workers: some minutes
  utils/scaling.py measure --workers 1,4,16 --seconds 2
  utils/scaling.py show cluster.json --svg cluster.svg     print the table again, and draw it
  utils/scaling.py simulate cluster.json --svg far.svg     10 to 10,000 workers

exit status: 0 it is done, 1 something failed, 2 it could not begin
"""
WORKERS = "1,2,4,8,16,32,64"
FAR = "10,20,50,100,200,500,1000,2000,5000,10000"
COMMANDS = "1,5,20"
THREADS = 90
"""Workers at most: each of them, and the client of each command, has a thread of the server, which has 200."""


def seconds(text: str) -> float:
	try:
		value = float(text)
	except ValueError:
		value = 0.0
	if not 0.01 <= value <= 3600:
		raise argparse.ArgumentTypeError("%r is not between 0.01 and 3600 seconds" % text)
	return value


def times(text: str) -> List[float]:
	return [seconds(part) for part in names(text)]


class Options(Parser):
	"""All that can be asked for."""

	def __init__(self) -> None:
		super().__init__(__doc__, EXAMPLES)
		commands = self.add_subparsers(dest="command", required=True, parser_class=argparse.ArgumentParser)
		one = commands.add_parser("measure", help="start a cluster on this machine, and measure it")
		one.add_argument("--workers", type=counts, default=WORKERS, metavar="A,B", help="default %s" % WORKERS)
		one.add_argument("--seconds", type=seconds, default=0.5, metavar="S", help="of a command (default 0.5)")
		one.add_argument("--commands", type=positive, metavar="N", help="for each row (default ten for each worker)")
		one.add_argument("--repeat", type=positive, default=1, metavar="N", help="times (default 1)")
		add_places(one, "work", "row")
		two = commands.add_parser("show", help="print what was measured")
		three = commands.add_parser("simulate", help="go on to more workers")
		three.add_argument("--workers", type=counts, default=FAR, metavar="A,B", help="default %s" % FAR)
		three.add_argument(
			"--command-seconds",
			type=times,
			default=COMMANDS,
			metavar="A,B",
			help="of a command (default %s)" % COMMANDS,
		)
		three.add_argument(
			"--processors", type=positive, metavar="N", help="of the server's host (default as measured)"
		)
		two.add_argument(
			"--overheads", type=pathlib.Path, metavar="FILE", help="draw what a command takes beyond its own"
		)
		for parser in (two, three):
			parser.add_argument("file", type=pathlib.Path, metavar="FILE", help="of measure --json")
			parser.add_argument("--svg", type=pathlib.Path, metavar="FILE", help="draw it")


class Campaign(Record):
	"""All rows that were asked for."""

	def run(self) -> None:
		options = self.options
		self.rows: List[Row] = []
		with scratch("scaling-", options.work) as work:
			for turn in range(options.repeat):
				place = pathlib.Path(work).resolve() / str(turn)
				engine = find_engine() or ""
				try:
					for row in scale.measure(engine, place, options.workers, options.seconds, options.commands):
						self.keep(row)
				except Failed as e:
					self.fail("round %d" % (turn + 1), e)

	def keep(self, row: Row) -> None:
		self.rows.append(row)
		self.values.append(row._asdict())
		self.progress.say("%d workers: %.1f commands a second" % (row.workers, row.rate))
		self.write(processors=cores())


def table(rows: Sequence[Row]) -> str:
	body = [scale.cells(row) for row in sorted(rows, key=lambda row: row.workers)]
	lines = [layout(scale.HEAD, body, 0, sys.stdout.isatty())]
	lines.append("  overhead: milliseconds of a command beyond its own, in the middle and for 90 % of them")
	lines.append("  wait: milliseconds until a worker began; the last four: milliseconds of processors for a command")
	return "\n".join(lines)


def read_record(path: pathlib.Path) -> Tuple[List[Row], Dict[str, Any]]:
	try:
		record = json.loads(path.read_text(encoding="utf-8"))
		rows = [scale.from_values(values) for values in record["runs"]]
		int(record["processors"]), record["machine"]["load"]
	except (OSError, ValueError, KeyError, TypeError) as e:
		raise Mistake("%s is no record of scaling.py measure: %s" % (path, e)) from None
	if not rows:
		raise Mistake("%s has no rows" % path)
	return sorted(rows, key=lambda row: row.workers), record


def curve(rows: Sequence[Row], value: Callable[[Row], float]) -> List[Tuple[float, float]]:
	"""The median of all rows with the same number of workers, for each such number."""
	groups = itertools.groupby(rows, key=lambda row: row.workers)
	return [(workers, statistics.median(map(value, some))) for workers, some in groups]


def rates(rows: Sequence[Row]) -> Curves:
	return {"ideal": curve(rows, lambda row: row.ideal), "measured": curve(rows, lambda row: row.rate)}


def overheads(rows: Sequence[Row]) -> Curves:
	"""Milliseconds of a command beyond its own."""
	shares = {"in the middle": 0.5, "for 90 %": 0.9}
	return {
		name: curve(rows, lambda row, share=share: 1e3 * scale.quantile(row.overheads, share))  # type: ignore[misc]
		for name, share in shares.items()
	}


def measure(options: argparse.Namespace) -> int:
	lack = missing() or missing_engine()
	if lack:
		raise Mistake(lack)
	if max(options.workers) > THREADS:
		raise Mistake("--workers: more than %d do not fit into the server's threads" % THREADS)
	check_places(options)
	campaign = Campaign(options)
	share = busy()
	if share is not None:
		campaign.progress.say("before it, processors were busy for %s of the time" % percent(share))
	campaign.run()
	if campaign.rows:
		print(table(campaign.rows))
	return campaign.finish()


def show(options: argparse.Namespace) -> int:
	rows, record = read_record(options.file)
	print(table(rows))
	print("%(processor)s, %(system)s, load before it %(load)s" % record["machine"])
	heading = "Commands that sleep for %g s" % rows[0].seconds
	if options.svg:
		write_text(draw(heading, "workers", "commands per second", rates(rows)), str(options.svg))
	if options.overheads:
		text = draw(heading, "workers", "milliseconds beyond that", overheads(rows))
		write_text(text, str(options.overheads))
	return 0


def tell_costs(costs: Costs) -> str:
	"""What the simulation is fed with."""
	one = [(name, getattr(costs, name)) for name in ("server", "database", "own", "delay")]
	lines = ["one command, in milliseconds: " + ", ".join("%s %.1f" % (name, 1e3 * value) for name, value in one)]
	rest = "without commands, milliseconds in each second: %.1f, and for each worker %.3f that waits, %.3f that works"
	lines.append(rest % (1e3 * costs.alone, 1e3 * costs.waiting, 1e3 * costs.sleeping))
	return "\n".join(lines)


def far_table(found: Sequence[Found]) -> str:
	head = ("seconds", "workers", "commands/s", "efficiency", "overhead ms", "server", "processors", "limit")
	rows = []
	for one in found:
		shares = [percent(one.shares[name]) for name in ("server", "processors")]
		rates = ["%.1f" % one.rate, percent(one.efficiency), "%.1f" % (1e3 * one.overhead)]
		rows.append(["%g" % one.seconds, "{:,}".format(one.workers), *rates, *shares, one.limit])
	return layout(head, rows, 0, sys.stdout.isatty())


def simulate_all(options: argparse.Namespace) -> int:
	rows, record = read_record(options.file)
	known = costs_of(rows, record["processors"])
	print(tell_costs(known))
	print("\nas measured, all on one machine of %d processors:" % known.processors)
	checked = [
		[str(x.workers), "%.1f" % x.measured, "%.1f" % x.simulated, "%+.0f %%" % (100 * x.deviation)]
		for x in compare(rows, known)
	]
	print(layout(("workers", "commands/s", "simulated", "deviation"), checked, 0, sys.stdout.isatty()))
	costs = known._replace(processors=options.processors or known.processors)
	print("\nworkers elsewhere, a server of %d processors:" % costs.processors)
	curves: Curves = {}
	found: List[Found] = []
	for length in options.command_seconds:
		some = [simulate(costs, workers, length) for workers in sorted(options.workers)]
		found += some
		curves["%g s" % length] = [(one.workers, one.rate) for one in some]
	print(far_table(found))
	for length in options.command_seconds:
		some = [one for one in found if one.seconds == length]
		stop = next((one.limit for one in some if one.efficiency < GOOD), "")
		why = ", then the limit: %s" % stop if stop else ", which is all that was tried"
		print(
			"commands of %g s: at least %s of the ideal up to %d workers%s" % (length, percent(GOOD), reach(some), why)
		)
	if options.svg:
		write_text(draw("A simulated cluster", "workers", "commands per second", curves), str(options.svg))
	return 0


def main() -> int:
	options = Options().parse_args()
	commands = {"measure": measure, "show": show, "simulate": simulate_all}
	return carry_out("scaling", lambda: commands[options.command](options))


if __name__ == "__main__":
	sys.exit(main())
