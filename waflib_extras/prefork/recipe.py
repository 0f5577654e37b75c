"""
Makes the command of a task quickly, since most of its words are those of other tasks.

Waf makes a function of a ``run_str`` such as ``${CXX} ${CXXFLAGS} ${SRC} -o ${TGT}``, which looks up each variable for
each task. Here the text is split at its blanks. Words with variables only are made once per environment, and again if
a variable changes. Words with ``SRC`` or ``TGT`` are made for each task. Both are made by functions that Waf makes of
these words alone. There is no recipe if anything else matters, or if ``run`` is not what Waf made of that text.
"""

import contextlib
import re
import types
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

from waflib import ConfigSet, Node, Task, TaskGen

_KNOWN = r"\$\{(?!SRC\b|TGT\b)\w+(?::(?!SRC\b|TGT\b|tsk|gen|bld)\w+)?\}|[^$]"
_NODES = r"\$\{(?:SRC|TGT)(?:\[\d+\]\.(?:abspath|bldpath|srcpath|relpath)\(\))?\}"
FIXED = re.compile(r"(?:%s)+\Z" % _KNOWN)
"""A word with variables only."""
VARYING = re.compile(r"(?:%s|%s)+\Z" % (_NODES, _KNOWN))
"""A word with the paths of a task's nodes, and perhaps variables."""
VARIABLE = re.compile(r"\$\{(\w+)(?::(\w+))?\}")
OTHERS = ("PATH", "env")
"""Variables that change how a command is run. There is no recipe if one is set."""

Values = List[Tuple[ConfigSet.ConfigSet, List[object]]]
"""Environments, each with its values of some variables."""


class CommandContext:
	"""Stands in for a task when Waf's function makes words."""

	colon = Task.Task.colon

	def __init__(self, env: ConfigSet.ConfigSet, generator: TaskGen.task_gen, folder: Node.Node) -> None:
		self.env = env
		self.generator = generator
		self.folder = folder
		self.inputs: Sequence[Named] = []
		self.outputs: Sequence[Named] = []
		self.last_cmd: List[str] = []

	def get_cwd(self) -> Node.Node:
		return self.folder

	def make(self, function: "Words", inputs: "Sequence[Named]", outputs: "Sequence[Named]") -> List[str]:
		"""The words that a function of Waf's makes."""
		self.inputs = inputs
		self.outputs = outputs
		function(self)
		return self.last_cmd

	def exec_command(self, cmd: List[str], **kwargs: object) -> None:
		"""Run nothing. The words are in ``last_cmd``."""
		pass


class Part(NamedTuple):
	"""Consecutive words: Waf's function for them, and whether they differ between tasks."""

	make: "Words"
	varies: bool


class Mark:
	"""Stands in for a node, with a path that no node has."""

	def __init__(self, kind: str) -> None:
		self.kind = kind

	def path_from(self, node: Node.Node) -> str:
		return "/\0%sr" % self.kind

	def abspath(self) -> str:
		return "/\0%sa" % self.kind


Named = Union[Node.Node, Mark]
Words = Callable[[CommandContext], object]
"""A function of Waf's that makes words for a task."""


class Shared:
	"""The common parts of all tasks with one environment and one folder."""

	def __init__(self, values: Values, functions: List[Part], context: CommandContext) -> None:
		self.values = values
		self.context = context
		self.parts = [part if part.varies else context.make(part.make, [], []) for part in functions]
		self.words: List[str] = []
		self.slots: Optional[List[PathSlot]] = None
		"""The paths in the words of a task with one input and one output; None if the words are not that simple."""
		self.folders: Dict[Node.Node, str] = {}
		"""By folder: the beginning of its nodes' paths, relative to our folder."""
		with contextlib.suppress(AttributeError, IndexError):
			self.words = self.assemble([Mark("s")], [Mark("t")])
			self.slots = find_path_slots(self.words)

	def make(self, inputs: List[Node.Node], outputs: List[Node.Node]) -> List[str]:
		"""The words of a task."""
		if self.slots is None or len(inputs) != 1 or len(outputs) != 1:
			return self.assemble(inputs, outputs)
		words = self.words[:]
		for place in self.slots:
			node = (outputs if place.is_target else inputs)[0]
			path = node.abspath() if place.is_absolute else self.find_path(node)
			words[place.number] = place.before + path + place.after
		return words

	def assemble(self, inputs: "Sequence[Named]", outputs: "Sequence[Named]") -> List[str]:
		words: List[str] = []
		for part in self.parts:
			words += part if isinstance(part, list) else self.context.make(part.make, inputs, outputs)
		return words

	def find_path(self, node: Node.Node) -> str:
		"""The same as ``path_from`` of a node, which differs only in the file name for the nodes of one folder."""
		name, folder = node.name, node.parent
		path: str
		if hasattr(node, "children"):
			path = node.path_from(self.context.folder)
			return path
		before = self.folders.get(folder)
		if before is None:
			path = node.path_from(self.context.folder)
			if not path.endswith(name):
				return path
			before = self.folders[folder] = path[: len(path) - len(name)]
		path = before + name
		return path


