"""
The table of the README: all its campaigns in one run, each when the machine is idle, and a row for each comparison.

To add a row, add it to ROWS, and what measures it to CAMPAIGNS.
"""

import os
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .ledger import Record, read_record
from .machine import busy
from .mistake import Mistake
from .report import Lane, lanes_of
from .summary import paired_ratio, summarize

QUIET = 0.05  # the share of all processors' time that others may use
PATIENCE = 60.0  # seconds to wait until they use no more
ROUNDS = 5

SMALL, MANY = ("--size", "20,50,15,5"), ("--size", "50,100,15,5")
CPYTHON, PYPY = "CPython", "PyPy"


class Campaign(NamedTuple):
	"""A command line of ``bench.py``, whose last word lists the contenders."""

	words: Tuple[str, ...]
	baseline: str
	on_pypy: bool = False
	"""Waf runs on PyPy, too."""


class Row(NamedTuple):
	"""A comparison of two contenders."""

	text: str
	campaign: str
	scenario: str
	ours: str
	peer: str
	part: str = ""
	compiler: str = ""
	python: str = CPYTHON
	"""The one that runs ours. CPython runs the peer."""


class Cells(NamedTuple):
	"""A row of the table."""

	text: str
	ours: str
	peer: str
	paired: float
	load: str


CAMPAIGNS = {
	"full": Campaign(("full", *SMALL, "--compilers", "clang++,g++", "--contenders", "ninja,prefork"), "ninja"),
	"cache": Campaign(("full", "warm", *SMALL, "--contenders", "ninja+ccache,ninja+wafcc,waf+wafcc"), "ninja+ccache"),
	"cold": Campaign(("full", "--contenders", "prefork,waf+wafcc"), "prefork"),
	"cache-5000": Campaign(("warm", *MANY, "--contenders", "ninja+ccache,waf+wafcc"), "ninja+ccache"),
	"hit": Campaign(("hit", "--contenders", "single+ccache,single+wafcc"), "single+ccache"),
	"machines": Campaign(
		("second-machine", *SMALL, "--contenders", "ninja+ccache-redis,waf+wafcc-serve"), "ninja+ccache-redis"
	),
	"unity": Campaign(("unity", *MANY, "--contenders", "unity-upstream,unity"), "unity-upstream"),
	# not with edits, after which the resident process prepares the next run
	"nothing": Campaign(("noop", *MANY, "--contenders", "ninja,resident"), "ninja"),
	"edits": Campaign(("onefile", *MANY, "--contenders", "ninja,resident,waf+wafcc-resident"), "ninja"),
	"tasks": Campaign(("tasks", "--commands", "100000", "--contenders", "waf,prefork"), "waf"),
	"large": Campaign(("large", "--tasks", "100000", "--contenders", "waf,large"), "waf", on_pypy=True),
}

LARGE = "full, 100000 tasks"
ROWS = (
	Row("full build, 1,000 files, clang++: `prefork` and ninja", "full", "full", "prefork", "ninja", "", "clang++"),
	Row("the same with g++", "full", "full", "prefork", "ninja", "", "g++"),
	Row(
		"filling an empty cache, 1,000 files: Waf with `prefork wafcc`, and ninja with ccache",
		*("cache", "full", "waf+wafcc", "ninja+ccache"),
	),
	Row(
		"filling an empty cache, 500 files: Waf with `prefork wafcc`, and with `prefork` alone",
		*("cold", "full", "waf+wafcc", "prefork"),
	),
	Row(
		"built from the cache, 1,000 files: Waf with `prefork wafcc`, and ninja with ccache",
		*("cache", "warm", "waf+wafcc", "ninja+ccache"),
	),
	Row("the same: ninja with `wafcc`, and with ccache", "cache", "warm", "ninja+wafcc", "ninja+ccache"),
	Row(
		"built from the cache, 5,000 files: Waf with `prefork wafcc`, and ninja with ccache",
		*("cache-5000", "warm", "waf+wafcc", "ninja+ccache"),
	),
	Row(
		"one hit with 20 headers: `wafcc` and ccache",
		*("hit", "hit", "single+wafcc", "single+ccache", "20 headers"),
	),
	Row(
		"one hit with 800 things that it depends on: `wafcc` and ccache",
		*("hit", "hit", "single+wafcc", "single+ccache", "800 facts"),
	),
	Row(
		"first build on a second machine, 1,000 files: Waf with `wafd serve`, and ninja with ccache and Redis",
		*("machines", "second-machine", "waf+wafcc-serve", "ninja+ccache-redis"),
	),
	Row(
		"many small files in one compile, 5,000 files: `unity` and Waf's own",
		*("unity", "unity", "unity", "unity-upstream", "full"),
	),
	Row("the same after an edit of one file", "unity", "unity", "unity", "unity-upstream", "first edit"),
	Row("the same after another edit of it", "unity", "unity", "unity", "unity-upstream", "second edit"),
	Row("nothing to do, 5,000 files: Waf with `resident`, and ninja", "nothing", "noop", "resident", "ninja"),
	Row("one file edited, 5,000 files: Waf with `resident`, and ninja", "edits", "onefile", "resident", "ninja"),
	Row(
		"the same: Waf with `prefork wafcc large resident`, and ninja",
		*("edits", "onefile", "waf+wafcc-resident", "ninja"),
	),
	Row(
		"100,000 tasks that write an empty file: `large` and stock Waf, both on CPython",
		*("large", "large", "large", "waf", LARGE),
	),
	Row("the same, `large` on PyPy", "large", "large", "large", "waf", LARGE, "", PYPY),
	Row("100,000 tasks of Python that do nothing: `prefork` and stock Waf", "tasks", "tasks", "prefork", "waf"),
)


