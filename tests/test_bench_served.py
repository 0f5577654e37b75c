"""The scenarios ``served`` and ``crowd`` of utils/bench.py: the load generator, and small real campaigns."""

import json
import pathlib
import re
import socket
import subprocess
import sys
import threading
import xml.etree.ElementTree
from typing import Callable, Iterator, List

import pytest
from serve_support import Server
from test_bench_campaign import BENCH, finish, need, need_example, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import plot, report, servers
from benchmark.mistake import Failed
from benchmark.served import LOAD, SIZES, cells

NGINX = servers.Nginx.missing()
VALUES = ["client", "most", "p50", "p99", "rate", "resident_after", "resident_before"]


@pytest.fixture
def load() -> "Callable[..., subprocess.CompletedProcess[str]]":
	"""A function that runs the load generator."""
	program = need_example(LOAD)

	def run(*args: object) -> "subprocess.CompletedProcess[str]":
		return subprocess.run([program, *map(str, args)], capture_output=True, encoding="utf-8", timeout=60)

	return run


def place(server: Server) -> str:
	return "%s:%d" % server.address


# ---- the load generator


@pytest.mark.parametrize("size", [16, 1024, 300_000, 1 << 20])
@pytest.mark.parametrize("language", ["http", "redis", "room"])
def test_values_are_put_and_got(serve: Callable[..., Server], load: Callable, language: str, size: int) -> None:
	"""So many requests as were asked for reach the server, each of which stores a value or finds it."""
	server = serve()
	for act, count, outcome in (("put", 12, "stored"), ("get", 24, "hit")):
		done = load(language, place(server), act, "--size", size, "--count", count, "--keys", 12, "--connections", 5)
		assert done.returncode == 0, done.stderr
		assert sorted(json.loads(done.stdout)) == VALUES
		name = 'wafd_serve_requests_total{language="%s",outcome="%s"}' % (language, outcome)
		# by our own protocol a large value is found, and then got
		twice = language == "room" and (act == "put" or size > 256 << 10)
		assert server.metrics()[name] == count * (2 if twice else 1)


def test_values_are_distinct_and_half_of_them_compressible(serve: Callable[..., Server], load: Callable) -> None:
	"""Every other value has as many zeros as noise, and each begins with its number."""
	server = serve()
	assert load("http", place(server), "put", "--size", 8192, "--count", 4).returncode == 0
	bodies = [server.request("GET", "/%08x" % number)[1] for number in range(4)]
	assert [body[:16] for body in bodies] == [b"%016x" % number for number in range(4)]
	assert len({body[16:] for body in bodies}) == 4
	assert [0.4 < body.count(0) / len(body) < 0.6 for body in bodies] == [False, True, False, True]


def test_idle_connections_are_kept(serve: Callable[..., Server], load: Callable) -> None:
	"""All are connected before the load begins, and the memory of the process is looked at before and after that."""
	server = serve()
	assert load("http", place(server), "put", "--count", 1).returncode == 0
	options = ("--count", 50, "--keys", 1, "--connections", 2, "--idle", 100, "--processes", server.process.pid)
	done = load("http", place(server), "get", *options)
	assert done.returncode == 0, done.stderr
	values = json.loads(done.stdout)
	assert 0 < values["resident_before"] <= values["resident_after"]
	assert server.metrics()['wafd_serve_requests_total{language="http",outcome="hit"}'] == 102 + 50
	assert server.metrics()["wafd_serve_connections_total"] >= 103


@pytest.mark.parametrize(
	("words", "said"),
	[
		(["get"], "it answered http/1.1 404"),
		(["get", "--size", "2000000"], "sizes are from 16 bytes to 1 MiB"),
		(["take"], "take is neither put nor get"),
	],
)
def test_what_fails_is_told(serve: Callable[..., Server], load: Callable, words: List[str], said: str) -> None:
	"""With an exit status, and without numbers."""
	done = load("http", place(serve()), *words)
	assert (done.returncode, done.stdout) == (1, "") and said in done.stderr


@pytest.fixture
def liar() -> Iterator[str]:
	"""A server that answers everything with a value that nobody has asked for."""
	listener = socket.create_server(("127.0.0.1", 0))

	def serve() -> None:
		try:
			connection, _ = listener.accept()
		except OSError:  # the test ended before it asked
			return
		with connection:
			connection.recv(1 << 16)
			connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024)
			connection.recv(1 << 16)

	thread = threading.Thread(target=serve, daemon=True)
	thread.start()
	yield "127.0.0.1:%d" % listener.getsockname()[1]
	listener.shutdown(socket.SHUT_RDWR)
	thread.join(30)
	listener.close()


def test_a_wrong_value_is_not_taken(liar: str, load: Callable) -> None:
	"""Nobody wins by answering something else."""
	done = load("http", liar, "get")
	assert done.returncode == 1 and "it answered with another value" in done.stderr


# ---- what is measured


def test_cells() -> None:
	"""Each value is put once and got twice; few requests are not spread over many connections."""
	found = list(cells(20000))
	assert len(found) == 3 * 5 * 2
	ranges = [range(cell.first, cell.first + cell.values) for cell in found if cell.act == "put"]
	assert all(one.stop == other.start for one, other in zip(ranges, ranges[1:]))
	assert [cell.requests for cell in found[:2]] == [20000, 40000]
	assert min(cell.values for cell in found if cell.connections == 256) == 512
	assert {cell.connections for cell in cells(16)} == {1, 4}


