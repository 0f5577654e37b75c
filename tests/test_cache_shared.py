"""Sources that begin alike share one preamble, in their first build already. Nothing counts before it is proved."""

import json
import shutil
import subprocess
import time
from typing import Any, Callable, Dict

import pytest
from cache_support import COMPILERS, PATIENCE, Lab
from test_cache_preambles import HEAD, tell, wait_until_empty

pytestmark = pytest.mark.timeout(4 * PATIENCE)

AFTER = "after headers that other sources begin with"
ENOUGH = 3
"""So many sources that begin alike are compiled plainly first."""


@pytest.fixture
def lab(lab: Lab) -> Lab:
	configure(lab, "preambles=1G")
	configure(lab, "share_preambles=yes")
	lab.write("src/common.h", "#pragma once\n" + HEAD + "#define COMMON 1\n")
	return lab


def configure(lab: Lab, setting: str) -> None:
	subprocess.run([lab.wafcc, "--set-config", setting], env=lab.environ, check=True)


class Target:
	"""Sources with the same options."""

	def __init__(self, lab: Lab, line: str, head: str = '#include "common.h"\n') -> None:
		self.lab, self.line, self.head = lab, line, head

	def write(self, number: int, body: str = "") -> str:
		"""Write a source with an include of its own. Returns the command that compiles it."""
		own = "own%d.h" % number
		if not (self.lab.folder / "src" / own).exists():
			self.lab.write("src/" + own, "#pragma once\nenum { OWN = %d };\n" % number)
		text = '%s#include "%s"\nint f() { return OWN + %d; }\n%s\n'
		self.lab.write("src/%d.cc" % number, text % (self.head, own, number, body))
		return self.line.replace("NUMBER", str(number))

	def compile(self, number: int, body: str = "") -> str:
		"""Compile a source with and without the engine, which must be the same. Returns what wafcc says."""
		return self.lab.same(self.write(number, body))

	def begin(self) -> None:
		"""Compile so many that a preamble is made for all."""
		for number in range(ENOUGH):
			assert AFTER not in self.compile(number)
		self.wait(lambda told: told["made"] == 1)

	def wait(self, is_so: Callable[[Dict[str, Any]], bool]) -> Dict[str, Any]:
		deadline = time.monotonic() + 2 * PATIENCE
		while not is_so(tell(self.lab)):
			assert time.monotonic() < deadline, tell(self.lab)
			time.sleep(0.1)
		return tell(self.lab)


@pytest.mark.parametrize(
	("cc", "flags"),
	[
		("gcc", "-O0 -g -MD -MP -MT NUMBER.x -MF NUMBER.d"),
		("clang", "-O2 -Wp,-MD,NUMBER.d"),
	],
)
def test_the_first_build(cc: str, flags: str, lab: Lab) -> None:
	"""Once enough sources have begun alike, the next ones begin after their headers. Entries count when proved."""
	if cc not in COMPILERS:
		pytest.skip("there is no %s" % cc)
	target = Target(lab, "%s %s -Isrc -c src/NUMBER.cc -o NUMBER.o" % (cc, flags))
	target.begin()
	assert AFTER in target.compile(10)
	assert AFTER in target.compile(11, "#include <deque>\nstd::deque<int> more(COMMON);")
	told = target.wait(lambda told: told["proved"] == 2)
	assert told["used"] >= 2 and not told["unproved"] and not told["refused"] and told["saved"] > 0, told
	for number, body in ((10, ""), (11, "#include <deque>\nstd::deque<int> more(COMMON);")):
		lab.until_hit(target.write(number, body))


def test_an_edit_after_the_build(lab: Lab) -> None:
	"""A source whose result was proved begins after its headers when it is edited. Switched off, no file stays."""
	target = Target(lab, "gcc -O0 -c src/NUMBER.cc -o NUMBER.o")
	target.begin()
	target.compile(10)
	target.wait(lambda told: told["proved"] == 1)
	assert "after" in target.compile(10, "int edited;")
	lab.write("src/own0.h", "#pragma once\nenum { OWN = 7 };\n")
	assert AFTER in target.compile(11), "the header of one source is none of another"
	configure(lab, "preambles=off")
	wait_until_empty(lab)


def test_headers_that_change(lab: Lab) -> None:
	"""A header that has changed is read anew, and then it is shared again."""
	target = Target(lab, "gcc -O0 -c src/NUMBER.cc -o NUMBER.o")
	target.begin()
	lab.write("src/common.h", "#pragma once\n" + HEAD + "#define COMMON 2\n")
	body = "int common = COMMON;"
	assert AFTER not in target.compile(10, body)
	target.wait(lambda told: told["made"] == 2)
	assert AFTER in target.compile(11, body)
	configure(lab, "share_preambles=no")
	assert AFTER not in target.compile(12, body)


@pytest.mark.parametrize("head", ["", '#define NUMBER %d\n#include "common.h"\n'], ids=["other headers", "a macro"])
def test_sources_that_begin_differently(head: str, lab: Lab) -> None:
	"""Nothing is made for them."""
	target = Target(lab, "gcc -O0 -c src/NUMBER.cc -o NUMBER.o")
	for number in range(ENOUGH + 2):
		first = ("map", "set", "list", "deque", "queue", "stack")[number]
		target.head = head % number if head else "#include <%s>\n" % first
		assert AFTER not in target.compile(number)
	time.sleep(1)
	told = tell(lab)
	assert told["made"] == told["used"] == 0 and not told["refused"], told


