"""Commands that fail are hits on request, if the reason is surely in what they depend on."""

import os
import pathlib
import shutil
import subprocess
import time
from typing import Any, Dict, Iterator

import pytest
from cache_support import COMPILERS, PATIENCE, Lab, in_turn
from room_server import Room
from test_cache_facts import Facts
from test_cache_proofs import configure, prove, wait
from tier_support import Make

pytestmark = pytest.mark.timeout(4 * PATIENCE)

FAILED = "it failed"
WRONG = '#include "a.h"\nint f(void) { return A + missing; }\nint g(void) { int unused; return f(1, 2); }\n'
LINE = "gcc -Wall -O1 -c a.c -o a.o"


@pytest.fixture
def lab(lab: Lab) -> Lab:
	"""A source with two errors and a warning."""
	configure(lab, "cache_failures=yes")
	lab.write("a.h", "#define A 1\n")
	lab.write("a.c", WRONG)
	time.sleep(0.1)  # what was written just before a command is not trusted
	return lab


def fail(lab: Lab, line: str = LINE, **env: str) -> str:
	"""Run a compile that fails, with and without the cache. Returns the verdict."""
	said = lab.same(line, **env)
	assert lab.run_plain(line, **env).status != 0
	return said


@in_turn("flags", ["-c", "-g -c -MD -MF a.d", "-S -O2", "-c -fdiagnostics-color=always"])
def test_a_compile_that_fails_is_a_hit(cc: str, flags: str, lab: Lab) -> None:
	"""It has the same messages and the same status, and leaves as little."""
	line = "%s %s -Wall a.c -o a.o" % (cc, flags)
	assert fail(lab, line).startswith("miss")
	assert fail(lab, line).startswith("hit")
	lab.write("a.h", "#define A 2\n")
	time.sleep(0.1)
	assert fail(lab, line).startswith("miss")
	lab.write("a.c", WRONG.replace("missing", "2").replace("f(1, 2)", "f()"))
	time.sleep(0.1)
	assert lab.same(line).startswith("miss")
	assert lab.run(line, True).status == 0


def test_it_is_off_by_default(lab: Lab) -> None:
	"""Switched off, a stored failure is no hit, and none is stored."""
	fail(lab)
	assert fail(lab).startswith("hit")
	configure(lab, "cache_failures=no")
	assert not fail(lab).startswith("hit")
	assert FAILED in fail(lab, LINE + " -DX")
	assert FAILED in fail(lab, LINE + " -DX")


@in_turn("name", ["<late.h>", '"late.h"'])
def test_a_header_that_comes_later(cc: str, name: str, lab: Lab) -> None:
	"""A missing header is a hit as long as it is missing, in each folder where it was looked for."""
	lab.write("a.c", "#include %s\nint a = LATE;\n" % name)
	(lab.folder / "one").mkdir()
	time.sleep(0.1)
	line = "%s -Ione -Itwo -c a.c -o a.o" % cc
	fail(lab, line)
	assert fail(lab, line).startswith("hit")
	lab.write("two/late.h", "#define LATE 2\n")
	time.sleep(0.1)
	assert not lab.same(line).startswith("hit")
	assert lab.run(line, True).status == 0
	lab.write("one/late.h", "#error no\n")
	time.sleep(0.1)
	assert not fail(lab, line).startswith("hit")
	shutil.rmtree(lab.folder / "two")
	shutil.rmtree(lab.folder / "one")
	(lab.folder / "one").mkdir()
	fail(lab, line)
	assert fail(lab, line).startswith("hit")


def test_warnings_that_are_errors(lab: Lab) -> None:
	lab.write("a.c", "int g(void) { int unused; return 1; }\n")
	time.sleep(0.1)
	line = LINE + " -Werror"
	fail(lab, line)
	assert fail(lab, line).startswith("hit")


