"""
What ``unity`` stores in the build folder: facts of files, plans of targets, and the sources that are compiled alone.

There are two files. Each build reads a small one. The other one has all facts, and is read when a plan has to be made
anew. Both are written under another name and renamed. A file that cannot be read is treated as if it did not exist.
"""

import hashlib
import marshal
import os
import shutil
import tempfile
import threading
import time
from typing import (
	TYPE_CHECKING,
	Any,
	Callable,
	Dict,
	FrozenSet,
	Iterable,
	List,
	Mapping,
	Optional,
	Set,
	Tuple,
	TypedDict,
	TypeVar,
)

from ..facts import stamps
from ..hooks import gc_pause
from . import grouping, includes, names, pragmas

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Node import Node
	from waflib.TaskGen import task_gen

	from ..hooks import lifecycle
	from . import planning

FORMAT = 5
ENCODING = 2  # the version of marshal's format, which all interpreters know; ten times as fast as JSON
VERSION = "%d.%d" % (FORMAT, names.VERSION)
PLANS, FACTS = ".unity-plans", ".unity-facts"
MANY_EDITED = 3
"""If at most so many sources of a target change at once, they count as edited. More are taken for an update."""
RESTED_BUILDS = 10
"""An edited source returns to the others after so many builds in which only others of its target have changed."""
RESTED_SECONDS = 8 * 3600
"""It also returns after so many seconds."""


T = TypeVar("T")
StoredEntry = Tuple[int, List[int], int, List[str]]
"""A ``grouping.Entry`` in a form that ``marshal`` can write."""


class StoredPlan(TypedDict):
	"""The plan for a target's sources: a ``grouping.Plan``, and the headers that it depends on."""

	entries: List[StoredEntry]
	macros: Dict[str, List[str]]
	reasons: Dict[str, str]
	starts: List[int]
	files: List[str]
	headers: List[Optional[List[int]]]
	"""For each source the numbers of its headers in ``files``; None if a header was not found."""


class Saved(TypedDict, total=False):
	"""The stored state of a target."""

	key: str
	"""The key of the plan. The fields from here to ``plan`` are set when there is a plan."""
	stamps: Dict[str, Optional[stamps.Stamp]]
	missed: Dict[str, List[str]]
	digests: Dict[str, str]
	edited: Dict[str, Tuple[int, float]]
	splits: Dict[str, str]
	"""The sources before which a group is divided, and the edited source that had been in it."""
	plan: StoredPlan
	apart: Dict[str, Dict[str, str]]
	times: List[float]


class FactsFile(TypedDict):
	"""The file with the facts of files."""

	facts: int
	"""The version of the code that reads them."""
	files: Dict[str, includes.Record]
	systems: Dict[str, includes.Record]
	folders: Dict[str, List[str]]
	"""The folders in which a compiler searches headers."""
	pragmas: Dict[str, Dict[str, bool]]
	"""By compiler and options: whether it ignores a pragma."""


class News(TypedDict):
	"""The findings of one process, for another one."""

	files: Dict[str, includes.Record]
	systems: Dict[str, includes.Record]
	folders: Dict[str, List[str]]
	pragmas: Dict[str, Dict[str, bool]]
	plans: Dict[str, Saved]
	is_new: bool


