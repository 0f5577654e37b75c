"""
Decides which commands of a build are cached, and counts hits and misses.
"""

import os
import sys
from typing import Dict, Optional, Type

from waflib import Logs, Options, Task
from waflib.Tools import c_preproc, ccroot

from ..client import engine, protocol
from ..hooks import lifecycle, stock
from . import jobs, voided
from .settings import REMOTE, Settings, find_remote, find_terminal, find_variables, read_settings

KNOWN = ("uncached", "hit", "miss")
IF_SMALL = 256
"""A flag besides those of the protocol: cached if it is small, even if the project has not asked for it."""
SMALL = 16 << 20
SMALL_LINK = 4 << 20
"""The results of larger links would fill the store."""
COMPILES = ("asm", "c", "cxx", "d", "fc", "gas", "gchx", "nasm", "winrc")

OWN = frozenset((*stock.METHODS, "scan", "sig_vars", "run", "process", "exec_command"))


class Cacher:
	"""Decides which commands are cached, and counts what became of them. There is one per process."""

	def __init__(self) -> None:
		self.settings: Optional[Settings] = None
		self.active = False
		self.failure = ""
		"""Why the settings could not be read."""
		self.told = False
		self.kinds: Dict[type, int] = {}
		"""The flags by task class."""
		self.counts = [0, 0, 0]
		self.unstored = 0
		self.targets = voided.Targets()
		self.saved = 0
		"""The processor time in microseconds that the commands of hits took when they ran."""
		self.begun, self.gained = 0, 0
		"""How many compiles began after their headers, and the processor time in microseconds that this saved."""
		self.remote: Optional[str] = None
		"""The shared stores that the build names for itself; empty for none."""
		self.solo: Optional[Task.Task] = None
		"""With -j1, the task that runs next."""

	def decide(self) -> None:
		"""When the options are known, find out whether and how commands are cached."""
		self.active = False
		self.failure = ""
		engine.Chosen.forget()
		variables = find_variables(Options.options, os.environ)
		self.remote = find_remote(Options.options)
		try:
			self.settings = settings = read_settings(variables, self.remote)
		except protocol.EngineError as e:
			self.failure = str(e)
			return
		if self.remote:
			hide_secrets(self.remote, settings.remote)
		if settings.disable:
			return
		if self.remote:
			jobs.raise_usual(settings.elsewhere)
		if settings.folder != engine.runtime_folder():
			engine.Chosen.choose(settings.folder, variables)
		self.active = True

	def tell_failure(self) -> None:
		"""Warn once why there is no cache. Without an engine, another warning has said so."""
		if self.failure and not self.told:
			self.told = True
			Logs.warn("wafcc: %s (going on without the cache)", self.failure)

	@property
	def memory(self) -> Optional[str]:
		"""The setting of this name; None if the settings could not be read."""
		return self.settings.memory if self.settings else None

	def introduce(self) -> bytes:
		"""The frame about caching that is sent first on each connection."""
		settings = self.settings
		if settings is None or not self.active:
			return protocol.EMPTY
		terminal = find_terminal()
		flags = protocol.READ_ONLY if settings.read_only else 0
		flags |= protocol.RECACHE if settings.recache else 0
		flags |= protocol.TERMINAL if terminal else 0
		flags |= protocol.SHARE_CHECKOUTS if settings.share_checkouts else 0
		columns, rows = terminal or (0, 0)
		namespace = settings.namespace + settings.extra
		remote = None if self.remote is None else os.fsencode(self.remote)
		flags |= 0 if remote is None else protocol.REMOTE
		return protocol.encode_caching(flags, columns, rows, settings.bases, namespace, settings.store, remote=remote)

	def find_flags(self, task: Task.Task) -> int:
		"""The flags for the command of this task, which are found once per task."""
		flags: Optional[int] = task.__dict__.get("wafcc_flags")
		if flags is None:
			flags = task.wafcc_flags = self.find_new_flags(task)
		return flags

	def find_new_flags(self, task: Task.Task) -> int:
		cls = task.__class__
		kind = self.kinds.get(cls)
		if kind is None:
			kind = self.kinds[cls] = find_kind(cls)
		if "cache" in task.__dict__ or "cache" in task.generator.__dict__:
			asked = task.__dict__.get("cache", task.generator.__dict__.get("cache"))
			if asked:
				kind = (kind | find_joining(cls)) & ~IF_SMALL
			elif kind & IF_SMALL:
				kind = 0
		if not kind or is_kept_out(task):
			return 0
		return kind if OWN.isdisjoint(task.__dict__) else kind & ~protocol.INPUTS

	def mark(self, task: Task.Task, command: bytes) -> bytes:
		"""The command of this task with its flags set."""
		flags = self.find_flags(task) if self.active else 0
		if flags & IF_SMALL:
			flags = flags & ~IF_SMALL if is_small(task) else 0
		return self.declare(task, command, flags) if flags else command

	def mark_call(self, task: Task.Task, command: bytes) -> bytes:
		"""The same for a command that the code of this task runs besides its own: it counts if the task asks for it."""
		flags = self.find_flags(task) if self.active else 0
		if not flags & protocol.FACTS or flags & IF_SMALL:
			return command
		return self.declare(task, command, flags & ~protocol.INPUTS)

	def declare(self, task: Task.Task, command: bytes, flags: int) -> bytes:
		command = bytes((command[0] | flags,)) + command[1:]
		if flags & protocol.FACTS:
			# the arguments of a compile tell its outputs; other entries of a shared store may write these files only
			command = protocol.declare_outputs(command, [node.abspath() for node in task.outputs])
		return command

	def hear(self, ended: lifecycle.Ended) -> None:
		"""Count what the cache did for a task."""
		task, told = ended.task, ended.told
		if task is None or told is None:
			return
		self.counts[told.known] += 1
		self.saved += told.processor
		if told.saved:
			self.begun += 1
			self.gained += told.saved
		if told.unstored:
			self.unstored += 1
		target = task.generator
		if self.targets.open.get(target, self) is not None:
			self.targets.hear(target, told)
		if Logs.verbose:
			words = told.show()
			Logs.debug("wafcc: %s: %s%s", task, KNOWN[told.known], ": " + words if words else "")
		if ended.learned is not None:
			task.wafcc_learned = ended.learned

	def describe_voided(self) -> str:
		"""One line about targets of which nothing is cached; empty if there are none."""
		return self.targets.describe()

	def finish(self) -> None:
		"""Called at exit: tell for ``--zones=wafcc`` how many commands were hits and misses."""
		if Logs.verbose and Logs.log and sum(self.counts):
			uncached, hits, misses = self.counts
			Logs.debug("wafcc: %d hits, %d misses, %d uncached", hits, misses, uncached)


