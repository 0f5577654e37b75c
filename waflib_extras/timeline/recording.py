"""
What is noted while a build runs, for its picture: as little as possible per task, and read only when all is over.
"""

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from waflib import Logs, Options, Runner, Task

from ..hooks import lifecycle
from . import meter

if TYPE_CHECKING:
	from waflib.Build import BuildContext

	from ..client.protocol import Outcome, Told
	from .chains import Heirs

TOOL = "timeline"
clock = time.perf_counter

Entry = List[Any]
"""A task that a thread has run, when it began and when it ended, which is 0 while it runs."""


class Recording:
	"""
	Of one build. All times are those of ``clock``.

	``runner``, ``threads`` and ``prefork`` write into these lists themselves: a call per task would cost more
	than what it notes.
	"""

	def __init__(self, bld: "BuildContext") -> None:
		self.bld = bld
		self.clock = clock
		self.begun = clock()
		self.ended = 0.0
		self.processor = time.process_time()
		"""Seconds of processor that this process took before; in the end, those of the build."""
		self.outcome = ""
		self.jobs = 0
		self.total = 0
		"""Tasks, whether or not there was anything to do for them."""
		self.tasks: List[Entry] = []
		"""Those that a thread ran, from its first step to its last: task, begin, end, which is 0 while it runs."""
		self.commands: List[Tuple[Task.Task, float, float, Outcome, Optional[Told]]] = []
		"""Those that Waf's own thread sent: task, when it was sent and when heard of, outcome, words of the cache."""
		self.sent: Dict[Task.Task, float] = {}
		"""Those that have no outcome yet, and when they were sent."""
		self.calls: List[Tuple[Union[Task.Task, str], float, float, Outcome, Optional[Told]]] = []
		"""Commands that a thread waited for, with the task that it ran, or a text for what no task ran."""
		self.current: Dict[int, Task.Task] = {}
		"""By thread: the task that it runs, where Waf runs it."""
		self.waits: List[Tuple[float, float]] = []
		"""When Waf's own thread had nothing to do."""
		self.posts: List[Tuple[float, float]] = []
		"""When it made the tasks of a build group."""
		self.schedules: List[Tuple[float, float]] = []
		"""From when to when there was a scheduler."""
		self.groups: Dict[Task.TaskGroup, Tuple[Task.Task, ...]] = {}
		"""Groups of tasks that others wait for, which Waf takes apart while it builds."""
		self.heirs: List[Heirs] = []
		"""Such a group, and the tasks that wait for it."""
		self.gauge = meter.Gauge(clock)

	def begin(self) -> None:
		"""Put what notes in its place."""
		build = lifecycle.find()
		build.recording = self
		build.replace(TOOL, "Runner.Parallel.start", self.make_start(Runner.Parallel.start))
		if hasattr(Task, "TaskGroup"):
			build.replace(TOOL, "Task.TaskGroup.__init__", self.make_group(Task.TaskGroup.__init__))
		self.gauge.begin(build.runner)

	def end(self, outcome: str) -> None:
		"""Leave everything as it was."""
		self.ended = clock()
		self.outcome = outcome
		self.processor = time.process_time() - self.processor
		self.gauge.end()
		build = lifecycle.find()
		build.recording = None
		build.restore(TOOL)

	def make_group(self, stock: Callable[..., None]) -> Callable[..., None]:
		def __init__(group: "Task.TaskGroup", prev: Iterable[Task.Task], next: Iterable[Task.Task]) -> None:
			stock(group, prev, next)
			self.groups[group] = tuple(prev)
			self.heirs.append((group, next))

		return __init__

	def make_start(self, stock: Callable[..., None]) -> Callable[..., None]:
		def start(master: Runner.Parallel) -> None:
			if master.bld is not self.bld:
				# a test of configure, or a build within this one
				stock(master)
				return
			begun = clock()
			self.jobs = max(self.jobs, master.numjobs)
			if not hasattr(master.spawner, "recording"):
				self.watch(master)
			master.biter = self.watch_posts(master.biter)
			try:
				stock(master)
			finally:
				self.schedules.append((begun, clock()))
				self.total += self.bld.total()

		return start

	def watch_posts(self, groups: Iterator[List[Task.Task]]) -> Iterator[List[Task.Task]]:
		"""Note when tasks are made, which is when the next group of them is asked for."""
		while True:
			begun = clock()
			tasks = next(groups, None)
			self.posts.append((begun, clock()))
			if tasks is None:
				return
			yield tasks

	def watch(self, master: Runner.Parallel) -> None:
		"""Note what Waf's own threads do, or, with -j1, its only one."""
		stock, tasks, current, ident = master.process_task, self.tasks, self.current, threading.get_ident

		def process_task(task: Task.Task) -> None:
			entry: Entry = [task, clock(), 0.0]
			tasks.append(entry)
			current[ident()] = task
			try:
				stock(task)
			finally:
				current.pop(ident(), None)
				entry[2] = clock()

		master.process_task = process_task
		if master.numjobs > 1:
			get = master.out.get

			def wait(*args: object, **kwargs: object) -> Task.Task:
				begun = clock()
				try:
					return get(*args, **kwargs)
				finally:
					self.waits.append((begun, clock()))

			master.out.get = wait

	def note_sent(self, tasks: List[Task.Task]) -> None:
		"""Commands that were sent just now, which may be some time after they were made."""
		now = clock()
		for task in tasks:
			if task in self.sent:
				self.sent[task] = now

	def find_task(self, known: Optional[Task.Task], cmd: object) -> Union[Task.Task, str]:
		"""Who runs a command: the task of this thread, or the words of a command that no task runs."""
		task = known or self.current.get(threading.get_ident())
		if task is not None:
			return task
		first: Any = cmd if isinstance(cmd, str) else (list(cmd) or [""])[0] if isinstance(cmd, (list, tuple)) else cmd
		return os.path.basename(os.fsdecode(first).split(None, 1)[0]) if first else "command"


def describe_process() -> Dict[str, str]:
	"""What made the picture."""
	from waflib import Context

	name = "PyPy" if "__pypy__" in sys.builtin_module_names else "CPython"
	return {
		"python": "%s %d.%d.%d" % ((name,) + sys.version_info[:3]),
		"waf": getattr(Context, "WAFVERSION", "?"),
		"arguments": " ".join(sys.argv[1:]),
		"project": os.path.basename(Context.top_dir or Context.run_dir or os.getcwd()),
		"made": time.strftime("%Y-%m-%d %H:%M:%S"),
		"verbose": str(Logs.verbose or 0),
		"jobs": str(getattr(Options.options, "jobs", "")),
	}
