"""
The dependencies of tasks, as the engine tells them. Waf would find them by scanning and hashing.

These functions replace methods of Waf's. Waf itself handles a task that has replaced such a method, or of which the
engine tells nothing.
"""

import os
import sys
import threading
import time
from typing import Callable, Iterable, Iterator, List, Mapping, Optional, Set, Union

from waflib import Build, Logs, Node, Runner, Task, Utils
from waflib.Tools import ccroot

from ..client import protocol
from ..facts import checks
from ..hooks import lifecycle
from ..prefork import dispatcher
from . import inputs
from .policy import Cacher

Manual = Union[Node.Node, bytes, Callable[[], bytes]]
"""An argument of ``add_manual_dependency``."""
TOOL = "wafcc"
SAVED = "wafcc_facts"
"""The attribute of a build context that Waf stores for us in its database."""
GAP = 20
LOCK = threading.Lock()
OBJECTS = (".o", ".obj", ".os")
COARSE = 5 if sys.platform.startswith("linux") else None
"""The clock by which Linux stamps files. Python has no name for it."""


class Stock:
	"""Waf's own methods."""

	status: Callable[[Task.Task], int]
	post_run: Callable[[Task.Task], None]
	iterate: Callable[[Build.BuildContext], Iterator[List[Task.Task]]]
	store: Callable[[Build.BuildContext], None]


def find_cacher() -> Cacher:
	cacher = lifecycle.find().cache
	assert isinstance(cacher, Cacher)
	return cacher


def find_memory(bld: Build.BuildContext) -> inputs.InputMemory:
	memory: Optional[inputs.InputMemory] = bld.__dict__.get("wafcc_memory")
	if memory is None:
		memory = bld.wafcc_memory = inputs.InputMemory(getattr(bld, SAVED, None))
		if not hasattr(bld, "cache_sig"):
			bld.cache_sig = {}
	return memory


def find_environment(task: Task.Task) -> checks.Environment:
	"""The variables that Waf gives to a task's command."""
	environment: checks.Environment = task.env.env or os.environ
	return environment


def find_folder(task: Task.Task) -> bytes:
	"""The folder in which a task's command runs."""
	folder = task.get_cwd()
	return os.fsencode(folder if isinstance(folder, str) else folder.abspath())


def sign(task: Task.Task, result: bytes, numbers: bytes) -> bytes:
	"""A digest of the task's result, and of what it depends on besides the inputs of its command."""
	bld = task.generator.bld
	task.m = Utils.md5(task.hcode)
	update = task.m.update
	for node in task.dep_nodes:
		update(node.get_bld_sig())
	if bld.deps_man:
		for value in find_manual(task, bld.deps_man):
			update(value)
	task.sig_vars()
	settings = find_cacher().settings
	if settings is not None and settings.extra:
		update(settings.extra)
	update(find_folder(task))
	for value in find_memory(bld).find_circumstances(numbers):
		update(value)
	update(result)
	return task.m.digest()


def find_manual(task: Task.Task, manual: Mapping[Node.Node, Iterable["Manual"]]) -> Iterator[bytes]:
	"""The values of ``add_manual_dependency``: nodes, bytes, or functions that return bytes."""
	for node in task.inputs + task.outputs:
		for value in manual.get(node, ()):
			if hasattr(value, "get_bld_sig"):
				yield value.get_bld_sig()
			else:
				yield value() if callable(value) else value


def runnable_status(task: Task.Task) -> int:
	"""Stands in for Waf's. A task with a record need not be scanned."""
	cacher = find_cacher()
	flags = cacher.find_flags(task)
	if not flags & protocol.INPUTS:
		if flags:
			cacher.solo = task
		return Stock.status(task)
	bld = task.generator.bld
	if bld.is_install < 0:
		return Task.SKIP_ME
	for other in task.run_after:
		if not other.hasrun:
			return Task.ASK_LATER
		if other.hasrun < Task.SKIPPED:
			return Task.CANCEL_ME
	memory = find_memory(bld)
	status = find_status(task, bld, memory, task.uid())
	if status == Task.RUN_ME:
		for node in task.dep_nodes:
			# hashed before the command runs
			node.get_bld_sig()
		task.wafcc_began = time.time_ns() if COARSE is None else time.clock_gettime_ns(COARSE)
		cacher.solo = task
	return status


def find_status(task: Task.Task, bld: Build.BuildContext, memory: inputs.InputMemory, uid: bytes) -> int:
	record = memory.records.get(uid)
	if record is None:
		# it runs for the first time, and may do so now unless it must wait for generated files that it could read
		is_new = uid not in bld.task_sigs and memory.is_in_order(task)
		if is_new and memory.is_active:
			return Task.RUN_ME
		status = Stock.status(task)
		return Task.RUN_ME if status == Task.SKIP_ME and is_doubtful(task, memory, uid) else status
	numbers, result, stamps = record
	holds = memory.holds(record, task)
	if holds is None:
		return Task.ASK_LATER
	holds = holds and memory.fits(record, find_environment(task), find_folder(task))
	if not holds or bld.task_sigs.get(uid) != sign(task, result, numbers):
		if not holds:
			lifecycle.find().changed[task] = [memory.texts[number] for number in sorted(memory.mine)]
		if Logs.verbose:
			Logs.debug("wafcc: %s: %s", task, "its command is another" if holds else memory.tell())
		return Task.RUN_ME if memory.is_in_order(task) else Stock.status(task)
	for node, stamp in zip(task.outputs, stamps):
		if bld.node_sigs.get(node) != uid:
			return Task.RUN_ME
		try:
			found = os.stat(node.abspath())
		except OSError:
			return Task.RUN_ME
		if inputs.stamp(found) == stamp:
			bld.cache_sig[node] = result
	return Task.RUN_ME if task.always_run else Task.SKIP_ME


