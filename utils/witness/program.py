"""
Random programs that start each other, and their actions. Pure: the same seed makes the same program.
"""

import random
from typing import List, NamedTuple, Optional, Tuple

from .action import ARGUMENTS, Action

DEPTH = 3  # programs that start each other
SHELL = (
	"cat a.txt >/dev/null",
	"test -e absent",
	"cat < b.txt > new1",
	"(cd dir && cat c.txt >/dev/null)",
	"cd dir",
	"for f in *; do :; done",
	"ls dir >/dev/null",
	"[ a.txt -nt b.txt ]",
	"read x < a.txt",
	"echo x >> new2",
	"command -v nothing-of-this-name",
	"cp a.txt new3",
	"ln -s a.txt new4",
	"mv new3 new5 2>/dev/null",
	"rm -f new4",
	"mkdir -p dir/sub/more",
	"cat /dev/stdin < dir/c.txt >/dev/null",
	"cat /proc/self/fd/0 < dir/c.txt >/dev/null",
	"pwd >/dev/null",
	"readlink -f dirlink/c.txt >/dev/null",
	"find . -name '*.txt' >/dev/null",
	"touch a.txt",
	"[ -L link ] && stat link >/dev/null",
	"exec 7< a.txt; cat <&7 >/dev/null",
)


class Flavour(NamedTuple):
	"""How a program is linked, or what runs it."""

	name: str
	weight: int
	actions: str = "libc"  # or bare, or shell
	program: str = ""  # that of this name runs it, with a line of its own; else it is one itself


FLAVOURS = (
	Flavour("dynamic", 60),
	Flavour("linked", 3),  # with a library, which is looked for in several folders
	Flavour("static", 4),
	Flavour("static-pie", 3),
	Flavour("setuid", 3),
	Flavour("bare", 3, "bare"),
	Flavour("bare32", 3, "bare"),
	Flavour("free", 3, "bare"),
	Flavour("shell", 9, "shell", "/bin/sh"),
	Flavour("unmarked", 2, "shell", "/bin/sh"),  # without #!, so that the kernel refuses it and libc may call a shell
	Flavour("by-dynamic", 6, "libc", "dynamic"),
	Flavour("by-relative", 2, "libc", "dynamic"),
	Flavour("by-static", 2, "libc", "static"),
	Flavour("by-bare", 2, "bare", "bare"),
)


class Step(NamedTuple):
	action: str
	arguments: Tuple[str, ...] = ()
	environment: str = "WHOLE"
	child: Optional["Node"] = None
	is_absolute: bool = False  # how the child is called


class Node(NamedTuple):
	"""A program that is started."""

	flavour: Flavour
	steps: Tuple[Step, ...]

	def walk(self) -> List["Node"]:
		"""It, and all that it starts."""
		return [self] + [node for step in self.steps if step.child for node in step.child.walk()]

	def size(self) -> int:
		return sum(1 + len(node.steps) for node in self.walk())

	def tell_kind(self) -> str:
		"""Which actions in which programs, without what they are given."""
		steps = []
		for step in self.steps:
			name = step.action or step.arguments[0]
			steps.append("%s %s" % (name, step.child.tell_kind()) if step.child else name)
		return "%s(%s)" % (self.flavour.name, ", ".join(steps))

	def tell(self, indent: str = "") -> str:
		lines = [indent + self.flavour.name]
		for step in self.steps:
			words = [step.action, *step.arguments, *([step.environment] if step.child else [])]
			lines.append(indent + "  " + " ".join(words))
			if step.child:
				lines.append(step.child.tell(indent + "    "))
		return "\n".join(lines)


