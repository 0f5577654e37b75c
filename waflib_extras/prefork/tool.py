"""The object that runs Waf's commands, and its installation."""

import atexit
import collections
import contextlib
import errno
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from waflib import Context, Errors, Logs, Options, Runner, Utils

from .. import timeline
from ..client import engine, protocol
from ..console import terminal
from ..hooks import entry, lifecycle, stock
from . import capture, dispatcher, politeness
from .capture import Given, Result

if TYPE_CHECKING:
	import subprocess

	from waflib.Task import Task

TOOL = "prefork"
PIPE = Utils.subprocess.PIPE
DEVNULL = Utils.subprocess.DEVNULL
STDOUT = Utils.subprocess.STDOUT

# arguments of Popen that a frame can express, and for the others the values that change nothing
SENDABLE = frozenset(("cwd", "env", "shell", "stdin", "stdout", "stderr", "start_new_session"))
HARMLESS: Dict[str, Tuple[object, ...]] = {
	"bufsize": (None, -1, 0),
	"close_fds": (True,),
	"creationflags": (0,),
	"encoding": (None,),
	"errors": (None,),
	"executable": (None,),
	"pass_fds": ((), []),
	"preexec_fn": (None,),
	"restore_signals": (True,),
	"startupinfo": (None,),
	"text": (None, False),
	"universal_newlines": (None, False),
}
LONGEST_TIMEOUT = 1e12  # seconds
PAUSE = 0.01  # seconds until a command is tried again for which too many files were open


# ---- what a call of Waf means as a command of the engine


class Command:
	"""A call of ``Utils.run_process`` as a command of the engine. Raises ``Unsendable`` if that is impossible."""

	__slots__ = ("encoded", "env", "fds", "stderr", "stdout")

	def __init__(self, cmd: object, kwargs: Given, cargs: Given) -> None:
		if not kwargs.keys() <= SENDABLE:
			_check_others(kwargs)
		self.fds: Sequence[int] = ()
		data = b""
		if _goes_to_pool(kwargs) and kwargs["stdout"] == PIPE and kwargs["stderr"] == PIPE:
			stdin, self.stdout, self.stderr = protocol.NULL, protocol.PIPE, protocol.PIPE  # nearly every command
		else:
			stdin = self._choose_streams(kwargs)
		if cargs:
			data = _find_input(kwargs, cargs)
		new_session = 1 if kwargs.get("start_new_session") else 0
		timeout = _find_timeout(cargs["timeout"], new_session) if "timeout" in cargs else 0
		self.env = _find_environment(kwargs)
		self.encoded = protocol.encode_command(
			new_session,
			stdin,
			self.stdout,
			self.stderr,
			timeout,
			_find_folder(kwargs.get("cwd")),
			_find_arguments(cmd, kwargs.get("shell")),
			data,
		)

	def _choose_streams(self, kwargs: Given) -> int:
		"""Set where the streams lead, and return that of standard input."""
		fds: List[int] = []
		if _goes_to_pool(kwargs):
			stdin = protocol.NULL
		else:
			stdin = _choose_stream(kwargs.get("stdin"), 0, fds)
			if stdin == protocol.PIPE and not _communicates(kwargs):
				raise protocol.Unsendable("a pipe as standard input that nobody writes to")
			if fds and os.isatty(fds[0]):
				# job control needs a process of the terminal's own session, and the engine has another one
				raise protocol.Unsendable("a terminal as standard input")
		self.stdout = _choose_stream(kwargs.get("stdout"), 1, fds)
		if kwargs.get("stderr") == STDOUT:
			self.stderr = protocol.SAME_AS_STDOUT
		else:
			self.stderr = _choose_stream(kwargs.get("stderr"), 2, fds)
		self.fds = fds
		return stdin


def _communicates(kwargs: Given) -> bool:
	"""Tell whether Waf calls ``communicate``, and not only ``wait``."""
	return bool(kwargs.get("stdout") or kwargs.get("stderr"))


def _goes_to_pool(kwargs: Given) -> bool:
	"""Tell whether Waf would give the command to a worker process, with the null device as standard input."""
	return bool(kwargs.get("stdout") and kwargs.get("stderr") and "stdin" not in kwargs)


def _check_others(kwargs: Given) -> None:
	"""Refuse arguments of Popen that a frame cannot express, unless their values change nothing."""
	for name, value in kwargs.items():
		if name not in SENDABLE and value not in HARMLESS.get(name, ()):
			raise protocol.Unsendable("%s is given" % name)


