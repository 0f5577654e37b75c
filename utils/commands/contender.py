"""The contenders: commands as they are, and behind each cache."""

import os
import re
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Tuple, Type

from benchmark.cache import Ccache, CompilerCache, Proving, Sccache, Wafcc

from .command import Everyday

C = frozenset(("gcc", "g++", "cc", "c++", "clang", "clang++", "musl-gcc"))


class Firebuild(CompilerCache):
	"""firebuild, with no settings but its own defaults."""

	program = "firebuild"
	remedy = ": apt-get install firebuild, where Debian or Ubuntu has it"

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		super().__init__(folder, env)
		places = {"XDG_CACHE_HOME": folder, "FIREBUILD_CACHE_DIR": os.path.join(folder, "firebuild")}
		self.environment = {**places, "XDG_CONFIG_HOME": os.path.join(folder, "none")}

	def hits(self) -> Optional[int]:
		found = re.search(r"Hits:\s*(\d+)", self.ask("--show-stats"))
		return int(found.group(1)) if found else None


class Contender(NamedTuple):
	"""Commands as they are, or behind a cache."""

	name: str
	cache: Optional[Type[CompilerCache]] = None
	words: Tuple[str, ...] = ()
	"""What stands between the cache's program and the command."""
	compilers: Optional[FrozenSet[str]] = None
	"""The only programs that it knows."""

	def missing(self) -> Optional[str]:
		"""What this machine lacks for it, with the remedy."""
		return self.cache.missing() if self.cache else None

	def takes(self, command: Everyday) -> bool:
		return self.compilers is None or (command.is_compile and command.argv[0] in self.compilers)

	def argv(self, command: Everyday) -> List[str]:
		if not self.cache:
			return command.argv
		return [self.cache.find() or self.cache.program, *self.words, *command.argv]


PLAIN = Contender("plain")
OURS = "wafcc"
CONTENDERS = {
	contender.name: contender
	for contender in (
		PLAIN,
		Contender(OURS, Wafcc, ("run", "--")),
		Contender("wafcc-proved", Proving, ("run", "--")),
		Contender("ccache", Ccache, (), C),
		Contender("sccache", Sccache, (), C | {"rustc"}),
		Contender("firebuild", Firebuild, ("--",)),
	)
}
