"""
What tells that a file was changed, without its content being read; and whether it surely would.

Knows nothing of who remembers what.
"""

import os
import time
from typing import List, Optional

Stamp = List[int]
"""Device, inode, size, and both times in nanoseconds: all that shows a change, as ``marshal`` and JSON can keep it."""
SIZE, CHANGED = 2, 4
"""Where a stamp has the size, and the time of the last change of any kind, which nobody can set."""
JUST_NOW = 100_000_000
"""Nanoseconds: a file that was changed so late may be changed again without that showing in its times."""
JUST_NOW_COARSE = 2_100_000_000
"""The same where times have only whole seconds."""
UNSETTLED = -1
"""At the end of a stamp that is not to be trusted: no file has such a one."""


def of_status(found: os.stat_result) -> Stamp:
	return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def of_file(path: str) -> Optional[Stamp]:
	"""The stamp of what a path leads to; none if nothing is there."""
	try:
		return of_status(os.stat(path))
	except (OSError, ValueError):
		return None


def is_fresh(stamp: Stamp, looked: int) -> bool:
	"""Whether a file could be changed again, after it was looked at then, and have the same stamp."""
	changed = stamp[CHANGED]
	return changed > looked - (JUST_NOW if changed % 1_000_000_000 else JUST_NOW_COARSE)


def settle(stamp: Optional[Stamp], looked: Optional[int] = None) -> Optional[Stamp]:
	"""A stamp to be kept of a file that is read after it was looked at: one that no file has if it is too fresh."""
	if stamp is None or not is_fresh(stamp, time.time_ns() if looked is None else looked):
		return stamp
	return [*stamp, UNSETTLED]


def is_unsettled(stamp: Optional[Stamp]) -> bool:
	"""Whether this is one that no file has."""
	return stamp is not None and stamp[-1] == UNSETTLED
