"""A comparison: one size after the other, in rounds, all lanes in turn. Runs that the ledger has are not repeated."""

import glob
import os
import shutil
import tempfile
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from .builder import UNITY
from .campaign import compile_once, take_turns
from .courses import COMPILE, IDLE, PROJECTS, Course, LimitedRun, build_idle, courses_of, size_of
from .interrupt import INTERRUPTS
from .large import too_long
from .ledger import Key, Ledger, Line, Writer, key_of
from .machine import cores
from .mistake import Failed, Mistake
from .progress import Progress
from .run import Lane, Run
from .service import Engine
from .workshop import Workshop

MARK = "comparison"  # a file in the folder that a session works in, which names its ledger
STOPPED = ("exit status 124:", "exit status 137:")  # how timeout ends when it has ended a command
SHAKEN = 10  # tasks of the build that warms up in idle work


class Step(NamedTuple):
	"""One course of one lane in one round of a size."""

	course: Course
	lane: Lane
	tasks: int
	round: int

	@property
	def kind(self) -> Tuple[Any, ...]:
		"""Equal for this step in all sizes and rounds."""
		return (self.course.name, *self.lane.names)

	@property
	def text(self) -> str:
		return "%s, %s, %d tasks, round %d" % (self.course.name, self.lane.text, self.tasks, self.round + 1)


def names_of(lane: Lane) -> Tuple[Optional[str], ...]:
	"""Contender, compiler and interpreter as the ledger has them."""
	return tuple(lane.columns.values())


def plan(options: Dict[str, Any], lanes: Sequence[Lane]) -> List[Step]:
	"""Order the steps, size by size."""
	pairs = [(c, lane) for lane in lanes for c in courses_of(options["work"], options["scenarios"], lane.contender)]
	groups = [[(course, lane) for course, lane in pairs if course.name in names] for names in ORDER]
	return [
		Step(course, lane, tasks, turn)
		for tasks, rounds in zip(options["tasks"], options["repeat"])
		for turn, _, (course, lane) in take_turns(rounds, groups)
	]


ORDER = (("idle",), ("full", "cold", "cold and warm"), ("noop",), ("onefile",))
"""Courses in the order in which they can follow each other."""


