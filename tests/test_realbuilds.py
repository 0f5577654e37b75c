"""`utils/realbuilds.py`: what it does with a project, and how it fetches sources."""

import os
import pathlib
import subprocess
import sys
from typing import List

import pytest
from conftest import ROOT
from debian import sources
from debian.sources import find_archive, sources_of, unpack
from projects.contender import Contender, Mapped, Ours
from projects.project import Real, with_make
from projects.trial import STEPS, Done, Trial

PROGRAM = str(ROOT / "utils" / "realbuilds.py")
MAKEFILE = """\
FOLDER = $(CURDIR)
app: a.o b.o
\t$(CC) -o $@ $^
%.o: $(FOLDER)/%.c one.h
\t$(CC) $(CFLAGS) -c $(FOLDER)/$*.c -o $@
"""
FILES = {
	"Makefile": MAKEFILE,
	"one.h": "int from_b(void);\n",
	"a.c": '#include "one.h"\nconst char *file = __FILE__;\nint main(void) { return from_b(); }\n',
	"b.c": '#include "one.h"\nint from_b(void) { return 0; }\n',
}
SMALL = Real("small", "small-*", "one.h", lambda setup: [], with_make(), ("make",), "make")


@pytest.fixture
def trial(project, engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
	monkeypatch.setenv("WAFD", engine)
	(tmp_path / "work").mkdir()
	return Trial(SMALL, project(FILES), "-O2 -g", str(tmp_path / "work"), 2, lambda text: None)


def by_step(done: List[Done]) -> "dict[str, Done]":
	return {one.step: one for one in done}


def test_all_steps(trial: Trial) -> None:
	"""Ours hits in the same folder, after an edit that is taken back, and in another checkout, with the same bytes."""
	assert [one.step for one in trial.run(Mapped())] == ["cold", "edit", "other"]
	trial.run(Contender())
	ours = by_step(trial.run(Ours()))
	assert list(ours) == list(STEPS)
	assert {step: (one.hits, one.misses) for step, one in ours.items()} == {
		"cold": (0, 2),
		"warm": (2, 0),
		"edit": (0, 2),
		"back": (2, 0),
		"other": (2, 0),
	}
	assert [one.differing for one in ours.values() if one.differing] == []
	assert {one.outputs for one in ours.values()} == {3}


def test_other_bytes_are_told(trial: Trial) -> None:
	"""Results that name the checkout differ from those of the stock tools with a prefix map."""
	trial.run(Contender())
	(cold, *_) = trial.run(Mapped())
	trial.made[Mapped.name]["cold"] = trial.made["stock"]["cold"]
	assert cold.differing == []
	assert by_step(trial.run(Ours()))["cold"].differing == ["a.o", "app", "b.o"]


def test_mistakes_are_one_line() -> None:
	for arguments, said in (
		(["--projects=nonsense"], "realbuilds: --projects: no nonsense: there are leveldb"),
		(["--contenders=nonsense"], "realbuilds: --contenders: no nonsense: there are stock"),
		(["--ccache=/nowhere"], "realbuilds: --ccache: /nowhere is no program"),
	):
		done = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, encoding="utf-8", check=False)
		assert done.returncode == 2
		assert done.stderr.startswith(said) and done.stderr.count("\n") == 1


def test_settings_of_apt(tmp_path: pathlib.Path) -> None:
	"""Both formats of apt's settings are changed so that they ask for sources."""
	old = tmp_path / "old.list"
	old.write_text("# deb is here\ndeb [arch=x] http://a b main\ndeb-src http://a b main\n")
	assert list(sources_of(old)) == ["deb-src [arch=x] http://a b main"]
	new = tmp_path / "new.sources"
	new.write_text("Types: deb deb-src\nURIs: http://a\n")
	assert list(sources_of(new)) == ["Types: deb-src", "URIs: http://a"]
	assert list(sources_of(tmp_path / "other")) == []


def test_settings_for_another_release(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""For another release, apt asks the machine's mirror for its sources, and nothing else."""
	monkeypatch.setattr(sources, "find_mirror", lambda: "http://mirror/debian")
	monkeypatch.setattr(sources, "KEYS", tmp_path / "none")
	sources.Apt(tmp_path / "apt", "trixie")
	(file,) = (tmp_path / "apt" / "sources.list.d").iterdir()
	assert file.read_text() == "deb-src http://mirror/debian trixie main\n"


def test_archives(tmp_path: pathlib.Path) -> None:
	"""A package's archive is found by its description, and unpacked once."""
	(tmp_path / "thing-1").mkdir()
	(tmp_path / "thing-1" / "file").write_text("1")
	archives = tmp_path / "debian"
	archives.mkdir()
	assert find_archive("thing", archives) == ""
	subprocess.run(["tar", "-C", str(tmp_path), "-czf", str(archives / "thing_1.orig.tar.gz"), "thing-1"], check=True)
	(archives / "thing_1-2.dsc").write_text("Files:\n 0 1 thing_1.orig.tar.gz\n 0 1 thing_1-2.debian.tar.xz\n")
	archive = find_archive("thing", archives)
	assert archive == str(archives / "thing_1.orig.tar.gz")
	place = tmp_path / "sources"
	for _ in range(2):
		unpack(archive, place)
		assert sorted(os.listdir(place)) == ["thing-1"]
		assert (place / "thing-1" / "file").read_text() == "1"


def test_lists(engine: str) -> None:
	done = subprocess.run([sys.executable, PROGRAM, "--list"], capture_output=True, encoding="utf-8", check=True)
	projects, contenders = (line.split() for line in done.stdout.splitlines())
	assert {"samba", "libarchive", "leveldb", "jackd2", "ntpsec"} < set(projects)
	assert contenders[:2] == ["contenders", "stock"] and contenders[-1] == "wafcc"
