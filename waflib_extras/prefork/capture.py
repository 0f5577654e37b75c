"""
Waf's own code for a task, on both sides of its command: run up to where the command would be, or on from its output.

What ``prefork`` has put in place of ``Utils.run_process`` asks the captor of its thread first. Knows nothing of when
a command is run, and by whom.
"""

import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

from ..client import protocol

if TYPE_CHECKING:
	import logging

	from waflib.Context import Context
	from waflib.Task import Task

	from .tool import Command, Prefork

Given = Dict[str, Any]
"""What a call of Waf gives to ``Popen``, or to ``communicate``."""
Result = Tuple[int, Optional[bytes], Optional[bytes]]
Captor = Callable[[object, Given, Given], Result]
"""What takes a command in place of the engine."""


class Captured(BaseException):
	"""Leaves ``process`` at the point where the command would run."""

	__slots__ = ()


def capture(prefork: "Prefork", task: "Task") -> Tuple[Optional[bytes], Optional[protocol.Environment]]:
	"""The command that this task would run, and its environment; none if the task is over without one."""
	captured: List[Union[Command, protocol.EngineError]] = []
	captors = prefork.captors
	ident = threading.get_ident()

	def captor(cmd: object, kwargs: Given, cargs: Given) -> Result:
		if cmd is not getattr(task, "last_cmd", None) or cargs:
			# the command of an expression within the command, or the arguments are in a file that is removed
			del captors[ident]
			try:
				return prefork.run_process(cmd, kwargs, cargs)
			finally:
				captors[ident] = captor
		try:
			captured.append(prefork.encode(cmd, kwargs, cargs))
		except protocol.EngineError as e:
			# not from here: Waf makes an error of the task of any usual exception
			captured.append(e)
		raise Captured

	outer = captors.get(ident)
	captors[ident] = captor
	try:
		task.process()
	except Captured:
		found = captured[0]
		if isinstance(found, protocol.EngineError):
			raise found from None
		return found.encoded, found.env
	finally:
		if outer is None:
			del captors[ident]
		else:
			captors[ident] = outer
	return None, None


def log(prefork: "Prefork", task: "Task", code: int, out: bytes, err: bytes) -> None:
	"""Have Waf decode and write the output of a command."""
	captors = prefork.captors
	ident = threading.get_ident()
	outer = captors.get(ident)
	captors[ident] = lambda cmd, kwargs, cargs: (code, out, err)
	try:
		# a text, since Waf looks for the program of a list
		prefork.hooks.stock.context_exec(Listener(task.generator.bld), "")
	finally:
		if outer is None:
			del captors[ident]
		else:
			captors[ident] = outer


class Listener:
	"""What Waf's ``exec_command`` needs of a context to write a command's output, but not the command again."""

	def __init__(self, context: "Context") -> None:
		self.logger = Scribe(context.logger) if context.logger else None

	def log_command(self, cmd: object, kw: Given) -> None:
		pass


class Scribe:
	"""A logger for output only: the command itself is in the log already."""

	def __init__(self, logger: "logging.Logger") -> None:
		self.debug = logger.debug
		self.error = logger.error

	def info(self, *args: object, **kwargs: object) -> None:
		pass
