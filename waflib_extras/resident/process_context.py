"""
The rights and limits of a process, and the memory that the machine has left.

A resident answers for a caller, or forks for it, only if both have the same rights and limits.
"""

import os
from typing import List, Tuple

SCARCE = 0.05  # of the machine's memory; if less is available, the resident ends

# lines of /proc/PID/status: RIGHTS must be equal for an answer, and the others for a child, too
RIGHTS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
BURDENS = ("Umask", "SigBlk", "SigIgn", "Cpus_allowed")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def read_status(pid: int, names: Tuple[str, ...]) -> List[str]:
	with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as f:
		return [line for line in f if line.partition(":")[0] in names]


def read_rights(pid: int) -> List[str]:
	"""The properties of a process that decide which files it can see."""
	links = ["ns/" + name for name in NAMESPACES] + ["root"]
	return read_status(pid, RIGHTS) + [os.readlink("/proc/%d/%s" % (pid, link)) for link in links]


def read_burdens(pid: int) -> List[str]:
	"""The properties that a process passes on to its commands, except those that a child of ours is given."""
	texts = read_status(pid, BURDENS)
	for name in ("limits", "cgroup", "oom_score_adj"):
		with open("/proc/%d/%s" % (pid, name), encoding="utf-8", errors="replace") as f:
			texts.append(f.read())
	with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
		fields = f.read().rpartition(")")[2].split()
	return [*texts, fields[16], fields[38]]  # nice value, scheduling policy


def is_memory_scarce(part: float = SCARCE) -> bool:
	try:
		with open("/proc/meminfo", encoding="utf-8") as f:
			fields = {line.partition(":")[0]: int(line.split()[1]) for line in f}
		return fields["MemAvailable"] < part * fields["MemTotal"]
	except (OSError, KeyError, ValueError, IndexError):
		return False
