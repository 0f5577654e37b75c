"""Builds with the tool wafcc: what comes from the cache, what runs again, and the same results as with stock Waf."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time
from typing import Any, Dict, List, Optional, Set

import pytest
from prefork_probes import read_status

ROOT = pathlib.Path(__file__).resolve().parent.parent

WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c compiler_cxx")
def configure(conf):
	conf.load("compiler_c compiler_cxx")
def build(bld):
	bld.stlib(source="a.c b.c", target="ab", includes="inc")
	bld.program(source="main.cpp", target="app", use="ab", includes="inc")
"""
PROJECT = {
	"wscript": WSCRIPT,
	"a.c": '#include "a.h"\n#include "both.h"\nint a(void) { return A + BOTH; }\n',
	"b.c": '#include "both.h"\nint b(void) { return BOTH; }\n',
	"main.cpp": """\
	#include <cstdio>
	#include "both.h"
	extern "C" int a(void);
	extern "C" int b(void);
	int main() { std::printf("%d %d %d\\n", a(), b(), BOTH); }
	""",
	"inc/a.h": "#define A 1\n",
	"inc/both.h": "#define BOTH 2\n",
}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
	"""A home with a store and settings of the test's own."""
	folder = tmp_path / "home"
	folder.mkdir()
	for name in list(os.environ):
		if name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG")):
			monkeypatch.delenv(name)
	monkeypatch.setenv("HOME", str(folder))
	monkeypatch.setenv("LC_ALL", "C")
	return folder


class Build:
	"""A project that is built with the tool."""

	def __init__(self, waf: Any, folder: pathlib.Path, **kwargs: Any) -> None:
		self.waf = waf
		self.folder = folder
		self.kwargs = dict({"tools": "wafcc"}, **kwargs)

	def configure(self, out: str = "build") -> None:
		self.out = out
		self.waf(self.folder, "configure", "-o", out, **self.kwargs)

	def run(self, *args: str, **kwargs: Any) -> Any:
		return self.waf(self.folder, "build", "--zones=wafcc", *args, **{**self.kwargs, **kwargs})

	def ask(self, *args: str, **kwargs: Any) -> Dict[str, str]:
		"""The cache's verdict on each compiled source."""
		found = verdicts(self.run(*args, **kwargs))
		return {name: words for name, words in found.items() if not re.search(r"(lib(ab|user)\.a|/app)$", name)}

	def write(self, name: str, text: str) -> None:
		path = self.folder / name
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_text(text)

	def say(self, program: str = "app") -> str:
		done = subprocess.run([self.folder / self.out / program], capture_output=True, check=True, timeout=30)
		return done.stdout.decode().strip()


def verdicts(done: Any) -> Dict[str, str]:
	found = re.findall(r"wafcc (?:.* -> )?(\S+): (hit|miss|uncached)(?:: (.*))?", done.stdout + done.stderr)
	return {name: ": ".join(filter(None, (known, why))) for name, known, why in found}


def kinds(found: Dict[str, str]) -> Set[str]:
	return {words.partition(":")[0] for words in found.values()}


def read_tree(folder: pathlib.Path) -> Dict[str, bytes]:
	"""The contents of a build."""
	found = {}
	for path in sorted(folder.rglob("*")):
		name = str(path.relative_to(folder))
		if path.is_file() and not re.search(r"c4che|\.wafpickle|\.conf_check|\.lock-waf|config\.log", name):
			found[name] = path.read_bytes()
	return found


@pytest.fixture
def build(waf: Any, project: Any, engine: str) -> Build:
	"""The usual project, configured."""
	made = Build(waf, project(PROJECT))
	made.configure()
	return made


def test_a_compiler_that_is_not_known(waf: Any, project: Any, engine: str) -> None:
	"""Waf's compiles by an unknown compiler are observed and cached, without any setting."""
	if not shutil.which("gcc") or not os.path.exists("/usr/bin/python3"):
		pytest.skip("needs gcc and /usr/bin/python3")
	script = '#!/usr/bin/python3 -SE\nimport os, sys\nos.execvp("gcc", ["gcc", *sys.argv[1:]])\n'
	configure = 'conf.load("compiler_c compiler_cxx")\n\tconf.env.CC = [conf.path.find_node("bin/emcc").abspath()]'
	wscript = WSCRIPT.replace('conf.load("compiler_c compiler_cxx")', configure)
	made = Build(waf, project({**PROJECT, "wscript": wscript, "bin/emcc": script}))
	(made.folder / "bin/emcc").chmod(0o755)
	made.configure()
	first = made.ask()
	assert first["a.c"].startswith("miss") and "not stored" not in first["a.c"], first
	made.waf(made.folder, "clean", **made.kwargs)
	assert made.ask()["a.c"].startswith("hit")
	made.write("inc/a.h", "#define A 5\n")
	assert made.ask()["a.c"].startswith("miss")
	assert made.say().startswith("7 ")


