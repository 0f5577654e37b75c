"""Fixtures for all tests: a project in a folder, Waf run in it, an engine of the test's own, others' sources."""

import contextlib
import fnmatch
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from typing import Callable, Dict, Iterator, List, NoReturn, Optional, Union

import pytest

pytest_plugins = [  # fixtures of some tests only
	"cache_support",
	"clone_support",
	"compiler_support",
	"fake_engine",
	"prefork_probes",
	"tier_support",
	"tier_servers",
	"cluster_support",
	"execute_support",
	"room_server",
	"serve_support",
	"host_support",
	"resident_support",
	"browser_support",
	"dashboard_support",
]
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "utils"))

from ready_python import ReadyPython  # noqa: E402
from sabotage.processes import list_processes, wait_until_gone  # noqa: E402

THOROUGH = (
	"test_bench*.py",
	"test_compare*.py",
	"test_conformance.py",
	"test_courses_observed.py",
	"test_faults.py",
	"test_fuzz*.py",
	"test_genbench.py",
	"test_hanging_store.py",
	"test_house.py",
	"test_killed_engines.py",
	"test_package.py",
	"test_resident_sketch.py",
	"test_serve_hostile.py",
	"test_tiers_forged.py",
	"test_waf_soundness.py",
	"test_wafx_projects.py",
	"test_wafx_versions.py",
)
"""Tests that take long: all of Waf's projects, campaigns, attacks, benchmarks, clones of the tree, frozen disks."""

