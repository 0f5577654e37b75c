"""Shared parts of the tests of the tool prefork: a hook for one test, and questions to builds, engine and kernel."""

import json
import os
import pathlib
import subprocess
from typing import Any, Dict, Iterator, List

import pytest
from waflib import Logs

from waflib_extras import prefork
from waflib_extras.hooks import lifecycle

PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
PATIENT = 60  # seconds; only a failing test waits this long
BOTH = {"stdout": PIPE, "stderr": PIPE}
SHELL = {"shell": True, **BOTH}

SHOW_HOOKS = """\
from waflib import Utils
def options(opt):
	opt.load("prefork")
def show(ctx):
	print(Utils.run_process.__module__, Utils.alloc_process_pool.__module__, ctx.cmd_and_log("echo x", quiet=0))
"""


@pytest.fixture
def hook(runtime: pathlib.Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[prefork.Prefork]:
	"""The object that the tool puts in Waf's place, with an engine for this test."""
	monkeypatch.setenv("WAFD", engine)
	Logs.init_log()
	found = prefork.Prefork(lifecycle.Build())
	yield found
	found.finish()


def read_status(engine: str) -> Dict[str, Any]:
	return json.loads(subprocess.run([engine, "status", "--json"], stdout=PIPE, check=True, timeout=PATIENT).stdout)


def read_processors() -> List[int]:
	"""The processors that we may use; PyPy's os has no sched_getaffinity."""
	done = subprocess.run(["taskset", "-pc", str(os.getpid())], stdout=PIPE, check=True, timeout=PATIENT)
	ranges = [part.split("-") for part in done.stdout.decode().split(":")[1].split(",")]
	return [n for part in ranges for n in range(int(part[0]), int(part[-1]) + 1)]
