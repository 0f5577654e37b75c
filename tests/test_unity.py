"""Builds with the tool unity: which sources are compiled together, the same meaning, and what runs after edits."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time
from typing import Any, Dict, List, Optional, Set

import pytest
from unity_support import conflicts, game

from waflib_extras.facts import stamps
from waflib_extras.unity import memory

ROOT = pathlib.Path(__file__).resolve().parent.parent

WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c compiler_cxx unity")
def configure(conf):
	conf.load("compiler_c compiler_cxx")
def build(bld):
	%s
"""


def program(count: int = 6, attributes: str = "", load: str = "bld.load('unity')") -> Dict[str, str]:
	"""A program of so many sources that go together, and its wscript."""
	files = {"f%d.c" % n: "int f%d(void) { return %d; }\n" % (n, n) for n in range(count)}
	declared = "".join("int f%d(void);\n" % n for n in range(count))
	total = " + ".join("f%d()" % n for n in range(count))
	files["main.c"] = '#include <stdio.h>\n%sint main(void) { printf("%%d\\n", %s); return 0; }\n' % (declared, total)
	build = load + "\n\tbld.program(source=bld.path.ant_glob('*.c'), target='app'%s)" % attributes
	return {"wscript": WSCRIPT % build, **files}


def compiled(done: Any) -> List[str]:
	"""The compiled sources, in order of their names; batches by their members."""
	found = re.findall(r"^\[ *\d+/\d+\] Compiling (\S+)", done.stdout + done.stderr, re.MULTILINE)
	return sorted("batch" if re.search(r"unity_\d+_\w+\.(c|cxx)$", name) else name for name in found)


def batches(folder: pathlib.Path) -> List[List[str]]:
	"""The sources of each batch that lies in a build folder."""
	found = []
	for path in folder.glob("unity_*"):
		if path.suffix in (".c", ".cxx"):
			found.append(re.findall(r'^#include "[^"]*?([^/"]+)"', path.read_text(), re.MULTILINE))
	return sorted(found)


def say(folder: pathlib.Path, name: str = "build/app") -> str:
	return subprocess.run([folder / name], capture_output=True, encoding="utf-8", timeout=30, check=True).stdout


@pytest.fixture
def counted(tmp_path: pathlib.Path) -> Any:
	"""A compiler of C that notes its compiles; the function gives those since it was called last."""
	log = tmp_path / "log"
	script = tmp_path / "counting-gcc"
	script.write_text('#!/bin/sh\nfor a; do case "$a" in *.c) echo "$a" >> %s;; esac; done\nexec gcc "$@"\n' % log)
	script.chmod(0o755)

	def take() -> List[str]:
		found = log.read_text().split() if log.exists() else []
		log.write_text("")
		return [os.path.basename(each) for each in found]

	take.env = {"CC": str(script), "LC_ALL": "C"}
	return take


# ---- it means the same


@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_conflicting_sources_behave_the_same(waf: Any, project: Any, family: str) -> None:
	"""Statics, macros, pragmas, overloads and the order before main are the same as without unity."""
	folder = project(conflicts())
	env = {"CC": family, "CXX": {"gcc": "g++", "clang": "clang++"}[family]}
	for out, choice in (("plain", "off"), ("together", "on")):
		env["WAFLOCK"] = ".lock-" + out
		waf(folder, "configure", "-o", out, env=env)
		done = waf(folder, "build", "--unity=" + choice, env=env)
	assert say(folder, "plain/app") == say(folder, "together/app")
	# 94 sources, of which two dozen have reason to be alone
	assert sum(map(len, batches(folder / "together"))) > 60
	assert "pairs/made_by_macros_b.c does not compile with others" in done.stdout + done.stderr
	assert compiled(waf(folder, "build", env=env)) == []


def test_messages_and_debug_information_name_the_sources(waf: Any, project: Any) -> None:
	"""A warning, __FILE__ and the table of lines are the same as without unity."""
	files = program()
	files["f3.c"] = "const char *file(void) { return __FILE__; }\nint f3(void) { int unused; return 3; }\n"
	files["f4.c"] = "#include <stdio.h>\nconst char *file(void);\nint f4(void) { puts(file()); return 4; }\n"
	folder = project(files)
	env = {"CFLAGS": "-Wall -g"}
	waf(folder, "configure", env=env)
	done = waf(folder, "build")
	assert re.search(r"^\.\./f3\.c:2:\d+: warning:", done.stdout + done.stderr, re.MULTILINE)
	assert say(folder).startswith("../f3.c\n")
	address = subprocess.run(
		["nm", folder / "build/app"], capture_output=True, encoding="utf-8", check=True, timeout=30
	)
	place = re.search(r"^(\w+) T f3$", address.stdout, re.MULTILINE).group(1)
	line = subprocess.run(
		["addr2line", "-e", folder / "build/app", place], capture_output=True, encoding="utf-8", check=True, timeout=30
	)
	assert os.path.normpath(line.stdout.strip()) == str(folder / "f3.c:2")


