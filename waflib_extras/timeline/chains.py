"""
Which task waited for which: the graph of tasks as it was when a build began, and the longest chain through it.

Pure: it knows seconds and objects with ``run_after``, and no build.
"""

from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

if TYPE_CHECKING:
	from waflib.Task import Task, TaskGroup


Waiting = Union["Task", "TaskGroup"]
Heirs = Tuple["TaskGroup", Iterable["Task"]]
"""A group of tasks, and the tasks that wait for it."""


class Ran(NamedTuple):
	"""A task that ran."""

	task: "Task"
	start: float
	end: float
	stage: int
	"""The number of its build group. The tasks of a group begin when all of the group before have ended."""
	worked: float
	"""Its seconds, without those in which it waited for a slot."""


class Link(NamedTuple):
	"""A task, or a group of tasks, in the graph."""

	length: float
	"""The length of the longest chain that ends with it, in seconds."""
	before: int
	"""The number of the task before it in that chain; -1 if it is the first one."""
	ready: float
	"""When its last dependency ended."""
	blocker: int
	"""The number of that dependency; -1 if it has none."""


NOTHING = Link(0.0, -1, 0.0, -1)


class Chains:
	"""The chains of tasks that ran. Tasks are known by their numbers."""

	def __init__(
		self,
		ran: List[Ran],
		groups: "Mapping[TaskGroup, Iterable[Task]]",
		heirs: "Iterable[Heirs]",
		makers: "Dict[Task, Task]",
	) -> None:
		"""``groups`` has the members of groups, ``heirs`` the tasks that wait for a group, ``makers`` is by task."""
		self.ran = ran
		self.groups = groups
		self.makers = makers
		self.numbers = {each.task: number for number, each in enumerate(ran)}
		self.of: Dict[Task, List[TaskGroup]] = {}
		"""By task: the groups that it waited for, which Waf has removed from the task."""
		for group, waiting in heirs:
			for task in waiting:
				self.of.setdefault(task, []).append(group)
		self.links: Dict[Waiting, Link] = {}
		self.stage = NOTHING
		"""The link that everything in this build group waits for."""
		self.measure()

	def list_before(self, node: "Waiting") -> "Iterable[Waiting]":
		"""The dependencies of a task or of a group."""
		if node in self.groups:
			return self.groups[node]
		found = list(getattr(node, "run_after", ()))
		found += self.of.get(node, ())
		if node in self.makers:
			found.append(self.makers[node])
		return found

	def measure(self) -> None:
		"""Find the link of each task, build group by build group."""
		longest = NOTHING
		stage = 0
		for number in sorted(range(len(self.ran)), key=lambda n: self.ran[n].stage):
			each = self.ran[number]
			if each.stage != stage:
				stage, self.stage = each.stage, longest
			link = self.find(each.task)
			if link.length >= longest.length:
				longest = Link(link.length, number, longest.ready, longest.blocker)
			if each.end >= longest.ready:
				longest = Link(longest.length, longest.before, each.end, number)

	def find(self, node: "Waiting") -> Link:
		"""The link of a node. It is found without recursion, as chains are longer than Python's stack."""
		links, under_way = self.links, set()
		left = [node]
		while left:
			current = left[-1]
			if current in links:
				left.pop()
				continue
			before = self.list_before(current)
			if current not in under_way:
				under_way.add(current)
				missing = [other for other in before if other not in links and other not in under_way]
				if missing:
					left += missing
					continue
			left.pop()
			links[current] = self.join(current, before)
		return links[node]

	def join(self, node: "Waiting", before: "Iterable[Waiting]") -> Link:
		number = self.numbers.get(node)
		found = NOTHING if number is None else self.stage
		length, last, ready, blocker = found
		for other in before:
			link = self.links.get(other)
			if link is None:
				# the dependency closes a circle
				continue
			own = self.numbers.get(other)
			if link.length > length or (link.length == length and last < 0):
				length, last = link.length, link.before if own is None else own
			end, who = (link.ready, link.blocker) if own is None else (self.ran[own].end, own)
			if end > ready:
				ready, blocker = end, who
		if number is not None:
			length += self.ran[number].worked
		return Link(length, last, ready, blocker)

	def link(self, number: int) -> Link:
		return self.links[self.ran[number].task]

	def longest(self) -> List[int]:
		"""The numbers of the tasks in the longest chain, the first one first."""
		numbers: List[int] = []
		if self.ran:
			last: Optional[int] = max(range(len(self.ran)), key=lambda n: (self.link(n).length, -n))
			while last is not None and last >= 0:
				numbers.append(last)
				last = self.link(last).before
		return numbers[::-1]
