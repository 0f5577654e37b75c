"""
Writes the messages of tasks that begin, several at once if several tasks have ended at once.
"""

from typing import List

from waflib import Build, Logs, Task


class Messages:
	"""The messages that are to be written."""

	def __init__(self) -> None:
		self.texts: List[str] = []
		self.gathers = False

	def begin(self, bld: Build.BuildContext) -> None:
		"""Gather messages from now on, if nothing has changed how Waf writes them."""
		handlers = Logs.log.handlers
		self.gathers = not (
			bld.progress_bar
			or bld.logger
			or Logs.verbose
			or len(handlers) != 1
			or handlers[0].__class__ is not Logs.log_handler
		)

	def take(self, task: Task.Task) -> bool:
		"""Keep the message of a task until ``write``. Tell if that was done; Waf has to write unusual messages."""
		cls = task.__class__
		if (
			not self.gathers
			or cls.log_display is not Task.Task.log_display
			or cls.display is not Task.Task.display
			or "display" in task.__dict__
		):
			self.write()
			return False
		text = task.display()
		if text:
			self.texts.append(text)
		return True

	def write(self) -> None:
		"""Write all gathered messages, as ``Task.log_display`` does."""
		if self.texts:
			texts, self.texts = self.texts, []
			Logs.info("".join(texts), extra={"terminator": "", "c1": "", "c2": ""})

	def end(self) -> None:
		"""Write all gathered messages, and gather no more."""
		self.gathers = False
		self.write()
