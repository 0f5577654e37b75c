"""utils/clusterfaults.py finds builds that a cluster has harmed, and nothing else; and our builds are not harmed."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
from typing import Any, Dict, List

import pytest
from cluster_support import Cluster, Database
from conftest import ROOT

sys.path.insert(0, str(ROOT / "utils"))

import clusterfaults
from clusters import trial, upsets
from clusters.course import Project, compile_plainly
from clusters.database import missing
from clusters.line import Line
from remote_client import Client, Refused

pytestmark = [
	pytest.mark.timeout(600),
	pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc"),
]


@pytest.fixture
def project(tmp_path: pathlib.Path) -> Project:
	(tmp_path / "a.c").write_text("int a;\n")
	(tmp_path / "b.c").write_text("int b;\n")
	(tmp_path / "commands.txt").write_text("gcc -c a.c -o out/a.o\ngcc -c b.c -o out/b.o\n")
	return Project("small", tmp_path)


def run_faults(engine: str, folder: pathlib.Path, *options: str) -> "subprocess.CompletedProcess[str]":
	argv = [sys.executable, str(ROOT / "utils" / "clusterfaults.py"), "--work", str(folder), *options]
	environ = {**os.environ, "WAFD": engine}
	return subprocess.run(argv, env=environ, capture_output=True, encoding="utf-8", timeout=550, check=False)


def test_a_planted_difference_is_found(project: Project) -> None:
	"""An object of another content is one, and so is one that is not there."""
	right = compile_plainly(project).digests
	assert trial.find_different(project, right) == []
	with open(project.folder / "out" / "a.o", "ab") as file:
		file.write(b"\0")
	assert trial.find_different(project, right) == ["out/a.o"]
	(project.folder / "out" / "b.o").unlink()
	assert trial.find_different(project, right) == ["out/a.o", "out/b.o"]


def test_failures_are_told(project: Project) -> None:
	"""What a compile says, how it ends, and that it does not end; a compile that is silent and succeeds is none."""

	class Fake:
		def run(self, command: List[str], folder: pathlib.Path, seconds: float) -> Any:
			return answers[command[-1]]

	answers: Dict[str, Any] = {"out/a.o": (0, ""), "out/b.o": (0, "")}
	assert trial.build(project, Fake(), 5).failed == []  # type: ignore[arg-type]
	answers["out/b.o"] = (0, "a warning that no compiler wrote\n")
	assert trial.build(project, Fake(), 5).failed == ["out/b.o: status 0: a warning that no compiler wrote"]  # type: ignore[arg-type]
	answers.update({"out/a.o": (1, "no"), "out/b.o": (None, "")})
	assert trial.build(project, Fake(), 5).failed == ["out/a.o: status 1: no", "out/b.o: not done after 5 s"]  # type: ignore[arg-type]


def test_each_kind_takes_its_turn() -> None:
	"""A seed decides the order, and every kind comes once before one comes twice."""
	kinds = clusterfaults.find_kinds([], True)
	order = [clusterfaults.kind_of(kinds, 7, number) for number in range(2 * len(kinds))]
	assert sorted(order[: len(kinds)]) == sorted(order[len(kinds) :]) == sorted(upsets.UPSETS)
	assert order == [clusterfaults.kind_of(kinds, 7, number) for number in range(2 * len(kinds))]
	assert order[: len(kinds)] != order[len(kinds) :]


def test_a_table_sums_up() -> None:
	"""A row for each kind, with the longest time."""
	good = trial.Result(0, "line-cut", 9, 4, {}, [], [], [], [], 2.0)
	harmed = trial.Result(1, "line-cut", 8, 3, {}, ["x"], ["y", "z"], [], [], 9.5)
	assert good.is_good and not harmed.is_good
	rows = [line.split() for line in clusterfaults.show([good, harmed]).splitlines()]
	assert rows[1:] == [["line-cut", "2", "17", "7", "1", "2", "0", "9.5", "s"]]
	assert "y has other content" in clusterfaults.report(harmed, "again")


def test_mistakes_are_one_line(engine: str, tmp_path: pathlib.Path) -> None:
	done = run_faults(engine, tmp_path, "--list")
	assert done.returncode == 0 and {line.split()[0] for line in done.stdout.splitlines()} == set(upsets.UPSETS)
	if missing():
		pytest.skip(missing())
	done = run_faults(engine, tmp_path, "--kinds", "flood")
	assert done.returncode == 2 and done.stderr == "clusterfaults: no kind flood: --list shows all\n"
	assert not os.listdir(str(tmp_path))


class TestLine:
	"""What is between a client and its server."""

	@pytest.fixture
	def line(self, buildgrid: Cluster) -> Any:
		line = Line(buildgrid.port)
		yield line
		line.close()

	@pytest.fixture
	def client(self, buildgrid: Cluster, line: Line) -> Client:
		class Behind(Cluster):
			def __init__(self) -> None:
				self.port = line.port

		return Client(Behind())

	def test_it_carries_calls_and_their_statuses(self, client: Client) -> None:
		"""Contents come back through it, and so does what the server says of an action that it does not know."""
		client.upload([b"some words"])
		assert client.read(client.digest(b"some words")) == b"some words"
		with pytest.raises((Refused, client_error())) as refused:
			client.execute(client.digest(b"no action"))
		assert "FAILED_PRECONDITION" in str(refused.value)

	def test_it_is_silent_and_cut(self, client: Client, line: Line) -> None:
		"""A silent line answers nothing until it is healed; one that is cut ends the call."""
		client.upload([b"text"])
		line.is_silent = True
		came: List[bytes] = []
		reader = threading.Thread(target=lambda: came.append(client.read(client.digest(b"text"))))
		reader.start()
		reader.join(0.5)
		assert reader.is_alive() and not came
		line.heal()
		reader.join(60)
		assert came == [b"text"]
		line.cut()
		with pytest.raises(client_error()) as failed:
			client.read(client.digest(b"text"))
		assert failed.value.code().name == "UNAVAILABLE"

	def test_it_changes_requests(self, client: Client, line: Line) -> None:
		seen = []

		def change(method: str, request: bytes) -> bytes:
			seen.append(method.rsplit("/", 1)[-1])
			return request.replace(b"one", b"two")

		line.change = change
		with pytest.raises(AssertionError):
			client.upload([b"one"])  # its digest is not that of the other one
		assert seen == ["BatchUpdateBlobs"]


def client_error() -> Any:
	import grpc

	return grpc.RpcError


# the program tries all kinds; each takes a while
@pytest.mark.thorough
@pytest.mark.parametrize(
	"kind", ["worker-killed", "server-restarted", "contents-lost", "program-killed", "lie-renamed"]
)
def test_our_builds_stand(kind: str, engine: str, database: Database, tmp_path: pathlib.Path) -> None:
	"""A build whose cluster is disturbed makes what a plain build makes."""
	if upsets.UPSETS[kind].needs_root and os.geteuid():
		pytest.skip("needs root")
	record = tmp_path / "record.json"
	options = ["--kinds", kind, "--trials", "1", "--seed", str(random.Random(kind).randrange(1000))]
	done = run_faults(engine, tmp_path, *options, "--json", str(record))
	assert done.returncode == 0, f"{done.stdout}{done.stderr}"
	(told,) = [one for one in json.loads(record.read_text())["trials"] if one["kind"] == kind]
	assert told["sent"]
