"""Accidents during a build with the tool prefork: engines, builds and tasks that end or fork."""

import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Iterator, List, NamedTuple

import pytest
from prefork_probes import DEVNULL, PATIENT, PIPE, STDOUT, read_status


def test_a_build_survives_its_engine(waf: Any, project: Any, engine: str) -> None:
	"""A command of the build kills the engine while others run: all outputs are complete."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
	def configure(conf):
		pass
	def build(bld):
		for n in range(8):
			bld(rule="sleep 0.2; echo done > ${TGT}", target="out%d" % n)
		kill = "touch killed; kill -9 $(cat engine); sleep 600"
		bld(rule="test -e killed || { %s; }; echo done > ${TGT}" % kill, target="last")
	"""
	folder = project({"wscript": wscript, "build/engine": ""})
	waf(folder, "configure")
	subprocess.run([engine, "start"], check=True, stdout=DEVNULL, timeout=PATIENT)
	(folder / "build" / "engine").write_text(str(read_status(engine)["pid"]))
	done = waf(folder, "build", "-j4", "-k", "--zones=prefork")
	for name in ["last"] + ["out%d" % n for n in range(8)]:
		assert (folder / "build" / name).read_text() == "done\n"
	assert str(read_status(engine)["pid"]) != (folder / "build" / "engine").read_text()
	assert "own way" not in done.stdout + done.stderr


def test_a_build_survives_commands_that_kill_every_engine(waf: Any, project: Any, engine: str) -> None:
	"""After a few engines the build goes on without, and says so once."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		kill = "echo $PPID >> engines; kill -9 $PPID; sleep 600"
		ctx.exec_command("grep wafd /proc/$PPID/comm && { %s; }; echo survived" % kill)
		ctx.exec_command("echo after")
	"""
	folder = project({"wscript": wscript})
	done = waf(folder, "show")
	assert len(set((folder / "engines").read_text().split())) == 4
	assert done.stderr == "prefork: 4 engines ended in the middle of commands (going on without)\n"
	assert done.stdout.split()[:2] == ["survived", "after"]


def test_a_forked_task_runs_commands_of_its_own(waf: Any, project: Any) -> None:
	"""os.fork in a task: child and parent both go on through the engine."""
	wscript = """\
	import os
	def options(opt):
		opt.load("prefork")
	def configure(conf):
		pass
	def work(tsk):
		tsk.exec_command("echo before > before")
		pid = os.fork()
		if pid == 0:
			os._exit(tsk.exec_command("echo child > child"))
		assert tsk.exec_command("echo parent > parent") == 0
		return os.waitpid(pid, 0)[1]
	def build(bld):
		bld(rule=work)
		bld(rule="echo other > ${TGT}", target="other")
	"""
	folder = project({"wscript": wscript})
	done = waf(folder, "configure", "build", "-j2", "--zones=prefork", env={"PYTHONWARNINGS": "ignore"})
	for name in ("before", "child", "parent", "other"):
		assert (folder / "build" / name).read_text() == name + "\n"
	assert "own way" not in done.stdout + done.stderr


def wait_for(condition: Callable[[], Any]) -> Any:
	"""Wait until there is a value."""
	deadline = time.monotonic() + PATIENT
	while time.monotonic() < deadline:
		found = condition()
		if found:
			return found
		time.sleep(0.01)
	pytest.fail("nothing came within %d seconds" % PATIENT)


class Hanging(NamedTuple):
	"""A build whose commands do not end, and their processes."""

	build: "subprocess.Popen[bytes]"
	pids: List[int]


@pytest.fixture(params=["-j1", "-j2"])
def hanging(request: Any, waf: Any, project: Any) -> Iterator[Hanging]:
	"""One or two commands that do not end, each with a child."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
	def configure(conf):
		pass
	def build(bld):
		for n in range(2):
			bld(rule="sleep 600 & echo $! $$$$ > tmp%d; mv tmp%d pids%d; wait" % (n, n, n))
	"""
	folder = project({"wscript": wscript})
	waf(folder, "configure")
	command = [sys.executable, "-m", "waflib_extras.launcher", "build", request.param]
	with subprocess.Popen(command, cwd=folder, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT) as build:
		try:
			files = [folder / "build" / "pids0", folder / "build" / "pids1"][: int(request.param[2:])]
			wait_for(lambda: all(file.exists() for file in files))
			pids = [int(pid) for file in files for pid in file.read_text().split()]
			assert all(is_alive(pid) for pid in pids)
			yield Hanging(build, pids)
		finally:
			build.kill()


def is_alive(pid: int) -> bool:
	try:
		state = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]
	except OSError:
		return False
	return state != "Z"


def test_ctrl_c_ends_the_commands(hanging: Hanging) -> None:
	"""The commands and their children are ended; Waf's status is the same as without us."""
	hanging.build.send_signal(signal.SIGINT)
	out, _ = hanging.build.communicate(timeout=PATIENT)
	assert hanging.build.returncode == 68
	assert b"Interrupted" in out
	wait_for(lambda: not any(is_alive(pid) for pid in hanging.pids))


def test_a_killed_build_ends_its_commands(hanging: Hanging) -> None:
	"""Even kill -9 leaves no command behind."""
	hanging.build.kill()
	hanging.build.communicate(timeout=PATIENT)
	wait_for(lambda: not any(is_alive(pid) for pid in hanging.pids))
