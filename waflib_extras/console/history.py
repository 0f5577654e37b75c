"""
Files about earlier builds: how long their tasks took, and the parts of their signatures.

They are in the build folder, under names that ``waf clean`` spares. A file that cannot be read is treated as if it did
not exist.
"""

import contextlib
import marshal
import os
from typing import Any, Dict

from waflib import Build, Context, Task

from ..facts.files import replace
from ..version import VERSION

TIMES = "times"
CAUSES = "causes"
FORMAT = "2 of " + VERSION
"""The files of another version are not read."""
LEAST = 1000
"""In microseconds. The time of a task that takes less is not stored."""


def find_file(bld: Build.BuildContext, kind: str) -> str:
	"""The path of a build context's file. Each interpreter has its own, as it has its own database of Waf's."""
	variant = "-".join(part for part in (getattr(bld, "variant", "") or "").split(os.sep) if part)
	name = ".lock-waf-%s%s%s" % (kind, Context.DBFILE.replace(".wafpickle", ""), variant and "-" + variant)
	return os.path.join(bld.out_dir, name)


def read(path: str) -> Dict[str, Any]:
	"""The content of a file; an empty dict if it is missing or damaged."""
	try:
		with open(path, "rb") as f:
			found = marshal.loads(f.read())
	except (OSError, ValueError, EOFError, TypeError):
		return {}
	if not isinstance(found, tuple) or len(found) != 2 or found[0] != FORMAT or not isinstance(found[1], dict):
		return {}
	return found[1]


def write(path: str, content: Dict[str, Any]) -> None:
	"""Write the file. If that fails, later builds know less."""
	with contextlib.suppress(OSError, ValueError):
		replace(path, marshal.dumps((FORMAT, content)))


def name(bld: Build.BuildContext, task: Task.Task) -> str:
	"""
	A name that a task has in each build.

	This is not its ``uid``: a task stores that when it is asked for it, and must not be asked before it is ready.
	"""
	nodes = task.__dict__.get("outputs") or getattr(task, "outputs", None) or getattr(task, "inputs", None)
	if not nodes:
		kind: str = task.__class__.__name__
		return kind
	path: str = nodes[0].abspath()
	folder = bld.bldnode.abspath() + os.sep
	return path[len(folder) :] if path.startswith(folder) else path


def keep_times(bld: Build.BuildContext, times: "Dict[Task.Task, int]") -> None:
	"""Store how long tasks of this context took, in microseconds."""
	mine = {name(bld, task): micros for task, micros in times.items() if task.generator.bld is bld}
	if mine and os.path.isdir(bld.out_dir):
		path = find_file(bld, TIMES)
		known = read(path)
		known.update(mine)
		write(path, known)
