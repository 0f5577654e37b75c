"""Compiler caches with a server that another machine has filled, for ``second-machine``."""

import time
from typing import Dict, Optional, Type

from .builder import FAR
from .cache import Ccache, CompilerCache, EngineCache, Wafcc
from .hosts import Host
from .mistake import Failed
from .servers import Nginx, Redis, Server, WafdServe

PATIENCE = 60.0  # seconds without any progress that uploads have


class Far(CompilerCache):
	"""A cache with a server."""

	abilities = frozenset((FAR,))
	server: Type[Server]

	@classmethod
	def missing(cls) -> Optional[str]:
		return super().missing() or cls.server.missing()

	def reach(self, server: Server, host: Host) -> None:
		super().reach(server, host)
		self.environment.update(self.remote(server))

	def remote(self, server: Server) -> Dict[str, str]:
		"""The variables that lead to a server."""
		raise NotImplementedError


class CcacheNginx(Far, Ccache):
	"""ccache with nginx, by HTTP; with its own defaults also of what is remote."""

	server: Type[Server] = Nginx

	def remote(self, server: Server) -> Dict[str, str]:
		login = "any:%s@" % server.token if server.token else ""
		return {"CCACHE_REMOTE_STORAGE": "http://%s%s" % (login, server.place)}


class CcacheServe(CcacheNginx):
	"""ccache with our server, by HTTP."""

	server = WafdServe


class CcacheRedis(Far, Ccache):
	"""ccache with Redis."""

	server = Redis

	def remote(self, server: Server) -> Dict[str, str]:
		return {"CCACHE_REMOTE_STORAGE": "redis://%s" % server.place}


class FarWafcc(Far, Wafcc):
	"""Ours, with our server."""

	server = WafdServe

	def remote(self, server: Server) -> Dict[str, str]:
		return {"WAFCC_REMOTE": "tcp://%s@%s" % (server.token, server.place)}

	def settle(self) -> None:
		"""Wait for the end of all uploads, as long as they make progress. Dropped ones show as missing hits."""
		deadline, before = 0.0, -1
		while True:
			remote = self.counts()["remote"]
			if not any("uploads to do" in tier["state"] for tier in remote["tiers"]):
				return
			if remote["uploads"] != before:
				deadline, before = time.monotonic() + PATIENCE, remote["uploads"]
			if time.monotonic() > deadline:
				raise Failed("uploads do not go on: %s" % remote["errors"])
			time.sleep(0.1)


class FarEngineCache(FarWafcc, EngineCache):
	"""Our cache without the wrapper, with our server."""


FAR_CACHES: Dict[str, Type[CompilerCache]] = {
	"ccache-redis": CcacheRedis,
	"ccache-nginx": CcacheNginx,
	"ccache-serve": CcacheServe,
	"wafcc-serve": FarWafcc,
}
