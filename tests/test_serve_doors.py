"""Access to `wafd serve`: by which name, from which page, with which token; and how little is used before that."""

import contextlib
import http.server
import os
import pathlib
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest
from serve_support import OTHER, PATIENCE, TOKEN, Refused, RoomClient, Server, wait_until, write_tokens

Serve = Callable[..., Server]
REDIS_SET = b"*3\r\n$3\r\nSET\r\n$4\r\nevil\r\n$1\r\nv\r\n"
REDIS_GET = b"*2\r\n$3\r\nGET\r\n$4\r\nevil\r\n"
NOAUTH = b"-NOAUTH Authentication required.\r\n"


class Peer:
	"""A connection of raw bytes."""

	def __init__(self, server: Server, first: bytes = b"") -> None:
		self.socket = socket.create_connection(server.address, timeout=PATIENCE)
		self.say(first)

	def say(self, data: bytes) -> None:
		"""Send bytes. The server may close the connection meanwhile."""
		with contextlib.suppress(ConnectionError):
			self.socket.sendall(data)

	def hear(self, count: int) -> bytes:
		heard = b""
		while len(heard) < count:
			part = self.socket.recv(count - len(heard))
			if not part:
				break
			heard += part
		return heard

	def rest(self) -> bytes:
		"""All bytes until the end."""
		heard = b""
		with contextlib.suppress(ConnectionError):
			while True:
				part = self.socket.recv(1 << 16)
				if not part:
					break
				heard += part
		return heard

	def close(self) -> None:
		self.socket.close()


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
	"""A function that connects; all are closed when the test ends."""
	peers: List[Peer] = []

	def connect(server: Server, first: bytes = b"") -> Peer:
		peers.append(Peer(server, first))
		return peers[-1]

	yield connect
	for one in peers:
		one.close()


def count(server: Server, name: str, token: str = "") -> int:
	return server.metrics(token)["wafd_serve_" + name]


# Tokens that come and go


def enter_room(server: Server) -> socket.socket:
	client = RoomClient(server.address)
	server.clients.append(client)
	client.greet("", "")
	client.put(b"content")
	return client.socket


