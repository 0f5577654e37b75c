"""``wafcc --explain``: why a request hit or missed, in words that last."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
from typing import Any, Dict, List

import pytest
from test_cache import PATIENCE, Yard, each


@pytest.fixture
def yard(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Yard:
	"""An empty folder."""
	folder = tmp_path / "yard"
	folder.mkdir()
	return Yard(engine, folder, tmp_path / "home")


def ours(yard: Yard, *options: str, cwd: str = ".") -> str:
	"""What wafcc prints for options of its own."""
	argv = [yard.wafcc, *options]
	folder = yard.folder / cwd
	return subprocess.run(
		argv, env=yard.environ, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
	).stdout


def explain(yard: Yard, *output: str, cwd: str = ".") -> List[Dict[str, Any]]:
	"""What is told of an output to programs."""
	return json.loads(ours(yard, "--json", "--explain", *output, cwd=cwd))


@each
def test_all_that_has_changed_is_told(cc: str, yard: Yard) -> None:
	"""A header that changed, one that vanished, one that appeared and a variable with its values: all are named."""
	for name in ("f.h", "g.h", "sub/h.h"):
		yard.write(name, "\n")
	(yard.folder / "first").mkdir()
	text = '#include "f.h"\n#if __has_include("g.h")\n#endif\n#include <h.h>\nint f(void) { int unused; return 1; }\n'
	yard.write("x.c", text)
	line = f"{cc} -Wall -Ifirst -Isub -c x.c"
	yard.until_hit(line, NO_COLOR="", TERM="dumb")
	yard.write("f.h", "#define F\n")
	yard.write("first/h.h", "\n")
	(yard.folder / "g.h").unlink()
	yard.same(line, NO_COLOR="", TERM="xterm")
	(told,) = explain(yard, "x.o")
	assert told["known"] == "miss" and told["more"] == 0
	missing = {"f.h has changed", "g.h is not there any more", "first/h.h is there now, and was not"} - set(told["why"])
	assert not missing, told["why"]
	if cc == "gcc":
		assert "TERM is 'xterm', was 'dumb'" in told["why"]
	lines = ours(yard, "--explain", "x.o").splitlines()
	assert lines[0].startswith(f"{yard.folder}/x.o: miss: {told['why'][0]}")
	assert lines[1:] == ["  " + why for why in told["why"][1:]]


@each
def test_many_changes_are_counted(cc: str, yard: Yard) -> None:
	"""Ten changes are named, the others counted."""
	names = [f"h{number:02}.h" for number in range(15)]
	for name in names:
		yard.write(name, f"/* {name} */\n")
	yard.write("x.c", "".join(f'#include "{name}"\n' for name in names) + "int f;\n")
	line = f"{cc} -c x.c"
	yard.until_hit(line)
	for name in names:
		yard.write(name, f"/* another {name} */\n")
	yard.same(line)
	(told,) = explain(yard, "x.o")
	assert (len(told["why"]), told["more"]) == (10, 5), told
	assert ours(yard, "--explain", "x.o").endswith("\n  and 5 more\n")


@each
def test_another_command_line(cc: str, yard: Yard) -> None:
	"""Of a miss with other arguments it is told in which; of one whose entry was removed, that."""
	yard.write("x.c", "int f;\n")
	yard.until_hit(f"{cc} -O1 -DA=1 -c x.c -o x.o")
	yard.same(f"{cc} -O2 -DA=1 -g -c x.c -o x.o")
	(told,) = explain(yard, "x.o")
	assert told["why"] == ["it was not seen before", "its argument is -O2, was -O1", "its argument -g is new"]
	assert told["argv"][1:3] == ["-O2", "-DA=1"] and told["folder"] == str(yard.folder)
	line = f"{cc} -O1 -DA=1 -c x.c -o x.o"
	yard.until_hit(line)
	ours(yard, "--clear")
	yard.same(line)
	assert explain(yard, "x.o")[0]["why"][1:] == ["its entry is not in the store any more"]


@each
def test_it_outlives_the_engine(cc: str, yard: Yard) -> None:
	"""What was told is told by the next engine too, also what the command line was; a damaged line is forgotten."""
	for name in ("x", "y"):
		yard.write(f"{name}.c", "int f;\n")
	yard.until_hit(f"{cc} -c x.c")
	yard.same(f"{cc} -c y.c")
	ours(yard, "--shutdown")
	assert ours(yard, "--explain", "x.o") == f"{yard.folder}/x.o: hit: all that it depends on is as it was\n"
	status = subprocess.run(
		[yard.engine, "status", "--json"], env=yard.environ, stdout=subprocess.PIPE, timeout=PATIENCE, check=True
	)
	os.kill(json.loads(status.stdout)["pid"], signal.SIGKILL)
	yard.same(f"{cc} -c -O3 y.c")
	assert explain(yard, "y.o")[0]["why"] == ["it was not seen before", "its argument -O3 is new"]
	ours(yard, "--shutdown")
	journal = pathlib.Path(yard.environ["HOME"]) / ".cache" / "wafcc" / "store-1" / "journal"
	lines = journal.read_bytes().splitlines(keepends=True)
	journal.write_bytes(b"".join(line.replace(b"x.o", b"z.o") for line in lines))
	assert ours(yard, "--explain", "x.o").endswith("x.o: not asked for, or forgotten\n")
	assert explain(yard, "z.o") == []
	assert explain(yard, "y.o")[0]["known"] == "miss"


@each
def test_an_output_is_found_by_any_of_its_paths(cc: str, yard: Yard) -> None:
	"""Relative to this or another folder, absolute, and through a link."""
	yard.write("src/x.c", "int f;\n")
	(yard.folder / "out").mkdir()
	(yard.folder / "link").symlink_to("out")
	yard.same(f"{cc} -c x.c -o ../out/x.o", cwd="src")
	linked = f"{yard.folder}/link/x.o"
	for path, cwd in [("../out/x.o", "src"), ("x.o", "out"), (linked, "."), ("./out/../link/x.o", ".")]:
		(told,) = explain(yard, path, cwd=cwd)
		assert (told["output"], told["known"]) == (f"{yard.folder}/out/x.o", "miss")


def test_the_last_ones(yard: Yard) -> None:
	"""Without an output the last ten are told, the latest first, with their times."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	assert ours(yard, "--explain") == "nothing was asked for, or all is forgotten\n"
	for number in range(12):
		yard.write(f"{number}.c", "int f;\n")
		yard.same(f"gcc -c {number}.c")
	outputs = [f"{yard.folder}/{number}.o" for number in range(11, 1, -1)]
	assert [told["output"] for told in explain(yard)] == outputs
	shown = [line for line in ours(yard, "--explain").splitlines() if not line.startswith(" ")]
	assert [line.split("  ", 1)[1].partition(": ")[0] for line in shown] == outputs
	assert all(line[16:20] == " UTC" for line in shown)
