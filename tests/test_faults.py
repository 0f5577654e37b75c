"""utils/faults.py finds builds that a fault has harmed, and nothing else; and our builds are not harmed."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
from conftest import ROOT

pytestmark = [
	pytest.mark.timeout(600),
	pytest.mark.skipif(not all(map(shutil.which, ("gcc", "g++", "ninja"))), reason="needs gcc, g++ and ninja"),
]
Done = subprocess.CompletedProcess

# wrappers that do one thing wrong, and all else as it should be
WRAPPER = """\
#!/bin/sh
case "$1" in --*) exit 0;; run) shift 2;; esac
for word; do case "$word" in *.o) output=$word;; esac; done
%s
"""
WRONG = {
	"another object": ('"$@" || exit; case "$output" in *main*) echo >> "$output";; esac', "has other content"),
	"no object": ('case "$output" in *main*) exit 0;; esac; exec "$@"', "ended with status 1"),
	"another status": ('"$@"; exit 3', "ended with status 1"),
	"a file beside": ('"$@" || exit; cp "$output" "$output.draft"', "out/main.c.o.draft should not be there"),
	"a temporary file": ('"$@" || exit; echo > "$TMPDIR/cc$$.s"', "files were left: "),
	"a process": ('"$@" || exit; sleep 300 > /dev/null 2>&1 &\nexit 0', "processes were left:"),
	"no end": ('case "$output" in *main*) exec sleep 300;; esac; exec "$@"', "a build hangs:"),
	"other rights": ('"$@" || exit; chmod 777 "$output"', "has mode 777 instead of"),
}


def run_faults(folder: pathlib.Path, *options: str) -> "Done[str]":
	argv = [sys.executable, str(ROOT / "utils" / "faults.py"), "--work", str(folder), *options]
	return subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=550, check=False)


def install(folder: pathlib.Path, engine: str, body: str) -> str:
	"""A folder with the real engine and a wrapper of a test's own."""
	programs = folder / "programs"
	programs.mkdir()
	shutil.copy2(engine, str(programs / "wafd"))
	wrapper = programs / "wafcc"
	wrapper.write_text(WRAPPER % body)
	wrapper.chmod(0o755)
	return str(programs)


@pytest.mark.parametrize("what", WRONG)
def test_finds_what_is_wrong(what: str, engine: str, tmp_path: pathlib.Path) -> None:
	"""What a wrapper does wrong is found and named, with the command that repeats the trial; its folder is kept."""
	body, told = WRONG[what]
	programs = install(tmp_path, engine, body)
	options = ["--programs", programs, "--kinds", "odd-umask", "--systems", "ninja", "--patience", "5"]
	# with this seed it builds from nothing, and does not wait for a cache to heal, which these wrappers do not have
	done = run_faults(tmp_path, *options, "--seed", "23", "--trials", "1", "--keep")
	assert done.returncode == 1, done
	assert told in done.stdout, done
	assert "again: utils/faults.py --seed 23 --only 0 --keep --kinds odd-umask --systems ninja" in done.stdout
	assert done.stdout.endswith("1 of 1 trials had trouble\n")
	kept = re.search(r"kept in (\S+)", done.stdout)
	assert kept and (pathlib.Path(kept.group(1)) / "project" / "src" / "main.c").is_file()


def test_repeats_by_seed(engine: str, tmp_path: pathlib.Path) -> None:
	"""The same seed and number draw the same trial, alone or among others; nothing is left of it."""
	work, record = tmp_path / "work", tmp_path / "record.json"
	work.mkdir()

	def draw(*options: str) -> Any:
		done = run_faults(
			work, "--seed", "21", "--kinds", "odd-umask,times,socket-removed", "--json", str(record), *options
		)
		assert done.returncode == 0, done
		told = json.loads(record.read_text())["trials"]
		return {one["number"]: [one[name] for name in ("builder", "state", "kinds")] for one in told}

	several = draw("--trials", "2")
	assert draw("--only", "1") == {1: several[1]}
	assert len(several) == 2 and not os.listdir(str(work))


def test_lists_kinds(tmp_path: pathlib.Path) -> None:
	"""Every kind is listed with what it is, and can be asked for."""
	done = run_faults(tmp_path, "--list")
	names = [line.split()[0] for line in done.stdout.splitlines()]
	assert done.returncode == 0 and {"kill-engine", "store-damaged", "engine-refused"} <= set(names)
	assert all(len(line.split()) > 2 for line in done.stdout.splitlines())


def test_mistakes_are_one_line(tmp_path: pathlib.Path) -> None:
	"""A kind, a build system or a folder that is not there is named."""
	for options in (["--kinds", "flood"], ["--systems", "scons"], ["--programs", "/no/such"]):
		done = run_faults(tmp_path, *options)
		assert done.returncode == 2, done
		assert re.fullmatch(r"faults: .*(flood|scons|/no/such).*\n", done.stderr), done.stderr
		assert not os.listdir(str(tmp_path))


# Where an engine is killed or stopped, temporary files of compilers may stay: docs/promises.md says so. With
# `hard_link` a file of the store that somebody writes into is the output, too.
STANDING = (
	"kill-guardian",
	"kill-parked",
	"store-times",
	"store-gone",
	"index-older",
	"socket-removed",
	"odd-umask",
	"times",
	"broken-source",
)


def test_our_builds_stand(engine: str, tmp_path: pathlib.Path) -> None:
	"""Builds that are disturbed make what plain builds make, within a minute each, and leave nothing behind."""
	programs, record = os.path.dirname(engine), tmp_path / "record.json"
	# with this seed, ten trials have faults of all these kinds; six of them are kills
	options = ["--programs", programs, "--seed", "341", "--trials", "10", "--patience", "60", "--json", str(record)]
	done = run_faults(tmp_path, *options, "--kinds", ",".join(STANDING))
	assert done.returncode == 0, f"{done.stdout}{done.stderr}"
	struck = json.loads(record.read_text())["kinds"]
	assert all(any(name.startswith(kind) for name in struck) for kind in STANDING), struck
