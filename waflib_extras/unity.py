"""
Compiles whole groups of C or C++ files at once, where nobody can notice.

To enable it for all targets::

	def options(opt):
		opt.load('compiler_cxx unity')
	def build(bld):
		bld.load('unity')

or for some of them, when ``unity`` was loaded in ``options``::

	def build(bld):
		bld(features='cxx cxxprogram unity', source='main.cpp ...', ...)

or, without a change of ``build``, on the command line: ``waf build --unity=on``.

The attributes of a task generator are ``unity_size`` (most files in a group; 0 or 1 for none), ``unity_exclude``
(names, patterns or nodes that are compiled alone), ``unity_group`` (``'folder'``, or a function of a node: only files
of a group are compiled together), ``unity_before`` and ``unity_after`` (code around each include), ``unity_unique_id``
(the name of a macro that is another identifier in each file). A file that says ``unity: alone`` in a comment is
compiled alone.

Options: ``--batchsize``, ``--unity=on|off|auto``, ``--unity-still``, ``--unity-explain``. ``docs/unity.md`` has the
details.

To troubleshoot, ``waf --unity-explain`` tells what became of each target and why files are compiled alone,
``waf --zones=unity`` tells it as it happens; ``waf --unity=off`` does without.
"""

import fnmatch
import functools
import hashlib
import os
import re
import subprocess
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from waflib import Build, Context, Errors, Logs, Options, Task, TaskGen, Utils
from waflib.Tools import c_preproc

if __package__:
	from . import closure, grouping, ledger
else:
	# loaded with tooldir=, which makes a module without a package of this file
	import importlib
	import sys

	_folder = os.path.dirname(os.path.abspath(__file__))
	sys.path.append(os.path.dirname(_folder))
	_package = os.path.basename(_folder)
	closure = importlib.import_module(_package + ".closure")
	grouping = importlib.import_module(_package + ".grouping")
	ledger = importlib.import_module(_package + ".ledger")

MAX_BATCH = 50

EXTS_C = (".c",)
EXTS_CXX = (".cpp", ".cc", ".cxx", ".C", ".c++")

ON, OFF, AUTO = "on", "off", "auto"
SAMPLE = 3
"""So many files of a target are compiled alone as well, to find out what it gains."""
WORTH = 0.8
"""To compile files together shall take at most this part of the time that they take alone."""
SEARCH_SECONDS = 30.0
TICK = 12 * 10**6
"""Nanoseconds after which the time of a file tells that it was not changed again."""
HOOKS = (("waflib.Tools.c", "c_hook"), ("waflib.Tools.cxx", "cxx_hook"))
PUSHING = ("gcc", "clang", "icc", "clang++")
"""Compilers that can put a macro aside and take it back."""
CLANG_MAPS = 10
"""The version of clang that knows ``-fmacro-prefix-map``."""
ERROR = re.compile(r"^(.*?):\d+(?::\d+)?: (?:fatal )?error\b", re.MULTILINE)
PLACE = re.compile(r"^(?:In file included from |\s+from )?([^\s:][^:\n]*):\d+", re.MULTILINE)


# ---- what Waf calls


def options(opt):
	install()
	if opt.parser.get_option("--batchsize"):
		return
	group = opt.add_option_group("Unity options")
	group.add_option(
		"--batchsize",
		dest="batchsize",
		type=int,
		default=MAX_BATCH,
		help="default unity batch size (0 disables unity builds) [default: %d]" % MAX_BATCH,
	)
	group.add_option(
		"--unity",
		dest="unity",
		default=None,
		choices=(ON, OFF, AUTO),
		help="compile files together everywhere, nowhere, or where that gains [default: as the project says]",
	)
	group.add_option(
		"--unity-still",
		dest="unity_still",
		default=False,
		action="store_true",
		help="leave files that are being edited with the others",
	)
	group.add_option(
		"--unity-explain",
		dest="unity_explain",
		default=False,
		action="store_true",
		help="tell of each target what is compiled together, and why files are not",
	)

	install()


