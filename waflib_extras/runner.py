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
import select
import threading
import time
import types
from typing import Any, Deque, Dict, List, Optional, Set, Tuple

from waflib import Context, Logs, Runner, Task

from . import collector, messages, pipeline, protocol, recipe

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
WORTH = 0.001
"""Seconds: what a task takes that takes less is not even noted."""
MOST_WORDS = 10000
"""In the command of a task that is not run by Waf's code, which puts more of them into a file."""
TURN = 8
"""So many tasks are handed to a cache before its answers are taken."""

Stock = collections.namedtuple("Stock", "process task_exec context_exec process_task consumer spawner")

_compiled: Dict[Any, bool] = {}


class Captured(BaseException):
	"""Leaves ``process`` at the point where the command would run."""

	__slots__ = ()


class Hooks:
	"""Waf as it was when we came; what differs from it later was patched by others."""

	def __init__(self) -> None:
		self.stock = Stock(
			Task.Task.process,
			Task.Task.exec_command,
			Context.Context.exec_command,
			Runner.Parallel.process_task,
			Runner.Consumer,
			Runner.Spawner,
		)
		self.clean = all(
			function.__module__ == module
			for function, module in zip(
				self.stock,
				("waflib.Task", "waflib.Task", "waflib.Context", "waflib.Runner", "waflib.Runner", "waflib.Runner"),
			)
		)


def is_compiled(run: Any) -> bool:
	"""Waf made this ``run`` of one string, so that it ends with its only command."""
	if run.__class__ is not types.FunctionType:
		return False
	known = _compiled.get(run)
	if known is None:
		code = run.__code__
		known = _compiled[run] = (
			code.co_name == "f"
			and code.co_filename == "<string>"
			and code.co_varnames[:1] == ("tsk",)
			and "exec_command" in code.co_names
			and {"env", "gen", "bld", "cwdx", "to_list"} <= {*code.co_varnames, *code.co_cellvars}
		)
	return known