def test_a_target_of_which_nothing_is_cached_is_named(build: Build) -> None:
	"""A date in a header that all of its sources include is named once, in the end, with what helps."""
	build.write("inc/both.h", "#define BOTH 2\nstatic const char stamp[] = __TIME__;\n")
	sources = ["%s.c" % name for name in "defg"]
	for name in sources:
		build.write(name, '#include "both.h"\nint %s;\n' % name[0])
	wscript = (build.folder / "wscript").read_text()
	build.write("wscript", wscript + '\tbld.objects(source="%s", target="more", includes="inc")\n' % " ".join(sources))
	shown = build.run(env={"WAF_PREFORK_SUMMARY": None}).stdout
	assert "wafcc: nothing of more is cached (4 commands): it asks for the time; set SOURCE_DATE_EPOCH" in shown, shown
	build.write("inc/both.h", "#define BOTH 2\n")
	assert "nothing of" not in build.run(env={"WAF_PREFORK_SUMMARY": None}).stdout


ALL = {"a.c", "b.c", "main.cpp"}


@pytest.mark.parametrize("jobs", ["-j1", "-j4", "-j4 --threads"])
def test_another_build_folder_is_made_from_the_cache(build: Build, waf: Any, jobs: str) -> None:
	"""Every compile is a miss in the first and a hit in the second, and both have the files of stock Waf."""
	first = build.ask(*jobs.split())
	assert set(first) == ALL and kinds(first) == {"miss"}
	shutil.rmtree(build.folder / "build")
	build.configure()
	assert build.ask(*jobs.split()) == dict.fromkeys(ALL, "hit")
	assert build.ask(*jobs.split()) == {}
	ours = read_tree(build.folder / "build")
	shutil.rmtree(build.folder / "build")
	waf(build.folder, "configure", "build", env={"WAF_NO_PREFORK": "1"})
	assert read_tree(build.folder / "build") == ours


@pytest.mark.parametrize(
	("says", "is_large", "are_cached"),
	[
		("pass", False, True),
		("cls.cache = False", False, False),
		("cls.nocache = True", False, False),
		("pass", True, False),
		("cls.cache = True", True, True),
	],
)
def test_libraries_and_programs_are_cached(
	waf: Any, project: Any, engine: str, says: str, is_large: bool, are_cached: bool
) -> None:
	"""They are hits in another folder, unless their class opts out or they are large; what they read is up to date."""
	loop = "\tfrom waflib import Task\n\tfor cls in map(Task.classes.get, ('cstlib', 'cxxprogram')):\n\t\t%s\n"
	wscript = WSCRIPT.replace("def build(bld):\n", "def build(bld):\n" + loop % says)
	files = dict(PROJECT)
	if is_large:
		# a library of more than 16 MiB, and a program, which does not have this member, of more than 4
		wscript = wscript.replace("a.c b.c", "a.c b.c large.c")
		files["large.c"] = "char large[17 << 20] = {1};\n"
		files["main.cpp"] += "char own[5 << 20] = {1};\n"
	build = Build(waf, project({**files, "wscript": wscript}))
	outputs = ("libab.a", "app")
	found: List[List[str]] = []
	for out in ("build", "other"):
		build.configure(out)
		told = verdicts(build.run())
		found.append([told.get("%s/%s" % (out, output), "none").partition(":")[0] for output in outputs])
	assert found == ([["miss"] * 2, ["hit"] * 2] if are_cached else [["none"] * 2] * 2)
	for output in outputs:
		made = [(build.folder / out / output).read_bytes() for out in ("build", "other")]
		assert made[0] == made[1]
	build.write("inc/a.h", "#define A 10\n")
	build.run()
	assert build.say() == "12 2 2"


def test_two_builds_of_one_process(waf: Any, project: Any, engine: str) -> None:
	"""What the engine told in the first one is checked anew in the second one, which makes libraries again."""
	edits = "def edit(ctx):\n\tctx.path.make_node('b.c').write('int b(void) { return 7; }\\n')\n"
	build = Build(waf, project({**PROJECT, "wscript": WSCRIPT + edits}))
	build.configure()
	build.run("edit", "build")
	assert build.say() == "3 7 2"


