"""A program's C, and its scripts."""

from typing import Dict, List, NamedTuple, Tuple

from .action import Action
from .program import Node, Step

ROOM = 64  # numbers for each program of a batch


class Call(NamedTuple):
	"""How a program is started, with @ for the folder."""

	path: str
	number: str  # empty for a script

	@property
	def words(self) -> List[str]:
		return [self.path, self.number] if self.number else [self.path]


class Text(NamedTuple):
	"""The sources of a batch of programs."""

	libc: str
	own: str  # with system calls by its own instructions
	bare: str
	scripts: Dict[str, Tuple[str, int]]  # name below the yard, text with @, and the number of the program whose it is
	calls: List[Call]  # of each program


def quote(text: str) -> str:
	"""A text as a C string, with ROOT in place of @."""
	head, at, tail = text.partition("@")
	return '%sROOT "%s"' % ('"%s" ' % head if head else "", tail) if at else '"%s"' % head


class Writer:
	"""Writes a batch of programs."""

	def __init__(self, actions: List[Action]) -> None:
		self.actions = actions
		self.own = {action.name for action in actions if action.is_own}
		self.cases: Dict[str, List[str]] = {"libc": [], "own": [], "bare": []}
		self.scripts: Dict[str, Tuple[str, int]] = {}

	def write(self, programs: List[Node]) -> Text:
		calls = []
		for slot, program in enumerate(programs):
			nodes = program.walk()
			if len(nodes) > ROOM:
				raise ValueError("a program of %d programs" % len(nodes))
			numbers = {id(node): slot * ROOM + n for n, node in enumerate(nodes)}
			for node in nodes:
				self.write_node(node, numbers, slot)
			calls.append(self.call(program, numbers, True))
		return Text(self.join("libc"), self.join("own"), self.join("bare"), self.scripts, calls)

	def join(self, which: str) -> str:
		declared = [a.declare() for a in self.actions if a.is_bare == (which == "bare")]
		head = (
			'#include "action.h"\n\n%s\nvoid run_node(int number);\nvoid run_node(int number) {\n\tswitch (number) {\n'
		)
		return head % "".join(declared) + "".join(self.cases[which]) + "\tdefault:\n\t\t__builtin_trap();\n\t}\n}\n"

	def call(self, node: Node, numbers: Dict[int, int], is_absolute: bool) -> Call:
		number = numbers[id(node)]
		if node.flavour.program:
			return Call(("@/yard/s%d" if is_absolute else "./s%d") % number, "")
		return Call(("@/bin/" if is_absolute else "bin/") + self.name_program(node, node.flavour.name), str(number))

	def has_own(self, node: Node) -> bool:
		return node.flavour.actions == "libc" and any(step.action in self.own for step in node.steps)

	def name_program(self, node: Node, flavour: str) -> str:
		return flavour + "-own" if self.has_own(node) else flavour

	def write_node(self, node: Node, numbers: Dict[int, int], slot: int) -> None:
		number, flavour = numbers[id(node)], node.flavour
		if flavour.program:
			program = self.name_program(node, flavour.program)
			interpreter = program if program[0] == "/" else "@/bin/" + program
			if flavour.name == "by-relative":
				interpreter = "bin/" + program
			lines = ["#!" + interpreter if flavour.actions == "shell" else "#!%s %d" % (interpreter, number)]
			if flavour.actions == "shell":
				lines = [] if flavour.name == "unmarked" else lines
				lines += [self.write_line(step, numbers) for step in node.steps]
			self.scripts["s%d" % number] = ("\n".join([*lines, ""]), slot)
		if flavour.actions != "shell":
			body = "".join("\t\t%s\n" % self.write_step(step, numbers) for step in node.steps)
			self.cases["own" if self.has_own(node) else flavour.actions].append(
				"\tcase %d:\n%s\t\tbreak;\n" % (number, body)
			)

	def write_line(self, step: Step, numbers: Dict[int, int]) -> str:
		if step.child:
			return " ".join(self.call(step.child, numbers, step.is_absolute).words)
		return step.arguments[0]

	def write_step(self, step: Step, numbers: Dict[int, int]) -> str:
		if step.child:
			words = [quote(word) for word in self.call(step.child, numbers, step.is_absolute).words]
			return "%s((char *[]){%s, 0, 0}, %s);" % (step.action, ", ".join(words), step.environment)
		return "%s(%s);" % (step.action, ", ".join(map(quote, step.arguments)))
