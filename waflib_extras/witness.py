"""
What a process sees of the world: every file that it looks for, looks at, lists or reads, and whatever it does besides.

A run that only looked gives the same answer again as long as everything that it saw is as it was; its facts are kept
for that. Whatever else it does (writes, starts a process, reads the clock, asks the network …) hinders that, and the
first such thing is the reason that is told.

Two ways together see it all: audit events of the interpreter, for files that are opened, modules, processes and
sockets; and functions of ``os`` and ``time`` that are replaced by objects which note and then call the real one.
A function of ``os`` that is not known to be harmless hinders, so that one that is new does, too.
Knows nothing of Waf.
"""

import grp
import os
import posix
import posixpath
import pwd
import stat
import subprocess
import sys
import time
from types import CodeType
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

from . import inquiry

Signature = Tuple[int, ...]
real_stat = posix.stat
real_lstat = posix.lstat
real_listdir = posix.listdir
real_scandir = posix.scandir
real_time_ns = time.time_ns

JUST_NOW = 100_000_000  # ns: a file that was changed so late may be changed again without that showing in its times
JUST_NOW_COARSE = 2_100_000_000  # the same where times have only whole seconds
NO_CONTENT = ("/proc/", "/sys/", "/dev/")  # what is read there is not told by sizes and times


def names(text: str) -> FrozenSet[str]:
	return frozenset(text.split())


# functions of os that tell of nothing outside, or of what a caller is compared in, or that only change this process
PURE = names(
	"""
	WCOREDUMP WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WSTOPSIG WTERMSIG _exit abort close closerange
	device_encoding fspath get_blocking get_inheritable getcwd getcwdb getegid geteuid getgid getgroups getuid
	isatty lseek major makedev minor putenv register_at_fork sched_yield set_blocking set_inheritable strerror
	unsetenv waitstatus_to_exitcode
	_path_normpath _path_splitroot _path_splitroot_ex _inputhook _is_inputhook_installed
	"""
)
REPEATED = frozenset(("access", "confstr", "cpu_count", "pathconf", "readlink", "sysconf", "uname"))
"""Those that are asked again to see whether the answer is the same."""
PROGRAM = "what a program tells"
"""In place of a name, where a program was asked."""
CLOCKS = names(
	"""
	asctime clock_gettime clock_gettime_ns ctime gmtime localtime monotonic monotonic_ns perf_counter perf_counter_ns
	process_time process_time_ns sleep strftime thread_time thread_time_ns time time_ns
	"""
)
TRUSTED_WITH_CLOCK = ("logging", "threading", "queue", "waflib.Utils")  # they show only what is known to be a time
SIZES = tuple((fd, 0x5413) for fd in (0, 1, 2))  # TIOCGWINSZ of streams, whose size a memo is kept by
LOOKS_FOR_LINKS = ("realpath", "_joinrealpath")  # functions of posixpath that ask for nothing else
LOOKS_FOR_FOLDERS = ("waflib.Scripting",)  # whose only question to a folder's status is which one it is
LOOKS_FOR_NAMES = ("importlib._bootstrap_external", "_frozen_importlib_external")  # … what files are in it
HARMLESS_EVENTS = names(
	"""
	builtins.id code.__new__ compile exec function.__new__ gc.get_objects gc.get_referents gc.get_referrers glob.glob
	glob.glob/2 import marshal.load marshal.loads object.__delattr__ object.__getattr__ object.__setattr__ open
	os.chdir os.listdir os.putenv os.scandir os.unsetenv os.walk pathlib.Path.glob pathlib.Path.rglob pickle.find_class
	sys._getframe sys._getframemodulename sys.addaudithook _thread.start_new_thread _thread.start_joinable_thread
	cpython.PyInterpreterState_New setopencodehook
	"""
)
# names by which code gets at what is not seen: the clock, chance, or the system without the functions above
UNSEEN_NAMES = names(
	"""
	_ctypes _io _posixsubprocess cffi crypt ctypes curses datetime dbm getpass grp posix pwd random readline resource
	secrets select socket spwd sqlite3 ssl termios urandom uuid
	"""
)


def sign(found: os.stat_result) -> Signature:
	"""All of a file's status that shows a change, but when it was read last."""
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


CHANGED = 8  # where a signature has the time of the last change of any kind, which nobody can set