def test_objects_are_in_the_order_of_the_sources(waf: Any, project: Any) -> None:
	"""Sources that are compiled alone are linked in the same place as without unity."""
	files = program(4, ", unity_exclude='f1.c'")
	for n in range(4):
		files["f%d.c" % n] += '__attribute__((constructor)) static void start(void) { puts("%d"); }\n' % n
		files["f%d.c" % n] = "#include <stdio.h>\n" + files["f%d.c" % n]
	folder = project(files)
	waf(folder, "configure", "build")
	assert say(folder).splitlines()[:4] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("family", ["g++", "clang++"])
def test_pragmas_that_the_compiler_ignores_are_no_obstacle(waf: Any, project: Any, family: str) -> None:
	"""Sources in the style of an old game are compiled together, with the warnings that they have alone."""
	folder = project(game())
	env = {"CXX": family, "CXXFLAGS": "-Wall", "LC_ALL": "C"}
	warned = []
	for out, choice in (("plain", "off"), ("together", "on")):
		env["WAFLOCK"] = ".lock-" + out
		waf(folder, "configure", "-o", out, env=env)
		done = waf(folder, "build", "--unity=" + choice, env=env)
		said = done.stdout + done.stderr
		warned.append(set(re.findall(r"^(?:\./)?(\.\./\S+:\d[\d:]*: warning: .*)$", said, re.MULTILINE)))
	assert say(folder, "plain/app") == say(folder, "together/app")
	assert sum(map(len, batches(folder / "together"))) >= 30
	assert warned[0] == warned[1] and any("unknown-pragmas" in each for each in warned[0])


def test_a_pragma_that_the_options_have_obeyed_is_an_obstacle(waf: Any, project: Any) -> None:
	"""The compiler is asked anew with other options."""
	files = program(6, ", cflags='-fms-extensions'")
	for n in range(6):
		files["f%d.c" % n] += "#pragma warning(disable : 4244)\n"
	folder = project(files)
	env = {"CC": "clang"}
	done = waf(folder, "configure", "build", "--unity-explain", env=env)
	said = done.stdout + done.stderr
	assert "leaves #pragma warning(disable : 4244) behind" in said
	(folder / "wscript").write_text(program(6)["wscript"])
	waf(folder, "build", env=env)
	assert list(map(len, batches(folder / "build"))) == [7]


# ---- as upstream's


def test_without_a_load_in_build_only_the_feature_counts(waf: Any, project: Any) -> None:
	"""As with Waf's own tool, `opt.load` adds the option and the feature, and `bld.load` builds all targets so."""
	files = program(3, load="pass")
	files["wscript"] += "\tbld.program(source=bld.path.ant_glob('*.c'), target='other', features='unity', idx=7)\n"
	folder = project(files)
	done = waf(folder, "configure", "build")
	assert compiled(done) == ["batch", "f0.c", "f1.c", "f2.c", "main.c"]
	assert (folder / "build/other").exists()
	assert compiled(waf(folder, "clean", "build", "--unity=on")) == ["batch", "batch"]


def test_sizes_are_as_asked(waf: Any, project: Any) -> None:
	"""`--batchsize` and `unity_size` bound the number of files in a batch; 0 turns batches off."""
	folder = project(program(20))
	waf(folder, "configure", "build")
	assert list(map(len, batches(folder / "build"))) == [21]
	assert "batch" not in compiled(waf(folder, "clean", "build", "--batchsize=0"))
	waf(folder, "clean", "build", "--batchsize=7")
	sizes = list(map(len, batches(folder / "build")))
	assert max(sizes) <= 7 and sum(sizes) >= 20
	(folder / "wscript").write_text(program(20, ", unity_size=4")["wscript"])
	waf(folder, "clean", "build")
	assert max(map(len, batches(folder / "build"))) <= 4
	assert say(folder) == "190\n"


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_two_variants_and_two_loads(waf: Any, project: Any, request: Any, version: str) -> None:
	"""A build of two variants works, also when the tool is loaded twice under both of its names."""
	wafdir = request.getfixturevalue("waf20") if version == "2.0" else None
	files = program(3, load="bld.load('unity')\n\tbld.load('waflib_extras.unity unity')")
	files["wscript"] += """
from waflib import Build
for name in ("debug", "release"):
	class Variant(Build.BuildContext):
		cmd = "build_" + name
		variant = name
"""
	files["wscript"] = files["wscript"].replace(
		"""conf.load("compiler_c compiler_cxx")""",
		"""conf.load("compiler_c compiler_cxx")
	conf.setenv("debug", conf.env.derive())
	conf.setenv("release", conf.env.derive())""",
	)
	folder = project(files)
	done = waf(folder, "configure", "build_debug", "build_release", wafdir=wafdir)
	assert compiled(done) == ["batch", "batch"]
	assert say(folder, "build/debug/app") == say(folder, "build/release/app") == "3\n"


