"""What is told at the end: a table by kind, and lists below it."""

import statistics
from typing import Any, Dict, List, Sequence

from benchmark.table import NOTHING, layout, number

from .contender import OURS, PLAIN

Value = Dict[str, Any]
HEAD = ("kind", "contender", "commands", "hits", "wrong", "cold s", "warm s")
ALL = "all"


class Report:
	"""The table and the lists. A value is what one contender did with one command in one round."""

	def __init__(self, values: Sequence[Value]) -> None:
		self.values = values
		self.contenders = list(dict.fromkeys(value["contender"] for value in values))
		self.kinds = list(dict.fromkeys(value["kind"] for value in values))

	def of(self, contender: str, kind: str = ALL) -> Dict[str, List[Value]]:
		"""By command: the values of all rounds."""
		found: Dict[str, List[Value]] = {}
		for value in self.values:
			if value["contender"] == contender and kind in (ALL, value["kind"]):
				found.setdefault(value["command"], []).append(value)
		return found

	def table(self, bold: bool = False) -> str:
		rows = [self.row(kind, contender) for kind in [*self.kinds, ALL] for contender in self.contenders]
		return layout(HEAD, rows, 2, bold)

	def row(self, kind: str, contender: str) -> List[str]:
		"""A hit is one in all rounds, and what is wrong once is wrong. Times are sums of medians."""
		commands = list(self.of(contender, kind).values())
		cells = [kind, contender, str(len(commands)) if commands else NOTHING]
		if not commands:
			return [*cells, *[NOTHING] * 4]
		hits = sum(all(value["hit"] for value in rounds) for rounds in commands)
		wrong = sum(any(value["wrong"] for value in rounds) for rounds in commands)
		cells += [NOTHING, NOTHING] if contender == PLAIN.name else [str(hits), str(wrong)]
		for key in ("cold", "warm"):
			cells.append(number(sum(statistics.median(value[key] for value in rounds) for rounds in commands)))
		return cells

	def unsteady(self) -> List[str]:
		"""The commands that make something else each time."""
		return [name for name, rounds in self.of(PLAIN.name).items() if not all(value["steady"] for value in rounds)]

	def misses(self) -> List[List[str]]:
		"""The commands that ours did not answer, with the reason."""
		unsteady = self.unsteady()
		rows = []
		for name, rounds in self.of(OURS).items():
			missed = [value for value in rounds if not value["hit"]]
			if missed:
				plain = "differ" if name in unsteady else ""
				rows.append([missed[0]["kind"], name, plain, missed[0]["reason"]])
		return rows

	def lines(self, bold: bool = False) -> List[str]:
		lines = [self.table(bold), ""]
		misses = self.misses()
		if misses:
			head = ("kind", "command", "plain runs", "reason")
			lines += ["No hits for %s:" % OURS, layout(head, misses, len(head), bold), ""]
		if self.unsteady():
			lines.append("plain runs differ: %s" % " ".join(self.unsteady()))
		for value in self.values:
			if value["wrong"]:
				lines.append("WRONG: %s, %s, %s" % (value["command"], value["contender"], value["wrong"]))
		return lines
