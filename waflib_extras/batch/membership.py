"""
A task that may share a call with others: what stands in for its ``runnable_status`` and its ``run``.

Knows nothing of how calls are made: a pool is told that the task may run, and settles what becomes of it.
"""

from typing import TYPE_CHECKING, Optional

from waflib import Task

if TYPE_CHECKING:
	from .gathering import Pool
	from .joining import Key, Plan

NEW, WAITING, TAKEN, MADE, ALONE = range(5)


class Member:
	"""A task that may share a call; its ``runnable_status`` and ``run`` are ours."""

	plan: "Plan"
	"""How it is done with others; not before a pool has enlisted it."""
	key: "Key"
	"""What is the same for all with which it may share a call."""

	def __init__(self, task: Task.Task, pool: "Pool", size: int) -> None:
		self.task = task
		self.pool = pool
		self.size = size
		self.state = NEW

	def runnable_status(self) -> int:
		"""In place of the task's own: when it may run, others may take it into their calls."""
		if self.state != NEW:
			return Task.RUN_ME
		status: int = type(self.task).runnable_status(self.task)
		if status == Task.RUN_ME:
			self.pool.enlist(self)
		return status

	def run(self) -> Optional[int]:
		"""In place of the task's own: nothing is left to do if a call has made its outputs."""
		if self.state in (WAITING, TAKEN):
			self.pool.settle(self)
		if self.state == MADE:
			return 0
		status: Optional[int] = type(self.task).run(self.task)
		return status

	def record(self) -> None:
		"""Note that the outputs are up to date, as ``post_run`` will: it is not called any more if the build stops."""
		task = self.task
		if type(task).post_run is Task.Task.post_run and "post_run" not in task.__dict__:
			bld = task.generator.bld
			for node in task.outputs:
				bld.node_sigs[node] = task.uid()
			bld.task_sigs[task.uid()] = task.signature()
