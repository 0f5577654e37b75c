"""
Which sources are compiled together.

Pure: names, weights and facts go in, groups come out, the same on every machine. First the list is cut where the names
say so, so that a new name changes the group that it falls into and hardly any other; then each group is parted into
pieces of those that cannot notice each other.
"""

import hashlib
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import declarations, names

UNIT = 1 << 16
"""What a group may weigh."""
LEAST = UNIT * 2 // 5
"""What it weighs at least, where there is enough."""
SMALL, LARGE = 64 << 10, 512 << 10
"""Bytes of sources in a group: at least, where there are so many, and at most."""
MANY = 16
"""So many groups a build has before they get larger than the least: there are machines with many slots."""
FIXED = 256
"""Bytes that a file counts beside its own."""


# ---- where the list is cut


def weigh(sizes: Sequence[int], most: int, others: int = 1) -> List[int]:
	"""
	The weights of files of these sizes, of which a group may have so many; coarse, so that edits change nothing.

	The build has so many times as many sources as are here.
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


# ---- who may be in a piece with whom


class LeftName(NamedTuple):
	"""A name that somebody in a piece has left."""

	kind: str
	space: str
	owner: str


MACRO = "m"


class File(NamedTuple):
	"""A source or header of the project, with its facts taken apart."""

	path: str
	facts: names.Facts
	words: Set[str]
	members: Set[str]
	spaces: Set[str]
	quals: Set[str]
	hidden: Set[str]
	"""The names that it declares for itself."""
	declared: Set[str]
	tags: Set[str]
	left: List[Tuple[str, LeftName]]
	"""What it leaves behind but macros, by name."""
	is_plain: bool
	"""None of the facts says that it is to be treated in another way than most."""


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
		{name for kind, _, name in leaves if kind != declarations.EXTERNAL},
		{name for _, _, name in leaves},
		set(facts.tags.split()),
		[(name, LeftName(kind, space, path)) for kind, space, name in leaves],
		not (facts.alone or facts.last or facts.operator or facts.own or facts.usings),
	)


def is_starting(facts: names.Facts, is_cxx: bool) -> bool:
	"""Something of a file may run before ``main``."""
	return (is_cxx and bool(facts.starts)) or "constructor" in facts.words.split()


class Source(NamedTuple):
	"""A source with all that it includes of the project."""

	file: File
	headers: Dict[str, File]
	systems: Dict[str, FrozenSet[str]]
	"""What it includes of others, with the macros that this defines."""
	is_found: bool
	"""All that it includes is there already."""
	prelude: str
	"""What changes how headers are read, before the last of them."""
	features: str
	"""What the headers of the system are asked for."""
	usings: Set[str]
	early: List[str]
	"""Where something is used: headers that could as well be included before all else, as a compiler names them."""
	is_early: bool
	"""All its headers could."""
	odd: List[File]
	"""Those of its headers that are not plain."""

	@property
	def kind(self) -> Tuple[str, str, Tuple[str, ...]]:
		"""Only those with the same are in a piece."""
		return self.prelude, self.features, tuple(sorted(self.usings))

	def starts(self, is_cxx: bool) -> bool:
		"""Something of it may run before ``main``, so that its place among others is heard of."""
		return is_starting(self.file.facts, is_cxx)

	@property
	def alone(self) -> str:
		"""Why it has to be compiled alone."""
		for file in self.odd:
			if file.facts.alone:
				return "%s (in a header)" % file.facts.alone
		return self.file.facts.alone

	@property
	def last(self) -> str:
		"""Why nothing may come after it."""
		for file in self.odd:
			if file.facts.last:
				return "%s (in a header)" % file.facts.last
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
		"""What it defines, to be taken back after it."""
		return [name for name, text in self.file.facts.macros.items() if text]


class Piece:
	"""Sources that can be compiled as one."""

	def __init__(self, is_cxx: bool, can_push: bool = True) -> None:
		self.is_cxx = is_cxx
		self.can_push = can_push
		"""The compiler can put macros aside and take them back."""
		self.members: List[Source] = []
		self.files: Set[str] = set()
		self.systems: Set[str] = set()
		self.foreign: Set[str] = set()
		"""The macros of the system that somebody has included."""
		self.own: Set[str] = set()
		"""Headers with something that each of us should have for itself."""
		self.reach: Dict[str, Set[str]] = {}
		"""Of each file the headers that came with it."""
		self.has_start = False
		self.left: Dict[str, List[LeftName]] = {}
		self.known: Set[str] = set()
		"""The names that are left."""
		self.hidden: Set[str] = set()
		self.greedy: Set[str] = set()
		"""Headers with operators that could be meant by anybody."""
		self.closed = ""

	def find_objection(self, source: Source) -> str:
		"""Why a source cannot come next, or nothing."""
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
		return ""

	def find_noticed(self, source: Source, file: File, spaces: Set[str]) -> str:
		"""What a file of a source would notice of those before it."""
		for name in sorted(self.foreign.intersection(file.words)):
			if not any(name in macros for macros in source.systems.values()):
				return "%s, which headers of the system define that it does not include" % name
		for name in sorted(file.words & self.known):
			for left in self.left[name]:
				if self.is_noticed(source, file, name, left, spaces):
					return "%s, which %s leaves" % (name, left.owner)
		for name in sorted(file.members & self.known):
			for left in self.left[name]:
				if left.kind == MACRO and not has_guarded(source, left.owner):
					return "%s, which %s leaves" % (name, left.owner)
		return ""

	def is_noticed(self, source: Source, file: File, name: str, left: LeftName, spaces: Set[str]) -> bool:
		if has_guarded(source, left.owner):
			return False  # it would be there without the others as well
		if left.kind == MACRO:
			return True
		is_seen = left.space in file.spaces or left.space in spaces or not file.quals.isdisjoint(left.space.split("::"))
		if not is_seen:
			return False
		if left.kind == declarations.TAG:
			return name in file.declared or not any(
				name in each.tags for each in [source.file, *source.headers.values()]
			)
		if left.kind == declarations.EXTERNAL:
			if not self.is_cxx:
				return name in file.hidden
			# unless it comes from a header that both include, it is an overload that the source does not know of
			both = self.reach[left.owner].intersection(source.headers)
			return not any(name in source.headers[header].declared for header in both)
		return True

	def add(self, source: Source) -> None:
		self.members.append(source)
		reach = set(source.headers)
		for path in reach - self.files:
			file = source.headers[path]
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
		"""Why nothing may come after this source, or nothing."""
		return source.last or ("defines macros" if source.macros and not self.can_push else "")

	def leave(self, file: File, macros: Iterable[str]) -> None:
		for name, left in file.left:
			self.left.setdefault(name, []).append(left)
		for name in macros:
			self.left.setdefault(name, []).append(LeftName(MACRO, "", file.path))
		self.known.update(file.declared)
		self.known.update(macros)


def has_guarded(source: Source, path: str) -> bool:
	"""A source includes this file, which is read once."""
	header = source.headers.get(path)
	return header is not None and bool(header.facts.guard)


class Entry(NamedTuple):
	"""What becomes one object."""

	place: int
	"""The objects are linked in the order of these."""
	members: List[int]
	anchor: int
	"""The first of those that belong together, by which they are named; -1 where a source belongs to no others."""
	early: List[str]


class Plan(NamedTuple):
	"""What becomes of the sources of a target."""

	entries: List[Entry]
	macros: Dict[str, List[str]]
	"""By the place of a source in the list, what is to be taken back after it."""
	reasons: Dict[str, str]
	"""Why a source is alone, or the first of another piece."""
	starts: List[int]
	"""Those of which something may run before ``main``."""


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
) -> Plan:
	"""
	Which sources are compiled together: first those of a kind are cut into groups, then each joins the first piece of
	its group that has nothing against it. Those that are ``away`` keep their place, for when they come back.

	What runs before ``main`` runs in the order of the list, as if each were compiled alone. The ``keys`` are names of
	the sources that are the same wherever the project lies; the build has ``others`` times as many sources.
	"""
	cuts = find_cuts(keys or [source.file.path for source in sources], sources, weigh(sizes, most, others), groups)
	away = set(away)
	pieces: Dict[Tuple[int, int], List[Tuple[Piece, List[int]]]] = {}
	reasons: Dict[str, str] = {}
	found: List[List[int]] = []
	latest: Optional[Piece] = None
	starting = {i for i, source in enumerate(sources) if source.starts(is_cxx)}
	ends = {i for i, source in enumerate(sources) if Piece(is_cxx, can_push).find_end(source) and i not in starting}
	# those after which nothing may come are put at the ends
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
				group.append((Piece(is_cxx, can_push), []))
				found.append(group[-1][1])
			piece, members = group[number]
			piece.add(source)
			members.append(i)
		if reason:
			reasons[str(i)] = reason
		if i in starting:
			latest = None if i in away else piece
	entries = [entry for members in found for entry in find_entries(sources, members, starting, away)]
	macros = {str(i): source.macros for i, source in enumerate(sources) if source.macros}
	return Plan(sorted(entries), macros, reasons, sorted(starting))


def find_piece(pieces: Sequence[Piece], source: Source, latest: Optional[Piece]) -> Tuple[int, str]:
	"""The number of the first piece that a source can join; or that of a new one, and why it is in no other."""
	reason = ""
	for number, piece in enumerate(pieces):
		objection = piece.find_objection(source)
		if not objection and source.starts(piece.is_cxx) and piece.has_start and piece is not latest:
			objection = "%s, which is to run in its turn" % (source.file.facts.starts or "a constructor")
		if not objection:
			return number, ""
		reason = reason or objection
	return len(pieces), reason


def find_entries(sources: Sequence[Source], members: List[int], starting: Set[int], away: Set[int]) -> List[Entry]:
	"""What becomes of a piece when some of it are away."""
	if len(members) == 1:
		return [Entry(members[0], members, -1, [])]
	present = [i for i in members if i not in away]
	entries = [Entry(i, [i], -1, []) for i in members if i in away]
	if present:
		early = [path for i in present for path in sources[i].early]
		entries.append(Entry(find_position(present, starting), present, min(members), list(dict.fromkeys(early))))
	return entries


def find_position(members: Sequence[int], starting: Iterable[int]) -> int:
	"""Where the object of these is linked: where the first of them is that runs before ``main``, if any does."""
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


# ---- the text that stands for a piece


class Frame(NamedTuple):
	"""What a target wants around each include."""

	before: str = ""
	after: str = ""
	unique: str = ""
	"""The name of a macro that is another identifier for each."""


def write_text(
	members: Sequence[Tuple[str, str, Sequence[str]]], early: Sequence[str], frame: Frame, comment: str = ""
) -> str:
	"""The file that includes these: how a compiler is to name each, what is to tell it from others, its macros."""
	lines = [comment] if comment else []
	lines += ['#include "%s"' % escape(path) for path in early]
	for path, key, macros in members:
		lines += ['#pragma push_macro("%s")' % name for name in macros]
		if frame.unique:
			lines.append("#undef %s" % frame.unique)
			lines.append("#define %s unity_%s_" % (frame.unique, hashlib.md5(key.encode()).hexdigest()))
		lines += [frame.before] if frame.before else []
		lines.append('#include "%s"' % escape(path))
		lines += [frame.after] if frame.after else []
		lines += ['#pragma pop_macro("%s")' % name for name in macros]
	return "\n".join(lines) + "\n"


def escape(path: str) -> str:
	return path.replace("\\", "\\\\").replace('"', '\\"')
