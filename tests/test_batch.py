"""The tool batch: one call of a compiler for many sources has the same results as one call for each."""

import json
import pathlib
import re
import shutil
import sys
from typing import Any, Dict, List, Optional

import pytest
from prefork_probes import read_status
from test_prefork_builds import read_tree

WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c batch")
def configure(conf):
	conf.load("compiler_c")
	conf.env.CFLAGS = %r
def build(bld):
	%s
	bld.stlib(source=bld.path.ant_glob("src/**/*.c"), target="all", includes="src .", defines=["FROM=1"], idx=1)
"""
SOURCE = """\
#include "shared.h"
const char *NAME(int x) { int unused; return __FILE__ SHARED; }
"""
SOURCES = {"src/f%d.c" % n: SOURCE.replace("NAME", "f%d" % n) for n in range(8)}
# one has the same name as another, and one includes relative to itself
SOURCES["src/sub/f1.c"] = SOURCE.replace("NAME", "sub_f1")
SOURCES["src/sub/g.c"] = SOURCE.replace("NAME", "sub_g").replace('"shared.h"', '"../shared.h"')
SOURCES["src/shared.h"] = '#define SHARED " in " __FILE__\n'


def write_project(
	project: Any, files: Optional[Dict[str, str]] = None, line: str = "bld.load('batch')"
) -> pathlib.Path:
	"""Ten sources in a static library, with other files, and one more line in the wscript."""
	return project(dict(SOURCES, wscript=WSCRIPT % (["-g", "-Wall"], line), **files or {}))


def told(done: Any) -> Dict[str, int]:
	"""The tool's summary at the end of a build with --zones=batch."""
	text = done.stdout + done.stderr
	found = re.search(r"(\d+) tasks in (\d+) calls, (\d+) done again alone", text)
	assert found, text
	counts = dict(zip(("shared", "calls", "again"), map(int, found.groups())))
	counts.update({why: int(count) for count, why in re.findall(r"(\d+) left alone: (.*)", text)})
	return counts


def warnings(done: Any) -> List[str]:
	return sorted(line for line in (done.stdout + done.stderr).splitlines() if "warning:" in line)


def tasks(done: Any) -> List[str]:
	"""The messages of tasks, without their numbers."""
	return sorted(re.findall(r"\] (\w+ing \S+)", done.stdout))


def need(program: str) -> None:
	if not shutil.which(program):
		pytest.skip("%s is not installed" % program)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_outputs_are_those_of_single_calls(waf: Any, project: Any, compiler: str) -> None:
	"""Outputs, tasks and warnings are the same, also with debug information, __FILE__ and relative includes."""
	need(compiler)
	folder = write_project(project)
	plain = waf(folder, "configure", "build", "--batch=0", env={"CC": compiler})
	tree = read_tree(folder)
	assert len([name for name in tree if name.endswith(".o")]) == 10
	for jobs in ("-j1", "-j3"):
		done = waf(folder, "clean", "build", jobs, "--zones=batch")
		counts = told(done)
		assert counts["again"] == 0
		if jobs == "-j1":
			# all but one of two with the same name, in one call
			assert (counts["shared"], counts["calls"]) == (9, 1)
		assert read_tree(folder) == tree
		assert tasks(done) == tasks(plain)
		assert warnings(done) == warnings(plain)
		assert len(warnings(done)) == 10
	# neither build repeats the other one's work
	assert tasks(waf(folder, "build", "--batch=0")) == []


def test_an_edit_compiles_what_it_concerns(waf: Any, project: Any) -> None:
	"""An edit compiles one source, a header the sources that include it, and nothing else is compiled."""
	own = '#include "own.h"\nint f%d;\n'
	folder = write_project(project, {"src/f2.c": own % 2, "src/f3.c": own % 3, "src/own.h": "int own;\n"})
	waf(folder, "configure", "build")
	(folder / "src" / "f5.c").write_text("int other;\n")
	assert tasks(waf(folder, "build")) == ["Compiling src/f5.c", "Linking build/liball.a"]
	(folder / "src" / "own.h").write_text("extern int own;\n")
	assert tasks(waf(folder, "build")) == ["Compiling src/f2.c", "Compiling src/f3.c", "Linking build/liball.a"]


