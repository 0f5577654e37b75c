"""Hits by text: the preprocessor leaves the same of a source, although its headers or macros have changed."""

import json
import shutil
import subprocess
import time
from typing import Any, Dict, List

import pytest
from cache_support import COMPILERS, PATIENCE, Lab

pytestmark = pytest.mark.timeout(4 * PATIENCE)

SAME = "what the preprocessor leaves is what it left for an earlier compile"
SOURCE = """\
#include "config.h"
#include "a.h"
#include <vector>
int f() { return A; }
"""
"""With a header that takes long enough: the text of a quick compile is not compared."""
HEADER = """\
#pragma once
// a comment
#define A 1
#define UNUSED 1

struct S { int a; /* of S */ };
inline int g(int x)
{
	return x + A;
}
"""
FILES = {"src/a.cc": SOURCE, "src/a.h": HEADER, "src/config.h": '#define WHERE "/one"\n'}
LINE = "gcc -O0 -Isrc -c src/a.cc -o a.o"


@pytest.fixture
def lab(lab: Lab) -> Lab:
	configure(lab, "compare_texts=yes")
	for name, text in FILES.items():
		lab.write(name, text)
	return lab


def configure(lab: Lab, setting: str) -> None:
	subprocess.run([lab.wafcc, "--set-config", setting], env=lab.environ, check=True)


def tell(lab: Lab) -> Dict[str, Any]:
	"""What the statistics say of texts."""
	shown = subprocess.run(
		[lab.wafcc, "--show-stats", "--json"], env=lab.environ, capture_output=True, timeout=PATIENCE, check=True
	)
	told: Dict[str, Any] = json.loads(shown.stdout)
	texts: Dict[str, Any] = told["texts"]
	return texts


def need(cc: str) -> None:
	if cc not in COMPILERS:
		pytest.skip("there is no %s" % cc)


def keep(lab: Lab, line: str = LINE) -> None:
	"""Compile, and wait until the text is known."""
	before = tell(lab)["kept"]
	time.sleep(0.1)
	lab.same(line)
	wait(lab, before + 1)


def wait(lab: Lab, kept: int) -> None:
	deadline = time.monotonic() + 2 * PATIENCE
	while tell(lab)["kept"] < kept:
		assert time.monotonic() < deadline, tell(lab)
		time.sleep(0.1)


def edit(lab: Lab, name: str, old: str, new: str) -> None:
	text = (lab.folder / name).read_text()
	assert old in text
	lab.write(name, text.replace(old, new))
	time.sleep(0.1)  # what was written just before a compile is not trusted


EDITS = {
	"a comment": ("src/a.h", "a comment", "another comment, which is longer"),
	"a comment amid a line": ("src/a.h", "/* of S */", "/* of a structure */"),
	"a comment of two lines": ("src/a.h", "// another comment, which is longer", "/* a\n * comment */"),
	"a blank line": ("src/a.h", "struct S", "\n\nstruct S"),
	"a blank line in the source": ("src/a.cc", "#include <vector>", "\n#include <vector>"),
	"an unused macro": ("src/a.h", "UNUSED 1", "UNUSED 2"),
	"a new macro": ("src/a.h", "#define A 1", "#define A 1\n#define B 2"),
	"a string of a configuration": ("src/config.h", '"/one"', '"/two"'),
	"a condition": ("src/a.h", "struct S", "#if A\n#define C 1\n#endif\nstruct S"),
}


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_edits_that_leave_the_text(cc: str, lab: Lab) -> None:
	"""Each of them is a hit by the text, and then one by the facts. Switched off, it is a miss."""
	need(cc)
	line = LINE.replace("gcc", cc) + " -MD -MF a.d"
	keep(lab, line)
	for hits, (name, old, new) in enumerate(EDITS.values(), start=1):
		edit(lab, name, old, new)
		assert SAME in lab.same(line), (name, new)
		assert tell(lab)["hits"] == hits
		assert "as it was" in lab.same(line)
	assert tell(lab)["saved"] > 0
	configure(lab, "compare_texts=no")
	edit(lab, "src/a.h", "UNUSED 2", "UNUSED 3")
	assert "miss" in lab.same(line)


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_options_that_leave_the_text(cc: str, lab: Lab) -> None:
	"""Macros that nothing names, other folders of the same headers, and headers of macros alone do not count."""
	need(cc)
	line = LINE.replace("gcc", cc)
	keep(lab, line)
	shutil.copytree(lab.folder / "src", lab.folder / "copy")
	lab.write("more.h", "#define MORE 1\n")
	time.sleep(0.1)
	for options in ("-DNOBODY=1", "-DNOBODY=2 -UNOTHING", "-isystem none -Iempty", "-include more.h"):
		assert SAME in lab.same(line + " " + options), options
	assert SAME in lab.same(line.replace("-Isrc", "-Icopy"))
	for options in ("-O1", "-fPIC", "-DUNUSED=7 -O1", "-funsigned-char"):
		assert SAME not in lab.same(line + " " + options), options


