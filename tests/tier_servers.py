"""Servers by HTTP for tests of shared stores: nginx with WebDAV, moto's S3, and two small strict ones."""

import base64
import contextlib
import hashlib
import hmac
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from typing import Dict, Iterator, List, Optional

import pytest
from cache_support import PATIENCE
from tier_support import PATIENT, free_port, running

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
	access_log {folder}/access.log;
	client_body_temp_path {folder}/bodies;
	proxy_temp_path {folder}/proxy;
	fastcgi_temp_path {folder}/fastcgi;
	uwsgi_temp_path {folder}/uwsgi;
	scgi_temp_path {folder}/scgi;
	client_max_body_size 100m;
	keepalive_requests 20;
	server {{
		listen 127.0.0.1:{port};
		root {folder}/files;
		location / {{
			auth_basic "team";
			auth_basic_user_file {folder}/users;
			dav_methods PUT DELETE;
			create_full_put_path on;
		}}
	}}
}}
"""


class Nginx:
	"""nginx with its WebDAV module, for a user with a password."""

	def __init__(self, folder: pathlib.Path) -> None:
		self.port, self.folder = free_port(), folder

	@property
	def address(self) -> str:
		return f"http://team:geheim@127.0.0.1:{self.port}/cache{PATIENT}"

	@contextlib.contextmanager
	def run(self) -> Iterator[None]:
		(self.folder / "files" / "cache").mkdir(parents=True)
		digest = base64.b64encode(hashlib.sha1(b"geheim").digest()).decode()
		(self.folder / "users").write_text("team:{SHA}" + digest + "\n")
		settings = self.folder / "nginx.conf"
		settings.write_text(NGINX.format(folder=self.folder, port=self.port))
		# its parent may be a folder that only we can enter, and root's workers would be another user
		argv = ["/usr/sbin/nginx", "-c", str(settings), "-e", str(self.folder / "error.log")]
		as_root = ["-g", "user root;"] if os.geteuid() == 0 else []
		with running([*argv, *as_root], self.port):
			yield


@pytest.fixture
def nginx(tmp_path: pathlib.Path) -> Iterator[Nginx]:
	server = Nginx(tmp_path / "nginx")
	with server.run():
		yield server


class Moto:
	"""The S3 of moto, with which developers test clients of Amazon's."""

	PROGRAM = shutil.which("moto_server", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))

	def __init__(self) -> None:
		self.port = free_port()
		self.url = f"http://127.0.0.1:{self.port}"

	@property
	def address(self) -> str:
		return f"s3://team/pre/fix|endpoint={self.url}|access-key=AKIATEST|secret-key=very/secret+key{PATIENT}"

	@contextlib.contextmanager
	def run(self) -> Iterator[None]:
		with running(
			[str(self.PROGRAM), "-H", "127.0.0.1", "-p", str(self.port)], self.port, stderr=subprocess.DEVNULL
		):
			request = urllib.request.Request(self.url + "/team", method="PUT")
			urllib.request.urlopen(request, timeout=PATIENCE).close()
			yield


@pytest.fixture
def moto() -> Iterator[Moto]:
	server = Moto()
	with server.run():
		yield server


class Values(http.server.BaseHTTPRequestHandler):
	"""Names and values by HTTP, as far as ``refuse`` has nothing against a request."""

	protocol_version = "HTTP/1.1"
	server: "ValueServer"

	def log_message(self, *args: object) -> None:
		pass

	def answer(self, status: int, body: bytes = b"") -> None:
		self.send_response(status)
		self.send_header("Content-Length", str(len(body)))
		self.end_headers()
		if self.command != "HEAD":
			self.wfile.write(body)

	def take(self) -> None:
		body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
		path = urllib.parse.urlsplit(self.path).path
		why = self.server.refuse(self, path, body)
		if why:
			self.server.refused.append(why)
			self.answer(403)
		elif self.command == "PUT":
			self.server.values[path] = body
			self.answer(200)
		elif path in self.server.values:
			self.answer(200, self.server.values[path])
		else:
			self.answer(404)

	do_GET = do_HEAD = do_PUT = take


