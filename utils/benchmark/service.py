"""Our engine, as a daemon that does a part of a contender's work, and the programs that come with it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

from . import session
from .interpreter import ROOT
from .mistake import Failed

TARGET = os.path.join(ROOT, "engine", "target")
BUILT = os.path.join(TARGET, "release", "wafd")
LONGEST = 80  # characters of a folder for a socket: its whole path may have 107


def find_engine(programs: Optional[str] = None) -> Optional[str]:
	"""The engine's program: that of a folder, or the one that was chosen, that of this tree, or an installed one."""
	if programs:
		path = os.path.join(programs, "wafd")
		return path if os.access(path, os.X_OK) else None
	beside = os.path.join(os.path.dirname(sys.executable or ""), "wafd")
	for path in (os.environ.get("WAFD"), BUILT, beside):
		if path and os.access(path, os.X_OK):
			return path
	return shutil.which("wafd")


def missing_engine() -> Optional[str]:
	"""The remedy if the engine is not built."""
	if find_engine():
		return None
	return "the engine is not built: run cargo build --release in %s" % os.path.join(ROOT, "engine")


def find_example(name: str) -> Optional[str]:
	"""An example program of the engine: beside that, or as the tests of this tree have built it."""
	kinds = ("release", os.path.join("check", "release"), "debug")
	folders = [os.path.dirname(find_engine() or ""), *(os.path.join(TARGET, kind) for kind in kinds)]
	paths = [os.path.join(folder, "examples", name) for folder in folders]
	return next((path for path in paths if os.access(path, os.X_OK)), None)


def missing_example(name: str) -> Optional[str]:
	"""The remedy if an example program is not built."""
	if find_example(name):
		return None
	return "%s is not built: run cargo build --release --example %s in engine" % (name, name)


def is_fit(folder: str) -> bool:
	"""Tell whether the path suits a socket, and the library that is preloaded into programs."""
	return len(folder) <= LONGEST and not re.search(r"[\s:]", folder)  # which is what LD_PRELOAD is split at


class Engine:
	"""An engine of our own, separate from the user's."""

	def __init__(
		self, room: str, env: Dict[str, str], name: str = "engine", programs: Optional[str] = None, **variables: str
	) -> None:
		"""Make its runtime folder. The variables are for the engine itself."""
		folder = os.path.join(room, name)
		self.folder = folder if is_fit(folder) else tempfile.mkdtemp(prefix="wafd-bench-")
		os.makedirs(self.folder, mode=0o700, exist_ok=True)
		self.program = find_engine(programs) or "wafd"
		# a client that finds no engine starts it, and hands its own environment on
		self.environment = {"WAFD_RUNTIME_DIR": self.folder, "WAFD": self.program, **variables}
		self.env = dict(env, **self.environment)

	def status(self) -> Optional[Dict[str, Any]]:
		"""Its status; None before the first client has started it."""
		done = self.ask("status", "--json")
		try:
			return json.loads(done.stdout.decode()) if not done.returncode else None
		except ValueError:
			raise Failed("wafd status --json did not answer with JSON") from None

	def pids(self) -> List[int]:
		"""
		The engine's process and the parked programs; none before it was started.

		All commands are children of the engine, but the work of a parked program itself does not count as the engine's.
		"""
		status = self.status()
		if not status:
			return []
		programs = status["parking"]["programs"]
		return [status["pid"], *(parked["pid"] for program in programs for parked in program["parked"])]

	def parked_commands(self) -> int:
		"""The number of commands that ran in parked programs."""
		status = self.status()
		return status["parking"]["commands"] if status else 0

	def start(self) -> None:
		"""Start it, if it does not run, and wait until it listens."""
		done = self.ask("start")
		if done.returncode:
			raise Failed("wafd start: %s" % done.stderr.decode("utf-8", "replace").strip())

	def stop(self) -> None:
		self.ask("stop", "--now")

	def leave(self, patience: float = 30.0) -> None:
		"""End the engine, if it runs, and wait until nothing holds its store any more."""
		status = self.status()
		if not status:
			return
		self.stop()
		deadline = time.monotonic() + patience
		while session.is_alive(status["pid"]):
			if time.monotonic() > deadline:
				raise Failed("the engine did not end")
			time.sleep(0.01)

	def remove(self) -> None:
		"""Remove its folder, when nothing can come of it any more."""
		shutil.rmtree(self.folder, ignore_errors=True)

	def ask(self, *args: str) -> "subprocess.CompletedProcess[bytes]":
		"""Run the engine's own command line."""
		argv = [self.program, *args]
		try:
			return subprocess.run(argv, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
		except (OSError, subprocess.TimeoutExpired) as e:
			raise Failed("%s %s: %s" % (self.program, args[0], e)) from None