def test_options_and_folders_that_differ(lab: Lab) -> None:
	"""A preamble serves no compile with other options, in another folder, or with another language; the others go on.

	So they do after a mistake in a source, which is told as by the plain compile.
	"""
	target = Target(lab, "gcc -O0 -c src/NUMBER.cc -o NUMBER.o")
	target.begin()
	for line in ("gcc -O1 -c src/NUMBER.cc -o NUMBER.o", "gcc -O0 -DCOMMON_TOO -c src/NUMBER.cc -o NUMBER.o"):
		assert AFTER not in Target(lab, line).compile(10)
	lab.write("other/common.h", "#pragma once\n#define COMMON 5\n#include <vector>\n")
	lab.write("other/12.cc", '#include "common.h"\nint common = COMMON;\n')
	assert AFTER not in lab.same("gcc -O0 -c other/12.cc -o 12.o")
	target.compile(14, "int broken( {")
	assert AFTER in target.compile(13)


def test_sources_that_talk(lab: Lab) -> None:
	"""A message is that of the plain compile. A group of which most sources talk is given up."""
	target = Target(lab, "gcc -O0 -Wall -c src/NUMBER.cc -o NUMBER.o")
	target.begin()
	talk = "static int unused() { return 0; }"
	for number in range(10, 13):
		assert "it ran twice" in target.compile(number, talk)
	assert tell(lab)["refused"] == {"its compile prints something": 4}, "three sources, and their group"
	assert AFTER not in target.compile(13)


@pytest.mark.skipif("gcc" not in COMPILERS, reason="there is no gcc")
def test_a_compiler_that_makes_something_else(lab: Lab) -> None:
	"""If a plain compile makes something else than one after shared headers, that is said, and nothing is shared."""
	tools = lab.folder / "tools"
	tools.mkdir()
	real = shutil.which("gcc")
	script = '#!/bin/sh\ncase "$*" in *-include*src/10.cc*) set -- "$@" -DODD ;; esac\nexec %s "$@"\n' % real
	(tools / "gcc").write_text(script)
	(tools / "gcc").chmod(0o755)
	target = Target(lab, "%s/gcc -O0 -c src/NUMBER.cc -o NUMBER.o" % tools)
	target.begin()
	line = target.write(10, "#ifdef ODD\nint odd;\n#endif\n")
	subprocess.run([lab.wafcc, *line.split()], cwd=lab.folder, env=lab.environ, check=True)
	assert AFTER in lab.explain(lab.folder / "10.o")
	told = target.wait(lambda told: bool(told["refused"]))
	assert told["refused"] == {"the result was another one": 1} and not told["proved"], told
	assert AFTER not in target.compile(11)
	shown = subprocess.run(
		[lab.wafcc, "--show-stats", "--json"], env=lab.environ, stdout=subprocess.PIPE, encoding="utf-8", check=True
	)
	(difference,) = json.loads(shown.stdout)["differences"]
	assert "after shared headers" in difference and "src/10.cc" in difference
	assert "hit" not in lab.same(line), "what was not proved must not be served"


def test_an_engine_that_ends_before_the_proof(lab: Lab) -> None:
	"""What was not proved is not served by the next engine."""
	target = Target(lab, "gcc -O0 -c src/NUMBER.cc -o NUMBER.o")
	target.begin()
	line = target.write(10)
	blocker = subprocess.Popen([lab.wafcc, "sleep", "600"], env=lab.environ)
	try:
		assert AFTER in lab.same(line)
		told = tell(lab)
		assert told["proved"] == 0, told
	finally:
		blocker.terminate()
		blocker.wait(PATIENCE)
	subprocess.run([lab.wafcc, "--shutdown"], env=lab.environ, check=True)
	said = lab.same(line)
	assert not said.startswith("hit") or tell(lab)["proved"], said


def test_one_that_does_not_fit(lab: Lab) -> None:
	"""A preamble that is larger than the limit is made once, and not for each source."""
	configure(lab, "preambles=10k")
	target = Target(lab, "gcc -O0 -c src/NUMBER.cc -o NUMBER.o")
	for number in range(ENOUGH):
		target.compile(number)
	target.wait(lambda told: told["refused"] == {"there is no room for it": 1})
	wait_until_empty(lab)
	for number in range(10, 13):
		assert AFTER not in target.compile(number)
	assert tell(lab)["refused"] == {"there is no room for it": 1}


@pytest.mark.parametrize(
	("act", "why"),
	[
		("kill -9 0", "its headers cannot be compiled alone"),
		("echo said", "its headers cannot be compiled alone"),
	],
)
def test_headers_that_cannot_be_made(act: str, why: str, lab: Lab) -> None:
	"""If the headers cannot be made alone, that is tried once, and not for each source."""
	tools = lab.folder / "tools"
	tools.mkdir()
	made = lab.folder.parent / "made"  # the lab removes new files from its own folder
	script = '#!/bin/sh\ncase "$*" in *-E*) ;; *c++-header*) echo made >> %s; %s ;; esac\nexec %s "$@"\n'
	(tools / "gcc").write_text(script % (made, act, shutil.which("gcc")))
	(tools / "gcc").chmod(0o755)
	target = Target(lab, "%s/gcc -O0 -c src/NUMBER.cc -o NUMBER.o" % tools)
	for number in range(ENOUGH):
		target.compile(number)
	target.wait(lambda told: told["refused"] == {why: 1})
	for number in range(10, 13):
		assert AFTER not in target.compile(number)
	time.sleep(1)
	assert made.read_text() == "made\n"
