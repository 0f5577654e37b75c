"""
Replaces ``runnable_status`` and ``run`` of a task that may share a call with others.

It knows nothing of how calls are made. It tells a pool that the task may run, and the pool does it.
"""

from typing import TYPE_CHECKING, Optional

from waflib import Task

if TYPE_CHECKING:
	from .gathering import Pool
	from .joining import Key, Plan

NEW, WAITING, TAKEN, MADE, ALONE = range(5)


class Member:
	"""A task that may share a call."""

	plan: "Plan"
	"""How it is done with others. It is set when a pool enlists the task."""
	key: "Key"
	"""The properties that it shares with the tasks of its calls."""

	def __init__(self, task: Task.Task, pool: "Pool", size: int) -> None:
		self.task = task
		self.pool = pool
		self.size = size
		self.state = NEW

	def runnable_status(self) -> int:
		"""Stands in for the task's own. A task that may run is enlisted, so that calls of others may take it."""
		if self.state != NEW:
			return Task.RUN_ME
		status: int = type(self.task).runnable_status(self.task)
		if status == Task.RUN_ME:
			self.pool.enlist(self)
		return status

	def run(self) -> Optional[int]:
		"""Stands in for the task's own. If a call has made its outputs, nothing is left to do."""
		if self.state in (WAITING, TAKEN):
			self.pool.settle(self)
		if self.state == MADE:
			return 0
		status: Optional[int] = type(self.task).run(self.task)
		return status

	def record(self) -> None:
		"""Note that the outputs are up to date. ``post_run`` will do so, too, but is not called if the build stops."""
		task = self.task
		if type(task).post_run is Task.Task.post_run and "post_run" not in task.__dict__:
			bld = task.generator.bld
			for node in task.outputs:
				bld.node_sigs[node] = task.uid()
			bld.task_sigs[task.uid()] = task.signature()
