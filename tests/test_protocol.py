"""The Python side of docs/protocol.md against the vectors that the Rust side passes, too."""

import array
import json
import os
import pathlib
from typing import Any, Dict, List

import pytest

from waflib_extras.client import protocol

VECTORS = json.loads((pathlib.Path(__file__).parent / "vectors" / "protocol.json").read_text(encoding="utf-8"))


# frames between the engine's own programs
NATIVE = ("stop", "listen", "listening", "cache")


def select(group: str, sender: str) -> List[Any]:
	found = [v for v in VECTORS[group] if v["sender"] == sender and v.get("frame") not in NATIVE]
	return [pytest.param(vector, id=vector["name"]) for vector in found]


def unhex(text: str) -> bytes:
	return bytes.fromhex(text)


def hello(f: Dict[str, Any]) -> bytes:
	versions = f["lowest"], f["highest"]
	session, token, name = unhex(f["session"]), unhex(f["token"]), unhex(f["name"])
	return protocol.encode_hello(versions, session, f["jobs"], f["wishes"], f["pid"], token, name)


def environment(f: Dict[str, Any]) -> bytes:
	return protocol.encode_environment(f["env"], dict(unhex(entry).split(b"=", 1) for entry in f["entries"]))


def execute(f: Dict[str, Any], as_text: bool = False) -> bytes:
	argv: List[Any] = [unhex(argument) for argument in f["argv"]]
	if as_text:
		argv = [os.fsdecode(argument) for argument in argv]
	command = protocol.encode_command(
		f["flags"], f["stdin"], f["stdout"], f["stderr"], f["timeout"], unhex(f["cwd"]), argv, unhex(f["input"])
	)
	command = protocol.declare_outputs(command, [unhex(output) for output in f.get("outputs", ())])
	return protocol.encode_execute(f["id"], f["env"], command)


ENCODERS = {
	"hello": hello,
	"environment": environment,
	"execute": execute,
	"cancel": lambda f: protocol.encode_cancel(f["id"]),
	"status": lambda f: protocol.encode_status(),
	"policy": lambda f: protocol.encode_policy(f["flags"], f["load"], f.get("memory")),
	"caching": lambda f: protocol.encode_caching(
		f["flags"],
		f["columns"],
		f["rows"],
		[unhex(base) for base in f["bases"]],
		unhex(f["namespace"]),
		unhex(f["store"]),
		unhex(f["export"]) if "export" in f else None,
		unhex(f["remote"]) if "remote" in f else None,
	),
}
VALUES = {
	"welcome": protocol.Welcome,
	"refused": protocol.Refusal,
	"output": protocol.Output,
	"outcome": protocol.Outcome,
	"report": protocol.Report,
	"told": protocol.Told,
	"inputs": protocol.Inputs,
	"elsewhere": protocol.Elsewhere,
}
TEXTS = {"address", "engine", "reason", "words", "unstored_words"}  # what people read is text here
BYTES = {"data", "json", "result"}


@pytest.mark.parametrize("vector", select("good", "client"))
def test_requests_are_encoded_as_in_the_vectors(vector: Dict[str, Any]) -> None:
	"""Python encodes these fields as Rust decodes them."""
	assert ENCODERS[vector["frame"]](vector["fields"]).hex() == vector["hex"]


@pytest.mark.parametrize("vector", [p for p in select("good", "client") if p.values[0]["frame"] == "execute"])
def test_text_and_bytes_make_the_same_arguments(vector: Dict[str, Any]) -> None:
	"""Text is encoded as file names are, so that names that are not UTF-8 pass unchanged."""
	assert execute(vector["fields"], as_text=True).hex() == vector["hex"]


@pytest.mark.parametrize("vector", select("good", "engine"))
def test_answers_are_decoded_as_in_the_vectors(vector: Dict[str, Any]) -> None:
	"""Python decodes the frames that Rust encodes from these fields."""
	fields = dict(vector["fields"])
	for name in fields:
		if name in TEXTS | BYTES:
			fields[name] = unhex(fields[name]).decode() if name in TEXTS else unhex(fields[name])
	if "numbers" in fields:
		fields["new"] = [unhex(text) for text in fields["new"]]
		fields["numbers"] = array.array("I", fields["numbers"])
	assert protocol.decode(unhex(vector["hex"])) == VALUES[vector["frame"]](**fields)


