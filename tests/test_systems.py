"""Other releases of Debian: what can be said without making one."""

import os
import pathlib
import stat
import subprocess
import sys
from typing import Dict, List

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "utils" / "systems.py"

import systems  # noqa: E402
from debian import mirror  # noqa: E402
from debian.chamber import Chamber  # noqa: E402
from debian.disks import KINDS, Disk  # noqa: E402
from debian.groups import GROUPS  # noqa: E402


def run(*options: str, **environ: str) -> "subprocess.CompletedProcess[str]":
	return subprocess.run(
		[sys.executable, str(PROGRAM), *options],
		env=dict(os.environ, **environ),
		stdin=subprocess.DEVNULL,
		capture_output=True,
		encoding="utf-8",
		timeout=60,
		check=False,
	)


@pytest.mark.parametrize(
	"option, words",
	[
		("--suites=potato", "--suites: no potato: there are bullseye, bookworm, trixie, sid"),
		("--disks=fat", "--disks: no fat: there are ext4, tmpfs, overlayfs, xfs, btrfs"),
		("--tests=all", "--tests: no all: there are parking, observing"),
		("--users=admin", "--users: no admin: there are root, user"),
	],
)
def test_mistakes_are_named(option: str, words: str) -> None:
	"""What is not known is refused before anything is made."""
	done = run(option)
	assert done.returncode == 2
	assert words in done.stderr


def test_help_has_examples() -> None:
	"""The help shows how it is called."""
	done = run("--help")
	assert done.returncode == 0
	assert "utils/systems.py --suites trixie --few" in done.stdout


def test_groups_name_tests_that_are_there() -> None:
	"""A file of tests that was renamed is noticed."""
	missing = [name for group in GROUPS.values() for name in group.files if not (ROOT / "tests" / name).is_file()]
	assert not missing


def install(folder: pathlib.Path, name: str, text: str) -> None:
	path = folder / name
	path.write_text("#!/bin/sh\n" + text)
	path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
	"lines, wanted",
	[
		(["Debian|http://here.example/debian/|stable|main"], "http://here.example/debian"),
		(
			["Other|http://other.example|stable|main", "Debian|http://here.example/d|stable-updates|main"],
			"apt knows no mirror",
		),
		(["Debian|http://a.example|stable-security|main", "Debian|http://b.example|sid|main"], "http://b.example"),
		([], "apt knows no mirror"),
	],
)
def test_the_mirror_is_apts(
	lines: List[str], wanted: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""Packages come from where apt has them for Debian's main component."""
	install(tmp_path, "apt-get", "cat <<'END'\n%s\nEND\n" % "\n".join(lines) if lines else ":")
	monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
	try:
		found = mirror.find_mirror()
	except systems.Mistake as e:
		found = str(e)
	assert found.startswith(wanted)


@pytest.mark.parametrize(
	"line, counts",
	[
		("7 passed in 80.00s (0:01:20)", {"passed": 7}),
		("= 1 failed, 2 passed, 3 skipped in 1s =", {"failed": 1, "passed": 2, "skipped": 3}),
		("2 errors in 1s", {"error": 2}),
		("Killed", {"error": 1}),
	],
)
def test_counts_are_pytests(line: str, counts: Dict[str, int]) -> None:
	"""The last line of pytest is what counts; without one, something went wrong."""
	assert systems.read_counts("1 passed yesterday\n%s\n" % line) == counts


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


def make_root(folder: pathlib.Path) -> pathlib.Path:
	"""This machine's own system, as if it were another one."""
	root = folder / "root"
	for name in ("usr", "proc", "dev", "tmp", "run", "trial"):
		(root / name).mkdir(parents=True)
	for name in ("bin", "lib", "lib64", "sbin"):
		path = pathlib.Path("/" + name)
		if path.is_symlink():
			(root / name).symlink_to(os.readlink(str(path)))
	return root


def list_mounts() -> List[str]:
	return pathlib.Path("/proc/self/mounts").read_text().splitlines()


@needs_root
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_a_chamber(kind: str, tmp_path: pathlib.Path) -> None:
	"""A command sees what it is meant to see; its mounts and processes end with it."""
	disk = Disk(kind, tmp_path / "disks")
	why = disk.find_obstacle()
	if why:
		pytest.skip(why)
	before = list_mounts()
	root = make_root(tmp_path)
	# /usr of this machine is seen under its own name
	chamber = Chamber(root, [pathlib.Path("/usr")], disk)
	script = """
		cd /trial && stat -f -c %T . && echo kept > file && cat file
		touch /usr/new 2>/dev/null || echo read-only
		touch /new 2>/dev/null || echo read-only
		sleep 12345.6 </dev/null >/dev/null 2>&1 &
		echo $$ $HOME $MORE
	"""
	disk.make()
	try:
		done = chamber.run(["sh", "-c", script], MORE="more")
	finally:
		disk.remove()
	lines = done.stdout.splitlines()
	assert done.returncode == 0, done.stdout
	assert lines[1:4] == ["kept", "read-only", "read-only"]
	assert lines[4].endswith("/trial/home more")
	assert list_mounts() == before
	assert not list((tmp_path / "disks").glob("*"))
	assert not [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if b"12345.6" in read(p)]


def read(path: pathlib.Path) -> bytes:
	try:
		return path.read_bytes()
	except OSError:
		return b""


@needs_root
def test_a_command_that_takes_too_long_ends(tmp_path: pathlib.Path) -> None:
	"""Its status is that of timeout(1)."""
	chamber = Chamber(make_root(tmp_path), [pathlib.Path("/usr")], Disk("tmpfs", tmp_path))
	done = chamber.run(["sh", "-c", "echo begins; sleep 100"], timeout=5)
	assert (done.returncode, done.stdout) == (124, "begins\n")
