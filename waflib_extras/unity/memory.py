"""
What ``unity`` stores in the build folder: facts of files, plans of targets, and the sources that are compiled alone.

There are two files. Each build reads a small one. The other one has all facts, and is read when a plan has to be made
anew. The code that makes plans is imported only then, too. Both files are written under another name and renamed. A
file that cannot be read is treated as if it did not exist.
"""

import hashlib
import marshal
import os
import shutil
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
from ..facts.files import replace
from ..hooks import gc_pause
from . import seen

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Node import Node
	from waflib.TaskGen import task_gen

	from ..hooks import lifecycle
	from . import grouping, includes, planning, pragmas

FORMAT = 6
FACTS_VERSION = 2
"""The version of the facts that ``names`` and ``foreign`` find. Those of another version are not read."""
ENCODING = 2  # the version of marshal's format, which all interpreters know; ten times as fast as JSON
VERSION = "%d.%d" % (FORMAT, FACTS_VERSION)
PLANS, FACTS = ".unity-plans", ".unity-facts"
MANY_EDITED = 3
"""If at most so many sources of a target change at once, they count as edited. More are taken for an update."""
RESTED_BUILDS = 10
"""An edited source returns to the others after so many builds in which only others of its target have changed."""
RESTED_SECONDS = 8 * 3600
"""It also returns after so many seconds."""


MISSED_APART = "/"


EMPTY = b""  # a constant, as waf-light would join such a literal to the word before it

T = TypeVar("T")
StoredEntry = Tuple[int, List[int], int, List[str]]
"""A ``grouping.Entry`` in a form that ``marshal`` can write."""


class StoredPlan(TypedDict):
	"""The plan for a target's sources: a ``grouping.Plan``, and the headers of each source."""

	entries: List[StoredEntry]
	macros: Dict[str, List[str]]
	reasons: Dict[str, str]
	starts: List[int]
	headers: List[Optional[bytes]]
	"""For each source the packed numbers of its headers in ``Saved.files``; None if a header was not found."""


class Saved(TypedDict, total=False):
	"""The stored state of a target."""

	key: str
	"""The key of the plan. The fields from here to ``plan`` are set when there is a plan."""
	files: List[seen.SeenFile]
	"""The files that the plan depends on: the sources in their order, other files of the project, the system's."""
	missed: Dict[str, str]
	"""By folder: the names that were not found there, with ``MISSED_APART`` between them."""
	edited: Dict[str, Tuple[int, float]]
	splits: Dict[str, str]
	"""The sources before which a group is divided, and the edited source that had been in it."""
	plan: StoredPlan
	apart: Dict[str, Dict[str, str]]
	times: List[float]


class PlansFile(TypedDict):
	"""The file with the plans."""

	files: List[seen.StoredFile]
	"""The files that all plans depend on."""
	numbers: Dict[str, bytes]
	"""By target: the numbers of its files in this list."""
	targets: Dict[str, Dict[str, object]]
	"""Without their files."""


class FactsFile(TypedDict):
	"""The file with the facts of files."""

	facts: int
	"""The version of the code that reads them."""
	files: Dict[str, "includes.Record"]
	systems: Dict[str, "includes.Record"]
	folders: Dict[str, List[str]]
	"""The folders in which a compiler searches headers."""
	pragmas: Dict[str, Dict[str, bool]]
	"""By compiler and options: whether it ignores a pragma."""


class News(TypedDict):
	"""The findings of one process, for another one."""

	files: Dict[str, "includes.Record"]
	systems: Dict[str, "includes.Record"]
	folders: Dict[str, List[str]]
	pragmas: Dict[str, Dict[str, bool]]
	plans: PlansFile
	is_new: bool