@pytest.mark.parametrize("again", ["same build", "from the cache"])
def test_sources_with_an_edited_header_are_compiled_again_and_no_others(build: Build, again: str) -> None:
	"""Whether a task was a miss or a hit, Waf knows what it has read; without a change nothing runs."""
	build.ask()
	if again == "from the cache":
		build.configure("other")
		build.ask()
	assert build.ask() == {}
	build.write("inc/a.h", "#define A 10\n")
	assert set(build.ask()) == {"a.c"}
	assert build.say() == "12 2 2"
	build.write("inc/both.h", "#define BOTH 20\n")
	assert set(build.ask()) == ALL
	assert build.say() == "30 20 20"
	assert build.ask() == {}


def test_a_header_that_is_as_it_was_before_gives_hits(build: Build) -> None:
	"""An edit that is undone gives hits again."""
	build.ask()
	before = read_tree(build.folder / "build")
	build.write("inc/both.h", "#define BOTH 20\n")
	assert kinds(build.ask()) == {"miss"}
	build.write("inc/both.h", "#define BOTH 2\n")
	assert build.ask() == dict.fromkeys(ALL, "hit")
	assert read_tree(build.folder / "build") == before


def test_a_header_that_is_gone_is_missed(build: Build) -> None:
	"""The compiler's own message is shown."""
	build.ask()
	(build.folder / "inc" / "a.h").unlink()
	assert "a.h: No such file" in build.run(status=1).stderr


def test_a_header_that_appears_before_another_is_read(build: Build) -> None:
	"""A header beside the source is preferred, though the one that was read is unchanged; stock Waf misses that."""
	build.ask()
	build.write("both.h", "#define BOTH 200\n")
	assert set(build.ask()) == ALL
	assert build.say() == "201 200 200"
	(build.folder / "both.h").unlink()
	assert build.ask() == dict.fromkeys(ALL, "hit")
	assert build.say() == "3 2 2"


def test_other_flags_make_another_command(build: Build) -> None:
	"""Dependencies by Waf's own rules count as usual."""
	build.ask()
	assert build.ask() == {}
	wscript = build.folder / "wscript"
	wscript.write_text(wscript.read_text().replace('target="app",', 'target="app", defines=["X=1"],'))
	assert build.ask() == {"main.cpp": "miss: it was not seen before"}


def test_an_output_that_is_gone_or_another_comes_back(build: Build) -> None:
	"""A missing output is made again, from the cache."""
	build.ask()
	(build.folder / "build" / "b.c.1.o").unlink()
	assert build.ask() == {"b.c": "hit"}


def test_a_system_header_counts(build: Build, tmp_path: pathlib.Path) -> None:
	"""Files outside of the project are inputs as well; stock Waf does not look at them."""
	outside = tmp_path / "outside"
	outside.mkdir()
	(outside / "far.h").write_text("#define FAR 1\n")
	build.write("b.c", "#include <far.h>\nint b(void) { return FAR; }\n")
	environ = {"CPATH": str(outside)}
	assert set(build.ask(env=environ)) == ALL
	(outside / "far.h").write_text("#define FAR 7\n")
	assert set(build.ask(env=environ)) == {"b.c"}
	assert build.say() == "3 7 2"


def test_nothing_is_scanned(build: Build) -> None:
	"""Waf's own scanner, which is half of a build, is not used for what the engine tells."""
	zones = "--zones=wafcc,deps"
	assert "wafcc a.c: miss" in build.run(zones).stdout
	build.configure("other")
	for said in (build.run(zones).stdout, build.run(zones).stdout):
		assert "scanner for" not in said
	build.configure("stock")
	assert "scanner for" in build.run(zones, env={"WAF_NO_PREFORK": "1"}).stdout


@pytest.mark.parametrize("extra", ["gccdeps", "c_dumbpreproc"])
def test_extras_that_find_dependencies_have_hits(waf: Any, project: Any, engine: str, extra: str) -> None:
	"""If an extra of Waf's stands in for its scanner, compiles are hits as well, and edited headers are noticed."""
	both = 'conf.load("compiler_c compiler_cxx")'
	wscript = WSCRIPT.replace(both, 'conf.load("compiler_c compiler_cxx %s")' % extra)
	build = Build(waf, project({**PROJECT, "wscript": wscript}))
	build.configure()
	assert kinds(build.ask()) == {"miss"}
	shutil.rmtree(build.folder / "build")
	build.configure()
	assert build.ask() == dict.fromkeys(ALL, "hit")
	assert build.ask() == {}
	build.write("inc/a.h", "#define A 5\n")
	assert kinds(build.ask()) == {"miss"} and build.say() == "7 2 2"
	build.write("inc/a.h", "#define A 1\n")
	assert build.ask() == {"a.c": "hit"} and build.say() == "3 2 2"
	ours = read_tree(build.folder / "build")
	shutil.rmtree(build.folder / "build")
	waf(build.folder, "configure", "build", env={"WAF_NO_PREFORK": "1"})
	assert read_tree(build.folder / "build") == ours