CHANGES = {
	"a macro that is used": ("src/a.h", "#define A 1", "#define A 2"),
	"a function": ("src/a.h", "x + A", "x - A"),
	"a condition": ("src/a.h", "struct S", "#if A\nextern int b;\n#endif\nstruct S"),
	"a line that is named": ("src/a.cc", "return A", "return __LINE__"),
	"an own line": ("src/a.cc", "#include <vector>", "\n#include <vector>"),
	"the own name": ("src/a.h", "x - A", "x - A + sizeof __FILE__"),
	"a raw string": ("src/a.cc", "int f", 'const char *r = R"(\n\n)";\nint f'),
	"a blank line in a raw string": ("src/a.cc", "\n\n)", "\n\n\n)"),
}


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_changes(cc: str, lab: Lab) -> None:
	"""What changes the text is compiled, also where it changes only after an earlier change."""
	need(cc)
	line = LINE.replace("gcc", cc)
	keep(lab, line)
	for name, old, new in CHANGES.values():
		edit(lab, name, old, new)
		before = tell(lab)["kept"]
		assert SAME not in lab.same(line), (name, new)
		wait(lab, before + 1)


def test_headers_that_come_and_go(lab: Lab) -> None:
	"""The dependency file names them, and the facts have them, although they leave no text."""
	line = LINE + " -MMD -MP -MF a.d"
	keep(lab, line)
	lab.write("src/new.h", "#define NEW 1\n")
	edit(lab, "src/a.h", "#define A 1", '#include "new.h"\n#define A 1')
	assert SAME in lab.same(line)
	edit(lab, "src/new.h", "NEW 1", "NEW 2")
	assert SAME in lab.same(line)
	edit(lab, "src/new.h", "#define NEW 2", "extern int n;")
	assert SAME not in lab.same(line)
	(lab.folder / "src/new.h").unlink()
	edit(lab, "src/a.h", '#include "new.h"\n', "")
	lab.same(line)


def test_a_header_that_is_taken_as_it_is(lab: Lab) -> None:
	"""The preprocessor's text does not stand for a header that the assembler reads, too."""
	asm = '__asm__(".data\\n.inc" "bin \\"src/a.h\\"\\n.text");\n'
	lab.write("src/raw.cc", SOURCE + asm)
	line = LINE.replace("src/a.cc", "src/raw.cc")
	time.sleep(0.1)
	lab.same(line)
	time.sleep(2)
	edit(lab, "src/a.h", "a comment", "a note")
	assert SAME not in lab.same(line)


def test_a_header_before_another(lab: Lab) -> None:
	"""A header that is found first is read, whether its text is the same or not."""
	line = "gcc -O0 -Ifirst -Isrc -c src/b.cc -o b.o"
	lab.write("first/empty.h", "")
	lab.write("src/b.cc", SOURCE.replace('"a.h"', "<a.h>"))
	keep(lab, line)
	lab.write("first/a.h", "// the same\n" + HEADER)
	time.sleep(0.1)
	assert SAME in lab.same(line)
	edit(lab, "first/a.h", "x + A", "x * A")
	assert SAME not in lab.same(line)


