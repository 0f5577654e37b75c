"""
The raw record of a campaign: every measured value and what it was measured on, as JSON.

::

    record   = {format, version, settings, machine, scenarios, left_out, runs, failures, finished}
    scenario = {title, measures: [[name, unit], ...], compiles, generated, jobs: [number, ...], per_slot, baseline,
                counts, note, against, drawn, rows}
    run      = {scenario, part, contender, compiler, interpreter, repetition, started, values: {name: number}, aside}
    failure  = {scenario, part, contender, compiler, interpreter, repetition, reason}

The first measure is compared with the baseline's. ``compiler`` and ``interpreter`` are null where there is none,
``part`` is empty unless a run measures several things. ``aside`` holds seconds that were spent on preparation and are
compared with nothing. ``rows`` names the parts that are compared with the first of them. ``against`` is a measure that
those of ``drawn``, or else the first one, are drawn against, none where nothing is drawn.
"""

import json
import os
from typing import Any, Dict, List, Tuple

from .mistake import Mistake

FORMAT = "waflib-extras-bench"
VERSION = 1

Record = Dict[str, Any]


def new_record(
	settings: Dict[str, Any], machine: Dict[str, Any], scenarios: Dict[str, Any], left_out: List[Tuple[str, str]]
) -> Record:
	"""Start the record of a campaign that has not measured anything yet."""
	return {
		"format": FORMAT,
		"version": VERSION,
		"settings": settings,
		"machine": machine,
		"scenarios": scenarios,
		"left_out": left_out,
		"runs": [],
		"failures": [],
		"finished": False,
	}


def make_place(path: str) -> None:
	"""Make sure, before anything is measured, that the record can be written."""
	folder = os.path.dirname(os.path.abspath(path))
	try:
		os.makedirs(folder, exist_ok=True)
	except OSError as e:
		raise Mistake("cannot make %s: %s: name another file with --json" % (folder, e.strerror)) from None
	if os.path.isdir(path) or not os.access(folder, os.W_OK):
		raise Mistake("cannot write %s: name another file with --json" % path)


def write_record(record: Record, path: str) -> None:
	"""Write the record in one step, so that an interruption leaves the one before it whole."""
	write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", path)


def write_text(text: str, path: str) -> None:
	"""Write a file in one step."""
	part = "%s.%d.part" % (path, os.getpid())
	try:
		with open(part, "w", encoding="utf-8") as f:
			f.write(text)
		os.replace(part, path)
	except OSError as e:
		raise Mistake("cannot write %s: %s: name another file" % (path, e.strerror)) from None


def read_record(path: str) -> Record:
	"""Read a record, and accept only what this version can show."""
	try:
		with open(path, encoding="utf-8") as f:
			record = json.load(f)
	except OSError as e:
		raise Mistake("cannot read %s: %s" % (path, e.strerror)) from None
	except ValueError:
		raise Mistake("%s is not JSON: name a file that bench.py wrote" % path) from None
	if not isinstance(record, dict) or record.get("format") != FORMAT:
		raise Mistake("%s is not a record of bench.py: name a file that it wrote" % path)
	if record.get("version") != VERSION:
		raise Mistake(
			"%s has version %s and this bench.py reads version %d: show it with the bench.py that wrote it"
			% (path, record.get("version"), VERSION)
		)
	return record
