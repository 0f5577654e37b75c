"""From ledgers to figures: medians, quartiles, ranges, ratios paired by round, and what may be said of them. Pure."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .courses import SCENARIOS
from .ledger import Ledger, Line, differences, key_of, unlike
from .mistake import Mistake
from .summary import Summary, paired_ratio, summarize

MEASURES = (("wall", "time", "s"), ("processor", "processor", "s"), ("peak", "peak memory", "MiB"))
"""As a run has it, as it is called, and its unit. The first one is compared."""

ENOUGH = 3  # runs of each, before it is said who is faster
BASE, FASTER, SLOWER = "base", "faster", "slower"
UNCLEAR, TOO_FEW, ALONE = "not distinguishable", "too few runs", ""
PLAIN = {"cold": "full", "warm": "full"}  # where the base has no cache: what its build is to be compared with
FREE = ("repeat", "tasks", "contenders", "interpreters", "compilers", "scenarios", "baseline", "limit")
"""Options in which records that are shown together may differ: they tell which runs there are, not what a run is."""


class Who(NamedTuple):
	"""Who ran."""

	contender: str
	interpreter: Optional[str]
	machine: int  # 0 where there is one only, else counted from 1

	@property
	def text(self) -> str:
		"""All of it in a few words."""
		words = [self.contender, self.interpreter, "machine %d" % self.machine if self.machine else ""]
		return " ".join(filter(None, words))


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
		"""Its name."""
		return ", ".join(filter(None, (self.scenario, self.compiler)))


class Figures(NamedTuple):
	"""All there is to show."""

	groups: List[Group]
	warnings: List[str]
	left_out: List[str]
	machines: List[Dict[str, Any]]
	ledgers: List[Ledger]


def figures_of(ledgers: Sequence[Ledger], different_machines: bool = False, anyway: bool = False) -> Figures:
	"""Put ledgers together; those of different machines, or of runs that are not the same thing, only on demand."""
	machines, places = tell_machines(ledgers)
	warnings = []
	if len(machines) > 1:
		why = unlike(machines[0], machines[1])
		if not different_machines:
			raise Mistake("these runs are of different machines (%s): --different-machines shows them, marked" % why)
		warnings.append("Runs of %d different machines stand side by side: %s." % (len(machines), why))
	first = unfree(ledgers[0].options)
	for ledger in ledgers[1:]:
		why = differences(first, unfree(ledger.options))
		if why and not anyway and not why.startswith("work "):
			raise Mistake("%s has other options (%s): --anyway shows it, with a warning" % (ledger.path, why))
		if why:
			warnings.append("%s was made with other options: %s." % (ledger.path, why))
	for ledger in ledgers:
		warnings += ["%s: %s" % (ledger.path, note) for note in ledger.notes]
		if not ledger.is_finished:
			warnings.append("%s is not finished: this is what was measured until then." % ledger.path)
	told_apart = [
		dict(run, machine=places[n, run["machine"]], session=(n, run["machine"]))
		for n, ledger in enumerate(ledgers)
		for run in ledger.runs
	]
	runs = unique(told_apart)
	left_out = list(dict.fromkeys(told(line) for ledger in ledgers for line in ledger.skipped))
	return Figures(groups_of(runs, ledgers, len(machines) > 1), warnings, left_out, machines, list(ledgers))


def unfree(options: Dict[str, Any]) -> Dict[str, Any]:
	"""The options that say what a run is."""
	return {name: value for name, value in options.items() if name not in FREE}


def tell_machines(ledgers: Sequence[Ledger]) -> Tuple[List[Dict[str, Any]], Dict[Tuple[int, int], int]]:
	"""The machines that differ, and which of them is the one of a ledger's session."""
	machines: List[Dict[str, Any]] = []
	places = {}
	for number, ledger in enumerate(ledgers):
		for session, machine in enumerate(ledger.machines):
			place = next((n for n, known in enumerate(machines) if not unlike(known, machine)), len(machines))
			if place == len(machines):
				machines.append(machine)
			else:
				# a machine is known by all versions that any session told of it
				versions = {**machine["versions"], **machines[place]["versions"]}
				machines[place] = dict(machines[place], versions=versions)
			places[number, session] = place
	return machines, places


def unique(runs: Sequence[Line]) -> List[Line]:
	"""The runs, each once, also where a ledger is named twice."""
	found: Dict[Tuple[Any, ...], Line] = {}
	for run in runs:
		found.setdefault((run["started"], key_of(run)), run)
	return list(found.values())


def told(line: Line) -> str:
	"""Who was left out, from where on, and why."""
	who = " ".join(filter(None, (line["contender"], line["compiler"], line["interpreter"])))
	return "%s work, %s, from %d tasks on: %s" % (line["work"], who, line["tasks"], line["reason"])


def groups_of(runs: Sequence[Line], ledgers: Sequence[Ledger], are_several: bool) -> List[Group]:
	"""Sort runs into groups, in the order of what was asked for."""
	values: Dict[Tuple[Any, ...], Dict[Tuple[Who, int], List[Line]]] = {}
	for run in runs:
		who = Who(run["contender"], run["interpreter"], run["machine"] + 1 if are_several else 0)
		key = (run["work"], run["scenario"], run["compiler"])
		values.setdefault(key, {}).setdefault((who, run["tasks"]), []).append(run)
	order = [name for ledger in ledgers for name in ledger.options["contenders"]] + [run["contender"] for run in runs]
	found = []
	for work, scenario, compiler in sorted(values, key=lambda key: (key[0], str(key[2]), SCENARIOS.index(key[1]))):
		mine = values[work, scenario, compiler]
		plain = values.get((work, PLAIN.get(scenario, ""), compiler), {})
		base = base_of(ledgers, [who for who, _ in (*mine, *plain)])
		rows = []
		for who, tasks in sorted(mine, key=lambda it: (it[1], it[0].machine, order.index(it[0].contender))):
			theirs = base and base._replace(machine=who.machine)
			against = mine.get((theirs, tasks)) or plain.get((theirs, tasks)) or []
			rows.append(row_of(who, tasks, mine[who, tasks], against))
		words = base._replace(machine=0).text if base else ""
		instead = base and PLAIN.get(scenario) and not any(row.verdict == BASE for row in rows)
		found.append(Group(work, scenario, compiler, words + (" (full)" if instead else ""), rows))
	return found


def base_of(ledgers: Sequence[Ledger], there: Sequence[Who]) -> Optional[Who]:
	"""Who the others are compared with: who was asked for, or else who comes first."""
	for ledger in ledgers:
		for contender in (ledger.options["baseline"], *ledger.options["contenders"]):
			for interpreter in (None, *ledger.options["interpreters"]):
				found = [who for who in there if (who.contender, who.interpreter) == (contender, interpreter)]
				if found:
					return found[0]
	return there[0] if there else None


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
	"""What was measured, by round: what an interruption lies between did not stand close together in time."""
	return {(run["round"], run["session"]): run["values"][measure] for run in runs}


def judge(runs: Sequence[Line], base: Sequence[Line], paired: Optional[float]) -> str:
	"""What may be said of a lane against the base: nothing where their ranges overlap, or where there are few runs."""
	if not base or paired is None:
		return ALONE
	mine = [run["values"]["wall"] for run in runs]
	theirs = [run["values"]["wall"] for run in base]
	if min(mine) <= max(theirs) and min(theirs) <= max(mine):
		return UNCLEAR
	if min(len(mine), len(theirs)) < ENOUGH:
		return TOO_FEW
	return FASTER if max(mine) < min(theirs) else SLOWER
