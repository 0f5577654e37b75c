"""
Compiles many sources in one call of their compiler, with the outputs, messages and rebuilds of one call for each.

::

	def options(opt):
		opt.load('compiler_c batch')

	def build(bld):
		bld.load('batch')                               # all targets …
		bld.stlib(source=..., features='batch')         # … or, without that line, this one
		bld.stlib(source=..., batch_size=20)            # the same with at most so many at once; 0 keeps out

Tasks stay what they are: each has its own signature and dependencies, and is shown when it is done. Those that may run
at the same time, and whose commands differ in nothing but source and output, share a call. What a call did not make is
compiled again alone, so that an error concerns its own file.

C and C++ with gcc, clang and MSVC's options need nothing else. Any other task class joins by saying how several of its
tasks become one command::

	class shader(Task.Task):
		run_str = '${SHADERC} -o ${TGT} ${SRC}'
		batch_run_str = '${SHADERC} -d ${tsk.batch_folder()} ${SRC}'
		def batch_names(self):                          # in that folder, one for each output
			return [node.name for node in self.outputs]

Option: ``--batch=N``, at most N sources in a call, for all targets; 0 turns it off. ``docs/batch.md`` has the details,
and says by numbers where it pays: with compilers whose start is costly; hardly with gcc and clang, and a clang
that ``prefork`` parks is left alone.

To troubleshoot, ``waf --zones=batch`` tells of each call, and in the end how many tasks were left alone and why.
"""

import atexit
import collections
import copy
import os
import shutil
import sys
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from waflib import Context, Errors, Logs, Options, Runner, Task, Utils
from waflib.TaskGen import after_method, feature

if __package__:
	from . import invocation, original
else:
	# loaded with tooldir=, which makes a module without a package of this file
	import importlib

	_folder = os.path.dirname(os.path.abspath(__file__))
	sys.path.append(os.path.dirname(_folder))
	_package = os.path.basename(_folder)
	invocation = importlib.import_module(_package + ".invocation")
	original = importlib.import_module(_package + ".original")

SIZE = 50
"""At most so many tasks in one call where nobody says how many."""
PATIENCE = 0.1
"""Seconds for which a call that could be bigger waits while the scheduler still hands out tasks."""
GRACE = 0.005
"""Seconds after which it looks whether the scheduler does."""
COMPILERS = ("gcc", "clang", "msvc", "clang-cl")
"""What compilers are called in ``CC_NAME`` and ``CXX_NAME`` whose options we know."""
FOLDERS = ".batch-"
"""What the folders of calls begin with, in the build folder."""
NAMES = "names"
"""The file in such a folder with what its call may leave in the build folder itself."""

MADE_HERE = "made"
"""The folder in it for the outputs of a command that can be told where to put them."""

NEW, WAITING, TAKEN, MADE, ALONE = range(5)


# ---- one task


class Member:
	"""A task that may share a call; its ``runnable_status`` and ``run`` are ours."""

	def __init__(self, task: Any, pool: "Pool", size: int) -> None:
		self.task = task
		self.pool = pool
		self.size = size
		self.state = NEW
		self.plan: Any = None
		self.key: Any = None

	def runnable_status(self) -> int:
		"""In place of the task's own: when it may run, others may take it into their calls."""
		if self.state != NEW:
			return Task.RUN_ME
		status = type(self.task).runnable_status(self.task)
		if status == Task.RUN_ME:
			self.pool.enlist(self)
		return status

	def run(self) -> Any:
		"""In place of the task's own: nothing is left to do if a call has made its outputs."""
		if self.state in (WAITING, TAKEN):
			self.pool.settle(self)
		return 0 if self.state == MADE else type(self.task).run(self.task)

	def record(self) -> None:
		"""Note that the outputs are up to date, as ``post_run`` will: it is not called any more if the build stops."""
		task = self.task
		if type(task).post_run is Task.Task.post_run and "post_run" not in task.__dict__:
			bld = task.generator.bld
			for node in task.outputs:
				bld.node_sigs[node] = task.uid()
			bld.task_sigs[task.uid()] = task.signature()


