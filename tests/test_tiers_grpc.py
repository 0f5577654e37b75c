"""A cluster of the Remote Execution API as a shared store: BuildGrid, with tokens and certificates, and its faults."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import time
from typing import Callable, List, Optional

import pytest
from cache_support import COMPILERS, PATIENCE
from cluster_support import Build, Cluster, Papers
from conftest import list_processes
from tier_support import (
	LINE,
	MANY,
	PATIENT,
	Handler,
	Machine,
	Make,
	Oddity,
	between,
	check_other_headers,
	compile_many,
	shared,
	upload_many,
)

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a compiler")
Start = Callable[[Optional[Handler]], Oddity]


def find_programs(machine: Machine) -> List[int]:
	"""The processes of `wafd-cluster` that the engine of this machine has started."""
	engines = {str(pid) for pid in list_processes(machine.runtime)}
	found = []
	for status in pathlib.Path("/proc").glob("[0-9]*/status"):
		with contextlib.suppress(OSError):
			fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
			if fields["Name"] == "wafd-cluster" and fields["PPid"] in engines:
				found.append(int(status.parent.name))
	return found


def until_error(machine: Machine, words: str) -> None:
	"""Compile other sources until an error with these words is counted."""
	deadline = time.monotonic() + PATIENCE
	number = 0
	while True:
		errors = machine.remote()["errors"]
		if any(words in error for error in errors):
			return
		assert time.monotonic() < deadline, errors
		machine.write("x.c", f"int f{number};\n")
		machine.run(LINE, True)
		number += 1
		time.sleep(0.05)


class TestHits:
	@pytest.mark.parametrize("is_large", [False, True])
	def test_what_one_machine_compiled_another_one_hits(
		self, machine: Make, buildgrid: Cluster, is_large: bool
	) -> None:
		"""Small contents come many at once, large ones in pieces. ``--explain`` names the cluster."""
		first, second = machine(buildgrid.address), machine(buildgrid.address)
		first.write_noise() if is_large else first.write("x.c", "#warning hear this\nint f;\n")
		said, remote = shared(first, second, LINE)
		assert said.startswith("hit")
		assert f"it came from grpc://127.0.0.1:{buildgrid.port}/team" in said
		assert (remote["hits"], remote["errors"], remote["uploads"]) == (1, {}, 0)
		assert remote["bytes_in"] > (1 << 20 if is_large else 0)
		assert len(find_programs(second)) == 1
		second.ask("--shutdown")
		assert find_programs(second) == []

	def test_what_holds_nowhere_is_a_miss_that_says_so(self, machine: Make, buildgrid: Cluster) -> None:
		"""The results of two machines with other headers are kept beside each other."""
		check_other_headers(machine, buildgrid.address)

	def test_many_keys_are_asked_for_at_once(self, machine: Make, buildgrid: Cluster) -> None:
		"""Many compiles on two machines, all hits."""
		first, second = machine(buildgrid.address), machine(buildgrid.address)
		upload_many(first)
		compile_many(second, MANY)
		remote = second.remote()
		assert (remote["hits"], remote["errors"]) == (MANY, {})

	def test_a_read_only_address_uploads_nothing(self, machine: Make, buildgrid: Cluster) -> None:
		"""It still reads."""
		first, second = machine(buildgrid.address), machine(buildgrid.address + "|read-only")
		first.write("x.c", "int f;\n")
		assert shared(first, second, LINE)[0].startswith("hit")
		second.write("x.c", "int g;\n")
		second.until_hit(LINE)
		assert second.remote()["uploads"] == 0
		assert "only read" in second.ask("--show-stats")


class TestAdmission:
	def test_tokens_and_certificates(self, machine: Make, build_cluster: Build, cluster_papers: Papers) -> None:
		"""With both, another machine hits. They are not shown, and a process list does not have them."""
		cluster = build_cluster(papers=cluster_papers, is_mutual=True, has_tokens=True)
		token = cluster.sign(3600)
		address = cluster.address.replace("127", f"{token}@127", 1).replace(f"|token-file={cluster.token_file}", "")
		first, second = machine(cluster.address), machine(address)
		first.write("x.c", "int f;\n")
		said, remote = shared(first, second, LINE)
		assert said.startswith("hit") and (remote["hits"], remote["errors"]) == (1, {})
		for words in (said, second.ask("--show-config"), second.ask("--show-stats", "-v"), json.dumps(remote)):
			assert token not in words
		(program,) = find_programs(second)
		assert token not in pathlib.Path(f"/proc/{program}/cmdline").read_text()

	def test_a_token_that_is_not_known(self, machine: Make, build_cluster: Build) -> None:
		"""The error says so. A renewed file of a token is read again."""
		cluster = build_cluster(has_tokens=True)
		assert cluster.token_file is not None
		cluster.token_file.write_text(cluster.sign(-60))
		first = machine(cluster.address + "|pause=1")
		until_error(first, "it does not know the token; name one by token-file")
		cluster.token_file.write_text(cluster.sign(3600) + "\n")
		first.write("x.c", "int new;\n")
		first.until_hit(LINE)
		deadline = time.monotonic() + PATIENCE
		number = 0
		while not first.remote()["uploads"]:
			assert time.monotonic() < deadline, first.remote()
			first.write("x.c", f"int new{number};\n")
			first.run(LINE, True)
			number += 1
			time.sleep(0.1)

	@pytest.mark.parametrize("words", ["an unknown authority has signed its certificate", "name one by cert and key"])
	def test_wrong_papers_are_named(
		self, machine: Make, build_cluster: Build, cluster_papers: Papers, words: str
	) -> None:
		"""An authority that is not named, and a certificate that is not shown."""
		cluster = build_cluster(papers=cluster_papers, is_mutual=True)
		address = cluster.address
		if "authority" in words:
			address = address.replace(f"|ca={cluster_papers.ca}", "")
		else:
			address = address.replace(f"|cert={cluster_papers.client}|key={cluster_papers.client_key}", "")
		until_error(machine(address), words)

	def test_a_plain_server_is_named(self, machine: Make, buildgrid: Cluster) -> None:
		"""TLS against a port that does not speak it."""
		until_error(machine(buildgrid.address.replace("grpc:", "grpcs:", 1)), "it speaks no TLS; write grpc://")

	def test_a_wrong_instance_is_named(self, machine: Make, buildgrid: Cluster) -> None:
		"""The cluster has another one."""
		until_error(machine(buildgrid.address.replace("/team", "/other")), "it has no such instance")

	def test_a_file_that_is_not_there_is_named(self, machine: Make, buildgrid: Cluster, tmp_path: pathlib.Path) -> None:
		"""It is the certificate that the address names."""
		address = f"grpcs://127.0.0.1:{buildgrid.port}|cert={tmp_path}/gone|key={tmp_path}/gone{PATIENT}"
		until_error(machine(address), f"read {tmp_path}/gone")

	def test_a_cluster_that_only_lets_read(self, machine: Make, build_cluster: Build) -> None:
		"""Uploads are dropped, and the reason is told. Nothing is an error."""
		first = machine(build_cluster(can_write=False).address)
		first.write("x.c", "int f;\n")
		first.until_hit(LINE)
		deadline = time.monotonic() + PATIENCE
		while not first.remote()["uploads_dropped"]:
			assert time.monotonic() < deadline, first.remote()
			time.sleep(0.02)
		remote = first.remote()
		assert (remote["uploads_dropped"], remote["errors"]) == ({"its token may not write": 1}, {})


class TestFaults:
	def test_a_server_that_is_silent_costs_one_time_out(self, machine: Make, oddity: Start) -> None:
		"""It accepts connections, and says nothing. It is left alone, and builds go on."""
		server = oddity(lambda connection: time.sleep(PATIENCE))
		first = machine(f"grpc://127.0.0.1:{server.port}|timeout=100|pause=600000")
		for number in range(4):
			first.write("x.c", f"int f{number};\n")
			first.run(LINE, True)
		remote = first.remote()
		address = f"grpc://127.0.0.1:{server.port}"
		lookups = {error: count for error, count in remote["errors"].items() if "an upload" not in error}
		assert lookups == {f"{address}: it did not answer within 100 ms": 1}
		assert "left alone, since it did not answer within 100 ms" in first.ask("--show-stats", "-v")

	def test_a_port_where_nothing_listens(self, machine: Make) -> None:
		"""Three errors, then it is left alone."""
		first = machine("grpc://127.0.0.1:1|pause=600000")
		for number in range(5):
			first.write("x.c", f"int f{number};\n")
			first.run(LINE, True)
		assert first.remote()["errors"]["grpc://127.0.0.1:1: nothing listens there"] == 3

	def test_a_server_that_speaks_something_else(self, machine: Make, oddity: Start) -> None:
		"""A build goes on."""

		def talk(connection: socket.socket) -> None:
			connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

		first = machine(f"grpc://127.0.0.1:{oddity(talk).port}{PATIENT}")
		until_error(first, "grpc://127.0.0.1")

	def test_the_server_is_restarted_in_between(self, machine: Make, build_cluster: Build) -> None:
		"""What it has kept is there, and nothing is lost."""
		cluster = build_cluster(is_kept=True)
		first, second = machine(cluster.address), machine(cluster.address)
		first.write("x.c", "int f;\n")
		first.until_hit(LINE)
		first.until_uploaded()
		second.write("y.c", "int g;\n")
		second.run(f"{COMPILERS[0]} -c y.c -o y.o", True)
		cluster.restart()
		first.write("x.c", "int g;\n")
		first.until_hit(LINE)
		first.until_uploaded(2)
		assert second.same(LINE).startswith("hit")

	def test_the_program_is_killed_in_between(self, machine: Make, buildgrid: Cluster) -> None:
		"""The engine starts another one."""
		first, second = machine(buildgrid.address), machine(buildgrid.address)
		first.write("x.c", "int f;\n")
		assert shared(first, second, LINE)[0].startswith("hit")
		(before,) = find_programs(second)
		os.kill(before, signal.SIGKILL)
		first.write("x.c", "int g;\n")
		first.until_hit(LINE)
		first.until_uploaded(2)
		assert second.same(LINE).startswith("hit")
		(after,) = find_programs(second)
		assert after != before and second.remote()["errors"] == {}

	def test_the_program_ends_with_its_engine(self, machine: Make, buildgrid: Cluster) -> None:
		"""Even if the engine and its guardian are killed."""
		first = machine(buildgrid.address)
		first.write("x.c", "int f;\n")
		first.until_hit(LINE)
		(program,) = find_programs(first)
		for pid in list_processes(first.runtime):
			with contextlib.suppress(ProcessLookupError):
				os.kill(pid, signal.SIGKILL)
		deadline = time.monotonic() + PATIENCE
		while pathlib.Path(f"/proc/{program}/cmdline").exists():
			assert time.monotonic() < deadline, "it has not ended"
			time.sleep(0.02)

	def test_the_program_stops_in_between(self, machine: Make, buildgrid: Cluster) -> None:
		"""It is as silent as a cluster that does not answer, and used again when it goes on."""
		address = f"grpc://127.0.0.1:{buildgrid.port}/team|pause=1"
		first = machine(address + "|timeout=20000|connect-timeout=20000")
		first.write("x.c", "int f;\n")
		first.until_hit(LINE)
		first.until_uploaded()
		second = machine(address)
		second.same(LINE)
		(program,) = find_programs(second)
		os.kill(program, signal.SIGSTOP)
		try:
			until_error(second, "it did not answer within")
		finally:
			os.kill(program, signal.SIGCONT)
		deadline = time.monotonic() + PATIENCE
		while "left alone" in second.ask("--show-stats", "-v"):
			assert time.monotonic() < deadline
			time.sleep(0.05)

	def test_there_is_no_program(self, machine: Make, tmp_path: pathlib.Path) -> None:
		"""The engine says where it has looked for it."""
		first = machine(f"grpc://127.0.0.1:1{PATIENT}")
		folder = tmp_path / "programs"
		folder.mkdir()
		for name in ("wafd", "wafcc"):
			os.link(pathlib.Path(first.wafcc).parent / name, folder / name)
		first.wafcc = str(folder / "wafcc")
		until_error(first, "there is no program wafd-cluster beside wafd")

	def test_a_connection_that_breaks_in_the_middle(self, machine: Make, buildgrid: Cluster, oddity: Start) -> None:
		"""A large content is cut. The compile runs here, and its object is right."""
		cut_after = [2 << 20]

		def cut(data: bytes) -> bytes:
			cut_after[0] -= len(data)
			if cut_after[0] < 0:
				raise OSError("cut")
			return data

		first = machine(buildgrid.address)
		first.write_noise()
		first.until_hit(LINE)
		first.until_uploaded()
		server = oddity(between(buildgrid.port, cut))
		second = machine(buildgrid.address.replace(str(buildgrid.port), str(server.port)))
		assert not second.same(LINE).startswith("hit")
		assert second.remote()["errors"]
