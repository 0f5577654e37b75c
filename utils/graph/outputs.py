"""What a build has made, and whether it is right: what all plain builds have made alike."""

import os
import pathlib
from typing import Dict, List, Set, Tuple

from benchmark.mistake import Failed
from benchmark.project import digest_of

LIBRARIES = (".rlib", ".rmeta", ".so")
SCRIPTS = ("build_script", "build-script")
Digests = Dict[str, str]


def digests_of(target: pathlib.Path) -> Digests:
	"""By path: libraries, their metadata, and programs, also those of build scripts."""
	found: Digests = {}
	for folder, _, names in os.walk(target):
		at = pathlib.Path(folder).relative_to(target).parts
		for name in names:
			path = os.path.join(folder, name)
			if is_output(at[1:], name, path):
				found[os.path.relpath(path, target)] = digest_of(path)
	if not found:
		raise Failed("nothing was built in %s" % target)
	return found


def is_output(at: Tuple[str, ...], name: str, path: str) -> bool:
	"""Tell whether rustc has made a file; ``at`` is its folder below that of the profile."""
	is_program = os.path.isfile(path) and os.access(path, os.X_OK)
	if "deps" in at:
		return name.endswith(LIBRARIES) or is_program
	return "build" in at and name.startswith(SCRIPTS) and is_program


class Judge:
	"""Compares the outputs of caches with those of plain builds."""

	def __init__(self) -> None:
		self.right: Dict[str, Digests] = {}
		"""By the state of the sources: what the first plain build of it has made."""
		self.unsteady: Set[str] = set()
		"""The files that plain builds of one state do not make alike, or that one of them did not make."""

	def learn(self, state: str, made: Digests) -> None:
		"""Take what a plain build has made."""
		right = self.right.setdefault(state, made)
		self.unsteady.update(differing(right, made))

	def compared(self, state: str) -> List[str]:
		return sorted({*self.right[state]} - self.unsteady)

	def wrong(self, state: str, made: Digests) -> List[str]:
		"""The files that are not as they should be."""
		return sorted({*differing(self.right[state], made)} - self.unsteady)


def differing(one: Digests, other: Digests) -> List[str]:
	return [path for path in {*one, *other} if one.get(path) != other.get(path)]
