"""
What the tasks of a build depended on when they ran, and whether all of it is as it was.

Pure but for looking at files; knows nothing of Waf and of the engine. An input is a text that the engine made: a file
and what the system said of it, or names that were not there (``docs/protocol.md``). Most tasks share most of their
inputs, so texts are numbered, a task has numbers only, and each text is held against the files once per build.
"""

import array
import os
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

ENCODE = os.fsencode


Stamp = Tuple[int, int, int, int]
Record = Tuple[bytes, bytes, Tuple[Stamp, ...]]
"""
Of a task that has run: the numbers of its inputs, the digest of all that it made, the stamp of each output. No class,
since Waf stores it, and must be able to read it without us.
"""


def stamp(found: os.stat_result) -> Stamp:
	"""Whatever changes a file changes this."""
	return (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


class Book:
	"""The records of one build folder."""

	def __init__(self, saved: Optional[Dict[str, Any]] = None) -> None:
		self.is_active = False
		"""Commands are asked of the cache in this build."""
		self.seen: Optional[Set[Any]] = None
		"""The tasks that wait for all generated files, or need not; none if no files are generated."""
		self.before: Set[Any] = set()
		"""Tasks that generated files wait for."""
		self.read(saved or {})

	def read(self, saved: Dict[str, Any]) -> None:
		self.texts: List[bytes] = saved.get("texts", [])
		self.records: Dict[bytes, Record] = saved.get("records", {})
		self.numbers: Dict[bytes, int] = {text: number for number, text in enumerate(self.texts)}
		self.inherited = len(self.texts)
		self.suspects: Optional[Set[int]] = None
		"""Texts that do not hold, or of which it is not known yet; none before anybody looked."""
		self.makers: Dict[int, Any] = {}
		"""What makes the files of these texts in this build: they are looked at when it is done."""
		self.places: Optional[Dict[bytes, List[int]]] = None
		self.names: Dict[bytes, Set[bytes]] = {}
		self.local: List[int] = []
		self.told: Any = None
		self.mine: Set[int] = set()
		"""What did not hold of the record that was asked for last."""

	# ---- what was learned

	def number_all(self, texts: List[bytes], numbers: Sequence[int]) -> bytes:
		"""Our numbers for those of a connection, as bytes; ``texts`` is the list of that connection."""
		if self.told is not texts:
			self.told, self.local = texts, []
		local = self.local
		if len(local) < len(texts):
			for text in texts[len(local) :]:
				local.append(self.number(text))
		return array.array("I", [local[number] for number in numbers]).tobytes()

	def number(self, text: bytes) -> int:
		number = self.numbers.get(text)
		if number is None:
			number = self.numbers[text] = len(self.texts)
			self.texts.append(text)
			self.places = None
		elif self.suspects:
			# somebody has just seen it hold
			self.suspects.discard(number)
			self.makers.pop(number, None)
		return number

	def save(self) -> Dict[str, Any]:
		"""All of it, without texts that no task needs any more."""
		if self.inherited and len(self.texts) > self.inherited:
			self.pack()
		return {"texts": self.texts, "records": self.records}

	def pack(self) -> None:
		used = sorted(set().union(*[array.array("I", numbers) for numbers, _, _ in self.records.values()]))
		places = {number: place for place, number in enumerate(used)}
		self.texts = [self.texts[number] for number in used]
		for uid, (numbers, result, stamps) in self.records.items():
			packed = array.array("I", [places[number] for number in array.array("I", numbers)])
			self.records[uid] = (packed.tobytes(), result, stamps)
		self.read({"texts": self.texts, "records": self.records})

	# ---- what holds

	def holds(self, record: Record) -> Optional[bool]:
		"""Whether all inputs of a task are as they were; none while one of them is still to be made."""
		suspects = self.suspects
		if suspects is None:
			known = [number for number in range(len(self.texts)) if number not in self.makers]
			suspects = self.suspects = self.look(known).union(self.makers)
		if not suspects:
			return True
		mine = suspects.intersection(array.array("I", record[0]))
		ready = []
		for number in mine:
			maker = self.makers.get(number)
			if maker is not None:
				if not maker.hasrun:
					return None
				ready.append(number)
		if ready:
			self.names.clear()
			changed = self.look(ready)
			for number in ready:
				del self.makers[number]
			suspects.difference_update(set(ready) - changed)
			mine.difference_update(set(ready) - changed)
		self.mine = mine
		return not mine

	def look(self, numbers: Iterable[int]) -> Set[int]:
		"""Those that do not hold."""
		texts, is_so = self.texts, self.is_so
		return {number for number in numbers if not is_so(texts[number])}

	def is_so(self, text: bytes) -> bool:
		if text[:1] == b"=":
			said, path = split_file(text)
			try:
				found = os.stat(path)
			except OSError:
				return False
			return said == b"=%d,%d,%d,%d" % (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
		folder, names = split_absences(text)
		return self.list(folder).isdisjoint(names)

	def list(self, folder: bytes) -> Set[bytes]:
		"""The names in a folder."""
		names = self.names.get(folder)
		if names is None:
			try:
				names = set(os.listdir(folder))
			except (FileNotFoundError, NotADirectoryError):
				names = set()
			except OSError:
				names = Everything()
			self.names[folder] = names
		return names

	def tell(self, record: Record) -> str:
		"""What does not hold, for people."""
		for number in array.array("I", record[0]):
			if number in (self.suspects or ()):
				text = self.texts[number]
				if text[:1] == b"=":
					return "%s has changed" % os.fsdecode(split_file(text)[1])
				folder, names = split_absences(text)
				appeared = self.list(folder).intersection(names)
				return "%s has appeared" % os.fsdecode(os.path.join(folder, min(appeared, default=b"")))
		return "nothing has changed"

	# ---- what is made by other tasks

	def begin_group(self, tasks: Optional[Iterable[Any]], before: Set[Any]) -> None:
		"""These tasks are next: generated files wait for those of ``before``; no tasks if no files are generated."""
		self.seen = None if tasks is None else set(tasks)
		self.before = before

	def is_in_order(self, task: Any) -> bool:
		"""It runs after all generated files that it could read."""
		return self.seen is None or (task in self.seen and task not in self.before)

	def expect(self, tasks: Iterable[Any]) -> None:
		"""These tasks make files: what is known of those is looked at when they are done."""
		for task in tasks:
			for node in task.outputs:
				for number in self.find(ENCODE(node.abspath())):
					self.makers[number] = task
					if self.suspects is not None:
						self.suspects.add(number)

	def find(self, path: bytes) -> List[int]:
		"""Texts about a path."""
		if self.places is None:
			self.places = {}
			for number, text in enumerate(self.texts):
				for place in places(text):
					self.places.setdefault(place, []).append(number)
		return self.places.get(path, [])


class Everything(set):
	"""The names in a folder that nobody can list."""

	def isdisjoint(self, names: Iterable[Any]) -> bool:
		return False


def split_file(text: bytes) -> Tuple[bytes, bytes]:
	"""What the system said of a file, and its path."""
	parts = text.split(b",", 4)
	return text[: len(text) - len(parts[-1]) - 1], parts[-1]


def split_absences(text: bytes) -> Tuple[bytes, List[bytes]]:
	"""A folder, and the names that are not in it."""
	folder, _, names = text[1:].rpartition(b"//")
	return folder, names.split(b"/")


def places(text: bytes) -> List[bytes]:
	"""The plain paths that a text is about."""
	if text[:1] == b"=":
		return [os.path.normpath(split_file(text)[1])]
	folder, names = split_absences(text)
	folder = os.path.normpath(folder)
	return [os.path.join(folder, name) for name in names]
