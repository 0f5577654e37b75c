"""Takes the sources of targets, and makes tasks of the groups that are compiled together."""

import fnmatch
import functools
from typing import Dict, List

from waflib import Build, Logs, Node, Options, Task, TaskGen

from ..hooks import entry, gc_pause, lifecycle
from . import bisect, planning, unit

TOOL = "unity"
MAX_BATCH = 128

EXTS_C = (".c",)
EXTS_CXX = (".cpp", ".cc", ".cxx", ".C", ".c++")

ON, OFF, AUTO = "on", "off", bisect.AUTO
HOOKS = (("waflib.Tools.c", "c_hook"), ("waflib.Tools.cxx", "cxx_hook"))


# ---- options and features


def add_options(opt: Options.OptionsContext) -> None:
	group = opt.add_option_group("Unity options")
	group.add_option(
		"--batchsize",
		type=int,
		default=MAX_BATCH,
		help="default unity batch size (0 disables unity builds) [default: %d]" % MAX_BATCH,
	)
	group.add_option(
		"--unity",
		choices=(ON, OFF, AUTO),
		help="compile files together everywhere, nowhere, or where that gains [default: as the project says]",
	)
	group.add_option("--unity-still", action="store_true", help="leave files that are being edited with the others")
	group.add_option(
		"--unity-explain",
		action="store_true",
		help="tell of each target what is compiled together, and why files are not",
	)


@TaskGen.taskgen_method
def batch_size(self: TaskGen.task_gen) -> int:
	default = getattr(Options.options, "batchsize", MAX_BATCH)
	if default < 1:
		return 0
	size: int = getattr(self, "unity_size", default)
	return size


@TaskGen.feature("*")
@TaskGen.before("process_source")
def collect_unity(self: TaskGen.task_gen) -> None:
	"""Have the sources of a target planned when all of them are known."""
	if not is_wanted(self):
		return
	collector = Collector(self)
	remembered = unit.find_memory(self.bld)
	if remembered.ahead is None:
		remembered.ahead = planning.Ahead(remembered, plan_early)
	stock = self.process_source

	def process_source() -> None:
		collector.begin()
		try:
			stock()
		finally:
			collector.end()
		collector.make_tasks()

	self.process_source = process_source


def is_wanted(gen: TaskGen.task_gen) -> bool:
	choice = getattr(Options.options, "unity", None)
	features = gen.to_list(gen.features)
	asked = "unity" in features or choice in (ON, AUTO) or getattr(gen.bld, "unity_everywhere", False)
	return (
		asked
		and choice != OFF
		and gen.batch_size() > 1
		and not {"c", "cxx"}.isdisjoint(features)
		# clangdb needs a command for each source
		and not gen.bld.cmd.startswith("clangdb")
	)


def plan_early(gen: TaskGen.task_gen) -> None:
	"""Make the plans of a task generator that is not posted yet. A forked process does this."""
	if is_wanted(gen):
		for each in Collector(gen).foresee():
			each.find_plan()


# ---- the sources of a target


