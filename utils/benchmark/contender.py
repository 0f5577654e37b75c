"""
The contenders: build systems, and the other programs that scenarios compare.

To add one, add a row to BUILDERS, or to ``cache.CACHES``, which every builder combines with.
"""

import atexit
import os
import re
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Type

from . import ablation
from .builder import (
	BATCH,
	BOARD,
	BUILD,
	CLIENT,
	CONFIGURE,
	EDIT,
	FAR,
	LARGE,
	NEIGHBOR,
	PRECOMPILE,
	PRICE,
	REBUILD,
	SLEEP,
	TASKS,
	UNITY,
	Builder,
)
from .cache import CACHES, CompilerCache, EngineCache, LearningEngine, Wafcache, Wafcc
from .far import FAR_CACHES, FarEngineCache
from .filesystems import FILE_SYSTEMS
from .hit import MANY, Nothing, Single, Socket
from .hosts import missing_hosts
from .interpreter import ROOT
from .links import Linker
from .machine import cores
from .memory import MEMORIES
from .meter import Command
from .mistake import Failed, Mistake
from .project import C_COMPILER, program_of, rebind
from .served import Served
from .servers import Nginx, Redis, RedisFile, WafdServe
from .service import find_engine
from .spawner import SPAWNERS
from .stores import STORES, SYNCED

if TYPE_CHECKING:
	from .run import Run

# how genbench's build files call what is set for each build
NINJA_FOLDER = "folder"
NINJA_COMPILERS = {"CC": "c", "CXX": "cxx"}
MAKE_FOLDER = "out"
XARGS_FOLDER = "out-xargs"

PATCHES = (
	*("precedence", "files", "recursion", "finished", "more", "heap", "threads", "messages", "names", "rules"),
	*("folders", "outputs", "database", "digests", "collector"),
)
"""The patches of the tool large."""

UNITED = ("--unity=on",)
TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools")
PAUSE = 0.05  # seconds between questions to a resident process
SETTLED = 120.0  # seconds until a resident process must answer
RESTED = 1.0  # seconds in which one that begins nothing ahead becomes idle
SETTLING = 0.2  # seconds until files are old enough to be trusted
BARE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bare.c")
PYTHON_WAF = """\
#!%s
from waflib_extras.launcher import main

main()
"""


class Waf(Builder):
	"""Waf, by the launcher of this tree, so that contenders differ in nothing but the tools they load."""

	runs_python = True
	abilities = frozenset((BUILD, REBUILD, CONFIGURE, SLEEP, CLIENT, TASKS, NEIGHBOR, FAR, BATCH, PRICE, EDIT))
	options: Sequence[str] = ()

	def __init__(
		self,
		*tools: str,
		can: Iterable[str] = (),
		options: Sequence[str] = (),
		always: Sequence[str] = (),
		note: str = "",
		environment: Optional[Dict[str, str]] = None,
		is_foreign: bool = False,
	) -> None:
		"""
		The tools are loaded in ``options``, and all commands have the environment.

		``can`` replaces the abilities. ``options`` go to the command that builds, ``always`` to every command. Foreign
		tools are not ours.
		"""
		self.tools = tools
		self.abilities = frozenset(can) or self.abilities
		self.options = options or self.options
		self.always = always
		self.note = note or self.note
		self.environment = environment or {}
		self.is_foreign = is_foreign
		self.needs_engine = "prefork" in tools and "wafcc" not in tools  # a cache has an engine of its own

	def missing(self) -> Optional[str]:
		for tool in () if self.is_foreign else self.tools:
			if not os.path.isdir(os.path.join(ROOT, "waflib_extras", tool)):
				return "waflib_extras/%s does not exist" % tool
		return super().missing()

	def prepare(self, run: "Run") -> None:
		run.aside("configure", self.configure(run))

	def configure(self, run: "Run", *args: str, **variables: str) -> Command:
		return self.waf(run, "configure", "-o", os.path.join(run.root, run.folder), *args, **variables)

	def command(self, run: "Run") -> Command:
		return self.waf(run, "build", "-j%d" % run.jobs, *self.options)

	def waf(self, run: "Run", *args: str, **variables: str) -> Command:
		"""A command of Waf in the run's project, which remembers each build folder by a lock file of its own."""
		interpreter = run.lane.interpreter
		env = dict(run.environment, **self.environment, **variables)
		if self.tools:
			env["GENBENCH_TOOLS"] = " ".join(self.tools)
		if self.is_foreign:
			env["PYTHONPATH"] = os.pathsep.join([interpreter.search, TOOLS])
		if run.folder:
			env["WAFLOCK"] = ".lock-waf-%s" % os.path.basename(run.folder)
		return Command([interpreter.path, "-m", "waflib_extras.launcher", *args, *self.always], run.root, env)


