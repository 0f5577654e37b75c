"""
Plans how several tasks become one command, or tells why a task is left alone.

It runs nothing, and does not know which tasks there are.
"""

import copy
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type, Union

from waflib import Node, Task

from ..hooks import stock
from . import invocation
from .membership import Member

PATIENCE = 0.1
"""For so many seconds, a call that could take more tasks waits while the scheduler still hands some out."""


Given = Dict[str, Any]
"""The arguments of a task's command for ``Popen``."""
Command = Union[str, List[str]]
Maker = Callable[[Task.Task], object]
"""A function that Waf has made of a command line."""
Key = Tuple[object, ...]
"""The common properties of all tasks that may share a call."""


class Compile(NamedTuple):
	"""A compile of C or C++, known by the words of its command."""

	form: invocation.Form
	source: str
	name: str
	kwargs: Given
	patience: float = 0.0
	"""Such a compiler starts quickly, so waiting would cost more than another call."""
	keeps: bool = True
	"""Outputs of a failed call can be kept, since these compilers delete what they could not finish."""

	@property
	def is_placed(self) -> bool:
		return self.form.is_placed

	@property
	def names(self) -> List[str]:
		return [self.name]

	@property
	def paths(self) -> List[str]:
		return [self.source]

	def make(self, members: List[Member], folder: str) -> Command:
		return self.form.make([member.plan.paths[0] for member in members], folder)


class Joint(NamedTuple):
	"""A task whose class tells how several become one command."""

	function: Maker
	names: List[str]
	paths: List[str]
	kwargs: Given
	keeps: bool
	is_placed: bool = True
	patience: float = PATIENCE

	def make(self, members: List[Member], folder: str) -> Command:
		inputs = [node for member in members for node in member.task.inputs]
		return capture(pose(members[0].task, inputs, folder), self.function)[0]


Plan = Union[Compile, Joint]


class LeftAlone(Exception):
	"""Raised if a task is left alone. The text is the reason."""

	pass


def capture(task: Task.Task, function: Maker) -> Tuple[Command, Given]:
	"""The command that Waf's function would have a task run, and its arguments for ``Popen``."""
	heard: List[Tuple[Command, Given]] = []

	def exec_command(cmd: Command, **kwargs: Any) -> int:
		heard.append((cmd, kwargs))
		return 0

	task.exec_command = exec_command
	try:
		function(task)
	finally:
		del task.exec_command
	if len(heard) != 1:
		raise LeftAlone("it runs no command")
	return heard[0]


def pose(task: Task.Task, inputs: "List[Node.Node]", folder: str) -> Task.Task:
	"""A task like this one with other inputs. It serves to make a command and is never run."""
	other = copy.copy(task)
	other.inputs = inputs
	other.outputs = []
	other.batch_folder = lambda: folder
	return other


def find_plan(task: Task.Task) -> Tuple[Plan, Key]:
	"""How this task can be done with others, and what it must have in common with them. Raises ``LeftAlone``."""
	for name in ("stdout", "stderr", "timeout", "semaphore"):
		if hasattr(task, name):
			raise LeftAlone("it has %s of its own" % name)
	if "exec_command" in task.__dict__:
		raise LeftAlone("it has exec_command of its own")
	cls = type(task)
	if getattr(cls, "batch_run_str", None):
		return find_joint(task, cls)
	return find_compile(task, cls)


def find_compile(task: Task.Task, cls: Type[Task.Task]) -> Tuple[Compile, Key]:
	if not stock.is_compiled(cls.run):
		raise LeftAlone("its class has a run of its own")
	if len(task.inputs) != 1 or len(task.outputs) != 1:
		raise LeftAlone("it has not one source and one output")
	words, kwargs = capture(task, cls.run)
	if not isinstance(words, list):
		raise LeftAlone("it runs in a shell")
	environment = kwargs.get("env") or os.environ
	for name in invocation.VARIABLES:
		if name in environment:
			raise LeftAlone("%s is set" % name)
	cwd = kwargs.get("cwd")
	if not is_below_build(task, cwd):
		raise LeftAlone("it does not run in the build folder")
	program = os.path.basename(os.path.realpath(words[0]))
	if program in invocation.WRAPPERS or os.path.basename(words[0]) in invocation.WRAPPERS:
		raise LeftAlone("%s takes one source at a time" % program)
	source = task.inputs[0].path_from(cwd)
	form = invocation.find_form(words, source, task.outputs[0].abspath())
	if isinstance(form, str):
		raise LeftAlone(form)
	return Compile(form, source, form.name(source), kwargs), (cls, form, *tell(task, kwargs))


def find_joint(task: Task.Task, cls: Type[Task.Task]) -> Tuple[Joint, Key]:
	function = find_function(cls)
	folder = invocation.FOLDER
	try:
		command, kwargs = capture(pose(task, [], folder), function)
	except IndexError:
		raise LeftAlone("batch_run_str must name all sources by ${SRC}") from None
	sources = sorted({path for node in task.inputs for path in (node.path_from(kwargs["cwd"]), node.abspath())})
	plain: Optional[Tuple[str, ...]] = None
	if stock.is_compiled(cls.run):
		targets = [path for node in task.outputs for path in (node.path_from(kwargs["cwd"]), node.abspath())]
		said = capture(task, cls.run)[0]
		texts = [said] if isinstance(said, str) else said
		plain = tuple(invocation.mark(text, sources, targets) for text in texts)
	names = name_outputs(task)
	keeps = bool(getattr(cls, "batch_keeps", False))
	key = (cls, command if isinstance(command, str) else tuple(command), plain, *tell(task, kwargs))
	return Joint(function, names, sources, kwargs, keeps), key


def name_outputs(task: Task.Task) -> List[str]:
	"""The names of a task's outputs in the folder of its call."""
	if hasattr(task, "batch_names"):
		names = list(task.batch_names())
		if len(names) != len(task.outputs):
			raise LeftAlone("batch_names has not a name for each output")
		return names
	if len(task.inputs) != 1:
		raise LeftAlone("it has more than one source, and its class no batch_names")
	stem = os.path.splitext(task.inputs[0].name)[0]
	return [stem + os.path.splitext(node.name)[1] for node in task.outputs]


def find_function(cls: Type[Task.Task]) -> Maker:
	"""The function that Waf makes of ``batch_run_str``, once per class."""
	if "batch_function" not in cls.__dict__:
		cls.batch_function = staticmethod(Task.compile_fun(cls.batch_run_str, cls.shell)[0])
	function: Maker = cls.batch_function
	return function


def tell(task: Task.Task, kwargs: Given) -> Key:
	"""The arguments of a command for ``Popen``, in a form that can be compared."""
	rest = {name: value for name, value in kwargs.items() if name != "cwd"}
	return kwargs["cwd"].abspath(), repr(sorted(rest.items())), repr(task.env.PATH)


def is_below_build(task: Task.Task, folder: Node.Node) -> bool:
	build = task.generator.bld.bldnode
	return folder is build or (hasattr(folder, "is_child_of") and folder.is_child_of(build))
