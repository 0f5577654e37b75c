"""All kinds of commands beyond plain compiles."""

from typing import Dict, List, Optional, Type

from hunt import Mistake

from .configured import Configured
from .headers import Precompiled
from .kind import Kind
from .places import Libraries, Links, Processors
from .roots import Checkouts
from .texts import Texts
from .wrappers import Helpers, Parts, Wrappers

COMPILES = "compiles"
KINDS: Dict[str, Type[Kind]] = {
	kind.name: kind
	for kind in (Wrappers, Helpers, Parts, Links, Libraries, Processors, Checkouts, Configured, Precompiled, Texts)
}


def find_kinds(named: Optional[str]) -> List[str]:
	wanted = named.split(",") if named else [COMPILES]
	unknown = [name for name in wanted if name not in KINDS and name != COMPILES]
	if unknown:
		raise Mistake("no kind %s: there are %s" % (unknown[0], ", ".join((COMPILES, *KINDS))))
	return wanted
