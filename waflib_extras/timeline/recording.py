"""
Notes for the picture of a build, taken while it runs.

Notes are as few as possible per task, and are read when the build is over.
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

	from ..client.protocol import Elsewhere, Outcome, Told
	from .chains import Heirs

TOOL = "timeline"
clock = time.perf_counter

TaskTimes = List[Any]
"""A task that a thread has run, when it began, and when it ended (0: it still runs)."""


class Recording:
	"""
	The notes of one build. All times are those of ``clock``.

	``prefork`` writes into these lists itself, since a call per task would cost more than the note.
	"""

	def __init__(self, bld: "BuildContext") -> None:
		self.bld = bld
		self.clock = clock
		self.begun = clock()
		self.ended = 0.0
		self.processor = time.process_time()
		"""The processor time of this process in seconds, at first before the build; in the end, that of the build."""
		self.outcome = ""
		self.jobs = 0
		self.total = 0
		"""The number of tasks, including those that were up to date."""
		self.tasks: List[TaskTimes] = []
		"""The tasks that a thread ran: task, begin, end (0: it still runs)."""
		self.commands: List[Tuple[Task.Task, float, float, Outcome, Optional[Told], Optional[Elsewhere]]] = []
		"""
		Commands that Waf's own thread sent: task, when sent, when its outcome came, outcome, words of the cache, and
		where it ran if it could run on a cluster.
		"""
		self.sent: Dict[Task.Task, float] = {}
		"""Tasks whose commands have no outcome yet, and when they were sent."""
		self.calls: List[Tuple[Union[Task.Task, str], float, float, Outcome, Optional[Told], Optional[Elsewhere]]] = []
		"""Commands that a thread waited for, with its task, or with a text if it ran no task."""
		self.current: Dict[int, Task.Task] = {}
		"""By thread: the task that it runs, if Waf runs it."""
		self.waits: List[Tuple[float, float]] = []
		"""When Waf's own thread had nothing to do."""
		self.posts: List[Tuple[float, float]] = []
		"""When Waf's own thread made the tasks of a build group."""
		self.schedules: List[Tuple[float, float]] = []
		"""From when to when a scheduler was at work."""
		self.groups: Dict[Task.TaskGroup, Tuple[Task.Task, ...]] = {}
		"""The members of groups of tasks that others wait for. Waf empties these groups while it builds."""
		self.heirs: List[Heirs] = []
		"""Such groups, each with the tasks that wait for it."""
		self.sampler = meter.Sampler(clock)

	def begin(self) -> None:
		"""Replace those functions of Waf's that have to note something."""
		build = lifecycle.find()
		build.recording = self
		build.replace(TOOL, "Runner.Parallel.start", self.make_start(Runner.Parallel.start))
		if hasattr(Task, "TaskGroup"):
			build.replace(TOOL, "Task.TaskGroup.__init__", self.make_group(Task.TaskGroup.__init__))
		self.sampler.begin(build.runner)

	def end(self, outcome: str) -> None:
		"""Put back what was replaced, and close the record."""
		self.ended = clock()
		self.outcome = outcome
		self.processor = time.process_time() - self.processor
		self.sampler.end()
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
				# this is a test of configure, or a build within this one
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
		"""Note when tasks are made: Waf makes them when it asks for the next group."""
		while True:
			begun = clock()
			tasks = next(groups, None)
			self.posts.append((begun, clock()))
			if tasks is None:
				return
			yield tasks

	def watch(self, master: Runner.Parallel) -> None:
		"""Note what Waf's own threads do; with -j1 there is only one."""
		stock, tasks, current, ident = master.process_task, self.tasks, self.current, threading.get_ident

		def process_task(task: Task.Task) -> None:
			entry: TaskTimes = [task, clock(), 0.0]
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
		"""Note that the commands of these tasks were sent now. They may have been made some time before."""
		now = clock()
		for task in tasks:
			if task in self.sent:
				self.sent[task] = now

	def find_task(self, known: Optional[Task.Task], cmd: object) -> Union[Task.Task, str]:
		"""The task of this thread, which runs a command; or the words of a command that no task runs."""
		task = known or self.current.get(threading.get_ident())
		if task is not None:
			return task
		first: Any = cmd if isinstance(cmd, str) else (list(cmd) or [""])[0] if isinstance(cmd, (list, tuple)) else cmd
		return os.path.basename(os.fsdecode(first).split(None, 1)[0]) if first else "command"


def count_processors() -> int:
	"""The number of processors that this process may use."""
	try:
		return len(os.sched_getaffinity(0))
	except (AttributeError, OSError):  # PyPy has no such function
		return os.cpu_count() or 1


def describe_process() -> Dict[str, str]:
	"""The programs and the machine that the build ran on."""
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