# ---- how tasks become one command


class Compile(NamedTuple):
	"""A compile of C or C++, by the words of its plain command."""

	form: Any
	source: str
	name: str
	kwargs: Dict[str, Any]

	patience = 0.0
	"""To wait costs more than another start of such a compiler."""
	keeps = True
	"""What there is after a call that has failed is whole: these compilers delete what they could not finish."""

	@property
	def is_placed(self) -> bool:
		return self.form.is_placed

	@property
	def names(self) -> List[str]:
		return [self.name]

	@property
	def paths(self) -> List[str]:
		return [self.source]

	def make(self, members: List[Member], folder: str) -> Any:
		return self.form.make([member.plan.source for member in members], folder)


class Joint(NamedTuple):
	"""A task whose class says how several become one command."""

	function: Any
	names: List[str]
	paths: List[str]
	kwargs: Dict[str, Any]
	keeps: bool

	is_placed = True
	patience = PATIENCE

	def make(self, members: List[Member], folder: str) -> Any:
		inputs = [node for member in members for node in member.task.inputs]
		return capture(pose(members[0].task, inputs, folder), self.function)[0]


class Left(Exception):
	"""A task is left alone; says why."""

	pass


def capture(task: Any, function: Any) -> Tuple[Any, Dict[str, Any]]:
	"""The command that a function made by Waf would have a task run, and how."""
	heard: List[Any] = []

	def exec_command(cmd: Any, **kwargs: Any) -> int:
		heard.append((cmd, kwargs))
		return 0

	task.exec_command = exec_command
	try:
		function(task)
	finally:
		del task.exec_command
	if len(heard) != 1:
		raise Left("it runs no command")
	return heard[0]


def pose(task: Any, inputs: List[Any], folder: str) -> Any:
	"""A task like this one with other inputs, of which only the command is asked."""
	other = copy.copy(task)
	other.inputs = inputs
	other.outputs = []
	other.batch_folder = lambda: folder
	return other


def find_plan(task: Any) -> Tuple[Any, Any]:
	"""How this task is done with others, and what is the same for all with which it may be; ``Left`` if alone."""
	for name in ("stdout", "stderr", "timeout", "semaphore"):
		if hasattr(task, name):
			raise Left("it has %s of its own" % name)
	if "exec_command" in task.__dict__:
		raise Left("it has exec_command of its own")
	cls = type(task)
	if getattr(cls, "batch_run_str", None):
		return find_joint(task, cls)
	return find_compile(task, cls)


def find_compile(task: Any, cls: Any) -> Tuple[Compile, Any]:
	if not original.is_compiled(cls.run):
		raise Left("its class has a run of its own")
	if len(task.inputs) != 1 or len(task.outputs) != 1:
		raise Left("it has not one source and one output")
	words, kwargs = capture(task, cls.run)
	if not isinstance(words, list):
		raise Left("it runs in a shell")
	environment = kwargs.get("env") or os.environ
	for name in invocation.VARIABLES:
		if name in environment:
			raise Left("%s is set" % name)
	cwd = kwargs.get("cwd")
	if not is_below_build(task, cwd):
		raise Left("it does not run in the build folder")
	program = os.path.basename(os.path.realpath(words[0]))
	if program in invocation.WRAPPERS or os.path.basename(words[0]) in invocation.WRAPPERS:
		raise Left("%s takes one source at a time" % program)
	source = task.inputs[0].path_from(cwd)
	form = invocation.find_form(words, source, task.outputs[0].abspath())
	if isinstance(form, str):
		raise Left(form)
	return Compile(form, source, form.name(source), kwargs), (cls, form, *tell(task, kwargs))


