"""
Stamps of files, which show that a file was changed without its content being read.

A file that was changed just now may be changed again and keep its stamp; ``settle`` cares for that.
"""

import os
import time
from typing import List, Optional

Stamp = List[int]
"""Device, inode, size, and both times in nanoseconds. It is a list, since JSON has no tuples."""
DEVICE, SIZE, CHANGED = 0, 2, 4
"""Positions in a stamp: the device, the size, and the time of the last change of any kind, which no program can set."""
JUST_NOW = 100_000_000
"""In nanoseconds. A file that was changed within this time may be changed again and keep its times."""
JUST_NOW_COARSE = 2_100_000_000
"""The same for file systems whose times are whole seconds."""
UNSETTLED = -1
"""The last element of a stamp that cannot be trusted. No file has a stamp with it."""


def of_status(found: os.stat_result) -> Stamp:
	return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def of_file(path: str) -> Optional[Stamp]:
	"""The stamp of the file that a path leads to; None if there is none."""
	try:
		return of_status(os.stat(path))
	except (OSError, ValueError):
		return None


def is_fresh(stamp: Stamp, looked: int) -> bool:
	"""Tell whether a file with this stamp could be changed after ``looked`` and keep its stamp."""
	return is_recent(stamp[CHANGED], looked)


def is_recent(changed: int, looked: int) -> bool:
	"""Tell whether a file that was changed then could be changed again after ``looked`` and have the same times."""
	return changed > looked - (JUST_NOW if changed % 1_000_000_000 else JUST_NOW_COARSE)


def settle(stamp: Optional[Stamp], looked: Optional[int] = None) -> Optional[Stamp]:
	"""The stamp to remember of a file that is read after ``looked``: one that no file has if it is too fresh."""
	if stamp is None or not is_fresh(stamp, time.time_ns() if looked is None else looked):
		return stamp
	return [*stamp, UNSETTLED]


def is_unsettled(stamp: Optional[Stamp]) -> bool:
	"""Tell whether this is a stamp that no file has."""
	return stamp is not None and stamp[-1] == UNSETTLED
