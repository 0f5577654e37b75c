"""One run: a scenario of one lane in one repetition, which gives measurements."""

import json
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .cache import CompilerCache
from .compiler import Compiler
from .contender import Contender
from .hosts import Host
from .interpreter import Interpreter
from .meter import Command, Reading, measure
from .project import Project, Snapshot
from .servers import Server
from .service import Engine
from .workshop import Workshop

MIB = 1024.0


class Lane(NamedTuple):
	"""A contender with the compiler and the interpreter that it uses, where it uses any."""

	contender: Contender
	compiler: Optional[Compiler]
	interpreter: Optional[Interpreter]

	@property
	def names(self) -> Tuple[str, ...]:
		"""The names of its parts, which tell it from all others."""
		return tuple(part.name if part else "" for part in self)

	@property
	def text(self) -> str:
		"""Its names in a few words."""
		return " ".join(filter(None, self.names))

	@property
	def columns(self) -> Dict[str, Optional[str]]:
		"""Its names as a record has them."""
		return dict(zip(("contender", "compiler", "interpreter"), (name or None for name in self.names)))

	@property
	def label(self) -> str:
		"""Its name as a part of file names. It has no ``@``, which earlier engines refused in commands."""
		return "-".join(filter(None, self.names)).replace("/", "_").replace("@", "_")


class Run:
	"""The state that the phases of a scenario work on: the folder, and the results so far."""

	def __init__(self, lane: Lane, project: Project, workshop: Workshop, jobs: int, version: int) -> None:
		self.lane = lane
		self.project = project
		self.workshop = workshop
		self.jobs = jobs
		self.version = version
		self.folder = ""
		self.host: Optional[Host] = None
		self.server: Optional[Server] = None
		self.results: List[Tuple[str, Dict[str, float]]] = []
		self.seconds_aside: Dict[str, float] = {}
		self.before: Snapshot = {}
		self.variables: Dict[str, str] = {}
		"""Variables of all its commands, besides those of the contender."""

	@property
	def root(self) -> str:
		return self.project.root

	@property
	def settings(self) -> Dict[str, Any]:
		return self.workshop.settings

	@property
	def wrapped(self) -> List[str]:
		cache = self.lane.contender.cache
		return [cache.find() or cache.program] if cache and cache.wraps else []

	@property
	def compilers(self) -> Dict[str, str]:
		"""The compilers' commands, by the name of the variable that holds them."""
		compiler = self.lane.compiler
		if not compiler:
			return {}
		both = {"CC": compiler.cc, "CXX": compiler.cxx}
		wanted = {"c": ["CC"], "c++": ["CXX"], "both": ["CC", "CXX"]}[self.project.language]
		return {name: " ".join([*self.wrapped, both[name]]) for name in wanted}

	@property
	def engine(self) -> Optional[Engine]:
		"""The engine that this lane's commands go through, if it needs one."""
		one = self.lane.contender
		if not one.builder.needs_engine:
			return None
		return self.workshop.our_engine(one.builder.engine_environment, one.programs)

	@property
	def cache(self) -> Optional[CompilerCache]:
		return self.workshop.caches.get(self.lane.names)

	@property
	def environment(self) -> Dict[str, str]:
		env = dict(self.workshop.environment, **self.compilers)
		if self.lane.interpreter:
			env.update(self.lane.interpreter.environment)
		if self.engine:
			env.update(self.engine.environment)
		if self.cache:
			env.update(self.cache.environment)
		env.update(self.variables)
		return env

	def daemons(self) -> List[int]:
		"""The daemons whose work counts for this lane."""
		pids = self.lane.contender.builder.daemons()
		if self.engine:
			pids += self.engine.pids()
		return pids + (self.cache.pids() if self.cache else [])

	def execute(self, command: Command) -> Reading:
		"""Run a command of this lane and measure it; it must succeed."""
		if self.host:
			command = command._replace(argv=self.host.enter(command.argv))
		return measure(command, self.workshop.output(self.lane.label), self.daemons, self.workshop.usher)

	def aside(self, name: str, command: Command) -> None:
		"""Run a command that is preparation only: its time is kept and compared with nothing."""
		self.seconds_aside[name] = self.seconds_aside.get(name, 0.0) + self.execute(command).wall

	@property
	def answer(self) -> str:
		"""The file into which a program that measures writes what it has found."""
		return self.path("answer.json")

	def ask(self, name: str, command: Command) -> Dict[str, float]:
		"""Run a program that measures, and read its answer."""
		self.aside(name, command)
		with open(self.answer, encoding="utf-8") as f:
			return json.load(f)

	def keep(self, reading: Reading) -> None:
		"""Keep a reading as this run's result."""
		used = reading.used
		values = {
			"wall": reading.wall,
			"processor": used.user + used.system,
			"user": used.user,
			"system": used.system,
		}
		# the compilers of a daemon are not our children: how large they grew is not known, and half of it misleads
		if not self.daemons():
			values["peak"] = used.peak_kib / MIB
		self.results.append(("", values))

	def built(self, folder: str) -> None:
		"""Remember a folder as one that holds the project's current state, built."""
		self.workshop.standing[(self.root, *self.lane.names)] = folder

	def standing_folder(self) -> Optional[str]:
		"""The folder in which this lane has built the project before, if it has."""
		return self.workshop.standing.get((self.root, *self.lane.names))

	def new_folder(self) -> None:
		"""Go into a new folder and let the contender prepare it."""
		self.workshop.new_cache(self.lane.contender, self.lane.names)
		if self.cache and self.host and self.server:
			self.cache.reach(self.server, self.host)
		self.folder = self.project.new_folder(self.lane.label)
		self.lane.contender.builder.prepare(self)

	def another_folder(self) -> None:
		"""Go into another folder, and keep the lane's cache. The folder has the same name if the cache needs that."""
		if self.cache and self.cache.knows_folder:
			self.project.move_aside(self.folder)
		else:
			self.folder = self.project.new_folder(self.lane.label)
		self.lane.contender.builder.prepare(self)

	def go(self, phases: Sequence[Callable[["Run"], None]]) -> List[Tuple[str, Dict[str, float]]]:
		"""Go through phases, check that the contender worked as it should, and return the results."""
		for phase in phases:
			phase(self)
		self.lane.contender.builder.check(self)
		return self.results

	def path(self, name: str) -> str:
		"""A file in the run's own folder."""
		return os.path.join(self.root, self.folder, name)
