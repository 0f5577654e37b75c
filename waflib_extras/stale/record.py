"""
The record of what builds have made: a file in the build folder, one for each variant.

It is written under another name and renamed, under a name that ``waf clean`` spares, since installed files stay. It
names the build folder: in a copy of the folder it counts as empty, since its files are those of the original.
"""

import hashlib
import marshal
import os
import stat
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from ..facts.files import replace

FORMAT = 1
ENCODING = 2  # the version of marshal's format, which all interpreters know
NAME = ".lock-waf-stale"

Identity = Tuple[int, int]
"""The size of a file, and the time of its last change in nanoseconds. For a link they are its own."""
Files = Dict[str, Identity]
"""By path, which is relative in the build folder, and absolute elsewhere."""
Place = Tuple[str, str]
"""The destdir and the prefix of an installation."""


class Damaged(Exception):
	"""A record that is there, and is not as it was written."""

	pass  # waf-light removes the docstring


class Installed(NamedTuple):
	"""The files that were installed to a place, and the folders that were made for them."""

	files: Files
	folders: Set[str]


class Record:
	"""The content of the file."""

	def __init__(self, folder: str) -> None:
		self.folder = folder
		"""The build folder."""
		self.built: Dict[str, Files] = {}
		"""By command, since another command may build other things into the same folder."""
		self.installed: Dict[Place, Installed] = {}
		self.stored: object = None
		"""The content as it was read, so that it is not written again if nothing has changed."""

	def content(self) -> Tuple[str, Dict[str, Files], Dict[Place, Tuple[Files, List[str]]]]:
		"""What is written. The tables of files are replaced when they change, so this does not copy them."""
		installed = {place: (one.files, sorted(one.folders)) for place, one in self.installed.items()}
		return self.folder, dict(self.built), installed


def path_of(out_dir: str, variant: str) -> str:
	return os.path.join(out_dir, "-".join([NAME, *filter(None, variant.split(os.sep))]))


def read(path: str, folder: str = "") -> Record:
	"""The record of a build folder, empty if there is none. Without a folder, the one that the record names."""
	record = Record(folder)
	try:
		with open(path, "rb") as f:
			head, content = f.readline(), f.read()
	except FileNotFoundError:
		return record
	if head != head_of(content):
		raise Damaged
	named, built, installed = marshal.loads(content)
	if folder in ("", named):
		record.folder, record.built = named, built
		record.installed = {place: Installed(files, set(folders)) for place, (files, folders) in installed.items()}
		record.stored = record.content()
	return record


def write(path: str, record: Record) -> None:
	"""Write the file, if its content has changed."""
	found = record.content()
	if found == record.stored:
		return
	content = marshal.dumps(found, ENCODING)
	replace(path, head_of(content) + content)


def head_of(content: bytes) -> bytes:
	"""The first line of the file, which identifies its content."""
	head = "stale %d %s\n" % (FORMAT, hashlib.md5(content).hexdigest())
	return head.encode()


def look(path: str) -> Optional[Identity]:
	"""The identity of a file or a link; None if there is none."""
	try:
		found = os.lstat(path)
	except (OSError, ValueError):
		return None
	return None if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns)
