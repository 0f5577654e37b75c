"""
Reads a source in the order of the compiler, and tells whether it may begin with headers that are read before it.

Headers of the project are read. Those from outside are known by name only: they are what is precompiled. Headers that
come first must have the effect that they have in their place. So nothing before that place may define a macro that
they use, and they may not lie within braces.
"""

import re
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence

from waflib import Node, Task
from waflib.Tools import c_preproc

WORD = re.compile(r"[A-Za-z_]\w*")
INCLUDE = re.compile(r"\s*(?:#|%:)\s*(?:include|import)\b")
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
HARMLESS = re.compile(r"once\b|message\b|GCC\s+(?:diagnostic|warning|error)\b|mark\b|region\b|endregion\b")
"""Pragmas that change nothing of what is read after them."""
FIRST = ("Python.h",)
"""Headers that have to be read before all of the system's: they decide what those declare."""


class Place(NamedTuple):
	"""Where a source reads a header from outside for the first time."""

	before: int
	"""So many changes of macros come before it."""
	others: int
	"""So many other headers from outside come before it."""
	nested: str
	"""The file in which braces are open around it; empty if there are none."""


class Reading(c_preproc.c_parser):
	"""One source."""

	def __init__(self, folders: Sequence[Node.Node]) -> None:
		super().__init__(folders)
		self.outside: Dict[str, Place] = {}
		"""By the name with which it is included."""
		self.changes: List[str] = []
		"""The macros that are defined or undefined, and pragmas, in order. ``#undef`` counts from the file's begin."""
		self.files: List[Node.Node] = []
		"""The file that is being read, and those that include it."""

	def tryfind(self, filename: str, kind: str = '"', env: object = None) -> Optional[Node.Node]:
		found: Optional[Node.Node] = super().tryfind(filename, kind, env)
		if found is None and filename not in self.outside:
			self.leave_files()
			nested = next((node.name for node in self.files if self.find_brace(node)), "")
			self.outside[filename] = Place(len(self.changes), len(self.outside), nested)
		return found

	def addlines(self, node: Node.Node) -> None:
		self.leave_files()
		self.files.append(node)
		super().addlines(node)
		for kind, line in self.parse_lines(node):
			if kind == "undef":
				self.changes.append(line.strip().partition(" ")[0])
			elif kind == "pragma" and not HARMLESS.match(line.strip()):
				self.changes.append("#pragma " + line.strip())

	def leave_files(self) -> None:
		"""Forget the files that have ended. Waf's parser keeps the folders of the others."""
		del self.files[len(self.currentnode_stack) :]

	def define_name(self, line: str) -> str:
		name: str = super().define_name(line)
		self.changes.append(name)
		return name

	def find_brace(self, node: Node.Node) -> bool:
		"""Tell whether a file includes anything within braces, as of ``extern "C"``."""
		known: Dict[Node.Node, bool] = node.ctx.__dict__.setdefault("pch_braces", {})
		if node not in known:
			known[node] = includes_within_braces(node.read(encoding="latin-1"))
		return known[node]


def includes_within_braces(text: str) -> bool:
	text = c_preproc.re_cpp.sub(c_preproc.repl, c_preproc.re_nl.sub("", text))
	depth = 0
	for line in text.splitlines():
		if INCLUDE.match(line):
			if depth > 0:
				return True
		elif not line.lstrip().startswith("#"):
			bare = LITERAL.sub("", line)
			depth += bare.count("{") - bare.count("}")
	return False


def read(task: Task.Task) -> Reading:
	"""Read the source of a task. Generated headers that are not there yet count as headers from outside."""
	gen = task.generator
	bld = gen.bld
	folders = [node for node in gen.includes_nodes if node.is_child_of(bld.srcnode) or node.is_child_of(bld.bldnode)]
	reading = Reading(folders)
	reading.start(task.inputs[0], task.env)
	return reading


def find_obstacle(reading: Reading, headers: Sequence[str], words: FrozenSet[str], given: int) -> str:
	"""
	Why a source may not begin with these headers; empty if it may.

	``words`` are all that occur in the headers, and ``given`` is the number of macros of the command line, with which
	the headers were read, too.
	"""
	missing = [name for name in headers if name not in reading.outside]
	if missing:
		return "it does not read <%s>" % missing[0]
	places = [reading.outside[name] for name in headers]
	nested = next((place.nested for place in places if place.nested), "")
	if nested:
		return "%s includes headers within braces" % nested
	for change in reading.changes[given : max(place.before for place in places)]:
		if change in words:
			return "it defines %s before it reads <%s>" % (change, headers[-1])
		if change.startswith("#"):
			return "it has %s before it reads <%s>" % (change, headers[-1])
	last = max(place.others for place in places)
	for name, place in reading.outside.items():
		if name in FIRST and name not in headers and place.others < last:
			return "it reads <%s> first" % name
	return ""
