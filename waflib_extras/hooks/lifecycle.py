"""
The builds of this process: which tools take part in them, and what of Waf's our tools have replaced.

A tool does not wrap Waf's functions by itself. It registers here for what it wants to hear, and has ``replace`` put a
function in the place of one of Waf's. ``waf --zones=hooks`` lists all that was replaced, and by whom.
"""

import atexit
import contextlib
import functools
import importlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Protocol

from waflib import Context, Logs

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Task import Task

	from ..client.engine import Learned, Session
	from ..client.protocol import Outcome, Told

PLACE = "waflib_extras_build"
"""Where Waf's ``Context`` has our object. A tool may be loaded from several folders: there is one object for all."""


class Ended(NamedTuple):
	"""A command has ended, or a task that is Python."""

	task: "Optional[Task]"
	"""None where a command belongs to no task, as in a test of configure."""
	micros: int
	"""So many microseconds it took; 0 for a hit."""
	outcome: "Optional[Outcome]" = None
	"""What the engine told of a command; none for a task that is Python."""
	told: "Optional[Told]" = None
	"""What the cache told of it, if it was asked."""
	learned: "Optional[Learned]" = None
	"""What it depended on."""


class Runner(Protocol):
	"""What runs commands in place of Waf's ``run_process``: ``prefork`` brings one."""

	lost: str
	"""Why no command goes to the engine any more."""
	reasons: Dict[str, int]
	"""How often a command ran Waf's own way, by reason."""

	@property
	def session(self) -> "Optional[Session]": ...

	def is_in_place(self) -> bool: ...

	def begin_anew(self) -> None: ...


class Cache(Protocol):
	"""What decides which commands are cached: ``wafcc`` brings one."""

	active: bool
	solo: "Optional[Task]"
	"""With -j1, the task that runs next."""
	counts: List[int]
	unstored: int
	saved: int

	def decide(self) -> None: ...

	def tell_failure(self) -> None: ...

	def introduce(self) -> bytes: ...

	def mark(self, task: "Task", command: bytes) -> bytes: ...

	def find_new_flags(self, task: "Task") -> int: ...


class Recording(Protocol):
	"""What notes commands for the picture of a build. Others write into its lists: calls would cost more."""

	clock: Callable[[], float]
	sent: "Dict[Task, float]"
	commands: List[Any]
	calls: List[Any]
	tasks: List[Any]
	waits: List[Any]

	def find_task(self, task: "Optional[Task]", cmd: object) -> "Optional[Task]": ...

	def note_sent(self, tasks: "List[Task]") -> None: ...


class Replaced(NamedTuple):
	"""A function of Waf's that we stand in for."""

	tool: str
	path: str
	"""As ``Build.BuildContext.execute``."""
	holder: Any
	name: str
	stock: Any
	ours: Any

	def is_in_place(self) -> bool:
		"""Waf still calls our function: it was neither replaced once more nor put back."""
		return bool(getattr(self.holder, self.name, None) == self.ours)


class Build:
	"""One object per process; ``find`` gives it."""

	def __init__(self) -> None:
		self.runner: Optional[Runner] = None
		self.refusal = ""
		"""Why there can be no such thing here, once that was said."""
		self.cache: Optional[Cache] = None
		self.recording: Optional[Recording] = None
		"""There is one only while a picture of a build is wanted."""
		self.diary: Any = None
		"""What ``--why`` is answered from: that of ``console``."""
		self.changed: Dict[Task, List[bytes]] = {}
		"""What a task depended on and is not as it was, if that is why it runs."""
		self.on_begin: List[Callable[[BuildContext], None]] = []
		"""Called with each build context before it runs. Who came last is called first, and hears of the end last."""
		self.on_start: List[Callable[[Task], None]] = []
		"""Called before a task runs whose command goes to the engine."""
		self.on_outcome: List[Callable[[Ended], None]] = []
		"""Called in the scheduler's thread or in that of a task."""
		self.on_end: List[Callable[[BuildContext, str], None]] = []
		"""Called with the build context and how it ended: succeeded, failed, or interrupted."""
		self.replaced: List[Replaced] = []

	def tell(self, ended: Ended) -> None:
		"""Call all who want to know of what ends."""
		for hear in self.on_outcome:
			hear(ended)

	def is_running_commands(self) -> bool:
		"""Commands of Waf go to the engine."""
		return self.runner is not None and self.runner.is_in_place()

	def find_active_cache(self) -> Optional[Cache]:
		"""The cache, if commands are asked of it."""
		return self.cache if self.cache is not None and self.cache.active else None

	def replace(self, tool: str, path: str, ours: Any) -> Any:
		"""Put a function of a tool in the place of one of Waf's, such as ``Runner.Parallel.start``; return that."""
		place, _, name = path.rpartition(".")
		holder = find_in_waf(place)
		stock = getattr(holder, name)
		setattr(holder, name, ours)
		self.replaced.append(Replaced(tool, path, holder, name, stock, ours))
		return stock

	def restore(self, tool: str) -> None:
		"""Put back what a tool has replaced, but for what somebody else has replaced since."""
		for one in reversed([one for one in self.replaced if one.tool == tool]):
			if one.is_in_place():
				setattr(one.holder, one.name, one.stock)
			self.replaced.remove(one)

	def run(self, stock: "Callable[[BuildContext], None]", bld: "BuildContext") -> None:
		"""In place of ``BuildContext.execute``: the build, with those who take part in it."""
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
		"""At exit, for ``--zones=hooks``."""
		if Logs.verbose and Logs.log:
			for one in self.replaced:
				is_ours = one.is_in_place() or any(other.stock == one.ours for other in self.replaced)
				state = "" if is_ours else " (replaced once more by somebody else)"
				Logs.debug("hooks: %s replaces waflib.%s%s", one.tool, one.path, state)


def find_in_waf(path: str) -> Any:
	"""What Waf has under a name such as ``Runner.Parallel.skip``; none if it has no such thing."""
	module, *names = path.split(".")
	found: Any = importlib.import_module("waflib." + module)
	for name in names:
		found = getattr(found, name, None)
	return found


def find() -> Build:
	"""The object of this process, made when it is asked for first."""
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
