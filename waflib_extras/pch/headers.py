"""The tasks that precompile headers, and those that compile a source after them."""

import os
import re
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Type

from waflib import Logs, Node, Task, TaskGen
from waflib.Tools import c_preproc

from . import reading, trial, weighing

FLAGS = {"cxx": "CXXFLAGS", "c": "CFLAGS"}
DECLARED = {"cxx": "gchx", "c": "gchc"}
CHOSEN = {"cxx": "chosen_gchx", "c": "chosen_gchc"}
"""By language, the class of tasks for headers that the project names, and for those that pay."""
CLANG = ["-Xclang", "-fno-pch-timestamp"]
"""So clang does not fail because of a header that was only touched. Waf compares contents."""
ALIEN = ("-include", "-imacros", "-include-pch", "-fpch-preprocess")
"""Options that read a file before the source, so that no other one can come first."""
COMMAND = (
	"${%s} ${ARCH_ST:ARCH} ${%s} ${FRAMEWORKPATH_ST:FRAMEWORKPATH} ${CPPPATH_ST:INCPATHS} ${DEFINES_ST:DEFINES} "
	"${PCH_FLAGS} ${SRC} -MD -MF ${TGT[1].abspath()} -c -o ${TGT[0].abspath()} ${CPPFLAGS}"
)


class Precompiled(Task.Task):
	"""Precompiles a header. The classes for C and C++ derive from it."""

	color = "BLUE"
	ext_out = [".h"]
	scan = c_preproc.scan
	header: Node.Node
	"""The header that includes the others."""
	language: str
	_words: Optional[FrozenSet[str]] = None

	def runnable_status(self) -> int:
		status: int = super().runnable_status()
		if status == Task.SKIP_ME:
			if self.is_outdated():
				status = Task.RUN_ME
			else:
				self.note()
		return status

	def post_run(self) -> None:
		super().post_run()
		self.note()

	def note(self) -> None:
		"""
		Have users depend on what the header was made of.

		The file itself is large, and gcc never makes the same one again.
		"""
		self.generator.bld.__dict__.setdefault("cache_sig", {})[self.outputs[0]] = self.signature()

	def is_outdated(self) -> bool:
		"""Tell whether a file from outside has changed since. Waf knows nothing of it, and gcc does not look."""
		bld = self.generator.bld
		tops = (bld.srcnode.abspath() + os.sep, bld.bldnode.abspath() + os.sep)
		folder = self.get_cwd().abspath()
		try:
			if self.is_empty():
				return True
			made = os.stat(self.outputs[0].abspath()).st_mtime_ns
			for name in self.find_files():
				path = os.path.normpath(os.path.join(folder, name))
				if not path.startswith(tops) and os.stat(path).st_ctime_ns > made:
					Logs.debug("pch: %s is newer than %s", path, self.outputs[0])
					return True
		except OSError:
			return True
		return False

	def is_empty(self) -> bool:
		return os.stat(self.outputs[0].abspath()).st_size == 0

	def find_files(self) -> List[str]:
		"""What the compiler has read."""
		with open(self.outputs[1].abspath(), encoding="utf-8", errors="surrogateescape") as f:
			return trial.find_files(f.read())

	def find_words(self) -> FrozenSet[str]:
		if self._words is None:
			folder = self.get_cwd().abspath()
			self._words = trial.find_words([os.path.join(folder, name) for name in self.find_files()])
		return self._words


class gchx(Precompiled):
	run_str = COMMAND % ("CXX", "CXXFLAGS")


class gchc(Precompiled):
	run_str = COMMAND % ("CC", "CFLAGS")


class chosen_gchx(gchx):
	"""Precompiles headers of which the project knows nothing. If that fails, the build goes on without them."""

	def run(self) -> int:
		return run_or_empty(self, gchx.run)


class chosen_gchc(gchc):
	"""The same for C."""

	def run(self) -> int:
		return run_or_empty(self, gchc.run)