def test_two_targets_share_sources(waf: Any, project: Any) -> None:
	"""Targets of several folders have batches of the same sources, each its own."""
	files = {"common/" + name: text for name, text in program(3).items() if name != "wscript"}
	for name in ("one", "two"):
		files[name + "/wscript"] = (
			"def build(bld):\n\tnodes = bld.path.parent.ant_glob('common/*.c')\n"
			"\tbld.program(source=nodes, target='app', defines='X=%d')\n" % len(files)
		)
	files["wscript"] = WSCRIPT % "bld.load('unity')\n\tbld.recurse('one two')"
	folder = project(files)
	assert compiled(waf(folder, "configure", "build")) == ["batch", "batch"]
	assert say(folder, "build/one/app") == say(folder, "build/two/app") == "3\n"


def test_generated_sources_and_headers(waf: Any, project: Any) -> None:
	"""Generated sources are compiled alone, and batches wait for generated headers; nothing runs again after that."""
	files = program(4)
	files["f1.c"] = '#include "made.h"\nint f1(void) { return MADE; }\n'
	files["wscript"] = files["wscript"].replace("bld.program", "make(bld)\n\tbld.program") + (
		"def make(bld):\n\tbld(rule='echo \"#define MADE 10\" > ${TGT}', target='made.h')\n"
		"\tbld(rule='echo \"int late(void) { return 1; }\" > ${TGT}', target='late.c')\n"
		"\tbld.objects(source='late.c', target='late', includes='.')\n"
	)
	files["wscript"] = files["wscript"].replace("target='app'", "target='app', includes='.', use='late'")
	folder = project(files)
	assert compiled(waf(folder, "configure", "build")) == ["batch", "build/late.c"]
	assert say(folder) == "15\n"
	assert compiled(waf(folder, "build")) == []


# ---- as CMake's, and more


def test_sources_are_left_out(waf: Any, project: Any) -> None:
	"""`unity_exclude` takes names, patterns and nodes; a comment in a source does the same."""
	files = program(9, ", unity_exclude=['f1.c', '*3.c', bld.path.find_node('f5.c')]")
	files["f7.c"] = "/* unity: alone */\n" + files["f7.c"]
	folder = project(files)
	done = waf(folder, "configure", "build", "--unity-explain")
	assert compiled(done) == ["batch", "f1.c", "f3.c", "f5.c", "f7.c"]
	assert "f7.c: says so itself" in done.stdout + done.stderr


def test_code_around_includes(waf: Any, project: Any) -> None:
	"""`unity_before` and `unity_after` surround each include, `unity_unique_id` is another identifier in each."""
	attributes = ", unity_unique_id='ID', unity_before='#define AROUND 5', unity_after='#undef AROUND'"
	files = program(3, attributes)
	for n in (0, 1):
		files["f%d.c" % n] = (
			"#define PASTE(a, b) a##b\n#define NAME(a, b) PASTE(a, b)\nstatic int NAME(ID, kept) = AROUND;\n"
			"int f%d(void) { return NAME(ID, kept); }\n" % n
		)
	folder = project(files)
	done = waf(folder, "configure", "build")
	assert compiled(done) == ["batch"]
	assert say(folder) == "12\n"


def test_groups_by_folder(waf: Any, project: Any) -> None:
	"""With `unity_group` only sources of one folder are together."""
	files = {"x/a.c": "int a;\n", "x/b.c": "int b;\n", "y/c.c": "int c;\n", "y/d.c": "int d;\n"}
	build = "bld.load('unity')\n\tbld.stlib(source=bld.path.ant_glob('*/*.c'), target='all', unity_group='folder')"
	folder = project({"wscript": WSCRIPT % build, **files})
	waf(folder, "configure", "build")
	assert batches(folder / "build") == [["a.c", "b.c"], ["c.c", "d.c"]]
	(folder / "wscript").write_text((folder / "wscript").read_text().replace("'folder'", "3"))
	done = waf(folder, "build", status=1)
	assert "unity_group" in done.stderr and "Traceback" not in done.stderr


# ---- conflicts


CLASH = '#include "make.h"\nMAKE(same, %d)\nint f%d(void) { return same(); }\n'
MAKE = "#ifndef M\n#define M\n#define MAKE(name, x) static int name(void) { return x; }\n#endif\n"


