"""A parked program stands only for the files of which it was made: with others, nothing of it is stored."""

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


class Yard(Facts):
	"""A folder with a program that writes down what its library says; the engine parks what it sees once."""

	numbers = itertools.count()

	def library(self, word: str, name: str) -> pathlib.Path:
		source = self.write("said.c", SAYS.replace("SAID", json.dumps(word)))
		(self.folder / name).parent.mkdir(exist_ok=True)
		line = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libsaid.so", "-o", name, str(source)]
		subprocess.run(line, cwd=self.folder, check=True, timeout=PATIENCE)
		return self.folder / name

	def write_down(self) -> str:
		"""What the program writes by way of the cache."""
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
		"""Have it written down until a parked program has done so."""
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
def yard(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
	folder = tmp_path / "yard"
	folder.mkdir()
	for name, value in {"WAFD_PARK": "proved", "WAFD_PARK_AFTER": "1", "WAFD_PARK_FOLDERS": str(folder)}.items():
		monkeypatch.setenv(name, value)
	yard = Yard(engine, folder, tmp_path / "home")
	yard.library("first", "lib/libsaid.so")
	yard.write("tool/writer.c", PROGRAM)
	line = ["gcc", "-o", "tool/writer", "tool/writer.c", "lib/libsaid.so", f"-Wl,-rpath,{folder}/lib"]
	subprocess.run(line, cwd=folder, check=True, timeout=PATIENCE)
	return yard


@pytest.mark.parametrize("how", ["file", "link"])
def test_a_library_that_is_exchanged_between_two_commands(how: str, yard: Yard) -> None:
	"""The next command has the new library, is not stored as the old one's, and later hits give the same."""
	if how == "link":
		yard.library("first", "lib/libsaid.so.1")
		(yard.folder / "lib/libsaid.so").unlink()
		(yard.folder / "lib/libsaid.so").symlink_to("libsaid.so.1")
	yard.park("first")
	fresh = yard.library("second", "lib/libsaid.so.2")
	if how == "link":
		fresh = yard.folder / "lib/turned"
		fresh.symlink_to("libsaid.so.2")
	time.sleep(0.2)  # the new file is old enough for results to be stored that depend on it
	yard.park("first")
	os.replace(fresh, yard.folder / "lib/libsaid.so")
	assert [yard.write_down() for _ in range(3)] == ["second"] * 3
	yard.park("second")
	hits = yard.hits()
	deadline = time.monotonic() + PATIENCE
	while yard.hits() == hits:
		assert yard.write_down() == "second"
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


def test_what_a_parked_program_loads_later(yard: Yard) -> None:
	"""A library that it loads itself is a fact like any other: the result is stored, and another one is noticed."""
	plugin = yard.library("first", "lib/plugin.so")
	yard.write("tool/writer.c", LOADER.replace("LIBRARY", str(plugin)))
	subprocess.run(["gcc", "-o", "tool/writer", "tool/writer.c", "-ldl"], cwd=yard.folder, check=True, timeout=PATIENCE)
	for word in ("first", "second"):
		yard.park(word)
		hits = yard.hits()
		deadline = time.monotonic() + PATIENCE
		while yard.hits() == hits:
			assert yard.write_down() == word
			assert time.monotonic() < deadline, f"it is never a hit: {yard.reasons()}"
		fresh = yard.library("second", "lib/plugin.so.new")
		time.sleep(0.2)
		os.replace(fresh, plugin)


@pytest.mark.parametrize(
	("compiler", "part"), [("gcc", "cc1"), ("g++", "cc1plus"), ("clang", "clang"), ("clang++", "clang")]
)
def test_a_parked_compiler_is_observed(compiler: str, part: str, yard: Yard) -> None:
	"""What it did before it was parked does not blind it: a compile that ran parked is stored, and a hit."""
	if not shutil.which(compiler):
		pytest.skip(f"needs {compiler}")
	source = "a.cc" if "+" in compiler else "a.c"
	yard.write(source, "int one;\n")
	deadline = time.monotonic() + PATIENCE
	done = 0
	while done < 3:
		assert time.monotonic() < deadline, f"it is never parked, or not stored: {yard.reasons()}"
		line = f"{compiler} -DNUMBER={next(yard.numbers)} -c {source} -o a.o"
		before, stored = (yard.parked_runs(part), yard.statistics()["entries"]) if done else (0, 0)
		yard.run(line, True)
		is_parked = 0 < before < yard.parked_runs(part)
		done = max(done, 1)
		if is_parked and yard.statistics()["entries"] > stored:
			hits = yard.hits()
			yard.run(line, True)
			assert yard.hits() == hits + 1
			done += 1
	assert "not observed" not in yard.reasons()
