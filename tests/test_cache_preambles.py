"""Sources that are being edited begin after their headers, and that changes nothing but the time."""

import json
import os
import pathlib
import subprocess
import time
from typing import Any, Dict

import pytest
from cache_support import COMPILERS, PATIENCE, Lab

pytestmark = pytest.mark.timeout(4 * PATIENCE)

HEAD = "#include <vector>\n"
"""A header that takes long enough: a source that compiles quickly gets no preamble."""
AFTER = "after its headers"
TAKE = {"gcc": "-O0 -g", "clang": "-O2"}
"""Flags with which each compiler is known to make the same object after a precompiled header."""


class Source:
	"""A source that is edited and compiled again and again, with and without the engine."""

	def __init__(self, lab: Lab, line: str, head: str = HEAD, name: str = "src/a.cc") -> None:
		self.lab, self.line, self.head, self.name = lab, line, head, name
		self.edits = 0

	def compile(self, body: str = "") -> str:
		"""Edit the body, and compile twice: both must have the same effects. Returns what wafcc says."""
		self.edits += 1
		text = "%sint edited() { return %d; }\n%s\n" % (self.head, self.edits, body)
		self.lab.write(self.name, text)
		return self.lab.same(self.line)

	def prepare(self) -> Dict[str, Any]:
		"""Compile twice, and wait until there is a preamble, or a reason why there is none."""
		before = self.tell()
		self.compile()
		self.compile()
		return self.wait(before)

	def wait(self, before: Dict[str, Any]) -> Dict[str, Any]:
		deadline = time.monotonic() + 2 * PATIENCE
		while True:
			now = self.tell()
			if (now["made"], now["refused"]) != (before["made"], before["refused"]):
				return now
			assert time.monotonic() < deadline, "nothing is made, and nothing refused: %s" % now
			time.sleep(0.1)

	def tell(self) -> Dict[str, Any]:
		return tell(self.lab)


def tell(lab: Lab) -> Dict[str, Any]:
	"""What the statistics say of preambles."""
	shown = subprocess.run(
		[lab.wafcc, "--show-stats", "--json"],
		env=lab.environ,
		capture_output=True,
		encoding="utf-8",
		timeout=PATIENCE,
		check=True,
	)
	told: Dict[str, Any] = json.loads(shown.stdout)["preambles"]
	return told


def find_files(lab: Lab) -> "list[pathlib.Path]":
	"""The files of all preambles."""
	home = pathlib.Path(lab.environ["HOME"])
	return [x for x in home.glob(".cache/wafcc/store-*/preambles/*/*") if x.is_file()]


def wait_until_empty(lab: Lab) -> None:
	"""One may just be in the making."""
	deadline = time.monotonic() + PATIENCE
	while find_files(lab):
		assert time.monotonic() < deadline, find_files(lab)
		time.sleep(0.1)


@pytest.fixture
def lab(lab: Lab) -> Lab:
	configure(lab, "1G")
	return lab


def configure(lab: Lab, limit: str) -> None:
	subprocess.run([lab.wafcc, "--set-config", "preambles=" + limit], env=lab.environ, check=True)


@pytest.mark.parametrize(
	("cc", "flags"),
	[
		("gcc", "-O0 -g -MD -MP"),
		("gcc", "-O2 -MMD -MF a.d -MT other"),
		("clang", "-O2 -MD -MP"),
		("clang", "-O0 -Wp,-MD,a.d"),
	],
)
def test_the_third_compile(cc: str, flags: str, lab: Lab) -> None:
	"""From the third compile on, a source begins after its headers, whose facts are facts of its entry, too."""
	if cc not in COMPILERS:
		pytest.skip("there is no %s" % cc)
	lab.write("src/own.h", "#pragma once\n#include <utility>\n#define OWN 1\n")
	source = Source(lab, "%s %s -c src/a.cc -o a.o" % (cc, flags), HEAD + '#include "own.h"\n')
	told = source.prepare()
	assert told["made"] == 1 and told["used"] == 0, told
	assert AFTER in source.compile("#include <deque>\nstd::deque<int> d(OWN);")
	said = lab.same(source.line)
	assert said.startswith("hit"), said
	assert AFTER in source.compile()
	told = source.tell()
	assert told["used"] == 2 and not told["refused"] and told["saved"] > 0, told
	check_told(lab)


