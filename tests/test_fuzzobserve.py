"""utils/fuzzobserve.py: nothing that random programs do is missed, and what is missed is found."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, List

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "utils"))

from programs import build, find_lint, name_packages  # noqa: E402
from witness.action import list_actions  # noqa: E402
from witness.comparison import compare  # noqa: E402
from witness.observer import Access, Observation  # noqa: E402
from witness.program import FLAVOURS, Node  # noqa: E402
from witness.source import Writer  # noqa: E402
from witness.trial import draw  # noqa: E402

# what runs the programs may have to be compiled first
pytestmark = [
	pytest.mark.timeout(600),
	pytest.mark.skipif(not (shutil.which("strace") and shutil.which("gcc")), reason="needs strace and gcc"),
]
PROGRAMS = 60


@pytest.fixture(scope="module")
def observer() -> str:
	"""The engine's example, as the tree is now."""
	cargo = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
	if not cargo:
		pytest.skip("needs cargo")
	environ = {**os.environ, **find_lint(cargo, os.environ)}
	made = build(cargo, [*name_packages(cargo), "--example", "observe", "--bin", "wafd"], environ)
	(path,) = [str(one["executable"]) for one in made if one["target"]["name"] == "observe"]
	return path


def fuzz(folder: pathlib.Path, *options: str) -> "subprocess.CompletedProcess[str]":
	argv = [sys.executable, str(ROOT / "utils" / "fuzzobserve.py"), "--work", str(folder), "--jobs", "1", *options]
	return subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=500, check=False)


def find(folder: pathlib.Path, *options: str) -> Dict[str, Any]:
	found = json.loads(fuzz(folder, "--json", *options).stdout)
	assert isinstance(found, dict)
	return found


def test_a_seed_makes_the_same_programs() -> None:
	"""Each program is the same whether it is drawn alone or among others, and their C is too."""
	actions, flavours = list_actions(), [flavour.name for flavour in FLAVOURS]

	def write(programs: Dict[int, Node]) -> object:
		return Writer(actions).write(list(programs.values()))

	first, again = draw(7, range(50), actions)(flavours), draw(7, range(50), actions)(flavours)
	assert write(first) == write(again)
	assert draw(7, [31], actions)(flavours) == {31: first[31]}
	assert draw(8, range(50), actions)(flavours) != first


OPENED = '1 openat(AT_FDCWD</yard>, "a.txt", O_RDONLY) = 3</yard/a.txt>'
STATED = '1 newfstatat(AT_FDCWD</yard>, "a.txt", {st_mode=S_IFREG|0644, ...}, 0) = 0'


def access(kind: str, path: str, process: int = 1, **more: object) -> Access:
	return Access(process, kind, 0, {"path": path, **more})


