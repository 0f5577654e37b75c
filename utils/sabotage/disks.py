"""Disks that are small, full, or may not be written to. Only root can make such."""

import os
import pathlib
from typing import List, Type

from .fault import Fault, Later, Stage


def fill(folder: pathlib.Path, name: str = "filler") -> None:
	"""Fill a disk with a file."""
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
	choices = (4, 16, 64, 160, 400)

	def prepare(self, stage: Stage) -> None:
		stage.scene.mount(stage.builder.store_folder(stage.scene), self.drawn)
		stage.note("the store has %d KiB" % self.drawn)

	def relieve(self, stage: Stage) -> None:
		stage.scene.remount(stage.builder.store_folder(stage.scene), "size=64m")


class FullDisk(Fault):
	"""A disk that fills up while the build runs, for good or for a while."""

	needs_root = True
	strikes = 1
	size = 0
	place = ""
	what = ""

	def prepare(self, stage: Stage) -> None:
		stage.scene.mount(stage.folder(self.place), self.drawn or self.size)

	def strike(self, stage: Stage, later: Later) -> bool:
		fill(stage.folder(self.place))
		stage.note("%s is full" % self.what)
		if self.may_fail:
			later.append((self.rng.choice((0.1, 10.0)), lambda: empty(stage.folder(self.place))))
		return True

	def relieve(self, stage: Stage) -> None:
		empty(stage.folder(self.place))


class FullStore(FullDisk):
	name = "store-full"
	about = "the store's disk fills up while the build runs"
	group = "store"
	size = 8192
	place, what = "store", "the store's disk"


class ReadOnlyStore(FullStore):
	name = "store-read-only"
	about = "the store's disk may not be written to any more"

	def strike(self, stage: Stage, later: Later) -> bool:
		# which the system refuses while a file is open for writing
		stage.scene.remount(stage.folder(self.place), "ro")
		stage.note("the store's disk is read-only, if the system takes that")
		return True

	def relieve(self, stage: Stage) -> None:
		stage.scene.remount(stage.folder(self.place), "rw")


class FullRuntime(FullDisk):
	name = "runtime-full"
	about = "the runtime folder's disk is full, from the beginning or at some moment"
	group = "runtime"
	choices = (4, 64, 1024)
	place, what = "runtime", "the runtime folder's disk"

	def prepare(self, stage: Stage) -> None:
		super().prepare(stage)
		stage.note("the runtime folder has %d KiB" % self.drawn)

	def relieve(self, stage: Stage) -> None:
		super().relieve(stage)
		stage.scene.remount(stage.scene.runtime, "size=8m")


class FullTemporary(FullDisk):
	name = "tmp-full"
	about = "TMPDIR is full for a part of the build"
	may_fail = True
	size = 1024
	place, what = "temporary", "TMPDIR"


class FullOutputs(FullDisk):
	name = "outputs-full"
	about = "the project's disk is full for a part of the build"
	may_fail = True
	size = 16384
	place, what = "project", "the project's disk"


KINDS: List[Type[Fault]] = [SmallStore, FullStore, ReadOnlyStore, FullRuntime, FullTemporary, FullOutputs]
