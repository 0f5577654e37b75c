"""Why something is built: --why and the command why name the true cause."""

import pathlib
import re
from typing import Any, Callable, Dict, List

import pytest
from conftest import on_cpython

from waflib_extras.console import causes

WSCRIPT = """\
import os
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c prefork TOOL")
def configure(conf):
	conf.load("compiler_c")
	conf.env.DEFINES = ["LEVEL=1", "NAME=x"]
def build(bld):
	bld.objects(source="a.c b.c", target="parts", includes="inc")
	bld.program(source="main.c", target="app", use="parts")
	rule = bld(rule="sort ${SRC} > ${TGT}", source="list.txt", target="sorted.txt", name="list")
"""
PROJECT = {
	"a.c": '#include "a.h"\nint a(void) { return A; }\n',
	"b.c": "int b(void) { return 2; }\n",
	"main.c": "int a(void); int b(void); int main(void) { return a() - b(); }\n",
	"inc/a.h": "#define A 2\n",
	"list.txt": "b\na\n",
}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
	"""A store of the test's own."""
	monkeypatch.setenv("HOME", str(tmp_path))
	monkeypatch.setenv("LC_ALL", "C")


class Project:
	"""A project that was built once."""

	def __init__(self, waf: Any, folder: pathlib.Path) -> None:
		self.waf = waf
		self.folder = folder
		waf(folder, "configure", "build")

	def edit(self, name: str, before: str, after: str) -> None:
		path = self.folder / name
		text = path.read_text()
		assert before in text
		path.write_text(text.replace(before, after))

	def ask(self, *args: str, **kwargs: Any) -> Dict[str, str]:
		"""The reason for each task, by the name of its first output."""
		done = self.waf(self.folder, *args, **kwargs)
		return dict(re.findall(r"^build/(\S+?)(?:\.\d+\.o)?: (.*)$", done.stdout, re.M))


@pytest.fixture
def plain(waf: Any, project: Callable[..., pathlib.Path]) -> Project:
	return Project(waf, project({**PROJECT, "wscript": WSCRIPT.replace(" TOOL", "")}))


def test_what_has_changed_is_named(plain: Project) -> None:
	"""
	A header, a source, flags, a rule, an output that is gone: each is told of the tasks that it concerns, no other.
	The same is told without building, while building, and when it was built.
	"""
	up_to_date = plain.ask("why")
	assert up_to_date == {}
	plain.edit("inc/a.h", "2", "3")
	(plain.folder / "build" / "sorted.txt").unlink()
	assert plain.ask("why") == {
		"a.c": "would be built: inc/a.h has changed",
		"app": "would be built: build/a.c.1.o would be made before, and may change",
		"sorted.txt": "would be built: its output build/sorted.txt is not there",
	}
	assert not (plain.folder / "build" / "sorted.txt").exists()
	told = plain.ask("build", "--why=parts,list")
	assert told["a.c"] == "built: inc/a.h has changed"
	assert told["b.c"].startswith("up to date; built 20")
	assert told["b.c"].endswith(": it was not built before")
	assert told["sorted.txt"] == "built: its output build/sorted.txt is not there"
	plain.edit("wscript", '"LEVEL=1", "NAME=x"', '"LEVEL=2", "NAME=x", "MORE"')
	plain.edit("wscript", "sort ${SRC}", "sort -r ${SRC}")
	plain.edit("b.c", "2", "4")
	told = plain.ask("configure", "why")
	assert told["a.c"] == "would be built: DEFINES: LEVEL=2, was LEVEL=1; DEFINES: MORE is new"
	assert told["b.c"] == told["a.c"] + "; b.c has changed"
	assert told["sorted.txt"].startswith("would be built: its rule is ")
	plain.waf(plain.folder, "build")
	told = plain.ask("why", "--why=a.c,sorted.txt,build/app")
	assert told["a.c"].endswith(": DEFINES: LEVEL=2, was LEVEL=1; DEFINES: MORE is new")
	assert "sort -r" in told["sorted.txt"]
	assert re.match(r"up to date; built .*build/b\.c\.1\.o has changed", told["app"])


@on_cpython
def test_failures_and_cleaning_are_told(plain: Project) -> None:
	"""Tasks that failed the last time, and tasks that Waf has forgotten, are built for that reason."""
	plain.edit("b.c", "return 2", "return")
	plain.edit("b.c", "int b", "#error no\nint b")
	failed = plain.waf(plain.folder, "build", "--why=b.c", status=1)
	assert "build/b.c.1.o: failed: b.c has changed" in failed.stdout
	told = plain.ask("why", "--why=parts")
	assert told["b.c"] == "would be built: it was not built to its end the last time; b.c has changed"
	told = plain.ask("clean", "why", "--why=a.c")
	assert told["a.c"] == "would be built: Waf had forgotten all of this build folder, as after waf clean"


@on_cpython
def test_unknown_targets_have_near_ones(plain: Project) -> None:
	"""There is one line, and a status that is not zero; a pattern that matches is no mistake."""
	done = plain.waf(plain.folder, "why", "--why=ap", status=1)
	assert "why: there is no target, output or source ap: did you mean app?" in done.stderr
	assert "Traceback" not in done.stderr + done.stdout
	assert set(plain.ask("why", "--why=*.o")) == {"a.c", "b.c", "main.c"}


