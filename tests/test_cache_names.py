"""Compilers of other names and makers, commands that are no compiles, and commands of configure tests."""

import json
import pathlib
import shutil
import subprocess
import time
from typing import Any, Dict

import pytest
from cache_support import PATIENCE, Lab


@pytest.mark.parametrize("cc", ["c89", "c99", "arm-none-eabi-gcc", "x86_64-w64-mingw32-gcc"])
def test_a_compiler_of_another_name(cc: str, lab: Lab) -> None:
	"""A cross compiler, or a script with a standard's name, is a known compiler."""
	if not shutil.which(cc):
		pytest.skip(f"no {cc}")
	lab.write("f.h", "#define F 1\n")
	lab.write("x.c", '#include "f.h"\nint f(void) { return F; }\n')
	lab.until_hit(f"{cc} -O1 -c x.c -o x.o")
	lab.write("f.h", "#define F 2\n")
	assert lab.same(f"{cc} -O1 -c x.c -o x.o").startswith("miss: f.h")


# they do what such compilers do: files between the steps, processes of their own, response files, several outputs
NVCC = """\
#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in
	-o) out=$2; shift ;;
	*.cu) source=$1 ;;
	*) options="$options $1" ;;
	esac
	shift
done
gcc -E -x c $source -o $out.ii && gcc $options -x cpp-output $out.ii -o $out
status=$?
rm -f $out.ii
exit $status
"""
EMCC = """\
#!/usr/bin/python3 -SE
import os, sys
words = []
for word in sys.argv[1:]:
	words += open(word[1:]).read().split() if word.startswith("@") else [word]
status = os.waitpid(os.posix_spawnp("gcc", ["gcc", *words], os.environ), 0)[1]
sys.exit(status != 0)
"""
LIKE_RUSTC = """\
#!/usr/bin/python3 -SE
import sys
source = sys.argv[-1]
text = open(source).read()
sys.stderr.write("warning: in %s\\n" % source)
open("lib.rlib", "w").write(text.upper())
open("lib.d", "w").write("lib.rlib: %s\\n" % source)
"""


def install(lab: Lab, name: str, text: str) -> None:
	path = lab.write(name, text)
	path.chmod(0o755)
	time.sleep(0.02)  # a program that was written just before is not trusted


def statistics(lab: Lab) -> Dict[str, Any]:
	command = [lab.wafcc, "--show-stats", "--json"]
	told = subprocess.run(command, env=lab.environ, stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
	found: Dict[str, Any] = json.loads(told.stdout)
	return found


needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
needs_python = pytest.mark.skipif(not pathlib.Path("/usr/bin/python3").exists(), reason="needs /usr/bin/python3")


@needs_gcc
@needs_python
@pytest.mark.parametrize(
	("name", "script", "words"),
	[
		("bin/nvcc", NVCC, "-O1 -c x.cu -o x.o"),
		("bin/emcc", EMCC, "-c x.c -o x.o"),
		("bin/emcc", EMCC, "@words -o x.o"),
		("bin/acme-driver-7.1", EMCC, "-O1 -c x.c -o x.o"),
	],
)
def test_a_compiler_that_is_not_known(name: str, script: str, words: str, lab: Lab) -> None:
	"""A compile by an unknown program is observed and cached. The program's name or its words show that it compiles."""
	install(lab, name, script)
	lab.write("f.h", "#define F 1\n")
	lab.write("words", "-O1 -c x.c\n")
	for source in ("x.c", "x.cu"):
		lab.write(source, '#include "f.h"\nint f(void) { return F; }\n')
	line = f"{name} {words}"
	lab.until_hit(line)
	lab.write("f.h", "#define F 2\n")
	assert lab.same(line).startswith("miss: f.h has changed")
	lab.until_hit(line)
	install(lab, name, script.replace('"gcc", *', '"gcc", "-g", *').replace("gcc $", "gcc -g $"))
	assert lab.same(line).startswith("miss")
	assert statistics(lab)["uncached"] == {}


@needs_python
def test_a_compiler_that_names_no_output(lab: Lab) -> None:
	"""A source among its words is enough for a compiler of this name. All of its files and its messages come back."""
	install(lab, "bin/rustc", LIKE_RUSTC)
	lab.write("lib.rs", "fn a() {}\n")
	deadline = time.monotonic() + PATIENCE
	before = statistics(lab)["hits"]
	while statistics(lab)["hits"] == before:
		assert time.monotonic() < deadline
		found = lab.run("bin/rustc lib.rs", True)
	assert found == lab.run("bin/rustc lib.rs", False)
	assert sorted(found.files) == ["lib.d", "lib.rlib"] and b"warning" in found.stderr


@pytest.mark.parametrize("line", ["tcc -c x.c -o x.o", "rustc --crate-type lib x.rs -o x.rlib", "ldc2 -c x.d -of=x.o"])
def test_a_real_compiler_that_is_not_known(line: str, lab: Lab) -> None:
	"""It leaves what it leaves without the cache. If nothing can be stored, the reason is counted."""
	if not shutil.which(line.split()[0]):
		pytest.skip(f"no {line.split()[0]}")
	lab.write("x.c", "int x;\n")
	lab.write("x.rs", "pub fn x() -> i32 { 1 }\n")
	lab.write("x.d", "int x;\n")
	time.sleep(0.02)
	for _ in range(2):
		assert lab.run(line, True) == lab.run(line, False)
	counts = statistics(lab)
	assert counts["uncached"] == {}
	assert counts["hits"] + sum(counts["not_stored"].values()) > 0, counts


@needs_gcc
@pytest.mark.parametrize(
	("line", "why"),
	[
		("bin/serve -c x.conf -o x.log", "no compile"),
		("sh -c true", "no compile"),
		("bin/tcc -o prog x.o", "input for the linker"),
		("bin/rustc --version", "asks the compiler about itself"),
	],
)
def test_what_is_no_compile_only_runs(line: str, why: str, lab: Lab) -> None:
	"""A server, a script, a link or a question is not stored, and the reason is counted."""
	for name in ("serve", "tcc", "rustc"):
		install(lab, f"bin/{name}", "#!/bin/sh\necho out\necho err >&2\n")
	found = lab.run(line, True)
	assert found == lab.run(line, False)
	assert statistics(lab)["uncached"] == {why: 1}


def test_configure_tests_are_told_from_builds(lab: Lab) -> None:
	"""The statistics say how many of all calls belonged to configure tests."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	lab.write("conftest.c", "int main(void) { return 0; }\n")
	lab.write("CMakeFiles/CMakeTmp/test.c", "int main(void) { return 0; }\n")
	lab.write("x.c", "int x;\n")
	lab.run("gcc -c conftest.c", True)
	lab.run("gcc -c test.c", True, cwd="CMakeFiles/CMakeTmp")
	lab.run("gcc -c x.c", True)

	def show(*options: str) -> str:
		command = [lab.wafcc, "--show-stats", *options]
		return subprocess.run(
			command, env=lab.environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
		).stdout

	counts = json.loads(show("--json"))
	assert counts["configure"] == {"miss": 2} and sum(counts["misses"].values()) == 3
	assert "2 calls: 0 hits, 2 misses, 0 uncacheable" in show()
