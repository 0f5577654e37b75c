"""
Python's cyclic collector during a build, which otherwise walks through the graph of tasks again and again.

Nothing in that graph becomes garbage before the build is over. PyPy's collector is of another kind, and is left alone.
"""

import atexit
import gc
from typing import Tuple

YOUNG = 50000
"""So many new objects let the collector run; Python has 700 or 2000."""


class Collector:
	"""What was changed of it."""

	def __init__(self) -> None:
		self.thresholds: Tuple[int, ...] = ()
		"""What they were; none if the collector is as it was."""
		self.froze = False

	def slow_down(self) -> None:
		"""Let it run less often; not if the project has its own wishes."""
		if gc.isenabled() and hasattr(gc, "freeze") and 0 < gc.get_threshold()[0] < YOUNG:
			self.thresholds = gc.get_threshold()
			gc.set_threshold(YOUNG, *self.thresholds[1:])

	def spare(self) -> None:
		"""Let it pass over all that is there now."""
		if self.thresholds and not self.froze and not gc.get_freeze_count():
			self.froze = True
			gc.freeze()

	def restore(self) -> None:
		if self.froze:
			self.froze = False
			gc.unfreeze()
		if self.thresholds:
			gc.set_threshold(*self.thresholds)
			self.thresholds = ()
			leave_rest()


def leave_rest() -> None:
	"""Have no last walk through all that is there when the interpreter ends: the system takes it back at once."""
	if hasattr(gc, "freeze"):
		atexit.unregister(gc.freeze)
		atexit.register(gc.freeze)
