"""
Whether what the engine has told of a command still is so: one function for each kind of text (``docs/protocol.md``).

Knows nothing of tasks, nor of how texts are kept. Each check is as strict as the engine's own, or stricter: then the
engine is asked once too often, and answers with a hit.
"""

import hashlib
import os
import re
import stat
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple, Union

from . import answers

Place = Tuple[bytes, bytes]
"""A folder, by a path without links, and a name in it."""
Environment = Union[Mapping[str, str], Mapping[bytes, bytes]]
ROOT = b"/"
ANY = b"/"
"""In place of a name: all that are in the folder."""
EMPTY = b""
MOST_LINKS = 40
"""The kernel follows no more of them in one path."""
ITEM = re.compile(rb"(\d+):")
FILE = b"=%d,%d,%d,%d"
NUMBER = b"%d"
USER = b"%d %d"
STATUS_LINES = {b"=umask": ("Umask",), b"=processors": ("Cpus_allowed",), b"=signals": ("SigBlk", "SigIgn")}
"""Of ``/proc/self/status``."""
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
"""Of ``/proc/cpuinfo``."""


# ---- texts


def split_file(text: bytes) -> Tuple[bytes, bytes]:
	"""What the system said of a file, and its path."""
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
"""By the sign of a text: so many fields come before the path."""


def split_fields(text: bytes) -> List[bytes]:
	"""The fields of any other text, the path last."""
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
	"""The path that a text is about; of absences and variables there is none."""
	sign = text[:1]
	if sign == b"=":
		return split_file(text)[1]
	if sign in (b"@", b"~"):
		return split_value(text)[1]
	return split_fields(text)[-1]


# ---- files


class Look:
	"""Looks at files; what a folder has is remembered until ``forget``."""

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
		"""Tell whether it is; what is about variables is looked at for each command."""
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
		# as text: so a resident asks again
		return os.fsencode(os.readlink(os.fsdecode(path))) == target

	def is_resolved(self, text: bytes) -> bool:
		real, path = split_value(text)
		# fails where it leads nowhere
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
	"""The names in a folder that nobody can list."""

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
	"""Of a folder's names and their kinds, as the engine makes it."""
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
	"""Whether variables are as a text says, for a command in this folder; what is no variable is not looked at."""
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
	return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}


def names_folder(path: Optional[bytes], folder: bytes) -> bool:
	"""Compilers believe ``PWD`` if it leads to the folder that they are in."""
	try:
		return path is not None and path[:1] == b"/" and os.path.samefile(path, folder)
	except (OSError, ValueError):
		return False


def circumstances(text: bytes) -> List[bytes]:
	"""The names of what a command asked for of its process that is no variable."""
	return [item[1:] for item in split_variables(text) if item[:1] == b"@"]


def find_circumstance(name: bytes) -> bytes:
	"""What is so of this process, in words of our own; what nobody here knows is never the same."""
	try:
		with answers.Hearer.look_away():
			if name == b"=user":
				return USER % (os.geteuid(), os.getegid())
			if name == b"=host":
				return " ".join(os.uname()[1:]).encode("utf-8", "surrogateescape")
			if name == b"=limits":
				with open("/proc/self/limits", "rb") as f:
					return f.read()
			if name == b"=processor":
				return find_processor()
			wanted = STATUS_LINES[name]
			with open("/proc/self/status", encoding="utf-8", errors="surrogateescape") as f:
				lines = [line for line in f if line.partition(":")[0] in wanted]
			return "".join(lines).encode("utf-8", "surrogateescape")
	except (AttributeError, LookupError, OSError):
		return os.urandom(16)


def find_processor() -> bytes:
	"""What the system tells of the processors, but for what changes; and what this user calls such machines."""
	with open("/proc/cpuinfo", encoding="utf-8", errors="surrogateescape") as f:
		lines = {line for line in f if line.partition(":")[0].strip() in PROCESSOR_LINES}
	named = os.environ.get("WAFCC_PROCESSOR", "")
	return "".join([*sorted(lines), named]).encode("utf-8", "surrogateescape")


# ---- places


class Trails:
	"""Where paths lead, and past which links; each folder is looked at once."""

	def __init__(self) -> None:
		self.folders: Dict[bytes, Tuple[bytes, List[Place]]] = {b"/": (b"/", [])}

	def place(self, path: bytes) -> Place:
		folder, _, name = path.rpartition(b"/")
		return self.find(folder or ROOT, 0)[0], name

	def identity(self, path: bytes) -> Place:
		"""Stands for a file by whatever path it is reached."""
		try:
			found = os.stat(path)
		except OSError:
			return path, ANY
		return NUMBER % found.st_dev, NUMBER % found.st_ino

	def places(self, text: bytes) -> List[Place]:
		"""All places that have a say in what a text is about."""
		sign = text[:1]
		if sign == b"$":
			return []
		if sign == b"-":
			folder, names = split_absences(text)
			real, passed = self.find(folder or ROOT, 0)
			return passed + [(real, name) for name in names]
		path = path_of(text)
		if sign == b"=":
			# there are many: where a link leads is told by the inode, as long as it is not made again
			folder, _, name = path.rpartition(b"/")
			real, passed = self.find(folder or ROOT, 0)
			device, inode, _ = text[1:].split(b",", 2)
			return [*passed, (real, name), (device, inode)]
		real, passed = self.find(path, 0)
		folder, _, name = real.rpartition(b"/")
		return [*passed, (folder or ROOT, name), *([(real, ANY)] if sign == b"[" else [])]

	def find(self, path: bytes, depth: int) -> Tuple[bytes, List[Place]]:
		"""A path without links, and what was passed on the way that is no folder."""
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
			# where paths lead shows in the files that texts are about; folders such as /tmp change all the time
			with answers.Hearer.look_away():
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
	"""What has become of what a text is about, for people; ``show`` has paths as people call them."""
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
