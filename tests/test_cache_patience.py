"""A question that takes long delays no other client."""

import json
import os
import pathlib
import subprocess
import time

import pytest
from cache_support import PATIENCE, Lab

SIZE = 512 << 20  # of holes: the engine needs a good part of a second to look at them
SEVERAL = 3
HITS = 5


def ask(lab: Lab, *argv: str) -> "subprocess.CompletedProcess[bytes]":
	return subprocess.run(argv, cwd=lab.folder, env=lab.environ, capture_output=True, timeout=PATIENCE, check=True)


def count_hits(lab: Lab) -> int:
	return json.loads(ask(lab, lab.wafcc, "--show-stats", "--json").stdout)["hits"]


@pytest.fixture
def large(lab: Lab) -> pathlib.Path:
	"""A file that takes long to look at."""
	path = lab.folder / "large"
	with open(path, "wb") as f:
		f.truncate(SIZE)
	return path


def test_others_are_answered_meanwhile(lab: Lab, large: pathlib.Path) -> None:
	"""While the engine looks at a file for a long time, it tells other clients its status."""
	argv = [lab.wafcc, "run", "--", "head", "-c", "1", str(large)]
	deadline = time.monotonic() + PATIENCE
	hits = []
	while len(hits) < HITS:
		assert time.monotonic() < deadline, f"too few hits: {hits}"
		os.utime(large)
		before, answered = count_hits(lab), 0
		with subprocess.Popen(argv, cwd=lab.folder, env=lab.environ, stdin=subprocess.DEVNULL) as question:
			while question.poll() is None:
				ask(lab, lab.engine, "status")
				answered += question.poll() is None
			assert question.returncode == 0
		if count_hits(lab) > before:
			hits.append(answered)
	assert sorted(hits)[1] >= SEVERAL, f"of others that asked meanwhile so many were answered: {hits}"