def find_native_waf() -> str:
	"""Where the engine's ``waf`` is, if it is built."""
	return os.path.join(os.path.dirname(find_engine() or ""), "waf")


class ResidentWaf(Waf):
	"""Waf with a resident process that has answered a build with nothing to do before."""

	abilities = frozenset((REBUILD,))
	note = "its resident process has seen a build with nothing to do before"
	builds_before = True
	"""Before an edit it builds once more: other lanes may have left files in the project's folder since it did."""

	def __init__(self, *tools: str, is_native: bool = True) -> None:
		"""A native one is called by the engine's ``waf``, as installed, and the others by Python's."""
		super().__init__(*tools, note=self.note + ("" if is_native else "; Python's own waf calls it"))
		self.is_native = is_native
		self.folder = ""
		self.numbers: Dict[Any, int] = {}
		self.pids: List[int] = []
		self.expected = 0
		"""The number of builds that its resident process must have answered after the run."""
		self.going = 0
		"""The number of builds begun ahead that must have been continued after the run."""

	def waf(self, run: "Run", *args: str, **variables: str) -> Command:
		command = self.waf_of_folder(run, *args, **variables)
		return command._replace(argv=[*self.install_native(run), *command.argv[3:]]) if self.is_native else command

	def missing(self) -> Optional[str]:
		lack = super().missing()
		if lack or not self.is_native or os.access(find_native_waf(), os.X_OK):
			return lack
		return "the engine's waf is not built: run cargo build --release in engine"

	def install_native(self, run: "Run") -> List[str]:
		"""The engine's ``waf``, with that of this interpreter beside it, as an installation has them."""
		interpreter = run.lane.interpreter
		folder = os.path.join(run.workshop.path, "waf-%s" % interpreter.name.replace("/", "_"))
		path = os.path.join(folder, "waf")
		if not os.path.exists(path):
			os.makedirs(folder)
			script = path + "-python"
			with open(script, "w", encoding="utf-8") as f:
				f.write(PYTHON_WAF % interpreter.path)
			os.chmod(script, 0o755)
			os.symlink(find_native_waf(), path)
			time.sleep(SETTLING)
		return [path]

	def waf_of_folder(self, run: "Run", *args: str, **variables: str) -> Command:
		"""A command of Waf, which each build folder gives to a resident process of its own."""
		if "WAFD_RUNTIME_DIR" in run.environment:
			# the folder of the cache's engine; each folder of builds has a variable, and so a process, of its own
			return super().waf(run, *args, WAF_RESIDENT_IDLE="600", **variables)
		if not self.folder:
			self.folder = tempfile.mkdtemp(prefix="waf-bench-")
			atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
		# a folder of its own has an environment of its own, and so a process of its own
		number = self.numbers.setdefault((run.root, run.folder), len(self.numbers))
		folder = os.path.join(self.folder, str(number))
		os.makedirs(folder, 0o700, exist_ok=True)
		return super().waf(run, *args, WAFD_RUNTIME_DIR=folder, WAF_RESIDENT_IDLE="600", **variables)

	def settle(self, run: "Run") -> None:
		deadline = time.monotonic() + SETTLED
		before = self.answers(run)
		while self.answers(run) <= before:
			if time.monotonic() > deadline:
				raise Failed("its resident process does not answer: %s" % (self.ask(run, "--resident-list") or "none"))
			run.aside("settle", self.command(run))
		self.expected = self.answers(run) + 1

	def rest(self, run: "Run") -> None:
		deadline = time.monotonic() + SETTLED
		if self.builds_before:
			self.build_before(run)
		while self.count(run, "begun ahead and waits") < 1:
			told = self.ask(run, "--resident-list")
			if time.monotonic() > deadline:
				raise Failed("its resident process begins nothing ahead: %s" % (told or "there is none"))
			if "not yet" in told or "asks its tasks" in told:
				time.sleep(PAUSE)
			else:
				run.aside("settle", self.command(run))
		self.going = self.count(run, "thawed") + 1

	def build_before(self, run: "Run") -> None:
		"""Build what other lanes have edited."""
		# of a content that the edit to come is not, which another lane may have made before
		run.project.edit(-run.version - 1)
		run.aside("settle", self.command(run))

	def answers(self, run: "Run") -> int:
		"""The number of builds that its resident processes have answered."""
		return self.count(run, "answered")

	def count(self, run: "Run", what: str) -> int:
		"""How often its resident processes have done this."""
		told = self.ask(run, "--resident-list")
		self.pids = [int(pid) for pid in re.findall(r"process (\d+)", told)]
		return sum(int(count) for count in re.findall(r"(\d+) %s" % what, told))

	def ask(self, run: "Run", option: str) -> str:
		argv, cwd, env = self.waf(run, option)
		return subprocess.run(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, timeout=SETTLED).stdout.decode()

	def daemons(self) -> List[int]:
		return self.pids

	def check(self, run: "Run") -> None:
		if self.answers(run) < self.expected:
			raise Failed("its resident process did not answer for the build")
		if self.count(run, "thawed") < self.going:
			raise Failed("what its resident process had begun did not go on: %s" % self.ask(run, "--resident-list"))
		self.expected = self.going = 0


