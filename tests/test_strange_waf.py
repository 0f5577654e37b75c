"""A tool that does nothing with an unknown copy of Waf says so, once."""

import compileall
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import waflib

OTHER_WAF = "import os; from waflib import Context, Scripting; "
OTHER_WAF += (
	"Scripting.waf_entry_point(os.getcwd(), Context.WAFVERSION, os.path.dirname(os.path.dirname(Context.__file__)))"
)
EMPTY = {"wscript": "def options(opt):\n\tpass\ndef configure(conf):\n\tpass\ndef build(bld):\n\tpass\n"}


def test_large_says_that_it_knows_nothing_of_a_waf(waf: Any, project: Any, tmp_path: pathlib.Path) -> None:
	"""A Waf without sources cannot be compared with any that is known: no patch of its code is in place."""
	copy = tmp_path / "other" / "waflib"
	shutil.copytree(os.path.dirname(waflib.__file__), copy, ignore=shutil.ignore_patterns("__pycache__"))
	assert compileall.compile_dir(str(copy), quiet=2, legacy=True, workers=1)
	for path in copy.rglob("*.py"):
		path.unlink()
	folder = project(EMPTY)
	waf(folder, "configure", tools="large", wafdir=copy.parent)
	done = waf(folder, "build", tools="large", wafdir=copy.parent)
	assert (done.stdout + done.stderr).count("large: does nothing with this copy of Waf") == 1
	assert "large:" not in waf(project(EMPTY, "known"), "configure", "build", tools="large").stderr


def test_resident_says_that_it_is_not_called(project: Any, tmp_path: pathlib.Path) -> None:
	"""Only the command of this package calls a resident: a build by another one says that there is none."""
	folder = project(
		{"wscript": "import waflib_extras\n" + EMPTY["wscript"].replace("pass", "opt.load('resident')", 1)}
	)
	environ = dict(os.environ, WAFD_RUNTIME_DIR=str(tmp_path / "run"))
	argv = [sys.executable, "-c", OTHER_WAF, "configure", "build"]
	done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, encoding="utf-8", timeout=100, check=True)
	assert (done.stdout + done.stderr).count("resident: does nothing with this copy of Waf") == 1
