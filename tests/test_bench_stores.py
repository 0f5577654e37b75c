"""The scenario ``stores`` of utils/bench.py: what is damaged and where, and a small run of all stores."""

import os
import pathlib
import random
import sys

import pytest
from test_bench_campaign import BENCH, finish, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import report, stores
from test_bench import filled_record


def two_files(folder: pathlib.Path) -> None:
	"""A small file and a large one in a folder of their own."""
	(folder / "below").mkdir(parents=True)
	(folder / "small").write_bytes(b"a" * 10)
	(folder / "below" / "large").write_bytes(b"b" * 100_000)


def test_places_are_drawn_by_bytes(tmp_path: pathlib.Path) -> None:
	"""Each byte is as likely, so that a large file is hit more often; the same seed gives the same place."""
	two_files(tmp_path)
	places = [stores.place_of(str(tmp_path), random.Random(seed)) for seed in range(200)]
	assert places == [stores.place_of(str(tmp_path), random.Random(seed)) for seed in range(200)]
	assert sum(path.endswith("large") for path, _ in places) > 190
	assert all(0 <= at < os.path.getsize(path) for path, at in places)


def test_damage(tmp_path: pathlib.Path) -> None:
	"""One block is another afterwards, within its file; or one file is shorter."""
	for seed in range(20):
		sound = tmp_path / str(seed)
		two_files(sound)
		before = {path: pathlib.Path(path).read_bytes() for path in stores.files_of(str(sound))}
		stores.overwrite(str(sound), random.Random(seed))
		after = {path: pathlib.Path(path).read_bytes() for path in before}
		assert sum(before[path] != after[path] for path in before) == 1
		assert [len(text) for text in before.values()] == [len(text) for text in after.values()]
		different = [
			n for path in before for n, pair in enumerate(zip(before[path], after[path])) if len(set(pair)) > 1
		]
		assert different[-1] - different[0] < stores.BLOCK
		stores.cut(str(sound), random.Random(seed))
		assert sum(os.path.getsize(path) for path in before) < 100_010


def test_table_across() -> None:
	"""Parts with units of their own are rows, contenders columns; what one has not is left empty."""
	record = filled_record()
	record["scenarios"]["spin"].update(across=True, measures=[["value", ""]])
	values = (("slow", "open, ms", 2.0), ("slow", "link, µs", 5.0), ("fast", "open, ms", 1.0))
	record["runs"] = [
		dict(record["runs"][0], contender=name, part=part, values={"value": value}) for name, part, value in values
	]
	lines = report.report(record).splitlines()
	assert lines[0] == "spin, medians: round and round"
	assert [line.split() for line in lines[1:4]] == [
		["slow", "fast"],
		["open,", "ms", "2.000", "1.000"],
		["link,", "µs", "5.000", "-"],
	]


def test_campaign(tmp_path: pathlib.Path) -> None:
	"""Every store is filled, read, damaged and killed, and nothing is left behind."""
	if not os.access(stores.PEERS, os.X_OK):
		pytest.skip("store-peers is not built: %s" % stores.REMEDY)
	names = list(stores.STORES)
	done = finish(
		tmp_path, start(tmp_path, "stores", "--contenders", ",".join(names), "--commands", "60", "--repeat", "1")
	)
	assert done.status == 0, done.err
	values = {(run["contender"], run["part"]): run["values"]["value"] for run in done.record["runs"]}
	for name in names:
		assert values[name, "put 1 to 4 KiB, µs"] > 0 and values[name, "get 10 KiB to 2 MiB, µs"] > 0
		assert values[name, "on disk, MiB"] > 32  # the objects of 2 MiB alone
		assert 0 <= values[name, "4 KiB overwritten: right, %"] <= 100
	assert values["our-store", "4 KiB overwritten: other bytes given, results"] == 0
	assert values["our-store", "kill -9: acknowledged and lost, %"] == 0
	assert values["our-store", "4 writers at once: that may write"] >= 1  # the others only after it has ended
	assert values["lmdb", "4 writers at once: that may write"] == 4
	assert done.left == [] and list(done.work.iterdir()) == []