class BuildMemory:
	"""All that is stored of one build folder."""

	def __init__(self, folder: str) -> None:
		self.folder = folder
		self.lock = threading.Lock()
		self.plans: Dict[str, Saved] = read(os.path.join(folder, PLANS)) or {}
		"""By target and language."""
		self.is_new = False
		self.has_new = False
		"""Whether there are new facts besides those in ``known_files``."""
		self.planned: Set[str] = set()
		"""The targets whose plans are new."""
		self.facts: Optional[FactsFile] = None
		self.known_files: Optional[includes.KnownFiles] = None
		self.systems: Dict[str, includes.System] = {}
		self.compilers: Dict[str, str] = {}
		self.pragmas: Dict[str, pragmas.Pragmas] = {}
		self.stamps: Dict[str, Optional[stamps.Stamp]] = {}
		"""The stamps of files when this build first looked, since many plans depend on the same headers."""
		self.nodes: Dict[str, Node] = {}
		self.collector = gc_pause.Collector()
		self.sources = 0
		self.listed: Tuple[int, Dict[str, FrozenSet[str]]] = (-1, {})
		self.ahead: Optional[planning.Ahead] = None
		"""The processes that make plans of targets before their turn, if any."""
		self.told: List[str] = []
		"""The lines that are shown when the build ends."""
		self.look: Callable[[str], Optional[stamps.Stamp]] = stamps.of_file
		self.read: Callable[[str], Optional[bytes]] = read_content
		self.list: Callable[[str], FrozenSet[str]] = includes.list_folder
		self.lists: Dict[str, FrozenSet[str]] = {}
		"""The names in folders when this build first checked plans."""
		self.held: List[Tuple[Target, str, bool]] = []
		"""The targets whose plans still hold, with the arguments of that check."""

	def target(self, name: str) -> "Target":
		return Target(self, name, self.plans.setdefault(name, {}))

	def stamp(self, path: str) -> Optional[stamps.Stamp]:
		if path not in self.stamps:
			self.stamps[path] = self.look(path)
		return self.stamps[path]

	def has_any(self, folder: str, names: Iterable[str]) -> bool:
		"""Tell whether a file with one of these names is in a folder now."""
		if folder not in self.lists:
			self.lists[folder] = self.list(folder)
		found = self.lists[folder].intersection(names)
		return any(os.path.isfile(os.path.join(folder, name)) for name in found)

	def looks_away(self, checks: "lifecycle.Checks") -> None:
		"""Have a resident let the build go on although files have changed, if all plans still hold."""

		def away(function: Callable[[str], T]) -> Callable[[str], T]:
			def call(path: str) -> T:
				with checks.away():
					return function(path)

			return call

		self.look, self.read, self.list = away(stamps.of_file), away(read_content), away(includes.list_folder)
		checks.append(lambda: self.holds_still(checks.look_at))

	def holds_still(self, look_at: Callable[[Iterable[str]], Dict[str, Optional[os.stat_result]]]) -> bool:
		"""Look at all files again, and tell whether the plans would be the same now."""
		before, self.look, self.read = self.stamps, stamps.of_file, read_content
		self.list, self.lists = includes.list_folder, {}
		found = look_at(before)
		self.stamps = {path: None if status is None else stamps.of_status(status) for path, status in found.items()}
		now = time.time()
		return all((self.stamp(path) is None) == (stamp is None) for path, stamp in before.items()) and all(
			target.holds(key, now, is_cxx) for target, key, is_cxx in list(self.held)
		)

	def find_facts(self) -> FactsFile:
		"""The facts of files, read at the first call."""
		if self.facts is None:
			self.facts = read(os.path.join(self.folder, FACTS))
			if self.facts is None or self.facts.get("facts") != names.VERSION:
				self.facts = {"facts": names.VERSION, "files": {}, "systems": {}, "folders": {}, "pragmas": {}}
		return self.facts

	def open_facts(self) -> includes.KnownFiles:
		if self.known_files is None:
			self.known_files = includes.KnownFiles(self.find_facts()["files"])
		return self.known_files

	def system(self, folders: List[str]) -> includes.System:
		self.open_facts()
		key = os.pathsep.join(folders)
		if key not in self.systems:
			# a header has the same facts for all compilers
			self.systems[key] = includes.System(self.find_facts()["systems"], folders)
		return self.systems[key]

	def find_search(self, compiler: List[str], language: str) -> List[str]:
		"""The folders in which a compiler searches headers. It is asked once."""
		self.open_facts()
		known = self.find_facts()["folders"]
		key = self.identify(compiler, language)
		if key not in known:
			known[key] = includes.ask_search(compiler, name_language(language))
			self.has_new = True
		return known[key]

	def identify(self, compiler: List[str], language: str) -> str:
		"""A text that differs for each compiler, and after each change of its program."""
		key = " ".join([*compiler, language])
		if key not in self.compilers:
			program = stamps.of_file(shutil.which(compiler[0]) or compiler[0]) if compiler else None
			self.compilers[key] = "%s %s" % (key, program)
		return self.compilers[key]

	def find_pragmas(self, compiler: List[str], options: List[str], language: str) -> pragmas.Pragmas:
		"""The pragmas that a compiler with these options ignores. It is asked once for each."""
		self.open_facts()
		key = " ".join([self.identify(compiler, language), *options])
		if key not in self.pragmas:
			known = self.find_facts()["pragmas"].setdefault(key, {})
			self.pragmas[key] = pragmas.Pragmas(known, compiler, options, name_language(language))
		return self.pragmas[key]

	def find_listed(self, group: int) -> Dict[str, FrozenSet[str]]:
		"""The names in folders, for all targets of a group. Between two groups, tasks run and may make files."""
		if self.listed[0] != group:
			self.listed = group, {}
		return self.listed[1]

	def count_sources(self, bld: "BuildContext") -> int:
		"""The number of all sources, as far as they are known before the build."""
		if not self.sources:
			gens = [each for group in bld.groups for each in group if hasattr(each, "features")]
			self.sources = sum(map(count_sources, gens))
		return self.sources

	def find_node(self, bld: "BuildContext", path: str) -> "Node":
		if path not in self.nodes:
			self.nodes[path] = bld.root.make_node(path)
		return self.nodes[path]

	def take_new(self) -> News:
		"""The facts and plans since the last call, for another process with the same build folder."""
		new = [self.open_facts().new, *(system.new for system in self.systems.values())]
		told: News = {
			"files": dict(new[0]),
			"systems": {path: each for news in new[1:] for path, each in news.items()},
			"folders": dict(self.find_facts()["folders"]),
			"pragmas": {key: dict(known) for key, known in self.find_facts()["pragmas"].items()},
			"plans": {name: self.plans[name] for name in self.planned},
			"is_new": any(new) or any(each.has_new for each in self.pragmas.values()),
		}
		for each in self.pragmas.values():
			each.has_new = False
		for news in new:
			news.clear()
		self.planned.clear()
		return told

	def put_new(self, told: News) -> None:
		self.open_facts()
		facts = self.find_facts()
		facts["files"].update(told["files"])
		facts["systems"].update(told["systems"])
		facts["folders"].update(told["folders"])
		for key, known in told["pragmas"].items():
			facts["pragmas"].setdefault(key, {}).update(known)
		for name, saved in told["plans"].items():
			self.target(name).saved.update(saved)
			self.is_new = True
		self.has_new |= told["is_new"]

	def save(self) -> None:
		"""Store what is new."""
		with self.lock:
			if self.is_new:
				self.is_new = False
				write(os.path.join(self.folder, PLANS), self.plans)
			if self.known_files is not None and (self.has_new or self.take_new()["is_new"]):
				self.has_new = False
				write(os.path.join(self.folder, FACTS), self.find_facts())


