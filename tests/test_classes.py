"""`utils/classes.py`: which commands it takes for hits, and what it takes for wrong."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List, Sequence

import pytest
from conformance import twins
from conformance.cached import Command, Found, compare, give_reasons
from conformance.report import Report
from conftest import ROOT

PROGRAM = str(ROOT / "utils" / "classes.py")


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
	argv = [sys.executable, PROGRAM, *arguments]
	env = {**os.environ, **variables}
	return subprocess.run(argv, env=env, capture_output=True, encoding="utf-8", check=False)


def find_row(text: str, name: str) -> List[int]:
	"""The numbers beside the name of a class, in the table that comes first."""
	(row,) = (line for line in text.partition("\n\n")[0].splitlines() if line.startswith("  %s  " % name))
	return [int(cell) for cell in row.rsplit(maxsplit=6)[1:]]


# ---- with Waf and the engine


@pytest.mark.timeout(300)  # others use the machine, too
def test_hits_are_counted(engine: str, runtime: pathlib.Path, waf_sources: pathlib.Path) -> None:
	"""
	The second build of a project of Waf's has hits, also for links. What is stripped in its place is a miss. A project
	that loads Waf's own `pch` does not get ours.
	"""
	record = runtime / "record.json"
	where = ("--sources=%s" % waf_sources.parents[2], "--json=%s" % record, "--work=%s" % runtime)
	done = run("--projects=playground/local_rpath,playground/pch,playground/strip", *where, WAFD=engine)
	assert done.returncode == 0, done.stdout + done.stderr
	runs: Dict[str, Any] = {value["project"]: value for value in json.loads(record.read_text())["runs"]}
	assert list(runs) == ["playground/local_rpath", "playground/pch", "playground/strip"]
	built = [one for one in runs["playground/local_rpath"]["commands"] if "conf_check" not in one["outputs"][0]]
	assert sorted((one["class"], one["known"]) for one in built) == [
		("c", "hit"),
		("c", "hit"),
		("cprogram", "hit"),
		("cshlib", "hit"),
	]
	missed = [one for one in runs["playground/strip"]["commands"] if one["known"] != "hit"]
	assert {one["class"] for one in missed} == {"cprogram (playground/strip)", "cshlib (playground/strip)"}
	assert {one["why"].partition(" ")[0] for one in missed} == {"it"}
	assert find_row(done.stdout, "cshlib (playground/strip)") == [1, 2, 1, 1, 0, 0]
	assert [path.name for path in runtime.iterdir()] == ["record.json"]


RULES = """\
import os
from waflib import Task
tools = os.environ.get("WAFX_WITH", "no tools")
class one(Task.Task):
	run_str = "cp ${SRC} ${TGT}"
class two(one):
	run_str = "date +%%s%%N > ${TGT}"
def configure(conf):
	%s
def build(bld):
	bld(rule="sort ${SRC} > ${TGT}", source="in", target="sorted")
	%s
