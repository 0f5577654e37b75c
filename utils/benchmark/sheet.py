"""Figures as text: for a terminal, as Markdown and as CSV. Pure."""

import csv
import io
from typing import Any, Dict, List

from .courses import LIBRARY, TITLES, WORKS
from .figures import MEASURES, Figures, Group, Row
from .ledger import Ledger, show
from .table import NOTHING, emphasize, layout, number, times

HEAD = ["tasks", "contender", "interpreter", "median s", "min", "quartiles", "max", "runs"]
HEAD += ["processor s", "peak MiB", "paired", ""]
WORDS = (1, 2, 11)  # columns of words
LEGEND = (
	"median, min, quartiles, max: seconds of the clock. paired: median of the ratios to the base within each round.",
	"faster, slower: the ranges of both do not overlap, with three runs of each at least.",
	"≥: the largest process that the build started itself; one that a daemon ran for it may have been larger.",
)


def heading(group: Group) -> str:
	"""What a group is about."""
	return "%s: %s" % (group.title, TITLES[group.scenario])


def about(work: str) -> str:
	"""What a kind of work consists of."""
	text = WORKS[work]
	return "%s work: %s" % (work, text % LIBRARY if "%" in text else text)


def cells(row: Row, base: str) -> List[str]:
	"""One row of a table."""
	wall = row.spreads["wall"]
	found = ["%d" % row.tasks, row.who.contender + machine(row), row.who.interpreter or NOTHING]
	found += [number(wall.median), number(wall.least), "%s .. %s" % (number(wall.low), number(wall.high))]
	found += [number(wall.most), "%d" % wall.count]
	for measure in ("processor", "peak"):
		spread = row.spreads.get(measure)
		sign = "≥ " if measure == "peak" and row.is_partial else ""
		found.append(sign + number(spread.median) if spread else NOTHING)
	return [*found, times(row.paired), row.verdict]


def machine(row: Row) -> str:
	"""On which machine, where there are several."""
	return " on machine %d" % row.who.machine if row.who.machine else ""


def text_of(figures: Figures, bold: bool = False) -> str:
	"""Everything, for a terminal."""
	parts = [emphasize("WARNING: %s" % warning, bold) for warning in figures.warnings]
	parts += [about(work) for work in dict.fromkeys(group.work for group in figures.groups)]
	for group in figures.groups:
		rows = [cells(row, group.base) for row in group.rows]
		against = "; base %s" % group.base if group.base else ""
		parts.append("%s%s\n%s" % (emphasize(heading(group), bold), against, layout(HEAD, rows, 3, bold)))
	if not figures.groups:
		parts.append("Nothing was measured.")
	parts.append("\n".join((*LEGEND, *("left out: %s" % line for line in figures.left_out))))
	parts.append("\n".join("%-11s%s" % item for item in facts(figures)))
	return "\n\n".join(parts)


def markdown_of(figures: Figures) -> str:
	"""Everything as Markdown."""
	lines = ["# Comparison", ""]
	lines += ["> **%s**\n" % warning for warning in figures.warnings]
	for work in dict.fromkeys(group.work for group in figures.groups):
		lines += [about(work) + ".", ""]
	for group in figures.groups:
		against = " Base: %s." % group.base if group.base else ""
		lines += ["## %s" % heading(group), "", "%s\n" % against.strip() if against else ""]
		lines.append("| %s |" % " | ".join(HEAD))
		lines.append("| %s |" % " | ".join("---" if n in WORDS else "---:" for n in range(len(HEAD))))
		lines += [
			"| %s |" % " | ".join(cell.replace("|", "\\|") for cell in cells(row, group.base)) for row in group.rows
		]
		lines.append("")
	lines += ["- %s" % line for line in LEGEND]
	lines += ["- left out: %s" % line for line in figures.left_out]
	lines += ["", "| | |", "| --- | --- |"]
	lines += ["| %s | %s |" % (name, text.replace("|", "\\|")) for name, text in facts(figures)]
	return "\n".join(lines) + "\n"


def csv_of(figures: Figures) -> str:
	"""A line for each measure of each row; warnings are in a column, so that no line can be taken without them."""
	out = io.StringIO()
	head = ["work", "scenario", "compiler", "tasks", "contender", "interpreter", "machine", "measure", "unit"]
	head += ["median", "min", "lower quartile", "upper quartile", "max", "runs", "paired", "verdict", "warning"]
	writer = csv.writer(out, lineterminator="\n")
	writer.writerow(head)
	for group in figures.groups:
		for row in group.rows:
			for measure, _, unit in MEASURES:
				spread = row.spreads.get(measure)
				if not spread:
					continue
				line = [group.work, group.scenario, group.compiler or "", row.tasks, row.who.contender]
				line += [row.who.interpreter or "", row.who.machine or 1, measure, unit]
				line += [spread.median, spread.least, spread.low, spread.high, spread.most, spread.count]
				is_first = measure == MEASURES[0][0]
				line += ["" if row.paired is None or not is_first else row.paired, row.verdict if is_first else ""]
				writer.writerow([*line, " ".join(figures.warnings)])
	return out.getvalue()


def facts(figures: Figures) -> List[Any]:
	"""Which machines, which programs, which commands: pairs of a name and a text."""
	found = []
	for place, known in enumerate(figures.machines):
		mark = " %d" % (place + 1) if len(figures.machines) > 1 else ""
		sizes = "%s cores, %s GiB of memory" % (known["cores"], known["memory_gib"])
		found.append(("machine" + mark, "%s, %s" % (known["processor"], sizes)))
		found.append(("system" + mark, "%s %s, on %s" % (known["system"], known["kernel"], known["filesystem"])))
		found += [("version" + mark, "%s: %s" % item) for item in sorted(known["versions"].items())]
	for ledger in figures.ledgers:
		found.append(("options", describe_options(ledger)))
		for session in ledger.machines:
			found.append(("command", session["command"]))
			found.append(("session", "%s, load %s before" % (session["date"], session["load"])))
	return found


def describe_options(ledger: Ledger) -> str:
	"""All options, as they were taken."""
	options: Dict[str, Any] = ledger.options
	return ", ".join(
		"%s %s" % (name, show(value)) for name, value in sorted(options.items()) if value not in (None, [])
	)