def _choose_stream(value: Any, inherited: int, fds: List[int]) -> int:
	"""The protocol's value for this argument of Popen. Descriptors are added to ``fds``."""
	if value is None:
		value = inherited
	elif value == PIPE:
		return protocol.PIPE
	elif value == DEVNULL:
		return protocol.NULL
	elif not isinstance(value, int):
		try:
			value = value.fileno()
		except (AttributeError, OSError, ValueError):
			raise protocol.Unsendable("a stream without a descriptor") from None
	if not isinstance(value, int) or value < 0:
		raise protocol.Unsendable("an unknown kind of stream")
	fds.append(value)
	return protocol.DESCRIPTOR


def _find_input(kwargs: Given, cargs: Given) -> bytes:
	"""The bytes for standard input."""
	if not cargs.keys() <= {"input", "timeout"}:
		raise protocol.Unsendable("unknown arguments of communicate")
	data = cargs.get("input")
	if data is None:
		data = b""
	elif not isinstance(data, bytes) or kwargs.get("stdin") != PIPE or not _communicates(kwargs):
		raise protocol.Unsendable("input that is not bytes for a pipe")
	elif len(data) > protocol.INPUT_CAP:
		raise protocol.Unsendable("input above %d bytes" % protocol.INPUT_CAP)
	return data


def _find_timeout(timeout: object, new_session: int) -> int:
	"""The time-out in microseconds; 0 for none."""
	if timeout is None:
		return 0
	if not isinstance(timeout, (int, float)) or not 0 < timeout < LONGEST_TIMEOUT:
		raise protocol.Unsendable("a strange time-out")
	if not new_session:
		# Waf kills the command alone then, and waits for its children; the engine would end them, too
		raise protocol.Unsendable("a time-out without a session of its own")
	return int(timeout * 1e6) or 1


def _find_environment(kwargs: Given) -> Optional[protocol.Environment]:
	"""The variables; None for our own."""
	env = kwargs.get("env")
	if env is None or env is os.environ:
		return None
	if not env and _goes_to_pool(kwargs):
		# Waf's workers take an empty one for None; tasks pass "env=self.env.env", which is an empty list if not set
		return None
	if not isinstance(env, Mapping):
		raise protocol.Unsendable("an environment that is no dict")
	return env if isinstance(env, dict) else dict(env)


def _find_folder(cwd: "Union[str, bytes, os.PathLike[str], None]") -> bytes:
	"""The absolute path of the folder to run in."""
	if cwd.__class__ is str and cwd.startswith("/"):
		return cwd.encode(protocol.CODING, "surrogateescape")
	try:
		if cwd is None:
			return os.getcwdb()
		if not os.fspath(cwd):
			raise protocol.Unsendable("an empty folder")
		return os.path.join(os.getcwdb(), os.fsencode(cwd))
	except (OSError, TypeError, ValueError) as e:
		raise protocol.Unsendable("folder: %s" % e) from None


def _find_arguments(cmd: object, shell: object) -> Sequence[protocol.Argument]:
	"""The arguments as Popen would make them."""
	if isinstance(cmd, (str, bytes)):
		argv: Sequence[protocol.Argument] = [cmd]
	elif isinstance(cmd, (list, tuple)):
		argv = cmd
	elif isinstance(cmd, os.PathLike) and not shell:
		argv = [cmd]
	else:
		raise protocol.Unsendable("a command that is neither text nor list")
	if not argv:
		raise protocol.Unsendable("an empty command")
	return ["/bin/sh", "-c", *argv] if shell else argv


# ---- the hook