def find_joint(task: Any, cls: Any) -> Tuple[Joint, Any]:
	function = find_function(cls)
	folder = invocation.FOLDER
	try:
		command, kwargs = capture(pose(task, [], folder), function)
	except IndexError:
		raise Left("batch_run_str must name all sources by ${SRC}") from None
	sources = sorted({path for node in task.inputs for path in (node.path_from(kwargs["cwd"]), node.abspath())})
	plain: Any = None
	if original.is_compiled(cls.run):
		targets = [path for node in task.outputs for path in (node.path_from(kwargs["cwd"]), node.abspath())]
		said = capture(task, cls.run)[0]
		texts = [said] if isinstance(said, str) else said
		plain = tuple(invocation.mark(text, sources, targets) for text in texts)
	names = name_outputs(task)
	keeps = bool(getattr(cls, "batch_keeps", False))
	key = (cls, command if isinstance(command, str) else tuple(command), plain, *tell(task, kwargs))
	return Joint(function, names, sources, kwargs, keeps), key


def name_outputs(task: Any) -> List[str]:
	"""What the outputs of a task are called in the folder of its call."""
	if hasattr(task, "batch_names"):
		names = list(task.batch_names())
		if len(names) != len(task.outputs):
			raise Left("batch_names has not a name for each output")
		return names
	if len(task.inputs) != 1:
		raise Left("it has more than one source, and its class no batch_names")
	stem = os.path.splitext(task.inputs[0].name)[0]
	return [stem + os.path.splitext(node.name)[1] for node in task.outputs]


def find_function(cls: Any) -> Any:
	"""The function that Waf makes of ``batch_run_str``, once for a class."""
	if "batch_function" not in cls.__dict__:
		cls.batch_function = staticmethod(Task.compile_fun(cls.batch_run_str, cls.shell)[0])
	return cls.batch_function


def tell(task: Any, kwargs: Dict[str, Any]) -> Tuple[Any, ...]:
	"""How a command runs, so that it can be compared."""
	rest = {name: value for name, value in kwargs.items() if name != "cwd"}
	return kwargs["cwd"].abspath(), repr(sorted(rest.items())), repr(task.env.PATH)


def is_below_build(task: Any, folder: Any) -> bool:
	build = task.generator.bld.bldnode
	return folder is build or (hasattr(folder, "is_child_of") and folder.is_child_of(build))


# ---- the tasks of a build


