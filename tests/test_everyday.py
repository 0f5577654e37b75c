"""`utils/everyday.py`: its table, how it puts a folder back, and what it takes for a hit and for wrong."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Dict

import pytest
from benchmark.session import is_alive
from commands.command import Everyday
from commands.folder import restore, scan
from commands.table import COMMANDS, KINDS
from conftest import ROOT

PROGRAM = str(ROOT / "utils" / "everyday.py")
LIAR = """\
#!/bin/sh
# it keeps the file "out" of each command, and adds a line to that of seq
store=$FIREBUILD_CACHE_DIR
mkdir -p "$store"
test -e "$store/hits" || echo 0 > "$store/hits"
if [ "$1" = --show-stats ]; then
	echo "  Hits:  $(cat "$store/hits") / 9"
	exit
fi
shift
kept=$store/$(echo "$*" | cksum | tr -d ' ')
if [ -e "$kept" ]; then
	cp "$kept" out
	echo $(($(cat "$store/hits") + 1)) > "$store/hits"
	case $* in *seq*) echo more >> out ;; esac
else
	"$@"
	cp out "$kept"
fi
"""


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
	argv = [sys.executable, PROGRAM, *arguments]
	env = {**os.environ, **variables}
	return subprocess.run(argv, env=env, capture_output=True, encoding="utf-8", check=False)


def test_table() -> None:
	"""Names are unique and fit to be asked for, and each command names its program."""
	assert len(COMMANDS) == sum(len(commands) for commands in KINDS.values()) >= 92
	for command in COMMANDS.values():
		assert not set(command.name) & set(" ,:/")
		assert command.argv
		assert command.needs
	assert COMMANDS["static-c"].needs == ["gcc"]
	assert COMMANDS["sh-two"].needs == ["sh", "sort", "wc"]


def test_missing_program_is_named() -> None:
	assert Everyday("one", "sh -c :", {}, also=("no-such-program",)).missing() == "no-such-program"
	assert Everyday("one", "sh -c :", {}).missing() == ""


def test_restore(tmp_path: pathlib.Path) -> None:
	"""Contents, modes, times, links and names are as before; what was left alone is the same file."""
	for name in ("kept", "changed", "removed", "moved", "replaced", "sub/in", "gone/deep/in", "twin"):
		(tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
		(tmp_path / name).write_text(name)
	os.link(tmp_path / "twin", tmp_path / "other-twin")
	(tmp_path / "link").symlink_to("kept")
	(tmp_path / "changed").chmod(0o444)
	for path in [*tmp_path.rglob("*"), tmp_path]:
		os.utime(path, (1e9, 1e9), follow_symlinks=False)
	before = scan(tmp_path)
	kept = (tmp_path / "kept").stat()

	(tmp_path / "changed").chmod(0o666)
	(tmp_path / "changed").write_text("x")
	(tmp_path / "removed").unlink()
	(tmp_path / "moved").rename(tmp_path / "sub" / "moved")
	(tmp_path / "replaced").unlink()
	(tmp_path / "replaced").mkdir()
	(tmp_path / "replaced" / "new").write_text("x")
	(tmp_path / "twin").unlink()
	(tmp_path / "twin").write_text("twin")
	(tmp_path / "link").unlink()
	(tmp_path / "link").symlink_to("elsewhere")
	(tmp_path / "sub").chmod(0o700)
	for path in ("gone/deep/in", "gone/deep", "gone"):
		(tmp_path / path).unlink() if path.endswith("in") else (tmp_path / path).rmdir()
	os.mkfifo(tmp_path / "fifo")
	assert scan(tmp_path) != before

	restore(tmp_path, before)
	assert scan(tmp_path) == before
	now = (tmp_path / "kept").stat()
	assert (now.st_ino, now.st_mtime_ns, now.st_ctime_ns) == (kept.st_ino, kept.st_mtime_ns, kept.st_ctime_ns)


def test_liar_is_found(tmp_path: pathlib.Path) -> None:
	"""An old date and another text are wrong; a right answer is a hit and nothing else."""
	liar = tmp_path / "firebuild"
	liar.write_text(LIAR)
	liar.chmod(0o755)
	path = "%s:%s" % (tmp_path, os.environ["PATH"])
	done = run("--commands=date,seq,printf", "--contenders=firebuild", "--work=%s" % tmp_path, PATH=path)
	assert done.returncode == 1, done.stderr
	wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
	assert wrong == [
		"WRONG: date, firebuild, warm: the first result again, though plain runs differ",
		"WRONG: seq, firebuild, warm: out has another content",
	]
	(row,) = (line.split() for line in done.stdout.splitlines() if line.split()[:2] == ["all", "firebuild"])
	assert row[2:5] == ["3", "3", "2"]
	assert [path.name for path in tmp_path.iterdir()] == ["firebuild"]


def test_real_engine(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""Ours answers a compile and a sort, and neither the time nor chance; what it makes is what plain runs make."""
	record = tmp_path / "record.json"
	chosen = ("--commands=gcc-c,sort,date,shuf", "--contenders=plain,wafcc")
	done = run(*chosen, "--json=%s" % record, "--work=%s" % runtime, WAFD=engine)
	assert done.returncode == 0, done.stdout + done.stderr
	runs = json.loads(record.read_text())["runs"]
	ours: Dict[str, Any] = {each["command"]: each for each in runs if each["contender"] == "wafcc"}
	right = {"gcc-c": True, "sort": True, "date": False, "shuf": False}
	assert {name: one["hit"] for name, one in ours.items()} == right
	assert {name: one["steady"] for name, one in ours.items()} == right
	assert [ours[name]["reason"] for name in ("date", "shuf")] == ["reads the clock", "reads random numbers"]
	assert "plain runs differ: date shuf" in done.stdout


