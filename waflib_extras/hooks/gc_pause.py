"""
Lets Python's cyclic collector run less often during a build, since it walks through the whole graph of tasks.

Nothing in that graph becomes garbage before the build is over. PyPy's collector works in another way, and is left
alone.
"""

import atexit
import contextlib
import gc
from typing import Iterator, Tuple

YOUNG = 50000
"""The collector runs after so many new objects. Python's own value is 700 or 2000."""


class Collector:
	"""The settings of the collector that were changed."""

	def __init__(self) -> None:
		self.thresholds: Tuple[int, ...] = ()
		"""Python's own thresholds; empty if they were not changed."""
		self.froze = False

	def slow_down(self) -> None:
		"""Let it run less often, unless the project has set thresholds of its own."""
		if gc.isenabled() and hasattr(gc, "freeze") and 0 < gc.get_threshold()[0] < YOUNG:
			self.thresholds = gc.get_threshold()
			gc.set_threshold(YOUNG, *self.thresholds[1:])

	def spare(self) -> None:
		"""Let it skip all objects that exist now."""
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


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
	"""Switch it off within this context, which makes or walks through very many objects that stay."""
	is_enabled = gc.isenabled()
	gc.disable()
	try:
		yield
	finally:
		if is_enabled:
			gc.enable()


def leave_rest() -> None:
	"""Skip the last collection when the interpreter ends, since the system frees the memory at once."""
	if hasattr(gc, "freeze"):
		atexit.unregister(gc.freeze)
		atexit.register(gc.freeze)
