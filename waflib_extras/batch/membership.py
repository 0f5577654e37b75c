"""
A task that may share a call with others: what stands in for its ``runnable_status`` and its ``run``.

Knows nothing of how calls are made: a pool is told that the task may run, and settles what becomes of it.
"""

from typing import Any

from waflib import Task

NEW, WAITING, TAKEN, MADE, ALONE = range(5)


class Member:
	"""A task that may share a call; its ``runnable_status`` and ``run`` are ours."""

	def __init__(self, task: Any, pool: Any, size: int) -> None:
		self.task = task
		self.pool = pool
		self.size = size
		self.state = NEW
		self.plan: Any = None
		self.key: Any = None

	def runnable_status(self) -> int:
		"""In place of the task's own: when it may run, others may take it into their calls."""
		if self.state != NEW:
			return Task.RUN_ME
		status = type(self.task).runnable_status(self.task)
		if status == Task.RUN_ME:
			self.pool.enlist(self)
		return status

	def run(self) -> Any:
		"""In place of the task's own: nothing is left to do if a call has made its outputs."""
		if self.state in (WAITING, TAKEN):
			self.pool.settle(self)
		return 0 if self.state == MADE else type(self.task).run(self.task)

	def record(self) -> None:
		"""Note that the outputs are up to date, as ``post_run`` will: it is not called any more if the build stops."""
		task = self.task
		if type(task).post_run is Task.Task.post_run and "post_run" not in task.__dict__:
			bld = task.generator.bld
			for node in task.outputs:
				bld.node_sigs[node] = task.uid()
			bld.task_sigs[task.uid()] = task.signature()