class Unstarted(ResidentWaf):
	"""Waf with a resident process that begins no build ahead, by a patched copy of our tools (for ``ablation``)."""

	note = "with our tools but prestart.py and sketch.py, so that nothing is begun ahead"
	part = "prestart"

	def waf(self, run: "Run", *args: str, **variables: str) -> Command:
		tools = os.path.join(run.workshop.path, "tools-without-%s" % self.part)
		if not os.path.isdir(tools):
			ablation.make_tools(tools, self.part)
		command = super().waf(run, *args, **variables)
		command.env["PYTHONPATH"] = os.pathsep.join([tools, command.env["PYTHONPATH"]])
		return command

	def rest(self, run: "Run") -> None:
		self.build_before(run)
		time.sleep(RESTED)
		self.answers(run)

	def check(self, run: "Run") -> None:
		super().check(run)
		if not self.pids or self.count(run, "thawed") or self.count(run, "begun ahead and waits"):
			raise Failed("its resident process begins builds ahead, or there is none: it stands for one that does not")


class ResidentTogether(ResidentWaf):
	"""Waf with a resident process, for the scenario about files that are compiled together."""

	abilities = frozenset((UNITY,))
	note = "our unity with large and a resident process, idle when each edit is made"
	options = UNITED
	builds_before = False

	def rest(self, run: "Run") -> None:
		first = self.going
		super().rest(run)
		# the plan is made anew at the first edit, so nothing goes on there: after both edits, one must have
		self.going = first or self.going


class Drawn(Waf):
	"""Waf with prefork that draws its builds, or that only records what it would draw."""

	abilities = frozenset((BUILD, SLEEP, TASKS))

	def __init__(self, is_written: bool) -> None:
		super().__init__(
			"prefork",
			"timeline",
			note="with --timeline" + ("" if is_written else ", and no files are written in the end"),
		)
		self.is_written = is_written

	def waf(self, run: "Run", *args: str, **variables: str) -> Command:
		if args[0] != "build":
			return super().waf(run, *args, **variables)
		drawn = "--timeline=%s" % os.path.join(run.root, run.folder, "timeline")
		command = super().waf(run, *args, drawn, **variables)
		if not self.is_written:
			command.env["GENBENCH_TOOLS"] += " recorded_builds"
			command.env["PYTHONPATH"] = os.pathsep.join([run.lane.interpreter.search, TOOLS])
		return command


class Unparked(Waf):
	"""Waf with prefork and an engine that parks nothing, so that every command is spawned."""

	abilities = frozenset((BUILD, REBUILD, CONFIGURE, SLEEP, CLIENT))

	def __init__(self, note: str, **variables: str) -> None:
		super().__init__("prefork", note=note)
		self.engine_environment = variables

	def check(self, run: "Run") -> None:
		parked = run.engine.parked_commands() if run.engine else None
		if parked:
			raise Failed("parked programs ran %d of its commands: it stands for an engine that parks nothing" % parked)


