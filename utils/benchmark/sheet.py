"""Figures as text for a terminal. Pure."""

from typing import Any, List

from .courses import LIBRARY, TITLES, WORKS
from .figures import Figures, Group, Row
from .ledger import show
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
	return "%s: %s" % (group.title, TITLES[group.scenario])


def about(work: str) -> str:
	text = WORKS[work]
	return "%s work: %s" % (work, text % LIBRARY if "%" in text else text)


def cells(row: Row, base: str) -> List[str]:
	wall = row.spreads["wall"]
	found = ["%d" % row.tasks, row.who.contender, row.who.interpreter or NOTHING]
	found += [number(wall.median), number(wall.least), "%s .. %s" % (number(wall.low), number(wall.high))]
	found += [number(wall.most), "%d" % wall.count]
	for measure in ("processor", "peak"):
		spread = row.spreads.get(measure)
		sign = "≥ " if measure == "peak" and row.is_partial else ""
		found.append(sign + number(spread.median) if spread else NOTHING)
	return [*found, times(row.paired), row.verdict]


def text_of(figures: Figures, bold: bool = False) -> str:
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


def facts(figures: Figures) -> List[Any]:
	"""The machine, the versions and the commands: pairs of a name and a text."""
	machine = figures.ledger.machine
	sizes = "%s cores, %s GiB of memory" % (machine["cores"], machine["memory_gib"])
	found = [("machine", "%s, %s" % (machine["processor"], sizes))]
	found.append(("system", "%s %s, on %s" % (machine["system"], machine["kernel"], machine["filesystem"])))
	found += [("version", "%s: %s" % item) for item in sorted(machine["versions"].items())]
	options = sorted(figures.ledger.options.items())
	given = ["%s %s" % (name, show(value)) for name, value in options if value not in (None, [])]
	found.append(("options", ", ".join(given)))
	for session in figures.ledger.machines:
		found.append(("command", session["command"]))
		found.append(("session", "%s, load %s before" % (session["date"], session["load"])))
	return found
