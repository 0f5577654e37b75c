"""The cache learns all facts of a command that runs as its parts, exactly as if its driver ran."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time
from typing import Dict, List, NamedTuple, Set

import pytest
from cache_support import PATIENCE, Lab
from compiler_support import SOURCES

STORED = re.compile(r"TRACE an entry is stored under \S+\n")
FACT = re.compile(r"TRACE it depends on (.*)\n")


class Run(NamedTuple):
	"""The result of one compile."""

	by_course: bool
	facts: Set[str]


class Watch(Lab):
	"""A lab whose engine parks all programs at once, and tells what it stores."""

	def prepare(self) -> None:
		for name, text in SOURCES.items():
			self.write(name, text)
		for folder in ("inc", "tmp", "tools", "with/in"):
			(self.folder / folder).mkdir(parents=True)
		self.write("wrapped/as", f'#!/bin/sh\nexec {shutil.which("as")} "$@"\n').chmod(0o755)
		(self.folder / "link").symlink_to("with/in")

	@staticmethod
	def find_in_runtime(ending: str) -> List[pathlib.Path]:
		"""The files of all engines; os.walk leaves out folders that vanish meanwhile."""
		walk = os.walk(os.environ["WAFD_RUNTIME_DIR"])
		return sorted(
			pathlib.Path(folder, name) for folder, _, names in walk for name in names if name.endswith(ending)
		)

	def read_logs(self) -> str:
		return "".join(path.read_text() for path in self.find_in_runtime(".log"))

	def read_parking(self) -> Dict:
		"""The report about parking of the engine with our store; empty before there is one."""
		status: Dict = {}
		for path in self.find_in_runtime(".sock"):
			environ = dict(os.environ, WAFD_RUNTIME_DIR=str(path.parent))
			said = subprocess.run(
				[self.engine, "status", "--json"], env=environ, stdout=subprocess.PIPE, check=False, timeout=PATIENCE
			)
			status = json.loads(said.stdout)["parking"] if not said.returncode else status
		return status

	def count_observed(self) -> int:
		return self.read_parking().get("courses", {}).get("observed", 0)

	def compile(self, line: str, cwd: str, **env: str) -> Run:
		"""Compile once more without using stored results, and return the facts of the compile."""
		before, known = self.count_observed(), self.read_logs()
		self.run(line, True, cwd, WAFCC_RECACHE="1", **env)
		self.explain(self.folder / cwd / self.output(line.format(here=self.folder / cwd)))  # waits for the store
		said = self.read_logs()[len(known) :]
		return Run(self.count_observed() > before, set(FACT.findall(said)) if STORED.search(said) else set())

	def compare(self, line: str, cwd: str = ".", **env: str) -> None:
		"""Fail if a run by course stores another entry than a run with the driver."""
		env = {name: value.format(here=self.folder) for name, value in env.items()}
		with_driver: Set[str] = set()
		deadline = time.monotonic() + PATIENCE
		while True:
			run = self.compile(line, cwd, **env)
			if run.facts and run.by_course and with_driver:
				break
			with_driver = with_driver if run.by_course else run.facts
			assert time.monotonic() < deadline, f"{line} is not run as its parts: {self.read_parking()}"
		assert not sorted(run.facts ^ with_driver), (line, env)

	def compare_with_known(self, line: str, cwd: str, **unrelated: str) -> None:
		"""The same with a known course. With a new variable that no program asks for, the driver runs."""
		with_driver = self.compile(line, cwd, **unrelated)
		by_course = self.compile(line, cwd)
		assert (with_driver.by_course, by_course.by_course) == (False, True)
		assert with_driver.facts and not sorted(by_course.facts ^ with_driver.facts), line


@pytest.fixture
def watch(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
	"""A folder with sources, and programs that are parked already."""
	monkeypatch.setenv("WAFD_PARK", "proved")
	monkeypatch.setenv("WAFD_PARK_AFTER", "1")
	monkeypatch.setenv("WAFD_LOG", "trace")
	folder = tmp_path / "lab"
	folder.mkdir()
	watch = Watch(engine, folder, tmp_path / "home")
	watch.prepare()
	deadline = time.monotonic() + PATIENCE
	programs = ("gcc", "g++", "cc1", "cc1plus", "as")
	while True:
		# no shape: the programs of these drivers are observed only while the drivers run
		for line in ("gcc -c a.c", "g++ -c b.cc"):
			watch.run(line, True, WAFCC_RECACHE="1")
		known = {os.path.basename(p["path"]): p["state"] for p in watch.read_parking()["programs"]}
		if len(known) >= len(programs) and set(known.values()) <= {"parked", "refused"}:
			return watch
		assert time.monotonic() < deadline, f"the engine does not make up its mind: {known}"


LINES = [
	"gcc -c a.c -o a.o",
	"gcc -g -O2 -c a.c -o sub/out.o",
	"gcc -MD -MF a.d -c a.c -o a.o",
	"gcc -MMD -MP -MT sub/a.o -MF sub/a.d -c sub/a.b.c -o sub/a.b.o",
	"gcc -I missing -Iinc -isystem no/such -c a.c -o a.o",
	"gcc -c {here}/a.c -o {here}/a.o",
	"gcc -c sub/../a.c -o sub/../x.c.1.o",
	"gcc -Wall -c warn.c -o warn.o",
	"g++ -c b.cc -o b.o",
	"g++ -g -O1 -std=c++17 -MD -MF b.d -c b.cc -o b.cc.1.o",
]


def test_lines(watch: Watch) -> None:
	"""The facts are the same with any options, and with any names of source and object."""
	for line in LINES:
		watch.compare(line)


ENVIRONMENTS: List[Dict[str, str]] = [
	{"TMPDIR": "{here}/tmp"},
	{"TMPDIR": "{here}/no-such-folder"},
	{"COMPILER_PATH": "{here}/tools"},
	{"COMPILER_PATH": "{here}/no-such-folder:{here}/tools"},
	{"COMPILER_PATH": "{here}/wrapped"},
	{"GCC_EXEC_PREFIX": "/usr/lib/gcc/"},
	{"LANG": "de_DE.UTF-8", "LC_ALL": "C.UTF-8"},
	{"CCACHE_DIR": "{here}/tmp", "CCACHE_PREFIX": "no-such-program", "CPATH": "inc"},
	{"PWD": "{here}/link"},
	{"GCC_COLORS": "", "SOURCE_DATE_EPOCH": "1"},
]


def test_environments(watch: Watch) -> None:
	"""The facts are the same with any variables in the environment. Each environment has a course of its own."""
	for env in ENVIRONMENTS:
		watch.compare("gcc -c a.c -o a.o", **env)


def test_folders(watch: Watch) -> None:
	"""They are the same in another folder than that of the first command, also in a folder of another name."""
	watch.compare("gcc -Iinc -c a.c -o a.o")
	watch.write("with/in/a.c", SOURCES["main.c"])
	for number, (line, cwd) in enumerate(
		[
			("gcc -Iinc -c a.c -o a.o", "with/in"),
			("gcc -Iinc -c a.c -o a.o", "link"),
			("gcc -Iinc -c a.c -o a.o", "."),
		]
	):
		watch.compare_with_known(line, cwd, UNRELATED=str(number))


def test_what_is_meant_from_a_folder(watch: Watch) -> None:
	"""A driver that looks for its parts in the command's folder cannot be predicted, and runs."""
	deadline = time.monotonic() + PATIENCE
	while not watch.read_parking()["courses"]["untold"]:
		run = watch.compile("gcc -c a.c -o a.o", ".", COMPILER_PATH="tools")
		assert not run.by_course
		assert time.monotonic() < deadline, f"nothing is told: {watch.read_parking()}"
	assert watch.compile("gcc -c a.c -o a.o", ".", COMPILER_PATH="tools").facts
	assert not watch.count_observed()


