"""Shared stores of each kind, in which a test replaces entries by forged ones (``engine/examples/forge.rs``)."""

import contextlib
import json
import os
import pathlib
import subprocess
from typing import Any, Callable, Dict, Iterator, List, Tuple

from cache_support import PATIENCE
from room_server import Room
from tier_servers import S3, BazelRemote, Nginx, ValueServer, fields
from tier_support import RedisServer

from utils.benchmark.service import find_example, missing_example

Acts = List[List[str]]
MISSING = missing_example("forge")


def forge(key: str, value: Dict[str, str], acts: Acts) -> Dict[str, Any]:
	"""The forged form of a bundle or entry with this key."""
	asked = json.dumps({"key": key, "acts": acts, **value})
	done = subprocess.run([str(find_example("forge"))], input=asked, capture_output=True, text=True, timeout=PATIENCE)
	assert done.returncode == 0, done.stderr
	return json.loads(done.stdout)


class Shop:
	"""A shared store into which a test may write directly, without any client."""

	def __init__(self, address: str) -> None:
		self.address = address

	@property
	def read_only(self) -> str:
		return self.address + "|read-only"

	def keys(self) -> List[str]:
		"""The keys of all commands for which the store has something."""
		raise NotImplementedError

	def take(self, key: str) -> Dict[str, str]:
		raise NotImplementedError

	def put(self, key: str, forged: Dict[str, Any]) -> None:
		raise NotImplementedError


class RedisShop(Shop):
	PREFIX = "wafd:1:entries:"

	def __init__(self, server: RedisServer) -> None:
		super().__init__(server.address)
		self.server = server

	def ask(self, *words: str, value: bytes = b"") -> bytes:
		argv = ["redis-cli", "-p", str(self.server.port), "-n", "1", *words]
		environ = dict(os.environ, REDISCLI_AUTH=self.server.password)
		return subprocess.run(
			argv, env=environ, input=value, stdout=subprocess.PIPE, timeout=PATIENCE, check=True
		).stdout

	def keys(self) -> List[str]:
		return [name[len(self.PREFIX) :] for name in self.ask("keys", self.PREFIX + "*").decode().split()]

	def take(self, key: str) -> Dict[str, str]:
		return {"bundle": self.ask("--raw", "get", self.PREFIX + key)[:-1].hex()}

	def put(self, key: str, forged: Dict[str, Any]) -> None:
		self.ask("-x", "set", self.PREFIX + key, value=bytes.fromhex(forged["bundle"]))


class RoomShop(Shop):
	def __init__(self, server: Room) -> None:
		super().__init__(server.address)
		self.server = server

	def keys(self) -> List[str]:
		return [key.hex() for key in self.server.entries]

	def take(self, key: str) -> Dict[str, str]:
		return {"entry": self.server.entries[bytes.fromhex(key)][0][0].hex()}

	def put(self, key: str, forged: Dict[str, Any]) -> None:
		for digest, blob in forged["blobs"].items():
			self.server.blobs[bytes.fromhex(digest)] = (blob["coding"], bytes.fromhex(blob["bytes"]))
		needs = [bytes.fromhex(digest) for digest in forged["needs"]]
		needs = [digest for digest in needs if digest in self.server.blobs]
		self.server.entries[bytes.fromhex(key)] = [(bytes.fromhex(forged["entry"]), needs)]


class FileShop(Shop):
	"""A store in the folder of a WebDAV server."""

	def __init__(self, server: Nginx) -> None:
		super().__init__(server.address)
		self.folder = server.folder / "files" / "cache"

	def keys(self) -> List[str]:
		return [path.stem for path in self.folder.glob("*.entries")]

	def take(self, key: str) -> Dict[str, str]:
		return {"bundle": (self.folder / (key + ".entries")).read_bytes().hex()}

	def put(self, key: str, forged: Dict[str, Any]) -> None:
		(self.folder / (key + ".entries")).write_bytes(bytes.fromhex(forged["bundle"]))


class ValueShop(Shop):
	"""A store with values by their paths."""

	def __init__(self, server: Any, before: str, after: str) -> None:
		super().__init__(server.address)
		self.server: ValueServer = server
		self.before, self.after = before, after

	def keys(self) -> List[str]:
		names = [name[len(self.before) :] for name in self.server.values if name.startswith(self.before)]
		return [name[: len(name) - len(self.after)] for name in names if name.endswith(self.after)]

	def take(self, key: str) -> Dict[str, str]:
		return {"bundle": self.open(self.server.values[self.before + key + self.after]).hex()}

	def put(self, key: str, forged: Dict[str, Any]) -> None:
		self.server.values[self.before + key + self.after] = self.close(bytes.fromhex(forged["bundle"]))

	def open(self, value: bytes) -> bytes:
		return value

	def close(self, bundle: bytes) -> bytes:
		return bundle


class BazelShop(ValueShop):
	"""Only actions have such a field, so it tells their shelves from blobs."""

	STDOUT = 5

	def keys(self) -> List[str]:
		values = {key: dict(fields(self.server.values["/ac/" + key])) for key in super().keys()}  # noqa: SIM118
		return [key for key, found in values.items() if self.STDOUT in found]

	def open(self, value: bytes) -> bytes:
		return dict(fields(value))[self.STDOUT]

	def close(self, bundle: bytes) -> bytes:
		size, length = len(bundle), b""
		while size > 0x7F:
			length += bytes([size & 0x7F | 0x80])
			size >>= 7
		return bytes([self.STDOUT << 3 | 2]) + length + bytes([size]) + bundle


@contextlib.contextmanager
def open_redis(folder: pathlib.Path) -> Iterator[Shop]:
	server = RedisServer(folder / "redis")
	with server.run():
		yield RedisShop(server)


@contextlib.contextmanager
def open_room(folder: pathlib.Path) -> Iterator[Shop]:
	server = Room()
	try:
		yield RoomShop(server)
	finally:
		server.oddity.close()


@contextlib.contextmanager
def open_webdav(folder: pathlib.Path) -> Iterator[Shop]:
	server = Nginx(folder / "nginx")
	with server.run():
		yield FileShop(server)


@contextlib.contextmanager
def open_s3(folder: pathlib.Path) -> Iterator[Shop]:
	server = S3()
	with server.run():
		shop = ValueShop(server, "/bucket/pre/fix/", ".entries")
		shop.address += f"|access-key={S3.KEY}|secret-key={S3.SECRET}"
		yield shop


@contextlib.contextmanager
def open_bazel(folder: pathlib.Path) -> Iterator[Shop]:
	server = BazelRemote()
	with server.run():
		yield BazelShop(server, "/ac/", "")


Open = Callable[[pathlib.Path], "contextlib.AbstractContextManager[Shop]"]
KINDS: Dict[str, Tuple[Open, str]] = {
	"redis": (open_redis, "redis-server"),
	"room": (open_room, ""),
	"webdav": (open_webdav, "/usr/sbin/nginx"),
	"s3": (open_s3, ""),
	"bazel": (open_bazel, ""),
}