def test_a_server_that_does_not_start(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""What it said is told."""
	need("redis-server")
	monkeypatch.setattr(servers.Redis, "argv", lambda self: ["redis-server", "--no-such-option", "x"])
	with pytest.raises(Failed, match="redis-server did not start: "):
		servers.Redis(str(tmp_path / "redis"), {"PATH": "/usr/bin:/bin"})


def test_picture() -> None:
	"""A curve goes through the medians of each contender, and a scenario without curves has no picture."""
	about = {"title": "a < b", "measures": [["p99", "µs"]], "against": "connections"}
	run = {"scenario": "crowd", "contender": "one & only"}
	points = [(10, 5.0), (10, 7.0), (1000, 50.0)]
	runs = [{**run, "values": {"p99": y, "connections": x}} for x, y in points]
	record = {"scenarios": {"crowd": about, "full": {**about, "against": ""}}, "runs": runs}
	assert plot.curves_of(record, "crowd", "p99") == {"one & only": [(10, 6.0), (1000, 50.0)]}
	(name, text), *others = plot.pictures_of(record, "/x/r.json").items()
	assert (name, others) == ("/x/r-crowd.svg", [])
	root = xml.etree.ElementTree.fromstring(text)
	said = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
	assert {"crowd: a < b", "one & only", "connections", "p99, µs", "10", "100", "1000"} <= said
	assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 2
	assert plot.pictures_of({**record, "runs": []}, "/x/r.json") == {}


def test_pictures_of_several_measures() -> None:
	"""Each has its own; a curve for each contender, interpreter and kind of part."""
	measures = [["wall", "s"], ["peak", "MiB"], ["growth", "times"]]
	about = {"title": "tasks", "measures": measures, "against": "tasks", "drawn": ["wall", "peak"]}
	runs = [
		{
			"scenario": "large",
			"contender": "waf",
			"interpreter": python,
			"part": "%s, %d tasks" % (part, count),
			"values": {"wall": 1.0 * count, "peak": 2.0 * count, "tasks": count},
		}
		for python in ("python3", "pypy3")
		for part in ("full", "no-op")
		for count in (10, 100)
	]
	record = {"scenarios": {"large": about}, "runs": runs}
	assert sorted(plot.pictures_of(record, "/x/r.json")) == ["/x/r-large-peak.svg", "/x/r-large.svg"]
	curves = plot.curves_of(record, "large", "peak")
	assert curves["waf pypy3 no-op"] == [(10, 20.0), (100, 200.0)]
	assert len(curves) == 4


def test_parts_are_shown_by_group() -> None:
	"""Parts that differ behind the last comma are columns of one table, without tables of their own."""
	run = {"scenario": "served", "contender": "redis", "compiler": None, "interpreter": None, "repetition": 0}
	parts = [(act, count) for act in ("put", "get") for count in (1, 4)]
	record = {
		"settings": {"contenders": ["redis"], "interpreters": [], "baseline": None},
		"scenarios": {"served": {"title": "values", "measures": [["rate", "/s"]], "baseline": "redis"}},
		"runs": [{**run, "part": "%s, %d" % part, "values": {"rate": 7.0}} for part in parts],
	}
	tables = [table for group in report.group(report.tables_of(record["runs"])) for table in group[1]]
	assert len(tables) == 4
	shown = report.show_parts(record, "served", "put", tables[:2], False)
	assert re.search(r"^served, put, medians: values\n  measure +contender +interpreter +1 +4$", shown, re.MULTILINE)


# ---- campaigns


def test_campaign(tmp_path: pathlib.Path, engine: str) -> None:
	"""Ours, by each protocol, and others are measured with values of all sizes; nothing stays behind."""
	need("redis-server")
	need_example(LOAD)
	names = ["redis", *([] if NGINX else ["nginx"]), "serve-http", "serve-redis", "serve-room"]
	args = ("served", "--commands", "16", "--repeat", "1", "--contenders", ",".join(names))
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert {run["contender"] for run in done.record["runs"]} == set(names)
	assert len(done.record["runs"]) == len(names) * len(SIZES) * 2 * 2
	assert all({"rate", "p50", "p99", "client", "server"} <= set(run["values"]) for run in done.record["runs"])
	assert "served, put 16 KiB, medians: " in done.out and "the one of redis." in done.out
	assert done.left == [] and list(done.work.iterdir()) == []


def test_crowd(tmp_path: pathlib.Path, engine: str) -> None:
	"""A crowd grows, and a picture of it is written beside the record."""
	need_example(LOAD)
	args = ("crowd", "--commands", "10", "--repeat", "1", "--contenders", "serve-http", "--crowds", "3,20")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	found = {run["part"]: run["values"] for run in done.record["runs"]}
	assert [values["connections"] for values in found.values()] == [3, 20]
	assert list(found) == ["3 connections", "20 connections"]
	assert (tmp_path / "r-crowd.svg").read_text().startswith("<svg ")
	assert done.left == [] and list(done.work.iterdir()) == []
