"""
The tasks of ``unity``: one writes the file that includes a batch, one compiles it, and others what is set apart.
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Type

from waflib import Context, Runner, Task, Utils
from waflib.Tools import c_preproc

from . import bisect

if TYPE_CHECKING:
	from waflib.Node import Node

	from .unit import Position, Unit


class unity(Task.Task):
	"""Writes the file that includes a batch. It depends on the text of that file only."""

	color = "BLUE"
	hasrun: int
	text: str

	def run(self) -> None:
		self.outputs[0].write(self.text)

	def sig_explicit_deps(self) -> None:
		self.m.update(self.text.encode("utf-8", "surrogateescape"))

	def uid(self) -> bytes:
		digest: bytes = Utils.md5(b"unity" + self.outputs[0].abspath().encode("utf-8", "surrogateescape")).digest()
		return digest

	def __str__(self) -> str:
		node = self.outputs[0]
		path: str = node.path_from(node.ctx.launch_node())
		return path

	def keyword(self) -> str:
		return "Writing"

	def runnable_status(self) -> int:
		"""
		Write the file at once if it has to be written.

		Waf's scheduler would give the task to a thread, and look at all other tasks before it begins with those that
		wait for this one.
		"""
		status: int = super().runnable_status()
		master: Any = getattr(self.generator.bld, "producer", None)
		# another class only tells what would run
		if status == Task.RUN_ME and master.__class__ is Runner.Parallel:
			master.dirty = True
			self.process()
			if self.hasrun == Task.SUCCESS:
				status = Task.SKIP_ME
			else:
				# Waf runs it once more, and shows the error
				self.hasrun = Task.NOT_RUN
		return status


_classes: Dict[Tuple[Type[Task.Task], bool], Type[Task.Task]] = {}


def find_batch_class(base: Type[Task.Task], can_tell: bool) -> Type[Task.Task]:
	"""
	The class of tasks that compile a batch, derived from the class that compiles a file.

	It has the same name, since wscripts order tasks by it, and is not registered, so that ``cxx`` is not changed. It
	replaces only how the command is executed and how headers are found.
	"""
	key = base, can_tell
	if key not in _classes:
		fields = {
			"register": {},
			"exec_command": exec_batch,
			"more_tasks": property(get_more_tasks),
			"hcode": base.hcode,
		}
		if can_tell and base.scan is c_preproc.scan:
			fields.update(scan=scan_batch, compute_sig_implicit_deps=sign_files)
		make: Callable[..., Type[Task.Task]] = type(base)
		_classes[key] = make(base.__name__, (base,), fields)
	return _classes[key]


def scan_batch(task: Task.Task) -> "Tuple[List[Node], List[str]]":
	"""Stands in for Waf's scanner. The plan was made of all these files."""
	unit: Unit = task.unity
	paths = unit.target.find_headers(task.members)
	return [unit.nodes[i] for i in task.members] + [
		unit.remembered.find_node(unit.gen.bld, path) for path in sorted(paths)
	], []


def sign_files(task: Task.Task) -> bytes:
	"""Stands in for Waf's ``compute_sig_implicit_deps``. Files whose digests are known need not be read."""
	batch: Type[Task.Task] = type(task)
	parent: Type[Task.Task] = batch.__mro__[1]
	unit: Unit = task.unity
	bld = unit.gen.bld
	# it raises an error if a file has to be made first
	task.are_implicit_nodes_ready()
	if unit.knows_digests:
		known, find_digest = bld.__dict__.setdefault("cache_sig", {}), unit.remembered.find_digest
		for node in bld.node_deps.get(task.uid(), ()):
			if node not in known:
				digest = find_digest(node.abspath())
				if digest:
					known[node] = digest
	signature: bytes = parent.compute_sig_implicit_deps(task)
	return signature


def get_more_tasks(task: Task.Task) -> Optional[List[Task.Task]]:
	"""The tasks for sources that were set apart. Waf's scheduler asks for them when a batch is compiled."""
	if task.apart and "made" not in task.__dict__:
		task.made = [make_apart(task, i) for i in task.apart]
	made: Optional[List[Task.Task]] = task.__dict__.get("made")
	return made


def exec_batch(task: Task.Task, cmd: object, **kw: Any) -> int:
	"""Stands in for ``exec_command``. Compile a batch, and split it if that fails."""
	batch: Type[Task.Task] = type(task)
	parent: Type[Task.Task] = batch.__mro__[1]
	base: Callable[..., int] = parent.exec_command
	bld = task.generator.bld
	if (
		base is not Task.Task.exec_command
		or type(bld).exec_command is not Context.Context.exec_command
		or "exec_command" in bld.__dict__
		or not isinstance(cmd, list)
	):
		return base(task, cmd, **kw)
	cmd.extend(task.unity.find_maps())
	return bisect.Bisection(task, cmd, kw).compile()


def make_apart(task: Task.Task, i: int) -> Task.Task:
	"""A task for a source that was in a batch. Tasks that wait for the batch wait for it, too, and get its output."""
	from . import grouping

	unit: Unit = task.unity
	bld = task.generator.bld
	gen = unit.gen
	new = unit.make_single(unit.nodes[i])
	new.env = task.env
	node = new.outputs[0]
	positions = gen.unity_positions
	positions[node] = unit.positions[i]
	# the source that gave the batch its position may have been set apart
	positions[task.outputs[0]] = unit.positions[grouping.find_position(task.kept, unit.starts)]
	gen.compiled_tasks.sort(key=lambda each: positions[each.outputs[0]])
	for group in bld.groups:
		for other in group:
			for user in getattr(other, "tasks", [other]):
				wait_for(user, task, new, positions)
	return new


def wait_for(user: Task.Task, task: Task.Task, new: Task.Task, positions: "Dict[Node, Position]") -> None:
	if user is new or user is task:
		return
	for before in list(user.run_after):
		if before is task:
			user.run_after.add(new)
		elif isinstance(before, Task.TaskGroup) and task in before.prev:
			before.prev.add(new)
	if task.outputs[0] in user.inputs:
		user.run_after.add(new)
		slots = [k for k, node in enumerate(user.inputs) if node in positions]
		ours = sorted([user.inputs[k] for k in slots] + new.outputs[:1], key=positions.__getitem__)
		user.inputs.insert(slots[-1] + 1, new.outputs[0])
		for k, node in zip([*slots, slots[-1] + 1], ours):
			user.inputs[k] = node
