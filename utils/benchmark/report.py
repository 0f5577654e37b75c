"""From a raw record to text. Pure, so that ``bench.py show`` prints the same a year later."""

import itertools
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .ledger import Record
from .summary import Summary, paired_ratio, ratio, summarize
from .table import NOTHING, emphasize, layout, number, percent, times
from .verdict import show_verdicts

MANY = 4  # parts of a scenario that are also shown side by side

Run = Dict[str, Any]
Table = Tuple[Tuple[str, str, Optional[str]], List[Run]]  # scenario, part and compiler, and their runs


class Lane(NamedTuple):
	"""A contender with its interpreter: one row of a table."""

	contender: str
	interpreter: Optional[str]


class Row(NamedTuple):
	"""One lane of one table, summed up."""

	lane: Lane
	summary: Summary
	beside: List[Optional[float]]
	ratio: Optional[float]
	paired: Optional[float]


def report(record: Record, bold: bool = False) -> str:
	"""The tables of a record, the reasons for what is missing, and the machine."""
	parts = []
	for scenario, tables in itertools.groupby(tables_of(record["runs"]), key=lambda table: table[0][0]):
		several = list(tables)
		if record["scenarios"][scenario].get("rows"):
			parts += show_all_rows(record, scenario, several, bold)
			continue
		if record["scenarios"][scenario].get("across"):
			parts.append(show_across(record, scenario, several, bold))
			continue
		groups = group(several)
		parts += [show_table(record, key, runs, bold) for (_, name), found in groups if not name for key, runs in found]
		parts += [
			show_parts(record, scenario, name, found, bold) for (_, name), found in groups if name or len(found) >= MANY
		]
	if not parts:
		parts.append("Nothing was measured.")
	if record["settings"].get("ablation"):
		parts.append(show_verdicts(record, bold))
	parts.append(legend(record))
	parts.append("\n".join(describe(record)))
	return "\n\n".join(part for part in parts if part)


def tables_of(runs: Iterable[Run]) -> List[Table]:
	"""Sort the runs into tables, one per scenario, part and compiler, in the order in which they first appeared."""
	tables: Dict[Tuple[str, str, Optional[str]], List[Run]] = {}
	for run in runs:
		tables.setdefault((run["scenario"], run["part"], run["compiler"]), []).append(run)
	order = list(dict.fromkeys(key[0] for key in tables))
	return sorted(tables.items(), key=lambda item: order.index(item[0][0]))


def lanes_of(runs: Iterable[Run], measure: str) -> Dict[Lane, Dict[int, float]]:
	lanes: Dict[Lane, Dict[int, float]] = {}
	for run in runs:
		value = run["values"].get(measure)
		if value is not None:
			lanes.setdefault(Lane(run["contender"], run["interpreter"]), {})[run["repetition"]] = value
	return lanes


def rank(lanes: Iterable[Lane], contenders: Sequence[str], interpreters: Sequence[str]) -> List[Lane]:
	"""Order lanes as they were asked for, not as they ran."""

	def place(lane: Lane) -> Tuple[int, int]:
		return position(contenders, lane.contender), position(interpreters, lane.interpreter)

	return sorted(lanes, key=place)


def position(names: Sequence[str], name: Optional[str]) -> int:
	"""The place of a name in a list, or its end if it is not there."""
	return names.index(name) if name in names else len(names)


def base_of(lanes: Sequence[Lane], baseline: Optional[str]) -> Optional[Lane]:
	"""The lane that the others are compared with: the first one of the contender that was chosen for it."""
	return next((lane for lane in lanes if lane.contender == baseline), None)


def rows_of(record: Record, runs: Sequence[Run], measures: Sequence[str]) -> List[Row]:
	"""Sum up the runs of one table: the first measure is compared, the others stand beside it."""
	settings = record["settings"]
	values = lanes_of(runs, measures[0])
	beside = [lanes_of(runs, measure) for measure in measures[1:]]
	lanes = rank(values, settings["contenders"], settings["interpreters"])
	base = values.get(base_of(lanes, record["scenarios"][runs[0]["scenario"]]["baseline"]) or Lane("", None), {})
	base_median = summarize(list(base.values())).median if base else 0.0
	rows = []
	for lane in lanes:
		summary = summarize(list(values[lane].values()))
		others = [summarize(list(b[lane].values())).median if lane in b else None for b in beside]
		rows.append(Row(lane, summary, others, ratio(summary.median, base_median), paired_ratio(values[lane], base)))
	return rows


