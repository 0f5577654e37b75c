"""
Finds the headers from outside that pay when they are precompiled for the sources of a target.

The compiler says what they cost. Some sources are compiled with and without the precompiled header: that tells what it
gains, and whether it changes their objects.
"""

import os
import shutil
import tempfile
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from waflib import Task

from . import reading, trial

LEAST_USERS = 4
"""Fewer sources do not pay for a precompiled header."""
LEAST_SECONDS = 0.05
"""Headers that cost less than this for each source are left as they are."""
SAMPLES = 3
LEVELS = 5
"""So many sets of headers are tried."""
SAVED, PRICE = 0.6, 2.5
"""Guesses from which the set is chosen: the part that is saved, and what precompiling costs in times of reading."""
TOO_EARLY = "its sources cannot be compiled yet: build it first"
ENDING = {"cxx": (".hpp", "c++-header"), "c": (".h", "c-header")}
"""By language: the ending of the header that includes the others, and the compiler's name for such a file."""
SUFFIX = {"gcc": ".gch", "clang": ".pch"}
"""By compiler, what its precompiled headers end with."""


class Weighed(NamedTuple):
	"""What was found out about a target."""

	headers: List[str]
	"""In the order in which they are included; empty if none pay."""
	users: int
	sources: int
	price: float
	"""Seconds of processor time to precompile them."""
	plain: float
	"""Seconds that the tried sources take as they are, on average."""
	begun: float
	"""Seconds that they take with the precompiled headers."""
	same: int
	"""So many of the tried objects are the same."""
	tried: int
	why_not: str
	"""Why none pay, or empty."""
	left: Dict[str, str]
	"""Why a source does not use them, by its path."""

	@property
	def saved(self) -> float:
		return self.users * (self.plain - self.begun) - self.price


def refuse(sources: int, why_not: str) -> Weighed:
	return Weighed([], 0, sources, 0.0, 0.0, 0.0, 0, 0, why_not, {})


