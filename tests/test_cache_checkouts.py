"""Two checkouts of one project: what one has compiled is a hit in the other, and never names the other."""

import pathlib
import re
import shutil
import subprocess
import time
from typing import Dict, List, Sequence

import pytest
from cache_support import BLANK, PATIENCE, Lab, by_one, each, in_turn

CHECKOUTS = ("one", "deeper/other")
"""The folders of two checkouts. Their names have different lengths, and lie at different depths."""


def write_all(lab: Lab, *, checkouts: Sequence[str] = CHECKOUTS, **texts: str) -> None:
	"""Write these files into both checkouts, and make the folder in which both build."""
	for checkout in checkouts:
		(lab.folder / checkout / "build" / "deep").mkdir(parents=True)
		for name, text in texts.items():
			lab.write(f"{checkout}/{name.replace('__', '/').replace('_', '.')}", text)


@in_turn("up, folder", [("..", "build"), ("../..", "build/deep")], [("./..//./..", "build/deep")])
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


def share(lab: Lab, line: str, checkout: str, folder: str, maps: str = "TOP=.", **env: str) -> str:
	"""
	Compile with the checkout's name left out.

	The result is that of a compile with these prefix maps as arguments. Returns what wafcc says of it.
	"""
	top = lab.folder / checkout
	cwd = f"{checkout}/{folder}"

	def fill(text: str) -> str:
		text = text.replace("TOP", str(top)).replace("BUILD", str(top.parent / f"{top.name}-build"))
		return text.replace(" ", BLANK)

	words = [fill(word) for word in line.split()]
	if folder.startswith("BUILD"):
		cwd = f"{checkout}-build{folder[5:]}"
	found = lab.run(" ".join(words), True, cwd, **env)
	said = lab.explain(lab.folder / cwd / lab.output(" ".join(words)))
	# the user's own maps count before ours: with gcc the last one counts, with clang the first one
	own = [f"-ffile-prefix-map={fill(pair)}" for pair in maps.split()]
	mapped = [words[0], *own, *words[1:]] if words[0] == "gcc" else [*words, *reversed(own)]
	named = {name: value for name, value in env.items() if not name.startswith("WAF")}
	assert found == lab.run_plain(" ".join(mapped), cwd, **named), said
	return said


def until_shared(lab: Lab, line: str, checkout: str, folder: str, maps: str = "TOP=.", **env: str) -> None:
	deadline = time.monotonic() + PATIENCE
	while not share(lab, line, checkout, folder, maps, **env).startswith("hit"):
		assert time.monotonic() < deadline, f"{line} is never a hit"