def choose(names: Optional[Sequence[str]]) -> Dict[str, Campaign]:
	"""The campaigns of these names, or all."""
	unknown = [name for name in names or () if name not in CAMPAIGNS]
	if unknown:
		raise Mistake("no campaign %s: there are %s" % (unknown[0], ", ".join(CAMPAIGNS)))
	return {name: CAMPAIGNS[name] for name in names or CAMPAIGNS}


def words_of(campaign: Campaign, rounds: int, interpreters: Mapping[str, str]) -> List[str]:
	"""The command line of a campaign."""
	pythons = [interpreters[kind] for kind in (CPYTHON, PYPY) if kind in interpreters]
	used = pythons if campaign.on_pypy else pythons[:1]
	baseline = ["--baseline", campaign.baseline, "--repeat", str(rounds)]
	return [*campaign.words, *baseline, "--interpreters", ",".join(used)]


def wait_until_quiet(say: Callable[[str], None]) -> bool:
	"""Wait until others leave the processors alone; tell whether they do."""
	end = time.monotonic() + PATIENCE
	share = busy(2.0)
	if share is not None and share > QUIET:
		say("waiting until the machine is idle: %.0f %% of its processors are busy" % (100 * share))
	while share is not None and share > QUIET:
		if time.monotonic() > end:
			return False
		share = busy(2.0)
	return True


# ---- the table


def cells_of(row: Row, record: Record) -> Optional[Cells]:
	"""A row of the table; None if one of its contenders has not been measured."""
	about = record["scenarios"].get(row.scenario)
	runs = [
		run
		for run in record["runs"]
		if (run["scenario"], run["part"]) == (row.scenario, row.part) and row.compiler in (run["compiler"], "")
	]
	if about is None or not runs:
		return None
	measure, unit = about["measures"][0]
	lanes = lanes_of(runs, measure)
	ours, peer = find_lane(lanes, row.ours, row.python), find_lane(lanes, row.peer, CPYTHON)
	paired = paired_ratio(ours, peer) if ours and peer else None
	if paired is None or ours is None or peer is None:
		return None
	load = record["machine"]["load"].split()[0] + ("" if record["machine"].get("quiet", True) else ", busy")
	medians = [summarize(list(values.values())).median for values in (ours, peer)]
	return Cells(row.text, *(write_time(median, unit) for median in medians), paired, load)


def find_lane(lanes: Mapping[Lane, Dict[int, float]], contender: str, python: str) -> Optional[Dict[int, float]]:
	"""The values of a contender on this kind of interpreter, or on none."""
	for lane, values in lanes.items():
		kind = PYPY if lane.interpreter and "pypy" in lane.interpreter else CPYTHON
		if lane.contender == contender and kind == python:
			return values
	return None


def write_time(value: float, unit: str) -> str:
	"""A time, with as many digits as are worth reading."""
	return ("{:,.%df} {}" % (0 if value >= 100 else 1 if value >= 5 else 3 if value < 0.1 else 2)).format(value, unit)


def show(folder: str) -> str:
	"""All that the records of a folder tell: the table, what is missing in it, and the versions of programs."""
	records = {}
	for campaign in CAMPAIGNS:
		path = os.path.join(folder, "%s.json" % campaign)
		if os.path.exists(path):
			records[campaign] = read_record(path)
	if not records:
		raise Mistake("%s has no records yet: run bench.py readme" % folder)
	return "\n".join(["", show_table(records), "", *show_reasons(records)])


def show_table(records: Mapping[str, Record]) -> str:
	"""The table in Markdown. Where ours is quicker, it is bold."""
	lines = ["| | ours | peer | paired | load |", "| --- | ---: | ---: | ---: | ---: |"]
	for row in ROWS:
		cells = cells_of(row, records[row.campaign]) if row.campaign in records else None
		if cells is None:
			lines.append("| %s | not measured | | | |" % row.text)
			continue
		mark = "**" if cells.paired < 1 else ""
		ours, paired = mark + cells.ours + mark, "%s%.2f%s" % (mark, cells.paired, mark)
		lines.append("| %s | %s | %s | %s | %s |" % (cells.text, ours, cells.peer, paired, cells.load))
	return "\n".join(lines)


def show_reasons(records: Mapping[str, Record]) -> List[str]:
	"""Why contenders took no part, what has failed, and the versions of all programs."""
	found: Dict[str, None] = {}
	for record in records.values():
		for name, reason in record["left_out"]:
			found["left out: %s: %s" % (name, reason)] = None
		for failure in record["failures"]:
			found["FAILED: %s, %s: %s" % (failure["scenario"], failure["contender"], failure["reason"])] = None
	for record in records.values():
		for program, version in sorted(record["machine"]["versions"].items()):
			found["version    %s: %s" % (program, version)] = None
	return list(found)
