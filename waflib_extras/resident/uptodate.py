"""
Finds out, before a run is called, which of its tasks are up to date.

A run that was begun ahead asks each task of Waf's own kind whether it is up to date, as Waf would. It notes everything
that is looked at for this. When the call comes, it looks at that again. If only the content of files has changed, the
answers of those tasks that have looked at these files are dropped, and Waf asks these tasks again. If anything else has
changed, Waf asks all of them. A task counts as up to date only if no task that it waits for has run.

``docs/resident.md`` tells why that is safe.
"""

from typing import TYPE_CHECKING, Callable, Container, Dict, FrozenSet, List, Optional, Set

from waflib import Errors, Node, Runner, Task
from waflib.Tools import c_preproc

from ..hooks import lifecycle, stock

if TYPE_CHECKING:
	from waflib.Build import BuildContext

ROUNDS = 8
"""A task that waits for tasks that wait for others, and so on, is asked ahead up to so many steps."""
TABLES = ("imp_sigs", "node_deps", "raw_deps")
"""What Waf knows of the tasks' dependencies, by task."""


class UpToDate:
	"""The tasks of a build that were asked before the call."""

	def __init__(self) -> None:
		self.bld: Optional[BuildContext] = None
		self.known: Set[Task.Task] = set()
		"""The tasks that were found to be up to date."""
		self.asked: Set[Task.Task] = set()
		"""The tasks that Waf would not ask as if for the first time."""
		self.readers: Dict[str, List[Task.Task]] = {}
		"""By path: the tasks that depend on this file's content."""
		self.nodes: Dict[str, Node.Node] = {}
		self.ended: Dict[Task.TaskGroup, FrozenSet[Task.Task]] = {}
		"""The tasks of groups that had ended. Waf takes tasks out of a group when they end."""
		self.groups: Dict[Task.Task, List[FrozenSet[Task.Task]]] = {}
		"""By task: the groups of tasks that it waits for."""
		self.tasks: List[Task.Task] = []
		self.task: Optional[Task.Task] = None
		"""The task that is being asked."""
		self.sums: Dict[Node.Node, bytes] = {}
		"""The digests that Waf had before."""
		self.environments: Dict[str, bytes] = {}
		"""The digests of variables that Waf had before."""
		self.tables: Dict[str, Dict[bytes, object]] = {}
		"""The tables that Waf had before, by their names."""
		self.ran: Set[Task.Task] = set()
		"""The tasks that have run since the call, or will run."""

	# ---- before the call

	def find(self, bld: "BuildContext", tasks: List[Task.Task], is_over: Callable[[], bool]) -> None:
		"""Ask all tasks of a group, until there is no time left for more."""
		self.bld = bld
		self.tasks = tasks
		if not hasattr(bld, "cache_sig"):
			bld.cache_sig = {}
		self.sums = dict(bld.cache_sig)
		self.environments = dict(getattr(bld, "cache_env", {}))
		self.tables = {name: dict(getattr(bld, name)) for name in TABLES}
		build = lifecycle.find()
		changed = dict(build.changed)
		hash_node = Node.Node.get_bld_sig
		self.is_over = is_over
		try:
			Node.Node.get_bld_sig = self.make_reader(hash_node)
			self.ask_all([task for task in tasks if not task.hasrun and is_usual(task, bld.deps_man)])
		finally:
			Node.Node.get_bld_sig = hash_node
			build.changed = changed
			for task in self.known:
				task.hasrun = Task.NOT_RUN
		for task in self.known:
			for node in (*task.inputs, *task.outputs, *task.dep_nodes):
				self.note(node, task)

	def make_reader(self, hash_node: Callable[[Node.Node], bytes]) -> Callable[[Node.Node], bytes]:
		"""Waf's function for the digest of a file, which notes for which task it is."""

		def get_bld_sig(node: Node.Node) -> bytes:
			if self.task is not None:
				self.note(node, self.task)
			return hash_node(node)

		return get_bld_sig

	def note(self, node: Node.Node, task: Task.Task) -> None:
		path = node.abspath()
		self.nodes[path] = node
		self.readers.setdefault(path, []).append(task)

	def ask_all(self, left: List[Task.Task]) -> None:
		"""Ask tasks, first those that wait for nothing."""
		for _ in range(ROUNDS):
			waiting = [task for task in left if not self.ask(task)]
			if len(waiting) in (0, len(left)):
				return
			left = waiting

	def ask(self, task: Task.Task) -> bool:
		"""Ask a task. It has to be asked again if it waits for another one."""
		groups = []
		for other in task.run_after:
			if not isinstance(other, Task.TaskGroup):
				if not other.hasrun:
					return False
				continue
			if other not in self.ended:
				if not other.hasrun:
					return False
				self.ended[other] = frozenset(other.prev)
			groups.append(self.ended[other])
		if self.is_over():
			return True
		self.task = task
		self.asked.add(task)
		if task.scan:
			# other tools have looked at the task before, and do not see this
			task.scan = refuse
		try:
			status = task.runnable_status()
		except Exception:
			status = Task.EXCEPTION  # Waf will ask again, and tell
		finally:
			task.__dict__.pop("scan", None)
			self.task = None
		if status == Task.SKIP_ME:
			task.hasrun = Task.SKIPPED
			self.known.add(task)
			if groups:
				self.groups[task] = groups
		else:
			self.forget(task)
		return bool(status != Task.ASK_LATER)

	def forget(self, task: Task.Task) -> None:
		"""Have Waf ask this task as if for the first time."""
		if task not in self.asked:
			return
		self.asked.discard(task)
		self.known.discard(task)
		task.__dict__.pop("cache_sig", None)
		uid = task.uid()
		for name, before in self.tables.items():
			table = getattr(self.bld, name)
			if uid in before:
				table[uid] = before[uid]
			else:
				table.pop(uid, None)

	# ---- after the call

	def go_on(self, changed: Optional[Set[str]], renewals: List[lifecycle.Renewal]) -> None:
		"""Drop all answers that may be others now. ``changed`` are files; None if anything else has changed."""
		if self.bld is None:
			return
		self.bld.cache_env = self.environments
		doubtful: Set[Task.Task] = set()
		for renew in renewals:
			found = renew(changed)
			if found is None:
				changed = None
			else:
				doubtful |= found
		if changed is None:
			for renew in renewals:
				renew(None)
			for task in list(self.asked):
				self.forget(task)
			self.bld.cache_sig.clear()
			self.bld.cache_sig.update(self.sums)
			return
		for task in doubtful:
			self.forget(task)
		self.drop_readers(changed)
		# a task may run if it is not known, and then it writes its outputs
		left = [task for task in self.tasks if task not in self.known]
		while left:
			left = self.drop_readers({node.abspath() for task in left for node in task.outputs})

	def drop_readers(self, paths: Set[str]) -> List[Task.Task]:
		"""Have Waf ask the tasks that depend on these files. Returns those that were known."""
		dropped = []
		for path in paths:
			if path in self.nodes:
				self.bld.cache_sig.pop(self.nodes[path], None)  # type: ignore[union-attr]
			for task in self.readers.get(path, ()):
				if task in self.known:
					dropped.append(task)
				self.forget(task)
		return dropped

	def is_known(self, task: Task.Task) -> bool:
		"""Tell whether a task is up to date, without asking it."""
		if task not in self.known:
			return False
		for other in task.run_after:
			if not other.hasrun:
				return False
		ran = self.ran
		return not ran or (ran.isdisjoint(task.run_after) and all(map(ran.isdisjoint, self.groups.get(task, ()))))

	def ask_now(
		self, status: Callable[[Runner.Parallel, Task.Task], int], master: Runner.Parallel, task: Task.Task
	) -> int:
		"""The status of a task after the call."""
		if self.is_known(task):
			return int(Task.SKIP_ME)
		self.forget(task)
		found = status(master, task)
		if found not in (Task.SKIP_ME, Task.ASK_LATER):
			self.ran.add(task)
		return found


