"""
The functions and events through which a ``witness`` notices what a run does.

Audit events of the interpreter tell of opened files, modules, processes and sockets. Functions of ``os`` and ``time``
are replaced by objects that note the call and then call the real one. A function of ``os`` that is not known to be
harmless hinders a memo, so that new functions of later versions do so, too.
"""

import grp
import os
import posix
import posixpath
import pwd
import stat
import sys
import time
from types import CodeType
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from ..facts import answers
from . import witness
from .witness import Path, Witness, hinder, is_standard, kind_of, link_of, names, plain, sign

# functions of os that tell nothing of the outside or only what is compared with the caller, or change this process
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
"""Functions that are called again later to see whether the answer has changed."""
CLOCKS = names(
	"""
	asctime clock_gettime clock_gettime_ns ctime gmtime localtime monotonic monotonic_ns perf_counter perf_counter_ns
	process_time process_time_ns sleep strftime thread_time thread_time_ns time time_ns
	"""
)
TRUSTED_WITH_CLOCK = (
	"logging",
	"threading",
	"queue",
	"waflib.Utils",
)  # they show only values that are known to be times
SIZES = tuple((fd, 0x5413) for fd in (0, 1, 2))  # TIOCGWINSZ of the streams; the sizes are part of a memo's key
LOOKS_FOR_LINKS = ("realpath", "_joinrealpath")  # functions of posixpath that ask for nothing but links
LOOKS_FOR_FOLDERS = ("waflib.Scripting",)  # it asks for a folder's status only to identify it
LOOKS_FOR_NAMES = (
	"importlib._bootstrap_external",
	"_frozen_importlib_external",
)  # it asks for it only to see whether names have changed
HARMLESS_EVENTS = names(
	"""
	builtins.id code.__new__ compile exec function.__new__ gc.get_objects gc.get_referents gc.get_referrers glob.glob
	glob.glob/2 import marshal.load marshal.loads object.__delattr__ object.__getattr__ object.__setattr__ open
	os.chdir os.listdir os.putenv os.scandir os.unsetenv os.walk pathlib.Path.glob pathlib.Path.rglob pickle.find_class
	sys._getframe sys._getframemodulename sys.addaudithook _thread.start_new_thread _thread.start_joinable_thread
	cpython.PyInterpreterState_New setopencodehook
	"""
)


