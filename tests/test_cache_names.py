"""Compilers of other names, and commands of configure tests."""

import json
import shutil
import subprocess

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