def show_table(record: Record, key: Tuple[str, str, Optional[str]], runs: Sequence[Run], bold: bool) -> str:
	scenario, part, compiler = key
	about = record["scenarios"][scenario]
	names = [name for name, _ in about["measures"]]
	unit = about["measures"][0][1]
	heading = ", ".join(filter(None, (scenario, part, compiler)))
	head = ["contender", "interpreter", "median " + unit, "min", "max", "spread"]
	head += ["%s %s" % (name, unit) for name, unit in about["measures"][1:]]
	head += ["ratio", "paired", "runs"]
	cells = []
	for row in rows_of(record, runs, names):
		total = row.summary
		line = [row.lane.contender, row.lane.interpreter or NOTHING]
		line += [number(total.median), number(total.least), number(total.most), percent(total.spread)]
		line += [number(value) for value in row.beside]
		line += [times(row.ratio), times(row.paired), str(total.count)]
		cells.append(line)
	return "%s: %s\n%s" % (emphasize(heading, bold), about["title"], layout(head, cells, 2, bold))


def show_all_rows(record: Record, scenario: str, tables: Sequence[Table], bold: bool) -> List[str]:
	"""A table for each compiler, whose rows are the parts of each lane, compared with the first part."""
	about = record["scenarios"][scenario]
	names = [name for name, _ in about["measures"]]
	head = ["", "contender", "interpreter", "median " + about["measures"][0][1], "min", "max", "paired"]
	head += ["%s %s" % measure for measure in map(tuple, about["measures"][1:])] + ["runs"]
	found = []
	for compiler in dict.fromkeys(table[0][2] for table in tables):
		mine = {part: runs for (_, part, its), runs in tables if its == compiler}
		parts = sorted(mine, key=lambda part: position(about["rows"], part))
		base = lanes_of(mine[parts[0]], names[0])
		cells = []
		for part in parts:
			values = lanes_of(mine[part], names[0])
			for row in rows_of(record, mine[part], names):
				total = row.summary
				line = [part, row.lane.contender, row.lane.interpreter or NOTHING]
				line += [number(total.median), number(total.least), number(total.most)]
				line.append(times(paired_ratio(values[row.lane], base.get(row.lane, {}))))
				cells.append([*line, *map(number, row.beside), str(total.count)])
		heading = ", ".join(filter(None, (scenario, compiler)))
		against = "paired is against %s" % parts[0]
		text = layout(head, cells, 3, bold)
		found.append("%s: %s; %s\n%s" % (emphasize(heading, bold), about["title"], against, text))
	return found


def show_across(record: Record, scenario: str, tables: Sequence[Table], bold: bool) -> str:
	"""The medians of all parts, a row for each, and a column for each contender."""
	about = record["scenarios"][scenario]
	measure = about["measures"][0][0]
	medians = {
		part: {row.lane.contender: row.summary.median for row in rows_of(record, runs, [measure])}
		for (_, part, _), runs in tables
	}
	there = {name for values in medians.values() for name in values}
	names = [name for name in record["settings"]["contenders"] if name in there]
	cells = [[part, *(number(values.get(name)) for name in names)] for part, values in medians.items()]
	heading = emphasize("%s, medians" % scenario, bold)
	return "%s: %s\n%s" % (heading, about["title"], layout(["", *names], cells, 1, bold))


def group(tables: Sequence[Table]) -> List[Tuple[Tuple[Optional[str], str], List[Table]]]:
	"""The tables of a scenario, one compiler's together; parts whose names differ before the last comma are apart."""
	found: Dict[Tuple[Optional[str], str], List[Table]] = {}
	for table in tables:
		found.setdefault((table[0][2], table[0][1].rpartition(", ")[0]), []).append(table)
	return list(found.items())


def show_parts(record: Record, scenario: str, common: str, tables: Sequence[Table], bold: bool) -> str:
	"""The medians of many parts in one table, a column for each part; below the first measure its paired ratios."""
	about = record["scenarios"][scenario]
	blocks: Dict[str, Dict[Lane, Dict[str, str]]] = {}
	for (_, part, _), runs in tables:
		for number_of_measure, (name, unit) in enumerate(about["measures"]):
			for row in rows_of(record, runs, [name]):
				blocks.setdefault("%s %s" % (name, unit), {}).setdefault(row.lane, {})[part] = number(
					row.summary.median
				)
				if not number_of_measure:
					blocks.setdefault("paired", {}).setdefault(row.lane, {})[part] = times(row.paired)
	columns = {part: part.rpartition(", ")[2] for (_, part, _), _ in tables}
	cells = []
	for measure, lanes in blocks.items():
		for lane in rank(lanes, record["settings"]["contenders"], record["settings"]["interpreters"]):
			line = [measure, lane.contender, lane.interpreter or NOTHING]
			cells.append(line + [lanes[lane].get(part, NOTHING) for part in columns])
	heading = ", ".join(filter(None, (scenario, common, tables[0][0][2], "medians")))
	head = ["measure", "contender", "interpreter", *columns.values()]
	return "%s: %s\n%s" % (emphasize(heading, bold), about["title"], layout(head, cells, 3, bold))