class Chooser:
	"""Draws programs of those actions and flavours that are to be had here."""

	def __init__(self, actions: List[Action], flavours: List[str]) -> None:
		self.flavours = [flavour for flavour in FLAVOURS if flavour.name in flavours]
		self.actions = actions

	def choose_program(self, rng: random.Random) -> Node:
		"""Few kinds of actions each: else nearly all programs would do something that cannot be observed."""
		libc = [a for a in self.actions if not a.is_bare]
		calm = [a for a in libc if not a.is_raw and not a.is_start]
		chosen = rng.sample(calm, rng.randint(1, min(6, len(calm)))) if calm else []
		raw = [a for a in libc if a.is_raw]
		if raw and rng.random() < 0.2:
			chosen.append(rng.choice(raw))
		starts = [a for a in libc if a.is_start]
		if starts and rng.random() < 0.6:
			chosen += rng.sample(starts, rng.randint(1, min(3, len(starts))))
		return self.choose_node(rng, chosen, 0)

	def choose_node(self, rng: random.Random, chosen: List[Action], depth: int) -> Node:
		if depth == 0:
			firsts = [flavour for flavour in self.flavours if flavour.name != "unmarked"]
			flavour = rng.choices(firsts, [f.weight * (4 if f.name == "dynamic" else 1) for f in firsts])[0]
		else:
			flavour = rng.choices(self.flavours, [f.weight for f in self.flavours])[0]
		count = min(rng.randint(1, 6), rng.randint(1, 6))
		actions = [a for a in self.actions if a.is_bare] if flavour.actions == "bare" else chosen
		steps = []
		for _ in range(count):
			if flavour.actions == "shell":
				steps.append(self.choose_line(rng, chosen, depth))
				continue
			action = rng.choice(actions)
			if not action.is_start:
				steps.append(choose_step(rng, action))
			elif depth < DEPTH:
				steps.append(self.choose_start(rng, action, chosen, depth))
		return Node(flavour, tuple(steps))

	def choose_start(self, rng: random.Random, action: Action, chosen: List[Action], depth: int) -> Step:
		child = self.choose_node(rng, chosen, depth + 1)
		environment = rng.choice(("WHOLE", "WHOLE", "CUT", "EMPTY"))
		return Step(action.name, (), environment, child, rng.random() < 0.4)

	def choose_line(self, rng: random.Random, chosen: List[Action], depth: int) -> Step:
		if depth < DEPTH and rng.random() < 0.3:
			return Step("", ("start",), "WHOLE", self.choose_node(rng, chosen, depth + 1), rng.random() < 0.4)
		return Step("", (rng.choice(SHELL),))


def choose_step(rng: random.Random, action: Action) -> Step:
	return Step(action.name, tuple(rng.choice(drawn) for drawn in ARGUMENTS[action.role]))


def list_singles(chooser: Chooser, few: int = 3) -> List[Node]:
	"""The smallest programs: each action by itself, and each flavour, called in the plainest way."""
	flavours = {flavour.name: flavour for flavour in chooser.flavours}
	dynamic = flavours["dynamic"]
	child = Node(dynamic, (Step("do_stat", ("a.txt",)),))
	found = []
	for action in chooser.actions:
		if action.is_bare:
			continue
		if action.is_start:
			found.append(Node(dynamic, (Step(action.name, (), "WHOLE", child),)))
			found.append(Node(dynamic, (Step(action.name, (), "EMPTY", child, True),)))
			continue
		drawn = ARGUMENTS[action.role]
		for i in range(max([min(len(one), few) for one in drawn], default=1)):
			found.append(Node(dynamic, (Step(action.name, tuple(one[i % len(one)] for one in drawn)),)))
	for line in SHELL:
		found.append(Node(flavours["shell"], (Step("", (line,)),)))
	for flavour in chooser.flavours:
		libc, bare = (Step("do_stat", ("a.txt",)),), (Step("bare_nothing"),)
		steps = {"libc": libc, "bare": bare, "shell": (Step("", ("read x < a.txt",)),)}[flavour.actions]
		one = Node(flavour, steps)
		if flavour.name != "unmarked":
			found += [one, Node(flavour, ())]
		grandparent = Node(
			flavour, (Step("bare_start" if flavour.actions == "bare" else "start_execve", (), "WHOLE", child),)
		)
		if flavour.actions != "shell":
			found.append(grandparent)
			found.append(Node(dynamic, (Step("start_execve", (), "WHOLE", grandparent),)))
		for start in ("execve", "vfork", "spawn", "system", "fexecve", "execvp", "execveat"):
			found.append(Node(dynamic, (Step("start_" + start, (), "WHOLE", one),)))
	return found
