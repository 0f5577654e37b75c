"""
Notes what a process looks at: each file that it looks for, lists or reads, and anything else that it does.

A run that has only looked gives the same answer again as long as nothing has changed that it has looked at. Anything
else that it does (writing, starting a process, reading the clock, using the network) hinders a memo. The first such
thing is told as the reason.

``watched`` has the functions and events through which this is noticed. It knows nothing of Waf.
"""

import contextlib
import os
import posix
import stat
import subprocess
import time
from types import CodeType
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from ..facts import answers, stamps

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Signature = Tuple[int, ...]
Listed = Tuple[Optional[Signature], Optional[List[str]]]
"""The signature of a folder, and the names in it; None if there is no folder."""
Question = Tuple[str, Tuple[Any, ...]]
"""A function, or ``PROGRAM``, and its arguments: a question that can be asked again."""
K = TypeVar("K")
V = TypeVar("V")
real_stat = posix.stat
real_lstat = posix.lstat
real_listdir = posix.listdir
real_time_ns = time.time_ns

ONLY_READ = os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW | os.O_NONBLOCK  # flags of a file that is opened to be read
NO_CONTENT = ("/proc/", "/sys/", "/dev/")  # the content of files there may change without their sizes and times


def names(text: str) -> FrozenSet[str]:
	return frozenset(text.split())


PROGRAM = "what a program tells"
"""Stands for the name of the function if a program was asked."""

# names by which code can use what is not noticed: the clock, random numbers, or the system without functions of os
UNSEEN_NAMES = names(
	"""
	_ctypes _io _posixsubprocess cffi crypt ctypes curses datetime dbm getpass grp posix pwd random readline resource
	secrets select socket spwd sqlite3 ssl termios urandom uuid
	"""
)


def sign(found: os.stat_result) -> Signature:
	"""All parts of a file's status that show a change. The time of the last access is not among them."""
	return (
		found.st_mode,
		found.st_ino,
		found.st_dev,
		found.st_nlink,
		found.st_uid,
		found.st_gid,
		found.st_size,
		found.st_mtime_ns,
		found.st_ctime_ns,
	)


def is_plain(signature: Optional[Signature]) -> bool:
	"""Tell whether this is the signature of a file, and not of a folder or something else."""
	return signature is not None and stat.S_ISREG(signature[0])


CHANGED = 8  # the position in a signature of the time of the last change of any kind, which no program can set


def signature_of(path: Path) -> Optional[Signature]:
	"""The signature of the file at a path now; None if there is none."""
	try:
		return sign(real_stat(path))
	except (OSError, ValueError):
		return None


def kind_of(path: Path) -> int:
	"""The kind of the file at a path now; 0 if there is none."""
	try:
		return stat.S_IFMT(real_stat(path).st_mode)
	except (OSError, ValueError):
		return 0


def folder_of(path: Path) -> Optional[Tuple[int, int]]:
	"""The identity of the folder at a path now; None if there is none."""
	try:
		found = real_stat(path)
	except (OSError, ValueError):
		return None
	return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def link_of(path: Path) -> int:
	"""The same without following a link."""
	try:
		return stat.S_IFMT(real_lstat(path).st_mode)
	except (OSError, ValueError):
		return 0


def is_fresh(signature: Signature, now: int) -> bool:
	"""Tell whether a file was changed so lately that another change might not show."""
	return stamps.is_recent(signature[CHANGED], now)


def hinder(reason: str) -> None:
	"""Note a hindrance, if there is an active witness."""
	seen = Witness.active
	if seen is not None:
		seen.hinder(reason)