def refuse() -> None:
	"""Stand in for the scanner of a task. It would remember what it has read, and the task is not up to date."""
	raise Errors.WafError("a task is not scanned before the call")


def is_usual(task: Task.Task, manual: Container[Node.Node]) -> bool:
	"""Tell whether Waf's own functions alone decide whether this task runs. Of these nodes, others decide."""
	cls = task.__class__
	usual = USUAL.get(cls)
	if usual is None:
		methods = all(getattr(cls, name, None) is getattr(Task.Task, name) for name in (*stock.METHODS, "sig_vars"))
		usual = USUAL[cls] = methods and (cls.scan is None or cls.scan is c_preproc.scan)
	if not usual or not OWN.isdisjoint(task.__dict__):
		return False
	return not any(node in manual for node in (*task.inputs, *task.outputs))


def find_strange(is_trusted: Callable[[str], bool]) -> str:
	"""The name of a function of Waf's that a project has replaced, so that asking a task runs code of the project."""
	for name in WATCHED:
		code = getattr(lifecycle.find_in_waf(name), "__code__", None)
		if code is not None and not is_trusted(code.co_filename):
			return "%s is the project's own" % name
	return ""


USUAL: Dict[type, bool] = {}
OWN = frozenset((*stock.METHODS, "sig_vars", "scan"))
WATCHED = (
	*("Task.Task." + name for name in (*stock.METHODS, "sig_vars")),
	*("Node.Node." + name for name in ("exists", "get_bld_sig", "h_file")),
	"Utils.h_file",
)
