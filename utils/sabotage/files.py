"""Files of the store and of the runtime folder that are damaged, gone, exchanged, or something else than files."""

import os
import pathlib
import random
import shutil
import stat
from typing import List, Sequence, Type

from .fault import Fault, Later, Stage

SEVEN_DAYS = 7 * 86400


def all_files(folder: pathlib.Path) -> List[pathlib.Path]:
	found = []
	for base, _, names in os.walk(str(folder)):
		found += [pathlib.Path(base, name) for name in names]
	return sorted(found)


def remove(path: pathlib.Path) -> None:
	if path.is_dir() and not path.is_symlink():
		shutil.rmtree(str(path), ignore_errors=True)
		return
	try:
		path.unlink()
	except OSError:
		pass


def damage(path: pathlib.Path, way: str, rng: random.Random) -> None:
	"""Damage a file in one of the ``WAYS``."""
	is_file = stat.S_ISREG(os.lstat(str(path)).st_mode)
	if way in ("truncate", "scribble", "extend") and not is_file:
		return
	size = path.stat().st_size if is_file else 0
	if way == "truncate":
		os.truncate(str(path), rng.randrange(size + 1))
	elif way == "scribble":
		with open(str(path), "r+b") as file:
			for _ in range(rng.randint(1, 20)):
				file.seek(rng.randrange(size + 1))
				file.write(bytes(rng.randrange(256) for _ in range(rng.randint(1, 64))))
	elif way == "extend":
		with open(str(path), "ab") as file:
			file.write(bytes(rng.randrange(256) for _ in range(200)))
	elif way == "unreadable":  # not for root
		if is_file:
			path.chmod(0)
	elif way == "older":
		os.utime(str(path), (10**9, 10**9), follow_symlinks=False)
	elif way == "newer":
		later = path.lstat().st_mtime + SEVEN_DAYS
		os.utime(str(path), (later, later), follow_symlinks=False)
	else:
		remove(path)
		if way == "pipe":
			os.mkfifo(str(path))
		elif way == "folder":
			path.mkdir()
		elif way == "link":
			path.symlink_to("/no/such/file")
		elif way == "circle":
			path.symlink_to(path.name)
		elif way == "device":
			path.symlink_to("/dev/zero")
		elif way == "empty":
			path.write_bytes(b"")


WAYS = ("truncate", "scribble", "extend", "remove", "pipe", "folder", "link", "circle", "device", "empty", "unreadable")


class Intrusion(Fault):
	"""Something is done to a folder in one of several ways, before the build or during it."""

	ways: Sequence[str] = ()
	times: Sequence[int] = ()
	place = ""

	def __init__(self, rng: random.Random) -> None:
		self.strikes = rng.choice(self.times)
		super().__init__(rng)
		self.way = rng.choice(self.ways)

	def begin(self, stage: Stage) -> None:
		if not self.strikes:
			self.act(stage)

	def strike(self, stage: Stage, later: Later) -> bool:
		return self.act(stage)

	def act(self, stage: Stage) -> bool:
		raise NotImplementedError


class Damage(Intrusion):
	"""Some files of a folder."""

	ways = WAYS
	times = (0, 1, 2)

	def __init__(self, rng: random.Random) -> None:
		super().__init__(rng)
		self.damaged: List[pathlib.Path] = []
		self.share = rng.choice((0.1, 0.5, 1.0))

	def may(self, path: pathlib.Path) -> bool:
		return True

	def act(self, stage: Stage) -> bool:
		files = [path for path in all_files(stage.folder(self.place)) if self.may(path)]
		chosen = [path for path in files if self.rng.random() < self.share]
		for path in chosen:
			try:
				damage(path, self.way, self.rng)
			except OSError:  # gone meanwhile
				pass
		if not chosen:
			return not self.strikes
		self.damaged += chosen
		shown = " ".join(str(path.relative_to(stage.scene.folder)) for path in chosen[:5])
		stage.note("%s: %d of %d files: %s" % (self.way, len(chosen), len(files), shown))
		return True

	def relieve(self, stage: Stage) -> None:
		"""Remove folders that we have put in the place of files. Our programs do not remove them."""
		for path in self.damaged:
			if path.is_dir() and not path.is_symlink():
				remove(path)


class DamagedStore(Damage):
	name = "store-damaged"
	about = "files of the store cut, overwritten, removed, or made pipes, folders, links"
	place = "store"


