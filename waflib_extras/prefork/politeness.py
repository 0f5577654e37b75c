"""
The options by which a build leaves resources of the machine to others.

Some change this process of Waf's, and the engine gives each command what its Waf has. What only the engine can do
(tokens of a jobserver, a limit of load, the brake) is sent to it in the frame ``policy``. ``docs/neighbor.md`` tells
what each option does.
"""

import ctypes
import os
import re
import shutil
import stat
import subprocess
from typing import Callable, List, Mapping, NamedTuple, Optional, Set, Tuple, TypeVar

from waflib import Errors, Logs, Options

from ..client import protocol

SCHEDULERS = {"normal": 0, "batch": 3, "idle": 5}  # Linux's numbers; PyPy does not name all of them
JOBSERVERS = ("auto", "pipe", "fifo", "no")
MOST_PROCESSORS = 1024  # the size of the C library's cpu_set_t
MOST_LOAD = 0xFFFFFFFF / 100
MEMORY = "WAFCC_MEMORY"

Ends = Tuple[int, int]
T = TypeVar("T")


class Policy(NamedTuple):
	"""The frame ``policy`` for the engine, and the descriptors that go with it."""

	frame: bytes
	"""Empty if there is nothing to tell."""
	fds: Tuple[int, ...]


def add_options(opt: Options.OptionsContext) -> None:
	"""The options of this file, in the group of the tool that uses it."""
	group = opt.add_option_group("Options for the sake of others on this machine")
	group.add_option("--nice", metavar="N", help="run everything with this nice value, -20 to 19")
	group.add_option(
		"--sched",
		metavar="POLICY",
		help="how the system schedules everything: normal, batch, or idle (only when nobody else wants to run)",
	)
	group.add_option("--processors", metavar="LIST", help="run everything on these only, as 0-3,6")
	group.add_option(
		"--load", metavar="N", help="start no further command while N threads or more want to run on this machine"
	)
	group.add_option(
		"--jobserver",
		metavar="FORM",
		help="share the slots with make, ninja and compilers that commands start: auto, pipe or fifo;"
		" no: also take no tokens of a make that runs Waf [default: only take tokens]",
	)
	group.add_option(
		"--memory",
		metavar="SIZE",
		help="start commands only when they fit into memory, by what they needed earlier: auto for what is available,"
		" a size such as 4G, or off [default: off]",
	)
	group.add_option(
		"--no-memory-brake", action="store_true", help="start as many commands as ever when memory runs short"
	)


# ---- what is asked for


def parse_nice(text: Optional[str]) -> Optional[int]:
	if text is None:
		return None
	if not re.match(r"[+-]?\d+$", text) or not -20 <= int(text) <= 19:
		raise Errors.WafError("--nice=%s: give a whole number from -20 to 19" % text)
	return int(text)


def parse_scheduler(text: Optional[str]) -> Optional[str]:
	if text is not None and text not in SCHEDULERS:
		raise Errors.WafError("--sched=%s: give one of %s" % (text, ", ".join(SCHEDULERS)))
	return text


