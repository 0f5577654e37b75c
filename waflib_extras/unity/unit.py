"""
Plans the sources of one language in a target of ``unity``, and makes tasks of them.
"""

import hashlib
import os
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from waflib import Build, Errors, Logs, Node, Options, Task, TaskGen, Utils
from waflib.Tools import c_preproc

from ..hooks import lifecycle
from . import batches, bisect, digests, memory, pragmas, seen, text

WORTH = 0.8
"""Files are compiled together if that takes at most this part of the time that they take alone."""
PUSHING = ("gcc", "clang", "icc", "clang++")
"""Compilers that can save and restore a macro."""
URGENT = 1000
"""
The priority of tasks of a target whose groups an edit changes. They are compiled while Waf looks at all other tasks.

The compile of a single source is too short for that: it would slow Waf down.
"""
CLANG_MAPS = 10
"""The first version of clang with ``-fmacro-prefix-map``."""

Position = Tuple[int, int, int]
"""The key by which the objects of a target are ordered."""
Hook = Callable[[TaskGen.task_gen, Node.Node], object]
"""Waf's function that makes a task of a source."""
Taken = Tuple[Position, Node.Node, Hook]


class Unit:
	"""The sources of one language in a target."""

	def __init__(self, gen: TaskGen.task_gen, language: str, taken: Sequence[Taken]) -> None:
		self.gen = gen
		self.language = language
		self.positions = [place for place, _, _ in taken]
		self.nodes = [node for _, node, _ in taken]
		self.hook = taken[0][2]
		self.folders: Dict[Node.Node, str] = {}
		"""The folders of sources, as compilers know them, with a slash at the end."""
		self.sampled = False
		"""Whether some of them were compiled alone, to measure what is gained."""
		bld = gen.bld
		self.name = "%s %d %s" % (gen.path.path_from(bld.srcnode), gen.idx, language)
		self.remembered = find_memory(bld)
		self.target = self.remembered.target(self.name)
		self.compiler = "cxx" if language == "cxx" or (not gen.env.CC and gen.env.CXX) else "c"
		self.prefix = "CXX" if self.compiler == "cxx" else "CC"
		self.knows_digests = digests.are_known()
		"""Whether Waf can be given digests that were stored with the plan."""

	def make_tasks(self) -> "List[Tuple[int, Task.Task]]":
		"""The tasks, each with the number of its first source."""
		made: List[Tuple[int, Task.Task]] = []
		plan = self.find_plan()
		choice = self.choose(plan)
		if not choice:
			for i, node in enumerate(self.nodes):
				made.append((i, self.make_single(node)))
			tell(self, plan, choice)
			return made
		self.macros = plan["macros"]
		self.starts = set(plan["starts"])
		for position, members, anchor, early in plan["entries"]:
			if anchor < 0:
				made.append((position, self.make_single(self.nodes[members[0]])))
			else:
				made.append((position, self.make_batch(members, anchor, early)))
		tell(self, plan, choice)
		if self.target.has_left:
			for _, task in made:
				task.tree_weight = URGENT
		return made

	def choose(self, plan: memory.StoredPlan) -> bool:
		"""Tell whether the plan is worth it: whether to compile sources together."""
		times = self.target.times
		return getattr(Options.options, "unity", None) != bisect.AUTO or not times or times[1] <= times[0] * WORTH

	def make_single(self, node: Node.Node) -> Task.Task:
		self.hook(self.gen, node)
		return self.gen.compiled_tasks[-1]

	def make_batch(self, members: List[int], anchor: int, early: List[str]) -> Task.Task:
		gen = self.gen
		bld = gen.bld
		key = "%s\n%s" % (self.name, self.nodes[anchor].path_from(bld.srcnode))
		name = "unity_%d_%s.%s" % (gen.idx, hashlib.md5(key.encode()).hexdigest()[:12], self.language)
		# in the folder where compilers run, so that __FILE__ is the same as for a source that is compiled alone
		node = bld.bldnode.make_node(name)
		writer = gen.create_task("unity", [self.nodes[i] for i in members], [node])
		writer.frame = self.frame()
		writer.early = early
		task = gen.create_task(self.compiler, node, gen.path.find_or_declare("%s.%d.o" % (name, gen.idx)))
		task.__class__ = batches.find_batch_class(task.__class__, self.can_tell(members))
		task.unity = self
		task.writer = writer
		task.members = members
		task.apart = []
		writer.text = self.write(members, writer)
		if not hasattr(gen, "compiled_tasks"):
			gen.compiled_tasks = []
		gen.compiled_tasks.append(task)
		return task

	def can_tell(self, members: List[int]) -> bool:
		"""Tell whether the dependencies of a batch are known, so that Waf need not search them."""
		is_cached = lifecycle.find().find_active_cache() is not None
		headers = self.target.plan["headers"]
		return not is_cached and not c_preproc.go_absolute and all(headers[i] is not None for i in members)

	def frame(self) -> text.Frame:
		gen = self.gen
		return text.Frame(
			getattr(gen, "unity_before", ""), getattr(gen, "unity_after", ""), getattr(gen, "unity_unique_id", "")
		)

	def write(self, members: Sequence[int], writer: Task.Task) -> str:
		"""The text of the file that includes these sources."""
		top = self.gen.bld.srcnode
		has_keys = bool(writer.frame.unique)
		return text.write(
			[
				(self.spell(i), self.nodes[i].path_from(top) if has_keys else "", self.macros.get(str(i), ()))
				for i in members
			],
			writer.early,
			writer.frame,
		)

	def spell(self, i: int) -> str:
		"""The name by which a compiler knows this source."""
		node = self.nodes[i]
		folder = self.folders.get(node.parent)
		if folder is None:
			path: str = node.path_from(self.gen.get_cwd())
			folder = self.folders[node.parent] = path[: len(path) - len(node.name)]
		name: str = node.name
		return folder + name

	# ---- the plan

	def find_plan(self) -> memory.StoredPlan:
		paths = [node.abspath() for node in self.nodes]
		groups = self.find_groups()
		folders = find_folders(self.gen)
		adaptive = not getattr(Options.options, "unity_still", False)
		# coarse, so that changes of other targets seldom change how this one is cut
		self.others = 1 << max(self.remembered.count_sources(self.gen.bld) // len(paths), 1).bit_length() - 1
		key = [paths, groups, folders, self.gen.batch_size(), adaptive, self.can_push(), self.language, memory.VERSION]
		key += [self.others, self.remembered.identify(self.find_compiler(), self.language), self.find_options()]
		digest = hashlib.md5(repr(key).encode("utf-8", "surrogateescape")).hexdigest()
		if not self.holds(digest) and not self.is_planned_ahead(digest):
			self.make_plan(digest, paths, groups, folders, adaptive)
		return self.target.plan

	def holds(self, digest: str) -> bool:
		is_adaptive = not getattr(Options.options, "unity_still", False)
		return self.target.holds(digest, time.time(), self.language == "cxx", is_adaptive)

	def is_planned_ahead(self, digest: str) -> bool:
		helpers = self.remembered.ahead
		if helpers is None:
			return False
		if helpers.fetch() and self.holds(digest):
			return True
		helpers.note_miss(self.gen)
		return False

	def make_plan(self, digest: str, paths: List[str], groups: List[str], folders: List[str], adaptive: bool) -> None:
		from . import grouping, includes

		bld = self.gen.bld
		known_files = self.remembered.open_facts()
		made = [path for env in bld.all_envs.values() for path in env[Build.CFG_FILES]]
		finder = includes.Finder(
			known_files,
			self.remembered.system(self.remembered.find_search(self.find_compiler(), self.language)),
			folders,
			bld.srcnode.abspath(),
			bld.bldnode.abspath(),
			made,
			self.remembered.find_listed(bld.current_group),
			self.remembered.find_pragmas(self.find_compiler(), self.find_options(), self.language),
		)
		sources = [finder.source(path, self.gen.get_cwd().abspath()) for path in paths]
		away = self.target.find_away(known_files, paths, adaptive)
		plan = grouping.plan(
			sources,
			[known_files.size(path) for path in paths],
			self.gen.batch_size(),
			self.language == "cxx",
			[i for i, path in enumerate(paths) if path in away],
			groups,
			self.can_push(),
			[node.path_from(bld.srcnode) for node in self.nodes],
			self.others,
			[i for i, path in enumerate(paths) if path in self.target.splits],
		)
		reasons = {**plan.reasons, **{str(i): away[path] for i, path in enumerate(paths) if path in away}}
		files = [*paths, *sorted({path for source in sources for path in source.headers}.difference(paths))]
		numbers = {path: number for number, path in enumerate(files)}
		found: memory.StoredPlan = {
			"entries": [(entry.place, entry.members, entry.anchor, entry.early) for entry in plan.entries],
			"macros": plan.macros,
			"reasons": reasons,
			"starts": plan.starts,
			# a header that does not exist may be made in the build: Waf has to search it then
			"headers": [
				seen.pack_numbers(numbers[path] for path in source.headers) if source.is_found else None
				for source in sources
			],
		}
		self.target.keep(digest, finder, files, found)

	def find_groups(self) -> List[str]:
		group = getattr(self.gen, "unity_group", None)
		if group == "folder":
			return [node.parent.path_from(self.gen.bld.srcnode) for node in self.nodes]
		if group is None or group == "target":
			return []
		if callable(group):
			return [str(group(node)) for node in self.nodes]
		raise Errors.WafError("unity_group of %r is %r: set it to 'folder' or a function of a node" % (self.gen, group))

	def can_push(self) -> bool:
		return self.gen.env[self.prefix + "_NAME"] in PUSHING

	def find_compiler(self) -> List[str]:
		words: List[str] = Utils.to_list(self.gen.env[self.prefix])
		return words

	def find_options(self) -> List[str]:
		"""The options that may have the compiler know other pragmas, as far as known before ``use`` is processed."""
		gen, name = self.gen, "CXXFLAGS" if self.compiler == "cxx" else "CFLAGS"
		flags = [*gen.env[name], *gen.to_list(getattr(gen, name.lower(), []))]
		for used in find_used(gen):
			flags += gen.env["%s_%s" % (name, used)]
		return pragmas.choose_options(flags)

	def find_maps(self) -> List[str]:
		"""The option that keeps clang from writing ``./`` before the names of sources."""
		env = self.gen.env
		version = (env.CC_VERSION or ("0",))[0]
		if env[self.prefix + "_NAME"] != "clang" or not version.isdigit() or int(version) < CLANG_MAPS:
			return []
		folders = sorted({os.path.dirname(self.spell(i)) for i in range(len(self.nodes))})
		return ["-fmacro-prefix-map=./%s/=%s/" % (folder, folder) for folder in folders if folder[:1] == "."]


def find_folders(gen: TaskGen.task_gen) -> List[str]:
	"""The folders where compilers search a target's headers, as far as known before ``use`` is processed."""
	bld = gen.bld
	found = list(gen.to_incnodes(gen.to_list(getattr(gen, "includes", [])) + gen.env.INCLUDES))
	for name in find_used(gen):
		try:
			other = bld.get_tgen_by_name(name)
		except Errors.WafError:
			found += gen.to_incnodes(gen.env["INCLUDES_" + name])
		else:
			found += other.to_incnodes(other.to_list(getattr(other, "export_includes", [])))
	return list(dict.fromkeys(node.abspath() for node in found))


def find_used(gen: TaskGen.task_gen) -> List[str]:
	"""The names of what a target uses, directly or through other targets."""
	found: Dict[str, None] = {}
	left = gen.to_list(getattr(gen, "use", [])) + gen.to_list(getattr(gen, "uselib", []))
	while left:
		name, left = left[0], left[1:]
		if name not in found:
			found[name] = None
			try:
				other = gen.bld.get_tgen_by_name(name)
			except Errors.WafError:
				continue
			left = left + other.to_list(getattr(other, "use", []))
	return list(found)


def find_memory(bld: Build.BuildContext) -> memory.BuildMemory:
	remembered: Optional[memory.BuildMemory] = bld.__dict__.get("unity_memory")
	if remembered is None:
		remembered = bld.unity_memory = memory.BuildMemory(bld.variant_dir)
		# Waf may search a batch's headers in a thread, and its own caches are not made for threads
		bld.preproc_cache_node, bld.preproc_cache_lines = {}, {}
		checks = lifecycle.find().checks
		if checks is not None:
			remembered.looks_away(checks)
	return remembered


def tell(unit: Unit, plan: memory.StoredPlan, chosen: bool) -> None:
	"""Tell how the sources of a target are compiled, for ``--unity-explain`` and ``--zones=unity``."""
	explain = getattr(Options.options, "unity_explain", False)
	if not explain and not Logs.verbose:
		return
	for line in explanation(unit, plan, chosen):
		if explain:
			unit.remembered.told.append(line)
		else:
			Logs.debug("unity: %s", line)


def explanation(unit: Unit, plan: memory.StoredPlan, chosen: bool) -> List[str]:
	batches = [entry[1] for entry in plan["entries"] if entry[2] >= 0]
	alone = len(unit.nodes) - sum(len(batch) for batch in batches)
	times = unit.target.times
	lines = [
		"%s (%s): %d sources, %d batches, the largest of %d, %d sources alone%s"
		% (
			unit.gen.name,
			unit.language,
			len(unit.nodes),
			len(batches),
			max(map(len, batches), default=0),
			alone,
			"" if chosen else "; all are compiled alone, since together they gain too little",
		)
	]
	if times:
		lines.append("  %d of them took %.2f s together and take %.2f s alone" % (times[2], times[1], times[0]))
	for i, reason in plan["reasons"].items():
		lines.append("  %s: %s" % (unit.spell(int(i)), reason.replace(unit.gen.bld.srcnode.abspath() + os.sep, "")))
	return lines
