"""
What a header of the system says; there are many and they are long, so they are only searched, not read.

Pure: a text goes in, what was found comes out.
"""

import re
from typing import List, NamedTuple

from .tokens import COMMENT, WORD

DEFINE = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b((?:[^\n\\]|\\\n)*)", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"][^>"\n]+)', re.MULTILINE)


class Foreign(NamedTuple):
	"""What a header of the system says; it is not doubted that it keeps to itself otherwise."""

	includes: List[str]
	macros: str
	"""Those that it may define or take away."""
	asked: str
	"""What its conditions ask for."""
	words: str
	"""Every identifier."""


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
