"""What is told at the end: the table, the files that are wrong, and warnings."""

import statistics
from typing import Any, Dict, List, Optional, Sequence

from benchmark.table import NOTHING, layout, number, times
from commands.contender import PLAIN

from .trial import STEPS

Value = Dict[str, Any]
PEER = "sccache"
HEAD = ("contender", "step", "seconds", "/ " + PLAIN.name, "/ " + PEER, "hits", "calls", "files", "wrong")
BUSY = 0.1  # of all processors: what is used by others while nothing of ours runs


class Report:
	"""The table and the lines below it. A value is one build of one contender in one round."""

	def __init__(self, values: Sequence[Value]) -> None:
		self.values = values

	def of(self, contender: str, step: str) -> List[Value]:
		return [value for value in self.values if (value["contender"], value["step"]) == (contender, step)]

	def median(self, contender: str, step: str) -> Optional[float]:
		found = [value["wall"] for value in self.of(contender, step)]
		return statistics.median(found) if found else None

	def table(self, bold: bool = False) -> str:
		contenders = list(dict.fromkeys(value["contender"] for value in self.values))
		rows = [self.row(name, step) for name in contenders for step in STEPS if self.of(name, step)]
		return layout(HEAD, rows, 2, bold)

	def row(self, name: str, step: str) -> List[str]:
		"""The counts are those of the last round, and a file that is wrong once is wrong."""
		last = self.of(name, step)[-1]
		mine = self.median(name, step)
		# without a cache, a second build from nothing is like the first
		plain = self.median(PLAIN.name, "cold" if step == "warm" else step)
		cells = [name, step, number(mine), ratio(mine, plain), ratio(mine, self.median(PEER, step))]
		asked = last["calls"] if last["asked"] is None else last["asked"]
		cells += [NOTHING if last["hits"] is None else str(last["hits"]), str(asked)]
		wrong = {path for value in self.of(name, step) for path in value["wrong"]}
		return [*cells, str(last["compared"]), NOTHING if name == PLAIN.name else str(len(wrong))]

	def lines(self, bold: bool = False) -> List[str]:
		return [self.table(bold), "", *self.wrong(), *self.late(), *self.busy()]

	def wrong(self) -> List[str]:
		found = {}
		for value in self.values:
			for path in value["wrong"]:
				found["WRONG: %s, %s, %s" % (value["contender"], value["step"], path)] = True
		return list(found)

	def late(self) -> List[str]:
		lines = []
		for value in self.values:
			if value["late"]:
				lines.append("not waited for: %s, %s: %s" % (value["contender"], value["step"], value["late"]))
		return lines

	def busy(self) -> List[str]:
		"""A warning, if the processors were used before a build."""
		shares = [value["busy"] or 0.0 for value in self.values]
		many = sum(share > BUSY for share in shares)
		if not many:
			return []
		told = (many, len(shares), 100 * max(shares))
		return ["the machine was busy before %d of %d builds (%.0f %%): measure again when it is idle" % told]


def ratio(mine: Optional[float], theirs: Optional[float]) -> str:
	return times(mine / theirs if mine is not None and theirs else None)
