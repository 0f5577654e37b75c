"""Options for sharing a machine, with real Waf and the real engine: the properties of the commands."""

import json
import os
import pathlib
import subprocess
import sys
import types
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import pytest
from conftest import on_cpython
from waflib import Errors

from waflib_extras.prefork import politeness

WSCRIPT = """\
	def options(opt):
		opt.load("prefork", tooldir=%r)
	def configure(conf):
		pass
	def build(bld):
		for name in "abcd":
			bld(rule=%r, target=name, shell=True)
"""
TOOLS = str(pathlib.Path(politeness.__file__).parents[1])
LOOK = "cat /proc/self/stat /proc/self/status > ${TGT}"
# each notes how many of its kind run at the same time
COUNT = "touch run.$$$$; ls run.* | wc -l > ${TGT}; sleep 0.3; rm run.$$$$"


class Seen(NamedTuple):
	"""The properties of a command."""

	nice: int
	scheduler: int
	processors: str


def look(file: pathlib.Path) -> Seen:
	"""The properties that a command has written."""
	stat, status = file.read_text().split("\n", 1)
	fields = stat.rsplit(")", 1)[1].split()
	allowed = [line.split(":")[1].strip() for line in status.splitlines() if line.startswith("Cpus_allowed_list")]
	return Seen(int(fields[16]), int(fields[38]), allowed[0])


@pytest.fixture
def build(project: Callable[..., pathlib.Path], waf: Callable[..., Any], engine: str) -> Callable[..., Any]:
	"""A function that builds a project of four commands and returns what Waf said, and the folder of the results."""

	def run(*args: str, rule: str = LOOK, env: Optional[Dict[str, Optional[str]]] = None, status: int = 0) -> Any:
		folder = project({"wscript": WSCRIPT % (TOOLS, rule)})
		changes: Dict[str, Optional[str]] = {"WAFD": engine, "MAKEFLAGS": None, **(env or {})}
		return waf(folder, "configure", "build", *args, env=changes, status=status), folder / "build"

	return run


@pytest.mark.parametrize("way", [pytest.param((), marks=on_cpython), ("--no-prefork",)])
def test_nice_reaches_every_command(build: Callable[..., Any], way: List[str]) -> None:
	"""A command has the nice value of the option, through the engine and Waf's own way."""
	_, out = build("--nice=7", *way)
	assert {look(out / name).nice for name in "abcd"} == {7}


@pytest.mark.parametrize(
	("name", "number"),
	[*(pytest.param(*x, marks=on_cpython) for x in (("normal", os.SCHED_OTHER), ("batch", 3))), ("idle", 5)],
)
def test_scheduler_reaches_every_command(build: Callable[..., Any], name: str, number: int) -> None:
	"""Each policy is the kernel's policy of that name."""
	_, out = build("--sched=%s" % name)
	assert {look(out / name).scheduler for name in "abcd"} == {number}


def test_processors_reach_every_command(build: Callable[..., Any]) -> None:
	"""A command may run on the processors of the option only."""
	last = max(politeness.parse_processors(look_at_myself().processors) or ())
	_, out = build("--processors=%d" % last)
	assert {look(out / name).processors for name in "abcd"} == {str(last)}


@on_cpython
def test_without_options_nothing_changes(build: Callable[..., Any]) -> None:
	"""A command has the properties of this test."""
	_, out = build()
	mine = look_at_myself()
	assert {look(out / name) for name in "abcd"} == {mine}


def look_at_myself() -> Seen:
	"""The properties of this process."""
	text = subprocess.run(["cat", "/proc/self/stat", "/proc/self/status"], capture_output=True, check=True).stdout
	stat, status = text.decode().split("\n", 1)
	fields = stat.rsplit(")", 1)[1].split()
	allowed = [line.split(":")[1].strip() for line in status.splitlines() if line.startswith("Cpus_allowed_list")]
	return Seen(int(fields[16]), int(fields[38]), allowed[0])


@on_cpython
def test_a_nice_build_leaves_a_usual_engine(build: Callable[..., Any], runtime: pathlib.Path, engine: str) -> None:
	"""The engine that a nice build starts is not nice: the next build finds it, and its commands are as usual."""
	build("--nice=9")
	first = json.loads(subprocess.run([engine, "status", "--json"], capture_output=True, check=True).stdout)
	_, out = build("clean", "build")
	second = json.loads(subprocess.run([engine, "status", "--json"], capture_output=True, check=True).stdout)
	assert look(out / "a").nice == look_at_myself().nice
	assert first["pid"] == second["pid"]


