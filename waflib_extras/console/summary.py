"""
What the engine saved a build, in one line at its end.

Nothing in it is a guess about this build: hits tell which processor time their commands took when they ran; what a
parked program saves was measured when it was tried. Both were other moments, so the line says "about".
"""

import contextlib
import re
from typing import Any, Dict, NamedTuple, Optional

from ..client import protocol
from ..client.engine import MSG_NOSIGNAL, RECEIVE, Session

GAIN = re.compile(r"it saves ([0-9.]+) ms")
"""In what the engine says of a parked program."""
ENDED = ("succeeded", "failed", "not_started", "timed_out", "cancelled")
PATIENCE = 2.0
"""Seconds for the engine to answer, of which it needs a thousandth."""


class Parking(NamedTuple):
	"""What the engine has done for all builds since it began."""

	commands: int
	parked: int
	gained: float
	"""Seconds of processor time."""


def parse(report: bytes) -> Optional[Parking]:
	"""From what the engine tells of itself; none if it is not understood, or nothing is parked."""
	import json  # takes longer than all else here, and a build that finds all in the cache does without

	try:
		return read_parking(json.loads(report.decode("utf-8", "replace")))
	except ValueError:
		return None


def read_parking(status: Dict[str, Any]) -> Optional[Parking]:
	"""The same of the report as a value."""
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


def ask_status(session: Session) -> Optional[bytes]:
	"""What the engine of this session tells of itself; none if it does not say."""
	try:
		connection = session.take()
	except protocol.EngineError:
		return None
	sock = connection.sock
	data = bytearray()
	try:
		sock.settimeout(PATIENCE)
		sock.sendall(protocol.encode_status(), MSG_NOSIGNAL)
		while not data or len(data) < (protocol.measure(data) or 4):
			received = sock.recv(RECEIVE)
			if not received:
				raise protocol.Lost("the connection to the engine ended")
			data += received
		sock.settimeout(None)
		answer = protocol.decode(bytes(data))
		if not isinstance(answer, protocol.Report):
			raise protocol.ProtocolError("the engine answers with %.100r" % (answer,))
	except (OSError, protocol.EngineError):
		session.drop(connection)
		return None
	session.give_back(connection)
	return answer.json


class Savings:
	"""What is counted for the line; the rest is known where it comes from."""

	def __init__(self) -> None:
		self.engine = 0
		self.before: Optional[bytes] = None

	def begin(self, session: Session) -> None:
		"""A session was opened: what its engine has done before is none of our doing."""
		with contextlib.suppress(protocol.EngineError):
			self.before = ask_status(session)
			self.engine = session.engine

	def find_parked(self, session: Session, commands: int) -> Optional[Parking]:
		"""What was parked of our commands; none if it cannot be told from what other builds had meanwhile."""
		# with nothing idle the engine may be gone, and to ask would start another
		if self.before is None or session.engine != self.engine or session.dead or not session.idle:
			return None
		report = ask_status(session)
		before, now = parse(self.before), report and parse(report)
		if not before or not now or session.engine != self.engine or now.commands - before.commands != commands:
			return None
		return Parking(commands, now.parked - before.parked, max(now.gained - before.gained, 0.0))


class Told(NamedTuple):
	"""What became of the commands of a build."""

	ended: int
	"""In the engine, of which the others here are a part."""
	hits: int = 0
	misses: int = 0
	unstored: int = 0
	"""Misses of which nothing was stored."""
	saved: float = 0.0
	"""Seconds of processor time that the hits took when they ran."""
	own: int = 0
	"""Beside those that ended: these ran Waf's own way."""


def describe(told: Told, parked: Optional[Parking]) -> str:
	"""The line; empty if there is nothing to tell. What was submitted and did not end is in no number."""
	commands, own = told.ended, told.own
	if not commands:
		return ""
	parts = []
	if told.hits:
		saved = "about %s of processor time saved" % duration(told.saved)
		parts.append("%s (%s)" % (count(told.hits, "hit"), saved))
	if told.misses:
		unstored = " (%d not stored)" % told.unstored if told.unstored else ""
		parts.append("%d miss%s%s" % (told.misses, "" if told.misses == 1 else "es", unstored))
	ran = commands - told.hits - told.misses
	if ran > 0:
		parts.append("%d run" % ran)
	if parts and commands > told.hits:
		parts[-1] += describe_parked(parked)
	if own:
		parts.append("%d Waf's own way" % own)
	return "prefork: %s: %s" % (count(commands + own, "command"), ", ".join(parts))


def describe_parked(parked: Optional[Parking]) -> str:
	"""A command can be several programs: gcc's driver is left out, cc1 and as are both parked."""
	if parked is None or parked.parked <= 0:
		return ""
	gain = ": about %s saved" % duration(parked.gained) if parked.gained >= 0.01 else ""
	return " (%s parked%s)" % (count(parked.parked, "program"), gain)


def count(number: int, noun: str) -> str:
	return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def duration(seconds: float) -> str:
	"""As short as it is exact."""
	if seconds < 1:
		return "%.0f ms" % (seconds * 1e3)
	if seconds < 10:
		return "%.1f s" % seconds
	if seconds < 600:
		return "%.0f s" % seconds
	if seconds < 36000:
		return "%d min" % (seconds / 60)
	return "%d h" % (seconds / 3600)
