"""Shared stores by HTTP: nginx with WebDAV, the layout of bazel-remote, and S3 with signatures that are checked."""

import os
import socket
from typing import Callable, Optional

import pytest
from cache_support import COMPILERS
from tier_servers import S3, BazelRemote, Moto, Nginx
from tier_support import LINE, PATIENT, Handler, Make, Oddity, shared

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a compiler")
needs_nginx = pytest.mark.skipif(not os.access("/usr/sbin/nginx", os.X_OK), reason="apt-get install nginx")
KEYS = f"|access-key={S3.KEY}|secret-key={S3.SECRET}"


@needs_nginx
@pytest.mark.parametrize("is_large", [False, True])
def test_nginx_with_webdav(machine: Make, nginx: Nginx, is_large: bool) -> None:
	"""The server wants a password, and closes connections after some requests."""
	first, second = machine(nginx.address), machine(nginx.address)
	first.write_noise() if is_large else first.write("x.c", "int f;\n")
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit") and f"it came from http://127.0.0.1:{nginx.port}/cache" in said
	assert (remote["hits"], remote["errors"]) == (1, {})
	kinds = {path.suffix for path in (nginx.folder / "files" / "cache").iterdir()}
	assert kinds == ({".entries", ".blob"} if is_large else {".entries"})


@needs_nginx
def test_a_wrong_login_is_told_with_its_remedy(machine: Make, nginx: Nginx) -> None:
	"""It is counted once per request, and no build fails."""
	first = machine(nginx.address.replace("geheim", "falsch"))
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	errors = first.remote()["errors"]
	assert any("status 401" in error and "http://USER:PASSWORD@HOST" in error for error in errors)
	assert not any("falsch" in error for error in errors)


@pytest.mark.parametrize("is_large", [False, True])
def test_the_layout_of_bazel_remote(machine: Make, bazel: BazelRemote, is_large: bool) -> None:
	"""A server takes no content under another hash, no message that is none, and none that refers to nothing."""
	first, second = machine(bazel.address), machine(bazel.address)
	first.write_noise() if is_large else first.write("x.c", "int f;\n")
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit") and (remote["hits"], remote["errors"]) == (1, {})
	assert bazel.refused == []
	assert any(path.startswith("/cas/") for path in bazel.values) == is_large


@pytest.mark.parametrize("is_large", [False, True])
def test_a_bucket(machine: Make, s3: S3, is_large: bool) -> None:
	"""Every request is signed, also for a bucket in a path."""
	first, second = machine(s3.address + KEYS), machine(s3.address + KEYS)
	first.write_noise() if is_large else first.write("x.c", "int f;\n")
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit") and "it came from s3://bucket/pre/fix" in said
	assert (remote["hits"], remote["errors"], s3.refused) == (1, {}, [])


@pytest.mark.skipif(not Moto.PROGRAM, reason="pip install 'moto[s3]' flask flask-cors")
def test_a_bucket_of_another_server(machine: Make, moto: Moto) -> None:
	"""moto accepts our requests as those of a client of Amazon's, for small and for large objects."""
	for is_large in (False, True):
		first, second = machine(moto.address), machine(moto.address)
		first.write_noise() if is_large else first.write("x.c", "int f;\n")
		said, remote = shared(first, second, LINE)
		assert said.startswith("hit") and "it came from s3://team/pre/fix" in said
		assert (remote["hits"], remote["errors"]) == (1, {})


def test_keys_come_from_the_environment_too(machine: Make, s3: S3) -> None:
	"""The keys are in the usual variables of the process that starts the engine."""
	endpoint = f"http://127.0.0.1:{s3.port}"
	keys = {"AWS_ACCESS_KEY_ID": s3.KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET, "AWS_REGION": s3.REGION}
	both = [machine(f"s3://bucket/pre/fix{PATIENT}") for _ in range(2)]
	for each in both:
		each.environ.update(keys, AWS_ENDPOINT_URL=endpoint)
	first, second = both
	first.write("x.c", "int f;\n")
	said, _ = shared(first, second, LINE)
	assert said.startswith("hit") and s3.refused == []


def test_a_wrong_key_is_refused_and_told_without_it(machine: Make, s3: S3) -> None:
	"""The server compares signatures."""
	first = machine(s3.address + f"|access-key={s3.KEY}|secret-key=geheim")
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	assert set(s3.refused) == {"another signature"} and s3.values == {}
	told = str(first.remote()) + first.ask("--show-config")
	assert "status 403" in told and "geheim" not in told and s3.KEY not in told


def reply(text: bytes) -> Handler:
	def handle(connection: socket.socket) -> None:
		while connection.recv(65536):
			connection.sendall(text)

	return handle


@pytest.mark.parametrize(
	"text",
	[
		b"",
		b"nonsense\r\n\r\n",
		b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\nabc",
		b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
		b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nnonsense",
		b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
	],
)
@pytest.mark.parametrize("layout", ["webdav", "bazel"])
def test_answers_that_are_none(
	machine: Make, oddity: Callable[[Optional[Handler]], Oddity], text: bytes, layout: str
) -> None:
	"""With any answer of the server, results are a plain build's."""
	server = oddity(reply(text))
	first = machine(f"http://127.0.0.1:{server.port}/|layout={layout}|operation-timeout=500|pause=600000")
	for n in range(4):
		first.write(f"x{n}.c", f"int f{n};\n")
		assert first.same(f"{COMPILERS[0]} -c x{n}.c -o x{n}.o").startswith("miss")
	assert first.remote()["hits"] == 0


def test_a_slow_nginx_is_left_alone(machine: Make, oddity: Callable[[Optional[Handler]], Oddity]) -> None:
	"""A server that accepts a connection and answers nothing is asked only once."""
	server = oddity(reply(b""))
	first = machine(f"http://127.0.0.1:{server.port}/|pause=600000")
	for n in range(4):
		first.write(f"x{n}.c", f"int f{n};\n")
		first.same(f"{COMPILERS[0]} -c x{n}.c -o x{n}.o")
	remote = first.remote()
	assert "left alone, since it did not answer" in remote["tiers"][0]["state"]
	assert sum(n for name, n in remote["errors"].items() if "an upload" not in name) == 1
