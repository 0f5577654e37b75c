"""
Results, kept as JSON: the record of a campaign of ``bench.py``, and the ledger of ``compare.py``.

The record is one object, written anew after each run::

    record   = {format, version, settings, machine, scenarios, left_out, runs, failures, finished}
    scenario = {title, measures: [[name, unit], ...], compiles, generated, jobs: [number, ...], per_slot, baseline,
                counts, note, against, drawn, rows, across}
    run      = {scenario, part, contender, compiler, interpreter, repetition, started, values: {name: number}, aside}
    failure  = {scenario, part, contender, compiler, interpreter, repetition, reason}

The first measure is compared with the baseline's. ``compiler`` and ``interpreter`` are null where there is none,
``part`` is empty unless a run measures several things. ``aside`` holds seconds that were spent on preparation and are
compared with nothing. ``rows`` names the parts that are compared with the first of them,
``across`` has a row for each part and a column for each contender. ``against`` is a measure that
the measures in ``drawn``, or else the first one, are drawn against; empty if there is no picture.

The ledger has an object in each line, which is on the disk before the next run begins::

    ledger  = header, (machine | run | skipped | note | options | finished)*
    header  = {kind, format, version, options}
    machine = {kind, machine: as in a record, folder}        begins a session: what follows was measured on it
    run     = {kind, work, scenario, contender, compiler, interpreter, tasks, round, course, started, took,
               values: {name: number}}
    skipped = {kind, work, contender, compiler, interpreter, tasks, reason, again}
    note    = {kind, text}
    options = {kind, options}        those that count from here on
    finished = {kind}

``took`` is the time of the whole step with its preparations, for estimates. A skipped contender takes part in no larger
size; with ``again``, the next session tries it again. A last line without its end was being written when the
comparison was killed: it is ignored, and cut off before the next one is written.
"""

import fcntl
import json
import os
from typing import IO, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .mistake import Mistake

FORMATS = {"bench.py": "waflib-extras-bench", "compare.py": "waflib-extras-compare"}
VERSION = 1
BEGINNING = b'{"format": "%s"' % FORMATS["compare.py"].encode()  # of each ledger, as keys are sorted
IDENTITY = ("processor", "cores", "memory_gib", "kernel")
"""Two machines must agree on these, and on the versions of all programs that both know."""

Record = Dict[str, Any]
Line = Dict[str, Any]
Key = Tuple[Any, ...]


def read_bytes(path: str) -> bytes:
	try:
		with open(path, "rb") as f:
			return f.read()
	except OSError as e:
		raise Mistake("cannot read %s: %s" % (path, e.strerror)) from None


def accept(path: str, found: Any, program: str) -> None:
	"""Refuse what this version of a program cannot show."""
	if not isinstance(found, dict) or found.get("format") != FORMATS[program]:
		raise Mistake("%s is not a record of %s: name a file that it wrote" % (path, program))
	if found.get("version") != VERSION:
		raise Mistake(
			"%s has version %s and this %s reads version %d: show it with the %s that wrote it"
			% (path, found.get("version"), program, VERSION, program)
		)


def make_place(path: str) -> None:
	"""Make sure, before anything is measured, that a file can be written."""
	folder = os.path.dirname(os.path.abspath(path))
	try:
		os.makedirs(folder, exist_ok=True)
	except OSError as e:
		raise Mistake("cannot make %s: %s: name another file with --json" % (folder, e.strerror)) from None
	if os.path.isdir(path) or not os.access(folder, os.W_OK):
		raise Mistake("cannot write %s: name another file with --json" % path)


def write_text(text: str, path: str) -> None:
	"""Write a file in one step, so that an interruption leaves the one before it whole."""
	part = "%s.%d.part" % (path, os.getpid())
	try:
		with open(part, "w", encoding="utf-8") as f:
			f.write(text)
		os.replace(part, path)
	except OSError as e:
		raise Mistake("cannot write %s: %s: name another file" % (path, e.strerror)) from None


# ---- the record of a campaign


def new_record(
	settings: Dict[str, Any], machine: Dict[str, Any], scenarios: Dict[str, Any], left_out: List[Tuple[str, str]]
) -> Record:
	"""Start the record of a campaign that has not measured anything yet."""
	record = {"settings": settings, "machine": machine, "scenarios": scenarios, "left_out": left_out}
	return {"format": FORMATS["bench.py"], "version": VERSION, **record, "runs": [], "failures": [], "finished": False}


def write_record(record: Record, path: str) -> None:
	"""Write the record, in the place of the one before."""
	write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", path)


def read_record(path: str) -> Record:
	"""Read a record, and accept only what this version can show."""
	try:
		record = json.loads(read_bytes(path).decode())
	except ValueError:
		raise Mistake("%s is not JSON: name a file that bench.py wrote" % path) from None
	accept(path, record, "bench.py")
	return record


# ---- the ledger of a comparison


