"""Outputs as hard links into the store, on request: they are read-only, and never cause a wrong result."""

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Iterator

import pytest
from cache_support import COMPILERS, PATIENCE, Lab, each


@pytest.fixture
def linked(lab: Lab) -> Lab:
	"""A lab whose store gives links."""
	lab.environ["WAFCC_HARDLINK"] = "yes"
	return lab


def make(lab: Lab, line: str, output: str = "x.o", **env: str) -> os.stat_result:
	"""Compile through wafcc and leave the output where it is; it is as a fresh compile elsewhere would have it."""
	argv = [lab.wafcc, *line.split()]
	environ = {**lab.environ, **env}
	done = subprocess.run(argv, cwd=lab.folder, env=environ, capture_output=True, timeout=PATIENCE, check=False)
	assert done.returncode == 0, done
	fresh = [*line.replace(f" {output}", " fresh").replace(" x.d", " fresh.d").split()]
	subprocess.run(fresh, cwd=lab.folder, env=lab.environ, timeout=PATIENCE, check=True)
	assert (lab.folder / output).read_bytes() == (lab.folder / "fresh").read_bytes(), lab.explain(lab.folder / output)
	for left in lab.folder.glob("fresh*"):
		left.unlink()
	return (lab.folder / output).stat()


def link(lab: Lab, line: str, output: str = "x.o") -> os.stat_result:
	"""Compile until the output is a link."""
	for _ in range(200):
		found = make(lab, line, output)
		if found.st_nlink > 1:
			return found
	raise AssertionError(lab.explain(lab.folder / output))


def write_through(path: pathlib.Path) -> None:
	"""Write into a file as careless programs do."""
	path.chmod(0o644)
	with open(path, "r+b") as f:
		f.write(b"spoiled")
	path.chmod(0o444)


@each
def test_outputs_are_links(cc: str, linked: Lab) -> None:
	"""A hit gives a read-only file with a second name and the present time; dependency files are copies."""
	source = linked.write("x.c", "int f;\n")
	line = f"{cc} -MD -MF x.d -MT x -c x.c -o x.o"
	first = link(linked, line)
	assert (first.st_nlink, first.st_mode & 0o7777) == (2, 0o444)
	dependencies = (linked.folder / "x.d").stat()
	assert (dependencies.st_nlink, dependencies.st_mode & 0o7777) == (1, 0o644)
	os.utime(source)
	second = make(linked, line)
	assert linked.explain(linked.folder / "x.o").startswith("hit")
	assert (second.st_ino, second.st_nlink) == (first.st_ino, 2) and second.st_mtime_ns >= source.stat().st_mtime_ns
	other = make(linked, line.replace("x.o", "other.o"), "other.o")
	assert (other.st_ino, other.st_nlink) == (first.st_ino, 3)
	assert sorted(path.name for path in linked.folder.iterdir()) == ["other.o", "x.c", "x.d", "x.o"]


@each
def test_a_write_through_a_link_spoils_no_other_result(cc: str, linked: Lab) -> None:
	"""Content that was written into a link, with or without a change of its time, is never served."""
	linked.write("x.c", "int f;\n")
	line = f"{cc} -c x.c -o x.o"
	for keeps_time in (False, True):
		before = link(linked, line)
		write_through(linked.folder / "x.o")
		if keeps_time:
			os.utime(linked.folder / "x.o", ns=(before.st_atime_ns, before.st_mtime_ns))
		make(linked, line.replace("x.o", "other.o"), "other.o")
		assert linked.explain(linked.folder / "other.o").startswith("miss")
		make(linked, line)
		(linked.folder / "other.o").unlink()


@each
def test_a_command_does_not_write_through_a_link(cc: str, linked: Lab) -> None:
	"""A miss makes a new file, also if a program writes into the existing one. The old result is a hit again."""
	source = linked.write("x.c", "int f = 1;\n")
	line = f"{cc} -S x.c -o x.s"
	link(linked, line, "x.s")
	source.write_text("int f = 2;\n")
	assert make(linked, line, "x.s").st_nlink == 1
	source.write_text("int f = 1;\n")
	assert make(linked, line, "x.s").st_nlink == 2
	assert linked.explain(linked.folder / "x.s").startswith("hit")


@each
def test_a_command_without_the_cache_spoils_nothing(cc: str, linked: Lab) -> None:
	"""Compilers and linkers that run plainly on a link either replace it, or their change is found out."""
	source = linked.write("x.c", "int main(void) { return 0; }\n")
	for line, output in [(f"{cc} -c x.c -o x.o", "x.o"), (f"{cc} -S x.c -o x.s", "x.s")]:
		link(linked, line, output)
		source.write_text("int main(void) { return 1; }\n")
		subprocess.run(line.split(), cwd=linked.folder, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False)
		source.write_text("int main(void) { return 0; }\n")
		make(linked, line, output)
	link(linked, f"{cc} -c x.c -o x.o")
	for tool in (["strip", "-g", "x.o"], ["ld", "-r", "x.o", "-o", "y.o"], ["objcopy", "x.o", "x.o"]):
		if shutil.which(tool[0]):
			subprocess.run(tool, cwd=linked.folder, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False)
			make(linked, f"{cc} -c x.c -o x.o")


def test_another_umask_gets_a_copy(linked: Lab) -> None:
	"""With another umask there is a copy, since both cannot share a file's rights."""
	if not COMPILERS:
		pytest.skip("needs a compiler")
	linked.write("x.c", "int f;\n")
	line = f"{COMPILERS[0]} -c x.c -o x.o"
	link(linked, line)
	found = linked.run(line.replace("x.o", "other.o"), True, umask=0o077)
	assert found.modes["other.o"] & 0o7777 == 0o600
	assert linked.explain(linked.folder / "other.o").startswith("hit")


def test_the_setting_can_be_changed(lab: Lab) -> None:
	"""``--set-config`` tells a running engine, which then serves new entries as links."""
	if not COMPILERS:
		pytest.skip("needs a compiler")
	lab.write("x.c", "int f;\n")
	line = f"{COMPILERS[0]} -c x.c -o x.o"
	lab.until_hit(line)
	assert make(lab, line).st_nlink == 1
	subprocess.run(
		[lab.wafcc, "--set-config", "hard_link=yes"], env=lab.environ, cwd=lab.folder, timeout=PATIENCE, check=True
	)
	assert make(lab, line).st_nlink == 1, "it is stored with others in one file"
	lab.write("x.c", "int g;\n")
	assert link(lab, line).st_mode & 0o7777 == 0o444


@pytest.fixture
def elsewhere(linked: Lab) -> Iterator[Lab]:
	"""A lab whose store is on another file system."""
	shared = pathlib.Path("/dev/shm")
	if not os.access(shared, os.W_OK) or shared.stat().st_dev == linked.folder.stat().st_dev:
		pytest.skip("needs another file system")
	with tempfile.TemporaryDirectory(dir=shared, prefix="wafcc-") as folder:
		linked.environ["XDG_CACHE_HOME"] = folder
		yield linked
		subprocess.run([linked.engine, "stop", "--now"], env=linked.environ, timeout=PATIENCE, check=False)


def test_another_file_system_gets_a_copy(elsewhere: Lab) -> None:
	"""If no link can be made, there is a copy with the usual rights."""
	if not COMPILERS:
		pytest.skip("needs a compiler")
	elsewhere.write("x.c", "int f;\n")
	line = f"{COMPILERS[0]} -c x.c -o x.o"
	elsewhere.until_hit(line)
	found = make(elsewhere, line)
	assert (found.st_nlink, found.st_mode & 0o7777) == (1, 0o644)
