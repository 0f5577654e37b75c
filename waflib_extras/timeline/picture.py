"""
Writes the picture of builds: the page, and the trace.
"""

import json
import os
from typing import Dict, Iterable, List, Tuple, Union

from waflib import Errors

from . import analysis, idle, page, trace

MOST_SEGMENTS = 20000
"""At most so many stretches of idle slots are drawn. The sums are those of all."""
MICRO = 1e6


def write(base: str, builds: List["analysis.Built"]) -> str:
	"""Write both files, each to another name first, and return the line that names them."""
	origin = builds[0].begun
	try:
		replace(base + ".html", [page.make_page(json.dumps(make_data(builds, origin), separators=(",", ":")))])
		replace(base + ".json", trace.make_trace(builds, origin))
	except OSError as e:
		raise Errors.WafError("--timeline: write %s: %s" % (e.filename or base, e.strerror)) from None
	last = builds[-1]
	ran = sum(row.is_task for row in last.rows)
	words = "%d of %d tasks ran" % (ran, last.total) if ran else "nothing ran"
	return "Timeline: %s.html and %s.json: %s" % (base, os.path.basename(base), words)


def replace(path: str, parts: Iterable[str]) -> None:
	new = path + ".new"
	with open(new, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as f:
		f.writelines(parts)
	os.replace(new, path)


# ---- what the page is given


class Words:
	"""A table of texts, each once."""

	def __init__(self) -> None:
		self.numbers: Dict[str, int] = {}

	def number(self, text: str) -> int:
		return self.numbers.setdefault(text, len(self.numbers))

	@property
	def texts(self) -> List[str]:
		return list(self.numbers)


def make_data(builds: List["analysis.Built"], origin: float) -> Dict[str, object]:
	return {
		"format": 1,
		"about": builds[-1].about,
		"kinds": analysis.KINDS,
		"ways": analysis.WAYS,
		"reasons": idle.REASONS,
		"main": idle.MAIN,
		"builds": [make_build(build, origin) for build in builds],
	}


def make_build(build: "analysis.Built", origin: float) -> Dict[str, object]:
	folders, classes, targets, words = Words(), Words(), Words(), Words()
	rows = build.rows
	starts = [micro(row.start - origin) for row in rows]
	paths = [row.name.rpartition("/") for row in rows]
	columns: Dict[str, List[int]] = {
		"start": [now - before for before, now in zip([micro(build.begun - origin), *starts], starts)],
		"length": [micro(row.end - origin) - start for row, start in zip(rows, starts)],
		"paused": [micro(row.end - row.start - row.worked) if row.pauses else 0 for row in rows],
		"lane": [row.lane for row in rows],
		"kind": [row.kind for row in rows],
		"folder": [folders.number(folder + slash) for folder, slash, _ in paths],
		"what": [classes.number(row.what) for row in rows],
		"target": [targets.number(row.target) for row in rows],
		"way": [row.way for row in rows],
		"queued": [micro(row.queued) for row in rows],
		"waited": [max(0, micro(row.start - row.ready)) if row.is_task else 0 for row in rows],
		# how many rows above is the dependency that ended last; 0 for none
		"blocker": [n - row.blocker if row.blocker >= 0 else 0 for n, row in enumerate(rows)],
		# how many rows above is the task of this command; 0 for a task itself, above all rows for a command without one
		"owner": [0 if row.is_task else n - row.owner for n, row in enumerate(rows)],
		"processor": [micro(row.processor) for row in rows],
		"peak": [row.peak for row in rows],
		"code": [row.code for row in rows],
		"words": [words.number(row.words) for row in rows],
		"place": [words.number(row.place) for row in rows],
	}
	segments = idle.thin(build.idle.segments, build.begun, build.ended, MOST_SEGMENTS)
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
		"names": [name for _, _, name in paths],
		"folders": folders.texts,
		"classes": classes.texts,
		"targets": targets.texts,
		"words": words.texts,
		"columns": {name: compact(values) for name, values in columns.items()},
		"idle": [[micro(s[0] - origin), micro(s[1] - s[0]), round(s[2], 3), *s[3:]] for s in segments],
		"thinned": len(segments) < len(build.idle.segments),
		"reasons": [[reason, who, micro(spent)] for reason, who, spent in idle.sum_reasons(build.idle)[:200]],
		"main": [micro(spent) for spent in idle.sum_main(build.main)],
		"samples": [[micro(s[0] - origin), round(s[1]), round(s[2]), round(s[3], 2), s[4]] for s in build.samples],
		"doings": count_doings(build.doings),
	}


def micro(seconds: float) -> int:
	return int(seconds * MICRO + 0.5)


def compact(values: List[int]) -> Union[int, List[int]]:
	"""A column of values; a single one if all are equal."""
	return values[0] if values and values.count(values[0]) == len(values) else values


def count_doings(doings: Iterable[Tuple[float, str]]) -> List[Tuple[str, int]]:
	"""How often Waf's own thread was seen to do what, the most frequent first."""
	counts: Dict[str, int] = {}
	for _, doing in doings:
		counts[doing] = counts.get(doing, 0) + 1
	return sorted(counts.items(), key=lambda each: -each[1])
