"""
The tasks of ``unity``: one writes the file that includes a batch, one compiles it, and more come if it is parted.
"""

from typing import Any, Dict, List, Tuple

from waflib import Context, Task, Utils
from waflib.Tools import c_preproc

from . import bisect, grouping


class unity(Task.Task):
	"""Writes the file that includes a batch. What it depends on is that text, and it knows it without a scan."""

	color = "BLUE"

	def run(self) -> None:
		self.outputs[0].write(self.text)

	def sig_explicit_deps(self) -> None:
		self.m.update(self.text.encode("utf-8", "surrogateescape"))

	def uid(self) -> bytes:
		return Utils.md5(b"unity" + self.outputs[0].abspath().encode("utf-8", "surrogateescape")).digest()

	def __str__(self) -> str:
		node = self.outputs[0]
		return node.path_from(node.ctx.launch_node())

	def keyword(self) -> str:
		return "Writing"


_classes: Dict[Any, Any] = {}


def find_batch_class(base: Any, can_tell: bool) -> Any:
	"""
	The class of tasks that compile a batch, made of the one that compiles a file.

	It has the same name, for those who order tasks by it, and is not registered: ``cxx`` stays what it was. All that it
	replaces is how the command is executed and how headers are found, so that what others know of ``cxx`` holds for it.
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
			fields["scan"] = scan_batch
		_classes[key] = type(base)(base.__name__, (base,), fields)
	return _classes[key]


def scan_batch(task: Any) -> Tuple[List[Any], List[str]]:
	"""In place of Waf's scanner: the plan was made of all these files."""
	unit = task.unity
	files, headers = unit.target.plan["files"], unit.target.plan["headers"]
	paths = {files[number] for i in task.members for number in headers[i]}
	return [unit.nodes[i] for i in task.members] + [
		unit.book.find_node(unit.gen.bld, path) for path in sorted(paths)
	], []


def get_more_tasks(task: Any) -> Any:
	"""Asked by Waf's scheduler in its own thread when a batch is compiled: tasks for what was set apart."""
	if task.apart and "made" not in task.__dict__:
		task.made = [make_apart(task, i) for i in task.apart]
	return task.__dict__.get("made")


def exec_batch(task: Any, cmd: Any, **kw: Any) -> int:
	"""In place of ``exec_command``: compile a batch, and part it if it does not compile."""
	base = type(task).__mro__[1].exec_command
	bld = task.generator.bld
	if (
		base is not Task.Task.exec_command
		or type(bld).exec_command is not Context.Context.exec_command
		or "exec_command" in bld.__dict__
		or not isinstance(cmd, list)
	):
		return base(task, cmd, **kw)
	cmd.extend(task.unity.find_maps())
	return bisect.Parting(task, cmd, kw).compile()


def make_apart(task: Any, i: int) -> Any:
	"""A task for a source that was in a batch; whoever waits for the batch waits for it, and gets what it makes."""
	unit, bld = task.unity, task.generator.bld
	gen = unit.gen
	new = unit.make_single(unit.nodes[i])
	new.env = task.env
	node = new.outputs[0]
	places = gen.unity_places
	places[node] = unit.places[i]
	# the batch may have lost what gave it its place
	places[task.outputs[0]] = unit.places[grouping.find_place(task.kept, unit.starts)]
	gen.compiled_tasks.sort(key=lambda each: places[each.outputs[0]])
	for group in bld.groups:
		for other in group:
			for user in getattr(other, "tasks", [other]):
				wait_for(user, task, new, places)
	return new


def wait_for(user: Any, task: Any, new: Any, places: Dict[Any, Any]) -> None:
	if user is new or user is task:
		return
	for before in list(user.run_after):
		if before is task:
			user.run_after.add(new)
		elif isinstance(before, Task.TaskGroup) and task in before.prev:
			before.prev.add(new)
	if task.outputs[0] in user.inputs:
		user.run_after.add(new)
		slots = [k for k, node in enumerate(user.inputs) if node in places]
		ours = sorted([user.inputs[k] for k in slots] + new.outputs[:1], key=places.__getitem__)
		user.inputs.insert(slots[-1] + 1, new.outputs[0])
		for k, node in zip([*slots, slots[-1] + 1], ours):
			user.inputs[k] = node
