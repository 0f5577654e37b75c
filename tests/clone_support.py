"""A clone of the tree in which ./waf has run, with an engine that is built quickly."""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Dict, List

import pytest
from conftest import ROOT, Completed
from programs import target_folder


def copy_tree(folder: pathlib.Path) -> pathlib.Path:
	"""The tree like a fresh clone, without built files."""
	made = shutil.ignore_patterns("build", "target", ".git", "__pycache__", "*.egg-info", ".lock-waf*", ".*_cache")
	# with the present times, as git does it: cargo compares them, and the clones of a file share a target folder
	shutil.copytree(ROOT, folder, ignore=made, copy_function=shutil.copy)
	return folder


def run(command: List[str], environ: Dict[str, str], cwd: pathlib.Path, status: int = 0) -> "Completed[str]":
	done = subprocess.run(
		command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False
	)
	assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
	return done


QUICKLY = """\
#!/bin/sh
exec "$@" -Copt-level=0 -Cdebuginfo=0
"""


def share_crates(target: pathlib.Path) -> None:
	"""Copy the compiled crates of the tree into a target folder of cargo, so that only our own crates are compiled."""
	built = target_folder() / "release"
	for folder in ("build", "deps", ".fingerprint"):
		for path in (built / folder).glob("*"):
			copy = target / "release" / folder / path.name
			if not re.match("(lib)?(wafengine|wafd|wafcc|wafcluster|wafd_cluster)-", path.name) and not copy.exists():
				copy.parent.mkdir(parents=True, exist_ok=True)
				subprocess.run(["cp", "-al", str(path), str(copy)], check=True)


@pytest.fixture(scope="module")
def environ(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
	"""
	An environment in which the engine is built quickly: not optimized, and with the crates of the tree's own.

	Each file of tests has a target folder of its own. Cargo compares times, so it would take a source that was edited
	in one clone for compiled if another one was built after that.
	"""
	target = ROOT / "build" / "clone-target" / request.module.__name__
	target.mkdir(parents=True, exist_ok=True)
	compiler = target / "quickly"
	with open(target / "shared", "w") as lock:
		fcntl.flock(lock, fcntl.LOCK_EX)
		share_crates(target)
		if not compiler.exists():
			compiler.write_text(QUICKLY)
			compiler.chmod(0o755)
	changes = {
		"CARGO_TARGET_DIR": str(target),
		"RUSTC_WORKSPACE_WRAPPER": str(compiler),
		"CARGO_INCREMENTAL": "1",  # some tests change a source and build again
		"WAFD_RUNTIME_DIR": str(tmp_path_factory.mktemp("runtime")),
	}
	return {**os.environ, **changes}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, environ: Dict[str, str]) -> pathlib.Path:
	"""A copy of the tree in which ./waf has run once."""
	folder = copy_tree(tmp_path_factory.mktemp("clone") / "tree")
	first = run([sys.executable, str(folder / "waf"), "--version"], environ, folder)
	assert first.stdout.startswith("waf 2.1.4 ")
	assert [x for x in first.stderr.splitlines() if not x.startswith("waf: ")] == []
	assert len(first.stderr.splitlines()) == 2
	return folder