def clashing(count: int = 16) -> Dict[str, str]:
	"""A program of which two sources do not compile together, for a reason that is only seen by compiling."""
	return {**program(count, ", includes='.'"), "make.h": MAKE, "f2.c": CLASH % (2, 2), "f9.c": CLASH % (9, 9)}


def test_a_conflict_is_found_and_remembered(waf: Any, project: Any, counted: Any) -> None:
	"""The source that does not compile with others is compiled alone, until it or the conflicting source changes."""
	folder = project(clashing())
	waf(folder, "configure", env=counted.env)
	counted()
	done = waf(folder, "build", env=counted.env)
	assert done.stdout.count("does not compile with others") + done.stderr.count("does not compile with others") == 1
	assert "error" not in done.stdout + done.stderr
	# the batch, the suspect alone, the others, and in the end the suspect again
	assert len(counted()) == 4
	assert say(folder) == "120\n"
	assert compiled(waf(folder, "build", env=counted.env)) == []
	assert "Linking" not in waf(folder, "build", env=counted.env).stdout
	assert compiled(waf(folder, "clean", "build", env=counted.env, status=0))
	(folder / "f2.c").write_text("int f2(void) { return 2; }\n")
	waf(folder, "build", "--unity-still", env=counted.env)
	counted()
	(folder / "f1.c").write_text("int f1(void) { return 11; }\n")
	waf(folder, "build", "--unity-still", env=counted.env)
	assert len(counted()) == 1
	assert say(folder) == "130\n"


def test_many_conflicts_are_parted_by_halves(waf: Any, project: Any, counted: Any) -> None:
	"""Of a dozen sources that all conflict, all but one are compiled alone, and the others stay together."""
	files = clashing(24)
	files.update(("f%d.c" % n, CLASH % (n, n)) for n in range(12))
	folder = project(files)
	waf(folder, "configure", env=counted.env)
	counted()
	waf(folder, "build", "-j1", env=counted.env)
	assert len(counted()) < 70
	assert say(folder) == "%d\n" % sum(range(24))
	assert list(map(len, batches(folder / "build"))) == [14]
	assert compiled(waf(folder, "build", env=counted.env)) == []


def test_an_error_is_that_of_the_source(waf: Any, project: Any, counted: Any) -> None:
	"""A user who breaks a file gets its message once, after three compiles at most, and not that of a batch."""
	files = program(30)
	files["f7.c"] = "int f7(void) { return missing; }\n"
	folder = project(files)
	waf(folder, "configure", env=counted.env)
	counted()
	done = waf(folder, "build", env=counted.env, status=1)
	said = done.stdout + done.stderr
	assert len(re.findall(r"f7\.c:1:\d+: error: .missing. undeclared", said)) == 1
	assert len(counted()) <= 3
	(folder / "f7.c").write_text("int f7(void) { return 7; }\n")
	waf(folder, "build", env=counted.env)
	assert say(folder) == "435\n"


def test_all_errors_are_told_where_a_build_goes_on(waf: Any, project: Any) -> None:
	"""With -k each broken source gives its own message, and all others are compiled."""
	files = program(10)
	for n in (2, 8):
		files["f%d.c" % n] = "int f%d(void) { return missing_%d; }\n" % (n, n)
	folder = project(files)
	waf(folder, "configure")
	done = waf(folder, "build", "-k", status=1)
	said = done.stdout + done.stderr
	assert len(re.findall(r"error: .missing_2.", said)) == len(re.findall(r"error: .missing_8.", said)) == 1


# ---- edits


def test_an_edited_source_is_compiled_alone(waf: Any, project: Any, counted: Any) -> None:
	"""The first edit takes a source out of its batch, the second compiles nothing else."""
	folder = project(program(12))
	waf(folder, "configure", "build", env=counted.env)
	counted()
	ran = []
	for edit in range(3):
		(folder / "f5.c").write_text("int f5(void) { return %d; }\n" % (100 * edit))
		waf(folder, "build", env=counted.env)
		ran.append(len(counted()))
	assert ran == [2, 1, 1]
	assert say(folder) == "%d\n" % (sum(range(12)) - 5 + 200)
	assert compiled(waf(folder, "build", env=counted.env)) == []
	# edits of other sources leave it unchanged, and it comes back
	for edit in range(12):
		(folder / "f1.c").write_text("int f1(void) { return %d; }\n" % edit)
		waf(folder, "build", env=counted.env)
	assert sorted(map(len, batches(folder / "build"))) == [12]