class BuildMemory:
	"""All that is stored of one build folder."""

	def __init__(self, folder: str) -> None:
		self.folder = folder
		found = stamps.of_file(folder)
		self.device = found[stamps.DEVICE] if found else -1
		self.lock = threading.Lock()
		with gc_pause.without_collector():
			self.plans = unpack_plans(read(os.path.join(folder, PLANS)))
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
		"""The stamps of files when this build first looked."""
		self.unchanged: Dict[str, seen.SeenFile] = {}
		"""By path: the files that are as they were when a plan was made."""
		self.changed: Set[seen.SeenFile] = set()
		self.latest: Dict[str, seen.SeenFile] = {}
		"""By path: the files that were found when plans were made in this build."""
		self.nodes: Dict[str, Node] = {}
		self.sources = 0
		self.listed: Tuple[int, Dict[str, FrozenSet[str]]] = (-1, {})
		self.ahead: Optional[planning.Ahead] = None
		"""The processes that make plans of targets before their turn, if any."""
		self.told: List[str] = []
		"""The lines that are shown when the build ends."""
		self.look: Callable[[str], Optional[stamps.Stamp]] = stamps.of_file
		self.read: Callable[[str], Optional[bytes]] = read_content
		self.list: Callable[[str], FrozenSet[str]] = seen.list_folder
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

	def find_changed(self, files: Iterable[seen.SeenFile]) -> List[seen.SeenFile]:
		"""Those of these files whose content has changed. Each is looked at once."""
		unchanged, changed = self.unchanged, self.changed
		for file in files:
			if unchanged.get(file.path) is not file and file not in changed:
				self.check(file)
		return [] if changed.isdisjoint(files) else [file for file in files if file in changed]

	def check(self, file: seen.SeenFile) -> None:
		"""Look whether a file has changed. If only its stamp has, the stamp is updated."""
		path, stamp = file.path, self.stamp(file.path)
		if stamp != file.stamp:
			# taken before the file is read, so that a later change shows
			settled = stamps.settle(stamp)
			content = self.read(path) if settled and file.digest else None
			if content is None or hashlib.md5(content).digest() != file.digest:
				self.changed.add(file)
				return
			if settled != file.stamp:
				file.stamp = settled
				self.is_new = True
		self.unchanged[path] = file

	def find_digest(self, path: str) -> bytes:
		"""
		The MD5 of a file that a plan depends on; empty if it is not known.

		A task may have written the file since the plan was checked, so its stamp is looked at once more. Files on other
		file systems may get their times from another clock.
		"""
		file = self.unchanged.get(path)
		if file is None or file.stamp is None or file.stamp[stamps.DEVICE] != self.device:
			return EMPTY
		return file.digest if file.stamp == stamps.of_file(path) else EMPTY

	def note(self, path: str, stamp: Optional[stamps.Stamp], digest: bytes) -> seen.SeenFile:
		"""A file as it was found when a plan was made. Plans share it."""
		file = self.latest.get(path) or self.unchanged.get(path)
		if file is None or file.stamp != stamp or file.digest != digest:
			file = seen.SeenFile(path, stamp, digest)
		self.latest[path] = file
		return file

	def has_any(self, folder: str, missed: str) -> bool:
		"""Tell whether a file with one of these names is in a folder now."""
		if folder not in self.lists:
			self.lists[folder] = self.list(folder)
		if not self.lists[folder]:
			return False
		found = self.lists[folder].intersection(missed.split(MISSED_APART))
		return any(os.path.isfile(os.path.join(folder, name)) for name in found)

	def looks_away(self, checks: "lifecycle.Checks") -> None:
		"""Have a resident let the build go on although files have changed, if all plans still hold."""

		from . import names  # noqa: F401  # so that no time is lost with it when the run goes on

		def away(function: Callable[[str], T]) -> Callable[[str], T]:
			def call(path: str) -> T:
				with checks.away():
					return function(path)

			return call

		self.look, self.read, self.list = away(stamps.of_file), away(read_content), away(seen.list_folder)
		checks.append(lambda: self.holds_still(checks.look_at))

	def holds_still(self, look_at: Callable[[Iterable[str]], Dict[str, Optional[os.stat_result]]]) -> bool:
		"""Look at all files again, and tell whether the plans would be the same now."""
		before, self.look, self.read = self.stamps, stamps.of_file, read_content
		self.list, self.lists = seen.list_folder, {}
		found = look_at(before)
		self.stamps = {path: None if status is None else stamps.of_status(status) for path, status in found.items()}
		self.unchanged, self.changed = {}, set()
		now = time.time()
		return all((self.stamp(path) is None) == (stamp is None) for path, stamp in before.items()) and all(
			target.holds(key, now, is_cxx) for target, key, is_cxx in list(self.held)
		)

	def find_facts(self) -> FactsFile:
		"""The facts of files, read at the first call."""
		if self.facts is None:
			self.facts = read(os.path.join(self.folder, FACTS))
			if self.facts is None or self.facts.get("facts") != FACTS_VERSION:
				self.facts = {"facts": FACTS_VERSION, "files": {}, "systems": {}, "folders": {}, "pragmas": {}}
		return self.facts

	def open_facts(self) -> "includes.KnownFiles":
		from . import includes

		if self.known_files is None:
			self.known_files = includes.KnownFiles(self.find_facts()["files"])
		return self.known_files

	def system(self, folders: List[str]) -> "includes.System":
		from . import includes

		self.open_facts()
		key = os.pathsep.join(folders)
		if key not in self.systems:
			# a header has the same facts for all compilers
			self.systems[key] = includes.System(self.find_facts()["systems"], folders)
		return self.systems[key]

	def find_search(self, compiler: List[str], language: str) -> List[str]:
		"""The folders in which a compiler searches headers. It is asked once."""
		from . import includes

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

	def find_pragmas(self, compiler: List[str], options: List[str], language: str) -> "pragmas.Pragmas":
		"""The pragmas that a compiler with these options ignores. It is asked once for each."""
		from . import pragmas

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
			"plans": pack_plans({name: self.plans[name] for name in self.planned}),
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
		for name, saved in unpack_plans(told["plans"]).items():
			saved["files"] = [self.note(file.path, file.stamp, file.digest) for file in saved.get("files", ())]
			self.target(name).saved.update(saved)
			self.is_new = True
		self.has_new |= told["is_new"]

	def save(self) -> None:
		"""Store what is new."""
		with self.lock:
			if self.is_new:
				self.is_new = False
				write(os.path.join(self.folder, PLANS), pack_plans(self.plans))
			if self.known_files is not None and (self.has_new or self.take_new()["is_new"]):
				self.has_new = False
				write(os.path.join(self.folder, FACTS), self.find_facts())