def build(bld):
	install()
	bld.unity_everywhere = True


@TaskGen.taskgen_method
def batch_size(self):
	default = getattr(Options.options, "batchsize", MAX_BATCH)
	if default < 1:
		return 0
	return getattr(self, "unity_size", default)


@TaskGen.feature("*")
@TaskGen.before("process_source")
def collect_unity(self):
	"""Have the sources of a target planned as soon as all of them are known."""
	if not is_wanted(self):
		return
	collector = Collector(self)
	stock = self.process_source

	def process_source():
		collector.begin()
		try:
			stock()
		finally:
			collector.end()
		collector.make_tasks()

	self.process_source = process_source


def is_wanted(gen: Any) -> bool:
	choice = getattr(Options.options, "unity", None)
	features = gen.to_list(gen.features)
	asked = "unity" in features or choice in (ON, AUTO) or getattr(gen.bld, "unity_everywhere", False)
	return (
		asked
		and choice != OFF
		and gen.batch_size() > 1
		and not {"c", "cxx"}.isdisjoint(features)
		# there each source has to be seen with a command of its own
		and not gen.bld.cmd.startswith("clangdb")
	)


# ---- the sources of a target

Place = Tuple[int, int, int]
"""By this the objects of a target are ordered."""


class Collector:
	"""Takes the sources of a task generator from the hooks that would make a task of each."""

	def __init__(self, gen: Any) -> None:
		self.gen = gen
		self.taken: Dict[str, List[Tuple[Place, Any, Any]]] = {"c": [], "cxx": []}
		"""By language: where its object is to be, the node, the hook."""

	def begin(self) -> None:
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

	def take(self, language: str, hook: Any, gen: Any, node: Any) -> None:
		if self.may_join(node):
			count = sum(map(len, self.taken.values()))
			self.taken[language].append(((len(getattr(gen, "compiled_tasks", ())), 0, count), node, hook))
		else:
			hook(gen, node)

	def may_join(self, node: Any) -> bool:
		"""It is there to be read, and nobody wants it alone."""
		bld = self.gen.bld
		excluded = self.gen.to_list(getattr(self.gen, "unity_exclude", []))
		names = (node.name, node.path_from(self.gen.path))
		if any(
			node is each or (isinstance(each, str) and any(fnmatch.fnmatchcase(name, each) for name in names))
			for each in excluded
		):
			return False
		is_made = node.is_bld() and (bld.bldnode is not bld.srcnode or node in bld.node_sigs)
		return not is_made and find_ledger(bld).stamp(node.abspath()) is not None

	def make_tasks(self) -> None:
		"""Make tasks of what was taken, and have them where they would be, if each had been made at once."""
		gen = self.gen
		before = list(getattr(gen, "compiled_tasks", ()))
		places: Dict[Any, Place] = {task: (i, 1, 0) for i, task in enumerate(before)}
		for language, taken in self.taken.items():
			if len(taken) < 2:
				for place, node, hook in taken:
					hook(gen, node)
					places[gen.compiled_tasks[-1]] = place
				continue
			unit = Unit(gen, language, taken)
			for number, task in unit.make_tasks():
				places[task] = unit.places[number]
		if places:
			gen.compiled_tasks.sort(key=places.__getitem__)
			gen.unity_places = {task.outputs[0]: place for task, place in places.items()}


