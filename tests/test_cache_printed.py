"""Commands whose result is no file: output that is printed or thrown away, and sources that are only checked."""

import json
import pathlib
import subprocess
import time
from typing import List

import pytest
from cache_support import PATIENCE, Lab, each

SOURCE = '#include "f.h"\nstatic int unused;\nint f(void) { return F; }\n'
PRINTED = ("-E f.c", "-E -P f.c -o -", "-S -g f.c -o -", "-E f.c -o /dev/stdout", "-E -dM -x c /dev/null")
SILENT = ("-fsyntax-only -Wall f.c", "-fsyntax-only -Wall -c f.c -o f.o", "-Wall -c f.c -o /dev/null")


def count_hits(lab: Lab) -> int:
	done = subprocess.run(
		[lab.wafcc, "--show-stats", "--json"], env=lab.environ, stdout=subprocess.PIPE, timeout=PATIENCE, check=True
	)
	return int(json.loads(done.stdout)["hits"])


def until_hit(lab: Lab, line: str) -> None:
	"""Compile until it is a hit, each time with the effects of a plain run."""
	deadline = time.monotonic() + PATIENCE
	before = count_hits(lab)
	while count_hits(lab) == before:
		assert time.monotonic() < deadline, f"{line} is never a hit"
		assert lab.run(line, True) == lab.run(line, False), line


@each
@pytest.mark.parametrize("options", PRINTED + SILENT)
def test_a_result_that_is_no_file(cc: str, options: str, lab: Lab) -> None:
	"""A hit prints the same output and messages as a plain run, makes the same files, and sees an edited header."""
	lab.write("f.c", SOURCE)
	for value in ("1", "2", "1"):
		lab.write("f.h", f"#define F {value}\n")
		until_hit(lab, f"{cc} {options}")


@each
def test_dependencies_beside_printed_output(cc: str, lab: Lab) -> None:
	"""A dependency file comes back beside output that is printed or thrown away, with its own target."""
	lab.write("f.c", SOURCE)
	lab.write("f.h", "#define F 1\n")
	for options in ("-S -MD -MF f.d f.c -o -", "-S -MD -MF f.d f.c -o /dev/null", "-E -MD f.c", "-E -MD -MF f.d f.c"):
		until_hit(lab, f"{cc} {options}")


@each
def test_a_source_that_is_wrong(cc: str, lab: Lab) -> None:
	"""A check that fails fails each time, with the same messages."""
	lab.write("f.c", "int f( {\n")
	for options in ("-fsyntax-only f.c", "-c f.c -o /dev/null", "-E -Werror -include none.h f.c"):
		for _ in range(2):
			found = lab.run(f"{cc} {options}", True)
			assert found.status != 0 and found == lab.run(f"{cc} {options}", False)


@each
def test_output_that_goes_to_a_file(cc: str, lab: Lab, tmp_path: pathlib.Path) -> None:
	"""A file at the standard output gets what a plain run writes there, in the same order as the messages.

	``-o /dev/stdout`` is left out: with a file there, compilers of root replace or remove that name itself.
	"""
	lab.write("f.c", '#warning "look here"\n' + SOURCE)
	lab.write("f.h", "#define F 1\n")

	def written(command: List[str], both: bool) -> bytes:
		path = tmp_path / "written"
		path.write_bytes(b"before\n")
		with path.open("ab") as file:
			err = file if both else subprocess.DEVNULL
			subprocess.run(
				command, cwd=lab.folder, env=lab.environ, stdout=file, stderr=err, timeout=PATIENCE, check=True
			)
		return path.read_bytes()

	for options in ("-E f.c", "-E f.c -o -"):
		for both in (False, True, False, True):
			command = [cc, *options.split()]
			assert written([lab.wafcc, *command], both) == written(command, both), (options, both)
