"""
A job in the foreground that builds disturb: processes that repeat the same work and count.

They note their counts in a file that is read while they run. Each runs ``projects/worker.py``.
"""

import mmap
import os
import struct
import subprocess
import sys
import time
from types import TracebackType
from typing import Dict, List, Optional, Type

from .interrupt import INTERRUPTS
from .mistake import Failed

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "projects", "worker.py")
COUNT = struct.Struct("=Q")
PATIENCE = 30.0


class Foreground:
	"""The running job. It has a session of its own, as a job in another terminal has."""

	def __init__(self, path: str, workers: int, environment: Dict[str, str]) -> None:
		self.workers = workers
		with open(path, "w+b") as f:
			f.truncate(workers * COUNT.size)
			self.counts = mmap.mmap(f.fileno(), workers * COUNT.size)
		self.children: List[subprocess.Popen[bytes]] = []
		with INTERRUPTS.held():
			for number in range(workers):
				argv = [sys.executable, WORKER, path, str(number)]
				self.children.append(
					subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
				)

	def __enter__(self) -> "Foreground":
		try:
			self.await_work()
		except BaseException:
			self.stop()
			raise
		return self

	def __exit__(
		self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
	) -> None:
		self.stop()

	def await_work(self) -> None:
		deadline = time.monotonic() + PATIENCE
		while not all(self.count_of(number) for number in range(self.workers)):
			if time.monotonic() > deadline or any(child.poll() is not None for child in self.children):
				raise Failed("the job in the foreground does not work")
			time.sleep(0.01)

	def count_of(self, number: int) -> int:
		return COUNT.unpack_from(self.counts, number * COUNT.size)[0]

	def count(self) -> int:
		return sum(self.count_of(number) for number in range(self.workers))

	def rate(self, seconds: float) -> float:
		"""Units per second, watched for a while."""
		started, before = time.monotonic(), self.count()
		time.sleep(seconds)
		return (self.count() - before) / (time.monotonic() - started)

	def stop(self) -> None:
		for child in self.children:
			child.kill()
			child.wait()
