"""Random wscripts and edits: builds with our tools equal builds from nothing by stock Waf (utils/fuzzwaf.py)."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 900


def fuzz(folder: pathlib.Path, *options: str) -> "subprocess.CompletedProcess[str]":
	argv = [sys.executable, str(ROOT / "utils" / "fuzzwaf.py"), "--work", str(folder), *options]
	return subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_no_rebuild_is_left_out(tmp_path: pathlib.Path, engine: str, seed: str) -> None:
	"""After each of some edits all files are those of a build from nothing, and no other file is left."""
	done = fuzz(tmp_path, "--wafd", engine, "--edits", "8", "--seed", seed)
	assert done.returncode == 0, done.stdout + done.stderr
	told = r"seed %s\n8 edits, \d+ builds answered by resident processes, \d+ begun ahead, nothing differs\n" % seed
	assert re.fullmatch(told, done.stdout), done.stdout
	assert not list(tmp_path.iterdir())


def test_a_rebuild_that_is_left_out_is_found(tmp_path: pathlib.Path, engine: str) -> None:
	"""Without the tool wafcc, reads of rules are unknown; the edit, and the steps before it, are reported."""
	done = fuzz(tmp_path, "--wafd", engine, "--edits", "60", "--seed", "5", "--tools", "prefork")
	assert done.returncode == 1, done
	assert re.search(r"^edit \d+: .* instead of ", done.stdout, re.M) and "project 1" in done.stdout
	kept = re.search(r"kept in (\S+)", done.stdout)
	assert kept and (pathlib.Path(kept.group(1)) / "ours" / "project" / "wscript").is_file()


def test_a_mistake_is_one_line(tmp_path: pathlib.Path) -> None:
	"""An engine that is not there is named."""
	done = fuzz(tmp_path, "--wafd", "/no/such")
	assert done.returncode == 2 and re.fullmatch(r"fuzzwaf: /no/such: .*--wafd\n", done.stderr), done.stderr