def signature_of(path: Any) -> Optional[Signature]:
	"""The signature of what is there now, if anything is."""
	try:
		return sign(real_stat(path))
	except (OSError, ValueError):
		return None


def kind_of(path: Any) -> int:
	"""Which kind of file is there now, 0 for none."""
	try:
		return stat.S_IFMT(real_stat(path).st_mode)
	except (OSError, ValueError):
		return 0


def folder_of(path: Any) -> Optional[Tuple[int, int]]:
	"""Which folder is there now, if one is."""
	try:
		found = real_stat(path)
	except (OSError, ValueError):
		return None
	return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def link_of(path: Any) -> int:
	"""The same without following a link."""
	try:
		return stat.S_IFMT(real_lstat(path).st_mode)
	except (OSError, ValueError):
		return 0


def is_fresh(signature: Signature, now: int) -> bool:
	"""Tell whether it was changed so late that a further change might not show."""
	changed = signature[CHANGED]
	return changed > now - (JUST_NOW if changed % 1_000_000_000 else JUST_NOW_COARSE)


def hinder(reason: str) -> None:
	"""Note a reason, if anybody notes anything; another thread may have ended that just now."""
	seen = Witness.active
	if seen is not None:
		seen.hinder(reason)


class Witness:
	"""The facts of one process, from ``begin`` to ``end``."""

	active: Optional["Witness"] = None

	def __init__(self) -> None:
		self.files: Dict[str, Optional[Signature]] = {}
		self.own: Dict[str, Optional[Signature]] = {}
		"""Of links themselves."""
		self.folders: Dict[str, Tuple[int, int]] = {}
		self.kinds: Dict[str, int] = {}
		self.links: Dict[str, int] = {}
		self.lists: Dict[str, Tuple[Optional[Signature], Optional[List[str]]]] = {}
		self.asked: Dict[Tuple[str, Tuple[Any, ...]], Any] = {}
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
		"""Note nothing until the witness that is returned is active again."""
		seen, cls.active = cls.active, None
		return seen

	def hinder(self, reason: str) -> None:
		"""Note why this run cannot stand for another one; nothing more needs to be seen."""
		if not self.hindrance:
			self.hindrance = reason
		self.end()

	def place(self, path: Any) -> str:
		"""The absolute path of one that was given; it stays as it is otherwise."""
		path = os.fsdecode(path)
		return path if path.startswith("/") else os.path.join(self.cwd, path)

	def keep(self, facts: Dict[Any, Any], key: Any, value: Any) -> None:
		if facts.setdefault(key, value) != value:
			self.hinder("changed while it was looked at: %s" % (key,))

	def see_open(self, path: Any, mode: Any, flags: Any) -> None:
		"""A file is about to be opened."""
		if isinstance(path, int):
			return self.hinder("makes a stream of descriptor %d" % path)
		place = self.place(path)
		if place == os.devnull:
			return
		writes = set(mode) & set("wax+") if isinstance(mode, str) else flags & ~(os.O_CLOEXEC | os.O_NOFOLLOW)
		if writes:
			return self.hinder("writes %s" % place)
		if place.startswith(NO_CONTENT):
			return self.hinder("reads %s" % place)
		signature = signature_of(place)
		if signature and not (stat.S_ISREG(signature[0]) or stat.S_ISDIR(signature[0])):
			return self.hinder("reads %s, which is no file" % place)
		self.keep(self.files, place, signature)

	def see_code(self, code: CodeType) -> None:
		"""Code is about to be run; what it names is looked at when the run is over."""
		self.codes.append(code)

	def see_list(self, path: Any, names: Optional[List[Any]]) -> None:
		place = self.place(path)
		self.keep(self.lists, place, (signature_of(place), names and [os.fsdecode(name) for name in names]))

	def see_names(self, path: Any) -> None:
		"""A folder's status was asked for to learn whether other files are in it."""
		if self.place(path) not in self.lists:
			try:
				names: Optional[List[str]] = real_listdir(path)
			except OSError:
				names = None
			self.see_list(path, names)

	def find_hindrance(self, is_trusted: Callable[[str], bool]) -> str:
		"""What hinders, when the run is over; trusted files use what is not seen for nothing that shows."""
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
	"""A name in code by which it may get at what is not seen, if it has one."""
	for name in code.co_names:
		if not UNSEEN_NAMES.isdisjoint(name.split(".")):
			return name
	for constant in code.co_consts:
		if isinstance(constant, CodeType):
			name = find_unseen(constant)
			if name:
				return name
	return ""