SLOW = set((ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").split())
"""Single tests that take long, as `utils/slow_tests.py` has found."""

on_cpython = pytest.mark.on_cpython
"""For a test or a value in which nothing depends on the interpreter. ``ON_CPYTHON`` in ``wscript`` has whole files."""

FIRST = (
	"test_conformance.py",
	"test_package.py",
	"test_wafx_projects.py",
	"test_waf_wafcc.py",
	"test_faults.py",
	"test_fuzz*.py",
	"test_house.py",
)
"""Files that take longest. They begin first, so that no worker is alone with one of them at the end."""

UNKNOWING = (
	"test_bench_unparked.py",
	"test_cache_parked.py",
	"test_classes.py",
	"test_courses*.py",
	"test_crates.py",
	"test_everyday.py",
	"test_parked*.py",
	"test_prefork_absence.py",
)
"""Tests of what an engine finds out about programs, and tests that list what is in their runtime folder."""

# most tests compare what Waf says with what stock Waf says, or script what an engine is asked
os.environ["WAF_PREFORK_SUMMARY"] = "no"
# a poller of gRPC that has seen a fork writes errors into what the child says, or aborts it
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
# others use the machine, too, and an engine may be slow to start
os.environ.setdefault("WAFD_PATIENCE", "20")
Completed = subprocess.CompletedProcess

# nohup and background jobs of a shell ignore these signals, and all programs that the tests start would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# what the installed "waf" command runs, and the same with tools loaded first, as if the project's options did it
LAUNCH = """\
import sys
from waflib_extras import launcher
"""
LOAD_FIRST = """\
launcher.prefer_own_waflib()
import waflib_extras
from waflib import Options
waflib_extras.offer_tools()
class ToolsFirst(Options.OptionsContext):
	cmd = "options"
	def execute(self):
		self.load(%r)
		super().execute()
"""


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
	"""Leave out those of CPython, mark those that only ``./waf check --all`` runs, and put the longest files first."""
	if sys.implementation.name == "pypy":
		left_out = [item for item in items if item.get_closest_marker("on_cpython")]
		config.hook.pytest_deselected(items=left_out)
		items[:] = [item for item in items if item not in left_out]
	for item in items:
		is_in_browser = "chromium" in getattr(item, "fixturenames", ())
		name = item.nodeid.partition("[")[0].rpartition("/")[2]
		if is_in_browser or name in SLOW or any(fnmatch.fnmatch(item.path.name, pattern) for pattern in THOROUGH):
			item.add_marker("thorough")
	items.sort(key=find_place)


def find_place(item: pytest.Item) -> int:
	"""The place of a test's file in ``FIRST``; others have the last one."""
	return next((n for n, pattern in enumerate(FIRST) if fnmatch.fnmatch(item.path.name, pattern)), len(FIRST))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
	"""A test that needs an installable program is skipped if that is missing, but fails in CI."""
	report = (yield).get_result()  # type: ignore[misc]
	if report.skipped and os.environ.get("CI") and "apt-get install" in str(report.longrepr):
		report.outcome = "failed"


def find_engine() -> Optional[str]:
	"""The engine that `./waf check` has built, or an installed one."""
	beside = pathlib.Path(sys.executable).parent / "wafd"
	return os.environ.get("WAFD") or (str(beside) if beside.exists() else shutil.which("wafd"))


@pytest.fixture(scope="session")
def engine() -> str:
	"""Path of wafd."""
	path = find_engine()
	if not path or not os.access(path, os.X_OK):
		pytest.fail(f"wafd is not built ({path or 'nowhere found'}): run ./waf check, or set WAFD", pytrace=False)
	return path


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
	"""
	What engines of earlier tests have found out about programs that they park. A login's next engine knows that, too.

	Without it, the engine of each test runs every compiler some thirty times.
	"""
	return tmp_path_factory.mktemp("verdicts")


def copy_verdicts(source: pathlib.Path, target: pathlib.Path) -> None:
	for path in source.glob("*.verdicts"):
		shutil.copy(path, target)


@pytest.fixture
def runtime(
	request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, verdicts: pathlib.Path
) -> Iterator[pathlib.Path]:
	"""A runtime folder of the test's own; an engine started in it is stopped, and must leave nothing behind."""
	# short, as a socket's path has about a hundred bytes; so not below tmp_path
	folder = pathlib.Path(tempfile.mkdtemp(prefix="wafd-"))
	is_unknowing = any(fnmatch.fnmatch(request.path.name, pattern) for pattern in UNKNOWING)
	if not is_unknowing:
		copy_verdicts(verdicts, folder)
	monkeypatch.setenv("WAFD_RUNTIME_DIR", str(folder))
	yield folder
	wafd = find_engine()
	if wafd and list_processes(folder, True):
		# stores that are not the default one have engines below it
		for each in (folder, *folder.glob("[0-9a-f]" * 16)):
			environ = dict(os.environ, WAFD_RUNTIME_DIR=str(each))
			subprocess.run([wafd, "stop", "--now"], env=environ, capture_output=True, timeout=30, check=False)
	left = wait_until_gone(folder, is_nested=True)
	for pid in left:
		with contextlib.suppress(ProcessLookupError):
			os.kill(pid, 9)
	if not is_unknowing:
		copy_verdicts(folder, verdicts)
	shutil.rmtree(folder, ignore_errors=True)
	assert not left, f"processes were left behind: {left}"


@pytest.fixture
def project(tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
	"""A function that writes files, given as {path: content}, into a project's folder, and returns the folder."""

	def write(files: Dict[str, Union[str, bytes]], name: str = "project") -> pathlib.Path:
		folder = tmp_path / name
		folder.mkdir(exist_ok=True)
		for path, content in files.items():
			file = folder / path
			file.parent.mkdir(parents=True, exist_ok=True)
			file.write_bytes(content if isinstance(content, bytes) else textwrap.dedent(content).encode())
		return folder

	return write


@pytest.fixture(scope="session")
def ready_python() -> Iterator[ReadyPython]:
	"""The process in whose forks the fixture `waf` runs Waf."""
	ready = ReadyPython()
	yield ready
	ready.end()


@pytest.fixture
def own_process(ready_python: ReadyPython) -> Iterator[None]:
	"""In this test, each Waf is a process that the test itself has started, and inherits from it."""
	ready_python.is_allowed = False
	yield
	ready_python.is_allowed = True


@pytest.fixture
def waf(
	runtime: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, ready_python: ReadyPython
) -> Callable[..., "Completed[str]"]:
	"""A function that runs the `waf` command in a folder; `tools` are loaded before the project's own options."""

	def run(
		folder: pathlib.Path,
		*args: str,
		tools: str = "",
		env: Optional[Dict[str, Optional[str]]] = None,
		interpreter: Optional[str] = None,
		wafdir: Optional[pathlib.Path] = None,
		status: Optional[int] = 0,
		timeout: float = 100,
	) -> "Completed[str]":
		script = tmp_path_factory.mktemp("bin") / "waf"
		script.write_text(LAUNCH + (LOAD_FIRST % tools if tools else "") + "launcher.main()\n")
		changes = dict(env or {}, **({"WAFDIR": str(wafdir)} if wafdir else {}))
		environ = {k: v for k, v in {**os.environ, **changes}.items() if v is not None}
		done = None if interpreter else ready_python.run([str(script), *args], folder, environ, timeout)
		done = done or subprocess.run(
			[interpreter or sys.executable, str(script), *args],
			cwd=folder,
			env=environ,
			stdin=subprocess.DEVNULL,
			capture_output=True,
			encoding="utf-8",
			errors="surrogateescape",
			timeout=timeout,
			check=False,
		)
		if status is not None and done.returncode != status:
			pytest.fail(f"waf {' '.join(args)}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
		return done

	return run


def leave_out(reason: str) -> NoReturn:
	"""Skip a test that lacks something here. In CI, where nothing is left out, it fails."""
	if os.environ.get("CI"):
		pytest.fail(reason, pytrace=False)
	pytest.skip(reason)


def find_source(pattern: str) -> pathlib.Path:
	"""A folder below $WAF_SOURCES with another project's sources. Without it the test is skipped, but fails in CI."""
	folder = pathlib.Path(os.environ.get("WAF_SOURCES") or ROOT / "build" / "sources")
	found = sorted(folder.glob(pattern))
	if found:
		return found[-1]
	leave_out(f"no {pattern} in {folder}: ./waf check fetches Waf's own sources, .ci/run those of Debian")


@pytest.fixture(scope="session")
def waf_sources() -> pathlib.Path:
	"""The tree of Waf 2.1: waf-light, demos, tests, playground, utils. To be copied, not built in."""
	return find_source("waflib-2.1.*/submodules/waf")


@pytest.fixture(scope="session")
def jack_sources() -> pathlib.Path:
	"""The tree of jack2, with a Waf 2.0.12 of its own. To be copied, not built in."""
	return find_source("jack2-*")


@pytest.fixture(scope="session")
def waf20() -> pathlib.Path:
	"""A folder that holds the `waflib` of 2.0.24, to be given to the fixture `waf` as `wafdir`."""
	return find_source("ntpsec-*")
