"""``wafcc --explain``: the reason why a request hit or missed. The explanations are kept."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
from typing import Any, Dict, List

import pytest
from cache_support import PATIENCE, Lab, each


def ours(lab: Lab, *options: str, cwd: str = ".") -> str:
	"""The output of wafcc for options of its own."""
	argv = [lab.wafcc, *options]
	folder = lab.folder / cwd
	return subprocess.run(
		argv, env=lab.environ, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
	).stdout


def explain(lab: Lab, *output: str, cwd: str = ".") -> List[Dict[str, Any]]:
	"""The explanation of an output, in the form for programs."""
	return json.loads(ours(lab, "--json", "--explain", *output, cwd=cwd))


@each
def test_all_that_has_changed_is_told(cc: str, lab: Lab) -> None:
	"""A header that changed, one that vanished, one that appeared and a variable with its values: all are named."""
	for name in ("f.h", "g.h", "sub/h.h"):
		lab.write(name, "\n")
	(lab.folder / "first").mkdir()
	text = '#include "f.h"\n#if __has_include("g.h")\n#endif\n#include <h.h>\nint f(void) { int unused; return 1; }\n'
	lab.write("x.c", text)
	line = f"{cc} -Wall -Ifirst -Isub -c x.c"
	lab.until_hit(line, NO_COLOR="", TERM="dumb")
	lab.write("f.h", "#define F\n")
	lab.write("first/h.h", "\n")
	(lab.folder / "g.h").unlink()
	lab.same(line, NO_COLOR="", TERM="xterm")
	(told,) = explain(lab, "x.o")
	assert told["known"] == "miss" and told["more"] == 0
	missing = {"f.h has changed", "g.h is not there any more", "first/h.h is there now, and was not"} - set(told["why"])
	assert not missing, told["why"]
	if cc == "gcc":
		assert "TERM is 'xterm', was 'dumb'" in told["why"]
	lines = ours(lab, "--explain", "x.o").splitlines()
	assert lines[0].startswith(f"{lab.folder}/x.o: miss: {told['why'][0]}")
	assert lines[1:] == ["  " + why for why in told["why"][1:]]


@each
def test_many_changes_are_counted(cc: str, lab: Lab) -> None:
	"""Ten changes are named, the others counted."""
	names = [f"h{number:02}.h" for number in range(15)]
	for name in names:
		lab.write(name, f"/* {name} */\n")
	lab.write("x.c", "".join(f'#include "{name}"\n' for name in names) + "int f;\n")
	line = f"{cc} -c x.c"
	lab.until_hit(line)
	for name in names:
		lab.write(name, f"/* another {name} */\n")
	lab.same(line)
	(told,) = explain(lab, "x.o")
	assert (len(told["why"]), told["more"]) == (10, 5), told
	assert ours(lab, "--explain", "x.o").endswith("\n  and 5 more\n")


@each
def test_another_command_line(cc: str, lab: Lab) -> None:
	"""A miss with other arguments names them. A miss whose entry was removed says so."""
	lab.write("x.c", "int f;\n")
	lab.until_hit(f"{cc} -O1 -DA=1 -c x.c -o x.o")
	lab.same(f"{cc} -O2 -DA=1 -g -c x.c -o x.o")
	(told,) = explain(lab, "x.o")
	assert told["why"] == ["it was not seen before", "its argument is -O2, was -O1", "its argument -g is new"]
	assert told["argv"][1:3] == ["-O2", "-DA=1"] and told["folder"] == str(lab.folder)
	line = f"{cc} -O1 -DA=1 -c x.c -o x.o"
	lab.until_hit(line)
	ours(lab, "--clear")
	lab.same(line)
	assert explain(lab, "x.o")[0]["why"][1:] == ["its entry is not in the store any more"]


@each
def test_it_outlives_the_engine(cc: str, lab: Lab) -> None:
	"""The next engine tells the same, also the command line. A damaged line is ignored."""
	for name in ("x", "y"):
		lab.write(f"{name}.c", "int f;\n")
	lab.until_hit(f"{cc} -c x.c")
	lab.same(f"{cc} -c y.c")
	ours(lab, "--shutdown")
	assert ours(lab, "--explain", "x.o") == f"{lab.folder}/x.o: hit: all that it depends on is as it was\n"
	status = subprocess.run(
		[lab.engine, "status", "--json"], env=lab.environ, stdout=subprocess.PIPE, timeout=PATIENCE, check=True
	)
	os.kill(json.loads(status.stdout)["pid"], signal.SIGKILL)
	lab.same(f"{cc} -c -O3 y.c")
	assert explain(lab, "y.o")[0]["why"] == ["it was not seen before", "its argument -O3 is new"]
	ours(lab, "--shutdown")
	journal = pathlib.Path(lab.environ["HOME"]) / ".cache" / "wafcc" / "store-2" / "journal"
	lines = journal.read_bytes().splitlines(keepends=True)
	journal.write_bytes(b"".join(line.replace(b"x.o", b"z.o") for line in lines))
	assert ours(lab, "--explain", "x.o").endswith("x.o: not asked for, or forgotten\n")
	assert explain(lab, "z.o") == []
	assert explain(lab, "y.o")[0]["known"] == "miss"


@each
def test_an_output_is_found_by_any_of_its_paths(cc: str, lab: Lab) -> None:
	"""Relative to this or another folder, absolute, and through a link."""
	lab.write("src/x.c", "int f;\n")
	(lab.folder / "out").mkdir()
	(lab.folder / "link").symlink_to("out")
	lab.same(f"{cc} -c x.c -o ../out/x.o", cwd="src")
	linked = f"{lab.folder}/link/x.o"
	for path, cwd in [("../out/x.o", "src"), ("x.o", "out"), (linked, "."), ("./out/../link/x.o", ".")]:
		(told,) = explain(lab, path, cwd=cwd)
		assert (told["output"], told["known"]) == (f"{lab.folder}/out/x.o", "miss")


def test_the_last_ones(lab: Lab) -> None:
	"""Without an output the last ten are shown, the latest first, with their times."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	assert ours(lab, "--explain") == "nothing was asked for, or all is forgotten\n"
	for number in range(12):
		lab.write(f"{number}.c", "int f;\n")
		lab.same(f"gcc -c {number}.c")
	outputs = [f"{lab.folder}/{number}.o" for number in range(11, 1, -1)]
	assert [told["output"] for told in explain(lab)] == outputs
	shown = [line for line in ours(lab, "--explain").splitlines() if not line.startswith(" ")]
	assert [line.split("  ", 1)[1].partition(": ")[0] for line in shown] == outputs
	assert all(line[16:20] == " UTC" for line in shown)
