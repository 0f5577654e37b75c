"""The scenario of utils/bench.py about links and archives."""

import os
import pathlib
import sys

import pytest
from test_bench_campaign import BENCH, finish, need, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import links
from benchmark.mistake import Failed

PATIENCE = 600  # seconds; others use the machine, too


def test_objects_have_the_size(tmp_path: pathlib.Path) -> None:
	"""Together they have at least what was asked for, and all can be linked into one program."""
	need("gcc", "objcopy")
	names = links.make_objects(str(tmp_path), 1024, dict(os.environ))
	sizes = [(tmp_path / name).stat().st_size for name in names]
	assert min(sizes) >= links.OBJECT and 1024 << 10 <= sum(sizes) < (1024 << 10) + max(sizes)
	link = links.KINDS[0].argv
	assert os.spawnvpe(os.P_WAIT, "sh", ["sh", "-c", 'cd "$0" && "$@"', str(tmp_path), *link, *names], os.environ) == 0


def test_a_compiler_that_fails_is_told_of(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	program = tmp_path / "bin" / links.C_COMPILER
	program.parent.mkdir()
	program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
	program.chmod(0o755)
	path = "%s:%s" % (program.parent, os.environ["PATH"])
	monkeypatch.setenv("PATH", path)  # it says where subprocess looks for the program
	with pytest.raises(Failed, match="%s: broken" % links.C_COMPILER):
		links.make_objects(str(tmp_path), 256, dict(os.environ))


@pytest.mark.timeout(PATIENCE)
def test_links_are_hits_the_second_time(tmp_path: pathlib.Path, engine: str) -> None:
	"""Each kind and size is a row, and the outputs behind the cache are those of the linker alone."""
	need("gcc", "objcopy")
	smaller = "from benchmark import links; links.SIZES = (256, 4096)"
	words = ("links", "--commands", "1", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *words, smaller=smaller, WAFD=engine), PATIENCE)
	assert done.status == 0, done.err
	parts = {(run["contender"], run["part"]) for run in done.record["runs"]}
	assert len(parts) == 2 * len(links.KINDS) * 2 * 2
	assert ("linker+wafcc", "link of 0.25 MiB, again, ms") in parts
	assert ("linker", "archive of 4 MiB, first, ms") in parts
	assert done.left == []
