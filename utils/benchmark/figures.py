"""Figures of a ledger: medians, quartiles, ranges, ratios paired by round, and verdicts. Pure."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .courses import SCENARIOS
from .ledger import Ledger, Line
from .summary import Summary, paired_ratio, summarize

MEASURES = (("wall", "time", "s"), ("processor", "processor", "s"), ("peak", "peak memory", "MiB"))
"""As a run has it, as it is called, and its unit. The first one is compared."""

ENOUGH = 3  # runs of each that a verdict needs
BASE, FASTER, SLOWER = "base", "faster", "slower"
UNCLEAR, TOO_FEW, ALONE = "not distinguishable", "too few runs", ""
PLAIN = {"cold": "full", "warm": "full"}  # the scenario of the base if that has no cache
FREE = ("repeat", "tasks", "contenders", "interpreters", "compilers", "scenarios", "baseline", "limit")
"""Options that may change from session to session: they say which runs there are, not what a run is."""


class Who(NamedTuple):
	"""A contender with its interpreter."""

	contender: str
	interpreter: Optional[str]

	@property
	def text(self) -> str:
		return " ".join(filter(None, self))


class Row(NamedTuple):
	"""One lane in one size."""

	who: Who
	tasks: int
	spreads: Dict[str, Summary]  # by measure
	is_partial: bool  # the largest process may be one that a daemon ran
	paired: Optional[float]
	verdict: str


class Group(NamedTuple):
	"""Rows that belong into one table, and into one plot."""

	work: str
	scenario: str
	compiler: Optional[str]
	base: str
	rows: List[Row]

	@property
	def title(self) -> str:
		return ", ".join(filter(None, (self.scenario, self.compiler)))


class Figures(NamedTuple):
	"""Everything that a report shows."""

	groups: List[Group]
	warnings: List[str]
	left_out: List[str]
	ledger: Ledger


def figures_of(ledger: Ledger) -> Figures:
	warnings = ["%s: %s" % (ledger.path, note) for note in ledger.notes]
	if not ledger.is_finished:
		warnings.append("%s is not finished: this is what was measured until then." % ledger.path)
	return Figures(groups_of(ledger), warnings, list(dict.fromkeys(map(told, ledger.skipped))), ledger)


def unfree(options: Dict[str, Any]) -> Dict[str, Any]:
	"""The options that say what a run is."""
	return {name: value for name, value in options.items() if name not in FREE}


def told(line: Line) -> str:
	"""The lane that was left out, from which size on, and the reason."""
	who = " ".join(filter(None, (line["contender"], line["compiler"], line["interpreter"])))
	return "%s work, %s, from %d tasks on: %s" % (line["work"], who, line["tasks"], line["reason"])


def groups_of(ledger: Ledger) -> List[Group]:
	"""Sort the runs into groups, in the order in which they were asked for."""
	values: Dict[Tuple[Any, ...], Dict[Tuple[Who, int], List[Line]]] = {}
	for run in ledger.runs:
		key = (run["work"], run["scenario"], run["compiler"])
		who = Who(run["contender"], run["interpreter"])
		values.setdefault(key, {}).setdefault((who, run["tasks"]), []).append(run)
	order = [*ledger.options["contenders"], *(run["contender"] for run in ledger.runs)]
	found = []
	for work, scenario, compiler in sorted(values, key=lambda key: (key[0], str(key[2]), SCENARIOS.index(key[1]))):
		mine = values[work, scenario, compiler]
		plain = values.get((work, PLAIN.get(scenario, ""), compiler), {})
		base = base_of(ledger, [who for who, _ in (*mine, *plain)])
		rows = []
		for who, tasks in sorted(mine, key=lambda it: (it[1], order.index(it[0].contender))):
			against = mine.get((base, tasks)) or plain.get((base, tasks)) or []
			rows.append(row_of(who, tasks, mine[who, tasks], against))
		is_plain = PLAIN.get(scenario) and not any(row.verdict == BASE for row in rows)
		found.append(Group(work, scenario, compiler, base.text + (" (full)" if is_plain else ""), rows))
	return found


def base_of(ledger: Ledger, there: Sequence[Who]) -> Who:
	"""The lane that the others are compared with: that of the baseline, or else the first one."""
	for contender in (ledger.options["baseline"], *ledger.options["contenders"]):
		for interpreter in (None, *ledger.options["interpreters"]):
			if Who(contender, interpreter) in there:
				return Who(contender, interpreter)
	return there[0]


def row_of(who: Who, tasks: int, runs: Sequence[Line], base: Sequence[Line]) -> Row:
	"""Sum up the runs of one lane in one size, against those of the base."""
	spreads = {}
	for measure, _, _ in MEASURES:
		values = [run["values"][measure] for run in runs if measure in run["values"]]
		if values:
			spreads[measure] = summarize(values)
	first = MEASURES[0][0]
	paired = paired_ratio(rounds_of(runs, first), rounds_of(base, first)) if base else None
	is_base = bool(base) and base[0] in runs
	is_partial = any(run["values"].get("partial") for run in runs)
	verdict = BASE if is_base else judge(runs, base, paired)
	return Row(who, tasks, spreads, is_partial, paired, verdict)


def rounds_of(runs: Sequence[Line], measure: str) -> Dict[Any, float]:
	"""The values by round and session: two runs with an interruption between them were not close together in time."""
	return {(run["round"], run["machine"]): run["values"][measure] for run in runs}


def judge(runs: Sequence[Line], base: Sequence[Line], paired: Optional[float]) -> str:
	"""The verdict on a lane against the base; there is none if their ranges overlap or the runs are too few."""
	if not base or paired is None:
		return ALONE
	mine = [run["values"]["wall"] for run in runs]
	theirs = [run["values"]["wall"] for run in base]
	if min(mine) <= max(theirs) and min(theirs) <= max(mine):
		return UNCLEAR
	if min(len(mine), len(theirs)) < ENOUGH:
		return TOO_FEW
	return FASTER if max(mine) < min(theirs) else SLOWER
