"""Chooses the tasks that may share calls, and replaces their methods."""

from typing import Optional

from waflib import Build, Options, Runner, Task, TaskGen, Utils
from waflib.TaskGen import after_method, feature

from ..hooks import lifecycle
from . import gathering, membership

SIZE = 50
"""At most so many tasks share a call, if the project does not say how many."""
COMPILERS = ("gcc", "clang", "msvc", "clang-cl")
"""The values of ``CC_NAME`` and ``CXX_NAME`` for compilers whose options we know."""


def find_pool(bld: Build.BuildContext) -> gathering.Pool:
	pool: Optional[gathering.Pool] = bld.__dict__.get("batch_pool")
	if pool is None:
		pool = bld.batch_pool = gathering.Pool(bld)
	return pool


def find_size(task: Task.Task, generator: TaskGen.task_gen, pool: gathering.Pool) -> int:
	"""How many tasks may share a call with this one."""
	option = getattr(Options.options, "batch", None)
	if option is not None and option <= 0:
		return 0
	# only the generator's own attribute, since unity gives all generators a method of this name
	for asked in (vars(generator).get("batch_size"), option, getattr(task, "batch_size", None)):
		if asked is not None:
			return int(asked)
	return SIZE if pool.for_all or "batch" in Utils.to_list(generator.features) else 0


def is_of_known_compiler(task: Task.Task) -> bool:
	"""Tell whether a task compiles C or C++ with a compiler whose options we know."""
	for name in ("c", "cxx"):
		cls = Task.classes.get(name)
		if cls is not None and isinstance(task, cls):
			return task.env["CC_NAME" if name == "c" else "CXX_NAME"] in COMPILERS
	return False


def is_parked_clang(task: Task.Task) -> bool:
	"""
	Tell whether the engine may run this compile in a parked clang.

	Given several sources, clang starts a new process for each, and parking does not help these.
	"""
	name = task.env["CXX_NAME" if isinstance(task, Task.classes.get("cxx", ())) else "CC_NAME"]
	return bool(lifecycle.find().is_running_commands() and name and "clang" in name)


@feature("*", "batch")
@after_method("process_source", "process_rule", "apply_link", "apply_incpaths", "propagate_uselib_vars")
def share_calls(self: TaskGen.task_gen) -> None:
	"""Let the tasks of this generator share calls, if that is wanted."""
	pool = find_pool(self.bld)
	for task in self.tasks:
		is_joint = bool(getattr(task, "batch_run_str", None))
		if "batch_member" in task.__dict__ or not (is_joint or is_of_known_compiler(task)):
			continue
		size = find_size(task, self, pool)
		if size < 2:
			continue
		cacher = lifecycle.find().find_active_cache()
		if cacher is not None and cacher.find_new_flags(task):
			pool.leave("wafcc caches it")
			continue
		if not is_joint and is_parked_clang(task):
			pool.leave("clang that the engine parks is faster alone")
			continue
		# have Waf hand out as many tasks per slot as one call may take
		Runner.GAP = max(Runner.GAP, size)
		member = task.batch_member = membership.Member(task, pool, size)
		task.runnable_status = member.runnable_status
		task.run = member.run


def options(opt: Options.OptionsContext) -> None:
	if not opt.parser.get_option("--batch"):
		opt.add_option(
			"--batch",
			type=int,
			metavar="N",
			help="compile up to N sources in one call of a compiler; 0: one each [default: as the project says]",
		)


def build(bld: Build.BuildContext) -> None:
	find_pool(bld).for_all = True
