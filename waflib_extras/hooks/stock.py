"""
Waf's own functions, as they were when our tools were loaded, and the ``run`` methods that Waf makes of strings.

It knows nothing of how commands are run.
"""

import types
from typing import Any, Callable, Dict, NamedTuple, Type

from waflib import Context, Runner, Task

METHODS = (
	"are_implicit_nodes_ready",
	"compute_sig_implicit_deps",
	"post_run",
	"runnable_status",
	"sig_explicit_deps",
	"sig_implicit_deps",
	"signature",
	"uid",
)
"""Methods of ``Task.Task``. A class that replaces one of them decides in its own way what its tasks depend on."""


class Stock(NamedTuple):
	process: Callable[..., Any]
	task_exec: Callable[..., int]
	context_exec: Callable[..., int]
	process_task: Callable[..., None]
	consumer: "Type[Runner.Consumer]"
	spawner: "Type[Runner.Spawner]"


_compiled: Dict[types.FunctionType, bool] = {}


class Hooks:
	"""Waf's functions when our tools were loaded. If one differs later, other code has replaced it."""

	def __init__(self) -> None:
		self.stock = Stock(
			Task.Task.process,
			Task.Task.exec_command,
			Context.Context.exec_command,
			Runner.Parallel.process_task,
			Runner.Consumer,
			Runner.Spawner,
		)
		self.clean = all(
			function.__module__ == module
			for function, module in zip(
				self.stock,
				("waflib.Task", "waflib.Task", "waflib.Context", "waflib.Runner", "waflib.Runner", "waflib.Runner"),
			)
		)


def is_compiled(run: object) -> bool:
	"""Tell whether Waf made this ``run`` of one string, so that it ends with its only command."""
	if run.__class__ is not types.FunctionType:
		return False
	known = _compiled.get(run)
	if known is None:
		code = run.__code__
		known = _compiled[run] = (
			code.co_name == "f"
			and code.co_filename == "<string>"
			and code.co_varnames[:1] == ("tsk",)
			and "exec_command" in code.co_names
			and {"env", "gen", "bld", "cwdx", "to_list"} <= {*code.co_varnames, *code.co_cellvars}
		)
	return known
