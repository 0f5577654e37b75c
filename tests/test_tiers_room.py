"""A team's server as a shared store: many questions over one connection, uploads over another, and lying servers."""

import socket
import struct
from typing import Callable, Iterator, Optional

import pytest
from cache_support import COMPILERS
from room_server import Fields, Room, text
from tier_support import LINE, MANY, Handler, Make, Oddity, compile_many, shared, upload_many

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a compiler")
GREETING = b"\x81" + struct.pack("<HBQ", 1, 3, 64 << 20) + text(b"room")


@pytest.mark.parametrize("is_large", [False, True])
def test_what_one_machine_compiled_another_one_hits(machine: Make, room: Room, is_large: bool) -> None:
	"""Small values come with the entry, large ones in pieces."""
	first, second = machine(room.address), machine(room.address)
	first.write_noise() if is_large else first.write("x.c", "#warning hear this\nint f;\n")
	said, remote = shared(first, second, LINE)
	assert said.startswith("hit") and f"it came from tcp://127.0.0.1:{room.oddity.port}/team" in said
	assert (remote["hits"], remote["errors"]) == (1, {})
	assert (room.asked["get"], room.asked["data"] > 0) == ((1, True) if is_large else (0, False))


def test_many_keys_go_in_few_frames_over_one_connection(machine: Make, room: Room) -> None:
	"""Sixty compiles at once, all hits; a blob that two of them share comes once or is fetched."""
	first, second = machine(room.address), machine(room.address)
	upload_many(first)
	room.asked.clear()
	room.keys = 0
	room.distance = 0.1
	compile_many(second, MANY)
	assert second.remote()["hits"] == MANY
	assert room.asked["connections"] == 1
	assert room.asked["find"] < room.keys == MANY


def test_a_blob_that_the_server_has_is_not_sent_again(machine: Make, room: Room) -> None:
	"""Two compiles of one source have the same object."""
	first = machine(room.address)
	first.write("x.c", "int f;\n")
	for define in ("-DX", "-DY"):
		first.until_hit(f"{COMPILERS[0]} {define} -c x.c -o x.o")
	first.until_uploaded(2)
	assert len(room.entries) == 2 and room.asked["blob"] == len(room.blobs)


def test_a_read_only_client_uploads_nothing(machine: Make, room: Room) -> None:
	"""It still reads."""
	first = machine(room.address)
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	first.until_uploaded()
	room.rights = 1
	second = machine(room.address)
	assert second.same(LINE).startswith("hit")
	second.write("x.c", "int g;\n")
	second.until_hit(LINE)
	second.ask("--shutdown")
	assert second.remote()["uploads_dropped"] == {"its token may not write": 1}
	assert len(room.entries) == 1


def test_a_wrong_token_is_told_with_its_remedy(machine: Make, room: Room) -> None:
	"""The message does not have the given token."""
	first = machine(room.address.replace(room.TOKEN, "falsch"))
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	errors = first.remote()["errors"]
	assert any("it does not know the token; write tcp://TOKEN@HOST:PORT" in error for error in errors), errors
	assert not any("falsch" in error for error in errors)


def test_a_token_may_be_in_a_file(machine: Make, room: Room) -> None:
	"""The token is the file's first line."""
	first = machine("")
	file = first.write("token", room.TOKEN + "\nmore\n")
	first.environ["WAFCC_REMOTE"] = room.address.replace(room.TOKEN + "@", "") + f"|token-file={file}"
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	first.until_uploaded()


def test_a_connection_that_was_closed_is_made_anew(machine: Make, room: Room) -> None:
	"""The connection was closed while it was idle: there is no error."""
	first = machine(room.address)
	first.write("x.c", "int f;\n")
	first.until_hit(LINE)
	first.until_uploaded()
	for connection in room.oddity.connections:
		connection.shutdown(socket.SHUT_RDWR)
	first.write("x.c", "int g;\n")
	assert "has it, but x.c has changed" in first.same(LINE)
	assert first.remote()["errors"] == {}


class Liar(Room):
	"""Serves blobs with another digest than requested."""

	def find(self, whose: int, number: int, fields: Fields) -> Iterator[bytes]:
		changed = dict.fromkeys(self.blobs, (0, b"not that"))
		right, self.blobs = self.blobs, changed
		try:
			yield from super().find(whose, number, fields)
		finally:
			self.blobs = right


def test_a_blob_that_is_another_is_not_used(machine: Make) -> None:
	"""The command runs, and the statistics have the error."""
	liar = Liar()
	try:
		first, second = machine(liar.address), machine(liar.address)
		first.write("x.c", "int f;\n")
		said, remote = shared(first, second, LINE)
		assert said.startswith("miss") and remote["hits"] == 0
		assert any("not what its digest says" in error for error in remote["errors"])
	finally:
		liar.oddity.close()


def greeted(*frames: bytes) -> Handler:
	"""Greets, and answers every request with these frames."""

	def handle(connection: socket.socket) -> None:
		connection.recv(65536)
		connection.sendall(struct.pack("<I", len(GREETING)) + GREETING)
		while connection.recv(65536):
			for frame in frames:
				connection.sendall(frame)

	return handle


def closing(connection: socket.socket) -> None:
	connection.recv(65536)
	connection.sendall(struct.pack("<I", len(GREETING)) + GREETING[:3])
	connection.close()


def framed(body: bytes) -> bytes:
	return struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
	"handle",
	[
		None,
		greeted(),
		closing,
		greeted(b"\xff\xff\xff\xff\x83"),
		greeted(framed(b"\x99\x01\x00\x00\x00")),
		greeted(framed(b"\x83" + struct.pack("<IH", 1, 999) + text(b"entry") + b"\0\0")),
		greeted(framed(b"\x83" + struct.pack("<IH", 1, 0) + text(b"no entry") + b"\0\0") + framed(b"\x84\1\0\0\0")),
		greeted(framed(b"\x83" + struct.pack("<IH", 1, 0) + b"\xff\xff\xff\xff")),
		greeted(struct.pack("<I", 1000) + b"\x83"),
	],
)
def test_a_server_that_misbehaves_costs_no_result(
	machine: Make, oddity: Callable[[Optional[Handler]], Oddity], handle: Optional[Handler]
) -> None:
	"""It sends nothing, only a greeting, closes, or sends a wrong answer: results are a plain build's."""
	server = oddity(handle)
	first = machine(f"tcp://127.0.0.1:{server.port}|pause=600000")
	for n in range(4):
		first.write(f"x{n}.c", f"int f{n};\n")
		assert first.same(f"{COMPILERS[0]} -c x{n}.c -o x{n}.o").startswith("miss")
	remote = first.remote()
	assert remote["hits"] == 0
	silences = [n for name, n in remote["errors"].items() if "did not answer" in name and "an upload" not in name]
	assert sum(silences) <= 1, remote