def test_what_cannot_be_cached_is_scanned(build: Build) -> None:
	"""A command whose reads the engine does not tell works as usual."""
	build.write("b.c", '#include "both.h"\nconst char *when = __DATE__ __TIME__;\nint b(void) { return BOTH; }\n')
	assert "not stored: it asks for the time" in build.ask()["b.c"]
	assert build.ask() == {}
	build.write("inc/both.h", "#define BOTH 20\n")
	assert set(build.ask()) == ALL
	assert build.say() == "21 20 20"
	assert build.ask() == {}


GENERATED = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c")
def configure(conf):
	conf.load("compiler_c")
def build(bld):
	%s
	for n in range(4):
		bld.objects(source="plain%%d.c" %% n, target="plain%%d" %% n)
	bld.stlib(source="user.c", target="user", includes=".")
	bld.program(source="main.c", target="app", use="user", includes=".")
	bld(rule="%s", source="number.txt %s", target="made.h", name="maker")
"""
SLOW = "sleep 0.3; (echo '#define MADE \\\\\\\\'; cat ${SRC[0].abspath()}) > ${TGT}"
USERS = {
	"user.c": '#include "made.h"\nint user(void) { return MADE; }\n',
	"main.c": """\
	#include <stdio.h>
	#include "made.h"
	int user(void);
	int main(void) { printf("%d %d\\n", user(), MADE); return 0; }
	""",
	"number.txt": "5\n",
	**{f"plain{n}.c": f"int plain{n};\n" for n in range(4)},
}


@pytest.mark.parametrize("jobs", ["-j1", "-j4"])
def test_a_generated_header_is_made_before_it_is_read(waf: Any, project: Any, engine: str, jobs: str) -> None:
	"""On the first build the readers are not known: they are in the same target, and in another that uses it."""
	build = Build(waf, project({"wscript": GENERATED % ("", SLOW, ""), **USERS}))
	build.configure()
	build.run(jobs)
	assert build.say() == "5 5"
	build.ask(jobs)
	assert build.ask(jobs) == {}
	build.write("number.txt", "6\n")
	assert set(build.ask(jobs)) == {"user.c", "main.c"}
	assert build.say() == "6 6"
	build.ask(jobs)
	assert build.ask(jobs) == {}


@pytest.mark.parametrize("jobs", ["-j1", "-j4"])
def test_a_generator_that_is_built_itself_does_not_wait_for_what_it_makes(
	waf: Any, project: Any, engine: str, jobs: str
) -> None:
	"""The generator's own sources are compiled first, also if they read an output of another generator."""
	tools = """\
	bld.program(source="tool.c", target="tool", includes=".")
	bld(rule="sleep 0.3; echo '#define LEVEL 3' > ${TGT}", target="level.h")
	"""
	files = {
		"wscript": GENERATED % (tools.strip().replace("\n\t\t", "\n\t"), "${SRC[1].abspath()} > ${TGT}", "tool"),
		"tool.c": """\
		#include <stdio.h>
		#include "level.h"
		int main(void) { printf("#define MADE %d\\n", LEVEL); return 0; }
		""",
		**USERS,
	}
	build = Build(waf, project(files))
	build.configure()
	build.run(jobs)
	assert build.say() == "3 3"
	build.ask(jobs)
	assert build.ask(jobs) == {}


NOCACHE = {
	"generator": ("pass", "nocache=True"),
	"class": ('__import__("waflib.Task").Task.classes["c"].nocache = True', ""),
	"env": ("bld.env.nocache = True", ""),
}


@pytest.mark.parametrize("where", NOCACHE)
def test_nocache_keeps_out(waf: Any, project: Any, engine: str, where: str) -> None:
	"""It works on a generator, a class or an environment, and Waf then does everything by itself."""
	wscript = WSCRIPT[: WSCRIPT.index("\tbld.stlib")]
	wscript += '\t%s\n\tbld.objects(source="a.c", target="x", includes="inc", %s)\n' % NOCACHE[where]
	build = Build(waf, project({**PROJECT, "wscript": wscript}))
	build.configure()
	assert build.ask() == {}
	assert (build.folder / "build" / "a.c.1.o").exists()
	build.write("inc/a.h", "#define A 10\n")
	assert "Compiling" in build.run().stdout


