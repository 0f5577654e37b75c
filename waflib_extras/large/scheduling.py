"""
Patches for Waf's scheduler: what it does for a task takes a time that does not grow with the number of all tasks.
"""

import heapq
import itertools
import logging
import threading
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Type, Union

from waflib import Build, Logs, Runner, Task

from ..hooks import patch

FEW = 8
"""Up to so many dependencies are looked through each time, since remembering the place would take longer."""


Waited = Union["Task.Task", "Task.TaskGroup"]
"""A task, or a group of tasks, for which a task waits."""
Key = Tuple[int, int]
"""The key by which tasks are sorted, the most urgent first."""


class Finished(patch.Patch):
	"""
	The tasks that wait for a task that has ended.

	Each time, Waf looks through all their dependencies. For a task with n dependencies that end one after the other,
	these are n²/2 looks. Here a task with many dependencies remembers for which one it waits and how far the search had
	come. That dependency notes the task, so that ones which were added later need no search. The object with which a
	task was hashed is dropped, too; it has 300 bytes and is not needed any more.
	"""

	name = "finished"
	topic = "what becomes of tasks when another one has ended"
	known = {"Runner.Parallel.mark_finished": ("0365844237f5", "670194488747", "6e5b95047c00")}

	def install(self) -> None:
		self.replace("Runner.Parallel.mark_finished", mark_finished)


def mark_finished(self: Runner.Parallel, tsk: Task.Task) -> None:
	waiting = self.revdeps.pop(tsk, ())
	if waiting and getattr(tsk, "more_tasks", None):
		self.large_heirs = tsk, waiting
	for other in waiting:
		if not isinstance(other, Task.TaskGroup):
			release(self, other)
			continue
		other.prev.remove(tsk)
		if not other.prev:
			for last in other.next:
				last.run_after.remove(other)
				release(self, last)
			other.next = []
	tsk.__dict__.pop("m", None)
	semaphore = getattr(tsk, "semaphore", None)
	if semaphore is not None:
		hand_on(self, tsk, semaphore)


def release(master: Runner.Parallel, task: Task.Task) -> None:
	"""Give a waiting task to the scheduler if its dependencies have all ended."""
	if task in master.incomplete and is_free(master, task):
		master.incomplete.remove(task)
		master.outstanding.append(task)


def is_free(master: Runner.Parallel, task: Task.Task) -> bool:
	"""Tell whether a task waits for nothing any more."""
	after = task.run_after
	if len(after) > FEW:
		searches = master.__dict__.setdefault("large_searches", {})
		search = searches.get(task)
		if search is None:
			search = searches[task] = Search(after)
		blocker = search.advance()
		if blocker is not None:
			note_waiting(master, blocker, task)
			return False
		del searches[task]
	# this includes tasks that were added meanwhile
	for other in after:
		if not other.hasrun:
			note_waiting(master, other, task)
			return False
	return True


def note_waiting(master: Runner.Parallel, blocker: Waited, task: Task.Task) -> None:
	"""Note that a task waits for this one. A group of tasks knows its followers already."""
	if not isinstance(blocker, Task.TaskGroup):
		master.revdeps[blocker].add(task)


class Search:
	"""The search for a dependency of a task that has not ended. It remembers its place."""

	__slots__ = ("blocker", "left")

	def __init__(self, after: "Set[Waited]") -> None:
		self.left: Iterator[Waited] = iter(tuple(after))
		self.blocker: Optional[Waited] = next(self.left)

	def advance(self) -> "Optional[Waited]":
		"""The next dependency that has not ended; None if there is none."""
		while self.blocker is not None and self.blocker.hasrun:
			self.blocker = next(self.left, None)
		return self.blocker


def hand_on(master: Runner.Parallel, task: Task.Task, semaphore: "Task.TaskSemaphore") -> None:
	"""Give the tasks that waited for this task's semaphore to the scheduler."""
	try:
		semaphore.release(task)
	except KeyError:
		return
	# Waf 2.0 has both; _add_task is the one that asks the semaphore
	add_task = getattr(master, "_add_task", master.add_task)
	while semaphore.waiting and not semaphore.is_locked():
		add_task(semaphore.waiting.pop())


