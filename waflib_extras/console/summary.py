"""
What the engine has saved a build, in one line at its end.

A hit saves the processor time that its command took when it ran. What a parked program saves was measured when it was
tried. Both were measured at another time, so the line says "about".
"""

import contextlib
import re
from typing import Any, Dict, NamedTuple, Optional

from ..client import protocol
from ..client.engine import Session

GAIN = re.compile(r"it saves ([0-9.]+) ms")
"""In the words of the engine about a parked program."""
ENDED = ("succeeded", "failed", "not_started", "timed_out", "cancelled")
PATIENCE = 2.0
"""Seconds that we wait for the engine's answer. It usually takes a thousandth of that."""


class Parking(NamedTuple):
	"""The engine's work for all builds since it started."""

	commands: int
	parked: int
	gained: float
	"""Seconds of processor time."""


def parse(report: bytes) -> Optional[Parking]:
	"""Read the engine's report. None if it is not understood, or if parking is off."""
	import json  # its import takes longer than all else here, and a build of hits alone does not need it

	try:
		return read_parking(json.loads(report.decode("utf-8", "replace")))
	except ValueError:
		return None


def read_parking(status: Dict[str, Any]) -> Optional[Parking]:
	"""The same for a decoded report."""
	parking = status.get("parking") or {}
	if not parking.get("on"):
		return None
	gained = 0.0
	for program in parking.get("programs") or ():
		found = GAIN.search(program.get("words") or "")
		if found:
			gained += program.get("commands", 0) * float(found.group(1)) / 1e3
	totals = status.get("totals") or {}
	return Parking(sum(totals.get(name, 0) for name in ENDED), parking.get("commands", 0), gained)


class Waits(NamedTuple):
	"""How a build's commands have waited for memory."""

	commands: int
	seconds: float
	killed: int
	"""Commands that ended because memory had run out."""


def ask_waits(session: Session) -> Optional[Waits]:
	"""The waits of this session's commands; None if its engine does not tell."""
	import json

	# as for the savings: no other engine is started for the question
	report = None if session.dead or not session.idle else ask_status(session)
	try:
		status = json.loads(report.decode("utf-8", "replace")) if report else {}
	except ValueError:
		return None
	ours = [one for one in status.get("sessions") or () if session.id.hex().startswith(one.get("id") or "-")]
	waits = ours[0].get("memory_waits") if ours else None
	return Waits(waits["waited"], waits["waited_s"], waits["killed"]) if waits else None


def ask_status(session: Session) -> Optional[bytes]:
	"""The report of this session's engine; None if it does not answer."""
	try:
		connection = session.take()
	except protocol.EngineError:
		return None
	try:
		report = connection.ask_report(PATIENCE)
	except (OSError, protocol.EngineError):
		session.drop(connection)
		return None
	session.give_back(connection)
	return report


class Savings:
	"""The savings by parked programs in a build: the difference between two reports of the engine."""

	def __init__(self) -> None:
		self.engine = 0
		self.before: Optional[bytes] = None

	def begin(self, session: Session) -> None:
		"""Take the first report when a session was opened."""
		with contextlib.suppress(protocol.EngineError):
			self.before = ask_status(session)
			self.engine = session.engine

	def find_parked(self, session: Session, commands: int) -> Optional[Parking]:
		"""How many of our commands were parked; None if other builds have run commands meanwhile."""
		# without an idle connection the engine may be gone, and the question would start another one
		if self.before is None or session.engine != self.engine or session.dead or not session.idle:
			return None
		report = ask_status(session)
		before, now = parse(self.before), report and parse(report)
		if not before or not now or session.engine != self.engine or now.commands - before.commands != commands:
			return None
		return Parking(commands, now.parked - before.parked, max(now.gained - before.gained, 0.0))


class Counts(NamedTuple):
	"""The outcomes of a build's commands."""

	ended: int
	"""Commands that have ended in the engine. Hits and misses are among them."""
	hits: int = 0
	misses: int = 0
	unstored: int = 0
	"""Misses whose results were not stored."""
	saved: float = 0.0
	"""The processor time, in seconds, that the commands of hits took when they ran."""
	begun: int = 0
	"""Misses whose compiles began after their headers."""
	gained: float = 0.0
	"""The processor time, in seconds, that they saved by that."""
	own: int = 0
	"""Commands that have run Waf's own way. They are not among those that have ended in the engine."""


def describe(counts: Counts, parked: Optional[Parking]) -> str:
	"""The line; empty if there is nothing to tell. Commands that have not ended are not counted."""
	commands, own = counts.ended, counts.own
	if not commands:
		return ""
	parts = []
	if counts.hits:
		saved = "about %s of processor time saved" % duration(counts.saved)
		parts.append("%s (%s)" % (count(counts.hits, "hit"), saved))
	if counts.misses:
		unstored = " (%d not stored)" % counts.unstored if counts.unstored else ""
		parts.append("%d miss%s%s" % (counts.misses, "" if counts.misses == 1 else "es", unstored))
	ran = commands - counts.hits - counts.misses
	if ran > 0:
		parts.append("%d run" % ran)
	if parts and commands > counts.hits:
		parts[-1] += describe_parked(parked)
	if own:
		parts.append("%d Waf's own way" % own)
	return "prefork: %s: %s" % (count(commands + own, "command"), ", ".join(parts))


def describe_begun(counts: Counts) -> str:
	"""What there is to tell about compiles that began after their headers; empty if there were none."""
	if not counts.begun:
		return ""
	theirs = "its" if counts.begun == 1 else "their"
	gained = duration(counts.gained)
	return "wafcc: %s began after %s headers: about %s saved" % (count(counts.begun, "compile"), theirs, gained)


def describe_waits(waits: Optional[Waits]) -> str:
	"""What there is to tell about memory; empty if nothing has waited for it."""
	parts = []
	if waits and waits.commands:
		parts.append("%s waited for memory, %s in all" % (count(waits.commands, "command"), duration(waits.seconds)))
	if waits and waits.killed:
		parts.append(
			"%s killed because memory ran out: build again, and the engine will leave more room"
			% count(waits.killed, "command")
		)
	return "prefork: %s" % "; ".join(parts) if parts else ""


def describe_parked(parked: Optional[Parking]) -> str:
	"""Programs are counted, since a command can be several: with gcc's driver left out, cc1 and as are parked."""
	if parked is None or parked.parked <= 0:
		return ""
	gain = ": about %s saved" % duration(parked.gained) if parked.gained >= 0.01 else ""
	return " (%s parked%s)" % (count(parked.parked, "program"), gain)


def count(number: int, noun: str) -> str:
	return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def duration(seconds: float) -> str:
	"""A duration with about two digits."""
	if seconds < 1:
		return "%.0f ms" % (seconds * 1e3)
	if seconds < 10:
		return "%.1f s" % seconds
	if seconds < 600:
		return "%.0f s" % seconds
	if seconds < 36000:
		return "%d min" % (seconds / 60)
	return "%d h" % (seconds / 3600)