def run_or_empty(task: Precompiled, run: Callable[[Precompiled], int]) -> int:
	"""Run a task. If it fails, leave empty files: sources do not begin after these, and the next build tries again."""
	status = run(task)
	if status:
		Logs.warn("pch: %s could not be made: sources are compiled without it", task.outputs[0])
		for node in task.outputs:
			with open(node.abspath(), "wb"):
				pass
	return 0


def find_compiler(gen: TaskGen.task_gen, language: str) -> str:
	"""``gcc`` or ``clang``; empty for a compiler that this tool does not know."""
	name: str = gen.env["CXX_NAME" if language == "cxx" else "CC_NAME"] or ""
	return name if name in weighing.SUFFIX else ""


def make(gen: TaskGen.task_gen, language: str, text: str, makers: Dict[str, str]) -> Precompiled:
	"""Write a header with this text into the build folder, and make the task that precompiles it."""
	ending, kind = weighing.ENDING[language]
	compiler = find_compiler(gen, language)
	name = "pch/%s.%d%s" % (re.sub(r"[^\w.+-]", "_", gen.name), gen.idx, ending)
	header = gen.path.find_or_declare(name)
	if not header.exists() or header.read(encoding="utf-8") != text:
		header.parent.mkdir()
		header.write(text, encoding="utf-8")
	outputs = [header.parent.find_or_declare(header.name + suffix) for suffix in (weighing.SUFFIX[compiler], ".d")]
	task: Precompiled = gen.create_task(makers[language], header, outputs)
	task.env.PCH_FLAGS = ["-x", kind, *(CLANG if compiler == "clang" else ())]
	task.header, task.language = header, language
	return task


def find_flags(user: Task.Task, made: Precompiled) -> List[str]:
	return ["-include", made.header.path_from(user.get_cwd())]


# ---- sources that begin after headers of which the project knows nothing

_classes: Dict[Type[Task.Task], Type[Task.Task]] = {}


def let_begin(user: Task.Task, made: Precompiled) -> None:
	"""Have a source begin after the headers, if that changes nothing when it is compiled."""
	base = type(user)
	if base not in _classes:
		fields = {"register": {}, "runnable_status": runnable_status, "post_run": post_run, "hcode": base.hcode}
		derive: Any = type(base)
		_classes[base] = derive(base.__name__, (base,), fields)
	user.__class__ = _classes[base]
	user.pch_made = made
	user.set_run_after(made)


def runnable_status(user: Task.Task) -> int:
	"""
	Add the option to the command of a source that is going to be compiled.

	Waf has compared the command without it, and stores that. So a build without this tool compiles nothing anew.
	"""
	parent: Type[Task.Task] = type(user).__mro__[1]
	status: int = parent.runnable_status(user)
	if status == Task.RUN_ME and "pch_flags" not in user.__dict__:
		why = find_obstacle(user)
		if why:
			Logs.debug("pch: %s: %s", user, why)
		else:
			name = FLAGS[user.pch_made.language]
			user.pch_flags = user.env[name]
			user.env[name] = user.env[name] + find_flags(user, user.pch_made)
	return status


def post_run(user: Task.Task) -> None:
	parent: Type[Task.Task] = type(user).__mro__[1]
	before = user.__dict__.pop("pch_flags", None)
	if before is not None:
		user.env[FLAGS[user.pch_made.language]] = before
	parent.post_run(user)


def find_obstacle(user: Task.Task) -> str:
	"""Why a source may not begin after the headers, as it is now."""
	made: Precompiled = user.pch_made
	if made.hasrun not in (Task.SUCCESS, Task.SKIPPED):
		return "its headers were not precompiled"
	try:
		if made.is_empty():
			return "its headers could not be precompiled"
		if find_options(user) != made.options:
			return "its options are not those of its target"
		return reading.find_obstacle(reading.read(user), made.names, made.find_words(), len(user.env.DEFINES))
	except Exception as e:  # a source that cannot be read is compiled without the headers
		return "it cannot be read: %s" % e


def find_options(user: Task.Task) -> List[str]:
	"""The command of a source without the names of its files."""
	command = trial.find_command(user)
	return command.change("", "")
