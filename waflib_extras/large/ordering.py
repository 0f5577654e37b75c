"""
Patches for the order of a build group's tasks: Waf's constraints, found in a time proportional to their number.
"""

from typing import Any, Dict, Iterator, List, Set, Tuple, Union

from waflib import Errors, Node, Runner, Task, Utils

from ..hooks import patch

Waiting = Union["Task.Task", "Task.TaskGroup"]
"""A task, or a group of tasks, that waits for tasks."""


class Precedence(patch.Patch):
	"""
	Which kinds of tasks go before which, by ``ext_in`` and ``ext_out``, ``before`` and ``after``.

	Waf compares each kind with each other one. A kind is a class with its constraints, and each ``bld(rule=...)`` with
	a target makes a class, so 10,000 rules are 50 million comparisons. Here kinds are looked up by word and by name.
	"""

	name = "precedence"
	topic = "which kinds of tasks go before which"
	known = {
		"Task.set_precedence_constraints": ("9fbdb4b57c14",),
		"Task.is_before": ("f21f827905cd",),
		"Task.Task.hash_constraints": ("d1cefca1d063",),
	}

	def install(self) -> None:
		stock = Task.set_precedence_constraints

		def set_precedence_constraints(tasks: List[Task.Task]) -> None:
			kinds: Dict[object, List[Task.Task]] = {}
			for task in tasks:
				kinds.setdefault(task.hash_constraints(), []).append(task)
			if len(kinds) < 2:
				return
			try:
				words = [Words(kind[0]) for kind in kinds.values()]
			except TypeError:
				# a value in these lists cannot be hashed
				stock(tasks)
				return
			lists = list(kinds.values())
			for first, second in find_pairs(lists, words):
				follow(lists[first], lists[second])

		self.replace("Task.set_precedence_constraints", set_precedence_constraints)


class Words:
	"""The constraints of a kind of tasks."""

	__slots__ = ("after", "before", "ext_in", "ext_out", "name")

	def __init__(self, task: Task.Task) -> None:
		self.name = task.__class__.__name__
		self.after = frozenset(Utils.to_list(task.after))
		self.before = frozenset(Utils.to_list(task.before))
		self.ext_in = frozenset(Utils.to_list(task.ext_in))
		self.ext_out = frozenset(Utils.to_list(task.ext_out))


def find_pairs(kinds: List[List[Task.Task]], words: List[Words]) -> Iterator[Tuple[int, int]]:
	"""The pairs of kinds, by number, of which the first goes before the second."""
	names: Dict[str, List[int]] = {}
	makers: Dict[str, List[int]] = {}
	before: Dict[str, List[int]] = {}
	for number, own in enumerate(words):
		names.setdefault(own.name, []).append(number)
		for word in own.ext_out:
			makers.setdefault(word, []).append(number)
		for word in own.before:
			before.setdefault(word, []).append(number)
	for number, own in enumerate(words):
		found = set(before.get(own.name, ()))
		for word in own.ext_in:
			found.update(makers.get(word, ()))
		for word in own.after:
			found.update(names.get(word, ()))
		found.discard(number)
		for other in sorted(found):
			# if each has to go before the other, Waf puts the earlier one first
			if other < number or not Task.is_before(kinds[number][0], kinds[other][0]):
				yield other, number


def follow(first: List[Task.Task], second: List[Task.Task]) -> None:
	"""Let the tasks of the second kind run after those of the first, in the way of this version of Waf."""
	if len(first) < 2 or len(second) < 2:
		for task in second:
			task.run_after.update(first)
		return
	group = Task.TaskGroup(set(first), set(second))
	for task in second:
		task.run_after.add(group)


class Files(patch.Patch):
	"""
	Which tasks write files that others read.

	Waf makes a set of 200 bytes for each file that is read and for each that is written, only to find the files that
	are both. With 500,000 tasks these are 100 MB. Here there is one table of the tasks that write files.
	"""

	name = "files"
	topic = "which tasks make what others read"
	known = {"Task.set_file_constraints": ("7dc7be4b7b52",)}

	def install(self) -> None:
		self.replace("Task.set_file_constraints", set_file_constraints)


def set_file_constraints(tasks: List[Task.Task]) -> None:
	makers: Dict[Node.Node, Task.Task] = {}
	shared: Dict[Node.Node, List[Task.Task]] = {}
	for task in tasks:
		for node in task.outputs:
			first = makers.setdefault(node, task)
			if first is not task:
				shared.setdefault(node, [first]).append(task)
	for task in tasks:
		for nodes in (task.inputs, task.dep_nodes):
			for node in nodes:
				maker = makers.get(node)
				if maker is not None:
					if node in shared:
						task.run_after.update(shared[node])
					else:
						task.run_after.add(maker)