@on_cpython
def test_the_cache_is_told_of(waf: Any, project: Callable[..., pathlib.Path]) -> None:
	"""With wafcc it tells whether the cache had the result, and why not; a touched file is named as such."""
	built = Project(waf, project({**PROJECT, "wscript": WSCRIPT.replace("TOOL", "wafcc")}))
	built.edit("inc/a.h", "2", "3")
	told = built.ask("why")
	assert told["a.c"] == "would be built: inc/a.h was written again"
	told = built.ask("build", "--why=parts")
	assert told["a.c"] == "built: inc/a.h was written again; cache: miss: ../inc/a.h has changed"
	built.edit("inc/a.h", "3", "2")
	told = built.ask("build", "--why=a.c")
	assert told["a.c"] == "built: inc/a.h was written again; cache: hit"
	built.edit("wscript", '"LEVEL=1"', '"LEVEL=7"')
	built.waf(built.folder, "configure", "build")
	told = built.ask("why", "--why=b.c")
	assert re.search(r": DEFINES: LEVEL=7, was LEVEL=1; cache: miss: ", told["b.c"])


@on_cpython
def test_one_job_tells_the_same(plain: Project) -> None:
	"""With -j1 Waf runs tasks in another way, and their records are the same."""
	plain.edit("inc/a.h", "2", "3")
	plain.waf(plain.folder, "build", "-j1")
	plain.edit("b.c", "2", "3")
	told = plain.ask("why", "-j1", "--why=parts")
	assert told["a.c"].endswith(": inc/a.h has changed")
	assert told["b.c"] == "would be built: b.c has changed"


@on_cpython
def test_earlier_waf_tells_the_same(waf: Any, project: Any, waf20: pathlib.Path) -> None:
	"""With Waf 2.0 reasons, savings, and --quiet are as with 2.1."""
	folder = project({**PROJECT, "wscript": WSCRIPT.replace("TOOL", "")})
	speaking = {"WAF_PREFORK_SUMMARY": None}
	done = waf(folder, "configure", "build", wafdir=waf20, env=speaking)
	assert re.search(r"^prefork: \d+ commands: \d+ run", done.stdout, re.M)
	(folder / "inc" / "a.h").write_text("#define A 3\n")
	done = waf(folder, "why", "build", "--why=a.c", "-q", wafdir=waf20, env=speaking)
	assert "build/a.c.1.o: would be built: inc/a.h has changed\n" in done.stdout
	assert "build/a.c.1.o: built: inc/a.h has changed\n" in done.stdout
	assert "prefork:" not in done.stdout


# ---- comparing


FIELDS = ("code", "env", "files", "manual", "is_learned")


def make(**changes: Any) -> Any:
	parts = dict(zip(FIELDS, (b"rule", b"e1", (("/p/a.c", b"1"), ("/p/a.h", b"1")), b"", False)))
	return tuple({**parts, **changes}.values())


ENVS = {b"e1": {"CFLAGS": ["-O1", "-g"], "CC": "gcc"}, b"e2": {"CFLAGS": ["-g", "-O2"], "CC": "clang"}}


@pytest.mark.parametrize(
	("changes", "expected"),
	[
		({}, []),
		({"code": b"other"}, ["its rule is other, was rule"]),
		({"code": b"def f():\n" * 30}, ["its rule has changed"]),
		({"files": (("/p/a.c", b"1"), ("/p/a.h", b"2"))}, ["/p/a.h has changed"]),
		({"files": (("/p/a.c", b"2"), ("/p/a.h", b"1"), ("/p/b.h", b"1"))}, ["/p/a.c has changed"]),
		(
			{"files": (("/p/a.c", b"1"), ("/q/a.h", b"1"))},
			["it depends on /q/a.h now", "it does not depend on /p/a.h any more"],
		),
		({"files": (), "is_learned": True}, []),
		({"env": b"e2"}, ["CC is clang, was gcc", "CFLAGS: -O2, was -O1"]),
		({"manual": b"2"}, ["what add_manual_dependency has added has changed"]),
	],
)
def test_records_are_compared(changes: Dict[str, Any], expected: List[str]) -> None:
	"""Each part of a signature has its words."""
	assert causes.compare(make(), make(**changes), ENVS) == expected


@pytest.mark.parametrize(
	("before", "now", "expected"),
	[
		("-O1 -c", "-O2 -c", ["-O2, was -O1"]),
		("-c", "-c -g", ["-g is new"]),
		("-g -g", "-g", ["-g is gone"]),
		("-a -b", "-b -a", ["its words are in another order"]),
	],
)
def test_words_are_compared(before: str, now: str, expected: List[str]) -> None:
	"""Arguments are compared as the cache does it."""
	assert causes.compare_words(before.split(), now.split()) == expected


def test_unknown_reasons_are_not_invented() -> None:
	"""Without a record, or if no part differs, the reason says that it is not known."""

	class Task:
		always_run = False

	known = causes.Before(True, False, "")
	assert causes.explain(Task(), known, None, make(), (), ENVS) == [
		"something that its signature is made of has changed; what, is kept from now on"
	]
	assert causes.explain(Task(), known, make(), make(), (), ENVS) == [
		"something has changed that its class adds to its signature"
	]
	assert causes.explain(Task(), None, None, make(), (), ENVS) == []
	Task.always_run = True
	assert causes.explain(Task(), known, make(), make(), (), ENVS) == ["it is always run"]
