"""
The pieces of text that files are put together from: each is a file below ``pieces/``.

Words between at signs are filled in. In headers and sources these are names: ``@class@`` of a C++ class, ``@name@`` the
prefix of all that belongs to a class in C, ``@step@`` of the function at hand, ``@other@`` of another class; or numbers
that are drawn afresh at each place: see `NUMBERS`.
"""

import os
import re
from functools import lru_cache
from typing import Callable, Dict, Optional

from .draws import Draws

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pieces")
TOKEN = re.compile(r"@(\w+)@")

NUMBERS: Dict[str, Callable[[Draws], str]] = {
	"number": lambda draws: "0x%08xu" % draws.below(1 << 32),
	"odd": lambda draws: "0x%08xu" % (draws.below(1 << 32) | 1),
	"shift": lambda draws: "%d" % draws.between(1, 15),
	"small": lambda draws: "%d" % draws.between(4, 12),
	"size": lambda draws: "%d" % draws.between(20, 60),
}


@lru_cache(maxsize=None)
def load(name: str) -> str:
	"""The text of one piece, by its path below ``pieces/`` without the ending; read when it is first needed."""
	with open(os.path.join(FOLDER, name + ".in"), encoding="ascii") as file:
		return file.read()


def fill(text: str, names: Dict[str, str], draws: Optional[Draws] = None) -> str:
	"""
	Replace each ``@name@`` in a text by what `names` says, or by a number that is drawn afresh.

	``str.format`` and ``%`` would make the braces and percent signs of the pieces unreadable.
	"""

	def value(match: "re.Match[str]") -> str:
		name = match.group(1)
		known = names.get(name)
		return NUMBERS[name](draws) if known is None else known

	return TOKEN.sub(value, text)
