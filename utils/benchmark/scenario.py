"""
The scenarios. Each is a sequence of phases.

To add one, add a row to SCENARIOS, and to ``phases`` those that are not there yet.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import boards, builder, editing, workshop
from . import phases as do
from .price import flag_sets
from .project import NAP, SHAPES

Measures = List[Tuple[str, str]]

TIMES: Measures = [("wall", "s"), ("processor", "s"), ("peak", "MiB")]
WARM: Measures = [*TIMES, ("hits", "%")]
AGAIN: Measures = [*WARM, ("of cold", "%")]
SLOTS: Measures = [("wall", "s"), ("occupancy", "%"), ("processor", "s"), ("peak", "MiB")]
WORK: Measures = [("work", "%"), ("wall", "s"), ("processor", "s")]
COSTS: Measures = [("processor", "µs"), ("wall", "µs")]
ANSWERS: Measures = [("wall", "µs"), ("p99", "µs"), ("client", "µs"), ("daemon", "µs")]
SERVED: Measures = [("rate", "/s"), ("p50", "µs"), ("p99", "µs"), ("client", "µs"), ("server", "µs")]
CROWD: Measures = [("p99", "µs"), ("p50", "µs"), ("rate", "/s"), ("each", "KiB")]
VALUES: Measures = [("value", "")]
EATEN: Measures = [("wall", "s"), ("kills", "")]
MANY: Measures = [*TIMES, ("growth", "times")]
PRICES: Measures = [("wall", "s"), ("warm", "s"), ("back", "%"), ("hits", "%"), ("processor", "s")]
SHARES: Measures = [("wall", "µs"), ("processor", "µs"), ("user", "µs"), ("system", "µs")]


class Scenario(NamedTuple):
	"""One thing to measure: the ability that it needs, its project and its phases."""

	name: str
	title: str
	phases: Sequence[do.Phase]
	needs: str = builder.BUILD  # the ability that a contender must have
	project: str = workshop.GENERATED
	measures: Measures = TIMES  # the first one is compared
	jobs: Sequence[int] = ()  # how many at once, where the machine's processors do not decide that: a part for each
	counts: str = "commands"  # the things that ``--commands`` counts
	note: str = ""  # for readers of its numbers
	against: str = ""  # the measure on the horizontal axis of its picture
	drawn: Sequence[str] = ()  # the measures on the vertical axes; the first one if empty
	rows: Sequence[str] = ()  # its parts, where they are compared with the first of them, in the order of the table

	is_across: bool = False  # its parts have units of their own: a row for each of them, a column for each contender

	@property
	def compiles(self) -> bool:
		"""Tell whether compilers make a difference."""
		return self.project in workshop.COMPILED

	@property
	def is_generated(self) -> bool:
		"""Tell whether genbench writes the project."""
		return self.project == workshop.GENERATED

	@property
	def is_per_slot(self) -> bool:
		"""Tell whether its number of commands is multiplied by the number of jobs."""
		return self.project == workshop.SLEEPS

	def points(self, wanted: Optional[int]) -> Sequence[int]:
		"""The numbers of jobs, one after the other; 0 stands for the number of processors."""
		return (wanted,) if wanted else self.jobs or (0,)

	def part(self, jobs: int) -> str:
		"""The part's name, which has the number of jobs if there are several."""
		return "-j%d" % jobs if len(self.jobs) > 1 else ""

	def commands(self, settings: Dict[str, Any], jobs: int) -> int:
		"""The number of commands of its project, if it consists of commands."""
		return settings["commands"][self.name] * jobs if self.is_per_slot else 0

	def language(self, wanted: str) -> str:
		return workshop.COMPILED[self.project] or wanted


# ---- the table; scenarios that edit sources come after those that do not

