"""wafcc's cache in front of real compilers: whatever changes, a result is the one that a fresh compile gives."""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import time
import tty
from typing import Dict, List, NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 60  # seconds
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


class Trace(NamedTuple):
	"""All that a command leaves."""

	status: int
	stdout: bytes
	stderr: bytes
	files: Dict[str, bytes]
	modes: Dict[str, int]


class Yard:
	"""A folder in which commands run through wafcc and without it, with a store of its own."""

	def __init__(self, engine: str, folder: pathlib.Path, home: pathlib.Path) -> None:
		self.folder = folder
		self.engine = engine
		self.wafcc = str(pathlib.Path(engine).with_name("wafcc"))
		names = [name for name in os.environ if not name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG"))]
		self.environ = dict({name: os.environ[name] for name in names}, HOME=str(home), LC_ALL="C")

	def write(self, name: str, text: str) -> pathlib.Path:
		path = self.folder / name
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_text(text)
		return path

	def look(self) -> Dict[str, bytes]:
		return {str(p.relative_to(self.folder)): p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}

	def run(self, line: str, cached: bool, cwd: str = ".", umask: int = 0o022, **env: str) -> Trace:
		"""What a command leaves; its files are removed again."""
		argv = line.format(here=self.folder / cwd).split()
		before = self.look()
		done = subprocess.run(
			[self.wafcc, *argv] if cached else argv,
			cwd=self.folder / cwd,
			env={**self.environ, **env},
			stdin=subprocess.DEVNULL,
			capture_output=True,
			timeout=PATIENCE,
			check=False,
			preexec_fn=lambda: os.umask(umask) and None,
		)
		made = {name: content for name, content in self.look().items() if before.get(name) != content}
		modes = {name: (self.folder / name).stat().st_mode for name in made}
		for name in made:
			(self.folder / name).unlink()
		return Trace(done.returncode, done.stdout, done.stderr, made, modes)

	def same(self, line: str, cwd: str = ".", umask: int = 0o022, **env: str) -> str:
		"""Run a compile through wafcc and without; both leave the same. What wafcc says of it."""
		found = self.run(line, True, cwd, umask, **env)
		said = self.explain(self.folder / cwd / self.output(line))
		assert found == self.run(line, False, cwd, umask, **env), f"{line}: {said}"
		return said

	@staticmethod
	def output(line: str) -> str:
		named = re.search(r"-o (\S+)", line)
		source = re.search(r"(\S+)\.(?:c|cc|s)(?= |$)", line)
		return named.group(1) if named else os.path.basename(source.group(1)) + ".o" if source else ""

	def explain(self, output: pathlib.Path) -> str:
		done = subprocess.run(
			[self.wafcc, "--explain", str(output)], env=self.environ, capture_output=True, text=True, timeout=PATIENCE
		)
		return done.stdout.partition(": ")[2].strip()

	def until_hit(self, line: str, cwd: str = ".", umask: int = 0o022, **env: str) -> None:
		"""Compile until it is a hit: what was written in this very moment is not trusted."""
		deadline = time.monotonic() + PATIENCE
		said = ""
		while not said.startswith("hit"):
			assert time.monotonic() < deadline, f"{line} is never a hit: {said}"
			said = self.same(line, cwd, umask, **env)


@pytest.fixture
def yard(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Yard:
	"""An empty folder."""
	folder = tmp_path / "yard"
	folder.mkdir()
	return Yard(engine, folder, tmp_path / "home")


each = pytest.mark.parametrize("cc", COMPILERS)

# ---- how a cache returns a wrong object: one test for each way that was seen


@each
def test_a_header_that_shadows_another(cc: str, yard: Yard) -> None:
	"""A header that appears in a folder that is searched earlier, or beside the source, is the one that counts."""
	yard.write("a/f.h", "#define F 1\n")
	yard.write("src/x.c", '#include "f.h"\nint f = F;\n')
	(yard.folder / "b").mkdir()
	line = f"{cc} -Ib -Ia -c src/x.c -o x.o"
	yard.until_hit(line)
	yard.write("b/f.h", "#define F 2\n")
	assert yard.same(line).startswith("miss: b/f.h")
	yard.until_hit(line)
	yard.write("src/f.h", "#define F 3\n")
	assert yard.same(line).startswith("miss: src/f.h")
	(yard.folder / "src/f.h").unlink()
	(yard.folder / "b/f.h").unlink()
	assert yard.same(line).startswith("hit")


@each
def test_the_next_header_of_a_name(cc: str, yard: Yard) -> None:
	"""The same for the header that ``#include_next`` finds."""
	yard.write("a/f.h", "#include_next <f.h>\n")
	yard.write("c/f.h", "#define F 1\n")
	(yard.folder / "b").mkdir()
	yard.write("x.c", "#include <f.h>\nint f = F;\n")
	line = f"{cc} -Ia -Ib -Ic -c x.c"
	yard.until_hit(line)
	yard.write("b/f.h", "#define F 2\n")
	assert yard.same(line).startswith("miss: b/f.h")


@each
def test_a_header_that_was_asked_for(cc: str, yard: Yard) -> None:
	"""What ``__has_include`` looked for in vain appears."""
	yard.write("x.c", '#if __has_include("cfg.h")\nint has = 1;\n#else\nint has = 0;\n#endif\n')
	line = f"{cc} -c x.c"
	yard.until_hit(line)
	yard.write("cfg.h", "")
	assert yard.same(line).startswith("miss: cfg.h")


@each
def test_two_checkouts_share_and_differ(cc: str, yard: Yard) -> None:
	"""What one checkout has compiled is a hit in the other, unless that has a header which shadows one."""
	for checkout in ("one", "two"):
		yard.write(f"{checkout}/a/f.h", "#define F 1\n")
		yard.write(f"{checkout}/x.c", "#include <f.h>\nint f = F;\n")
	line = f"{cc} -Ib -Ia -c x.c"
	yard.until_hit(line, cwd="one")
	assert yard.same(line, cwd="two").startswith("hit")
	yard.write("two/b/f.h", "#define F 2\n")
	assert yard.same(line, cwd="two").startswith("miss")
	assert yard.same(line, cwd="one").startswith("hit")


@each
def test_prefix_maps_that_differ(cc: str, yard: Yard) -> None:
	"""Two maps of one folder give two objects."""
	yard.write("x.c", "const char *file = __FILE__;\n")
	for name in ("A", "B", "A", "B"):
		yard.until_hit(f"{cc} -fmacro-prefix-map={{here}}={name} -c {{here}}/x.c -o x.o")


@each
@pytest.mark.parametrize("text", ["__TIME__", "__DATE__", "__TIMESTAMP__", "TOLD"])
def test_times(cc: str, text: str, yard: Yard) -> None:
	"""Whoever writes a date into its result is never a hit, however the macro is spelled."""
	yard.write("when.h", f"const char *when = {text};\n")
	yard.write("x.c", '#include "when.h"\n')
	for _ in range(3):
		done = yard.run(f"{cc} -DTOLD=__TIME__ -c x.c", True)
		assert done.status == 0 and "reads the clock" not in done.stderr.decode()
		assert yard.explain(yard.folder / "x.o").endswith("not stored: it asks for the time")


@each
def test_the_epoch_of_sources(cc: str, yard: Yard) -> None:
	"""With ``SOURCE_DATE_EPOCH`` the result depends on that, and on the clock no more where the compiler heeds it."""
	yard.write("x.c", "const char *when = __DATE__;\n")
	for epoch in ("1", "1000000000", "1"):
		yard.same(f"{cc} -c x.c", SOURCE_DATE_EPOCH=epoch)


@each
def test_binary_data(cc: str, yard: Yard) -> None:
	"""What the assembler includes is read by it, however the directive is put together."""
	yard.write("data", "12")
	yard.write("x.c", '__asm__(".section .rodata\\n .inc" "bin    \\"da" "ta\\"\\n .text");\n')
	line = f"{cc} -c x.c"
	yard.until_hit(line)
	yard.write("data", "34")
	assert yard.same(line).startswith("miss: data")


def test_another_compiler_of_the_same_name(yard: Yard) -> None:
	"""A compiler of the same path, size and time, but with other content, is another one."""
	real = shutil.which("gcc") or pytest.skip("needs gcc")
	tool = yard.folder / "tool" / "gcc"
	tool.parent.mkdir()
	for number in ("1", "2"):
		tool.write_text(f'#!/bin/sh\nexec {real} -DN={number} "$@"\n')
		tool.chmod(0o755)
		os.utime(tool, (10**9, 10**9))
		yard.write("x.c", "int n = N;\n")
		yard.same(f"{tool} -c x.c")
		yard.same(f"{tool} -c x.c")


def test_a_precompiled_header(yard: Yard) -> None:
	"""A precompiled header that was made anew has its users compiled anew."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	yard.write("x.c", '#include "p.h"\nint f = F;\n')
	for value in ("1", "2"):
		yard.write("p.h", f"#define F {value}\n")
		subprocess.run(["gcc", "-c", "p.h", "-o", "p.h.gch"], cwd=yard.folder, check=True, timeout=PATIENCE)
		yard.until_hit("gcc -c x.c")


@each
def test_a_header_that_changes_and_comes_back(cc: str, yard: Yard) -> None:
	"""A compile in whose course a header changes, and is restored, leaves nothing wrong behind."""
	header = yard.write("f.h", "#define F 1\n")
	yard.write("x.c", '#include "f.h"\nint f = F;\n')
	line = f"{cc} -c x.c"
	for _ in range(15):
		command = subprocess.Popen([yard.wafcc, *line.split()], cwd=yard.folder, env=yard.environ)
		while command.poll() is None:
			header.write_text("#define F 2\n")
			header.write_text("#define F 1\n")
		yard.same(line)


@each
def test_a_result_that_is_edited(cc: str, yard: Yard) -> None:
	"""Whoever writes into a result writes into his own: the next hit is as the first."""
	yard.write("x.c", "int f;\n")
	line = f"{cc} -c x.c -o x.o"
	yard.until_hit(line)
	for _ in range(2):
		subprocess.run([yard.wafcc, *line.split()], cwd=yard.folder, env=yard.environ, check=True, timeout=PATIENCE)
		with open(yard.folder / "x.o", "r+b") as f:
			f.write(b"spoiled")
		(yard.folder / "x.o").unlink()
		assert yard.same(line).startswith("hit")


@each
def test_all_files_come_back(cc: str, yard: Yard) -> None:
	"""Dependencies with their targets, coverage, split debug information, stack usage; with the rights of the umask."""
	yard.write("f.h", "#define F 1\n")
	yard.write("x.c", '#include "f.h"\nint f(void) { return F; }\n')
	options = ["-MD", "-MMD -MF d.d -MT other -MP", "-g -gsplit-dwarf", "-fstack-usage"]
	for option in options:
		yard.until_hit(f"{cc} {option} -c x.c -o x.o")
	yard.until_hit(f"{cc} -MMD -MF d.d -MT third -MP -c x.c -o x.o")
	for umask in (0o077, 0o002):
		yard.until_hit(f"{cc} -MD -c x.c -o x.o", umask=umask)


@each
def test_diagnostics(cc: str, yard: Yard) -> None:
	"""Messages come back as a compiler with these options and variables would print them."""
	yard.write("x.c", "int f(void) { int unused; return 1; }\n")
	for option in ("", "-fdiagnostics-color=always", "-fdiagnostics-color=never"):
		yard.until_hit(f"{cc} -Wall {option} -c x.c")
	for colors in ("warning=01;31", "warning=01;32"):
		yard.until_hit(f"{cc} -Wall -fdiagnostics-color=always -c x.c", GCC_COLORS=colors)


def show(yard: Yard, argv: List[str], columns: int) -> bytes:
	"""What a command writes to a terminal that is so wide."""
	ours, terminal = pty.openpty()
	tty.setraw(terminal)
	fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
	environ = dict(yard.environ, TERM="xterm-256color")
	command = subprocess.Popen(argv, cwd=yard.folder, env=environ, stdin=subprocess.DEVNULL, stderr=terminal)
	os.close(terminal)
	found = b""
	with contextlib.suppress(OSError):  # the end of a terminal
		while True:
			found += os.read(ours, 65536)
	os.close(ours)
	assert command.wait(PATIENCE) == 0
	return found


@each
def test_diagnostics_on_a_terminal(cc: str, yard: Yard) -> None:
	"""On a terminal messages have the colours and lines that this terminal would see, on a miss and on a hit."""
	text = "int f(int %s) { int unused; return 1; }\n" % ("a_long_name_" * 12)
	yard.write("x.c", text)
	argv = [cc, "-Wall", "-Wextra", "-c", "x.c"]
	for columns in (80, 200, 80):
		wanted = show(yard, argv, columns)
		assert b"\033[" in wanted
		said = ""
		deadline = time.monotonic() + PATIENCE
		while not said.startswith("hit"):
			assert time.monotonic() < deadline, said
			assert show(yard, [yard.wafcc, *argv], columns) == wanted
			said = yard.explain(yard.folder / "x.o")


# ---- around them


@each
def test_failures_are_not_remembered(cc: str, yard: Yard) -> None:
	"""A compile that fails fails anew, with the same messages."""
	yard.write("x.c", "int f(void) { return nothing; }\n")
	for _ in range(3):
		assert yard.same(f"{cc} -c x.c").endswith("not stored: it failed")


@each
def test_restoring_a_header_is_a_hit(cc: str, yard: Yard) -> None:
	"""What counts is content, not time."""
	header = yard.write("f.h", "#define F 1\n")
	yard.write("x.c", '#include "f.h"\nint f = F;\n')
	line = f"{cc} -c x.c"
	yard.until_hit(line)
	header.write_text("#define F 2\n")
	assert yard.same(line).startswith("miss: f.h has changed")
	header.write_text("#define F 1\n")
	assert yard.same(line).startswith("hit")


def test_settings_are_heeded(yard: Yard) -> None:
	"""Read only stores nothing, recache looks nothing up, a namespace is apart, and disabled asks nobody."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	yard.write("x.c", "int f;\n")
	line = "gcc -c x.c"
	for _ in range(3):
		assert not yard.same(line, WAFCC_READONLY="1").startswith("hit")
	yard.until_hit(line)
	assert yard.same(line, WAFCC_READONLY="1").startswith("hit")
	assert yard.same(line, WAFCC_RECACHE="1").startswith("miss: it is to be cached anew")
	assert yard.same(line, WAFCC_NAMESPACE="other").startswith("miss: it was not seen before")
	yard.until_hit(line, WAFCC_NAMESPACE="other")


def test_counts_survive_the_engine(yard: Yard) -> None:
	"""Hits, misses and what is not cached are counted, also over a restart; zeroing begins anew, clearing forgets."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	yard.write("x.c", "int main(void) { return 0; }\n")
	yard.until_hit("gcc -c x.c")
	yard.same("gcc x.c -o x")

	def ours(*options: str) -> str:
		argv = [yard.wafcc, *options]
		done = subprocess.run(argv, env=yard.environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True)
		return done.stdout

	before = ours("--show-stats", "--verbose")
	assert re.search(r"Hits: +1 /", before) and re.search(r"1 .*called for linking", before), before
	ours("--shutdown")
	assert re.search(r"Hits: +1 /", ours("--show-stats"))
	assert yard.same("gcc -c x.c").startswith("hit")
	ours("--zero-stats")
	assert re.search(r"Hits: +0 /", ours("--show-stats"))
	ours("--clear")
	assert yard.same("gcc -c x.c").startswith("miss: it was not seen before")


def test_hits_are_audited(yard: Yard) -> None:
	"""With ``audit`` hits are compiled and compared; counts tell how many, and that none was different."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	yard.write("x.c", "int f;\n")
	yard.until_hit("gcc -c x.c")
	subprocess.run([yard.wafcc, "--audit", "50"], env=yard.environ, check=True, timeout=PATIENCE)
	said = [yard.same("gcc -c x.c") for _ in range(6)]
	assert sorted(words.partition(":")[0] for words in said) == ["hit"] * 3 + ["miss"] * 3, said
	done = subprocess.run([yard.wafcc, "-s"], env=yard.environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
	assert re.search(r"Audited hits: +3\n +Different: +0\n", done.stdout), done.stdout


def test_extra_files_count(yard: Yard) -> None:
	"""What ``extra_files`` names is an input of every command."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	yard.write("x.c", "int f;\n")
	extra = yard.write("extra", "1")
	yard.until_hit("gcc -c x.c", WAFCC_EXTRAFILES=str(extra))
	extra.write_text("2")
	assert yard.same("gcc -c x.c", WAFCC_EXTRAFILES=str(extra)).startswith("miss")
	extra.write_text("1")
	assert yard.same("gcc -c x.c", WAFCC_EXTRAFILES=str(extra)).startswith("hit")


@each
def test_the_same_at_the_same_time_runs_once(cc: str, yard: Yard) -> None:
	"""Of commands that are the same, one runs and the others are hits."""
	yard.write("x.c", "int f;\n" + "".join(f"int f{n}(int x) {{ return x * {n}; }}\n" for n in range(3000)))
	yard.same(f"{cc} -c x.c -o warm.o")
	argv = [[yard.wafcc, cc, "-O1", "-c", "x.c", "-o", f"{n}.o"] for n in range(6)]
	commands = [subprocess.Popen(one, cwd=yard.folder, env=yard.environ) for one in argv]
	assert [command.wait(PATIENCE) for command in commands] == [0] * 6
	said = [yard.explain(yard.folder / f"{n}.o") for n in range(6)]
	assert sum(words.startswith("miss") for words in said) == 1, said
	assert len({(yard.folder / f"{n}.o").read_bytes() for n in range(6)}) == 1


def test_random_edits(yard: Yard, tmp_path: pathlib.Path) -> None:
	"""A short run of the fuzzer: nothing differs from a fresh compile."""
	if not COMPILERS:
		pytest.skip("needs a compiler")
	argv = [sys.executable, str(ROOT / "utils" / "fuzzcache.py"), "--steps", "120", "--work", str(tmp_path)]
	argv += ["--wafcc", yard.wafcc, "--compilers", ",".join(COMPILERS)]
	done = subprocess.run(argv, env=yard.environ, capture_output=True, text=True, timeout=110, check=False)
	assert done.returncode == 0, done.stdout + done.stderr


@each
def test_a_dependency_file_names_its_own_object(cc: str, yard: Yard) -> None:
	"""The same compile into another folder is a hit, with the dependency file that the compiler would have written."""
	yard.write("inc/a.h", "#define A 1\n")
	yard.write("src/a.c", '#include "a.h"\nint a = A;\n')
	for folder in ("out", "a/much/longer/name/of/a/folder/for/what/is/built"):
		(yard.folder / folder).mkdir(parents=True)
	yard.until_hit(f"{cc} -Iinc -MMD -MF out/a.d -c src/a.c -o out/a.o")
	folder = "a/much/longer/name/of/a/folder/for/what/is/built"
	assert yard.same(f"{cc} -Iinc -MMD -MF {folder}/a.d -c src/a.c -o {folder}/a.o").startswith("hit")
