"""
Checks whether the facts still hold that the engine has told of a command.

A fact is a text (``docs/protocol.md``), and there is a function for each kind. It knows nothing of tasks, nor of how
texts are stored. Each check is as strict as the engine's own, or stricter. A check that is too strict costs one more
question to the engine, which is a hit.
"""

import hashlib
import os
import re
import stat
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple, Union

from . import answers

Place = Tuple[bytes, bytes]
"""A folder, by its path without links, and a name in it."""
Environment = Union[Mapping[str, str], Mapping[bytes, bytes]]
ROOT = b"/"
ANY = b"/"
"""Stands for all names in the folder."""
EMPTY = b""
MOST_LINKS = 40
"""The kernel follows at most so many in one path."""
ITEM = re.compile(rb"(\d+):")
FILE = b"=%d,%d,%d,%d"
NUMBER = b"%d"
USER = b"%d %d"
STATUS_LINES = {b"=umask": ("Umask",), b"=processors": ("Cpus_allowed",), b"=signals": ("SigBlk", "SigIgn")}
"""The lines of ``/proc/self/status`` that a fact is about."""
PROCESSOR_LINES = frozenset(
	(
		"vendor_id",
		"cpu family",
		"model",
		"model name",
		"stepping",
		"cache size",
		"flags",
		"Features",
		"CPU implementer",
		"CPU architecture",
		"CPU variant",
		"CPU part",
	)
)
"""The lines of ``/proc/cpuinfo`` that a fact is about."""


# ---- texts


def split_file(text: bytes) -> Tuple[bytes, bytes]:
	"""The identity of a file, and its path."""
	parts = text.split(b",", 4)
	return text[: len(text) - len(parts[-1]) - 1], parts[-1]


def split_absences(text: bytes) -> Tuple[bytes, List[bytes]]:
	"""A folder, and the names that are not in it."""
	folder, _, names = text[1:].rpartition(b"//")
	return folder, names.split(b"/")


def split_value(text: bytes) -> Tuple[bytes, bytes]:
	"""The value of a link or of a resolved path, and the path."""
	length, _, rest = text[1:].partition(b",")
	return rest[: int(length)], rest[int(length) :]


FIELDS = {b"#": 1, b"?": 2, b"/": 3, b"!": 4, b"[": 2, b".": 1, b"%": 2}
"""By the sign of a text: the number of fields before its path."""


def split_fields(text: bytes) -> List[bytes]:
	"""The fields of a text of any other kind. The path is the last one."""
	return text[1:].split(b",", FIELDS[text[:1]])


def split_variables(text: bytes) -> List[bytes]:
	"""The items of a text about variables."""
	items, at = [], 1
	while at < len(text):
		found = ITEM.match(text, at)
		if found is None:
			raise ValueError("a text about variables that is damaged: %r" % text)
		end = found.end() + int(found.group(1))
		items.append(text[found.end() : end])
		at = end
	return items


def path_of(text: bytes) -> bytes:
	"""The path that a text is about. Texts about absences and variables have none."""
	sign = text[:1]
	if sign == b"=":
		return split_file(text)[1]
	if sign in (b"@", b"~"):
		return split_value(text)[1]
	return split_fields(text)[-1]


# ---- files