def test_the_group_of_an_edited_source_is_halved(waf: Any, project: Any, counted: Any) -> None:
	"""The halves stay when a target is planned anew."""
	folder = project(program(40))
	waf(folder, "configure", "build", env=counted.env)
	counted()

	def edit(name: str, value: int) -> List[str]:
		(folder / (name + ".c")).write_text("int %s(void) { return %d; }\n" % (name, value))
		waf(folder, "build", env=counted.env)
		return counted()

	def sizes() -> List[int]:
		return sorted(map(len, batches(folder / "build")))

	assert len(edit("f5", 100)) == 3 and sum(sizes()) == 40 and min(sizes()) >= 16
	assert edit("f5", 5) == ["f5.c"]
	assert len(edit("f35", 100)) == 3 and sum(sizes()) == 39
	assert not any("f35.c" in batch for batch in batches(folder / "build"))
	assert edit("f35", 36) == ["f35.c"]
	# of a plan that is made anew, only the new source is compiled
	(folder / "f36a.c").write_text("/* unity: alone */ int f36a;\n")
	waf(folder, "build", env=counted.env)
	assert counted() == ["f36a.c"]
	assert say(folder) == "%d\n" % (sum(range(40)) + 1)


def test_an_edited_source_may_run_before_main(waf: Any, project: Any) -> None:
	"""A source that runs code before `main` keeps its turn, though edits have set it apart."""
	start = '#include <stdio.h>\n__attribute__((constructor)) static void start(void) { puts("%d"); }\n'
	files = program(6)
	for n in (0, 1, 4, 5):
		files["f%d.c" % n] += start % n
	folder = project(files)
	waf(folder, "configure", "build")
	for value, added, expected in ((30, "", "0145"), (31, "", "0145"), (32, start % 3, "01345")):
		(folder / "f3.c").write_text("int f3(void) { return %d; }\n%s" % (value, added))
		waf(folder, "build")
		assert "".join(say(folder).split()[:-1]) == expected


def test_an_edited_source_stays_with_the_option(waf: Any, project: Any, counted: Any) -> None:
	"""With `--unity-still` an edit compiles the batch."""
	folder = project(program(12))
	waf(folder, "configure", "build", "--unity-still", env=counted.env)
	counted()
	for edit in range(2):
		(folder / "f5.c").write_text("int f5(void) { return %d; }\n" % (100 * edit))
		waf(folder, "build", "--unity-still", env=counted.env)
		assert counted() == [path.name for path in (folder / "build").glob("unity_*.c")]


def test_an_update_of_many_is_no_edit(waf: Any, project: Any, counted: Any) -> None:
	"""If many sources change at once, they stay together; a changed time alone has no effect."""
	folder = project(program(12))
	waf(folder, "configure", "build", env=counted.env)
	counted()
	for n in range(8):
		(folder / ("f%d.c" % n)).write_text("int f%d(void) { return 1; }\n" % n)
	waf(folder, "build", env=counted.env)
	assert len(counted()) == 1
	os.utime(folder / "f3.c", (1, 1))
	waf(folder, "build", env=counted.env)
	assert counted() == []


@pytest.mark.parametrize("damage", [b"", b"unity 4 0\n{0", b"\xff" * 100])
def test_damaged_records_are_none(waf: Any, project: Any, damage: bytes) -> None:
	"""A file of the build folder with other content than was written is ignored."""
	folder = project(program(6))
	waf(folder, "configure", "build")
	for name in (".unity-plans", ".unity-facts"):
		assert (folder / "build" / name).exists()
		(folder / "build" / name).write_bytes(damage)
	assert compiled(waf(folder, "build")) == []
	assert (folder / "build/.unity-plans").read_bytes() != damage


def test_a_new_source_joins_a_batch(waf: Any, project: Any, counted: Any) -> None:
	"""A source that is added, and one that is removed, change the batch where it belongs."""
	folder = project(program(60))
	waf(folder, "configure", "build", "--batchsize=10", env=counted.env)
	counted()
	(folder / "f30a.c").write_text("int f30a;\n")
	waf(folder, "build", "--batchsize=10", env=counted.env)
	assert 1 <= len(counted()) <= 3
	(folder / "f30a.c").unlink()
	waf(folder, "build", "--batchsize=10", env=counted.env)
	assert 1 <= len(counted()) <= 3


def test_batches_are_the_same_wherever_a_project_lies(waf: Any, project: Any, tmp_path: pathlib.Path) -> None:
	"""Another machine makes the same batches, so that it hits the entries of this one."""
	folder = project(program(60))
	found = []
	for other in (folder, pathlib.Path(shutil.copytree(folder, tmp_path / "elsewhere" / "in" / "another"))):
		waf(other, "configure", "build", "--batchsize=10")
		found.append({path.name: path.read_text() for path in (other / "build").glob("unity_*.c")})
	assert len(found[0]) > 3
	assert found[0] == found[1]