class Prefork:
	"""Runs commands in the place of Waf's ``Utils.run_process``: one per process, ``Build.runner`` of ``hooks``."""

	def __init__(self, build: lifecycle.Build) -> None:
		self.hooks = stock.Hooks()
		self.build = build
		self.run_stock: Callable[..., Result] = Utils.run_process
		self.alloc_stock: Callable[..., None] = Utils.alloc_process_pool
		self.is_off = False
		"""Waf is left as it is. Code that has wrapped our functions may still call them."""
		self.handlers: Dict[int, capture.Handler] = {}
		"""By thread: the function that gets the next command instead of the engine."""
		self.session: Optional[engine.Session] = None
		self.jobs: Optional[int] = None
		"""The option ``-j`` when the session was made; None before Waf has read the command line."""
		self.lock = threading.Lock()
		self.reasons: Dict[str, int] = collections.Counter()
		"""How often a command ran Waf's own way, by reason."""
		self.own = 0
		"""The number of commands that run Waf's own way now."""
		self.running: Dict[int, Task] = {}
		"""By thread: the task that it runs."""
		self.wishes = politeness.NO_WISHES
		self.policy: Optional[politeness.Policy] = None
		"""The engine's instructions; None before they were found out."""
		self.waits_for_memory = False
		"""Commands start only when they fit into memory."""
		self.terminal = terminal.Terminal(build)
		self.lost = ""
		"""Why no command goes to the engine any more."""

	def install(self) -> None:
		self.build.replace(TOOL, "Utils.run_process", self.run_process)
		self.build.replace(TOOL, "Utils.alloc_process_pool", self.alloc_process_pool)
		self.build.replace(TOOL, "Runner.Spawner", self.make_spawner)
		self.terminal.install()
		atexit.register(self.finish)
		if hasattr(Options.options, "jobs"):
			self.decide()

	def decide(self) -> bool:
		"""When the options are known, put Waf's functions back if we are not wanted or there is no engine."""
		wanted = not getattr(Options.options, "no_prefork", False)
		cache = self.build.cache
		if wanted and cache is not None:
			cache.decide()
		self.stand_back()
		if wanted:
			try:
				engine.find_engine(find_transport())
				if cache is not None:
					cache.tell_failure()
				return True
			except protocol.EngineError as e:
				Logs.warn("prefork: %s (going on without)", e)
		self.is_off = True
		self.build.restore(TOOL)
		return False

	def begin_anew(self) -> None:
		"""Close the session and decide again, since the options may have changed."""
		with self.lock:
			session, self.session = self.session, None
		if session is not None:
			session.close()
		self.decide()

	def make_spawner(self, master: Runner.Parallel) -> object:
		"""Stands in for Waf's class, a thread that starts a thread per task."""
		threads = getattr(Options.options, "threads", False)
		if threads or not self.is_in_place() or Runner.Consumer is not self.hooks.stock.consumer:
			self.note_tasks(master)
			return self.hooks.stock.spawner(master)
		made = dispatcher.Dispatcher(master, self)
		if master.numjobs > 1:
			master.ready = master.out = made
		return made

	def note_tasks(self, master: Runner.Parallel) -> None:
		"""Have each of Waf's own threads say which task it runs."""
		stock, running, ident = master.process_task, self.running, threading.get_ident

		def process_task(task: "Task") -> None:
			running[ident()] = task
			try:
				stock(task)
			finally:
				running.pop(ident(), None)

		master.process_task = process_task

	def is_in_place(self) -> bool:
		"""Tell whether Waf's commands come to us and an engine runs them."""
		return (
			self.hooks.clean
			and not self.lost
			and Utils.run_process == self.run_process
			and Utils.subprocess.Popen.__module__ == "subprocess"
		)

	def alloc_process_pool(self, n: int, force: bool = False) -> None:
		"""Stands in for Waf's, which starts ``n`` workers. The engine needs none."""
		if not self.decide():
			self.alloc_stock(n, force)

	def run_process(self, cmd: object, kwargs: Given, cargs: Optional[Given] = None) -> Result:
		"""Run a command through the engine, or Waf's own way if the engine cannot run it."""
		if self.is_off:
			return self.run_stock(cmd, kwargs, cargs)
		cargs = cargs or {}
		handler = self.handlers.get(threading.get_ident()) if self.handlers else None
		if handler is not None:
			return handler(cmd, kwargs, cargs)
		if self.lost:
			return self.run_own_way(cmd, kwargs, cargs, self.lost)
		if Utils.subprocess.Popen.__module__ != "subprocess":
			return self.run_own_way(cmd, kwargs, cargs, "subprocess.Popen is replaced")
		try:
			command = Command(cmd, kwargs, cargs)
			session = self.find_session()
			cache, task, encoded = self.build.cache, None, command.encoded
			if cache is not None:
				task = self.find_task(cache)
				if task is not None:
					is_its_command = getattr(task, "last_cmd", None) is cmd
					encoded = (cache.mark if is_its_command else cache.mark_call)(task, command.encoded)
			heard: List[Any] = []
			if command.fds and session.transport == engine.TCP:
				raise protocol.Unsendable("descriptors cannot go over TCP")
			recording = self.build.recording
			begun = 0.0 if recording is None else recording.clock()
			outcome, out, err = session.execute(encoded, command.env, command.fds, heard)
			elsewhere = next((each for each in reversed(heard) if isinstance(each, protocol.Elsewhere)), None)
			heard = [each for each in heard if not isinstance(each, protocol.Elsewhere)]
		except protocol.EngineError as e:
			self.note_failure(e)
			return self.run_own_way(cmd, kwargs, cargs, str(e))
		if begun:
			self.note_call(cmd, begun, outcome, heard[0] if heard else None, elsewhere)
		# how long the task takes is told elsewhere
		self.build.tell(lifecycle.Ended(task, 0, outcome, *heard))
		if Logs.verbose:
			self.describe(cmd, outcome)
		if outcome.verdict == protocol.NOT_STARTED:
			# the exception for a missing program differs between versions of Python, so Python has to raise it
			return self.run_own_way(cmd, kwargs, cargs, "not started by the engine: %s" % os.strerror(outcome.code))
		if outcome.verdict == protocol.CANCELLED:
			return self.run_own_way(cmd, kwargs, cargs, "cancelled by the engine")
		stdout = out if command.stdout == protocol.PIPE else None
		stderr = err if command.stderr == protocol.PIPE else None
		if outcome.verdict == protocol.TIMED_OUT:
			raise make_expired(cmd, cargs["timeout"], stdout, stderr, _communicates(kwargs))
		return outcome.code, stdout, stderr

	def find_task(self, cache: lifecycle.Cache) -> "Optional[Task]":
		"""The task that this thread runs."""
		task = self.running.get(threading.get_ident(), cache.solo)
		return None if task is None or task.hasrun else task

	def note_call(
		self,
		cmd: object,
		begun: float,
		outcome: protocol.Outcome,
		told: Optional[protocol.Told],
		elsewhere: Optional[protocol.Elsewhere],
	) -> None:
		"""Note a command for the picture of a build."""
		recording = self.build.recording
		if recording is not None:
			task = recording.find_task(self.running.get(threading.get_ident()), cmd)
			recording.calls.append((task, begun, recording.clock(), outcome, told, elsewhere))

	def run_own_way(self, cmd: object, kwargs: Given, cargs: Given, reason: str) -> Result:
		"""Run a command as Waf does without workers, but with the streams and variables that workers would give it."""
		with self.lock:
			self.reasons[reason] += 1
		if Logs.verbose:
			Logs.debug("prefork: Waf's own way: %s: %s", reason, cmd)
		if _goes_to_pool(kwargs):
			kwargs = dict(kwargs, stdin=DEVNULL, env=kwargs.get("env") or dict(os.environ))
		with self.lock:
			self.own += 1
		try:
			return self.run_when_files_are_left(cmd, kwargs, cargs)
		finally:
			with self.lock:
				self.own -= 1

	def run_when_files_are_left(self, cmd: object, kwargs: Given, cargs: Given) -> Result:
		"""Run a command. If too many files are open, wait until another command has ended."""
		while True:
			try:
				result: Result = Utils.run_regular_process(cmd, kwargs, cargs)
				return result
			except OSError as e:
				if e.errno not in (errno.EMFILE, errno.ENFILE) or self.own < 2:
					raise
			time.sleep(PAUSE)

	def encode(self, cmd: object, kwargs: Given, cargs: Given) -> Command:
		"""The command of a call of ``run_process``. Raises ``Unsendable`` if the engine cannot take it."""
		return Command(cmd, kwargs, cargs)

	def describe(self, cmd: object, outcome: protocol.Outcome) -> None:
		"""Write a line about a command for ``--zones=prefork``."""
		Logs.debug(
			"prefork: status %d, waited %.1f ms, ran %.1f ms, %.1f ms of processor, %d MB: %s",
			outcome.code,
			outcome.queued / 1e3,
			outcome.wall / 1e3,
			(outcome.user + outcome.system) / 1e3,
			outcome.peak / 1024,
			cmd,
		)

	def find_session(self) -> engine.Session:
		session = self.session
		if session is None or getattr(Options.options, "jobs", None) != self.jobs:
			session = self.open_session()
		return session

	def open_session(self) -> engine.Session:
		"""The session for the present options."""
		with self.lock:
			jobs = getattr(Options.options, "jobs", None)
			if self.session is None or jobs != self.jobs:
				if self.session is not None:
					self.session.close()
				self.session = engine.Session(
					Context.top_dir or Context.run_dir or os.getcwd(),
					jobs or os.cpu_count() or 1,
					find_wishes(),
					find_transport(),
				)
				frame, fds = self.find_policy()
				cache = self.build.cache
				self.session.policy = (frame + cache.introduce() if cache else frame), fds
				self.jobs = jobs
				self.terminal.begin(self.session)
			return self.session

	def stand_back(self) -> None:
		"""Change this process as the options ask, once. The engine starts before: it would inherit the changes."""
		politeness.check(Options.options)
		wishes, self.wishes = self.wishes, politeness.find_wishes(Options.options)
		if wishes == self.wishes or not self.wishes.wanted:
			return
		if not getattr(Options.options, "no_prefork", False):
			with contextlib.suppress(protocol.EngineError):
				engine.start(find_transport(), engine.find_patience())
		politeness.apply(self.wishes)

	def find_policy(self) -> Tuple[bytes, Sequence[int]]:
		"""The instructions for the engine on each connection of the build."""
		if self.policy is None:
			# descriptors cannot be sent over TCP, so there can be no tokens either
			setting = self.build.cache.memory if self.build.cache else None
			memory = politeness.find_memory(Options.options, os.environ, setting)
			self.waits_for_memory = memory is not None
			is_local = find_transport() == engine.UNIX
			self.policy = politeness.find_policy(Options.options, os.environ, is_local, memory)
		return self.policy

	def note_failure(self, error: Exception) -> None:
		"""Warn once if no engine can be used any more. From then on commands run Waf's own way."""
		if isinstance(error, protocol.Unsendable):
			return
		refused = getattr(error, "why", 0)
		if refused == protocol.CROWDED:
			return
		with self.lock:
			if self.lost:
				return
			self.lost = str(error)
		# also in a container or under sudo, where this is to be expected: it explains why the build is slower
		Logs.warn("prefork: %s (going on without)", error)

	def finish(self) -> None:
		"""Called at exit: say what was saved, close the session, and for ``--zones=prefork`` tell how commands ran."""
		self.terminal.finish()
		session = self.session
		if session is not None:
			session.close()
		if Logs.verbose and Logs.log:
			if session is not None:
				Logs.debug("prefork: %d commands sent to engine %d", session.sent, session.engine)
			for reason, count in sorted(self.reasons.items()):
				Logs.debug("prefork: %d commands Waf's own way: %s", count, reason)


