"""`wafd serve` for other clients: HTTP storage as ccache, Bazel and sccache use it, and Redis."""

import base64
import contextlib
import hashlib
import pathlib
import shutil
import socket
import subprocess
from typing import Callable, Iterator

import pytest
from serve_support import OTHER, PATIENCE, TOKEN, Server, write_tokens

Serve = Callable[..., Server]
CAS = "/cas/" + hashlib.sha256(b"content").hexdigest()
PATHS = ["/ab/" + "c" * 38, "/" + "d" * 40, "/ac/" + "e" * 64, "/a/b/c/" + "f" * 64, "/deep/er/ab/" + "0" * 38, CAS]


def noise(size: int) -> bytes:
	return hashlib.shake_128(b"noise").digest(size)


@contextlib.contextmanager
def talk(server: Server) -> Iterator[Callable[[bytes, int], bytes]]:
	"""A function that sends bytes, and returns so many bytes of the answer."""
	with socket.create_connection(server.address, timeout=PATIENCE) as peer:

		def say(data: bytes, count: int) -> bytes:
			peer.sendall(data)
			answer = b""
			while len(answer) < count:
				part = peer.recv(count - len(answer))
				assert part, answer
				answer += part
			return answer

		yield say


@pytest.mark.parametrize("path", PATHS)
def test_a_value_is_put_found_and_removed(serve: Serve, path: str) -> None:
	"""This works in each layout."""
	server = serve()
	assert server.request("GET", path)[0] == 404
	assert server.request("HEAD", path)[0] == 404
	assert server.request("PUT", path, b"content")[0] == 201
	assert server.request("GET", path) == (200, b"content")
	assert server.request("HEAD", path) == (200, b"")
	assert server.request("DELETE", path)[0] == 204
	assert server.request("GET", path)[0] == 404
	assert server.request("DELETE", path)[0] == 404


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 262144, 262145, 5_000_000])
def test_values_of_any_size_come_back(serve: Serve, size: int) -> None:
	"""They come from memory and from the disk."""
	server = serve("--memory", "1MB")
	for content in (noise(size), b"z" * size):
		assert server.request("PUT", "/ab/cdef", content)[0] == 201
		assert server.request("GET", "/ab/cdef") == (200, content)
		server.again()
		assert server.request("GET", "/ab/cdef") == (200, content)


def test_a_value_replaces_the_one_before(serve: Serve) -> None:
	"""The new value is found, also by a connection that was open before."""
	server = serve()
	for content in (b"one", b"two", b"one", b"three"):
		server.request("PUT", "/ab/cdef", content)
		assert server.request("GET", "/ab/cdef") == (200, content)
	server.again()
	assert server.request("GET", "/ab/cdef") == (200, b"three")
	assert server.metrics()["wafd_serve_store_entries"] == 1


def test_content_of_bazel_has_its_digest(serve: Serve) -> None:
	"""Content with another digest is refused, and not stored."""
	server = serve()
	status, words = server.request("PUT", CAS, b"other content")
	assert (status, words) == (400, b"the content does not have the SHA-256 of its name\n")
	assert server.request("GET", CAS)[0] == 404
	assert server.request("PUT", CAS, b"content")[0] == 201


def test_one_connection_has_many_requests(serve: Serve) -> None:
	"""Requests may be sent before the first is answered, and with chunks."""
	server = serve()
	with contextlib.closing(server.http()) as connection:
		for number in range(3):
			chunks = iter([b"chunk %d, " % number, b"x" * 100_000])
			connection.request(
				"PUT", "/ab/%d" % number, chunks, encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
			)
			assert connection.getresponse().read() == b""
			connection.request("GET", "/ab/%d" % number)
			assert connection.getresponse().read() == b"chunk %d, " % number + b"x" * 100_000
	assert server.metrics()["wafd_serve_connections_total"] == 2
	answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
	with talk(server) as say:
		assert say(b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100, 100 * len(answer)) == 100 * answer


def test_a_client_that_expects_it_is_told_to_go_on(serve: Serve) -> None:
	"""The client is told to go on, or the error, before it sends the body."""
	server = serve("--max-blob", "1MB")
	head = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
	with talk(server) as say:
		go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
		assert say(head % 3, len(go_on)) == go_on
		assert say(b"abc", 20).startswith(b"HTTP/1.1 201 Created")
	with talk(server) as say:
		assert say(head % 1_000_001, 12) == b"HTTP/1.1 413"


