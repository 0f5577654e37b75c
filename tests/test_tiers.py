"""Stores that machines share: results of one machine are hits on another, and no server fails or delays a build."""

import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
from typing import Callable, Optional

import pytest
from cache_support import COMPILERS, PATIENCE
from tier_support import (
	LINE,
	MANY,
	PATIENT,
	Handler,
	Make,
	Oddity,
	RedisServer,
	bent,
	between,
	check_other_headers,
	compile_many,
	shared,
	upload_many,
)

pytestmark = [
	pytest.mark.skipif(not COMPILERS, reason="needs a compiler"),
	pytest.mark.skipif(not shutil.which("redis-server"), reason="apt-get install redis-server"),
]
Start = Callable[[Optional[Handler]], Oddity]


def test_what_one_machine_compiled_another_one_hits(machine: Make, redis: RedisServer) -> None:
	"""The hit has its messages, and then is in the local store. ``--explain`` names the tier, without its password."""
	first, second = machine(redis.address), machine(redis.address)
	first.write("x.c", "#warning hear this\nint f;\n")
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit") and f"it came from redis://127.0.0.1:{redis.port}/1" in said
	assert (remote["hits"], remote["errors"], remote["uploads"]) == (1, {}, 0)
	assert remote["bytes_in"] > 0
	said = second.same(LINE)
	assert said.startswith("hit") and "it came from" not in said
	assert second.remote()["hits"] == 1


def test_what_holds_nowhere_is_a_miss_that_says_so(machine: Make, redis: RedisServer) -> None:
	"""One tier has nothing, and one has entries with other facts. The results of both machines are kept there."""
	check_other_headers(machine, redis.address)


def test_what_is_large_is_fetched_when_it_is_known_to_fit(machine: Make, redis: RedisServer) -> None:
	"""An object of some megabytes is a separate value, which is not requested if the entry does not hold."""
	first, second, third = machine(redis.address), machine(redis.address), machine(redis.address)
	noise = first.write_noise()
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit") and remote["bytes_in"] > 1 << 20
	noise.write_bytes(b"other")
	assert "has it, but noise has changed" in third.same(LINE)
	assert third.remote()["bytes_in"] < 1 << 20


def far_away(data: bytes) -> bytes:
	"""Delay all messages."""
	time.sleep(0.1)
	return data


def test_all_that_are_asked_for_at_once_come_in_few_round_trips(
	machine: Make, redis: RedisServer, oddity: Start
) -> None:
	"""Many compiles of ninja or make are hits, and the server reads fewer pieces."""
	server = oddity(between(redis.port, far_away))
	first, second = machine(redis.address), machine(redis.address.replace(str(redis.port), str(server.port)))
	upload_many(first)
	redis.ask("config", "resetstat")
	compile_many(second, MANY)
	assert second.remote()["hits"] == MANY
	told = dict(line.split(":", 1) for line in redis.ask("info", "stats").splitlines() if ":" in line)
	assert int(told["total_reads_processed"]) < MANY


def test_the_next_tier_is_asked_when_one_has_nothing(machine: Make, redis: RedisServer) -> None:
	"""Tiers are asked in the order of the setting. A read-only tier gets nothing."""
	nobody = "redis://127.0.0.1:1"
	first, second = machine(redis.address), machine(f"{nobody}|read-only {redis.address}|read-only")
	first.write("x.c", "int f;\n")
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit")
	assert remote["errors"] == {f"{nobody}: nobody listens there": 1}
	second.write("x.c", "int g;\n")
	second.until_hit(LINE)
	assert second.remote()["uploads"] == 0
	assert "only read" in second.ask("--show-stats")


def test_what_a_later_tier_has_the_earlier_ones_get(machine: Make, redis: RedisServer, tmp_path: pathlib.Path) -> None:
	"""This happens in the background, with the blobs; but not for a client or a tier that is read-only."""
	near, third = RedisServer(tmp_path / "near"), RedisServer(tmp_path / "third")
	with near.run(), third.run():
		first = machine(redis.address)
		first.write("x.c", "int f;\n")
		first.until_hit(LINE)
		first.until_uploaded()
		reader = machine(f"{near.address} {redis.address}")
		assert reader.same(LINE, WAFCC_READONLY="1").startswith("hit")
		reader.ask("--shutdown")
		assert near.ask("dbsize").strip() == "0"
		second = machine(f"{near.address} {third.address}|read-only {redis.address}")
		assert second.same(LINE).startswith("hit")
		assert second.until_uploaded()["uploads"] == 1
		assert third.ask("dbsize").strip() == "0"
		assert machine(near.address).same(LINE).startswith("hit")