class Ledger(NamedTuple):
	"""The content of a ledger."""

	path: str
	options: Dict[str, Any]
	machines: List[Dict[str, Any]]
	runs: List[Line]
	skipped: List[Line]
	notes: List[str]
	is_finished: bool
	folder: str
	"""The folder of the last session; empty if it has cleaned up."""
	whole: int
	"""Bytes of whole lines."""

	@property
	def machine(self) -> Dict[str, Any]:
		"""The machine, with the versions of all programs that any session has used."""
		versions = {name: text for machine in self.machines for name, text in machine["versions"].items()}
		return dict(self.machines[0], versions=versions)

	def done(self) -> Dict[Key, Line]:
		"""The runs by what they are."""
		return {key_of(run): run for run in self.runs}


def key_of(run: Line) -> Key:
	return (*lane_of(run), run["scenario"], run["tasks"], run["round"])


def lane_of(line: Line) -> Key:
	return line["work"], line["contender"], line["compiler"], line["interpreter"]


def read_ledger(path: str) -> Ledger:
	data = read_bytes(path)
	whole = data.rfind(b"\n") + 1
	lines = [decode(path, number, text) for number, text in enumerate(data[:whole].splitlines(), 1)]
	accept(path, lines[0] if lines else None, "compare.py")
	return gather(path, lines, whole)


def decode(path: str, number: int, text: bytes) -> Line:
	"""One line, which is whole."""
	try:
		line = json.loads(text.decode())
		line["kind"]
	except (ValueError, KeyError, TypeError):
		raise Mistake("%s, line %d, is damaged: take that line out to use the others" % (path, number)) from None
	return line


def gather(path: str, lines: Sequence[Line], whole: int) -> Ledger:
	"""Sort lines by what they are; each run is told on which of the machines it ran."""
	machines: List[Dict[str, Any]] = []
	runs, skipped, notes, folder, is_finished = [], [], [], "", False
	options = lines[0]["options"]
	for line in lines:
		kind = line["kind"]
		if kind == "machine":
			machines.append(line["machine"])
			folder, is_finished = line["folder"], False
			skipped = [old for old in skipped if not old["again"]]
		elif kind == "run":
			runs.append(dict(line, machine=len(machines) - 1))
		elif kind == "skipped":
			skipped.append(line)
		elif kind == "options":
			options = line["options"]
		elif kind == "note":
			notes.append(line["text"])
		elif kind == "finished":
			is_finished, folder = True, ""
	return Ledger(path, options, machines, runs, skipped, notes, is_finished, folder, whole)


def differences(old: Dict[str, Any], new: Dict[str, Any]) -> str:
	"""The differences of two sets of options in a few words; empty if there are none."""
	names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
	return "; ".join("%s was %s and is %s" % (name, show(old.get(name)), show(new.get(name))) for name in names)


def show(value: Any) -> str:
	"""A value of an option as it is typed."""
	return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def unlike(one: Dict[str, Any], other: Dict[str, Any]) -> str:
	"""The differences of two machines in a few words; empty if there are none."""
	found = ["%s %s and %s" % (name, one[name], other[name]) for name in IDENTITY if one[name] != other[name]]
	mine, theirs = one["versions"], other["versions"]
	for name in sorted(set(mine) & set(theirs)):
		if mine[name] != theirs[name]:
			found.append("%s is %s and %s" % (name, mine[name], theirs[name]))
	return "; ".join(found)


class Writer:
	"""Appends to a ledger. A line is on the disk when ``write`` returns, and a lock keeps other programs out."""

	def __init__(self, path: str) -> None:
		self.path = path
		try:
			self.file: IO[bytes] = open(path, "ab")  # noqa: SIM115 - it is open, and locked, until the end
		except OSError as e:
			raise Mistake("cannot write %s: %s: name another file with --json" % (path, e.strerror)) from None
		try:
			fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
		except OSError:
			self.file.close()
			raise Mistake(
				"%s is being written by another compare.py: wait for it, or name another file" % path
			) from None

	def begin(self, options: Dict[str, Any]) -> Optional[Ledger]:
		"""Begin a ledger, or return the content of one that was begun, with an incomplete last line cut off."""
		if self.is_new():
			self.file.truncate(0)
			self.write(kind="header", format=FORMATS["compare.py"], version=VERSION, options=options)
			return None
		found = read_ledger(self.path)
		self.file.truncate(found.whole)
		return found

	def is_new(self) -> bool:
		"""Tell whether the file is empty, or has only a part of the first line."""
		with open(self.path, "rb") as f:
			data = f.readline()
		return not data.endswith(b"\n") and data[: len(BEGINNING)] == BEGINNING[: len(data)]

	def write(self, **line: Any) -> None:
		self.write_all([line])

	def write_all(self, lines: Sequence[Line]) -> None:
		"""Add lines that belong together: they come in one piece."""
		try:
			self.file.write(b"".join(json.dumps(line, sort_keys=True).encode() + b"\n" for line in lines))
			self.file.flush()
			os.fsync(self.file.fileno())
		except OSError as e:
			raise Mistake("cannot write %s: %s: make room, and resume" % (self.path, e.strerror)) from None

	def discard(self) -> None:
		"""Remove the file if it is empty."""
		if not os.path.getsize(self.path):
			os.unlink(self.path)

	def close(self) -> None:
		self.file.close()