@pytest.mark.parametrize("compiler,jobs", [("gcc", "-j1"), ("gcc -pipe", "-j3"), ("clang", "-j1")])
def test_an_error_concerns_its_own_file(waf: Any, project: Any, compiler: str, jobs: str) -> None:
	"""Messages and status are those of a plain build. The other sources are compiled, and their warnings are shown."""
	need(compiler.split()[0])
	folder = write_project(project, {"src/f4.c": '#include "shared.h"\nint f4(void) { return 0 }\n'})
	plain = waf(folder, "configure", "build", "--batch=0", "-k", env={"CC": compiler}, status=1)
	done = waf(folder, "clean", "build", "-k", jobs, "--zones=batch", status=1)
	assert (done.stdout + done.stderr).count("error: expected") == 1
	assert (done.stdout + done.stderr).count("task in 'all' failed with exit status 1") == 1
	assert warnings(done) == warnings(plain)
	assert tasks(done) == tasks(plain)
	assert told(done)["again"] >= (jobs == "-j1")


def test_what_was_compiled_beside_an_error_stays(waf: Any, project: Any) -> None:
	"""Also if the build stops at the first error, sources that the same call has compiled are not compiled again."""
	files = {**dict.fromkeys(SOURCES, "int x;\n"), "src/f4.c": "broken\n"}
	folder = write_project(project, files)
	counts = told(waf(folder, "configure", "build", "-j1", "--zones=batch", status=1))
	assert (counts["shared"], counts["again"]) == (8, 1)
	(folder / "src" / "f4.c").write_text("int f4;\n")
	done = tasks(waf(folder, "build"))
	# the other source of the same name may not have been compiled yet
	left = {"Compiling src/f1.c", "Compiling src/sub/f1.c"}
	assert set(done) - left == {"Compiling src/f4.c", "Linking build/liball.a"}
	assert len(done) <= 3


def test_commands_that_differ_do_not_share(waf: Any, project: Any) -> None:
	"""Flags of a target, and of a single source, are its own."""
	line = """bld.load("batch")
	bld.objects(source="a.c b.c c.c", target="one", defines=["V=1"])
	bld.objects(source="d.c e.c", target="two", defines=["V=2"])
	bld.get_tgen_by_name("one").post()
	bld.get_tgen_by_name("one").tasks[0].env = bld.env.derive()
	bld.get_tgen_by_name("one").tasks[0].env.DEFINES = ["V=3"]"""
	folder = write_project(project, {name + ".c": "int %s = V;\n" % name for name in "abcde"}, line=line)
	waf(folder, "configure", "build", "--batch=0", "--targets=one,two")
	tree = read_tree(folder)
	counts = told(waf(folder, "clean", "build", "-j1", "--zones=batch", "--targets=one,two"))
	assert (counts["shared"], counts["calls"]) == (4, 2)
	assert read_tree(folder) == tree


def test_what_writes_more_is_left_alone(waf: Any, project: Any) -> None:
	"""Compiles that write files named after the object are not shared, and the reason is told."""
	flags = ["-MD", "-save-temps", "--coverage", "-gsplit-dwarf", "-fstack-usage", "-Wa,-adhln=x.lst"]
	line = """bld.load("batch")
	for n, flag in enumerate(%r):
		bld.objects(source="a.c b.c", target="t%%d" %% n, cflags=[flag], idx=n + 5)""" % (flags)
	folder = write_project(project, {"a.c": "int a;\n", "b.c": "int b;\n"}, line=line)
	waf(folder, "configure", "build", "--batch=0", "-j1")
	tree = read_tree(folder)
	counts = told(waf(folder, "clean", "build", "-j1", "--zones=batch"))
	assert {flag: counts["%s may concern more files than its object" % flag] for flag in flags} == dict.fromkeys(
		flags, 2
	)
	assert read_tree(folder).keys() == tree.keys()