def test_clients_say_what_they_want_of_tiers(machine: Make, redis: RedisServer) -> None:
	"""A read-only client uploads nothing, one that recaches looks nothing up, and a disabled one does neither."""
	first, second = machine(redis.address), machine(redis.address)
	first.write("x.c", "int f;\n")
	first.run(LINE, True, WAFCC_DISABLE="1")
	assert first.same(LINE, WAFCC_READONLY="1").startswith("uncached")
	assert redis.ask("dbsize").strip() == "0"
	first.until_hit(LINE)
	first.until_uploaded()
	assert second.same(LINE, WAFCC_RECACHE="1").startswith("miss")
	assert second.remote()["hits"] == 0
	third = machine(redis.address)
	assert third.same(LINE, WAFCC_READONLY="1").startswith("hit")


def test_what_is_cached_anew_takes_the_place_of_the_old_result(machine: Make, redis: RedisServer) -> None:
	"""Another machine gets the new result. gcc's objects for the linker's optimizer differ from run to run."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	line = "gcc -flto -c x.c -o x.o"
	first, second = machine(redis.address), machine(redis.address)
	first.write("x.c", "int f;\n")
	deadline = time.monotonic() + PATIENCE
	old = first.run(line, True).files["x.o"]
	while not first.explain(first.folder / "x.o").startswith("hit"):
		assert time.monotonic() < deadline
		old = first.run(line, True).files["x.o"]
	uploads = first.until_uploaded()["uploads"]
	new = first.run(line, True, WAFCC_RECACHE="1").files["x.o"]
	assert new != old
	first.until_uploaded(uploads + 1)
	assert second.run(line, True).files["x.o"] == new
	assert second.explain(second.folder / "x.o").startswith("hit")


def test_redis_behind_a_unix_socket(machine: Make, redis: RedisServer, tmp_path: pathlib.Path) -> None:
	"""The address is ccache's, with a password and a database. A wrong password and a missing socket are told."""
	folder = pathlib.Path(tempfile.mkdtemp(prefix="redis-"))
	server = RedisServer(tmp_path / "other")
	path = folder / "sock"
	try:
		with server.run("--unixsocket", str(path)):

			def address(password: str, place: pathlib.Path = path) -> str:
				return f"redis+unix://:{password}@localhost{place}?db=1{PATIENT}"

			first, second = machine(address(server.password)), machine(address(server.password))
			first.write("x.c", "int f;\n")
			said, remote = shared(first, second, LINE)
			assert said.startswith("hit") and remote["hits"] == 1
			assert remote["tiers"][0]["name"] == f"redis+unix:{path}?db=1"
			assert int(server.ask("dbsize")) > 0
			wrong = machine(address("wrong"))
			assert wrong.same(LINE).startswith("miss")
			assert any("it refused: WRONGPASS" in why for why in wrong.remote()["errors"]), wrong.remote()
		gone = machine(address(server.password, folder / "none"))
		assert gone.same(LINE).startswith("miss")
		assert any("nobody listens there" in why for why in gone.remote()["errors"]), gone.remote()
	finally:
		shutil.rmtree(folder)


def test_the_setting_may_change_while_the_engine_runs(machine: Make, redis: RedisServer) -> None:
	"""``--set-config`` tells it; ``--show-config`` hides the password."""
	first, second = machine(redis.address), machine("")
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	first.until_uploaded()
	assert second.run("true", True).status == 0
	assert second.remote()["tiers"] == []
	second.ask("--set-config", f"remote={redis.address}")
	assert [tier["name"] for tier in second.remote()["tiers"]] == [f"redis://127.0.0.1:{redis.port}/1"]
	assert second.same(LINE).startswith("hit")
	told = second.ask("--show-config")
	assert redis.password not in told and "redis://***@127.0.0.1" in told


