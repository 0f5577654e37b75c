"""
One build that a fault of a cluster disturbs, held against a plain one: the same objects, the same status, and in time.
"""

import concurrent.futures
import hashlib
import pathlib
import random
import re
import shutil
import subprocess
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional

from benchmark.mistake import Failed

from .course import Project, compile_plainly
from .ground import JOBS, Client, Ground
from .upsets import UPSETS, Upset

LOOK = 0.01  # seconds


class Result(NamedTuple):
	"""What came of a trial."""

	number: int
	kind: str
	sent: int
	used: int
	reasons: Dict[str, int]
	failed: List[str]  # commands, with how they ended and what they said
	different: List[str]  # objects
	troubles: List[str]
	notes: List[str]
	seconds: float

	@property
	def is_good(self) -> bool:
		return not (self.failed or self.different or self.troubles)


class Built(NamedTuple):
	failed: List[str]
	seconds: float


class Sources:
	"""A project whose objects are others in each trial, so that no earlier result is right."""

	def __init__(self, folder: pathlib.Path) -> None:
		self.project = Project("generated", folder)
		self.texts = {path: path.read_text(encoding="utf-8") for path in self.project.sources()}

	def draw(self, rng: random.Random) -> None:
		for path, text in self.texts.items():
			name = re.sub(r"\W", "_", path.stem)
			path.write_text("%s\nint drawn_%s = %d;\n" % (text, name, rng.getrandbits(30)), encoding="utf-8")
		self.project.grow_old()


def find_different(project: Project, right: Dict[str, str]) -> List[str]:
	"""The objects that are not as those of the plain build, or that are not there."""

	def is_right(name: str) -> bool:
		path = project.folder / name
		return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == right[name]

	return sorted(name for name in right if not is_right(name))


def build(project: Project, client: Client, patience: float) -> Built:
	start = time.monotonic()

	def compile_one(command: List[str]) -> Optional[str]:
		left = start + patience - time.monotonic()
		status, said = client.run(command, project.folder, left)
		if status is None:
			return "%s: not done after %.0f s" % (command[-1], patience)
		return "%s: status %d: %s" % (command[-1], status, said.strip()[:500]) if status or said else None

	with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
		failed = [one for one in pool.map(compile_one, project.commands) if one]
	return Built(failed, time.monotonic() - start)


def strike_when(upset: Upset, project: Project, moment: float, later: float, is_over: threading.Event) -> None:
	"""Strike when this share of the objects is there, and some seconds after that."""
	outputs = [project.folder / name for name in project.outputs()]
	while not is_over.is_set() and sum(path.exists() for path in outputs) < moment * len(outputs):
		time.sleep(LOOK)
	time.sleep(later)
	upset.strike()


class Trial:
	def __init__(self, ground: Ground, sources: Sources, seed: int, number: int, kind: str, patience: float) -> None:
		self.ground, self.sources, self.number, self.kind = ground, sources, number, kind
		self.patience = patience
		self.rng = random.Random("%d %d %s" % (seed, number, kind))
		self.troubles: List[str] = []

	def attempt(self, what: str, do: Any) -> Any:
		"""Something of ours beside the build; if it fails, that is a trouble of the trial."""
		try:
			return do()
		except (Failed, OSError, subprocess.SubprocessError) as e:
			self.troubles.append("%s: %s" % (what, e))
			return None

	def run(self) -> Result:
		project, ground = self.sources.project, self.ground
		moment, later = self.rng.random() * 0.8, self.rng.random() * 0.3
		self.sources.draw(self.rng)
		right = compile_plainly(project).digests
		project.remove_outputs()
		place = ground.folder / ("client-%d" % self.number)
		client = Client(ground, place)
		upset = UPSETS[self.kind](ground, client, self.rng)
		is_over = threading.Event()

		def disturb() -> None:
			self.attempt(self.kind, lambda: strike_when(upset, project, moment, later, is_over))

		disturber = threading.Thread(target=disturb, daemon=True)
		try:
			if upset.is_early:
				self.attempt(self.kind, upset.strike)
			else:
				disturber.start()
			built = build(project, client, self.patience)
			different = find_different(project, right)
			is_over.set()
			if disturber.ident:
				disturber.join()
			sent, used, reasons = self.attempt("statistics", client.counts) or (0, 0, {})
		finally:
			is_over.set()
			self.attempt(self.kind, upset.end)
			self.attempt("mending", ground.mend)
			self.troubles += client.leave()
			shutil.rmtree(place, ignore_errors=True)
		if upset.disturbs:
			self.attempt("afterwards", ground.await_health)
		notes = ["at %.0f %% and %.1f s" % (100 * moment, later), *upset.notes]
		failed, seconds = built
		found = (failed, different, self.troubles, notes, seconds)
		return Result(self.number, self.kind, sent, used, reasons, *found)
