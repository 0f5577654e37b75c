"""
Builds the programs that test the engine, for ``./waf check`` and for tests in Python.

They are compiled quickly, with all checks (``engine/check.toml``), and take all crates but our own from the engine that
was built. They have a folder of their own beside the engine that people use: ``check`` in cargo's target folder.
"""

import json
import os
import pathlib
import runpy
import subprocess
from typing import Any, Dict, List, Mapping, Sequence

ENGINE = pathlib.Path(__file__).resolve().parent.parent / "engine"
FOLDER = "check"


class NotBuilt(Exception):
	"""Cargo has failed, and has said why."""


def target_folder(environ: Mapping[str, str] = os.environ) -> pathlib.Path:
	"""Where cargo puts the engine itself."""
	return pathlib.Path(environ.get("CARGO_TARGET_DIR") or ENGINE / "target")


def find_lint(cargo: str, environ: Mapping[str, str]) -> Dict[str, str]:
	"""Variables with which cargo fails on what clippy finds. There are none if clippy is not installed."""
	asked = subprocess.run([cargo, "clippy", "--version"], env=dict(environ), capture_output=True, check=False)
	if asked.returncode:
		return {}
	# its compiler is beside cargo, in a folder that PATH may not have yet
	search = os.pathsep.join([environ.get("PATH", ""), os.path.dirname(os.path.abspath(cargo))])
	return {"RUSTC_WORKSPACE_WRAPPER": str(ENGINE / "lint"), "PATH": search}


def name_packages(cargo: str) -> List[str]:
	"""
	The options of cargo that name our packages, as ``./waf`` does when it builds the engine.

	With one of them alone, crates would have fewer features, and be compiled again.
	"""
	named: List[str] = runpy.run_path(str(ENGINE.parent / "waf"))["name_packages"](cargo)
	return named


def build(cargo: str, wanted: Sequence[str], environ: Mapping[str, str]) -> List[Dict[str, Any]]:
	"""Build the programs that are wanted; what cargo says of each that it has made."""
	command = [cargo, "build", "--locked", "--release", "--config", "check.toml", *wanted]
	command.append("--message-format=json-render-diagnostics")
	target = target_folder(environ)
	# cargo before 1.91 knows no second folder, and compiles the crates again
	folders = {"CARGO_BUILD_BUILD_DIR": str(target), "CARGO_TARGET_DIR": str(target / FOLDER)}
	built = subprocess.run(command, cwd=ENGINE, env={**environ, **folders}, stdout=subprocess.PIPE, check=False)
	if built.returncode:
		raise NotBuilt("cargo build ended with status %d" % built.returncode)
	return [made for made in map(json.loads, built.stdout.splitlines()) if made.get("executable")]
