"""Compiles on a cluster whose workers are of another make."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from typing import Iterator

import pytest
from cache_support import COMPILERS, PATIENCE
from cluster_support import Cluster
from conftest import ROOT
from execute_support import CC, LINE, LONG, finish, needs_compiler, needs_root, slots_taken, start, until
from foreign_worker import ForeignWorker
from tier_support import Machine, Make

pytestmark = [needs_compiler, needs_root]  # root, so that the worker may run commands as another user
OTHER_USER = 65534  # one without rights
WITHOUT_RIGHTS = (
	"unshare",
	"--user",
	"--map-root-user",
	"sh",
	"-c",
	'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all "$@"',
	"sh",
)
"""In a container, root mostly can make no namespaces."""


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
	"""A folder that other users reach."""
	with tempfile.TemporaryDirectory(prefix="foreign-") as folder:
		os.chmod(folder, 0o755)
		yield pathlib.Path(folder).resolve()


@pytest.fixture
def here(machine: Make, buildgrid: Cluster) -> Machine:
	found = machine(buildgrid.address + "|execute|workers=any")
	found.environ["PWD"] = str(ROOT)
	return found


def reasons(machine: Machine) -> dict:
	return dict(machine.remote()["not_executed"])


@pytest.mark.parametrize("user", [0, OTHER_USER])
@pytest.mark.parametrize("cc", COMPILERS)
def test_a_compile_runs_there(here: Machine, buildgrid: Cluster, place: pathlib.Path, cc: str, user: int) -> None:
	"""The command sees its files where they are here, with links and headers of the system; its object is the same."""
	os.chown(place, user, user)
	here.write("inc/f.h", "#define F 7\n")
	(here.folder / "way").symlink_to("inc")
	(here.folder / "straight").symlink_to(here.folder / "inc")
	text = '#warning hear this\n#include <stdio.h>\n#include "f.h"\n#include "inc/f.h"\n'
	here.write("x.c", text + "char f[] = __FILE__;\nint n = F;\n")
	line = f"{cc} -g -Iway -I{here.folder}/straight -MD -c {here.folder}/x.c -o x.o"
	with ForeignWorker(buildgrid, place).run() as worker, slots_taken(here):
		said = here.same(line)
		assert f"compiled by grpc://127.0.0.1:{buildgrid.port}/team" in said, (said, worker.seen)
	remote = here.remote()
	assert (remote["executed"], remote["not_executed"]) == (1, {})
	assert remote["bytes_out"] > os.path.getsize(here.engine), "our programs were sent"
	assert here.same(line).startswith("hit")


def test_workers_of_ours_run_such_commands_too(here: Machine, buildgrid: Cluster, engine: str) -> None:
	buildgrid.worker(engine)
	here.write("x.c", "int f;\n")
	with slots_taken(here):
		assert "compiled by" in here.same(LINE)
	assert here.remote()["executed"] == 1


def test_what_fails_there_runs_here(here: Machine, buildgrid: Cluster, place: pathlib.Path) -> None:
	here.write("x.c", "int f(\n")
	with ForeignWorker(buildgrid, place).run():
		with slots_taken(here):
			process = start(here, LINE)
			until(lambda: reasons(here), "a reason")
		said, _ = process.communicate(timeout=PATIENCE)
	assert (process.returncode, b"x.c:1" in said) == (1, True)
	assert reasons(here) == {"the worker has no entry of it": 1}


def test_a_worker_without_namespaces_is_left_alone(here: Machine, buildgrid: Cluster, place: pathlib.Path) -> None:
	"""It says why, and after three commands no further one goes there."""
	names = ["a", "b", "c", "d", "e"]
	for name in names:
		here.write(f"{name}.c", f"int {name};\n")
	with ForeignWorker(buildgrid, place, WITHOUT_RIGHTS).run() as worker:
		with slots_taken(here):
			processes = []
			for name in names:
				processes.append(start(here, f"{CC} -c {name}.c -o {name}.o"))
				until(lambda: sum(reasons(here).values()) == min(len(processes), 3), f"a reason; {worker.seen}")
		for process in processes:
			finish(process)
		assert len(worker.seen) == 3
	assert reasons(here) == {"the cluster failed": 3}
	assert "namespaces are not permitted" in here.explain(here.folder / "a.o")


def test_commands_for_our_own_workers_fail_on_others(machine: Make, buildgrid: Cluster, place: pathlib.Path) -> None:
	"""Without `workers=any`, another worker runs the bare compiler, whose result is not used."""
	here = machine(buildgrid.address + "|execute")
	here.write("x.c", "int f;\n")
	with ForeignWorker(buildgrid, place).run() as worker:
		with slots_taken(here):
			process = start(here, LINE)
			until(lambda: reasons(here), "a reason")
		finish(process)
		assert len(worker.seen) == 1
	assert reasons(here) == {"the cluster failed": 1}
	assert "none of ours" in here.explain(here.folder / "x.o")


def test_nothing_outlives_a_command_that_is_killed(here: Machine, buildgrid: Cluster, place: pathlib.Path) -> None:
	"""Its namespaces end with it, so that the worker can remove all files; and it runs here."""
	here.write("x.c", LONG + LONG.replace("int f", "int g"))
	line = LINE.replace("-c", "-O3 -c")
	with ForeignWorker(buildgrid, place, ("timeout", "--foreground", "--signal=KILL", "0.7")).run() as worker:
		with slots_taken(here):
			process = start(here, line)
			until(lambda: reasons(here), "a reason")
		finish(process)
	assert [status for status, _ in worker.seen] == [137]
	assert reasons(here) == {"the cluster failed": 1}

	def is_used(process: pathlib.Path) -> bool:
		with contextlib.suppress(OSError):
			return str(place) in (process / "mountinfo").read_text()
		return False

	until(lambda: not any(map(is_used, pathlib.Path("/proc").glob("[0-9]*"))), "all its processes have ended")
	shutil.rmtree(place / "0")
