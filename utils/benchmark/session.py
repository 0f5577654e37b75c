"""
The processes that a command starts: finds them, adds up their use, and ends them.

Every command gets a session of its own, the only mark that all its processes keep: ninja gives each compiler a process
group of its own, and Waf leaves behind the workers of its pool.
"""

import ctypes
import os
import signal
import time
from typing import Iterator, List, NamedTuple, Optional, Set

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 5.0  # seconds that processes have to end by themselves


class Usage(NamedTuple):
	"""The use of processes: seconds of processor time, and the largest resident set of any of them in KiB."""

	user: float
	system: float
	peak_kib: int

	def __add__(self, other: "Usage") -> "Usage":  # type: ignore[override]
		return Usage(self.user + other.user, self.system + other.system, max(self.peak_kib, other.peak_kib))


NONE_USED = Usage(0.0, 0.0, 0)


class Status(NamedTuple):
	"""Some fields of ``/proc/PID/stat``."""

	pid: int
	state: str
	parent: int
	session: int
	user: float
	system: float


def adopt_orphans() -> bool:
	"""
	Become the parent of what our children leave behind; tell whether the system can do that.

	Waf kills the workers of its pool at exit without waiting for them. The use of their compilers would be lost,
	because only the process that waits for a child is told of it.
	"""
	try:
		return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
	except (AttributeError, OSError, TypeError):
		return False


def status_of(pid: int) -> Optional[Status]:
	"""The state of a process, with the processor time of itself and of the children it waited for."""
	try:
		with open("/proc/%d/stat" % pid, "rb") as f:
			text = f.read().decode("ascii", "replace")
	except OSError:
		return None
	# the name of the program stands in parentheses and may hold anything, a blank or a parenthesis too
	fields = text[text.rindex(")") + 2 :].split()
	tick = os.sysconf("SC_CLK_TCK")
	user, system = (int(fields[n]) + int(fields[n + 2]) for n in (11, 12))
	return Status(pid, fields[0], int(fields[1]), int(fields[3]), user / tick, system / tick)


def is_alive(pid: int) -> bool:
	"""Tell whether a process runs. A zombie does not."""
	status = status_of(pid)
	return status is not None and status.state != "Z"


def processes() -> Iterator[Status]:
	try:
		names = os.listdir("/proc")
	except OSError:
		return
	for name in names:
		status = status_of(int(name)) if name.isdigit() else None
		if status:
			yield status


def members(session: int) -> List[Status]:
	"""The processes of a session, with zombies."""
	return [status for status in processes() if status.session == session]


def reap(pid: int) -> Optional[Usage]:
	"""The use of a child of ours that has ended; None if it runs or is not our child."""
	try:
		ended, _, usage = os.wait4(pid, os.WNOHANG)
	except ChildProcessError:
		return None
	return Usage(usage.ru_utime, usage.ru_stime, usage.ru_maxrss) if ended else None


def collect(session: int, patience: float = PATIENCE) -> Usage:
	"""Wait for what is left of a session whose leader has ended, end it when it stays, and add up what it used."""
	used = NONE_USED
	deadline = time.monotonic() + patience
	while True:
		rest = members(session)
		if not rest:
			return used
		late = time.monotonic() > deadline
		for status in rest:
			used += reap(status.pid) or NONE_USED
			if late and status.state != "Z":
				send(status.pid, signal.SIGKILL)
		if late and time.monotonic() > deadline + patience:
			return used  # a process that is stuck in the kernel cannot be ended, so we do not wait for it
		time.sleep(0.002)


def end(session: int, patience: float = PATIENCE) -> None:
	"""End a session as Ctrl-C in a terminal does, and with force what does not heed it."""
	try:
		os.killpg(session, signal.SIGINT)
	except OSError:
		pass
	collect(session, patience)


def send(pid: int, number: int) -> bool:
	"""Send a signal to a process; tell whether it still was there."""
	try:
		os.kill(pid, number)
	except OSError:
		return False
	return True


def end_children(patience: float = PATIENCE) -> None:
	"""
	End processes that have become our children although we did not start them.

	These are daemons: one that was told to stop and has not ended yet, or one whose client was interrupted. It ends
	every child of this process, so this process must not have others.
	"""
	deadline = time.monotonic() + patience
	asked: Set[int] = set()
	while True:
		children = [status for status in processes() if status.parent == os.getpid()]
		for status in children:
			if status.state == "Z":
				reap(status.pid)
			elif time.monotonic() > deadline:
				send(status.pid, signal.SIGKILL)
			elif status.pid not in asked:
				asked.add(status.pid)
				send(status.pid, signal.SIGTERM)
		if not children or time.monotonic() > deadline + patience:
			return
		time.sleep(0.01)