class Dispatcher:
	"""The queues ``ready`` and ``out`` of one ``Runner.Parallel``."""

	def __init__(self, master: Any, prefork: Any) -> None:
		self.master = master
		self.prefork = prefork
		self.stock = prefork.hooks.stock
		self.jobs = master.numjobs
		self.pipeline: Optional[pipeline.Pipeline] = None
		self.waiting = Runner.PriorityTasks()
		"""Plain tasks that were not submitted yet."""
		self.done: Deque[Any] = collections.deque()
		"""Tasks for ``get``."""
		self.unshown: Deque[Any] = collections.deque()
		"""Submitted ahead; the engine has not started them as far as we know, and their messages are not out."""
		self.hidden: Set[Any] = set()
		"""The same tasks, to look them up."""
		self.running = 0
		"""Commands that were submitted and shown."""
		self.unseen = 0
		"""Tasks whose message is not out yet."""
		self.recording = prefork.recording
		"""What notes tasks for the picture of a build; none while nobody wants one."""
		self.is_cached = prefork.cache is not None and prefork.cache.active
		self.turns = 0
		self.are_hits = False
		"""The last command that has ended was answered by a cache."""
		self.recipes: Dict[type, Optional[recipe.Recipe]] = {}
		"""By task class."""
		self.cancelled = False
		self.threads: Optional[Threads] = None
		self.turn = threading.Lock()
		"""Messages come one at a time, with numbers that rise."""
		self.messages = messages.Messages()
		self.collector = collector.Collector()
		self.collector.slow_down()

	# ---- what Waf's scheduler calls

	def qsize(self) -> int:
		"""How many tasks of those handed over are not under way, from which Waf computes the numbers that it shows."""
		return self.unseen

	def put(self, task: Any) -> None:
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

	def get(self) -> Any:
		"""Wait for a task that is done, or not run because the build stops."""
		while not self.done:
			if self.master.stop:
				self.give_up_waiting()
			self.fill()
			if not self.done:
				self.wait()
		return self.done.popleft()

	# ---- plain tasks

	def is_plain(self, task: Any) -> bool:
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
		submitted: List[Any] = []
		while self.waiting and not self.master.stop and self.running + len(self.hidden) < limit:
			submitted.append(self.waiting.pop())
			self.submit(submitted[-1])
		if submitted and self.pipeline is not None:
			is_more_to_come = self.is_cached and self.hidden and len(self.pipeline.unsent) < BATCH
			if not is_more_to_come:
				self.pipeline.flush()
				if self.recording is not None:
					self.recording.note_sent(submitted)

	def submit(self, task: Any) -> None:
		"""Have the engine run the command of this task."""
		ahead = self.running >= self.jobs
		if not ahead:
			self.show(task)
			self.running += 1
		self.prefork.diary.begin(task)
		try:
			command, env = self.prepare(task), None
			if command is None:
				command, env = self.capture(task)
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
			cache = self.prefork.cache
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

	def prepare(self, task: Any) -> Optional[bytes]:
		"""The command of this task, made without running Waf's code for it; none if that has to be run."""
		cls = task.__class__
		if cls not in self.recipes:
			self.recipes[cls] = recipe.find_recipe(cls)
		found = self.recipes[cls]
		bld = task.generator.bld
		if found is None or Logs.verbose or bld.logger or bld.log_command.__module__ != "waflib.Context":
			return None
		folder = recipe.find_folder(task)
		words = folder and found.make(task, folder)
		if not words or len(words) > MOST_WORDS:
			return None
		cwd = os.fsencode(folder.abspath())
		encoded = protocol.encode_command(0, protocol.NULL, protocol.PIPE, protocol.PIPE, 0, cwd, words)
		task.last_cmd = words
		# as Task.process does it
		bld.task_sigs.pop(task.uid(), None)
		return encoded

	def capture(self, task: Any) -> Tuple[Optional[bytes], Optional[Dict[Any, Any]]]:
		"""The command that this task would run, and its environment; none if the task is over without one."""
		captured: List[Any] = []
		captors = self.prefork.captors
		ident = threading.get_ident()

		def captor(cmd: Any, kwargs: Dict[str, Any], cargs: Dict[str, Any]) -> Any:
			if cmd is not getattr(task, "last_cmd", None) or cargs:
				# the command of an expression within the command, or the arguments are in a file that is removed
				del captors[ident]
				try:
					return self.prefork.run_process(cmd, kwargs, cargs)
				finally:
					captors[ident] = captor
			try:
				captured.append(self.prefork.encode(cmd, kwargs, cargs))
			except protocol.EngineError as e:
				# not from here: Waf makes an error of the task of any usual exception
				captured.append(e)
			raise Captured

		outer = captors.get(ident)
		captors[ident] = captor
		try:
			task.process()
		except Captured:
			if isinstance(captured[0], protocol.EngineError):
				raise captured[0] from None
			return captured[0].encoded, captured[0].env
		finally:
			if outer is None:
				del captors[ident]
			else:
				captors[ident] = outer
		return None, None

	def complete_all(self, answers: List[Any]) -> None:
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

	def reveal(self, task: Any) -> None:
		"""Show a task that was submitted ahead."""
		if task is self.unshown[0]:
			self.unshown.popleft()
		else:
			self.unshown.remove(task)
		self.hidden.discard(task)
		self.show(task)
		self.running += 1

	def complete(self, task: Any, outcome: Any, out: bytes, err: bytes, told: Any = None, learned: Any = None) -> None:
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

		if outcome.wall:
			self.prefork.terminal.note(task, outcome.wall)
		self.are_hits = told is not None and told.known == protocol.HIT
		if told is not None:
			self.prefork.cache.hear(task, told, learned)

		if getattr(task.post_run, "__func__", None) is not Task.Task.post_run:
			self.write()

		def run() -> int:
			if out or err:
				self.write()
				self.log(task, outcome.code, out, err)
			return outcome.code

		task.run = run
		try:
			self.master.process_task(task)
		finally:
			del task.run
			self.done.append(task)

	def log(self, task: Any, code: int, out: bytes, err: bytes) -> None:
		"""Have Waf decode and write the output of a command."""
		captors = self.prefork.captors
		ident = threading.get_ident()
		outer = captors.get(ident)
		captors[ident] = lambda cmd, kwargs, cargs: (code, out, err)
		try:
			# a text, since Waf looks for the program of a list
			self.stock.context_exec(Listener(task.generator.bld), "")
		finally:
			if outer is None:
				del captors[ident]
			else:
				captors[ident] = outer

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

	def show(self, task: Any) -> None:
		"""Write that this task runs now."""
		with self.turn:
			self.unseen -= 1
			if not self.messages.take(task):
				task.log_display(task.generator.bld)

	def write(self) -> None:
		"""Have everything written that is to be shown by now."""
		with self.turn:
			self.messages.write()

	def hand_to_thread(self, task: Any, shown: bool = False) -> None:
		if self.threads is None:
			self.threads = Threads(self)
		self.threads.put(task, shown)

	def wait(self) -> None:
		"""Until some task may be done."""
		threads = self.threads
		commands = 0 if self.pipeline is None else len(self.pipeline)
		if self.are_hits and commands > AHEAD:
			self.pipeline.flush()
			time.sleep(NAP)
		if threads is None or not threads.count:
			if commands:
				self.complete_all(self.hear())
			return
		if not threads.start_waiting(False):
			return
		if not self.wait_for_both(commands, GRACE) and threads.start_waiting(True):
			self.wait_for_both(commands, None)

	def wait_for_both(self, commands: Any, timeout: Optional[float]) -> bool:
		"""Whether something was done in time."""
		threads = self.threads
		if commands:
			self.complete_all(self.hear(threads.bell, timeout))
		else:
			self.idle(threads.poll.poll, None if timeout is None else timeout * 1000)
		threads.stop_waiting()
		return bool(self.done)

	def hear(self, bell: Optional[int] = None, timeout: Optional[float] = None) -> List[Any]:
		"""What the engine answers, or nothing if the bell rings first."""
		return self.idle(self.pipeline.receive, True, bell, timeout)

	def idle(self, wait: Any, *args: Any) -> Any:
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


