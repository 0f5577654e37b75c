"""
One trial: a project, a way to build it, and faults; and whether the build was what a plain one is.

The steps are those of `Trial.run`. A trouble is a line or more of text; a trial without one has passed.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from benchmark.session import send

from .builders import Configured, choose_builder
from .fault import Fault, Later, Stage
from .kinds import choose_faults
from .processes import describe, list_processes
from .project import OUT, Project, State, remove_outputs
from .reference import UNWANTED, Reference, References, compare
from .scene import LEAVE, Scene, Tools, wait_for

PROJECTS = 6  # so many different ones, that their plain builds need not be made for each trial
EDITS = 4
HANG = 2.0  # times the patience, after which a build hangs
LATE = 3.0  # seconds after which a fault strikes, however little is made
WITHOUT_ENGINE = "ran without the engine"
HEALED = 4  # one of these builds must come from the cache alone, after unreachable engines have left


class Shop(NamedTuple):
	"""Shared by all trials."""

	tools: Tools
	references: References
	configured: Configured
	systems: List[str]
	kinds: Sequence[str]
	patience: float  # seconds that a build may take, at most


class Result(NamedTuple):
	"""The result of a trial."""

	number: int
	builder: str
	state: str
	kinds: List[str]
	notes: List[str]
	troubles: List[str]
	seconds: float
	slowest: float  # build


class Built(NamedTuple):
	"""The result of a build."""

	status: int
	said: str
	seconds: float


class Trial:
	"""One trial, by its number."""

	def __init__(self, shop: Shop, seed: int, number: int) -> None:
		self.shop = shop
		self.number = number
		rng = random.Random("trial %d %d" % (seed, number))
		self.project = Project(rng.randrange(PROJECTS))
		self.builder = choose_builder(rng, shop.systems)
		self.faults = choose_faults(rng, shop.kinds, self.builder, shop.tools.is_python_for_all)
		self.start = rng.choice(("cold", "warm", "edit"))
		if any(fault.wants_edit for fault in self.faults):
			self.start = "edit"
		edits = tuple(sorted(rng.sample(range(EDITS), rng.randint(1, 2))))
		is_broken = any(fault.breaks for fault in self.faults)
		self.state = State(edits if self.start == "edit" else (), is_broken)
		self.is_healing = rng.random() < 0.4
		self.notes: List[str] = []
		self.troubles: List[str] = []
		self.began = time.monotonic()
		self.slowest = 0.0
		self.scene = Scene(shop.tools, shop.tools.root / "t")
		self.log = shop.tools.root / "build.log"
		self.stage = Stage(self.scene, self.builder, self.project, self.note)
		self.umask: Optional[int] = next((f.umask for f in self.faults if f.umask is not None), None)

	def note(self, text: str) -> None:
		self.notes.append("%.3f s: %s" % (time.monotonic() - self.began, text))

	def trouble(self, what: str, *lines: str) -> None:
		self.troubles.append("\n".join([what, *lines]))

	@property
	def kinds(self) -> List[str]:
		return [fault.name for fault in self.faults]

	def result(self) -> Result:
		seconds = time.monotonic() - self.began
		start = "%s, %s" % (self.start, self.state)
		return Result(
			self.number, str(self.builder), start, self.kinds, self.notes, self.troubles, seconds, self.slowest
		)

	def run(self) -> Result:
		"""All of it, in its order."""
		self.scene.make()
		try:
			self.scene.variables = self.builder.variables(self.scene)
			wanted = self.lay_out()
			if self.start == "cold" or self.build_before():
				self.build_disturbed(wanted)
			if not self.troubles:
				self.build_after(wanted)
			for fault in self.faults:
				fault.end(self.stage)
			self.note("stopping")
			for text in self.scene.stop_engines():
				self.trouble(text)
			self.note("stopped")
			if not self.may_leave() and not any(fault.may_leave_temporary for fault in self.faults):
				for text in self.scene.strays(any(fault.may_leave_links for fault in self.faults)):
					self.trouble(text)
		except Hang as e:
			self.trouble(str(e))
		return self.result()

	def close(self, aside: Optional[pathlib.Path]) -> None:
		"""Remove all of it, or put it aside."""
		for fault in self.faults:
			fault.end(self.stage)
		if aside:
			subprocess.run(["cp", "-a", str(self.scene.folder), str(aside)], stderr=subprocess.DEVNULL, check=False)
			if self.log.exists():
				os.replace(str(self.log), "%s.log" % aside)
		self.scene.remove()

	# ---- steps

	def lay_out(self) -> Reference:
		"""Prepare everything for the first build; the reference for the last state."""
		for fault in self.faults:
			fault.prepare(self.stage)
		wanted = self.shop.references.find(self.scene, self.builder, self.project, self.state)
		self.write(State((), self.state.is_broken) if self.start != "cold" else self.state)
		self.builder.prepare(self.scene, self.project)
		self.scene.give_away()
		if self.builder.system == "waf" and not self.shop.configured.restore(self.builder, self.project, self.scene):
			built = self.run_build("configure", [])
			if built.status == 0:
				self.shop.configured.keep(self.builder, self.project, self.scene)
			elif not self.may_fail():
				self.trouble("configure ended with status %d:\n%s" % (built.status, built.said[-2000:]))
		self.scene.give_away()
		return wanted

	def write(self, state: State) -> None:
		self.project.write(self.scene.project, state)
		for fault in self.faults:
			fault.lay(self.stage)

	def build_before(self) -> bool:
		"""Fill the store by a build, then edit sources or remove all outputs. Tell whether that went well."""
		built = self.run_build("build", [])
		if bool(built.status) != self.state.is_broken and not self.may_fail():
			self.trouble("the build before ended with status %d:\n%s" % (built.status, built.said[-2000:]))
			return False
		if self.start == "edit":
			self.write(self.state)
			self.scene.give_away()
		if self.start == "warm" or (self.builder.system == "ninja" and any(f.wants_outputs_gone for f in self.faults)):
			remove_outputs(self.scene.project)
		return True

	def build_disturbed(self, wanted: Reference) -> None:
		for fault in self.faults:
			fault.begin(self.stage)
		self.note("the disturbed build")
		built = self.run_build("build", self.faults)
		for fault in self.faults:
			fault.relieve(self.stage)
		if bool(built.status) == self.state.is_broken and not (self.state.is_broken and self.may_fail()):
			self.check(built, wanted, "the build")
			return
		if not self.may_fail():
			self.trouble("the build ended with status %d:\n%s" % (built.status, built.said[-2000:]))
			return
		# a plain build could have failed as well; it is run again when nothing of the first is left
		if not wait_for(lambda: not self.commands(), self.shop.patience):
			self.trouble("commands of a build that has ended still run:", *describe(self.commands()))
			return
		built = self.run_build("build", [])
		if bool(built.status) != self.state.is_broken:
			self.trouble("the build, run again, ended with status %d:\n%s" % (built.status, built.said[-2000:]))
		else:
			self.check(built, wanted, "the build, run again,")

	def build_after(self, wanted: Reference) -> None:
		"""Check that the next build has nothing to do, and that the cache works again."""
		if self.state.is_broken:
			return
		built = self.run_build("build", [])
		self.check(built, wanted, "the next build")
		if self.troubles:
			return
		for fault in self.faults:
			fault.end(self.stage)
		if not self.has_outputs_of_the_future():
			self.build_nothing()
		if self.is_healing and not any(fault.lasts for fault in self.faults):
			self.heal(wanted)

	def has_outputs_of_the_future(self) -> bool:
		"""Whether outputs are newer than files made of them. Then plain ninja would never be done, either."""
		is_of_store = "store-times" in self.kinds and "WAFCC_HARDLINK" in self.builder.settings
		return is_of_store or "times-future" in self.kinds

	def build_nothing(self) -> None:
		"""Build until nothing is to be done. Commands without recorded facts run once more."""
		deadline = time.monotonic() + 2 * LEAVE
		refusals = 0
		while True:
			built = self.run_build("build", [])
			if not built.status and self.builder.is_done(built.said):
				return
			refusals += WITHOUT_ENGINE in built.said
			if not built.status and refusals > 1:  # the engine goes on to refuse this client
				return
			if built.status or time.monotonic() > deadline:
				self.trouble("a build with nothing to do does not say so:\n%s" % built.said[-2000:], *self.explain())
				return
			time.sleep(0.02)

	def heal(self, wanted: Reference) -> None:
		"""After some builds all comes from the cache, with the same engine or another."""
		counts: Dict[str, int] = {}
		builds = 0
		deadline = time.monotonic() + 2 * LEAVE
		while builds < HEALED or time.monotonic() < deadline:
			builds += 1
			remove_outputs(self.scene.project)
			before = self.count()
			built = self.run_build("build", [])
			self.check(built, wanted, "a build after that")
			if self.troubles:
				return
			after = self.count()
			counts = {name: after[name] - before.get(name, 0) for name in after}
			if counts.get("hits", 0) > 0 and counts.get("misses", 0) == 0:
				return
			time.sleep(0.02)
		self.trouble("the cache does not answer any more after %d builds: %s" % (builds, counts), *self.explain())

	# ---- what they are made of

	def may_fail(self) -> bool:
		return any(fault.may_fail for fault in self.faults)

	def may_leave(self) -> bool:
		return any(fault.may_leave for fault in self.faults)

	def commands(self) -> Dict[int, str]:
		"""Processes that still run for a build, without engines and parked programs."""
		told = list_processes(self.scene.runtime, True)
		found = [one for one in self.scene.processes() if one.program in ("wafcc", "ninja")]
		return {one.pid: told[one.pid] for one in found if one.pid in told}

	def count(self) -> Dict[str, int]:
		# as the build calls it: the engine that it may start has what its callers have
		_, said = self.scene.ask(*self.scene.with_wrapper([self.shop.tools.wafcc, "--show-stats", "--json"]))
		try:
			told = json.loads(said)
		except ValueError:
			return {}
		misses, uncached = (sum(told[name].values()) for name in ("misses", "uncached"))
		return {"hits": told["hits"], "misses": misses, "uncached": uncached}

	def explain(self) -> List[str]:
		return self.scene.ask(self.shop.tools.wafcc, "--explain")[1].splitlines()[:10]

	def check(self, built: Built, wanted: Reference, what: str) -> None:
		"""Status, messages and files are those of a plain build."""
		if bool(built.status) != bool(wanted.status):
			self.trouble("%s ended with status %d:\n%s" % (what, built.status, built.said[-2000:]))
			return
		if wanted.complaint and wanted.complaint not in built.said:
			self.trouble("%s does not say %r:\n%s" % (what, wanted.complaint, built.said[-2000:]))
		troubles = compare(self.scene, self.builder, wanted, self.umask)
		if self.may_leave() or any(fault.may_leave_beside for fault in self.faults):
			troubles = [text for text in troubles if not text.endswith(UNWANTED)]
		if troubles:
			self.trouble("%s: %s" % (what, troubles[0]), *troubles[1:], *self.explain())
		if built.seconds > self.shop.patience:
			self.trouble("%s took %.1f s" % (what, built.seconds))

	def run_build(self, command: str, faults: Sequence[Fault]) -> Built:
		began = time.monotonic()
		argv = self.scene.with_handicap(self.builder.argv(self.scene, False, command))
		child = self.scene.start(argv, self.scene.environ(), self.log)
		strikes = Strikes(self.stage, faults, len(self.project.sources))
		try:
			while child.poll() is None:
				strikes.go()
				if time.monotonic() - began > HANG * self.shop.patience:
					raise Hang("\n".join(["a build hangs:", *describe(list_processes(self.scene.runtime, True))]))
				time.sleep(0.004)
		finally:
			strikes.finish()
			if child.poll() is None:
				stop_session(child)
		seconds = time.monotonic() - began
		self.note("%s ended with status %d after %.2f s" % (command, child.returncode, seconds))
		self.slowest = max(self.slowest, seconds)
		return Built(child.returncode, self.log.read_text(errors="replace"), seconds)


class Hang(Exception):
	"""A build that does not end; the message shows what it waits for."""


class Strikes:
	"""Faults that wait for their moment."""

	def __init__(self, stage: Stage, faults: Sequence[Fault], outputs: int) -> None:
		self.stage = stage
		self.outputs = outputs
		self.began = time.monotonic()
		self.waiting = [(share, pause, fault) for fault in faults for share, pause in fault.moments]
		self.reached: Dict[float, float] = {}  # when a share of outputs was there
		self.later: Later = []
		self.due: List[Callable[[], None]] = []

	def go(self) -> None:
		"""Let faults strike that are due."""
		now = time.monotonic() - self.began
		if self.waiting:
			share = count_objects(self.stage.scene.project) / self.outputs
			for item in list(self.waiting):
				self.try_one(item, share, now)
		for at, act in list(self.later):
			if now >= at:
				self.later.remove((at, act))
				act()

	def try_one(self, item: Tuple[float, float, Fault], share: float, now: float) -> None:
		wanted, pause, fault = item
		if share >= wanted:
			self.reached.setdefault(wanted, now)
		if now > LATE or (wanted in self.reached and now >= self.reached[wanted] + pause):
			later: Later = []
			if fault.strike(self.stage, later):
				self.waiting.remove(item)
				self.later += [(time.monotonic() - self.began + after, act) for after, act in later]

	def finish(self) -> None:
		"""Undo temporary faults, because the build is over."""
		for _, act in self.later:
			act()
		self.later = []
		for _, _, fault in self.waiting:
			self.stage.note("%s did not come to it" % fault.name)


def count_objects(folder: pathlib.Path) -> int:
	found = 0
	for _, folders, names in os.walk(str(folder / OUT)):
		if "c4che" in folders:
			folders.remove("c4che")
		found += sum(name.endswith(".o") for name in names)
	return found


def stop_session(child: "subprocess.Popen[bytes]") -> None:
	try:
		os.killpg(child.pid, signal.SIGKILL)
	except OSError:
		send(child.pid, signal.SIGKILL)
	child.wait()
