"""Commands of a cluster that `wafd worker` runs."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Callable, Iterator, List

import pytest
from cache_support import PATIENCE
from cluster_support import Build, Cluster, Database, Worker
from remote_client import OUTPUTS, Client, Link, Program, Refused, mirror

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and users of slots need root")
OTHER = 65534  # nobody
REGISTERED = "the cluster knows it"
Project = Callable[..., pathlib.Path]


@pytest.fixture(scope="module")
def usual(database: Database, engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
	"""A cluster with one worker, for all tests that leave both as they are."""
	with Cluster(database, tmp_path_factory.mktemp("usual")).run() as cluster:
		cluster.worker(engine, "--slots", "1", "--name", "one").until_said(REGISTERED)
		yield cluster


@pytest.fixture
def client(usual: Cluster) -> Client:
	return Client(usual)


def shell(script: str) -> List[str]:
	return ["/bin/sh", "-c", script]


class TestCommands:
	"""What any client of the API may expect."""

	def test_another_client(self, usual: Cluster, tmp_path: pathlib.Path) -> None:
		"""BuildGrid's own client gets what a command has made of its files."""
		(tmp_path / "in").mkdir()
		(tmp_path / "in" / "a").write_text("some words\n")
		out = tmp_path / "out"
		words = ["--output-file", "made/b", "--output-directory", str(out), str(tmp_path / "in")]
		usual.ask("execute", "command", *words, "--", *shell("tr a-z A-Z <a >made/b"))
		assert (out / "made" / "b").read_text() == "SOME WORDS\n"

	def test_results(self, client: Client) -> None:
		"""Status, output, messages, files, folders and links come back."""
		script = (
			"echo out; echo err >&2; mkdir d d/e; echo 1 >d/e/f; ln -s e d/l; ln -s nowhere link; ./p >said; exit 7"
		)
		tree = {"p": Program(b"#!/bin/sh\necho program\n")}
		result = client.run(shell(script), tree, outputs=["d", "link", "said", "missing"])
		assert (result.status, result.stdout, result.stderr, result.worker) == (7, "out\n", "err\n", "one")
		files = {"d/e/f": b"1\n", "link": b"-> nowhere", "said": b"program\n"}
		assert {name: result.files.get(name) for name in files} == files
		assert "missing" not in result.files

	def test_long_output(self, client: Client) -> None:
		"""What does not fit into a message comes as a content."""
		result = client.run(shell("seq 100000; head -c 9000000 /dev/zero >zeros"), outputs=["zeros"])
		assert result.stdout.count("\n") == 100000
		assert result.files["zeros"] == bytes(9000000)

	def test_inputs(self, client: Client) -> None:
		"""Files, links and empty folders are there, as the client has them, and nothing that was there before."""
		tree = {"a/b": b"text", "link": Link("a"), "empty": None, "other": b"x"}
		script = "cat link/b; test -d empty; ls; touch rest; test -w . && test ! -w a/b || id -u"
		first = client.run(shell(script), tree, folder="")
		assert first.stdout == "texta\nempty\nlink\nother\n", first
		second = client.run(shell("ls; cat a/b"), {"a/b": b"other"})
		assert second.stdout == "a\nother"
		third = client.run(shell("pwd; ls .."), {"a/b/c": b"", "d": b""}, folder="a/b")
		assert third.stdout.endswith("/a/b\nb\n")

	def test_inputs_cannot_be_changed(self, client: Client) -> None:
		"""A command that tries to write into its inputs changes nothing for the next one."""
		tree = {"a": b"text"}
		spoil = "echo bad >a; chmod u+w a; echo bad >>a; rm -f a; echo bad >a"
		client.run(shell(spoil), tree)
		assert client.run(shell("cat a"), tree).stdout == "text"

	def test_no_program(self, client: Client) -> None:
		result = client.run(["no-such-program"])
		assert result.status == 127 and "no-such-program" in result.stderr
		assert client.run(["./text"], {"text": b"text"}).status == 126

	def test_lost_inputs(self, client: Client) -> None:
		"""What the cluster has lost is named by the status."""
		action = client.prepare(shell("cat a"), {"a": b"lost"}, lost=[b"lost"])
		with pytest.raises(Refused) as refused:
			client.execute(action)
		assert refused.value.code == 9

	def test_invalid_paths(self, client: Client) -> None:
		"""Nothing outside of the input root can be an output, or a working directory."""
		for options in ({"outputs": ["../x"]}, {"outputs": ["/etc/passwd"]}, {"folder": "../.."}):
			with pytest.raises(Refused) as refused:
				client.run(shell("true"), **options)
			assert refused.value.code == 3
		result = client.run(shell("ln -s /etc d; ln -s /etc/passwd f"), outputs=["d/passwd", "f"])
		assert result.files == {"f": b"-> /etc/passwd"}

	def test_time(self, client: Client) -> None:
		"""A command that takes too long is ended, and the slot is there for the next one."""
		with pytest.raises(Refused) as refused:
			client.run(shell("sleep 1000 & sleep 1000"), seconds=1)
		assert refused.value.code == 4
		assert client.run(shell("echo on")).stdout == "on\n"

	def test_properties(self, usual: Cluster, client: Client, engine: str) -> None:
		"""A command goes to a worker that has its properties."""
		other = usual.worker(engine, "--slots", "1", "--name", "two", "--property", "pool=large")
		other.until_said(REGISTERED)
		for _ in range(3):
			assert client.run(shell("true"), platform={"pool": "large"}).worker == "two"
		other.stop()