class Look:
	"""Checks facts about files. It remembers the names in folders until ``forget``."""

	def __init__(self) -> None:
		self.names: Dict[bytes, Set[bytes]] = {}
		self.checks = {
			b"#": self.is_held,
			b"?": self.is_kind,
			b"/": self.is_folder,
			b"!": self.is_status,
			b"@": self.is_target,
			b"~": self.is_resolved,
			b"[": self.is_listing,
			b".": self.is_missing,
			b"%": self.is_refused,
		}

	def forget(self) -> None:
		self.names.clear()

	def is_so(self, text: bytes) -> bool:
		"""Tell whether a fact holds. Facts about variables pass, since they are checked for each command."""
		sign = text[:1]
		try:
			if sign == b"=":
				said, path = split_file(text)
				found = os.stat(path)
				return said == FILE % (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
			if sign == b"-":
				folder, names = split_absences(text)
				return self.list(folder).isdisjoint(names)
			return sign == b"$" or self.checks[sign](text)
		except (OSError, ValueError, LookupError):
			return False

	def list(self, folder: bytes) -> Set[bytes]:
		"""The names in a folder."""
		names = self.names.get(folder)
		if names is None:
			try:
				names = set(os.listdir(folder))
			except FileNotFoundError:
				names = set()
			except OSError:
				names = Everything()
			self.names[folder] = names
		return names

	def is_held(self, text: bytes) -> bool:
		digest, path = split_fields(text)
		found = hashlib.sha256()
		with open(path, "rb", 0) as f:
			for piece in iter(lambda: f.read(1 << 20), EMPTY):
				found.update(piece)
		return found.hexdigest().encode() == digest

	def is_kind(self, text: bytes) -> bool:
		follows, kind, path = split_fields(text)
		return find_kind(find_status(path, follows).st_mode) == kind

	def is_folder(self, text: bytes) -> bool:
		follows, device, inode, path = split_fields(text)
		found = find_status(path, follows)
		same = (found.st_dev, found.st_ino) == (int(device), int(inode))
		return same and stat.S_ISDIR(found.st_mode)

	def is_status(self, text: bytes) -> bool:
		follows, mode, size, written, path = split_fields(text)
		found = find_status(path, follows)
		if found.st_mode != int(mode):
			return False
		return stat.S_ISDIR(found.st_mode) or (found.st_size, found.st_mtime_ns) == (int(size), int(written))

	def is_target(self, text: bytes) -> bool:
		target, path = split_value(text)
		# as str: a resident process observes only such calls
		return os.fsencode(os.readlink(os.fsdecode(path))) == target

	def is_resolved(self, text: bytes) -> bool:
		real, path = split_value(text)
		# raises an error if it leads nowhere
		os.stat(path)
		return os.fsencode(os.path.realpath(os.fsdecode(path))) == real

	def is_listing(self, text: bytes) -> bool:
		in_order, digest, path = split_fields(text)
		return digest_listing(path, in_order == b"1") == digest

	def is_missing(self, text: bytes) -> bool:
		follows, path = split_fields(text)
		try:
			find_status(path, follows)
		except FileNotFoundError:
			return True
		return False

	def is_refused(self, text: bytes) -> bool:
		opens, error, path = split_fields(text)
		try:
			if opens == b"1":
				os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
			else:
				os.stat(path)
		except OSError as e:
			return e.errno == int(error)
		return False


class Everything(Set[bytes]):
	"""The names in a folder that cannot be listed: any name may be in it."""

	def isdisjoint(self, names: Iterable[object]) -> bool:
		return False


def find_status(path: bytes, follows: bytes) -> os.stat_result:
	return os.stat(path) if follows == b"1" else os.lstat(path)


def find_kind(mode: int) -> bytes:
	letter = "o"
	if stat.S_ISREG(mode):
		letter = "p" if mode & 0o111 else "f"
	elif stat.S_ISLNK(mode):
		letter = "l"
	elif stat.S_ISDIR(mode):
		letter = "d"
	return letter.encode()


def digest_listing(path: bytes, in_order: bool) -> bytes:
	"""The digest of a folder's names and their kinds, as the engine makes it."""
	found = []
	with os.scandir(path) as entries:
		for entry in entries:
			if entry.is_file(follow_symlinks=False):
				kind = 0
			elif entry.is_dir(follow_symlinks=False):
				kind = 2
			else:
				kind = 3 if entry.is_symlink() else 4
			found.append((entry.name, kind))
	if not in_order:
		found.sort()
	text = EMPTY.join(bytes((kind,)) + name + b"\0" for name, kind in found)
	return hashlib.sha256(text).hexdigest().encode()


# ---- variables


def fits(text: bytes, environment: Environment, folder: bytes) -> bool:
	"""Tell whether the variables of a command in this folder are as a text says. It skips items of other kinds."""
	found = encode(environment)
	known: Set[bytes] = set()
	silent: Set[bytes] = set()
	prefixes: List[bytes] = []
	exempt: Set[bytes] = set()
	absent: List[bytes] = []
	for item in split_variables(text):
		sign, rest = item[:1], item[1:]
		if sign == b"=":
			name, _, value = rest.partition(b"=")
			known.add(name)
			if found.get(name) != value:
				return False
		elif sign == b"-":
			if rest in found:
				return False
		elif sign == b"?":
			if names_folder(found.get(b"PWD"), folder):
				return False
		elif sign == b"*":
			silent.add(rest)
		elif sign == b"^":
			prefixes.append(rest)
		elif sign == b"!":
			absent.append(rest)
		elif sign == b"+":
			exempt.add(rest)
		elif sign != b"@":
			return False
	if absent and any(name.startswith(tuple(absent)) for name in found.keys() - known - exempt):
		return False
	if not silent and not prefixes:
		return True
	if (found.get(b"PWD") or EMPTY).rstrip(b"/") == folder.rstrip(b"/"):
		silent.add(b"PWD")
	others = found.keys() - known - silent
	return not any(not name.startswith(tuple(prefixes)) for name in others)


def encode(environment: Environment) -> Dict[bytes, bytes]:
	if environment is os.environ:
		# what the engine is told: wafx hides its own part of a variable from the project
		environment = getattr(os.environ, "_data", environment)
	return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}


def names_folder(path: Optional[bytes], folder: bytes) -> bool:
	"""Tell whether ``PWD`` leads to the folder that a compiler is in. If so, the compiler uses it."""
	try:
		return path is not None and path[:1] == b"/" and os.path.samefile(path, folder)
	except (OSError, ValueError):
		return False


def circumstances(text: bytes) -> List[bytes]:
	"""The names of those items that are about the process and not about variables, such as its umask."""
	return [item[1:] for item in split_variables(text) if item[:1] == b"@"]