SCENARIOS = {
	scenario.name: scenario
	for scenario in (
		Scenario("full", "everything, into a new folder", (do.take_new_folder, do.build, do.check_all_objects)),
		Scenario(
			"warm",
			"everything, into a new folder, as built before in another one",
			(do.take_warm_folder, do.build_from_cache, do.check_all_objects),
			measures=WARM,
		),
		Scenario(
			"second-machine",
			"everything, on a machine with an empty cache, as built before on another one with the same server",
			(do.take_second_machine, do.build_from_cache, do.check_all_objects, do.check_same_objects),
			needs=builder.FAR,
			measures=WARM,
			note=(
				"the server and both machines are namespaces on a line with a round trip of %g ms"
				% (2000 * workshop.ONE_WAY)
			),
		),
		Scenario(
			"noop",
			"nothing has changed since the last build",
			(do.take_built_folder, do.catch_up, do.settle, do.look_at_objects, do.build, do.check_new_objects(0)),
			needs=builder.REBUILD,
		),
		Scenario(
			"onefile",
			"the content of one source has changed",
			(do.take_built_folder, do.rest, do.look_at_objects, do.edit_one_source, do.build, do.check_new_objects(1)),
			needs=builder.REBUILD,
		),
		Scenario(
			"header",
			"a header that most sources include has changed, but not what is made of them",
			(do.build_after_edits_of_a_header,),
			needs=builder.REBUILD,
			measures=WARM,
			note=(
				"what is added amid the header, one after the other. Caches have seen one build before, and had the "
				"time to learn from it. All objects are equal"
			),
		),
		Scenario(
			"boards",
			"one board of a firmware after the other, each into a new folder",
			(do.build_boards,),
			needs=builder.BOARD,
			measures=WARM,
			note=(
				"each board has other macros on the command line, and a generated header with other macros, which all "
				"sources include and one of %d uses. Caches have the time to learn in between. All objects are equal"
				% boards.SHARE
			),
		),
		Scenario(
			"unity",
			"everything into a new folder, and after two edits of one source, with files compiled together",
			(do.build_together,),
			needs=builder.UNITY,
		),
		Scenario(
			"edit",
			"one source of real C++ code, in which a function body was edited, per edit",
			(do.build_edits,),
			needs=builder.EDIT,
			project=workshop.PROJECT,
			note=(
				"the mean of some sources and %d edits of each. %d edits of each source come before, and caches get "
				"the time to learn from them"
			)
			% (editing.MEASURED, editing.UNMEASURED),
			counts="sources",
		),
		Scenario(
			"flags",
			"everything, into a new folder, with one set of flags after the other",
			(do.take_prices,),
			needs=builder.PRICE,
			measures=PRICES,
			note=(
				"warm is the same once more from nothing, with what the first build has left in the cache; "
				"back is what of the first build's time that has saved"
			),
			rows=tuple(flag_sets(None)),
		),
		Scenario(
			"configure",
			"checks of headers, functions, types, flags and programs, into a new folder",
			(do.take_bare_folder, do.configure, do.compare_answers),
			needs=builder.CONFIGURE,
			project=workshop.CONFIGURE,
		),
		Scenario(
			"sources",
			"libraries of real C code, into a new folder",
			(do.take_new_folder, do.build, do.check_all_objects, do.check_same_objects),
			project=workshop.SOURCES,
		),
		Scenario(
			"project",
			"libraries of real C++ code that uses the system's headers, into a new folder",
			(do.build_cold_and_warm,),
			project=workshop.PROJECT,
			measures=WARM,
			note="cold with an empty cache, warm into another folder with what that build has left in it",
		),
		Scenario(
			"precompiled",
			"C++ code that uses a precompiled header of Boost's headers",
			(do.build_with_precompiled_header,),
			needs=builder.PRECOMPILE,
			project=workshop.PRECOMPILED,
			measures=AGAIN,
			note=(
				"cold with an empty cache, warm in the same folder after all outputs are removed, and in another "
				"checkout; of cold is its share of the time of the cold build. All objects are equal"
			),
			counts="sources",
		),
		Scenario(
			"client",
			"what Python itself pays per command (/bin/true), processor time of the calling process",
			(do.run_client,),
			needs=builder.CLIENT,
			project=workshop.CLIENT,
			measures=COSTS,
		),
		Scenario(
			"curve",
			"commands that need no processor (sleep %s), as many for each of 2 to 512 slots" % NAP,
			(do.take_new_folder, do.build, do.check_naps),
			needs=builder.SLEEP,
			project=workshop.SLEEPS,
			measures=SLOTS,
			jobs=(2, 4, 8, 16, 32, 64, 128, 256, 512),
		),
		Scenario(
			"tasks",
			"tasks that are Python's own and do nothing",
			(do.run_tasks,),
			needs=builder.TASKS,
			project=workshop.LARGE,
		),
		Scenario(
			"batch",
			"everything, into a new folder, with one source or many in a call of the compiler",
			(do.take_new_folder, do.build, do.check_all_objects),
			needs=builder.BATCH,
		),
		Scenario(
			"costly",
			"%d small sources of a compiler that takes half a second to start" % SHAPES,
			(do.take_new_folder, do.build, do.check_sums),
			needs=builder.BATCH,
			project=workshop.COSTLY,
		),
		Scenario(
			"neighbor",
			"work that a job on all processors gets done beside a build, against running alone",
			(do.take_new_folder, do.build_beside_another, do.check_all_objects),
			needs=builder.NEIGHBOR,
			measures=WORK,
		),
		Scenario(
			"spawn",
			"starting a program that does nothing and waiting for it, one at a time, per start",
			(do.run_spawns,),
			needs=builder.SPAWN,
			project=workshop.SPAWNS,
			measures=SHARES,
			note="wall is the median of all starts, the rest are means; many kernels only guess which part is user's",
		),
		Scenario(
			"hit",
			"one answer of a cache to the same compile, one at a time",
			(do.take_hits, do.check_one_object),
			needs=builder.HIT,
			project=workshop.HITS,
			measures=ANSWERS,
			note="wall is the median of all compiles, p99 what 99 of 100 stay below, the rest are means",
		),
		Scenario(
			"links",
			"links and archives of objects that have 256 KiB to 64 MiB together, made twice",
			(do.take_links,),
			needs=builder.LINK,
			project=workshop.VALUES,
			measures=VALUES,
			note="medians of links under names of their own, and then of the same once more. All outputs are equal",
			counts="links of each size",
			is_across=True,
		),
		Scenario(
			"served",
			"values that a server is given and asked for, over 1 to 256 connections",
			(do.take_served,),
			needs=builder.SERVE,
			project=workshop.VALUES,
			measures=SERVED,
			note=(
				"columns are connections; client and server are what their processors do for a request. "
				"A ratio of rates above 1 is faster"
			),
			counts="requests of 1 KiB",
		),
		Scenario(
			"crowd",
			"values of 1 KiB that 200 ask a server for while up to 10,000 are connected",
			(do.take_crowd,),
			needs=builder.SERVE,
			project=workshop.VALUES,
			measures=CROWD,
			note="each is the memory of the server's processes that a connection adds",
			counts="requests",
			against="connections",
		),
		Scenario(
			"stores",
			"the engine's store, LMDB and redb under the same work",
			(do.take_parts,),
			needs=builder.STORE,
			project=workshop.VALUES,
			measures=VALUES,
			note=(
				"results are entries of 1 to 4 KiB, some with an object of 10 KiB to 2 MiB; what is read is held "
				"against its digest. 4 KiB are overwritten, or a file is cut off, at places that are drawn"
			),
			counts="entries",
			is_across=True,
		),
		Scenario(
			"filesystems",
			"the files of a build on file systems of each kind: written, looked at, cloned, removed; and a power cut",
			(do.take_parts,),
			needs=builder.DISK,
			project=workshop.VALUES,
			measures=VALUES,
			note=(
				"files have 1 to 512 KiB, 8 KiB in the mean. Before the power cut, a tenth as many are written, "
				"and nothing happens for 6 s"
			),
			counts="files",
			is_across=True,
		),
		Scenario(
			"memory",
			"commands of 50 to 800 MiB within a control group's limit of 1600 MiB",
			(do.take_memory,),
			needs=builder.MEMORY,
			project=workshop.VALUES,
			measures=EATEN,
			note="kills are processes that the kernel ended for lack of memory: a build with kills is not finished",
		),
		*(
			Scenario(
				name,
				title,
				(do.build_sizes(name),),
				needs=builder.LARGE,
				project=workshop.LARGE,
				measures=MANY,
				note="growth is the time as a multiple of that for the number of tasks before",
				against="tasks",
				drawn=("wall", "peak"),
			)
			for name, title in (
				("large", "tasks that only write an empty file, 100 of each generator"),
				("large-rules", "tasks that only write an empty file, each a rule of its own"),
				("large-chain", "tasks that only write an empty file, each after the one before"),
				("large-archive", "tasks that all add to one file, which one task reads; they run each time"),
			)
		),
	)
}

DEFAULT = ("full", "noop", "onefile")
COMMANDS = {
	"configure": 133,
	"edit": 8,
	"precompiled": 40,
	"client": 2000,
	"curve": 20,
	"tasks": 100000,
	"spawn": 500,
	"hit": 500,
	"links": 5,
	"served": 20000,
	"crowd": 20000,
	"stores": 100000,
	"filesystems": 350000,
	"memory": 200,
}
"""The defaults of ``--commands``; in ``curve`` for each slot."""
PARENTS = (10, 100, 1000)  # MiB that the process holds that starts programs