# ---- what stands in for functions


class Watched:
	"""
	A function with a witness.

	An object, as a function of Python would become a method where a class keeps one of ``os`` as its attribute.
	"""

	__slots__ = ("__name__", "real")

	def __init__(self, name: str, real: Callable[..., Any]) -> None:
		self.__name__ = name
		self.real = real

	def __call__(self, *args: Any, **kwargs: Any) -> Any:
		hinder("calls %s" % self.__name__)
		return self.real(*args, **kwargs)


class Repeated(Watched):
	def __call__(self, *args: Any, **kwargs: Any) -> Any:
		witness = Witness.active
		if witness is None:
			return self.real(*args, **kwargs)
		if kwargs:
			witness.hinder("calls %s with names" % self.__name__)
			return self.real(*args, **kwargs)
		name = self.__name__
		key = (name, (witness.place(args[0]), *args[1:]) if name in ("access", "readlink", "pathconf") else args)
		try:
			answer = self.real(*args)
		except OSError as e:
			witness.keep(witness.asked, key, ("error", e.errno))
			raise
		witness.keep(witness.asked, key, plain(answer))
		return answer


def plain(answer: Any) -> Any:
	"""An answer as something that can be kept and compared."""
	if isinstance(answer, set):
		return sorted(answer)
	return tuple(answer) if isinstance(answer, tuple) else answer


def ask_again(name: str, args: Tuple[Any, ...]) -> Any:
	"""The answer of a repeated function, or of a program, now."""
	try:
		if name == PROGRAM:
			return plain(inquiry.Inquiry(*args).ask())
		real = getattr(posix, name)
		return plain(getattr(real, "real", real)(*args))
	except OSError as e:
		return ("error", e.errno)
	except subprocess.SubprocessError as e:
		return ("error", str(e))


def see_inquiry(question: inquiry.Inquiry) -> inquiry.Answer:
	"""A program is asked that only looks; that it is started concerns nobody."""
	seen = Witness.look_away()
	try:
		answer = question.ask()
	finally:
		Witness.active = seen
	if seen is not None:
		seen.keep(seen.asked, (PROGRAM, tuple(question)), plain(answer))
	return answer


