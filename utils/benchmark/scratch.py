"""A folder for one campaign, which is removed in the end."""

import contextlib
import os
import shutil
import tempfile
import time
from typing import Iterator, Optional

TRIES = 5
PAUSE = 0.2  # seconds


@contextlib.contextmanager
def scratch(prefix: str, where: Optional[str]) -> Iterator[str]:
	"""
	Make a folder, and remove it with all that is in it.

	A program that is just ending may still write into it. So it is tried again, and what cannot be removed stays: the
	results are worth more.
	"""
	folder = tempfile.mkdtemp(prefix=prefix, dir=where)
	try:
		yield folder
	finally:
		for _ in range(TRIES):
			shutil.rmtree(folder, ignore_errors=True)
			if not os.path.exists(folder):
				break
			time.sleep(PAUSE)
