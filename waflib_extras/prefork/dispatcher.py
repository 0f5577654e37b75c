"""
One thread for all slots: what stands in for Waf's ``Runner.Spawner``, which starts a thread per task.

Waf's scheduler hands a task over with ``ready.put`` and takes it back with ``out.get``. The ``Dispatcher`` is both:
``put`` submits the command of a plain task to the engine, and ``get`` waits for outcomes, all in the scheduler's own
thread. Everything else, whose ``run`` is Python, goes to a few threads that are kept.

A task is *plain* if all of it is Waf's own: a ``run`` compiled from a string, and nothing replaced on the way to
``Utils.run_process``. Waf's code for it is not repeated here: ``process`` runs up to ``Utils.run_process``, where it is
left by an exception, and runs again when there is an outcome, with a ``run`` that gives it. Most commands need not even
that, since there is a ``recipe`` for them.
"""

import collections
import os
import threading
import time
from typing import TYPE_CHECKING, Callable, Deque, Dict, List, Optional, Set, TypeVar

from waflib import Logs, Runner, Task

from ..client import pipeline, protocol
from ..hooks import gc_pause
from ..hooks.lifecycle import Ended
from ..hooks.stock import is_compiled
from . import capture, messages, recipe, threads

if TYPE_CHECKING:
	from ..client import engine
	from .tool import Prefork

T = TypeVar("T")

GRACE = 0.002
"""Seconds for which short Python tasks may finish without waking the scheduler one by one."""
AHEAD = 32
"""Commands that a cache may have to answer beyond those that run: so it is never idle while Python is busy."""
FAR_AHEAD = 96
"""The same while all that it has answered are hits."""
NAP = 0.002
"""Seconds for which hits are left to gather: to be woken for each of them costs both sides more than the hit itself."""
BATCH = 4 << 10
"""Bytes of commands that go to a cache with one call of the system."""
MOST_WORDS = 10000
"""In the command of a task that is not run by Waf's code, which puts more of them into a file."""
TURN = 8
"""So many tasks are handed to a cache before its answers are taken."""


