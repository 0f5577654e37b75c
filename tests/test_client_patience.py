"""Builds with an engine that cannot be reached: all commands together wait once, and one line at the end says so."""

import os
import pathlib
import re
import signal
import socket
import subprocess
from typing import Any, Iterator

import pytest
from prefork_probes import DEVNULL, PATIENT, read_status

from waflib_extras.client import engine as client

SUMMARY = {"WAF_PREFORK_SUMMARY": "yes", "WAFD_PATIENCE": "0.5"}
WSCRIPT = """\
def options(opt):
	opt.load("prefork")
def build(bld):
	for i in range(40):
		bld(rule="echo %d > ${TGT}" % i, target="out%d" % i)
def configure(conf):
	pass
"""


@pytest.fixture
def mute(runtime: pathlib.Path) -> Iterator[socket.socket]:
	"""A listener in the engine's place that never answers."""
	with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
		listener.bind(client.runtime_file("sock"))
		listener.listen(100)
		listener.setblocking(False)
		yield listener


def count_visitors(listener: socket.socket) -> int:
	count = 0
	while True:
		try:
			listener.accept()[0].close()
		except BlockingIOError:
			return count
		count += 1


def test_a_mute_engine_is_waited_for_once(waf: Any, project: Any, mute: socket.socket) -> None:
	"""All commands together wait once. The last line says how many ran without the engine, why, and what to do."""
	folder = project({"wscript": WSCRIPT})
	waf(folder, "configure", env={"WAF_NO_PREFORK": "1"})
	done = waf(folder, "build", "-j4", env=SUMMARY)
	assert count_visitors(mute) == 1
	assert len(list((folder / "build").glob("out*"))) == 40
	last = done.stderr.splitlines()[-1]
	assert re.match(r"prefork: \d+ commands ran without the engine: .* within 0.5 seconds; `wafd stop --now`", last), (
		last
	)


def test_an_engine_that_is_stopped_in_the_middle_fails_nothing(
	waf: Any, project: Any, engine: str, tmp_path: pathlib.Path
) -> None:
	"""A stopped engine and its commands are ended, and another one runs them again, with one thread and with many."""
	wscript = """\
	import os
	def options(opt):
		opt.load("prefork")
	def build(bld):
		script = os.environ["SCRIPT"]
		bld(rule="sh %s ${TGT}" % script, target="first")
		bld(rule="echo x > ${TGT}", target="second")
	def configure(conf):
		pass
	"""
	folder = project({"wscript": wscript})
	script, marks = tmp_path / "script", tmp_path / "marks"
	waf(folder, "configure")
	for threads in ([], ["--threads"]):
		marks.write_text("")
		subprocess.run([engine, "start"], check=True, stdout=DEVNULL, timeout=PATIENT)
		pid = read_status(engine)["pid"]
		stop = f"kill -STOP {pid}; sleep 1000"
		script.write_text(f"echo x >> {marks}; test $(wc -l < {marks}) -gt 1 || {{ {stop}; }}; echo done > $1\n")
		done = waf(folder, "clean", "build", "-j2", *threads, env={"SCRIPT": str(script)})
		assert (folder / "build" / "first").read_text() == "done\n"
		assert "going on without" not in done.stderr
		assert marks.read_text() == "x\nx\n"
		with pytest.raises(ProcessLookupError):
			os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
	"value, seconds", [("3", 3.0), ("0", 1.5), ("-1", 1.5), ("nan", 1.5), ("soon", 1.5), ("", 1.5)]
)
def test_the_patience_is_a_number(monkeypatch: pytest.MonkeyPatch, value: str, seconds: float) -> None:
	"""A value that is no number, or no possible time, is ignored."""
	monkeypatch.setenv("WAFD_PATIENCE", value)
	assert client.find_patience() == seconds