def parse_processors(text: Optional[str]) -> Optional[Set[int]]:
	if text is None:
		return None
	found: Set[int] = set()
	for part in text.split(","):
		match = re.match(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*$", part)
		first, last = (int(match.group(1)), int(match.group(2) or match.group(1))) if match else (1, 0)
		if first > last or last >= MOST_PROCESSORS:
			raise Errors.WafError(
				"--processors=%s: give numbers and ranges below %d, as 0-3,6" % (text, MOST_PROCESSORS)
			)
		found.update(range(first, last + 1))
	return found


def parse_load(text: Optional[str]) -> int:
	"""The value of --load in hundredths; 0 for no limit."""
	if text is None:
		return 0
	try:
		load = float(text)
	except ValueError:
		load = 0.0
	if not 0.01 <= load <= MOST_LOAD:
		raise Errors.WafError("--load=%s: give a number above 0" % text)
	return round(load * 100)


def parse_jobserver(text: Optional[str]) -> Optional[str]:
	if text is not None and text not in JOBSERVERS:
		raise Errors.WafError("--jobserver=%s: give one of %s" % (text, ", ".join(JOBSERVERS)))
	return text


def parse_memory(text: Optional[str], source: str = "--memory") -> Optional[int]:
	"""The size in bytes, with the syntax of the settings of ``wafcc``; 0 for what is available, None for no limit."""
	if text is None or text == "off":
		return None
	if text == "auto":
		return 0
	match = re.match(r"(\d+\.?\d*|\.\d+)\s*(?:([kmgt])(i?)b?|(b))?$", text, re.IGNORECASE)
	size = 0
	if match:
		number, unit, binary, plain = match.groups()
		power = 0 if plain else "kmgt".index((unit or "g").lower()) + 1
		size = int(float(number) * (1024 if binary else 1000) ** power)
	if not 0 < size < 1 << 53:
		raise Errors.WafError("%s=%s: give auto, off, or a size such as 4G" % (source, text))
	return size


# ---- what this process does to itself


class Wishes(NamedTuple):
	"""The properties that commands inherit from this process."""

	nice: Optional[int]
	scheduler: Optional[str]
	processors: Optional[Set[int]]

	@property
	def wanted(self) -> bool:
		"""Tell whether there is anything to change."""
		return self != NO_WISHES


NO_WISHES = Wishes(None, None, None)


def find_wishes(options: object) -> Wishes:
	"""The values of the options. A mistake is an error before anything is changed."""
	return Wishes(
		parse_nice(getattr(options, "nice", None)),
		parse_scheduler(getattr(options, "sched", None)),
		parse_processors(getattr(options, "processors", None)),
	)


def apply(wishes: Wishes) -> None:
	"""Change this process, and so all that it starts later. If the system refuses something, a warning says so."""
	if wishes.processors is not None:
		_attempt("--processors", "name some that this process may use", _set_processors, wishes.processors)
	if wishes.scheduler is not None:
		_attempt("--sched=%s" % wishes.scheduler, "from idle only root comes back", _set_scheduler, wishes.scheduler)
	if wishes.nice is not None:
		remedy = "below the present value it takes root, or a higher limit (ulimit -e)"
		_attempt("--nice=%d" % wishes.nice, remedy, _set_nice, wishes.nice)


def _attempt(what: str, remedy: str, act: Callable[[T], None], value: T) -> None:
	try:
		act(value)
	except OSError as e:
		Logs.warn("%s: %s: %s (going on without)", what, e.strerror, remedy)


def _set_nice(nice: int) -> None:
	os.setpriority(os.PRIO_PROCESS, 0, nice)


def _set_scheduler(name: str) -> None:
	os.sched_setscheduler(0, SCHEDULERS[name], os.sched_param(0))


def _set_processors(processors: Set[int]) -> None:
	if hasattr(os, "sched_setaffinity"):
		return os.sched_setaffinity(0, processors)
	# PyPy has no such function
	bits = sum(1 << number for number in processors).to_bytes(MOST_PROCESSORS // 8, "little")
	if ctypes.CDLL(None, use_errno=True).sched_setaffinity(0, len(bits), bits):
		number = ctypes.get_errno()
		raise OSError(number, os.strerror(number))


# ---- what the engine is told


def check(options: object) -> None:
	"""Raise an error for a mistake in the options, before anything is started."""
	parse_load(getattr(options, "load", None))
	parse_jobserver(getattr(options, "jobserver", None))
	parse_memory(getattr(options, "memory", None))


def find_memory(options: object, environ: Mapping[str, str], setting: Optional[str] = None) -> Optional[int]:
	"""
	The value of --memory, or else of ``setting``, the one of ``wafcc``. Without that tool, its variable counts.

	As with all settings, a mistake in the variable is told, and stops nothing.
	"""
	given = getattr(options, "memory", None)
	if given is not None:
		return parse_memory(given)
	try:
		return parse_memory(environ.get(MEMORY) or None if setting is None else setting, MEMORY)
	except Errors.WafError as e:
		Logs.warn("%s (going on without)", e)
		return None


def find_policy(options: object, environ: Mapping[str, str], descriptors: bool, memory: Optional[int] = None) -> Policy:
	"""The frame for the engine, and its descriptors, if the connection can carry them."""
	form = parse_jobserver(getattr(options, "jobserver", None))
	load = parse_load(getattr(options, "load", None))
	brake = 0 if not getattr(options, "no_memory_brake", False) else protocol.NO_BRAKE
	auth = "" if form == "no" else find_auth(environ.get("MAKEFLAGS", ""))
	ends = open_ends(auth) if descriptors else None
	flags = brake | (protocol.TOKENS if ends else 0)
	if form in ("auto", "pipe", "fifo"):
		# commands find a caller's fifo by its path, as we do, so no descriptor is needed
		if not ends:
			flags |= choose_form(form)
		elif not auth.startswith("fifo:"):
			flags |= protocol.SERVE_PIPE
	if not flags and not load and memory is None:
		return Policy(b"", ())
	return Policy(protocol.encode_policy(flags, load, memory), ends or ())


def choose_form(form: str) -> int:
	"""
	How commands are to be told of our jobserver.

	A make before 4.4 dies of a fifo, and every make understands a pipe; ninja understands only a fifo.
	"""
	if form == "auto":
		make = shutil.which("make")
		form = "pipe" if make and not knows_fifo(make) else "fifo"
	return protocol.SERVE_PIPE if form == "pipe" else protocol.SERVE_FIFO


def knows_fifo(make: str) -> bool:
	"""Ask a make for its version."""
	try:
		done = subprocess.run([make, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
	except (OSError, subprocess.TimeoutExpired):
		return False
	match = re.search(rb"GNU Make (\d+)\.(\d+)", done.stdout)
	return match is not None and (int(match.group(1)), int(match.group(2))) >= (4, 4)


def find_auth(flags: str) -> str:
	"""The jobserver that ``MAKEFLAGS`` names. If there are several, the last one counts."""
	words: List[str] = flags.split(" -- ")[0].split()
	found = [word.split("=", 1)[1] for word in words if re.match(r"--jobserver-(auth|fds)=", word)]
	return found[-1] if found else ""


def open_ends(auth: str) -> Optional[Ends]:
	"""The descriptors of a caller's jobserver; empty if there is none, or if we have not inherited it."""
	try:
		if auth.startswith("fifo:"):
			# for reading and writing, since to open a fifo for one of them can block
			both = os.open(auth[5:], os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
			if stat.S_ISFIFO(os.fstat(both).st_mode):
				return both, both
			os.close(both)
			return None
		match = re.match(r"(\d+),(\d+)$", auth)
		if not match:
			return None
		ends = int(match.group(1)), int(match.group(2))
		# make closes them for a recipe without "+", and another file may have the number then
		return ends if all(stat.S_ISFIFO(os.fstat(end).st_mode) for end in ends) else None
	except (OSError, OverflowError):
		return None
