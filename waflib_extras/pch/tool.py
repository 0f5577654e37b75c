"""The options of ``pch``, the features of targets, and the command ``waf pch``."""

import hashlib
from typing import Dict, List, Optional

from waflib import Build, Configure, Errors, Logs, Options, Task, TaskGen, Utils

from ..hooks import entry
from . import headers, record, weighing

DECLARED, AUTO, OFF = "declared", "auto", "off"
LANGUAGES = ("cxx", "c")


def add_options(opt: Options.OptionsContext) -> None:
	group = opt.add_option_group("Options for precompiled headers")
	group.add_option(
		"--pch",
		choices=(DECLARED, AUTO, OFF),
		default=DECLARED,
		help="precompile the headers that the project names, also those that pay, or none [default: declared]",
	)
	group.add_option(
		"--without-pch",
		action="store_false",
		default=True,
		dest="with_pch",
		help="configure: precompile no header that the project names",
	)


options, build = entry.make_entries("--pch", add_options, lambda: None)


def configure(conf: Configure.ConfigurationContext) -> None:
	conf.env.WITH_PCH = bool(getattr(Options.options, "with_pch", True))


def find_choice() -> str:
	return getattr(Options.options, "pch", None) or DECLARED


# ---- headers that the project names


@TaskGen.feature("pch")
@TaskGen.before("process_source")
def apply_pch(self: TaskGen.task_gen) -> None:
	"""Make the task that precompiles the headers of a task generator."""
	names = getattr(self, "headers", None)
	language = "cxx" if "cxx" in self.to_list(self.features) else "c"
	if names is None or not self.env.WITH_PCH or find_choice() == OFF or not headers.find_compiler(self, language):
		return
	self.headers = self.to_nodes(names)
	made = self.bld.__dict__.setdefault("pch_tasks", {})
	if self.name in made:
		self.bld.fatal("pch: two targets with precompiled headers are named %r: rename one of them" % self.name)
	folder = self.path.get_bld().make_node("pch")
	lines = ['#include "%s"\n' % node.path_from(folder) for node in self.headers]
	self.pch_task = made[self.name] = headers.make(self, language, "".join(lines), headers.DECLARED)


@TaskGen.feature("c", "cxx")
@TaskGen.after_method("process_source", "process_use", "propagate_uselib_vars", "apply_incpaths")
def add_pch(self: TaskGen.task_gen) -> None:
	"""Have the sources of a target begin after precompiled headers."""
	tasks = getattr(self, "compiled_tasks", ())
	if not tasks or find_choice() == OFF:
		return
	made = find_declared(self)
	if made is not None:
		for task in tasks:
			if isinstance(task, Task.classes[made.language]):
				task.env.append_value(headers.FLAGS[made.language], headers.find_flags(task, made))
				task.set_run_after(made)
				task.dep_nodes.append(made.outputs[0])
	elif find_choice() == AUTO and self.bld.cmd != PchContext.cmd:
		for language in LANGUAGES:
			try:
				begin_after(self, language)
			except Exception as e:  # nothing here may fail a build
				Logs.warn("pch: %s is compiled without precompiled headers: %s", self.name, e)


def find_declared(gen: TaskGen.task_gen) -> Optional[headers.Precompiled]:
	"""The precompiled headers that a target has itself, or the last ones that it uses."""
	found: Optional[headers.Precompiled] = getattr(gen, "pch_task", None)
	if found is None:
		known: Dict[str, headers.Precompiled] = getattr(gen.bld, "pch_tasks", {})
		for name in Utils.to_list(getattr(gen, "use", [])):
			found = known.get(name, found)
	return found


# ---- headers that pay