def half_of_processors() -> str:
	"""The option that leaves half of the processors, and one at least, to others."""
	ours = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(cores()))
	return "--processors=%s" % ",".join(map(str, ours[: max(len(ours) // 2, 1)]))


class Ninja(Builder):
	"""ninja, with the project's own build file."""

	program = "ninja"
	abilities = frozenset((BUILD, REBUILD, SLEEP, NEIGHBOR, FAR, PRICE, PRECOMPILE, EDIT, BOARD))

	def prepare(self, run: "Run") -> None:
		text = rebind(run.project.read("build.ninja"), NINJA_FOLDER, run.folder)
		for name, value in run.compilers.items():
			text = rebind(text, NINJA_COMPILERS[name], value)
		with open(os.path.join(run.root, self.file(run)), "w", encoding="utf-8") as f:
			f.write(text)

	def command(self, run: "Run") -> Command:
		return Command(["ninja", "-f", self.file(run), "-j%d" % run.jobs], run.root, run.environment)

	def file(self, run: "Run") -> str:
		"""The build file that is made for a folder."""
		return os.path.join(run.folder, "build.ninja")


class Make(Builder):
	"""GNU make, with the project's own Makefile."""

	program = "make"

	def command(self, run: "Run") -> Command:
		variables = dict(run.compilers, **{MAKE_FOLDER: run.folder})
		argv = ["make", "-j%d" % run.jobs, *("%s=%s" % item for item in sorted(variables.items()))]
		return Command(argv, run.root, run.environment)


class Xargs(Builder):
	"""No build system: only the compilers' commands, the least that a full build can take."""

	program = "xargs"
	note = "compiles only: no libraries, no dependencies, no order"
	abilities = frozenset((BUILD, SLEEP))

	def prepare(self, run: "Run") -> None:
		lines = run.project.commands
		head = program_of(lines)
		for folder in {os.path.dirname(object_of(line)) for line in lines} - {""}:
			os.makedirs(os.path.join(run.root, self.moved(folder, run)), exist_ok=True)
		rest = [line.split(None, len(head))[len(head)] if head else line for line in lines]
		with open(os.path.join(run.root, run.folder, "arguments"), "w", encoding="utf-8") as f:
			f.writelines("%s\n" % self.moved(line, run) for line in rest)

	def command(self, run: "Run") -> Command:
		argv = ["xargs", "-P%d" % run.jobs, "-L1", "-a", os.path.join(run.folder, "arguments")]
		# where each line names its program, env is what starts it: that costs half a millisecond, a shell more
		head = [*run.wrapped, *(program_of(run.project.commands) or [])] or ["env"]
		return Command(argv + head, run.root, run.environment)

	def moved(self, text: str, run: "Run") -> str:
		"""A line of the project's with the folder of this run."""
		return text.replace(XARGS_FOLDER, run.folder)


class Bare(Builder):
	"""A program in C that only starts the commands and waits for them."""

	program = C_COMPILER
	note = "a program of C that only spawns and waits: the least that starting each command anew takes"
	abilities = frozenset((SLEEP,))

	def prepare(self, run: "Run") -> None:
		if not os.path.exists(self.path(run)):
			argv = [C_COMPILER, "-O2", "-o", self.path(run), BARE]
			run.aside("compile", Command(argv, run.root, run.environment))

	def command(self, run: "Run") -> Command:
		return Command([self.path(run), str(run.jobs), "commands.txt"], run.root, run.environment)

	def path(self, run: "Run") -> str:
		"""The program, one for the whole campaign."""
		return os.path.join(run.workshop.path, "bare")


def object_of(line: str) -> str:
	"""The result of a compiler's command."""
	words = line.split()
	return words[words.index("-o") + 1] if "-o" in words else ""


def large_without(patch: str) -> Waf:
	"""Waf with the tool large, without one of its patches."""
	return Waf("large", can=MANY_TASKS, always=("--no-large=" + patch,), note="large without its patch " + patch)


MANY_TASKS = (TASKS, LARGE)
NEIGHBORS = {
	"nice10": "--nice=10",
	"nice19": "--nice=19",
	"batch": "--sched=batch",
	"idle": "--sched=idle",
	"load": "--load=%d" % cores(),
	"processors": half_of_processors(),
}
"""Options of prefork for the sake of other programs."""

BUILDERS: Dict[str, Builder] = {
	"waf": Waf(can=Waf.abilities | {LARGE}),
	"large": Waf("large", can=MANY_TASKS),
	"large+prefork": Waf("large", "prefork", can=MANY_TASKS),
	**{"large-" + patch: large_without(patch) for patch in PATCHES},
	"waf-nopool": Waf(environment={"WAF_NO_PREFORK": "1"}),
	"prefork": Waf("prefork"),
	"prefork-plain": Unparked("prefork with parking turned off", WAFD_PARK="no"),
	# each program is found, counted, tried, parked and admitted, and only then there is no room for it
	"prefork-refused": Unparked("prefork with parking on, and every program refused", WAFD_PARK_MEMORY="0"),
	"prefork-timeline": Drawn(is_written=True),
	"prefork-recorded": Drawn(is_written=False),
	"resident": ResidentWaf("resident"),
	"resident-large": ResidentWaf("resident", "large"),
	"resident-by-python": ResidentWaf("resident", is_native=False),
	"resident-without-prestart": Unstarted("resident"),
	"waf+wafcc": Waf("prefork", "wafcc", can=Waf.abilities | {PRECOMPILE}),
	"waf+wafcc-serve": Waf("prefork", "wafcc"),
	"waf+wafcc-preambles": Waf("prefork", "wafcc", can=(EDIT,)),
	"waf+wafcc-resident": ResidentWaf("prefork", "wafcc", "large", "resident"),
	"waf+wafcache": Waf("cached_builds", is_foreign=True),
	"waf-batched_cc": Waf("batched_cc", can=(BATCH,), note="Waf's own tool, of C and C++ only", is_foreign=True),
	"waf-batch": Waf("batch", can=(BATCH,), options=("--batch=50",)),
	"prefork-batch": Waf("prefork", "batch", can=(BATCH,), options=("--batch=50",)),
	"unity-none": Waf(can=(UNITY,), note="stock Waf, each file compiled alone"),
	"unity-upstream": Waf("upstream_unity", can=(UNITY,), note="Waf's own unity, batches of 50", is_foreign=True),
	"unity": Waf("unity", can=(UNITY,), options=UNITED, note="our unity"),
	"unity-large": Waf("large", "unity", can=(UNITY,), options=UNITED, note="our unity with large"),
	"unity-resident": ResidentTogether("resident", "large", "unity"),
	"unity-prefork": Waf("prefork", "unity", can=(UNITY,), options=UNITED, note="our unity with prefork"),
	"ninja": Ninja(),
	"make": Make(),
	"xargs": Xargs(),
	"bare": Bare(),
	**{name: Waf("prefork", can=(NEIGHBOR,), options=(option,)) for name, option in NEIGHBORS.items()},
	"single": Single(),
	"nothing": Nothing(),
	"socket": Socket(1, "the engine asked over its socket, one command at a time"),
	"linker": Linker(),
	"pipelined": Socket(MANY, "the engine asked over its socket, %d commands on their way: the mean" % MANY),
	"redis": Served(Redis, "redis"),
	"redis-file": Served(RedisFile, "redis", "what it has acknowledged survives kill -9, as with ours"),
	"nginx": Served(Nginx, "http"),
	"serve-http": Served(WafdServe, "http", "it may hold 1 GB of what comes in"),
	"serve-redis": Served(WafdServe, "redis", "it may hold 1 GB of what comes in"),
	"serve-room": Served(
		WafdServe, "room", "to put takes two exchanges, a value and what needs it, as ours do; to get 1 MiB, too"
	),
	**SPAWNERS,
	**STORES,
	**FILE_SYSTEMS,
	**MEMORIES,
}

OWN_CACHES: Dict[str, Type[CompilerCache]] = {
	"waf+wafcc": EngineCache,
	"waf+wafcc-serve": FarEngineCache,
	"waf+wafcc-preambles": LearningEngine,
	"waf+wafcc-resident": EngineCache,
	"waf+wafcache": Wafcache,
	"socket": EngineCache,
	"pipelined": EngineCache,
}
"""The caches of builders that work with one cache only, and ask it without a wrapper before the compiler."""

BY_NAME = (
	*("large+prefork", *("large-" + patch for patch in PATCHES), "prefork-plain", "prefork-refused"),
	*("prefork-timeline", "prefork-recorded", "resident-without-prestart", "resident-by-python", *SYNCED),
)
"""Contenders that take part only if they are named: they are variants of others."""

DEFAULT = (
	*("waf", "waf-nopool", "prefork", "resident", "resident-large", "waf-batched_cc", "waf-batch", "prefork-batch"),
	*("ninja", "make", "xargs", "bare", "waf+ccache", "waf+wafcache", "waf+wafcc"),
	*("ninja+ccache", "ninja+sccache", "ninja+wafcc", "ninja+wafcc-preambles", "waf+wafcc-preambles"),
	*(*NEIGHBORS, *SPAWNERS),
	*("single+ccache", "single+sccache", "single+wafcc", "socket", "pipelined", "single", "nothing", "large"),
	*("linker", "linker+wafcc"),
	*("unity-none", "unity-upstream", "unity", "unity-large", "unity-resident", "unity-prefork"),
	*("ninja+ccache-redis", "ninja+ccache-nginx", "ninja+ccache-serve", "ninja+wafcc-serve", "waf+wafcc-serve"),
	*("redis", "nginx", "serve-http", "serve-redis", "serve-room"),
	*(name for name in STORES if name not in SYNCED),
	*FILE_SYSTEMS,
	*MEMORIES,
)


class Contender(NamedTuple):
	"""A builder, and the cache that goes before its compilers, if any."""

	name: str
	builder: Builder
	cache: Optional[Type[CompilerCache]]
	programs: Optional[str] = None
	"""The folder of another build of the engine, which it uses."""

	@property
	def abilities(self) -> FrozenSet[str]:
		"""The scenarios that it can run; a cache makes no difference where no compiler runs."""
		return self.builder.abilities & self.cache.abilities if self.cache else self.builder.abilities - {FAR, PRICE}

	@property
	def note(self) -> str:
		"""A note for readers of its numbers."""
		return self.builder.note or ("its cache is empty at first" if self.cache else "")

	def missing(self) -> Optional[str]:
		"""What this machine lacks for it, with the remedy; None if it can take part."""
		far = missing_hosts() if FAR in self.abilities else None
		return far or (self.cache.missing() if self.cache else None) or self.builder.missing()


def find_contender(name: str, engines: Mapping[str, str] = {}) -> Contender:
	"""The contender of a name: ``builder`` or ``builder+cache``, and ``@engine`` or not."""
	first, at, label = name.rpartition("@")
	return with_engine(find_contender(first), label, engines) if at else find_known(name)


def with_engine(found: Contender, label: str, engines: Mapping[str, str]) -> Contender:
	name = "%s@%s" % (found.name, label)
	if label not in engines:
		raise Mistake("contender %s: no engine is named so: say --engine %s=DIR" % (name, label))
	folder, cache = engines[label], found.cache
	if cache and issubclass(cache, Wafcc):
		cache = type(cache.__name__, (cache,), {"programs": folder})
	elif cache or not found.builder.needs_engine:
		raise Mistake("contender %s: %s needs no engine of ours" % (name, found.name))
	return Contender(name, found.builder, cache, folder)


def find_known(name: str) -> Contender:
	"""The contender of a name without an engine's."""
	if name in BUILDERS:
		return Contender(name, BUILDERS[name], OWN_CACHES.get(name))
	caches = {**CACHES, **FAR_CACHES}
	first, plus, second = name.partition("+")
	if first not in BUILDERS or (plus and second not in caches):
		raise Mistake(
			"contender %s is not known: choose from %s, each also with +%s"
			% (name, ", ".join(BUILDERS), " or +".join(caches))
		)
	return Contender(name, BUILDERS[first], caches[second])


def names_of(contenders: Sequence[Contender]) -> List[str]:
	return [contender.name for contender in contenders]
