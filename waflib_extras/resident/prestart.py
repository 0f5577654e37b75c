"""
Begins a run before its call, and stops it where Waf would begin with tasks.

A child of the resident does this. It runs the command line with a witness that ends the process *before* it does
anything that has an effect outside. When the call comes, the process checks that nothing has changed that it has looked
at. If so, it takes over what the caller has, and goes on. If not, it ends without any effect. ``docs/resident.md``
tells why that is safe.
"""

import contextlib
import fcntl
import gc
import importlib
import itertools
import marshal
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
import traceback
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from ..launcher import caller
from . import child, memo, record, witness

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Runner import Parallel
	from waflib.Task import Task
	from waflib.Utils import Timer

	from ..hooks import lifecycle
	from . import records, uptodate

READY = b"R"  # it waits for its call: how many tasks it knows, and why it has no record, if there could be one
HINDERED = b"H"  # why it ends, when to try again, and the files with the code that is the reason
GOING = b"G"  # it goes on for the caller
GIVEN_UP = b"U"  # what has changed
TOOL, ASKING = "prestart", "uptodate"
LATER, SOON, NEXT, BLIND = range(4)
"""Try again: when the code has changed, soon, after the next build, or at once without asking tasks."""
ASKING_NOW = -1  # in place of the number of tasks that are up to date
OFTEN = 20  # tasks between two looks whether the call has come
ENOUGH = 10.0  # seconds for asking tasks; the others are asked after the call
LONGEST = 30  # seconds that a run may take up to its first task


class Watcher(witness.Witness):
	"""A witness that ends the process before it does anything with an effect, until the call has come."""

	def __init__(self, refuse: Callable[..., None]) -> None:
		super().__init__()
		self.refuse = refuse
		self.is_ahead = True

	def hinder(self, reason: str) -> None:
		if self.is_ahead:
			self.refuse(reason)
		super().hinder(reason)

	def keep(self, facts: Dict[witness.K, witness.V], key: witness.K, value: witness.V) -> None:
		if self.is_ahead:
			if facts.setdefault(key, value) != value:
				self.refuse("changed while it was looked at: %s" % (key,), SOON)
			if (
				isinstance(value, tuple)
				and (facts is self.files or facts is self.own)
				and witness.is_fresh(value, self.began)
			):
				self.refuse("changed just before: %s" % key, SOON)
		super().keep(facts, key, value)

	def give(self, other: witness.Witness, changed: Set[str]) -> None:
		"""Add all that was noted to another witness, except the files that have changed since."""
		for name in memo.KINDS:
			facts = getattr(self, name)
			getattr(other, name).update({key: value for key, value in facts.items() if key not in changed})
		other.codes += self.codes

	def see_code(self, code: CodeType) -> None:
		super().see_code(code)
		if self.is_ahead and not child.is_trusted(code.co_filename):
			name = witness.find_unseen(code)
			if name:
				self.refuse("%s names %s" % (code.co_filename, name))


class Lookout(Watcher):
	"""A watcher for tasks that are asked. What changes meanwhile counts as changed after that, too."""

	def __init__(self, refuse: Callable[..., None]) -> None:
		super().__init__(refuse)
		self.unsettled: List[memo.FactKey] = []

	def keep(self, facts: Dict[witness.K, witness.V], key: witness.K, value: witness.V) -> None:
		is_status = facts is self.files or facts is self.own
		is_fresh = is_status and isinstance(value, tuple) and witness.is_fresh(value, self.began)
		if facts.setdefault(key, value) != value or is_fresh:
			self.unsettled.append(next((kind, key) for kind in memo.KINDS if getattr(self, kind) is facts))

	def find_unsettled(self) -> Optional[Set[str]]:
		"""The files that count as changed; None if anything else does."""
		if any(kind != "files" or not witness.is_plain(self.files[str(key)]) for kind, key in self.unsettled):
			return None
		return {str(key) for _, key in self.unsettled}