class Stat(Watched):
	def __call__(self, path: Any, *, dir_fd: Any = None, follow_symlinks: bool = True) -> Any:
		witness = Witness.active
		if dir_fd is not None:
			hinder("calls os.stat in a folder's descriptor")
			return self.real(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
		if witness is None:
			return self.real(path, follow_symlinks=follow_symlinks)
		if isinstance(path, int):
			hinder("calls os.stat with a descriptor")
			return self.real(path)
		facts = witness.files if follow_symlinks else witness.own
		try:
			found = self.real(path, follow_symlinks=follow_symlinks)
		except (OSError, ValueError):
			witness.keep(facts, witness.place(path), None)
			raise
		if stat.S_ISDIR(found.st_mode) and follow_symlinks:
			caller = sys._getframe(1).f_globals.get("__name__", "")
			if caller in LOOKS_FOR_FOLDERS:
				witness.keep(witness.folders, witness.place(path), (found.st_dev, found.st_ino))
				return found
			if caller in LOOKS_FOR_NAMES:
				witness.see_names(path)
				return found
		witness.keep(facts, witness.place(path), sign(found))
		return found


class LinkStat(Watched):
	def __call__(self, path: Any, *, dir_fd: Any = None) -> Any:
		witness = Witness.active
		if dir_fd is not None:
			hinder("calls os.lstat in a folder's descriptor")
			return self.real(path, dir_fd=dir_fd)
		if witness is None:
			return self.real(path)
		try:
			found = self.real(path)
		except (OSError, ValueError):
			witness.keep(witness.own, witness.place(path), None)
			raise
		frame = sys._getframe(1)
		if frame.f_globals.get("__name__", "") == "posixpath" and frame.f_code.co_name in LOOKS_FOR_LINKS:
			witness.keep(witness.links, witness.place(path), stat.S_IFMT(found.st_mode))
			return found
		witness.keep(witness.own, witness.place(path), sign(found))
		return found


class Listing(Watched):
	def __call__(self, path: Any = None) -> Any:
		witness = Witness.active
		if witness is None or isinstance(path, int):
			hinder("lists a descriptor")
			return self.real(path)
		try:
			found = list(self.real(path))
		except OSError:
			witness.see_list(path or ".", None)
			raise
		witness.see_list(path or ".", self.name(found))
		return self.give(found)

	def name(self, found: List[Any]) -> List[Any]:
		return found

	def give(self, found: List[Any]) -> Any:
		return found


class Entry:
	"""One of what ``os.scandir`` gives: what is asked of it is noted as if the system had been asked."""

	__slots__ = ("name", "path", "real")

	def __init__(self, real: Any) -> None:
		self.real = real
		self.name = real.name
		self.path = real.path

	def __fspath__(self) -> Any:
		return self.path

	def __repr__(self) -> str:
		return repr(self.real)

	def is_symlink(self) -> bool:
		real = self.real
		witness = Witness.active
		if witness is not None:
			# the system has told it with the name
			kind = stat.S_IFLNK if real.is_symlink() else stat.S_IFDIR if real.is_dir() else 0
			if not kind:
				kind = stat.S_IFREG if real.is_file() else link_of(self.path)
			witness.keep(witness.links, witness.place(self.path), kind)
		return bool(real.is_symlink())

	def is_dir(self, *, follow_symlinks: bool = True) -> bool:
		return self.is_kind(stat.S_IFDIR, follow_symlinks)

	def is_file(self, *, follow_symlinks: bool = True) -> bool:
		return self.is_kind(stat.S_IFREG, follow_symlinks)

	def is_kind(self, kind: int, follow_symlinks: bool) -> bool:
		real = self.real
		ask = real.is_dir if kind == stat.S_IFDIR else real.is_file
		answer: bool = ask(follow_symlinks=follow_symlinks)
		witness = Witness.active
		if witness is not None:
			find = kind_of if follow_symlinks else link_of
			facts = witness.kinds if follow_symlinks else witness.links
			witness.keep(facts, witness.place(self.path), kind if answer else find(self.path))
		return answer

	def is_junction(self) -> bool:
		return False

	def stat(self, *, follow_symlinks: bool = True) -> Any:
		return os.stat(self.path, follow_symlinks=follow_symlinks)

	def inode(self) -> int:
		return int(os.stat(self.path, follow_symlinks=False).st_ino)


class Entries:
	"""What ``os.scandir`` gives; the names have been noted."""

	def __init__(self, entries: Any) -> None:
		self.entries = map(Entry, entries)

	def __iter__(self) -> "Entries":
		return self

	def __next__(self) -> Any:
		return next(self.entries)

	def __enter__(self) -> "Entries":
		return self

	def __exit__(self, *_: Any) -> None:
		self.close()

	def close(self) -> None:
		self.entries = map(Entry, ())


class Scan(Listing):
	def name(self, found: List[Any]) -> List[Any]:
		return [entry.name for entry in found]

	def give(self, found: List[Any]) -> Any:
		return Entries(found)


class Move(Watched):
	def __call__(self, path: Any) -> None:
		self.real(path)
		witness = Witness.active
		if witness is not None:
			witness.cwd = os.getcwd()


class Open(Watched):
	"""Opening is an audit event, which does not tell of the folder's descriptor."""

	def __call__(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
		if dir_fd is not None:
			hinder("opens a file in a folder's descriptor")
		return self.real(path, flags, mode, dir_fd=dir_fd)


class Kind(Watched):
	"""One of the questions of ``os.path`` of which the answer is yes or no."""

	__slots__ = ("answer", "find", "links")

	def __init__(self, name: str, real: Any, find: Callable[[Any], int], answer: Callable[[int], bool]) -> None:
		super().__init__(name, real)
		self.find = find
		self.answer = answer
		self.links = find is link_of

	def __call__(self, path: Any) -> bool:
		witness = Witness.active
		if witness is None or isinstance(path, int):
			return self.real(path)
		kind = self.find(os.fspath(path))
		witness.keep(witness.links if self.links else witness.kinds, witness.place(path), kind)
		return self.answer(kind)


class Clock(Watched):
	def __call__(self, *args: Any) -> Any:
		witness = Witness.active
		if witness is not None:
			caller = sys._getframe(1).f_globals.get("__name__", "")
			shows = caller == "logging" and self.__name__ not in ("time", "time_ns")
			if shows or not (caller in TRUSTED_WITH_CLOCK or caller.startswith("waflib_extras.")):
				witness.hinder("%s reads the clock" % caller)
		return self.real(*args)


class Status(Watched):
	"""The status of a descriptor: of a stream it tells what a caller has made of it."""

	def __call__(self, fd: int) -> Any:
		if fd < 3:
			hinder("looks at what descriptor %d is" % fd)
		return self.real(fd)


class Self(Watched):
	"""The number of this process, which each line of a log asks for."""

	def __call__(self) -> int:
		witness = Witness.active
		if witness is not None and sys._getframe(1).f_globals.get("__name__", "") != "logging":
			witness.hinder("calls os.getpid")
		return self.real()


SPECIAL = {
	"stat": Stat,
	"lstat": LinkStat,
	"listdir": Listing,
	"scandir": Scan,
	"chdir": Move,
	"fstat": Status,
	"open": Open,
	"getpid": Self,
}
KINDS: Tuple[Tuple[str, Callable[[Any], int], Callable[[int], bool]], ...] = (
	("exists", kind_of, bool),
	("isfile", kind_of, stat.S_IFREG.__eq__),
	("isdir", kind_of, stat.S_IFDIR.__eq__),
	("lexists", link_of, bool),
	("islink", link_of, stat.S_IFLNK.__eq__),
)


def hear(event: str, args: Tuple[Any, ...]) -> None:
	"""An audit event."""
	witness = Witness.active
	if witness is None:
		return
	if event == "open":
		witness.see_open(*args)
	elif event == "exec":
		if isinstance(args[0], CodeType):
			witness.see_code(args[0])
	elif event == "import":
		if len(args) > 1 and isinstance(args[1], str) and not is_standard(args[1]):
			witness.hinder("loads %s" % args[1])
	elif event not in HARMLESS_EVENTS and not (event == "fcntl.ioctl" and args[:2] in SIZES):
		witness.hinder(event)


STANDARD = os.path.dirname(os.__file__) + os.sep
INSTALLED = (STANDARD + "site-packages", STANDARD + "dist-packages")


def is_standard(path: str) -> bool:
	"""Tell whether a module is the interpreter's own."""
	return path.startswith(("<frozen ", STANDARD)) and not path.startswith(INSTALLED)


def install() -> None:
	"""Replace the functions, for the life of this process; nothing is noted yet."""
	replaced: Dict[int, Watched] = {}
	for name, real in list(vars(posix).items()):
		if callable(real) and not isinstance(real, (type, Watched)) and name not in PURE:
			replaced[id(real)] = SPECIAL.get(name, Repeated if name in REPEATED else Watched)(name, real)
	for name in CLOCKS:
		real = getattr(time, name, None)
		if real is not None and not isinstance(real, Watched):
			replaced[id(real)] = Clock(name, real)
	for module in (pwd, grp):
		for name, real in list(vars(module).items()):
			if name.startswith("get") and not isinstance(real, Watched):
				replaced[id(real)] = Watched(name, real)
	for name, find, answer in KINDS:
		real = getattr(posixpath, name)
		if not isinstance(real, Watched):
			replaced[id(real)] = Kind(name, real, find, answer)
	for module in list(sys.modules.values()):
		if isinstance(module, type(sys)) and module.__name__ != __name__:
			replace(module, replaced, module.__name__)
	for supports in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
		supports.update([replaced[id(real)] for real in supports if id(real) in replaced])
	sys.addaudithook(hear)
	inquiry.Hearer.hear = see_inquiry


def replace(holder: Any, replaced: Dict[int, Watched], module: str) -> None:
	"""Have what stands in for functions wherever a module, or a class of it, keeps one."""
	for name, value in list(vars(holder).items()):
		if id(value) in replaced:
			setattr(holder, name, replaced[id(value)])
		elif isinstance(value, type) and value.__module__ == module and not isinstance(holder, type):
			replace(value, replaced, module)
