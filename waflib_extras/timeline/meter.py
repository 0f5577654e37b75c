"""
Samples taken while a build is recorded: memory, load, other builds, and what Waf's own thread does.
"""

import json
import os
import sys
import threading
from typing import Callable, List, NamedTuple, Optional, Tuple, TypedDict

from ..client import engine, protocol
from ..hooks import lifecycle

FIRST_STEP = 0.1
"""Seconds between two samples. The time is doubled whenever there are too many of them."""
MOST = 4096
PACE = 1.0
"""Seconds between two questions to the engine, at least."""
PAGE = 1024.0 * 1024

# by function of Waf's or of ours: what a thread does that is in it; the innermost function counts
DOINGS = {
	"scan": "scanning sources",
	"compute_sig_implicit_deps": "scanning sources",
	"post": "posting",
	"post_group": "posting",
	"set_file_constraints": "posting",
	"set_precedence_constraints": "posting",
	"prio_and_split": "ordering tasks",
	"signature": "comparing signatures",
	"sig_explicit_deps": "comparing signatures",
	"h_file": "digesting files",
	"hash_file": "digesting files",
	"runnable_status": "comparing signatures",
	"recurse": "reading wscripts",
	"restore": "reading the database",
	"store": "writing the database",
	"submit": "making commands",
	"complete": "finishing tasks",
	"post_run": "finishing tasks",
	"mark_finished": "finishing tasks",
	"process_task": "running tasks",
	"receive": "waiting",
	"wait": "waiting",
	"get": "waiting",
	"get_out": "waiting",
	"put": "making commands",
	"start": "scheduling",
}


class Sample(NamedTuple):
	at: float
	used: float
	"""The memory of the machine that is in use, in MiB."""
	own: float
	"""The memory of this process, in MiB."""
	busy: float
	"""The number of processors that were busy since the last sample."""
	others: int
	"""The number of commands that the engine runs for other builds."""


class Sampler:
	"""A thread that takes samples while a build is recorded, and the samples."""

	def __init__(self, clock: Callable[[], float]) -> None:
		self.clock = clock
		self.samples: List[Sample] = []
		self.doings: List[Tuple[float, str]] = []
		"""The observed activities of Waf's own thread, and when."""
		self.step = FIRST_STEP
		self.over = threading.Event()
		self.ident = 0
		self.before = (0.0, 0.0)
		self.thread: Optional[threading.Thread] = None
		self.other_builds: Optional[OtherBuilds] = None

	def begin(self, prefork: Optional[lifecycle.Runner]) -> None:
		self.ident = threading.get_ident()
		if prefork is not None:
			self.other_builds = OtherBuilds(prefork)
		self.take()
		self.thread = threading.Thread(target=self.work)
		self.thread.daemon = True
		self.thread.start()

	def end(self) -> None:
		self.over.set()
		if self.thread is not None:
			self.thread.join()
		self.take()
		if self.other_builds is not None:
			self.other_builds.close()

	def work(self) -> None:
		while not self.over.wait(self.step):
			self.take()
			self.doings.append((self.clock(), self.look()))
			if len(self.samples) > MOST:
				del self.samples[1::2]
				del self.doings[1::2]
				self.step *= 2

	def take(self) -> None:
		now = self.clock()
		used, own = read_memory()
		self.samples.append(
			Sample(now, used, own, self.read_busy(now), self.other_builds.ask(now) if self.other_builds else 0)
		)

	def read_busy(self, now: float) -> float:
		"""The number of processors that were busy since the last call."""
		spent = read_spent()
		(then, before), self.before = self.before, (now, spent)
		return (spent - before) / (now - then) if then and now > then else 0.0

	def look(self) -> str:
		"""The activity of Waf's own thread, by the innermost function that tells it."""
		frame = sys._current_frames().get(self.ident)
		while frame is not None:
			doing = DOINGS.get(frame.f_code.co_name)
			if doing:
				return doing
			frame = frame.f_back
		return "other"


class Client(TypedDict):
	"""A build that the engine works for."""

	pid: int
	running: int


class EngineReport(TypedDict):
	"""The part of the engine's report that we read."""

	sessions: List[Client]


class OtherBuilds:
	"""A connection to the engine that asks it about other builds."""

	def __init__(self, prefork: lifecycle.Runner) -> None:
		self.prefork = prefork
		self.session: Optional[engine.Session] = None
		self.connection: Optional[engine.Connection] = None
		self.asked = 0.0
		self.others = 0

	def ask(self, now: float) -> int:
		"""The number of commands that run for other builds; the last answer again if that is recent."""
		session = self.prefork.session
		if now - self.asked < PACE or session is None or not session.engine:
			return self.others
		self.asked = now
		try:
			if self.connection is None:
				self.session = engine.Session("timeline", 0, 0, session.transport)
				self.connection = self.session.take()
			report: EngineReport = json.loads(self.connection.ask_report(PACE).decode("utf-8", "replace"))
			self.others = count_others(report, os.getpid())
		except (protocol.EngineError, OSError, ValueError):
			# the build must not suffer from its picture
			self.close()
			self.others = 0
		return self.others

	def close(self) -> None:
		if self.session is not None and self.connection is not None:
			self.session.drop(self.connection)
			self.session.close()
			self.connection = None


def count_others(report: EngineReport, own: int) -> int:
	return sum(session["running"] for session in report["sessions"] if session["pid"] != own)


def read_memory() -> Tuple[float, float]:
	"""The memory that the machine and this process use, in MiB; zeros where the system does not tell."""
	try:
		with open("/proc/meminfo", "rb") as f:
			fields = dict(line.split(b":", 1) for line in f.read().splitlines())
		used = int(fields[b"MemTotal"].split()[0]) - int(fields[b"MemAvailable"].split()[0])
		with open("/proc/self/statm", "rb") as f:
			own = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
		return used / 1024.0, own / PAGE
	except (OSError, KeyError, ValueError, IndexError):
		return 0.0, 0.0


def read_spent() -> float:
	"""The time that the processors of the machine have been busy, in seconds."""
	try:
		with open("/proc/stat", "rb") as f:
			ticks = [int(word) for word in f.readline().split()[1:9]]
		return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
	except (OSError, ValueError, IndexError):
		return 0.0
