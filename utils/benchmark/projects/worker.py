"""One process of the job in the foreground: ``worker.py FILE NUMBER`` counts in its place of a file."""

import mmap
import os
import struct
import sys

COUNT = struct.Struct("=Q")
WORK = 20000  # additions that make one unit, less than a millisecond: short beside what the scheduler gives at a time


def work(path: str, number: int) -> None:
	"""Count units of work until we are ended, or our parent is."""
	parent = os.getppid()
	with open(path, "r+b") as f:
		counts = mmap.mmap(f.fileno(), 0)
	done = 0
	while os.getppid() == parent:
		sum(range(WORK))
		done += 1
		COUNT.pack_into(counts, number * COUNT.size, done)


work(sys.argv[1], int(sys.argv[2]))
