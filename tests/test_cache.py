"""wafcc's cache in front of real compilers: after any change, a result is that of a fresh compile."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from cache_support import COMPILERS, PATIENCE, Lab, by_one, each

ROOT = pathlib.Path(__file__).resolve().parent.parent


@each
def test_a_header_that_shadows_another(cc: str, lab: Lab) -> None:
	"""A header that appears in a folder that is searched earlier, or beside the source, is the one that counts."""
	lab.write("a/f.h", "#define F 1\n")
	lab.write("src/x.c", '#include "f.h"\nint f = F;\n')
	(lab.folder / "b").mkdir()
	line = f"{cc} -Ib -Ia -c src/x.c -o x.o"
	lab.until_hit(line)
	lab.write("b/f.h", "#define F 2\n")
	assert lab.same(line).startswith("miss: b/f.h")
	lab.until_hit(line)
	lab.write("src/f.h", "#define F 3\n")
	assert lab.same(line).startswith("miss: src/f.h")
	(lab.folder / "src/f.h").unlink()
	(lab.folder / "b/f.h").unlink()
	assert lab.same(line).startswith("hit")


@each
def test_the_next_header_of_a_name(cc: str, lab: Lab) -> None:
	"""The header that ``#include_next`` finds counts in the same way."""
	lab.write("a/f.h", "#include_next <f.h>\n")
	lab.write("c/f.h", "#define F 1\n")
	(lab.folder / "b").mkdir()
	lab.write("x.c", "#include <f.h>\nint f = F;\n")
	line = f"{cc} -Ia -Ib -Ic -c x.c"
	lab.until_hit(line)
	lab.write("b/f.h", "#define F 2\n")
	assert lab.same(line).startswith("miss: b/f.h")


@each
def test_a_header_that_was_asked_for(cc: str, lab: Lab) -> None:
	"""A header appears that ``__has_include`` did not find before."""
	lab.write("x.c", '#if __has_include("cfg.h")\nint has = 1;\n#else\nint has = 0;\n#endif\n')
	line = f"{cc} -c x.c"
	lab.until_hit(line)
	lab.write("cfg.h", "")
	assert lab.same(line).startswith("miss: cfg.h")


@each
def test_many_headers_of_one_content(cc: str, lab: Lab) -> None:
	"""Forty equal headers, to be read once: a hit, until one is as old as another, or is another, and was not."""
	names = [f"h{n}.h" for n in range(40)]
	headers = [lab.write(name, "#pragma once\n+ 1\n") for name in names]
	for n, header in enumerate(headers):
		os.utime(header, (1000 + n % 2, 1000 + n % 2))
	lab.write("x.c", "int n = 0\n" + "".join(f'#include "{name}"\n' for name in names) + ";\n")
	line = f"{cc} -c x.c"
	lab.until_hit(line)
	os.utime(headers[7], (1002, 1002))
	assert "hold the same" in lab.same(line)
	lab.until_hit(line)
	os.utime(headers[7], (1001, 1001))
	assert lab.same(line).startswith("hit")
	headers[9].unlink()
	headers[9].symlink_to("h3.h")
	assert "hold the same" in lab.same(line)
	for n, header in enumerate(headers):
		os.utime(header, (2000 + n % 2, 2000 + n % 2))
	lab.until_hit(line)
	headers[9].unlink()
	lab.write("h9.h", "#pragma once\n+ 1\n")
	os.utime(headers[9], (2001, 2001))
	assert lab.same(line).startswith("hit")


@each
def test_empty_headers_that_are_imported(cc: str, lab: Lab) -> None:
	"""A header that is imported twice is told as read once if it is one file or looks like it, also if it is empty."""
	headers = [lab.write("a.h", ""), lab.write("b.h", "")]
	for header in headers:
		os.utime(header, (1000, 1000))
	lab.write("x.c", '#import "a.h"\n#import "b.h"\nint x;\n')
	line = f"{cc} -c -MD x.c -o x.o"
	lab.until_hit(line)
	os.utime(headers[1], (1001, 1001))
	assert lab.same(line).startswith("miss: ")
	headers[1].unlink()
	os.link(headers[0], headers[1])
	assert lab.same(line).startswith("miss: ")


