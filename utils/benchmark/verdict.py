"""Which parts stay: the table of ``bench.py ablation``, from a raw record. Pure."""

from typing import Any, Dict, List, NamedTuple, Optional

from .ledger import Record
from .summary import paired_ratio, summarize
from .table import emphasize, layout, number, times

LEAST = 0.05  # of anything that is measured: a part that saves less does not stay
ENOUGH = 3  # repetitions, before a part is judged


class Row(NamedTuple):
	"""One thing that was measured with a part and without it."""

	part: str
	title: str
	measured: str
	unit: str
	whole: float
	without: float
	saved: float
	"""The median of what it saves of the time without it, within each repetition."""
	better: int
	"""Repetitions in which it saved anything."""
	count: int


def rows_of(record: Record) -> List[Row]:
	"""The measurements of each part, in the order of the parts."""
	rows = []
	for pair in record["settings"]["ablation"]:
		measure, unit = record["scenarios"][pair["scenario"]]["measures"][0]
		runs = [run for run in record["runs"] if run["scenario"] == pair["scenario"]]
		for part in dict.fromkeys((run["part"], run["compiler"]) for run in runs):
			mine = [run for run in runs if (run["part"], run["compiler"]) == part]
			whole, without = (values_of(mine, pair[side], measure) for side in ("with", "without"))
			row = row_of(pair, part, unit, whole, without)
			rows += [row] if row else []
	return rows


def values_of(runs: List[Dict[str, Any]], contender: str, measure: str) -> Dict[int, float]:
	mine = [run for run in runs if run["contender"] == contender and measure in run["values"]]
	return {run["repetition"]: run["values"][measure] for run in mine}


def row_of(
	pair: Dict[str, Any], part: tuple, unit: str, whole: Dict[int, float], without: Dict[int, float]
) -> Optional[Row]:
	"""Sum up what both have measured in the same repetitions."""
	both = sorted(set(whole) & set(without))
	share = paired_ratio(whole, without)
	if share is None:
		return None
	words = [pair["scenario"], *filter(None, part), pair["with"].partition("@")[0]]
	medians = (summarize([values[n] for n in both]).median for values in (whole, without))
	better = sum(whole[n] < without[n] for n in both)
	return Row(pair["part"], pair["title"], ", ".join(words), unit, *medians, 1 - share, better, len(both))


def verdict_of(rows: List[Row]) -> str:
	"""Judge a part by the measurement in which it saves most."""
	best = max(rows, key=lambda row: row.saved)
	if best.count < ENOUGH:
		return "undecided: %d repetitions are too few, see --repeat" % best.count
	told = "it saves %.1f %% in %s" % (100 * best.saved, best.measured)
	return "stays: %s" % told if best.saved >= LEAST else "goes: at most %s" % told


def show_verdicts(record: Record, bold: bool = False) -> str:
	"""The table, and below it a line for each part."""
	rows = rows_of(record)
	if not rows:
		return ""
	head = ["part", "measured", "unit", "with", "without", "paired", "saved", "better"]
	cells = [
		[
			*(row.title, row.measured, row.unit, number(row.whole), number(row.without)),
			*(times(1 - row.saved), "%.1f %%" % (100 * row.saved), "%d of %d" % (row.better, row.count)),
		]
		for row in rows
	]
	parts = {row.title: [other for other in rows if other.part == row.part] for row in rows}
	lines = ["  %s: %s" % (title, verdict_of(mine)) for title, mine in parts.items()]
	note = "with, without: medians. paired: the median of with / without in each repetition; saved: what that leaves."
	title = emphasize("ablation", bold) + ": what each part saves; below %d %% of anything it goes" % (100 * LEAST)
	return "\n".join([title, layout(head, cells, 3, bold), "", *lines, "", note])
