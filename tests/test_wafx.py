"""The command `wafx`: a project's own Waf runs as it does by itself, with our tools, and the project cannot tell."""

import json
import os
import pathlib
import re
import shutil
import sys
import time
from typing import Any, Callable, Dict

import pytest
from cache_support import PATIENCE
from room_server import Room
from wafx_support import Own, list_words, pack_waf

from waflib_extras import TOOLS

pytestmark = pytest.mark.timeout(900)  # others use the machine, too

WSCRIPT = """\
def options(opt):
	opt.load('compiler_c')
def configure(conf):
	conf.load('compiler_c')
	conf.check(header_name='stdio.h')
def build(bld):
	bld.stlib(source='b.c', target='b')
	bld.program(source='main.c', target='app', use='b')
"""
PROJECT = {
	"wscript": WSCRIPT,
	"b.h": "int b(void);\n",
	"b.c": '#include "b.h"\nint b(void) { return 0; }\n',
	"main.c": '#include "b.h"\nint main(void) { return b(); }\n',
}
COMPILES = 2
CACHED = COMPILES + 2
"""A small library and a small program are cached, too."""
TESTED = CACHED + 2
"""With the compile and the link of the test in ``configure``."""


@pytest.fixture(scope="session")
def packed(waf_sources: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
	"""A script `waf` as projects carry it."""
	return pack_waf(waf_sources, tmp_path_factory.mktemp("packed"))


@pytest.fixture
def own(
	packed: pathlib.Path, runtime: pathlib.Path, engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Own]:
	"""A function that makes a project with its own Waf, with these files more."""
	monkeypatch.setenv("WAFD", engine)
	for name in ("WAFDIR", "NOCLIMB", "JOBS", "PYTHONSAFEPATH", "WAFX_WITH"):
		monkeypatch.delenv(name, raising=False)

	def make(files: Dict[str, str] = PROJECT, name: str = "one", **more: str) -> Own:
		folder = tmp_path / name / "project"
		folder.mkdir(parents=True)
		shutil.copy(packed, folder)
		for path, text in {**files, **more}.items():
			(folder / path).parent.mkdir(exist_ok=True)
			(folder / path).write_text(text)
		return Own(folder, tmp_path / "cache")

	return make


def test_shared_stores(own: Any, room: Room) -> None:
	"""The option `--remote` is there in a project that does not know of the tools, and raises no number of jobs."""
	one = own(wscript=WSCRIPT + "\tprint('jobs: %d' % bld.jobs)\n")
	done = one.wafx("./waf", "configure", "build", "--remote=" + room.address)
	assert "jobs: %d\n" % (os.cpu_count() or 1) in done.stdout
	deadline = time.monotonic() + PATIENCE
	while not room.entries:
		assert time.monotonic() < deadline, "nothing is uploaded"
		time.sleep(0.02)
	wrong = one.wafx("./waf", "build", "--remote=grpc://h", status=None)
	assert wrong.returncode != 0 and "--remote: grpc://h: it lacks a port" in wrong.stderr


class TestOwnWaf:
	def test_same_files(self, own: Any) -> None:
		"""Nothing of the project is written to: a build makes the files that the project's Waf makes by itself."""
		one = own()
		one.plain("configure", "build")
		expected = one.read_made()
		shutil.rmtree(one.folder)
		other = own()
		assert other.count("configure", "build") == (0, TESTED)
		assert other.read_made() == expected

	def test_hits_of_a_fresh_copy(self, own: Any) -> None:
		"""What was built once is a hit when the project is unpacked and built again in its place."""
		one = own()
		one.wafx("./waf", "configure", "build")
		shutil.rmtree(one.folder)
		assert own().count("configure", "build") == (TESTED, 0)

	def test_a_cached_rule_is_settled(self, own: Any) -> None:
		"""tac may depend on all variables. A part of one is ours: the engine gets it, and the project does not."""
		rule = "\tbld(rule='tac ${SRC} > ${TGT}', source='in/wscript', target='copied', cache=True)\n"
		one = own(**{"wscript": WSCRIPT + rule, "in/wscript": "text"})
		one.wafx("./waf", "configure", "build")
		for _ in range(3):  # what was written just before a build is not trusted
			done = one.wafx("./waf", "build", "--zones=wafcc")
		assert "in/wscript" not in done.stdout + done.stderr, done.stderr

	def test_own_waf_goes_on(self, own: Any) -> None:
		"""The project's Waf builds what wafx has configured, and wafx takes that over, with the same files."""
		one = own()
		one.wafx("./waf", "configure", "build")
		made = one.read_made()
		one.plain("build")
		assert one.read_made() == made and "Compiling" not in one.plain("build").stdout
		assert one.count("build")[1] == 0 and one.read_made() == made
		done = one.wafx("./waf", "build")
		assert "Compiling" not in done.stdout and list_words(done.stderr) == []

	def test_prelude(self, own: Any) -> None:
		"""The prelude of the project's script runs, so its names of tools are known."""
		one = own(wscript=WSCRIPT.replace("opt.load('compiler_c')", "opt.load('compiler_cc')"))
		assert one.count("configure", "build")[1] > 0

	def test_own_waflib(self, own: Any) -> None:
		"""The copy of waflib is the one that the script has unpacked beside itself."""
		one = own(wscript=WSCRIPT + "\timport waflib; print('waflib of', waflib.__file__)\n")
		done = one.wafx("./waf", "configure", "build")
		assert re.search(r"waflib of %s/\.waf3-\S+/waflib/__init__.py" % re.escape(str(one.folder)), done.stdout)

	def test_waf_2_0(self, own: Any, waf20: pathlib.Path) -> None:
		"""A script beside its folder ``waflib``, as Debian has it, finds that one; WAFDIR names another."""
		one = own()
		version = "\timport waflib.Context; print('version', waflib.Context.WAFVERSION)\n"
		(one.folder / "wscript").write_text(WSCRIPT + version)
		shutil.copy(waf20 / "waf", one.folder / "waf20")
		done = one.wafx(sys.executable, "./waf20", "configure", "build", env={"WAFDIR": str(waf20)})
		assert "version 2.0." in done.stdout and list_words(done.stderr) == []
		assert one.wafx(sys.executable, "./waf", "configure", "build").stdout.count("version 2.1.") == 1

	def test_tooldir(self, own: Any) -> None:
		"""A tool of the project that is named like one of ours, or like a room of ours, is the project's."""
		tool = "def options(opt):\n\tprint('own', __name__)\n"
		head = WSCRIPT.replace("def options(opt):\n", "def options(opt):\n\topt.load('client large', tooldir='t')\n")
		one = own(**{"wscript": head, "t/client.py": tool, "t/large.py": tool})
		done = one.wafx("--with=large", "./waf", "configure", "build")
		assert "own client" in done.stdout and "own large" in done.stdout

	def test_extra_of_waf(self, own: Any) -> None:
		"""A project that loads ``unity`` gets that of Waf's extras, which it carries, and not ours."""
		one = own(wscript=WSCRIPT.replace("conf.load('compiler_c')", "conf.load('compiler_c unity')"))
		(one.folder / "wscript").write_text(
			(one.folder / "wscript").read_text()
			+ "\tfrom waflib import Context; print(Context.Context.tools['unity'])\n"
		)
		done = one.wafx("./waf", "configure", "build")
		assert re.search(r"waflib\.extras\.unity' from '%s" % re.escape(str(one.folder)), done.stdout)

	def test_project_that_loads_ours(self, own: Any) -> None:
		"""A wscript that imports our package and loads our tools by itself is served as before, once."""
		one = own(
			wscript="import waflib_extras\n"
			+ WSCRIPT.replace("opt.load('compiler_c')", "opt.load('compiler_c prefork wafcc')")
		)
		assert one.count("configure", "build") == (0, TESTED)


class TestStarts:
	def test_named_python(self, own: Any) -> None:
		"""The user's Python runs Waf, and not the one of the script's first line."""
		one = own(wscript=WSCRIPT + "\timport sys; print('runs on', sys.executable)\n")
		script = one.folder / "waf"
		script.write_bytes(b"#!/no/such/python\n" + script.read_bytes().partition(b"\n")[2])
		done = one.wafx(sys.executable, "./waf", "configure", "build")
		assert "runs on " + sys.executable in done.stdout

	def test_script_that_is_not_executable(self, own: Any) -> None:
		"""A script without the permission runs with the Python of its first line."""
		one = own()
		(one.folder / "waf").chmod(0o644)
		assert one.count("configure", "build")[1] > 0

	def test_script_that_calls_waf(self, own: Any) -> None:
		"""Each Waf below a program gets the tools: ``wafx ./configure``."""
		one = own(configure='#!/bin/sh\n./waf configure "$@" && cd . && ./waf build --zones=wafcc\n')
		(one.folder / "configure").chmod(0o755)
		assert "wafcc main.c: miss" in one.wafx("./configure").stdout

	def test_waf_in_a_build(self, own: Any) -> None:
		"""A Waf that a task of Waf starts gets the tools, and asks the same engine."""
		inner = (
			"\tbld(rule='cd ${SRC[0].parent.abspath()} && ./waf configure build --zones=wafcc > ${TGT[0].abspath()}'"
		)
		one = own(wscript=WSCRIPT + inner + ", source='in/wscript', target='said', shell=True)\n")
		(one.folder / "in").mkdir()
		for name in (*PROJECT, "waf"):
			shutil.copy(one.folder / name, one.folder / "in")
		(one.folder / "in" / "wscript").write_text(WSCRIPT)
		one.wafx("./waf", "configure", "build")
		assert re.search("wafcc main.c: (hit|miss)", (one.folder / "build" / "said").read_text())

	def test_sitecustomize_of_others(self, own: Any) -> None:
		"""The ``sitecustomize`` that Python would have run without us runs, and sys.path is as without us."""
		shown = "\timport sys; print('path', sys.path, sys.modules['sitecustomize'].__file__)\n"
		one = own(**{"wscript": WSCRIPT + shown, "site/sitecustomize.py": "import sys\nsys.theirs = 1\n"})
		environ = {"PYTHONPATH": str(one.folder / "site")}
		with_us, without = one.wafx("./waf", "configure", "build", env=environ), one.plain("build", env=environ)
		(expected,) = [line for line in without.stdout.splitlines() if line.startswith("path")]
		assert expected in with_us.stdout.splitlines() and "/site/sitecustomize.py" in expected

	@pytest.mark.parametrize("given", [None, "/given"])
	def test_variable(self, own: Any, given: Any) -> None:
		"""A project sees PYTHONPATH as it was, and as it sets it; programs that it starts have our folder in it."""
		shown = "\timport os; print('sees', os.environ.get('PYTHONPATH'), 'PYTHONPATH' in dict(os.environ))\n"
		shown += "\tprint('child', bld.cmd_and_log(['sh', '-c', 'echo $PYTHONPATH'], quiet=0).strip())\n"
		shown += "\tos.environ['PYTHONPATH'] = '/own'; print('sees', os.environ['PYTHONPATH'])\n"
		shown += "\tprint('child', bld.cmd_and_log(['sh', '-c', 'echo $PYTHONPATH'], quiet=0).strip())\n"
		done = own(wscript=WSCRIPT + shown).wafx("./waf", "configure", "build", env={"PYTHONPATH": given})
		lines = [line for line in done.stdout.splitlines() if line.startswith(("sees", "child"))]
		start = str(pathlib.Path("waflib_extras") / "wafx" / "start")
		assert lines[0] == f"sees {given} {given is not None}" and lines[2:] == ["sees /own", "child /own"]
		assert lines[1].endswith(start + (f":{given}" if given else ""))

	def test_other_pythons(self, own: Any) -> None:
		"""A Python that runs no Waf imports nothing of ours."""
		shown = "import sys; print([x for x in sys.modules if x.startswith(('waf', 'importlib.m'))])"
		one = own()
		plain = one.run(sys.executable, "-c", shown).stdout
		assert one.wafx(sys.executable, "-c", shown).stdout == plain

	@pytest.mark.parametrize("flag", ["-E", "-I", "-sE"])
	def test_python_that_is_deaf(self, own: Any, flag: str) -> None:
		"""A Python that takes no PYTHONPATH runs Waf as it is, and one line says so, with the remedy."""
		done = own().wafx(sys.executable, flag, "./waf", "configure")
		(line,) = list_words(done.stderr)
		assert flag in line and "wafx " in line[5:]


class TestNoHarm:
	def patch(self, own: Own, code: str) -> None:
		"""Have the project's script run code before Waf runs."""
		script = own.folder / "waf"
		call = b"\tScripting.waf_entry_point("
		assert call in script.read_bytes()
		script.write_bytes(script.read_bytes().replace(call, b"\t" + code.encode() + b"\n" + call))

	def test_old_python(self, own: Any) -> None:
		"""Below Python 3.8 Waf runs as it is, and one line says why."""
		one = own()
		text = (one.folder / "waf").read_bytes()
		(one.folder / "waf").write_bytes(
			text.replace(b"import os,", b"import sys; sys.version_info = (3, 7, 1)\nimport os,", 1)
		)
		done = one.wafx("./waf", "configure", "build")
		assert list_words(done.stderr) == [
			"wafx: the tools need Python 3.8 or newer, and this Waf runs on Python 3.7.1: it runs without them"
		]

	@pytest.mark.parametrize(("number", "version"), [("0x1081600", "1.8.22"), ("0x2020000", "2.2.0")])
	def test_other_waf(self, own: Any, number: str, version: str) -> None:
		"""A Waf of another series runs as it is, and one line says why."""
		one = own()
		self.patch(
			one, f"from waflib import Context; Context.HEXVERSION={number}; VERSION=Context.WAFVERSION={version!r}"
		)
		done = one.wafx("./waf", "configure", "build")
		(line,) = list_words(done.stderr)
		assert version in line and (one.folder / "build" / "app").exists()

	def test_tool_that_does_not_load(self, own: Any) -> None:
		"""If a tool fails to load, one line says so, and Waf builds without the tool."""
		one = own()
		self.patch(one, "from waflib import Utils; del Utils.alloc_process_pool; Utils.alloc_process_pool = None")
		self.patch(one, "Utils.alloc_process_pool = lambda n, force=False: None; del Utils.run_process")
		done = one.wafx("./waf", "configure", status=None)
		assert any("prefork: AttributeError" in line and "going on without" in line for line in list_words(done.stderr))

	def test_options_of_the_project(self, own: Any) -> None:
		"""An option or a command that the project has under a name of ours is the project's, in every place."""
		wscript = WSCRIPT.replace(
			"def options(opt):\n",
			"def options(opt):\n"
			"\topt.add_option('--load', action='store_true', default=True, dest='load', help='mine')\n"
			"\topt.add_option('--modest', dest='nice', default='very', help='mine')\n",
		)
		wscript += "\tprint('values', bld.options.load, bld.options.nice)\ndef why(ctx):\n\tprint('own why')\n"
		one = own(wscript=wscript)
		done = one.wafx("./waf", "configure", "build", "why", "--modest=not")
		assert "values True not" in done.stdout and "own why" in done.stdout
		assert (one.folder / "build" / "app").exists()

	def test_saved_options(self, own: Any) -> None:
		"""What a project saves of its options, and compares, has none of ours."""
		wscript = WSCRIPT + "\timport json; bld.path.make_node('saved').write(json.dumps(sorted(vars(bld.options))))\n"
		one = own(wscript=wscript)
		one.plain("configure", "build")
		expected = (one.folder / "saved").read_text()
		one.wafx("--with=" + ",".join(TOOLS), "./waf", "configure", "clean", "build", "--why=app")
		assert (one.folder / "saved").read_text() == expected
		lock = next(one.folder.glob(".lock-waf*")).read_text()
		assert "waflib_extras" not in re.search("^options = .*", lock, re.M).group()  # type: ignore[union-attr]

	@pytest.mark.parametrize("jobs", ["-j1", "-j3"])
	def test_patched_waf(self, own: Any, jobs: str) -> None:
		"""A project that replaces functions of Waf and of Python, as Ardupilot and Samba do, builds the same."""
		one = own(wscript=PATCHED)
		one.plain("configure", "build", jobs)
		expected = one.read_made()
		shutil.rmtree(one.folder)
		one = own(wscript=PATCHED)
		done = one.wafx("./waf", "configure", "build", jobs)
		assert one.read_made() == expected and done.stdout.count("patched execute") == 1


PATCHED = (
	"""\
import subprocess
from waflib import Build, Configure, Runner, Utils

def wrap(execute):
	def patched(self):
		if self.cmd == 'build':
			print('patched execute')
		return execute(self)
	return patched
Build.BuildContext.execute = wrap(Build.BuildContext.execute)

class Spawner:
	def __init__(self, master):
		self.sem = Utils.threading.Semaphore(master.numjobs) if hasattr(Utils, 'threading') else None
class Popen(subprocess.Popen):
	def __init__(self, *k, **kw):
		super().__init__(*k, **kw)

"""
	+ WSCRIPT.replace("def configure(conf):\n", "def configure(conf):\n\tUtils.subprocess.Popen = Popen\n")
	+ """
	if bld.jobs == 1:
		Runner.Spawner = Spawner
"""
)


class TestExtras:
	def test_gccdeps(self, own: Any) -> None:
		"""Compiles whose headers ``gccdeps`` reads from the compiler are hits, and an edited header is noticed."""
		wscript = WSCRIPT.replace("conf.load('compiler_c')", "conf.load('compiler_c gccdeps')")
		one = own(wscript=wscript)
		assert one.count("configure", "build")[1] >= COMPILES
		assert one.count("clean", "build") == (CACHED, 0)
		(one.folder / "b.h").write_text("int b(void); /* changed */\n")
		assert one.count("build")[1] == COMPILES

	def test_clang_compilation_database(self, own: Any) -> None:
		"""The database is what it is without us, and the compiles are hits."""
		wscript = WSCRIPT.replace("conf.load('compiler_c')", "conf.load('compiler_c clang_compilation_database')")
		one = own(wscript=wscript)
		one.plain("configure", "clangdb", "build")
		database = one.folder / "build" / "compile_commands.json"
		expected = json.loads(database.read_text())
		shutil.rmtree(one.folder)
		one = own(wscript=wscript)
		one.wafx("./waf", "configure", "clangdb", "build")
		assert json.loads(database.read_text()) == expected and len(expected) == COMPILES
		assert one.count("clean", "build") == (CACHED, 0)

	def test_cross_compiler(self, own: Any) -> None:
		"""A compiler with ``-specs`` and options of its own for a processor is cached, and gives the same files."""
		flag = "'-specs=' + conf.path.find_node('own.specs').abspath()"
		wscript = WSCRIPT.replace("\tconf.check(", f"\tconf.env.CFLAGS = [{flag}]\n\tconf.check(")
		specs = "%rename cc1_options old_cc1_options\n\n*cc1_options:\n%(old_cc1_options) -DSPECS=1\n"
		one = own(**{"wscript": wscript, "own.specs": specs})
		one.plain("configure", "build")
		expected = one.read_made()
		shutil.rmtree(one.folder)
		one = own(**{"wscript": wscript, "own.specs": specs})
		one.wafx("./waf", "configure", "build")
		assert one.read_made() == expected
		assert one.count("clean", "build") == (CACHED, 0)


class TestChoice:
	def loaded(self, own: Own, *options: str, env: Any = None) -> str:
		done = own.wafx(*options, "./waf", "--help", env=env)
		marks = {"prefork": "--no-prefork", "wafcc": "--no-wafcc", "large": "--no-large", "timeline": "--timeline"}
		return " ".join(
			tool for tool, mark in marks.items() if mark + " " in done.stdout + " " or mark + "=" in done.stdout
		)

	def test_order(self, own: Any) -> None:
		"""The option comes before the variable, that before the file, and that before the default."""
		one = own()
		assert self.loaded(one) == "prefork wafcc timeline"  # prefork brings the options of timeline
		(one.folder / ".wafx").write_text("# ours\nlarge\n")
		assert self.loaded(one) == "large"
		assert self.loaded(one, env={"WAFX_WITH": "timeline"}) == "timeline"
		assert self.loaded(one, "--with=large,timeline", env={"WAFX_WITH": "none"}) == "large timeline"
		assert self.loaded(one, "--with", "none") == ""

	def test_file_of_another_folder(self, own: Any) -> None:
		"""The file beside the wscript counts, wherever the command is called."""
		one = own(**{".wafx": "large", "sub/x": ""})
		done = one.wafx("sh", "-c", "./waf configure && cd sub && ../waf --help")
		assert "--no-large" in done.stdout and "--no-prefork" not in done.stdout

	def test_resident(self, own: Any) -> None:
		"""The tool that cannot work here is left out, and one line says why."""
		done = own().wafx("--with=resident,large", "./waf", "configure")
		(line,) = list_words(done.stderr)
		assert "resident is left out" in line and "Waf of its own" in line

	def test_large_timeline_and_why(self, own: Any) -> None:
		"""The other tools do here what they do elsewhere."""
		one = own()
		done = one.wafx(
			"--with=" + ",".join(x for x in TOOLS if x != "resident"),
			"./waf",
			"configure",
			"build",
			"--timeline=t.html",
		)
		assert (one.folder / "t.html").exists() and list_words(done.stderr) == []
		(one.folder / "b.c").write_text('#include "b.h"\nint b(void) { return 1; }\n')
		assert "b.c" in one.wafx("./waf", "why").stdout
		assert re.search(r"^threads +\S", one.wafx("--with=large", "./waf", "large").stdout, re.M)


class TestCommand:
	def test_help(self, own: Any) -> None:
		"""The help is our own, has examples, and names all tools."""
		done = own().wafx("--help")
		assert done.stdout.startswith("usage: wafx ") and "wafx ./waf configure build" in done.stdout
		assert all(tool in done.stdout for tool in TOOLS) and not done.stderr

	def test_help_of_the_project(self, own: Any) -> None:
		"""After the program, all options are those of the program."""
		done = own().wafx("./waf", "--help")
		assert (
			"--check-c-compiler" in done.stdout and "--no-wafcc" in done.stdout and "WAFLIB_EXTRAS" not in done.stdout
		)

	@pytest.mark.parametrize(
		("words", "status", "said"),
		[
			([], 2, "wafx ./waf configure build"),
			(["--with=prefork,nonsense", "./waf"], 2, "no tool nonsense: there are batch, large"),
			(["--with=", "./waf"], 2, "--with names no tool"),
			(["--with"], 2, "--with names no tool"),
			(["--without=x", "./waf"], 2, "no option --without"),
			(["./no-waf", "build"], 127, "no program ./no-waf"),
			(["configure", "build"], 127, "no program configure: name the project's Waf"),
			(["./wscript"], 126, "./wscript: Permission denied"),
		],
	)
	def test_mistakes(self, own: Any, words: Any, status: int, said: str) -> None:
		"""A mistake gives one line that says what to do, and nothing runs."""
		done = own().wafx(*words, status=status)
		assert said in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""

	@pytest.mark.parametrize(
		("text", "env", "said"),
		[
			("prefork wafc", {}, "/.wafx: there is no tool wafc: there are"),
			("", {}, "/.wafx names no tool"),
			("prefork", {"WAFX_WITH": "all"}, "WAFX_WITH: there is no tool all"),
		],
	)
	def test_wrong_choice(self, own: Any, text: str, env: Dict[str, str], said: str) -> None:
		"""A mistake in the file or in the variable is told before anything runs."""
		one = own(**{".wafx": text})
		done = one.wafx("./waf", "configure", env=env, status=2)
		assert said in done.stderr and done.stderr.count("\n") == 1

	def test_wrong_file_elsewhere(self, own: Any, tmp_path: pathlib.Path) -> None:
		"""A mistake in the file of another project than that of the current folder is told, and Waf runs as it is."""
		one = own(**{".wafx": "prefork wafc"})
		done = Own(tmp_path, tmp_path / "cache").wafx("env", "-C", str(one.folder), "./waf", "configure")
		(line,) = list_words(done.stderr)
		assert "there is no tool wafc" in line and line.endswith("Waf runs without tools")

	def test_status(self, own: Any) -> None:
		"""The status is that of the program, and so are its streams."""
		done = own().wafx("sh", "-c", "echo out; echo err >&2; exit 7", status=7)
		assert (done.stdout, done.stderr) == ("out\n", "err\n")