@each
def test_two_checkouts_share_and_differ(cc: str, lab: Lab) -> None:
	"""A compile in one checkout is a hit in another, unless that has a header which shadows one."""
	for checkout in ("one", "two"):
		lab.write(f"{checkout}/a/f.h", "#define F 1\n")
		lab.write(f"{checkout}/x.c", "#include <f.h>\nint f = F;\n")
	line = f"{cc} -Ib -Ia -c x.c"
	lab.until_hit(line, cwd="one")
	assert lab.same(line, cwd="two").startswith("hit")
	lab.write("two/b/f.h", "#define F 2\n")
	assert lab.same(line, cwd="two").startswith("miss")
	assert lab.same(line, cwd="one").startswith("hit")


@each
def test_checkouts_that_are_entered_share(cc: str, lab: Lab) -> None:
	"""A shell's ``PWD`` names the checkout, and compilers look whether it is right."""
	for checkout in ("one", "two"):
		lab.write(f"{checkout}/x.c", "int f;\n")
	line = f"{cc} -c x.c"
	lab.until_hit(line, cwd="one", PWD=str(lab.folder / "one"))
	assert lab.same(line, cwd="two", PWD=str(lab.folder / "two")).startswith("hit")
	line += " -g"
	lab.until_hit(line, cwd="one", PWD=str(lab.folder / "one"))
	assert lab.same(line, cwd="two", PWD=str(lab.folder / "two")).startswith("miss")


@each
def test_prefix_maps_that_differ(cc: str, lab: Lab) -> None:
	"""Two maps of one folder give two objects."""
	lab.write("x.c", "const char *file = __FILE__;\n")
	for name in ("A", "B", "A", "B"):
		lab.until_hit(f"{cc} -fmacro-prefix-map={{here}}={name} -c {{here}}/x.c -o x.o")


@each
@pytest.mark.parametrize("text", ["__TIME__", "__DATE__", "__TIMESTAMP__", "TOLD"])
def test_times(cc: str, text: str, lab: Lab) -> None:
	"""A compile that writes a date into its result is never a hit, in whatever way the macro is spelled."""
	lab.write("when.h", f"const char *when = {text};\n")
	lab.write("x.c", '#include "when.h"\n')
	for _ in range(3):
		done = lab.run(f"{cc} -DTOLD=__TIME__ -c x.c", True)
		assert done.status == 0 and "reads the clock" not in done.stderr.decode()
		assert lab.explain(lab.folder / "x.o").endswith("not stored: it asks for the time")


@each
def test_the_epoch_of_sources(cc: str, lab: Lab) -> None:
	"""With ``SOURCE_DATE_EPOCH`` the result depends on that value, and not on the clock if the compiler heeds it."""
	lab.write("x.c", "const char *when = __DATE__;\n")
	for epoch in ("1", "1000000000", "1"):
		lab.same(f"{cc} -c x.c", SOURCE_DATE_EPOCH=epoch)