class ValueServer(http.server.ThreadingHTTPServer):
	"""Keeps all values that it is given, and why it refused others."""

	daemon_threads = True

	def __init__(self) -> None:
		super().__init__(("127.0.0.1", 0), Values)
		self.values: Dict[str, bytes] = {}
		self.refused: List[str] = []
		self.port: int = self.server_address[1]

	def refuse(self, request: Values, path: str, body: bytes) -> Optional[str]:
		raise NotImplementedError

	@contextlib.contextmanager
	def run(self) -> Iterator[None]:
		thread = threading.Thread(target=self.serve_forever, daemon=True)
		thread.start()
		try:
			yield
		finally:
			self.shutdown()
			self.server_close()


def sign(key: bytes, text: str) -> bytes:
	return hmac.new(key, text.encode(), hashlib.sha256).digest()


class S3(ValueServer):
	"""Accepts only requests that are signed by version 4 of Amazon's rules, in the address."""

	KEY, SECRET, REGION = "AKIATEST", "very/secret+key", "eu-test-1"

	@property
	def address(self) -> str:
		endpoint = f"http://127.0.0.1:{self.port}"
		return f"s3://bucket/pre/fix|endpoint={endpoint}|region={self.REGION}{PATIENT}"

	def refuse(self, request: Values, path: str, body: bytes) -> Optional[str]:
		if not path.startswith("/bucket/pre/fix/"):
			return f"another place: {path}"
		query = urllib.parse.parse_qsl(urllib.parse.urlsplit(request.path).query, keep_blank_values=True)
		told = dict(query)
		try:
			signature = told.pop("X-Amz-Signature")
			date, scope = told["X-Amz-Date"], told["X-Amz-Credential"].split("/", 1)[1]
			headers = told["X-Amz-SignedHeaders"].split(";")
		except KeyError as missing:
			return f"lacks {missing}"
		if told["X-Amz-Credential"] != f"{self.KEY}/{date[:8]}/{self.REGION}/s3/aws4_request":
			return "another credential"
		quoted = sorted(
			(urllib.parse.quote(k, safe="-_.~"), urllib.parse.quote(v, safe="-_.~")) for k, v in told.items()
		)
		canonical = [request.command, path, "&".join(f"{k}={v}" for k, v in quoted)]
		canonical += [f"{name}:{request.headers[name].strip()}" for name in headers]
		canonical += ["", ";".join(headers), "UNSIGNED-PAYLOAD"]
		digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
		key = b"AWS4" + self.SECRET.encode()
		for part in scope.split("/"):
			key = sign(key, part)
		text = "\n".join(["AWS4-HMAC-SHA256", date, scope, digest])
		return None if hmac.compare_digest(sign(key, text).hex(), signature) else "another signature"


class BazelRemote(ValueServer):
	"""Accepts contents under their SHA-256, and messages that refer to existing contents."""

	@property
	def address(self) -> str:
		return f"http://127.0.0.1:{self.port}/|layout=bazel{PATIENT}"

	def refuse(self, request: Values, path: str, body: bytes) -> Optional[str]:
		found = re.fullmatch(r"/(ac|cas)/([0-9a-f]{64})", path)
		if not found:
			return f"another place: {path}"
		if request.command != "PUT":
			return None
		if found.group(1) == "cas":
			return None if hashlib.sha256(body).hexdigest() == found.group(2) else "not its hash"
		try:
			files = [dict(fields(file)) for tag, file in fields(body) if tag == 2]
			digests = [dict(fields(file[2])) for file in files]
		except (IndexError, KeyError) as error:
			return f"not an ActionResult: {error!r}"
		for digest in digests:
			content = self.values.get("/cas/" + digest[1].decode())
			if content is None or len(content) != digest[2]:
				return "refers to what is not there"
		return None


def fields(message: bytes) -> Iterator[tuple]:
	"""The fields of a message of Protocol Buffers: numbers and lengths only, as ActionResult has them."""
	at = 0

	def number() -> int:
		nonlocal at
		value = shift = 0
		while True:
			byte = message[at]
			at += 1
			value |= (byte & 0x7F) << shift
			shift += 7
			if byte < 0x80:
				return value

	while at < len(message):
		tag = number()
		if tag & 7 == 0:
			yield tag >> 3, number()
		elif tag & 7 == 2:
			size = number()
			if at + size > len(message):
				raise IndexError(size)
			at += size
			yield tag >> 3, message[at - size : at]
		else:
			raise KeyError(tag)


@pytest.fixture
def s3() -> Iterator[S3]:
	server = S3()
	with server.run():
		yield server


@pytest.fixture
def bazel() -> Iterator[BazelRemote]:
	server = BazelRemote()
	with server.run():
		yield server
