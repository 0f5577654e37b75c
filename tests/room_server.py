"""A team's server as small as docs/room.md allows, written from that page alone. It counts its requests."""

import collections
import contextlib
import socket
import ssl
import struct
import time
from typing import Dict, Iterator, List, Optional, Tuple

import pytest
from tier_support import PATIENT, Oddity

PIECE = 1 << 20


class Fields:
	"""The fields of a frame."""

	def __init__(self, body: bytes) -> None:
		self.body, self.at = body, 0

	def take(self, size: int) -> bytes:
		assert self.at + size <= len(self.body), "a field is longer than its frame"
		self.at += size
		return self.body[self.at - size : self.at]

	def number(self, form: str) -> int:
		return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

	def text(self) -> bytes:
		return self.take(self.number("I"))

	def digests(self) -> List[bytes]:
		return [self.take(32) for _ in range(self.number("H"))]

	def rest(self) -> bytes:
		return self.take(len(self.body) - self.at)


def text(data: bytes) -> bytes:
	return struct.pack("<I", len(data)) + data


class Room:
	"""Entries and blobs of one namespace, for clients with the token."""

	TOKEN = "t0ken"

	def __init__(self, context: Optional[ssl.SSLContext] = None) -> None:
		self.entries: Dict[bytes, List[Tuple[bytes, List[bytes]]]] = {}
		self.blobs: Dict[bytes, Tuple[int, bytes]] = {}
		self.uploads: Dict[Tuple[int, int], list] = {}
		self.asked: collections.Counter[str] = collections.Counter()
		self.keys = 0
		self.rights = 3
		self.distance = 0.0
		self.oddity = Oddity(self.serve, context)

	@property
	def address(self) -> str:
		return f"tcp://{self.TOKEN}@127.0.0.1:{self.oddity.port}/team{PATIENT}"

	def serve(self, connection: socket.socket) -> None:
		"""Serve one connection until it ends."""
		self.asked["connections"] += 1
		with contextlib.suppress(EOFError), connection.makefile("rb") as incoming:
			while True:
				head = incoming.read(4)
				if len(head) < 4:
					raise EOFError
				frame = incoming.read(struct.unpack("<I", head)[0])
				for body in self.answer(connection.fileno(), frame[0], Fields(frame[1:])):
					connection.sendall(struct.pack("<I", len(body)) + body)

	def answer(self, whose: int, kind: int, fields: Fields) -> Iterator[bytes]:
		if kind == 1:
			return iter([self.greet(fields)])
		number = fields.number("I")
		name, act = {
			2: ("find", self.find),
			3: ("get", self.get),
			4: ("has", self.has),
			5: ("blob", self.begin_blob),
			6: ("data", self.go_on),
			7: ("entry", self.keep_entry),
		}[kind]
		self.asked[name] += 1
		return act(whose, number, fields)

	def greet(self, fields: Fields) -> bytes:
		assert fields.take(4) == b"WAFR" and fields.number("H") == 1 and fields.number("H") == 1
		token, namespace, _name = fields.text(), fields.text(), fields.text()
		if token.decode() != self.TOKEN or namespace != b"team":
			return b"\x82\x02" + text(b"no such token")
		return b"\x81" + struct.pack("<HBQ", 1, self.rights, 64 << 20) + text(b"room")

	def find(self, whose: int, number: int, fields: Fields) -> Iterator[bytes]:
		time.sleep(self.distance)
		inline, told = fields.number("I"), set()
		keys = fields.digests()
		self.keys += len(keys)
		for at, key in enumerate(keys):
			for entry, needs in self.entries.get(key, []):
				along = [d for d in needs if d not in told and len(self.blobs[d][1]) <= inline]
				told.update(along)
				contents = b"".join(d + bytes([self.blobs[d][0]]) + text(self.blobs[d][1]) for d in along)
				yield b"\x83" + struct.pack("<IH", number, at) + text(entry) + struct.pack("<H", len(along)) + contents
		yield b"\x84" + struct.pack("<I", number)

	def get(self, whose: int, number: int, fields: Fields) -> Iterator[bytes]:
		head = struct.pack("<I", number)
		for digest in fields.digests():
			if digest not in self.blobs:
				yield b"\x87" + head + digest
				continue
			coding, data = self.blobs[digest]
			yield b"\x85" + head + digest + bytes([coding]) + struct.pack("<Q", len(data)) + data[:PIECE]
			for at in range(PIECE, len(data), PIECE):
				yield b"\x86" + head + data[at : at + PIECE]
		yield b"\x84" + head

	def has(self, whose: int, number: int, fields: Fields) -> Iterator[bytes]:
		digests = fields.digests()
		bits = sum(1 << at for at, digest in enumerate(digests) if digest in self.blobs)
		yield b"\x88" + struct.pack("<IH", number, len(digests)) + bits.to_bytes((len(digests) + 7) // 8, "little")

	def begin_blob(self, whose: int, number: int, fields: Fields) -> Iterator[bytes]:
		digest, coding, size = fields.take(32), fields.number("B"), fields.number("Q")
		self.uploads[whose, number] = [digest, coding, size, fields.rest()]
		return self.keep_blob(whose, number)

	def go_on(self, whose: int, number: int, fields: Fields) -> Iterator[bytes]:
		self.uploads[whose, number][3] += fields.rest()
		return self.keep_blob(whose, number)

	def keep_blob(self, whose: int, number: int) -> Iterator[bytes]:
		digest, coding, size, data = self.uploads[whose, number]
		if len(data) == size:
			self.blobs[digest] = (coding, data)
			del self.uploads[whose, number]
			yield b"\x89" + struct.pack("<I", number)

	def keep_entry(self, whose: int, number: int, fields: Fields) -> Iterator[bytes]:
		key, needs, entry = fields.take(32), fields.digests(), fields.rest()
		if any(digest not in self.blobs for digest in needs):
			yield b"\x8a" + struct.pack("<IB", number, 1) + text(b"lacks a blob")
			return
		self.entries.setdefault(key, []).insert(0, (entry, needs))
		yield b"\x89" + struct.pack("<I", number)


@pytest.fixture
def room() -> Iterator[Room]:
	server = Room()
	yield server
	server.oddity.close()