class Listener:
	"""What Waf's ``exec_command`` needs of a context to write a command's output, but not the command again."""

	def __init__(self, context: Any) -> None:
		self.logger = Scribe(context.logger) if context.logger else None

	def log_command(self, cmd: Any, kw: Dict[str, Any]) -> None:
		pass


class Scribe:
	"""A logger for output only: the command itself is in the log already."""

	def __init__(self, logger: Any) -> None:
		self.debug = logger.debug
		self.error = logger.error

	def info(self, *args: Any, **kwargs: Any) -> None:
		pass


class Threads:
	"""The threads for Python's own tasks: started when one is needed and none is idle, up to -j, and kept."""

	def __init__(self, dispatcher: Dispatcher) -> None:
		self.dispatcher = dispatcher
		self.heap = Runner.PriorityTasks()
		self.shown: Set[Any] = set()
		"""Those whose message is out already."""
		self.lock = threading.Lock()
		self.work = threading.Condition(self.lock)
		self.alive = 0
		self.idle = 0
		self.count = 0
		"""Tasks that were put and not delivered."""
		self.closed = False
		self.waiting = False
		self.eager = False
		self.bell, self.rope = os.pipe()
		os.set_blocking(self.bell, False)
		os.set_blocking(self.rope, False)
		self.poll = select.poll()
		self.poll.register(self.bell, select.POLLIN)

	def put(self, task: Any, shown: bool) -> None:
		with self.lock:
			self.count += 1
			if shown:
				self.shown.add(task)
			self.heap.append(task)
			if len(self.heap) <= self.idle:
				self.work.notify()
				return
			if self.alive >= self.dispatcher.jobs:
				return
			self.alive += 1
		self.start_thread()

	def start_thread(self) -> None:
		thread = threading.Thread(target=self.work_on)
		thread.daemon = True
		thread.start()

	def replace_thread(self) -> None:
		"""A task has ended its thread, as with ``sys.exit``: there must be one for those that wait."""
		with self.lock:
			needed = bool(self.heap)
			if not needed:
				self.alive -= 1
		if needed:
			self.start_thread()

	def work_on(self) -> None:
		"""What a thread does."""
		while True:
			with self.lock:
				while not self.heap:
					if self.closed:
						self.leave()
						return
					self.idle += 1
					self.work.wait()
					self.idle -= 1
				task = self.heap.pop()
			try:
				self.run(task)
			except BaseException:
				self.replace_thread()
				raise

	def run(self, task: Any) -> None:
		dispatcher = self.dispatcher
		try:
			if not dispatcher.master.stop:
				if task in self.shown:
					self.shown.discard(task)
				else:
					dispatcher.show(task)
				dispatcher.write()
				dispatcher.prefork.running[threading.get_ident()] = task
				began = time.monotonic()
				recording = dispatcher.recording
				if recording is None:
					dispatcher.master.process_task(task)
				else:
					# here and not in a function of its own, which would cost as much as all of this
					entry = [task, recording.clock(), 0.0]
					recording.tasks.append(entry)
					try:
						dispatcher.master.process_task(task)
					finally:
						entry[2] = recording.clock()
				took = time.monotonic() - began
				if took > WORTH:
					dispatcher.prefork.terminal.note(task, int(took * 1e6))
		finally:
			dispatcher.prefork.running.pop(threading.get_ident(), None)
			with self.lock:
				self.count -= 1
				dispatcher.done.append(task)
				ring = self.waiting and (self.eager or not self.heap)
				if ring:
					self.waiting = False
			if ring:
				os.write(self.rope, b"!")

	def start_waiting(self, eager: bool) -> bool:
		"""Have the bell rung for every task, or when there is no further one to run; not if one is done already."""
		with self.lock:
			if self.dispatcher.done:
				return False
			self.eager = eager
			self.waiting = True
			return True

	def stop_waiting(self) -> None:
		with self.lock:
			self.waiting = False
		try:
			os.read(self.bell, 64)
		except BlockingIOError:
			pass

	def close(self) -> None:
		with self.lock:
			self.closed = True
			self.work.notify_all()
			if not self.alive:
				os.close(self.bell)
				os.close(self.rope)

	def leave(self) -> None:
		"""A thread ends; the last one after ``close`` closes the bell."""
		self.alive -= 1
		if not self.alive:
			os.close(self.bell)
			os.close(self.rope)
