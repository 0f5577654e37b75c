"""
The pieces of the files of each language and weight: their names, and how many of them are drawn.

The order of the names is part of what makes a tree: a draw is a place in it.
"""

from typing import Dict, NamedTuple, Tuple

CXX_EXTRAS = ("state", "point", "limits", "span")
CXX_HEAVY_EXTRAS = CXX_EXTRAS + ("index", "signal", "tree")
CXX_SYSTEM = ("array", "cstdio", "string", "algorithm")
CXX_HEAVY_SYSTEM = CXX_SYSTEM + ("map", "sstream", "unordered_map", "functional")
CXX_STEPS = ("primes", "insertion", "scanner", "nodes")
CXX_HEAVY_STEPS = CXX_STEPS + ("rows",)

C_EXTRAS = ("state", "point", "list")
C_STEPS = ("sorting", "printing", "nodes", "states")

# How a source of one language uses a class of another that it includes: in the folder uses_of_…, with @other@ for that
# class. Of a class of the other language only the C functions are there (and the inline ones, for C++).
USES: Dict[Tuple[str, str], Tuple[str, ...]] = {
	("c", "c"): ("leaf", "object"),
	("c", "c++"): ("leaf",),
	("c++", "c"): ("leaf", "object"),
	("c++", "c++"): ("leaf", "record", "ring"),
}


class Weight(NamedTuple):
	"""
	What the files of one language are made of, when they are more than the smallest possible.

	Besides what is drawn, every header has ``interface`` (and ``class``, in C++) and every source ``class``: the extras
	are there to be read, while other sources rely on the interface.
	"""

	header_system: Tuple[str, ...]  # system headers of each header
	extras: Tuple[str, ...]  # pieces for headers, in the folder extras
	extras_drawn: Tuple[int, int]  # how many different of them a header has
	source_system: Tuple[str, ...]  # system headers of each source
	system: Tuple[str, ...]  # further system headers: the folder system has a step that needs it for each
	system_drawn: Tuple[int, int]
	steps: Tuple[str, ...]  # functions of the source alone, in the folder steps
	steps_drawn: Tuple[int, int]  # how many steps a source has, which may be alike
	uses_drawn: Tuple[int, int]  # how many of the classes that it includes a source uses


MADE_OF: Dict[Tuple[str, str], Weight] = {
	("c++", "realistic"): Weight(
		header_system=("vector",),
		extras=CXX_EXTRAS,
		extras_drawn=(0, 3),
		source_system=(),
		system=CXX_SYSTEM,
		system_drawn=(0, 1),
		steps=CXX_STEPS,
		steps_drawn=(1, 4),
		uses_drawn=(1, 4),
	),
	("c++", "heavy"): Weight(
		header_system=("algorithm", "functional", "map", "memory", "string", "vector"),
		extras=CXX_HEAVY_EXTRAS,
		extras_drawn=(3, 6),
		source_system=("sstream", "unordered_map"),
		system=CXX_HEAVY_SYSTEM,
		system_drawn=(2, 4),
		steps=CXX_HEAVY_STEPS,
		steps_drawn=(10, 20),
		uses_drawn=(5, 20),
	),
	("c", "realistic"): Weight(
		header_system=("stddef.h", "stdint.h"),
		extras=C_EXTRAS,
		extras_drawn=(0, 3),
		source_system=("stdio.h", "stdlib.h", "string.h"),
		system=(),
		system_drawn=(0, 0),
		steps=C_STEPS,
		steps_drawn=(4, 12),
		uses_drawn=(2, 10),
	),
	("c", "heavy"): Weight(
		header_system=("ctype.h", "errno.h", "limits.h", "stddef.h", "stdint.h", "time.h", "unistd.h"),
		extras=C_EXTRAS,
		extras_drawn=(2, 3),
		source_system=("math.h", "stdio.h", "stdlib.h", "string.h"),
		system=(),
		system_drawn=(0, 0),
		steps=C_STEPS,
		steps_drawn=(60, 120),
		uses_drawn=(5, 20),
	),
}