class Pool:
	"""Tasks of one build that may run now, for calls to take them from."""

	def __init__(self, bld: Any) -> None:
		self.bld = bld
		self.for_all = False
		"""Every target takes part."""
		self.turn = threading.Condition()
		self.waiting: Dict[Any, List[Member]] = collections.OrderedDict()
		"""By what their commands have in common."""
		self.held: Dict[str, Any] = {}
		"""Paths in the build folder that calls under way write to."""
		self.under_way = 0
		self.number = 0
		self.calls = 0
		self.shared = 0
		"""Tasks that were done by a call with others."""
		self.again = 0
		"""Tasks that had to be done again alone."""
		self.reasons: Dict[str, int] = collections.Counter()
		"""How many tasks were left alone, by reason."""
		self.is_swept = False
		if Logs.verbose:
			atexit.register(self.finish)

	def leave(self, reason: str) -> None:
		with self.turn:
			self.reasons[reason] += 1

	def enlist(self, member: Member) -> None:
		"""This task may run now."""
		try:
			member.plan, key = find_plan(member.task)
			member.key = member.size, key
		except Left as e:
			self.leave(str(e))
			member.state = ALONE
		except Exception as e:
			# whatever is wrong with its command, its own run tells it best
			self.leave("its command cannot be told: %s" % e)
			member.state = ALONE
		else:
			with self.turn:
				member.state = WAITING
				self.waiting.setdefault(member.key, []).append(member)
				self.turn.notify_all()

	def settle(self, member: Member) -> None:
		"""Do calls until this task was part of one, or is to be done alone."""
		if self.bld.producer.numjobs == 1:
			self.poll(member)
		while True:
			with self.turn:
				if member.state == WAITING:
					self.wait_for_more(member)
				# the state may be another one after waiting
				if member.state == WAITING:
					crew = self.choose(member)
				elif member.state == TAKEN:
					crew = self.choose_other()
					if not crew:
						self.turn.wait()
						continue
				else:
					return
				if not crew:
					return
				self.under_way += 1
			try:
				self.call(crew)
			except OSError as e:
				self.leave("their call failed: %s" % e)
			finally:
				with self.turn:
					self.under_way -= 1
					for other in crew:
						if other.state == TAKEN:
							other.state = ALONE
						self.let_go(other)
					self.turn.notify_all()

	def poll(self, member: Member) -> None:
		"""With one slot, Waf runs a task before it looks at the next one: look at those that it would come to."""
		for task in sorted(self.bld.producer.outstanding):
			if len(self.waiting[member.key]) >= member.size:
				break
			other = task.__dict__.get("batch_member")
			if other is not None and other.state == NEW and not task.hasrun:
				try:
					other.runnable_status()
				except Exception:  # Waf comes to it, and tells
					continue

	def wait_for_more(self, member: Member) -> None:
		"""Let tasks gather while the scheduler is handing them out."""
		producer = self.bld.producer
		end = time.monotonic() + member.plan.patience
		while member.state == WAITING and len(self.waiting[member.key]) < member.size:
			is_handing_out = producer.outstanding and producer.count <= producer.numjobs * Runner.GAP
			left = end - time.monotonic()
			if producer.numjobs == 1 or producer.stop or not is_handing_out or left <= 0:
				break
			self.turn.wait(min(left, GRACE))

	def choose(self, member: Member) -> List[Member]:
		"""Take this task and others for a call; nothing if it is to be done alone."""
		mates = self.waiting[member.key]
		free = max(1, self.bld.producer.numjobs - self.under_way)
		count = min(member.size, -(-len(mates) // free))
		crew: List[Member] = []
		names: Dict[str, Any] = {}
		for other in [member] + [mate for mate in mates if mate is not member]:
			if len(crew) == count:
				break
			if names.keys().isdisjoint(other.plan.names) and self.hold(other):
				names.update(dict.fromkeys(other.plan.names))
				crew.append(other)
			elif other is member:
				break
		if len(crew) < 2:
			for other in crew:
				self.let_go(other)
			self.reasons["nothing to share a call with" if crew else "a file of that name is in the way"] += 1
			self.take(member, ALONE)
			return []
		for other in crew:
			self.take(other, TAKEN)
		return crew

	def choose_other(self) -> List[Member]:
		"""Take tasks for a call where there are several."""
		for mates in list(self.waiting.values()):
			if len(mates) > 1:
				return self.choose(mates[0])
		return []

	def take(self, member: Member, state: int) -> None:
		member.state = state
		mates = self.waiting[member.key]
		mates.remove(member)
		if not mates:
			del self.waiting[member.key]

	def hold(self, member: Member) -> bool:
		"""Whether the compiler may write to the folder where it runs what this task has it write there."""
		if member.plan.is_placed:
			return True
		folder = member.plan.kwargs["cwd"]
		path = os.path.join(folder.abspath(), member.plan.name)
		known = member.plan.name in getattr(folder, "children", ())
		if known or path in self.held or os.path.lexists(path):
			return False
		self.held[path] = member
		return True

	def let_go(self, member: Member) -> None:
		if not member.plan.is_placed:
			path = os.path.join(member.plan.kwargs["cwd"].abspath(), member.plan.name)
			if self.held.get(path) is member:
				del self.held[path]

	# ---- one call

	def call(self, crew: List[Member]) -> None:
		"""Do these tasks with one command, move what it has made to where it belongs, and show what it said."""
		plan = crew[0].plan
		folder = self.make_folder()
		made: List[List[str]] = []
		try:
			place = os.path.join(folder, MADE_HERE) if plan.is_placed else plan.kwargs["cwd"].abspath()
			made = [[os.path.join(place, name) for name in member.plan.names] for member in crew]
			if plan.is_placed:
				os.mkdir(place)
			else:
				write_names(folder, [path for paths in made for path in paths])
			code, said = self.execute(crew, folder)
			doubted = find_doubted(crew, made, code, b"".join(said))
			accept(crew, made, doubted)
			if not code:
				show(self.bld, said)
			self.note(crew, doubted, code)
		finally:
			if not plan.is_placed:
				remove([path for paths in made for path in paths])
			shutil.rmtree(folder, ignore_errors=True)

	def note(self, crew: List[Member], doubted: List[Member], code: Any) -> None:
		"""Let the threads of these tasks go on, and count them."""
		with self.turn:
			self.calls += 1
			self.shared += len(crew) - len(doubted)
			self.again += len(doubted)
			for member in crew:
				member.state = ALONE if member in doubted else MADE
		if Logs.verbose:
			made = len(crew) - len(doubted)
			paths = " ".join(member.plan.paths[0] for member in crew)
			Logs.debug("batch: status %s, made %d of %d: %s", code, made, len(crew), paths)

	def execute(self, crew: List[Member], folder: str) -> Tuple[Any, List[bytes]]:
		"""Run the command; its status and what it has said on its two streams."""
		plan = crew[0].plan
		command = plan.make(crew, os.path.join(folder, MADE_HERE))
		paths = [os.path.join(folder, name) for name in ("stdout", "stderr")]
		with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
			try:
				code = crew[0].task.exec_command(command, **dict(plan.kwargs, stdout=out, stderr=err))
			except Errors.WafError as e:
				Logs.debug("batch: %s", e)
				code = -1
		said = []
		for path in paths:
			with open(path, "rb") as f:
				said.append(f.read())
		return code, said

	def make_folder(self) -> str:
		"""A new folder for one call, in the build folder."""
		build = self.bld.bldnode.abspath()
		with self.turn:
			if not self.is_swept:
				self.is_swept = True
				sweep(build)
			self.number += 1
			path = os.path.join(build, "%s%d" % (FOLDERS, self.number))
		os.mkdir(path)
		return path

	def finish(self) -> None:
		"""At exit: say for ``--zones=batch`` what became of the tasks."""
		if Logs.log and (self.calls or self.reasons):
			Logs.debug("batch: %d tasks in %d calls, %d done again alone", self.shared, self.calls, self.again)
			for reason, count in sorted(self.reasons.items()):
				Logs.debug("batch: %d left alone: %s", count, reason)


def accept(crew: List[Member], made: List[List[str]], doubted: List[Member]) -> None:
	"""Move what a call has made to where it belongs; of tasks that are to be done again, nothing is left."""
	for member, paths in zip(crew, made):
		if member in doubted:
			remove(paths)
		else:
			for path, node in zip(paths, member.task.outputs):
				os.replace(path, node.abspath())
			member.record()


def find_doubted(crew: List[Member], made: List[List[str]], code: Any, text: bytes) -> List[Member]:
	"""The tasks that are to be done again alone after a call with this status that has said this."""
	keeps = not code or (code > 0 and crew[0].plan.keeps)
	doubted = []
	for member, paths in zip(crew, made):
		is_named = code and any(os.fsencode(path) in text for path in member.plan.paths)
		if not keeps or is_named or not all(map(os.path.isfile, paths)):
			doubted.append(member)
	# something has failed that nobody is named for
	return doubted if doubted or not code else list(crew)


def show(bld: Any, said: List[bytes]) -> None:
	"""Write what a command has said, as ``Context.exec_command`` does."""
	for data, stream, level, word in zip(said, (sys.stdout, sys.stderr), ("debug", "error"), ("out", "err")):
		if data:
			text = data.decode(getattr(Context, "default_encoding", "utf-8"), errors="replace")
			if bld.logger:
				getattr(bld.logger, level)("%s: %s" % (word, text))
			else:
				Logs.info(text, extra={"stream": stream, "c1": ""})


def write_names(folder: str, paths: List[str]) -> None:
	"""Note what is ours in the build folder until the call is over, in case that we do not see its end."""
	with open(os.path.join(folder, NAMES), "wb") as f:
		f.write(b"\0".join(os.fsencode(os.path.relpath(path, os.path.dirname(folder))) for path in paths))


def remove(paths: List[str]) -> None:
	for path in paths:
		try:
			os.remove(path)
		except OSError:
			continue


def sweep(build: str) -> None:
	"""Remove what builds have left that were killed."""
	for name in os.listdir(build):
		if name.startswith(FOLDERS):
			folder = os.path.join(build, name)
			try:
				with open(os.path.join(folder, NAMES), "rb") as f:
					remove([os.path.join(build, os.fsdecode(path)) for path in f.read().split(b"\0") if path])
			except OSError:
				pass
			shutil.rmtree(folder, ignore_errors=True)


# ---- what Waf calls


def find_pool(bld: Any) -> Pool:
	pool = bld.__dict__.get("batch_pool")
	if pool is None:
		pool = bld.batch_pool = Pool(bld)
	return pool


def find_size(task: Any, generator: Any, pool: Pool) -> int:
	"""How many tasks may share a call with this one at most."""
	option = getattr(Options.options, "batch", None)
	if option is not None and option <= 0:
		return 0
	for asked in (getattr(generator, "batch_size", None), option, getattr(task, "batch_size", None)):
		if asked is not None:
			return int(asked)
	return SIZE if pool.for_all or "batch" in Utils.to_list(generator.features) else 0


def is_of_known_compiler(task: Any) -> bool:
	"""C or C++ by a compiler whose options we know."""
	for name in ("c", "cxx"):
		cls = Task.classes.get(name)
		if cls is not None and isinstance(task, cls):
			return task.env["CC_NAME" if name == "c" else "CXX_NAME"] in COMPILERS
	return False


def find_cacher() -> Optional[Any]:
	"""What decides which commands the tool ``wafcc`` caches, if it does."""
	cacher = getattr(getattr(Utils, "prefork", None), "cache", None)
	return cacher if cacher is not None and cacher.active else None


def is_parked_clang(task: Any) -> bool:
	"""
	A compile that the engine may have a parked clang do.

	Of several sources clang gives each to a process that it starts anew, and parking is of no use to those.
	"""
	prefork = getattr(Utils, "prefork", None)
	is_in_place = prefork is not None and prefork.is_in_place()
	name = task.env["CXX_NAME" if isinstance(task, Task.classes.get("cxx", ())) else "CC_NAME"]
	return bool(is_in_place and name and "clang" in name)


@feature("*", "batch")
@after_method("process_source", "process_rule", "apply_link", "apply_incpaths", "propagate_uselib_vars")
def share_calls(self: Any) -> None:
	"""Let the tasks of this generator share calls, if that is wanted."""
	pool = find_pool(self.bld)
	for task in self.tasks:
		is_joint = bool(getattr(task, "batch_run_str", None))
		if "batch_member" in task.__dict__ or not (is_joint or is_of_known_compiler(task)):
			continue
		size = find_size(task, self, pool)
		if size < 2:
			continue
		cacher = find_cacher()
		if cacher is not None and cacher.find_new_flags(task):
			pool.leave("wafcc caches it")
			continue
		if not is_joint and is_parked_clang(task):
			pool.leave("clang that the engine parks is faster alone")
			continue
		# as many handed out as one call may take for each slot
		Runner.GAP = max(Runner.GAP, size)
		member = task.batch_member = Member(task, pool, size)
		task.runnable_status = member.runnable_status
		task.run = member.run


def options(opt):
	if not opt.parser.get_option("--batch"):
		opt.add_option(
			"--batch",
			dest="batch",
			type=int,
			default=None,
			metavar="N",
			help="compile up to N sources in one call of a compiler; 0: one each [default: as the project says]",
		)


def configure(conf):
	pass


def build(bld):
	find_pool(bld).for_all = True