MANY_TARGETS = """\
	import os, time
	from waflib_extras.unity import planning
	def options(opt):
		opt.load('compiler_c unity')
	def configure(conf):
		conf.load('compiler_c')
	def build(bld):
		bld.load('unity')
		main = os.getpid()
		def wait(node):
			# for the first plan of another process, where there is one
			end = time.monotonic() + 30
			while os.getpid() == main and time.monotonic() < end and not os.environ.get('BROKEN'):
				if all(os.fstat(helper.file).st_size for helper in bld.unity_memory.ahead.helpers):
					break
				time.sleep(0.01)
			return ''
		if os.environ.get('BROKEN'):
			planning.Ahead.be_helper = lambda *_: os._exit(1)
		for n in range(6):
			bld.stlib(source=bld.path.ant_glob('t%d/*.c' % n), target='t%d' % n, includes='.', unity_group=wait)
"""


def test_plans_of_other_processes_are_the_same(waf: Any, project: Any) -> None:
	"""If many targets have to be planned, processes share the work. The plans are the same, also if processes fail."""
	text = '#include "common.h"\nint f%d_%d(void) { return ONE; }\n'
	files = {"t%d/f%d.c" % (n, i): text % (n, i) for n in range(6) for i in range(70)}
	folder = project({"wscript": MANY_TARGETS, "common.h": "#pragma once\nenum { ONE = 1 };\n", **files})
	found = []
	said = []
	for more, env in (("-j1", {}), ("-j2", {}), ("-j2", {"BROKEN": "1"})):
		done = waf(folder, "distclean", "configure", "build", "--unity-explain", more, env=env)
		said.append("planned by other processes" in done.stdout)
		plans = memory.unpack_plans(memory.read(str(folder / "build" / memory.PLANS)))
		found.append({name: each["plan"] for name, each in plans.items()})
		facts = memory.read(str(folder / "build" / memory.FACTS))
		assert len(facts["files"]) == len(files) + 1
	assert found[0] == found[1] == found[2] and len(found[0]) == 6
	assert said == [False, len(os.sched_getaffinity(0)) > 1, False]


# ---- with others


def test_the_database_of_commands_keeps_the_sources(waf: Any, project: Any) -> None:
	"""compile_commands.json has each source, with a command of its own."""
	files = program(4)
	files["wscript"] = files["wscript"].replace("compiler_cxx unity", "compiler_cxx unity clang_compilation_database")
	folder = project(files)
	waf(folder, "configure", "clangdb")
	found = json.loads((folder / "build/compile_commands.json").read_text())
	assert sorted(each["file"] for each in found) == ["../f%d.c" % n for n in range(4)] + ["../main.c"]
	assert all(each["file"] in each["arguments"] for each in found)


@pytest.mark.parametrize("tools", ["prefork", "wafcc"])
def test_commands_go_through_the_engine(
	waf: Any, project: Any, engine: str, tmp_path: Any, monkeypatch: Any, tools: str
) -> None:
	"""With `prefork` and with `wafcc` the results are the same; the cache answers a second build, in any folder."""
	for name in list(os.environ):
		if name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG")):
			monkeypatch.delenv(name)
	monkeypatch.setenv("HOME", str(tmp_path))
	env: Dict[str, Optional[str]] = {}
	files = clashing(8)
	files["f5.c"] = CLASH % (5, 5)
	del files["f9.c"]
	folder = project(files)
	for out in ("first", "second"):
		env["WAFLOCK"] = ".lock-" + out
		waf(folder, "configure", "-o", out, tools=tools, env=env)
		done = waf(folder, "build", "--zones=" + tools, tools=tools, env=env)
		assert say(folder, out + "/app") == "28\n"
		assert compiled(waf(folder, "build", tools=tools, env=env)) == []
	if tools == "wafcc":
		# the batch failed, and the conflicting source too; a compile that fails is not kept
		assert re.search(r"f5\.c: hit", done.stdout + done.stderr)
		assert re.search(r"unity_\w+\.c: hit", done.stdout + done.stderr)
	(folder / "f1.c").write_text("int f1(void) { return 2; }\n")
	assert compiled(waf(folder, "build", tools=tools, env=env)) == ["batch", "f1.c"]