def make_expired(
	cmd: object, timeout: float, stdout: Optional[bytes], stderr: Optional[bytes], communicates: bool
) -> Exception:
	"""The exception of a time-out, with the arguments that ``communicate`` or ``wait`` gives it."""
	expired: subprocess.TimeoutExpired
	if not communicates:
		expired = Utils.TimeoutExpired(cmd, timeout)
		return expired
	expired = Utils.TimeoutExpired(cmd, timeout=timeout, output=stdout)
	expired.stderr = stderr
	return expired


def find_transport() -> str:
	"""The transport by which we talk to the engine."""
	transport = getattr(Options.options, "prefork_transport", None)
	return transport or os.environ.get("WAF_PREFORK_TRANSPORT") or engine.UNIX


def find_wishes() -> int:
	"""The flags for the engine that the options ask for."""
	pin = protocol.PIN if getattr(Options.options, "pin_process", False) else 0
	own_slots = protocol.OWN_SLOTS if getattr(Options.options, "own_slots", False) else 0
	return pin | own_slots | protocol.ELSEWHERE


def install() -> None:
	"""Replace Waf's functions once per process, even if the tool is loaded again or under another name."""
	build = lifecycle.find()
	if os.environ.get("WAF_NO_PREFORK") or build.runner is not None or build.refusal:
		return
	if not sys.platform.startswith("linux"):
		build.refusal = "the engine runs on Linux only"
		Logs.warn("prefork: %s (going on without)", build.refusal)
		return
	if find_transport() not in (engine.UNIX, engine.TCP):
		raise Errors.WafError("WAF_PREFORK_TRANSPORT is %r: set it to unix or tcp" % find_transport())
	build.runner = runner = Prefork(build)
	runner.install()


def add_options(opt: Options.OptionsContext) -> None:
	timeline.options(opt)
	group = opt.add_option_group("Prefork options")
	group.add_option("--no-prefork", action="store_true", help="run commands Waf's own way")
	group.add_option("--pin-process", action="store_true", help="bind each command to one processor")
	group.add_option(
		"--own-slots",
		action="store_true",
		help="do not share the processors with other builds: run -j commands whatever they do",
	)
	politeness.add_options(opt)
	terminal.add_options(opt)
	group.add_option(
		"--threads", action="store_true", help="a thread per task, as Waf has it, and not one thread for all commands"
	)
	group.add_option(
		"--prefork-transport",
		choices=(engine.UNIX, engine.TCP),
		help="how to talk to the engine: unix or tcp [default: unix]",
	)


options, setup = entry.make_entries("--no-prefork", add_options, install)
configure = build = setup
