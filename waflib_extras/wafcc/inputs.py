"""
Remembers what the tasks of a build depended on when they ran, and finds out whether that has changed.

It does nothing but look at files, and knows nothing of Waf and of the engine. An input is a text that the engine has
made: a file and its status, the target of a link, the names in a folder, names that did not exist, or variables
(``docs/protocol.md`` has them all). Most tasks share most of their inputs. So texts are numbered, a task has numbers
only, and each text is checked once per build.
"""

import os
import struct
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from ..facts import checks

if TYPE_CHECKING:
	from waflib.Task import Task

	from ..hooks import lifecycle

ENCODE = os.fsencode
FORMAT = 2
"""The format of what is stored. Records of another format are dropped, and their tasks run again."""
OBJECTS = (b".o", b".obj", b".os")
WASTE, FEW = 20, 100
"""Texts that are not needed may be a twentieth of all, or a few."""
NUMBER = struct.calcsize("I")


OutputStamp = Tuple[int, int, int, int]
Record = Tuple[bytes, bytes, Tuple[OutputStamp, ...]]
"""
The record of a task that has run: the numbers of its inputs, the digest of its outputs, and the stamp of each output.
The first number is that of its variables. It is no class, since Waf stores it and must read it without our tools.
"""


def stamp(found: os.stat_result) -> OutputStamp:
	"""The stamp of a file, which any change of it changes."""
	return (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def pack(numbers: Sequence[int]) -> bytes:
	"""The numbers as they are stored."""
	return struct.pack("%dI" % len(numbers), *numbers)


def unpack(numbers: bytes) -> Sequence[int]:
	"""The numbers of a record."""
	return memoryview(numbers).cast("I")


class InputMemory:
	"""The records of one build folder."""

	def __init__(self, saved: Optional[Dict[str, Any]] = None) -> None:
		self.is_active = False
		"""Whether commands are looked up in the cache in this build."""
		self.seen: Optional[Set[Task]] = None
		"""The tasks that wait for all generated files, or need not; None if no files are generated."""
		self.before: Set[Task] = set()
		"""The tasks for which generated files wait."""
		saved = saved or {}
		self.read(saved if saved.get("format") == FORMAT else {})

	def read(self, saved: Dict[str, Any]) -> None:
		self.texts: List[bytes] = saved.get("texts", [])
		self.records: Dict[bytes, Record] = saved.get("records", {})
		self.doubts: Set[bytes] = saved.get("doubts", set())
		"""Tasks that asked to be cached, and have run without the engine telling what they depended on."""
		self.numbers: Dict[bytes, int] = {text: number for number, text in enumerate(self.texts)}
		self.packed: int = saved.get("packed", 0)
		"""How many texts there were when those that no task needs were left out."""
		self.suspects: Optional[Set[int]] = None
		"""Texts that do not hold, or that are not checked yet; None before the first check."""
		self.makers: Dict[int, Task] = {}
		"""The tasks that make the files of these texts in this build. A text is checked when its task is done."""
		self.places: Optional[Dict[checks.Place, List[int]]] = None
		self.look = checks.Look()
		self.variables: Dict[Tuple[int, int, bytes], Tuple[bool, checks.Environment]] = {}
		"""By number, environment and folder: whether the variables are unchanged, and the environment."""
		self.circumstances: Dict[int, List[bytes]] = {}
		self.values: Dict[bytes, bytes] = {}
		"""The values of items about the process, by their names."""
		self.waiting: Dict[Task, Set[Task]] = {}
		"""By task: the tasks that make its inputs and have not run yet."""
		self.local: List[int] = []
		self.told: Optional[List[bytes]] = None
		self.mine: Set[int] = set()
		"""The texts of the last checked record that did not hold."""

	# ---- what was learned

	def number_all(self, texts: List[bytes], numbers: Sequence[int]) -> bytes:
		"""
		Translate the numbers of a connection, whose list is ``texts``, into ours, as bytes.

		The engine has just checked the texts of these numbers. Others in the list may be from an earlier build of this
		process, and may not hold any more.
		"""
		if self.told is not texts:
			self.told, self.local = texts, []
		local = self.local
		if len(local) < len(texts):
			for text in texts[len(local) :]:
				local.append(self.number(text))
		found = [local[number] for number in numbers]
		if self.suspects:
			checked = self.suspects.intersection(found)
			self.suspects -= checked
			for number in checked:
				self.makers.pop(number, None)
		return pack(found)

	def number(self, text: bytes) -> int:
		number = self.numbers.get(text)
		if number is None:
			number = self.numbers[text] = len(self.texts)
			self.texts.append(text)
			self.places = None
		return number

	def save(self) -> Dict[str, Any]:
		"""All records to be stored. Texts that no task needs any more are left out from time to time."""
		if len(self.texts) > self.packed + max(self.packed // WASTE, FEW):
			self.pack()
		stored = {"texts": self.texts, "records": self.records, "doubts": self.doubts, "packed": self.packed}
		return {"format": FORMAT, **stored}

	def pack(self) -> None:
		used = sorted(set().union(*[unpack(numbers) for numbers, _, _ in self.records.values()]))
		places = {number: place for place, number in enumerate(used)}
		self.texts = [self.texts[number] for number in used]
		for uid, (numbers, result, stamps) in self.records.items():
			self.records[uid] = (pack([places[number] for number in unpack(numbers)]), result, stamps)
		self.read({"texts": self.texts, "records": self.records, "doubts": self.doubts, "packed": len(self.texts)})

	# ---- what holds

	def holds(self, record: Record, task: "Optional[Task]" = None) -> Optional[bool]:
		"""Tell whether all files of a task are unchanged; None while one of them is still to be made."""
		suspects = self.suspects
		if suspects is None:
			known = [number for number in range(len(self.texts)) if number not in self.makers]
			suspects = self.suspects = self.find_changed(known).union(self.makers)
		self.mine = set()
		if not suspects:
			return True
		mine = suspects.intersection(unpack(record[0]))
		ready, early = [], []
		for number in mine:
			maker = self.makers.get(number)
			if maker is not None:
				if maker.hasrun:
					ready.append(number)
				elif maker is not task and self.must_wait(task, maker):
					return None
				else:
					early.append(number)
		if early:
			# the files are made again after this task
			self.look.forget()
			mine.difference_update(set(early) - self.find_changed(early))
		if ready:
			self.look.forget()
			changed = self.find_changed(ready)
			for number in ready:
				del self.makers[number]
			suspects.difference_update(set(ready) - changed)
			mine.difference_update(set(ready) - changed)
		self.mine = mine
		return not mine

	def fits(self, record: Record, environment: checks.Environment, folder: bytes) -> bool:
		"""Tell whether the variables are unchanged for a command in this folder."""
		number = int.from_bytes(record[0][:NUMBER], sys.byteorder)
		key = number, id(environment), folder
		known = self.variables.get(key)
		if known is None:
			holds = checks.fits(self.texts[number], environment, folder)
			# refers to the environment, so that no other object gets its id
			known = self.variables[key] = holds, environment
		if not known[0]:
			self.mine = {number}
		return known[0]

	def find_circumstances(self, numbers: bytes) -> List[bytes]:
		"""The present values of the items about the process that a command asked for."""
		number = int.from_bytes(numbers[:NUMBER], sys.byteorder)
		names = self.circumstances.get(number)
		if names is None:
			names = self.circumstances[number] = checks.circumstances(self.texts[number])
		for name in names:
			if name not in self.values:
				self.values[name] = checks.find_circumstance(name)
		return [self.values[name] for name in names]

	def find_changed(self, numbers: Iterable[int]) -> Set[int]:
		"""The numbers of those texts that do not hold."""
		texts, is_so = self.texts, self.look.is_so
		return {number for number in numbers if not is_so(texts[number])}

	def tell(self) -> str:
		"""Say for the user why the last checked record did not hold."""
		for number in sorted(self.mine):
			return checks.tell(self.texts[number])
		return "nothing has changed"

	# ---- before a call

	def prepare_renewal(self, tasks: "Iterable[Task]") -> "lifecycle.Renewal":
		"""A function that forgets what was found out before a run was called. See ``lifecycle.Renewal``."""
		makers = dict(self.makers)
		places: Dict[str, List[int]] = {}
		for number, text in enumerate(self.texts):
			if text[:1] not in (b"-", b"$"):
				places.setdefault(os.fsdecode(checks.path_of(text)), []).append(number)
		users: Dict[int, List[Task]] = {}
		for task in tasks:
			record = self.records.get(task.uid())
			for number in unpack(record[0]) if record else ():
				users.setdefault(number, []).append(task)

		def renew(changed: Optional[Set[str]]) -> "Optional[Set[Task]]":
			self.look.forget()
			self.makers = makers
			self.waiting = {}
			values, variables = self.values, self.variables
			self.values, self.variables = {}, {}
			is_same = all(checks.find_circumstance(name) == value for name, value in values.items()) and all(
				checks.fits(self.texts[number], environment, folder) == holds
				for (number, _, folder), (holds, environment) in variables.items()
			)
			if changed is None or not is_same or (self.suspects is None and self.records):
				self.suspects = None
				return None
			numbers = {number for path in changed for number in places.get(path, ())}
			self.suspects = self.find_changed(numbers.union(self.suspects or ())).union(makers)
			return {task for number in self.suspects for task in users.get(number, ())}

		return renew

	# ---- what is made by other tasks

	def begin_group(self, tasks: "Optional[Iterable[Task]]", before: "Set[Task]") -> None:
		"""Begin with these tasks; None if no files are generated. Generated files wait for the tasks ``before``."""
		self.seen = None if tasks is None else set(tasks)
		self.before = before

	def is_in_order(self, task: "Task") -> bool:
		"""Tell whether a task runs after all generated files that it could read are made."""
		return self.seen is None or (task in self.seen and task not in self.before)

	def expect(self, tasks: Iterable["Task"]) -> None:
		"""Note that these tasks make files. Texts about these files are checked when the tasks are done."""
		if not self.texts:
			return
		trails = checks.Trails()
		for task in tasks:
			for node in task.outputs:
				path = ENCODE(node.abspath())
				place = trails.place(path)
				numbers = self.find(place) + self.find((place[0], checks.ANY))
				if not path.endswith(OBJECTS):
					numbers += self.find(trails.identity(path))
				for number in numbers:
					self.makers[number] = task
					if self.suspects is not None:
						self.suspects.add(number)

	def find(self, place: checks.Place) -> List[int]:
		"""The numbers of texts about a place."""
		if self.places is None:
			trails = checks.Trails()
			self.places = {}
			for number, text in enumerate(self.texts):
				for each in trails.places(text):
					self.places.setdefault(each, []).append(number)
		return self.places.get(place, [])

	def must_wait(self, task: "Optional[Task]", maker: "Task") -> bool:
		"""Tell whether a task can wait for the maker of its input. It cannot if the maker waits for the task."""
		left, seen = [maker], set()
		while left:
			other = left.pop()
			if other is task:
				return False
			if other not in seen:
				seen.add(other)
				left += [each for each in find_earlier(other) if not each.hasrun]
				left += [each for each in self.waiting.get(other, ()) if not each.hasrun]
		self.waiting.setdefault(task, set()).add(maker)
		return True


def find_earlier(task: "Task") -> "Iterable[Task]":
	"""The tasks for which a task, or a group of tasks, waits."""
	earlier: Iterable[Task] = task.prev if hasattr(task, "prev") else task.run_after
	return earlier
