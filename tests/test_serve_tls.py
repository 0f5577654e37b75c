"""`wafd serve` over TLS, with and without certificates of clients."""

import contextlib
import hashlib
import http.client
import pathlib
import shutil
import socket
import ssl
import subprocess
from typing import Callable, List, Optional

import pytest
from serve_support import (
	PATIENCE,
	TOKEN,
	Papers,
	RoomClient,
	Server,
	ask_over_tls,
	ask_with,
	start_with_plain,
	trust,
	wait_until,
)

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl to make certificates with")
Serve = Callable[..., Server]


def start(serve: Serve, papers: Papers, *more: str) -> Server:
	return serve(
		"--tls-cert", str(papers["server"]), "--tls-key", str(papers["server key"]), *more, WAFD_SERVE_TOKEN=TOKEN
	)


def request(server: Server, context: ssl.SSLContext, method: str, path: str, body: Optional[bytes] = None) -> bytes:
	return ask_with(server, context, method, path, body)[1]


@pytest.mark.parametrize("size", [10, 300_000, 5_000_000])
def test_values_come_back_over_tls(serve: Serve, papers: Papers, size: int) -> None:
	"""Values of any size come back, by HTTP and by the room's protocol."""
	server = start(serve, papers)
	content = hashlib.shake_128(b"noise").digest(size)
	assert request(server, trust(papers), "PUT", "/x", content) == b""
	assert request(server, trust(papers), "GET", "/x") == content
	client = RoomClient(server.address)
	client.socket = trust(papers).wrap_socket(client.socket, server_hostname="127.0.0.1")
	server.clients.append(client)
	client.greet(TOKEN, "")
	digests = [client.put(content), client.put(b"small")]
	assert client.get(digests * 3) == [content, b"small"] * 3


def test_a_client_without_tls_is_refused(serve: Serve, papers: Papers) -> None:
	"""Other clients go on."""
	server = start(serve, papers)
	with socket.create_connection(server.address, timeout=PATIENCE) as peer:
		peer.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n")
		with contextlib.suppress(ConnectionError):
			while True:
				answer = peer.recv(1000)
				if not answer:
					break
				assert b"HTTP" not in answer
	assert request(server, trust(papers), "PUT", "/x", b"content") == b""


def test_certificates_are_read_again(serve: Serve, papers: Papers, tmp_path: pathlib.Path) -> None:
	"""Later connections see the new certificate. A wrong file changes nothing and is reported."""
	names = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]

	def use(name: str) -> None:
		for source, target in ((papers[name], "cert.pem"), (papers[name + " key"], "key.pem")):
			fresh = tmp_path / "fresh"
			shutil.copyfile(source, fresh)
			fresh.rename(tmp_path / target)

	def is_shown(name: str) -> bool:
		shown = ssl.get_server_certificate(server.address, timeout=PATIENCE)
		return ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(papers[name].read_text())

	use("server")
	server = serve(*names, WAFD_SERVE_TOKEN=TOKEN)
	assert is_shown("server")
	bare = socket.create_connection(server.address, timeout=PATIENCE)
	with trust(papers).wrap_socket(bare, server_hostname="127.0.0.1") as old:
		use("stranger")
		wait_until("the new one is shown", lambda: is_shown("stranger"))
		old.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n")
		assert old.recv(100).startswith(b"HTTP/1.1 404")
	(tmp_path / "fresh").write_text("no certificate\n")
	(tmp_path / "fresh").rename(tmp_path / "cert.pem")
	wait_until("the log tells", lambda: "cert.pem: there is none in it; the certi" in server.log.read_text())
	assert is_shown("stranger")
	use("client")
	wait_until("it is mended", lambda: is_shown("client"))


def test_clients_may_have_to_show_certificates(serve: Serve, papers: Papers) -> None:
	"""Clients need a certificate that the server trusts, beside their token."""
	server = start(serve, papers, "--tls-client-ca", str(papers["client"]))
	assert request(server, trust(papers, "client"), "PUT", "/x", b"content") == b""
	for client in (None, "stranger"):
		with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
			request(server, trust(papers, client), "GET", "/x")
	assert request(server, trust(papers, "client"), "GET", "/x") == b"content"


def test_a_port_may_have_no_tls_beside_one_that_has_it(serve: Serve, papers: Papers) -> None:
	"""It is for clients without TLS: values, tokens and names are the same on both."""
	server, plain = start_with_plain(serve, papers)
	assert ask_over_tls(server, papers, "PUT", "/x", b"1")[0] == 201
	server.address, secure = plain, server.address
	assert server.request("GET", "/x", token=TOKEN) == (200, b"1")
	assert server.request("GET", "/x")[0] == 401
	assert server.request("GET", "/x", token=TOKEN, Host="evil.example")[0] == 421
	client = server.room(TOKEN)
	assert client.ask(0x08) == (0x8B, b"")
	server.address = secure
	with pytest.raises((ConnectionError, http.client.HTTPException)):
		server.request("GET", "/x", token=TOKEN)


@pytest.mark.parametrize(
	("options", "words"),
	[
		(["--plain", "127.0.0.1:0"], "--plain is for a server with --tls-cert"),
		(["--plain", "0.0.0.0:0", "--tls-cert", "{cert}", "--tls-key", "{key}"], "there are no tokens"),
		(
			["--plain", "127.0.0.1:0", "--tls-cert", "{cert}", "--tls-key", "{key}", "--tls-client-ca", "{cert}"],
			"--plain would admit clients without the certificate",
		),
	],
)
def test_a_port_without_tls_is_no_way_around_what_was_asked_for(
	engine: str, papers: Papers, tmp_path: pathlib.Path, options: List[str], words: str
) -> None:
	"""One line says why it does not start."""
	names = {"cert": papers["server"], "key": papers["server key"]}
	command = [engine, "serve", "--listen", "127.0.0.1:0", "--store", str(tmp_path)]
	command += [option.format(**names) for option in options]
	done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
	said = done.stderr.decode()
	assert (done.returncode, said.count("\n")) == (1, 1) and words in said, said


@pytest.mark.skipif(not shutil.which("ccache") or not shutil.which("gcc"), reason="there is no ccache or no gcc")
@pytest.mark.parametrize("scheme", ["http", "redis"])
def test_ccache_reaches_the_port_without_tls(serve: Serve, papers: Papers, tmp_path: pathlib.Path, scheme: str) -> None:
	"""Debian's ccache has no TLS, and finds there the values that it has stored."""
	_, plain = start_with_plain(serve, papers)
	(tmp_path / "a.c").write_text("int a;\n")
	storage = "%s://any:%s@%s:%d" % ((scheme, TOKEN) + plain)
	counts = []
	for machine in ("one", "two"):
		environ = {
			"PATH": "/usr/bin:/bin",
			"CCACHE_DIR": str(tmp_path / machine),
			"CCACHE_REMOTE_STORAGE": storage,
			"CCACHE_NODIRECT": "1",
		}
		for command in (["gcc", "-c", "a.c", "-o", machine + ".o"], ["--print-stats"]):
			done = subprocess.run(
				["ccache", *command], env=environ, cwd=tmp_path, check=True, timeout=PATIENCE, capture_output=True
			)
		counts.append(dict(line.split("\t") for line in done.stdout.decode().splitlines()))
	assert [count["remote_storage_hit"] for count in counts] == ["0", "1"]
	assert [count["remote_storage_error"] for count in counts] == ["0", "0"]
