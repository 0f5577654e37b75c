"""
Which tools are wanted: ``--with``, the variable ``WAFX_WITH``, the file ``.wafx`` of the project, or the default.

It knows nothing of Waf: the command asks it before there is one.
"""

import os
from typing import List, Mapping, Tuple

from .. import TOOLS

VARIABLE = "WAFX_WITH"
FILE = ".wafx"
DEFAULT = ("prefork", "wafcc")
NONE = "none"


class Mistake(Exception):
	"""A choice that cannot be meant, as one line with the remedy."""

	pass  # waf-light removes the docstring


def parse(text: str, where: str) -> List[str]:
	"""The tools that a text names, each once. It has commas or blanks between names, and comments after ``#``."""
	lines = [line.partition("#")[0] for line in text.splitlines()]
	words = " ".join(lines).replace(",", " ").split()
	if not words:
		raise Mistake("%s names no tool: give some of %s, or none" % (where, ", ".join(TOOLS)))
	if words == [NONE]:
		return []
	for word in words:
		if word not in TOOLS:
			known = ", ".join(TOOLS)
			raise Mistake("%s: there is no tool %s: there are %s; none is for no tool" % (where, word, known))
	return list(dict.fromkeys(words))


def find(environ: Mapping[str, str], folder: str) -> Tuple[List[str], str]:
	"""The tools for a project in this folder, and where that is said; empty for the default."""
	text = environ.get(VARIABLE)
	if text:
		return parse(text, VARIABLE), VARIABLE
	path = os.path.join(folder, FILE)
	try:
		with open(path, encoding="utf-8") as f:
			return parse(f.read(), path), path
	except FileNotFoundError:
		return list(DEFAULT), ""
	except (OSError, ValueError) as e:
		raise Mistake("%s: %s: mend or remove it" % (path, getattr(e, "strerror", None) or e)) from None
