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
from benchmark.package import find_cargo
from conftest import ROOT, Completed
from programs import find_lint, target_folder


def copy_tree(folder: pathlib.Path) -> pathlib.Path:
	"""
	The tree like a fresh clone, without built files.

	Its files keep their times: cargo takes them for those of which the tree's test programs were made.
	"""
	made = shutil.ignore_patterns("build", "target", ".git", "__pycache__", "*.egg-info", ".lock-waf*", ".*_cache")
	shutil.copytree(ROOT, folder, ignore=made)
	build_quickly(folder)
	return folder


def build_quickly(tree: pathlib.Path) -> None:
	"""Have cargo build a tree with the settings of the test programs. It also reads files in the folders above."""
	settings = tree.parent / ".cargo" / "config.toml"
	settings.parent.mkdir(exist_ok=True)
	shutil.copy(ROOT / "engine" / "check.toml", settings)


def run(command: List[str], environ: Dict[str, str], cwd: pathlib.Path, status: int = 0) -> "Completed[str]":
	done = subprocess.run(
		command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False
	)
	assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
	return done


FOLDERS = ("build", "deps", ".fingerprint")  # where cargo has what it compiled
OWN = "(lib)?(wafengine|wafcluster|wafd|wafcc|waf|wafd_cluster)-"


def share_crates(target: pathlib.Path) -> None:
	"""Give a target folder of cargo the crates that were compiled for the tree, but none of our own."""
	copy_compiled(target, False, "-al", "--no-clobber")


def share_programs(target: pathlib.Path) -> None:
	"""Give it also what was compiled of our own for tests. It is copied, since cargo writes into such files."""
	share_crates(target)
	copy_compiled(target, True, "-a", "--update", "--remove-destination")


def copy_compiled(target: pathlib.Path, own: bool, *options: str) -> None:
	for folder in FOLDERS:
		built = (target_folder() / "release" / folder).glob("*")
		wanted = [str(path) for path in built if bool(re.match(OWN, path.name)) == own]
		place = target / "release" / folder
		place.mkdir(parents=True, exist_ok=True)
		if wanted:
			subprocess.run(["cp", *options, "-t", str(place), *wanted], check=True)


@pytest.fixture(scope="module")
def environ(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
	"""
	An environment in which a clone is built as the tree's test programs were: what has not changed is not compiled.

	Each file of tests has a target folder of its own. Cargo compares times, so it would take a source that was edited
	in one clone for compiled if another one was built after that.
	"""
	target = ROOT / "build" / "clone-target" / request.module.__name__
	target.mkdir(parents=True, exist_ok=True)
	with open(target / "shared", "w") as lock:
		fcntl.flock(lock, fcntl.LOCK_EX)
		share_programs(target)
	changes = {
		"CARGO_TARGET_DIR": str(target),
		"WAFD_RUNTIME_DIR": str(tmp_path_factory.mktemp("runtime")),
	}
	return {**os.environ, **find_lint(find_cargo() or "cargo", os.environ), **changes}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, environ: Dict[str, str]) -> pathlib.Path:
	"""A copy of the tree in which ./waf has run once."""
	folder = copy_tree(tmp_path_factory.mktemp("clone") / "tree")
	first = run([sys.executable, str(folder / "waf"), "--version"], environ, folder)
	assert first.stdout.startswith("waf 2.1.4 ")
	assert [x for x in first.stderr.splitlines() if not x.startswith("waf: ")] == []
	assert len(first.stderr.splitlines()) == 2
	return folder
