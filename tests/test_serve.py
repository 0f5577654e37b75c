"""`wafd serve`: rights, storage, and its end; the tests ask as another wafd does."""

import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
from typing import Callable, Dict, Sequence

import pytest
from serve_support import OTHER, PATIENCE, TOKEN, Refused, Server, frame, hello, wait_until, write_tokens

KEY = bytes(range(32))
Serve = Callable[..., Server]


def noise(size: int, seed: str = "") -> bytes:
	"""Bytes that cannot be packed."""
	return hashlib.shake_128(seed.encode()).digest(size)


def run(engine: str, *words: str, status: int = 1, **env: str) -> str:
	"""The output of a `wafd serve` that does not start."""
	environ = {name: value for name, value in os.environ.items() if not name.startswith("WAFD_")}
	done = subprocess.run(
		[engine, "serve", *words],
		env={**environ, **env},
		capture_output=True,
		encoding="utf-8",
		timeout=PATIENCE,
		check=False,
	)
	assert done.returncode == status, done.stderr
	return done.stdout if status == 0 else done.stderr


def test_an_entry_comes_back_with_its_blobs(serve: Serve) -> None:
	"""A client finds an entry that another one has stored, and gets it with the requested blobs."""
	server = serve()
	writer = server.room()
	small, large = noise(1000), noise(3_000_000)
	needs = [writer.put(small), writer.put(large)]
	assert writer.put_entry(KEY, needs, b"the facts") == (0x89, b"")
	reader = server.room()
	(found,) = reader.find([bytes(32), KEY], inline=4096)
	assert (found.number, found.entry, found.contents) == (1, b"the facts", {needs[0]: small})
	assert reader.get([needs[1], bytes(32), needs[0]]) == [large, None, small]
	kind, body = reader.ask(0x04, (3).to_bytes(2, "little"), *needs, bytes(32))
	assert (kind, body) == (0x88, b"\3\0\3")
	assert reader.ask(0x08) == (0x8B, b"")


def test_a_thousand_keys_are_asked_for_at_once(serve: Serve) -> None:
	"""One request asks for the maximal number of keys, and the answers come in their order."""
	client = serve().room()
	keys = [number.to_bytes(32, "big") for number in range(4096)]
	for number in range(0, 4096, 512):
		assert client.put_entry(keys[number], [], b"entry %d" % number)[0] == 0x89
	found = client.find(keys)
	assert [(one.number, one.entry) for one in found] == [(n, b"entry %d" % n) for n in range(0, 4096, 512)]


def test_entries_of_one_key_come_newest_first(serve: Serve) -> None:
	"""A key may have several entries."""
	client = serve().room()
	for entry in (b"one", b"two", b"three"):
		client.put_entry(KEY, [client.put(entry)], entry)
	assert [found.entry for found in client.find([KEY])] == [b"three", b"two", b"one"]


def test_what_is_not_right_is_not_kept(serve: Serve) -> None:
	"""Each upload that cannot be kept is answered with the reason, and the connection goes on."""
	server = serve("--max-blob", "1MB")
	client = server.room()
	assert client.largest == 1_000_000
	kind, body = client.put_entry(KEY, [bytes(32)], b"facts")
	assert (kind, body[0]) == (0x8A, 1), "it needs a blob that is not there"
	kind, body = client.upload(bytes(32), noise(1_000_001), piece=1_000_000)
	assert (kind, body[0]) == (0x8A, 3), "too large"
	kind, body = client.upload(bytes(32), noise(500_000))
	assert (kind, body[0]) == (0x8A, 4), "another digest"
	kind, body = client.upload(bytes(32), b"no zstd", coding=1)
	assert (kind, body[0]) == (0x8A, 6), "it cannot be unpacked"
	number = client.number()
	client.send(frame(0x05, number, bytes(32), b"\0", (1).to_bytes(8, "little")))
	client.send(frame(0x06, number, b"two"))
	kind, body = client.receive()
	assert (kind, body[4]) == (0x8A, 6), "more than was told"
	assert client.find([KEY]) == []
	assert client.ask(0x08) == (0x8B, b"")