class PathSlot(NamedTuple):
	"""A path in a word."""

	number: int
	before: str
	after: str
	is_target: bool
	is_absolute: bool


PATH = re.compile("(.*?)/\0([st])([ra])(.*)\\Z", re.S)
"""The path of a mark in a word."""


def find_path_slots(words: List[str]) -> Optional[List[PathSlot]]:
	"""The paths of marks; None if there are two in one word."""
	places = []
	for number, word in enumerate(words):
		found = PATH.match(word)
		if found:
			before, kind, way, after = found.groups()
			if "\0" in after:
				return None
			places.append(PathSlot(number, before, after, kind == "t", way == "a"))
	return places


class Recipe:
	"""Makes the commands of a task class."""

	def __init__(self, parts: List[Part], names: Tuple[str, ...]) -> None:
		self.parts = parts
		self.names = names
		self.batches: Dict[int, Shared] = {}
		"""By the id of an environment, which stays its own since the value refers to it."""

	def make(self, task: Task.Task, folder: Node.Node) -> Optional[List[str]]:
		"""The arguments of this task's command; None if Waf has to make them."""
		env = task.env
		while not env.table and hasattr(env, "parent"):
			# the environment of most tasks has no variable of its own
			env = env.parent
		batch = self.batches.get(id(env))
		if batch is None or batch.context.folder is not folder or not is_still(batch.values, self.names):
			values = read(env, self.names)
			if any(task.env[name] for name in OTHERS) or not all(
				is_plain(value) for _, says in values for value in says
			):
				return None
			batch = self.batches[id(env)] = Shared(values, self.parts, CommandContext(env, task.generator, folder))
		return batch.make(task.inputs, task.outputs)


def read(env: ConfigSet.ConfigSet, names: Tuple[str, ...]) -> Values:
	"""The values of variables in an environment, and in each one that it derives from; None where one has no value."""
	values = []
	while env is not None:
		says = [list(value) if value.__class__ is list else value for value in map(env.table.get, names)]
		values.append((env, says))
		env = getattr(env, "parent", None)
	return values


def is_still(values: Values, names: Tuple[str, ...]) -> bool:
	"""Tell whether the values are still the same. Projects change variables while they build."""
	child = None
	for env, says in values:
		if list(map(env.table.get, names)) != says or (child is not None and getattr(child, "parent", None) is not env):
			return False
		child = env
	return True


def is_plain(value: object) -> bool:
	"""Tell whether comparing such a value shows each change of it."""
	return (
		value is None
		or value.__class__ is str
		or (value.__class__ is list and all(item.__class__ is str for item in value))
	)


def find_recipe(cls: Type[Task.Task]) -> Optional[Recipe]:
	"""The recipe of a task class; None if there cannot be one."""
	text = getattr(cls, "orig_run_str", None)
	if text.__class__ is not str or cls.colon is not Task.Task.colon or cls.get_cwd is not Task.Task.get_cwd:
		return None
	whole, _ = Task.compile_fun_noshell(text)
	if not is_same(whole.__code__, cls.run.__code__):
		return None
	parts: List[Part] = []
	names = list(OTHERS)
	runs: List[Tuple[bool, List[str]]] = []
	for word in split(text):
		varies = not FIXED.match(word)
		if varies and not VARYING.match(word):
			return None
		if not runs or runs[-1][0] != varies:
			runs.append((varies, []))
		runs[-1][1].append(word)
		names += [name for pair in VARIABLE.findall(word) for name in pair if name and name not in ("SRC", "TGT")]
	for varies, words in runs:
		make, _ = Task.compile_fun_noshell(" ".join(words))
		parts.append(Part(make, varies))
	return Recipe(parts, tuple(dict.fromkeys(names)))


def split(text: str) -> List[str]:
	"""The words of a ``run_str``, split as Waf does it."""
	words = [""]
	for found in Task.reg_act_noshell.finditer(text):
		if found.group("space"):
			words.append("")
		else:
			words[-1] += found.group(0)
	return [word for word in words if word]


def is_same(one: types.CodeType, other: types.CodeType) -> bool:
	"""Tell whether two functions were made of the same text."""
	return all(getattr(one, name) == getattr(other, name) for name in PARTS) and (
		len(one.co_consts) == len(other.co_consts)
		and all(
			a.__class__ is b.__class__ and (is_same(a, b) if isinstance(a, types.CodeType) else a == b)
			for a, b in zip(one.co_consts, other.co_consts)
		)
	)


PARTS = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount")


def find_folder(task: Task.Task) -> Optional[Node.Node]:
	"""The folder in which Waf runs the command of a task; None if it is not a usual one."""
	if hasattr(task, "cwd"):
		return None
	bld = task.generator.bld
	folder = getattr(bld, "cwd", None) or bld.bldnode
	return folder if isinstance(folder, Node.Node) else None