class Witness:
	"""Notes the facts of a process from ``begin`` to ``end``."""

	active: Optional["Witness"] = None

	def __init__(self) -> None:
		self.files: Dict[str, Optional[Signature]] = {}
		self.own: Dict[str, Optional[Signature]] = {}
		"""The signatures of links themselves."""
		self.folders: Dict[str, Tuple[int, int]] = {}
		self.kinds: Dict[str, int] = {}
		self.links: Dict[str, int] = {}
		self.lists: Dict[str, Listed] = {}
		self.asked: Dict[Question, object] = {}
		self.codes: List[CodeType] = []
		self.hindrance = ""
		self.began = 0
		self.cwd = ""

	def begin(self) -> None:
		self.began = real_time_ns()
		self.cwd = os.getcwd()
		Witness.active = self

	def end(self) -> None:
		Witness.active = None

	@classmethod
	def look_away(cls) -> Optional["Witness"]:
		"""Note nothing until the returned witness is made active again."""
		seen, cls.active = cls.active, None
		return seen

	@classmethod
	@contextlib.contextmanager
	def looking_away(cls) -> Iterator[Optional["Witness"]]:
		"""Note nothing within this context."""
		seen = cls.look_away()
		try:
			yield seen
		finally:
			cls.active = seen

	def hinder(self, reason: str) -> None:
		"""Note why there can be no memo of this run, and note nothing else from then on."""
		if not self.hindrance:
			self.hindrance = reason
		self.end()

	def place(self, path: Path) -> str:
		"""The absolute path of a given one, not changed otherwise."""
		path = os.fsdecode(path)
		return path if path.startswith("/") else os.path.join(self.cwd, path)

	def keep(self, facts: Dict[K, V], key: K, value: V) -> None:
		if facts.setdefault(key, value) != value:
			self.hinder("changed while it was looked at: %s" % (key,))

	def see_open(self, path: Union[Path, int], mode: Optional[str], flags: int) -> None:
		"""Note that a file is about to be opened."""
		if isinstance(path, int):
			return self.hinder("makes a stream of descriptor %d" % path)
		place = self.place(path)
		if place == os.devnull:
			return
		writes = set(mode) & set("wax+") if isinstance(mode, str) else flags & ~ONLY_READ
		if writes:
			return self.hinder("writes %s" % place)
		if place.startswith(NO_CONTENT):
			return self.hinder("reads %s" % place)
		signature = signature_of(place)
		if signature and not (stat.S_ISREG(signature[0]) or stat.S_ISDIR(signature[0])):
			return self.hinder("reads %s, which is no file" % place)
		self.keep(self.files, place, signature)

	def see_code(self, code: CodeType) -> None:
		"""Note code that is about to be run. The names in it are checked when the run is over."""
		self.codes.append(code)

	def see_list(self, path: Path, names: Optional[Sequence[Union[str, bytes]]]) -> None:
		place = self.place(path)
		self.keep(
			self.lists, place, (signature_of(place), None if names is None else [os.fsdecode(name) for name in names])
		)

	def see_names(self, path: Path) -> None:
		"""Note that a folder's status was asked for to see whether its names have changed."""
		if self.place(path) not in self.lists:
			try:
				names: Optional[Sequence[Union[str, bytes]]] = real_listdir(path)
			except OSError:
				names = None
			self.see_list(path, names)

	def find_hindrance(self, is_trusted: Callable[[str], bool]) -> str:
		"""The reason why there is no memo, when the run is over. Trusted code is not searched for names."""
		for code in self.codes:
			if not self.hindrance and not is_trusted(code.co_filename):
				name = find_unseen(code)
				if name:
					self.hinder("%s names %s" % (code.co_filename, name))
		for facts in (self.files, self.own):
			for place, signature in facts.items():
				if not self.hindrance and signature and is_fresh(signature, self.began):
					self.hinder("changed just before: %s" % place)
		return self.hindrance


def find_unseen(code: CodeType) -> str:
	"""A name in code by which it can use what is not noticed; empty if there is none."""
	for name in code.co_names:
		if not UNSEEN_NAMES.isdisjoint(name.split(".")):
			return name
	for constant in code.co_consts:
		if isinstance(constant, CodeType):
			name = find_unseen(constant)
			if name:
				return name
	return ""


STANDARD = os.path.dirname(os.__file__) + os.sep
INSTALLED = (STANDARD + "site-packages", STANDARD + "dist-packages")


def is_standard(path: str) -> bool:
	"""Tell whether a module is the interpreter's own."""
	return path.startswith(("<frozen ", STANDARD)) and not path.startswith(INSTALLED)


# ---- questions that are asked again


def plain(answer: object) -> object:
	"""An answer as a value that can be stored and compared."""
	if isinstance(answer, set):
		return sorted(answer)
	return tuple(answer) if isinstance(answer, tuple) else answer


def ask_again(name: str, args: Tuple[Any, ...]) -> object:
	"""The present answer of a repeated function or of a program."""
	try:
		if name == PROGRAM:
			return plain(answers.ProgramCall(*args).ask())
		real = getattr(posix, name)
		return plain(getattr(real, "real", real)(*args))
	except OSError as e:
		return ("error", e.errno)
	except subprocess.SubprocessError as e:
		return ("error", str(e))


def see_program_call(question: answers.ProgramCall) -> answers.Answer:
	"""Note the output of a program that changes nothing. Starting it is no hindrance."""
	with Witness.looking_away() as seen:
		answer = question.ask()
	if seen is not None:
		seen.keep(seen.asked, (PROGRAM, tuple(question)), plain(answer))
	return answer
