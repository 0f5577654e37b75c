"""`wafd serve` over TLS, with and without certificates of clients."""

import contextlib
import hashlib
import http.client
import pathlib
import shutil
import socket
import ssl
import subprocess
from typing import Callable, Dict, Optional

import pytest
from serve_lab import PATIENCE, TOKEN, RoomClient, Server, wait_until

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl to make certificates with")
Serve = Callable[..., Server]
Papers = Dict[str, pathlib.Path]


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
	"""Certificates and keys by their names: of the server, of a client, and of a stranger."""
	folder = tmp_path_factory.mktemp("papers")
	found = {}
	for name in ("server", "client", "stranger"):
		found[name], found[name + " key"] = folder / (name + ".pem"), folder / (name + ".key")
		command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
		command += ["-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
		command += ["-addext", "basicConstraints=critical,CA:FALSE"]
		command += ["-keyout", str(found[name + " key"]), "-out", str(found[name])]
		subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
	return found


def trust(papers: Papers, client: Optional[str] = None) -> ssl.SSLContext:
	context = ssl.create_default_context(cafile=str(papers["server"]))
	if client:
		context.load_cert_chain(str(papers[client]), str(papers[client + " key"]))
	return context


def start(serve: Serve, papers: Papers, *more: str) -> Server:
	return serve(
		"--tls-cert", str(papers["server"]), "--tls-key", str(papers["server key"]), *more, WAFD_SERVE_TOKEN=TOKEN
	)


def request(server: Server, context: ssl.SSLContext, method: str, path: str, body: Optional[bytes] = None) -> bytes:
	connection = http.client.HTTPSConnection(*server.address, timeout=PATIENCE, context=context)
	with contextlib.closing(connection):
		connection.request(method, path, body, {"Authorization": "Bearer " + TOKEN})
		return connection.getresponse().read()


@pytest.mark.parametrize("size", [10, 300_000, 5_000_000])
def test_values_come_back_over_tls(serve: Serve, papers: Papers, size: int) -> None:
	"""Whatever their size, by HTTP and by the room's protocol."""
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


def test_who_speaks_no_tls_is_turned_away(serve: Serve, papers: Papers) -> None:
	"""And others go on."""
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
	"""Connections that come then see the new one; a wrong file changes nothing and is told of."""
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
	"""Those that the server trusts, beside their token."""
	server = start(serve, papers, "--tls-client-ca", str(papers["client"]))
	assert request(server, trust(papers, "client"), "PUT", "/x", b"content") == b""
	for client in (None, "stranger"):
		with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
			request(server, trust(papers, client), "GET", "/x")
	assert request(server, trust(papers, "client"), "GET", "/x") == b"content"