@pytest.mark.parametrize(
	"flags",
	[
		"-g",
		"-O1 --coverage -frandom-seed=1",
		"-fsanitize=undefined",
		"-flto -frandom-seed=1",
		"-Wa,-mrelax-relocations=no",
		"-g3",
		"-fstack-usage",
	],
)
def test_results_with_positions(flags: str, lab: Lab) -> None:
	"""They are never taken by their text."""
	line = "%s %s" % (LINE, flags)
	time.sleep(0.1)
	lab.same(line)
	time.sleep(2)
	assert tell(lab)["kept"] == 0
	edit(lab, "src/a.h", "struct S", "\nstruct S")
	assert SAME not in lab.same(line)


WARNINGS = {
	"a comment that says something": (
		"-Wextra",
		"switch (x) {\ncase 1: y = 2;\n// fall through\ncase 2: y += 3;\n}",
		"// fall through\n",
		"",
	),
	"any comment": (
		"-Wimplicit-fallthrough=1",
		"switch (x) {\ncase 1: y = 2;\n// goes on\ncase 2: y += 3;\n}",
		"// goes on\n",
		"",
	),
	"an indent": ("-Wall", "if (x)\n\ty = 1;\n\ty += 2;", "\ty += 2", "y += 2"),
	"a tab for a blank": ("-Wall", "if (x)\n\ty = 1;\n y += 2;", " y += 2", "\ty += 2"),
	"a comment in a comment": ("-Wall", "y = 1; /* a */", "/* a */", "/* a /* b */"),
	"a macro that is not defined": ("-Wundef", "y = 1;", "y = 1;", "y = 1;\n#if NOWHERE\n#endif"),
	"an unused macro": ("-Wunused-macros", "y = 1;", "y = 1;", "\n#define NOWHERE\ny = 1;"),
}


@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
@pytest.mark.parametrize("what", WARNINGS)
def test_warnings(what: str, back: bool, lab: Lab) -> None:
	"""A compile that warns is never taken by a text of one that does not, and the other way round."""
	flags, body, old, new = WARNINGS[what]
	if back:
		body, old, new = body.replace(old, new), (new or "case 2"), (old if new else old + "case 2")
	lab.write("src/w.cc", "#include <vector>\nint f(int x) {\nint y = x;\n%s\nreturn y;\n}\n" % body)
	time.sleep(0.1)
	line = "gcc -O0 %s -c src/w.cc -o w.o" % flags
	lab.same(line)
	time.sleep(2)
	edit(lab, "src/w.cc", old, new)
	lab.same(line)


def test_a_wrapper_that_shows_the_preprocessor_something_else(lab: Lab) -> None:
	"""Only where the compiler's own parts run alone is a text compared."""
	script = '#!/bin/sh\ncase "$*" in *" -E"*) exec gcc "$@";; *) exec gcc -DHIDDEN "$@";; esac\n'
	lab.write("g++", script).chmod(0o755)
	line = "./g++ -O0 -Isrc -c src/a.cc -o a.o"
	time.sleep(0.1)
	lab.same(line)
	time.sleep(2)
	edit(lab, "src/a.h", "struct S", "#ifdef HIDDEN\nextern int h; int h = 1;\n#endif\nstruct S")
	assert SAME not in lab.same(line)
	assert tell(lab)["kept"] == 0


def test_a_precompiled_header_that_appears(lab: Lab) -> None:
	"""It is used instead of its header, so the text does not stand for it."""
	line = "gcc -O0 -c src/p.cc -o p.o"
	lab.write("src/p.h", HEADER)
	lab.write("src/p.cc", '#include "p.h"\n#include <vector>\nint f() { return g(A); }\n')
	keep(lab, line)
	text = (lab.folder / "src/p.h").read_text()
	lab.write("src/p.h", text.replace("x + A", "x * 5"))
	subprocess.run(["gcc", "-O0", "-x", "c++-header", "src/p.h", "-o", "src/p.h.gch"], cwd=lab.folder, check=True)
	lab.write("src/p.h", text)
	time.sleep(0.1)
	edit(lab, "src/p.cc", "#include <vector>", "\n#include <vector>")
	assert SAME not in lab.same(line)