def find_circumstance(name: bytes) -> bytes:
	"""The value of such an item for this process, as text. An unknown item has another value each time."""
	try:
		with answers.Observer.look_away():
			if name == b"=user":
				return USER % (os.geteuid(), os.getegid())
			if name == b"=host":
				return " ".join(os.uname()[1:]).encode("utf-8", "surrogateescape")
			if name == b"=limits":
				with open("/proc/self/limits", "rb") as f:
					return f.read()
			if name == b"=processor":
				return find_processor()
			if name == b"=personality":
				with open("/proc/self/personality", "rb") as f:
					return f.read()
			wanted = STATUS_LINES[name]
			with open("/proc/self/status", encoding="utf-8", errors="surrogateescape") as f:
				lines = [line for line in f if line.partition(":")[0] in wanted]
			return "".join(lines).encode("utf-8", "surrogateescape")
	except (AttributeError, LookupError, OSError):
		return os.urandom(16)


def find_processor() -> bytes:
	"""The system's description of the processors, without varying values, and the user's name for such machines."""
	with open("/proc/cpuinfo", encoding="utf-8", errors="surrogateescape") as f:
		lines = {line for line in f if line.partition(":")[0].strip() in PROCESSOR_LINES}
	named = os.environ.get("WAFCC_PROCESSOR", "")
	return "".join([*sorted(lines), named]).encode("utf-8", "surrogateescape")


# ---- places


class Trails:
	"""Resolves paths, and notes the links on their way. Each folder is looked at once."""

	def __init__(self) -> None:
		self.folders: Dict[bytes, Tuple[bytes, List[Place]]] = {b"/": (b"/", [])}

	def place(self, path: bytes) -> Place:
		folder, _, name = path.rpartition(b"/")
		return self.find(folder or ROOT, 0)[0], name

	def identity(self, path: bytes) -> Place:
		"""Device and inode of a file, which are the same for all of its paths."""
		try:
			found = os.stat(path)
		except OSError:
			return path, ANY
		return NUMBER % found.st_dev, NUMBER % found.st_ino

	def places(self, text: bytes) -> List[Place]:
		"""All places on which the truth of a text depends."""
		sign = text[:1]
		if sign == b"$":
			return []
		if sign == b"-":
			folder, names = split_absences(text)
			real, passed = self.find(folder or ROOT, 0)
			return passed + [(real, name) for name in names]
		path = path_of(text)
		if sign == b"=":
			# there are many of them, so the links on the way are left to the inode, which tells where the path leads
			folder, _, name = path.rpartition(b"/")
			real, passed = self.find(folder or ROOT, 0)
			device, inode, _ = text[1:].split(b",", 2)
			return [*passed, (real, name), (device, inode)]
		real, passed = self.find(path, 0)
		folder, _, name = real.rpartition(b"/")
		return [*passed, (folder or ROOT, name), *([(real, ANY)] if sign == b"[" else [])]

	def find(self, path: bytes, depth: int) -> Tuple[bytes, List[Place]]:
		"""The path without links, and the places of the links on its way."""
		known = self.folders.get(path)
		if known is None:
			known = self.folders[path] = self.walk(path, depth)
		return known

	def walk(self, path: bytes, depth: int) -> Tuple[bytes, List[Place]]:
		bare = path.rstrip(b"/")
		if not bare:
			return ROOT, []
		before, _, name = bare.rpartition(b"/")
		folder, passed = self.find(before or ROOT, depth)
		if name in (EMPTY, b"."):
			return folder, passed
		if name == b"..":
			return os.path.dirname(folder), passed
		whole = join(folder, name)
		try:
			# a resident need not watch such folders, which may change all the time: it watches the files
			with answers.Observer.look_away():
				mode = os.lstat(whole).st_mode
				target = os.readlink(whole) if stat.S_ISLNK(mode) else EMPTY
		except OSError:
			return whole, [*passed, (folder, name)]
		if stat.S_ISDIR(mode):
			return whole, passed
		if target and depth < MOST_LINKS:
			real, others = self.find(os.path.join(folder, target), depth + 1)
			return real, [*passed, (folder, name), *others]
		return whole, [*passed, (folder, name)]


def join(folder: bytes, name: bytes) -> bytes:
	return folder + name if folder == b"/" else folder + b"/" + name


# ---- words


def tell(text: bytes, show: Callable[[str], str] = str) -> str:
	"""Say for the user how a fact has changed. ``show`` abbreviates paths."""
	sign = text[:1]
	if sign == b"$":
		return "variables, or what else its process has, are others"
	if sign == b"-":
		folder, names = split_absences(text)
		try:
			appeared = sorted(set(os.listdir(folder)).intersection(names))
		except OSError:
			appeared = []
		return "%s has appeared" % show(os.fsdecode(os.path.join(folder, appeared[0] if appeared else names[0])))
	path = path_of(text)
	shown = show(os.fsdecode(path))
	if sign == b".":
		return "%s has appeared" % shown
	if sign == b"%":
		return "%s is not refused as it was" % shown
	if not os.path.lexists(path):
		return "%s is gone" % shown
	if sign in (b"=", b"#"):
		return "%s was written again" % shown
	if sign == b"!":
		return "%s has another size, time or mode" % shown
	if sign == b"[":
		return "%s has other files in it" % shown
	if sign in (b"@", b"~"):
		return "%s leads elsewhere" % shown
	return "%s is another, or of another kind" % shown