class StoreClock(DamagedStore):
	name = "store-times"
	about = "files of the store get times of the past or the future"
	ways = ("older", "newer")


class DamagedRuntime(Damage):
	name = "runtime-damaged"
	about = "files of the runtime folder cut, overwritten, removed, or made pipes, folders, links"
	group = place = "runtime"

	def may(self, path: pathlib.Path) -> bool:
		"""A library that programs have mapped is not written into, because that ends any program."""
		return not (path.name.endswith(".so") and self.way in ("truncate", "scribble"))


class GoneSocket(Damage):
	name = "socket-removed"
	about = "the engine's socket removed, or something else in its place"
	ways = ("remove", "pipe", "folder", "link", "circle", "empty")
	group = "runtime"

	def __init__(self, rng: random.Random) -> None:
		super().__init__(rng)
		self.share = 1.0

	def act(self, stage: Stage) -> bool:
		found = [path for path in all_files(stage.scene.runtime) if path.name.endswith(".sock")]
		for path in found:
			damage(path, self.way, self.rng)
		if found:
			stage.note("%s: %s" % (self.way, " ".join(path.name for path in found)))
		self.damaged += found
		return bool(found)


class GoneFolder(Intrusion):
	"""A folder that is removed, or in whose place there is something else."""

	ways = ("remove", "renew", "rename", "exchange", "file", "link", "unwritable")
	times = (0, 1, 1)

	def act(self, stage: Stage) -> bool:
		folder = stage.folder(self.place)
		if not folder.is_dir():
			return False
		owner = folder.stat()
		if self.way == "unwritable":  # not for root
			folder.chmod(0o500)
		elif self.way in ("rename", "exchange"):
			aside = stage.scene.folder / "aside"
			aside.mkdir(exist_ok=True)
			os.rename(str(folder), str(aside / folder.name))
			if self.way == "exchange":
				shutil.copytree(str(aside / folder.name), str(folder), symlinks=True, ignore=ignore_odd)
		else:
			shutil.rmtree(str(folder), ignore_errors=True)
		if self.way == "renew" and not folder.exists():
			folder.mkdir(mode=0o700)
		if self.way == "file" and not folder.exists():
			folder.write_bytes(b"no folder\n")
		elif self.way == "link" and not folder.exists():
			folder.symlink_to("/no/such/folder")
		if folder.exists():
			os.chown(str(folder), owner.st_uid, owner.st_gid)
		stage.note("%s: %s" % (self.way, folder.relative_to(stage.scene.folder)))
		return True

	def relieve(self, stage: Stage) -> None:
		folder = stage.folder(self.place)
		if not folder.is_dir() or folder.is_symlink():
			remove(folder)
		elif self.way == "unwritable":
			folder.chmod(0o700)


def ignore_odd(folder: str, names: List[str]) -> List[str]:
	"""The names of files that cannot be copied."""
	return [name for name in names if stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) not in COPIED]


COPIED = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


class GoneStore(GoneFolder):
	name = "store-gone"
	about = "the whole store removed, renamed, made anew, or something else in its place"
	group = place = "store"


class GoneRuntime(GoneFolder):
	name = "runtime-gone"
	about = "the runtime folder removed, renamed, made anew, or something else in its place"
	group = place = "runtime"


class OlderIndex(Fault):
	name = "index-older"
	about = "an older copy in the place of the store's index"
	strikes = 2

	def __init__(self, rng: random.Random) -> None:
		super().__init__(rng)
		self.kept = b""
		self.is_in_place = rng.random() < 0.5

	def strike(self, stage: Stage, later: Later) -> bool:
		found = sorted(stage.builder.store_folder(stage.scene).glob("store-*/index"))
		if not found or not found[0].is_file():
			return False
		if not self.kept:
			self.kept = found[0].read_bytes()
			stage.note("the index has %d bytes" % len(self.kept))
			return bool(self.kept)
		older = found[0].with_name("index.older")
		try:
			if self.is_in_place:
				found[0].write_bytes(self.kept)
			else:
				older.write_bytes(self.kept)
				os.replace(str(older), str(found[0]))
			stage.note("the index is the earlier one")
		except OSError as e:  # the disk may be full, or the folder gone
			remove(older)
			stage.note("the index could not be exchanged: %s" % e.strerror)
		return True


KINDS: List[Type[Fault]] = [DamagedStore, StoreClock, DamagedRuntime, GoneSocket, GoneStore, GoneRuntime, OlderIndex]