def boards(lab: Lab) -> List[str]:
	"""The compiles of two boards with other headers and macros. Three of four sources name none of these."""
	lines = []
	for board, number in (("one", 1), ("two", 2)):
		lab.write(
			"build/%s/board.h" % board, "#pragma once\n#define BOARD %d\n#define PINS %d\n" % (number, number * 8)
		)
		for source in range(4):
			text = "#include <board.h>\n#include <vector>\nint f() { return %s; }\n"
			lab.write("lib/%d.cc" % source, text % ("BOARD" if source == 3 else source))
			options = "-O0 -DBOARD_%s -DNUMBER=%d -Ibuild/%s -Ilib" % (board.upper(), number, board)
			out = "build/%s/%d" % (board, source)
			lines.append("gcc %s -MMD -MF %s.d -c lib/%d.cc -o %s.o" % (options, out, source, out))
	return lines


def test_two_boards(lab: Lab) -> None:
	"""Two boards of one tree share all compiles but those that name a macro of theirs."""
	lines = boards(lab)
	time.sleep(0.1)
	for line in lines[:4]:
		lab.same(line)
	wait(lab, 4)
	assert [SAME in lab.same(line) for line in lines[4:]] == [True, True, True, False]


COMMENTS = {
	"a header's": ("src/a.h", "// a comment", "// another comment, which is longer"),
	"the source's": ("src/a.cc", "#include <stddef.h>", "#include <stddef.h> // of the library"),
	"of two lines": ("src/a.cc", "return A", "/* one\n * two */\nreturn A"),
}
REWRITTEN = {
	"the source's": ("src/a.cc", "// of the library", "// of C++"),
	"of two lines": ("src/a.cc", "/* one\n * two */", "/*\n */"),
}
MOVED = {
	"amid a line": ("src/a.h", "/* of S */", "/* S's */"),
	"of three lines": ("src/a.cc", "/*\n */", "/*\n\n */"),
	"one that says something": ("src/a.cc", "// of C++", "// falls"),
	"a blank line": ("src/a.h", "#define A 1", "\n#define A 1"),
}


@pytest.mark.parametrize("flags", ["-g", "-g -O2 -Wall -Wextra", "-fsanitize=undefined"])
def test_comments_do_not_count(flags: str, lab: Lab) -> None:
	"""In a checkout, the texts of comments do not count, with debug information either. Their places do."""
	lab.write("configure", "")
	lab.write("src/a.cc", SOURCE.replace("<vector>", "<stddef.h>"))
	line = "gcc %s -Isrc -c src/a.cc -o a.o -MD -MF a.d" % flags
	time.sleep(0.1)
	lab.same(line)
	edit(lab, *COMMENTS["a header's"])
	assert "as it was" in lab.same(line)
	for name in ("the source's", "of two lines"):
		edit(lab, *COMMENTS[name])
		assert "miss" in lab.same(line), "where there was no comment, there is one"
		edit(lab, *REWRITTEN[name])
		assert "as it was" in lab.same(line), name
	for name, change in MOVED.items():
		edit(lab, *change)
		assert "miss" in lab.same(line), name


def test_comments_that_are_read(lab: Lab) -> None:
	"""Where a source is taken as it is, or printed, comments count."""
	lab.write("configure", "")
	lab.write("src/raw.c", '__asm__(".data\\n.incbin \\"src/a.h\\"\\n.text");\n')
	lab.write("src/warns.c", '#include "a.h"\n')
	lab.write("src/a.h", "static int f(void) { return 1; } // a comment\n")
	lab.write("src/parts.c", '#include "a.h"\n__asm__(".data\\n.inc" "bin \\"src/a.h\\"\\n.text");\n')
	for line in (
		"gcc -c src/raw.c -o raw.o",
		"gcc -c src/parts.c -o parts.o",
		"gcc -Wall -c src/warns.c -o warns.o",
		"gcc -g3 -c src/warns.c -o 3.o",
	):
		time.sleep(0.1)
		lab.same(line)
		edit(lab, "src/a.h", "a comment", "a comment, edited")
		assert "miss" in lab.same(line), line