class Candidates:
	"""The sources of one language in a target, as far as they may begin after precompiled headers."""

	def __init__(self, gen: TaskGen.task_gen, language: str) -> None:
		self.gen = gen
		self.language = language
		self.compiler = headers.find_compiler(gen, language)
		found = [task for task in gen.compiled_tasks if type(task) is Task.classes.get(language)]
		self.tasks: List[Task.Task] = found if self.compiler else []
		self.name = "%s %s" % (gen.name, language)
		self.options = headers.find_options(self.tasks[0]) if self.tasks else []
		self.alien = next((word for word in self.options if word in headers.ALIEN), "")
		text = "\0".join(self.options)
		self.digest = hashlib.md5(text.encode("utf-8", "surrogateescape")).hexdigest()

	def weigh(self) -> weighing.Weighed:
		if self.alien:
			return weighing.refuse(len(self.tasks), "its options have %s" % self.alien)
		same = [task for task in self.tasks if headers.find_options(task) == self.options]
		return weighing.Scale(self.language, self.compiler, same).weigh()


def begin_after(gen: TaskGen.task_gen, language: str) -> None:
	candidates = Candidates(gen, language)
	if len(candidates.tasks) < weighing.LEAST_USERS:
		return
	known = find_record(gen.bld)
	weighed = known.find(candidates.name, candidates.digest, len(candidates.tasks))
	if weighed is None:
		weighed = weigh(candidates, known)
	if weighed.headers:
		made = headers.make(gen, language, weighing.make_text(weighed.headers), headers.CHOSEN)
		made.names, made.options = weighed.headers, candidates.options
		for task in candidates.tasks:
			headers.let_begin(task, made)


def weigh(candidates: Candidates, known: record.Record) -> weighing.Weighed:
	"""Weigh the headers of a target, tell the result, and store it."""
	weighed = candidates.weigh()
	if weighed.why_not != weighing.TOO_EARLY:
		known.put(candidates.name, candidates.digest, weighed)
	Logs.info("\n".join(describe(candidates, weighed)))
	return weighed


def find_record(bld: Build.BuildContext) -> record.Record:
	if "pch_record" not in bld.__dict__:
		bld.pch_record = record.Record(bld.variant_dir)
	found: record.Record = bld.pch_record
	return found


def describe(candidates: Candidates, weighed: weighing.Weighed) -> List[str]:
	"""What was found out about a target, in one line, and the headers in a second one."""
	what = "pch: %s (%d %s sources): " % (
		candidates.gen.name,
		weighed.sources,
		"C++" if candidates.language == "cxx" else "C",
	)
	if weighed.why_not:
		return [what + "nothing pays: " + weighed.why_not]
	return [
		what
		+ "%d begin after %d headers: about %.1f s saved, and %.1f s to precompile them; tried %d: %.2f of the time, %s"
		% (
			weighed.users,
			len(weighed.headers),
			weighed.saved,
			weighed.price,
			weighed.tried,
			weighed.begun / weighed.plain,
			"the same objects" if weighed.same == weighed.tried else "%d objects are the same" % weighed.same,
		),
		"  " + " ".join("<%s>" % name for name in weighed.headers),
	]


class PchContext(Build.BuildContext):
	"""tells which headers would pay if they were precompiled; builds nothing"""

	cmd = "pch"

	def execute_build(self) -> None:
		if not getattr(Options.options, "pch", None):
			raise Errors.WafError("pch: the tool pch is not loaded: load it in options")
		self.recurse([self.run_dir])
		self.pre_build()
		known = find_record(self)
		for group in self.groups:
			for gen in group:
				gen.post()
				for language in LANGUAGES:
					self.weigh(gen, language, known)
		Logs.info("pch: %s has all of it; waf build --pch=auto uses it", known.path)

	def weigh(self, gen: TaskGen.task_gen, language: str, known: record.Record) -> None:
		if not getattr(gen, "compiled_tasks", None) or find_declared(gen) is not None:
			return
		candidates = Candidates(gen, language)
		if not candidates.tasks:
			return
		weighed = weigh(candidates, known)
		for path, why in sorted(weighed.left.items()) if Logs.verbose else ():
			Logs.info("  %s: %s", path, why)

	def store(self) -> None:
		"""Store nothing, since nothing was built."""
		pass