def test_messages_come_back(waf: Any, project: Any, engine: str) -> None:
	"""A hit shows the compiler's warning."""
	source = "#warning look here\nint a(void) { return 1; }\n"
	wscript = WSCRIPT[: WSCRIPT.index("\tbld.stlib")] + '\tbld.objects(source="a.c", target="x")\n'
	build = Build(waf, project({"wscript": wscript, "a.c": source}))
	build.configure()
	first = build.run()
	build.configure("other")
	second = build.run()
	assert verdicts(second) == {"a.c": "hit"}
	warning = re.compile(r"(?s)\S*a\.c:1:2: warning: .*?look here.*?\n.*?\n")
	assert warning.findall(first.stdout + first.stderr) == warning.findall(second.stdout + second.stderr) != []


def test_zones_tell_what_changed(build: Build) -> None:
	"""The zone names each change, and in the end all counts."""
	assert "5 misses" in build.run().stdout
	build.write("inc/a.h", "#define A 10\n")
	said = build.run().stdout
	assert re.search(r"wafcc a\.c: \S*inc/a\.h was written again", said)
	assert "wafcc a.c: miss: " in said
	build.write("a.h", "#define A 11\n")
	assert re.search(r"wafcc a\.c: \S*/a\.h has appeared", build.run().stdout)


def test_without_the_cache_waf_builds_as_ever(build: Build) -> None:
	"""With the cache again, files that were built meanwhile are up to date or known."""
	assert build.ask(env={"WAFCC_DISABLE": "1"}) == {}
	assert build.say() == "3 2 2"
	number = 10
	for arguments, environ in (
		([], {"WAFCC_DISABLE": "1"}),
		(["--no-wafcc"], {}),
		([], {"WAF_NO_PREFORK": "1"}),
		([], {"WAFD": "/no/such/wafd"}),
	):
		build.write("inc/both.h", "#define BOTH %d\n" % number)
		assert build.ask(*arguments, env=environ) == {}
		assert build.say() == "%d %d %d" % (number + 1, number, number)
		assert "Compiling" not in build.run(*arguments, env=environ).stdout
		number += 1
		build.write("inc/both.h", "#define BOTH %d\n" % number)
		assert set(build.ask()) == ALL
		assert build.say() == "%d %d %d" % (number + 1, number, number)
		number += 1


def test_what_the_cache_told_holds_without_it(build: Build) -> None:
	"""Without the cache nothing is built anew, and edits are seen."""
	build.ask()
	disabled = {"WAFCC_DISABLE": "1"}
	assert "Compiling" not in build.run(env=disabled).stdout
	build.write("inc/a.h", "#define A 10\n")
	said = build.run(env=disabled).stdout
	assert "a.c" in said and "b.c" not in said
	assert build.say() == "12 2 2"
	assert "Compiling" not in build.run(env=disabled).stdout


def test_another_store_has_an_engine_of_its_own(build: Build, engine: str, tmp_path: pathlib.Path) -> None:
	"""Entries of one store are not found in another, and the usual engine is not asked."""
	build.ask()
	sent = read_status(engine)["totals"]["succeeded"]
	for way in ({"env": {"WAFCC_DIR": str(tmp_path / "store")}}, {"args": ["--wafcc-dir=" + str(tmp_path / "third")]}):
		arguments = way.pop("args", [])
		build.configure("other-%d" % len(arguments))
		assert kinds(build.ask(*arguments, **way)) == {"miss"}
		shutil.rmtree(build.folder / build.out)
		build.configure(build.out)
		assert kinds(build.ask(*arguments, **way)) == {"hit"}
		wafcc = str(pathlib.Path(engine).with_name("wafcc"))
		store = str(tmp_path / ("third" if arguments else "store"))
		subprocess.run([wafcc, "--shutdown"], env={**os.environ, "WAFCC_DIR": store}, check=True, timeout=60)
	assert (tmp_path / "store").is_dir() and (tmp_path / "third").is_dir()
	assert read_status(engine)["totals"]["succeeded"] < sent + 20


def test_another_home_has_a_store_of_its_own(build: Build, engine: str, home: pathlib.Path) -> None:
	"""Though the runtime folder is the same, no entry comes from the store of the first home."""
	build.ask()
	other = {"HOME": str(home / "other")}
	wafcc = str(pathlib.Path(engine).with_name("wafcc"))
	shutil.rmtree(build.folder / "build")
	build.configure()
	try:
		assert kinds(build.ask(env=other)) == {"miss"}
		shutil.rmtree(build.folder / "build")
		build.configure()
		assert build.ask() == dict.fromkeys(ALL, "hit")
	finally:
		subprocess.run([wafcc, "--shutdown"], env={**os.environ, **other}, check=True, timeout=60)


