"""
Commands through the engine and Waf's own way: each does the same both ways.

That nothing changes is the main promise of the tool prefork, so most of its tests do a thing both ways, and compare.
"""

import contextlib
import gc
import os
import pathlib
import re
import subprocess
import sys
import types
from typing import Any, Callable, Dict, NamedTuple

import pytest
from prefork_probes import BOTH, DEVNULL, PATIENT, PIPE, SHELL, STDOUT
from waflib import Utils

from waflib_extras import prefork


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
	"""The current folder, with some obstacles for commands."""
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
	"""The result that a caller of Utils.run_process gets, or all properties of its exception."""
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
	reason: str = ""  # the reason why it runs Waf's own way; empty if the engine runs it


LIMITED = {"start_new_session": True, **BOTH}
# readline puts these two into the environment of the process, but not into os.environ
ENVIRONMENT = "unset COLUMNS LINES; env | sort"
HANG = "echo one; echo two >&2; exec sleep 600"

CASES: Dict[str, Dict[str, Case]] = {
	"how it ends": {
		"success": Case(["true"], BOTH),
		"status": Case(["sh", "-c", "echo out; echo err >&2; exit 3"], BOTH),
		"segmentation fault": Case(["sh", "-c", "kill -SEGV $$"], BOTH),
		"killed": Case(["sh", "-c", "echo before; kill -9 $$"], BOTH),
		"no newline, zero bytes": Case(["printf", r"a\0b\377"], BOTH),
		"output after the end": Case("(sleep 0.3; echo late) & echo early", SHELL),
	},
	"the command": {
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
	},
	"the folder": {
		"folder": Case(["pwd"], {"cwd": "/", **BOTH}),
		"relative folder": Case(["pwd"], {"cwd": "sub", **BOTH}),
		"folder above": Case(["pwd"], {"cwd": "sub/..", **BOTH}),
		"folder as bytes": Case(["pwd"], {"cwd": b"sub", **BOTH}),
		"folder as path": Case(["pwd"], {"cwd": pathlib.Path("sub"), **BOTH}),
		"command relative to the folder": Case(["./prog"], {"cwd": "sub", **BOTH}),
		"shell in a folder": Case("./prog", {"cwd": "sub", **SHELL}),
	},
	"the environment": {
		"own environment": Case(ENVIRONMENT, {"env": None, **SHELL}),
		"os.environ": Case(ENVIRONMENT, {"env": os.environ, **SHELL}),
		"environment": Case(["/usr/bin/env"], {"env": {"A": "b=c", b"D": b"\xff", "E": "", "F": "\n"}, **BOTH}),
		"mapping": Case(["/usr/bin/env"], {"env": types.MappingProxyType({"A": "b"}), **BOTH}),
		"its PATH": Case(["works"], {"env": {"PATH": "/no/such:."}, **BOTH}),
		"empty folder in its PATH": Case(["works"], {"env": {"PATH": ":/bin"}, **BOTH}),
		"not in its PATH": Case(["env"], {"env": {"PATH": "/no/such"}, **BOTH}, "No such file"),
		"without PATH": Case(["env"], {"env": {"A": "b"}, **BOTH}),
	},
	"standard input": {
		"no input": Case(["cat"], BOTH),
		"null device": Case(["cat"], {"stdin": DEVNULL, **BOTH}),
		"input": Case(["cat"], {"stdin": PIPE, **BOTH}, {"input": b"one\0two\n" * 1000}),
		"empty input": Case(["cat"], {"stdin": PIPE, **BOTH}, {"input": b""}),
		"pipe without input": Case(["cat"], {"stdin": PIPE, **BOTH}),
		"input that is not read": Case(["true"], {"stdin": PIPE, **BOTH}, {"input": b"x" * 1000000}),
		"the largest input": Case(["wc", "-c"], {"stdin": PIPE, **BOTH}, {"input": b"x" * (1 << 20)}),
		"larger input": Case(["wc", "-c"], {"stdin": PIPE, **BOTH}, {"input": b"x" * ((1 << 20) + 1)}, "input above"),
		"input as text": Case(["true"], {"stdin": PIPE, **BOTH}, {"input": "x"}, "input that is not"),
		"input without a pipe": Case(["cat"], {"stdin": DEVNULL, **BOTH}, {"input": b"x"}, "input that is not"),
		"input without a reader": Case(["true"], {"stdin": PIPE}, {"input": b"x"}, "a pipe as standard input"),
	},
	"standard output and error": {
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
	},
	"time": {
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
	},
	"arguments of Popen": {
		"session": Case([sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"], LIMITED),
		"harmless": Case(["echo", "x"], {"close_fds": True, "bufsize": -1, "preexec_fn": None, "text": None, **BOTH}),
		"preexec_fn": Case(["pwd"], {"preexec_fn": lambda: os.chdir("/"), **BOTH}, {}, "preexec_fn is given"),
		"text": Case(["echo", "x"], {"text": True, **BOTH}, {}, "text is given"),
		"universal_newlines": Case(
			["echo", "x"], {"universal_newlines": True, **BOTH}, {}, "universal_newlines is given"
		),
		"encoding": Case(["echo", "x"], {"encoding": "latin-1", **BOTH}, {}, "encoding is given"),
		"executable": Case(["x", "-c", "echo $0"], {"executable": "/bin/sh", **BOTH}, {}, "executable is given"),
		"close_fds": Case(["echo", "x"], {"close_fds": False, **BOTH}, {}, "close_fds is given"),
		"pass_fds": Case(["echo", "x"], {"pass_fds": (2,), **BOTH}, {}, "pass_fds is given"),
		"unknown": Case(["true"], {"no_such": 1, **BOTH}, {}, "no_such is given"),
	},
	"what cannot be started": {
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
	},
	"what is no command": {
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
	},
}


# some are errors that Popen finds when the command runs already; it is left behind then, with a warning
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", CASES)
def test_a_command_does_what_it_does_without_us(
	kind: str, hook: prefork.Prefork, here: pathlib.Path, capfd: pytest.CaptureFixture
) -> None:
	"""Result or exception and output are the same, and the commands listed so run in the engine."""
	for name, case in CASES[kind].items():
		expected = observe(Utils.run_regular_process, case.cmd, case.kwargs, case.cargs), capfd.readouterr()
		found = observe(hook.run_process, case.cmd, case.kwargs, case.cargs), capfd.readouterr()
		assert found == expected, name
		assert len(hook.reasons) == (1 if case.reason else 0), (name, hook.reasons)
		for reason in hook.reasons:
			assert re.search(case.reason, reason), name
		assert not hook.lost, name
		hook.reasons.clear()
		end_strays()


def end_strays() -> None:
	"""Wait for a process that ``Popen`` has left, before its pipes are closed in another test."""
	gc.collect()
	for stray in list(subprocess._active):  # type: ignore[attr-defined]
		for stream in filter(None, (stray.stdin, stray.stdout, stray.stderr)):
			with contextlib.suppress(BrokenPipeError):
				stream.close()
		stray.kill()
		stray.wait(PATIENT)
	subprocess._cleanup()  # type: ignore[attr-defined]


def test_files_can_be_all_three_streams(hook: prefork.Prefork, here: pathlib.Path) -> None:
	"""Files are accepted as descriptors and as objects, and are used at their present position."""
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
	"""Waf's workers do so, and projects rely on it: "env=self.env.env" is an empty list if it is not set."""
	expected = Utils.run_prefork_process(["env"], dict(BOTH), {})
	for worker in Utils.process_pool:
		worker.communicate()
	del Utils.process_pool[:]
	for env in ([], {}):
		assert sorted(hook.run_process(["env"], {"env": env, **BOTH})[1].split()) == sorted(expected[1].split())
		assert sorted(hook.run_own_way(["env"], {"env": env, **BOTH}, {}, "")[1].split()) == sorted(expected[1].split())
	assert hook.run_process(["/usr/bin/env"], {"env": {}, "stdin": DEVNULL, **BOTH}) == (0, b"", b"")


def test_a_terminal_as_input_is_left_to_waf(hook: prefork.Prefork, here: pathlib.Path) -> None:
	"""A command that asks the user something needs a process in the terminal's session."""
	primary, secondary = os.openpty()
	try:
		assert hook.run_process(["test", "-t", "0"], {"stdin": secondary, **BOTH}) == (0, b"", b"")
	finally:
		os.close(primary)
		os.close(secondary)
	assert dict(hook.reasons) == {"a terminal as standard input": 1}


def test_a_deleted_current_folder_is_left_to_waf(hook: prefork.Prefork, here: pathlib.Path) -> None:
	"""The folder has no path that could be sent, yet commands can run in it."""
	gone = here / "gone"
	gone.mkdir()
	os.chdir(str(gone))
	gone.rmdir()
	try:
		assert hook.run_process(["echo", "x"], BOTH) == (0, b"x\n", b"")
	finally:
		os.chdir(str(here))
	assert len(hook.reasons) == 1