def is_doubtful(task: Task.Task, memory: inputs.InputMemory, uid: bytes) -> bool:
	"""
	Tell whether a task may depend on more than Waf knows, and the engine has not told on what.

	Such a task asked to be cached with all that its command looks at. Waf knows the dependencies of links.
	"""
	if not find_cacher().find_flags(task) & protocol.FACTS or isinstance(task, ccroot.link_task):
		return False
	return uid in memory.doubts or (memory.is_active and lifecycle.find().is_running_commands())


def post_run(task: Task.Task) -> None:
	"""Stands in for Waf's, and makes a record of what the engine has told of a task."""
	learned = task.__dict__.pop("wafcc_learned", None)
	began = task.__dict__.pop("wafcc_began", None)
	if learned is None or not write_down(task, *learned):
		forget(task, began)


def write_down(task: Task.Task, texts: List[bytes], told: protocol.Inputs) -> bool:
	"""Make a record of a task, unless one of its outputs is missing."""
	bld = task.generator.bld
	uid = task.uid()
	stamps = []
	result = told.result
	memory = find_memory(bld)
	for node in task.outputs:
		try:
			stamps.append(inputs.stamp(os.stat(node.abspath())))
		except OSError:
			return False
		bld.node_sigs[node] = uid
		bld.cache_sig[node] = result
	with LOCK:
		numbers = memory.number_all(texts, told.numbers)
	memory.records[uid] = (numbers, result, tuple(stamps))
	memory.doubts.discard(uid)
	bld.task_sigs[uid] = sign(task, result, numbers)
	for table in (bld.imp_sigs, bld.node_deps, bld.raw_deps):
		if table:
			table.pop(uid, None)
	task.__dict__.pop("cache_sig", None)
	if not getattr(task, "keep_last_cmd", False):
		task.__dict__.pop("last_cmd", None)
	return True


def forget(task: Task.Task, began: Optional[int]) -> None:
	"""Have Waf find the dependencies of a task that has run. If one has changed meanwhile, the task runs again."""
	bld = task.generator.bld
	uid = task.uid()
	memory = bld.__dict__.get("wafcc_memory")
	if memory is not None:
		is_doubtful_now = is_doubtful(task, memory, uid)
		if memory.records.pop(uid, None) is not None or is_doubtful_now:
			memory.doubts.add(uid)
	since = began if "cache_sig" not in task.__dict__ else None
	Stock.post_run(task)
	if since is not None and any(has_changed(node, since) for node in task.inputs + bld.node_deps.get(uid, [])):
		bld.task_sigs.pop(uid, None)


def has_changed(node: Node.Node, began: int) -> bool:
	try:
		return os.stat(node.abspath()).st_ctime_ns > began
	except OSError:
		return True


def get_build_iterator(bld: Build.BuildContext) -> Iterator[List[Task.Task]]:
	"""Stands in for Waf's. Generated files are made before tasks that might read them."""
	for tasks in Stock.iterate(bld):
		if tasks:
			prepare(bld, tasks)
		yield tasks


def prepare(bld: Build.BuildContext, tasks: List[Task.Task]) -> None:
	cacher = find_cacher()
	memory = find_memory(bld)
	memory.is_active = cacher.active
	if cacher.active:
		# how many tasks Waf hands out per slot: as many as the cache may have, and some to choose from
		Runner.GAP = max(Runner.GAP, GAP + dispatcher.FAR_AHEAD // max(bld.jobs, 1))
	users, makers = [], []
	for task in tasks:
		if cacher.find_flags(task) & protocol.INPUTS:
			users.append(task)
			if all(node.name.endswith(OBJECTS) for node in task.outputs):
				continue
		if task.outputs:
			makers.append(task)
	memory.expect(tasks)
	ahead = lifecycle.find()
	if ahead.checks is not None and not ahead.is_called:
		ahead.checks.renewals.append(memory.prepare_renewal(tasks))
	producers = [task for task in makers if not isinstance(task, ccroot.link_task)]
	memory.begin_group(tasks if producers else None, find_ancestors(producers))
	if producers:
		waiting = [task for task in users if memory.is_in_order(task)]
		if waiting:
			group = Task.TaskGroup(set(producers), set(waiting))
			for task in waiting:
				task.run_after.add(group)


def find_ancestors(tasks: List[Task.Task]) -> Set[Task.Task]:
	"""These tasks, and all that have to run before them."""
	found: Set[Task.Task] = set()
	left = list(tasks)
	while left:
		task = left.pop()
		if task not in found:
			found.add(task)
			left.extend(task.prev if isinstance(task, Task.TaskGroup) else task.run_after)
	return found


def store(bld: Build.BuildContext) -> None:
	"""Stands in for Waf's, and stores our records in the same database."""
	memory = bld.__dict__.get("wafcc_memory")
	if memory is not None:
		setattr(bld, SAVED, memory.save())
	Stock.store(bld)


def install() -> None:
	"""Replace Waf's methods by these functions."""
	Build.SAVED_ATTRS.append(SAVED)
	replace = lifecycle.find().replace
	Stock.status = replace(TOOL, "Task.Task.runnable_status", runnable_status)
	Stock.post_run = replace(TOOL, "Task.Task.post_run", post_run)
	Stock.iterate = replace(TOOL, "Build.BuildContext.get_build_iterator", get_build_iterator)
	Stock.store = replace(TOOL, "Build.BuildContext.store", store)