class Unit:
	"""The sources of one language in a target."""

	def __init__(self, gen: Any, language: str, taken: Sequence[Tuple[Place, Any, Any]]) -> None:
		self.gen = gen
		self.language = language
		self.places = [place for place, _, _ in taken]
		self.nodes = [node for _, node, _ in taken]
		self.hook = taken[0][2]
		bld = gen.bld
		self.name = "%s %d %s" % (gen.path.path_from(bld.srcnode), gen.idx, language)
		self.book = find_ledger(bld)
		self.target = self.book.target(self.name)
		self.compiler = "cxx" if language == "cxx" or (not gen.env.CC and gen.env.CXX) else "c"

	def make_tasks(self) -> List[Tuple[int, Any]]:
		"""The tasks, with the places of what they compile."""
		made = []
		plan = self.find_plan()
		choice = self.choose(plan)
		if not choice:
			for i, node in enumerate(self.nodes):
				made.append((i, self.make_single(node)))
			tell(self, plan, choice)
			return made
		self.macros = plan["macros"]
		self.starts = set(plan["starts"])
		for place, members, anchor, early in plan["entries"]:
			if anchor < 0:
				made.append((place, self.make_single(self.nodes[members[0]])))
			else:
				made.append((place, self.make_batch(members, anchor, early)))
		tell(self, plan, choice)
		return made

	def choose(self, plan: Dict[str, Any]) -> bool:
		"""Whether to compile together what could be."""
		times = self.target.times
		return getattr(Options.options, "unity", None) != AUTO or not times or times[1] <= times[0] * WORTH

	def make_single(self, node: Any) -> Any:
		self.hook(self.gen, node)
		return self.gen.compiled_tasks[-1]

	def make_batch(self, members: List[int], anchor: int, early: List[str]) -> Any:
		gen = self.gen
		bld = gen.bld
		key = "%s\n%s" % (self.name, self.nodes[anchor].path_from(bld.srcnode))
		name = "unity_%d_%s.%s" % (gen.idx, hashlib.md5(key.encode()).hexdigest()[:12], self.language)
		# where compilers run, so that they name sources as if they were given them: __FILE__ is the same
		node = bld.bldnode.make_node(name)
		writer = gen.create_task("unity", [self.nodes[i] for i in members], [node])
		writer.frame = self.frame()
		writer.early = early
		task = gen.create_task(self.compiler, node, gen.path.find_or_declare("%s.%d.o" % (name, gen.idx)))
		task.__class__ = find_batch_class(task.__class__, self.can_tell(members))
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
		"""We know what a batch depends on, so that Waf need not look for it; the cache's tool has its own way."""
		cache = getattr(getattr(Utils, "prefork", None), "cache", None)
		is_cached = cache is not None and cache.active
		headers = self.target.plan["headers"]
		return not is_cached and not c_preproc.go_absolute and all(headers[i] is not None for i in members)

	def frame(self) -> grouping.Frame:
		gen = self.gen
		return grouping.Frame(
			getattr(gen, "unity_before", ""), getattr(gen, "unity_after", ""), getattr(gen, "unity_unique_id", "")
		)

	def write(self, members: Sequence[int], writer: Any) -> str:
		"""The text that has these compiled."""
		gen = self.gen
		return grouping.write_text(
			[(self.spell(i), self.nodes[i].path_from(gen.bld.srcnode), self.macros.get(str(i), ())) for i in members],
			writer.early,
			writer.frame,
		)

	def spell(self, i: int) -> str:
		"""What a compiler calls this source."""
		return self.nodes[i].path_from(self.gen.get_cwd())

	# ---- the plan

	def find_plan(self) -> Dict[str, Any]:
		paths = [node.abspath() for node in self.nodes]
		groups = self.find_groups()
		folders = find_folders(self.gen)
		adaptive = not getattr(Options.options, "unity_still", False)
		key = [paths, groups, folders, self.gen.batch_size(), adaptive, self.can_push(), self.language, ledger.VERSION]
		digest = hashlib.md5(repr(key).encode("utf-8", "surrogateescape")).hexdigest()
		if not self.target.holds(digest, time.time(), self.language == "cxx"):
			self.make_plan(digest, paths, groups, folders, adaptive)
		return self.target.plan

	def make_plan(self, digest: str, paths: List[str], groups: List[str], folders: List[str], adaptive: bool) -> None:
		bld = self.gen.bld
		shelf = self.book.open_facts()
		made = [path for env in bld.all_envs.values() for path in env[Build.CFG_FILES]]
		finder = closure.Finder(
			shelf,
			self.book.system(self.book.find_search(self.find_compiler(), self.language)),
			folders,
			bld.srcnode.abspath(),
			bld.bldnode.abspath(),
			made,
		)
		sources = [finder.source(path, self.gen.get_cwd().abspath()) for path in paths]
		away = self.target.find_away(shelf, paths, adaptive)
		plan = grouping.plan(
			sources,
			[shelf.size(path) for path in paths],
			self.gen.batch_size(),
			self.language == "cxx",
			[i for i, path in enumerate(paths) if path in away],
			groups,
			self.can_push(),
			[node.path_from(bld.srcnode) for node in self.nodes],
		)
		reasons = {**plan.reasons, **{str(i): away[path] for i, path in enumerate(paths) if path in away}}
		files = sorted({path for source in sources for path in [source.file.path, *source.headers]})
		# a header that is nowhere may be made in the build: Waf has to look for it then
		found = plan._replace(reasons=reasons)._asdict()
		numbers = {path: number for number, path in enumerate(files)}
		found["entries"] = [tuple(entry) for entry in plan.entries]
		found["files"] = files
		found["headers"] = [
			sorted(numbers[path] for path in source.headers) if source.is_found else None for source in sources
		]
		self.target.keep(digest, shelf, paths, files, found)

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
		return self.gen.env["%s_NAME" % ("CXX" if self.compiler == "cxx" else "CC")] in PUSHING

	def find_compiler(self) -> List[str]:
		return Utils.to_list(self.gen.env["CXX" if self.compiler == "cxx" else "CC"])

	def find_maps(self) -> List[str]:
		"""What keeps clang from writing ``./`` before the names of sources."""
		env = self.gen.env
		prefix = "CXX" if self.compiler == "cxx" else "CC"
		version = (env.CC_VERSION or ("0",))[0]
		if env[prefix + "_NAME"] != "clang" or not version.isdigit() or int(version) < CLANG_MAPS:
			return []
		folders = sorted({os.path.dirname(self.spell(i)) for i in range(len(self.nodes))})
		return ["-fmacro-prefix-map=./%s/=%s/" % (folder, folder) for folder in folders if folder[:1] == "."]


