"""
Patches: quicker functions that replace functions of Waf, but only those that we know.

A patch has the digests of the sources that it may replace. Other code, of an unknown version or of another tool, stays
as it is, since it was not compared with ours.
"""

import hashlib
import os
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import lifecycle

if TYPE_CHECKING:
	from waflib.Build import BuildContext

TEXT = re.compile(r"(\"\"\"|''').*?\1", re.DOTALL)
LINE = re.compile(r"^\s*([\"']).*\1\s*$", re.MULTILINE)
COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)


class Patch:
	"""A patch. Its docstring says what is slow in Waf, and what is done instead."""

	name = ""
	topic = ""
	"""Its subject in a few words, for ``waf large``."""
	needs: Tuple[str, ...] = ()
	"""Other patches without which this one would be wrong."""
	known: Dict[str, Tuple[str, ...]] = {}
	"""The known digests of the functions that are replaced, and of others on which the patch relies."""
	on_posix = False
	"""The patch works on POSIX systems only."""

	def install(self) -> None:
		"""Replace Waf's functions."""
		raise NotImplementedError

	def replace(self, path: str, ours: Any) -> Any:
		"""Replace a function of Waf's, such as ``Runner.Parallel.skip``, and return Waf's own."""
		return lifecycle.find().replace("large", path, ours)

	def begin(self, bld: "BuildContext") -> None:
		"""Called when a build begins."""
		pass  # waf-light removes the docstring

	def end(self, bld: "BuildContext") -> None:
		"""Called when the build has ended, in any way."""
		pass  # as above

	def obstacle(self, sources: "Sources") -> str:
		"""Why the patch does not fit this Waf; empty if it fits."""
		if self.on_posix and os.name != "posix":
			return "this system has no times of changes"
		for path, digests in self.known.items():
			found = lifecycle.find_in_waf(path)
			if found is None:
				return "there is no %s" % path
			if sources.digest(found) not in digests:
				return "%s is not one that we know" % path
		return ""


class Sources:
	"""Reads the sources of functions, each file once."""

	def __init__(self) -> None:
		self.files: Dict[str, List[str]] = {}

	def digest(self, function: object) -> Optional[str]:
		"""The digest of a function's source; None if there is no source."""
		code = getattr(function, "__code__", None)
		if code is None:
			return None
		lines = self.files.get(code.co_filename)
		if lines is None:
			try:
				with open(code.co_filename, encoding="utf-8") as f:
					lines = f.read().splitlines()
			except (OSError, ValueError):
				lines = []
			self.files[code.co_filename] = lines
		return digest_of(block(lines, code.co_firstlineno - 1)) if lines else None


def block(lines: List[str], first: int) -> str:
	"""The lines of the function that begins in this line: all deeper and empty lines after it."""
	depth = indent(lines[first])
	end = first + 1
	while end < len(lines) and (not lines[end].strip() or indent(lines[end]) > depth):
		end += 1
	return "\n".join(lines[first:end])


def indent(line: str) -> int:
	return len(line) - len(line.lstrip())


def digest_of(source: str) -> str:
	"""The digest of a source without comments, docstrings and blanks, which waf-light removes."""
	for pattern in TEXT, LINE, COMMENT:
		source = pattern.sub("", source)
	return hashlib.sha256("".join(source.split()).encode()).hexdigest()[:12]
