"""
Names that are looked up, and texts that are compiled, again and again.
"""

from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple, Union

from waflib import Errors, Task, TaskGen

from ..hooks import patch

if TYPE_CHECKING:
	from waflib.Build import BuildContext


Group = List[Union[TaskGen.task_gen, Task.Task]]
"""Of a build context."""
Compiled = Tuple[Callable[[Task.Task], object], List[str]]
"""A function made of a command line, and the variables in that."""


class Names(patch.Patch):
	"""
	Task generators by their names.

	Waf drops its index with each ``bld(...)``, and makes all of it again when the next name is looked up: who makes
	generators while names are looked up, as ``install_path`` does, does n²/2 of that. Here the index stays, and what
	was added is added to it. It is made anew when a name that is in it was changed.
	"""

	name = "names"
	topic = "task generators by name"
	known = {
		"Build.BuildContext.get_tgen_by_name": ("7048a2d005af",),
		"Build.BuildContext.add_to_group": ("3ef65c2200f1",),
		"TaskGen.task_gen.get_name": ("3b7e56f6da19",),
		"TaskGen.task_gen.set_name": ("0b62b12c2412",),
	}

	def install(self) -> None:
		self.replace("Build.BuildContext.get_tgen_by_name", get_tgen_by_name)
		TaskGen.task_gen.set_name = set_name
		TaskGen.task_gen.name = property(TaskGen.task_gen.get_name, set_name)


class Index:
	"""The names of a build context's generators, as far as they were read."""

	def __init__(self) -> None:
		self.found: Dict[str, TaskGen.task_gen] = {}
		self.places: Dict[str, Tuple[int, int]] = {}
		"""The group of each, and its place there: of two that have a name, the later one has it."""
		self.read: List[Tuple[Group, int]] = []
		"""The groups, and how much of each was read."""

	def update(self, groups: List[Group]) -> bool:
		"""Read what was added; not if something else has happened to the groups."""
		if len(groups) < len(self.read) or (self.places and not self.found):
			return False
		for number, group in enumerate(groups):
			known, count = self.read[number] if number < len(self.read) else (group, 0)
			if known is not group or len(group) < count:
				return False
			for place in range(count, len(group)):
				self.add(group[place], (number, place))
			self.read[number : number + 1] = [(group, len(group))]
		return True

	def add(self, generator: TaskGen.task_gen, place: Tuple[int, int]) -> None:
		try:
			name = generator.name
		except AttributeError:
			return  # a task, which has none
		if name not in self.places or self.places[name] < place:
			self.found[name] = generator
			self.places[name] = place

	def is_there(self, name: str, groups: List[Group]) -> bool:
		"""What has this name is still where it was, if anything has it."""
		if name not in self.found:
			return True
		group, place = self.places[name]
		return groups[group][place] is self.found[name]


def get_tgen_by_name(self: "BuildContext", name: str) -> TaskGen.task_gen:
	index: Optional[Index] = self.__dict__.get("large_index")
	if not self.task_gen_cache_names or index is None or self.task_gen_cache_names is not index.found:
		if index is None or not index.update(self.groups) or not index.is_there(name, self.groups):
			index = self.large_index = read_all(self)
		self.task_gen_cache_names = index.found
	try:
		return self.task_gen_cache_names[name]
	except KeyError:
		raise Errors.WafError("Could not find a task generator for the name %r" % name) from None


def read_all(bld: "BuildContext") -> Index:
	index = Index()
	index.update(bld.groups)
	return index


def set_name(self: TaskGen.task_gen, name: str) -> None:
	bld = self.__dict__.get("bld")
	if bld is not None and "_name" in self.__dict__:
		bld.__dict__.pop("large_index", None)
	self._name = name


class Rules(patch.Patch):
	"""
	The functions that are made of command lines.

	Waf compiles the same text again for each ``bld(rule='...')`` that has it, for half a millisecond. Here equal texts
	give one function.
	"""

	name = "rules"
	topic = "functions made of command lines"
	known = {
		"Task.compile_fun": ("3d5811a5b3e0",),
		"Task.compile_fun_shell": ("e8f62a26808c",),
		"Task.compile_fun_noshell": ("256713552ca7",),
	}

	def install(self) -> None:
		stock = Task.compile_fun
		known: Dict[Tuple[str, bool], Compiled] = {}

		def compile_fun(line: Union[str, Callable[[Task.Task], object]], shell: object = False) -> Compiled:
			if not isinstance(line, str):
				made: Compiled = stock(line, shell)
				return made
			key = line, bool(shell)
			if key not in known:
				known[key] = stock(line, shell)
			function, variables = known[key]
			return function, list(variables)

		self.replace("Task.compile_fun", compile_fun)