class Comparison:
	"""The steps of a comparison, the folder where they run, and the state of the ledger."""

	def __init__(
		self, options: Dict[str, Any], lanes: Sequence[Lane], folder: str, writer: Writer, progress: Progress
	) -> None:
		self.options = options
		self.lanes = lanes
		self.folder = folder
		self.writer = writer
		self.progress = progress
		self.done: Set[Key] = set()
		self.walls: Dict[Tuple[Optional[str], ...], Dict[int, float]] = {}
		"""By lane and number of tasks, the longest build."""
		self.out: Dict[Tuple[Optional[str], ...], int] = {}
		"""Lanes that take no further part, each with the size from which on it is out."""
		self.failed = False
		self.workshop: Optional[Workshop] = None
		self.troubles: List[str] = []

	def learn(self, ledger: Ledger) -> None:
		"""Take over the runs of a ledger."""
		self.done = set(ledger.done())
		for run in ledger.runs:
			lane = (run["contender"], run["compiler"], run["interpreter"])
			self.learn_wall(lane, run["tasks"], run["values"]["wall"])
			self.progress.learn((run["course"], *(name or "" for name in lane)), run["tasks"], run["took"])
		for line in ledger.skipped:
			self.out[line["contender"], line["compiler"], line["interpreter"]] = line["tasks"]

	def learn_wall(self, lane: Tuple[Optional[str], ...], tasks: int, wall: float) -> None:
		"""Keep the time of a build, if it is the longest of its lane in this size."""
		sizes = self.walls.setdefault(lane, {})
		sizes[tasks] = max(wall, sizes.get(tasks, 0.0))

	def missing(self) -> List[Step]:
		return [step for step in plan(self.options, self.lanes) if not self.is_done(step) and self.takes_part(step)]

	def go(self) -> None:
		steps = self.missing()
		for tasks in self.options["tasks"]:
			self.admit(tasks, [step for step in steps if step.tasks == tasks and self.takes_part(step)])
			if any(step.tasks == tasks and self.takes_part(step) for step in steps):
				self.take_size(tasks, steps)
		if steps:
			self.writer.write(kind="finished")

	def is_done(self, step: Step) -> bool:
		"""Tell whether the ledger has all numbers that a step gives."""
		return all(self.key(step, scenario) in self.done for scenario in self.wanted(step))

	def wanted(self, step: Step) -> List[str]:
		"""The scenarios of those that a step gives which were asked for; a cold build counts as a full one."""
		asked = self.options["scenarios"]
		return [name for name in step.course.gives if name in asked or (name == "cold" and "warm" not in asked)]

	def key(self, step: Step, scenario: str) -> Key:
		return key_of(self.line(step, scenario))

	def line(self, step: Step, scenario: str) -> Line:
		"""The fields that tell a run from others."""
		place = {"work": self.options["work"], "scenario": scenario, "tasks": step.tasks, "round": step.round}
		return {"kind": "run", **place, **step.lane.columns}

	def takes_part(self, step: Step) -> bool:
		"""Tell whether a lane still takes part."""
		return step.tasks < self.out.get(names_of(step.lane), step.tasks + 1)

	def admit(self, tasks: int, steps: Sequence[Step]) -> None:
		"""Leave out the lanes that would take too long in this size."""
		for lane in dict.fromkeys(step.lane for step in steps):
			walls = self.walls.get(names_of(lane), {})
			largest = sorted(item for item in walls.items() if item[0] < tasks)[-1:]
			why = too_long(largest, tasks, self.options["limit"])
			if why:
				self.skip(lane, tasks, why, True)

	def skip(self, lane: Lane, tasks: int, reason: str, again: bool) -> None:
		"""Leave a lane out from a size on, and say so."""
		self.out[names_of(lane)] = tasks
		place = {"work": self.options["work"], "tasks": tasks, **lane.columns}
		self.writer.write(kind="skipped", reason=reason, again=again, **place)
		self.progress.say("left out: %s, from %d tasks on: %s" % (lane.text, tasks, reason))

	def take_size(self, tasks: int, steps: Sequence[Step]) -> None:
		"""Do the steps of a size in a workshop of its own."""
		self.workshop = Workshop(self.folder, self.settings(tasks))
		try:
			self.warm_up(tasks)
			for number, step in enumerate(steps):
				if step.tasks == tasks and self.takes_part(step):
					ahead = [(other.kind, other.tasks) for other in steps[number:] if self.takes_part(other)]
					self.take(step, ahead)
		finally:
			with INTERRUPTS.held():
				# build folders stay until the very end: creating files just after deleting many is slow
				self.troubles += self.workshop.close(keep=True)

	def settings(self, tasks: int) -> Dict[str, Any]:
		"""The settings of the workshop for a size."""
		together = any(UNITY in lane.contender.abilities for lane in self.lanes)
		settings = dict(self.options, cores=cores(), tasks=[tasks], commands={}, notes={}, real={}, together=together)
		if self.options["work"] == COMPILE:
			settings["size"] = size_of(tasks)
		return settings

	def warm_up(self, tasks: int) -> None:
		"""Run everything once before the first run, to read it from the disk and to compile Python's files."""
		if self.options["work"] == COMPILE:
			for compiler in dict.fromkeys(lane.compiler for lane in self.lanes):
				self.progress.begin("generating %d sources for %s" % (tasks, compiler.name))
				project = self.workshop.project(PROJECTS[COMPILE], compiler)
				project.edit(0)  # so that no later edit makes a function that was not there
				compile_once(project, self.workshop)
			return
		for lane in self.lanes:
			if names_of(lane) not in self.out and courses_of(IDLE, self.options["scenarios"], lane.contender):
				self.progress.begin("warming up %s" % lane.text)
				run = Run(lane, self.workshop.project(PROJECTS[IDLE], None), self.workshop, self.jobs, 0)
				run.workshop.settings = dict(self.workshop.settings, tasks=[SHAKEN])
				try:
					build_idle(run)
				except Failed:
					pass  # it fails in its runs, too, and is reported there
		self.workshop.settings = self.settings(tasks)

	@property
	def jobs(self) -> int:
		return self.options["jobs"] or cores()

	def take(self, step: Step, ahead: Sequence[Tuple[Any, int]]) -> None:
		"""Do a step, and write its results to the ledger at once."""
		self.progress.begin(step.text, ahead)
		started = time.time()
		try:
			results = self.measure(step)
		except Failed as e:
			self.fail(step, e)
			return
		took = self.progress.done(step.kind, step.tasks)
		wanted = self.wanted(step)
		lines = [
			dict(self.line(step, name), course=step.course.name, values=values, started=started, took=took)
			for name, values in results
		]
		self.writer.write_all([line for line in lines if line["scenario"] in wanted])
		for line in lines:
			self.learn_wall(names_of(step.lane), step.tasks, line["values"]["wall"])
		self.progress.say("  " + ", ".join("%s %.2f s" % (name, values["wall"]) for name, values in results))

	def measure(self, step: Step) -> List[Tuple[str, Dict[str, float]]]:
		work = self.options["work"]
		project = self.workshop.project(PROJECTS[work], step.lane.compiler)
		kind = Run if work == IDLE else LimitedRun  # idle builds have their limit already
		run = kind(step.lane, project, self.workshop, self.jobs, step.round + 1)
		return [(name, values) for name, (_, values) in zip(step.course.gives, run.go(step.course.phases))]

	def fail(self, step: Step, error: Failed) -> None:
		"""Report a failure, and leave the lane out from here on."""
		limit = self.options["limit"]
		if str(error).startswith(STOPPED):
			self.skip(step.lane, step.tasks, "%s took longer than the limit of %d s" % (step.course.name, limit), False)
			return
		self.failed = True
		self.skip(step.lane, step.tasks, "%s failed: %s" % (step.course.name, error), True)
		for line in error.quote():
			self.progress.say(line)

	def close(self) -> List[str]:
		"""Delete all build folders, and return one line for each daemon that could not be ended."""
		shutil.rmtree(self.folder, ignore_errors=True)
		return self.troubles


