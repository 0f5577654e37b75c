"""
Searches headers of the system. They are many and long, so they are not read as those of the project are.

Pure: a text goes in, what was found comes out.
"""

import re
from typing import List, NamedTuple

from .tokens import COMMENT, WORD

DEFINE = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b((?:[^\n\\]|\\\n)*)", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"][^>"\n]+)', re.MULTILINE)


class Foreign(NamedTuple):
	"""The facts of a header of the system. Apart from these, it is taken to disturb no other file."""

	includes: List[str]
	macros: str
	"""The macros that it may define or undefine."""
	asked: str
	"""The macros that its conditions test."""
	words: str
	"""All identifiers."""


def read_foreign(text: str) -> Foreign:
	text = COMMENT.sub(" ", text) if "/*" in text else text
	asked = {word for condition in CONDITION.findall(text) for word in WORD.findall(condition)}
	macros = set(DEFINE.findall(text))
	return Foreign(
		list(dict.fromkeys(INCLUDE.findall(text))),
		" ".join(sorted(macros)),
		" ".join(sorted(asked)),
		" ".join(sorted(set(WORD.findall(text)))),
	)
