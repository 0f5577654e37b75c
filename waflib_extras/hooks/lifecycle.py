"""
The builds of this process: which tools take part in them, and what of Waf's our tools have replaced.

A tool does not wrap Waf's functions by itself. It registers here for the events that it wants to hear of, and calls
``replace`` for a function of Waf's that it replaces. ``waf --zones=hooks`` lists all replaced functions with their
tools.
"""

import atexit
import contextlib
import functools
import importlib
import os
from typing import (
	TYPE_CHECKING,
	Any,
	Callable,
	ContextManager,
	Dict,
	Iterable,
	List,
	NamedTuple,
	Optional,
	Protocol,
	Set,
	Tuple,
	Type,
	TypeVar,
	Union,
)

from waflib import Context, Logs

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Task import Task

	from ..client.engine import Learned, Session
	from ..client.protocol import Elsewhere, Outcome, Told

PLACE = "waflib_extras_build"
"""The attribute of Waf's ``Context`` with our object. A tool may be loaded from several folders, which share it."""


class Ended(NamedTuple):
	"""A command has ended, or a task that runs Python code."""

	task: "Optional[Task]"
	"""The task; None for a command outside of any task, such as a test of ``configure``."""
	micros: int
	"""How long it took, in microseconds; 0 for a hit."""
	outcome: "Optional[Outcome]" = None
	"""The engine's report about the command; None for a task that runs Python code."""
	told: "Optional[Told]" = None
	"""The cache's answer, if the cache was asked."""
	learned: "Optional[Learned]" = None
	"""The inputs of the command."""


class Runner(Protocol):
	"""The object that runs commands in place of Waf's ``run_process``: ``prefork`` brings one."""

	lost: str
	"""Why no command goes to the engine any more."""
	reasons: Dict[str, int]
	"""How often a command ran Waf's own way, by reason."""
	waits_for_memory: bool
	"""Commands start only when they fit into memory."""

	@property
	def session(self) -> "Optional[Session]": ...

	def is_in_place(self) -> bool: ...

	def begin_anew(self) -> None: ...


class Cache(Protocol):
	"""The object that decides which commands are cached: ``wafcc`` brings one."""

	active: bool
	solo: "Optional[Task]"
	"""With -j1, the task that runs next."""
	counts: List[int]
	unstored: int
	saved: int
	begun: int
	gained: int

	@property
	def memory(self) -> Optional[str]: ...

	def decide(self) -> None: ...

	def tell_failure(self) -> None: ...

	def introduce(self) -> bytes: ...

	def mark(self, task: "Task", command: bytes) -> bytes: ...

	def mark_call(self, task: "Task", command: bytes) -> bytes: ...

	def find_new_flags(self, task: "Task") -> int: ...

	def describe_voided(self) -> str: ...


class Recording(Protocol):
	"""
	What notes commands for the picture of a build: ``timeline`` brings one.

	Others write into its lists, since calls of methods would cost more.
	"""

	clock: Callable[[], float]
	sent: "Dict[Task, float]"
	commands: "List[Tuple[Task, float, float, Outcome, Optional[Told], Optional[Elsewhere]]]"
	calls: "List[Tuple[Union[Task, str], float, float, Outcome, Optional[Told], Optional[Elsewhere]]]"
	tasks: List[List[Any]]
	waits: List[Tuple[float, float]]

	def find_task(self, task: "Optional[Task]", cmd: object) -> "Optional[Task]": ...

	def note_sent(self, tasks: "List[Task]") -> None: ...


class Evidence(Protocol):
	"""Notes about tasks to answer ``--why``: ``console`` brings them."""

	def begin(self, task: "Task") -> None: ...

	def answer(self, bld: "BuildContext", would: "Dict[Task, Optional[str]]") -> None: ...


Renewal = Callable[[Optional[Set[str]]], "Optional[Set[Task]]"]
"""
Called when a run goes on, with the files whose content has changed since tasks were asked; None if more has changed.

It forgets what its tool has found out of them. It returns the tasks that must be asked again; None for all of them.
"""


class Checks(Protocol):
	"""What a tool has looked at in a run that began before its call: ``resident`` brings it."""

	renewals: List[Renewal]

	def away(self) -> ContextManager[None]: ...

	def append(self, check: Callable[[], bool]) -> None: ...

	def look_at(self, paths: Iterable[str]) -> Dict[str, Optional[os.stat_result]]: ...


class Participant(Protocol):
	"""An object of a tool that takes part in builds."""

	def begin(self, bld: "BuildContext") -> None: ...

	def end(self, bld: "BuildContext", outcome: str) -> None: ...


P = TypeVar("P", bound=Participant)


class Replaced(NamedTuple):
	"""A function of Waf's that a tool has replaced."""

	tool: str
	path: str
	"""As ``Build.BuildContext.execute``."""
	holder: Any
	name: str
	stock: Any
	ours: Any

	def is_in_place(self) -> bool:
		"""Tell whether Waf still calls our function: it was neither replaced once more nor put back."""
		return bool(getattr(self.holder, self.name, None) == self.ours)


