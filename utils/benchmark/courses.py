"""
A course is what a lane does in one go in a comparison. It gives numbers for one or two scenarios.

Two kinds of work that are never mixed: *compile* builds a project of genbench's, *idle* runs tasks that only write an
empty file, so that what is measured is the build system itself.
"""

import os
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from . import phases
from .builder import BUILD, LARGE, REBUILD, UNITY
from .contender import Contender, ResidentWaf, Waf
from .large import LIMIT, Sizes, limiter
from .meter import Command, Reading
from .mistake import Failed
from .run import MIB, Run
from .workshop import GENERATED
from .workshop import LARGE as TASKS

COMPILE, IDLE = "compile", "idle"
PROJECTS = {COMPILE: GENERATED, IDLE: TASKS}
SCENARIOS = ("full", "cold", "warm", "noop", "onefile")
"""In the order in which they can follow each other."""
TITLES = {
	"full": "everything, into a new folder",
	"cold": "everything, into a new folder, with a cache that is empty",
	"warm": "everything, into another new folder, with what the cold build has left in the cache",
	"noop": "nothing has changed since the last build",
	"onefile": "the content of one source has changed",
}
WORKS = {
	COMPILE: "sources that are generated, each with its header, in libraries of %d",
	IDLE: "tasks that are Python's own and only write an empty file",
}
CONTENDERS = {
	COMPILE: (
		*("waf", "prefork", "large+prefork", "waf+wafcc", "unity-prefork", "resident", "waf+wafcache", "ninja", "make"),
		*("ninja+ccache", "ninja+sccache", "ninja+wafcc"),
	),
	IDLE: ("waf", "prefork", "large", "large+prefork"),
}
"""The default contenders."""

LIBRARY = 50  # sources in each library of a project, where there are so many
OWN, OTHERS = 15, 5  # headers of its own and of other libraries that each of them includes, if there are so many


def size_of(tasks: int) -> str:
	"""The four numbers that genbench wants for so many sources."""
	if tasks > LIBRARY and tasks % LIBRARY:
		raise ValueError("%d is no multiple of %d" % (tasks, LIBRARY))
	libraries, sources = (tasks // LIBRARY, LIBRARY) if tasks > LIBRARY else (1, tasks)
	return "%d,%d,%d,%d" % (libraries, sources, min(OWN, sources), min(OTHERS, sources))


class LimitedRun(Run):
	"""A run whose commands have a limit of time. It also keeps the peak memory where daemons make it incomplete."""

	@property
	def limit(self) -> int:
		return self.settings.get("limit", LIMIT)

	def execute(self, command: Command) -> Reading:
		limited = command._replace(argv=[*limiter(self.limit), *command.argv])
		return super().execute(limited)

	def keep(self, reading: Reading) -> None:
		"""Keep the peak memory, marked as partial if a daemon runs the compilers, which may be larger."""
		super().keep(reading)
		values = self.results[-1][1]
		if "peak" not in values:
			values.update(peak=reading.used.peak_kib / MIB, partial=1)


class Course(NamedTuple):
	"""Phases that follow each other, and the scenarios that they give numbers for, in this order."""

	name: str
	gives: Tuple[str, ...]
	phases: Sequence[Callable[[Run], None]]


def courses_of(work: str, wanted: Sequence[str], one: Contender) -> List[Course]:
	if work == IDLE:
		able = isinstance(one.builder, Waf) and not one.cache and set(wanted) & {"full", "noop"}
		return [Course("idle", ("full", "noop"), (build_idle,))] if able else []
	found = []
	takes_all = not {LARGE, UNITY}.isdisjoint(one.abilities) and not isinstance(one.builder, ResidentWaf)
	if takes_all or BUILD in one.abilities:
		if not one.cache and "full" in wanted:
			found.append(Course("full", ("full",), (phases.take_new_folder, phases.build, check_all)))
		elif one.cache and "warm" in wanted:
			found.append(Course("cold and warm", ("cold", "warm"), (build_cold_and_warm,)))
		elif one.cache and {"full", "cold"} & set(wanted):
			found.append(Course("cold", ("cold",), (phases.take_new_folder, phases.build, check_all)))
	if takes_all or REBUILD in one.abilities:
		found += [REBUILDS[name] for name in SCENARIOS if name in wanted and name in REBUILDS]
	return found


def build_idle(run: Run) -> None:
	"""Build from nothing, and once more."""
	for part, reading in Sizes(run, "large").readings(run.settings["tasks"][0]):
		used = reading.used
		values = {"wall": reading.wall, "processor": used.user + used.system, "peak": used.peak_kib / MIB}
		run.results.append((part, values))


def build_cold_and_warm(run: Run) -> None:
	"""Build with an empty cache, and then into another folder with what that has left in it."""
	for go in (phases.take_new_folder, phases.take_next_folder):
		go(run)
		phases.build_from_cache(run)
		check_all(run)


def check_all(run: Run) -> None:
	"""Fail if something was left out: each source needs its object, or its functions if files are compiled together."""
	if run.settings["together"]:
		check_libraries(run)
	if UNITY in run.lane.contender.abilities:
		run.built(run.folder)
	else:
		phases.check_all_objects(run)


def check_libraries(run: Run) -> None:
	"""Fail unless all libraries are there, with the symbols of the first contender's."""
	libraries = run.project.found(run.folder, ".a")
	wanted = {os.path.dirname(source) for source in run.project.sources()}
	if len(libraries) != len(wanted):
		raise Failed("it made %d libraries instead of %d" % (len(libraries), len(wanted)))
	phases.check_same_symbols(run)


def check_edited(run: Run) -> None:
	"""Fail unless one object was made anew, or a few if files are compiled together."""
	if UNITY not in run.lane.contender.abilities:
		phases.check_new_objects(1)(run)
	elif run.project.objects(run.folder) == run.before:
		raise Failed("it made no object anew")


REBUILDS: Dict[str, Course] = {
	"noop": Course(
		"noop",
		("noop",),
		(*(phases.take_built_folder, phases.settle, phases.look_at_objects), phases.build, phases.check_new_objects(0)),
	),
	"onefile": Course(
		"onefile",
		("onefile",),
		(*(phases.take_built_folder, phases.look_at_objects, phases.edit_one_source), phases.build, check_edited),
	),
}