def test_a_header_that_is_included_before_all(waf: Any, project: Any) -> None:
	"""A precompiled header works with batches as without them."""
	files = {"f%d.cpp" % n: "std::vector<int> f%d() { return {%d}; }\n" % (n, n) for n in range(3)}
	files["all.h"] = "#ifndef ALL\n#define ALL\n#include <vector>\n#endif\n"
	files["main.cpp"] = (
		'#include <cstdio>\nstd::vector<int> f2();\nint main() { std::printf("%d\\n", f2()[0]); return 0; }\n'
	)
	build = (
		"bld.load('unity')\n\tbld(features='cxx pch', target='pch', name='pch', headers='all.h', includes='.')\n"
		"\tbld.program(source=bld.path.ant_glob('*.cpp'), target='app', use='pch', includes='.')"
	)
	wscript = (
		(WSCRIPT % build)
		.replace("compiler_cxx unity", "compiler_cxx unity pch")
		.replace('conf.load("compiler_c compiler_cxx")', 'conf.load("compiler_c compiler_cxx pch")')
	)
	folder = project({"wscript": wscript, **files})
	done = waf(folder, "configure", "build", "-v")
	assert re.search(r"'-include', '[^']*all|'-include', '[^']*pch", done.stdout + done.stderr)
	assert say(folder) == "2\n"
	assert "batch" in compiled(done)


def test_pypy_builds_the_same(waf: Any, project: Any) -> None:
	"""The tool works on PyPy."""
	pypy = shutil.which("pypy3")
	if not pypy:
		pytest.skip("no pypy3")
	folder = project(clashing(12))
	import waflib

	env = {"PYTHONPATH": os.pathsep.join((str(ROOT), os.path.dirname(os.path.dirname(waflib.__file__))))}
	waf(folder, "configure", "build", interpreter=pypy, env=env)
	assert say(folder) == "66\n"


# ---- choosing


def test_auto_measures_and_decides(waf: Any, project: Any) -> None:
	"""`--unity=auto` measures each target once, tells what it found, and decides by that."""
	folder = project(program(20))
	waf(folder, "configure")
	waf(folder, "build", "--unity=auto")
	done = waf(folder, "build", "--unity=auto", "--unity-explain")
	found = re.search(r"(\d+) of them took ([\d.]+) s together and take ([\d.]+) s alone", done.stdout + done.stderr)
	together, alone = float(found.group(2)), float(found.group(3))
	gains = together <= alone * 0.8
	assert ("gain too little" in done.stdout + done.stderr) is not gains
	plans = (folder / "build/.unity-plans").read_bytes()
	assert b"times" in plans
	assert say(folder) == "190\n"


def test_the_playground_works(waf: Any, tmp_path: pathlib.Path) -> None:
	"""The project that shows the tool says the same with and without it."""
	folder = pathlib.Path(shutil.copytree(ROOT / "playground" / "unity", tmp_path / "playground"))
	done = waf(folder, "configure", "build", "--unity-explain")
	together = say(folder)
	assert "sources alone" in done.stdout + done.stderr
	waf(folder, "clean", "build", "--unity=off")
	assert say(folder) == together


# ---- what was planned for other files


COUNTERS = {
	"wscript": WSCRIPT % "bld.load('unity')\n\tbld.program(source='a.c b.c main.c', target='app', includes='one two')",
	"a.c": '#include "x.h"\nstatic int aaaa;\nint a(void) { return ++aaaa; }\n',
	"b.c": "static int bbbb;\nint b(void) { return ++bbbb; }\n",
	"main.c": """\
	#include <stdio.h>
	int a(void);
	int b(void);
	int main(void) { int first = a(); printf("%d %d\\n", first, b()); return 0; }
	""",
	"one/other.h": "",
	"two/x.h": "",
}


def test_an_edit_that_keeps_size_and_time_is_planned_anew(waf: Any, project: Any) -> None:
	"""Two variables that now have the same name stay two."""
	folder = project(COUNTERS)
	waf(folder, "configure", "build")
	assert say(folder) == "1 1\n" and {"a.c", "b.c"} <= set(batches(folder / "build")[0])
	before = (folder / "b.c").stat()
	(folder / "b.c").write_text(COUNTERS["b.c"].replace("bbbb", "aaaa"))
	os.utime(folder / "b.c", ns=(before.st_atime_ns, before.st_mtime_ns))
	waf(folder, "build")
	assert say(folder) == "1 1\n"


def test_a_header_that_appears_before_another_is_planned_for(waf: Any, project: Any, engine: str) -> None:
	"""Its definitions do not reach the source after the one that includes it."""
	folder = project(COUNTERS)
	waf(folder, "configure", "build", tools="wafcc")
	assert say(folder) == "1 1\n"
	(folder / "one" / "x.h").write_text("#define bbbb aaaa\n")
	waf(folder, "build", tools="wafcc")
	assert say(folder) == "1 1\n"


# ---- what Waf need not read


COUNTING = """\
import functools
from waflib import Utils
stock = Utils.h_file
@functools.wraps(stock)
def h_file(path):
	with open("read-by-waf", "a") as log:
		print(path, file=log)
	return stock(path)
Utils.h_file = h_file
"""