def legend(record: Record) -> str:
	"""The meaning of the columns, and the reasons for what is missing."""
	lines = []
	baselines = name_baselines(record)
	if baselines:
		lines += [
			"spread: (max - min) / median. ratio: the median as a multiple of the one of %s." % baselines,
			"paired: the median of the ratios within each repetition: to be trusted where the machine is busy.",
		]
	notes = {name: scenario.get("note") for name, scenario in record["scenarios"].items()}
	lines += ["%s: %s" % (name, note) for name, note in notes.items() if note]
	lines += ["%s: %s" % (name, note) for name, note in sorted(record["settings"]["notes"].items())]
	lines += ["left out: %s: %s" % (name, reason) for name, reason in record["left_out"]]
	for failure in record["failures"]:
		lane = ", ".join(filter(None, (failure["contender"], failure["compiler"], failure["interpreter"])))
		lines.append(
			"FAILED: %s (%s), repetition %d: %s"
			% (
				" ".join(filter(None, (failure["scenario"], failure.get("part")))),
				lane,
				failure["repetition"] + 1,
				failure["reason"],
			)
		)
	if not record["finished"]:
		lines.append("This campaign was not finished: the tables hold what was measured until then.")
	return "\n".join(lines)


def name_baselines(record: Record) -> str:
	"""The baselines: one contender, or one for each scenario."""
	scenarios: Dict[str, List[str]] = {}
	for scenario in dict.fromkeys(run["scenario"] for run in record["runs"]):
		scenarios.setdefault(record["scenarios"][scenario]["baseline"] or "", []).append(scenario)
	scenarios.pop("", None)
	if len(scenarios) == 1:
		return next(iter(scenarios))
	return ", ".join("%s in %s" % (name, " and ".join(where)) for name, where in scenarios.items())


def describe(record: Record) -> List[str]:
	machine = record["machine"]
	lines = [
		"settings   %s" % describe_settings(record),
		"processor  %s, %s cores, %s GiB of memory" % (machine["processor"], machine["cores"], machine["memory_gib"]),
		"system     %s %s, work folder on %s" % (machine["system"], machine["kernel"], machine["filesystem"]),
		"load       %s before the first run" % machine["load"],
		"date       %s" % machine["date"],
		"command    %s" % machine["command"],
	]
	lines += ["version    %s: %s" % (name, version) for name, version in sorted(machine["versions"].items())]
	return lines


def describe_settings(record: Record) -> str:
	"""The settings that the scenarios of this record have used."""
	settings = record["settings"]
	words = [*describe_jobs(record), "%d repetitions" % settings["repeat"]]
	if any(scenario.get("generated", scenario["compiles"]) for scenario in record["scenarios"].values()):
		words.append("genbench %s" % settings["size"].replace(",", " "))
		given = ("language", "weight", "common", "flags", "seed")
		words += ["--%s %s" % (key, settings[key]) for key in given if settings.get(key)]
	for real in settings["real"].values():
		words.append("%s, compiled with %s" % (", ".join(real["packages"]), real["flags"] or "no flags"))
	for name in sorted(set(settings["commands"]) & set(record["scenarios"])):
		about = record["scenarios"][name]
		each = " per slot" if about.get("per_slot") else ""
		words.append("%d %s%s in %s" % (settings["commands"][name], about.get("counts", "commands"), each, name))
	return ", ".join(words)


def describe_jobs(record: Record) -> List[str]:
	"""The numbers of jobs, as asked for or as each scenario has them."""
	settings, scenarios = record["settings"], record["scenarios"]
	if settings["jobs"]:
		return ["-j%s" % settings["jobs"]]
	own = {name: about["jobs"] for name, about in scenarios.items() if about.get("jobs")}
	words = ["-j%d (cores)" % settings["cores"]] if len(own) < len(scenarios) else []
	return words + ["-j%s in %s" % (" to ".join(map(str, sorted({min(n), max(n)}))), name) for name, n in own.items()]