AUTOGROUP = pathlib.Path("/proc/self/autogroup")


@on_cpython
@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel has no autogroups")
def test_the_group_of_all_commands_stands_back_too(build: Callable[..., Any]) -> None:
	"""
	Nice values count only inside a session where there are autogroups: so the engine's own group gets them.

	Each command waits until it is so: for users the kernel limits how often a group may change.
	"""
	for option, nice in (("--nice=9", 9), ("--sched=idle", 19), ("--sched=normal", 0)):
		rule = "until grep 'nice %d$$' /proc/self/autogroup > ${TGT}; do sleep 0.02; done" % nice
		_, out = build(option, "clean", "build", rule=rule)
		assert (out / "a").read_text().endswith("nice %d\n" % nice)


@pytest.mark.parametrize(
	("option", "remedy"),
	[
		("--nice=20", "--nice=20: give a whole number from -20 to 19"),
		("--nice=much", "--nice=much: give a whole number"),
		("--sched=fifo", "--sched=fifo: give one of normal, batch, idle"),
		("--processors=3-1", "--processors=3-1: give numbers and ranges"),
		("--processors=", "--processors=: give numbers and ranges"),
		("--processors=0,5000", "--processors=0,5000: give numbers and ranges below 1024"),
		("--load=-1", "--load=-1: give a number above 0"),
		("--load=nan", "--load=nan: give a number above 0"),
		("--jobserver=maybe", "--jobserver=maybe: give one of auto, pipe, fifo, no"),
	],
)
def test_a_mistake_is_one_line(build: Callable[..., Any], option: str, remedy: str) -> None:
	"""The line names the option and the possible values, nothing is built, and there is no traceback."""
	done, out = build(option, status=1)
	told = [line for line in (done.stdout + done.stderr).splitlines() if "--" in line]
	assert len(told) == 1
	assert remedy in told[0]
	assert "Traceback" not in done.stderr
	assert not (out / "a").exists()


def test_processors_that_are_not_there_are_told(build: Callable[..., Any]) -> None:
	"""The system refuses, one line says so, and the build goes on with those that it has."""
	done, out = build("--processors=1023")
	assert done.stderr.count("--processors: Invalid argument") == 1
	assert look(out / "a").processors == look_at_myself().processors


def test_a_right_that_is_missing_is_told(capfd: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
	"""Without the right to a negative nice value there is one line, and the build goes on."""
	script = (
		"import os, resource; from waflib import Logs; Logs.init_log(); from waflib_extras.prefork import politeness\n"
		"resource.setrlimit(13, (0, 0))\n"
		"os.geteuid() or os.setuid(65534)\n"
		"politeness.apply(politeness.Wishes(-5, None, None)); print(os.getpriority(0, 0))\n"
	)
	roots = os.pathsep.join(dict.fromkeys([str(pathlib.Path(TOOLS).parent), *filter(None, sys.path)]))
	env = dict(os.environ, PYTHONPATH=roots)
	done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True, cwd="/")
	assert done.stderr.count("--nice=-5: Permission denied") == 1
	assert int(done.stdout) >= 0


# ---- jobservers


@pytest.mark.parametrize(
	("flags", "auth"),
	[
		("", ""),
		("k -j4 --jobserver-auth=3,4", "3,4"),
		(" -j --jobserver-fds=5,6", "5,6"),
		(" -j4 --jobserver-auth=3,4 --jobserver-auth=fifo:/tmp/x", "fifo:/tmp/x"),
		("k -- X=--jobserver-auth=3,4", ""),
	],
)
def test_the_last_jobserver_wins(flags: str, auth: str) -> None:
	"""The last one of several counts, and the value of a variable does not."""
	assert politeness.find_auth(flags) == auth


def test_a_number_that_is_something_else_is_no_jobserver(tmp_path: pathlib.Path) -> None:
	"""Make closes the pipe for a recipe without "+": a descriptor with its number is left alone."""
	with open(tmp_path / "file", "w") as f:
		assert politeness.open_ends("%d,%d" % (f.fileno(), f.fileno())) is None
	assert politeness.open_ends("990,991") is None
	assert politeness.open_ends("fifo:%s" % (tmp_path / "file")) is None
	assert politeness.open_ends("fifo:/no/such") is None