def find_folders(gen: Any) -> List[str]:
	"""Where compilers look for the headers of a target, as far as this is known before its ``use`` is processed."""
	bld = gen.bld
	found = list(gen.to_incnodes(gen.to_list(getattr(gen, "includes", [])) + gen.env.INCLUDES))
	seen: Set[str] = set()
	left = gen.to_list(getattr(gen, "use", [])) + gen.to_list(getattr(gen, "uselib", []))
	while left:
		name, left = left[0], left[1:]
		if name in seen:
			continue
		seen.add(name)
		try:
			other = bld.get_tgen_by_name(name)
		except Errors.WafError:
			found += gen.to_incnodes(gen.env["INCLUDES_" + name])
			continue
		found += other.to_incnodes(other.to_list(getattr(other, "export_includes", [])))
		left = left + other.to_list(getattr(other, "use", []))
	return list(dict.fromkeys(node.abspath() for node in found))


# ---- tasks


class unity(Task.Task):
	"""Writes the file that includes a batch. What it depends on is that text, and it knows it without a scan."""

	color = "BLUE"

	def run(self) -> None:
		self.outputs[0].write(self.text)

	def sig_explicit_deps(self) -> None:
		self.m.update(self.text.encode("utf-8", "surrogateescape"))

	def uid(self) -> bytes:
		return Utils.md5(b"unity" + self.outputs[0].abspath().encode("utf-8", "surrogateescape")).digest()

	def __str__(self) -> str:
		node = self.outputs[0]
		return node.path_from(node.ctx.launch_node())

	def keyword(self) -> str:
		return "Writing"


