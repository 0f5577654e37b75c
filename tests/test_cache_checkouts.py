"""Two checkouts of one project: what one has compiled is a hit in the other, and never names the other."""

import shutil
import subprocess
import time

import pytest
from cache_support import PATIENCE, Lab, each

CHECKOUTS = ("one", "deeper/other")
"""The folders of two checkouts. Their names have different lengths, and lie at different depths."""


def write_all(lab: Lab, **texts: str) -> None:
	"""Write these files into both checkouts, and make the folder in which both build."""
	for checkout in CHECKOUTS:
		(lab.folder / checkout / "build" / "deep").mkdir(parents=True)
		for name, text in texts.items():
			lab.write(f"{checkout}/{name.replace('__', '/').replace('_', '.')}", text)


@each
@pytest.mark.parametrize("up, folder", [("..", "build"), ("../..", "build/deep"), ("./..//./..", "build/deep")])
def test_sources_outside_of_the_folder(cc: str, up: str, folder: str, lab: Lab) -> None:
	"""Waf's sources begin with ``../``, as those of all builds that have a folder of their own."""
	write_all(
		lab,
		src__x_c='#include "x.h"\n#include <y.h>\nint f = X + Y;\n',
		src__x_h="#define X 1\n",
		inc__y_h="#define Y 2\n",
	)
	line = f"{cc} -O2 -MD -I{up}/inc -c {up}/src/x.c -o x.o"
	lab.until_hit(line, f"{CHECKOUTS[0]}/{folder}")
	assert lab.same(line, f"{CHECKOUTS[1]}/{folder}").startswith("hit")
	lab.write(f"{CHECKOUTS[1]}/inc/y.h", "#define Y 3\n")
	assert lab.same(line, f"{CHECKOUTS[1]}/{folder}").startswith("miss")


def test_a_link_outside_of_the_folder(lab: Lab) -> None:
	"""gcc resolves its source: one to which a link leads is not what the other checkout has."""
	write_all(lab, src__x_c="int f;\n", other__x_c="int f;\n")
	line = "gcc -c ../src/x.c -o x.o"
	lab.until_hit(line, f"{CHECKOUTS[0]}/build")
	source = lab.folder / CHECKOUTS[1] / "src" / "x.c"
	source.unlink()
	source.symlink_to("../other/x.c")
	assert lab.same(line, f"{CHECKOUTS[1]}/build").startswith("miss: ../src/x.c leads somewhere else")
	assert lab.same(line, f"{CHECKOUTS[0]}/build").startswith("hit")


@pytest.mark.parametrize("up, folder", [(".", "."), ("..", "build")])
def test_a_shorter_name_of_a_system_header(up: str, folder: str, lab: Lab) -> None:
	"""gcc names a header of the system by its name without links if that is shorter: each checkout has its own."""
	long = "x" * 200
	write_all(lab, x_c="#include <y.h>\nint f = Y;\n", inc__y_h="#define Y 2\nstatic const char *name = __FILE__;\n")
	for checkout in CHECKOUTS:
		(lab.folder / checkout / long).mkdir()
	line = f"gcc -MD -isystem {up}/{long}/../inc -c {up}/x.c -o x.o"
	lab.until_hit(line, f"{CHECKOUTS[0]}/{folder}")
	assert lab.same(line, f"{CHECKOUTS[1]}/{folder}").startswith("miss")


SHARED = {"WAFCC_SHARECHECKOUTS": "1"}
TELLING = '#include <assert.h>\n#include "x.h"\nconst char *name = __FILE__;\nint f(int x) { assert(x); return X; }\n'


def share(lab: Lab, line: str, checkout: str, folder: str, **env: str) -> str:
	"""
	Compile with the checkout's name left out.

	The result is that of a compile with the prefix map as an argument. Returns what wafcc says of it.
	"""
	top = lab.folder / checkout
	line = line.replace("TOP", str(top))
	found = lab.run(line, True, f"{checkout}/{folder}", **env)
	said = lab.explain(top / folder / lab.output(line))
	# the user's own maps count before ours: with gcc the last one counts, with clang the first one
	cc, _, rest = line.partition(" ")
	own = f"-ffile-prefix-map={top}=."
	mapped = f"{cc} {own} {rest}" if cc == "gcc" else f"{cc} {rest} {own}"
	assert found == lab.run(mapped, False, f"{checkout}/{folder}"), said
	return said


def until_shared(lab: Lab, line: str, checkout: str, folder: str, **env: str) -> None:
	deadline = time.monotonic() + PATIENCE
	while not share(lab, line, checkout, folder, **env).startswith("hit"):
		assert time.monotonic() < deadline, f"{line} is never a hit"