def test_an_abandoned_upload_is_forgotten(serve: Serve) -> None:
	"""The number of the upload is free again, and nothing is answered."""
	client = serve().room()
	number = client.number()
	client.send(frame(0x05, number, bytes(32), b"\0", (10).to_bytes(8, "little"), b"half"))
	client.send(frame(0x09, number))
	client.send(frame(0x06, number, b"late"))
	assert client.ask(0x08) == (0x8B, b"")


def test_tokens_have_rights(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""A reader may read, a writer may write, an unknown client is refused, and namespaces are separate."""
	tokens = write_tokens(
		tmp_path / "tokens", f"ci write team {TOKEN}", f"dev read team {OTHER}", "x write other " + "x" * 20
	)
	server = serve("--tokens", str(tokens))
	writer, reader = server.room(TOKEN), server.room(OTHER, namespace="team")
	assert (writer.rights, reader.rights) == (3, 1)
	assert writer.put_entry(KEY, [], b"facts") == (0x89, b"")
	assert [found.entry for found in reader.find([KEY])] == [b"facts"]
	kind, body = reader.put_entry(KEY, [], b"other facts")
	assert (kind, body[0]) == (0x8A, 2)
	kind, body = reader.upload(bytes(32), b"content")
	assert (kind, body[0]) == (0x8A, 2)
	assert server.room("x" * 20).find([KEY]) == []
	for token, why, more in [("", 2, {}), (TOKEN[:-1], 2, {}), (TOKEN, 3, {"namespace": "other"})]:
		with pytest.raises(Refused) as refused:
			server.room(token, **more)
		assert refused.value.args[0] == why


def test_a_revoked_token_ends_its_connections(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""This needs no restart, and other connections stay. A file with an error revokes nothing."""
	tokens = write_tokens(tmp_path / "tokens", f"ci write - {TOKEN}", f"dev read - {OTHER}")
	server = serve("--tokens", str(tokens))
	ci, dev = server.room(TOKEN), server.room(OTHER)
	write_tokens(tokens, "nonsense")
	wait_until("the wrong file is told of", lambda: "the tokens stay" in server.log.read_text())
	assert ci.ask(0x08) == (0x8B, b"")
	write_tokens(tokens, f"dev read - {OTHER}")
	assert ci.is_closed()
	assert dev.ask(0x08) == (0x8B, b"")
	with pytest.raises(Refused):
		server.room(TOKEN)


def test_a_new_token_is_a_hash_in_the_file(engine: str, serve: Serve, tmp_path: pathlib.Path) -> None:
	"""The token is printed once, and is valid at once."""
	path = tmp_path / "tokens"
	token = run(engine, "--new-token", "ci", "--write", "--tokens", str(path), status=0).strip()
	reader = run(engine, "--new-token", "dev", "--tokens", str(path), status=0).strip()
	assert token not in path.read_text() and path.stat().st_mode & 0o777 == 0o600
	assert "there is a token ci already" in run(engine, "--new-token", "ci", "--tokens", str(path))
	server = serve("--tokens", str(path))
	assert (server.room(token).rights, server.room(reader).rights) == (3, 1)


def test_a_token_of_the_environment_may_write(serve: Serve) -> None:
	"""The simple case."""
	server = serve(WAFD_SERVE_TOKEN=TOKEN)
	assert server.room(TOKEN).put_entry(KEY, [], b"facts") == (0x89, b"")
	with pytest.raises(Refused):
		server.room()


@pytest.mark.parametrize(
	("words", "says"),
	[
		(["--listen", "0.0.0.0:0"], "there are no tokens, so only addresses of loopback"),
		(["--listen", "127.0.0.1:0", "--tokens", "{tmp}/none"], "tokens {tmp}/none: No such file"),
		(["--listen", "127.0.0.1:0", "--tokens", "{tmp}/open"], "others may read or write it; chmod 600 it"),
		(["--listen", "127.0.0.1:0", "--tokens", "{tmp}/wrong"], "line 1: the rights are"),
		(["--listen", "127.0.0.1:0", "--tls-cert", "{tmp}/wrong", "--tls-key", "{tmp}/wrong"], "there is none in it"),
		(["--bogus"], "see wafd serve --help"),
	],
)
def test_what_it_cannot_do_is_one_line(engine: str, tmp_path: pathlib.Path, words: Sequence[str], says: str) -> None:
	"""The exit status is 1."""
	(tmp_path / "open").touch(0o644)
	write_tokens(tmp_path / "wrong", "ci all - " + TOKEN)
	store = ["--store", str(tmp_path / "store")] if "--listen" in words else []
	error = run(engine, *[word.format(tmp=tmp_path) for word in words], *store)
	assert says.format(tmp=tmp_path) in error
	assert error.startswith("wafd: ") and error.count("\n") == 1


def test_a_store_has_one_server(engine: str, serve: Serve) -> None:
	"""The second server says that the place is taken."""
	server = serve()
	store = str(server.folder / "store")
	assert "another wafd uses it" in run(engine, "--listen", "127.0.0.1:0", "--store", store)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_acknowledged_survives(serve: Serve, how: int) -> None:
	"""Acknowledged values survive every kind of end."""
	server = serve()
	client = server.room()
	content = noise(700_000)
	for number in range(50):
		needs = [client.put(noise(100, str(number)))] + ([client.put(content)] if number == 49 else [])
		assert client.put_entry(number.to_bytes(32, "big"), needs, b"entry %d" % number)[0] == 0x89
	assert server.request("PUT", "/ab/cdef", b"a value")[0] == 201
	server.again(how)
	client = server.room()
	found = client.find([number.to_bytes(32, "big") for number in range(50)], inline=1000)
	assert [one.entry for one in found] == [b"entry %d" % number for number in range(50)]
	assert list(found[7].contents.values()) == [noise(100, "7")]
	assert client.get(needs)[1] == content
	assert server.request("GET", "/ab/cdef") == (200, b"a value")


def test_it_ends_after_what_is_under_way(serve: Serve) -> None:
	"""SIGTERM ends idle connections at once; an upload that has begun is stored and answered first."""
	server = serve()
	idle, busy = server.room(), server.room()
	content = noise(300_000)
	digest = server.room().put(noise(10))
	number = busy.number()
	busy.send(frame(0x05, number, digest[:31] + b"x", b"\0", len(content).to_bytes(8, "little"), content[:1000]))
	wait_until("the upload has begun", lambda: server.metrics()["wafd_serve_received_bytes_total"] > 1000)
	server.process.send_signal(signal.SIGTERM)
	assert idle.is_closed()
	busy.send(frame(0x06, number, content[1000:]))
	kind, body = busy.receive()
	assert (kind, body[:5]) == (0x8A, number + b"\4"), "it was looked at to its end"
	assert server.process.wait(PATIENCE) == 0
	with pytest.raises(ConnectionRefusedError):
		socket.create_connection(server.address, timeout=PATIENCE)


def test_writes_are_logged(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""A line of JSON per write, and none for what was refused."""
	tokens = write_tokens(tmp_path / "tokens", f"ci write team {TOKEN}", f"dev read team {OTHER}")
	server = serve("--tokens", str(tokens), "--log-writes", str(tmp_path / "writes"))
	client = server.room(TOKEN)
	digest = client.put(b"content")
	client.put_entry(KEY, [digest], b"facts")
	server.request("PUT", "/ac/x", b"value", token=TOKEN)
	server.request("PUT", "/ac/y", b"value", token=OTHER)
	server.request("DELETE", "/ac/x", token=TOKEN)
	lines = [json.loads(line) for line in (tmp_path / "writes").read_text().splitlines()]
	assert [(line["what"], line["key"], line["size"]) for line in lines] == [
		("blob", digest.hex(), 7),
		("entry", KEY.hex(), 5),
		("put", "/ac/x", 5),
		("delete", "/ac/x", 0),
	]
	assert {(line["who"], line["namespace"]) for line in lines} == {("ci", "team")}
	assert {line["address"].rsplit(":", 1)[0] for line in lines} == {"127.0.0.1"}


def test_metrics_count_and_take_a_token(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""Metrics have the format of Prometheus, or JSON."""
	tokens = write_tokens(tmp_path / "tokens", f"ci write team {TOKEN}")
	server = serve("--tokens", str(tokens))
	assert server.request("GET", "/metrics")[0] == 401
	client = server.room(TOKEN)
	client.put_entry(KEY, [], b"facts")
	client.find([KEY, bytes(32)])
	metrics = server.metrics(TOKEN)
	for outcome in ("hit", "miss", "stored"):
		assert metrics['wafd_serve_requests_total{language="room",outcome="%s"}' % outcome] == 1
		assert metrics['wafd_serve_namespace_requests_total{namespace="team",outcome="%s"}' % outcome] == 1
	assert metrics['wafd_serve_turned_away_total{why="token"}'] == 1
	assert metrics["wafd_serve_store_entries"] == 1
	# those of the requests before may take a moment to go
	wait_until("only this one and the client's are left", lambda: status(server)["connections"] == 2)
	assert status(server)["store_entries"] == 1


def status(server: Server) -> Dict[str, int]:
	return json.loads(server.request("GET", "/status", token=TOKEN)[1])


def held(server: Server, namespace: str = "team") -> int:
	return server.metrics(TOKEN)['wafd_serve_namespace_held_bytes{namespace="%s"}' % namespace]


def test_a_namespace_keeps_to_its_quota(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""The namespace loses its least recently used entries, and others lose nothing; also after a restart."""
	tokens = write_tokens(tmp_path / "tokens", f"ci write team {TOKEN}", f"dev write - {OTHER}")
	server = serve("--tokens", str(tokens), "--quota", "team=200K")
	for number in range(3):
		assert server.request("PUT", f"/{number}", noise(10_000, f"other {number}"), OTHER)[0] == 201
	room = server.room(TOKEN)
	assert room.put_entry(KEY, [room.put(noise(10_000))], b"facts")[0] == 0x89
	assert 10_000 < held(server) < 20_000
	for number in range(30):
		assert server.request("PUT", f"/{number}", noise(10_000, str(number)), TOKEN)[0] == 201
	wait_until("it keeps to its quota", lambda: held(server) <= 200_000)
	assert held(server) > 100_000, "no more goes than has to"
	assert status(server)["namespace_quota_bytes"] == {"namespace=team": 200_000}

	def there(number: int) -> bool:
		return server.request("HEAD", f"/{number}", token=TOKEN)[0] == 200

	assert room.find([KEY]) == [] and not there(0) and there(29)
	server.again(signal.SIGKILL)
	mark = len(b"a value of wafd serve\nteam")
	assert held(server) == sum(there(number) for number in range(30)) * (10_000 + mark)
	for number in range(3):
		assert server.request("GET", f"/{number}", token=OTHER) == (200, noise(10_000, f"other {number}"))
	server.options = ("--tokens", str(tokens), "--quota", "team=50K")
	server.again()
	wait_until("it keeps to its new quota", lambda: held(server) <= 50_000)
	assert there(29)


@pytest.mark.parametrize("size", [60_000, 300_000])
def test_what_is_larger_than_a_quota_is_refused(serve: Serve, size: int) -> None:
	"""The answer has the reason, and nothing is evicted."""
	server = serve("--quota", "-=50K")
	assert server.request("PUT", "/small", b"small")[0] == 201
	status, words = server.request("PUT", "/large", noise(size))
	assert (status, words) == (507, b"it takes %d bytes; the quota of its namespace is 50000\n" % size)
	room = server.room()
	kind, body = room.put_entry(KEY, [room.put(noise(size))], b"facts")
	assert (kind, body[0]) == (0x8A, 5) and b"the quota of its namespace is 50000" in body
	assert server.request("GET", "/small") == (200, b"small")
	assert server.request("GET", "/large")[0] == 404


def test_open_metrics_take_no_token_from_here(serve: Serve) -> None:
	"""Only the metrics are open."""
	server = serve("--open-metrics", WAFD_SERVE_TOKEN=TOKEN)
	assert server.metrics()["wafd_serve_connections"] == 1
	assert server.request("GET", "/ab/cdef")[0] == 401


def test_a_greeting_of_another_version_is_refused(serve: Serve) -> None:
	"""The answer has the reason."""
	server = serve()
	with socket.create_connection(server.address, timeout=PATIENCE) as peer:
		peer.sendall(hello(lowest=2, highest=9))
		answer = peer.recv(1000)
	assert answer[4:6] == b"\x82\1"
