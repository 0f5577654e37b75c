"""
What the tasks of a build depended on when they ran, and whether all of it is as it was.

Pure but for looking at files; knows nothing of Waf and of the engine. An input is a text that the engine made: a file
and what the system said of it, where a link leads, what a folder lists, names that were not there, variables
(``docs/protocol.md`` has them all). Most tasks share most of their inputs, so texts are numbered, a task has numbers
only, and each text is held against the files once per build.
"""

import array
import os
import struct
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from ..facts import checks

if TYPE_CHECKING:
	from waflib.Task import Task

ENCODE = os.fsencode
FORMAT = 2
"""Of what is kept; what has another one is forgotten, and its tasks run again."""
OBJECTS = (b".o", b".obj", b".os")
NUMBER = struct.calcsize("I")


Stamp = Tuple[int, int, int, int]
Record = Tuple[bytes, bytes, Tuple[Stamp, ...]]
"""
Of a task that has run: the numbers of its inputs, the digest of all that it made, the stamp of each output. The first
number is that of its variables. No class, since Waf stores it, and must be able to read it without us.
"""


def stamp(found: os.stat_result) -> Stamp:
	"""Whatever changes a file changes this."""
	return (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


class InputMemory:
	"""The records of one build folder."""

	def __init__(self, saved: Optional[Dict[str, Any]] = None) -> None:
		self.is_active = False
		"""Commands are asked of the cache in this build."""
		self.seen: Optional[Set[Task]] = None
		"""The tasks that wait for all generated files, or need not; none if no files are generated."""
		self.before: Set[Task] = set()
		"""Tasks that generated files wait for."""
		saved = saved or {}
		self.read(saved if saved.get("format") == FORMAT else {})

	def read(self, saved: Dict[str, Any]) -> None:
		self.texts: List[bytes] = saved.get("texts", [])
		self.records: Dict[bytes, Record] = saved.get("records", {})
		self.doubts: Set[bytes] = saved.get("doubts", set())
		"""Tasks that have run without anybody telling what they depended on, though they asked for that."""
		self.numbers: Dict[bytes, int] = {text: number for number, text in enumerate(self.texts)}
		self.inherited = len(self.texts)
		self.suspects: Optional[Set[int]] = None
		"""Texts that do not hold, or of which it is not known yet; none before anybody looked."""
		self.makers: Dict[int, Task] = {}
		"""What makes the files of these texts in this build: they are looked at when it is done."""
		self.places: Optional[Dict[checks.Place, List[int]]] = None
		self.look = checks.Look()
		self.variables: Dict[Tuple[int, int, bytes], Tuple[bool, checks.Environment]] = {}
		"""By number, environment and folder: whether variables are as they were, and the environment."""
		self.circumstances: Dict[int, List[bytes]] = {}
		self.values: Dict[bytes, bytes] = {}
		"""Of circumstances, by their names."""
		self.waiting: Dict[Task, Set[Task]] = {}
		"""Tasks that wait for those that make what they read, as far as these had not run."""
		self.local: List[int] = []
		self.told: Optional[List[bytes]] = None
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
		return {"format": FORMAT, "texts": self.texts, "records": self.records, "doubts": self.doubts}

	def pack(self) -> None:
		used = sorted(set().union(*[array.array("I", numbers) for numbers, _, _ in self.records.values()]))
		places = {number: place for place, number in enumerate(used)}
		self.texts = [self.texts[number] for number in used]
		for uid, (numbers, result, stamps) in self.records.items():
			packed = array.array("I", [places[number] for number in array.array("I", numbers)])
			self.records[uid] = (packed.tobytes(), result, stamps)
		self.read({"texts": self.texts, "records": self.records, "doubts": self.doubts})

	# ---- what holds

	def holds(self, record: Record, task: "Optional[Task]" = None) -> Optional[bool]:
		"""Whether all files of a task are as they were; none while one of them is still to be made."""
		suspects = self.suspects
		if suspects is None:
			known = [number for number in range(len(self.texts)) if number not in self.makers]
			suspects = self.suspects = self.find_changed(known).union(self.makers)
		self.mine = set()
		if not suspects:
			return True
		mine = suspects.intersection(array.array("I", record[0]))
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
			# they are made again after this task
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
		"""Whether the variables are as they were, for a command in this folder."""
		number = int.from_bytes(record[0][:NUMBER], sys.byteorder)
		key = number, id(environment), folder
		known = self.variables.get(key)
		if known is None:
			holds = checks.fits(self.texts[number], environment, folder)
			# with the environment, so that its number stays its own
			known = self.variables[key] = holds, environment
		if not known[0]:
			self.mine = {number}
		return known[0]

	def find_circumstances(self, numbers: bytes) -> List[bytes]:
		"""What a command asked for of its process that is no variable, as it is now."""
		number = int.from_bytes(numbers[:NUMBER], sys.byteorder)
		names = self.circumstances.get(number)
		if names is None:
			names = self.circumstances[number] = checks.circumstances(self.texts[number])
		for name in names:
			if name not in self.values:
				self.values[name] = checks.find_circumstance(name)
		return [self.values[name] for name in names]

	def find_changed(self, numbers: Iterable[int]) -> Set[int]:
		"""Those that do not hold."""
		texts, is_so = self.texts, self.look.is_so
		return {number for number in numbers if not is_so(texts[number])}

	def tell(self) -> str:
		"""What did not hold of the record that was asked for last, for people."""
		for number in sorted(self.mine):
			return checks.tell(self.texts[number])
		return "nothing has changed"

	# ---- what is made by other tasks

	def begin_group(self, tasks: "Optional[Iterable[Task]]", before: "Set[Task]") -> None:
		"""These tasks are next: generated files wait for those of ``before``; no tasks if no files are generated."""
		self.seen = None if tasks is None else set(tasks)
		self.before = before

	def is_in_order(self, task: "Task") -> bool:
		"""It runs after all generated files that it could read."""
		return self.seen is None or (task in self.seen and task not in self.before)

	def expect(self, tasks: Iterable["Task"]) -> None:
		"""These tasks make files: what is known of those is looked at when they are done."""
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
		"""Texts about a place."""
		if self.places is None:
			trails = checks.Trails()
			self.places = {}
			for number, text in enumerate(self.texts):
				for each in trails.places(text):
					self.places.setdefault(each, []).append(number)
		return self.places.get(place, [])

	def must_wait(self, task: "Optional[Task]", maker: "Task") -> bool:
		"""Whether a task can wait for one that makes what it read; not if that waits for the task."""
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
	"""What a task, or a group of tasks, has to wait for."""
	earlier: Iterable[Task] = task.prev if hasattr(task, "prev") else task.run_after
	return earlier