class Scale:
	"""Weighs the headers of one target. Its tasks have the same options."""

	def __init__(self, language: str, compiler: str, tasks: Sequence[Task.Task]) -> None:
		self.tasks = tasks
		self.ending, self.kind = ENDING[language]
		self.suffix = SUFFIX[compiler]
		self.command = trial.find_command(tasks[0])
		self.readings = [reading.read(task) for task in tasks]
		self.given = len(tasks[0].env.DEFINES)
		self.folder = ""

	def weigh(self) -> Weighed:
		if len(self.tasks) < LEAST_USERS:
			return refuse(len(self.tasks), "it has less than %d sources" % LEAST_USERS)
		self.folder = tempfile.mkdtemp(prefix="pch-")
		try:
			headers, seconds = self.choose()
			if seconds < LEAST_SECONDS:
				return refuse(len(self.tasks), "the headers that its sources share take %.0f ms" % (seconds * 1000))
			return self.try_headers(headers)
		finally:
			shutil.rmtree(self.folder, ignore_errors=True)

	def choose(self) -> Tuple[List[str], float]:
		"""The headers that are likely to gain most, and what it costs to read them once."""
		counts: Dict[str, int] = {}
		for each in self.readings:
			for name in each.outside:
				counts[name] = counts.get(name, 0) + 1
		ordered = sorted(counts, key=lambda name: -counts[name])
		levels = sorted({count for count in counts.values() if count >= LEAST_USERS}, reverse=True)
		best: Tuple[float, List[str], float] = (0.0, [], 0.0)
		refused: Dict[str, bool] = {}
		nothing = self.time([]) or 0.0
		for level in levels[:: max(1, -(-len(levels) // LEVELS))]:
			headers = self.keep_good([name for name in ordered if counts[name] >= level], refused)
			seconds = max(0.0, (self.time(headers) or 0.0) - nothing)
			users = sum(all(name in each.outside for name in headers) for each in self.readings)
			gain = users * seconds * SAVED - seconds * PRICE
			if gain > best[0]:
				best = gain, headers, seconds
		return self.order(best[1]), best[2]

	def order(self, headers: List[str]) -> List[str]:
		"""The headers as a source reads them."""
		for each in self.readings:
			if all(name in each.outside for name in headers):
				return sorted(headers, key=lambda name: each.outside[name].others)
		return headers

	def keep_good(self, names: List[str], refused: Dict[str, bool]) -> List[str]:
		"""Those headers that can be read by themselves."""
		for name in names:
			if name not in refused:
				refused[name] = False
		if not self.can_read([name for name in names if not refused[name]]):
			for name in names:
				refused[name] = refused[name] or not self.can_read([name])
		return [name for name in names if not refused[name]]

	def write(self, headers: Sequence[str]) -> str:
		path = os.path.join(self.folder, "all" + self.ending)
		with open(path, "w", encoding="utf-8") as f:
			f.write(make_text(headers))
		return path

	def time(self, headers: Sequence[str]) -> Optional[float]:
		"""The seconds to read these headers; None if they cannot be read."""
		return trial.time(self.reader(headers), self.command)

	def can_read(self, headers: Sequence[str]) -> bool:
		return trial.run(self.reader(headers), self.command) is not None

	def reader(self, headers: Sequence[str]) -> List[str]:
		"""The command that reads these headers."""
		output = os.path.join(self.folder, "all.o")
		return self.command.change(self.write(headers), output, ["-x", self.kind], ["-fsyntax-only"])

	def try_headers(self, headers: List[str]) -> Weighed:
		"""Precompile these headers, and compile some sources with and without them."""
		header = self.write(headers)
		listed = header + ".d"
		words = self.command.change(header, header + self.suffix, ["-x", self.kind], ["-MD", "-MF", listed])
		price = trial.time(words, self.command)
		if price is None:
			return refuse(len(self.tasks), "its headers cannot be precompiled")
		with open(listed, encoding="utf-8", errors="surrogateescape") as f:
			names = trial.find_files(f.read())
		known = trial.find_words([os.path.join(self.command.folder, name) for name in names])
		left = self.find_left(headers, known)
		users = [task for task in self.tasks if task.inputs[0].abspath() not in left]
		if len(users) < LEAST_USERS:
			why = next(iter(left.values()), "")
			return refuse(len(self.tasks), "less than %d of its sources may begin with them: %s" % (LEAST_USERS, why))
		tried = [result for result in (self.try_source(task, header) for task in pick(users)) if result]
		if not tried:
			return refuse(len(self.tasks), TOO_EARLY)
		plain, begun = (sum(result[i] for result in tried) / len(tried) for i in (0, 1))
		same = sum(result[2] for result in tried)
		weighed = Weighed(headers, len(users), len(self.tasks), price, plain, begun, same, len(tried), "", left)
		if weighed.saved <= 0:
			return refuse(len(self.tasks), "they would cost more than they save")
		return weighed

	def find_left(self, headers: List[str], known: FrozenSet[str]) -> Dict[str, str]:
		found = {}
		for task, each in zip(self.tasks, self.readings):
			why = reading.find_obstacle(each, headers, known, self.given)
			if why:
				found[task.inputs[0].abspath()] = why
		return found

	def try_source(self, task: Task.Task, header: str) -> Optional[Tuple[float, float, bool]]:
		"""The seconds of a source without and with the header, and whether the objects are the same."""
		command = trial.find_command(task)
		one, other = (os.path.join(self.folder, name) for name in ("plain.o", "begun.o"))
		plain = trial.time(command.change(command.source, one), command)
		begun = trial.time(command.change(command.source, other, ["-include", header]), command)
		if plain is None or begun is None:
			return None
		with open(one, "rb") as f, open(other, "rb") as g:
			return plain, begun, f.read() == g.read()


def make_text(headers: Sequence[str]) -> str:
	"""The header that includes these."""
	return "".join("#include <%s>\n" % name for name in headers)


def pick(tasks: Sequence[Task.Task]) -> List[Task.Task]:
	"""Some of these, from all over the list."""
	return list(tasks[:: -(-len(tasks) // SAMPLES)])