class Watched:
	"""
	A function whose calls are noted.

	It is an object, since a function would become a method where a class has it as an attribute.
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
		seen = Witness.active
		if seen is None:
			return self.real(*args, **kwargs)
		if kwargs:
			seen.hinder("calls %s with names" % self.__name__)
			return self.real(*args, **kwargs)
		name = self.__name__
		key = (name, (seen.place(args[0]), *args[1:]) if name in ("access", "readlink", "pathconf") else args)
		try:
			answer = self.real(*args)
		except OSError as e:
			seen.keep(seen.asked, key, ("error", e.errno))
			raise
		seen.keep(seen.asked, key, plain(answer))
		return answer


class Stat(Watched):
	real: Callable[..., os.stat_result]

	def __call__(
		self, path: Union[Path, int], *, dir_fd: Optional[int] = None, follow_symlinks: bool = True
	) -> os.stat_result:
		seen = Witness.active
		if dir_fd is not None:
			hinder("calls os.stat in a folder's descriptor")
			return self.real(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
		if seen is None:
			return self.real(path, follow_symlinks=follow_symlinks)
		if isinstance(path, int):
			hinder("calls os.stat with a descriptor")
			return self.real(path)
		facts = seen.files if follow_symlinks else seen.own
		try:
			found = self.real(path, follow_symlinks=follow_symlinks)
		except (OSError, ValueError):
			seen.keep(facts, seen.place(path), None)
			raise
		if stat.S_ISDIR(found.st_mode) and follow_symlinks:
			caller = sys._getframe(1).f_globals.get("__name__", "")
			if caller in LOOKS_FOR_FOLDERS:
				seen.keep(seen.folders, seen.place(path), (found.st_dev, found.st_ino))
				return found
			if caller in LOOKS_FOR_NAMES:
				seen.see_names(path)
				return found
		seen.keep(facts, seen.place(path), sign(found))
		return found


class LinkStat(Watched):
	real: Callable[..., os.stat_result]

	def __call__(self, path: Path, *, dir_fd: Optional[int] = None) -> os.stat_result:
		seen = Witness.active
		if dir_fd is not None:
			hinder("calls os.lstat in a folder's descriptor")
			return self.real(path, dir_fd=dir_fd)
		if seen is None:
			return self.real(path)
		try:
			found = self.real(path)
		except (OSError, ValueError):
			seen.keep(seen.own, seen.place(path), None)
			raise
		frame = sys._getframe(1)
		if frame.f_globals.get("__name__", "") == "posixpath" and frame.f_code.co_name in LOOKS_FOR_LINKS:
			seen.keep(seen.links, seen.place(path), stat.S_IFMT(found.st_mode))
			return found
		seen.keep(seen.own, seen.place(path), sign(found))
		return found


class Listing(Watched):
	def __call__(self, path: Union[Path, int, None] = None) -> Any:
		seen = Witness.active
		if seen is None or isinstance(path, int):
			hinder("lists a descriptor")
			return self.real(path)
		try:
			found = list(self.real(path))
		except OSError:
			seen.see_list(path or ".", None)
			raise
		seen.see_list(path or ".", self.name(found))
		return self.give(found)

	def name(self, found: List[Any]) -> List[Union[str, bytes]]:
		return found

	def give(self, found: List[Any]) -> Any:
		return found


class Entry:
	"""An entry of ``os.scandir``. Questions to it are noted as if the system had been asked."""

	__slots__ = ("name", "path", "real")

	def __init__(self, real: "os.DirEntry[str]") -> None:
		self.real = real
		self.name = real.name
		self.path = real.path

	def __fspath__(self) -> str:
		return self.path

	def __repr__(self) -> str:
		return repr(self.real)

	def is_symlink(self) -> bool:
		real = self.real
		seen = Witness.active
		if seen is not None:
			# the system has told the kind with the name
			kind = stat.S_IFLNK if real.is_symlink() else stat.S_IFDIR if real.is_dir() else 0
			if not kind:
				kind = stat.S_IFREG if real.is_file() else link_of(self.path)
			seen.keep(seen.links, seen.place(self.path), kind)
		return bool(real.is_symlink())

	def is_dir(self, *, follow_symlinks: bool = True) -> bool:
		return self.is_kind(stat.S_IFDIR, follow_symlinks)

	def is_file(self, *, follow_symlinks: bool = True) -> bool:
		return self.is_kind(stat.S_IFREG, follow_symlinks)

	def is_kind(self, kind: int, follow_symlinks: bool) -> bool:
		real = self.real
		ask = real.is_dir if kind == stat.S_IFDIR else real.is_file
		answer: bool = ask(follow_symlinks=follow_symlinks)
		seen = Witness.active
		if seen is not None:
			find = kind_of if follow_symlinks else link_of
			facts = seen.kinds if follow_symlinks else seen.links
			seen.keep(facts, seen.place(self.path), kind if answer else find(self.path))
		return answer

	def is_junction(self) -> bool:
		return False

	def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
		return os.stat(self.path, follow_symlinks=follow_symlinks)

	def inode(self) -> int:
		return int(os.stat(self.path, follow_symlinks=False).st_ino)


class Entries:
	"""The result of ``os.scandir``, whose names were noted."""

	def __init__(self, entries: Iterable["os.DirEntry[str]"]) -> None:
		self.entries = map(Entry, entries)

	def __iter__(self) -> "Entries":
		return self

	def __next__(self) -> Entry:
		return next(self.entries)

	def __enter__(self) -> "Entries":
		return self

	def __exit__(self, *_: object) -> None:
		self.close()

	def close(self) -> None:
		self.entries = map(Entry, ())


class Scan(Listing):
	def name(self, found: List[Any]) -> List[Union[str, bytes]]:
		return [entry.name for entry in found]

	def give(self, found: List[Any]) -> Any:
		return Entries(found)


class Move(Watched):
	def __call__(self, path: Union[Path, int]) -> None:
		self.real(path)
		seen = Witness.active
		if seen is not None:
			seen.cwd = os.getcwd()


class Open(Watched):
	"""Notes ``dir_fd``, which the audit event of an opened file does not tell."""

	real: Callable[..., int]

	def __call__(self, path: Path, flags: int, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> int:
		if dir_fd is not None:
			hinder("opens a file in a folder's descriptor")
		return self.real(path, flags, mode, dir_fd=dir_fd)


class Kind(Watched):
	"""A function of ``os.path`` whose answer is yes or no."""

	__slots__ = ("answer", "find", "links")

	real: Callable[..., bool]

	def __init__(
		self, name: str, real: Callable[..., bool], find: Callable[[Path], int], answer: Callable[[int], bool]
	) -> None:
		super().__init__(name, real)
		self.find = find
		self.answer = answer
		self.links = find is link_of

	def __call__(self, path: Union[Path, int]) -> bool:
		seen = Witness.active
		if seen is None or isinstance(path, int):
			return self.real(path)
		kind = self.find(os.fspath(path))
		seen.keep(seen.links if self.links else seen.kinds, seen.place(path), kind)
		return self.answer(kind)


class Clock(Watched):
	def __call__(self, *args: Any) -> Any:
		seen = Witness.active
		if seen is not None:
			caller = sys._getframe(1).f_globals.get("__name__", "")
			shows = caller == "logging" and self.__name__ not in ("time", "time_ns")
			if shows or not (caller in TRUSTED_WITH_CLOCK or caller.startswith("waflib_extras.")):
				seen.hinder("%s reads the clock" % caller)
		return self.real(*args)


class Status(Watched):
	"""The status of a descriptor. That of a stream depends on the caller."""

	real: Callable[..., os.stat_result]

	def __call__(self, fd: int) -> os.stat_result:
		if fd < 3:
			hinder("looks at what descriptor %d is" % fd)
		return self.real(fd)


class Self(Watched):
	"""The number of this process, which logging asks for in each record."""

	real: Callable[..., int]

	def __call__(self) -> int:
		seen = Witness.active
		if seen is not None and sys._getframe(1).f_globals.get("__name__", "") != "logging":
			seen.hinder("calls os.getpid")
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
KINDS: Tuple[Tuple[str, Callable[[Path], int], Callable[[int], bool]], ...] = (
	("exists", kind_of, bool),
	("isfile", kind_of, stat.S_IFREG.__eq__),
	("isdir", kind_of, stat.S_IFDIR.__eq__),
	("lexists", link_of, bool),
	("islink", link_of, stat.S_IFLNK.__eq__),
)


def hear(event: str, args: Tuple[Any, ...]) -> None:
	"""Handle an audit event."""
	seen = Witness.active
	if seen is None:
		return
	if event == "open":
		seen.see_open(*args)
	elif event == "exec":
		if isinstance(args[0], CodeType):
			seen.see_code(args[0])
	elif event == "import":
		if len(args) > 1 and isinstance(args[1], str) and not is_standard(args[1]):
			seen.hinder("loads %s" % args[1])
	elif event not in HARMLESS_EVENTS and not (event == "fcntl.ioctl" and args[:2] in SIZES):
		seen.hinder(event)


def install() -> None:
	"""Replace the functions, as long as this process lives. Nothing is noted yet."""
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
		if isinstance(module, type(sys)) and module.__name__ not in (__name__, witness.__name__):
			replace(module, replaced, module.__name__)
	for supports in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
		supports.update([replaced[id(real)] for real in supports if id(real) in replaced])
	sys.addaudithook(hear)
	answers.Observer.hear = witness.see_program_call
	answers.Observer.look_away = witness.Witness.looking_away


def replace(holder: object, replaced: Dict[int, Watched], module: str) -> None:
	"""Replace the functions in a module and in its classes."""
	for name, value in list(vars(holder).items()):
		if id(value) in replaced:
			setattr(holder, name, replaced[id(value)])
		elif isinstance(value, type) and value.__module__ == module and not isinstance(holder, type):
			replace(value, replaced, module)
