"""Compiler caches that go before a compiler in the command line."""

import os
from typing import Dict, List

from .service import SccacheServer


class CompilerCache:
	"""A cache with a folder of its own, empty at first."""

	program = ""

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		os.makedirs(folder)
		self.folder = folder
		self.environment: Dict[str, str] = {}

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


CACHES = {cache.program: cache for cache in (Ccache, Sccache)}
