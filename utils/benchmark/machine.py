"""Describes the machine, without which a number says nothing."""

import os
import platform
import re
import shlex
import subprocess
import time
from typing import Any, Dict, List, Optional, Sequence

IDLE = slice(3, 5)  # idle, and waiting for a disk
COUNTED = 8  # kinds; those of guests after them are in others already


def describe_machine(work: str, command: Sequence[str], versions: Dict[str, str]) -> Dict[str, Any]:
	"""Describe the machine, the work folder's file system and the programs, as they are now."""
	return {
		"processor": processor(),
		"cores": cores(),
		"memory_gib": memory_gib(),
		"system": system(),
		"kernel": platform.release(),
		"filesystem": filesystem(work),
		"load": load(),
		"date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
		"command": " ".join(map(shlex.quote, command)),
		"versions": versions,
	}


def cores() -> int:
	"""The processors that this process may use, which a container or ``taskset`` can make fewer than there are."""
	if hasattr(os, "sched_getaffinity"):
		return len(os.sched_getaffinity(0))
	return os.cpu_count() or 1


def processor() -> str:
	"""The processor's model, as the kernel names it."""
	found = re.search(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", read("/proc/cpuinfo"), re.MULTILINE)
	return (found.group(1) if found else platform.processor() or "unknown processor") + ", " + platform.machine()


def memory_gib() -> Optional[float]:
	found = re.search(r"^MemTotal:\s*(\d+) kB", read("/proc/meminfo"), re.MULTILINE)
	return round(int(found.group(1)) / 1024 / 1024, 1) if found else None


def system() -> str:
	found = re.search(r'^PRETTY_NAME="?([^"\n]+)', read("/etc/os-release"), re.MULTILINE)
	return found.group(1) if found else platform.system()


def filesystem(path: str) -> str:
	"""The type of the file system that holds a path: the mount point that is its longest prefix."""
	path = os.path.realpath(path)
	best, kind = "", "unknown"
	for line in read("/proc/self/mounts").splitlines():
		point, found = mount_of(line.split(" "))
		inside = path == point or path.startswith(point.rstrip("/") + "/")
		if inside and len(point) >= len(best):
			best, kind = point, found
	return kind


def mount_of(fields: List[str]) -> List[str]:
	"""The mount point and type of one line of the kernel's table, which writes a blank as ``\\040``."""
	return [re.sub(r"\\(\d{3})", lambda m: chr(int(m.group(1), 8)), fields[1]), fields[2]]


def load() -> str:
	if not hasattr(os, "getloadavg"):
		return "unknown"
	return "%.2f %.2f %.2f" % os.getloadavg()


def busy(seconds: float = 0.5) -> Optional[float]:
	"""The share of all processors' time that is used just now; None where the kernel does not tell."""
	before = processor_times()
	time.sleep(seconds)
	spent = [later - sooner for sooner, later in zip(before, processor_times())]
	idle = sum(spent[IDLE])
	return 1 - idle / sum(spent) if sum(spent) else None


def processor_times() -> List[int]:
	"""What all processors together have spent, by kind, in the order of ``/proc/stat``."""
	found = re.search(r"^cpu +(.+)$", read("/proc/stat"), re.MULTILINE)
	return [int(field) for field in found.group(1).split()[:COUNTED]] if found else []


def version_of(*argv: str) -> str:
	"""The first line that a program says about its version."""
	try:
		done = subprocess.run(
			argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
		)
	except (OSError, subprocess.TimeoutExpired):
		return "unknown"
	lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
	return lines[0].strip() if lines and not done.returncode else "unknown"


def read(path: str) -> str:
	"""A small file of the system, empty where there is none."""
	try:
		with open(path, encoding="utf-8", errors="replace") as f:
			return f.read()
	except OSError:
		return ""