class Checks(List[Callable[[], bool]]):
	"""
	Functions by which tools check once more what they have looked at, called when the run goes on.

	What a tool looks at within ``away`` is not recorded, so that the run can go on although it has changed. The tool
	must therefore add a function that looks again and tells whether the run would still do the same. It is called
	before anything else is done, and must do nothing else.
	"""

	def __init__(self) -> None:
		super().__init__()
		self.renewals: List[lifecycle.Renewal] = []

	@contextlib.contextmanager
	def away(self) -> Iterator[None]:
		seen = witness.Witness.look_away()
		try:
			yield
		finally:
			witness.Witness.active = seen

	def look_at(self, paths: Iterable[str]) -> Dict[str, Optional[os.stat_result]]:
		"""The status of many files, each noted as if it were asked alone."""
		seen = witness.Witness.active
		stat, sign = witness.real_stat, witness.sign
		found: Dict[str, Optional[os.stat_result]] = {}
		for path in paths:
			try:
				found[path] = status = stat(path)
				signature: Optional[witness.Signature] = sign(status)
			except (OSError, ValueError):
				found[path] = signature = None
			if seen is not None and seen.files.setdefault(path, signature) != signature:
				seen.hinder("changed while it was looked at: %s" % path)
				seen = None
		return found


class WaitingRun:
	"""A run that waits for its call."""

	runner: child.Child
	"""The object that runs the command line."""
	build: "lifecycle.Build"
	tasks: "uptodate.UpToDate"
	find_strange: "Callable[[Callable[[str], bool]], str]"
	prepare_database: "Callable[[BuildContext], str]"

	def __init__(self, sock: socket.socket, project: str, asks: bool, ahead: "records.Ahead") -> None:
		self.sock = sock
		self.project = project
		self.asks = asks
		"""Whether tasks are asked before the call."""
		self.ahead = ahead
		"""The record by which the caller may have compared before."""
		self.report = -1
		"""The descriptor for the run's report; -1 before the call."""
		self.wire = -1
		"""The one by which the resident is told how the run has ended; -1 before the call."""
		self.numbers: List[int] = []
		"""The numbers of the caller's descriptors."""
		self.checks = Checks()
		self.master: Optional[Parallel] = None
		"""Waf's scheduler, from the moment when it has its first task."""
		self.late: Optional[Lookout] = None
		"""What the tasks have looked at before the call."""
		self.looked: Optional[memo.Vouched] = None
		"""The same, to be compared after it."""
		self.changed: Optional[List[memo.FactKey]] = None
		"""What the caller has found to be changed; None if it has not looked."""
		self.threads: List[threading.Thread] = []
		"""The threads of Waf's scheduler. They start when the run goes on."""
		self.timers: List[Timer] = []
		self.own: List[int] = []
		"""Our own descriptors, which the run may keep open."""
		self.seen = Watcher(self.refuse)

	# ---- what is told

	def tell(self, kind: bytes, value: Any = None) -> None:
		self.sock.sendall(caller.pack(kind, value))

	def refuse(self, reason: str, again: int = LATER) -> None:
		"""End the run, which has had no effect yet."""
		witness.Witness.look_away()
		codes = {code.co_filename for code in self.seen.codes}
		with contextlib.suppress(OSError):
			self.tell(HINDERED, (reason, again, {path: witness.signature_of(path) for path in codes}))
		os._exit(0)

	def give_up(self, reason: str) -> None:
		with contextlib.suppress(OSError):
			self.tell(GIVEN_UP, reason)
		os._exit(0)

	# ---- the way to it

	def install(self) -> None:
		"""Have Waf wait when it has its first tasks."""
		from waflib import Runner, Utils

		from ..hooks import lifecycle
		from . import database, uptodate

		self.tasks = uptodate.UpToDate()
		self.find_strange = uptodate.find_strange
		self.prepare_database = database.prepare
		self.build = build = lifecycle.find()
		begin, start = Utils.Timer.__init__, threading.Thread.start

		def task_status(master: "Parallel", task: "Task") -> int:
			if self.seen.is_ahead:
				with self.ends_all():
					self.wait(master, task)
				threading.Thread.start = start  # type: ignore[method-assign]  # Python's own again
				build.restore(TOOL)
				for thread in self.threads:
					start(thread)
			return self.tasks.ask_now(status, master, task) if master is self.master else status(master, task)

		def note_timer(timer: "Timer") -> None:
			begin(timer)
			self.timers.append(timer)

		def hold_thread(thread: threading.Thread) -> None:
			if not is_called_by(sys._getframe(1), Runner.Parallel):
				self.refuse("starts a thread")
			self.threads.append(thread)

		build.checks = self.checks
		build.is_called = False
		status = build.replace(ASKING, "Runner.Parallel.task_status", task_status)
		build.replace(TOOL, "Utils.Timer.__init__", note_timer)
		# mypy: a method is replaced, by a function whose parameter has another name
		threading.Thread.start = hold_thread  # type: ignore[assignment,method-assign]

	@contextlib.contextmanager
	def ends_all(self) -> Iterator[None]:
		"""Let no error reach Waf, which would store its database then."""
		try:
			yield
		except BaseException as e:
			witness.Witness.look_away()
			if self.report >= 0:
				os.write(2, traceback.format_exc().encode())
				os._exit(1)
			self.give_up("it cannot go on: %s" % e)

	def wait(self, master: "Parallel", first: "Task") -> None:
		"""Wait until the call comes."""
		witness.Witness.look_away()
		self.master = master
		reason = self.find_obstacle(master.bld)
		if reason:
			self.refuse(reason)
		mounts = memo.Mounts.read()
		try:
			facts = memo.pack_facts(self.seen, mounts)
		except memo.Unkept as e:
			self.refuse(str(e))
		late: Optional[memo.Facts] = None
		if self.asks:
			self.tell(READY, (ASKING_NOW, None))
			late = self.ask_tasks([first, *master.outstanding, *master.incomplete], mounts)
		unwritten = self.write_record(facts, late)
		if not self.is_awaited():
			self.prepare_database(master.bld)
		known = memo.Vouched(facts, self.ahead.facts())
		if late is not None:
			self.looked = memo.Vouched(late, self.ahead.facts())
		cwd = os.getcwd()
		place = os.stat(cwd)
		os.chdir("/")  # so that the file system can be unmounted
		gc.collect()
		if hasattr(gc, "freeze"):
			gc.freeze()
		signal.alarm(0)
		self.tell(READY, (len(self.tasks.known), unwritten))
		data, fds = child.receive_request(self.sock)
		harmless, numbers, changed_ones = marshal.loads(data)
		self.changed = self.ahead.choose(changed_ones)
		for timer in self.timers:
			timer.start_time = timer.now()
		changed = memo.Memo(known.choose(self.changed), self.project).find_change()
		if changed:
			self.give_up("%s changed" % changed)
		if memo.Mounts.read().kinds != mounts.kinds:
			self.give_up("what is mounted changed")
		os.chdir(cwd)
		found = os.stat(cwd)
		if (found.st_dev, found.st_ino) != (place.st_dev, place.st_ino):
			self.give_up("%s changed" % cwd)
		self.go_on(harmless, numbers, fds)

	def write_record(self, facts: memo.Facts, late: Optional[memo.Facts]) -> Optional[str]:
		"""Have the native ``waf`` compare these facts from now on. Why it cannot; None if that is not wanted now."""
		if not self.ahead.is_wanted or self.is_awaited():
			return None
		all_facts = facts.copy()
		if late is not None:
			for kind in memo.KINDS:
				# mypy: the kinds are the names
				all_facts[kind] = {**facts[kind], **late[kind]}  # type: ignore[literal-required]
		return self.ahead.write(memo.Memo(all_facts, self.project))

	def is_awaited(self) -> bool:
		"""Tell whether the call has come already."""
		return bool(select.select([self.sock], [], [], 0)[0])

	def ask_tasks(self, tasks: "List[Task]", mounts: memo.Mounts) -> memo.Facts:
		"""Ask all tasks whether they are up to date. Returns what they have looked at besides what is known."""

		def refuse(reason: str, again: int = LATER) -> None:
			self.refuse(reason, BLIND if again == LATER else again)

		asked, is_late = itertools.count(1), False
		end = time.monotonic() + ENOUGH

		def is_over() -> bool:
			nonlocal is_late
			if next(asked) % OFTEN == 0:
				is_late = is_late or self.is_awaited() or time.monotonic() > end
			return is_late

		strange = self.find_strange(child.is_trusted)
		if strange:
			refuse(strange)
		assert self.master is not None
		flush_streams()
		shown = len(child.Stream.chunks)
		seen = Lookout(refuse)
		seen.begin()
		self.tasks.find(self.master.bld, tasks, is_over)
		seen.end()
		flush_streams()
		if len(child.Stream.chunks) != shown:
			refuse("it prints something")
		if len(os.listdir("/proc/self/task")) > 1:
			refuse("it has started a thread")
		before = self.seen
		for name in memo.KINDS:
			facts, known = getattr(seen, name), getattr(before, name)
			setattr(seen, name, {key: value for key, value in facts.items() if known.get(key, facts) != value})
		self.late = seen
		try:
			return memo.pack_facts(seen, mounts)
		except memo.Unkept as e:
			refuse(str(e))
			raise  # not reached: that has ended the process

	def find_obstacle(self, bld: "BuildContext") -> str:
		"""Why the run cannot wait here and go on later; empty if it can."""
		if not bld.cmd.startswith("build"):
			return "the command %s is not one to begin ahead" % bld.cmd
		if self.runner.times:
			return "it shows a time before its first task"
		if len(os.listdir("/proc/self/task")) > 1:
			return "it has started a thread"
		for fd in map(int, os.listdir("/proc/self/fd")):
			with contextlib.suppress(OSError):  # the descriptor of the folder itself is closed by now
				os.fstat(fd)
				if fd not in self.own:
					return "it keeps a file open: %s" % os.readlink("/proc/self/fd/%d" % fd)
		return ""

	def go_on(self, harmless: Dict[str, str], numbers: List[int], fds: List[int]) -> None:
		"""Take over what the caller has, and go on with the run."""
		seen = self.seen
		seen.is_ahead = False
		seen.began = witness.real_time_ns()
		witness.Witness.active = seen
		before = set(seen.files)
		for holds in self.checks:
			if not holds():
				witness.Witness.look_away()
				self.give_up("what a tool has looked at changed")
		witness.Witness.look_away()
		self.runner.digests.looked = {path: found for path, found in seen.files.items() if path not in before}
		# from here on the run cannot be given up
		self.tell(GOING)
		self.numbers = numbers
		self.report, self.wire = child.take_descriptors([fds[0], self.sock.detach()], fds[1:], numbers)
		for name in caller.HARMLESS:
			os.environ.pop(name, None)
		os.environ.update(harmless)
		self.runner.digests.mounts = memo.Mounts.read()
		self.runner.digests.devices.clear()
		importlib.invalidate_caches()
		child.Stream.is_held = False
		caller.write_out(child.Stream.chunks)
		self.build.is_called = True
		if self.looked is not None and self.late is not None:
			changed = memo.Looked(self.looked.choose(self.changed), self.project).find_changes()
			unsettled = self.late.find_unsettled()
			changed = None if changed is None or unsettled is None else changed | unsettled
			self.tasks.go_on(changed, self.checks.renewals)
			if changed is not None:
				self.late.give(seen, changed)
		if not seen.hindrance:
			witness.Witness.active = seen


