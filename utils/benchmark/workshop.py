"""The work folder of a campaign: projects, build folders, outputs, daemons; all gone at the end."""

import os
import shutil
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from .cache import CompilerCache
from .compiler import Compiler
from .contender import Contender
from .hosts import Host, Hosts
from .interrupt import INTERRUPTS
from .mistake import Failed, Mistake
from .package import Package
from .precompiled import Code, write_precompiled
from .project import (
	C_COMPILER,
	HERE,
	Project,
	complaint,
	copy_project,
	generate_sources,
	write_configure,
	write_costly,
	write_hits,
	write_nothing,
	write_sleeps,
	write_spawns,
)
from .servers import Server
from .service import Engine
from .session import end_children
from .sources import write_sources

GENERATED, SOURCES, CONFIGURE = "generated", "sources", "configure"
COSTLY = "costly"
SLEEPS, CLIENT, SPAWNS, HITS, VALUES = "sleeps", "client", "spawns", "hits", "values"
PROJECT, LARGE, PRECOMPILED = "project", "large", "precompiled"

# the languages of projects that are compiled; empty if --language says it
COMPILED = {GENERATED: "", SOURCES: "c", CONFIGURE: "c", HITS: "c++", PROJECT: "c++", PRECOMPILED: "c++"}
REAL = (SOURCES, PROJECT)  # projects of real sources

MACHINES = 3  # on the line between a server and the building machines
ONE_WAY = 0.0005  # seconds that a packet takes on it