@in_turn(
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


@in_turn(
	"line",
	[
		"-g -MD -ffile-prefix-map=TOP=. -ITOP/inc -c TOP/src/x.c -o TOP/build/x.o",
		"-g -ffile-prefix-map=TOP/= -I../inc -c TOP/src/x.c -o x.o",
		"-O2 -fmacro-prefix-map=TOP=. -fdebug-prefix-map=TOP=. -ITOP/inc -c TOP/src/x.c -o x.o",
		"-g -fdebug-prefix-map=TOP=/usr/src -I../inc -c ../src/x.c -o x.o",
	],
	by_each=[
		"-g -ffile-prefix-map=TOP/inc=inc -ffile-prefix-map=TOP=. -ITOP/inc -c TOP/src/x.c -o x.o",
	],
)
def test_the_maps_of_a_command_line_are_enough(cc: str, line: str, lab: Lab) -> None:
	"""Distributions build so: what has a map of its own for the checkout is shared without any setting."""
	write_all(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	line = f"{cc} {line}"
	until_shared(lab, line, CHECKOUTS[0], "build", maps="")
	assert share(lab, line, CHECKOUTS[1], "build", maps="").startswith("hit")
	lab.write(f"{CHECKOUTS[1]}/inc/x.h", "#define X 2\n")
	assert share(lab, line, CHECKOUTS[1], "build", maps="").startswith("miss")


@in_turn(
	"line",
	[
		"-g -fdebug-prefix-map=TOP=. -ITOP/inc -c TOP/src/x.c -o x.o",
		"-O2 -fmacro-prefix-map=TOP=. -ITOP/inc -c TOP/src/x.c -o x.o",
		"-g -ffile-prefix-map=TOP/inc=. -ITOP/inc -c TOP/src/x.c -o x.o",
		"-g -ffile-prefix-map=TOP/src/../=. -I../inc -c ../src/x.c -o x.o",
		"@words -c -o x.o",
	],
	by_each=[
		"-g -ffile-prefix-map=TOP=. -ffile-prefix-map=TOP/src/=TOP/ -ITOP/inc -c TOP/src/x.c -o x.o",
	],
)
def test_maps_that_leave_something_out(cc: str, line: str, lab: Lab) -> None:
	"""
	A map does not reach all that a compiler writes, or writes the name anew; or a file of options names the checkout.

	That hits in its own checkout only.
	"""
	write_all(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	for checkout in CHECKOUTS:
		top = lab.folder / checkout
		lab.write(f"{checkout}/build/words", f"-g -ffile-prefix-map={top}=. -I{top}/inc {top}/src/x.c\n")
	until_shared(lab, f"{cc} {line}", CHECKOUTS[0], "build", maps="")
	assert share(lab, f"{cc} {line}", CHECKOUTS[1], "build", maps="").startswith("miss")
	assert share(lab, f"{cc} {line}", CHECKOUTS[0], "build", maps="").startswith("hit")


@in_turn("large", ["", "char large[70000] = {1};\n"])
def test_a_result_that_names_its_checkout(cc: str, large: str, lab: Lab) -> None:
	"""With the switch, too, a folder in a macro is in the result. It is a hit where the folder has the same name."""
	make_checkouts(lab, src__x_c=TELLING + "const char *root = ROOT;\n" + large, inc__x_h="#define X 1\n")
	line = f"""{cc} -g -DROOT="TOP" -ITOP/inc -c TOP/src/x.c -o x.o"""
	for checkout in CHECKOUTS:
		assert share(lab, line, checkout, "build", **SHARED).startswith("miss")
		until_shared(lab, line, checkout, "build", **SHARED)
	lab.write(f"{CHECKOUTS[0]}/inc/x.h", f'#define X (sizeof "{lab.folder / CHECKOUTS[0]}")\n')
	line = line.replace(' -DROOT="TOP"', " -DROOT=__FILE__")
	until_shared(lab, line, CHECKOUTS[0], "build", **SHARED)


@by_one
def test_what_tells_no_folder_is_left_as_it_is(cc: str, lab: Lab) -> None:
	"""A command whose result names no folder gets no map, so its entry is the one of those who share nothing."""
	write_all(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	(lab.folder / CHECKOUTS[1] / ".git").mkdir()
	line = f"{cc} -O2 -I../inc -c ../src/x.c -o x.o"
	lab.until_hit(line, f"{CHECKOUTS[0]}/build")
	assert lab.same(line, f"{CHECKOUTS[1]}/build", **SHARED).startswith("hit")


@by_one
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


def make_checkouts(lab: Lab, *, checkouts: Sequence[str] = CHECKOUTS, **texts: str) -> None:
	write_all(lab, checkouts=checkouts, **texts)
	for checkout in checkouts:
		(lab.folder / checkout / ".git").mkdir()


ASSEMBLED = '#include "x.h"\n\t.text\nf:\n\tnop\n\t.long X\n\t.string __FILE__\n'


def names_its_checkout(lab: Lab, line: str) -> bool:
	"""Whether what a command makes names the first checkout, although a prefix map leaves it out."""
	top = lab.folder / CHECKOUTS[0]
	words = [*line.replace("TOP", str(top)).split(), f"-ffile-prefix-map={top}=."]
	subprocess.run(words, cwd=top / "build", check=True)
	return str(top).encode() in (top / "build" / "x.o").read_bytes()


@in_turn("language", ["-x assembler "], by_each=[""])
def test_assembler(cc: str, language: str, lab: Lab) -> None:
	"""The switch serves assembler, too, if the maps reach all that an assembler writes. gcc 10 passes none to it."""
	plain = "\t.text\nf:\n\tnop\n\t.long 1\n"
	make_checkouts(lab, src__x_S=plain if language else ASSEMBLED, inc__x_h="#define X 1\n")
	for words in ("-MD -I../inc -c ../src/x.S -o x.o", "-ITOP/inc -c TOP/src/x.S -o x.o"):
		line = f"{cc} -g {language}{words}"
		if names_its_checkout(lab, line):
			for checkout in CHECKOUTS:
				assert not share(lab, line, checkout, "build", maps="", **SHARED).startswith("hit")
				until_shared(lab, line, checkout, "build", maps="", **SHARED)
			continue
		until_shared(lab, line, CHECKOUTS[0], "build", **SHARED)
		assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("hit")
		source = lab.folder / CHECKOUTS[1] / "src" / "x.S"
		text = source.read_text()
		source.write_text(text.replace("nop", "ret"))
		assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("miss")
		source.write_text(text)


IGNORING = """
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
	int kept = 0;
	for (int i = 0; i < count; i++)
		if (strcmp(words[i], "--debug-prefix-map") == 0) i++;
		else words[kept++] = words[i];
	words[kept] = 0;
	return execv("AS", words);
}
"""


@pytest.mark.parametrize("option", ["", "-gz ", "-Wa,--compress-debug-sections "])
def test_an_assembler_that_ignores_maps(option: str, lab: Lab) -> None:
	"""gcc finds its assembler by a variable, too. What that leaves of a folder's name is not shared."""
	make_checkouts(lab, src__x_S=ASSEMBLED, inc__x_h="#define X 1\n")
	(lab.folder / "other").mkdir()
	# a shell would ask for its folder, which is then a fact
	source = lab.write("other/as.c", IGNORING.replace("AS", shutil.which("as") or ""))
	subprocess.run(["gcc", str(source), "-o", str(source.with_suffix(""))], check=True)
	line = f"gcc -g {option}-I../../inc -c ../../src/x.S -o x.o"
	long = "build/" + "x" * 250  # a short name is not compressed
	for checkout in CHECKOUTS:
		(lab.folder / checkout / long).mkdir()
	for checkout in (*CHECKOUTS, *CHECKOUTS):
		lab.same(line, f"{checkout}/{long}", COMPILER_PATH=str(source.parent), **SHARED)


@in_turn(
	"line, folder",
	[
		("-g -MD -Iinc -c src/x.c -o x.o", "."),
		("-O2 -MD -MP -ITOP/inc -c TOP/src/x.c -o TOP/build/x.o", "build"),
		("-g3 -O2 -MMD -MF x.d -MT deep/x.o -ITOP/inc -c TOP/src/x.c -o x.o", "build/deep"),
		("-g -Wall -S -ITOP/inc TOP/src/x.c -o x.s", "."),
	],
)
def test_a_checkout_whose_name_has_blanks(cc: str, line: str, folder: str, lab: Lab) -> None:
	"""It is shared like any other: a blank has quotes in dependency files, and none in messages and results."""
	checkouts = ("my one", "deeper/the other  one of mine")
	warned = TELLING + "int unused(void) { int here; return 0; }\n"
	write_all(lab, checkouts=checkouts, src__x_c=warned, inc__x_h="#define X 1\n")
	for checkout in checkouts:
		(lab.folder / checkout / ".git").mkdir()
	line = f"{cc} {line}"
	until_shared(lab, line, checkouts[0], folder, **SHARED)
	assert share(lab, line, checkouts[1], folder, **SHARED).startswith("hit")
	lab.write(f"{checkouts[1]}/inc/x.h", "#define X 2\n")
	assert share(lab, line, checkouts[1], folder, **SHARED).startswith("miss")


@by_one
def test_a_target_with_a_blank_that_is_not_quoted_is_not_shared(cc: str, lab: Lab) -> None:
	"""Make cannot read such a target, and neither can we: the command runs as it was given."""
	checkout = "my one"
	write_all(lab, checkouts=(checkout,), src__x_c=TELLING, inc__x_h="#define X 1\n")
	(lab.folder / checkout / ".git").mkdir()
	line = f"{cc} -MD -MT TOP/x.o -ITOP/inc -c TOP/src/x.c -o x.o"
	assert not share(lab, line, checkout, "build", maps="", **SHARED).startswith("hit")
	until_shared(lab, line, checkout, "build", maps="", **SHARED)


@each
def test_several_base_folders(cc: str, lab: Lab) -> None:
	"""Each folder of ``base_dir`` is left out of results. The folders may have other names in another checkout."""
	write_all(lab, src__x_c=TELLING + "int g = Y;\n", inc__x_h="#define X 1\n")
	extern = ("libs/e", "elsewhere/of/all/extern")
	for folder in extern:
		lab.write(f"{folder}/y.h", "#define Y 2\nstatic const char *own = __FILE__;\n")
	env = [{"WAFCC_BASEDIR": f"{lab.folder / c}/:{lab.folder / e}"} for c, e in zip(CHECKOUTS, extern)]
	lines = [f"{cc} -g -MD -ITOP/inc -I{lab.folder / e} -include y.h -c TOP/src/x.c -o x.o" for e in extern]
	maps = [f"TOP=. {lab.folder / e}=.2" for e in extern]
	until_shared(lab, lines[0], CHECKOUTS[0], "build", maps[0], **env[0])
	assert share(lab, lines[1], CHECKOUTS[1], "build", maps[1], **env[1]).startswith("hit")
	lab.write(f"{extern[1]}/y.h", "#define Y 3\n")
	assert share(lab, lines[1], CHECKOUTS[1], "build", maps[1], **env[1]).startswith("miss")


@each
def test_a_base_folder_in_another_one(cc: str, lab: Lab) -> None:
	"""Paths in the inner folder count as in that one only. Where it is not an inner one, nothing hits."""
	write_all(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	(lab.folder / "two" / "src").mkdir(parents=True)
	for name in ("src/x.c", "inc/x.h"):
		lab.write(f"two/{name}", (lab.folder / CHECKOUTS[0] / name).read_text())
	line = f"{cc} -g -ITOP/inc -c TOP/src/x.c -o x.o"
	for checkout, outcome in zip(CHECKOUTS, ("hit", "hit")):
		top = lab.folder / checkout
		env = {"WAFCC_BASEDIR": f"{top}:{top}/src"}
		if checkout == CHECKOUTS[0]:
			until_shared(lab, line, checkout, "build", "TOP=. TOP/src=.2", **env)
		assert share(lab, line, checkout, "build", "TOP=. TOP/src=.2", **env).startswith(outcome)
	# the same roles, and another nesting
	(lab.folder / "three/build").mkdir(parents=True)
	lab.write("three/inc/x.h", "#define X 1\n")
	lab.write("apart/x.c", TELLING)
	line = line.replace("TOP/src", str(lab.folder / "apart"))
	env = {"WAFCC_BASEDIR": f"{lab.folder / 'three'}:{lab.folder / 'apart'}"}
	maps = f"TOP=. {lab.folder / 'apart'}=.2"
	assert share(lab, line, "three", "build", maps, **env).startswith("miss")


@by_one
def test_a_base_folder_that_is_the_beginning_of_another_name(cc: str, lab: Lab) -> None:
	"""Compilers compare beginnings of texts: a map of ``one`` would change ``one-more``, too."""
	for folder in ("one", "one-more", "two"):
		lab.write(f"{folder}/x.c", TELLING)
		lab.write(f"{folder}/x.h", "#define X 1\n#define NAME __FILE__\nstatic const char *own = __FILE__;\n")
	line = f"{cc} -g -I{lab.folder}/one-more -c TOP/x.c -o x.o"
	for folder in ("one", "two"):
		(lab.folder / folder / "x.h").unlink()
	until_shared(lab, line, "two", ".", WAFCC_BASEDIR=str(lab.folder / "two"))
	until_shared(lab, line, "one", ".", maps="", WAFCC_BASEDIR=str(lab.folder / "one"))


@by_one
def test_a_header_whose_name_begins_like_a_base(cc: str, lab: Lab) -> None:
	"""The same for a header that no argument names: one map changes its name, and the other does not."""
	make_checkouts(lab, src__x_c="#include <y.h>\nint f;\n")
	lab.write(f"{CHECKOUTS[0]}-more/y.h", "static const char *own = __FILE__;\n")
	line = f"{cc} -g -c TOP/src/x.c -o x.o"
	env = {"CPATH": f"{lab.folder / CHECKOUTS[0]}-more", **SHARED}
	for first, second in (CHECKOUTS, CHECKOUTS[::-1]):
		until_shared(lab, line, first, "build", **env)
		said = share(lab, line, second, "build", **env)
		assert said.startswith("miss") or second == CHECKOUTS[0]


@by_one
def test_a_source_that_names_its_checkout(cc: str, lab: Lab) -> None:
	"""What came of it is no hit in another checkout, also if all files of the first one are as they were."""
	make_checkouts(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	for number, checkout in enumerate(CHECKOUTS):
		named = f"// made for {lab.folder / CHECKOUTS[0]}\n"
		lab.write(f"{checkout}/src/x.c", f"{named}{TELLING}int number = {number};\n")
	line = f"{cc} -g -ITOP/inc -c TOP/src/x.c -o x.o"
	until_shared(lab, line, CHECKOUTS[0], "build", **SHARED)
	assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("miss")
	assert share(lab, line, CHECKOUTS[0], "build", **SHARED).startswith("hit")


@by_one
def test_a_source_that_includes_by_the_name_of_another_checkout(cc: str, lab: Lab) -> None:
	"""The map of the first checkout changes the name of the header, and that of the other one does not."""
	make_checkouts(lab, inc__x_h="static const char *own = __FILE__;\n")
	for checkout in CHECKOUTS:
		lab.write(f"{checkout}/src/x.c", f'#include "{lab.folder / CHECKOUTS[0]}/inc/x.h"\nint f;\n')
	line = f"{cc} -g -c TOP/src/x.c -o x.o"
	until_shared(lab, line, CHECKOUTS[0], "build", **SHARED)
	assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("miss")


OUTSIDE = "TOP=. BUILD=.build"


def make_builds(lab: Lab, sign: str = "CMakeCache.txt", checkouts: Sequence[str] = CHECKOUTS) -> None:
	"""Two checkouts, and beside each the folder of a build."""
	text = TELLING + "int g = CONFIGURED;\n"
	make_checkouts(lab, checkouts=checkouts, src__x_c=text, inc__x_h="#define X 1\n")
	for checkout in checkouts:
		lab.write(f"{checkout}-build/inc/config.h", "#define CONFIGURED 1\n")
		lab.write(f"{checkout}-build/{sign}", "")
		(lab.folder / f"{checkout}-build" / "sub").mkdir()


@in_turn("folder", ["BUILD", "BUILD/sub"])
def test_a_build_outside_of_the_checkout(cc: str, folder: str, lab: Lab) -> None:
	"""As CMake has it: the checkout is that of the source, and the names of both folders are left out."""
	make_builds(lab)
	line = f"{cc} -g -MD -MT x.o -IBUILD/inc -ITOP/inc -include config.h -c TOP/src/x.c -o x.o"
	until_shared(lab, line, CHECKOUTS[0], folder, OUTSIDE, **SHARED)
	assert share(lab, line, CHECKOUTS[1], folder, OUTSIDE, **SHARED).startswith("hit")
	lab.write(f"{CHECKOUTS[1]}-build/inc/config.h", "#define CONFIGURED 2\n")
	assert share(lab, line, CHECKOUTS[1], folder, OUTSIDE, **SHARED).startswith("miss")
	other = "BUILD/sub" if folder == "BUILD" else "BUILD"
	assert share(lab, line, CHECKOUTS[0], other, OUTSIDE, **SHARED).startswith("miss")


@by_one
def test_a_build_beside_the_checkout_with_relative_paths(cc: str, lab: Lab) -> None:
	"""As autotools have it, called by ``../src/configure``: only the build's folder would be named."""
	checkouts = ("p/co", "deeper/q/co")
	make_builds(lab, "config.status", checkouts)
	line = f"{cc} -g -MD -Iinc -I../co/inc -include config.h -c ../co/src/x.c -o x.o"
	until_shared(lab, line, checkouts[0], "BUILD", "BUILD=.build", **SHARED)
	assert share(lab, line, checkouts[1], "BUILD", "BUILD=.build", **SHARED).startswith("hit")
	lab.write(f"{checkouts[1]}/inc/x.h", "#define X 2\n")
	assert share(lab, line, checkouts[1], "BUILD", "BUILD=.build", **SHARED).startswith("miss")


@by_one
def test_a_generated_source_in_a_build_outside_of_the_checkout(cc: str, lab: Lab) -> None:
	"""It is in no checkout. The other paths of the command say which one is meant."""
	make_builds(lab)
	for checkout in CHECKOUTS:
		lab.write(f"{checkout}-build/made.c", TELLING)
	line = f"{cc} -g -ITOP/inc -c BUILD/made.c -o made.o"
	until_shared(lab, line, CHECKOUTS[0], "BUILD", OUTSIDE, **SHARED)
	assert share(lab, line, CHECKOUTS[1], "BUILD", OUTSIDE, **SHARED).startswith("hit")


@by_one
def test_a_build_within_the_checkout_is_another_shape(cc: str, lab: Lab) -> None:
	"""With the build's folder in the checkout, paths lead elsewhere: a miss, and the result of a plain compile."""
	make_builds(lab)
	line = f"{cc} -g -ITOP/inc -c TOP/src/x.c -DCONFIGURED=1 -o x.o"
	until_shared(lab, line, CHECKOUTS[0], "BUILD", OUTSIDE, **SHARED)
	assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("miss")


@by_one
def test_a_result_may_depend_on_a_path_without_holding_it(cc: str, lab: Lab) -> None:
	"""Without the switch, a command with absolute arguments never hits in another checkout."""
	text = "#define PASTE(a, b) a##b\nint f = sizeof PASTE(__FI, LE__);\n"
	make_checkouts(lab, src__x_c=text)
	line = f"{cc} -O2 -c TOP/src/x.c -o x.o"
	until_shared(lab, line, CHECKOUTS[0], "build", maps="")
	assert share(lab, line, CHECKOUTS[1], "build", maps="").startswith("miss")


@pytest.mark.parametrize("switch", [False, True])
def test_the_line_that_differs_is_told(switch: bool, lab: Lab) -> None:
	"""A generated header with the checkout's name in it makes a miss, and ``--explain`` says which line it is."""
	make_checkouts(lab, src__x_c='#include "config.h"\nint f = sizeof SRCDIR;\n')
	env = SHARED if switch else {}
	for checkout in CHECKOUTS:
		lab.write(f"{checkout}/inc/config.h", f'#define A 1\n#define SRCDIR "{lab.folder / checkout}"\n')
	line = "gcc -ITOP/inc -c TOP/src/x.c -o x.o" if switch else "gcc -I../inc -c ../src/x.c -o x.o"
	maps = "TOP=." if switch else ""
	until_shared(lab, line, CHECKOUTS[0], "build", maps, **env)
	said = share(lab, line, CHECKOUTS[1], "build", maps, **env)
	one, other = (f"'#define SRCDIR \"{lab.folder / checkout}\"'" for checkout in CHECKOUTS)
	told = f"config.h has changed: line 2 is {shorten(other)}, was {shorten(one)} in {lab.folder / CHECKOUTS[0]}/build"
	assert told in said, said


def shorten(text: str) -> str:
	"""What people are shown of a line."""
	inner = text[1:-1].replace('"', '\\"')
	raw = text[1:-1]
	return f"'{inner}'" if len(raw) <= 60 else "'%s…'" % raw[:60].replace('"', '\\"')


@each
def test_without_an_engine_the_result_is_the_same(cc: str, lab: Lab, tmp_path: pathlib.Path) -> None:
	"""A command that cannot reach an engine runs with the maps that the engine would add."""
	make_builds(lab)
	where = tmp_path / "no-folder"
	where.write_text("an engine needs a folder here")
	silent: Dict[str, str] = {"WAFD_RUNTIME_DIR": str(where), **SHARED}
	line = f"{cc} -g -MD -IBUILD/inc -ITOP/inc -include config.h -c TOP/src/x.c -o x.o"
	said = share(lab, line, CHECKOUTS[0], "BUILD", OUTSIDE, **silent)
	assert "hit" not in said
	share(lab, line, CHECKOUTS[0], "BUILD", OUTSIDE, **SHARED)
	share(lab, line, CHECKOUTS[0], "BUILD", maps="", **SHARED, WAFCC_DISABLE="1")


@each
def test_a_folder_that_is_called_by_another_name(cc: str, lab: Lab) -> None:
	"""With `PWD`, compilers call their folder by a name with links, which the map of its own name does not reach."""
	make_checkouts(lab, src__x_c=TELLING, inc__x_h="#define X 1\n")
	(lab.folder / "link").symlink_to(CHECKOUTS[0])
	line = f"{cc} -g -I../inc -c ../src/x.c -o x.o"
	named = {"PWD": str(lab.folder / "link" / "build"), **SHARED}
	maps = f"{lab.folder}/link=."
	until_shared(lab, line, CHECKOUTS[0], "build", maps, **named)
	for checkout in CHECKOUTS:
		env = {"PWD": str(lab.folder / checkout / "build"), **SHARED}
		assert share(lab, line, checkout, "build", **env).startswith("hit")
	assert share(lab, line, CHECKOUTS[0], "build", maps, **named).startswith("hit")


def test_a_debugger_finds_the_sources(lab: Lab) -> None:
	"""`wafcc --debugger-settings` writes the line with which gdb shows a source, wherever gdb is started."""
	if not shutil.which("gdb"):
		pytest.skip("apt-get install gdb")
	top = lab.folder / "the one"
	(top / ".git").mkdir(parents=True)
	(top / "build").mkdir()
	lab.write("the one/x.c", "int main(void) {\n\treturn 7;\n}\n")
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


CONFIGURED = '/* made by configure */\n#define SRCDIR "TOP/src"\n# define VERSION "1"\n#define WHERE \t"TOP:TOP/inc" \n'
"""What many projects' ``configure`` writes."""


def configure(lab: Lab, checkout: str, text: str = CONFIGURED) -> None:
	lab.write(f"{checkout}/build/config.h", text.replace("TOP", str(lab.folder / checkout)))


@in_turn("option", ["-O2 -Wall", "-include config.h -MD -MF x.d"])
def test_macros_that_nothing_uses(cc: str, option: str, lab: Lab) -> None:
	"""A header that defines where the checkout is, is as good as the same one in another checkout."""
	make_checkouts(lab, src__x_c='#include "config.h"\n' + TELLING, inc__x_h="#define X 1\n")
	for checkout in CHECKOUTS:
		configure(lab, checkout)
	line = f"{cc} {option} {'-g' if cc == 'gcc' else ''} -I. -ITOP/inc -c TOP/src/x.c -o x.o"
	until_shared(lab, line, CHECKOUTS[0], "build", **SHARED)
	assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("hit")
	other = CHECKOUTS[1]
	for text, outcome in (
		(CONFIGURED.replace("/src", "/source"), "hit"),
		(CONFIGURED.replace("TOP:TOP/inc", "here"), "hit"),
		(CONFIGURED.replace('"1"', '"2"'), "miss"),
		(CONFIGURED.replace('TOP/src"', 'TOP/src" ""'), "miss"),
		(CONFIGURED.replace("/src", "*/src"), "miss"),
		(CONFIGURED.replace("# define VERSION", "# define  VERSION"), "miss"),
		(CONFIGURED + "#define X 3\n", "miss"),
		(CONFIGURED.replace('#define SRCDIR "TOP/src"\n', ""), "miss"),
	):
		configure(lab, other, text)
		assert share(lab, line, other, "build", **SHARED).startswith(outcome), text


@in_turn(
	"text, option",
	[
		("const char *s = SRCDIR;", ""),
		("#ifdef SRCDIR\nint g;\n#endif", ""),
		("#define JOIN(a, b) a##b\nconst char *s = JOIN(SRC, DIR);", ""),
		("#define JOIN(a, b) a??=??=b\nconst char *s = JOIN(SRC, DIR);", "-trigraphs"),
		("const char *s = SRC\\\nDIR;", ""),
		("#define J(a, b, c, d, e, f) a##b##c##d##e##f\nconst char *s = J(S, R, C, D, I, R);", ""),
		('/* it\'s */ const char *s = /* " */ SRCDIR /* " */;', ""),
		("// it's /*\nconst char *s = SRCDIR; // */", ""),
		("const char *s = GIVEN;", "-DGIVEN=SRCDIR"),
		("#define JOIN(a, b) a##b\n#define MADE(a, b) JOIN(a, b)\nconst char *s = MADE(GIVEN, DIR);", "-DGIVEN=SRC"),
		("const char *s = USED;", ""),
		('#include "used.h"\nconst char *s = u;', ""),
		('_Pragma("push_macro(\\"SRCDIR\\")")\nint g;', ""),
		('asm(".data\\n.globl raw\\nraw: .incbin \\"config.h\\"\\n.text");', ""),
		("int g;", "-g3"),
	],
)
def test_macros_that_something_uses(cc: str, text: str, option: str, lab: Lab) -> None:
	"""However a macro is used that names the checkout: its value counts."""
	make_checkouts(lab, src__x_c=f'#include "config.h"\n{text}\n', inc__used_h="static const char *u = SRCDIR;\n")
	used = CONFIGURED + ("#define USED SRCDIR\n" if "USED" in text else "")
	for checkout in CHECKOUTS:
		configure(lab, checkout, used)
	line = f"{cc} {option} -I. -ITOP/inc -c TOP/src/x.c -o x.o"
	found = [share(lab, line, checkout, "build", **SHARED) for checkout in (CHECKOUTS[0], CHECKOUTS[0], CHECKOUTS[1])]
	assert not found[2].startswith("hit"), found


GUARDED = """\
/* by bison */
#ifndef YYNAME_P_TAB_H_INCLUDED
# define YYNAME_P_TAB_H_INCLUDED
enum { TOKEN = 258 };
#endif /* !YYNAME_P_TAB_H_INCLUDED */
"""
"""A header as bison makes it: the name of its guard is made of its path."""


JOINS = "#define J(a, b) a##b\n#define T(x) #x\n#define S(x) T(x)\n"


def generate(lab: Lab, checkout: str, text: str = GUARDED) -> None:
	folder = re.sub("[^A-Z0-9]", "_", str(lab.folder / checkout / "build").upper())
	lab.write(f"{checkout}/build/p.tab.h", text.replace("NAME", folder))


@by_one
def test_a_guard_that_names_its_checkout(cc: str, lab: Lab) -> None:
	make_checkouts(lab, src__x_c='#include "p.tab.h"\n#include "p.tab.h"\n' + TELLING, inc__x_h="#define X TOKEN\n")
	for checkout in CHECKOUTS:
		generate(lab, checkout)
	line = f"{cc} {'-g' if cc == 'gcc' else ''} -I. -ITOP/inc -c TOP/src/x.c -o x.o"
	until_shared(lab, line, CHECKOUTS[0], "build", **SHARED)
	assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("hit")
	for text in (
		GUARDED.replace("258", "259"),
		GUARDED.replace("ifndef YY", "ifndef Y"),
		GUARDED.replace("#endif", "int more;\n#endif"),
	):
		generate(lab, CHECKOUTS[1], text)
		assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("miss"), text
	for text in (GUARDED.replace("/* !YYNAME", "/* !YYNAM"), GUARDED):
		generate(lab, CHECKOUTS[1], text)
		assert share(lab, line, CHECKOUTS[1], "build", **SHARED).startswith("hit"), text


@pytest.mark.parametrize(
	"text, option",
	[
		("#ifdef YYNAME_P_TAB_H_INCLUDED\nint g;\n#endif", ""),
		(JOINS + "const char *s = S(J(YYNAME_P_TAB_H_, INCLUDED));", ""),
		('const char *s = "YYNAME_P_TAB_H_INCLUDED";', ""),
		("int g;", "-DYYNAME_P_TAB_H_INCLUDED"),
		("int g;", "-DOTHER_BUILD_P_TAB_H_INCLUDED"),
		("int g;", "-g3"),
	],
)
def test_a_guard_that_something_uses(text: str, option: str, lab: Lab) -> None:
	"""Its name in one checkout may be that of another macro in another one."""
	names = {c: re.sub("[^A-Z0-9]", "_", str(lab.folder / c / "build").upper()) for c in CHECKOUTS}
	for checkout in CHECKOUTS:
		write_all(lab, checkouts=[checkout])
		(lab.folder / checkout / ".git").mkdir()
		generate(lab, checkout)
		# both checkouts have the same source, which names the header of the second one
		lab.write(f"{checkout}/src/x.c", '#include "p.tab.h"\n%s\n' % text.replace("NAME", names[CHECKOUTS[1]]))
	line = f"gcc {option.replace('NAME', names[CHECKOUTS[1]])} -I. -c TOP/src/x.c -o x.o"
	found = [share(lab, line, checkout, "build", **SHARED) for checkout in (CHECKOUTS[0], CHECKOUTS[0], CHECKOUTS[1])]
	assert not found[2].startswith("hit"), found


COMMENTED = "/* Generated from TOP/src/p.asn1 */\n#include <stddef.h> // for TOP\n#define F(a) \\\n  a\nint made;\n"


KINDS = [{}, SHARED, {"WAFCC_BASEDIR": "TOP"}]
SETTINGS = pytest.mark.parametrize("settings", KINDS, ids=["plain", "switch", "base"])


@in_turn("settings", KINDS)
def test_a_compile_with_relative_names(cc: str, settings: Dict[str, str], lab: Lab) -> None:
	"""It needs no map, and what it reads may name its checkout all the same."""
	make_checkouts(lab, src__x_c='#include "config.h"\n#include "p.tab.h"\n#include "made.h"\nint f = 1;\n')
	line = "%s -O2 -MD -Iinc%s -I../inc -I. -c ../src/x.c -o x.o"
	told = []
	for checkout in (CHECKOUTS[0], *CHECKOUTS):
		top = str(lab.folder / checkout)
		configure(lab, checkout)
		generate(lab, checkout)
		lab.write(f"{checkout}/build/made.h", COMMENTED.replace("TOP", top))
		env = {name: value.replace("TOP", top) for name, value in settings.items()}
		told.append(share(lab, line % (cc, f"{top}/deeper/inc"), checkout, "build", maps="", **env))
	assert told[2].startswith("hit"), told
	inc = lab.folder / CHECKOUTS[1] / "build" / ("inc%s/deeper/inc" % top)
	inc.mkdir(parents=True)
	assert share(lab, line % (cc, f"{top}/deeper/inc"), checkout, "build", maps="", **env).startswith("miss")
	(inc / "made.h").write_text("int other;\n")
	assert share(lab, line % (cc, f"{top}/deeper/inc"), checkout, "build", maps="", **env).startswith("miss")
	shutil.rmtree(inc)
	for text in ("int more;\n", "\n", "/* more */\n"):
		lab.write(f"{checkout}/build/made.h", COMMENTED.replace("TOP", top) + text)
		assert share(lab, line % (cc, f"{top}/deeper/inc"), checkout, "build", maps="", **env).startswith("miss"), text


def compile_everywhere(lab: Lab, line: str, settings: Dict[str, str], folder: str = "build") -> List[str]:
	"""What is said of a compile in one checkout, there again, and in the other one."""
	told = []
	for checkout in (CHECKOUTS[0], *CHECKOUTS):
		top = str(lab.folder / checkout)
		env = {name: value.replace("TOP", top) for name, value in settings.items()}
		told.append(share(lab, line, checkout, folder, maps="", **env))
	return told


@in_turn("settings", KINDS)
def test_options_that_name_the_checkout(cc: str, settings: Dict[str, str], lab: Lab) -> None:
	"""Many builds tell all compiles where the checkout is, and few sources use it. Samba does all of this."""
	texts = {
		"plain": "int f = 1;\n",
		"joining": "#ifndef JOIN\n# define JOIN(a, b) a ## b\n#endif\nint BIN, DIR;\n",
		"directives": "#ifndef BINDIR\n# define BINDIR BIN ## _ ## DIR\n#endif\n",
		"using": "const char *f = BINDIR;\n",
		"joined": "#define JOIN(a, b) a ## b\nconst char *f = JOIN(BIN, DIR);\n",
		"measuring": "int f = sizeof BINDIR;\n",
		"asking": "#ifdef BINDIR\nint f;\n#endif\n",
	}
	make_checkouts(lab, **{"src__%s_c" % name: text for name, text in texts.items()})
	for checkout in CHECKOUTS:
		(lab.folder / checkout / "build" / ("sub%s/deep/inc" % (lab.folder / checkout))).mkdir(parents=True)
	options = '-O2 -MD -DBINDIR="TOP/bin" -D PREFIX=TOP -IsubTOP/deep/inc -I.'
	for name in texts:
		told = compile_everywhere(lab, f"{cc} {options} -c ../src/{name}.c -o {name}.o", settings)
		assert told[1].startswith("hit"), (name, told)
		is_same = name in ("plain", "joining", "directives")
		assert told[2].startswith("hit") == is_same, (name, told)
		assert is_same or "the checkout's folder, which a word of the command line names, is" in told[2], told


@in_turn(
	"option",
	["-DOTHER=BINDIR", "-DJOIN(a,b)=a##b -DX=BIN -DY=DIR", "-H", "-save-temps", "-UBINDIR -DBINDIR=f(TOP)"],
	by_each=["-g3", "-Wall -fdiagnostics-format=json", "-frecord-gcc-switches"],
)
def test_options_that_may_show_the_checkout(cc: str, option: str, lab: Lab) -> None:
	if cc == "clang" and option.startswith("-frecord"):
		option = "-frecord-command-line"
	if cc == "clang" and "=json" in option:
		option = "-Wall -fno-show-source-location"
	make_checkouts(lab, src__x_c="static int unused;\nint f(int (*g)(int)) { return g(1); }\n")
	line = f'{cc} -DBINDIR="TOP/bin" {option} -c ../src/x.c -o x.o'
	assert not compile_everywhere(lab, line, {})[2].startswith("hit")


@SETTINGS
def test_a_header_in_a_folder_with_the_name_of_the_checkout_amid(settings: Dict[str, str], lab: Lab) -> None:
	"""A header that is found in such a folder, or by way of it, counts for its own checkout only."""
	make_checkouts(lab, src__x_c='#include "made.h"\nint f = MADE;\n', src__y_c='#include "../../up.h"\nint f = UP;\n')
	for checkout in CHECKOUTS:
		inc = "%s/build/sub%s/deep/inc" % (checkout, lab.folder / checkout)
		lab.write(f"{inc}/made.h", "#define MADE __LINE__\n")
		lab.write(f"{checkout}/build/sub{lab.folder / checkout}/up.h", "#define UP 1\n")
	for name in ("x", "y"):
		told = compile_everywhere(lab, f"gcc -IsubTOP/deep/inc -c ../src/{name}.c -o {name}.o", settings)
		assert told[1].startswith("hit") and told[2].startswith("miss"), told
	# nothing is found there any more: the other checkout has the same
	for checkout in CHECKOUTS:
		shutil.rmtree(str(lab.folder / checkout / "build" / "sub"))
		lab.write(f"{checkout}/src/made.h", "#define MADE 3\n")
	told = compile_everywhere(lab, "gcc -IsubTOP/deep/inc -c ../src/x.c -o x.o", settings)
	assert told[2].startswith("hit"), told


def test_another_base_makes_another_value(lab: Lab) -> None:
	"""The command of one folder has another value, and the same place of it in the base: it is not the same command."""
	make_checkouts(lab, src__x_c="const char *f = BINDIR;\n")
	top = lab.folder / CHECKOUTS[0]
	for base, value in ((top, top / "bin"), (top / "build", top / "build" / "bin")):
		for outcome in ("miss", "hit"):
			line = f'gcc -DBINDIR="{value}" -c ../src/x.c -o x.o'
			said = share(lab, line, CHECKOUTS[0], "build", maps="", WAFCC_BASEDIR=str(base))
			assert said.startswith(outcome), said


GENERATED = """\
/* Made from TOP/src/x.in
 * at TIME */
#ifndef MADE // on TIME, in TOP
#define MADE \\
	1
#endif
"""


@each
def test_a_header_with_the_time_in_a_comment(cc: str, lab: Lab) -> None:
	"""A file that names its checkout was generated. Its comments often have the time as well."""
	make_checkouts(lab, src__x_c='#include "made.h"\nint f(int x) { return x + MADE; }\n')
	line = f"{cc} -O2 -Wall -MD -I. -c ../src/x.c -o x.o"

	def say(checkout: str, text: str = GENERATED, options: str = "") -> str:
		text = text.replace("TOP", str(lab.folder / checkout)).replace("TIME", str(time.monotonic()))
		lab.write(f"{checkout}/build/made.h", text)
		return share(lab, line + options, checkout, "build", maps="")

	one, other = CHECKOUTS
	say(one)
	assert say(one).startswith("hit")
	assert say(other).startswith("hit")
	for wrong in (
		GENERATED.replace("x.in\n", "x.in"),
		GENERATED.replace("\t1", "\t2"),
		GENERATED.replace("MADE //", "MADE /"),
		GENERATED.replace(" on", " falls through on"),
		GENERATED.replace(" * at", " * \N{LATIN SMALL LETTER E WITH ACUTE} at"),
		GENERATED.replace(" at TIME */", " at TIME */ /* more */"),
	):
		assert say(other, wrong).startswith("miss"), wrong
	assert say(other, GENERATED.replace("TOP", "nowhere")).startswith("hit")
	if cc == "clang":
		for _ in range(2):
			say(one, options=" -Wdocumentation")
		assert say(other, options=" -Wdocumentation").startswith("miss")


@in_turn("option", ["", '-DBINDIR="TOP/bin"'])
def test_a_message_about_another_file(cc: str, option: str, lab: Lab) -> None:
	"""A message shows lines of the files that it names, and of no others."""
	make_checkouts(
		lab,
		src__x_c='#include "config.h"\n#include "made.h"\nint f(void) { int unused; return MADE; }\n',
		src__y_c='#include "config.h"\n#include "made.h"\nint f(void) { return 1; }\n#define MADE 2\n',
		src__z_c='#include "config.h"\n#define BINDIR 1\n#include "made.h"\nint f(void) { int unused; return MADE; }\n',
	)
	for name, hits in (("x", True), ("y", False), ("z", not option)):
		line = f"{cc} -Wall {option} -I. -c ../src/{name}.c -o {name}.o"
		told = []
		for checkout in (CHECKOUTS[0], *CHECKOUTS):
			configure(lab, checkout)
			lab.write(f"{checkout}/build/made.h", GENERATED.replace("TOP", str(lab.folder / checkout)))
			time.sleep(0.1)  # a header that was written just before is not trusted
			told.append(share(lab, line, checkout, "build", maps=""))
		assert told[1].startswith("hit"), told
		assert told[2].startswith("hit") == hits, (name, told)


def test_a_message_that_shows_a_comment(lab: Lab) -> None:
	"""gcc shows the line of a warning, and the comment on it."""
	make_checkouts(lab)
	said = ""
	for checkout in (CHECKOUTS[0], *CHECKOUTS):
		lab.write(f"{checkout}/src/x.c", f"int f(void) {{ int unused; }} // in {lab.folder / checkout}\n")
		said = share(lab, "gcc -Wall -c ../src/x.c -o x.o", checkout, "build", maps="", **SHARED)
	assert said.startswith("miss"), said


@pytest.mark.parametrize("option", ["-Wmissing-include-dirs", "-frecord-gcc-switches", "-H"])
def test_a_folder_that_is_not_there_and_is_told(option: str, lab: Lab) -> None:
	"""Some options tell of folders that are searched in vain."""
	make_checkouts(lab, src__x_c="int f = 1;\n")
	for checkout in (CHECKOUTS[0], *CHECKOUTS):
		line = f"gcc {option} -Iinc{lab.folder / checkout}/inc -c ../src/x.c -o x.o"
		said = share(lab, line, checkout, "build", maps="", **SHARED)
	assert said.startswith("miss"), said


def test_digests_of_sources_in_debug_information(lab: Lab) -> None:
	"""clang writes a digest of each source, also of one of which nothing is used."""
	make_checkouts(lab, src__x_c='#include "config.h"\nint f;\n')
	for checkout in CHECKOUTS:
		configure(lab, checkout)
	line = "clang -g -gdwarf-5 -I. -c TOP/src/x.c -o x.o"
	for checkout in (CHECKOUTS[0], CHECKOUTS[1]):
		assert share(lab, line, checkout, "build", **SHARED).startswith("miss")
