"""Two checkouts of one project: what one has compiled is a hit in the other, and never names the other."""

import pytest
from cache_support import Lab, each

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
	"""gcc calls a header of the system by its name without links if that is shorter, which each checkout has for itself."""
	long = "x" * 200
	write_all(lab, x_c="#include <y.h>\nint f = Y;\n", inc__y_h="#define Y 2\nstatic const char *name = __FILE__;\n")
	for checkout in CHECKOUTS:
		(lab.folder / checkout / long).mkdir()
	line = f"gcc -MD -isystem {up}/{long}/../inc -c {up}/x.c -o x.o"
	lab.until_hit(line, f"{CHECKOUTS[0]}/{folder}")
	assert lab.same(line, f"{CHECKOUTS[1]}/{folder}").startswith("miss")
