"""
Tells why a task runs, or why it has run.

::

	waf build --why=app        # builds, and tells of each task of app whether and why it ran
	waf why --why=app          # builds nothing: what would be done and why, and why it was done the last time
	waf why                    # all that would be done

A target is the name of a task generator, the path of an output or a source, or a pattern such as ``*.o``. Several are
separated by commas. ``prefork`` loads this; ``docs/why.md`` tells what is stored for it.
"""

import os
import time
from typing import Container, Dict, List, Optional, Sequence, Set, Tuple

from waflib import Build, Errors, Logs, Node, Options, Runner, Task, Utils

from ..client import protocol
from ..hooks import lifecycle, stock
from . import causes, history

TOLD = {protocol.HIT: "cache: hit", protocol.MISS: "cache: miss", protocol.UNCACHED: "not cached"}
STATES = {
	Task.NOT_RUN: "not reached",
	Task.MISSING: "failed",
	Task.CRASHED: "failed",
	Task.EXCEPTION: "failed",
	Task.CANCELED: "not built, since something that it needs was not",
	Task.SKIPPED: "up to date",
	Task.SUCCESS: "built",
}

UNASKED = (-1, "")
HIT = (protocol.HIT, "")
IDLE = (Task.NOT_RUN, Task.CANCELED, Task.SKIPPED)


class Evidence:
	"""The notes of a running build, which are stored when it is over. There is one object per process."""

	def __init__(self, build: lifecycle.Build, times: Dict[Task.Task, int]) -> None:
		self.times = times
		"""How long tasks took, in microseconds."""
		self.changed = build.changed
		self.begun: Dict[Task.Task, causes.Before] = {}
		self.told: Dict[Task.Task, Tuple[int, str]] = {}
		self.empty: Dict[Build.BuildContext, bool] = {}
		"""By build context: whether Waf had no signature of any task when the first one ran."""

	def begin(self, task: Task.Task) -> None:
		"""Note what Waf knows of a task that is about to run."""
		bld = task.generator.bld
		is_empty = self.empty.get(bld)
		if is_empty is None:
			is_empty = self.empty[bld] = not bld.task_sigs
		self.begun[task] = causes.FORGOTTEN if is_empty else causes.begin(task)

	def hear(self, ended: lifecycle.Ended) -> None:
		"""Note what the cache says of a task."""
		task, told = ended.task, ended.told
		if task is not None and told is not None:
			self.told[task] = HIT if told.known == protocol.HIT else (told.known, told.show())

	def end_build(self, bld: Build.BuildContext) -> None:
		"""Store the records of the tasks that have run, and answer ``--why``."""
		wanted = find_wanted()
		if bld.cmd == WhyContext.cmd:
			return
		if not (self.begun or self.told or self.times or wanted):
			return
		path = history.find_file(bld, history.CAUSES)
		known = history.read(path)
		envs, records = known.setdefault("envs", {}), known.setdefault("tasks", {})
		recorder = causes.Recorder(bld, envs)
		ran = list_tasks(bld) if wanted else [*{**self.begun, **self.told, **self.times}]
		explained: Dict[Task.Task, causes.Record] = {}
		learned = find_learned(bld)
		for task in ran:
			if task.generator.bld is bld and task.hasrun not in IDLE:
				uid = task.uid()
				record = self.make_record(recorder, task, uid, learned, records.get(uid))
				explained[task] = record
				if task.hasrun == Task.SUCCESS:
					records[uid] = record
		if explained and os.path.isdir(bld.out_dir):
			used = {parts[1] for _, parts, _, _ in records.values()}
			known["envs"] = {digest: values for digest, values in envs.items() if digest in used}
			history.write(path, known)
		for table in (self.begun, self.told, self.changed):
			table.clear()
		self.empty.pop(bld, None)
		if wanted:
			self.report(bld, wanted, explained, records)

	def make_record(
		self,
		recorder: causes.Recorder,
		task: Task.Task,
		uid: bytes,
		learned: Container[bytes],
		old: Optional[causes.Record],
	) -> causes.Record:
		"""The record of a task that has run. ``learned`` has the tasks whose files the engine knows."""
		is_learned = uid in learned
		begun = self.begun.get(task)
		told = self.told.get(task, UNASKED)
		if is_learned and old is None and told is HIT and begun and not begun.is_known and recorder.is_plain(task):
			# there may be thousands of them in a new build folder, and all with one environment have the same record
			return recorder.first(task, told)
		new = recorder.measure(task, is_learned)
		changed = self.changed.get(task, ())
		reasons = causes.explain(task, begun, old[1] if old else None, new, changed, recorder.envs)
		return recorder.now, new, tuple(reasons), told

	def answer(self, bld: Build.BuildContext, would: Dict[Task.Task, Optional[str]]) -> None:
		"""Tell for ``waf why`` what a build would do. For a task that would run, ``would`` may have the reason."""
		wanted = find_wanted()
		known = history.read(history.find_file(bld, history.CAUSES))
		envs, records = known.get("envs", {}), known.get("tasks", {})
		recorder = causes.Recorder(bld, envs)
		learned = find_learned(bld)
		for task in find_tasks(bld, wanted) if wanted else list_tasks(bld):
			values = records.get(task.uid())
			if task not in would:
				if wanted:
					say(task, "up to date" + show_last(values))
				continue
			reason = would[task]
			reasons: Sequence[str] = () if reason is None else (reason,)
			if reason is None:
				reasons = self.make_record(recorder, task, task.uid(), learned, values)[2]
			say(task, "would be built: %s" % "; ".join(reasons))
		from . import summary

		count = summary.count(len(would), "task")
		Logs.info("why: %s would run, %d up to date", count, len(list_tasks(bld)) - len(would))
		for table in (self.begun, self.changed):
			table.clear()

	def report(
		self,
		bld: Build.BuildContext,
		wanted: Sequence[str],
		explained: Dict[Task.Task, causes.Record],
		records: Dict[bytes, causes.Record],
	) -> None:
		for task in find_tasks(bld, wanted):
			record = explained.get(task)
			if record is not None:
				say(task, STATES[task.hasrun] + show_reasons(record))
			else:
				say(task, STATES[task.hasrun] + (show_last(records.get(task.uid())) if task.hasrun else ""))


