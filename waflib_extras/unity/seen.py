"""
The files that plans depend on, as they were when the plans were made.

Many plans depend on the same headers, so each file is stored once, and looked at once in each build. Plans may depend
on different states of one file, as some targets may be left out of a build.
"""

import array
import hashlib
import os
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..facts import stamps

NUMBERS = "I"
"""The type of stored numbers, as the module ``array`` names it."""

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
	numbers: Dict[SeenFile, int] = {}
	packed = {
		name: pack_numbers(numbers.setdefault(file, len(numbers)) for file in files) for name, files in lists.items()
	}
	return [[file.path, file.stamp, file.digest] for file in numbers], packed


def unpack(files: Iterable[StoredFile], packed: Mapping[str, bytes]) -> Dict[str, List[SeenFile]]:
	"""The lists that ``pack`` has stored."""
	known = [SeenFile(*file) for file in files]
	return {name: [known[number] for number in unpack_numbers(content)] for name, content in packed.items()}


def pack_numbers(numbers: Iterable[int]) -> bytes:
	return array.array(NUMBERS, numbers).tobytes()


def unpack_numbers(packed: bytes) -> "array.array[int]":
	numbers = array.array(NUMBERS)
	numbers.frombytes(packed)
	return numbers


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