def test_auto_chooses_what_make_understands(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A fifo from GNU make 4.4 on and where there is no make; else a pipe."""
	monkeypatch.setenv("PATH", str(tmp_path))
	assert politeness.choose_form("auto") == politeness.protocol.SERVE_FIFO
	for version, form in (("4.3", "PIPE"), ("4.4.1", "FIFO"), ("10.0", "FIFO"), ("3.81", "PIPE")):
		make = tmp_path / "make"
		make.write_text("#!/bin/sh\necho GNU Make %s\n" % version)
		make.chmod(0o755)
		assert politeness.choose_form("auto") == getattr(politeness.protocol, "SERVE_" + form)


def counts(out: pathlib.Path) -> List[int]:
	"""The counts that the four commands have written."""
	return [int((out / name).read_text()) for name in "abcd"]


def test_under_make_the_tokens_of_make_decide(
	build: Callable[..., Any], project: Callable[..., pathlib.Path], engine: str
) -> None:
	"""With `make -j2` there are never more than two commands, even if Waf's -j is larger."""
	_, out = build(rule=COUNT)
	folder = out.parent
	for name in "abcd":
		(out / name).unlink()
	launch = "from waflib_extras import launcher; launcher.main()"
	(folder / "run.py").write_text(launch)
	(folder / "Makefile").write_text("all:\n\t+%s run.py build -j8\n" % sys.executable)
	env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
	env.update(WAFD=engine, PYTHONPATH=os.pathsep.join([str(pathlib.Path(TOOLS).parent), *filter(None, sys.path)]))
	done = subprocess.run(["make", "-j2", "-C", str(folder)], env=env, capture_output=True, text=True, timeout=60)
	assert done.returncode == 0, done.stdout + done.stderr
	assert max(counts(out)) == 2, done.stdout + done.stderr


@on_cpython
def test_a_limit_of_load_lets_one_run(build: Callable[..., Any], tmp_path: pathlib.Path) -> None:
	"""On a machine with more load than the option allows, the build goes on, one command after the other."""
	(tmp_path / "loadavg").write_text("0.00 0.00 0.00 9/100 1\n")
	_, out = build("-j4", "--load=8", rule=COUNT, env={"WAFD_GAUGES": str(tmp_path)})
	assert counts(out) == [1, 1, 1, 1]
	_, out = build("-j4", "--load=8.5", "clean", "build", rule=COUNT)
	assert max(counts(out)) > 1


@on_cpython
def test_commands_are_told_of_a_jobserver(build: Callable[..., Any], runtime: pathlib.Path) -> None:
	"""Only with the option does a command find one in MAKEFLAGS."""
	_, out = build("-j3", "--jobserver=fifo", rule='echo "$$MAKEFLAGS" > ${TGT}')
	assert (out / "a").read_text().startswith(" -j3 --jobserver-auth=fifo:%s/" % runtime)
	_, out = build("-j3", "clean", "build", rule='echo "$$MAKEFLAGS" > ${TGT}')
	assert (out / "a").read_text() == "\n"


@on_cpython
def test_make_below_waf_uses_the_free_slots(build: Callable[..., Any], tmp_path: pathlib.Path) -> None:
	"""A make inside a command runs as many jobs as there are free tokens, without a warning."""
	parts = "all: a b c\na b c:\n\t@touch r.$@; ls r.* | wc -l >> counts; sleep 0.3; rm r.$@\n"
	makes = tmp_path / "makes"
	makes.mkdir()
	(makes / "Makefile").write_text(parts)
	rule = "test ${TGT} != a || make -s -C %s; touch ${TGT}" % makes
	done, _ = build("-j3", "--jobserver=auto", rule=rule)
	assert "jobserver" not in done.stdout + done.stderr
	assert max(map(int, (makes / "counts").read_text().split())) == 3


def test_options_of_a_build_without_wishes_say_nothing_to_the_engine() -> None:
	"""No frame is sent at all, so default builds pay nothing."""
	assert politeness.find_policy(types.SimpleNamespace(), {}, True).frame == b""


def test_a_wrong_value_raises_for_callers_too() -> None:
	"""The option parsers refuse the value, also for a wscript that sets an option."""
	with pytest.raises(Errors.WafError, match=r"--nice=1\.5"):
		politeness.parse_nice("1.5")
	assert politeness.parse_processors("0-2, 6") == {0, 1, 2, 6}