def test_generated_headers_come_first(waf: Any, project: Any) -> None:
	"""A task waits for its inputs, and the tasks with which it could share a call do not wait for it."""
	line = """bld.load("batch")
	bld(rule="echo '#define MADE 1' > ${TGT}", target="made.h")"""
	reading = {"src/f%d.c" % n: '#include "made.h"\nint f%d = MADE;\n' % n for n in (1, 3, 5)}
	folder = write_project(project, reading, line=line)
	done = waf(folder, "configure", "build", "-j2", "--zones=batch")
	assert told(done)["again"] == 0
	assert len(list((folder / "build").rglob("*.c.1.o"))) == 10


def test_a_file_in_the_way_stays(waf: Any, project: Any) -> None:
	"""A compiler may not overwrite a file of the build folder, or an output of a rule."""
	line = """bld.load("batch")
	bld(rule="echo mine > ${TGT}", target="f2.o")"""
	folder = write_project(project, line=line)
	waf(folder, "configure")
	(folder / "build" / "f3.o").write_text("of a user")
	counts = told(waf(folder, "build", "-j1", "--zones=batch"))
	assert (folder / "build" / "f2.o").read_text() == "mine\n"
	assert (folder / "build" / "f3.o").read_text() == "of a user"
	assert (counts["shared"], counts["again"]) == (7, 0)


def test_what_a_killed_build_has_left_goes(waf: Any, project: Any) -> None:
	"""The file names of a call are noted before it begins. After a crash the next build removes these files."""
	folder = write_project(project)
	waf(folder, "configure")
	left = folder / "build" / ".batch-7"
	left.mkdir()
	(left / "names").write_bytes(b"f1.o\0f2.o")
	for name in ("f1.o", "f2.o", "other.o"):
		(folder / "build" / name).write_text("x")
	waf(folder, "build", "-j1")
	assert sorted(path.name for path in (folder / "build").glob("*.o")) == ["other.o"]
	assert not list((folder / "build").glob(".batch-*"))


def test_tasks_that_take_part(waf: Any, project: Any) -> None:
	"""A generator by feature or size; --batch=N all of them; 0 none; a size of 0 keeps out."""
	line = """pass
	bld.objects(source="a.c b.c c.c", target="by_feature", features="batch")
	bld.objects(source="d.c e.c f.c", target="by_size", batch_size=2)
	bld.objects(source="g.c h.c i.c", target="out", batch_size=0)"""
	folder = write_project(project, {name + ".c": "int %s;\n" % name for name in "abcdefghi"}, line=line)
	waf(folder, "configure")
	assert told(waf(folder, "clean", "build", "-j1", "--zones=batch"))["shared"] == 5
	assert told(waf(folder, "clean", "build", "-j1", "--zones=batch", "--batch=20"))["shared"] == 14
	done = waf(folder, "clean", "build", "-j1", "--zones=batch", "--batch=0")
	assert " calls" not in done.stdout + done.stderr


def test_commands_of_waf_work(waf: Any, project: Any) -> None:
	"""list, --targets, clean; and the compilation database tells of each source alone."""
	line = """bld.load("batch")
	bld.objects(source="a.c b.c", target="some")"""
	folder = write_project(project, {"a.c": "int a;\n", "b.c": "int b;\n"}, line=line)
	text = (folder / "wscript").read_text().replace("compiler_c batch", "compiler_c clang_compilation_database batch")
	(folder / "wscript").write_text(text)
	done = waf(folder, "configure", "list", "build", "--targets=some")
	assert tasks(done) == ["Compiling a.c", "Compiling b.c"]
	assert len(tasks(waf(folder, "clean", "build"))) == 13
	commands = json.loads((folder / "build" / "compile_commands.json").read_text())
	assert len(commands) == 12
	for command in commands:
		assert [word for word in command["arguments"] if word.endswith(".c")] == [command["file"]]
	waf(folder, "clean")
	assert not list((folder / "build").rglob("*.o"))


