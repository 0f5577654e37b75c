"""
The files that plans depend on, as they were when the plans were made.

Many plans depend on the same headers, so each file is stored once, and looked at once in each build. Plans may depend
on different states of one file, as some targets may be left out of a build.
"""

import hashlib
import itertools
import os
import struct
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..facts import stamps

NUMBERS, SIZE = "=%dI", 4
"""The form of stored numbers, as the module ``struct`` writes it, and the bytes of each."""

StoredFile = List[Any]
"""The fields of a file in a form that ``marshal`` can write."""


class SeenFile:
	"""One state of a file. Two objects may be equal, but are different files in sets."""

	__slots__ = ("digest", "path", "stamp")

	def __init__(self, path: str, stamp: Optional[stamps.Stamp], digest: bytes) -> None:
		self.path = path
		self.stamp = stamp
		self.digest = digest
		"""The MD5 of the content. It is empty if the file is not of the project: any other stamp counts as a change."""


def pack(lists: Mapping[str, Iterable[SeenFile]]) -> Tuple[List[StoredFile], Dict[str, bytes]]:
	"""Store lists of files: the fields of each file once, and the numbers of the files in each list."""
	numbers = {file: n for n, file in enumerate(dict.fromkeys(itertools.chain.from_iterable(lists.values())))}
	packed = {name: pack_numbers(map(numbers.__getitem__, files)) for name, files in lists.items()}
	return [[file.path, file.stamp, file.digest] for file in numbers], packed


def unpack(files: Iterable[StoredFile], packed: Mapping[str, bytes]) -> Dict[str, List[SeenFile]]:
	"""The lists that ``pack`` has stored."""
	known = [SeenFile(*file) for file in files]
	return {name: list(map(known.__getitem__, unpack_numbers(content))) for name, content in packed.items()}


def pack_numbers(numbers: Iterable[int]) -> bytes:
	"""Numbers as bytes. ``array`` would do, but Python reports it to a resident process as something unusual."""
	listed = list(numbers)
	return struct.pack(NUMBERS % len(listed), *listed)


def unpack_numbers(packed: bytes) -> Tuple[int, ...]:
	return struct.unpack(NUMBERS % (len(packed) // SIZE), packed)


def digest_of(path: str) -> str:
	try:
		with open(path, "rb") as f:
			return hashlib.md5(f.read()).hexdigest()
	except OSError:
		return ""


def list_folder(folder: str) -> FrozenSet[str]:
	try:
		return frozenset(os.listdir(folder or os.sep))
	except OSError:
		return frozenset()