class Recursion(patch.Patch):
	"""
	The priority of a task, which is a sum over those that wait for it, and the search for cycles.

	Waf's function calls itself for each task that waits, so a chain of a thousand tasks ends with a RecursionError. It
	also computes the sum over all tasks that wait for a group once for each member of the group. Here a loop with a
	stack computes each sum once.
	"""

	name = "recursion"
	topic = "priorities and cycles"
	known = {"Runner.Parallel.prio_and_split": ("10fd3713c5d4",), "Runner.Parallel.debug_cycles": ("673543b30f97",)}

	def install(self) -> None:
		self.replace("Runner.Parallel.prio_and_split", prio_and_split)
		self.replace("Runner.Parallel.debug_cycles", debug_cycles)


def prio_and_split(self: Runner.Parallel, tasks: List[Task.Task]) -> Tuple[List[Task.Task], List[Task.Task]]:
	for task in tasks:
		task.visited = 0
	reverse = self.revdeps
	note_dependents(tasks, reverse)
	sums: Dict[Waiting, int] = {}
	for task in tasks:
		if task.visited == 0:
			try:
				rank(task, reverse, sums)
			except Errors.WafError:
				self.debug_cycles(tasks, reverse)
	ready, waiting = [], []
	for task in tasks:
		for other in task.run_after:
			if not other.hasrun:
				waiting.append(task)
				break
		else:
			ready.append(task)
	return ready, waiting


def note_dependents(tasks: List[Task.Task], reverse: Dict[Task.Task, Set[Waiting]]) -> None:
	"""Note for each task and group which ones wait for it."""
	groups = set()
	for task in tasks:
		for other in task.run_after:
			if not isinstance(other, Task.TaskGroup):
				reverse[other].add(task)
			elif other not in groups:
				groups.add(other)
				for first in other.prev:
					reverse[first].add(other)


def rank(start: Task.Task, reverse: Dict[Task.Task, Set[Waiting]], sums: "Dict[Waiting, int]") -> None:
	"""Compute the priorities of a task and of all that wait for it."""
	if start not in reverse:
		start.prio_order = start.tree_weight
		start.visited = 2
		return
	start.visited = 1
	frames: List[List[Any]] = [[start, iter(reverse[start]), 0]]
	while frames:
		frame = frames[-1]
		for child in frame[1]:
			if isinstance(child, Task.TaskGroup):
				if child not in sums:
					frames.append([child, iter(child.next), 0])
					break
				frame[2] += sums[child]
			elif child.visited == 0:
				child.visited = 1
				frames.append([child, iter(reverse.get(child, ())), 0])
				break
			elif child.visited == 1:
				raise Errors.WafError("Dependency cycle found!")
			else:
				frame[2] += child.prio_order
		else:
			frames.pop()
			node, _, total = frame
			if isinstance(node, Task.TaskGroup):
				sums[node] = total
			else:
				total += node.tree_weight + len(reverse.get(node, ()))
				node.prio_order = total
				node.visited = 2
			if frames:
				frames[-1][2] += total


def debug_cycles(self: Runner.Parallel, tasks: List[Task.Task], reverse: Dict[Task.Task, Set[Waiting]]) -> None:
	state = dict.fromkeys(tasks, 0)
	for task in tasks:
		if not state[task]:
			find_cycle(task, reverse, state)


def find_cycle(start: Task.Task, reverse: Dict[Task.Task, Set[Waiting]], state: "Dict[Waiting, int]") -> None:
	"""Name a cycle that this task leads into, if there is one."""
	state[start] = 1
	frames: List[Tuple[Waiting, Iterator[Waiting]]] = [(start, iter(reverse.get(start, ())))]
	while frames:
		for child in frames[-1][1]:
			if isinstance(child, Task.TaskGroup):
				frames.append((child, iter(child.next)))
				break
			if state.get(child, 0) == 1:
				names = []
				for node, _ in reversed(frames):
					if not isinstance(node, Task.TaskGroup):
						names.append(repr(node))
						if node is child:
							break
				raise Errors.WafError('Task dependency cycle in "run_after" constraints: %s' % "".join(names))
			if not state.get(child, 0):
				state[child] = 1
				frames.append((child, iter(reverse.get(child, ()))))
				break
		else:
			state[frames.pop()[0]] = 2