def make_folder(parent: Optional[str], ledger: str) -> str:
	"""A new folder to work in, which says for which ledger."""
	try:
		if parent:
			os.makedirs(parent, exist_ok=True)
		folder = tempfile.mkdtemp(prefix="compare-", dir=parent and os.path.abspath(parent))
		with open(os.path.join(folder, MARK), "w", encoding="utf-8") as f:
			f.write(os.path.realpath(ledger))
	except OSError as e:
		raise Mistake("cannot work in %s: %s: name another folder with --folder" % (parent, e.strerror)) from None
	return folder


def remove_leftovers(folder: str, ledger: str, env: Dict[str, str]) -> bool:
	"""End and delete what a session left behind that was killed, if the folder says that it was for this ledger."""
	try:
		with open(os.path.join(folder, MARK), encoding="utf-8") as f:
			is_ours = f.read() == os.path.realpath(ledger)
	except OSError:
		return False
	if is_ours:
		for path in engines_in(folder):
			try:
				Engine(os.path.dirname(path), env, os.path.basename(path)).leave()
			except Failed:
				pass  # it leaves by itself when it has been idle
		shutil.rmtree(folder, ignore_errors=True)
	return is_ours


def engines_in(folder: str) -> Iterable[str]:
	"""The folders of our engines in a folder that a session worked in."""
	yield from glob.glob(os.path.join(glob.escape(folder), "bench-*", "engine*"))
	yield from glob.glob(os.path.join(glob.escape(folder), "bench-*", "caches", "*", "engine*"))