class Dispatcher:
	"""The queues ``ready`` and ``out`` of one ``Runner.Parallel``."""

	def __init__(self, master: Runner.Parallel, prefork: "Prefork") -> None:
		self.master = master
		self.prefork = prefork
		self.build = prefork.build
		self.stock = prefork.hooks.stock
		self.jobs: int = master.numjobs
		self.pipeline: Optional[pipeline.Pipeline] = None
		self.waiting = Runner.PriorityTasks()
		"""Plain tasks that were not submitted yet."""
		self.done: Deque[Task.Task] = collections.deque()
		"""Tasks for ``get``."""
		self.unshown: Deque[Task.Task] = collections.deque()
		"""Submitted ahead; the engine has not started them as far as we know, and their messages are not out."""
		self.hidden: Set[Task.Task] = set()
		"""The same tasks, to look them up."""
		self.running = 0
		"""Commands that were submitted and shown."""
		self.unseen = 0
		"""Tasks whose message is not out yet."""
		self.recording = self.build.recording
		"""What notes tasks for the picture of a build; none while nobody wants one."""
		self.is_cached = self.build.find_active_cache() is not None
		self.turns = 0
		self.are_hits = False
		"""The last command that has ended was answered by a cache."""
		self.recipes: Dict[type, Optional[recipe.Recipe]] = {}
		"""By task class."""
		self.cancelled = False
		self.threads: Optional[threads.Threads] = None
		self.turn = threading.Lock()
		"""Messages come one at a time, with numbers that rise."""
		self.messages = messages.Messages()
		self.collector = gc_pause.Collector()
		self.collector.slow_down()

	# ---- what Waf's scheduler calls

	def qsize(self) -> int:
		"""How many tasks of those handed over are not under way, from which Waf computes the numbers that it shows."""
		return self.unseen

	def put(self, task: Optional[Task.Task]) -> None:
		"""Take a task to run; none when there will be no more."""
		if task is None:
			self.close()
			return
		self.collector.spare()
		self.unseen += 1
		if self.is_plain(task):
			self.waiting.append(task)
			self.fill()
			self.turns += 1
			is_due = not self.is_cached or self.turns % TURN == 0
			if is_due and self.pipeline is not None and len(self.pipeline) >= self.jobs:
				self.complete_all(self.pipeline.receive(False))
		else:
			self.hand_to_thread(task)

	def get(self) -> Task.Task:
		"""Wait for a task that is done, or not run because the build stops."""
		while not self.done:
			if self.master.stop:
				self.give_up_waiting()
			self.fill()
			if not self.done:
				self.wait()
		return self.done.popleft()

	# ---- plain tasks

	def is_plain(self, task: Task.Task) -> bool:
		"""Nothing of what runs this task is other than Waf's own."""
		cls = task.__class__
		stock = self.stock
		context = task.generator.bld
		return (
			cls.process is stock.process
			and cls.exec_command is stock.task_exec
			and is_compiled(cls.run)
			and context.__class__.exec_command is stock.context_exec
			and self.master.__class__.process_task is stock.process_task
			and self.prefork.is_in_place()
			and not (hasattr(task, "stdout") or hasattr(task, "stderr") or hasattr(task, "timeout"))
			and CHANGED.isdisjoint(task.__dict__)
			and "exec_command" not in context.__dict__
			and "process_task" not in self.master.__dict__
			and (self.pipeline is None or self.pipeline.failure is None)
		)

	def limit(self) -> int:
		"""How many commands the engine may have; beyond -j it has some to go on with while Python is busy."""
		# with -v, and in a log, a command is written when it is submitted, which then is when it runs
		if Logs.verbose or self.master.bld.logger:
			return self.jobs
		if self.are_hits:
			return self.jobs + FAR_AHEAD
		return self.jobs + (AHEAD if self.is_cached else max(2, self.jobs // 4))

	def fill(self) -> None:
		"""Submit what the engine may have."""
		if not self.waiting or self.master.stop:
			return
		limit = self.limit()
		submitted: List[Task.Task] = []
		while self.waiting and not self.master.stop and self.running + len(self.hidden) < limit:
			submitted.append(self.waiting.pop())
			self.submit(submitted[-1])
		if submitted and self.pipeline is not None:
			is_more_to_come = self.is_cached and self.hidden and len(self.pipeline.unsent) < BATCH
			if not is_more_to_come:
				self.pipeline.flush()
				if self.recording is not None:
					self.recording.note_sent(submitted)

	def submit(self, task: Task.Task) -> None:
		"""Have the engine run the command of this task."""
		ahead = self.running >= self.jobs
		if not ahead:
			self.show(task)
			self.running += 1
		for begin in self.build.on_start:
			begin(task)
		try:
			command, env = self.prepare(task), None
			if command is None:
				command, env = capture.capture(self.prefork, task)
			if command is None:
				# it is done without a command, or failed before that
				if ahead:
					self.show(task)
				else:
					self.running -= 1
				if task.hasrun != Task.SUCCESS:
					self.master.error_handler(task)
				self.done.append(task)
				return
			if self.pipeline is None:
				self.pipeline = pipeline.Pipeline(self.prefork.find_session())
			cache = self.build.cache
			self.pipeline.submit(task, command if cache is None else cache.mark(task, command), env)
			if self.recording is not None:
				self.recording.sent[task] = self.recording.clock()
		except protocol.EngineError as e:
			self.prefork.note_failure(e)
			if not ahead:
				self.running -= 1
			self.hand_to_thread(task, not ahead)
			return
		if ahead:
			self.unshown.append(task)
			self.hidden.add(task)

	def prepare(self, task: Task.Task) -> Optional[bytes]:
		"""The command of this task, made without running Waf's code for it; none if that has to be run."""
		cls = task.__class__
		if cls not in self.recipes:
			self.recipes[cls] = recipe.find_recipe(cls)
		found = self.recipes[cls]
		bld = task.generator.bld
		if found is None or Logs.verbose or bld.logger or bld.log_command.__module__ != "waflib.Context":
			return None
		folder = recipe.find_folder(task)
		if folder is None:
			return None
		words = found.make(task, folder)
		if not words or len(words) > MOST_WORDS:
			return None
		cwd = os.fsencode(folder.abspath())
		encoded = protocol.encode_command(0, protocol.NULL, protocol.PIPE, protocol.PIPE, 0, cwd, words)
		task.last_cmd = words
		# as Task.process does it
		bld.task_sigs.pop(task.uid(), None)
		return encoded

	def complete_all(self, answers: List[pipeline.Answered]) -> None:
		if len(answers) > 1:
			with self.turn:
				self.messages.begin(self.master.bld)
		try:
			for answer in answers:
				self.complete(*answer)
			if not self.master.stop:
				# the engine has gone on with what it had
				while self.unshown and self.running < self.jobs:
					self.reveal(self.unshown[0])
		finally:
			with self.turn:
				self.messages.end()
		if self.master.stop:
			self.give_up_waiting()

	def reveal(self, task: Task.Task) -> None:
		"""Show a task that was submitted ahead."""
		if task is self.unshown[0]:
			self.unshown.popleft()
		else:
			self.unshown.remove(task)
		self.hidden.discard(task)
		self.show(task)
		self.running += 1

	def complete(
		self,
		task: Task.Task,
		outcome: Optional[protocol.Outcome],
		out: bytes,
		err: bytes,
		told: Optional[protocol.Told] = None,
		learned: "Optional[engine.Learned]" = None,
	) -> None:
		"""A command has ended: let Waf finish its task."""
		if self.recording is not None:
			sent, heard = self.recording.sent.pop(task, 0.0), self.recording.clock()
			if outcome is not None and outcome.verdict == protocol.RAN:
				self.recording.commands.append((task, sent, heard, outcome, told))
		if task in self.hidden:
			if self.master.stop and (outcome is None or outcome.verdict == protocol.CANCELLED):
				self.hidden.discard(task)
				self.unshown.remove(task)
				self.unseen -= 1
				self.done.append(task)
				return
			self.reveal(task)
		self.running -= 1
		if outcome is None or outcome.verdict != protocol.RAN:
			# Waf's own way, for which run_process knows all the reasons
			if outcome is None and self.pipeline is not None and self.pipeline.failure:
				self.prefork.note_failure(self.pipeline.failure)
			self.hand_to_thread(task, True)
			return
		if Logs.verbose:
			self.prefork.describe(getattr(task, "last_cmd", ""), outcome)
		self.are_hits = told is not None and told.known == protocol.HIT
		self.build.tell(Ended(task, outcome.wall, outcome, told, learned))

		if getattr(task.post_run, "__func__", None) is not Task.Task.post_run:
			self.write()

		def run() -> int:
			if out or err:
				self.write()
				capture.log(self.prefork, task, outcome.code, out, err)
			return outcome.code

		task.run = run
		try:
			self.master.process_task(task)
		finally:
			del task.run
			self.done.append(task)

	def give_up_waiting(self) -> None:
		"""After an error: what has not begun is not run."""
		while self.waiting:
			self.unseen -= 1
			self.done.append(self.waiting.pop())
		if self.hidden and not self.cancelled and self.pipeline is not None:
			self.cancelled = True
			self.pipeline.cancel(self.hidden)
			self.pipeline.flush()

	# ---- all tasks

	def show(self, task: Task.Task) -> None:
		"""Write that this task runs now."""
		with self.turn:
			self.unseen -= 1
			if not self.messages.take(task):
				task.log_display(task.generator.bld)

	def write(self) -> None:
		"""Have everything written that is to be shown by now."""
		with self.turn:
			self.messages.write()

	def hand_to_thread(self, task: Task.Task, shown: bool = False) -> None:
		if self.threads is None:
			self.threads = threads.Threads(self)
		self.threads.put(task, shown)

	def wait(self) -> None:
		"""Until some task may be done."""
		threads, line = self.threads, self.pipeline
		commands = 0 if line is None else len(line)
		if line is not None and self.are_hits and commands > AHEAD:
			line.flush()
			time.sleep(NAP)
		if not commands:
			line = None
		if threads is None or not threads.count:
			if line is not None:
				self.complete_all(self.hear(line))
			return
		if not threads.start_waiting(False):
			return
		if not self.wait_for_both(threads, line, GRACE) and threads.start_waiting(True):
			self.wait_for_both(threads, line, None)

	def wait_for_both(
		self, threads: "threads.Threads", line: Optional[pipeline.Pipeline], timeout: Optional[float]
	) -> bool:
		"""Whether something was done in time."""
		if line is not None:
			self.complete_all(self.hear(line, threads.bell, timeout))
		else:
			self.idle(threads.poll.poll, None if timeout is None else timeout * 1000)
		threads.stop_waiting()
		return bool(self.done)

	def hear(
		self, line: pipeline.Pipeline, bell: Optional[int] = None, timeout: Optional[float] = None
	) -> List[pipeline.Answered]:
		"""What the engine answers, or nothing if the bell rings first."""
		return self.idle(line.receive, True, bell, timeout)

	def idle(self, wait: Callable[..., T], *args: object) -> T:
		"""Call what waits; of that time Waf's own thread makes no use."""
		recording = self.recording
		if recording is None:
			return wait(*args)
		begun = recording.clock()
		try:
			return wait(*args)
		finally:
			recording.waits.append((begun, recording.clock()))

	def close(self) -> None:
		"""Nothing will be put any more."""
		self.collector.restore()
		if self.threads is not None:
			self.threads.close()
		if self.pipeline is not None:
			self.pipeline.close()
			self.pipeline = None


CHANGED = frozenset(("run", "process", "exec_command", "log_display"))