def test_an_assembler_that_comes_later(watch: Watch) -> None:
	"""When an assembler appears where the driver looks first, results of the old one are not served any more."""
	tools = {"COMPILER_PATH": str(watch.folder / "tools")}
	watch.compare("gcc -c a.c -o a.o", **tools)
	before = watch.count_observed()
	assert watch.compile("gcc -c a.c -o a.o", ".", **tools).by_course
	watch.write("tools/fresh", f'#!/bin/sh\necho fresh\nexec {shutil.which("as")} "$@"\n').chmod(0o755)
	(watch.folder / "tools/fresh").rename(watch.folder / "tools/as")
	# its course is still valid for a short time; a result made then must not stay
	watch.run("gcc -c main.c -o main.o", True, **tools)
	assert watch.run("gcc -c a.c -o a.o", True, **tools).stdout in (b"", b"fresh\n")
	time_is_up = time.monotonic() + PATIENCE
	while watch.run("gcc -c a.c -o a.o", True, WAFCC_RECACHE="1", **tools).stdout != b"fresh\n":
		assert time.monotonic() < time_is_up, "the new assembler is never used"
	watch.until_hit("gcc -c main.c -o main.o", **tools)
	watch.until_hit("gcc -c a.c -o a.o", **tools)
	assert watch.count_observed() > before