@in_turn("made", ["a.o", "a.d"])
def test_an_output_that_was_there_before(cc: str, made: str, lab: Lab) -> None:
	"""The compiler may remove it, so the command itself runs."""
	line = "%s -c -MD -MF a.d a.c -o a.o" % cc
	fail(lab, line)
	assert fail(lab, line).startswith("hit")
	left = []
	for cached in (True, False):
		lab.write(made, "old\n")
		time.sleep(0.1)
		lab.run(line, cached)
		left.append((lab.folder / made).exists())
	assert left[0] == left[1]
	(lab.folder / made).unlink(missing_ok=True)
	assert fail(lab, line).startswith("hit")


def limited(lab: Lab, limits: str, line: str) -> Any:
	"""The result of a command with limits."""
	argv = ["sh", "-c", "%s; exec %s %s" % (limits, lab.wafcc, line)]
	return subprocess.run(argv, cwd=lab.folder, env=lab.environ, capture_output=True, timeout=PATIENCE)


@pytest.mark.parametrize("limits", ["ulimit -f 1", "ulimit -v 40000", "ulimit -t 0", "ulimit -n 4"])
def test_limits(limits: str, lab: Lab) -> None:
	"""What fails because of the limits of its process is no hit without them."""
	fail(lab)
	text = "".join(
		"int f%d(int a) { return a * %d; }\n" % (n, n) for n in range(2000 if "-t" in limits or "-v" in limits else 100)
	)
	lab.write("large.c", text)
	time.sleep(0.1)
	line = "gcc -c large.c -o large.o"
	for _ in range(2):
		limited(lab, limits, line)
		(lab.folder / "large.o").unlink(missing_ok=True)
	assert lab.run(line, True).status == 0
	if "-t" in limits:
		return  # chance decides where it ends
	# A source with errors fails with limits, too, and perhaps in another way.
	plain = limited(lab, limits, LINE.replace("gcc", shutil.which("gcc") or "gcc"))
	assert limited(lab, limits, LINE).returncode == plain.returncode


def test_limits_count(lab: Lab) -> None:
	"""A failure with other limits may have another reason, so it is no hit."""
	fail(lab)
	assert fail(lab).startswith("hit")
	for expected in ("miss", "hit"):
		assert limited(lab, "ulimit -f 100000", LINE).returncode == 1
		assert lab.explain(lab.folder / "a.o").startswith(expected)
	assert fail(lab).startswith("hit")


WRAPPER = """\
#!/bin/sh
if [ -e {here}/broken ]; then
	echo "a.c:1:1: {what}" >&2
	exit 1
fi
exec gcc "$@"
"""
ACCIDENTS = ["fatal error: error writing to x: No space left on device", "internal compiler error: no"]


@pytest.mark.parametrize("what", ACCIDENTS)
def test_an_accident_that_a_compiler_reports(what: str, lab: Lab) -> None:
	"""A compiler that failed for a reason that cannot be seen is asked again."""
	lab.write("a.c", "int a;\n")
	lab.write("gcc", WRAPPER.replace("{here}", str(lab.folder)).replace("{what}", what)).chmod(0o755)
	(lab.folder / "broken").touch()
	time.sleep(0.1)
	line = "%s/gcc -c a.c -o a.o" % lab.folder
	for _ in range(2):
		assert lab.run(line, True).status == 1
		assert not lab.explain(lab.folder / "a.o").startswith("hit")
	(lab.folder / "broken").unlink()
	assert lab.run(line, True).status == 0


def test_a_compiler_that_is_killed(lab: Lab) -> None:
	"""Its part gets a signal while it compiles, and the next request compiles."""
	body = "".join("int f%d(int a) { return a * %d + f(a); }\n" % (n, n) for n in range(800))
	lab.write("long.c", "int f(int);\n" + body)
	time.sleep(0.1)
	argv = [lab.wafcc, "gcc", "-O2", "-c", "long.c", "-o", "long.o"]
	with subprocess.Popen(argv, cwd=lab.folder, env=lab.environ, stderr=subprocess.PIPE) as running:
		deadline = time.monotonic() + PATIENCE
		while not kill_parts(str(lab.folder)):
			assert time.monotonic() < deadline and running.poll() is None
			time.sleep(0.01)
		running.communicate(timeout=PATIENCE)
	assert running.returncode != 0
	assert not (lab.folder / "long.o").exists()
	assert lab.run("gcc -O2 -c long.c -o long.o", True).status == 0