@pytest.mark.parametrize("tools", ["prefork", "prefork wafcc"])
def test_it_works_with_the_engine(
	waf: Any, project: Any, engine: str, tools: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""The engine runs the calls; what it caches is left to it, so that the second build is all hits."""
	monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
	folder = write_project(project)
	waf(folder, "configure", "build", "--batch=0")
	tree = read_tree(folder)
	counts = told(waf(folder, "clean", "build", "-j2", "--zones=batch", tools=tools))
	assert read_tree(folder) == tree
	if "wafcc" in tools:
		assert (counts["shared"], counts["wafcc caches it"]) == (0, 10)
		done = waf(folder, "clean", "build", "--zones=wafcc", tools=tools)
		assert re.search("1[01] hits", done.stdout + done.stderr), done.stdout + done.stderr
	else:
		assert counts["again"] == 0
		assert read_status(engine)["totals"]["succeeded"] > 0


@pytest.mark.parametrize(("unity", "guard"), [("off", "#pragma once\n"), ("on", "#pragma once\n"), ("on", "")])
def test_it_works_beside_unity(waf: Any, project: Any, unity: str, guard: str) -> None:
	"""Sources that unity compiles together are left alone. All others share calls, also with unity off."""
	# a header that may be included again, and leaves a macro behind, keeps unity from its sources
	folder = write_project(project, {"src/shared.h": guard + SOURCES["src/shared.h"]})
	wscript = folder / "wscript"
	wscript.write_text(wscript.read_text().replace("compiler_c batch", "compiler_c unity batch"))
	counts = told(waf(folder, "configure", "build", "-j2", "--zones=batch", "--unity=" + unity))
	assert counts["again"] == 0
	is_together = unity == "on" and bool(guard)
	assert (counts["shared"] > 1) == (not is_together)
	assert bool(list((folder / "build").rglob("*unity*.c"))) == is_together


def test_parked_clang_is_left_alone(waf: Any, project: Any, engine: str) -> None:
	"""A clang would start a process for each source. With the engine, each clang is called for one source."""
	need("clang")
	folder = write_project(project)
	counts = told(waf(folder, "configure", "build", "-j1", "--zones=batch", tools="prefork", env={"CC": "clang"}))
	assert (counts["shared"], counts["clang that the engine parks is faster alone"]) == (0, 10)


def test_variants_and_two_loads(waf: Any, project: Any) -> None:
	"""Each variant has calls in its own folder, even if the tool is loaded twice."""
	folder = write_project(project, line="bld.load('batch'); bld.load('batch'); bld.env = bld.all_envs['']")
	text = (
		(folder / "wscript").read_text().replace('opt.load("compiler_c batch")', 'opt.load("compiler_c batch batch")')
	)
	text += """\
from waflib.Build import BuildContext
for name in ("one", "two"):
	class Variant(BuildContext):
		cmd = "build_" + name
		variant = name
"""
	(folder / "wscript").write_text(text)
	done = waf(folder, "configure", "build_one", "build_two", "-j1", "--zones=batch")
	assert re.findall(r"(\d+) tasks in (\d+) calls", done.stdout + done.stderr) == [("9", "1")] * 2
	for variant in ("one", "two"):
		assert len(list((folder / "build" / variant).rglob("*.o"))) == 10


def test_waf_2_0_builds_the_same(waf: Any, project: Any, waf20: pathlib.Path) -> None:
	"""Waf 2.0.24 builds the same."""
	build_with(waf, write_project(project), waf20)


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="Waf 2.0.12 is older than this Python")
def test_waf_2_0_12_builds_the_same(waf: Any, project: Any, jack_sources: pathlib.Path) -> None:
	"""Waf 2.0.12, the oldest supported Waf, builds the same."""
	build_with(waf, write_project(project), jack_sources)


def build_with(waf: Any, folder: pathlib.Path, wafdir: pathlib.Path) -> None:
	waf(folder, "configure", "build", "--batch=0", wafdir=wafdir)
	tree = read_tree(folder)
	assert told(waf(folder, "clean", "build", "-j1", "--zones=batch", wafdir=wafdir))["calls"] == 1
	assert read_tree(folder) == tree
	waf(folder, "clean", "build", "-j3", "--zones=batch", wafdir=wafdir)
	assert read_tree(folder) == tree
