"""A parked program is valid only for the files of which it was made: with others, nothing of it is stored."""

import itertools
import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest
from cache_support import PATIENCE
from test_cache_facts import Facts

SAYS = "const char *said(void) { return SAID; }\n"
PROGRAM = """
#include <stdio.h>
#include <string.h>
const char *said(void);
int main(int argc, char **argv) {
	if (argc < 2 || !strcmp(argv[1], "--version"))
		return !puts("1");
	FILE *file = fopen(argv[1], "w");
	return !file || fputs(said(), file) < 0 || fclose(file);
}
"""


class Sandbox(Facts):
	"""A folder with a program that writes down what its library says; the engine parks what it sees once."""

	numbers = itertools.count()

	def library(self, word: str, name: str) -> pathlib.Path:
		source = self.write("said.c", SAYS.replace("SAID", json.dumps(word)))
		(self.folder / name).parent.mkdir(exist_ok=True)
		line = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libsaid.so", "-o", name, str(source)]
		subprocess.run(line, cwd=self.folder, check=True, timeout=PATIENCE)
		return self.folder / name

	def write_down(self) -> str:
		"""The program's text, written through the cache."""
		done = self.run_by_facts("tool/writer out")
		assert done.returncode == 0, done.stderr
		return (self.folder / "out").read_text()

	def parked_runs(self, name: str = "writer") -> int:
		"""How many commands of a program were run parked, if it is parked now; else none."""
		told = subprocess.run(
			[str(pathlib.Path(self.wafcc).with_name("wafd")), "status", "--json"],
			env=self.environ,
			capture_output=True,
			timeout=PATIENCE,
			check=True,
		)
		programs = json.loads(told.stdout)["parking"]["programs"]
		return sum(
			p["commands"] for p in programs if pathlib.Path(p["path"]).name.startswith(name) and p["state"] == "parked"
		)

	def park(self, word: str) -> None:
		"""Run it until a parked program has written the text."""
		deadline = time.monotonic() + PATIENCE
		before = 0
		while time.monotonic() < deadline:
			# Another command each time: a hit would run nothing.
			name = f"out-{next(self.numbers)}"
			assert self.run_by_facts(f"tool/writer {name}").returncode == 0
			assert (self.folder / name).read_text() == word
			now = self.parked_runs()
			if 0 < before < now:
				return
			before = now
			time.sleep(0.02)
		pytest.fail("it is never parked")


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
	folder = tmp_path / "sandbox"
	folder.mkdir()
	for name, value in {"WAFD_PARK": "proved", "WAFD_PARK_AFTER": "1", "WAFD_PARK_FOLDERS": str(folder)}.items():
		monkeypatch.setenv(name, value)
	sandbox = Sandbox(engine, folder, tmp_path / "home")
	sandbox.library("first", "lib/libsaid.so")
	sandbox.write("tool/writer.c", PROGRAM)
	line = ["gcc", "-o", "tool/writer", "tool/writer.c", "lib/libsaid.so", f"-Wl,-rpath,{folder}/lib"]
	subprocess.run(line, cwd=folder, check=True, timeout=PATIENCE)
	return sandbox


@pytest.mark.parametrize("how", ["file", "link"])
def test_a_library_that_is_exchanged_between_two_commands(how: str, sandbox: Sandbox) -> None:
	"""The next command has the new library, is not stored as the old one's, and later hits give the same."""
	if how == "link":
		sandbox.library("first", "lib/libsaid.so.1")
		(sandbox.folder / "lib/libsaid.so").unlink()
		(sandbox.folder / "lib/libsaid.so").symlink_to("libsaid.so.1")
	sandbox.park("first")
	fresh = sandbox.library("second", "lib/libsaid.so.2")
	if how == "link":
		fresh = sandbox.folder / "lib/turned"
		fresh.symlink_to("libsaid.so.2")
	time.sleep(0.2)  # the new file is old enough for results to be stored that depend on it
	sandbox.park("first")
	os.replace(fresh, sandbox.folder / "lib/libsaid.so")
	assert [sandbox.write_down() for _ in range(3)] == ["second"] * 3
	sandbox.park("second")
	hits = sandbox.hits()
	deadline = time.monotonic() + PATIENCE
	while sandbox.hits() == hits:
		assert sandbox.write_down() == "second"
		assert time.monotonic() < deadline, "it is never a hit"


LOADER = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
	if (argc < 2 || !strcmp(argv[1], "--version"))
		return !puts("1");
	void *library = dlopen("LIBRARY", RTLD_NOW);
	const char *(*said)(void) = library ? (const char *(*)(void))dlsym(library, "said") : NULL;
	FILE *file = fopen(argv[1], "w");
	return !said || !file || fputs(said(), file) < 0 || fclose(file);
}
"""


def test_what_a_parked_program_loads_later(sandbox: Sandbox) -> None:
	"""A library that the program loads itself is a fact: the result is stored, and a change is noticed."""
	plugin = sandbox.library("first", "lib/plugin.so")
	sandbox.write("tool/writer.c", LOADER.replace("LIBRARY", str(plugin)))
	subprocess.run(
		["gcc", "-o", "tool/writer", "tool/writer.c", "-ldl"], cwd=sandbox.folder, check=True, timeout=PATIENCE
	)
	for word in ("first", "second"):
		sandbox.park(word)
		hits = sandbox.hits()
		deadline = time.monotonic() + PATIENCE
		while sandbox.hits() == hits:
			assert sandbox.write_down() == word
			assert time.monotonic() < deadline, f"it is never a hit: {sandbox.reasons()}"
		fresh = sandbox.library("second", "lib/plugin.so.new")
		time.sleep(0.2)
		os.replace(fresh, plugin)


@pytest.mark.parametrize(
	("compiler", "part"), [("gcc", "cc1"), ("g++", "cc1plus"), ("clang", "clang"), ("clang++", "clang")]
)
def test_a_parked_compiler_is_observed(compiler: str, part: str, sandbox: Sandbox) -> None:
	"""Observation includes the time before parking: a compile that ran parked is stored, and is a hit later."""
	if not shutil.which(compiler):
		pytest.skip(f"needs {compiler}")
	source = "a.cc" if "+" in compiler else "a.c"
	sandbox.write(source, "int one;\n")
	deadline = time.monotonic() + PATIENCE
	done = 0
	while done < 3:
		assert time.monotonic() < deadline, f"it is never parked, or not stored: {sandbox.reasons()}"
		line = f"{compiler} -DNUMBER={next(sandbox.numbers)} -c {source} -o a.o"
		before, stored = (sandbox.parked_runs(part), sandbox.statistics()["entries"]) if done else (0, 0)
		sandbox.run(line, True)
		is_parked = 0 < before < sandbox.parked_runs(part)
		done = max(done, 1)
		if is_parked and sandbox.statistics()["entries"] > stored:
			hits = sandbox.hits()
			sandbox.run(line, True)
			assert sandbox.hits() == hits + 1
			done += 1
	assert "not observed" not in sandbox.reasons()