class More(patch.Patch):
	"""
	The tasks that wait for tasks which another one has made while it ran.

	Waf looks for them among all tasks that have not run. Here only the tasks that wait for the maker are looked at,
	since only these can know what it has made. Should another task wait for it all the same, it is found when the
	maker's other dependents are (see ``finished``); only the priorities do not count it.
	"""

	name = "more"
	topic = "tasks that tasks make"
	needs = ("finished",)
	known = {
		"Runner.Parallel.add_more_tasks": ("0a814c57baa4",),
		"Runner.Parallel.skip": ("11be1226e39b",),
		"Runner.Parallel.get_out": ("b706669f0a4e",),
	}

	def install(self) -> None:
		self.replace("Runner.Parallel.add_more_tasks", add_more_tasks)


def add_more_tasks(self: Runner.Parallel, tsk: Task.Task) -> None:
	added = getattr(tsk, "more_tasks", None)
	if not added:
		return
	more = set(added)
	heir_of, heirs = self.__dict__.pop("large_heirs", (None, ()))
	for other in heirs if heir_of is tsk else self.revdeps.get(tsk, ()):
		mine = other.prev if isinstance(other, Task.TaskGroup) else other.run_after
		for new in mine & more:
			self.revdeps[new].add(other)
	ready, waiting = self.prio_and_split(added)
	self.outstanding.extend(ready)
	self.incomplete.update(waiting)
	self.total += len(added)


class Heap(patch.Patch):
	"""
	The heap of tasks that may run, the most urgent first.

	Each comparison in Waf's heap asks two tasks for their priorities, and for 20,000 tasks there are 15 comparisons per
	task. Here tasks that come together, which are nearly all, are sorted once. The heap for the others has their
	priorities beside them. Tasks of equal priority keep their order.
	"""

	name = "heap"
	topic = "the tasks that may run"
	known = {
		"Runner.PriorityTasks.append": ("b1f24115840e",),
		"Runner.PriorityTasks.pop": ("63b15503a561",),
		"Runner.PriorityTasks.extend": ("bbc6bd52d05b",),
		"Runner.PriorityTasks.clear": ("b2f71246e8b1",),
		"Task.Task.priority": ("2fb2f8f39780",),
		"Task.Task.__lt__": ("8f062adb23ad",),
	}

	def install(self) -> None:
		self.replace("Runner.PriorityTasks", make_heap(Runner.PriorityTasks, Task.Task.priority, Task.Task.__lt__))


def make_heap(
	stock: "Type[Runner.PriorityTasks]", priority: Callable[..., object], less: Callable[..., bool]
) -> "Type[Runner.PriorityTasks]":
	def key(task: Task.Task) -> Key:
		return (-(task.weight + task.prio_order), getattr(task.generator, "tg_idx_count", 0))

	def is_usual(task: Task.Task) -> bool:
		return getattr(task.priority, "__func__", None) is priority and task.__class__.__lt__ is less

	class PriorityTasks(stock):
		"""Behaves as Waf's class, and becomes it when a task comes whose class has comparisons of its own."""

		def __init__(self) -> None:
			stock.__init__(self)
			self.start()

		def start(self) -> None:
			self.together: List[Task.Task] = []
			"""Tasks that came together: sorted, the next one last."""
			self.single: List[Tuple[Key, int, Task.Task]] = []
			self.numbers = itertools.count()
			self.is_own = True

		def give_up(self) -> None:
			"""Use Waf's heap from now on."""
			if self.is_own:
				tasks = list(self)
				self.start()
				self.is_own = False
				self.lst: List[Task.Task] = []
				stock.extend(self, tasks)

		def __len__(self) -> int:
			return len(self.together) + len(self.single) if self.is_own else len(self.lst)

		def __iter__(self) -> Iterator[Task.Task]:
			if not self.is_own:
				return iter(self.lst)
			return itertools.chain(reversed(self.together), (task for _, _, task in self.single))

		def clear(self) -> None:
			stock.clear(self)
			self.start()

		def append(self, task: Task.Task) -> None:
			if self.is_own and is_usual(task):
				heapq.heappush(self.single, (key(task), next(self.numbers), task))
			else:
				self.give_up()
				stock.append(self, task)

		def pop(self) -> Task.Task:
			if not self.is_own:
				return stock.pop(self)
			if self.together and not (self.single and self.single[0][0] < key(self.together[-1])):
				return self.together.pop()
			return heapq.heappop(self.single)[2]

		def extend(self, lst: Iterable[Task.Task]) -> None:
			tasks = list(lst)
			if self.is_own and not self and all(map(is_usual, tasks)):
				tasks.sort(key=key)
				tasks.reverse()
				self.together = tasks
			else:
				for task in tasks:
					self.append(task)

	return PriorityTasks