class Collector:
	"""Takes the sources of a task generator before Waf's hooks make a task of each."""

	def __init__(self, gen: TaskGen.task_gen) -> None:
		self.gen = gen
		self.taken: Dict[str, List[unit.Taken]] = {"c": [], "cxx": []}
		"""By language: for each source the position of its object, the node, and Waf's hook."""

	def begin(self) -> None:
		self.excluded = self.gen.to_list(getattr(self.gen, "unity_exclude", []))
		self.remembered = unit.find_memory(self.gen.bld)
		self.outer = self.gen.__dict__.get("mappings")
		mappings = self.gen.mappings
		self.gen.mappings = dict(mappings)
		for language, extensions in (("c", EXTS_C), ("cxx", EXTS_CXX)):
			for extension in extensions:
				hook = mappings.get(extension)
				if (getattr(hook, "__module__", ""), getattr(hook, "__name__", "")) in HOOKS:
					self.gen.mappings[extension] = functools.partial(self.take, language, hook)

	def end(self) -> None:
		if self.outer is None:
			del self.gen.mappings
		else:
			self.gen.mappings = self.outer

	def foresee(self) -> List[unit.Unit]:
		"""The units of a task generator that is not posted yet, as far as they are known."""
		self.begin()
		gen = self.gen
		for node in gen.to_nodes(gen.source):
			hook = gen.get_hook(node)
			if getattr(hook, "func", None) == self.take:
				hook(gen, node)
		return [unit.Unit(gen, language, taken) for language, taken in self.taken.items() if len(taken) > 1]

	def take(self, language: str, hook: unit.Hook, gen: TaskGen.task_gen, node: Node.Node) -> None:
		if self.may_join(node):
			count = len(self.taken["c"]) + len(self.taken["cxx"])
			self.taken[language].append(((len(getattr(gen, "compiled_tasks", ())), 0, count), node, hook))
		else:
			hook(gen, node)

	def may_join(self, node: Node.Node) -> bool:
		"""Tell whether a source exists and the project does not want it to be compiled alone."""
		bld = self.gen.bld
		if self.excluded and self.is_excluded(node):
			return False
		is_made = node.is_bld() and (bld.bldnode is not bld.srcnode or node in bld.node_sigs)
		return not is_made and self.remembered.stamp(node.abspath()) is not None

	def is_excluded(self, node: Node.Node) -> bool:
		names = (node.name, node.path_from(self.gen.path))
		return any(
			node is each or (isinstance(each, str) and any(fnmatch.fnmatchcase(name, each) for name in names))
			for each in self.excluded
		)

	def make_tasks(self) -> None:
		"""Make tasks of the sources that were taken, and put them where Waf would have put them."""
		gen = self.gen
		before = list(getattr(gen, "compiled_tasks", ()))
		positions: Dict[Task.Task, unit.Position] = {task: (i, 1, 0) for i, task in enumerate(before)}
		for language, taken in self.taken.items():
			if len(taken) < 2:
				for place, node, hook in taken:
					hook(gen, node)
					positions[gen.compiled_tasks[-1]] = place
				continue
			planned = unit.Unit(gen, language, taken)
			for number, task in planned.make_tasks():
				positions[task] = planned.positions[number]
		if positions:
			gen.compiled_tasks.sort(key=positions.__getitem__)
			gen.unity_positions = {task.outputs[0]: place for task, place in positions.items()}


class Pause:
	"""Lets Python's collector run less often, from before Waf reads its database to the end of the build."""

	def __init__(self) -> None:
		self.collector = gc_pause.Collector()

	def begin(self, bld: Build.BuildContext) -> None:
		self.collector.slow_down()

	def end(self, bld: Build.BuildContext, outcome: str) -> None:
		self.collector.restore()


def install() -> None:
	"""Have new facts and plans stored when a build ends, in any way."""
	build = lifecycle.find()
	if any(one.tool == TOOL for one in build.replaced):
		return

	def compile(bld: Build.BuildContext) -> None:
		try:
			stock(bld)
		finally:
			remembered = bld.__dict__.get("unity_memory")
			if remembered is not None:
				if remembered.ahead is not None:
					remembered.ahead.end()
					if remembered.ahead.count and getattr(Options.options, "unity_explain", False):
						remembered.told.append(
							"unity: %d targets were planned by other processes" % remembered.ahead.count
						)
				remembered.save()
				for line in remembered.told:
					Logs.info(line)
			pause.end(bld, "")

	pause = build.join(TOOL, Pause)
	stock = build.replace(TOOL, "Build.BuildContext.compile", compile)


options, configure = entry.make_entries("--batchsize", add_options, install)


def build(bld: Build.BuildContext) -> None:
	install()
	# if the wscript has not loaded the tool before
	lifecycle.find().join(TOOL, Pause).begin(bld)
	bld.unity_everywhere = True