def test_settings_are_those_of_the_wrapper(build: Build, home: pathlib.Path) -> None:
	"""Read only, recache and namespaces work by option, by variable and by file."""
	assert kinds(build.ask("--wafcc-read-only")) == {"uncached"}
	build.configure("1")
	assert kinds(build.ask(env={"WAFCC_NAMESPACE": "x"})) == {"miss"}
	build.configure("2")
	assert kinds(build.ask("--wafcc-namespace=x")) == {"hit"}
	build.configure("3")
	assert kinds(build.ask("--wafcc-namespace=x", "--wafcc-recache")) == {"miss"}
	(home / ".config" / "wafcc").mkdir(parents=True)
	(home / ".config" / "wafcc" / "wafcc.conf").write_text("namespace = x\n")
	build.configure("4")
	assert kinds(build.ask()) == {"hit"}


def test_extra_files_count_for_every_command(build: Build, tmp_path: pathlib.Path) -> None:
	"""They count though no command reads them."""
	extra = tmp_path / "extra"
	extra.write_text("1")
	environ = {"WAFCC_EXTRAFILES": str(extra)}
	assert kinds(build.ask(env=environ)) == {"miss"}
	assert build.ask(env=environ) == {}
	extra.write_text("2")
	assert kinds(build.ask(env=environ)) == {"miss"}
	extra.write_text("1")
	assert build.ask(env=environ) == dict.fromkeys(ALL, "hit")


def test_waf_2_0_builds_with_the_cache(waf: Any, project: Any, engine: str, waf20: pathlib.Path) -> None:
	"""Waf 2.0.24 builds the same."""
	build = Build(waf, project(PROJECT), wafdir=waf20)
	build.configure()
	assert kinds(build.ask()) == {"miss"}
	assert build.ask() == {}
	build.configure("other")
	assert build.ask() == dict.fromkeys(ALL, "hit")
	build.write("inc/a.h", "#define A 10\n")
	assert set(build.ask()) == {"a.c"}
	assert build.say() == "12 2 2"


def test_pypy_builds_with_the_cache(waf: Any, project: Any, engine: str) -> None:
	"""PyPy builds the same, and CPython can read its records."""
	pypy = shutil.which("pypy3")
	if not pypy:
		pytest.skip("no pypy3")
	import waflib

	environ = {"PYTHONPATH": os.pathsep.join((str(ROOT), os.path.dirname(os.path.dirname(waflib.__file__))))}
	build = Build(waf, project(PROJECT), interpreter=pypy, env=environ)
	build.configure()
	assert kinds(build.ask()) == {"miss"}
	assert build.ask() == {}
	build.configure("other")
	assert build.ask() == dict.fromkeys(ALL, "hit")


def test_the_tool_loads_prefork_and_may_be_loaded_anyhow(waf: Any, project: Any, engine: str) -> None:
	"""The tool may be loaded by one line in options, twice, or in configure only."""
	for name, line in {
		"options": 'def options(opt):\n\topt.load("compiler_c compiler_cxx prefork wafcc wafcc")\n',
		"configure": 'def options(opt):\n\topt.load("compiler_c compiler_cxx")\n',
	}.items():
		wscript = line + WSCRIPT[WSCRIPT.index("def configure") :]
		if name == "configure":
			wscript = wscript.replace('compiler_cxx")\ndef build', 'compiler_cxx wafcc")\ndef build')
		build = Build(waf, project({**PROJECT, "wscript": "import waflib_extras\n" + wscript}, name), tools="")
		build.configure()
		assert set(build.ask()) == ALL


RULES = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c")
def configure(conf):
	conf.load("compiler_c")
def build(bld):
	from waflib import Task
	Task.classes["cprogram"].cache = True
	bld(rule="${SRC[0].abspath()} ${SRC[1].abspath()} > ${TGT}", source="make.sh list.txt", target="list.h", cache=True)
	bld(rule="sort ${SRC} > ${TGT}", source="list.txt", target="sorted.txt")
	bld.stlib(source="list.c", target="list", includes=".")
	bld.program(source="main.c", target="joined", use="list")
"""
JOINED = {
	"wscript": RULES,
	"make.sh": '#! /bin/sh\necho "#define LIST \\"$(cat "$1")\\""\n',
	"list.txt": "one",
	"list.c": '#include "list.h"\nconst char *list(void) { return LIST; }\n',
	"main.c": """\
	#include <stdio.h>
	const char *list(void);
	int main(void) { puts(list()); return 0; }
	""",
}


PLACES = """\
top = "."
out = "build"
def options(opt): pass
def configure(conf): pass
def build(bld):
	bld(rule="sort ${SRC} > ${TGT}", source="sort.txt", target="sorted", cache=True)
	bld(rule="sed -e s/o/a/ < ${SRC} > ${TGT}", source="sed.txt", target="edited", cache=True)
	bld(rule="sort ${SRC} | tr a-z A-Z > ${TGT}", source="two.txt", target="piped", cache=True)
	bld(rule="cat ${SRC} > ${TGT}; echo $PWD >> ${TGT}", source="pwd.txt", target="placed", cache=True)
	bld(rule="env | grep ^PWD > ${TGT}", source="env.txt", target="told", cache=True)