def name_language(language: str) -> str:
	"""The compilers' name of a language."""
	return "c++" if language == "cxx" else "c"


def read_content(path: str) -> Optional[bytes]:
	try:
		with open(path, "rb") as f:
			return f.read()
	except OSError:
		return None


def count_sources(gen: "task_gen") -> int:
	"""The number of sources that a task generator is given."""
	try:
		return len(gen.to_list(getattr(gen, "source", [])))
	except TypeError:  # it is a node
		return 1


class Target:
	"""The stored state of the sources of one language in a target."""

	def __init__(self, remembered: BuildMemory, name: str, saved: Saved) -> None:
		self.remembered = remembered
		self.name = name
		self.saved = saved

	@property
	def splits(self) -> Dict[str, str]:
		return self.saved.get("splits", {})

	@property
	def plan(self) -> StoredPlan:
		"""The plan, if there is one."""
		return self.saved["plan"]

	def holds(self, key: str, now: float, is_cxx: bool, may_leave: bool = False) -> bool:
		"""
		Tell whether the plan still holds, and no edited source returns to the others.

		If a source ``may_leave``, a plan holds also if it has to be changed only for sources that are edited first now.
		"""
		if self.saved.get("key") != key:
			return False
		if any(self.remembered.has_any(folder, missed) for folder, missed in self.saved["missed"].items()):
			return False
		changed = self.find_changed()
		edited = self.saved["edited"]
		if changed:
			edited = {path: (0, now) if path in changed else (edit[0] + 1, edit[1]) for path, edit in edited.items()}
		if any(is_rested(*edit, now) for edit in edited.values()):
			return False
		if changed and not self.follow(changed, edited, is_cxx, now if may_leave else None):
			return False
		self.remembered.held.append((self, key, is_cxx))
		return True

	def find_changed(self) -> List[str]:
		"""The files whose content has changed. If only the stamp has changed, it is updated."""
		saved, digests, stamp = self.saved["stamps"], self.saved["digests"], self.remembered.stamp
		changed = []
		for path in [path for path, known in saved.items() if stamp(path) != known]:
			# taken before the file is read, so that a later change shows
			settled = stamps.settle(stamp(path))
			content = self.remembered.read(path) if settled and path in digests else None
			if content is None or hashlib.md5(content).hexdigest() != digests[path]:
				changed.append(path)
			elif settled != saved[path]:
				saved[path] = settled
				self.remembered.is_new = True
		return changed

	def follow(
		self, changed: List[str], edited: Dict[str, Tuple[int, float]], is_cxx: bool, leaving: Optional[float]
	) -> bool:
		"""
		Keep the plan if only files have changed that are compiled alone and keep their position.

		If the time of ``leaving`` is given, other sources whose position does not matter leave their groups then.
		"""
		plan = self.saved["plan"]
		numbers = self.number_sources()
		new = [path for path in changed if path not in edited]
		if new and (leaving is None or len(changed) > MANY_EDITED or not self.may_leave(new)):
			return False
		digests = {}
		found = {}
		for path in changed:
			found[path] = stamps.settle(self.remembered.stamp(path))
			content = self.remembered.read(path)
			if content is None or found[path] is None:
				return False
			facts = names.read_facts(content.decode("latin-1"))
			if grouping.is_starting(facts, is_cxx) != (numbers[path] in plan["starts"]):
				return False
			digests[path] = hashlib.md5(content).hexdigest()
		for path in new:
			self.leave(path)
		self.saved["stamps"].update(found)
		self.saved["digests"].update(digests)
		self.saved["edited"] = {**edited, **dict.fromkeys(new, (0, leaving or 0.0))}
		self.remembered.is_new = True
		return True

	def number_sources(self) -> Dict[str, int]:
		"""The sources of the plan, with their numbers."""
		plan = self.saved.get("plan")
		paths = list(self.saved["digests"])[: len(plan["headers"])] if plan else []
		return {path: i for i, path in enumerate(paths)}

	def find_group(self, path: str) -> Optional[grouping.Entry]:
		"""The group of a source; None if it is compiled alone."""
		i = self.number_sources().get(path)
		for entry in map(grouping.Entry._make, self.saved["plan"]["entries"]) if i is not None else ():
			if i in entry.members and entry.anchor >= 0:
				return entry
		return None

	def may_leave(self, paths: List[str]) -> bool:
		"""Tell whether these are sources that can leave their groups without any other change."""
		numbers, starts = self.number_sources(), self.saved["plan"]["starts"]
		groups = [self.find_group(path) for path in paths]
		return all(path in numbers and numbers[path] not in starts for path in paths) and not any(
			group.early for group in groups if group
		)

	def leave(self, path: str) -> None:
		"""Take a source out of its group."""
		plan = self.saved["plan"]
		self.split(path)
		numbers = self.number_sources()
		splits = {numbers[each] for each in self.saved["splits"] if each in numbers}
		entries = map(grouping.Entry._make, plan["entries"])
		left = grouping.take_out(entries, numbers[path], set(plan["starts"]), splits)
		plan["entries"] = [(entry.place, entry.members, entry.anchor, entry.early) for entry in left]
		plan["reasons"][str(numbers[path])] = "is being edited"
		self.remembered.planned.add(self.name)

	def split(self, path: str) -> None:
		"""Have the group of a source divided, so that two compiles can run at once and a next edit costs less."""
		splits = self.saved.setdefault("splits", {})
		group = self.find_group(path)
		if group:
			paths, saved = list(self.number_sources()), self.saved["stamps"]
			members = [i for i in group.members if paths[i] != path]
			known = [saved.get(paths[i]) for i in members]
			half = grouping.find_half(members, [stamp[stamps.SIZE] + grouping.FIXED if stamp else 0 for stamp in known])
			if half is not None:
				splits[paths[half]] = path

	def keep(
		self,
		key: str,
		finder: includes.Finder,
		sources: List[str],
		files: List[str],
		plan: StoredPlan,
	) -> None:
		known_files = finder.known_files
		# headers that were too fresh are read once more
		fresh = [path for path in files if stamps.is_unsettled(known_files.stamp(path))]
		self.saved["key"] = key
		self.saved["stamps"] = {
			**finder.system.find_stamps(finder.systems),
			**{path: known_files.stamp(path) for path in files},
		}
		self.saved["missed"] = {folder: sorted(missed) for folder, missed in finder.missed.items()}
		self.saved["digests"] = {path: known_files.digest(path) for path in [*sources, *fresh]}
		self.saved["plan"] = plan
		self.remembered.planned.add(self.name)
		self.remembered.is_new = True

	def find_away(self, known_files: includes.KnownFiles, sources: List[str], is_adaptive: bool) -> Dict[str, str]:
		"""The sources that are compiled alone for now, with the reasons."""
		away = dict.fromkeys(self.find_apart(), "does not compile with others")
		edited = self.find_edited(known_files, sources) if is_adaptive else {}
		before = self.saved.get("edited", {})
		if edited != self.saved.get("edited"):
			for path in edited:
				if path not in before:
					self.split(path)
			# when a source comes back, its group is whole again
			splits = self.saved.get("splits", {})
			self.saved["splits"] = {first: path for first, path in splits.items() if path in edited}
			self.saved["edited"] = edited
			self.remembered.is_new = True
		away.update((path, "is being edited") for path in edited)
		return away

	def find_edited(self, known_files: includes.KnownFiles, sources: List[str]) -> Dict[str, Tuple[int, float]]:
		"""The sources that were edited lately: how many builds ago, of those in which others have changed, and when."""
		now = time.time()
		known = self.saved.get("digests", {})
		edited = {path: (edit[0], edit[1]) for path, edit in self.saved.get("edited", {}).items() if path in sources}
		changed = [path for path in sources if path in known and known[path] != known_files.digest(path)]
		for path, (builds, when) in list(edited.items()):
			edited[path] = (builds + bool(changed), when)
			if is_rested(*edited[path], now):
				del edited[path]
		if len(changed) <= MANY_EDITED:
			edited.update((path, (0, now)) for path in changed)
		return edited

	def find_apart(self) -> List[str]:
		"""The sources that did not compile with others, as long as all of them are unchanged."""
		apart = self.saved.get("apart", {})
		for path, digests in list(apart.items()):
			if any(includes.digest_of(each) != digest for each, digest in digests.items()):
				del apart[path]
				self.remembered.is_new = True
		return list(apart)

	def set_apart(self, path: str, others: List[str]) -> None:
		"""Remember that a source does not compile with these others. The plan is made anew the next time."""
		digests = {each: includes.digest_of(each) for each in [path, *others]}
		with self.remembered.lock:
			self.saved.setdefault("apart", {})[path] = digests
			self.saved["key"] = ""
			self.remembered.is_new = True

	# ---- what it gains

	def note_times(self, alone: float, together: float, count: int) -> None:
		with self.remembered.lock:
			self.saved["times"] = [alone, together, count]
			self.remembered.is_new = True

	@property
	def times(self) -> Optional[List[float]]:
		return self.saved.get("times")


def is_rested(builds: int, when: float, now: float) -> bool:
	return builds > RESTED_BUILDS or not 0 <= now - when < RESTED_SECONDS


def read(path: str) -> Any:
	"""The content of a file, if it exists and is complete."""
	try:
		with open(path, "rb") as f:
			head, content = f.readline(), f.read()
	except OSError:
		return None
	return marshal.loads(content) if head == head_of(content) else None


def write(path: str, found: Mapping[str, object]) -> None:
	"""Write a file under another name, and rename it."""
	content = marshal.dumps(found, ENCODING)  # type: ignore[arg-type]  # for the stubs, a TypedDict is no dict
	folder, name = os.path.split(path)
	os.makedirs(folder, exist_ok=True)
	handle, temporary = tempfile.mkstemp(prefix=name, dir=folder)
	try:
		with os.fdopen(handle, "wb") as f:
			f.write(head_of(content) + content)
		os.replace(temporary, path)
	except BaseException:
		os.unlink(temporary)
		raise


def head_of(content: bytes) -> bytes:
	"""The first line of a file, which identifies its content."""
	head = "unity %d %s\n" % (FORMAT, hashlib.md5(content).hexdigest())
	return head.encode()
