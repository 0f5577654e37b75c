"""The project's own commands: the bootstrap ./waf, the `waf` command, bundling with waf-light."""

import ast
import importlib
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Dict

import pytest
import waflib
from clone_support import copy_tree, run
from conftest import ROOT, Completed

import waflib_extras

# the first test that needs a clone waits until the engine is compiled
pytestmark = pytest.mark.timeout(600)

WAFLIB = pathlib.Path(waflib.__file__).parent
PROJECT = """\
from waflib import Context

def options(opt):
	opt.load('prefork')

def configure(conf):
	conf.msg('the tool', Context.Context.tools['prefork'].__file__)
	conf.msg('the folder of Waf', Context.waf_dir)

def build(bld):
	bld(rule='cp ${SRC} ${TGT}', source='a.txt', target='b.txt')
"""
FILES = {"wscript": PROJECT, "a.txt": "some text"}


class TestBootstrap:
	def start(
		self, clone: pathlib.Path, environ: Dict[str, str], *args: str, cwd: pathlib.Path, **kw
	) -> "Completed[str]":
		return run([sys.executable, str(clone / "waf"), *args], environ, cwd, **kw)

	def test_second_start(self, clone, environ):
		"""A start after the first one sets up nothing and says nothing."""
		assert self.start(clone, environ, "--version", cwd=clone).stderr == ""

	def test_lists_commands(self, clone, environ):
		"""The help of ./waf names what the tree can do."""
		text = self.start(clone, environ, "--help", cwd=clone).stdout
		assert re.search(r"^  demo +: builds a generated project", text, re.M)
		assert re.search(r"^  check +: runs the tests", text, re.M)
		assert re.search(r"^  book +: makes a site of docs/", text, re.M)
		assert re.search(r"^  wheel +: makes a wheel in build/wheel", text, re.M)
		assert re.search(r"^  sdist +: makes a source distribution in build/sdist", text, re.M)

	def test_unknown_step(self, clone, environ):
		"""A step that check does not have is answered with those that it has."""
		done = self.start(clone, environ, "check", "--only=cpython,nonsense", cwd=clone, status=1)
		assert "no step nonsense in check: there are ruff" in done.stdout + done.stderr

	def test_other_folder(self, clone, environ, project):
		"""Waf runs in the folder from which ./waf is called, with the tools of the tree."""
		folder = project(FILES)
		done = self.start(clone, {**environ, "WAF_NO_PREFORK": "1"}, "configure", "build", cwd=folder)
		assert (folder / "build" / "b.txt").read_text() == "some text"
		assert "waflib_extras/prefork/__init__.py" in done.stdout

	def test_changed_tool(self, clone, environ, project):
		"""An edit in waflib_extras/ takes effect at the next start, without another setup."""
		(clone / "waflib_extras" / "newest.py").write_text("def options(opt):\n\tprint('newest is here')\n")
		folder = project({"wscript": "def options(opt):\n\topt.load('waflib_extras.newest')\n"})
		done = self.start(clone, environ, "--help", cwd=folder)
		assert "newest is here" in done.stdout
		assert done.stderr == ""

	def test_changed_engine(self, clone, environ):
		"""A change of the engine's sources is built at the next start, and only then."""
		with open(clone / "engine" / "src" / "bin" / "waf.rs", "a") as source:
			source.write("\n// changed\n")
		assert "waf: building the engine" in self.start(clone, environ, "--version", cwd=clone).stderr
		assert self.start(clone, environ, "--version", cwd=clone).stderr == ""

	def test_broken_engine(self, clone, environ):
		"""Sources that do not compile give the compiler's words and the name of the log, and no Waf runs."""
		source = clone / "engine" / "src" / "bin" / "waf.rs"
		good, before = source.read_text(), source.stat()
		source.write_text(good + "\nthis is no Rust\n")
		done = self.start(clone, environ, "--version", cwd=clone, status=1)
		source.write_text(good)
		os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
		assert "The end of build/engine.log:" in done.stderr
		assert "this is no Rust" in done.stderr
		assert "Traceback" not in done.stderr
		assert done.stdout == ""
		assert self.start(clone, environ, "--version", cwd=clone).stderr == ""

	def test_interrupted_setup(self, clone, environ):
		"""An environment without the stamp of its last step is made again, once, by two starts at once."""
		(stamp,) = (clone / "build").glob("venv-*/stamp.json")
		stamp.unlink()
		(stamp.parent / "bin" / "waf").unlink()
		command = [sys.executable, str(clone / "waf"), "--version"]
		pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
		both = [subprocess.Popen(command, cwd=clone, env=environ, **pipes) for _ in range(2)]
		answers = [x.communicate() for x in both]
		assert [x.returncode for x in both] == [0, 0], answers
		assert all(out.startswith("waf 2.1.4") for out, err in answers)
		assert sum("setting up" in err for out, err in answers) == 1

	def test_nothing_installed(self, tmp_path, environ):
		"""Without cargo and a C compiler there is one line for each, with the package to install."""
		(tmp_path / "bin").mkdir()
		poor = {**environ, "PATH": str(tmp_path / "bin"), "CARGO_HOME": str(tmp_path)}
		done = self.start(copy_tree(tmp_path / "tree"), poor, "--version", cwd=tmp_path, status=1)
		compiler, cargo = done.stderr.splitlines()
		assert compiler == "waf: the C compiler and linker (cc) is missing: apt-get install build-essential"
		assert cargo.startswith("waf: cargo is missing: install Rust ")

	def test_old_cargo(self, tmp_path, environ):
		"""A cargo that is too old is named with its version and the one that is needed."""
		(tmp_path / "bin").mkdir()
		cargo = tmp_path / "bin" / "cargo"
		cargo.write_text("#!/bin/sh\necho 'cargo 1.48.0'\n")
		cargo.chmod(0o755)
		old = {**environ, "PATH": "%s:%s" % (tmp_path / "bin", environ["PATH"])}
		done = self.start(copy_tree(tmp_path / "tree"), old, "--version", cwd=tmp_path, status=1)
		assert re.fullmatch(r"waf: cargo 1\.48\.0 is too old: install Rust 1\.\d+ or newer .*\n", done.stderr)

	def test_older_rust(self, tmp_path):
		"""With a Rust that is too old for it, the program for clusters is left out, and the others are built."""
		loader = importlib.machinery.SourceFileLoader("bootstrap", str(ROOT / "waf"))
		bootstrap = importlib.util.module_from_spec(importlib.util.spec_from_loader("bootstrap", loader))
		loader.exec_module(bootstrap)
		cargo = tmp_path / "cargo"
		for version, count in (("1.80.1", 1), ("1.200.0", 2)):
			cargo.write_text("#!/bin/sh\necho 'cargo %s (0123456 2026-01-01)'\n" % version)
			cargo.chmod(0o755)
			packages = ["--package", "wafengine", "--package", "wafcluster"]
			assert bootstrap.name_packages(str(cargo)) == packages[: 2 * count]
			assert bool(bootstrap.find_cluster_obstacle(str(cargo))) == (count == 1)

	def test_no_ensurepip(self, tmp_path, environ):
		"""A Python without ensurepip, as Debian's without python3-venv, is told which package brings it."""
		(tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ensurepip'] = None\n")
		bare = {**environ, "PYTHONPATH": str(tmp_path)}
		done = self.start(copy_tree(tmp_path / "tree"), bare, "--version", cwd=tmp_path, status=1)
		assert re.fullmatch(r"waf: Python's ensurepip is missing: apt-get install (pypy3|python3)-venv\n", done.stderr)

	def test_unwritable_tree(self, tmp_path, environ):
		"""A tree in which nothing can be made is named, with the reason."""
		tree = copy_tree(tmp_path / "tree")
		(tree / "build").write_text("in the way")
		done = self.start(tree, environ, "--version", cwd=tmp_path, status=1)
		assert re.fullmatch(r"waf: cannot set up .*/tree/build: .*\n", done.stderr)

	def test_older_python(self):
		"""An older Python 3 can read the whole script, so that it comes to the line that says what is needed."""
		source = (ROOT / "waf").read_text(encoding="utf-8")
		tree = ast.parse(source, feature_version=(3, 4))
		assert not [x for x in ast.walk(tree) if isinstance(x, ast.JoinedStr)]
		first = next(x for x in tree.body if isinstance(x, ast.If))
		assert "sys.version_info < (3, 8)" in ast.get_source_segment(source, first)


class TestLauncher:
	def test_short_name(self, waf, project):
		"""The `waf` command runs the installed Waf, and finds our tools by their short names in it."""
		folder = project(FILES)
		done = waf(folder, "configure", env={"WAF_NO_PREFORK": "1"})
		assert "waflib_extras/prefork/__init__.py" in re.search("the tool .*", done.stdout).group()

	def test_import_in_wscript(self, project):
		"""If Waf was started in another way, `import waflib_extras` in the wscript makes the tools available."""
		folder = project({"wscript": "import waflib_extras\n" + PROJECT})
		start = "from waflib import Context, Scripting; Scripting.waf_entry_point(%r, Context.WAFVERSION, %r)"
		command = [sys.executable, "-c", start % (str(folder), str(WAFLIB.parent)), "configure"]
		done = run(command, {**os.environ, "WAF_NO_PREFORK": "1"}, folder)
		assert "waflib_extras/prefork/__init__.py" in re.search("the tool .*", done.stdout).group()

	@pytest.mark.parametrize("place", ["WAFDIR", "current folder"])
	def test_other_waflib(self, waf, project, tmp_path, place):
		"""$WAFDIR, and a waflib in the current folder, are preferred to the installed one, as with waf-light."""
		folder = project(FILES)
		home = tmp_path / "home" if place == "WAFDIR" else folder
		home.mkdir(exist_ok=True)
		(home / "waflib").symlink_to(WAFLIB)
		done = waf(folder, "configure", wafdir=home if place == "WAFDIR" else None, env={"WAF_NO_PREFORK": "1"})
		assert re.search("the folder of Waf .*", done.stdout).group().split()[-1] == str(home)
		assert "waflib_extras/prefork/__init__.py" in re.search("the tool .*", done.stdout).group()

	def test_old_waf(self, waf, project, waf20):
		"""Waf 2.0 is started as well, under its own version."""
		assert waf(project(FILES), "--version", wafdir=waf20).stdout.startswith("waf 2.0.24 ")

	def test_same_as_waf_light(self, waf, project, waf_sources):
		"""Waf's output and exit status are those of waf-light."""
		folder = project({"wscript": "def configure(conf):\n\tconf.find_program('no-such-program')\n"})
		light = [sys.executable, str(waf_sources / "waf-light"), "configure"]
		theirs = run(light, dict(os.environ), folder, status=1)
		ours = waf(folder, "configure", status=1, wafdir=waf_sources)
		assert (ours.stdout, ours.stderr) == (theirs.stdout, theirs.stderr)

	def test_no_waflib(self, tmp_path):
		"""Without waflib there is one line that says how to install it."""
		(tmp_path / "waflib_extras").symlink_to(ROOT / "waflib_extras")
		launcher = str(ROOT / "waflib_extras" / "launcher" / "__main__.py")
		bare = {**os.environ, "PYTHONPATH": str(tmp_path)}
		done = run([sys.executable, "-S", launcher, "--version"], bare, tmp_path, status=1)
		assert re.fullmatch("waf: there is no waflib for .*: run .* -m pip install waflib\n", done.stderr)

	def test_lost_folder(self, tmp_path):
		"""A current folder that was deleted is told in one line."""
		lost = tmp_path / "lost"
		lost.mkdir()
		script = "cd '%s' && rmdir '%s' && exec '%s' '%s' --version"
		launcher = ROOT / "waflib_extras" / "launcher" / "__main__.py"
		command = ["sh", "-c", script % (lost, lost, sys.executable, launcher)]
		done = run(command, dict(os.environ), tmp_path, status=1)
		assert done.stderr == "waf: the current folder does not exist any more: change to one that does\n"

	def test_offered_once(self):
		"""Our tools are put among Waf's extras once, however often that is asked for, as one module by both names."""
		assert waflib_extras.offer_tools()
		assert waflib_extras.offer_tools()
		assert sum(isinstance(x, waflib_extras.ToolFinder) for x in sys.meta_path) == 1
		for tool in waflib_extras.TOOLS:
			short = importlib.import_module("waflib.extras." + tool)
			assert short is importlib.import_module("waflib_extras." + tool)
			assert short.__spec__.name == "waflib_extras." + tool

	def test_own_tools_of_a_project(self, waf, project):
		"""A project's own tool may have the name of one of our folders that is no tool."""
		wscript = "def options(opt):\n\topt.load('client', tooldir='.')\n\topt.load('console')\n"
		wscript += "def configure(conf):\n\tpass\n"
		own = "def options(opt):\n\tprint('own', __name__)\n"
		folder = project({"wscript": wscript, "client.py": own, "console.py": own})
		done = waf(folder, "configure", env={"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])})
		assert "own client" in done.stdout
		assert "own console" in done.stdout


@pytest.fixture(scope="session", params=["folder", "rooms"])
def bundled(request, waf_sources, tmp_path_factory) -> pathlib.Path:
	"""A project with a single `waf` file into which waf-light has put our tools."""
	tree = tmp_path_factory.mktemp("light") / "waf"
	shutil.copytree(waf_sources, tree)
	tools = ROOT / "waflib_extras"
	options = ["--tools=%s" % ",".join(str(x) for x in tools.glob("[!_]*"))]
	if request.param == "folder":
		options = ["--tools=%s" % tools, "--prelude=\timport waflib.extras.waflib_extras\n"]
	run([sys.executable, "waf-light", *options], dict(os.environ), tree)
	folder = tree.parent / "project"
	folder.mkdir()
	shutil.copy(tree / "waf", folder)
	for name, content in FILES.items():
		(folder / name).write_text(content)
	return folder


class TestBundle:
	def test_tools_survive(self, bundled):
		"""Every module can still be compiled after waf-light has stripped it."""
		run([sys.executable, "waf", "--version"], dict(os.environ), bundled)
		(extras,) = bundled.glob(".waf3-*/waflib/extras")
		whole = extras / "waflib_extras"
		root = whole if whole.exists() else extras
		for path in (ROOT / "waflib_extras").rglob("*.py"):
			stripped = root / path.relative_to(ROOT / "waflib_extras")
			compile(stripped.read_text(encoding="utf-8"), str(stripped), "exec")

	def test_patches_fit(self, bundled, tmp_path):
		"""The bundled `large` knows the functions of Waf in the same file, though comments are gone from them."""
		shutil.copy(bundled / "waf", tmp_path)
		(tmp_path / "wscript").write_text("def options(opt):\n\topt.load('large')\n")
		done = run([sys.executable, "waf", "large"], dict(os.environ), tmp_path)
		text = done.stdout + done.stderr
		assert "\nthreads " in text
		assert [line for line in text.splitlines() if "left out" in line and not line.startswith("collector")] == []

	def test_build(self, bundled, engine, runtime):
		"""A build with the bundled tool runs, and has the engine that $WAFD names execute its commands."""
		environ = {**os.environ, "WAFD": engine}
		done = run([sys.executable, "waf", "configure", "build"], environ, bundled)
		assert str(bundled) in re.search("the tool .*", done.stdout).group()
		assert (bundled / "build" / "b.txt").read_text() == "some text"
		assert list(runtime.glob("wafd-*.sock"))
