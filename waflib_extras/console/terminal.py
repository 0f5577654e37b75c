"""
What a build writes to the terminal beside Waf's own messages: the line of ``-p``, and the last line on what was saved.

The environment variable ``WAF_PREFORK_SUMMARY=no`` switches the last line off, as ``--quiet`` does.
"""

import os
import threading
from typing import TYPE_CHECKING, Dict, Optional

from waflib import Build, Logs, Options

from ..client import protocol
from ..hooks import gc_pause, lifecycle
from . import history, why

if TYPE_CHECKING:
	from waflib.Task import Task

	from ..client.engine import Session
	from . import summary

QUIET = "WAF_PREFORK_SUMMARY"
COUNTED = (protocol.RAN, protocol.TIMED_OUT)


class Terminal:
	"""The notes for these messages; one object per process."""

	def __init__(self, build: lifecycle.Build) -> None:
		self.build = build
		self.savings: Optional[summary.Savings] = None
		self.times: Dict[Task, int] = {}
		"""How long tasks took, in microseconds."""
		self.has_built = False
		self.ended = 0
		self.turn = threading.Lock()
		self.evidence = why.Evidence(build, self.times)

	def install(self) -> None:
		"""Take part in the builds that begin from now on."""
		build = self.build
		build.evidence = self.evidence
		build.on_begin.append(lambda bld: why.watch(bld, self.evidence))
		build.on_start.append(self.evidence.begin)
		build.on_outcome.append(self.hear)
		build.on_outcome.append(self.evidence.hear)
		build.on_end.append(self.end_build)
		stock_line = Build.BuildContext.progress_line

		def progress_line(bld: Build.BuildContext, idx: int, total: int, col1: str, col2: str) -> str:
			if getattr(bld, "progress_bar", 0) != 1 or not build.is_running_commands():
				line: str = stock_line(bld, idx, total, col1, col2)
				return line
			from . import progress

			return progress.draw(bld, idx, total, col1, col2)

		build.replace("console", "Build.BuildContext.progress_line", progress_line)

	def hear(self, ended: lifecycle.Ended) -> None:
		"""Count a command that has ended in the engine, and note how long a task took."""
		if ended.outcome is not None and ended.outcome.verdict in COUNTED:
			with self.turn:
				self.ended += 1
		if ended.micros >= history.LEAST and ended.task is not None:
			self.times[ended.task] = ended.micros

	def begin(self, session: "Session") -> None:
		"""Begin to count what is saved, when a session was opened."""
		if not is_quiet():
			from . import summary

			self.savings = summary.Savings()
			self.savings.begin(session)

	def end_build(self, bld: Build.BuildContext, outcome: str) -> None:
		"""Answer ``--why`` and store what is to be known of the build that is over."""
		self.has_built = self.has_built or bld.cmd != why.WhyContext.cmd
		with gc_pause.without_collector():
			self.evidence.end_build(bld)
		if self.times:
			history.keep_times(bld, self.times)
			self.times.clear()

	def finish(self) -> None:
		"""Write one line at exit: what was saved, or why commands ran without the engine."""
		runner, cache = self.build.runner, self.build.cache
		if runner is None:
			return
		session, own = runner.session, sum(runner.reasons.values())
		if runner.lost and self.has_built and not is_quiet():
			Logs.warn("prefork: %d commands ran without the engine: %s", own, runner.lost)
			return
		if session is None or self.savings is None or not self.has_built or is_quiet():
			return
		from . import summary

		told = summary.Counts(self.ended, own=own)
		if cache is not None:
			_, hits, misses = cache.counts
			told = told._replace(hits=hits, misses=misses, unstored=cache.unstored, saved=cache.saved / 1e6)
			told = told._replace(begun=cache.begun, gained=cache.gained / 1e6)
		parked = self.savings.find_parked(session, session.sent) if told.ended > told.hits else None
		lines = [summary.describe(told, parked)]
		if cache is not None:
			lines.append(summary.describe_begun(told))
			lines.append(cache.describe_voided())
		if runner.waits_for_memory:
			lines.append(summary.describe_waits(summary.ask_waits(session)))
		for line in filter(None, lines):
			Logs.info(line)


def is_quiet() -> bool:
	return bool(getattr(Options.options, "quiet", False)) or os.environ.get(QUIET) == "no"


def add_late_options(opt: Options.OptionsContext) -> None:
	"""Add ``--why``, and ``--quiet`` by those of its names that the project has not taken."""
	why.add_late_options(opt)
	names = [name for name in ("-q", "--quiet") if not opt.parser.get_option(name)]
	if "--quiet" in names:
		group = opt.add_option_group("Prefork options")
		group.add_option(*names, dest="quiet", action="store_true", help="do not say in the end what was saved")


def add_options(opt: Options.OptionsContext) -> None:
	"""Have these options added after those of all wscripts, since projects like the same names."""
	stock = opt.parse_args

	def parse_args(*args: object, **kwargs: object) -> object:
		add_late_options(opt)
		return stock(*args, **kwargs)

	opt.parse_args = parse_args
	opt.add_late_options = lambda: add_late_options(opt)
