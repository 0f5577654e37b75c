"""
Decides which sources are compiled together.

Pure: names, weights and facts go in, groups come out, the same on every machine. First the list is cut where the names
alone decide, so that a new name hardly changes any group but its own. Then each group is split into pieces, whose
sources cannot affect each other.
"""

import hashlib
from typing import Callable, Container, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import declarations, names
from .views import NOTHING, View, Views

UNIT = 1 << 16
"""The weight of a group at most."""
LEAST = UNIT * 2 // 5
"""The weight of a group at least, if there are enough sources."""
SMALL, LARGE = 64 << 10, 512 << 10
"""The size of a group's sources in bytes: at least, if there are enough, and at most."""
MANY = 16
"""Groups get larger than the smallest size only if a build has so many, since machines may have many slots."""
FIXED = 256
"""Each file counts so many bytes more than it has."""
DIVIDED = 16
"""If a source leaves so many others, they are compiled in two halves from then on."""


# ---- where the list is cut


def weigh(sizes: Sequence[int], most: int, others: int = 1) -> List[int]:
	"""
	The weights of files of these sizes. They are coarse, so that edits do not change them.

	A group may have at most ``most`` files. The build has ``others`` times as many sources as are here.
	"""
	rounded = [1 << (size + FIXED).bit_length() for size in sizes]
	share = 1 << (max(sum(rounded) * others // MANY, 1) - 1).bit_length()
	bytes_of_group = min(max(share, SMALL), LARGE)
	return [max(UNIT * size // bytes_of_group, -(-UNIT // most)) for size in rounded]


def cut(keys: Sequence[str], weights: Sequence[int]) -> List[range]:
	"""
	Cut a list into groups of at most ``UNIT``, unless a single item weighs more.

	A group ends before the name with the highest digest, of all names before which it could end. So after an insertion
	the next cuts fall on the same names again as soon as one of them does.
	"""
	groups = []
	start = 0
	while start < len(keys):
		end = find_end(keys, weights, start)
		groups.append(range(start, end))
		start = end
	return groups


def find_end(keys: Sequence[str], weights: Sequence[int], start: int) -> int:
	total = 0
	best, best_rank = 0, b""
	for i in range(start, len(keys)):
		if i > start and total + weights[i] > UNIT:
			return best or i
		if i > start and total >= LEAST:
			found = rank(keys[i])
			if found > best_rank:
				best, best_rank = i, found
		total += weights[i]
	return len(keys)


def rank(key: str) -> bytes:
	return hashlib.md5(key.encode("utf-8", "surrogateescape")).digest()


# ---- which sources may share a piece


class LeftName(NamedTuple):
	"""A name that a source in a piece leaves behind."""

	kind: str
	space: str
	owner: str


MACRO = "m"


class File(NamedTuple):
	"""A source or header of the project, with its facts parsed."""

	path: str
	facts: names.Facts
	words: Set[str]
	members: Set[str]
	spaces: Set[str]
	quals: Set[str]
	hidden: Set[str]
	"""The names that it declares for itself only."""
	declared: Set[str]
	variables: Set[Tuple[str, str]]
	"""Of these, the variables of the whole program, with their namespaces."""
	tags: Set[str]
	left: List[Tuple[str, LeftName]]
	"""The names that it leaves behind, without macros."""
	is_plain: bool
	"""None of its facts needs special treatment."""


def open_facts(path: str, facts: names.Facts) -> File:
	spaces = {""}
	for space in facts.spaces.split():
		spaces.update(space[:i] for i in range(len(space)) if space[i] == ":" and space[i - 1] != ":")
		spaces.add(space)
	leaves = [leaf.split(" ") for leaf in facts.leaves]
	return File(
		path,
		facts,
		set(facts.words.split()),
		set(facts.members.split()),
		spaces,
		set(facts.quals.split()),
		{name for kind, _, name in leaves if kind not in (declarations.EXTERNAL, declarations.VARIABLE)},
		{name for _, _, name in leaves},
		{(space, name) for kind, space, name in leaves if kind == declarations.VARIABLE},
		set(facts.tags.split()),
		[(name, LeftName(kind, space, path)) for kind, space, name in leaves],
		not (facts.alone or facts.last or facts.operator or facts.own or facts.usings or facts.pragmas),
	)


class Source(NamedTuple):
	"""A source with all headers of the project that it includes."""

	file: File
	headers: Dict[str, File]
	"""In the order in which they are read."""
	systems: Dict[str, FrozenSet[str]]
	"""The other headers that it includes, with the macros that they define."""
	is_found: bool
	"""Whether all headers that it includes exist already."""
	prelude: str
	"""The directives before its last include that change how headers are read."""
	features: str
	"""The macros by which it controls headers of the system."""
	usings: Set[str]
	early: List[str]
	"""If it has a using directive: the headers that could come before everything else, by the compiler's names."""
	is_early: bool
	"""Whether all its headers could be included before everything else."""
	odd: List[File]
	"""Its headers that are not plain."""
	inner_pragma: str
	"""A pragma in a header that changes how others are read, as words for the user; empty if there is none."""
	left_pragma: str
	"""A pragma that stays in force after it, as words for the user; empty if there is none."""
	inner: Callable[[File], Tuple[Dict[str, File], Set[str]]]
	"""What one of its headers includes itself: headers of the project, and includes of the system's."""

	@property
	def kind(self) -> Tuple[str, str, Tuple[str, ...]]:
		"""Only sources with the same kind share a piece."""
		return self.prelude, self.features, tuple(sorted(self.usings))

	def starts(self, is_cxx: bool) -> bool:
		"""Tell whether code of it may run before ``main``, so that its position matters."""
		return names.is_starting(self.file.facts, is_cxx)

	@property
	def alone(self) -> str:
		"""Why it has to be compiled alone; empty if it has not."""
		for file in self.odd:
			if file.facts.alone:
				return "%s (in a header)" % file.facts.alone
		return self.file.facts.alone or self.inner_pragma

	@property
	def last(self) -> str:
		"""Why nothing may come after it; empty if anything may."""
		for file in self.odd:
			if file.facts.last:
				return "%s (in a header)" % file.facts.last
		if self.left_pragma:
			return self.left_pragma
		for name in self.macros:
			if any(name in file.facts.macros for file in self.headers.values()):
				return "defines the macro %s of a header again" % name
		if self.file.facts.takes:
			return "takes away the macro %s of others" % self.file.facts.takes
		if self.file.facts.operator:
			return "has an operator at file scope"
		return self.file.facts.last

	@property
	def macros(self) -> List[str]:
		"""The macros that it defines, which are undefined after it."""
		return [name for name, text in self.file.facts.macros.items() if text]


class Piece:
	"""Sources that can be compiled as one."""

	def __init__(self, is_cxx: bool, views: Views, can_push: bool = True) -> None:
		self.is_cxx = is_cxx
		self.known_views = views
		self.can_push = can_push
		"""Whether the compiler can save and restore macros."""
		self.members: List[Source] = []
		self.files: Set[str] = set()
		self.systems: Set[str] = set()
		self.foreign: Set[str] = set()
		"""The macros of included headers of the system."""
		self.own: Set[str] = set()
		"""Headers with something that each source must have for itself."""
		self.reach: Dict[str, Set[str]] = {}
		"""By file: the headers that came with it."""
		self.has_start = False
		self.left: Dict[str, List[LeftName]] = {}
		self.known: Set[str] = set()
		"""The names that are left behind."""
		self.hidden: Set[str] = set()
		self.greedy: Set[str] = set()
		"""Headers with operators that any source could use."""
		self.views: Dict[str, View] = {}
		"""By header that is read once: what it saw of others. Headers that saw nothing are left out."""
		self.closed = ""

	def find_objection(self, source: Source) -> str:
		"""Why a source cannot come next; empty if it can."""
		if self.closed:
			return self.closed
		if not self.greedy <= source.headers.keys():
			return "does not have the operators of %s" % min(self.greedy - source.headers.keys())
		if source.usings and not source.is_early:
			return "its headers may be read by what is used in others"
		if not self.own.isdisjoint(source.headers):
			header = min(self.own.intersection(source.headers))
			return "%s, which %s gives to each" % (source.headers[header].facts.own, header)
		spaces = {using.split("namespace ")[1].replace(" ", "") for using in source.usings if "namespace " in using}
		for file in [source.file, *source.headers.values()]:
			if file is source.file or file.path not in self.files or not file.facts.guard:
				found = self.find_noticed(source, file, spaces)
				if found:
					return found
			elif self.views.get(file.path, NOTHING) != self.known_views.see(source, file):
				return self.tell_view(source, file)
		return ""

	def tell_view(self, source: Source, file: File) -> str:
		"""Why a header that was read does not mean what it means to a source, as words for the user."""
		were, are = self.views.get(file.path, NOTHING), self.known_views.see(source, file)
		for owner in sorted(were.definers ^ are.definers):
			return "macros of %s, for which %s asks" % (owner, file.path)
		return "%s, for which %s asks" % (min(were.foreign ^ are.foreign), file.path)

	def find_noticed(self, source: Source, file: File, spaces: Set[str]) -> str:
		"""A name of earlier sources that would affect a file of a source, as words for the user."""
		for name in sorted(self.foreign.intersection(file.words)):
			if not any(name in macros for macros in source.systems.values()):
				return "%s, which headers of the system define that it does not include" % name
		for name in sorted(file.words & self.known):
			for left in self.left[name]:
				if self.is_noticed(source, file, name, left, spaces):
					return "%s, which %s leaves" % (name, left.owner)
		for name in sorted(file.members & self.known):
			for left in self.left[name]:
				if left.kind == MACRO and not self.is_own(source, file, left):
					return "%s, which %s leaves" % (name, left.owner)
		return ""

	def is_noticed(self, source: Source, file: File, name: str, left: LeftName, spaces: Set[str]) -> bool:
		if left.kind == MACRO:
			return not self.is_own(source, file, left)
		if has_guarded(source, left.owner):
			return False  # the source includes it itself
		is_seen = left.space in file.spaces or left.space in spaces or not file.quals.isdisjoint(left.space.split("::"))
		if not is_seen:
			return False
		if left.kind == declarations.TAG:
			return name in file.declared or not any(
				name in each.tags for each in [source.file, *source.headers.values()]
			)
		if left.kind == declarations.VARIABLE and self.is_cxx:
			# a variable has no overloads: if the source declares it, this is the same one
			files = [source.file, *source.headers.values()]
			return name in file.hidden or not any((left.space, name) in each.variables for each in files)
		if left.kind in (declarations.EXTERNAL, declarations.VARIABLE):
			if not self.is_cxx:
				return name in file.hidden
			# it is an overload that the source does not know, unless both include its header
			both = self.reach[left.owner].intersection(source.headers)
			return not any(name in source.headers[header].declared for header in both)
		return True

	def is_own(self, source: Source, file: File, left: LeftName) -> bool:
		"""Tell whether a file sees a macro of a header also if its source is compiled alone."""
		if not has_guarded(source, left.owner):
			return False
		is_other = file is not source.file and left.owner in self.known_views.find(source, file).definers
		return not is_other or self.known_views.comes_before(source, left.owner, file.path)

	def add(self, source: Source) -> None:
		self.members.append(source)
		reach = set(source.headers)
		for path in reach - self.files:
			file = source.headers[path]
			asked, seen = self.known_views.find(source, file), self.known_views.see(source, file)
			view = View(seen.definers | (asked.definers & self.files), seen.foreign | (asked.foreign & self.foreign))
			if view != NOTHING:
				self.views[path] = view
			self.reach[path] = reach
			self.leave(file, file.facts.macros)
			if not file.is_plain:
				if file.facts.operator == "any":
					self.greedy.add(file.path)
				if file.facts.own and file.facts.guard:
					self.own.add(file.path)
		self.files |= reach
		self.files.add(source.file.path)
		self.reach[source.file.path] = reach
		self.leave(source.file, [name for name, text in source.file.facts.macros.items() if not text])
		for name, macros in source.systems.items():
			if name not in self.systems:
				self.systems.add(name)
				self.foreign |= macros
		self.has_start = self.has_start or source.starts(self.is_cxx)
		reason = self.find_end(source)
		self.closed = "after %s, which %s" % (source.file.path, reason) if reason else ""

	def find_end(self, source: Source) -> str:
		"""Why nothing may come after this source; empty if anything may."""
		return source.last or ("defines macros" if source.macros and not self.can_push else "")

	def leave(self, file: File, macros: Iterable[str]) -> None:
		for name, left in file.left:
			self.left.setdefault(name, []).append(left)
		for name in macros:
			self.left.setdefault(name, []).append(LeftName(MACRO, "", file.path))
		self.known.update(file.declared)
		self.known.update(macros)


def has_guarded(source: Source, path: str) -> bool:
	"""Tell whether a source includes this file, which is guarded against being read twice."""
	header = source.headers.get(path)
	return header is not None and bool(header.facts.guard)


class Entry(NamedTuple):
	"""Sources that become one object."""

	place: int
	"""The position by which the objects are ordered for the linker."""
	members: List[int]
	anchor: int
	"""The first source of a piece, which names it; -1 for a source that is compiled alone."""
	early: List[str]


class Plan(NamedTuple):
	"""The plan for the sources of a target."""

	entries: List[Entry]
	macros: Dict[str, List[str]]
	"""By the position of a source in the list: the macros to be undefined after it."""
	reasons: Dict[str, str]
	"""Why a source is compiled alone, or is the first one of another piece."""
	starts: List[int]
	"""The sources with code that may run before ``main``."""


def plan(
	sources: Sequence[Source],
	sizes: Sequence[int],
	most: int,
	is_cxx: bool,
	away: Iterable[int] = (),
	groups: Sequence[str] = (),
	can_push: bool = True,
	keys: Sequence[str] = (),
	others: int = 1,
	splits: Container[int] = (),
) -> Plan:
	"""
	Decide which sources are compiled together.

	The sources of a kind are cut into groups, and each joins the first piece of its group that has no objection. Those
	that are ``away`` keep their position for when they come back. Code that runs before ``main`` runs in the order of
	the list, as if each source were compiled alone. The ``keys`` are names of the sources that do not depend on where
	the project lies. The build has ``others`` times as many sources. A piece is divided before each of the ``splits``.
	"""
	cuts = find_cuts(keys or [source.file.path for source in sources], sources, weigh(sizes, most, others), groups)
	away = set(away)
	pieces: Dict[Tuple[int, int], List[Tuple[Piece, List[int]]]] = {}
	reasons: Dict[str, str] = {}
	found: List[List[int]] = []
	latest: Optional[Piece] = None
	starting = {i for i, source in enumerate(sources) if source.starts(is_cxx)}
	views = Views(sources)
	ends = {
		i for i, source in enumerate(sources) if Piece(is_cxx, views, can_push).find_end(source) and i not in starting
	}
	# sources after which nothing may come are put at the ends
	for i in [*(i for i in range(len(sources)) if i not in ends), *sorted(ends)]:
		source = sources[i]
		reason = source.alone
		piece: Optional[Piece] = None
		if reason:
			found.append([i])
		else:
			group = pieces.setdefault(cuts[i], [])
			number, reason = find_piece([each for each, _ in group], source, latest if i in starting else None)
			if number == len(group):
				group.append((Piece(is_cxx, views, can_push), []))
				found.append(group[-1][1])
			piece, members = group[number]
			piece.add(source)
			members.append(i)
		if reason:
			reasons[str(i)] = reason
		if i in starting:
			latest = None if i in away else piece
	entries = [entry for members in found for entry in find_entries(sources, members, starting, away, splits)]
	macros = {str(i): source.macros for i, source in enumerate(sources) if source.macros}
	return Plan(sorted(entries), macros, reasons, sorted(starting))


def find_piece(pieces: Sequence[Piece], source: Source, latest: Optional[Piece]) -> Tuple[int, str]:
	"""The number of the first piece that a source can join; or of a new one, and why it cannot join the others."""
	reason = ""
	for number, piece in enumerate(pieces):
		objection = piece.find_objection(source)
		if not objection and source.starts(piece.is_cxx) and piece.has_start and piece is not latest:
			objection = "%s, which is to run in its turn" % (source.file.facts.starts or "a constructor")
		if not objection:
			return number, ""
		reason = reason or objection
	return len(pieces), reason


def find_entries(
	sources: Sequence[Source], members: List[int], starting: Set[int], away: Set[int], splits: Container[int]
) -> List[Entry]:
	"""The entries of a piece some of whose sources are away."""
	if len(members) == 1:
		return [Entry(members[0], members, -1, [])]
	entries = [Entry(i, [i], -1, []) for i in members if i in away]
	for anchor, part in divide(members, min(members), splits):
		present = [i for i in part if i not in away]
		if present:
			early = [path for i in present for path in sources[i].early]
			entries.append(Entry(find_position(present, starting), present, anchor, list(dict.fromkeys(early))))
	return entries


def divide(members: Sequence[int], anchor: int, splits: Container[int]) -> List[Tuple[int, List[int]]]:
	"""The parts of a piece, each with the source that names it."""
	parts: List[Tuple[int, List[int]]] = [(anchor, [])]
	for i in members:
		if i in splits and i != anchor and parts[-1][1]:
			parts.append((i, []))
		parts[-1][1].append(i)
	return parts


def find_half(members: Sequence[int], weights: Sequence[int]) -> Optional[int]:
	"""The first source of the second half of a group by weight; None if the group is not worth to be divided."""
	if len(members) < DIVIDED:
		return None
	total, whole = 0, sum(weights)
	for i, weight in zip(members, weights):
		if 2 * total >= whole:
			return i
		total += weight
	return None


def take_out(entries: Iterable[Entry], i: int, starting: Set[int], splits: Container[int]) -> List[Entry]:
	"""The entries after a source without code that runs before ``main`` has left its group."""
	found = []
	for entry in entries:
		if entry.anchor < 0 or i not in entry.members:
			found.append(entry)
			continue
		found.append(Entry(i, [i], -1, []))
		for anchor, part in divide([k for k in entry.members if k != i], entry.anchor, splits):
			if part:
				found.append(Entry(find_position(part, starting), part, anchor, []))
	return sorted(found)


def find_position(members: Sequence[int], starting: Iterable[int]) -> int:
	"""The position of an object: that of its first source with code that runs before ``main``, if there is one."""
	return min((i for i in members if i in starting), default=min(members))


def find_cuts(
	keys: Sequence[str], sources: Sequence[Source], weights: Sequence[int], groups: Sequence[str]
) -> List[Tuple[int, int]]:
	"""The group of each source."""
	kinds: Dict[Tuple[str, object], List[int]] = {}
	for i, source in enumerate(sources):
		kinds.setdefault((groups[i] if groups else "", source.kind), []).append(i)
	found: List[Tuple[int, int]] = [(0, 0)] * len(sources)
	for number, members in enumerate(kinds.values()):
		ranges = cut([keys[i] for i in members], [weights[i] for i in members])
		for place, group in enumerate(ranges):
			for k in group:
				found[members[k]] = number, place
	return found