class Hidden(str):
	"""An address. Where Waf saves its options, it is shown without its secrets."""

	shown: str

	def __repr__(self) -> str:
		return repr(self.shown)


def hide_secrets(address: str, shown: str) -> None:
	"""Show an address without its secrets, since Waf writes its options and its command line into files and logs."""
	if address == shown:
		return
	sys.argv[:] = [word.replace(address, shown) for word in sys.argv]
	values = vars(Options.options)
	if values.get(REMOTE.lower()) == address:
		hidden = values[REMOTE.lower()] = Hidden(address)
		hidden.shown = shown


def find_kind(cls: Type[Task.Task]) -> int:
	"""The flags for commands of a task class, apart from the wishes of single tasks."""
	asked = getattr(cls, "cache", None)
	if asked:
		return find_joining(cls)
	if asked is None and issubclass(cls, ccroot.link_task):
		return find_joining(cls) | IF_SMALL
	if cls.scan is not c_preproc.scan and cls.__name__ not in COMPILES:
		return 0
	return protocol.CACHED | find_learning(cls)


def find_joining(cls: Type[Task.Task]) -> int:
	"""The flags for tasks that ask to be cached."""
	return protocol.CACHED | protocol.FACTS | find_learning(cls)


def find_learning(cls: Type[Task.Task]) -> int:
	"""``INPUTS`` for a class whose tasks run one command and use Waf's methods, so that the engine knows all inputs."""
	run = getattr(cls, "run", None)  # some classes only stand for files, and never run
	if not stock.is_compiled(run) or (cls.scan is not None and cls.scan is not c_preproc.scan):
		return 0
	is_usual = all(getattr(cls, name) is getattr(Task.Task, name) for name in stock.METHODS)
	return protocol.INPUTS if is_usual else 0


def is_small(task: Task.Task) -> bool:
	"""Tell whether the members of a library or program are so small that storing a copy for each build costs little."""
	limit = SMALL if isinstance(task, ccroot.stlink_task) else SMALL_LINK
	try:
		return sum(os.stat(node.abspath()).st_size for node in (*task.inputs, *task.dep_nodes)) <= limit
	except OSError:
		return False


def is_kept_out(task: Task.Task) -> bool:
	generator = task.generator
	return bool(getattr(task, "nocache", False) or getattr(generator, "nocache", False) or task.env.nocache)