# variables that would change a contender's settings
FOREIGN = ("PYTHON", "WAF", "CCACHE_", "SCCACHE_", "GENBENCH_", "NINJA_", "MAKE", "BENCH_")
FOREIGN_NAMES = {
	*("CC", "CXX", "AR", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LINKFLAGS", "ARFLAGS"),
	*("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_PRELOAD"),
	*("MFLAGS", "GNUMAKEFLAGS", "JOBS", "NOCLIMB"),
}


def clean_environment(environ: Dict[str, str]) -> Dict[str, str]:
	"""The environment without the variables that would change how a contender builds."""
	return {k: v for k, v in environ.items() if not k.startswith(FOREIGN) and k not in FOREIGN_NAMES}


class Workshop:
	"""
	The work folder of a campaign, and the daemons in it.

	Nothing is deleted before the end, and only a folder that was made here is deleted at all.
	"""

	def __init__(self, parent: Optional[str], settings: Dict[str, Any]) -> None:
		try:
			if parent:
				os.makedirs(parent, exist_ok=True)
			self.path = tempfile.mkdtemp(prefix="bench-", dir=parent and os.path.abspath(parent))
		except OSError as e:
			raise Mistake("cannot work in %s: %s: name another folder with --work" % (parent, e.strerror)) from None
		self.settings = settings
		self.environment = clean_environment(dict(os.environ))
		self.engines: Dict[Tuple[Tuple[str, str], ...], Engine] = {}
		self.caches: Dict[Tuple[str, ...], CompilerCache] = {}
		self.servers: List[Server] = []
		self.filled: Dict[Tuple[str, ...], Server] = {}  # servers that a lane's first machine has filled
		self.line: Optional[Hosts] = None
		self.packages: Dict[str, List[Package]] = {}  # the packages of the projects of real sources
		self.code: Optional[Code] = None  # of the project with a precompiled header
		self.projects: Dict[Tuple[str, str, str], Project] = {}
		self.standing: Dict[Tuple[str, ...], str] = {}
		self.able: Dict[str, List[str]] = {}  # by compiler, the flags that it takes
		self.outputs = 0
		self.found_usher: Optional[str] = None
		self.cache_folders = 0

	def project(self, kind: str, compiler: Optional[Compiler], commands: int = 0) -> Project:
		"""
		The project of a kind; ``commands`` is the number of commands in those that consist of commands.

		Each compiler has one of its own, so that an edit reaches the builds of this compiler only.
		"""
		key = (kind, compiler.name if compiler else "", str(commands or ""))
		if key not in self.projects:
			root = os.path.join(self.path, "-".join(filter(None, (kind, *key[1].split("/"), key[2]))))
			makers: Dict[str, Callable[[], Project]] = {
				GENERATED: lambda: generate_sources(root, self.settings, compiler, self.environment),
				**dict.fromkeys(REAL, lambda: self.write_real(root, kind, compiler)),
				CONFIGURE: lambda: write_configure(root, compiler),
				SLEEPS: lambda: write_sleeps(root, commands),
				COSTLY: lambda: write_costly(root),
				SPAWNS: lambda: write_spawns(root, self.environment),
				HITS: lambda: write_hits(root, compiler, self.environment),
				VALUES: lambda: write_nothing(root),
				PRECOMPILED: lambda: self.write_precompiled(root, compiler),
			}
			self.projects[key] = makers.get(kind, lambda: copy_project(kind, root))()
		return self.projects[key]

	def project_with(self, name: str, flags: str, compiler: Compiler) -> Project:
		"""The generated project with more flags, one for each name."""
		key = ("priced", compiler.name, name)
		if key not in self.projects:
			place = "".join(c if c.isalnum() else "_" for c in "priced %s %s" % (compiler.name, name))
			both = " ".join(filter(None, (self.settings["flags"], flags)))
			settings = dict(self.settings, flags=both)
			self.projects[key] = generate_sources(os.path.join(self.path, place), settings, compiler, self.environment)
		return self.projects[key]

	@property
	def usher(self) -> str:
		"""The program that starts commands, so that their memory is their own; empty without a C compiler."""
		if self.found_usher is None:
			path = os.path.join(self.path, "usher")
			argv = [C_COMPILER, "-O2", "-o", path, os.path.join(HERE, "usher.c")]
			self.found_usher = "" if complaint(argv, self.environment) else path
		return self.found_usher

	def write_real(self, root: str, kind: str, compiler: Compiler) -> Project:
		return write_sources(root, self.packages[kind], compiler, self.settings["real"][kind]["flags"])

	def write_precompiled(self, root: str, compiler: Compiler) -> Project:
		assert self.code is not None
		count = self.settings["commands"]["precompiled"]
		return write_precompiled(root, count, self.settings["flags"], compiler, self.code)

	def output(self, label: str) -> str:
		self.outputs += 1
		folder = os.path.join(self.path, "outputs")
		os.makedirs(folder, exist_ok=True)
		return os.path.join(folder, "%04d-%s.txt" % (self.outputs, label))

	def our_engine(self, variables: Dict[str, str], programs: Optional[str] = None) -> Engine:
		"""The engine of this campaign with these variables, perhaps of another build."""
		key = (("programs", programs or ""), *sorted(variables.items()))
		if key not in self.engines:
			name = "engine-%d" % len(self.engines) if self.engines else "engine"
			# a program that a campaign has made itself may be parked like an installed one
			variables = dict(variables, WAFD_PARK_FOLDERS=os.path.realpath(self.path))
			self.engines[key] = Engine(self.path, self.environment, name, programs, **variables)
		return self.engines[key]

	def new_cache(self, contender: Contender, lane: Tuple[str, ...]) -> None:
		"""Give a lane an empty cache; the one that it had stays on disk until the end."""
		if contender.cache:
			self.cache_folders += 1
			folder = os.path.join(self.path, "caches", "%03d-%s" % (self.cache_folders, contender.name))
			with INTERRUPTS.held():
				cache = contender.cache(folder, self.environment)
				if lane in self.caches:
					cache.succeed(self.caches[lane])
				self.end_cache(lane)
				self.caches[lane] = cache

	def end_cache(self, lane: Tuple[str, ...]) -> None:
		cache = self.caches.pop(lane, None)
		if cache:
			cache.stop()

	def start_server(self, kind: Type[Server], folder: str, host: Optional[Host] = None) -> Server:
		"""A new server in a folder that is made for it."""
		with INTERRUPTS.held():
			self.servers.append(kind(folder, self.environment, host))
		return self.servers[-1]

	def hosts(self) -> List[Host]:
		"""Hosts on one line: one for servers, and two machines."""
		with INTERRUPTS.held():
			if not self.line:
				self.line = Hosts(MACHINES)
				self.line.delay(ONE_WAY)
		return self.line.hosts

	def end_server(self, server: Server) -> None:
		"""End a server. Its files stay until the end."""
		server.stop()
		self.servers.remove(server)

	def close(self, keep: bool) -> List[str]:
		"""End all daemons and delete everything; one line for each daemon that could not be ended."""
		troubles = []
		for lane in list(self.caches):
			self.end_cache(lane)
		for server in list(self.servers):
			self.end_server(server)
		if self.line:
			self.line.close()
		for engine in self.engines.values():
			try:
				engine.stop()
			except Failed as e:
				troubles.append("the engine in %s was not stopped: %s" % (engine.folder, e))
		end_children()
		for engine in self.engines.values():
			engine.remove()
		if not keep:
			shutil.rmtree(self.path, ignore_errors=True)
		return troubles
