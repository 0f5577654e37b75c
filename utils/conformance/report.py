"""What is told of cached task classes: a table by class, and lists below it. It only reads values."""

from typing import Any, Dict, List, Sequence, Tuple

from benchmark.table import layout, number

from .cached import AGAIN, FIRST, HIT, MISS, STOCK, UNCACHED

Value = Dict[str, Any]
HEAD = ("task class", "projects", "commands", "hits", "misses", "not cached", "wrong")
ALL = "all"
SHOWN = 3  # projects that are named for one reason
WIDEST = 40  # characters of a class's name


class Report:
	"""A value is what came of one project."""

	def __init__(self, values: Sequence[Value]) -> None:
		self.values = values
		self.commands: List[Tuple[str, Value]] = [
			(value["project"], command) for value in values for command in value["commands"]
		]
		self.wrong: List[Tuple[str, Value]] = [(value["project"], one) for value in values for one in value["wrong"]]

	def classes(self) -> List[str]:
		"""Those with most commands first."""
		counts: Dict[str, int] = {}
		for _, command in self.commands:
			counts[command["class"]] = counts.get(command["class"], 0) + 1
		# a class of which only the first build has commands may have made a wrong file
		for _, one in self.wrong:
			if one["class"]:
				counts.setdefault(one["class"], 0)
		return sorted(counts, key=lambda name: (-counts[name], name))

	def table(self, bold: bool = False) -> str:
		return layout(HEAD, [self.row(name) for name in [*self.classes(), ALL]], 1, bold)

	def row(self, name: str) -> List[str]:
		mine = [(project, command) for project, command in self.commands if name in (ALL, command["class"])]
		wrong = [one for _, one in self.wrong if name in (ALL, one["class"])]
		known = [command["known"] for _, command in mine]
		numbers = [
			len({project for project, _ in mine}),
			len(mine),
			*map(known.count, (HIT, MISS, UNCACHED)),
			len(wrong),
		]
		return [shorten(name), *map(str, numbers)]

	def misses(self) -> List[List[str]]:
		"""Why commands were no hits, by class and reason."""
		found: Dict[Tuple[str, str, str], List[str]] = {}
		for project, command in self.commands:
			if command["known"] != HIT:
				found.setdefault((command["class"], command["known"], command["why"]), []).append(project)
		rows = []
		for (name, known, why), projects in sorted(found.items(), key=lambda item: -len(item[1])):
			rows.append([shorten(name), known, str(len(projects)), why, describe_names(projects)])
		return rows

	def lines(self, bold: bool = False) -> List[str]:
		lines = [self.table(bold), ""]
		misses = self.misses()
		if misses:
			head = ("task class", "what", "commands", "reason", "projects")
			lines += ["No hits in the second build:", layout(head, misses, len(head), bold), ""]
		for key, why in (("asked_again", "they were hits"), ("run_again", "their results are not stored")):
			count = sum(value[key] for value in self.values)
			if count:
				lines.append("%d task lines that stock Waf does not have: %s" % (count, why))
		for value in self.values:
			for why, count in value["past_engine"].items():
				lines.append("%d commands of %s go past the engine: %s" % (count, value["project"], why))
		for project, one in self.wrong:
			lines.append("WRONG: %s" % ", ".join(filter(None, (project, one["step"], one["class"], one["what"]))))
		sums = tuple(number(sum(value["seconds"][step] for value in self.values)) for step in (STOCK, FIRST, AGAIN))
		lines.append("%d projects: stock %s s, first %s s, again %s s" % (len(self.values), *sums))
		return lines


def shorten(name: str) -> str:
	return name if len(name) <= WIDEST else name[: WIDEST - 3] + "..."


def describe_names(projects: Sequence[str]) -> str:
	names = list(dict.fromkeys(projects))
	more = len(names) - SHOWN
	return ", ".join(names[:SHOWN]) + (" and %d more" % more if more > 0 else "")
