"""Ctrl-C and termination as an exception, which is held back while it would lose a process."""

import contextlib
import signal
from types import FrameType
from typing import Iterator, Optional


class Interrupted(BaseException):
	"""The benchmark was asked to stop. It is no ``Exception``, because the running step has not failed."""

	def __init__(self, number: int) -> None:
		super().__init__("stopped by %s" % signal.Signals(number).name)
		self.exit_status = 128 + number


class Interrupts:
	"""The signals that stop the benchmark."""

	def __init__(self) -> None:
		self.holds = 0
		self.pending: Optional[int] = None

	def listen(self) -> None:
		"""Take the signals from here on, also where they were ignored, as in a shell's background job."""
		for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
			signal.signal(number, self.handle)

	def handle(self, number: int, frame: Optional[FrameType]) -> None:
		"""Stop now, or as soon as it is possible."""
		if self.holds:
			self.pending = number
		else:
			raise Interrupted(number)

	@contextlib.contextmanager
	def held(self) -> Iterator[None]:
		"""Hold signals back, while a process is started but not known yet, and during the cleanup."""
		self.holds += 1
		try:
			yield
		finally:
			self.holds -= 1
			if self.pending is not None and not self.holds:
				number, self.pending = self.pending, None
				raise Interrupted(number)


INTERRUPTS = Interrupts()
