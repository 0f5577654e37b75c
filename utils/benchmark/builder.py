"""
A builder is the part of a contender that builds, or runs the other work of a scenario.

Each builder has a set of *abilities*, and each scenario names the ability that it needs.
"""

import shutil
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Optional

from .meter import Command
from .service import missing_engine

if TYPE_CHECKING:
	from .run import Run

BUILD, REBUILD, CONFIGURE, SLEEP = "build", "rebuild", "configure", "sleep"
CLIENT, TASKS, NEIGHBOR, SPAWN, HIT = "client", "tasks", "neighbor", "spawn", "hit"
SERVE, FAR, BATCH, LARGE, UNITY = "serve", "far", "batch", "large", "unity"
PRICE, STORE, DISK, MEMORY = "price", "store", "disk", "memory"
PRECOMPILE, EDIT, BOARD, LINK = "precompile", "edit", "board", "link"
COMPILING = frozenset((BUILD, REBUILD, HIT))  # in these, a cache for compilers makes a difference


class Builder:
	"""A build system: its needs, and how it prepares a folder and builds there."""

	runs_python = False
	needs_engine = False
	engine_environment: Dict[str, str] = {}
	"""Variables of an engine of its own; builders with the same ones share it."""
	program = ""
	note = ""
	abilities: FrozenSet[str] = frozenset((BUILD, REBUILD, SLEEP))

	def missing(self) -> Optional[str]:
		"""What this machine lacks for it, with the remedy; None if it can take part."""
		if self.program and not shutil.which(self.program):
			return "%s is not installed" % self.program
		return missing_engine() if self.needs_engine else None

	def prepare(self, run: "Run") -> None:
		"""Do the work before the first build in a folder that is not measured."""

	def command(self, run: "Run") -> Command:
		raise NotImplementedError

	def settle(self, run: "Run") -> None:
		"""Do the work that only the next build after a build finds, and let daemons get ready."""

	def rest(self, run: "Run") -> None:
		"""Let daemons become idle before an edit, as they are when a person edits."""

	def daemons(self) -> List[int]:
		"""The process numbers of its daemons."""
		return []

	def check(self, run: "Run") -> None:
		"""Fail if the run was not done in the way that this contender stands for."""
