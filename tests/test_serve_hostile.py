"""`wafd serve` with malicious clients: they are refused, its memory stays small, and others are served."""

import contextlib
import hashlib
import pathlib
import random
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterator, List, Optional, Tuple

import pytest
from serve_support import OTHER, PATIENCE, TOKEN, RoomClient, Server, frame, hello, wait_until, write_tokens

Serve = Callable[..., Server]
MANY = 1000
MEGABYTE = 1 << 20
NUMBER = struct.pack("<I", 1)
KEY = bytes(range(32))


@contextlib.contextmanager
def crowd(server: Server, count: int, first: bytes) -> Iterator[List[socket.socket]]:
	"""Connections that have sent this much."""
	peers: List[socket.socket] = []
	try:
		for _ in range(count):
			peers.append(socket.create_connection(server.address, timeout=PATIENCE))
			peers[-1].sendall(first)
		yield peers
	finally:
		for peer in peers:
			peer.close()


def turned(server: Server, why: str) -> int:
	return server.metrics()['wafd_serve_turned_away_total{why="%s"}' % why]


def has_turned(server: Server, why: str, count: int) -> bool:
	"""Tell whether so many clients were refused. The question itself may be refused while the server is busy."""
	try:
		return turned(server, why) >= count
	except ConnectionError:
		return False


UPLOAD = struct.pack("<Q", MEGABYTE)
SLOW = {
	"room frame": hello() + struct.pack("<I", MEGABYTE) + b"\5" + NUMBER + b"x" * 5000,
	"room upload": hello() + frame(0x05, NUMBER, bytes(32), b"\0", UPLOAD, b"x" * 5000),
	"http head": b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Le",
	"http body": b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 5000,
	"redis value": b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n" + b"x" * 5000,
	"nothing": b"",
}


@pytest.mark.parametrize("name", SLOW)
def test_a_thousand_slow_writers_are_bounded(serve: Serve, name: str) -> None:
	"""They use little memory, delay no other client, and are closed."""
	server = serve("--patience", "4")
	before = server.resident()
	with crowd(server, MANY, SLOW[name]) as peers:
		client = server.room()
		digest = client.put(b"content")
		assert client.put_entry(KEY, [digest], b"facts") == (0x89, b"")
		assert client.get([digest]) == [b"content"]
		assert server.request("PUT", "/ab/cdef", b"value")[0] == 201
		assert server.resident() - before < MANY * 64 * 1024
		wait_until("the slow ones are gone", lambda: server.metrics()["wafd_serve_connections"] <= 2)
		assert turned(server, "slow") + turned(server, "memory") >= MANY
		for peer in peers[:10]:
			with contextlib.suppress(ConnectionError):
				while peer.recv(1 << 16):
					pass
	assert client.ask(0x08) == (0x8B, b""), "who was quiet, but not slow, is still there"


def test_uploads_have_to_share_their_memory(serve: Serve) -> None:
	"""Uploads that do not fit go to files, and come back complete."""
	server = serve("--uploads", "1MB")
	content = b"x" * 200_000
	head = b"PUT /%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n"
	with crowd(server, 20, b"") as peers:
		for number, peer in enumerate(peers):
			peer.sendall(head % number + content[:-1])
		wait_until("all has come", lambda: server.metrics()["wafd_serve_received_bytes_total"] > 20 * 199_999)
		assert server.metrics()["wafd_serve_uploads_free_bytes"] < 200_000
		for peer in peers:
			peer.sendall(content[-1:])
			assert peer.recv(20).startswith(b"HTTP/1.1 201")
	assert {server.request("GET", "/%d" % number) for number in range(20)} == {(200, content)}
	wait_until("it is given back", lambda: server.metrics()["wafd_serve_uploads_free_bytes"] == 1_000_000)


