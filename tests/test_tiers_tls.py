"""Shared stores behind TLS: the certificate has a trusted signature, or no request is sent."""

import pathlib
import shutil
import ssl
import subprocess
from typing import NamedTuple

import pytest
from cache_support import COMPILERS, PATIENCE
from room_server import Room
from tier_servers import BazelRemote
from tier_support import LINE, PATIENT, Make, RedisServer, free_port, shared

pytestmark = [
	pytest.mark.skipif(not COMPILERS, reason="needs a compiler"),
	pytest.mark.skipif(not shutil.which("openssl"), reason="apt-get install openssl"),
]


class Certificates(NamedTuple):
	"""A server's certificate and key, and the certificate of the signer."""

	ca: pathlib.Path
	certificate: pathlib.Path
	key: pathlib.Path

	def context(self) -> ssl.SSLContext:
		context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
		context.load_cert_chain(self.certificate, self.key)
		return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
	folder = tmp_path_factory.mktemp("certificates")

	def openssl(words: str) -> None:
		subprocess.run(["openssl", *words.split()], cwd=folder, capture_output=True, timeout=PATIENCE, check=True)

	new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
	openssl(f"req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=team")
	openssl(f"req {new} -keyout key.pem -out request.pem -subj /CN=cache")
	(folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
	openssl("x509 -req -in request.pem -CA ca.pem -CAkey ca.key -out cert.pem -days 2 -extfile names -set_serial 7")
	return Certificates(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")


def hits(machine: Make, address: str) -> None:
	first, second = machine(address), machine(address)
	first.write("x.c", "int f;\n")
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit") and (remote["hits"], remote["errors"]) == (1, {})


@pytest.mark.skipif(not shutil.which("redis-server"), reason="apt-get install redis-server")
def test_redis(machine: Make, certificates: Certificates, tmp_path: pathlib.Path) -> None:
	"""A real server that speaks TLS only."""
	server = RedisServer(tmp_path / "redis")
	port = free_port()
	pem = {"cert-file": certificates.certificate, "key-file": certificates.key, "ca-cert-file": certificates.ca}
	more = [word for name, path in pem.items() for word in (f"--tls-{name}", str(path))]
	with server.run("--tls-port", str(port), "--tls-auth-clients", "no", *more):
		hits(machine, f"rediss://:{server.password}@127.0.0.1:{port}|ca={certificates.ca}{PATIENT}")


def test_https(machine: Make, certificates: Certificates) -> None:
	"""The server is also reached by the name of the host."""
	server = BazelRemote()
	server.socket = certificates.context().wrap_socket(server.socket, server_side=True)
	with server.run():
		hits(machine, f"https://localhost:{server.port}/|layout=bazel|ca={certificates.ca}{PATIENT}")


def test_a_team_s_server(machine: Make, certificates: Certificates) -> None:
	"""Pieces and many questions over one connection."""
	room = Room(certificates.context())
	try:
		hits(machine, room.address.replace("tcp:", "tcps:") + f"|ca={certificates.ca}")
	finally:
		room.oddity.close()


@pytest.mark.parametrize("scheme", ["https", "tcps", "rediss"])
def test_a_certificate_without_a_trusted_signature(machine: Make, certificates: Certificates, scheme: str) -> None:
	"""Nothing is sent to the server."""
	room = Room(certificates.context())
	try:
		first = machine(f"{scheme}://geheim@127.0.0.1:{room.oddity.port}")
		first.write("x.c", "int f;\n")
		first.until_hit(LINE)
		errors = first.remote()["errors"]
		assert any("TLS with it failed" in error for error in errors), errors
		assert room.asked["connections"] == 0
	finally:
		room.oddity.close()


def test_a_file_that_is_no_certificate_is_named(machine: Make) -> None:
	"""The log names it; the other stores are asked."""
	first = machine("rediss://h|ca=/dev/null redis://127.0.0.1:1")
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	assert [tier["name"] for tier in first.remote()["tiers"]] == ["redis://127.0.0.1:1"]
	(log,) = first.runtime.glob("*.log")
	assert "/dev/null has no certificate; ca is a file in PEM" in log.read_text()