@pytest.mark.parametrize("vector", select("broken", "engine"))
def test_broken_answers_are_refused(vector: Dict[str, Any]) -> None:
	"""No broken frame is accepted."""
	with pytest.raises(protocol.ProtocolError):
		protocol.decode(unhex(vector["hex"]))


@pytest.mark.parametrize("vector", select("good", "engine"))
def test_answers_of_another_length_are_refused(vector: Dict[str, Any]) -> None:
	"""A body with a byte too many or too few is an error, for each kind."""
	body = unhex(vector["hex"])[4:]
	for other in (body + b"\0", body[:-1]):
		with pytest.raises(protocol.ProtocolError):
			protocol.decode(len(other).to_bytes(4, "little") + other)


def test_a_frame_is_measured_by_its_first_four_bytes() -> None:
	"""A receiver knows the length after four bytes, and not before."""
	frame = protocol.encode_cancel(7)
	assert [protocol.measure(frame[:n]) for n in (0, 3, 4, len(frame))] == [0, 0, len(frame), len(frame)]


@pytest.mark.parametrize("length, cap", [(0, 4096), (4097, 4096), (protocol.FRAME_CAP + 1, protocol.FRAME_CAP)])
def test_an_impossible_length_is_refused_before_the_frame_has_come(length: int, cap: int) -> None:
	"""The peer cannot make us wait for, or allocate, more than the cap."""
	with pytest.raises(protocol.ProtocolError):
		protocol.measure(length.to_bytes(4, "little"), cap)


def encode(argv: Any = ("true",), cwd: bytes = b"/", data: bytes = b"") -> bytes:
	return protocol.encode_execute(1, 0, protocol.encode_command(0, 0, 1, 1, 0, cwd, argv, data))


@pytest.mark.parametrize(
	"arguments",
	[
		{"argv": ["a\0b"]},
		{"argv": [b"a\0b"]},
		{"argv": []},
		{"argv": ["a", 1]},
		{"argv": ["\ud800"]},
		{"cwd": b"/a\0b"},
		{"argv": ["a" * protocol.FRAME_CAP]},
	],
	ids=["zero byte", "zero byte in bytes", "none", "number", "no character", "folder", "too long"],
)
def test_what_no_program_can_be_given_is_not_encoded(arguments: Dict[str, Any]) -> None:
	"""The caller gets the error before anything is sent."""
	with pytest.raises(protocol.Unsendable):
		encode(**arguments)


def test_the_largest_command_fits_exactly() -> None:
	"""The cap counts every byte after the length."""
	room = protocol.FRAME_CAP - (len(encode(argv=[""])) - 4)
	assert len(encode(argv=["a" * room])) == 4 + protocol.FRAME_CAP
	with pytest.raises(protocol.Unsendable):
		encode(argv=["a" * (room + 1)])


@pytest.mark.parametrize(
	"variables",
	[{"A=B": "c"}, {"": "c"}, {"A": "b\0"}, {"A\0": "b"}, {"A": 1}, {"A": "a" * protocol.FRAME_CAP}],
	ids=["equals sign", "no name", "zero byte", "zero byte in the name", "number", "too long"],
)
def test_what_no_environment_can_hold_is_not_encoded(variables: Dict[str, Any]) -> None:
	"""The caller gets the error before anything is sent."""
	with pytest.raises(protocol.Unsendable):
		protocol.encode_environment(1, variables)


def test_names_and_values_may_be_text_bytes_or_paths() -> None:
	"""They are accepted as by Popen, and a value may hold an equals sign."""
	mixed = protocol.encode_environment(1, {"A": b"\xff", b"B": "\udcff=", "C": pathlib.Path("/d")})
	assert mixed == protocol.encode_environment(1, {b"A": b"\xff", b"B": b"\xff=", b"C": b"/d"})