class Build:
	"""One object per process; ``find`` gives it."""

	def __init__(self) -> None:
		self.runner: Optional[Runner] = None
		self.refusal = ""
		"""Why there can be no runner here. It is set when the user was told."""
		self.cache: Optional[Cache] = None
		self.recording: Optional[Recording] = None
		"""None if no picture of the build is wanted."""
		self.evidence: Optional[Evidence] = None
		self.checks: Optional[Checks] = None
		"""None, except in a run that the resident process has begun before its call."""
		self.is_called = True
		"""False before the call of such a run."""
		self.participants: Dict[str, Any] = {}
		"""By tool. A tool that Waf loads from several folders has several classes of one name, and one object here."""
		self.changed: Dict[Task, List[bytes]] = {}
		"""By task that runs because something has changed: the facts that have."""
		self.on_begin: List[Callable[[BuildContext], None]] = []
		"""Called with each build context before it runs, the last function first and the end of its tool last."""
		self.on_start: List[Callable[[Task], None]] = []
		"""Called with a task whose command goes to the engine, before it runs."""
		self.on_outcome: List[Callable[[Ended], None]] = []
		"""Called in the scheduler's thread or in that of a task."""
		self.on_end: List[Callable[[BuildContext, str], None]] = []
		"""Called with the build context and how it ended: succeeded, failed, or interrupted."""
		self.replaced: List[Replaced] = []

	def tell(self, ended: Ended) -> None:
		"""Tell all tools that a command or a task has ended."""
		for hear in self.on_outcome:
			hear(ended)

	def is_running_commands(self) -> bool:
		"""Tell whether Waf's commands go to the engine."""
		return self.runner is not None and self.runner.is_in_place()

	def find_active_cache(self) -> Optional[Cache]:
		"""The cache, if commands are looked up in it."""
		return self.cache if self.cache is not None and self.cache.active else None

	def join(self, tool: str, cls: Type[P]) -> P:
		"""The object with which a tool takes part in builds; made when the tool asks for it first."""
		if tool not in self.participants:
			made = self.participants[tool] = cls()
			self.on_begin.append(made.begin)
			self.on_end.append(made.end)
		joined: P = self.participants[tool]
		return joined

	def replace(self, tool: str, path: str, ours: Any) -> Any:
		"""Replace a function of Waf's, such as ``Runner.Parallel.start``, by one of a tool, and return Waf's own."""
		place, _, name = path.rpartition(".")
		holder = find_in_waf(place)
		stock = getattr(holder, name)
		setattr(holder, name, ours)
		self.replaced.append(Replaced(tool, path, holder, name, stock, ours))
		return stock

	def restore(self, tool: str) -> None:
		"""Put back what a tool has replaced, except what other code has replaced since."""
		for one in reversed([one for one in self.replaced if one.tool == tool]):
			if one.is_in_place():
				setattr(one.holder, one.name, one.stock)
			self.replaced.remove(one)

	def run(self, stock: "Callable[[BuildContext], None]", bld: "BuildContext") -> None:
		"""Run a build, and call the tools that take part in it. This stands in for ``BuildContext.execute``."""
		outcome = "interrupted"
		with contextlib.ExitStack() as parts:
			for end in reversed(self.on_end):
				parts.callback(lambda end: end(bld, outcome), end)
			for begin in reversed(self.on_begin):
				begin(bld)
			try:
				stock(bld)
				outcome = "succeeded"
			except Exception:
				outcome = "failed"
				raise

	def tell_hooks(self) -> None:
		"""List all that was replaced. This is called at exit, for ``--zones=hooks``."""
		if Logs.verbose and Logs.log:
			for one in self.replaced:
				is_ours = one.is_in_place() or any(other.stock == one.ours for other in self.replaced)
				state = "" if is_ours else " (replaced once more by somebody else)"
				Logs.debug("hooks: %s replaces waflib.%s%s", one.tool, one.path, state)


def find_in_waf(path: str) -> Any:
	"""The object that Waf has under a name such as ``Runner.Parallel.skip``; None if Waf has none."""
	module, *names = path.split(".")
	found: Any = importlib.import_module("waflib." + module)
	for name in names:
		found = getattr(found, name, None)
	return found


def find() -> Build:
	"""The object of this process. The first call makes it."""
	build: Optional[Build] = getattr(Context, PLACE, None)
	if build is None:
		build = Build()
		setattr(Context, PLACE, build)
		found = build

		@functools.wraps(find_in_waf("Build.BuildContext.execute"))
		def execute(bld: "BuildContext") -> None:
			found.run(stock, bld)

		stock = build.replace("hooks", "Build.BuildContext.execute", execute)
		atexit.register(build.tell_hooks)
	return build