def test_a_mistake_in_the_setting_is_named_and_stops_nothing(machine: Make) -> None:
	"""One line names it, without the password, and says what to write instead."""
	first = machine("redis://:geheim@host/x")
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	argv = [first.wafcc, "--show-config"]
	done = subprocess.run(argv, env=first.environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
	assert done.returncode == 1 and "geheim" not in done.stdout + done.stderr
	assert done.stderr.count("\n") == 1
	assert "redis://***@host/x: its database is a number; write redis://HOST/0" in done.stderr


def test_a_wrong_password_is_told_and_costs_nothing_else(machine: Make, redis: RedisServer) -> None:
	"""The builds go on, and the statistics name the remedy."""
	first = machine(f"redis://:wrong@127.0.0.1:{redis.port}")
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	assert any("WRONGPASS" in error and "redis://:PASSWORD@HOST" in error for error in first.remote()["errors"])


def silent(connection: socket.socket) -> None:
	"""Accepts connections and data, and answers nothing."""
	while connection.recv(65536):
		pass


def garbled(connection: socket.socket) -> None:
	"""Answers in no known protocol."""
	while connection.recv(65536):
		connection.sendall(b"\x00\xff nonsense\r\n" * 100)


def boastful(connection: socket.socket) -> None:
	"""Announces a long answer."""
	while connection.recv(65536):
		connection.sendall(b"*1000000000\r\n$2000000000\r\n")


def curt(connection: socket.socket) -> None:
	"""Closes in the middle of an answer."""
	connection.recv(65536)
	connection.sendall(b"*1\r\n$1000\r\nabc")
	connection.close()


def dripping(connection: socket.socket) -> None:
	"""Answers without end, a byte at a time."""
	connection.recv(65536)
	connection.sendall(b"*1\r\n$100000000\r\n")
	while True:
		connection.sendall(b"x")
		time.sleep(0.05)


@pytest.mark.parametrize("handle", [silent, garbled, boastful, curt, dripping])
def test_a_server_that_misbehaves_costs_no_result(machine: Make, oddity: Start, handle: Handler) -> None:
	"""Results are those of a plain build, and the server is not asked any more after one time-out or some errors."""
	server = oddity(handle)
	first = machine(f"redis://127.0.0.1:{server.port}|operation-timeout=500|pause=600000")
	for n in range(8):
		first.write(f"x{n}.c", f"int f{n};\n")
		first.same(f"{COMPILERS[0]} -c x{n}.c -o x{n}.o")
	remote = first.remote()
	assert remote["hits"] == 0 and remote["tiers"][0]["state"].startswith("left alone, since")
	lookups = {name: n for name, n in remote["errors"].items() if "an upload" not in name}
	assert sum(lookups.values()) <= (1 if handle in (silent, dripping) else 3), lookups


def test_a_dead_server_is_waited_for_once(machine: Make, oddity: Start) -> None:
	"""Commands that wait together are released together by one time-out, which is logged once."""
	server = oddity(silent)
	first = machine(f"redis://127.0.0.1:{server.port}|pause=600000")
	for n in range(8):
		first.write(f"x{n}.c", f"int f{n};\n")
	compile_many(first, 8, 8)
	errors = first.remote()["errors"]
	silences = {name: n for name, n in errors.items() if "an upload" not in name}
	assert list(silences.values()) == [1], errors
	(log,) = first.runtime.glob("*.log")
	assert log.read_text().count("left alone for") == 1


def test_a_server_that_comes_back_is_asked_again(machine: Make, redis: RedisServer, tmp_path: pathlib.Path) -> None:
	"""It is asked in the background, so that no build waits. A restarted server is found again at once."""
	later = RedisServer(tmp_path / "later")
	first = machine(f"{later.address}|pause=50")
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	for n in range(4):
		first.write("x.c", f"int f{n};\n")
		first.same(LINE)
	assert "nobody listens there" in first.remote()["tiers"][0]["state"]
	with later.run():
		deadline = time.monotonic() + PATIENCE
		while first.remote()["tiers"][0]["state"] != "is asked":
			assert time.monotonic() < deadline
			time.sleep(0.02)
		first.write("x.c", "int again;\n")
		assert re.search("does not have it|has it, but", first.same(LINE))
	with later.run():
		first.write("x.c", "int and_again;\n")
		assert re.search("does not have it|has it, but", first.same(LINE))


def test_a_bundle_that_was_damaged_is_none(machine: Make, redis: RedisServer, oddity: Start) -> None:
	"""Any changed byte on its way makes it a miss, never another result."""
	first = machine(redis.address)
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	first.until_uploaded()
	server = oddity(between(redis.port, lambda data: bent(data, b"wfs\x01", 60)))
	second = machine(redis.address.replace(str(redis.port), str(server.port)) + "|read-only")
	assert second.same(LINE).startswith("miss")
	assert second.remote()["hits"] == 0


def test_a_blob_that_is_another_is_not_used(machine: Make, redis: RedisServer, oddity: Start) -> None:
	"""A large object comes alone, and does not have its digest."""
	first = machine(redis.address)
	first.write_noise()
	first.until_hit(LINE)
	first.until_uploaded()
	server = oddity(between(redis.port, lambda data: bent(data, b"wfb\x01", 2000)))
	second = machine(redis.address.replace(str(redis.port), str(server.port)) + "|read-only")
	assert second.same(LINE).startswith("miss")
	assert any("not what its digest says" in error for error in second.remote()["errors"])


def test_an_engine_that_ends_has_uploaded_what_it_stored(machine: Make, redis: RedisServer) -> None:
	"""``--shutdown`` right after a build loses nothing if the server answers."""
	first, second = machine(redis.address), machine(redis.address)
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	first.ask("--shutdown")
	assert second.same(LINE).startswith("hit")
