"""A hit of wafcc has all files, with the rights and the messages of a fresh compile."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import time
import tty
from typing import List

from cache_support import PATIENCE, Lab, each, in_turn


@each
def test_a_result_that_is_edited(cc: str, lab: Lab) -> None:
	"""A program that edits a result edits its own copy: the next hit is as the first."""
	lab.write("x.c", "int f;\n")
	line = f"{cc} -c x.c -o x.o"
	lab.until_hit(line)
	for _ in range(2):
		subprocess.run([lab.wafcc, *line.split()], cwd=lab.folder, env=lab.environ, check=True, timeout=PATIENCE)
		with open(lab.folder / "x.o", "r+b") as f:
			f.write(b"spoiled")
		(lab.folder / "x.o").unlink()
		assert lab.same(line).startswith("hit")


@each
def test_all_files_come_back(cc: str, lab: Lab) -> None:
	"""Hits bring dependency files, coverage, split debug information and stack usage, with the umask's rights."""
	lab.write("f.h", "#define F 1\n")
	lab.write("x.c", '#include "f.h"\nint f(void) { return F; }\n')
	options = ["-MD", "-MMD -MF d.d -MT other -MP", "-g -gsplit-dwarf", "-fstack-usage"]
	for option in options:
		lab.until_hit(f"{cc} {option} -c x.c -o x.o")
	lab.until_hit(f"{cc} -MMD -MF d.d -MT third -MP -c x.c -o x.o")
	for umask in (0o077, 0o002):
		lab.until_hit(f"{cc} -MD -c x.c -o x.o", umask=umask)


@in_turn("option", ["-save-temps", "-save-temps=cwd", "-save-temps=obj", "-g -save-temps -MD"])
def test_temporary_files_come_back(cc: str, option: str, lab: Lab) -> None:
	"""What the preprocessor and the compiler leave for the next step is a result, beside the object or not."""
	lab.write("f.h", "#define F 1\n")
	lab.write("x.c", '#include "f.h"\nint f(void) { return F; }\n')
	(lab.folder / "d").mkdir()
	for line in (f"{cc} {option} -c x.c", f"{cc} {option} -c x.c -o d/y.o", f"{cc} {option} -S x.c -o d/y.s"):
		lab.until_hit(line)
	lab.write("f.h", "#define F 2\n")
	assert lab.same(f"{cc} {option} -c x.c -o d/y.o").startswith("miss: f.h has changed")


@in_turn("option", ["--coverage", "-fprofile-arcs -ftest-coverage", "-g -gsplit-dwarf"])
def test_a_folder_behind_a_link(cc: str, option: str, lab: Lab) -> None:
	"""A result names the folder as the command's PWD does: by the link, or by its own name."""
	lab.write("real/x.c", "int f(int a) { return a ? 1 : 2; }\n")
	(lab.folder / "link").symlink_to("real")
	seed = "-frandom-seed=1 " if cc == "gcc" else ""  # its notes have a stamp
	line = f"{cc} {seed}{option} -c x.c -o x.o"
	for folder in ("link", "real", "link"):
		lab.until_hit(line, cwd=folder, PWD=str(lab.folder / folder))


@each
def test_diagnostics(cc: str, lab: Lab) -> None:
	"""Messages come back as a compiler with these options and variables would print them."""
	lab.write("x.c", "int f(void) { int unused; return 1; }\n")
	for option in ("", "-fdiagnostics-color=always", "-fdiagnostics-color=never"):
		lab.until_hit(f"{cc} -Wall {option} -c x.c")
	for colors in ("warning=01;31", "warning=01;32"):
		lab.until_hit(f"{cc} -Wall -fdiagnostics-color=always -c x.c", GCC_COLORS=colors)


def show(lab: Lab, argv: List[str], columns: int) -> bytes:
	"""The output of a command on a terminal of this width."""
	ours, terminal = pty.openpty()
	tty.setraw(terminal)
	fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
	environ = dict(lab.environ, TERM="xterm-256color")
	command = subprocess.Popen(argv, cwd=lab.folder, env=environ, stdin=subprocess.DEVNULL, stderr=terminal)
	os.close(terminal)
	found = b""
	with contextlib.suppress(OSError):  # the end of a terminal
		while True:
			found += os.read(ours, 65536)
	os.close(ours)
	assert command.wait(PATIENCE) == 0
	return found


@each
def test_diagnostics_on_a_terminal(cc: str, lab: Lab) -> None:
	"""On a terminal, messages have the colors and lines of this terminal, on a miss and on a hit."""
	text = "int f(int %s) { int unused; return 1; }\n" % ("a_long_name_" * 12)
	lab.write("x.c", text)
	argv = [cc, "-Wall", "-Wextra", "-c", "x.c"]
	for columns in (80, 200, 80):
		wanted = show(lab, argv, columns)
		assert b"\033[" in wanted
		said = ""
		deadline = time.monotonic() + PATIENCE
		while not said.startswith("hit"):
			assert time.monotonic() < deadline, said
			assert show(lab, [lab.wafcc, *argv], columns) == wanted
			said = lab.explain(lab.folder / "x.o")


@each
def test_a_dependency_file_names_its_own_object(cc: str, lab: Lab) -> None:
	"""A compile into another folder is a hit, with the dependency file that the compiler would have written."""
	lab.write("inc/a.h", "#define A 1\n")
	lab.write("src/a.c", '#include "a.h"\nint a = A;\n')
	(lab.folder / "out").mkdir()
	lab.until_hit(f"{cc} -Iinc -MMD -MF out/a.d -c src/a.c -o out/a.o")
	for folder in ("a/much/longer/name/of/a/folder/for/what/is/built", "of_job@2/a+b"):
		(lab.folder / folder).mkdir(parents=True)
		assert lab.same(f"{cc} -Iinc -MMD -MF {folder}/a.d -c src/a.c -o {folder}/a.o").startswith("hit")
	for folder in ("with$dollar", "with#mark"):
		(lab.folder / folder).mkdir()
		lab.same(f"{cc} -Iinc -MMD -MF {folder}/a.d -c src/a.c -o {folder}/a.o")


@each
def test_a_header_that_is_generated_in_the_same_moment(cc: str, lab: Lab) -> None:
	"""A file as new as its command is not stored, since it may still change. The next command waits for that."""
	count = 8
	for number in range(count):
		lab.write(f"f{number}.c", '#include "made.h"\nint f = MADE;\n')
	compile_all = f"""
		for n in {" ".join(map(str, range(count)))}; do
			echo '#define MADE 1' > made.h
			{lab.wafcc} {cc} -c f$n.c -o f$n.o || exit 1
		done"""
	for _ in range(3):
		subprocess.run(["sh", "-c", compile_all], cwd=lab.folder, env=lab.environ, check=True, timeout=PATIENCE)
	said = [lab.explain(lab.folder / f"f{number}.o") for number in range(count)]
	assert all(words.startswith("hit") for words in said), said
