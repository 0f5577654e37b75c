"""
Serves all slots with one thread. It stands in for Waf's ``Runner.Spawner``, which starts a thread per task.

Waf's scheduler hands a task over with ``ready.put`` and takes it back with ``out.get``. The ``Dispatcher`` is both
queues: ``put`` submits the command of a plain task to the engine, and ``get`` waits for outcomes, in the thread of the
scheduler. A task whose ``run`` is Python code goes to one of a few threads.

A task is *plain* if its ``run`` was compiled from a string and nothing is replaced on the way to ``Utils.run_process``.
Waf's code for it is not repeated here: ``process`` runs up to ``Utils.run_process``, where an exception leaves it, and
runs once more when there is an outcome, with a ``run`` that returns it. Most commands do not need even that, since a
``recipe`` makes them.
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
"""For so many seconds, short tasks of Python code gather before the scheduler is woken."""
AHEAD = 32
"""With a cache, so many more commands are submitted than may run, so that the cache is not idle while Python works."""
FAR_AHEAD = 96
"""The same as long as all answers are hits."""
NAP = 0.002
"""For so many seconds, hits gather. Waking up for each one costs both sides more than the hit."""
BATCH = 4 << 10
"""Bytes of commands that are sent to a cache with one system call."""
MOST_WORDS = 10000
"""A command with more arguments is left to Waf's code, which puts them into a file."""
TURN = 8
"""So many tasks are submitted to a cache before its answers are read."""


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
		"""Plain tasks that are not submitted yet."""
		self.done: Deque[Task.Task] = collections.deque()
		"""Tasks that ``get`` will return."""
		self.unshown: Deque[Task.Task] = collections.deque()
		"""Tasks that were submitted ahead, and whose messages are not written yet."""
		self.hidden: Set[Task.Task] = set()
		"""The same tasks as a set."""
		self.running = 0
		"""The number of tasks that were submitted and whose messages were written."""
		self.unseen = 0
		"""The number of tasks whose message is not written yet."""
		self.recording = self.build.recording
		"""The object that notes tasks for the picture of a build; None without ``--timeline``."""
		self.is_cached = self.build.find_active_cache() is not None
		self.turns = 0
		self.are_hits = False
		"""Whether the last command that has ended was a hit."""
		self.recipes: Dict[type, Optional[recipe.Recipe]] = {}
		"""By task class."""
		self.cancelled = False
		self.threads: Optional[threads.Threads] = None
		self.turn = threading.Lock()
		"""Held while a message is written, so that their numbers rise."""
		self.messages = messages.Messages()
		self.collector = gc_pause.Collector()
		self.collector.slow_down()

	# ---- what Waf's scheduler calls

	def qsize(self) -> int:
		"""The number of tasks that were put and not begun. Waf computes the numbers in its messages from it."""
		return self.unseen

	def put(self, task: Optional[Task.Task]) -> None:
		"""Take a task to run; None is the end."""
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
		"""Wait for a task that has ended, or that is not run because the build stops."""
		while not self.done:
			if self.master.stop:
				self.give_up_waiting()
			self.fill()
			if not self.done:
				self.wait()
		return self.done.popleft()

	# ---- plain tasks

	def is_plain(self, task: Task.Task) -> bool:
		"""Tell whether this task is plain."""
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
		"""How many commands may be submitted: more than -j, so that the engine has some while Python works."""
		# with -v, or with a log, a command is written when it is submitted: so none is submitted ahead
		if Logs.verbose or self.master.bld.logger:
			return self.jobs
		if self.are_hits:
			return self.jobs + FAR_AHEAD
		# the engine chooses commands that fit into memory, from those that it has
		is_chosen = self.is_cached or self.prefork.waits_for_memory
		return self.jobs + (AHEAD if is_chosen else max(2, self.jobs // 4))

	def fill(self) -> None:
		"""Submit as many commands as the engine may have."""
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
		"""Submit the command of this task."""
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
				# the task ended without a command, or failed before it
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
		"""The command of this task by its recipe; None if Waf's code has to make it."""
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
		# Task.process does so, too
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
				# the engine has started the next commands that it had
				while self.unshown and self.running < self.jobs:
					self.reveal(self.unshown[0])
		finally:
			with self.turn:
				self.messages.end()
		if self.master.stop:
			self.give_up_waiting()

	def reveal(self, task: Task.Task) -> None:
		"""Show the message of a task that was submitted ahead."""
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
		elsewhere: Optional[protocol.Elsewhere] = None,
	) -> None:
		"""Have Waf finish the task of a command that has ended."""
		if self.recording is not None:
			sent, heard = self.recording.sent.pop(task, 0.0), self.recording.clock()
			if outcome is not None and outcome.verdict == protocol.RAN:
				self.recording.commands.append((task, sent, heard, outcome, told, elsewhere))
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
			# the task runs Waf's own way, and run_process notes the reason
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
		"""Take back all tasks that have not begun, after an error."""
		while self.waiting:
			self.unseen -= 1
			self.done.append(self.waiting.pop())
		if self.hidden and not self.cancelled and self.pipeline is not None:
			self.cancelled = True
			self.pipeline.cancel(self.hidden)
			self.pipeline.flush()

	# ---- all tasks

	def show(self, task: Task.Task) -> None:
		"""Have the message written that this task runs now."""
		with self.turn:
			self.unseen -= 1
			if not self.messages.take(task):
				task.log_display(task.generator.bld)

	def write(self) -> None:
		"""Write all messages that are due."""
		with self.turn:
			self.messages.write()

	def hand_to_thread(self, task: Task.Task, shown: bool = False) -> None:
		if self.threads is None:
			self.threads = threads.Threads(self)
		self.threads.put(task, shown)

	def wait(self) -> None:
		"""Wait until a task may have ended."""
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
		"""Wait for the engine and for threads. Tell whether a task has ended in time."""
		if line is not None:
			self.complete_all(self.hear(line, threads.bell, timeout))
		else:
			self.idle(threads.poll.poll, None if timeout is None else timeout * 1000)
		threads.stop_waiting()
		return bool(self.done)

	def hear(
		self, line: pipeline.Pipeline, bell: Optional[int] = None, timeout: Optional[float] = None
	) -> List[pipeline.Answered]:
		"""Take the answers of the engine; there are none if the bell rings first."""
		return self.idle(line.receive, True, bell, timeout)

	def idle(self, wait: Callable[..., T], *args: object) -> T:
		"""Call a function that waits, and note the time as idle for the picture of the build."""
		recording = self.recording
		if recording is None:
			return wait(*args)
		begun = recording.clock()
		try:
			return wait(*args)
		finally:
			recording.waits.append((begun, recording.clock()))

	def close(self) -> None:
		"""Close the queues at the end of the build."""
		self.collector.restore()
		if self.threads is not None:
			self.threads.close()
		if self.pipeline is not None:
			self.pipeline.close()
			self.pipeline = None


CHANGED = frozenset(("run", "process", "exec_command", "log_display"))
