"""
Patches for names that are looked up, and for texts that are compiled, again and again.
"""

from typing import Callable, Dict, List, Optional, Tuple, Union

from waflib import Build, Errors, Task, TaskGen

from ..hooks import patch

Group = List[Union[TaskGen.task_gen, Task.Task]]
"""A group of a build context."""
Compiled = Tuple[Callable[[Task.Task], object], List[str]]
"""A function made of a command line, and the variables in the command line."""


class Names(patch.Patch):
	"""
	Task generators by their names.

	Waf drops its index with each ``bld(...)``, and makes it anew when the next name is looked up. A wscript that makes
	n generators and looks up a name between any two of them has Waf read n²/2 names. Here the index stays, and new
	generators are added to it. It is made anew when a name in it was changed.
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
		self.replace("TaskGen.task_gen.set_name", set_name)
		self.replace("TaskGen.task_gen.name", property(TaskGen.task_gen.get_name, set_name))


class Index:
	"""The generators of a build context by name, as far as they were read."""

	def __init__(self) -> None:
		self.found: Dict[str, TaskGen.task_gen] = {}
		self.places: Dict[str, Tuple[int, int]] = {}
		"""The group of each, and its position there. If two have one name, the later one counts."""
		self.read: List[Tuple[Group, int]] = []
		"""The groups, and how many elements of each were read."""

	def update(self, groups: List[Group]) -> bool:
		"""Read what was added. Tell whether the groups have not changed otherwise."""
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
			return  # it is a task, which has no name
		if name not in self.places or self.places[name] < place:
			self.found[name] = generator
			self.places[name] = place

	def is_there(self, name: str, groups: List[Group]) -> bool:
		"""Tell whether the generator of this name, if any, is still where it was."""
		if name not in self.found:
			return True
		group, place = self.places[name]
		return groups[group][place] is self.found[name]


def get_tgen_by_name(self: Build.BuildContext, name: str) -> TaskGen.task_gen:
	index: Optional[Index] = self.__dict__.get("large_index")
	if not self.task_gen_cache_names or index is None or self.task_gen_cache_names is not index.found:
		if index is None or not index.update(self.groups) or not index.is_there(name, self.groups):
			index = self.large_index = read_all(self)
		self.task_gen_cache_names = index.found
	try:
		return self.task_gen_cache_names[name]
	except KeyError:
		raise Errors.WafError("Could not find a task generator for the name %r" % name) from None


def read_all(bld: Build.BuildContext) -> Index:
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

	Waf compiles the text of each ``bld(rule='...')``, which takes half a millisecond, even if it has compiled the same
	text before. Here equal texts give one function.
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