def pack_plans(plans: Mapping[str, Saved]) -> PlansFile:
	"""The state of targets in a form that ``marshal`` can write."""
	files, numbers = seen.pack({name: saved["files"] for name, saved in plans.items() if "files" in saved})
	targets = {name: {key: value for key, value in saved.items() if key != "files"} for name, saved in plans.items()}
	return {"files": files, "numbers": numbers, "targets": targets}


def unpack_plans(stored: Optional[PlansFile]) -> Dict[str, Saved]:
	if stored is None:
		return {}
	plans: Dict[str, Any] = stored["targets"]
	for name, files in seen.unpack(stored["files"], stored["numbers"]).items():
		plans[name]["files"] = files
	return plans


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
		self.has_left = False
		"""Whether edited sources have left their groups in this build, and the plan was only corrected."""

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
		changed = self.remembered.find_changed(self.saved["files"])
		edited = self.saved["edited"]
		if changed:
			paths = {file.path for file in changed}
			edited = {path: (0, now) if path in paths else (edit[0] + 1, edit[1]) for path, edit in edited.items()}
		if any(is_rested(*edit, now) for edit in edited.values()):
			return False
		if changed and not self.follow(changed, edited, is_cxx, now if may_leave else None):
			return False
		self.remembered.held.append((self, key, is_cxx))
		return True

	def follow(
		self,
		changed: List[seen.SeenFile],
		edited: Dict[str, Tuple[int, float]],
		is_cxx: bool,
		leaving: Optional[float],
	) -> bool:
		"""
		Keep the plan if only files have changed that are compiled alone and keep their position.

		If the time of ``leaving`` is given, other sources whose position does not matter leave their groups then.
		"""
		from . import names

		numbers, starts = self.number_sources(), self.saved["plan"]["starts"]
		new = [file.path for file in changed if file.path not in edited]
		if new and (leaving is None or len(changed) > MANY_EDITED or not self.may_leave(new)):
			return False
		found = {}
		for path in [file.path for file in changed]:
			stamp = stamps.settle(self.remembered.stamp(path))
			content = self.remembered.read(path)
			if content is None or stamp is None:
				return False
			facts = names.read_facts(content.decode("latin-1"))
			if names.is_starting(facts, is_cxx) != (numbers[path] in starts):
				return False
			found[path] = self.remembered.note(path, stamp, hashlib.md5(content).digest())
		for path in new:
			self.leave(path)
		self.saved["files"] = [found.get(file.path, file) for file in self.saved["files"]]
		self.saved["edited"] = {**edited, **dict.fromkeys(new, (0, leaving or 0.0))}
		self.remembered.is_new = True
		self.has_left = self.has_left or bool(new)
		return True

	def find_sources(self) -> List[seen.SeenFile]:
		"""The sources of the plan, if there is one."""
		plan = self.saved.get("plan")
		return self.saved["files"][: len(plan["headers"])] if plan else []

	def number_sources(self) -> Dict[str, int]:
		"""The sources of the plan, with their numbers."""
		return {file.path: i for i, file in enumerate(self.find_sources())}

	def find_group(self, path: str) -> "Optional[grouping.Entry]":
		"""The group of a source; None if it is compiled alone."""
		from . import grouping

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
		from . import grouping

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
		from . import grouping

		splits = self.saved.setdefault("splits", {})
		group = self.find_group(path)
		if group:
			sources = self.find_sources()
			members = [i for i in group.members if sources[i].path != path]
			known = [sources[i].stamp for i in members]
			half = grouping.find_half(members, [stamp[stamps.SIZE] + grouping.FIXED if stamp else 0 for stamp in known])
			if half is not None:
				splits[sources[half].path] = path

	def keep(self, key: str, finder: "includes.Finder", ours: List[str], plan: StoredPlan) -> None:
		"""Keep a plan that depends on these files of the project."""
		known_files, note, known = finder.known_files, self.remembered.note, set(ours)
		self.saved["key"] = key
		self.saved["files"] = [
			*(note(path, known_files.stamp(path), bytes.fromhex(known_files.digest(path))) for path in ours),
			*(
				note(path, stamp, b"")
				for path, stamp in finder.system.find_stamps(finder.systems).items()
				if path not in known
			),
		]
		self.saved["missed"] = {folder: MISSED_APART.join(sorted(missed)) for folder, missed in finder.missed.items()}
		self.saved["plan"] = plan
		self.remembered.planned.add(self.name)
		self.remembered.is_new = True

	def find_away(self, known_files: "includes.KnownFiles", sources: List[str], is_adaptive: bool) -> Dict[str, str]:
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

	def find_edited(self, known_files: "includes.KnownFiles", sources: List[str]) -> Dict[str, Tuple[int, float]]:
		"""The sources that were edited lately: how many builds ago, of those in which others have changed, and when."""
		now = time.time()
		known = {file.path: file.digest.hex() for file in self.find_sources()}
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
			if any(seen.digest_of(each) != digest for each, digest in digests.items()):
				del apart[path]
				self.remembered.is_new = True
		return list(apart)

	def set_apart(self, path: str, others: List[str]) -> None:
		"""Remember that a source does not compile with these others. The plan is made anew the next time."""
		digests = {each: seen.digest_of(each) for each in [path, *others]}
		with self.remembered.lock:
			self.saved.setdefault("apart", {})[path] = digests
			self.saved["key"] = ""
			self.remembered.is_new = True

	def find_headers(self, members: Iterable[int]) -> Set[str]:
		"""The headers of the project that these sources include. All of them were found."""
		files, headers = self.saved["files"], self.plan["headers"]
		return {files[number].path for i in members for number in seen.unpack_numbers(headers[i] or EMPTY)}

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
	"""Write a file, whose folder may not be there yet."""
	content = marshal.dumps(found, ENCODING)  # type: ignore[arg-type]  # for the stubs, a TypedDict is no dict
	os.makedirs(os.path.dirname(path), exist_ok=True)
	replace(path, head_of(content) + content)


def head_of(content: bytes) -> bytes:
	"""The first line of a file, which identifies its content."""
	head = "unity %d %s\n" % (FORMAT, hashlib.md5(content).hexdigest())
	return head.encode()