def check_told(lab: Lab) -> None:
	"""The table of statistics and `wafd status` tell of preambles."""

	def ask(*words: str) -> str:
		return subprocess.run(words, env=lab.environ, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout

	lines = [" ".join(line.split()) for line in ask(lab.wafcc, "--show-stats").splitlines()]
	assert "After their headers: 2" in lines and "Preambles made: 1" in lines
	assert "2 compiles began after their headers" in ask(lab.engine, "status")


def test_what_headers_depend_on(lab: Lab) -> None:
	"""A header that changes, or that is found elsewhere, is read again. Later there is a preamble of it."""
	lab.write("one/other.h", "")
	lab.write("two/own.h", "#pragma once\ninline int own() { return 2; }\n")
	body = "int is() { return own(); }"
	source = Source(lab, "gcc -O0 -g -Ione -Itwo -c src/a.cc -o a.o", HEAD + "#include <own.h>\n")
	source.prepare()
	assert AFTER in source.compile(body)
	lab.write("two/own.h", "#pragma once\ninline int own() { return 3; }\n")
	before = source.tell()
	assert AFTER not in source.compile(body)
	assert source.wait(before)["made"] == 2
	assert AFTER in source.compile(body)
	lab.write("one/own.h", "#pragma once\ninline int own() { return 4; }\n")
	assert AFTER not in source.compile(body)
	(lab.folder / "one" / "own.h").unlink()
	assert AFTER in source.compile(body)


def test_what_the_source_begins_with(lab: Lab) -> None:
	"""Another beginning is another preamble."""
	source = Source(lab, "gcc -O0 -c src/a.cc -o a.o")
	source.prepare()
	source.head = "#define EXTRA 1\n" + HEAD
	before = source.tell()
	assert AFTER not in source.compile("int x = EXTRA;")
	source.wait(before)
	assert AFTER in source.compile("int x = EXTRA;")


def test_messages(lab: Lab) -> None:
	"""A compile that says anything is the plain one, and its source keeps its preamble."""
	source = Source(lab, "gcc -O0 -g -Wall -MD -c src/a.cc -o a.o")
	source.prepare()
	source.compile("int broken( {")
	source.compile("static int unused() { return std::vector<int>().size() - 1; }")
	source.compile("#warning said\n")
	told = source.tell()
	assert told["used"] == 0 and told["refused"] == {}, told
	assert AFTER in source.compile()


def test_a_warning_that_goes_away(lab: Lab) -> None:
	"""While a source is warned of, it has no preamble. The first compile without a message makes one due."""
	source = Source(lab, "gcc -O0 -Wall -c src/a.cc -o a.o")
	warned = "static int unused() { return 0; }"
	for _ in range(3):
		assert AFTER not in source.compile(warned)
	before = source.tell()
	assert before["refused"] == {"its compile prints something": 1}, before
	source.compile()
	assert source.wait(before)["made"] == 1
	assert AFTER in source.compile()


def test_an_edit_while_the_compile_waits(lab: Lab) -> None:
	"""A source whose beginning is edited between the lookup and the compile is compiled plainly."""
	line = "gcc -O0 -c src/a.cc -o a.o"
	source = Source(lab, line, "#define EXTRA 1\n" + HEAD)
	source.prepare()
	body = "#ifdef EXTRA\nint extra() { return 1; }\n#endif\n"
	lab.write(source.name, source.head + "int again;\n" + body)
	blockers = [subprocess.Popen([lab.wafcc, "sleep", "3"], env=lab.environ) for _ in range(os.cpu_count() or 1)]
	time.sleep(1)
	compile = subprocess.Popen([lab.wafcc, *line.split()], cwd=lab.folder, env=lab.environ)
	time.sleep(1)
	assert compile.poll() is None, "it did not wait for a slot"
	lab.write(source.name, HEAD + "int again;\n" + body)
	assert compile.wait(PATIENCE) == 0
	assert [blocker.wait(PATIENCE) for blocker in blockers] == [0] * len(blockers)
	made = (lab.folder / "a.o").read_bytes()
	subprocess.run(line.split(), cwd=lab.folder, check=True)
	assert made == (lab.folder / "a.o").read_bytes()


REFUSED = {
	"no include": ("", "", "it does not begin with an include"),
	"an option": (HEAD, "-include cstdio", "its options are not known to allow one"),
	"locations": (HEAD, "-O2 -g", "its debug information would differ"),
	"a line": ("#if __LINE__ == 1\n#define A\n#endif\n" + HEAD, "", "its beginning names its own file or line"),
	"no guard": (HEAD + '#include "open.h"\n', "", "its headers have another effect when they are read twice"),
	"a counter": (HEAD + '#include "counter.h"\n', "", "its headers have another effect when they are read twice"),
	"a pragma": (HEAD + '#include "pragma.h"\n', "", "a pragma in its headers reaches beyond them"),
	"its base": (HEAD + '#include "base.h"\n', "", "its beginning names its own file or line"),
	"a warning": (HEAD + '#include "warning.h"\n', "", "its compile prints something"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, lab: Lab) -> None:
	"""A source whose headers could have another effect has no preamble, for a reason that is counted and explained."""
	head, flags, why = REFUSED[what]
	files = {
		"open.h": "extern int again;\n",
		"counter.h": "#ifndef COUNTER_H\n#define COUNTER_H 1\n#else\nextern int read_twice;\n#endif\n",
		"pragma.h": "#pragma once\n#pragma pack(1)\n",
		"base.h": "#pragma once\nstatic const char *base = __BASE_FILE__;\n",
		"warning.h": "#pragma once\n#warning from a header\n",
	}
	for name, text in files.items():
		lab.write("src/" + name, text)
	slow = "template <int N> struct S { static int f() { return N + S<N - 1>::f(); } };\n"
	slow += "template <> struct S<0> { static int f() { return 0; } };\nint slow() { return S<800>::f(); }\n"
	body = "" if head else slow
	source = Source(lab, "gcc %s -c src/a.cc -o a.o" % flags, head)
	before = source.tell()
	source.compile(body)
	source.compile(body)
	assert source.wait(before)["refused"] == {why: 1}
	said = source.compile(body)
	assert AFTER not in said and why in said, said
	assert source.tell()["refused"] == {why: 1}, "it was tried again, and nothing had changed"


def test_names_beside_the_source(lab: Lab) -> None:
	"""In the folder of the command, a header would be called ``./own.h``, which ``__FILE__`` would show."""
	lab.write("own.h", "#pragma once\ninline const char *name() { return __FILE__; }\n")
	source = Source(lab, "gcc -O0 -c a.cc -o a.o", HEAD + '#include "own.h"\n', "a.cc")
	assert source.prepare()["refused"] == {"its headers would have other names": 1}
	source.compile("const char *is() { return name(); }")


def test_a_header_beside_the_source_only(lab: Lab) -> None:
	"""What lies beside the source is found by the source's own includes, and not by those of its headers."""
	lab.write("src/of.h", "#define OF 1\n")
	lab.write("inc/of.h", "#define OF 2\n")
	lab.write("other/own.h", '#pragma once\n#include "of.h"\ninline int of() { return OF; }\n')
	source = Source(lab, "gcc -O0 -Iother -Iinc -c src/a.cc -o a.o", HEAD + "#include <own.h>\n")
	assert source.prepare()["refused"] == {"its headers would have other names": 1}
	source.compile("int is() { return of(); }")


@pytest.mark.parametrize("cc", COMPILERS)
def test_lost_files(cc: str, lab: Lab) -> None:
	"""If a preamble's files are damaged or gone, the plain compile runs, and the preamble is given up."""
	source = Source(lab, "%s %s -c src/a.cc -o a.o" % (cc, TAKE[cc]))
	source.prepare()
	headers = [x for x in find_files(lab) if x.name.startswith("header") and not x.name.endswith(".d")]
	assert headers
	for header in headers:
		header.write_bytes(header.read_bytes()[:5000])
	assert "it ran twice" in source.compile()
	told = source.tell()
	assert told["used"] == 0 and told["refused"] == {"a compile failed only with it": 1}, told
	assert AFTER not in source.compile()


def test_an_unusual_output(lab: Lab) -> None:
	"""An output that must not be replaced is left to the plain compile."""
	source = Source(lab, "gcc -O0 -c src/a.cc -o a.o")
	source.prepare()
	plain = lab.write("src/a.cc", HEAD + "int other;\n")
	subprocess.run(["gcc", "-O0", "-c", str(plain), "-o", "plain.o"], cwd=lab.folder, check=True)
	os.symlink("real.o", lab.folder / "a.o")
	subprocess.run([lab.wafcc, *source.line.split()], cwd=lab.folder, env=lab.environ, check=True)
	assert (lab.folder / "a.o").is_symlink()
	assert (lab.folder / "real.o").read_bytes() == (lab.folder / "plain.o").read_bytes()
	assert source.tell()["refused"] == {"its result could not be used": 1}


def test_limits(lab: Lab) -> None:
	"""A preamble that does not fit is not kept; a smaller limit removes what is there; `off` removes all."""
	source = Source(lab, "gcc -O0 -c src/a.cc -o a.o")
	source.prepare()
	assert find_files(lab)
	for limit in ("10k", "off"):
		configure(lab, limit)
		assert AFTER not in source.compile()
		wait_until_empty(lab)
	configure(lab, "10k")
	before = source.tell()
	source.compile()
	assert set(source.wait(before)["refused"]) == {"there is no room for it"}
	wait_until_empty(lab)


def test_a_killed_engine(lab: Lab) -> None:
	"""The next engine removes what an engine that was killed has left."""
	source = Source(lab, "gcc -O0 -c src/a.cc -o a.o")
	source.prepare()
	left = find_files(lab)
	subprocess.run([lab.wafcc, "--shutdown"], env=lab.environ, check=True)
	for path in left:  # as if it had been killed
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_text("left")
	assert AFTER not in source.compile()
	# a new preamble may already be in the making there
	assert not any(path.exists() and path.read_bytes() == b"left" for path in left)


def test_a_macro_that_was_not_used_yet(lab: Lab) -> None:
	"""The compile does not depend on a macro that names its checkout and that nothing uses; its preamble does."""
	header = '#pragma once\n#include <utility>\n#define WHERE "%s/%d"\n'
	lab.write("src/own.h", header % (lab.folder, 1))
	subprocess.run([lab.wafcc, "--set-config", "base_dir=%s" % lab.folder], env=lab.environ, check=True)
	line = "gcc -O0 -c %s/src/a.cc -o a.o" % lab.folder
	source = Source(lab, line, HEAD + '#include "own.h"\n')
	source.prepare()
	assert AFTER in source.compile()
	lab.write("src/own.h", header % (lab.folder, 2))
	assert lab.same(line).startswith("hit")
	assert AFTER not in source.compile("const char *where = WHERE;")
