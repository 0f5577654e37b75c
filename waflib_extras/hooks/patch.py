"""
Functions of Waf that are replaced by quicker ones, and only where they are the functions that we know.

A patch that replaces code says which source it has seen there. Other code, of a version that we do not know or of
another tool, is left alone, for nobody has compared it with ours.
"""

import hashlib
import os
import re
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from . import lifecycle

if TYPE_CHECKING:
	from waflib.Build import BuildContext

TEXT = re.compile(r"(\"\"\"|''').*?\1", re.DOTALL)
LINE = re.compile(r"^\s*([\"']).*\1\s*$", re.MULTILINE)
COMMENT = re.compile(r"(^|\s)#.*$", re.MULTILINE)


class Patch:
	"""What a patch is: its docstring says what is worse than it need be in Waf, and what is done instead."""

	name = ""
	topic = ""
	"""In a few words, for ``waf large``."""
	needs: Tuple[str, ...] = ()
	"""Other patches without which this one would be wrong."""
	known: Dict[str, Tuple[str, ...]] = {}
	"""The digests of functions as we know them: of those that are replaced, and of others that must be so."""
	on_posix = False
	"""It needs what only POSIX has."""

	def install(self) -> None:
		"""Put ours in the place of Waf's."""
		raise NotImplementedError

	def replace(self, path: str, ours: Callable[..., Any]) -> Any:
		"""Put a function in the place of one of Waf's, such as ``Runner.Parallel.skip``, and return that."""
		return lifecycle.find().replace("large", path, ours)

	def begin(self, bld: "BuildContext") -> None:
		"""A build begins."""
		pass  # waf-light takes the docstring away

	def end(self, bld: "BuildContext") -> None:
		"""It has ended, in whatever way."""
		pass  # here, too

	def obstacle(self, sources: "Sources") -> str:
		"""Why this Waf is not the one that we know; nothing if it is."""
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
	"""The source of functions; files are read once and not kept for longer than this is."""

	def __init__(self) -> None:
		self.files: Dict[str, List[str]] = {}

	def digest(self, function: object) -> Optional[str]:
		"""The digest of the source of a function, none where there is no source."""
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
	"""The lines of a function that begins with this one: all that are deeper, and empty ones."""
	depth = indent(lines[first])
	end = first + 1
	while end < len(lines) and (not lines[end].strip() or indent(lines[end]) > depth):
		end += 1
	return "\n".join(lines[first:end])


def indent(line: str) -> int:
	return len(line) - len(line.lstrip())


def digest_of(source: str) -> str:
	"""The same for a source without comments, docstrings and blanks: waf-light takes those away."""
	for pattern in TEXT, LINE, COMMENT:
		source = pattern.sub("", source)
	return hashlib.sha256("".join(source.split()).encode()).hexdigest()[:12]