def show_reasons(record: causes.Record) -> str:
	_, _, reasons, told = record
	return (": " + "; ".join(reasons) if reasons else "") + show_told(told)


def show_told(told: Tuple[int, str]) -> str:
	known, words = told
	if known < 0:
		return ""
	return "; " + TOLD[known] + (": " + words if words else "")


def show_last(record: Optional[causes.Record]) -> str:
	"""When and why a task was built the last time."""
	if record is None:
		return ""
	when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record[0]))
	return "; built %s%s" % (when, show_reasons(record))


def say(task: Task.Task, words: str) -> None:
	Logs.info("%s%s%s: %s", Logs.colors.CYAN, label(task), Logs.colors.NORMAL, words)


def label(task: Task.Task) -> str:
	nodes = task.outputs or task.inputs
	return causes.show(nodes[0].abspath()) if nodes else task.__class__.__name__


# ---- what is asked for


def find_learned(bld: Build.BuildContext) -> Container[bytes]:
	memory = bld.__dict__.get("wafcc_memory")
	return memory.records if memory is not None else ()


def find_wanted() -> List[str]:
	text = getattr(Options.options, "why_targets", None) or ""
	return [word.strip() for word in text.split(",") if word.strip()]


def list_tasks(bld: Build.BuildContext) -> List[Task.Task]:
	"""All tasks of a build, each once."""
	found = [task for group in bld.groups for one in group for task in getattr(one, "tasks", (one,))]
	return [task for task in dict.fromkeys(found) if hasattr(task, "hasrun")]


def find_tasks(bld: Build.BuildContext, wanted: Sequence[str]) -> List[Task.Task]:
	"""The tasks of these targets. An unknown name is an error, which proposes similar ones."""
	tasks = list_tasks(bld)
	found: Dict[Task.Task, None] = {}
	for word in wanted:
		mine = [task for task in tasks if word in (getattr(task.generator, "name", ""), label(task))]
		mine = mine or [task for task in tasks if any(fits(node, word, bld) for node in task.outputs)]
		mine = mine or [task for task in tasks if any(fits(node, word, bld) for node in task.inputs)]
		if not mine:
			raise Errors.WafError("why: %s" % tell_unknown(word, bld, tasks))
		found.update(dict.fromkeys(mine))
	return list(found)