"""


@pytest.mark.skipif(os.path.basename(os.path.realpath("/bin/sh")) != "dash", reason="needs dash as /bin/sh")
def test_a_rule_that_cannot_tell_its_folder_is_a_hit_in_another(waf: Any, project: Any, engine: str) -> None:
	"""A line of plain words for known programs holds in every build folder; one that may show its folder does not."""
	sources = ("sort.txt", "sed.txt", "two.txt", "pwd.txt", "env.txt")
	build = Build(waf, project({"wscript": PLACES, **dict.fromkeys(sources, "two\none\n")}))
	build.configure("one")
	assert kinds(build.ask()) == {"miss"}
	build.configure("two")
	found = build.ask()
	assert {name: found[name].partition(":")[0] for name in sources} == {
		"sort.txt": "hit",
		"sed.txt": "hit",
		"two.txt": "miss",
		"pwd.txt": "miss",
		"env.txt": "miss",
	}
	made = read_tree(build.folder / "two")
	assert made["sorted"] == b"one\ntwo\n" and made["edited"] == b"twa\nane\n" and made["piped"] == b"ONE\nTWO\n"
	for name in ("placed", "told"):
		assert made[name].rstrip().endswith(str(build.folder / "two").encode())


OWN_WAY = """\
from waflib import Task
def options(opt): pass
def configure(conf): pass
class sorted_twice(Task.Task):
	cache = %s
	def run(self):
		bld, name = self.generator.bld, self.inputs[0].abspath()
		text = bld.cmd_and_log(["sort", name], quiet=0)
		bld.exec_command(["sort", "-r", name, "-o", self.outputs[1].abspath()])
		self.outputs[0].write(text + self.outputs[1].read())
def build(bld):
	for name in ("one", "two"):
		made = [bld.path.find_or_declare(name + ending) for ending in (".sorted", ".turned")]
		bld(features="seq", name=name)
		task = sorted_twice(env=bld.env, generator=bld.get_tgen_by_name(name))
		task.set_inputs(bld.path.find_node(name + ".txt"))
		task.set_outputs(made)
		bld.get_tgen_by_name(name).tasks.append(task)
"""


@pytest.mark.parametrize("jobs", ["-j1", "-j3"])
@pytest.mark.parametrize("asks", [True, None])
def test_commands_that_the_code_of_a_task_runs(
	waf: Any, project: Any, engine: str, home: pathlib.Path, jobs: str, asks: Optional[bool]
) -> None:
	"""If the task asks to be cached, each of them is a hit by itself, and Python makes of it what it made before."""
	files = {"wscript": OWN_WAY % asks, "one.txt": "b\na\n", "two.txt": "d\nc\n"}
	made = Build(waf, project(files))
	made.configure()
	for text, expected in (("b\na\n", "miss"), ("b\na\n", "hit"), ("e\na\n", "miss"), ("b\na\n", "hit")):
		made.write("one.txt", text)
		time.sleep(0.2)
		waf(made.folder, "clean", **made.kwargs)
		done = made.run(jobs)
		lines = sorted(text.split())
		assert (made.folder / "build/one.sorted").read_text().split() == lines + lines[::-1]
		assert (made.folder / "build/two.turned").read_text() == "d\nc\n"
		found = re.findall(r"wafcc .*one\.txt.*: (hit|miss|uncached)", done.stdout + done.stderr)
		assert found == ([expected] * 2 if asks else []), done.stdout + done.stderr


@pytest.mark.parametrize("jobs", ["-j1", "-j3"])
def test_any_task_joins_that_asks(waf: Any, project: Any, engine: str, jobs: str) -> None:
	"""A rule and a link are not run again if their facts hold. A task that did not ask is never cached."""
	folder = project(JOINED)
	(folder / "make.sh").chmod(0o755)
	build = Build(waf, folder)
	build.configure()
	# a compile in the clock tick of its header's last change is not stored, so this waits
	first = build.ask(jobs, "--targets=list.h")
	first.update(build.ask(jobs))
	joined = {"build/list.h", "build/liblist.a", "build/joined", "list.c", "main.c"}
	assert set(first) == joined and kinds(first) == {"miss"}
	assert build.ask(jobs) == {}
	made = read_tree(folder / "build")
	shutil.rmtree(folder / "build")
	build.configure()
	assert build.ask(jobs) == dict.fromkeys(joined, "hit")
	assert read_tree(folder / "build") == made
	assert build.say("joined") == "one"
	build.write("list.txt", "two")
	assert {"build/list.h", "list.c"} <= set(build.ask(jobs))
	assert build.say("joined") == "two"


DOUBTED = """\
top = "."
def options(opt):
	pass
