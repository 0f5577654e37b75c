"""
What is known of earlier builds: how long tasks took, and what their signatures were made of.

The files are in the build folder, under names that ``waf clean`` spares; ``waf configure`` begins its own folder anew.
They are memories only: one that cannot be read is as good as none.
"""

import contextlib
import marshal
import os
from typing import TYPE_CHECKING, Any, Dict

from waflib import Context

from ..version import VERSION

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Task import Task

TIMES = "times"
CAUSES = "causes"
FORMAT = "2 of " + VERSION
"""What another version has kept is not read."""
LEAST = 1000
"""Microseconds: of a task that takes less, nothing is kept."""


def find_file(bld: "BuildContext", kind: str) -> str:
	"""Where the memory of a build context is; the interpreters have one each, as they have of Waf's database."""
	variant = "-".join(part for part in (getattr(bld, "variant", "") or "").split(os.sep) if part)
	name = ".lock-waf-%s%s%s" % (kind, Context.DBFILE.replace(".wafpickle", ""), variant and "-" + variant)
	return os.path.join(bld.out_dir, name)


def read(path: str) -> Dict[str, Any]:
	"""What was kept; nothing if it is not there, or not as it should be."""
	try:
		with open(path, "rb") as f:
			found = marshal.loads(f.read())
	except (OSError, ValueError, EOFError, TypeError):
		return {}
	if not isinstance(found, tuple) or len(found) != 2 or found[0] != FORMAT or not isinstance(found[1], dict):
		return {}
	return found[1]


def write(path: str, content: Dict[str, Any]) -> None:
	"""Keep this; if that cannot be, a later build knows less."""
	fresh = "%s.%d" % (path, os.getpid())
	try:
		with open(fresh, "wb") as f:
			f.write(marshal.dumps((FORMAT, content)))
		os.rename(fresh, path)
	except (OSError, ValueError):
		with contextlib.suppress(OSError):
			os.unlink(fresh)


def name(bld: "BuildContext", task: "Task") -> str:
	"""
	What a task is called from build to build.

	Not its ``uid``, which it keeps once it was asked for, and must not be asked for before the task is ready.
	"""
	nodes = task.__dict__.get("outputs") or getattr(task, "outputs", None) or getattr(task, "inputs", None)
	if not nodes:
		kind: str = task.__class__.__name__
		return kind
	path: str = nodes[0].abspath()
	folder = bld.bldnode.abspath() + os.sep
	return path[len(folder) :] if path.startswith(folder) else path


def keep_times(bld: "BuildContext", times: "Dict[Task, int]") -> None:
	"""Add what tasks of this context took, in microseconds, to what is known."""
	mine = {name(bld, task): micros for task, micros in times.items() if task.generator.bld is bld}
	if mine and os.path.isdir(bld.out_dir):
		path = find_file(bld, TIMES)
		known = read(path)
		known.update(mine)
		write(path, known)
