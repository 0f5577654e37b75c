"""
Waf's own code for a task, on both sides of its command: run up to where the command would be, or on from its output.

What ``prefork`` has put in place of ``Utils.run_process`` asks the captor of its thread first. Knows nothing of when
a command is run, and by whom.
"""

import threading
from typing import Any, Dict, List, Optional, Tuple

from ..client import protocol


class Captured(BaseException):
	"""Leaves ``process`` at the point where the command would run."""

	__slots__ = ()


def capture(prefork: Any, task: Any) -> Tuple[Optional[bytes], Optional[Dict[Any, Any]]]:
	"""The command that this task would run, and its environment; none if the task is over without one."""
	captured: List[Any] = []
	captors = prefork.captors
	ident = threading.get_ident()

	def captor(cmd: Any, kwargs: Dict[str, Any], cargs: Dict[str, Any]) -> Any:
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
		if isinstance(captured[0], protocol.EngineError):
			raise captured[0] from None
		return captured[0].encoded, captured[0].env
	finally:
		if outer is None:
			del captors[ident]
		else:
			captors[ident] = outer
	return None, None


def log(prefork: Any, task: Any, code: int, out: bytes, err: bytes) -> None:
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

	def __init__(self, context: Any) -> None:
		self.logger = Scribe(context.logger) if context.logger else None

	def log_command(self, cmd: Any, kw: Dict[str, Any]) -> None:
		pass


class Scribe:
	"""A logger for output only: the command itself is in the log already."""

	def __init__(self, logger: Any) -> None:
		self.debug = logger.debug
		self.error = logger.error

	def info(self, *args: Any, **kwargs: Any) -> None:
		pass
