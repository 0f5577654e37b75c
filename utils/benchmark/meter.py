"""Running one command and measuring it."""

import contextlib
import os
import shlex
import subprocess
import time
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from .interrupt import INTERRUPTS
from .mistake import Failed
from .session import NONE_USED, Usage, collect, end, status_of

TAIL = 15  # lines of a failed command's output that are shown


class Command(NamedTuple):
	"""A command of a contender."""

	argv: List[str]
	cwd: str
	env: Dict[str, str]


class Reading(NamedTuple):
	"""The time and the resources of a command that succeeded."""

	wall: float
	used: Usage


def measure(command: Command, output: str, daemons: Callable[[], List[int]], usher: str = "") -> Reading:
	"""
	Run a command with its output going to a file, and measure it.

	``daemons`` returns the processes that do a part of the work. What they use meanwhile is counted, too. It is called
	again afterwards, because the command may have started them. Without an ``usher``, no command seems to take less
	memory than we do.
	"""
	before = {pid: used_by(pid) for pid in daemons()}
	wall, status, used = watch(command, output, usher)
	if status:
		raise Failed(explain(command.argv, status), tail_of(output))
	for pid in daemons():
		used += grown(before.get(pid, NONE_USED), used_by(pid))
	return Reading(wall, used)


def watch(command: Command, output: str, usher: str = "", errors: str = "") -> Tuple[float, int, Usage]:
	"""
	Run a command and wait for all its processes. Its time ends with the first process.

	Its messages go to the file ``errors``, or to that of its output.
	"""
	child = None
	report = output + ".peak"
	if usher:
		command = command._replace(argv=[usher, report, *command.argv])
	try:
		with INTERRUPTS.held():
			start = time.monotonic()
			child = start_command(command, output, errors)
		_, status, usage = os.wait4(child.pid, 0)
		wall = time.monotonic() - start
		child.returncode = -(status & 127) if status & 127 else status >> 8
		peak = read_peak(report, usage.ru_maxrss) if usher else usage.ru_maxrss
		return wall, child.returncode, Usage(usage.ru_utime, usage.ru_stime, peak) + collect(child.pid)
	except BaseException:
		if child:
			with INTERRUPTS.held():
				end(child.pid)
			child.returncode = child.returncode or 1  # it has been waited for, which subprocess cannot know
		raise


def read_peak(report: str, otherwise: int) -> int:
	"""The peak memory that the usher has written, if it could."""
	try:
		with open(report, encoding="ascii") as f:
			return int(f.read())
	except (OSError, ValueError):
		return otherwise


def start_command(command: Command, output: str, errors: str) -> "subprocess.Popen[bytes]":
	with contextlib.ExitStack() as stack:
		f = stack.enter_context(open(output, "wb"))
		g = stack.enter_context(open(errors, "wb")) if errors else subprocess.STDOUT
		try:
			return subprocess.Popen(
				command.argv,
				cwd=command.cwd,
				env=command.env,
				stdin=subprocess.DEVNULL,
				stdout=f,
				stderr=g,
				start_new_session=True,
			)
		except OSError as e:
			raise Failed("%s: %s" % (command.argv[0], e.strerror)) from None


def used_by(pid: int) -> Usage:
	"""The resources that a daemon has used since its start, with the children for which it has waited."""
	status = status_of(pid)
	return Usage(status.user, status.system, 0) if status else NONE_USED


def grown(before: Usage, after: Usage) -> Usage:
	"""The use between two readings; zero if the daemon has ended, because then it is unknown."""
	return Usage(max(after.user - before.user, 0.0), max(after.system - before.system, 0.0), 0)


def explain(argv: Sequence[str], status: int) -> str:
	how = "exit status %d" % status if status > 0 else "ended by signal %d" % -status
	shown = " ".join(map(shlex.quote, argv))
	return "%s: %s" % (how, shown if len(shown) < 200 else shown[:197] + "...")


def tail_of(path: str, lines: int = TAIL) -> str:
	"""The end of a command's output, without reading all of a large one."""
	with open(path, "rb") as f:
		size = f.seek(0, os.SEEK_END)
		f.seek(max(size - 16384, 0))
		text = f.read().decode("utf-8", "replace")
	return "\n".join(text.rstrip().splitlines()[-lines:])
