"""Compiler caches that go before a compiler in the command line."""

import os
import shutil
from typing import Dict, List, Optional

from .service import Engine, SccacheServer, find_engine


class CompilerCache:
	"""A cache with a folder of its own, empty at first."""

	program = ""

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		os.makedirs(folder)
		self.folder = folder
		self.environment: Dict[str, str] = {}

	@classmethod
	def find(cls) -> Optional[str]:
		"""The path of its program, if it is here."""
		return shutil.which(cls.program)

	def pids(self) -> List[int]:
		"""The daemons that run its compilers."""
		return []

	def stop(self) -> None:
		"""End what it started."""


class Ccache(CompilerCache):
	"""ccache, with no settings but its own defaults."""

	program = "ccache"

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		super().__init__(folder, env)
		self.environment = {"CCACHE_DIR": folder, "CCACHE_CONFIGPATH": os.path.join(folder, "ccache.conf")}


class Sccache(CompilerCache):
	"""sccache, with a server of its own."""

	program = "sccache"

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		super().__init__(folder, env)
		self.server = SccacheServer(folder, env)
		self.environment = self.server.environment

	def pids(self) -> List[int]:
		return self.server.pids()

	def stop(self) -> None:
		self.server.stop()


class Wafcc(CompilerCache):
	"""Ours, with an engine of its own."""

	program = "wafcc"

	@classmethod
	def find(cls) -> Optional[str]:
		wafcc = os.path.join(os.path.dirname(find_engine() or ""), cls.program)
		return wafcc if os.access(wafcc, os.X_OK) else shutil.which(cls.program)

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		super().__init__(folder, env)
		# nobody's settings, and a store that is the default one, so that the engine lives where we look for it
		places = {"XDG_CACHE_HOME": folder, "XDG_CONFIG_HOME": os.path.join(folder, "none")}
		self.engine = Engine(folder, env, **places)
		self.environment = self.engine.environment

	def pids(self) -> List[int]:
		return self.engine.pids()

	def stop(self) -> None:
		self.engine.stop()
		self.engine.remove()


CACHES = {cache.program: cache for cache in (Ccache, Sccache, Wafcc)}
