"""Builds that load the tool prefork and run without the engine: because the user wants it, or because there is none."""

import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
from prefork_probes import DEVNULL, PATIENT, SHOW_HOOKS, read_status
from waflib import Context, Logs, Utils

from waflib_extras import prefork
from waflib_extras.hooks import lifecycle


def test_waf_no_prefork_leaves_everything_alone(waf: Any, project: Any, runtime: pathlib.Path) -> None:
	"""Nothing is replaced, no engine is started, and nothing is said."""
	wscript = """\
	from waflib import Utils
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		print(Utils.run_process is Utils.run_regular_process, hasattr(Utils, "prefork"))
		print(ctx.cmd_and_log("echo x", quiet=0))
	"""
	done = waf(project({"wscript": wscript}), "show", env={"WAF_NO_PREFORK": "1"})
	assert done.stdout.startswith("True False\nx\n")
	assert not done.stderr
	assert not list(runtime.iterdir())


def test_the_option_no_prefork_leaves_waf_as_it_is(waf: Any, project: Any, runtime: pathlib.Path) -> None:
	"""Waf's process pool works as well, and nothing is said."""
	done = waf(project({"wscript": SHOW_HOOKS}), "show", "--no-prefork")
	assert done.stdout.startswith("waflib.Utils waflib.Utils x")
	assert not done.stderr
	assert not list(runtime.iterdir())


def test_elsewhere_than_on_linux_waf_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
	"""The tool loads, says so once, and does nothing."""
	Logs.init_log()
	monkeypatch.delenv("WAF_NO_PREFORK", raising=False)
	monkeypatch.setattr(sys, "platform", "darwin")
	before = Utils.run_process, Utils.alloc_process_pool
	try:
		prefork.install()
		prefork.install()
	finally:
		lifecycle.find().restore("hooks")
		delattr(Context, lifecycle.PLACE)
	assert (Utils.run_process, Utils.alloc_process_pool) == before
	assert capfd.readouterr().err == "prefork: the engine runs on Linux only (going on without)\n"


def test_a_missing_engine_is_told_once(waf: Any, project: Any) -> None:
	"""There is one line with the remedy; then Waf is as it is."""
	done = waf(project({"wscript": SHOW_HOOKS}), "show", "show", env={"WAFD": "/no/such/wafd"})
	assert done.stdout.startswith("waflib.Utils waflib.Utils x")
	assert done.stderr == "prefork: WAFD=/no/such/wafd is no program: set it to the path of wafd (going on without)\n"


def test_an_engine_that_does_not_start_is_told_once(waf: Any, project: Any) -> None:
	"""The program is not wafd. The build is complete, with the default standard input."""
	folder = project({"wscript": SHOW_HOOKS.replace("echo x", "cat; echo x")})
	done = waf(folder, "show", "show", "--zones=prefork", env={"WAFD": "/bin/true"})
	assert re.findall("(?m)^.*going on without.*$", done.stderr) == [
		"prefork: /bin/true start: not understood: b'' (going on without)"
	]
	assert "2 commands Waf's own way" in done.stdout + done.stderr


def test_an_engine_that_refuses_this_place_is_told_once(waf: Any, project: Any, engine: str) -> None:
	"""Waf has mounts of its own here, as in a container. The build is complete, and says why it is slower."""
	if os.geteuid() != 0:
		pytest.skip("only root can have mounts of its own")
	subprocess.run([engine, "start"], check=True, timeout=PATIENT, stdout=DEVNULL)
	unshare = "import ctypes\nassert ctypes.CDLL(None).unshare(0x20000) == 0\n"
	done = waf(project({"wscript": unshare + SHOW_HOOKS}), "show", "show")
	assert done.stdout.count("x\n") == 2
	(line,) = re.findall("(?m)^.*going on without.*$", done.stderr)
	assert line.startswith("prefork: the engine refuses: ")


def test_a_runtime_folder_that_cannot_be_is_told_once(waf: Any, project: Any, tmp_path: pathlib.Path) -> None:
	"""The place cannot be written, since it is below a file."""
	(tmp_path / "file").write_text("")
	folder = project({"wscript": SHOW_HOOKS})
	done = waf(folder, "show", env={"WAFD_RUNTIME_DIR": str(tmp_path / "file" / "folder")})
	assert " x" in done.stdout
	assert len(done.stderr.splitlines()) == 1
	assert "set WAFD_RUNTIME_DIR to" in done.stderr


def test_a_patched_popen_is_respected(waf: Any, project: Any) -> None:
	"""A tool that replaces Popen gets every command."""
	wscript = """\
	import subprocess
	class Popen(subprocess.Popen):
		def __init__(self, *k, **kw):
			print("seen", k[0])
			super().__init__(*k, **kw)
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		subprocess.Popen = Popen
		ctx.exec_command(["true"])
	"""
	done = waf(project({"wscript": wscript}), "show", "--zones=prefork")
	assert "seen ['true']" in done.stdout
	assert "1 commands Waf's own way: subprocess.Popen is replaced" in done.stdout + done.stderr


def test_a_stopped_engine_does_not_stop_a_build(
	waf: Any, project: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""An engine that was stopped before the build is ended, since all would wait for it, and another one serves."""
	subprocess.run([engine, "start"], check=True, stdout=DEVNULL, timeout=PATIENT)
	pid = read_status(engine)["pid"]
	os.kill(pid, signal.SIGSTOP)
	done = waf(project({"wscript": SHOW_HOOKS}), "show")
	assert " x" in done.stdout
	assert "going on without" not in done.stderr
	assert read_status(engine)["pid"] != pid
