"""The scenario ``filesystems`` of utils/bench.py: a small run on all that can be mounted, and what is left of it."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import List

import pytest
from test_bench_campaign import BENCH, finish, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import filesystems

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


def list_here() -> List[str]:
	"""The kinds that this machine can mount."""
	return [name for name, one in filesystems.FILE_SYSTEMS.items() if not one.missing()]


def list_loops() -> List[str]:
	"""The files behind loop devices."""
	return [path.read_text() for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file")]


def test_builds_are_alike(tmp_path: pathlib.Path) -> None:
	"""Each file system gets the same bytes, mostly small files; damage to them is counted by its kind."""
	one, other = (filesystems.Build(str(tmp_path / name), 300, 7) for name in ("one", "other"))
	one.write()
	assert [one.content(n) for n in range(300)] == [other.content(n) for n in range(300)]
	assert sum(size < 8 << 10 for size in one.sizes) > 240
	assert max(one.sizes) > 32 << 10
	pathlib.Path(one.paths[0]).write_bytes(b"")
	pathlib.Path(one.paths[1]).write_bytes(b"x")
	pathlib.Path(one.paths[2]).unlink()
	assert one.survey() == {"whole": 297, "empty": 1, "other": 1, "missing": 1}


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
	"""A file system that cannot be had is left out with the reason."""
	monkeypatch.setattr(os, "geteuid", lambda: 1000)
	assert filesystems.FILE_SYSTEMS["ext4"].missing() == "only root can mount: run it as root"
	monkeypatch.setattr(os, "geteuid", lambda: 0)
	monkeypatch.setenv("PATH", "/nowhere")
	assert filesystems.FILE_SYSTEMS["xfs"].missing() == "apt-get install xfsprogs"


@needs_root
def test_campaign(tmp_path: pathlib.Path) -> None:
	"""Every file system that can be mounted has numbers, and no mount, loop device or file is left."""
	names = list_here()
	if not names:
		pytest.skip("no file system can be mounted here")
	loops = list_loops()
	words = ["filesystems", "--contenders", ",".join(names), "--commands", "200", "--repeat", "1"]
	done = finish(tmp_path, start(tmp_path, *words))
	assert done.status == 0, done.err
	values = {(run["contender"], run["part"]): run["values"]["value"] for run in done.record["runs"]}
	for name in names:
		for part in ("write, s", "stat, warm, s", "clone by copies, s", "remove, s", "on disk, MiB"):
			assert values[name, part] > 0, (name, part)
		if name in filesystems.CHECKS:
			assert values[name, "power cut: whole files of those synced, %"] == 100
			states = [
				values[name, "power cut: %s files of those just written, %%" % state]
				for state in ("whole", "empty", "other", "missing")
			]
			assert round(sum(states)) == 100
	assert "btrfs" not in names or values["btrfs", "clone by reflinks, s"] > 0
	assert done.left == [] and list(done.work.iterdir()) == []
	assert list_loops() == loops


@needs_root
def test_interrupted(tmp_path: pathlib.Path) -> None:
	"""Ctrl-C while a file system is mounted leaves no loop device and no file."""
	if "ext4" not in list_here():
		pytest.skip("ext4 cannot be mounted here")
	loops = list_loops()
	started = start(tmp_path, "filesystems", "--contenders", "ext4", "--commands", "20000", "--repeat", "1")
	deadline = time.monotonic() + 60
	# before the campaign, each file system is tried elsewhere
	while not any(str(tmp_path) in path for path in list_loops()) and started.poll() is None:
		assert time.monotonic() < deadline, "it was not mounted"
		time.sleep(0.01)
	started.send_signal(signal.SIGINT)
	done = finish(tmp_path, started)
	assert done.status == 128 + signal.SIGINT, done.err
	assert done.left == [] and list(done.work.iterdir()) == []
	while list_loops() != loops and time.monotonic() < deadline:
		time.sleep(0.01)
	assert list_loops() == loops
	assert subprocess.run(["grep", "-c", str(tmp_path), "/proc/self/mounts"], capture_output=True).stdout == b"0\n"
