"""utils/bench.py: the contenders whose engine parks nothing."""

import json
import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "utils" / "bench.py"
sys.path.insert(0, str(BENCH.parent))

from benchmark import arguments, contender  # noqa: E402
from benchmark.mistake import Failed  # noqa: E402
from benchmark.service import Engine  # noqa: E402
from test_bench_campaign import finish, need, start  # noqa: E402


def test_nothing_is_parked(tmp_path: pathlib.Path, engine: str) -> None:
	"""Both build everything with engines of their own, beside one that parks, and none of them is left."""
	need("g++")
	names = ["prefork", "prefork-plain", "prefork-refused"]
	args = ("full", "--contenders", ",".join(names), "--size", "2,6,2,1", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert sorted(done.values("full")) == names
	assert "prefork-refused: prefork with parking on, and every program refused" in done.out
	assert done.left == [] and os.listdir(str(done.work)) == []


@pytest.mark.parametrize("name", ["prefork-plain", "prefork-refused"])
def test_every_command_is_spawned(
	tmp_path: pathlib.Path, runtime: pathlib.Path, engine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""No parked program runs a command; with parking on, each command is spawned for a reason that is counted."""
	monkeypatch.setenv("WAFD", engine)
	builder = contender.BUILDERS[name]
	for key, value in builder.engine_environment.items():
		monkeypatch.setenv(key, value)
	project = tmp_path / "wscript"
	project.write_text(
		"from waflib import Utils\n"
		"top, out = '.', 'out'\n"
		"def options(opt):\n\topt.load('prefork')\n"
		"def client(ctx):\n"
		"\tpipe = Utils.subprocess.PIPE\n"
		"\tfor _ in range(40):\n"
		"\t\tUtils.run_process(['/bin/true'], {'stdout': pipe, 'stderr': pipe}, {})\n"
	)
	argv = [sys.executable, "-m", "waflib_extras.launcher", "client"]
	subprocess.run(argv, cwd=str(tmp_path), check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)})
	report = json.loads(subprocess.run([engine, "status", "--json"], check=True, stdout=subprocess.PIPE).stdout)
	assert report["parking"]["on"] is (name == "prefork-refused")
	assert report["parking"]["commands"] == 0
	if name == "prefork-refused":
		assert sum(report["parking"]["spawned"].values()) == 40


def test_parked_commands_are_a_failure() -> None:
	"""A contender that stands for an engine without parked programs fails when one of them ran a command."""
	builder = contender.BUILDERS["prefork-plain"]
	builder.check(SimpleNamespace(engine=SimpleNamespace(parked_commands=lambda: 0)))  # type: ignore[arg-type]
	with pytest.raises(Failed, match="parked programs ran 3 of its commands"):
		builder.check(SimpleNamespace(engine=SimpleNamespace(parked_commands=lambda: 3)))  # type: ignore[arg-type]


def test_an_engine_that_does_not_run_has_parked_nothing(
	tmp_path: pathlib.Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""Before the first client has come there is no engine to ask, and that is no failure."""
	monkeypatch.setenv("WAFD", engine)
	idle = Engine(str(tmp_path), dict(os.environ), WAFD_PARK="no")
	assert idle.parked_commands() == 0 and idle.pids() == []


def test_they_take_part_by_name_only() -> None:
	"""They are listed, and a campaign that names no contenders goes without them."""
	for name in contender.BY_NAME:
		assert name not in contender.DEFAULT
		assert re.search(r"^  %s  " % re.escape(name), arguments.listing(), re.MULTILINE)
	others = {name for name in contender.BY_NAME if not name.startswith("large")}
	assert others == {
		"prefork-plain",
		"prefork-refused",
		"prefork-recorded",
		"prefork-timeline",
		"resident-without-prestart",
		"resident-by-python",
		"lmdb-sync",
		"redb-sync",
	}