def configure(conf):
	pass
def build(bld):
	bld(rule="bash ${SRC} > ${TGT}", source="make.sh", target="made", cache=True)
"""


def test_a_result_in_doubt_is_settled(waf: Any, project: Any, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
	"""It is no hit until a second run has proved it, but the task does not run again for that reason."""
	if not shutil.which("bash"):
		pytest.skip("there is no bash")
	monkeypatch.setenv("WAFCC_PROVECOMMANDS", "yes")
	build = Build(waf, project({"wscript": DOUBTED, "make.sh": "while read -r x; do echo $x; done < ../make.sh\n"}))
	build.configure()
	time.sleep(0.1)  # what was written just before a command is not trusted
	assert kinds(build.ask()) == {"miss"}
	assert build.ask() == {}
	build.write("make.sh", "echo other\n")
	time.sleep(0.1)
	assert kinds(build.ask()) == {"miss"}
	assert (build.folder / "build/made").read_text() == "other\n"


FAKE = """\
top = "."
def options(opt):
	opt.load("compiler_c")
def configure(conf):
	conf.load("compiler_c")
	from waflib import Task
	Task.Task.cache = True
def build(bld):
	from waflib import Task
	Task.Task.cache = True
	bld.read_shlib("old", paths=[bld.path])
	bld.program(source="main.c", target="app", use="old")
"""


def test_every_class_may_ask(waf: Any, project: Any, engine: str) -> None:
	"""Also those that only stand for files, such as a library that is there."""
	files = {
		"wscript": FAKE,
		"main.c": "int old(void);\nint main(void) { return old(); }\n",
		"old.c": "int old(void) { return 0; }\n",
	}
	build = Build(waf, project(files))
	subprocess.run(["gcc", "-shared", "-fPIC", "old.c", "-o", "libold.so"], cwd=build.folder, check=True, timeout=30)
	time.sleep(0.1)
	build.configure()
	assert build.ask() != {}
	assert build.ask() == {}


def test_the_playground_works(waf: Any, tmp_path: pathlib.Path, engine: str) -> None:
	"""The playground's second build comes from the cache; only the excluded compile runs."""
	folder = pathlib.Path(shutil.copytree(ROOT / "playground" / "wafcc", tmp_path / "playground"))
	build = Build(waf, folder, tools="")
	build.configure()
	first = build.ask()
	assert {"words.c", "main.cpp"} <= set(first) and "plain.c" not in first
	assert build.say("greet") == "hello, good bye"
	shutil.rmtree(folder / "build")
	build.configure()
	second = build.ask()
	assert {second[name] for name in ("main.cpp", "build/messages.h", "messages.txt")} == {"hit"}
	assert build.say("greet") == "hello, good bye"
	assert build.ask() == {}


HEADERS = "#include <iostream>\n#include <map>\n#include <string>\n"


@pytest.mark.timeout(300)  # what is done in idle times takes long on a busy machine
def test_the_line_tells_of_compiles_that_began_after_their_headers(waf: Any, project: Any, engine: str) -> None:
	"""From the third compile of an edited source on, with `preambles`, the last line but one says what that saved."""
	wafcc = str(pathlib.Path(engine).with_name("wafcc"))
	made = Build(
		waf, project({**PROJECT, "main.cpp": HEADERS + PROJECT["main.cpp"]}), env={"WAF_PREFORK_SUMMARY": None}
	)
	subprocess.run([wafcc, "--set-config", "preambles=1G"], check=True)
	made.configure()
	assert "began after" not in made.run().stdout

	def edit(number: int) -> str:
		made.write("main.cpp", HEADERS + PROJECT["main.cpp"] + "int edited = %d;\n" % number)
		done = made.run()
		return str(done.stdout + done.stderr)

	assert "began after" not in edit(1)
	deadline = time.monotonic() + 240
	while True:
		told = subprocess.run([wafcc, "--show-stats", "--json"], stdout=subprocess.PIPE, check=True).stdout
		preambles = json.loads(told)["preambles"]
		if preambles["made"]:
			break
		assert time.monotonic() < deadline and not preambles["refused"], preambles
		time.sleep(0.1)
	assert re.search(r"^wafcc: 1 compile began after its headers: about [\d.]+ m?s saved$", edit(2), re.M)
	assert made.say() == "3 2 2"