def kill_parts(folder: str) -> bool:
	"""Kill the parts of compilers that run in a folder. Returns whether there were any."""
	found = False
	for process in pathlib.Path("/proc").glob("[0-9]*"):
		try:
			is_part = (process / "comm").read_text().startswith("cc1")
			if is_part and os.readlink(process / "cwd") == folder:
				os.kill(int(process.name), 9)
				found = True
		except OSError:
			continue
	return found


@pytest.fixture
def disk(lab: Lab) -> Iterator[pathlib.Path]:
	"""A disk that is nearly full."""
	at = lab.folder / "disk"
	at.mkdir()
	if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(at)], capture_output=True).returncode:
		pytest.skip("only root can mount a small disk")
	yield at
	subprocess.run(["umount", str(at)], check=True)


@pytest.mark.parametrize("cc", [name for name in ("gcc", "clang") if name in COMPILERS])
def test_a_full_disk(cc: str, disk: pathlib.Path, lab: Lab) -> None:
	"""A compiler blames a line of the source when it cannot write its result. With room again, it compiles."""
	text = "".join("int f%d(int a) { return a * %d; }\n" % (n, n) for n in range(1500))
	lab.write("large.c", text)
	time.sleep(0.1)
	line = "%s -c large.c -o disk/large.o" % cc
	for _ in range(3):
		assert lab.run(line, True, TMPDIR=str(disk)).status != 0
	subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
	assert lab.run(line, True, TMPDIR=str(disk)).status == 0


# ---- any other command

FILES = {
	"in.txt": "one\n",
	"plain.sh": "cat in.txt\ncat in.txt > out\necho no >&2\nexit 3\n",
	"tidy.sh": "cat in.txt > out\nrm out\nexit 1\n",
	"chance.sh": "echo $RANDOM$RANDOM\nexit 1\n",
	"day.sh": "printf '%(%F)T' -1\nexit 1\n",
	"lock.sh": "if [ -e lock ]; then echo locked; exit 1; fi\ncat in.txt\n",
}


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	sandbox = Facts.make(engine, tmp_path, **FILES)
	prove(sandbox)
	configure(sandbox, "cache_failures=yes")
	time.sleep(0.1)
	return sandbox


def try_twice(sandbox: Facts, line: str) -> Dict[str, Any]:
	"""Run a command that fails, have it be run again, and ask for it again. Returns what is counted."""
	plain = sandbox.run_argv(line.split(), False)
	remove_out(sandbox)
	assert sandbox.run_by_facts(line).returncode != 0
	remove_out(sandbox)
	wait(sandbox)
	done = sandbox.run_by_facts(line)
	remove_out(sandbox)
	told = sandbox.statistics()
	if told["hits"]:
		assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)
	return told


def remove_out(sandbox: Facts) -> None:
	for name in ("out", "app"):
		(sandbox.folder / name).unlink(missing_ok=True)


@pytest.mark.parametrize("line", ["sh plain.sh", "bash plain.sh", "bash tidy.sh", "grep two in.txt", "false"])
def test_a_command_that_fails_alike_is_a_hit(line: str, sandbox: Facts) -> None:
	"""With its files, its output and its status, after a second run."""
	told = try_twice(sandbox, line)
	assert (told["hits"], told["proofs"]["proved"]) == (1, 1)
	made = sandbox.check(line, "out") if "plain" in line else "hit"
	assert made.startswith("hit")
	(sandbox.folder / "in.txt").write_text("two\n")
	time.sleep(0.1)
	before = sandbox.statistics()["hits"]
	sandbox.run_by_facts(line)
	assert sandbox.statistics()["hits"] == before + (line == "false")