def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
	"""The request did not announce the size."""
	server = serve("--max-blob", "1MB")
	with talk(server) as say:
		head = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
		assert say(head + b"200000\r\n" + b"x" * 1_000_001, 12) == b"HTTP/1.1 413"
	assert server.request("GET", "/x")[0] == 404


def test_http_takes_tokens_in_both_ways(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""Tokens are accepted as bearer tokens and as passwords, with rights and namespaces."""
	lines = [f"ci write team {TOKEN}", f"dev read team {OTHER}", "x write other " + "x" * 20]
	server = serve("--tokens", str(write_tokens(tmp_path / "tokens", *lines)))
	basic = {"Authorization": "Basic " + base64.b64encode(b"anybody:" + TOKEN.encode()).decode()}
	assert server.request("PUT", "/x", b"1", **basic)[0] == 201
	assert server.request("GET", "/x", token=OTHER) == (200, b"1")
	assert server.request("PUT", "/x", b"2", token=OTHER)[0] == 403
	assert server.request("DELETE", "/x", token=OTHER)[0] == 403
	assert server.request("GET", "/x", token="x" * 20)[0] == 404
	assert server.request("GET", "/x", token="wrong" * 5)[0] == 401
	assert server.request("GET", "/x")[0] == 401


def test_webdav_as_far_as_caches_go(serve: Serve) -> None:
	"""Folders exist when a client asks for them, and values have a length."""
	server = serve()
	assert server.request("PROPFIND", "/a/", Depth="0")[0] == 207
	assert server.request("MKCOL", "/a/b/")[0] == 201
	assert server.request("PROPFIND", "/a/b/c", b"<propfind/>", Depth="0")[0] == 404
	assert server.request("PUT", "/a/b/c", b"12345")[0] == 201
	status, body = server.request("PROPFIND", "/a/b/c", Depth="0")
	assert status == 207 and b"<D:getcontentlength>5</D:getcontentlength>" in body
	assert server.request("PUT", "/a/b/", b"")[0] == 405
	assert server.request("OPTIONS", "/")[0] == 200


REDIS = [
	(b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
	(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"$-1\r\n"),
	(b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$3\r\na\r\n\r\n", b"+OK\r\n"),
	(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"$3\r\na\r\n\r\n"),
	(b"*3\r\n$6\r\nEXISTS\r\n$1\r\nk\r\n$1\r\nl\r\n", b":1\r\n"),
	(b"*2\r\n$6\r\nSTRLEN\r\n$1\r\nk\r\n", b":3\r\n"),
	(b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nEX\r\n$1\r\n9\r\n", b"+OK\r\n"),
	(b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nw\r\n$2\r\nNX\r\n", b"-ERR no such option of SET here\r\n"),
	(b"*3\r\n$3\r\nDEL\r\n$1\r\nk\r\n$1\r\nl\r\n", b":1\r\n"),
	(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", b"+OK\r\n"),
	(b"*1\r\n$5\r\nBOGUS\r\n", b"-ERR unknown command or wrong number of arguments: BOGUS\r\n"),
	(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", b"-NOPROTO unsupported protocol version\r\n"),
	(b"*1\r\n$4\r\nQUIT\r\n", b"+OK\r\n"),
]


def test_redis_is_understood_as_far_as_caches_go(serve: Serve) -> None:
	"""Commands may come one after the other, or all at once."""
	server = serve()
	with talk(server) as say:
		for request, answer in REDIS:
			assert say(request, len(answer)) == answer
	requests, answers = (b"".join(part) for part in zip(*REDIS))
	with talk(server) as say:
		assert say(requests, len(answers)) == answers


def test_redis_has_large_values(serve: Serve) -> None:
	"""Large values come in pieces, from and to the disk."""
	server = serve()
	value = noise(3_000_000)
	with talk(server) as say:
		head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % len(value)
		assert say(head + value + b"\r\n", 5) == b"+OK\r\n"
		answer = b"$%d\r\n%s\r\n" % (len(value), value)
		assert say(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", len(answer)) == answer


def test_redis_takes_tokens(serve: Serve, tmp_path: pathlib.Path) -> None:
	"""Tokens are passwords, with rights."""
	lines = [f"ci write - {TOKEN}", f"dev read - {OTHER}"]
	server = serve("--tokens", str(write_tokens(tmp_path / "tokens", *lines)))
	ask, put = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
	with talk(server) as say:
		assert say(ask, 34) == b"-NOAUTH Authentication required.\r\n"
		assert say(b"*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n", 10) == b"-WRONGPASS"
	for token, answer in [(TOKEN, b"+OK\r\n"), (OTHER, b"-NOPERM")]:
		with talk(server) as say:
			auth = b"*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$%d\r\n%s\r\n" % (len(token), token.encode())
			assert say(auth, 5) == b"+OK\r\n"
			assert say(put, len(answer)) == answer
	with talk(server) as say:
		assert say(auth + ask, 5 + 7) == b"+OK\r\n$1\r\nv\r\n"


SOURCE = "int main(void) { return %d; }\n"


@pytest.mark.skipif(not shutil.which("ccache") or not shutil.which("gcc"), reason="there is no ccache or no gcc")
@pytest.mark.parametrize(
	"storage",
	[
		"http://{token}@{host}|layout=subdirs",
		"http://{token}@{host}|layout=flat",
		"http://{host}|layout=bazel|bearer-token={bearer}",
		"http://{token}@{host}/some/where",
		"redis://{token}@{host}",
	],
)
def test_ccache_of_one_machine_warms_that_of_another(serve: Serve, tmp_path: pathlib.Path, storage: str) -> None:
	"""Results of one machine are hits for a machine with an empty cache and the same server."""
	server = serve("--tokens", str(write_tokens(tmp_path / "tokens", f"ci write - {TOKEN}")))
	host = "%s:%d" % server.address
	storage = storage.format(host=host, token="user:" + TOKEN, bearer=TOKEN)
	sources = [tmp_path / ("%d.c" % number) for number in range(5)]
	for number, source in enumerate(sources):
		source.write_text(SOURCE % number)

	def compile_all(machine: str) -> str:
		"""The statistics of ccache on a machine with its own cache."""
		environ = {
			"PATH": "/usr/bin:/bin",
			"HOME": str(tmp_path / machine),
			"CCACHE_DIR": str(tmp_path / machine),
			"CCACHE_REMOTE_STORAGE": storage,
			"CCACHE_NODIRECT": "1",
		}
		for source in sources:
			command = ["ccache", "gcc", "-c", str(source), "-o", str(tmp_path / machine) + source.name + ".o"]
			subprocess.run(command, env=environ, check=True, timeout=PATIENCE, capture_output=True)
		done = subprocess.run(
			["ccache", "--print-stats"], env=environ, check=True, capture_output=True, timeout=PATIENCE
		)
		return done.stdout.decode()

	first, second = compile_all("one"), compile_all("two")
	assert "preprocessed_cache_hit\t0\n" in first and "cache_miss\t5\n" in first
	assert "preprocessed_cache_hit\t5\n" in second and "cache_miss\t0\n" in second, second
	for source in sources:
		one, two = (pathlib.Path(str(tmp_path / machine) + source.name + ".o") for machine in ("one", "two"))
		assert one.read_bytes() == two.read_bytes()


@pytest.mark.skipif(not shutil.which("ccache") or not shutil.which("gcc"), reason="there is no ccache or no gcc")
@pytest.mark.parametrize("scheme", ["http", "redis"])
@pytest.mark.parametrize(("attribute", "errors"), [("", "1"), ("|read-only", "0")])
def test_ccache_with_a_token_that_reads_has_to_be_told_so(
	serve: Serve, tmp_path: pathlib.Path, scheme: str, attribute: str, errors: str
) -> None:
	"""Otherwise each miss is an error for it, as it may not store; the compile succeeds in both cases."""
	server = serve("--tokens", str(write_tokens(tmp_path / "tokens", f"dev read - {TOKEN}")))
	(tmp_path / "a.c").write_text("int a;\n")
	environ = {
		"PATH": "/usr/bin:/bin",
		"CCACHE_DIR": str(tmp_path / "cache"),
		"CCACHE_REMOTE_STORAGE": "%s://any:%s@%s:%d%s" % ((scheme, TOKEN) + server.address + (attribute,)),
	}
	for command in (["gcc", "-c", "a.c"], ["--print-stats"]):
		done = subprocess.run(
			["ccache", *command], env=environ, cwd=tmp_path, check=True, timeout=PATIENCE, capture_output=True
		)
	count = dict(line.split("\t") for line in done.stdout.decode().splitlines())
	assert (count["cache_miss"], count["remote_storage_error"]) == ("1", errors)
	assert (tmp_path / "a.o").exists()
