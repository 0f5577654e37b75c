"""
Waf's own demos, tests and playground, and jack2, build with `wafx --with=prefork` as they do with stock Waf: the same
bytes, the same messages, and every command by way of the engine. `utils/conformance/projects.py` lists them, and each
exception with its reason.
"""

import pathlib
import platform
import shutil
from typing import Any, Dict, Iterator, List, Mapping, Sequence

import pytest
from conformance import projects, twins
from conformance.projects import OUTSIDE, PARTS, PROJECTS, Project
from conformance.workbench import Pair, Workbench
from conftest import leave_out
from ready_python import ReadyPython

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's tools end before it would pay to optimize them. On both sides they print that this is set."""
PYPY = platform.python_implementation() == "PyPy"


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
	"""The folder for compiled modules of all Wafs in this file, since the folders of the sources are not ours."""
	return tmp_path_factory.mktemp("bytecode")


class ReadyWafs:
	"""Runs Waf in forks of Pythons that have started already: one for stock Waf, and one with our tools in its path."""

	def __init__(self) -> None:
		self.pythons: Dict[str, ReadyPython] = {}

	def run(self, command: Sequence[str], cwd: pathlib.Path, env: Mapping[str, str], timeout: float) -> twins.Run:
		script = shutil.which(command[0], path=env["PATH"])
		assert script
		python = self.pythons.setdefault(env["PYTHONPATH"], ReadyPython())
		done = python.run_for_bytes([script, *command[1:]], cwd, dict(env), timeout)
		assert done, "it has read other variables at its start"
		return twins.Run(tuple(command), done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def ready_wafs() -> Iterator[ReadyWafs]:
	"""The processes in whose forks this file runs Waf."""
	ready = ReadyWafs()
	yield ready
	for python in ready.pythons.values():
		python.end()


@pytest.fixture
def folder(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
	"""A folder to build in, with an engine in reach."""
	monkeypatch.setenv("WAFD", engine)
	return tmp_path


@pytest.fixture
def workbench(
	waf_sources: pathlib.Path, folder: pathlib.Path, bytecode: pathlib.Path, ready_wafs: ReadyWafs
) -> Workbench:
	"""Builds Waf's own projects with Waf 2.1."""
	made = Workbench(waf_sources, waf_sources, folder, bytecode, run=ready_wafs.run)
	made.env["JAVA_TOOL_OPTIONS"] = JAVA
	return made


@pytest.fixture
def workbench20(
	waf_sources: pathlib.Path,
	waf20: pathlib.Path,
	folder: pathlib.Path,
	bytecode: pathlib.Path,
	ready_wafs: ReadyWafs,
) -> Workbench:
	"""Builds Waf's own projects with Waf 2.0."""
	return Workbench(waf_sources, waf20, folder, bytecode, run=ready_wafs.run)


def each_of(chosen: List[Project], once: bool = False) -> Any:
	"""Parametrize by project, with all its numbers of jobs, or with the largest number alone."""
	if once:
		chosen = [project._replace(jobs=project.job_numbers[-1:]) for project in chosen]
	return pytest.mark.parametrize("project", chosen, ids=[project.name for project in chosen])


def choose(*names: str) -> List[Project]:
	return [project for project in PROJECTS if project.name in names]


def assert_same(project: Project, pairs: List[Pair]) -> None:
	"""Fail with everything that differs, and leave it there to be looked at."""
	for pair in pairs:
		differences = pair.find_differences(project)
		if differences:
			title = f"{project.name} -j{pair.jobs}: stock, and with prefork:"
			pytest.fail("\n".join([title, *differences[:60], *map(str, pair.ours.runs)]), pytrace=False)
	for folder in {build.folder for pair in pairs for build in (pair.stock, pair.ours)}:
		shutil.rmtree(folder)


def require_built(project: Project, build: twins.Build) -> None:
	"""A project that ought to build does: in CI it must, elsewhere something may be missing that it needs."""
	if build.succeeded:
		return
	needed = project.needs or "a C and C++ compiler"
	leave_out(f"{project.name} does not build with stock Waf here; it needs {needed}\n{build.runs[-1]}")


@each_of(choose(*projects.ON_PYPY) if PYPY else PROJECTS, once=PYPY)
def test_builds_the_same(project: Project, workbench: Workbench) -> None:
	"""A project of Waf's own gives the same files, exit statuses and messages, and the engine runs all its commands."""
	pairs = list(workbench.build_pairs(project))
	require_built(project, pairs[0].stock)
	assert_same(project, pairs)


@pytest.mark.skipif(PYPY, reason="nothing in it depends on the interpreter")
@pytest.mark.parametrize("project", OUTSIDE, ids=[project.name for project in OUTSIDE])
def test_fails_the_same(project: Project, workbench: Workbench) -> None:
	"""A project that stock Waf cannot build here fails with the same messages and the same exit status."""
	(pair,) = workbench.build_pairs(project)
	if pair.stock.succeeded:
		pytest.skip(f"{project.name} builds here: it can move to PROJECTS with what it needs")
	assert_same(project, [pair])


@each_of([] if PYPY else choose(*projects.ON_WAF_2_0), once=True)
def test_builds_the_same_on_waf_2_0(project: Project, workbench20: Workbench) -> None:
	"""Waf 2.0.24 builds the same with `prefork`, too."""
	(pair,) = workbench20.build_pairs(project)
	require_built(project, pair.stock)
	assert_same(project, [pair])


def test_no_project_is_left_out(waf_sources: pathlib.Path) -> None:
	"""Every folder with a wscript in Waf's sdist is listed once: to build, as one that does not build, or as a part."""
	scripts = [path for kind in ("demos", "playground", "tests") for path in (waf_sources / kind).rglob("wscript")]
	found = sorted(str(path.parent.relative_to(waf_sources)) for path in scripts)
	assert found == sorted([project.name for project in PROJECTS + OUTSIDE] + list(PARTS))
	assert not [name for name in PARTS if "def configure" in (waf_sources / name / "wscript").read_text()]
	assert all(project.outside for project in OUTSIDE) and not any(project.outside for project in PROJECTS)


BEFORE = {"main.o": b"object", "config.log": b"# project x (1) configured on Fri by\n", "foo.jar": b"jar"}
RUN = twins.Run(("waf", "build"), 0, b"[1/2] a\n[2/2] b\n'build' finished successfully (0.1s)\n", b"warning\n")


def write_build(folder: pathlib.Path, files: "dict[str, bytes]", run: twins.Run) -> twins.Build:
	folder.mkdir()
	for name, content in files.items():
		(folder / name).write_bytes(content)
	return twins.Build(folder, [run])


@pytest.mark.parametrize(
	("change", "run", "seen"),
	[
		({}, RUN, []),
		({"main.o": b"another"}, RUN, ["main.o: another content"]),
		({"new.o": b""}, RUN, ["new.o: only in the second"]),
		({"foo.jar": b"from another minute"}, RUN, []),
		({"config.log": b"# project x (1) configured on Sat by\n"}, RUN, []),
		({"config.log": b"# project y (1) configured on Fri by\n"}, RUN, ["config.log: another content"]),
		({".lock-waf_linux_build": b"pid"}, RUN, []),
		({}, RUN._replace(status=1), ["status 0, status 1"]),
		({}, RUN._replace(stderr=b""), ["stderr - warning"]),
		({}, RUN._replace(stdout=RUN.stdout.replace(b"0.1", b"7.2")), []),
		({}, RUN._replace(stdout=RUN.stdout.replace(b"] a", b"] c")), ["stdout - [1/2] a", "stdout + [1/2] c"]),
	],
)
def test_a_difference_is_seen(
	change: "dict[str, bytes]", run: twins.Run, seen: List[str], tmp_path: pathlib.Path
) -> None:
	"""The comparison that this file rests on tells what differs, and passes over what is exempt."""
	exemption = twins.Exemption("*.jar", twins.close_eyes, "for this test")
	one = write_build(tmp_path / "one", BEFORE, RUN)
	other = write_build(tmp_path / "other", {**BEFORE, **change}, run)
	assert twins.compare_builds(one, other, twins.Standard(exemptions=[exemption])) == seen


@pytest.mark.parametrize(("ordered", "same"), [(True, False), (False, True)])
def test_the_order_counts_with_one_job(ordered: bool, same: bool) -> None:
	"""Messages in another order differ when one job ran at a time, and do not when several did."""
	turned = b"[1/2] b\n[2/2] a\n'build' finished successfully (0.1s)\n"
	assert (not twins.compare_messages(RUN.stdout, turned, twins.Standard(ordered))) == same
