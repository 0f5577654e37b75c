"""
What a builder is: the part of a contender that builds, or runs whatever else a scenario is about.

What it can do is a set of *abilities*; a scenario names the one that it needs.
"""

import os
import shutil
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Optional

from .interpreter import ROOT
from .meter import Command
from .service import find_engine

if TYPE_CHECKING:
	from .run import Run

BUILD, REBUILD, CONFIGURE, SLEEP = "build", "rebuild", "configure", "sleep"
CLIENT, TASKS, NEIGHBOR, SPAWN, HIT = "client", "tasks", "neighbor", "spawn", "hit"
SERVE, FAR, BATCH, LARGE, UNITY = "serve", "far", "batch", "large", "unity"
PRICE, STORE = "price", "store"
COMPILING = frozenset((BUILD, REBUILD, HIT))  # what a cache for compilers has to do with


class Builder:
	"""A build system: what it needs, how it prepares a folder and how it builds there."""

	runs_python = False
	needs_engine = False
	engine_environment: Dict[str, str] = {}
	"""Variables of an engine of its own; builders with the same ones share it."""
	program = ""
	note = ""
	abilities: FrozenSet[str] = frozenset((BUILD, REBUILD, SLEEP))

	def missing(self) -> Optional[str]:
		"""What this machine lacks for it."""
		if self.program and not shutil.which(self.program):
			return "%s is not installed" % self.program
		if self.needs_engine and not find_engine():
			return "the engine is not built: run cargo build --release in %s" % os.path.join(ROOT, "engine")
		return None

	def prepare(self, run: "Run") -> None:
		"""Do before the first build in a folder what is no part of building."""

	def command(self, run: "Run") -> Command:
		"""The command that builds."""
		raise NotImplementedError

	def settle(self, run: "Run") -> None:
		"""Do after a build what any later one would find done, and let what stays behind become ready."""

	def rest(self, run: "Run") -> None:
		"""Let what stays behind become idle before an edit, as it is when a person has made one."""

	def daemons(self) -> List[int]:
		"""The processes of its own that stay between commands."""
		return []

	def check(self, run: "Run") -> None:
		"""See after a run that it was done in the way that this contender stands for."""
