"""
Writes the picture of builds: the page, the trace, and the line that names them.
"""

import json
import os
from typing import Any, Dict, Iterable, List, Tuple

from waflib import Errors, Logs

from . import account, idle, page, trace

MOST_SEGMENTS = 20000
"""So many stretches are drawn of idle slots and of Waf's own thread; the sums are of all of them."""
MICRO = 1e6


def write(base: str, builds: List["account.Built"]) -> None:
	"""Write both files; what was there before is replaced when the new one is whole."""
	origin = builds[0].begun
	try:
		replace(base + ".html", page.make_page(json.dumps(make_data(builds, origin), separators=(",", ":"))))
		replace(base + ".json", trace.make_trace(builds, origin))
	except OSError as e:
		raise Errors.WafError("--timeline: write %s: %s" % (e.filename or base, e.strerror)) from None
	last = builds[-1]
	ran = sum(row.is_task for row in last.rows)
	words = "%d of %d tasks ran" % (ran, last.total) if ran else "nothing ran"
	Logs.info("Timeline: %s.html and %s.json: %s", base, os.path.basename(base), words)


def replace(path: str, text: str) -> None:
	new = path + ".new"
	with open(new, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as f:
		f.write(text)
	os.replace(new, path)


# ---- what the page is given


class Words:
	"""Texts by their number, each once."""

	def __init__(self) -> None:
		self.numbers: Dict[str, int] = {}

	def number(self, text: str) -> int:
		return self.numbers.setdefault(text, len(self.numbers))

	@property
	def texts(self) -> List[str]:
		return list(self.numbers)


def make_data(builds: List["account.Built"], origin: float) -> Dict[str, Any]:
	return {
		"format": 1,
		"about": builds[-1].about,
		"kinds": account.KINDS,
		"ways": account.WAYS,
		"reasons": idle.REASONS,
		"main": idle.MAIN,
		"builds": [make_build(build, origin) for build in builds],
	}


def make_build(build: "account.Built", origin: float) -> Dict[str, Any]:
	folders, classes, targets, words = Words(), Words(), Words(), Words()
	rows = build.rows
	names = []
	columns: Dict[str, List[int]] = {name: [] for name in COLUMNS}
	last = micro(build.begun - origin)
	add = [columns[name].append for name in COLUMNS]
	for number, row in enumerate(rows):
		folder, slash, name = row.name.rpartition("/")
		names.append(name)
		start = micro(row.start - origin)
		values = (
			start - last,
			micro(row.end - row.start),
			row.lane,
			row.kind,
			folders.number(folder + slash),
			classes.number(row.what),
			targets.number(row.target),
			row.way,
			micro(row.queued),
			max(0, micro(row.start - row.ready)) if row.is_task else 0,
			number - row.blocker if row.blocker >= 0 else 0,
			number - row.owner if row.owner >= 0 else 0 if row.is_task else -1,
			micro(row.processor),
			row.peak,
			row.code,
			words.number(row.words),
		)
		for append, value in zip(add, values):
			append(value)
		last = start
	segments, dropped = drop_short(build.idle.segments, MOST_SEGMENTS)
	main, _ = drop_short(build.main, MOST_SEGMENTS)
	return {
		"name": build.name,
		"outcome": build.outcome,
		"begun": micro(build.begun - origin),
		"ended": micro(build.ended - origin),
		"jobs": build.jobs,
		"total": build.total,
		"processor": micro(build.processor),
		"busy": micro(build.idle.busy),
		"lanes": [list(lane) for lane in build.lanes],
		"chain": build.chain,
		"rows": len(rows),
		"names": names,
		"folders": folders.texts,
		"classes": classes.texts,
		"targets": targets.texts,
		"words": words.texts,
		"columns": {name: compact(values) for name, values in columns.items()},
		"idle": [[micro(s[0] - origin), micro(s[1] - s[0]), *s[2:]] for s in segments],
		"dropped": dropped,
		"reasons": [[reason, who, micro(spent)] for reason, who, spent in idle.sum_reasons(build.idle)[:200]],
		"main": [[micro(s[0] - origin), micro(s[1] - s[0]), s[2]] for s in main],
		"samples": [[micro(s[0] - origin), round(s[1]), round(s[2]), round(s[3], 2), s[4]] for s in build.samples],
		"doings": count_doings(build.doings),
	}


COLUMNS = (
	"start",
	"length",
	"lane",
	"kind",
	"folder",
	"what",
	"target",
	"way",
	"queued",
	"waited",
	"blocker",
	"owner",
	"processor",
	"peak",
	"code",
	"words",
)


def micro(seconds: float) -> int:
	return int(seconds * MICRO + 0.5)


def compact(values: List[int]) -> Any:
	"""One number for a column in which all are the same."""
	return values[0] if values and values.count(values[0]) == len(values) else values


def drop_short(segments: List[Any], most: int) -> Tuple[List[Any], int]:
	"""The longest ones, if there are too many, in their order; and how many are left out."""
	if len(segments) <= most:
		return segments, 0
	bound = sorted((each[1] - each[0] for each in segments), reverse=True)[most]
	kept = [each for each in segments if each[1] - each[0] > bound]
	return kept, len(segments) - len(kept)


def count_doings(doings: Iterable[Tuple[float, str]]) -> List[Tuple[str, int]]:
	"""What Waf's own thread was seen to do, the most frequent first."""
	counts: Dict[str, int] = {}
	for _, doing in doings:
		counts[doing] = counts.get(doing, 0) + 1
	return sorted(counts.items(), key=lambda each: -each[1])
