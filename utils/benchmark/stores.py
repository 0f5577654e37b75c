"""
Our store, LMDB and redb under the same work: the contenders of the scenario ``stores``.

The work is done by ``engine/benches/peers``, a process for each act, with results of commands as the engine has them:
entries of 1 to 4 KiB, and objects of 10 KiB to 2 MiB which some of them need. Damage, kills and the use of the disk are
added here. Each store is in a new folder below the campaign's: ``--work`` names the file system.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .builder import STORE, Builder
from .interpreter import ROOT
from .mistake import Failed

if TYPE_CHECKING:
	from .run import Run

PEERS = os.path.join(ROOT, "engine", "target", "release", "store-peers")
REMEDY = "run cargo build --release --target-dir ../../target in engine/benches/peers"
DROP = "/proc/sys/vm/drop_caches"
MIB = 1 << 20
BLOCK = 4096  # bytes that are overwritten at once
TRIALS = 10  # of each kind of damage
KILLS = 5
WRITERS = 4  # at once
PATIENCE = 600  # seconds for one act


class Counts(NamedTuple):
	"""The numbers of results: those without an object, those with one, and those with one of 2 MiB."""

	small: int
	large: int
	restored: int

	@property
	def words(self) -> List[str]:
		return list(map(str, self))

	@property
	def all(self) -> int:
		return sum(self)


def full(small: int) -> Counts:
	"""The numbers for the store whose times are measured."""
	return Counts(small, max(small // 100, 2), 16)


def damaged(small: int) -> Counts:
	"""The numbers for stores that are damaged. They are smaller, because each trial copies them."""
	return Counts(max(small // 50, 20), max(small // 1000, 2), 0)


class Stored(Builder):
	"""A store, by the name that the program of all of them gives it."""

	abilities = frozenset((STORE,))

	def __init__(self, note: str = "") -> None:
		self.note = note
		self.store = ""

	def missing(self) -> Optional[str]:
		return None if os.access(PEERS, os.X_OK) else "store-peers is not built: %s" % REMEDY

	def take(self, run: "Run") -> Iterator[Tuple[str, float]]:
		self.store = run.lane.contender.name
		small = run.settings["commands"]["stores"]
		yield from self.take_times(run, full(small))
		yield from self.take_writers(run, max(small // 20, 5))
		yield from self.take_damage(run, damaged(small))
		yield from self.take_kills(run, damaged(small))

	# ---- times and sizes

	def take_times(self, run: "Run", counts: Counts) -> Iterator[Tuple[str, float]]:
		"""Fill a store, read it and evict half of it."""
		folder = run.path("full")
		values = self.act(folder, counts, "fill")
		yield "put 1 to 4 KiB, µs", values["put_small"]
		yield "put 10 KiB to 2 MiB, µs", values["put_large"]
		os.sync()
		yield "on disk, MiB", disk_of(folder) / MIB
		few = max(counts.small // 100, 2)
		values = self.act(folder, counts, "read", counts.small // 2)
		yield "open, ms", values["open"] / 1000
		yield "memory after opening, MiB", values["memory"] / MIB
		yield "get 1 to 4 KiB, µs", values["get_small"]
		yield "get 10 KiB to 2 MiB, µs", values["get_large"]
		yield "miss, µs", values["miss"]
		if drop_pages():
			values = self.act(folder, counts, "read", few)
			yield "cold: open, ms", values["open"] / 1000
			yield "cold: get 1 to 4 KiB, µs", values["get_small"]
			yield "cold: get 10 KiB to 2 MiB, µs", values["get_large"]
		values = self.act(folder, counts, "restore", run.path("restored"))
		yield "2 MiB to a file, µs", values["restore"]
		if "link" in values:
			yield "2 MiB as a hard link, µs", values["link"]
		values = self.act(folder, counts, "evict")
		yield "evict the older half, ms", values["evict"] / 1000
		os.sync()
		yield "on disk after that, MiB", disk_of(folder) / MIB
		yield "there after that, %", 100 * self.act(folder, counts, "check", 0, counts.all)["right"] / counts.all

	def take_writers(self, run: "Run", count: int) -> Iterator[Tuple[str, float]]:
		"""Several processes that put results into one store at once."""
		counts = Counts(WRITERS * count, 0, 0)
		folder = run.path("shared")
		self.act(folder, Counts(0, 0, 0), "fill")
		start = time.monotonic()
		writers = [self.begin(folder, counts, "add", n * count, count) for n in range(WRITERS)]
		ended = [writer.wait(PATIENCE) for writer in writers]
		took = time.monotonic() - start
		for writer in writers:
			if writer.stdout:
				writer.stdout.close()
		put = ended.count(0)
		yield "%d writers at once: that may write" % WRITERS, put
		if put:
			yield "%d writers at once: each put, µs" % WRITERS, 1e6 * took / (put * count)

	# ---- harm

	def take_damage(self, run: "Run", counts: Counts) -> Iterator[Tuple[str, float]]:
		"""Damage the files of a closed store, and count the results that are left."""
		folder = run.path("sound")
		self.act(folder, counts, "fill")
		for what, harm in (("4 KiB overwritten", overwrite), ("a file cut off", cut)):
			told = [self.survey(run, folder, counts, harm, trial) for trial in range(TRIALS)]
			yield "%s: right, %%" % what, 100 * sum(one["right"] for one in told) / (TRIALS * counts.all)
			yield "%s: least of %d, %%" % (what, TRIALS), 100 * min(one["right"] for one in told) / counts.all
			yield "%s: other bytes given, results" % what, sum(one["wrong"] for one in told)
			yield "%s: not opened, of %d" % (what, TRIALS), sum(one["crashed"] for one in told)

	def survey(
		self, run: "Run", folder: str, counts: Counts, harm: Callable[[str, random.Random], None], trial: int
	) -> Dict[str, float]:
		"""Damage a copy at a place that is drawn, and see what is left."""
		copy = run.path("damaged")
		shutil.copytree(folder, copy)
		harm(copy, random.Random(trial))
		told = self.try_check(copy, counts, counts.all)
		shutil.rmtree(copy)
		return told

	def take_kills(self, run: "Run", counts: Counts) -> Iterator[Tuple[str, float]]:
		"""Kill a writer, and count the acknowledged results that are lost."""
		lost = acknowledged = crashed = 0
		for trial in range(KILLS):
			folder = run.path("killed-%d" % trial)
			wanted = random.Random(trial).randrange(counts.small // 4, counts.small)
			writer = self.begin(folder, counts, "write")
			assert writer.stdout is not None
			said = writer.stdout.read(wanted)
			writer.send_signal(signal.SIGKILL)
			said += writer.stdout.read()
			writer.stdout.close()
			writer.wait(PATIENCE)
			put = said.count(b"\n")
			told = self.try_check(folder, counts, put)
			acknowledged += put
			lost += put - int(told["right"])
			crashed += int(told["crashed"])
		yield "kill -9: acknowledged and lost, %", 100 * lost / acknowledged
		yield "kill -9: not opened, of %d" % KILLS, crashed

	def try_check(self, folder: str, counts: Counts, count: int) -> Dict[str, float]:
		"""The number of the first results that are as they were put; zero if the store cannot be opened."""
		try:
			return dict(self.act(folder, counts, "check", 0, count), crashed=0)
		except Failed:
			return {"right": 0, "wrong": 0, "crashed": 1}

	# ---- the program

	def argv(self, folder: str, counts: Counts, act: str, *args: object) -> List[str]:
		return [PEERS, self.store, folder, *counts.words, act, *map(str, args)]

	def begin(self, folder: str, counts: Counts, act: str, *args: object) -> "subprocess.Popen[bytes]":
		argv = self.argv(folder, counts, act, *args)
		return subprocess.Popen(
			argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
		)

	def act(self, folder: str, counts: Counts, act: str, *args: object) -> Dict[str, float]:
		"""Do an act with a store; the values that were measured."""
		argv = self.argv(folder, counts, act, *args)
		done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
		if done.returncode:
			said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["status %d" % done.returncode]
			raise Failed("%s %s: %s" % (self.store, act, said[-1]))
		return json.loads(done.stdout.decode())


def files_of(folder: str) -> List[str]:
	"""All files below a folder, in an order that is always the same."""
	return sorted(os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)


def disk_of(folder: str) -> int:
	"""The disk space of the files below a folder, in bytes."""
	return sum(512 * os.lstat(path).st_blocks for path in files_of(folder))


def place_of(folder: str, draw: random.Random) -> Tuple[str, int]:
	"""A random byte of all files; each is equally likely."""
	files = files_of(folder)
	at = draw.randrange(sum(os.path.getsize(path) for path in files))
	for path in files:
		size = os.path.getsize(path)
		if at < size:
			break
		at -= size
	return path, at


def overwrite(folder: str, draw: random.Random) -> None:
	"""Overwrite one block of a file with random bytes."""
	path, at = place_of(folder, draw)
	start = at - at % BLOCK
	length = min(BLOCK, os.path.getsize(path) - start)
	with open(path, "r+b") as f:
		f.seek(start)
		f.write(draw.getrandbits(8 * length).to_bytes(length, "big"))


def cut(folder: str, draw: random.Random) -> None:
	os.truncate(*place_of(folder, draw))


def drop_pages() -> bool:
	"""Drop the system's cache of files, if we are root; tell whether it was done."""
	os.sync()
	try:
		with open(DROP, "w", encoding="ascii") as f:
			f.write("3")
	except OSError:
		return False
	return True


STORES = {
	"our-store": Stored("without compression, as the others are"),
	"lmdb": Stored("LMDB without a sync, by heed: a power cut costs the last seconds, as with ours"),
	"redb": Stored("redb with Durability::Eventual: the least of its promises that outlives the process"),
	"lmdb-sync": Stored("LMDB that syncs each result"),
	"redb-sync": Stored("redb that syncs each result (Durability::Immediate)"),
}
SYNCED = ("lmdb-sync", "redb-sync")