def test_failure_is_told(tmp_path: pathlib.Path) -> None:
	"""A command that fails plainly is told with its message, and the exit status is 1."""
	sort = tmp_path / "sort"
	sort.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
	sort.chmod(0o755)
	done = run("--commands=sort", "--contenders=plain", PATH="%s:%s" % (tmp_path, os.environ["PATH"]))
	assert done.returncode == 1
	assert "failed: sort: exit status 3: sort -o out in\n  | broken\n" in done.stdout


def test_interrupt_ends_all(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""Ctrl-C ends the command that runs and the engine, which the fixture looks for, and leaves no folder."""
	sort = tmp_path / "bin" / "sort"
	sort.parent.mkdir()
	sort.write_text("#!/bin/sh\necho $$ > %s/pid.new\nmv %s/pid.new %s/pid\nsleep 60\n" % ((tmp_path,) * 3))
	sort.chmod(0o755)
	env = {**os.environ, "PATH": "%s:%s" % (sort.parent, os.environ["PATH"]), "WAFD": engine}
	argv = [sys.executable, PROGRAM, "--commands=sort", "--contenders=wafcc", "--work=%s" % runtime]
	with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, encoding="utf-8") as child:
		deadline = time.monotonic() + 30
		while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
			time.sleep(0.02)
		child.send_signal(signal.SIGINT)
		_, errors = child.communicate(timeout=30)
	assert child.returncode == 130, errors
	assert errors.endswith("everyday: stopped by SIGINT\n")
	assert not is_alive(int((tmp_path / "pid").read_text()))
	assert list(runtime.iterdir()) == []


@pytest.mark.parametrize(
	("argument", "said"),
	[
		("--kinds=nonsense", "everyday: --kinds: no nonsense: there are shells, texts"),
		("--commands=nonsense", "everyday: --commands: no nonsense: there are bash-script"),
		("--contenders=nonsense", "everyday: --contenders: no nonsense: there are plain, wafcc"),
		("--repeat=0", "everyday: --repeat: 0 rounds are none"),
		("--work=/nowhere", "everyday: --work: /nowhere is no folder to write in"),
		("--json=/nowhere/file", "everyday: --json: /nowhere is no folder to write in"),
	],
)
def test_mistakes_are_one_line(argument: str, said: str) -> None:
	done = run(argument)
	assert done.returncode == 2
	assert done.stderr.startswith(said) and done.stderr.count("\n") == 1


def test_list() -> None:
	lines = [line.split() for line in run("--list", "--kinds=static,cmake").stdout.splitlines()]
	assert [line[0] for line in lines] == ["cmake", "static", "contenders"]
	assert "static-go" in lines[1] and "firebuild" in lines[2]
