"""Disks that are small, full, or may not be written to. Only root can make such."""

import os
import pathlib
import random
from typing import List, Type

from .fault import Fault, Later, Stage


def fill(folder: pathlib.Path, name: str = "filler") -> None:
	"""Take all the room that there is."""
	try:
		with open(str(folder / name), "wb", buffering=0) as file:
			for size in (1 << 16, 1 << 12, 1):
				while True:
					try:
						if not file.write(bytes(size)):
							break
					except OSError:
						break
	except OSError:
		pass


def empty(folder: pathlib.Path, name: str = "filler") -> None:
	try:
		os.unlink(str(folder / name))
	except OSError:
		pass


class SmallStore(Fault):
	name = "store-small"
	about = "the store is on a disk that has hardly any room"
	needs_root = True
	group = "store"

	def __init__(self, rng: random.Random) -> None:
		super().__init__(rng)
		self.size = rng.choice((4, 16, 64, 160, 400))

	def prepare(self, stage: Stage) -> None:
		stage.scene.mount(stage.builder.store_folder(stage.scene), self.size)
		stage.note("the store has %d KiB" % self.size)

	def relieve(self, stage: Stage) -> None:
		stage.scene.remount(stage.builder.store_folder(stage.scene), "size=64m")


class FullStore(Fault):
	name = "store-full"
	about = "the store's disk fills up while the build runs"
	needs_root = True
	group = "store"
	strikes = 1

	def prepare(self, stage: Stage) -> None:
		stage.scene.mount(stage.builder.store_folder(stage.scene), 8192)

	def strike(self, stage: Stage, later: Later) -> bool:
		fill(stage.builder.store_folder(stage.scene))
		stage.note("the store's disk is full")
		return True

	def relieve(self, stage: Stage) -> None:
		empty(stage.builder.store_folder(stage.scene))


class ReadOnlyStore(Fault):
	name = "store-read-only"
	about = "the store's disk may not be written to any more"
	needs_root = True
	group = "store"
	strikes = 1

	def prepare(self, stage: Stage) -> None:
		stage.scene.mount(stage.builder.store_folder(stage.scene), 8192)

	def strike(self, stage: Stage, later: Later) -> bool:
		# which the system refuses while a file is open for writing
		stage.scene.remount(stage.builder.store_folder(stage.scene), "ro")
		stage.note("the store's disk is read-only, if the system takes that")
		return True

	def relieve(self, stage: Stage) -> None:
		stage.scene.remount(stage.builder.store_folder(stage.scene), "rw")


class FullRuntime(Fault):
	name = "runtime-full"
	about = "the runtime folder's disk is full, from the beginning or at some moment"
	needs_root = True
	group = "runtime"
	strikes = 1

	def __init__(self, rng: random.Random) -> None:
		super().__init__(rng)
		self.size = rng.choice((4, 64, 1024))

	def prepare(self, stage: Stage) -> None:
		stage.scene.mount(stage.scene.runtime, self.size)
		stage.note("the runtime folder has %d KiB" % self.size)

	def strike(self, stage: Stage, later: Later) -> bool:
		fill(stage.scene.runtime)
		stage.note("the runtime folder's disk is full")
		return True

	def relieve(self, stage: Stage) -> None:
		empty(stage.scene.runtime)
		stage.scene.remount(stage.scene.runtime, "size=8m")


class FullTemporary(Fault):
	name = "tmp-full"
	about = "TMPDIR is full for a part of the build"
	needs_root = True
	may_fail = True
	strikes = 1

	def prepare(self, stage: Stage) -> None:
		stage.scene.mount(stage.scene.temporary, 1024)

	def strike(self, stage: Stage, later: Later) -> bool:
		fill(stage.scene.temporary)
		stage.note("TMPDIR is full")
		later.append((self.rng.choice((0.1, 10.0)), lambda: empty(stage.scene.temporary)))
		return True

	def relieve(self, stage: Stage) -> None:
		empty(stage.scene.temporary)


class FullOutputs(Fault):
	name = "outputs-full"
	about = "the project's disk is full for a part of the build"
	needs_root = True
	may_fail = True
	strikes = 1

	def prepare(self, stage: Stage) -> None:
		stage.scene.mount(stage.scene.project, 16384)

	def strike(self, stage: Stage, later: Later) -> bool:
		fill(stage.scene.project)
		stage.note("the project's disk is full")
		later.append((self.rng.choice((0.1, 10.0)), lambda: empty(stage.scene.project)))
		return True

	def relieve(self, stage: Stage) -> None:
		empty(stage.scene.project)


KINDS: List[Type[Fault]] = [SmallStore, FullStore, ReadOnlyStore, FullRuntime, FullTemporary, FullOutputs]
