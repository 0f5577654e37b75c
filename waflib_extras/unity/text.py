"""
The text of the file that includes the sources of a group.

Pure: names of files and code around them go in, a text comes out.
"""

import hashlib
from typing import NamedTuple, Sequence, Tuple


class Frame(NamedTuple):
	"""The texts of a target around each include."""

	before: str = ""
	after: str = ""
	unique: str = ""
	"""The name of a macro that is a different identifier for each."""


def write(members: Sequence[Tuple[str, str, Sequence[str]]], early: Sequence[str], frame: Frame) -> str:
	"""The text of the file that includes these sources."""
	lines = ['#include "%s"' % escape(path) for path in early]
	for path, key, macros in members:
		lines += ['#pragma push_macro("%s")' % name for name in macros]
		if frame.unique:
			lines.append("#undef %s" % frame.unique)
			lines.append("#define %s unity_%s_" % (frame.unique, hashlib.md5(key.encode()).hexdigest()))
		lines += [frame.before] if frame.before else []
		lines.append('#include "%s"' % escape(path))
		lines += [frame.after] if frame.after else []
		lines += ['#pragma pop_macro("%s")' % name for name in macros]
	return "\n".join(lines) + "\n"


def escape(path: str) -> str:
	return path.replace("\\", "\\\\").replace('"', '\\"')
