"""The resident with the tool wafcc, which asks a program for its settings: the question is repeated later."""

import os
import pathlib
import shutil
import sys
from typing import Any, Callable

import pytest
from conftest import on_cpython
from resident_support import Resident, by_python
from test_resident_sketch import is_drawn

from waflib_extras.facts import answers
from waflib_extras.resident import witness

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is none elsewhere")

FILES = {
	"wscript": """\
top = '.'
out = 'out'

def options(opt):
	opt.load('compiler_c prefork wafcc resident')

def configure(conf):
	conf.load('compiler_c')

def build(bld):
	bld.program(source='main.c', target='app')
""",
	"main.c": "int main(void) { return 0; }\n",
}


@pytest.fixture
def make(
	resident: Callable[..., Resident], engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Resident]:
	"""A function that makes a project with the cache and a resident, with a store and settings of the test's own."""
	if not any(shutil.which(name) for name in ("gcc", "clang")):
		pytest.skip("needs a compiler of C")
	for name in list(os.environ):
		if name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG")):
			monkeypatch.delenv(name)
	monkeypatch.setenv("HOME", str(tmp_path / "home"))
	# the test itself calls it: pytest changes a variable while a test runs
	return lambda: resident(FILES)


def edit(made: Resident, number: int) -> None:
	(made.folder / "main.c").write_text("int main(void) { return %d; }\n" % number)


def set_user_file(tmp_path: pathlib.Path, text: str) -> None:
	folder = tmp_path / "home" / ".config" / "wafcc"
	folder.mkdir(parents=True, exist_ok=True)
	(folder / "wafcc.conf").write_text(text)


def test_answered_and_begun_ahead(make: Callable[[], Resident]) -> None:
	"""A build with nothing to do is answered, and a build after an edit continues a begun run."""
	made = make()
	made.settle("build")
	for number in range(2):
		edit(made, 7 + number)
		made.run("build")
		made.wait(lambda: is_drawn(made))
	assert made.count("thawed")


@on_cpython
def test_settings_are_asked_again(make: Callable[[], Resident], tmp_path: pathlib.Path) -> None:
	"""A file of settings that appears, changes or vanishes is noticed, though Waf itself has never looked at it."""
	made = make()
	made.settle("build")
	texts = ["namespace = one\n", "namespace = two\n", "disable = yes\n", "no such thing\n", ""]
	for text in texts:
		answered = made.count("answered")
		set_user_file(tmp_path, text)
		done = made.run("build")
		assert made.count("answered") == answered, text
		assert ("no such thing" in done.stderr + done.stdout) == (text == texts[3])
		made.settle("build")
	edit(made, 1)
	made.run("build")
	made.wait(lambda: is_drawn(made))
	thawed = made.count("thawed")
	set_user_file(tmp_path, "disable = yes\n")
	edit(made, 2)
	done = made.run("build")
	assert made.count("thawed") == thawed and " hit" not in done.stdout + done.stderr


@on_cpython
@by_python
def test_the_same_environment_otherwise(make: Callable[[], Resident], tmp_path: pathlib.Path) -> None:
	"""Another value of a variable is another environment, which has its own process."""
	made = make()
	made.settle("build")
	answered = made.count("answered")
	assert made.run("build", env={"WAFCC_NAMESPACE": "other"}).returncode == 0
	assert made.count("answered") == answered


class TestQuestion:
	"""Facts about the answers of a program."""

	def test_noted(self, tmp_path: pathlib.Path) -> None:
		"""The answer of a program is a fact, which no longer holds when the answer changes or fails."""
		program = tmp_path / "tell"
		told = tmp_path / "told"
		program.write_text("#!/bin/sh\ncat %s; exit ${STATUS:-0}\n" % told)
		program.chmod(0o755)
		told.write_text("one")
		seen = witness.Witness()
		seen.begin()
		try:
			question = answers.ProgramCall((str(program),), (("STATUS", "3"),), str(tmp_path))
			assert witness.see_program_call(question) == (3, b"one", b"")
			assert not seen.hindrance and witness.Witness.active is seen
		finally:
			seen.end()
		((key, answer),) = seen.asked.items()
		assert witness.ask_again(*key) == answer
		told.write_text("two")
		assert witness.ask_again(*key) != answer
		told.write_text("one")
		assert witness.ask_again(*key) == answer
		program.unlink()
		assert witness.ask_again(*key) != answer

	def test_endless(self, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
		"""A program that does not end gives no answer."""
		monkeypatch.setattr(answers, "DEADLINE", 0.2)
		key = (witness.PROGRAM, (("sleep", "30"), (("PATH", os.environ["PATH"]),), str(tmp_path)))
		assert witness.ask_again(*key)[0] == "error"
