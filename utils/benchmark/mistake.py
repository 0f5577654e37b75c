"""Expected errors, which are reported in one line and never with a traceback."""

from typing import List


class Mistake(Exception):
	"""Something in the request cannot be done: the message names it and the remedy."""


class Failed(Exception):
	"""A contender did not do its work: the message says which command, the tail what it printed."""

	def __init__(self, message: str, tail: str = "") -> None:
		super().__init__(message)
		self.tail = tail

	def quote(self) -> List[str]:
		return ["  | %s" % line for line in self.tail.splitlines()]