def fits(node: Node.Node, word: str, bld: Build.BuildContext) -> bool:
	import fnmatch

	path = node.abspath()
	names = (node.name, causes.show(path), node.path_from(bld.bldnode), node.path_from(bld.srcnode), path)
	return any(name == word or fnmatch.fnmatchcase(name, word) for name in names)


def tell_unknown(word: str, bld: Build.BuildContext, tasks: Sequence[Task.Task]) -> str:
	names: Set[str] = {one.name for group in bld.groups for one in group if hasattr(one, "tasks")}
	for task in tasks:
		names.update(node.name for node in task.outputs)
		names.add(label(task))
	import difflib

	near = difflib.get_close_matches(word, sorted(names), 3, 0.5)
	hint = "did you mean %s?" % " or ".join(near) if near else "waf list shows the targets"
	return "there is no target, output or source %s: %s" % (word, hint)


# ---- without building


class DryRun(Runner.Parallel):
	"""A scheduler that goes through the tasks as a build does, and runs none."""

	def __init__(self, bld: Build.BuildContext, evidence: lifecycle.Evidence) -> None:
		super().__init__(bld, 1)
		self.evidence = evidence
		self.would: Dict[Task.Task, Optional[str]] = {}
		"""The tasks that would run. The value names the file that would be made before, if that is the reason."""
		self.made: Dict[Node.Node, None] = {}

	def task_status(self, tsk: Task.Task) -> int:
		nodes = tsk.inputs + tsk.dep_nodes + self.bld.node_deps.get(tsk.uid(), [])
		before = next((node for node in nodes if node in self.made), None)
		if before is None:
			status = super().task_status(tsk)
			if status == Task.RUN_ME:
				self.would[tsk] = None
			return status
		self.would[tsk] = "%s would be made before, and may change" % causes.show(before.abspath())
		return Task.RUN_ME

	def add_task(self, tsk: Task.Task) -> None:
		self.evidence.begin(tsk)
		self.processed += 1
		self.made.update(dict.fromkeys(tsk.outputs))
		tsk.hasrun = Task.SKIPPED
		self.mark_finished(tsk)


class WhyContext(Build.BuildContext):
	"""tells what a build would do and why; builds nothing"""

	cmd = "why"

	def execute_build(self) -> None:
		evidence = lifecycle.find().evidence
		if evidence is None:
			raise Errors.WafError("why: the tool prefork is not in use: unset WAF_NO_PREFORK, or load it")
		self.recurse([self.run_dir])
		self.pre_build()
		self.timer = Utils.Timer()
		producer = DryRun(self, evidence)
		self.producer: Optional[DryRun] = producer
		producer.biter = self.get_build_iterator()
		try:
			producer.start()
		finally:
			self.producer = None
		if producer.error:
			raise Errors.BuildError(producer.error)
		evidence.answer(self, producer.would)

	def store(self) -> None:
		"""Store nothing, since nothing was built."""
		pass


def watch(bld: Build.BuildContext, evidence: Evidence) -> None:
	"""
	Have each task noted before it runs, where the dispatcher does not do so.

	It does not see the tasks of a build with -j1, nor those without a command, which matter where ``--why`` is given.
	"""
	stock_add_task = Runner.Parallel.add_task
	if getattr(stock_add_task, "of_why", False) or not (bld.jobs == 1 or find_wanted()):
		return

	def add_task(self: Runner.Parallel, tsk: Task.Task) -> None:
		if find_wanted() or (self.numjobs == 1 and stock.is_compiled(tsk.__class__.run)):
			evidence.begin(tsk)
		stock_add_task(self, tsk)

	add_task.__dict__["of_why"] = True
	lifecycle.find().replace("console", "Runner.Parallel.add_task", add_task)


def add_late_options(opt: Options.OptionsContext) -> None:
	if not opt.parser.get_option("--why"):
		group = opt.add_option_group("Prefork options")
		group.add_option(
			"--why",
			dest="why_targets",
			default="",
			metavar="TARGET,...",
			help="tell why these are built: names of task generators, outputs, sources, or patterns of them",
		)