_classes: Dict[Any, Any] = {}


def find_batch_class(base: Any, can_tell: bool) -> Any:
	"""
	The class of tasks that compile a batch, made of the one that compiles a file.

	It has the same name, for those who order tasks by it, and is not registered: ``cxx`` stays what it was. All that it
	replaces is how the command is executed and how headers are found, so that what others know of ``cxx`` holds for it.
	"""
	key = base, can_tell
	if key not in _classes:
		fields = {
			"register": {},
			"exec_command": exec_batch,
			"more_tasks": property(get_more_tasks),
			"hcode": base.hcode,
		}
		if can_tell and base.scan is c_preproc.scan:
			fields["scan"] = scan_batch
		_classes[key] = type(base)(base.__name__, (base,), fields)
	return _classes[key]


def scan_batch(task: Any) -> Tuple[List[Any], List[str]]:
	"""In place of Waf's scanner: the plan was made of all these files."""
	unit = task.unity
	files, headers = unit.target.plan["files"], unit.target.plan["headers"]
	paths = {files[number] for i in task.members for number in headers[i]}
	return [unit.nodes[i] for i in task.members] + [
		unit.book.find_node(unit.gen.bld, path) for path in sorted(paths)
	], []


def get_more_tasks(task: Any) -> Any:
	"""Asked by Waf's scheduler in its own thread when a batch is compiled: tasks for what was set apart."""
	if task.apart and "made" not in task.__dict__:
		task.made = [make_apart(task, i) for i in task.apart]
	return task.__dict__.get("made")


def exec_batch(task: Any, cmd: Any, **kw: Any) -> int:
	"""In place of ``exec_command``: compile a batch, and part it if it does not compile."""
	base = type(task).__mro__[1].exec_command
	bld = task.generator.bld
	if (
		base is not Task.Task.exec_command
		or type(bld).exec_command is not Context.Context.exec_command
		or "exec_command" in bld.__dict__
		or not isinstance(cmd, list)
	):
		return base(task, cmd, **kw)
	cmd.extend(task.unity.find_maps())
	return Parting(task, cmd, kw).compile()


class Attempt:
	"""What came of a compile, which is not shown before it is known to be the last one."""

	def __init__(self, task: Any, cmd: List[str], kw: Dict[str, Any]) -> None:
		self.lines: List[Tuple[str, str]] = []
		began = time.monotonic()
		self.code = Task.Task.exec_command(Standin(task, self), cmd, **kw)
		self.seconds = time.monotonic() - began

	@property
	def text(self) -> str:
		return "".join(text for _, text in self.lines)

	def show(self, bld: Any) -> None:
		"""As Waf does it."""
		for stream, text in self.lines:
			if bld.logger:
				if stream == "out":
					bld.logger.debug("out: %s", text)
				else:
					bld.logger.error("err: %s" % text)
			else:
				stand = sys_stream(stream)
				Logs.info(text, extra={"stream": stand, "c1": ""})


def sys_stream(name: str) -> Any:
	import sys

	return sys.stdout if name == "out" else sys.stderr


class Standin:
	"""A task for Waf's ``exec_command``, which runs its command for a context that only listens."""

	def __init__(self, task: Any, attempt: Attempt) -> None:
		self.__dict__.update(task=task, generator=self, bld=self, logger=self, attempt=attempt)

	def __getattr__(self, name: str) -> Any:
		return getattr(self.task, name)

	def exec_command(self, cmd: Any, **kw: Any) -> int:
		return Context.Context.exec_command(self, cmd, **kw)

	def log_command(self, cmd: Any, kw: Any) -> None:
		self.task.generator.bld.log_command(cmd, kw)

	def info(self, *args: Any, **kwargs: Any) -> None:
		pass

	def debug(self, form: str, text: str) -> None:
		self.attempt.lines.append(("out", text))

	def error(self, text: str) -> None:
		self.attempt.lines.append(("err", text[len("err: ") :]))