def test_frames_wait_for_memory(serve: Serve) -> None:
	"""Many machines upload at once more than is to be held: each frame is read when there is room for all of it."""
	server = serve("--uploads", "4MB", "--workers", "2")
	size = MEGABYTE // 2
	clients = [server.room() for _ in range(40)]
	upload = frame(0x05, NUMBER, bytes(32), b"\0", struct.pack("<Q", size), bytes(size))
	for client in clients:
		client.send(upload[: size // 2])
	free = "wafd_serve_uploads_free_bytes"
	wait_until("no room is left for one more", lambda: server.metrics()[free] < size)

	def finish(client: RoomClient) -> Tuple[int, bytes]:
		client.send(upload[size // 2 :])
		return client.receive()

	with ThreadPoolExecutor(len(clients)) as pool:
		answers = list(pool.map(finish, clients))
	assert {(kind, body[4]) for kind, body in answers} == {(0x8A, 4)}, "all were read, and none has its digest"
	assert turned(server, "memory") == 0
	wait_until("it is given back", lambda: server.metrics()[free] == 4_000_000)


def test_a_client_that_does_not_read_gets_no_more_answers(serve: Serve) -> None:
	"""A hundred ask for gigabytes and read nothing: memory stays small, and they have to go."""
	server = serve("--patience", "4")
	client = server.room()
	content = hashlib.shake_128(b"noise").digest(3_000_000)
	digest = client.put(content[:200_000])
	assert server.request("PUT", "/large", content)[0] == 201
	before = server.resident()
	greedy = hello() + frame(0x03, NUMBER, struct.pack("<H", 4096), digest * 4096) * 2
	with crowd(server, 50, greedy), crowd(server, 50, b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100):
		assert client.get([digest]) == [content[:200_000]]
		wait_until("they are gone", lambda: has_turned(server, "slow", 100))
		assert server.resident() - before < 100 * MEGABYTE
	assert client.ask(0x08) == (0x8B, b"")


BROKEN = {
	"a length above the cap of greetings": struct.pack("<I", 4097) + b"\1WAFR",
	"a length above the cap": hello() + struct.pack("<I", 2 * MEGABYTE),
	"a frame of no length": hello() + struct.pack("<I", 0),
	"a request before the greeting": frame(0x08, NUMBER),
	"the greeting again": hello() + hello(),
	"a reply": hello() + frame(0x89, NUMBER),
	"an unknown kind": hello() + frame(0x7F, NUMBER),
	"too many digests": hello() + frame(0x04, NUMBER, struct.pack("<H", 4097), bytes(32) * 4097),
	"a truncated request": hello() + frame(0x04, NUMBER, struct.pack("<H", 2), bytes(32)),
	"an upload of a number that is taken": hello() + frame(0x05, NUMBER, bytes(32), b"\0", UPLOAD) * 2,
	"too many uploads": hello()
	+ b"".join(frame(0x05, struct.pack("<I", n), bytes(32), b"\0", UPLOAD) for n in range(65)),
	"a word that is too long": b"*2\r\n$3\r\nGET\r\n$99999999\r\n",
	"a bad length of a word": b"*1\r\n$-5\r\n",
	"nothing known": b"\0\1\2\3\4\5",
	"TLS where there is none": b"\x16\x03\x01\x02\x00\x01",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_malformed_ends_its_connection_only(serve: Serve, name: str) -> None:
	"""This is counted."""
	server = serve()
	client = server.room()
	with crowd(server, 1, BROKEN[name]) as (peer,):
		with contextlib.suppress(ConnectionError):
			while peer.recv(1 << 16):
				pass
		assert turned(server, "malformed") == 1
	assert client.ask(0x08) == (0x8B, b"")


@pytest.mark.parametrize(
	("request_", "status"),
	[
		(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20000, b"431"),
		(b"GARBAGE\r\n\r\n", b"400"),
		(b"POST /x HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
		(b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
		(b"PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
		(b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
	],
)
def test_a_bad_http_request_is_answered_and_ends(serve: Serve, request_: bytes, status: bytes) -> None:
	"""The answer has the reason."""
	server = serve()
	with crowd(server, 1, request_) as (peer,):
		answer = b""
		while True:
			part = peer.recv(1 << 16)
			if not part:
				break
			answer += part
	assert answer.startswith(b"HTTP/1.1 " + status) and b"Connection: close" in answer
	assert (b"\r\nAllow: GET, HEAD, PUT" in answer) == (status == b"405")


def test_changed_bytes_harm_no_other_client(serve: Serve) -> None:
	"""Good requests of each dialect with some of their bytes changed, cut anywhere."""
	server = serve()
	chance = random.Random(1)
	good = [
		hello() + frame(0x02, NUMBER, struct.pack("<IH", 9, 1), KEY) + frame(0x07, NUMBER, KEY, b"\0\0", b"facts"),
		hello() + frame(0x05, NUMBER, KEY, b"\1", struct.pack("<Q", 5), b"abc") + frame(0x06, NUMBER, b"de"),
		b"PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
		b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n",
		b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
	]
	client = server.room()
	for _ in range(100):
		for request in good:
			changed = bytearray(request[: chance.randrange(len(request) + 1)])
			for _ in range(chance.randrange(3)):
				if changed:
					changed[chance.randrange(len(changed))] = chance.randrange(256)
			with crowd(server, 1, bytes(changed)):
				pass
	assert client.ask(0x08) == (0x8B, b"")
	assert server.process.poll() is None


def session(server: Server, token: str) -> bytes:
	"""All messages of a client that store one entry and its blobs."""
	content = b"content" * 10
	digest = server.room(token).put(content)
	size = struct.pack("<Q", len(content))
	blob = frame(0x05, NUMBER, digest, b"\0", size, content[:50]) + frame(0x06, NUMBER, content[50:])
	return hello(token) + blob + frame(0x07, b"\2\0\0\0", KEY, struct.pack("<H", 1), digest, b"facts")


def test_what_is_cut_anywhere_stores_nothing(serve: Serve) -> None:
	"""The session is cut after each of its bytes. The complete one stores its entry."""
	server = serve()
	whole = session(server, "")
	before = server.metrics()
	for end in range(len(whole)):
		with crowd(server, 1, whole[:end]):
			pass
	wait_until("all are gone", lambda: server.metrics()["wafd_serve_connections"] <= before["wafd_serve_connections"])
	after = server.metrics()
	for name in ("store_entries", "store_bytes", "uploads_free_bytes"):
		assert after["wafd_serve_" + name] == before["wafd_serve_" + name]
	assert server.room().find([KEY]) == []
	with crowd(server, 1, whole):
		wait_until("it is stored", lambda: server.metrics()["wafd_serve_store_entries"] == 1)
	assert [found.entry for found in server.room().find([KEY])] == [b"facts"]


def test_a_session_that_is_played_again_changes_nothing(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""A listener may repeat it any number of times, and it is refused when its token is revoked."""
	tokens = write_tokens(tmp_path / "tokens", f"ci write - {TOKEN}", f"dev read - {OTHER}")
	server = serve("--tokens", str(tokens))
	whole = session(server, TOKEN)
	answers, stored = set(), set()
	for _ in range(20):
		with crowd(server, 1, whole) as (peer,):
			answers.add(read_until(peer, frame(0x89, b"\2\0\0\0")))
		counts = server.metrics(TOKEN)
		stored.add(tuple(counts["wafd_serve_store_" + what] for what in ("entries", "blobs", "bytes")))
	assert (len(answers), len(stored)) == (1, 1) and stored.pop()[0] == 1
	write_tokens(tokens, f"dev read - {OTHER}")
	wait_until("it is revoked", lambda: server.request("GET", "/x", token=TOKEN)[0] == 401)
	with crowd(server, 1, whole) as (peer,):
		assert read_until(peer, None)[4:6] == b"\x82\2"
	assert server.metrics(OTHER)["wafd_serve_store_entries"] == 1


def read_until(peer: socket.socket, last: Optional[bytes]) -> bytes:
	"""All bytes up to these, or up to the end."""
	answer = b""
	with contextlib.suppress(ConnectionError):
		while last is None or not answer.endswith(last):
			part = peer.recv(1 << 16)
			if not part:
				break
			answer += part
	return answer


def test_no_more_connections_than_allowed(serve: Serve) -> None:
	"""The next connection is closed at once. When one has ended, there is room again."""
	server = serve("--max-connections", "10")
	clients = [server.room() for _ in range(10)]
	with pytest.raises((EOFError, ConnectionError)):
		server.room()
	clients[0].close()
	wait_until("there is room again", lambda: is_welcome(server))


def is_welcome(server: Server) -> bool:
	try:
		server.room().close()
	except (EOFError, ConnectionError):
		return False
	return True


def test_a_rate_holds_back_one_connection_only(serve: Serve) -> None:
	"""The connection gets all answers, at its rate."""
	server = serve("--rate", "10")
	hasty = server.room()
	hasty.send(frame(0x08, NUMBER) * 25)
	assert server.room().ask(0x08) == (0x8B, b"")
	assert [hasty.receive() for _ in range(25)] == [(0x8B, NUMBER)] * 25


def test_tokens_are_tried_in_vain(serve: Serve) -> None:
	"""Each attempt costs a connection, or is answered with a request for a token."""
	server = serve("--open-metrics", WAFD_SERVE_TOKEN=TOKEN)
	with crowd(server, 50, hello("guess" * 5)) as peers:
		for peer in peers:
			assert peer.recv(100)[4:6] == b"\x82\2"
	for guess in ("guess" * 5, TOKEN[:-1], TOKEN + "x"):
		assert server.request("GET", "/x", token=guess)[0] == 401
	assert turned(server, "token") == 53
