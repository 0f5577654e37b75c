"""
The tool prefork with the real engine.

Its main promise is that nothing changes: so most tests do a thing Waf's own way and through the engine, and compare.
"""

import contextlib
import gc
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import pytest
from waflib import Logs, Utils

from waflib_extras import prefork

ROOT = pathlib.Path(__file__).resolve().parent.parent
PIPE, DEVNULL, STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT
PATIENT = 60  # seconds; only a failing test waits so long


@pytest.fixture
def hook(runtime: pathlib.Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[prefork.Prefork]:
	"""What the tool puts in Waf's place, with an engine of its own."""
	monkeypatch.setenv("WAFD", engine)
	Logs.init_log()
	found = prefork.Prefork()
	yield found
	found.finish()


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
	"""The current folder, with a few things for commands to stumble over."""
	monkeypatch.chdir(tmp_path)
	(tmp_path / "sub").mkdir()
	scripts = {
		"works": '#!/bin/sh\necho works "$0"\n',
		"sub/prog": "#!/bin/sh\necho prog in $(pwd)\n",
		"no-interpreter": "#!/no/such/interpreter\n",
		"no-format": "echo shells would run this\n",
		"no-mode": "#!/bin/sh\n",
	}
	for name, content in scripts.items():
		(tmp_path / name).write_text(content)
		if name != "no-mode":
			(tmp_path / name).chmod(0o755)
	with open(os.fsencode(tmp_path) + b"/\xff", "w") as f:
		f.write("not UTF-8")
	return tmp_path


def observe(run: Callable[..., Any], cmd: Any, kwargs: Dict[str, Any], cargs: Dict[str, Any]) -> Any:
	"""What a caller of Utils.run_process gets: a result, or all there is about an exception."""
	try:
		return run(cmd, dict(kwargs), dict(cargs))
	except Exception as e:
		details = {
			name: getattr(e, name, None) for name in ("filename", "filename2", "cmd", "timeout", "output", "stderr")
		}
		return type(e), e.args, str(e), details


class Case(NamedTuple):
	cmd: Any
	kwargs: Dict[str, Any] = {}
	cargs: Dict[str, Any] = {}
	reason: str = ""  # why it runs Waf's own way; empty if the engine runs it


BOTH = {"stdout": PIPE, "stderr": PIPE}
SHELL = {"shell": True, **BOTH}
LIMITED = {"start_new_session": True, **BOTH}
# readline puts these two into the environment of the process, but not into os.environ
ENVIRONMENT = "unset COLUMNS LINES; env | sort"
HANG = "echo one; echo two >&2; exec sleep 600"

CASES = {
	# how it ends
	"success": Case(["true"], BOTH),
	"status": Case(["sh", "-c", "echo out; echo err >&2; exit 3"], BOTH),
	"segmentation fault": Case(["sh", "-c", "kill -SEGV $$"], BOTH),
	"killed": Case(["sh", "-c", "echo before; kill -9 $$"], BOTH),
	"no newline, zero bytes": Case(["printf", r"a\0b\377"], BOTH),
	"output after the end": Case("(sleep 0.3; echo late) & echo early", SHELL),
	# the command
	"tuple": Case(("echo", "a  b"), BOTH),
	"bytes": Case([b"printf", b"%s", b"\xff"], BOTH),
	"bytes and text": Case(["printf", "%s%s", b"\xff", "\udcfe"], BOTH),
	"not UTF-8": Case(["cat", "\udcff"], BOTH),
	"path": Case(pathlib.Path("sub/prog"), BOTH),
	"paths": Case([pathlib.Path("sub/prog"), pathlib.Path("x")], BOTH),
	"text without shell": Case("./works", BOTH),
	"bytes without shell": Case(b"./works", BOTH),
	"empty argument": Case(["printf", "<%s>", "", "a"], BOTH),
	"shell": Case("echo $0 $((1 + 1)) | cat; exit 4", SHELL),
	"shell, bytes": Case(b"cat \xff", SHELL),
	"shell, list": Case(["echo $0 $1", "zero", "one"], SHELL),
	"shell, no such command": Case("no-such-command", SHELL),
	"many arguments": Case(["printf", "%s"] + ["x" * 100] * 10000, BOTH),
	# the folder
	"folder": Case(["pwd"], {"cwd": "/", **BOTH}),
	"relative folder": Case(["pwd"], {"cwd": "sub", **BOTH}),
	"folder above": Case(["pwd"], {"cwd": "sub/..", **BOTH}),
	"folder as bytes": Case(["pwd"], {"cwd": b"sub", **BOTH}),
	"folder as path": Case(["pwd"], {"cwd": pathlib.Path("sub"), **BOTH}),
	"command relative to the folder": Case(["./prog"], {"cwd": "sub", **BOTH}),
	"shell in a folder": Case("./prog", {"cwd": "sub", **SHELL}),
	# the environment
	"own environment": Case(ENVIRONMENT, {"env": None, **SHELL}),
	"os.environ": Case(ENVIRONMENT, {"env": os.environ, **SHELL}),
	"environment": Case(["/usr/bin/env"], {"env": {"A": "b=c", b"D": b"\xff", "E": "", "F": "\n"}, **BOTH}),
	"mapping": Case(["/usr/bin/env"], {"env": types.MappingProxyType({"A": "b"}), **BOTH}),
	"its PATH": Case(["works"], {"env": {"PATH": "/no/such:."}, **BOTH}),
	"empty folder in its PATH": Case(["works"], {"env": {"PATH": ":/bin"}, **BOTH}),
	"not in its PATH": Case(["env"], {"env": {"PATH": "/no/such"}, **BOTH}, "No such file"),
	"without PATH": Case(["env"], {"env": {"A": "b"}, **BOTH}),
	# standard input
	"no input": Case(["cat"], BOTH),
	"null device": Case(["cat"], {"stdin": DEVNULL, **BOTH}),
	"input": Case(["cat"], {"stdin": PIPE, **BOTH}, {"input": b"one\0two\n" * 1000}),
	"empty input": Case(["cat"], {"stdin": PIPE, **BOTH}, {"input": b""}),
	"pipe without input": Case(["cat"], {"stdin": PIPE, **BOTH}),
	"input that nobody reads": Case(["true"], {"stdin": PIPE, **BOTH}, {"input": b"x" * 1000000}),
	"the largest input": Case(["wc", "-c"], {"stdin": PIPE, **BOTH}, {"input": b"x" * (1 << 20)}),
	"larger input": Case(["wc", "-c"], {"stdin": PIPE, **BOTH}, {"input": b"x" * ((1 << 20) + 1)}, "input above"),
	"input as text": Case(["true"], {"stdin": PIPE, **BOTH}, {"input": "x"}, "input that is not"),
	"input without a pipe": Case(["cat"], {"stdin": DEVNULL, **BOTH}, {"input": b"x"}, "input that is not"),
	"input without a reader": Case(["true"], {"stdin": PIPE}, {"input": b"x"}, "a pipe as standard input"),
	# standard output and error
	"inherited": Case("echo out; echo err >&2", {"shell": True}),
	"inherited, explicitly": Case(
		"echo out; echo err >&2", {"shell": True, "stdin": None, "stdout": None, "stderr": None}
	),
	"only output": Case("echo out; echo err >&2", {"shell": True, "stdout": PIPE}),
	"only error": Case("echo out; echo err >&2", {"shell": True, "stderr": PIPE}),
	"error to output": Case("echo out; echo err >&2; echo out", {"shell": True, "stdout": PIPE, "stderr": STDOUT}),
	"error to inherited output": Case("echo out; echo err >&2", {"shell": True, "stderr": STDOUT}),
	"output to null": Case("echo out; echo err >&2", {"shell": True, "stdout": DEVNULL, "stderr": PIPE}),
	"both to null": Case("echo out; echo err >&2", {"shell": True, "stdout": DEVNULL, "stderr": DEVNULL}),
	"descriptor": Case("echo out; echo err >&2", {"shell": True, "stdout": 2, "stderr": 1}),
	"object without descriptor": Case(["true"], {"stdout": object(), "stderr": PIPE}, {}, "without a descriptor"),
	"closed descriptor": Case(["true"], {"stdout": 999, "stderr": PIPE}, {}, "Bad file descriptor"),
	"output to output": Case(["true"], {"stdout": STDOUT, "stderr": PIPE}, {}, "unknown kind of stream"),
	# time
	"time enough": Case(["echo", "x"], LIMITED, {"timeout": PATIENT}),
	"time enough as integer": Case(["echo", "x"], LIMITED, {"timeout": 60.0}),
	"time-out": Case(["sh", "-c", HANG], LIMITED, {"timeout": 1}),
	"time-out, shell": Case(HANG, {"shell": True, **LIMITED}, {"timeout": 1.0}),
	"time-out, children": Case("sleep 600 & " + HANG, {"shell": True, **LIMITED}, {"timeout": 1}),
	"time-out, only output": Case(HANG, {"shell": True, "stdout": PIPE, "start_new_session": True}, {"timeout": 1}),
	"time-out, inherited": Case(["sleep", "600"], {"start_new_session": True}, {"timeout": 0.2}),
	"time-out, input": Case(
		"cat; exec sleep 600", {"stdin": PIPE, "shell": True, **LIMITED}, {"input": b"x", "timeout": 1}
	),
	"no time-out": Case(["true"], BOTH, {"timeout": None}),
	"no time at all": Case(["sleep", "600"], LIMITED, {"timeout": 0}, "strange time-out"),
	"time-out without session": Case(["sleep", "600"], BOTH, {"timeout": 0.2}, "without a session"),
	"time-out as text": Case(["true"], LIMITED, {"timeout": "1"}, "strange time-out"),
	"unknown argument of communicate": Case(["true"], BOTH, {"no_such": 1}, "unknown arguments"),
	# arguments of Popen
	"session": Case([sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"], LIMITED),
	"harmless": Case(["echo", "x"], {"close_fds": True, "bufsize": -1, "preexec_fn": None, "text": None, **BOTH}),
	"preexec_fn": Case(["pwd"], {"preexec_fn": lambda: os.chdir("/"), **BOTH}, {}, "preexec_fn is given"),
	"text": Case(["echo", "x"], {"text": True, **BOTH}, {}, "text is given"),
	"universal_newlines": Case(["echo", "x"], {"universal_newlines": True, **BOTH}, {}, "universal_newlines is given"),
	"encoding": Case(["echo", "x"], {"encoding": "latin-1", **BOTH}, {}, "encoding is given"),
	"executable": Case(["x", "-c", "echo $0"], {"executable": "/bin/sh", **BOTH}, {}, "executable is given"),
	"close_fds": Case(["echo", "x"], {"close_fds": False, **BOTH}, {}, "close_fds is given"),
	"pass_fds": Case(["echo", "x"], {"pass_fds": (2,), **BOTH}, {}, "pass_fds is given"),
	"unknown": Case(["true"], {"no_such": 1, **BOTH}, {}, "no_such is given"),
	# what cannot be started
	"no such command": Case(["no-such-command", "x"], BOTH, {}, "No such file"),
	"no such path": Case(["./no-such-command"], BOTH, {}, "No such file"),
	"no such path, as path": Case([pathlib.Path("no/such/command")], BOTH, {}, "No such file"),
	"no such path, as bytes": Case([b"./\xff\xfe"], BOTH, {}, "No such file"),
	"no such command in a folder": Case(["no-such-command"], {"cwd": "sub", **BOTH}, {}, "No such file"),
	"no such folder": Case(["true"], {"cwd": "/no/such/folder", **BOTH}, {}, "No such file"),
	"no such folder, inherited": Case(["true"], {"cwd": "no-folder"}, {}, "No such file"),
	"neither": Case(["no-such-command"], {"cwd": "no-folder", **BOTH}, {}, "No such file"),
	"folder that is a file": Case(["true"], {"cwd": "works", **BOTH}, {}, "Not a directory"),
	"empty folder": Case(["true"], {"cwd": "", **BOTH}, {}, "empty folder"),
	"command that is a folder": Case(["./sub"], BOTH, {}, "Permission denied"),
	"not executable": Case(["./no-mode"], BOTH, {}, "Permission denied"),
	"not executable, in PATH": Case(["no-mode"], {"env": {"PATH": "."}, **BOTH}, {}, "Permission denied"),
	"no interpreter": Case(["./no-interpreter"], BOTH, {}, "No such file"),
	"no format": Case(["./no-format"], BOTH, {}, "Exec format error"),
	"a path through a file": Case(["./works/x"], BOTH, {}, "Not a directory"),
	"empty name": Case([""], BOTH, {}, "No such file|Permission denied"),
	"an argument too long": Case(["true", "x" * (1 << 18)], BOTH, {}, "Argument list too long"),
	"arguments too long for a frame": Case(["true", "x" * (9 << 20)], BOTH, {}, "larger than a frame"),
	"environment too long for a frame": Case(
		["true"], {"env": {"A": "x" * (9 << 20)}, **BOTH}, {}, "larger than a frame"
	),
	# what is no command
	"nothing": Case([], BOTH, {}, "empty command"),
	"none": Case(None, BOTH, {}, "neither text nor list"),
	"number": Case(["echo", 1], BOTH, {}, "argument"),
	"zero byte": Case(["echo", "a\0b"], BOTH, {}, "zero byte"),
	"zero byte in the folder": Case(["true"], {"cwd": "/a\0b", **BOTH}, {}, "zero byte"),
	"zero byte in the environment": Case(["true"], {"env": {"A": "a\0b"}, **BOTH}, {}, "zero byte"),
	"equals sign in a name": Case(["true"], {"env": {"A=B": "c"}, **BOTH}, {}, "illegal name"),
	"number as value": Case(["true"], {"env": {"A": 1}, **BOTH}, {}, "environment"),
	"no character": Case(["echo", "\ud800"], BOTH, {}, "argument"),
	"path with shell": Case(pathlib.Path("./works"), SHELL, {}, "neither text nor list"),
	"folder by number": Case(["true"], {"cwd": 1, **BOTH}, {}, "folder"),
}


# some are errors that Popen finds when the command runs already: then it is left to its fate, with a warning
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_a_command_does_what_it_does_without_us(
	case: Case, hook: prefork.Prefork, here: pathlib.Path, capfd: pytest.CaptureFixture
) -> None:
	"""The same result or exception, the same bytes to inherited streams; and through the engine wherever we say so."""
	expected = observe(Utils.run_regular_process, case.cmd, case.kwargs, case.cargs), capfd.readouterr()
	assert (observe(hook.run_process, case.cmd, case.kwargs, case.cargs), capfd.readouterr()) == expected
	assert len(hook.reasons) == (1 if case.reason else 0), hook.reasons
	for reason in hook.reasons:
		assert re.search(case.reason, reason)
	assert not hook.lost
	gc.collect()


def test_files_can_be_all_three_streams(hook: prefork.Prefork, here: pathlib.Path) -> None:
	"""As descriptors and as objects, at the position where they stand."""
	(here / "in").write_bytes(b"one\ntwo\n")
	for run in (Utils.run_regular_process, hook.run_process):
		with open("in", "rb", 0) as stdin, open("out", "wb", 0) as stdout, open("err", "wb", 0) as stderr:
			stdin.readline()
			stdout.write(b"before ")
			streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr.fileno()}
			assert run("cat; echo err >&2", {"shell": True, **streams}) == (0, None, None)
			stdout.write(b"after")
		assert [(here / name).read_bytes() for name in ("out", "err")] == [b"before two\nafter", b"err\n"]
	assert not hook.reasons


def test_large_outputs_are_whole(hook: prefork.Prefork) -> None:
	"""40 MB on both streams at once."""
	script = (
		"import sys\nfor n in range(640):\n\tfor f in (sys.stdout, sys.stderr): f.buffer.write(b'%06d ' % n * 9362)"
	)
	status, out, err = hook.run_process([sys.executable, "-c", script], BOTH)
	assert status == 0
	assert out == err == b"".join(b"%06d " % n * 9362 for n in range(640))
	assert not hook.reasons


def test_an_empty_environment_is_none_where_workers_take_it_so(hook: prefork.Prefork) -> None:
	"""Waf's workers do, and projects rely on it with "env=self.env.env", which is a list when it is not set."""
	expected = Utils.run_prefork_process(["env"], dict(BOTH), {})
	for worker in Utils.process_pool:
		worker.communicate()
	del Utils.process_pool[:]
	for env in ([], {}):
		assert sorted(hook.run_process(["env"], {"env": env, **BOTH})[1].split()) == sorted(expected[1].split())
		assert sorted(hook.run_own_way(["env"], {"env": env, **BOTH}, {}, "")[1].split()) == sorted(expected[1].split())
	assert hook.run_process(["/usr/bin/env"], {"env": {}, "stdin": DEVNULL, **BOTH}) == (0, b"", b"")


def test_a_terminal_as_input_is_left_to_waf(hook: prefork.Prefork, here: pathlib.Path) -> None:
	"""A command that asks its user something is in the terminal's own session."""
	primary, secondary = os.openpty()
	try:
		assert hook.run_process(["test", "-t", "0"], {"stdin": secondary, **BOTH}) == (0, b"", b"")
	finally:
		os.close(primary)
		os.close(secondary)
	assert dict(hook.reasons) == {"a terminal as standard input": 1}


def test_a_deleted_current_folder_is_left_to_waf(hook: prefork.Prefork, here: pathlib.Path) -> None:
	"""It has no path that could be sent, yet commands can run in it."""
	gone = here / "gone"
	gone.mkdir()
	os.chdir(str(gone))
	gone.rmdir()
	try:
		assert hook.run_process(["echo", "x"], BOTH) == (0, b"x\n", b"")
	finally:
		os.chdir(str(here))
	assert len(hook.reasons) == 1


DESCRIBE = """
umask; ulimit -a; nice; cat /proc/self/oom_score_adj /proc/self/cgroup /proc/self/coredump_filter
ls /proc/self/fd; chrt -p $$ | sed s/$$//
"""
# without a shell, which would change the signals
LIBC_SIGNALS = (32, 33)  # of glibc's own, which its posix_spawn ignores in children; Python 3.13 uses that at times
STATUS = ["grep", "-E", "Sig(Ign|Blk)|Cpus_allowed_list|NoNewPrivs|Cap|Groups|[UG]id", "/proc/self/status"]


def describe(run: Callable[..., Any]) -> List[Any]:
	"""The circumstances in which commands find themselves."""
	status = run(STATUS, BOTH)[1].decode()
	ignored = int(re.findall(r"SigIgn:\s*(\w+)", status)[0], 16)
	return [
		run(DESCRIBE, SHELL),
		re.sub(r"SigIgn:.*\n", "", status),
		[n for n in range(1, 65) if ignored >> (n - 1) & 1 and n not in LIBC_SIGNALS],
	]


@contextlib.contextmanager
def other_umask() -> Iterator[None]:
	old = os.umask(0o027)
	yield
	os.umask(old)


@contextlib.contextmanager
def other_limit() -> Iterator[None]:
	old = resource.getrlimit(resource.RLIMIT_NOFILE)
	resource.setrlimit(resource.RLIMIT_NOFILE, (200, old[1]))
	yield
	resource.setrlimit(resource.RLIMIT_NOFILE, old)


def read_processors() -> List[int]:
	"""Those that we may use; PyPy's os has no sched_getaffinity."""
	done = subprocess.run(["taskset", "-pc", str(os.getpid())], stdout=PIPE, check=True, timeout=PATIENT)
	ranges = [part.split("-") for part in done.stdout.decode().split(":")[1].split(",")]
	return [n for part in ranges for n in range(int(part[0]), int(part[-1]) + 1)]


def set_processors(*numbers: int) -> None:
	wanted = ",".join(map(str, numbers))
	subprocess.run(["taskset", "-apc", wanted, str(os.getpid())], stdout=DEVNULL, check=True, timeout=PATIENT)


@contextlib.contextmanager
def other_processors() -> Iterator[None]:
	old = read_processors()
	set_processors(old[-1])
	yield
	set_processors(*old)


@contextlib.contextmanager
def ignored_signal() -> Iterator[None]:
	old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
	yield
	signal.signal(signal.SIGUSR1, old)


@contextlib.contextmanager
def blocked_signal() -> Iterator[None]:
	old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
	yield
	signal.pthread_sigmask(signal.SIG_SETMASK, old)


@contextlib.contextmanager
def nothing_else() -> Iterator[None]:
	yield


@pytest.mark.parametrize(
	"change", [nothing_else, other_umask, other_limit, other_processors, ignored_signal, blocked_signal]
)
def test_commands_run_in_the_clients_own_circumstances(change: Callable[[], Any], hook: prefork.Prefork) -> None:
	"""Mask, limits, priority, processors, signals, groups and descriptors; also when they change in the middle."""
	before = describe(Utils.run_regular_process)
	assert describe(hook.run_process) == before
	with change():
		expected = describe(Utils.run_regular_process)
		found = describe(hook.run_process)
	assert found == expected
	assert (found != before) == (change is not nothing_else)
	assert describe(hook.run_process) == before
	assert not hook.reasons


def test_niceness_is_kept(waf: Any, project: Any) -> None:
	"""A build that was started with nice is nice, though the engine is not."""
	folder = project(
		{"wscript": "def options(opt):\n\topt.load('prefork')\ndef show(ctx):\n\tprint(ctx.cmd_and_log('nice'))\n"}
	)
	assert waf(folder, "show").stdout.split()[0] == str(os.nice(0))
	script = ["nice", "-n", "3", sys.executable, "-m", "waflib_extras.launcher", "show"]
	done = subprocess.run(script, cwd=folder, stdout=PIPE, check=True, timeout=PATIENT)
	assert done.stdout.split()[0] == b"%d" % (os.nice(0) + 3)


# ---- projects


WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c")
def configure(conf):
	conf.load("compiler_c")
	conf.check_cc(fragment="int main(void) { return 0; }", execute=True, msg="Checking whether programs run")
	conf.check_cc(header_name="no/such/header.h", mandatory=False)
	conf.check_cc(lib="m", uselib_store="M")
	conf.multicheck(
		{"header_name": "stdio.h", "msg": "first"},
		{"header_name": "no/such.h", "msg": "second", "mandatory": False},
		{"header_name": "string.h", "msg": "third"},
	)
	print("configured with %s" % conf.cmd_and_log(conf.env.CC + ["-dumpversion"]).strip())
	conf.write_config_header("config.h")
def build(bld):
	bld(rule='echo "int answer(void) { return 42; }" > ${TGT}', target="answer.c")
	bld.stlib(source="answer.c", target="answer")
	for n in range(6):
		bld.program(source="main.c", target="app%d" % n, use="answer M", defines=["N=%d" % n], idx=n + 10)
	bld(rule="./app3 > ${TGT}", source="app3", target="said.txt")
	bld(rule="cat ${SRC} ${SRC} > ${TGT}; echo note; echo warning >&2", source="said.txt", target="twice.txt")
"""
PROJECT = {
	"wscript": WSCRIPT,
	"main.c": """\
	#include <stdio.h>
	int answer(void);
	int main(void) { printf("%d %d\\n", N, answer()); return 0; }
	""",
}


def unite(text: str) -> str:
	"""A build's messages without times, the order of what runs at once, and the calls within a traceback."""
	text = re.sub(r"\(\d+(m\d+)?\.\d+s\)", "(TIME)", text)
	text = re.sub(r"\[ *\d+/(\d+)\]", r"[N/\1]", text)
	text = re.sub(r'(?m)^  File "[^\n]*\n(    [^\n]*\n)*', "", text)
	return "\n".join(sorted(text.splitlines()))


def read_tree(folder: pathlib.Path) -> Dict[str, bytes]:
	"""The outputs of a build. Waf's own records hold absolute paths and environments: they are not outputs."""
	found = {}
	for path in sorted((folder / "build").rglob("*")):
		name = str(path.relative_to(folder))
		if path.is_file() and not re.search(r"c4che|\.wafpickle|\.conf_check|\.lock-waf", name):
			found[name] = path.read_bytes()
	found.pop("build/config.log", None)
	if "build/config.h" in found:
		# tests of multicheck are entered in the order in which they end
		found["build/config.h"] = b"".join(sorted(found["build/config.h"].splitlines()))
	return found


def build_both_ways(waf: Any, folder: pathlib.Path, *args: str, **kwargs: Any) -> Tuple[Any, Any]:
	"""Build Waf's own way and through the engine, in the same folder, and check that nothing differs."""
	done = []
	for way in ({"env": {"WAF_NO_PREFORK": "1"}}, {"tools": "prefork"}):
		shutil.rmtree(folder / "build", ignore_errors=True)
		for lock in folder.glob(".lock-waf*"):
			lock.unlink()
		done.append((waf(folder, *args, **way, **kwargs), read_tree(folder)))
	(stock, stock_tree), (ours, our_tree) = done
	assert ours.returncode == stock.returncode
	assert unite(ours.stdout) == unite(stock.stdout)
	assert unite(ours.stderr) == unite(stock.stderr)
	assert our_tree == stock_tree
	return stock, ours


def read_status(engine: str) -> Dict[str, Any]:
	return json.loads(subprocess.run([engine, "status", "--json"], stdout=PIPE, check=True, timeout=PATIENT).stdout)


@pytest.mark.parametrize("jobs", ["-j1", "-j4"])
def test_a_project_builds_the_same(waf: Any, project: Any, engine: str, jobs: str) -> None:
	"""Compilers, rules, configuration tests: the same outputs, messages and configuration."""
	folder = project(PROJECT)
	_, ours = build_both_ways(waf, folder, "configure", "build", jobs)
	assert "configured with" in ours.stdout
	assert (folder / "build" / "twice.txt").read_text() == "3 42\n3 42\n"
	assert read_status(engine)["totals"]["succeeded"] > 20


@pytest.mark.parametrize("jobs", ["-j1", "-j4"])
def test_waf_2_0_builds_the_same(waf: Any, project: Any, engine: str, waf20: pathlib.Path, jobs: str) -> None:
	"""On 2.0.24, which hands its arguments to other parsers."""
	build_both_ways(waf, project(PROJECT), "configure", "build", jobs, wafdir=waf20)
	assert read_status(engine)["totals"]["succeeded"] > 20


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="Waf 2.0.12 is older than this Python")
def test_waf_2_0_12_builds_the_same(waf: Any, project: Any, engine: str, jack_sources: pathlib.Path) -> None:
	"""On the oldest Waf that we promise."""
	build_both_ways(waf, project(PROJECT), "configure", "build", wafdir=jack_sources)
	assert read_status(engine)["totals"]["succeeded"] > 20


@pytest.mark.parametrize("keep", [(), ("-k",), ("-kk",), ("-k", "-j1")])
def test_a_build_that_fails_fails_the_same(waf: Any, project: Any, keep: Tuple[str, ...]) -> None:
	"""The same status, messages of compilers and summary; with -k everything that can be built is."""
	rules = """
	bld(rule="echo kept > ${TGT}", target="kept.txt")
	bld.objects(source="broken.c", target="broken")
	bld(rule="echo why >&2; exit 3", name="three")
	bld(rule="kill -SEGV $$$$", name="segv")
	bld(rule="no-such-command-here", name="missing", shell=False)
	"""
	wscript = "def options(opt):\n\topt.load('compiler_c')\ndef configure(conf):\n\tconf.load('compiler_c')\n"
	folder = project(
		{"wscript": wscript + "def build(bld):" + rules, "broken.c": "int main(void) { return nothing; }\n"}
	)
	jobs = () if "-j1" in keep else ("-j2",)
	if keep:
		build_both_ways(waf, folder, "configure", "build", *keep, *jobs, status=1)
		assert (folder / "build" / "kept.txt").exists()
	else:
		# which tasks still run when one has failed is a matter of chance, so the first is the one that fails
		done = waf(folder, "configure", "build", "-j1", "--targets=three", tools="prefork", status=1)
		assert "why" in done.stderr + done.stdout
		assert "failed with exit status 3" in done.stderr


def test_a_command_can_write_as_it_runs(waf: Any, project: Any) -> None:
	"""With stdout=None a command has Waf's own streams, in the order of what is written to them."""
	wscript = """\
	import os
	def options(opt):
		opt.load("prefork")
	def build(bld):
		bld.add_pre_fun(lambda bld: os.write(1, b"first\\n"))
		bld(rule="echo second; echo error >&2; cat", stdout=None, stderr=None)
		bld.add_post_fun(lambda bld: os.write(1, b"third\\n"))
	def configure(conf):
		pass
	"""
	done = waf(project({"wscript": wscript}), "configure", "build", "--zones=prefork")
	assert [line for line in done.stdout.split() if line in ("first", "second", "third")] == [
		"first",
		"second",
		"third",
	]
	assert "error\n" in done.stderr
	assert "own way" not in done.stdout + done.stderr


def test_commands_have_input_and_time_limits(waf: Any, project: Any) -> None:
	"""As exec_command and cmd_and_log take them; the messages are Waf's."""
	wscript = """\
	from waflib import Context, Errors
	def show(ctx):
		print(ctx.cmd_and_log(["cat"], input=b"some input", quiet=Context.BOTH))
		print(ctx.cmd_and_log("cat >&2", input=b"other input", output=Context.STDERR, quiet=Context.BOTH))
		print(ctx.exec_command("cat; exit 7", input=b"printed"))
		print(ctx.cmd_and_log(["cat", "\\udcff"], output=Context.BOTH, quiet=Context.BOTH))
		for function in (ctx.exec_command, ctx.cmd_and_log):
			for arguments in ({"timeout": 0.3}, {"cwd": "/no/such/folder"}):
				try:
					function(["sleep", "600"], **arguments)
				except Errors.WafError as e:
					print(e.msg.splitlines()[0])
		try:
			ctx.cmd_and_log("echo out; echo err >&2; exit 9", quiet=Context.BOTH)
		except Errors.WafError as e:
			print(e.returncode, e.stdout, e.stderr, e.msg.splitlines()[0])
	"""
	folder = project({"wscript": wscript, os.fsdecode(b"\xff"): b"\xe9"})
	_, ours = build_both_ways(waf, folder, "show", "--zones=none")
	assert "some input" in ours.stdout
	assert "timed out after 0.3 seconds" in ours.stdout


@pytest.mark.parametrize(
	"load",
	[
		"def options(opt):\n\topt.load('prefork')\n\topt.load('prefork')\n",
		"def options(opt):\n\topt.load('prefork')\n\topt.load('waflib_extras.prefork')\n",
		"def options(opt):\n\topt.load('prefork', tooldir=%r)\n" % str(ROOT / "waflib_extras"),
		"def options(opt):\n\topt.load('prefork')\n\topt.load('prefork', tooldir=%r)\n" % str(ROOT / "waflib_extras"),
		"def options(opt):\n\topt.load('prefork')\n\topt.recurse('sub')\n",
		"def options(opt):\n\tpass\n",
	],
	ids=["twice", "two names", "tooldir", "name and tooldir", "two wscripts", "only in configure"],
)
@pytest.mark.parametrize("version", ["2.1", "2.0"])
def test_it_can_be_loaded_in_any_way(waf: Any, project: Any, request: Any, load: str, version: str) -> None:
	"""However often and under whatever name: one hook, one session, options that do not clash."""
	rest = """
def configure(conf):
	conf.load("prefork")
def build(bld):
	bld(rule="echo x > ${TGT}", target="x")
"""
	sub = "def options(opt):\n\topt.load('prefork')\n"
	folder = project({"wscript": load + rest, "sub/wscript": sub})
	wafdir = request.getfixturevalue("waf20") if version == "2.0" else None
	waf(folder, "configure", wafdir=wafdir)
	done = waf(folder, "build", "--zones=prefork", wafdir=wafdir)
	assert len(re.findall("status 0, waited", done.stderr + done.stdout)) == 1
	assert len(re.findall("1 commands sent to engine", done.stderr + done.stdout)) == 1


def test_variants_can_be_built_in_one_go(waf: Any, project: Any) -> None:
	"""Several build contexts, each loading the tool again."""
	wscript = """\
	from waflib.Build import BuildContext
	def options(opt):
		opt.load("prefork")
	def configure(conf):
		for variant in ("debug", "release"):
			conf.setenv(variant)
			conf.load("prefork")
	def build(bld):
		bld.load("prefork")
		bld(rule="echo ${bld.variant} > ${TGT}", target="x")
	for variant in ("debug", "release"):
		type(variant, (BuildContext,), {"cmd": "build_" + variant, "variant": variant})
	"""
	folder = project({"wscript": wscript})
	done = waf(folder, "configure", "build_debug", "build_release", "--zones=prefork")
	assert (folder / "build/debug/x").read_text() == "debug\n"
	assert (folder / "build/release/x").read_text() == "release\n"
	assert "2 commands sent to engine" in done.stdout + done.stderr


def test_waf_no_prefork_leaves_everything_alone(waf: Any, project: Any, runtime: pathlib.Path) -> None:
	"""No hook, no engine, no word."""
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


SHOW_HOOKS = """\
from waflib import Utils
def options(opt):
	opt.load("prefork")
def show(ctx):
	print(Utils.run_process.__module__, Utils.alloc_process_pool.__module__, ctx.cmd_and_log("echo x", quiet=0))
"""


def test_the_option_no_prefork_leaves_waf_as_it_is(waf: Any, project: Any, runtime: pathlib.Path) -> None:
	"""Its process pool included, without a word."""
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
		del Utils.prefork
	assert (Utils.run_process, Utils.alloc_process_pool) == before
	assert capfd.readouterr().err == "prefork: the engine runs on Linux only (going on without)\n"


def test_a_missing_engine_is_told_once(waf: Any, project: Any) -> None:
	"""One line with the remedy; then Waf is as it is."""
	done = waf(project({"wscript": SHOW_HOOKS}), "show", "show", env={"WAFD": "/no/such/wafd"})
	assert done.stdout.startswith("waflib.Utils waflib.Utils x")
	assert done.stderr == "prefork: WAFD=/no/such/wafd is no program: set it to the path of wafd (going on without)\n"


def test_an_engine_that_does_not_start_is_told_once(waf: Any, project: Any) -> None:
	"""Here another program was taken for it; the build is complete, with the standard input that it has by default."""
	folder = project({"wscript": SHOW_HOOKS.replace("echo x", "cat; echo x")})
	done = waf(folder, "show", "show", "--zones=prefork", env={"WAFD": "/bin/true"})
	assert re.findall("(?m)^.*going on without.*$", done.stderr) == [
		"prefork: /bin/true start: not understood: b'' (going on without)"
	]
	assert "2 commands Waf's own way" in done.stdout + done.stderr


def test_a_runtime_folder_that_cannot_be_is_told_once(waf: Any, project: Any, tmp_path: pathlib.Path) -> None:
	"""An unwritable place, here below a file."""
	(tmp_path / "file").write_text("")
	folder = project({"wscript": SHOW_HOOKS})
	done = waf(folder, "show", env={"WAFD_RUNTIME_DIR": str(tmp_path / "file" / "folder")})
	assert " x" in done.stdout
	assert len(done.stderr.splitlines()) == 1
	assert "set WAFD_RUNTIME_DIR to" in done.stderr


def test_zones_show_what_happens(waf: Any, project: Any) -> None:
	"""Every command, and in the end how many ran where and why; without the zone there is not a word."""
	wscript = """\
	import os
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		ctx.exec_command(["true"])
		ctx.exec_command(["true"], preexec_fn=os.getpid)
		ctx.exec_command(["true"], preexec_fn=os.getpid)
	"""
	folder = project({"wscript": wscript})
	done = waf(folder, "show", "--zones=prefork")
	shown = done.stdout + done.stderr
	assert re.search(r"status 0, waited .* MB: \['true'\]", shown)
	assert "Waf's own way: preexec_fn is given: ['true']" in shown
	assert re.search("1 commands sent to engine [0-9]+", shown)
	assert "2 commands Waf's own way: preexec_fn is given" in shown
	quiet = waf(folder, "show")
	assert "prefork" not in quiet.stdout + quiet.stderr


def test_the_options_are_explained(waf: Any, project: Any) -> None:
	"""In a group of their own."""
	shown = waf(project({"wscript": SHOW_HOOKS}), "--help").stdout
	for option in ("Prefork options", "--no-prefork", "--pin-process", "--own-slots", "--prefork-transport"):
		assert option in shown


def test_a_patched_popen_is_respected(waf: Any, project: Any) -> None:
	"""Whoever replaces it wants to see every command."""
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


# ---- options


def read_session(waf: Any, project: Any, engine: str, *args: str, **kwargs: Any) -> Tuple[Dict[str, Any], str]:
	"""What the engine says of a build's session, asked by a command of that build; and what the build said."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		ctx.exec_command("grep Cpus_allowed_list /proc/self/status > cpus; %s status --json > status")
	"""
	folder = project({"wscript": wscript % engine})
	done = waf(folder, "show", "--zones=prefork", *args, **kwargs)
	(session,) = json.loads((folder / "status").read_text())["sessions"]
	session["processors"] = (folder / "cpus").read_text().split()[1]
	return session, done.stdout + done.stderr


def test_the_engine_knows_the_build(waf: Any, project: Any, engine: str, tmp_path: pathlib.Path) -> None:
	"""Its folder, its process, its jobs."""
	session, _ = read_session(waf, project, engine, "-j7")
	assert session["name"] == str(tmp_path / "project")
	assert session["jobs"] == 7


def test_commands_can_be_pinned(waf: Any, project: Any, engine: str) -> None:
	"""Each to one processor of those that the build may use."""
	session, _ = read_session(waf, project, engine, "--pin-process")
	assert session["processors"].isdigit()
	assert int(session["processors"]) in read_processors()


def test_slots_can_be_ones_own(waf: Any, project: Any, engine: str) -> None:
	"""Only when asked for."""
	assert read_session(waf, project, engine, "--own-slots")[0]["own_slots"] is True
	assert read_session(waf, project, engine)[0]["own_slots"] is False


@pytest.mark.parametrize("way", [{"args": ("--prefork-transport=tcp",)}, {"env": {"WAF_PREFORK_TRANSPORT": "tcp"}}])
def test_commands_can_go_over_tcp(waf: Any, project: Any, runtime: pathlib.Path, way: Dict[str, Any]) -> None:
	"""By an option or a variable; what needs descriptors then runs Waf's own way."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		print(ctx.cmd_and_log("echo captured"))
		ctx.exec_command("echo streamed", stdout=None)
	"""
	done = waf(project({"wscript": wscript}), "show", "--zones=prefork", *way.get("args", ()), env=way.get("env"))
	shown = done.stdout + done.stderr
	assert "captured\n" in shown
	assert "streamed\n" in shown
	assert "1 commands sent to engine" in shown
	assert "1 commands Waf's own way: descriptors cannot go over TCP" in shown
	assert list(runtime.glob("*.tcp"))


def test_an_unknown_transport_is_one_line(waf: Any, project: Any) -> None:
	"""It names the variable and the remedy."""
	done = waf(project({"wscript": SHOW_HOOKS}), "show", env={"WAF_PREFORK_TRANSPORT": "pigeon"}, status=1)
	assert done.stderr == "WAF_PREFORK_TRANSPORT is 'pigeon': set it to unix or tcp\n"


def test_commands_before_the_options_are_known_run_too(waf: Any, project: Any, engine: str) -> None:
	"""In options(); the session is made anew when -j is known."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
		opt.cmd_and_log("echo early > early")
	def show(ctx):
		ctx.exec_command("%s status --json > status")
	"""
	folder = project({"wscript": wscript % engine})
	waf(folder, "show", "-j5")
	assert (folder / "early").read_text() == "early\n"
	(session,) = json.loads((folder / "status").read_text())["sessions"]
	assert session["jobs"] == 5


# ---- accidents


def test_a_build_survives_its_engine(waf: Any, project: Any, engine: str) -> None:
	"""Killed in the middle by one of its own commands, while others run: all outputs are there, and whole."""
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
	"""After a few it goes on without, and says so once."""
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
	"""Wait until there is something."""
	deadline = time.monotonic() + PATIENT
	while time.monotonic() < deadline:
		found = condition()
		if found:
			return found
		time.sleep(0.01)
	pytest.fail("nothing came within %d seconds" % PATIENT)


class Hanging(NamedTuple):
	"""A build whose commands do not end, and the processes of those."""

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
	"""And their children; Waf's status is what it is without us."""
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


def test_a_stopped_engine_does_not_stop_a_build(
	waf: Any, project: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""Stopped before the build starts: it is waited for until the deadline, and then done without."""
	subprocess.run([engine, "start"], check=True, stdout=DEVNULL, timeout=PATIENT)
	pid = read_status(engine)["pid"]
	os.kill(pid, signal.SIGSTOP)
	try:
		done = waf(project({"wscript": SHOW_HOOKS}), "show")
	finally:
		os.kill(pid, signal.SIGCONT)
	assert " x" in done.stdout
	assert "does not answer the greeting within 5 seconds (going on without)" in done.stderr


# ---- playground


@pytest.fixture
def playground(tmp_path: pathlib.Path) -> pathlib.Path:
	return pathlib.Path(shutil.copytree(ROOT / "playground" / "prefork", tmp_path / "playground"))


def test_the_playground_works(waf: Any, playground: pathlib.Path) -> None:
	"""It shows what it promises, with and without the engine."""
	done = waf(playground, "configure", "build", "check", "--zones=prefork")
	shown = done.stdout + done.stderr
	for line in ("hello while it runs", "hello, somebody", "timed out after 0.5 seconds"):
		assert line in shown
	assert "own way" not in shown
	assert "hello, somebody" in waf(playground, "clean", "build", "check", "--no-prefork").stdout
