"""
The records of a resident process, by which the native ``waf`` answers or calls. ``record`` has their form.

A run with nothing to do gives a record with an answer. A run that was begun ahead of its call gives one without it, so
that the native ``waf`` tells the resident process what has changed.
"""

import contextlib
import os
from typing import Dict, Final, List, NamedTuple, Optional, Tuple

from ..launcher import caller
from . import child, memo, record

MOST = 64  # records of one user
KEPT = 8  # records of one resident
SHAPES: Final = 3  # the position of the terminals in a key

Key = Tuple[str, Tuple[str, ...], Tuple[Tuple[str, str], ...], Tuple[record.Shape, ...]]
"""All that a run depends on: its folder, arguments, variables, and the terminals of its streams."""


class Kept(NamedTuple):
	"""A record, and the command line that it is of."""

	key: Key
	request: child.Request
	serial: int
	written: Optional[record.Written]
	"""None if it has no answer."""


class Records:
	def __init__(self, folder: str, path: List[str]) -> None:
		self.folder = folder
		self.path = path
		"""Python's, for modules."""
		self.start: Optional[memo.Memo] = None
		"""What the resident process itself was made of; None until it has started."""
		self.kept: Dict[str, Kept] = {}
		"""By their file names."""
		self.last = int.from_bytes(os.urandom(4), "big") >> 2
		"""The serial of the last record. It begins anywhere, since a killed resident may have left records."""
		self.reason = ""
		"""Why the last run has no record."""

	def find(self, key: Key) -> Optional[record.Written]:
		"""The record of a command line that has an answer; None if there is none."""
		return next((kept.written for kept in self.kept.values() if kept.key == key), None)

	def take_serial(self) -> int:
		self.last += 1
		return self.last

	def write(self, key: Key, request: child.Request, run: memo.Memo, serial: int, answers: bool) -> record.Written:
		"""Write down what is known of a command line. Raises ``record.Unwritable``, ``OSError`` or ``ValueError``."""
		place = record.find_place(self.folder, request, key[SHAPES])
		if self.start is None or os.path.basename(place.path) != request.called_by:
			raise record.Unwritable("the call of Python was another one: is there a script before it?")
		written = record.write(place, request, self.start, run, self.path, serial, answers)
		remove_old(self.folder)
		return written

	def keep_answer(self, key: Key, request: child.Request, run: memo.Memo) -> None:
		"""Write the answer of a run down, if the native ``waf`` has called."""
		if not request.called_by:
			return
		serial = self.take_serial()
		try:
			written = self.write(key, request, run, serial, answers=True)
		except (record.Unwritable, OSError, ValueError) as e:
			self.reason = str(e)
		else:
			self.add(Kept(key, request, serial, written))

	def add(self, kept: Kept) -> None:
		"""Note that there is a record."""
		self.reason = ""
		self.kept[kept.request.called_by] = kept
		while len(self.kept) > KEPT:
			del self.kept[next(iter(self.kept))]

	def remove(self) -> None:
		"""Remove all records of this resident process."""
		for name in self.kept:
			with contextlib.suppress(OSError):
				os.unlink(os.path.join(self.folder, name))


class Ahead:
	"""The record of a run that is begun ahead of its call."""

	def __init__(
		self, known: Records, key: Key, request: child.Request, serial: int, written: Optional[record.Written]
	) -> None:
		self.known = known
		self.key = key
		self.request = request
		self.serial = serial
		self.written = written
		"""What the record has. There is one before the run if it has an answer that still holds."""
		self.is_wanted = written is None and bool(request.called_by)

	def write(self, run: memo.Memo) -> str:
		"""Write down what the run has looked at. Returns why that is not possible; empty if it was."""
		try:
			self.written = self.known.write(self.key, self.request, run, self.serial, answers=False)
		except (record.Unwritable, OSError, ValueError) as e:
			return str(e) or type(e).__name__
		return ""

	def facts(self) -> Optional[memo.Facts]:
		"""What the native ``waf`` compares."""
		return self.written.facts if self.written is not None else None

	def choose(self, numbers: Optional[List[int]]) -> Optional[List[memo.FactKey]]:
		"""The facts that it has found to be changed; None if that is not known."""
		if numbers is None or self.written is None:
			return None
		return [key for number in numbers for key in self.written.keys[number]]


def remove_old(folder: str) -> None:
	"""Remove the oldest records of all residents if there are too many."""
	found: List[Tuple[float, str]] = []
	for name in os.listdir(folder):
		if name.startswith(caller.PREFIX) and record.SUFFIX in name:
			path = os.path.join(folder, name)
			with contextlib.suppress(OSError):  # another resident may have removed it
				found.append((os.stat(path).st_mtime, path))
	for _, path in sorted(found)[: max(len(found) - MOST, 0)]:
		with contextlib.suppress(OSError):
			os.unlink(path)