def flush_streams() -> None:
	for stream in (sys.stdout, sys.stderr):
		stream.flush()


def is_called_by(frame: Optional[FrameType], cls: type) -> bool:
	"""Tell whether an object of this class is being made by one of these callers."""
	while frame is not None:
		if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), cls):
			return True
		frame = frame.f_back
	return False


def open_stand_ins(shapes: Tuple[record.Shape, ...]) -> Tuple[List[int], List[int]]:
	"""A terminal of its size, or the null device, per stream of the future caller; and the terminals' other ends."""
	streams, others = [], []
	for shape in shapes:
		if not shape:
			streams.append(os.open(os.devnull, os.O_RDWR))
			continue
		other, terminal = os.openpty()
		if isinstance(shape, tuple):
			fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", shape[1], shape[0], 0, 0))
		streams.append(terminal)
		others.append(other)
	return streams, others


def run_ahead(
	request: child.Request,
	shapes: Tuple[record.Shape, ...],
	digests: child.Digests,
	fd: int,
	project: str,
	asks: bool,
	ahead: "records.Ahead",
) -> None:
	"""The body of the process that begins a run ahead of its call."""
	status = 1
	waiting = WaitingRun(socket.socket(fileno=fd), project, asks, ahead)
	try:
		child.begin_group()
		signal.alarm(LONGEST)  # ends this process even if the resident has ended
		streams, others = open_stand_ins(shapes)
		numbers = [0, 1, 2, *range(10, 10 + len(others))]
		(fd,) = child.take_descriptors([waiting.sock.detach()], streams + others, numbers)
		waiting.sock = socket.socket(fileno=fd)
		waiting.own = [fd, *numbers]
		run = waiting.runner = child.Child(request, digests, "it was begun ahead of its call", waiting.seen)
		child.Stream.is_held = True
		waiting.install()
		status = run.run()
		if waiting.report < 0:
			waiting.refuse("it ends before its first task", NEXT)
		child.write_report(waiting.report, run.tell(status))
		child.tell_end(waiting.wire, waiting.numbers, status)
	except BaseException as e:
		if waiting.report < 0:
			waiting.refuse("%s: %s" % (type(e).__name__, e), NEXT)
		with contextlib.suppress(BaseException):
			os.write(2, traceback.format_exc().encode())
		status = status or 1
	finally:
		os._exit(status)