@each
@pytest.mark.parametrize(
	"line, folder",
	[
		("-g -MD -Iinc -c src/x.c -o x.o", "."),
		("-g -MD -I../inc -c ../src/x.c -o x.o", "build"),
		("-O2 -MD -ITOP/inc -c TOP/src/x.c -o TOP/build/x.o", "build"),
		("-g3 -O2 -MMD -MF x.d -ITOP/inc -c TOP/src/x.c -o x.o", "build/deep"),
		("-g -S -ITOP/inc TOP/src/x.c -o x.s", "."),
	],
)
def test_the_switch_shares_what_tells_its_folder(cc: str, line: str, folder: str, lab: Lab) -> None:
	"""Debug information, ``__FILE__`` and absolute arguments name the checkout, unless ``share_checkouts`` is set."""
	write_all(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	for checkout in CHECKOUTS:
		(lab.folder / checkout / ".git").mkdir()
	line = f"{cc} {line}"
	until_shared(lab, line, CHECKOUTS[0], folder, **SHARED)
	assert share(lab, line, CHECKOUTS[1], folder, **SHARED).startswith("hit")
	lab.write(f"{CHECKOUTS[1]}/inc/x.h", "#define X 2\n")
	assert share(lab, line, CHECKOUTS[1], folder, **SHARED).startswith("miss")


@each
def test_a_base_folder_does_the_same(cc: str, lab: Lab) -> None:
	"""``base_dir`` alone is enough, as with ccache, and a user's own map of debug information counts beside it."""
	write_all(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	for option in ("", " -fdebug-prefix-map=TOP/src=SRC"):
		line = f"{cc} -g{option} -ITOP/inc -c TOP/src/x.c -o x.o"
		bases = [{"WAFCC_BASEDIR": str(lab.folder / checkout)} for checkout in CHECKOUTS]
		until_shared(lab, line, CHECKOUTS[0], "build", **bases[0])
		assert share(lab, line, CHECKOUTS[1], "build", **bases[1]).startswith("hit"), option


@each
def test_what_tells_no_folder_is_left_as_it_is(cc: str, lab: Lab) -> None:
	"""A command whose result names no folder gets no map, so its entry is the one of those who share nothing."""
	write_all(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	(lab.folder / CHECKOUTS[1] / ".git").mkdir()
	line = f"{cc} -O2 -I../inc -c ../src/x.c -o x.o"
	lab.until_hit(line, f"{CHECKOUTS[0]}/build")
	assert lab.same(line, f"{CHECKOUTS[1]}/build", **SHARED).startswith("hit")


@each
def test_a_command_that_cannot_be_shared_runs_as_it_is(cc: str, lab: Lab) -> None:
	"""Outputs that maps do not reach, a folder with a name that means something elsewhere, and no checkout at all."""
	write_all(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	odd = "odd=name"
	lab.write(f"{odd}/x.c", "int f;\n")
	lab.same(f"{cc} -g -I../inc -c ../src/x.c -o x.o", f"{CHECKOUTS[0]}/build", **SHARED)
	for folder in (odd, CHECKOUTS[0]):
		(lab.folder / folder / ".git").mkdir()
	lab.same(f"{cc} -g -c x.c -o x.o", odd, **SHARED)
	for option in ("--coverage -frandom-seed=1", "-flto -frandom-seed=1"):
		lab.same(f"{cc} -g {option} -I../inc -c ../src/x.c -o x.o", f"{CHECKOUTS[0]}/build", **SHARED)


def test_a_debugger_finds_the_sources(lab: Lab) -> None:
	"""`wafcc --debugger-settings` writes the line with which gdb shows a source, wherever gdb is started."""
	if not shutil.which("gdb"):
		pytest.skip("apt-get install gdb")
	top = lab.folder / "one"
	(top / ".git").mkdir(parents=True)
	(top / "build").mkdir()
	lab.write("one/x.c", "int main(void) {\n\treturn 7;\n}\n")
	for command in ("gcc -g ../x.c -c -o x.o", "gcc x.o -o app"):
		environ = {**lab.environ, **SHARED}
		subprocess.run([lab.wafcc, *command.split()], cwd=top / "build", env=environ, check=True)
	settings = lab.folder / ".gdbinit"
	settings.write_text("set width 0\n")
	show = ["gdb", "-nx", "-batch", "-x", str(settings), "-ex", "list main", str(top / "build" / "app")]
	assert "return 7" not in subprocess.run(show, cwd=lab.folder, capture_output=True, text=True, check=False).stdout
	for _ in range(2):
		command = [lab.wafcc, "--debugger-settings", str(settings)]
		subprocess.run(command, cwd=top / "build", env=lab.environ, check=True)
	assert settings.read_text().count('set substitute-path . "%s"\n' % top) == 1
	assert "return 7" in subprocess.run(show, cwd=lab.folder, capture_output=True, text=True, check=True).stdout