class Parting:
	"""One batch: compiles it, and finds out who does not go with the others if it fails."""

	def __init__(self, task: Any, cmd: List[str], kw: Dict[str, Any]) -> None:
		self.task = task
		self.cmd = cmd
		self.kw = kw
		self.unit = task.unity
		self.bld = task.generator.bld
		self.kept: List[int] = []
		self.apart: List[int] = []
		self.last: Tuple[List[int], Optional[Attempt]] = ([], None)
		self.broken: Optional[Attempt] = None
		"""A source does not compile even alone, and the build is to stop at that."""

	def compile(self) -> int:
		members = self.task.members
		times = self.sample(members) if self.is_sampled() else []
		attempt = self.run()
		if not attempt.code and times:
			alone = sum(times) / len(times) * len(members)
			self.unit.target.note_times(alone, attempt.seconds, len(members))
		if not attempt.code or len(members) < 2 or self.is_stopped():
			return self.end(attempt)
		self.find_kept(members, attempt)
		if self.broken or not self.kept:
			self.write(members)
			return self.end(self.broken or attempt)
		if self.last[0] != self.kept or self.last[1] is None or self.last[1].code:
			self.attempt(self.kept)
		self.settle(attempt)
		return self.end(self.last[1])

	def end(self, attempt: Attempt) -> int:
		attempt.show(self.bld)
		return attempt.code

	def is_stopped(self) -> bool:
		return bool(getattr(self.bld.producer, "stop", False))

	def sort(self, members: Sequence[int]) -> List[int]:
		"""In the order of the batch."""
		return [i for i in self.task.members if i in members]

	def attempt(self, members: Sequence[int]) -> bool:
		"""Compile these; tell whether that worked."""
		members = self.sort(members)
		self.write(members)
		attempt = self.run()
		self.last = members, attempt
		return not attempt.code

	def write(self, members: Sequence[int]) -> None:
		node = self.task.inputs[0]
		node.write(self.unit.write(members, self.task.writer))
		if "wafcc_began" in self.task.__dict__:
			# the cache's tool would take it for an input that somebody changed under the compiler
			self.task.wafcc_began = os.stat(node.abspath()).st_ctime_ns

	def run(self) -> Attempt:
		"""Run the command; where it is cached not in the tick in which its input was written, or it is not kept."""
		if "wafcc_began" in self.task.__dict__:
			written = os.stat(self.task.inputs[0].abspath()).st_ctime_ns
			left = (written + TICK - time.time_ns()) / 1e9
			if 0 < left <= TICK / 1e9:
				time.sleep(left)
		return Attempt(self.task, self.cmd, dict(self.kw))

	def find_kept(self, members: List[int], whole: Attempt) -> None:
		"""Sort the members into those that compile together and those that are set apart."""
		suspects = self.find_named(whole.text, ERROR)
		if suspects and self.is_broken(suspects[0]):
			return
		others = [i for i in members if i not in suspects]
		if suspects and others and len(suspects) * 2 <= len(members) and self.attempt(others):
			self.kept = others
			self.try_parts(suspects)
		else:
			self.try_parts(members)

	def try_parts(self, members: List[int]) -> None:
		"""They do not all compile with what is kept: try each half of them."""
		if self.broken:
			return
		if len(members) == 1:
			self.set_apart(members[0])
			return
		half = len(members) // 2
		for part in (members[:half], members[half:]):
			if self.broken:
				return
			if self.is_stopped():
				self.apart += part
			elif self.attempt(self.kept + part):
				self.kept = self.sort(self.kept + part)
			elif len(part) > 1:
				self.try_parts(part)
			elif self.kept or not self.note_broken():
				self.set_apart(part[0])

	def is_broken(self, member: int) -> bool:
		"""A source does not compile alone either, and that is what is to be shown."""
		return not self.attempt([member]) and self.note_broken()

	def note_broken(self) -> bool:
		"""The last attempt was of a single source: stop at its error, unless the build goes on after errors."""
		if not self.bld.keep:
			self.broken = self.last[1]
		return self.broken is not None

	def set_apart(self, member: int) -> None:
		if member not in self.apart:
			self.apart.append(member)

	def find_named(self, text: str, pattern: Any) -> List[int]:
		"""The members that messages of the compiler name in such places, or the headers of which they name."""
		spelled = {self.unit.spell(i): i for i in self.task.members}
		spelled.update({"./" + path: i for path, i in list(spelled.items())})
		found: Dict[int, None] = {}
		for place in pattern.finditer(text):
			if place.group(1) in spelled:
				found[spelled[place.group(1)]] = None
		return list(found)

	def settle(self, whole: Attempt) -> None:
		"""Remember who was set apart, and have Waf's records say what was compiled in the end."""
		task, bld = self.task, self.bld
		starts = self.unit.starts
		early = [i for i in self.apart if i in starts]
		if early:
			# what comes later of this may not run before it
			self.apart += [i for i in self.kept if i in starts and i > min(early)]
			kept = [i for i in self.kept if i not in self.apart]
			if kept != self.kept:
				self.kept = kept
				self.attempt(kept)
		named = self.find_named(whole.text, PLACE)
		for i in sorted(self.apart):
			others = [self.unit.nodes[k].abspath() for k in named if k != i]
			self.unit.target.set_apart(self.unit.nodes[i].abspath(), others)
			Logs.info("unity: %s does not compile with others: it is compiled alone" % self.unit.spell(i))
		task.writer.text = self.unit.write(self.kept, task.writer)
		task.apart = sorted(self.apart)
		task.kept = self.kept
		bld.cache_sig.pop(task.inputs[0], None)
		sign_again(task.writer)
		bld.task_sigs[task.writer.uid()] = task.writer.cache_sig
		if "cache_sig" in task.__dict__:
			sign_again(task)

	# ---- what a target gains

	def is_sampled(self) -> bool:
		"""Nobody knows yet, and it is to be known."""
		if getattr(Options.options, "unity", None) != AUTO or self.unit.target.times:
			return False
		with self.unit.book.lock:
			if getattr(self.unit, "sampled", False):
				return False
			self.unit.sampled = True
			return True

	def sample(self, members: List[int]) -> List[float]:
		"""The seconds that some members take alone."""
		step = max(len(members) // SAMPLE, 1)
		times = []
		for member in members[::step][:SAMPLE]:
			if not self.attempt([member]):
				times = []
				break
			times.append(self.last[1].seconds)
		self.write(members)
		return times


def sign_again(task: Any) -> None:
	"""
	Have the signature of a task say what its input is by now.

	What a batch depends on beside it is not scanned again: that it is what more files depended on does no harm, and we
	are in a thread.
	"""
	bld = task.generator.bld
	task.m = Utils.md5(task.hcode)
	task.sig_explicit_deps()
	task.sig_vars()
	if task.scan:
		bld.imp_sigs[task.uid()] = task.compute_sig_implicit_deps()
	task.cache_sig = task.m.digest()


def make_apart(task: Any, i: int) -> Any:
	"""A task for a source that was in a batch; whoever waits for the batch waits for it, and gets what it makes."""
	unit, bld = task.unity, task.generator.bld
	gen = unit.gen
	new = unit.make_single(unit.nodes[i])
	new.env = task.env
	node = new.outputs[0]
	places = gen.unity_places
	places[node] = unit.places[i]
	# the batch may have lost what gave it its place
	places[task.outputs[0]] = unit.places[grouping.find_place(task.kept, unit.starts)]
	gen.compiled_tasks.sort(key=lambda each: places[each.outputs[0]])
	for group in bld.groups:
		for other in group:
			for user in getattr(other, "tasks", [other]):
				wait_for(user, task, new, places)
	return new


def wait_for(user: Any, task: Any, new: Any, places: Dict[Any, Any]) -> None:
	if user is new or user is task:
		return
	for before in list(user.run_after):
		if before is task:
			user.run_after.add(new)
		elif isinstance(before, Task.TaskGroup) and task in before.prev:
			before.prev.add(new)
	if task.outputs[0] in user.inputs:
		user.run_after.add(new)
		slots = [k for k, node in enumerate(user.inputs) if node in places]
		ours = sorted([user.inputs[k] for k in slots] + new.outputs[:1], key=places.__getitem__)
		user.inputs.insert(slots[-1] + 1, new.outputs[0])
		for k, node in zip([*slots, slots[-1] + 1], ours):
			user.inputs[k] = node


# ---- what is remembered and told


class Ledger(ledger.Ledger):
	"""That of a build folder, which also knows where compilers look for headers."""

	def __init__(self, folder: str) -> None:
		super().__init__(folder)
		self.told: List[str] = []
		self.nodes: Dict[str, Any] = {}

	def find_node(self, bld: Any, path: str) -> Any:
		if path not in self.nodes:
			self.nodes[path] = bld.root.make_node(path)
		return self.nodes[path]

	def find_search(self, compiler: List[str], language: str) -> List[str]:
		self.open_facts()
		key = "%s %s" % (" ".join(compiler), language)
		if key not in self.facts["folders"]:
			self.facts["folders"][key] = ask_search(compiler, "c++" if language == "cxx" else "c")
			self.shelf.is_new = True
		return self.facts["folders"][key]


def ask_search(compiler: List[str], language: str) -> List[str]:
	"""The folders in which a compiler looks for headers of the system."""
	command = [*compiler, "-E", "-v", "-x", language, os.devnull]
	try:
		done = subprocess.run(
			command,
			stdin=subprocess.DEVNULL,
			stdout=subprocess.DEVNULL,
			stderr=subprocess.PIPE,
			timeout=SEARCH_SECONDS,
			check=False,
			env=dict(os.environ, LC_ALL="C"),
		)
	except (OSError, subprocess.TimeoutExpired):
		return []
	text = done.stderr.decode("utf-8", "surrogateescape")
	_, _, listed = text.partition("#include <...> search starts here:")
	listed, _, _ = listed.partition("End of search list")
	return [os.path.normpath(line.strip()) for line in listed.splitlines() if line.strip()]


def find_ledger(bld: Any) -> Ledger:
	book = bld.__dict__.get("unity_ledger")
	if book is None:
		book = bld.unity_ledger = Ledger(bld.variant_dir)
		# a batch may have its headers looked for in a thread, for which Waf's own caches are not made
		bld.preproc_cache_node, bld.preproc_cache_lines = {}, {}
		checks = getattr(bld, "resident_checks", None)
		if checks is not None:
			book.looks_away(checks)
	return book


def install() -> None:
	"""Have what is remembered written down when a build ends, however it does; once per process."""
	stock = Build.BuildContext.compile
	if hasattr(stock, "unity"):
		return

	def compile(bld):
		try:
			stock(bld)
		finally:
			book = bld.__dict__.get("unity_ledger")
			if book is not None:
				book.save()
				for line in book.told:
					Logs.info(line)

	compile.unity = True
	Build.BuildContext.compile = compile


def tell(unit: Unit, plan: Dict[str, Any], chosen: bool) -> None:
	"""What became of the sources of a target, for those who ask."""
	explain = getattr(Options.options, "unity_explain", False)
	if not explain and not Logs.verbose:
		return
	for line in explanation(unit, plan, chosen):
		if explain:
			unit.book.told.append(line)
		else:
			Logs.debug("unity: %s", line)


def explanation(unit: Unit, plan: Dict[str, Any], chosen: bool) -> List[str]:
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