"""
EMPTY = "pass"
# by the name of a project in the list: its configuration, and more of its build
MADE = {
	"demos/asm": (EMPTY, "bld(rule='echo %s > ${TGT}' % tools, target='told')"),
	"demos/c++": (EMPTY, "print('with %s' % tools)"),
	"demos/fortran": (EMPTY, "tools == 'no tools' or bld.fatal('there are tools')"),
	"demos/lua": ("conf.find_program('no-such-program')", EMPTY),
	"demos/perl": (EMPTY, "bld(rule='touch ${TGT}', target='%s' % tools.partition(' ')[0])"),
	"demos/subst": (EMPTY, EMPTY),
	"demos/unit_test": (
		EMPTY,
		"bld(rule=lambda task: bld.exec_command('touch own', cwd=bld.bldnode.abspath()), target='own')",
	),
}


def make_tree(folder: pathlib.Path, waf_sources: pathlib.Path) -> None:
	"""Sources of Waf with projects of ours, some of which build something else if they find tools."""
	tree = folder / "waflib-2.1.4" / "submodules" / "waf"
	for name, parts in MADE.items():
		(tree / name).mkdir(parents=True)
		(tree / name / "in").write_text("b\na\n")
		(tree / name / "wscript").write_text(RULES % parts)
	(tree / "waflib").symlink_to(waf_sources / "waflib")


@pytest.mark.timeout(300)  # others use the machine, too
def test_what_is_wrong_is_told(
	engine: str, runtime: pathlib.Path, waf_sources: pathlib.Path, tmp_path: pathlib.Path
) -> None:
	"""Another content, another file, a message and an exit status are wrong; the class is told that made the file."""
	make_tree(tmp_path, waf_sources)
	done = run("--projects=%s" % ",".join(MADE), "--sources=%s" % tmp_path, "--work=%s" % runtime, WAFD=engine)
	assert done.returncode == 1, done.stdout + done.stderr
	found = {line for line in done.stdout.splitlines() if line.startswith("WRONG: ")}
	for step in ("first", "again"):
		for what in (
			"demos/asm, {}, rule, demos/asm/build/told: another content",
			"demos/c++, {}, stdout - with no tools",
			"demos/c++, {}, stdout + with prefork wafcc",
			"demos/fortran, {}, exit status 1 and not 0: waf configure build -j4",
			"demos/perl, {}, demos/perl/build/no: it is missing",
			"demos/perl, {}, rule, demos/perl/build/prefork: stock Waf does not make it",
		):
			assert "WRONG: " + what.format(step) in found
	assert not [line for line in found if line.startswith("WRONG: demos/subst")]
	assert "left out: demos/lua: stock Waf does not build it here; it needs lua5.3" in done.stdout
	assert "\n6 projects: stock " in done.stdout
	assert list(runtime.iterdir()) == []


def test_right_projects_give_status_zero(
	engine: str, runtime: pathlib.Path, waf_sources: pathlib.Path, tmp_path: pathlib.Path
) -> None:
	"""
	The same tree is right without the projects that look for tools. A rule is a hit the second time, and so is the
	command that a function runs.
	"""
	make_tree(tmp_path, waf_sources)
	done = run("--projects=demos/subst,demos/unit*", "--sources=%s" % tmp_path, "--work=%s" % runtime, WAFD=engine)
	assert done.returncode == 0, done.stdout + done.stderr
	assert find_row(done.stdout, "rule") == find_row(done.stdout, "all") == [2, 3, 3, 0, 0, 0]


# ---- what counts

MISSED = "it reads the clock"


def make_command(cls: str, known: str, unstored: str = "", task: str = "Running a") -> Command:
	return Command(cls, task, ("out",), known, "" if known == "hit" else "not seen", unstored)


def test_classes_are_apart() -> None:
	"""Commands of one name in two classes are two: each has the reason of its own, and its own row."""
	first = [make_command("one", "miss", MISSED), make_command("two", "miss"), make_command("two", "miss", "late")]
	again = [make_command("two", "hit"), make_command("one", "miss"), make_command("two", "miss")]
	told = give_reasons(first, again)
	assert [(one.cls, one.why) for one in told] == [("two", ""), ("one", MISSED), ("two", "late")]
	keys = ("class", "task", "outputs", "known", "why", "unstored")
	wrong = [{"step": "again", "class": "one", "what": "out: another content"}]
	value: Dict[str, Any] = {"project": "a", "commands": [dict(zip(keys, one)) for one in told], "wrong": wrong}
	text = Report([value]).table()
	assert find_row(text, "one") == [1, 1, 0, 1, 0, 1]
	assert find_row(text, "two") == [1, 2, 1, 1, 0, 0]
	assert find_row(text, "all") == [1, 3, 1, 2, 0, 1]


ENDING = "'build' finished successfully (0.1s)"
SHOWN, NEW = ["[1/2] Running a", "a: careless", "[2/2] Running b", ENDING], [ENDING]
"""What stock Waf prints of a build, and of one that finds nothing to do."""


@pytest.mark.parametrize(
	("ours", "known", "seen"),
	[
		(NEW, "hit", Found([], 0, 0)),
		(["[2/2] Running a", "a: careless", ENDING], "hit", Found([], 1, 0)),
		(["[2/2] Running a", ENDING], "miss", Found([], 0, 1)),
		(["a: careless", ENDING], "hit", Found([("", "stdout + a: careless")], 0, 0)),
		(["[1/2] Running a", "a: other", ENDING], "hit", Found([("", "stdout + a: other")], 1, 0)),
		(["[1/2] Running b", ENDING], "hit", Found([("", "stdout + Running b")], 0, 0)),
		(["[1/2] Running c", ENDING], "hit", Found([("", "stdout + Running c")], 0, 0)),
		([], "hit", Found([("", "stdout - 'build' finished successfully (TIME)")], 0, 0)),
	],
)
def test_tasks_that_are_asked_for_again(ours: Sequence[str], known: str, seen: Found, tmp_path: pathlib.Path) -> None:
	"""
	Only a task with a command, which stock Waf has shown too, may be shown once more, and print what it printed before.
	"""

	def build(name: str, second: Sequence[str]) -> twins.Build:
		(tmp_path / name).mkdir()
		texts = ["".join(line + "\n" for line in lines).encode() for lines in (SHOWN, second)]
		return twins.Build(tmp_path / name, [twins.Run(("waf", "build"), 0, text, b"") for text in texts])

	commands = [make_command("one", "miss"), make_command("one", known), make_command("one", "miss", task="Running c")]
	standard = twins.Standard(ordered=False)
	assert compare(build("stock", NEW), build("ours", ours), commands, standard) == seen


def test_a_run_that_is_left_out_is_wrong(tmp_path: pathlib.Path) -> None:
	(tmp_path / "one").mkdir()
	(tmp_path / "two").mkdir()
	good, bad = twins.Run(("waf", "build"), 0, b"", b""), twins.Run(("waf", "build"), 3, b"", b"")
	found = compare(
		twins.Build(tmp_path / "one", [good, good]), twins.Build(tmp_path / "two", [bad]), [], twins.Standard()
	)
	assert [what.partition(":")[0] for _, what in found.wrong] == ["1 runs of Waf and not 2", "exit status 3 and not 0"]


# ---- the command line


@pytest.mark.parametrize(
	("argument", "said"),
	[
		("--projects=nonsense*", "classes: --projects: no nonsense*: see --list"),
		("--sources=/nowhere", "classes: --sources: no waflib-2.1.*/submodules/waf in /nowhere"),
		("--work=/nowhere", "classes: --work: /nowhere is no folder to write in"),
		("--json=/nowhere/file", "classes: --json: /nowhere is no folder to write in"),
	],
)
def test_mistakes_are_one_line(engine: str, argument: str, said: str) -> None:
	done = run(argument, WAFD=engine)
	assert done.returncode == 2
	assert done.stderr.startswith(said) and done.stderr.count("\n") == 1


def test_list() -> None:
	"""A pattern chooses projects, each once, with what they need."""
	done = run("--list", "--projects=demos/bison*,demos/b*,demos/c")
	assert [line.split() for line in done.stdout.splitlines()] == [
		["demos/bisonflex", "bison", "flex", "libfl-dev"],
		["demos/c"],
	]