@pytest.mark.parametrize("line", ["bash chance.sh", "bash day.sh"])
def test_a_command_that_fails_in_another_way_is_no_hit(line: str, sandbox: Facts) -> None:
	told = try_twice(sandbox, line)
	assert told["hits"] == 0 and told["proofs"]["proved"] == 0


def test_a_command_that_fails_with_another_status_is_no_hit(sandbox: Facts) -> None:
	"""A status is a byte, so two runs in two hundred end alike by chance. Six commands in a row do not."""
	for number in range(6):
		line = "bash status%d.sh" % number
		sandbox.write("status%d.sh" % number, "exit $((RANDOM % 200 + 1))\n")
		time.sleep(0.1)
		before = sandbox.statistics()
		sandbox.run_by_facts(line)
		wait(sandbox)
		sandbox.run_by_facts(line)
		after = sandbox.statistics()
		if (after["hits"], after["proofs"]["proved"]) == (before["hits"], before["proofs"]["proved"]):
			return
	pytest.fail("commands that end with another status each time are hits")


def test_a_file_in_the_place_of_one_that_is_removed(sandbox: Facts) -> None:
	"""A command that removes what it makes would remove that file, so it runs."""
	assert try_twice(sandbox, "bash tidy.sh")["hits"] == 1
	(sandbox.folder / "out").write_text("old\n")
	sandbox.run_by_facts("bash tidy.sh")
	assert not (sandbox.folder / "out").exists()


def test_a_lock_that_was_there(sandbox: Facts) -> None:
	(sandbox.folder / "lock").touch()
	time.sleep(0.1)
	assert try_twice(sandbox, "bash lock.sh")["hits"] == 1
	(sandbox.folder / "lock").unlink()
	assert sandbox.run_by_facts("bash lock.sh").returncode == 0


def test_a_command_that_a_signal_ends(sandbox: Facts) -> None:
	sandbox.write("killed.sh", "kill -9 $$\n")
	time.sleep(0.1)
	for _ in range(2):
		assert sandbox.run_by_facts("sh killed.sh").returncode in (-9, 137)
	assert sandbox.statistics()["hits"] == 0


def test_failures_count_without_proofs_of_others(sandbox: Facts) -> None:
	"""``cache_failures`` alone has commands that fail run again, and no others."""
	configure(sandbox, "prove_commands=no")
	assert try_twice(sandbox, "grep two in.txt")["hits"] == 1
	assert sandbox.run_by_facts("bash lock.sh").returncode == 0
	assert sandbox.statistics()["proofs"]["proved"] == 1


def test_failures_stay_on_their_machine(machine: Make, room: Room) -> None:
	"""A shared store gets what succeeds, and no failure."""
	first, second = machine(room.address), machine(room.address)
	for one in (first, second):
		subprocess.run([one.wafcc, "--set-config", "cache_failures=yes"], env=one.environ, check=True)
		one.write("bad.c", "int f(void) { return missing; }\n")
		one.write("good.c", "int f(void) { return 1; }\n")
	time.sleep(0.1)
	run = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": PATIENCE}
	for name, source in (("bad", "bad.c"), ("bad", "bad.c"), ("good", "good.c")):
		line = [first.wafcc, COMPILERS[0], "-c", source, "-o", name + ".o"]
		done = subprocess.run(line, cwd=first.folder, env=first.environ, **run)
		assert (done.returncode == 0) == (name == "good")
	deadline = time.monotonic() + PATIENCE
	while not first.remote()["uploads"]:
		assert time.monotonic() < deadline, first.remote()
		time.sleep(0.1)
	time.sleep(1)
	assert first.remote()["uploads"] == 1
	line = [second.wafcc, COMPILERS[0], "-c", "bad.c", "-o", "bad.o"]
	assert subprocess.run(line, cwd=second.folder, env=second.environ, **run).returncode == 1
	assert second.remote()["hits"] == 0
