"""A campaign: all runs in a fair order, with their results in a record."""

import os
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar

from .ledger import Record
from .meter import Command, watch
from .mistake import Failed
from .progress import Progress
from .project import Project
from .run import Lane, Run
from .scenario import Scenario
from .workshop import Workshop

Item = TypeVar("Item")


class Step(NamedTuple):
	"""One run that is to be done."""

	scenario: Scenario
	lane: Lane
	repetition: int
	version: int  # of the edited source; lanes that are compared with each other have the same one
	jobs: int  # how many at once; 0 is as many as there are processors

	@property
	def part(self) -> str:
		"""Which part of the scenario it is, where its steps are several."""
		return self.scenario.part(self.jobs)

	@property
	def kind(self) -> Tuple[str, str, Lane]:
		"""Equal for this step in all repetitions."""
		return self.scenario.name, self.part, self.lane

	@property
	def text(self) -> str:
		return "%s, %s, repetition %d" % (
			" ".join(filter(None, (self.scenario.name, self.part))),
			self.lane.text,
			self.repetition + 1,
		)

	def line(self, part: str = "", **more: Any) -> Dict[str, Any]:
		place = {"scenario": self.scenario.name, "part": part or self.part, "repetition": self.repetition}
		return {**place, **self.lane.columns, **more}


def rotated(items: Sequence[Item], turn: int) -> List[Item]:
	"""The items in their order, beginning with another one each turn, so that none always runs first."""
	turn = turn % len(items) if items else 0
	return [*items[turn:], *items[:turn]]


def take_turns(rounds: int, groups: Sequence[Sequence[Item]]) -> Iterator[Tuple[int, int, Item]]:
	"""
	Order what is done: the round, the number of the group, and the item.

	What is compared is a group: it stands side by side in each round, where another one of it comes first.
	"""
	for turn in range(rounds):
		for number, items in enumerate(groups):
			for item in rotated(items, turn):
				yield turn, number, item


def lanes_for(scenario: Scenario, lanes: Sequence[Lane]) -> List[Lane]:
	"""The lanes that can run a scenario; where nothing is compiled they differ in nothing but the compiler, so once."""
	able = [lane for lane in lanes if scenario.needs in lane.contender.abilities]
	if not scenario.compiles:
		able = [lane._replace(compiler=None) for lane in able]
	return list(dict.fromkeys(able))


def plan(scenarios: Sequence[Scenario], lanes: Sequence[Lane], repeat: int, jobs: Optional[int] = None) -> List[Step]:
	"""
	Order the runs.

	Within a repetition, each compiler goes through the scenarios, and each scenario through the lanes, for each number
	of jobs that it wants. So a lane's own build of ``full`` is there for ``noop``, and an edit reaches all.
	"""
	groups = []
	for turn, compiler in enumerate(dict.fromkeys(lane.compiler for lane in lanes)):
		for scenario in scenarios:
			if turn and not scenario.compiles:
				continue
			mine = lanes_for(scenario, [lane for lane in lanes if not scenario.compiles or lane.compiler == compiler])
			groups += [[(scenario, lane, point) for lane in mine] for point in scenario.points(jobs)]
	return [
		Step(scenario, lane, repetition, repetition * len(groups) + number + 1, point)
		for repetition, number, (scenario, lane, point) in take_turns(repeat, groups)
	]


class Campaign:
	"""The steps, the workshop where they run, and the record of their results."""

	def __init__(self, steps: Sequence[Step], workshop: Workshop, record: Record, progress: Progress) -> None:
		self.steps = steps
		self.workshop = workshop
		self.record = record
		self.progress = progress
		self.failed: Set[Tuple[str, ...]] = set()

	def go(self, save: Callable[[], None]) -> None:
		self.warm_up()
		save()
		for number, step in enumerate(self.steps):
			if step.lane.names in self.failed:
				continue
			text = "[%*d/%d] %s" % (len(str(len(self.steps))), number + 1, len(self.steps), step.text)
			left = [(other.kind, 1) for other in self.steps[number:] if other.lane.names not in self.failed]
			self.progress.begin(text, left)
			try:
				self.record["runs"] += self.measure(step)
				self.progress.done(step.kind)
			except Failed as e:
				self.fail(step, e)
			save()
		self.record["finished"] = True
		save()

	def measure(self, step: Step) -> List[Dict[str, Any]]:
		settings = self.workshop.settings
		jobs = step.jobs or settings["cores"]
		commands = step.scenario.commands(settings, jobs)
		project = self.workshop.project(step.scenario.project, step.lane.compiler, commands)
		run = Run(step.lane, project, self.workshop, jobs, step.version)
		started = time.time()
		return [
			dict(step.line(part), jobs=jobs, started=started, values=values, aside=run.seconds_aside)
			for part, values in run.go(step.scenario.phases)
		]

	def fail(self, step: Step, error: Failed) -> None:
		"""Report a failure, and leave this lane out from here on."""
		self.record["failures"].append(step.line(reason=str(error)))
		self.failed.add(step.lane.names)
		self.progress.say("FAILED: %s: %s; it takes no further part" % (step.text, error))
		for line in error.quote():
			self.progress.say(line)

	def warm_up(self) -> None:
		"""Run every compiler once, so that it is read from the disk before the first measured run."""
		pairs = dict.fromkeys((step.lane.compiler, step.scenario.project) for step in self.steps if step.lane.compiler)
		for compiler, kind in pairs:
			self.progress.say("generating a project and warming up %s" % compiler.name)
			compile_once(self.workshop.project(kind, compiler), self.workshop)


def compile_once(project: Project, workshop: Workshop) -> None:
	"""Run a project's first command for nothing; one that fails here fails in its runs, and is reported there."""
	argv = project.commands[0].split()
	argv[argv.index("-o") + 1] = os.path.join(workshop.path, "warm-up.o")
	try:
		watch(Command(argv, project.root, workshop.environment), workshop.output("warm-up"))
	except Failed:
		pass


def notes_of(steps: Sequence[Step]) -> Dict[str, str]:
	contenders = {step.lane.contender.name: step.lane.contender for step in steps}
	return {name: contender.note for name, contender in contenders.items() if contender.note}
