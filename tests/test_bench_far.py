"""The scenario ``second-machine`` of utils/bench.py: hosts with a line between them, and a small real campaign."""

import os
import pathlib
import subprocess
import sys
from typing import Iterator

import pytest
from conftest import leave_out
from serve_support import wait_until
from test_bench_campaign import BENCH, TINY, finish, need, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import contender, hosts, scenario, servers
from benchmark.mistake import Failed

FAR = ("ninja+ccache-redis", "ninja+ccache-nginx", "ninja+ccache-serve", "ninja+wafcc-serve", "waf+wafcc-serve")


@pytest.fixture
def line() -> Iterator[hosts.Hosts]:
	"""Two hosts."""
	need_hosts()
	line = hosts.Hosts(2)
	yield line
	line.close()


def need_hosts() -> None:
	reason = hosts.missing_hosts()
	if reason:
		leave_out(reason)


# ---- hosts


def ping(line: hosts.Hosts, count: int = 20) -> int:
	"""How many of so many datagrams that one host sends come to the other one, before the last that is let through."""
	script = """if True:
		import socket, sys
		s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
		s.bind((sys.argv[1], 4000))
		s.settimeout(30)
		print("ready", flush=True)
		found = set()
		while b"last" not in found:
			found.add(s.recv(100))
		print(len(found) - 1)
	"""
	to = line.hosts[1]
	argv = to.enter([sys.executable, "-c", script, to.address])
	hearer = subprocess.Popen(argv, stdout=subprocess.PIPE, encoding="utf-8")
	assert hearer.stdout and hearer.stdout.readline() == "ready\n"
	say = "import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
	say += "for word in sys.argv[2:]: s.sendto(word.encode(), (sys.argv[1], 4000))"

	def send(*words: object) -> None:
		command = [sys.executable, "-c", say, to.address, *map(str, words)]
		subprocess.run(line.hosts[0].enter(command), check=True, timeout=60)

	before = line.say("counts")
	send(*range(count))
	wait_until("all were carried or lost", lambda: sum(line.say("counts").values()) == sum(before.values()) + count)
	line.say("loss", 0, 1)
	for host in line.hosts:
		line.say("join", host.number)
	send("last")
	out, _ = hearer.communicate(timeout=60)
	return int(out)


def test_a_line_carries_everything(line: hosts.Hosts) -> None:
	"""As long as nothing is asked of it, and with a delay."""
	assert ping(line) == 20
	line.delay(0.003)
	assert ping(line) == 20


def test_a_line_loses_the_same_again(line: hosts.Hosts) -> None:
	"""A share, chosen by the seed."""
	found = set()
	for _ in range(2):
		line.say("loss", 0.5, 5)
		found.add(ping(line, 100))
	assert len(found) == 1 and 20 < found.pop() < 80


@pytest.mark.parametrize("number", [0, 1])
def test_who_is_cut_off_hears_nothing(line: hosts.Hosts, number: int) -> None:
	"""Nor is heard."""
	line.say("cut", line.hosts[number].number)
	assert ping(line) == 0


def test_a_line_ends_with_what_it_does_not_understand() -> None:
	"""It says what it understands."""
	need_hosts()
	line = hosts.Hosts(1)
	with pytest.raises(Failed, match="there is no such host"):
		line.say("cut", 1)
	assert not os.path.exists("/proc/%d" % line.wire.pid)


def test_servers_on_hosts(line: hosts.Hosts, tmp_path: pathlib.Path) -> None:
	"""A server listens at its host's address, and all hosts reach it there."""
	server = servers.WafdServe(str(tmp_path / "server"), dict(os.environ), line.hosts[0])
	try:
		code = "import base64, sys, urllib.request as u\nr = u.Request(sys.argv[1])\n"
		code += "r.add_header('Authorization', 'Bearer ' + sys.argv[2])\nprint(u.urlopen(r, timeout=30).status)"
		argv = [sys.executable, "-c", code, "http://%s/status" % server.place, server.token]
		for host in line.hosts:
			assert subprocess.run(host.enter(argv), stdout=subprocess.PIPE, check=True).stdout == b"200\n"
	finally:
		server.stop()


# ---- what is chosen


def test_far_contenders_are_for_this_scenario_only() -> None:
	"""A cache with a server is measured on a second machine, and one without nowhere else."""
	for name in FAR:
		assert contender.find_contender(name).abilities == {"far"}
	for name in ("ninja", "ninja+ccache", "waf+wafcc", "waf"):
		assert "far" not in contender.find_contender(name).abilities
	assert scenario.SCENARIOS["second-machine"].needs == "far"


def test_only_root_makes_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
	"""Others are told so."""
	monkeypatch.setattr(os, "geteuid", lambda: 1000)
	assert contender.find_contender(FAR[0]).missing() == "network namespaces are made by root only"


# ---- campaigns


def test_campaign(tmp_path: pathlib.Path, engine: str) -> None:
	"""All that is built on the second machine comes from the server, in each repetition; nothing stays behind."""
	need("g++", "ninja", "ccache", "redis-server")
	need_hosts()
	names = [name for name in FAR if not contender.find_contender(name).missing()]
	args = ("second-machine", "--contenders", ",".join(names), *TINY, "--repeat", "2", "--keep")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	hits = {name: {one["hits"] for one in ones} for name, ones in done.values("second-machine").items()}
	assert set(hits) == set(names)
	for name, found in hits.items():
		assert all(hit >= 100 for hit in found), (name, found)
	(caches,) = done.work.glob("bench-*/caches")
	assert len(list(caches.iterdir())) == 3 * len(names), "a first machine, and a second one each time"
	assert done.left == []