TIMES = """\
import os
from waflib import Utils
Utils.h_file = lambda path: Utils.md5(str(os.stat(path).st_mtime_ns).encode()).digest()
"""


def read_by_waf(folder: pathlib.Path) -> Set[str]:
	"""The sources and headers whose content Waf has read since this was called last."""
	log = next(folder.rglob("read-by-waf"))
	names = {os.path.basename(path) for path in log.read_text().splitlines()}
	log.unlink()
	return {name for name in names if re.fullmatch(r"(?!unity_)\w+\.[ch]", name)}


def headers_of(count: int) -> Dict[str, str]:
	"""A program whose sources include a header each."""
	files = program(count, attributes=", includes='.'")
	for n in range(count):
		files["f%d.h" % n] = "#pragma once\nint f%d(void);\n" % n
		files["f%d.c" % n] = '#include "f%d.h"\nint f%d(void) { return %d; }\n' % (n, n, n)
	return files


def make_old(folder: pathlib.Path) -> None:
	"""Wait until all files are old enough for their times to be trusted."""
	newest = max(path.stat().st_ctime_ns for path in folder.iterdir())
	while time.time_ns() - newest <= stamps.JUST_NOW:
		time.sleep(0.02)


def test_unchanged_files_are_not_read(waf: Any, project: Any) -> None:
	"""Waf is given the digests of files that a plan was made of."""
	files = headers_of(6)
	files["wscript"] = COUNTING + files["wscript"]
	folder = project(files)
	make_old(folder)
	waf(folder, "configure", "build")
	(folder / "f3.c").write_text('#include "f3.h"\nint f3(void) { return 30; }\n')
	waf(folder, "build")
	(folder / "f3.c").write_text('#include "f3.h"\nint f3(void) { return 31; }\n')
	assert read_by_waf(folder) > {"f3.c", "f3.h"}
	waf(folder, "build")
	assert say(folder) == "%d\n" % (sum(range(6)) - 3 + 31)
	assert read_by_waf(folder) <= {"f3.c", "f3.h"}
	(folder / "f1.h").write_text("#pragma once\nint f1(void);\n#define F1 1\n")
	assert "batch" in compiled(waf(folder, "build"))


def test_a_project_with_digests_of_its_own_keeps_them(waf: Any, project: Any) -> None:
	"""If a project has Waf look at times only, a header that was touched compiles its sources again."""
	files = headers_of(6)
	files["wscript"] = TIMES + files["wscript"]
	folder = project(files)
	make_old(folder)
	waf(folder, "configure", "build")
	assert compiled(waf(folder, "build")) == []
	os.utime(folder / "f1.h", (1, 1))
	assert compiled(waf(folder, "build")) == ["batch"]


@pytest.mark.parametrize("declared", [", target='made.h'", ", ext_out=['.h']"])
def test_a_header_that_a_task_writes_beside_the_sources(waf: Any, project: Any, declared: str) -> None:
	"""A header of the source folder that changes in a build compiles its sources in the same build."""
	files = headers_of(6)
	rule = "bld(rule='cp ../made.txt ../made.h', source='made.txt', cwd=bld.bldnode%s)\n\t" % declared
	if "target" in declared:
		rule = rule.replace("target='made.h'", "target=bld.path.make_node('made.h')")
	files["wscript"] = files["wscript"].replace("bld.load('unity')\n\t", "bld.load('unity')\n\t" + rule)
	files["f1.c"] = '#include "made.h"\nint f1(void) { return MADE; }\n'
	files["made.txt"] = files["made.h"] = "#pragma once\n#define MADE 1\n"
	folder = project(files)
	make_old(folder)
	waf(folder, "configure", "build")
	for value in (2, 3):
		(folder / "made.txt").write_text("#pragma once\n#define MADE %d\n" % value)
		waf(folder, "build")
		assert say(folder) == "%d\n" % (sum(range(6)) - 1 + value)


def test_groups_that_an_edit_changes_are_compiled_first(waf: Any, project: Any) -> None:
	"""What follows from the first edit of a source begins before all else."""
	files = program(6)
	files["wscript"] = files["wscript"].replace(
		"bld.load('unity')\n\t", "bld.load('unity')\n\tbld.objects(source='one/x.c', target='x')\n\t"
	)
	files["one/x.c"] = "int x;\n"
	folder = project(files)
	waf(folder, "configure", "build")
	(folder / "one" / "x.c").write_text("int x, y;\n")
	(folder / "f3.c").write_text("int f3(void) { return 30; }\n")
	done = waf(folder, "build", "-j1")
	order = re.findall(r"Compiling \S*?(\w+\.c)$", done.stdout + done.stderr, re.MULTILINE)
	assert order[-1] == "x.c" and "f3.c" in order
