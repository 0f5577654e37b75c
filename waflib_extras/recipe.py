"""
The command of a task without running Waf's code for it, where most of it is as in the task before.

Waf makes a function of a ``run_str`` such as ``${CXX} ${CXXFLAGS} ${SRC} -o ${TGT}``, which looks up every variable for
every task. Here it is taken apart at its blanks: words with variables only are made once for an environment, and again
when one of those is another; words with ``SRC`` or ``TGT`` for every task. Both are made by Waf's own functions for
these words alone. There is no recipe where anything else has a say, or where ``run`` is not what Waf made of that text.
"""

import re
import types
from itertools import chain
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from waflib import Node, Task

_KNOWN = r"\$\{(?!SRC\b|TGT\b)\w+(?::(?!SRC\b|TGT\b|tsk|gen|bld)\w+)?\}|[^$]"
_NODES = r"\$\{(?:SRC|TGT)(?:\[\d+\])?(?:\.(?:abspath|bldpath|srcpath|relpath)\(\))?\}"
FIXED = re.compile(r"(?:%s)+\Z" % _KNOWN)
"""A word with variables only."""
VARYING = re.compile(r"(?:%s|%s)+\Z" % (_NODES, _KNOWN))
"""One with the nodes of a task, too, as their paths."""
VARIABLE = re.compile(r"\$\{(\w+)(?::(\w+))?\}")
OTHERS = ("PATH", "env")
"""Variables that change how a command is run; there is no recipe where they are set."""


class Scene:
	"""What Waf's function for some words sees of a task."""

	colon = Task.Task.colon

	def __init__(self, env: Any, generator: Any, folder: Any) -> None:
		self.env = env
		self.generator = generator
		self.folder = folder
		self.inputs: List[Any] = []
		self.outputs: List[Any] = []
		self.last_cmd: List[str] = []

	def get_cwd(self) -> Any:
		return self.folder

	def exec_command(self, cmd: List[str], **kwargs: Any) -> None:
		"""Nothing is run: the words are in ``last_cmd``."""


class Part(NamedTuple):
	"""Consecutive words: Waf's function for them, and whether they are other words for every task."""

	make: Any
	varies: bool


class Batch:
	"""What is the same for all tasks with one environment."""

	__slots__ = ("parts", "scene", "values")

	def __init__(self, values: List[List[Any]], parts: List[Any], scene: Scene) -> None:
		self.values = values
		self.parts = parts
		self.scene = scene


class Recipe:
	"""How the commands of a task class are made."""

	def __init__(self, parts: List[Part], names: Tuple[str, ...]) -> None:
		self.parts = parts
		self.names = names
		self.batches: Dict[int, Optional[Batch]] = {}
		"""By the number of an environment, which stays its own since a batch keeps it."""

	def make(self, task: Any, folder: Any) -> Optional[List[str]]:
		"""The arguments of the command of this task that runs in a folder; none if Waf has to make it."""
		env, values = read(task.env, self.names)
		batch = self.batches.get(id(env))
		if batch is None or batch.values != values or batch.scene.folder is not folder:
			batch = self.begin(task, env, values, folder)
			if batch is None:
				return None
			self.batches[id(env)] = batch
		scene = batch.scene
		scene.inputs = task.inputs
		scene.outputs = task.outputs
		words: List[str] = []
		for part in batch.parts:
			if part.__class__ is list:
				words += part
			else:
				part(scene)
				words += scene.last_cmd
		return words

	def begin(self, task: Any, env: Any, values: List[List[Any]], folder: Any) -> Optional[Batch]:
		if any(task.env[name] for name in OTHERS) or not all(map(is_plain, chain(*values))):
			return None
		scene = Scene(env, task.generator, folder)
		parts: List[Any] = []
		for make, varies in self.parts:
			if varies:
				parts.append(make)
			else:
				make(scene)
				parts.append(scene.last_cmd)
		kept = [[list(value) if value.__class__ is list else value for value in table] for table in values]
		return Batch(kept, parts, scene)


def read(env: Any, names: Tuple[str, ...]) -> Tuple[Any, List[List[Any]]]:
	"""An environment without those that only derive from it, and what each one that it derives from says of names."""
	while not env.table and hasattr(env, "parent"):
		env = env.parent
	cur, values = env, []
	try:
		while True:
			values.append(list(map(cur.table.get, names)))
			cur = cur.parent
	except AttributeError:
		return env, values


def is_plain(value: Any) -> bool:
	"""A variable's value that is another one if it compares as another one."""
	return (
		value is None
		or value.__class__ is str
		or (value.__class__ is list and all(item.__class__ is str for item in value))
	)


def find_recipe(cls: Any) -> Optional[Recipe]:
	"""The recipe of a task class, if there is one."""
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
	"""The words of a ``run_str``, as Waf finds them."""
	words = [""]
	for found in Task.reg_act_noshell.finditer(text):
		if found.group("space"):
			words.append("")
		else:
			words[-1] += found.group(0)
	return [word for word in words if word]


def is_same(one: types.CodeType, other: types.CodeType) -> bool:
	"""Whether two functions were made of the same text."""
	return all(getattr(one, name) == getattr(other, name) for name in PARTS) and (
		len(one.co_consts) == len(other.co_consts)
		and all(
			a.__class__ is b.__class__ and (is_same(a, b) if isinstance(a, types.CodeType) else a == b)
			for a, b in zip(one.co_consts, other.co_consts)
		)
	)


PARTS = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount")


def find_folder(task: Any) -> Any:
	"""The folder in which Waf runs the command of a task; none if it is not a usual one."""
	if hasattr(task, "cwd"):
		return None
	bld = task.generator.bld
	folder = getattr(bld, "cwd", None) or bld.bldnode
	return folder if isinstance(folder, Node.Node) else None
