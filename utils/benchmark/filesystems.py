"""
File systems under the work of builds: the contenders of the scenario ``filesystems``.

Each is made anew in a file, or in memory, and mounted in a namespace of its own, in which a process does all the work:
``python -m benchmark.filesystems``. Its mounts and loop devices go when that process ends, in any way.

The power cut is the system call by which ext4 and xfs stop at once and write nothing more. Where a file system has no
such call, its file is copied while it is in use. What it held is looked at after the next mount.
"""

import fcntl
import json
import os
import pathlib
import random
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from debian.disks import ALONE, KINDS, MAKERS, Disk

from .builder import DISK, Builder
from .interpreter import ROOT
from .meter import Command
from .stores import MIB, PEERS, Stored, drop_pages, full

if TYPE_CHECKING:
	from .run import Run

Values = Iterator[Tuple[str, float]]
ROOM = 48 << 10  # bytes of the file system for each file: two builds of them, and inodes
LEAST = 1 << 30
FOLDER = 200  # files in a folder
SIZES = ((90, 1, 8), (9, 8, 32), (1, 64, 512))
"""The share of files in percent, and their sizes in KiB: objects, large objects, libraries and programs."""
FEW = 10  # a file in so many is written before the power cut
REST = 6.0  # seconds before it: ext4 commits each 5 seconds
CLONE = 0x40049409  # FICLONE
STOP, NO_FLUSH = 0x8004587D, 2  # FS_IOC_SHUTDOWN, and its flag for a power cut
CHECKS: Dict[str, List[str]] = {
	"ext4": ["fsck.ext4", "-f", "-n"],
	"xfs": ["xfs_repair", "-n"],
	"btrfs": ["btrfs", "check", "--readonly"],
}


class FileSystem(Builder):
	"""A file system, by the kernel's name."""

	abilities = frozenset((DISK,))

	def __init__(self, kind: str, note: str = "") -> None:
		self.kind, self.note = kind, note

	def missing(self) -> Optional[str]:
		if os.geteuid():
			return "only root can mount: run it as root"
		with tempfile.TemporaryDirectory(prefix="bench-") as folder:
			return Disk(self.kind, pathlib.Path(folder)).find_obstacle() or None

	def take(self, run: "Run") -> Values:
		count = run.settings["commands"]["filesystems"]
		disk = Disk(self.kind, pathlib.Path(run.path("disk")), str(LEAST + count * ROOM))
		place = shlex.quote(disk.place())
		work = [sys.executable, "-m", __name__, self.kind, str(disk.image), disk.size, str(count), run.answer]
		script = ["mkdir -p %s" % place, *disk.list_mounts(disk.place()), "exec " + " ".join(map(shlex.quote, work))]
		environ = dict(run.environment, PYTHONPATH=os.path.join(ROOT, "utils"))
		disk.make()
		try:
			yield from run.ask(
				"work", Command([*ALONE, "sh", "-euc", "\n".join(script)], run.path(""), environ)
			).items()
		finally:
			disk.remove()


FILE_SYSTEMS = {
	kind: FileSystem(
		kind, {"overlayfs": "over tmpfs", "tmpfs": "in memory; nothing outlives a power cut"}.get(kind, "")
	)
	for kind in KINDS
}


# ---- what is done in the namespace