class Messages(patch.Patch):
	"""
	The line that Waf writes when a task begins.

	It goes through Python's logging, which makes a record with thread, process, time and line of code, of which Waf
	prints the text only. Here each record is a copy of one that was made before. If there is any handler besides Waf's
	own, nothing is changed.
	"""

	name = "messages"
	topic = "the lines that tell which task runs"
	known = {
		"Task.Task.log_display": ("254b197cc11a",),
		"Logs.info": ("5f8db95ad0b8",),
		"Logs.log_handler.emit": ("3d32e5a8d828",),
		"Logs.log_filter.filter": ("f1d0c4993416",),
		"Logs.formatter.format": ("66c615567f2f", "9a97310762ff"),
	}

	def install(self) -> None:
		stock = Task.Task.log_display
		template: Dict[str, object] = {}

		def log_display(self: Task.Task, bld: Build.BuildContext) -> None:
			if self.generator.bld.progress_bar or bld.logger or not is_heard_by_waf_alone():
				stock(self, bld)
				return
			text = self.display()
			if text:
				if not template:
					template.update(make_record(text).__dict__)
				record = logging.LogRecord.__new__(logging.LogRecord)
				record.__dict__.update(template)
				record.msg = text
				Logs.log.handle(record)

		self.replace("Task.Task.log_display", log_display)


def is_heard_by_waf_alone() -> bool:
	log = Logs.log
	return (
		len(log.handlers) == 1
		and log.handlers[0].__class__ is Logs.log_handler
		and log.handlers[0].formatter.__class__ is Logs.formatter
		and not Logs.verbose
		and not logging.getLogger().handlers
		and log.isEnabledFor(logging.INFO)
		and logging.getLogRecordFactory() is logging.LogRecord
	)


def make_record(text: str) -> logging.LogRecord:
	"""A record such as logging makes it for a message of a task."""
	extra = {"terminator": "", "c1": "", "c2": ""}
	record: logging.LogRecord = Logs.log.makeRecord(
		Logs.log.name, logging.INFO, Logs.__file__, 0, text, (), None, "info", extra
	)
	return record


class Threads(patch.Patch):
	"""
	The threads in which tasks run.

	Waf starts a thread per task. That takes 0.1 ms, which is longer than many tasks of Python code. Here up to -j
	threads are kept. If ``prefork`` is loaded, it keeps the threads.
	"""

	name = "threads"
	topic = "the threads in which tasks run"
	known = {
		"Runner.Spawner.run": ("7fc56c64ea68",),
		"Runner.Spawner.loop": ("35223a971d53",),
		"Runner.Consumer.run": ("977e3a0be807",),
		"Runner.Parallel.process_task": ("49c63a468807",),
	}

	def install(self) -> None:
		# the class is replaced only while a scheduler is made, since other tools look whether it is Waf's own
		stock = Runner.Parallel.__init__
		spawner = Runner.Spawner

		def __init__(self: Runner.Parallel, *args: object, **kw: object) -> None:
			if Runner.Spawner is not spawner:
				stock(self, *args, **kw)
				return
			Runner.Spawner = Workers
			try:
				stock(self, *args, **kw)
			finally:
				Runner.Spawner = spawner

		self.replace("Runner.Parallel.__init__", __init__)


class Workers:
	"""Threads that take tasks. One waits for the next task; the others run theirs or wait for their turn."""

	def __init__(self, master: Runner.Parallel) -> None:
		self.master = master
		self.turn = threading.Lock()
		"""Held by the thread that waits for a task, so that messages keep their order."""
		self.alive = 1
		if master.numjobs > 1:
			self.start_thread()

	def start_thread(self) -> None:
		thread = threading.Thread(target=self.work)
		thread.daemon = True
		thread.start()

	def work(self) -> None:
		"""The body of a thread."""
		while True:
			with self.turn:
				task = self.master.ready.get()
				if task is None:
					# for the next thread
					self.master.ready.put(None)
					return
				if not self.master.stop:
					task.log_display(task.generator.bld)
				if self.alive < self.master.numjobs:
					self.alive += 1
					self.start_thread()
			self.run(task)

	def run(self, task: Task.Task) -> None:
		is_over = False
		try:
			if not self.master.stop:
				self.master.process_task(task)
			is_over = True
		finally:
			if not is_over:
				# the task ends its thread, as by sys.exit
				self.start_thread()
			self.master.out.put(task)
