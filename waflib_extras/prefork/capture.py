"""
Runs Waf's own code for a task without its command: up to the command, or on from the command's output.

Our function in the place of ``Utils.run_process`` gives a command to the handler of its thread, if there is one. This
file knows nothing of when and how a command is run.
"""

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from ..client import protocol

if TYPE_CHECKING:
	import logging

	from waflib.Context import Context
	from waflib.Task import Task

	from .tool import Command, Prefork

Given = Dict[str, Any]
"""The arguments of a call of Waf's for ``Popen`` or ``communicate``."""
Result = Tuple[int, Optional[bytes], Optional[bytes]]
Handler = Callable[[object, Given, Given], Result]
"""A function that gets a command instead of the engine."""


class Captured(BaseException):
	"""Raised to leave ``process`` at the point where the command would run."""

	__slots__ = ()


def capture(prefork: "Prefork", task: "Task") -> Tuple[Optional[bytes], Optional[protocol.Environment]]:
	"""The command that this task would run, and its environment; None if the task has ended without a command."""
	captured: List[Union[Command, protocol.EngineError]] = []
	handlers = prefork.handlers
	ident = threading.get_ident()

	def handler(cmd: object, kwargs: Given, cargs: Given) -> Result:
		if cmd is not getattr(task, "last_cmd", None) or cargs:
			# an expression in run_str has run another command, or the arguments are in a file that Waf removes later
			del handlers[ident]
			try:
				return prefork.run_process(cmd, kwargs, cargs)
			finally:
				handlers[ident] = handler
		try:
			captured.append(prefork.encode(cmd, kwargs, cargs))
		except protocol.EngineError as e:
			# Waf would take any Exception from here for an error of the task
			captured.append(e)
		raise Captured

	try:
		with handle(prefork, handler):
			task.process()
	except Captured:
		found = captured[0]
		if isinstance(found, protocol.EngineError):
			raise found from None
		return found.encoded, found.env
	return None, None


@contextlib.contextmanager
def handle(prefork: "Prefork", handler: Handler) -> Iterator[None]:
	"""Have this handler get the commands of this thread."""
	handlers, ident = prefork.handlers, threading.get_ident()
	outer = handlers.get(ident)
	handlers[ident] = handler
	try:
		yield
	finally:
		if outer is None:
			del handlers[ident]
		else:
			handlers[ident] = outer


def log(prefork: "Prefork", task: "Task", code: int, out: bytes, err: bytes) -> None:
	"""Have Waf decode and write the output of a command."""
	with handle(prefork, lambda cmd, kwargs, cargs: (code, out, err)):
		# as str, since Waf searches the program of a list
		prefork.hooks.stock.context_exec(Listener(task.generator.bld), "")


class Listener:
	"""Stands in for a context in Waf's ``exec_command``, so that this writes the output but not the command."""

	def __init__(self, context: "Context") -> None:
		self.logger = Scribe(context.logger) if context.logger else None

	def log_command(self, cmd: object, kw: Given) -> None:
		pass


class Scribe:
	"""A logger for output only. The command itself is in the log already."""

	def __init__(self, logger: "logging.Logger") -> None:
		self.debug = logger.debug
		self.error = logger.error

	def info(self, *args: object, **kwargs: object) -> None:
		pass
