"""The processes that belong to a runtime folder: which there are, what they do, and how they end."""

import os
import pathlib
import signal
import time
from typing import Dict, Iterable, List, NamedTuple, Optional

from benchmark.session import send, status_of

VARIABLE = b"WAFD_RUNTIME_DIR="


class Process(NamedTuple):
	"""A process, as /proc shows it."""

	pid: int
	parent: int
	state: str
	program: str  # base name of the file that it executes
	command: str


def list_processes(
	runtime: pathlib.Path, is_nested: bool = False, among: Optional[Iterable[int]] = None
) -> Dict[int, str]:
	"""
	Every process that was started with this runtime folder in its environment, with its command line.

	`is_nested` adds those of folders below it, where the engines of other stores live. `among` has it look at these
	processes only.
	"""
	wanted = b"\0" + VARIABLE + os.fsencode(runtime) + b"\0"
	below = wanted[:-1] + b"/"
	found = {}
	for name in filter(str.isdigit, os.listdir("/proc")) if among is None else map(str, among):
		try:
			environ = b"\0" + read_bytes("/proc/%s/environ" % name)
			if wanted in environ or (is_nested and below in environ):
				command = read_bytes("/proc/%s/cmdline" % name).replace(b"\0", b" ")
				found[int(name)] = command.decode(errors="replace")
		except OSError:  # gone meanwhile, or not ours
			continue
	return found


def read_bytes(path: str) -> bytes:
	with open(path, "rb", buffering=0) as file:
		return file.read()


def wait_until_gone(runtime: pathlib.Path, seconds: float = 10, is_nested: bool = False) -> Dict[int, str]:
	"""Wait for the end of a runtime folder's processes; those that are left when the time is up."""
	deadline = time.monotonic() + seconds
	while True:
		left = list_processes(runtime, is_nested)
		if not left or time.monotonic() > deadline:
			return left
		# the environment of every process is costly to read; only those that are left can start more of them
		while left and time.monotonic() <= deadline:
			time.sleep(0.02)
			left = list_processes(runtime, is_nested, left)


def look_at(pids: Dict[int, str]) -> List[Process]:
	"""The processes that have not ended, the oldest first."""
	found = []
	for pid, command in sorted(pids.items()):
		status = status_of(pid)
		try:
			program = os.path.basename(os.readlink("/proc/%d/exe" % pid)).replace(" (deleted)", "")
		except OSError:
			continue
		if status and status.state not in "ZX":
			found.append(Process(pid, status.parent, status.state, program, command))
	return found


def describe(pids: Dict[int, str]) -> List[str]:
	"""Describe each process: its state, where in the kernel it waits, and its descriptors."""
	lines = []
	for one in look_at(pids):
		folder = pathlib.Path("/proc/%d" % one.pid)
		lines.append("%d (parent %d) %s: %s" % (one.pid, one.parent, one.program, one.command[:200]))
		lines.append("  state %s, waits in %s" % (one.state, read(folder / "wchan") or "?"))
		lines.append("  system call %s" % (read(folder / "syscall") or "?"))
		stack = read(folder / "stack").split("\n")[:3]
		lines += ["  %s" % line for line in stack if line]
		lines.append("  descriptors %s" % ", ".join(list_descriptors(folder / "fd")))
	return lines


def list_descriptors(folder: pathlib.Path) -> List[str]:
	found = []
	try:
		for fd in sorted(os.listdir(str(folder)), key=int):
			found.append("%s %s" % (fd, os.readlink(str(folder / fd))))
	except OSError:
		pass
	return found


def read(path: pathlib.Path) -> str:
	try:
		return path.read_text(errors="replace").strip()
	except OSError:
		return ""


def kill(pids: Dict[int, str]) -> None:
	"""End processes with force, also those that were stopped."""
	for pid in pids:
		send(pid, signal.SIGKILL)
