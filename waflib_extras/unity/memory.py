"""
What unity builds remember in the build folder: facts, plans of targets, who did not go together, who is edited.

Two files: a small one that each build reads, and one with all facts, which is read when a plan has to be made anew.
Both are written whole and put in place at once; one that cannot be read is as if it were not there.
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
)

from ..facts import stamps
from ..hooks import gc_pause
from . import grouping, includes, names

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Node import Node
	from waflib.TaskGen import task_gen

	from ..hooks import lifecycle
	from . import planning

FORMAT = 5
ENCODING = 2  # of marshal, which all interpreters know, and which is ten times as fast as JSON
VERSION = "%d.%d" % (FORMAT, names.VERSION)
PLANS, FACTS = ".unity-plans", ".unity-facts"
MANY_EDITED = 3
"""So many sources of a target may change at once and be taken for edited; more are an update from elsewhere."""
RESTED_BUILDS = 10
"""After so many builds in which others of its target changed, a source that did not is back with them."""
RESTED_SECONDS = 8 * 3600
"""So it is after this time."""


Entry = Tuple[int, List[int], int, List[str]]
"""A ``grouping.Entry`` as ``marshal`` keeps it."""


class Plan(TypedDict):
	"""What becomes of the sources of a target: a ``grouping.Plan``, and which headers it was made of."""

	entries: List[Entry]
	macros: Dict[str, List[str]]
	reasons: Dict[str, str]
	starts: List[int]
	files: List[str]
	headers: List[Optional[List[int]]]
	"""Of each source, the numbers of ``files``; none where a header was not found."""


class Saved(TypedDict, total=False):
	"""What is remembered of a target."""

	key: str
	"""Of the plan; what follows up to ``plan`` is there as soon as there is one."""
	stamps: Dict[str, Optional[stamps.Stamp]]
	missed: Dict[str, List[str]]
	digests: Dict[str, str]
	edited: Dict[str, Tuple[int, float]]
	plan: Plan
	apart: Dict[str, Dict[str, str]]
	times: List[float]


class Facts(TypedDict):
	"""All that is known of files."""

	facts: int
	"""The version of what reads them."""
	files: Dict[str, includes.Record]
	systems: Dict[str, includes.Record]
	folders: Dict[str, List[str]]
	"""Where a compiler looks for headers."""


class News(TypedDict):
	"""What one remembered has found out, for another one."""

	files: Dict[str, includes.Record]
	systems: Dict[str, includes.Record]
	folders: Dict[str, List[str]]
	plans: Dict[str, Saved]
	is_new: bool


class BuildMemory:
	"""All that is remembered of one build folder."""

	def __init__(self, folder: str) -> None:
		self.folder = folder
		self.lock = threading.Lock()
		self.plans: Dict[str, Saved] = read(os.path.join(folder, PLANS)) or {}
		"""By target and language."""
		self.is_new = False
		self.has_new = False
		"""There are facts that the known_files does not call new."""
		self.planned: Set[str] = set()
		"""The targets of new plans."""
		self.facts: Optional[Facts] = None
		self.known_files: Optional[includes.KnownFiles] = None
		self.systems: Dict[str, includes.System] = {}
		self.stamps: Dict[str, Optional[stamps.Stamp]] = {}
		"""Of files as they were when this build first looked: headers are in the plans of many targets."""
		self.nodes: Dict[str, Node] = {}
		self.collector = gc_pause.Collector()
		self.sources = 0
		self.listed: Tuple[int, Dict[str, FrozenSet[str]]] = (-1, {})
		self.ahead: Optional[planning.Ahead] = None
		"""Who makes plans of targets before their turn, if anybody does."""
		self.told: List[str] = []
		"""What is shown when the build ends."""
		self.look = stamps.of_file
		self.read = read_content
		self.list = list_folder
		self.lists: Dict[str, FrozenSet[str]] = {}
		"""What is in folders, as it was when this build first looked for plans."""
		self.held: List[Tuple[Target, str, bool]] = []
		"""The targets of which the plan was found to hold, and what for."""

	def target(self, name: str) -> "Target":
		return Target(self, name, self.plans.setdefault(name, {}))

	def stamp(self, path: str) -> Optional[stamps.Stamp]:
		if path not in self.stamps:
			self.stamps[path] = self.look(path)
		return self.stamps[path]

	def has_any(self, folder: str, names: Iterable[str]) -> bool:
		"""Whether a file with one of these names is in a folder by now."""
		if folder not in self.lists:
			self.lists[folder] = self.list(folder)
		found = self.lists[folder].intersection(names)
		return any(os.path.isfile(os.path.join(folder, name)) for name in found)

	def looks_away(self, checks: "lifecycle.Checks") -> None:
		"""Have the resident let the build go on from here although files have changed, if all plans still hold."""

		def look(path: str) -> Optional[stamps.Stamp]:
			with checks.away():
				return stamps.of_file(path)

		def read_away(path: str) -> Optional[bytes]:
			with checks.away():
				return read_content(path)

		def list_away(folder: str) -> FrozenSet[str]:
			with checks.away():
				return list_folder(folder)

		self.look, self.read, self.list = look, read_away, list_away
		checks.append(lambda: self.holds_still(checks.look_at))

	def holds_still(self, look_at: Callable[[Iterable[str]], Dict[str, Optional[os.stat_result]]]) -> bool:
		"""Look at all files again: what was planned is what would be planned now."""
		before, self.look, self.read = self.stamps, stamps.of_file, read_content
		self.list, self.lists = list_folder, {}
		found = look_at(before)
		self.stamps = {path: None if status is None else stamps.of_status(status) for path, status in found.items()}
		now = time.time()
		return all((self.stamp(path) is None) == (stamp is None) for path, stamp in before.items()) and all(
			target.holds(key, now, is_cxx) for target, key, is_cxx in list(self.held)
		)

	def find_facts(self) -> Facts:
		"""All facts; they are read when they are first asked for."""
		if self.facts is None:
			self.facts = read(os.path.join(self.folder, FACTS))
			if self.facts is None or self.facts.get("facts") != names.VERSION:
				self.facts = {"facts": names.VERSION, "files": {}, "systems": {}, "folders": {}}
		return self.facts

	def open_facts(self) -> includes.KnownFiles:
		if self.known_files is None:
			self.known_files = includes.KnownFiles(self.find_facts()["files"])
		return self.known_files

	def system(self, folders: List[str]) -> includes.System:
		self.open_facts()
		key = os.pathsep.join(folders)
		if key not in self.systems:
			# one file says the same to all compilers
			self.systems[key] = includes.System(self.find_facts()["systems"], folders)
		return self.systems[key]

	def find_search(self, compiler: List[str], language: str) -> List[str]:
		"""Where a compiler looks for headers; it is asked once."""
		self.open_facts()
		known = self.find_facts()["folders"]
		program = stamps.of_file(shutil.which(compiler[0]) or compiler[0]) if compiler else None
		key = "%s %s %s" % (" ".join(compiler), language, program)
		if key not in known:
			known[key] = includes.ask_search(compiler, "c++" if language == "cxx" else "c")
			self.has_new = True
		return known[key]

	def find_listed(self, group: int) -> Dict[str, FrozenSet[str]]:
		"""What is in folders, for all targets of a group: between two groups tasks run, and may make files."""
		if self.listed[0] != group:
			self.listed = group, {}
		return self.listed[1]

	def count_sources(self, bld: "BuildContext") -> int:
		"""The sources of all that is built, as far as they are known before any of it is."""
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
			"plans": {name: self.plans[name] for name in self.planned},
			"is_new": any(new),
		}
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
		for name, saved in told["plans"].items():
			self.target(name).saved.update(saved)
			self.is_new = True
		self.has_new |= told["is_new"]

	def save(self) -> None:
		"""Write down what is new."""
		with self.lock:
			if self.is_new:
				self.is_new = False
				write(os.path.join(self.folder, PLANS), self.plans)
			if self.known_files is not None and (self.has_new or self.take_new()["is_new"]):
				self.has_new = False
				write(os.path.join(self.folder, FACTS), self.find_facts())


def read_content(path: str) -> Optional[bytes]:
	try:
		with open(path, "rb") as f:
			return f.read()
	except OSError:
		return None


def list_folder(folder: str) -> FrozenSet[str]:
	try:
		return frozenset(os.listdir(folder or os.sep))
	except OSError:
		return frozenset()


def count_sources(gen: "task_gen") -> int:
	"""The sources that a task generator is given."""
	try:
		return len(gen.to_list(getattr(gen, "source", [])))
	except TypeError:  # a node
		return 1


class Target:
	"""What is remembered of the sources of one language in a target."""

	def __init__(self, remembered: BuildMemory, name: str, saved: Saved) -> None:
		self.remembered = remembered
		self.name = name
		self.saved = saved

	@property
	def plan(self) -> Plan:
		"""Not before there is one."""
		return self.saved["plan"]

	def holds(self, key: str, now: float, is_cxx: bool) -> bool:
		"""The plan is the one for what is there now, and nobody comes back."""
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
		if changed and not self.follow(changed, edited, is_cxx):
			return False
		self.remembered.held.append((self, key, is_cxx))
		return True

	def find_changed(self) -> List[str]:
		"""The files whose content is another; one that may be the same is read, and known by its stamp from then on."""
		saved, digests, stamp = self.saved["stamps"], self.saved["digests"], self.remembered.stamp
		changed = []
		for path in [path for path, known in saved.items() if stamp(path) != known]:
			# before it is read, so that a later change shows
			settled = stamps.settle(stamp(path))
			content = self.remembered.read(path) if settled and path in digests else None
			if content is None or hashlib.md5(content).hexdigest() != digests[path]:
				changed.append(path)
			elif settled != saved[path]:
				saved[path] = settled
				self.remembered.is_new = True
		return changed

	def follow(self, changed: List[str], edited: Dict[str, Tuple[int, float]], is_cxx: bool) -> bool:
		"""Keep the plan if only files have changed that are compiled alone by now, and that stay in their turn."""
		plan = self.saved["plan"]
		sources = list(self.saved["digests"])
		digests = {}
		found = {}
		for path in changed:
			if path not in edited:
				return False
			found[path] = stamps.settle(self.remembered.stamp(path))
			content = self.remembered.read(path)
			if content is None or found[path] is None:
				return False
			facts = names.read_facts(content.decode("latin-1"))
			if grouping.is_starting(facts, is_cxx) != (sources.index(path) in plan["starts"]):
				return False
			digests[path] = hashlib.md5(content).hexdigest()
		self.saved["stamps"].update(found)
		self.saved["digests"].update(digests)
		self.saved["edited"] = edited
		self.remembered.is_new = True
		return True

	def keep(
		self,
		key: str,
		finder: includes.Finder,
		sources: List[str],
		files: List[str],
		plan: Plan,
	) -> None:
		known_files = finder.known_files
		# headers that were too fresh are read again once
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
		"""The sources that are compiled alone for now, with the reason."""
		away = dict.fromkeys(self.find_apart(), "does not compile with others")
		edited = self.find_edited(known_files, sources) if is_adaptive else {}
		if edited != self.saved.get("edited"):
			self.saved["edited"] = edited
			self.remembered.is_new = True
		away.update((path, "is being edited") for path in edited)
		return away

	def find_edited(self, known_files: includes.KnownFiles, sources: List[str]) -> Dict[str, Tuple[int, float]]:
		"""Who changes lately: how many builds ago, counting those in which others changed, and when."""
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
		"""Who did not compile with others, as long as they are what they were."""
		apart = self.saved.get("apart", {})
		for path, digests in list(apart.items()):
			if any(includes.digest_of(each) != digest for each, digest in digests.items()):
				del apart[path]
				self.remembered.is_new = True
		return list(apart)

	def set_apart(self, path: str, others: List[str]) -> None:
		"""Remember that a source does not compile with these others; its plan is made anew next time."""
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
	"""What was written to a file, if that is there and whole."""
	try:
		with open(path, "rb") as f:
			head, content = f.readline(), f.read()
	except OSError:
		return None
	return marshal.loads(content) if head == head_of(content) else None


def write(path: str, found: Mapping[str, object]) -> None:
	"""Put a file in its place at once."""
	content = marshal.dumps(found, ENCODING)  # type: ignore[arg-type]  # in the stubs a TypedDict is no dict
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
	"""The first line of a file, which tells what follows."""
	head = "unity %d %s\n" % (FORMAT, hashlib.md5(content).hexdigest())
	return head.encode()
