"""
What a build says in the terminal beside Waf's own messages: the line of ``-p``, and what was saved, in the end.

Environment variable: ``WAF_PREFORK_SUMMARY=no`` does without the last line, as ``--quiet`` does.
"""

import gc
import os
import threading
from typing import TYPE_CHECKING, Dict, List, Optional, Protocol

from waflib import Build, Logs, Options, Utils

from . import history, why

if TYPE_CHECKING:
	from waflib.Task import Task

	from ..client.engine import Session
	from . import summary

QUIET = "WAF_PREFORK_SUMMARY"


class Counts(Protocol):
	"""What we ask of the tool ``wafcc``."""

	counts: List[int]
	unstored: int
	saved: int


class Host(Protocol):
	"""What we ask of ``prefork``, which has us."""

	lost: str
	reasons: Dict[str, int]

	@property
	def session(self) -> "Optional[Session]": ...

	@property
	def cache(self) -> Optional[Counts]: ...

	@property
	def terminal(self) -> "Terminal": ...

	@property
	def diary(self) -> why.Diary: ...


class Terminal:
	"""What is remembered for that; one per process, as ``Utils.prefork.terminal``."""

	def __init__(self, prefork: Host) -> None:
		self.prefork = prefork
		self.savings: Optional[summary.Savings] = None
		self.times: Dict[Task, int] = {}
		"""Microseconds, by task."""
		self.has_built = False
		self.ended = 0
		self.turn = threading.Lock()

	def count_ended(self) -> None:
		"""A command ran in the engine, or was a hit; from any thread."""
		with self.turn:
			self.ended += 1

	def note(self, task: "Task", micros: int) -> None:
		"""A task took so long."""
		if micros >= history.LEAST:
			self.times[task] = micros

	def begin(self, session: "Session") -> None:
		"""A session was opened."""
		if not is_quiet():
			from . import summary

			self.savings = summary.Savings()
			self.savings.begin(session)

	def end_build(self, bld: Build.BuildContext) -> None:
		"""A build context is over, in whatever way."""
		self.has_built = self.has_built or bld.cmd != why.WhyContext.cmd
		is_collecting = gc.isenabled()
		# that many small tuples would have the collector walk through the graph of tasks
		gc.disable()
		try:
			self.prefork.diary.end_build(bld)
		finally:
			if is_collecting:
				gc.enable()
		if self.times:
			history.keep_times(bld, self.times)
			self.times.clear()

	def finish(self) -> None:
		"""At exit: one line on what was saved, or on why commands ran without the engine."""
		session = self.prefork.session
		if self.prefork.lost and self.has_built and not is_quiet():
			own = sum(self.prefork.reasons.values())
			Logs.warn("prefork: %d commands ran without the engine: %s", own, self.prefork.lost)
			return
		if session is None or self.savings is None or not self.has_built or is_quiet():
			return
		from . import summary

		cache = self.prefork.cache
		told = summary.Told(self.ended, own=sum(self.prefork.reasons.values()))
		if cache is not None:
			_, hits, misses = cache.counts
			told = told._replace(hits=hits, misses=misses, unstored=cache.unstored, saved=cache.saved / 1e6)
		parked = self.savings.find_parked(session, session.sent) if told.ended > told.hits else None
		line = summary.describe(told, parked)
		if line:
			Logs.info(line)


def is_quiet() -> bool:
	return bool(getattr(Options.options, "quiet", False)) or os.environ.get(QUIET) == "no"


def add_late_options(opt: Options.OptionsContext) -> None:
	"""``--why``, and ``--quiet`` by those of its names that the project has not taken for itself."""
	why.add_late_options(opt)
	names = [name for name in ("-q", "--quiet") if not opt.parser.get_option(name)]
	if "--quiet" in names:
		group = opt.add_option_group("Prefork options")
		group.add_option(
			*names, dest="quiet", default=False, action="store_true", help="do not say in the end what was saved"
		)


def add_options(opt: Options.OptionsContext) -> None:
	"""Have the options added when all wscripts have added theirs: ours are names that projects like, too."""
	stock = opt.parse_args

	def parse_args(*args: object, **kwargs: object) -> object:
		add_late_options(opt)
		return stock(*args, **kwargs)

	opt.parse_args = parse_args
	opt.add_late_options = lambda: add_late_options(opt)


def install() -> None:
	"""Have builds call us when they are over, once per process."""
	if hasattr(Build.BuildContext, "prefork_execute"):
		return
	stock_line = Build.BuildContext.progress_line

	def progress_line(bld: Build.BuildContext, idx: int, total: int, col1: str, col2: str) -> str:
		prefork = getattr(Utils, "prefork", None)
		if prefork is None or getattr(bld, "progress_bar", 0) != 1 or not prefork.is_in_place():
			line: str = stock_line(bld, idx, total, col1, col2)
			return line
		from . import progress

		return progress.draw(bld, idx, total, col1, col2)

	Build.BuildContext.progress_line = progress_line
	stock = Build.BuildContext.prefork_execute = Build.BuildContext.execute

	def execute(bld: Build.BuildContext) -> None:
		why.watch(bld)
		try:
			stock(bld)
		finally:
			prefork = getattr(Utils, "prefork", None)
			if prefork is not None:
				prefork.terminal.end_build(bld)

	Build.BuildContext.execute = execute
