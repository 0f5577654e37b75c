"""
Memos: what a run has looked at and printed. A memo answers for the run as long as nothing of that has changed.

It does nothing but look at files, and knows nothing of Waf. A memo consists of values that ``marshal`` can write.
"""

import os
import stat
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, TypedDict, TypeVar

from . import witness

LOCAL = witness.names(
	"bcachefs btrfs erofs ext2 ext3 ext4 f2fs jfs nilfs2 overlay ramfs reiserfs rootfs squashfs tmpfs xfs zfs"
)
"""File systems whose status is always up to date and shows each change."""

KIND = 0o170000  # the bits of a mode with the kind of file

Chunk = Tuple[int, bytes]
Piece = Tuple[int, Optional[bytes]]
"""Bytes for a descriptor; None stands for the time that the run took."""


T = TypeVar("T")


class Facts(TypedDict):
	"""Everything that a run has looked at, as its ``Witness`` has noted it, and its output."""

	files: Dict[str, Optional[witness.Signature]]
	own: Dict[str, Optional[witness.Signature]]
	folders: Dict[str, Tuple[int, int]]
	kinds: Dict[str, int]
	links: Dict[str, int]
	lists: Dict[str, witness.Listed]
	asked: Dict[witness.Question, object]
	pieces: List[Piece]


FactKey = Tuple[str, object]
"""The kind of a fact, which is a name in ``Facts``, and its key there."""
KINDS = ("files", "own", "folders", "kinds", "links", "lists", "asked")


class Unkept(Exception):
	"""Raised if a run cannot be kept. The text is the reason."""

	pass


class Memo:
	"""The facts of a run that has changed nothing, and what it has printed."""

	def __init__(self, told: Facts, project: str) -> None:
		self.project = project
		self.told = told
		# a system call with a short path takes a third less time
		self.files, self.near_files = part(told["files"], project)
		self.kinds, self.near_kinds = part(told["kinds"], project)
		self.own = told["own"]
		self.folders = told["folders"]
		self.links = told["links"]
		self.lists = told["lists"]
		self.asked = told["asked"]
		self.pieces = told["pieces"]

	def find_change(self) -> str:
		"""The first thing that has changed; empty if nothing has."""
		return (
			self.find_near_change()
			or find_changed_file(self.files)
			or find_changed_kind(self.kinds)
			or find_changed(self.own, own_signature_of)
			or find_changed(self.folders, witness.folder_of)
			or find_changed(self.links, witness.link_of)
			or next((place for place, seen in self.lists.items() if not self.lists_same(place, seen)), "")
			or next((key[0] for key, seen in self.asked.items() if witness.ask_again(*key) != seen), "")
		)

	def find_near_change(self) -> str:
		"""The same for what is below the project's folder."""
		try:
			os.chdir(self.project)
		except OSError:
			return self.project
		try:
			return find_changed_file(self.near_files) or find_changed_kind(self.near_kinds)
		finally:
			os.chdir("/")

	def lists_same(self, place: str, seen: witness.Listed) -> bool:
		"""Tell whether a folder has the same files in the same order. Its own times may differ."""
		signature, names = seen
		now = witness.signature_of(place)
		if signature is not None and now == signature:
			return True
		began = witness.real_time_ns()
		if self.list_names(place) != names:
			return False
		if now and not witness.is_fresh(now, began):
			self.lists[place] = (now, names)
		return True

	def list_names(self, place: str) -> Optional[List[str]]:
		"""The names in a folder in their order; None if it cannot be listed."""
		try:
			return [os.fsdecode(name) for name in witness.real_listdir(place)]
		except OSError:
			return None

	def answer(self, seconds: float) -> List[Chunk]:
		"""The output of the run, with the time of this call in it."""
		return [(fd, show_time(seconds) if data is None else data) for fd, data in self.pieces]


class Vouched:
	"""Facts of which some are in a record, too, so that who has compared the record has compared these."""

	def __init__(self, facts: Facts, recorded: Optional[Facts]) -> None:
		self.facts = facts
		self.others = {kind: facts[kind] for kind in KINDS}  # type: ignore[literal-required]
		for kind in KINDS:
			known = recorded[kind] if recorded is not None else {}  # type: ignore[literal-required]
			self.others[kind] = {key: seen for key, seen in self.others[kind].items() if known.get(key, KINDS) != seen}

	def choose(self, changed: Optional[Sequence[FactKey]]) -> Facts:
		"""The facts that must be compared if these ones of the record have changed; None if that is not known."""
		if changed is None:
			return self.facts
		chosen = {kind: dict(others) for kind, others in self.others.items()}
		for kind, key in changed:
			own = self.facts[kind]  # type: ignore[literal-required]
			if key in own:
				chosen[kind][key] = own[key]
		return {**self.facts, **chosen}  # type: ignore[typeddict-item]


class Looked:
	"""The facts of a part of a run. It tells which files have changed since."""

	def __init__(self, told: Facts, project: str) -> None:
		"""A file that is no link is looked at once, for its status and for its kind."""
		single: Dict[str, Optional[witness.Signature]] = {}
		links = dict(told["links"])
		for place, signature in told["files"].items():
			if signature and links.get(place) == stat.S_IFREG:
				single[place] = signature
				del links[place]
		files = {place: signature for place, signature in told["files"].items() if place not in single}
		self.project = project
		self.single = part(single, project)
		self.files = part(files, project)
		self.rest = Memo({**told, "files": {}, "links": links}, project)

	def find_changes(self) -> Optional[Set[str]]:
		"""The files whose content may have changed; None if anything else has."""
		cwd = os.getcwd()
		try:
			if self.rest.find_change():
				return None
			changed = [
				*find_changed_content(self.single[0], "", witness.real_lstat),
				*find_changed_content(self.files[0], "", witness.real_stat),
			]
			os.chdir(self.project)
			changed += find_changed_content(self.single[1], self.project + os.sep, witness.real_lstat)
			changed += find_changed_content(self.files[1], self.project + os.sep, witness.real_stat)
		except OSError:
			return None
		finally:
			os.chdir(cwd)
		return None if None in changed else {place for place in changed if place is not None}