def test_the_epoch_of_sources_is_a_fact(lab: Lab) -> None:
	"""With ``SOURCE_DATE_EPOCH``, gcc's dates are hits. Another value, none, or no time is another result."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	lab.write("x.c", 'const char *when = __DATE__ " " __TIME__;\n')
	for epoch in ("1", "1000000000", "1"):
		lab.until_hit("gcc -c x.c", SOURCE_DATE_EPOCH=epoch)
	assert not lab.same("gcc -c x.c", SOURCE_DATE_EPOCH="2").startswith("hit")
	for _ in range(2):
		lab.run("gcc -c x.c", True)
		assert lab.explain(lab.folder / "x.o").endswith("not stored: it asks for the time")
	lab.write("y.c", "const char *when = __TIMESTAMP__;\n")
	for _ in range(2):
		lab.same("gcc -c y.c", SOURCE_DATE_EPOCH="1")
		assert lab.explain(lab.folder / "y.o").endswith("not stored: it asks for the time")


@each
def test_binary_data(cc: str, lab: Lab) -> None:
	"""A file that the assembler includes is an input, in whatever way the directive is put together."""
	lab.write("data", "12")
	lab.write("x.c", '__asm__(".section .rodata\\n .inc" "bin    \\"da" "ta\\"\\n .text");\n')
	line = f"{cc} -c x.c"
	lab.until_hit(line)
	lab.write("data", "34")
	assert lab.same(line).startswith("miss: data")


def test_another_compiler_of_the_same_name(lab: Lab) -> None:
	"""A compiler of the same path, size and time, but with other content, is another one."""
	real = shutil.which("gcc") or pytest.skip("needs gcc")
	tool = lab.folder / "tool" / "gcc"
	tool.parent.mkdir()
	for number in ("1", "2"):
		tool.write_text(f'#!/bin/sh\nexec {real} -DN={number} "$@"\n')
		tool.chmod(0o755)
		os.utime(tool, (10**9, 10**9))
		lab.write("x.c", "int n = N;\n")
		lab.same(f"{tool} -c x.c")
		lab.same(f"{tool} -c x.c")


def test_a_precompiled_header(lab: Lab) -> None:
	"""A precompiled header that was made anew has its users compiled anew."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	lab.write("x.c", '#include "p.h"\nint f = F;\n')
	for value in ("1", "2"):
		lab.write("p.h", f"#define F {value}\n")
		subprocess.run(["gcc", "-c", "p.h", "-o", "p.h.gch"], cwd=lab.folder, check=True, timeout=PATIENCE)
		lab.until_hit("gcc -c x.c")


@each
def test_a_header_that_changes_and_comes_back(cc: str, lab: Lab) -> None:
	"""A header changes during a compile and is restored: nothing wrong is stored."""
	header = lab.write("f.h", "#define F 1\n")
	lab.write("x.c", '#include "f.h"\nint f = F;\n')
	line = f"{cc} -c x.c"
	plain = lab.run_plain(line)
	for _ in range(15):
		command = subprocess.Popen([lab.wafcc, *line.split()], cwd=lab.folder, env=lab.environ)
		while command.poll() is None:
			header.write_text("#define F 2\n")
			header.write_text("#define F 1\n")
		(lab.folder / "x.o").unlink(missing_ok=True)
		assert lab.run(line, True) == plain


@by_one
def test_a_source_that_was_written_right_before(cc: str, lab: Lab) -> None:
	"""Configure tests write one and compile it at once, each in a folder of its own. What they make is stored."""
	verdicts = []
	for number in range(24):
		lab.write(f"test-{number}/conftest.c", f"int main(void) {{ return {number}; }}\n")
		lab.run(f"{cc} -c conftest.c -o conftest.o", True, f"test-{number}")
		verdicts.append(lab.explain(lab.folder / f"test-{number}/conftest.o"))
	assert not any("not stored" in verdict for verdict in verdicts), verdicts


@by_one
def test_failures_are_not_remembered(cc: str, lab: Lab) -> None:
	"""A compile that fails fails anew, with the same messages."""
	lab.write("x.c", "int f(void) { return nothing; }\n")
	for _ in range(3):
		assert lab.same(f"{cc} -c x.c").endswith("not stored: it failed")


@by_one
def test_restoring_a_header_is_a_hit(cc: str, lab: Lab) -> None:
	"""Contents count, and not times."""
	header = lab.write("f.h", "#define F 1\n")
	lab.write("x.c", '#include "f.h"\nint f = F;\n')
	line = f"{cc} -c x.c"
	lab.until_hit(line)
	header.write_text("#define F 2\n")
	assert lab.same(line).startswith("miss: f.h has changed")
	header.write_text("#define F 1\n")
	assert lab.same(line).startswith("hit")


def test_random_edits(lab: Lab, tmp_path: pathlib.Path) -> None:
	"""A short run of the fuzzer finds no difference from a fresh compile."""
	if not COMPILERS:
		pytest.skip("needs a compiler")
	argv = [sys.executable, str(ROOT / "utils" / "fuzzcache.py"), "--steps", "60", "--work", str(tmp_path)]
	argv += ["--wafcc", lab.wafcc, "--compilers", ",".join(COMPILERS)]
	done = subprocess.run(argv, env=lab.environ, capture_output=True, text=True, timeout=110, check=False)
	assert done.returncode == 0, done.stdout + done.stderr