@pytest.mark.parametrize(
	("lines", "noted", "missed"),
	[
		([OPENED], [access("open", "a.txt", reads=True, writes=False)], []),
		([OPENED], [access("open", "/yard/a.txt", reads=True, writes=False)], []),
		([OPENED], [access("open", "b.txt", reads=True, writes=False)], ["content a.txt"]),
		([OPENED], [access("find", "a.txt")], ["content a.txt"]),
		([STATED], [access("look", "a.txt", follows=True)], []),
		([STATED], [access("look", "a.txt", follows=False)], ["status a.txt"]),
		(
			[OPENED, '1 openat(AT_FDCWD</yard>, "/proc/self/fd/3", O_RDONLY) = 4</yard/a.txt>'],
			[access("find", "a.txt"), access("open", "/proc/self/fd/3", reads=True, writes=False)],
			["content a.txt", "content /yard/a.txt"],
		),
		(
			['1 chdir("dir") = 0', '1 stat("c.txt", {...}) = 0'],
			[access("enter", "dir"), access("look", "c.txt", follows=True)],
			[],
		),
		(
			['1 chdir("dir") = 0', '1 stat("c.txt", {...}) = 0'],
			[access("look", "c.txt", follows=True)],
			["enter dir", "status c.txt"],
		),
		(
			["1 vfork( <unfinished ...>", '2 execve("/b", ["b"], 0x1 /* 0 vars */) = 0', "1 <... vfork resumed>) = 2"],
			[access("execute", "/b")],
			["begin /b"],
		),
		(
			["1 vfork( <unfinished ...>", '2 execve("/b", ["b"], 0x1 /* 0 vars */) = 0', "1 <... vfork resumed>) = 2"],
			[access("execute", "/b"), access("begin", "/b", 2, folder="/yard")],
			[],
		),
		(
			[
				"1 fork() = 2",
				'2 access("/b", F_OK) = 0',
				'2 access("/c", F_OK) = -1 ENOENT (No such file or directory)',
			],
			[access("find", "/b")],
			["any /c"],
		),
	],
)
def test_what_is_not_noted_is_told(lines: List[str], noted: List[Access], missed: List[str]) -> None:
	"""A path counts as noted only in a way that says as much as what the kernel did; a program only if it began."""
	trace = ['1 execve("/a", ["a"], 0x1 /* 0 vars */) = 0', *lines, ""]
	accesses = [access("begin", "/a", folder="/yard"), *noted]
	observation = Observation(0, accesses, [], "\n".join(trace), [])
	assert ["%s %s" % (miss.need, miss.path) for miss in compare(observation, "/yard", [])] == missed
	assert compare(observation._replace(blind=["it cannot be observed"]), "/yard", []) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_random_programs_do_is_missed(seed: int, observer: str, tmp_path: pathlib.Path) -> None:
	"""Each path that the kernel saw was noted, and each program began to note, or the command is not observable."""
	found = find(tmp_path, "--observer", observer, "--seed", str(seed), "--programs", str(PROGRAMS))
	assert found["misses"] == [], "seed %d" % seed
	assert found["programs"] == PROGRAMS and found["compared"] > PROGRAMS / 5, found


# Names that the second run draws anew; and a path of which the reading of strace is mistaken.
DRAWN = ("do_mk*temp*", "do_tmpnam", "do_tempnam", "do_open_below_descriptor")


def test_nothing_is_missed_by_the_second_witness(observer: str, tmp_path: pathlib.Path) -> None:
	"""It sees what all kinds of programs do, by whatever calls: none of those that the library misses are left out."""
	found = find(
		tmp_path,
		*("--traced", "--observer", observer, "--seed", "1", "--programs", str(PROGRAMS), "--without", ",".join(DRAWN)),
	)
	assert found["misses"] == []
	assert found["programs"] == PROGRAMS and found["compared"] > PROGRAMS / 2, found


def test_what_is_forgotten_is_found_again(observer: str, tmp_path: pathlib.Path) -> None:
	"""A miss ends the run and is told with its seed, and the program of that number shows it when it runs alone."""
	options = (
		"--observer",
		observer,
		"--actions",
		"do_open,do_stat,start_execve",
		"--forget",
		"a.txt",
		"--forget",
		"b.txt",
		"--seed",
		"4",
	)
	done = fuzz(tmp_path, *options, "--programs", "8")
	assert done.returncode == 1, done
	told = re.search(r"^missed \(\d+ programs?, --seed 4 --only (\d+)\)", done.stdout, re.M)
	kept = re.search(r"^kept in (\S+)$", done.stdout, re.M)
	assert told and kept
	assert (pathlib.Path(kept.group(1)) / ("miss-%s" % told.group(1)) / "smallest.strace").is_file()
	again = find(tmp_path, *options, "--only", told.group(1))
	assert [miss["only"] for miss in again["misses"]] == [int(told.group(1))]
	assert again["programs"] == 1


def test_mistakes_are_one_line(tmp_path: pathlib.Path) -> None:
	"""A program or an action that is not there is named."""
	for options in (["--observer", "/no/such"], ["--observer", sys.executable, "--without", "do_nothing_of_this_name"]):
		done = fuzz(tmp_path, *options)
		assert done.returncode == 2
		assert re.fullmatch(r"fuzzobserve: (/no/such|do_nothing_of_this_name): no such .*\n", done.stderr), done.stderr
