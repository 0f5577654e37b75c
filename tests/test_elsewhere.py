"""utils/elsewhere.py: builds on a cluster of hosts on this machine."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from benchmark.hosts import missing_hosts
from clusters.database import Database
from conftest import ROOT, leave_out

THERE = "there are generated, leveldb, waf"
PROGRAM = ROOT / "utils" / "elsewhere.py"


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_projects(database: Database, engine: str, tmp_path: pathlib.Path) -> None:
	"""All rounds make the right objects, commands are sent to workers, and the table tells what went over the line."""
	lack = missing_hosts()
	if lack:
		leave_out(lack)
	options = ["--projects=generated,waf", "--size=1,4,4,0", f"--json={tmp_path}/told.json", f"--work={tmp_path}"]
	done = subprocess.run(
		[sys.executable, str(PROGRAM), *options],
		env={**os.environ, "WAFD": engine},
		capture_output=True,
		encoding="utf-8",
		timeout=380,
		check=False,
	)
	assert done.returncode == 0, done.stdout + done.stderr
	told = json.loads((tmp_path / "told.json").read_text())["runs"]
	assert [one["commands"] for one in told] == [4] * 8
	# on one machine with its workers, the client itself may be the first to have each of them
	assert sum(one["there"] + one["here"].get("it was sooner done here", 0) for one in told) > 0
	assert all(one["traffic"]["sent"] > 0 and one["traffic"]["turns"] > 0 for one in told)
	assert (told[1]["hits"], told[5]["hits"]) == (4, 4)
	assert len([line for line in done.stdout.splitlines() if line.strip().startswith("generated ")]) == 4


def test_mistakes(tmp_path: pathlib.Path) -> None:
	"""A project that there is not, and a folder that there is not, are named in one line."""
	done = subprocess.run(
		[sys.executable, str(PROGRAM), "--projects=nonsense"], capture_output=True, encoding="utf-8", check=False
	)
	assert (done.returncode, done.stderr) == (2, f"elsewhere: --projects: no nonsense: {THERE}\n")
