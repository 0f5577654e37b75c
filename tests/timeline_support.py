"""Pictures of builds, read back: the data of the page, and the rules of a trace."""

import json
import pathlib
import re
from typing import Any, Dict, List, NamedTuple

PHASES = {"X", "i", "M", "C"}
ROUNDING = 0.5  # µs, of which the trace tells tenths


class Row(NamedTuple):
	number: int
	name: str
	what: str
	target: str
	kind: str
	lane: str
	start: int
	end: int
	way: int
	queued: int
	waited: int
	blocker: int
	owner: int
	"""The row of the task that has run it; -1 for a task, -2 for a command that no task has run."""
	peak: int
	code: int
	words: str
	place: str


class Picture:
	"""One build of a page."""

	def __init__(self, data: Dict[str, Any], number: int = 0) -> None:
		self.data = data
		self.build = build = data["builds"][number]
		n = build["rows"]
		columns = {name: x if isinstance(x, list) else [x] * n for name, x in build["columns"].items()}
		assert all(len(column) == n for column in columns.values())
		self.rows: List[Row] = []
		at = build["begun"]
		for i in range(n):
			of = {name: column[i] for name, column in columns.items()}
			at += of["start"]
			lane = build["lanes"][of["lane"]]
			owner = -1 if not of["owner"] else -2 if of["owner"] > i else i - of["owner"]
			self.rows.append(
				Row(
					i,
					build["folders"][of["folder"]] + build["names"][i],
					build["classes"][of["what"]],
					build["targets"][of["target"]],
					data["kinds"][of["kind"]],
					"%s %d" % tuple(lane),
					at,
					at + of["length"],
					of["way"],
					of["queued"],
					of["waited"],
					i - of["blocker"] if of["blocker"] else -1,
					owner,
					of["peak"],
					of["code"],
					build["words"][of["words"]],
					build["words"][of["place"]],
				)
			)

	def __getitem__(self, name: str) -> Row:
		"""The only task of this name."""
		(found,) = [row for row in self.rows if row.name == name and row.owner == -1]
		return found

	def kinds(self) -> Dict[str, str]:
		return {row.name: row.kind for row in self.rows if row.owner == -1}

	def chain(self) -> List[str]:
		return [self.rows[n].name for n in self.build["chain"]]

	def reasons(self) -> Dict[str, Dict[str, int]]:
		"""The microseconds of idle slots by reason and by the waiting task."""
		found: Dict[str, Dict[str, int]] = {}
		for reason, who, spent in self.build["reasons"]:
			found.setdefault(self.data["reasons"][reason], {})[self.rows[who].name if who >= 0 else ""] = spent
		return found

	def idle(self) -> int:
		return sum(spent for _, _, spent in self.build["reasons"])

	@property
	def wall(self) -> int:
		return self.build["ended"] - self.build["begun"]


def read_data(page: pathlib.Path) -> Dict[str, Any]:
	found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.S)
	assert found, page
	return json.loads(found.group(1))


def read_picture(page: pathlib.Path, number: int = 0) -> Picture:
	return Picture(read_data(page), number)


def check_trace(path: pathlib.Path) -> List[Dict[str, Any]]:
	"""Check that a file keeps the rules of the Trace Event Format, and return its events."""
	trace = json.loads(path.read_text("utf-8"))
	assert trace["displayTimeUnit"] in ("ms", "ns")
	events = trace["traceEvents"]
	lanes: Dict[Any, List[Any]] = {}
	named = set()
	for event in events:
		assert event["ph"] in PHASES, event
		assert isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int), event
		if event["ph"] == "M":
			(argument,) = event["args"]
			assert argument in ("name", "sort_index"), event
			named.add((event["pid"], event["tid"]))
			continue
		assert event["ts"] >= 0, event
		if event["ph"] == "C":
			assert event["args"] and all(isinstance(x, (int, float)) for x in event["args"].values()), event
		elif event["ph"] == "i":
			assert event["s"] in ("g", "p", "t") and "dur" not in event, event
		else:
			assert event["dur"] >= 0 and isinstance(event["cat"], str), event
			lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
	for lane, spans in lanes.items():
		assert lane in named, lane
		end = 0.0
		for begin, until in sorted(spans):
			# events of a thread must lie within each other or beside each other; ours never are within
			assert begin >= end - ROUNDING, (lane, begin, end)
			end = until
	return events