def enter_http(server: Server) -> socket.socket:
	there = Peer(server, b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv")
	assert there.hear(12) == b"HTTP/1.1 201"
	return there.socket


def enter_redis(server: Server) -> socket.socket:
	there = Peer(server, REDIS_SET)
	assert there.hear(5) == b"+OK\r\n"
	return there.socket


def begin_upload(server: Server) -> socket.socket:
	there = Peer(server, b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nbegun")
	wait_until("it has begun", lambda: count(server, "uploads_free_bytes") < 256_000_000)
	return there.socket


def is_closed_to_all(server: Server) -> bool:
	"""Tell whether a client without a token is refused in every protocol."""
	if server.request("GET", "/x")[0] != 401:
		return False
	assert server.request("PUT", "/x", b"1")[0] == 401
	there = Peer(server, REDIS_SET)
	assert there.hear(len(NOAUTH)) == NOAUTH
	there.close()
	with pytest.raises(Refused):
		server.room()
	return True


@pytest.mark.parametrize("enter", [enter_room, enter_http, enter_redis, begin_upload])
def test_a_token_that_is_added_closes_an_open_server(
	serve: Serve, tmp_path: pathlib.Path, enter: Callable[[Server], socket.socket]
) -> None:
	"""This holds at once, also for open connections of every protocol; clients with the token go on."""
	tokens = write_tokens(tmp_path / "tokens")
	server = serve("--tokens", str(tokens))
	with contextlib.closing(enter(server)) as there:
		write_tokens(tokens, f"ci write - {TOKEN}")
		there.settimeout(PATIENCE)
		with contextlib.suppress(ConnectionError):
			while there.recv(1 << 16):
				pass
	assert is_closed_to_all(server)
	assert server.request("PUT", "/x", b"1", token=TOKEN)[0] == 201
	assert count(server, 'turned_away_total{why="revoked"}', TOKEN) == 1


@pytest.mark.parametrize("text", ["ci write - short", "no line of tokens", f"ci rw - {TOKEN}"])
def test_a_token_that_is_added_wrongly_closes_an_open_server(serve: Serve, tmp_path: pathlib.Path, text: str) -> None:
	"""The user wanted to add one, so until the file is corrected all clients are refused."""
	tokens = write_tokens(tmp_path / "tokens")
	server = serve("--tokens", str(tokens))
	assert server.request("PUT", "/x", b"1")[0] == 201
	write_tokens(tokens, text)
	wait_until("it is closed", lambda: is_closed_to_all(server))
	assert "nobody is admitted without a token from now on" in server.log.read_text()
	write_tokens(tokens, f"ci write - {TOKEN}")
	wait_until("it is mended", lambda: server.request("GET", "/x", token=TOKEN) == (200, b"1"))


def test_a_file_that_others_may_read_closes_an_open_server(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""Content, size and time of the file are unchanged."""
	tokens = write_tokens(tmp_path / "tokens")
	server = serve("--tokens", str(tokens))
	assert server.request("GET", "/x")[0] == 404
	tokens.chmod(0o644)
	wait_until("it is closed", lambda: is_closed_to_all(server))


def test_the_last_token_that_is_removed_opens_nothing(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""All clients are refused then, and the log names the remedy."""
	tokens = write_tokens(tmp_path / "tokens", f"ci write - {TOKEN}")
	server = serve("--tokens", str(tokens))
	client = server.room(TOKEN)
	write_tokens(tokens)
	assert client.is_closed()
	assert is_closed_to_all(server)
	assert server.request("GET", "/x", token=TOKEN)[0] == 401
	assert "nobody is admitted; start again to serve without tokens" in server.log.read_text()


# Names and pages


def test_it_is_asked_by_its_own_names_only(serve: Serve) -> None:
	"""A foreign name that leads to this machine is refused, in Host and in the target."""
	server = serve("--host", "cache.example", "--host", "192.0.2.1")
	port = server.address[1]
	for host in ["localhost", "127.0.0.1:%d" % port, "[::1]", "cache.example:80", "CACHE.example", "192.0.2.1"]:
		assert server.request("PUT", "/x", b"1", Host=host)[0] == 201, host
	for host in ["evil.example", "127.0.0.1.evil.example", "cache.example.evil.example", "192.0.2.2", "0.0.0.0", ""]:
		for method, path in [("PUT", "/x"), ("GET", "/x"), ("DELETE", "/x"), ("GET", "/metrics"), ("POST", "/x")]:
			assert server.request(method, path, b"2" if method == "PUT" else None, Host=host)[0] == 421, host
	assert server.request("GET", "http://evil.example/x")[0] == 421
	assert server.request("GET", "http://localhost/x") == (200, b"1")


def test_where_others_may_ask_the_name_of_the_machine_is_its_own(serve: Serve) -> None:
	"""Any address is accepted: a server in a container or behind a translation of addresses does not know its own."""
	node = os.uname().nodename
	server = serve("--listen", "0.0.0.0:0", WAFD_SERVE_TOKEN=TOKEN)
	for host in [node, node.split(".")[0] + ":7117", "198.51.100.7:80"]:
		assert server.request("GET", "/x", token=TOKEN, Host=host)[0] == 404, host
	assert server.request("GET", "/x", token=TOKEN, Host="evil.example")[0] == 421
	server = serve()
	for host in ["198.51.100.7", "nowhere-" + node]:
		assert server.request("GET", "/x", Host=host)[0] == 421, host


def test_metrics_that_need_no_token_need_a_name(serve: Serve) -> None:
	"""Such metrics are for this machine, and not for pages in its browsers."""
	server = serve("--open-metrics", WAFD_SERVE_TOKEN=TOKEN)
	for path in ("/metrics", "/status"):
		assert server.request("GET", path)[0] == 200
		assert server.request("GET", path, Host="evil.example")[0] == 421
		assert server.request("GET", path, Origin="http://evil.example")[0] == 403


FOREIGN: List[Dict[str, str]] = [
	{"Origin": "http://evil.example"},
	{"Origin": "null"},
	{"Origin": "http://localhost:1"},
	{"Sec-Fetch-Site": "cross-site"},
	{"Sec-Fetch-Site": "same-site"},
	{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_from_elsewhere_neither_read_nor_write(serve: Serve, headers: Dict[str, str]) -> None:
	"""They are refused also with a token, since a browser may have stored it."""
	server = serve(WAFD_SERVE_TOKEN=TOKEN)
	assert server.request("PUT", "/x", b"1", token=TOKEN)[0] == 201
	for method, body in [("GET", None), ("PUT", b"2"), ("DELETE", None), ("OPTIONS", None), ("PROPFIND", None)]:
		assert server.request(method, "/x", body, token=TOKEN, **headers)[0] == 403, method
	assert server.request("GET", "/x", token=TOKEN) == (200, b"1")


# The ways in which a page tries to get in. Each attempt returns its answer.
ATTACK = """async ([target, redis]) => {
	const found = {};
	const attempt = async (name, url, how) => {
		try {
			const answer = await fetch(url, how);
			found[name] = answer.type === "opaque" ? "opaque" : answer.status + " " + await answer.text();
		} catch (error) {
			found[name] = "refused";
		}
	};
	const hidden = {mode: "no-cors"};
	await attempt("read", target + "/secret", {});
	await attempt("read blindly", target + "/secret", hidden);
	await attempt("metrics", target + "/metrics", {});
	await attempt("write", target + "/evil", {method: "PUT", body: "v"});
	await attempt("remove", target + "/secret", {method: "DELETE"});
	await attempt("post redis", target + "/", {...hidden, method: "POST", body: redis});
	await attempt("put redis", target + "/", {method: "PUT", body: redis});
	const form = document.createElement("form");
	form.method = "POST";
	form.enctype = "text/plain";
	form.action = target + "/";
	form.target = "sent";
	const text = document.createElement("textarea");
	text.name = redis;
	form.append(text);
	const frame = document.createElement("iframe");
	frame.name = "sent";
	document.body.append(frame, form);
	const loaded = new Promise(resolve => frame.addEventListener("load", resolve, {once: true}));
	form.submit();
	await loaded;
	return found;
}"""
LINES = "\r\n" + REDIS_SET.decode() + "SET evil v\r\n"


class Page(http.server.BaseHTTPRequestHandler):
	"""An attacker's page."""

	def do_GET(self) -> None:
		self.send_response(200)
		self.send_header("Content-Type", "text/html")
		self.end_headers()
		self.wfile.write(b"<!doctype html><body>")

	def log_message(self, format: str, *args: Any) -> None:
		"""Write no log."""


@contextlib.contextmanager
def pages() -> Iterator[int]:
	"""The port of a server of pages that are not ours."""
	with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
		thread = threading.Thread(target=server.serve_forever)
		thread.start()
		try:
			yield server.server_address[1]
		finally:
			server.shutdown()
			thread.join()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
	"""An empty page of a real browser."""
	context = chromium.new_context()
	yield context.new_page()
	context.close()


def check_nothing_happened(server: Server) -> None:
	assert server.request("GET", "/secret") == (200, b"secret")
	assert server.request("GET", "/evil")[0] == 404
	assert server.request("GET", "/")[0] == 404
	with contextlib.closing(Peer(server, REDIS_GET)) as there:
		assert there.hear(5) == b"$-1\r\n"


def test_a_page_after_dns_rebinding_neither_reads_nor_writes(serve: Serve, page: Any) -> None:
	"""
	DNS rebinding in a real browser: where the page came from there is now our server, which is of its origin.

	It is told that the name is wrong, whatever it tries.
	"""
	with pages() as port:
		origin = "http://evil.example:%d" % port
		page.goto(origin + "/")
	server = serve("--listen", "127.0.0.1:%d" % port)
	assert server.request("PUT", "/secret", b"secret")[0] == 201
	found = page.evaluate(ATTACK, [origin, LINES])
	wrong = {name: answer for name, answer in found.items() if not answer.startswith("421 ")}
	assert not wrong and len(found) == 7
	check_nothing_happened(server)


@pytest.mark.parametrize("name", ["other.example", "localhost"])
def test_a_page_of_another_server_neither_reads_nor_writes(serve: Serve, page: Any, name: str) -> None:
	"""In a real browser, a page from another name or another port is refused, also commands of Redis in a form."""
	server = serve()
	assert server.request("PUT", "/secret", b"secret")[0] == 201
	with pages() as port:
		page.goto("http://%s:%d/" % (name, port))
		found = page.evaluate(ATTACK, ["http://127.0.0.1:%d" % server.address[1], LINES])
	assert set(found.values()) <= {"refused", "opaque"} and len(found) == 7, found
	assert count(server, 'turned_away_total{why="elsewhere"}') >= 4, "the browser did ask"
	assert count(server, 'requests_total{language="http",outcome="hit"}') == 0, "nothing was shown"
	check_nothing_happened(server)


# Before a token is shown


HUGE = b"$65536\r\n" + b"x" * 65536 + b"\r\n"
GREEDY: Dict[str, Tuple[bytes, bytes]] = {
	"a long head": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000, b"HTTP/1.1 431 "),
	"many headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 9000, b"HTTP/1.1 431 "),
	"a huge body": (
		b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 1_000_000,
		b"HTTP/1.1 401 ",
	),
	"endless chunks": (
		b"PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"fffffff\r\n" + b"x" * 1_000_000,
		b"HTTP/1.1 401 ",
	),
	"many words": (b"*1024\r\n" + HUGE * 100, b""),
	"a huge value": (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$999999999\r\n" + b"x" * 1_000_000, NOAUTH),
	"a length of a number's size": (b"*1\r\n$18446744073709551615\r\n", b""),
	"a word that is too long": (b"*2\r\n$3\r\nGET\r\n$70000\r\n" + b"x" * 70_000, b""),
	"a greeting of 4 GB": (b"\xff\xff\xff\xff\1WAFR" + b"x" * 100_000, b""),
	"a frame before the greeting": (b"\0\x10\0\0\5" + b"x" * 100_000, b""),
	"request after request": (b"*1\r\n$4\r\nPING\r\n" * 100_000, NOAUTH),
	"page after page": (b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100_000, b"HTTP/1.1 401 "),
}


@pytest.mark.parametrize("name", GREEDY)
def test_without_a_token_there_is_little_memory_and_an_end(serve: Serve, peer: Callable[..., Peer], name: str) -> None:
	"""50 connections send or announce as much as they like: they use no memory of uploads, and are closed."""
	server = serve(WAFD_SERVE_TOKEN=TOKEN)
	client = server.room(TOKEN)
	free = count(server, "uploads_free_bytes", TOKEN)
	before = server.resident()
	data, answer = GREEDY[name]
	peers = [peer(server) for _ in range(50)]
	for one in peers:
		one.socket.settimeout(0.2)
		# it may not be read any more
		with contextlib.suppress(socket.timeout):
			one.say(data)
		one.socket.settimeout(PATIENCE)
		assert count(server, "uploads_free_bytes", TOKEN) == free
	assert server.resident() - before < 50 * 64 * 1024 + (4 << 20)
	assert client.ask(0x08) == (0x8B, b"")
	for one in peers:
		heard = one.rest()
		# what was unread when it ended may have cost the answer
		assert heard[: len(answer)] == answer or not heard, heard[:100]
		assert len(heard) < 16 * 1024


def test_what_comes_byte_by_byte_has_no_more_time(serve: Serve, peer: Callable[..., Peer]) -> None:
	"""The time limit for a token is for all of it, and not for each byte."""
	server = serve("--patience", "6", WAFD_SERVE_TOKEN=TOKEN)
	slow = {
		b"GET /x HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 8000: b"",
		b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5000\r\n" + b"x" * 5000: b"",
		b"\0\x0f\0\0\1WAFR" + b"x" * 3000: b"",
		b"": b"",
	}
	dripping = [(peer(server), iter(text)) for text in slow]

	def drip() -> bool:
		for one, rest in dripping:
			byte = next(rest, None)
			if byte is not None:
				one.say(bytes([byte]))
		time.sleep(0.02)
		return count(server, 'turned_away_total{why="slow"}', TOKEN) == len(slow)

	wait_until("all of them have to go", drip)
	for one, _ in dripping:
		assert one.rest() == b""


def test_connections_without_a_token_displace_none_with_one(serve: Serve, peer: Callable[..., Peer]) -> None:
	"""They use no connection of clients with a token, and the oldest of them is closed for the next one."""
	server = serve("--max-connections", "40", WAFD_SERVE_TOKEN=TOKEN)
	first = server.room(TOKEN)
	idle = [peer(server) for _ in range(300)]
	clients = [server.room(TOKEN) for _ in range(30)]
	assert server.request("PUT", "/x", b"1", token=TOKEN)[0] == 201
	more = [peer(server, b"GET /x HTTP/1.1\r\nHost: loc") for _ in range(300)]
	for client in [first, *clients]:
		assert client.ask(0x08) == (0x8B, b"")
	assert server.request("GET", "/x", token=TOKEN) == (200, b"1")
	assert idle[0].rest() == b"" and more[0].rest() == b""
	assert count(server, "connections", TOKEN) <= 40 + 20
	assert count(server, 'turned_away_total{why="crowded"}', TOKEN) > 500


def test_a_token_that_is_shown_later_is_no_way_to_keep_a_place(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""A connection that shows a wrong token after a right one is treated as one without a token."""
	tokens = write_tokens(tmp_path / "tokens", f"ci write - {TOKEN}", f"dev read - {OTHER}")
	server = serve("--tokens", str(tokens), "--patience", "6")
	head = "GET /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n"
	with contextlib.closing(Peer(server, (head % TOKEN).encode())) as there:
		assert there.hear(12) == b"HTTP/1.1 404"
		there.say((head % ("wrong" * 5)).encode())
		assert b"HTTP/1.1 401" in there.rest()