class Build:
	"""The files of a build, all drawn: the same for each file system."""

	def __init__(self, folder: str, count: int, seed: int) -> None:
		self.folder, self.seed = folder, seed
		draw = random.Random(seed)
		weights = [share for share, _, _ in SIZES]
		ranges = [(least << 10, most << 10) for _, least, most in SIZES]
		self.sizes = [draw.randrange(*draw.choices(ranges, weights)[0]) for _ in range(count)]
		self.paths = [os.path.join(folder, "%04d" % (n // FOLDER), "%06d.o" % n) for n in range(count)]

	def content(self, number: int) -> bytes:
		"""The bytes of a file. They tell it from all others, and cannot be compressed."""
		block = random.Random(self.seed + number).getrandbits(8 << 10).to_bytes(1 << 10, "little")
		return (block * (self.sizes[number] // len(block) + 1))[: self.sizes[number]]

	def write(self) -> float:
		"""Write all files; the seconds without those for making the bytes."""
		spent = 0.0
		for number, path in enumerate(self.paths):
			content = self.content(number)
			start = time.monotonic()
			if not number % FOLDER:
				os.makedirs(os.path.dirname(path))
			with open(path, "wb", buffering=0) as f:
				f.write(content)
			spent += time.monotonic() - start
		return spent

	def look(self) -> None:
		for path in self.paths:
			os.stat(path)

	def clone(self, folder: str, copy: Callable[[str, str], object]) -> None:
		"""Clone the build into another folder, file by file."""
		for path in self.paths:
			target = os.path.join(folder, os.path.relpath(path, self.folder))
			if not os.path.isdir(os.path.dirname(target)):
				os.makedirs(os.path.dirname(target))
			copy(path, target)

	def survey(self) -> Dict[str, int]:
		"""The numbers of files that are whole, empty, other than they were written, and missing."""
		found = dict.fromkeys(("whole", "empty", "other", "missing"), 0)
		for number, path in enumerate(self.paths):
			try:
				with open(path, "rb") as f:
					content = f.read()
				state = "whole" if content == self.content(number) else "other" if content else "empty"
			except OSError:
				state = "missing"
			found[state] += 1
		return found


def reflink(path: str, target: str) -> None:
	with open(path, "rb") as source, open(target, "wb") as f:
		fcntl.ioctl(f, CLONE, source.fileno())


COPIES: Sequence[Tuple[str, Callable[[str, str], object]]] = (
	("reflinks", reflink),
	("hard links", os.link),
	("copies", shutil.copyfile),
)


def used(place: str) -> int:
	"""The bytes of a file system that are in use, with those for its own tables."""
	found = os.statvfs(place)
	return (found.f_blocks - found.f_bfree) * found.f_frsize


def timed(do: Callable[..., object], *args: object) -> float:
	start = time.monotonic()
	do(*args)
	return time.monotonic() - start


def work(disk: Disk, count: int) -> Values:
	"""All the work with a file system that is mounted and empty."""
	place = disk.place()
	build = Build(os.path.join(place, "build"), count, 0)
	before = used(place)
	wrote = build.write()
	yield "write, s", wrote
	yield "write and sync, s", wrote + timed(os.sync)
	yield "on disk, MiB", (used(place) - before) / MIB
	yield "stat, warm, s", timed(build.look)
	if drop_pages():
		yield "stat, cold, s", timed(build.look)
	for name, copy in COPIES:
		folder = os.path.join(place, name)
		try:
			yield "clone by %s, s" % name, timed(build.clone, folder, copy)
		except OSError:
			pass  # it has none
		removing = timed(shutil.rmtree, folder)
	yield "remove, s", removing
	if os.access(PEERS, os.X_OK):
		yield from use_store(place, max(count // 50, 20))
	if disk.kind in MAKERS:
		yield from cut_power(disk, build, count)


def use_store(place: str, small: int) -> Values:
	"""Fill our store and read it. The scenario ``stores`` has eviction, too, which hardly touches the file system."""

	class Place:
		def path(self, name: str) -> str:
			return os.path.join(place, "store-" + name)

	store = Stored()
	store.store = "our-store"
	for part, value in store.take_times(Place(), full(small)):  # type: ignore[arg-type]  # all that it asks a run for
		if part.startswith("evict"):
			return
		yield "our store: " + part, value


def cut_power(disk: Disk, before: Build, count: int) -> Values:
	"""Cut the power some seconds after a build, and look at what is there after the next mount."""
	place = disk.place()
	os.sync()
	last = Build(os.path.join(place, "last"), max(count // FEW, 1), 1)
	last.write()
	time.sleep(REST)
	crashed = disk.image.with_suffix(".crashed")
	if stop(place):
		run("umount", place)
	else:
		run("cp", "--sparse=always", str(disk.image), str(crashed))
		run("umount", place)
		os.replace(str(crashed), str(disk.image))
	program = CHECKS[disk.kind]
	yield "power cut: mount, s", timed(run, "sh", "-euc", "\n".join(disk.list_mounts(place)))
	yield "power cut: whole files of those synced, %", 100 * before.survey()["whole"] / count
	for state, number in last.survey().items():
		yield "power cut: %s files of those just written, %%" % state, 100 * number / len(last.paths)
	run("umount", place)
	if shutil.which(program[0]):
		start = time.monotonic()
		found = subprocess.run([*program, str(disk.image)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
		yield "check after that, s", time.monotonic() - start
		yield "check after that: status", found.returncode


def stop(place: str) -> bool:
	"""Have a file system write nothing more; tell whether it can."""
	handle = os.open(place, os.O_RDONLY)
	try:
		fcntl.ioctl(handle, STOP, struct.pack("=I", NO_FLUSH))
	except OSError:
		return False
	finally:
		os.close(handle)
	return True


def run(*argv: str) -> None:
	subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)


def main() -> None:
	kind, image, size, count, answer = sys.argv[1:]
	values = dict(work(Disk(kind, pathlib.Path(image).parent, size), int(count)))
	with open(answer, "w", encoding="utf-8") as f:
		json.dump(values, f)


if __name__ == "__main__":
	main()
