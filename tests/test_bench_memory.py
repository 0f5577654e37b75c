"""The scenario ``memory`` of utils/bench.py: a small run of all its contenders."""

import pathlib
import sys
from typing import Any

import pytest
from test_bench_campaign import BENCH, finish, start

sys.path.insert(0, str(BENCH.parent))

import bench
from benchmark import memory
from benchmark.mistake import Mistake
from benchmark.scenario import SCENARIOS

PATIENCE = 300  # seconds; others use the machine, too


@pytest.mark.timeout(PATIENCE + 60)
def test_campaign(tmp_path: pathlib.Path, engine: str) -> None:
	"""Waf builds with a number of jobs and with ``--memory=auto``, twice, and leaves nothing."""
	reason = memory.MEMORIES["memory-auto"].missing()
	if reason:
		pytest.skip(reason)
	names = ["by-hand-j2", "memory-auto"]
	smaller = "from benchmark import memory; memory.SIZES = (5, 80)"
	words = ("memory", "--contenders", ",".join(names), "--commands", "2", "--repeat", "1")
	started = start(tmp_path, *words, smaller=smaller, WAFD=engine)
	done = finish(tmp_path, started, PATIENCE)
	assert done.status == 0, done.err
	values = {(run["contender"], run["part"]): run["values"] for run in done.record["runs"]}
	assert set(values) == {(name, part) for name in names for part in ("first", "again")}
	assert all(value["wall"] > 0 and value["kills"] == 0 for value in values.values())
	assert done.left == [] and list(done.work.iterdir()) == []


def test_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
	"""Where no control group can be made, the contenders are left out, and the plain command says why, once."""

	def group() -> Any:
		raise PermissionError(13, "Permission denied", "/sys/fs/cgroup/bench-memory-1")

	monkeypatch.setattr(memory, "Group", group)
	reasons = {name: one.missing() or "" for name, one in memory.MEMORIES.items()}
	assert all("run it as root" in reason for reason in reasons.values())
	with pytest.raises(Mistake, match="scenario memory: no contender can run it: no control group can be made") as e:
		bench.refuse_idle([SCENARIOS["memory"]], [], reasons)
	assert str(e.value).count("run it as root") == 1