def find_changed_content(
	files: Dict[str, Optional[witness.Signature]], folder: str, look: Callable[[str], os.stat_result]
) -> Iterator[Optional[str]]:
	"""The changed files of a folder; None for one that came, went, or is of another kind."""
	for place, signature in files.items():
		try:
			found = look(place)
			now: Optional[witness.Signature] = (*found[:7], found.st_mtime_ns, found.st_ctime_ns)
		except (OSError, ValueError):
			now = None
		if now != signature:
			yield folder + place if witness.is_plain(now) and witness.is_plain(signature) else None


def find_changed_file(files: Dict[str, Optional[witness.Signature]]) -> str:
	"""The first file whose signature has changed. A memo spends most of its time here."""
	stat, sign = witness.real_stat, witness.sign
	for place, signature in files.items():
		try:
			found = stat(place)
		except (OSError, ValueError):
			if signature is not None:
				return place
			continue
		if signature != sign(found):
			return place
	return ""


def find_changed_kind(kinds: Dict[str, int]) -> str:
	stat = witness.real_stat
	for place, kind in kinds.items():
		try:
			now = stat(place).st_mode & KIND
		except (OSError, ValueError):
			now = 0
		if now != kind:
			return place
	return ""


def part(facts: Dict[str, T], project: str) -> Tuple[Dict[str, T], Dict[str, T]]:
	"""Split facts: those outside of a folder, and those below it, by their relative paths."""
	start = project + os.sep
	far: Dict[str, T] = {}
	near: Dict[str, T] = {}
	for place, seen in facts.items():
		rest = place[len(start) :] if place.startswith(start) else ""
		if rest and not rest.startswith(os.sep):
			near[rest] = seen
		else:
			far[place] = seen
	return far, near


def own_signature_of(place: str) -> Optional[witness.Signature]:
	try:
		return witness.sign(witness.real_lstat(place))
	except (OSError, ValueError):
		return None


def find_changed(facts: Dict[str, T], look: Callable[[str], object]) -> str:
	for place, seen in facts.items():
		if look(place) != seen:
			return place
	return ""


def show_time(seconds: float) -> bytes:
	"""A time as Waf shows it. Answers by a memo take less than a minute."""
	return ("%.3fs" % seconds).encode()


# ---- making one


def pack_facts(seen: "witness.Witness", mounts: "Mounts") -> Facts:
	"""
	The facts of a witness, without those that follow from others, and without output.

	Raises ``Unkept`` if the status of a file cannot be trusted.
	"""
	places: Dict[int, str] = {}
	for facts in (seen.files, seen.own):
		for place, signature in facts.items():
			if signature:
				places.setdefault(signature[2], place)
	for place in {*places.values(), *map(os.path.dirname, [*seen.kinds, *seen.links])}:
		mounts.check(place)
	files = seen.files
	kinds = {}
	for place, kind in seen.kinds.items():
		if place not in files:
			kinds[place] = kind
	lists: Dict[str, witness.Listed] = {}
	for place, (signature, names) in seen.lists.items():
		mounts.check(place)
		fresh = signature is not None and witness.is_fresh(signature, seen.began)
		lists[place] = (None if fresh else signature, names)
	return {
		"files": files,
		"own": seen.own,
		"folders": seen.folders,
		"kinds": kinds,
		"links": seen.links,
		"lists": lists,
		"asked": seen.asked,
		"pieces": [],
	}


def cut_pieces(chunks: Sequence[Chunk], times: Sequence[str]) -> List[Piece]:
	"""The output, cut at the places where it has one of these times."""
	joined: List[Chunk] = []
	for fd, data in chunks:
		if joined and joined[-1][0] == fd:
			joined[-1] = fd, joined[-1][1] + data
		else:
			joined.append((fd, data))
	left = [text.encode() for text in times]
	for text in set(left):
		if sum(data.count(text) for _, data in joined) != left.count(text):
			raise Unkept("a time that is not printed as it is")
	pieces: List[Piece] = []
	for fd, data in joined:
		while left and left[0] in data:
			before, _, data = data.partition(left.pop(0))
			pieces += [(fd, before), (fd, None)]
		pieces.append((fd, data))
	if left:
		raise Unkept("times in another order than they are printed")
	return [piece for piece in pieces if piece[1] != b""]


class Mounts:
	"""The file systems of paths."""

	def __init__(self, text: str) -> None:
		self.kinds: Dict[str, str] = {}
		for line in text.splitlines():
			before, _, after = line.partition(" - ")
			if after:
				place = before.split(" ")[4].encode().decode("unicode_escape")
				self.kinds[place] = after.split(" ")[0]

	@classmethod
	def read(cls) -> "Mounts":
		with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
			return cls(f.read())

	def check(self, place: str) -> None:
		at = os.path.realpath(place)
		while at not in self.kinds and at != "/":
			at = os.path.dirname(at)
		kind = self.kinds.get(at, "an unknown one")
		if kind not in LOCAL:
			raise Unkept("%s is on a file system that may tell of what was: %s" % (place, kind))