class TestIsolation:
	def test_network(self, client: Client) -> None:
		"""There is no way out, not even to this machine."""
		result = client.run(shell("tail -n +3 /proc/net/dev; tail -n +2 /proc/net/route"))
		assert re.fullmatch(r"\s*lo:[\s0]*", result.stdout), result

	def test_system(self, client: Client) -> None:
		"""The system can be read, and not be written; there is a folder for temporary files."""
		script = "for f in / /usr /etc /opt /run /dev /usr/bin; do touch $f/wafd-test 2>/dev/null && echo $f; done; :"
		assert client.run(shell(script)).stdout == ""
		assert client.run(shell("touch /tmp/a /var/tmp/b; ls /tmp")).stdout == "a\nb\n"
		assert client.run(shell("ls /tmp")).stdout == ""

	def test_others(self, client: Client, tmp_path: pathlib.Path) -> None:
		"""Files and processes of others are not there."""
		(tmp_path / "secret").write_text("secret")
		result = client.run(shell(f"ls {tmp_path} /root /home; ls -d /proc/[0-9]* | wc -l; id -u; cat /etc/shadow"))
		assert "secret" not in result.stdout
		lines = result.stdout.split()
		count, user = [line for line in lines if line.isdigit()]
		assert int(count) <= 5 and int(user) > 1000

	def test_leftovers(self, client: Client) -> None:
		"""What a command starts does not outlive it."""
		client.run(shell("(setsid sleep 1000 >/dev/null 2>&1 &) ; :"))
		result = client.run(shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"))
		assert "sleep" not in result.stdout

	def test_secrets(self, build_cluster: Build, engine: str, tmp_path: pathlib.Path) -> None:
		"""A command that knows where the worker's token is cannot read it."""
		cluster = build_cluster(has_tokens=True)
		assert cluster.token_file is not None
		shared = tmp_path / "shared"
		shared.mkdir()
		shutil.move(cluster.token_file, shared / "token")
		cluster.token_file = shared / "token"
		cluster.token_file.chmod(0o644)
		(shared / "other").write_text("other")
		cluster.worker(engine, "--slots", "1", "--share", str(shared)).until_said(REGISTERED)
		folder = cluster.folder / "in"
		folder.mkdir()
		script = f"cat {shared}/other >a; cat {shared}/token >b; cat /proc/*/environ >>b; :"
		out = cluster.folder / "out"
		words = ["--output-file", "a", "--output-file", "b", "--output-directory", str(out), str(folder)]
		cluster.ask("execute", "command", *words, "--", *shell(script))
		assert (out / "a").read_text() == "other"
		assert cluster.token_file.read_text().strip() not in (out / "b").read_text()


class TestEntries:
	"""Commands of which an engine wants the cache's entry."""

	@pytest.fixture
	def sources(self, project: Project) -> pathlib.Path:
		folder = project({"src/x.c": '#include "x.h"\nint x(void) { return X; }\n', "include/x.h": "#define X 1\n"})
		(folder / "o").mkdir()
		return folder

	def compile(self, client: Client, folder: pathlib.Path, *more: str, **variables: str) -> "dict[str, bytes]":
		argv = [shutil.which("gcc") or "gcc", "-c", "src/x.c", "-Iinclude", "-o", "o/x.o", *more]
		usual = {"PATH": os.environ["PATH"], "WAFD_PLACES": str(folder), "WAFD_ENTRY": "1 0.1.0"}
		usual.update(variables)
		result = client.run(argv, mirror(folder), outputs=OUTPUTS, folder=str(folder)[1:], **usual)
		return result.files

	def test_compile(self, client: Client, sources: pathlib.Path) -> None:
		"""The entry comes back, with the object that the compiler makes here."""
		files = self.compile(client, sources)
		assert set(files) >= {".wafd/key", ".wafd/entry"}, files.get(".wafd/why")
		subprocess.run(["gcc", "-c", "src/x.c", "-Iinclude", "-o", "o/x.o"], cwd=sources, check=True, timeout=PATIENCE)
		assert (sources / "o" / "x.o").read_bytes() in [files[name] for name in files if "blobs" in name]

	def test_the_same_again(self, client: Client, sources: pathlib.Path) -> None:
		"""The second time, the slot's engine knows the command, and leaves the same."""
		first = self.compile(client, sources)
		assert self.compile(client, sources) == first
		(sources / "include" / "x.h").write_text("#define X 2\n")
		second = self.compile(client, sources)
		assert second[".wafd/key"] == first[".wafd/key"] and second[".wafd/entry"] != first[".wafd/entry"]

	def test_the_key_is_ours(self, client: Client, sources: pathlib.Path, engine: str, runtime: pathlib.Path) -> None:
		"""This machine finds the entry under the same key."""
		files = self.compile(client, sources)
		wafcc = str(pathlib.Path(engine).with_name("wafcc"))
		environ = {"PATH": os.environ["PATH"], "WAFCC_DIR": str(sources / "store"), "WAFCC_EXPORT": str(sources / "e")}
		environ["WAFD_RUNTIME_DIR"] = str(runtime)
		argv = [wafcc, shutil.which("gcc") or "gcc", "-c", "src/x.c", "-Iinclude", "-o", "o/x.o"]
		subprocess.run(argv, cwd=sources, env=environ, check=True, timeout=PATIENCE)
		assert (sources / "e" / "key").read_bytes() == files[".wafd/key"]
		assert (sources / "e" / "entry").is_file()

	def test_failure(self, client: Client, sources: pathlib.Path) -> None:
		assert self.compile(client, sources, "-include", "missing.h")[".wafd/why"] == b"it failed with status 1\n"

	def test_version(self, client: Client, sources: pathlib.Path) -> None:
		"""A worker of another version makes no entries."""
		files = self.compile(client, sources, WAFD_ENTRY="1 0.0.1")
		assert list(files) == [".wafd/why"] and b"0.0.1" in files[".wafd/why"]

	def test_places(self, client: Client, sources: pathlib.Path) -> None:
		"""Of a place, only what the client has sent is there, even if the worker's machine has more."""
		header = sources / "include" / "x.h"
		tree = mirror(sources)
		del tree[str(header)[1:]]
		result = client.run(
			["/usr/bin/gcc", "-c", "src/x.c", "-Iinclude", "-o", "o/x.o"],
			tree,
			outputs=OUTPUTS,
			folder=str(sources)[1:],
			PATH=os.environ["PATH"],
			WAFD_PLACES=str(sources),
			WAFD_ENTRY="1 0.1.0",
		)
		assert result.files[".wafd/why"] == b"it failed with status 1\n"
		assert "x.h" in result.stderr

	def test_other_places(self, client: Client, sources: pathlib.Path) -> None:
		"""A slot that has had other places gives the same entries."""
		first = self.compile(client, sources)
		other = sources.parent / "other"
		self.compile(client, sources, WAFD_PLACES=f"{sources}:{other}:/srv/other")
		assert self.compile(client, sources) == first
		assert self.compile(client, sources, WAFD_PLACES=str(sources.parent)) == first

	@pytest.mark.parametrize("place", ["/", "/proc/x", "relative", "/run/wafd/home", "/tmp/../etc"])
	def test_wrong_places(self, client: Client, sources: pathlib.Path, place: str) -> None:
		with pytest.raises(Refused) as refused:
			self.compile(client, sources, WAFD_PLACES=f"{sources}:{place}")
		assert refused.value.code == 3


class TestLife:
	"""Workers and servers come and go."""

	@pytest.fixture
	def worker(self, buildgrid: Cluster, engine: str) -> Worker:
		started = buildgrid.worker(engine, "--slots", "1", "--name", "one")
		started.until_said(REGISTERED)
		return started

	@pytest.fixture
	def client(self, buildgrid: Cluster, worker: Worker) -> Client:
		return Client(buildgrid)

	def test_drain(self, client: Client, worker: Worker, buildgrid: Cluster) -> None:
		"""A worker that is to end finishes its command."""
		running = client.begin(shell("echo begun >&2; sleep 2; echo done"))
		until_runs(worker)
		assert worker.stop() == 0
		assert running.result(PATIENCE).stdout == "done\n"

	def test_end(self, client: Client, worker: Worker, buildgrid: Cluster, engine: str) -> None:
		"""A worker that is told twice ends its command, which another one runs."""
		running = client.begin(shell("sleep 3"))
		until_runs(worker)
		assert worker.process is not None
		worker.process.send_signal(signal.SIGTERM)
		worker.until_said("it ends when")
		assert worker.stop() == 0
		buildgrid.worker(engine, "--slots", "1", "--name", "two")
		assert running.result(PATIENCE).worker == "two"

	def test_killed(self, client: Client, worker: Worker, buildgrid: Cluster, engine: str) -> None:
		"""The command of a worker that was killed is given to another one, and nothing of it stays here."""
		running = client.begin(shell("sleep 4.25"))
		until_runs(worker)
		worker.kill()
		until(lambda: not sleepers("4.25"))
		buildgrid.worker(engine, "--slots", "1", "--name", "two")
		assert running.result(PATIENCE).worker == "two"

	def test_restarted_server(self, client: Client, worker: Worker, buildgrid: Cluster) -> None:
		"""A worker outlives its server."""
		assert client.run(shell("echo a")).stdout == "a\n"
		buildgrid.restart()
		assert Client(buildgrid).run(shell("echo b")).stdout == "b\n"

	def test_two_of_one_name(self, client: Client, worker: Worker, buildgrid: Cluster, engine: str) -> None:
		"""Workers with the same name work beside each other, and the server knows both."""
		other = buildgrid.worker(engine, "--slots", "1", "--name", "one")
		other.until_said(REGISTERED)
		running = [client.begin(shell(f"echo {number}; sleep 2")) for number in range(2)]
		for each in (worker, other):
			until_runs(each)
		results = [one.result(PATIENCE) for one in running]
		assert [(one.stdout, one.worker) for one in results] == [("0\n", "one"), ("1\n", "one")]
		assert all("forgotten" not in each.log.read_text() for each in (worker, other))

	def test_one_for_each_folder(self, worker: Worker, buildgrid: Cluster, engine: str) -> None:
		"""Two workers do not share a folder."""
		command = [engine, "worker", "--folder", str(worker.folder / "place"), buildgrid.address]
		done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
		assert done.returncode == 1 and "is used by another worker" in done.stderr


class TestRights:
	"""Workers of users who are not root."""

	@pytest.fixture
	def place(self) -> Iterator[pathlib.Path]:
		"""A folder that another user reaches."""
		folder = pathlib.Path(tempfile.mkdtemp(prefix="worker-"))
		os.chown(folder, OTHER, OTHER)
		yield folder
		shutil.rmtree(folder)

	def start(self, usual: Cluster, engine: str, place: pathlib.Path, *options: str) -> Worker:
		prefix = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
		command = [*prefix, engine, "worker", "--slots", "1", "--folder", str(place / "place"), *options]
		worker = Worker([*command, usual.address], place, {"PATH": os.environ["PATH"]})
		worker.start()
		worker.until_said(REGISTERED)
		return worker

	def test_without_root(self, usual: Cluster, client: Client, engine: str, place: pathlib.Path) -> None:
		"""User namespaces do as well."""
		worker = self.start(usual, engine, place, "--name", "user", "--property", "pool=user")
		try:
			script = "id -u; touch /usr/x /x; ls /root /home; cat a; echo bad >a"
			for _ in range(2):
				result = client.run(shell(script), {"a": b"text"}, platform={"pool": "user"})
				assert result.stdout == f"{OTHER}\ntext"
		finally:
			worker.stop()

	def test_without_isolation(self, usual: Cluster, client: Client, engine: str, place: pathlib.Path) -> None:
		"""Without namespaces, commands of others run, and no entries are made."""
		worker = self.start(usual, engine, place, "--no-isolation", "--name", "open", "--property", "pool=open")
		try:
			result = client.run(shell("cat a >b; pwd"), {"a": b"text"}, platform={"pool": "open"}, outputs=["b"])
			assert result.files == {"b": b"text"} and str(place) in result.stdout
			variables = {"WAFD_ENTRY": "1 0.1.0", "WAFD_PLACES": "/p"}
			result = client.run(["gcc"], {}, platform={"pool": "open"}, outputs=OUTPUTS, **variables)
			assert result.files == {".wafd/why": b"the worker runs without namespaces\n"}
		finally:
			worker.stop()


def sleepers(time_of: str) -> List[str]:
	"""Processes on this machine that sleep so long."""
	argv = ["pgrep", "-fx", f"sleep {time_of}"]
	found = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
	return found.stdout.split()


def until(is_so: Callable[[], bool]) -> None:
	deadline = time.monotonic() + PATIENCE
	while not is_so():
		assert time.monotonic() < deadline
		time.sleep(0.02)


def until_runs(worker: Worker) -> None:
	"""Wait until a command of the worker has begun."""
	until(lambda: (worker.folder / "place" / "slots" / "0" / "out" / "stdout").exists())


def test_mistakes(engine: str, tmp_path: pathlib.Path) -> None:
	"""Each mistake is one line, and a status."""
	for words, named in (
		([], "ADDRESS is missing; see wafd worker --help"),
		(["http://127.0.0.1:1/"], "grpc or grpcs"),
		(["--slots", "0", "grpc://127.0.0.1:1"], "--slots"),
		(["--property", "x", "grpc://127.0.0.1:1"], "NAME=VALUE"),
		(["--folder", str(tmp_path), "grpc://127.0.0.1:1|token-file=/no/such/file"], "/no/such/file"),
	):
		command = [engine, "worker", *words]
		done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
		assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, (words, done.stderr)
		assert named in done.stderr, done.stderr


def test_lone_engine(engine: str, tmp_path: pathlib.Path) -> None:
	"""Where the program for clusters is not installed, one line says so."""
	lone = shutil.copy2(engine, tmp_path / "wafd")
	done = subprocess.run(
		[lone, "worker", "grpc://127.0.0.1:1"], capture_output=True, text=True, timeout=PATIENCE, check=False
	)
	assert done.returncode == 1 and "wafd-cluster is not there" in done.stderr and done.stderr.count("\n") == 1
