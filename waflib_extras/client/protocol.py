"""
Encodes requests to the engine as frames, and decodes the engine's frames (``docs/protocol.md``).

Pure: it knows no socket, no engine and no build. A command is encoded in two steps: its number and that of its
environment differ between connections, and the rest of its frame does not.
"""

import array
import os
import struct
import sys
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

VERSIONS = (1, 1)  # the lowest and the highest version of the protocol that we speak
GREETING_CAP = 4096
FRAME_CAP = 8 << 20
OUTPUT_CAP = 1 << 20
INPUT_CAP = 1 << 20
SESSION_SIZE = 16

# hello.wishes
PIN = 1
OWN_SLOTS = 2
ELSEWHERE = 32

# policy.flags
NO_BRAKE = 1
TOKENS = 2
SERVE_PIPE = 4
SERVE_FIFO = 8
MEMORY = 16

# execute.flags
NEW_SESSION = 1
CACHED = 2
FACTS = 4
INPUTS = 8
DECLARES = 16

# caching.flags
READ_ONLY = 1
RECACHE = 2
TERMINAL = 4
SHARE_CHECKOUTS = 8
EXPORTS = 16
REMOTE = 32

# told.known
UNCACHED = 0
HIT = 1
MISS = 2

# execute.stdin, execute.stdout, execute.stderr
NULL = 0
PIPE = 1
DESCRIPTOR = 2
SAME_AS_STDOUT = 3

# refused.why
VERSION_REFUSED = 1
TOKEN_REFUSED = 2
PLACE_REFUSED = 3
CROWDED = 4
LEAVING = 5
GREETING_REFUSED = 6

# outcome.verdict
RAN = 0
NOT_STARTED = 1
TIMED_OUT = 2
CANCELLED = 3

# outcome.step, of a command that was started
PARKED = 4

EMPTY = b""  # a name, because bundling with waf-light breaks literals with a prefix after a keyword
CODING = sys.getfilesystemencoding()

Argument = Any
"""A value for ``os.fsencode``. Nearly all arguments are texts, so they are joined before they are encoded."""
Environment = Dict[Any, Any]
"""Names and values are what ``os.fsencode`` takes."""


class EngineError(Exception):
	"""The engine cannot be used. The text tells users why."""

	pass


class Lost(EngineError):
	"""The connection ended, or the engine did not keep its deadline."""

	pass


class ProtocolError(EngineError):
	"""The engine sent what the protocol does not allow."""

	pass


class Refused(EngineError):
	"""The engine answered the greeting with ``refused``. ``why`` is the number of the reason."""

	def __init__(self, why: int, reason: str) -> None:
		super().__init__("the engine refuses: %s" % reason)
		self.why = why


class Unsendable(EngineError):
	"""The protocol cannot express what the caller asks for. Nothing was sent."""

	pass


class Welcome(NamedTuple):
	version: int
	pid: int
	slots: int
	engine: str


class Refusal(NamedTuple):
	why: int
	reason: str


class Output(NamedTuple):
	id: int
	stream: int
	data: bytes


class Outcome(NamedTuple):
	id: int
	verdict: int
	step: int
	code: int
	queued: int
	wall: int
	user: int
	system: int
	peak: int


class Report(NamedTuple):
	json: bytes


class Told(NamedTuple):
	"""The cache's answer for a command."""

	id: int
	known: int
	why: int = 0
	"""The number of the reason, of all but hits."""
	words: str = ""
	"""The same for people."""
	unstored: int = 0
	"""For a miss: the number of the reason why nothing was stored; zero if the result was stored."""
	unstored_words: str = ""
	processor: int = 0
	"""For a hit: the processor time that the command took when it ran, in microseconds."""
	saved: int = 0
	"""For a miss: the processor time in microseconds that it did not take because it began after its headers."""

	def show(self) -> str:
		"""The reasons for people, and what was saved all the same; nothing of a hit."""
		words = self.words
		if self.unstored:
			words += "; not stored: %s" % self.unstored_words
		if self.saved:
			words += "; it began after its headers, which saved about %.0f ms" % (self.saved / 1e3)
		return words


class Inputs(NamedTuple):
	id: int
	first: int
	new: List[bytes]
	result: bytes
	numbers: "array.array[int]"


class Elsewhere(NamedTuple):
	"""What became of a command that went to a cluster, or could have gone there. Times are in microseconds."""

	id: int
	after: int
	"""From its arrival until it went there."""
	there: int
	"""How long it was there; zero if it never went."""
	here: int
	"""How long it ran here, too, before its result came from there."""
	address: str
	words: str
	"""Why its result is not from there; empty if it is."""


Message = Union[Welcome, Refusal, Output, Outcome, Report, Told, Inputs, Elsewhere]
"""A frame from the engine, as a value."""


# ---- requests

_U32 = struct.Struct("<I")
_TWO_U32 = struct.Struct("<II")
_HEAD = struct.Struct("<IB")
_POLICY = struct.Struct("<BI")
_CACHING = struct.Struct("<BHH")
_HELLO = struct.Struct("<4sHH16sIII")
_EXECUTE = struct.Struct("<IBII")
_COMMAND = struct.Struct("<BBBBQI")
_FIXED = 9 + _COMMAND.size + 12  # what an execute has besides folder, arguments and input


def _frame(kind: int, body: bytes, cap: int) -> bytes:
	"""A whole frame of this kind."""
	if len(body) >= cap:
		raise Unsendable("larger than a frame of %d bytes" % cap)
	return _HEAD.pack(len(body) + 1, kind) + body


def _text(data: bytes) -> bytes:
	return _U32.pack(len(data)) + data


def _strings(items: Sequence[bytes]) -> bytes:
	data = EMPTY.join([item + b"\0" for item in items])
	if data.count(0) != len(items):
		raise Unsendable("zero byte in a string")
	return _TWO_U32.pack(len(items), len(data)) + data


def encode_hello(
	versions: Tuple[int, int], session: bytes, jobs: int, wishes: int, pid: int, token: bytes, name: bytes
) -> bytes:
	"""The greeting of a connection. ``versions`` are the lowest and the highest one that we speak."""
	fixed = _HELLO.pack(b"WAFD", versions[0], versions[1], session, jobs, wishes, pid)
	return _frame(1, fixed + _text(token) + _text(name), GREETING_CAP)


def encode_environment(env: int, variables: Environment) -> bytes:
	"""The definition of an environment."""
	entries = []
	for name, value in variables.items():
		try:
			name = os.fsencode(name)
			entry = b"%b=%b" % (name, os.fsencode(value))
		except (TypeError, ValueError) as e:
			raise Unsendable("environment: %s" % e) from None
		if not name or name.count(b"="):
			raise Unsendable("environment: illegal name")
		entries.append(entry)
	return _frame(2, _U32.pack(env) + _strings(entries), FRAME_CAP)


def encode_command(
	flags: int,
	stdin: int,
	stdout: int,
	stderr: int,
	timeout: int,
	cwd: bytes,
	argv: Sequence[Argument],
	data: bytes = b"",
) -> bytes:
	"""The part of ``execute`` that is the same on every connection. ``data`` is the command's input."""
	try:
		# one join and one encoding for all arguments: this is half of what a command costs us
		joined = "\0".join(argv).encode(CODING, "surrogateescape") + b"\0"
	except TypeError:
		joined = _encode_each(argv)
	except ValueError as e:
		raise Unsendable("argument: %s" % e) from None
	if joined.count(0) != len(argv):
		raise Unsendable("zero byte in an argument")
	if 0 in cwd:
		raise Unsendable("zero byte in the folder")
	if len(joined) + len(cwd) + len(data) > FRAME_CAP - _FIXED:
		raise Unsendable("larger than a frame of %d bytes" % FRAME_CAP)
	return EMPTY.join(
		(
			_COMMAND.pack(flags, stdin, stdout, stderr, timeout, len(cwd)),
			cwd,
			_TWO_U32.pack(len(argv), len(joined)),
			joined,
			_U32.pack(len(data)),
			data,
		)
	)


def _encode_each(argv: Iterable[Argument]) -> bytes:
	"""Encode arguments some of which are bytes or path objects."""
	try:
		return EMPTY.join([os.fsencode(argument) + b"\0" for argument in argv])
	except (TypeError, ValueError) as e:
		raise Unsendable("argument: %s" % e) from None


def declare_outputs(command: bytes, outputs: Sequence[Argument]) -> bytes:
	"""Add the names of its outputs to a command of ``encode_command``, if they fit into a frame."""
	if not outputs:
		return command
	try:
		declared = _strings([os.fsencode(output) for output in outputs])
	except Unsendable:
		return command
	if len(command) + len(declared) + _EXECUTE.size > FRAME_CAP:
		return command
	return EMPTY.join((bytes((command[0] | DECLARES,)), command[1:], declared))


def encode_execute(number: int, env: int, command: bytes) -> bytes:
	"""The request to run a command of ``encode_command``."""
	return _EXECUTE.pack(len(command) + 9, 3, number, env) + command


def encode_cancel(number: int) -> bytes:
	return _frame(4, _U32.pack(number), FRAME_CAP)


def encode_status() -> bytes:
	return _frame(5, b"", FRAME_CAP)


def encode_policy(flags: int, load: int, memory: Optional[int] = None) -> bytes:
	"""
	How a build shares the machine with others. ``load`` is in hundredths, and 0 is no limit.

	``memory`` is the size in bytes into which commands must fit, or 0 for what is available; None is no limit.
	"""
	if memory is None:
		return _frame(8, _POLICY.pack(flags, load), FRAME_CAP)
	return _frame(8, _POLICY.pack(flags | MEMORY, load) + _U64.pack(memory), FRAME_CAP)


def encode_caching(
	flags: int,
	columns: int,
	rows: int,
	bases: Sequence[bytes],
	namespace: bytes,
	store: bytes,
	export: Optional[bytes] = None,
	remote: Optional[bytes] = None,
) -> bytes:
	"""How and where the commands of a connection are cached, and the size of the terminal that they write to.

	``export`` is the folder that gets their entries. It belongs to the flag ``EXPORTS``. ``remote`` names the shared
	stores, if they are not those of the engine; it belongs to the flag ``REMOTE``.
	"""
	texts = _text(namespace) + _text(store)
	for text in (export, remote):
		if text is not None:
			texts += _text(text)
	return _frame(10, _CACHING.pack(flags, columns, rows) + _strings(bases) + texts, FRAME_CAP)


# ---- answers

_WELCOME = struct.Struct("<HII")
_OUTPUT = struct.Struct("<IB")
_TOLD = struct.Struct("<IB")
_REASON = struct.Struct("<BI")
_U64 = struct.Struct("<Q")
_INPUTS = struct.Struct("<IIII")
_ELSEWHERE = struct.Struct("<IQQQI")
RESULT_SIZE = 32
_WHOLE_OUTCOME = struct.Struct("<IBIBBiQQQQQ")
OUTCOME_SIZE = _WHOLE_OUTCOME.size


def measure(data: Union[bytes, bytearray], cap: int = FRAME_CAP) -> int:
	"""The size of the frame that ``data`` begins with; 0 as long as too few bytes of it are there."""
	if len(data) < 4:
		return 0
	length: int
	(length,) = _U32.unpack_from(data)
	if not 1 <= length <= cap:
		raise ProtocolError("a frame of %d bytes" % length)
	return 4 + length


def take_frames(data: bytearray) -> List[bytes]:
	"""Remove the whole frames from the beginning of ``data``, and return them."""
	frames: List[bytes] = []
	start, end = 0, len(data)
	with memoryview(data) as view:
		while end - start >= 4:
			(length,) = _U32.unpack_from(data, start)
			if not 1 <= length <= FRAME_CAP:
				raise ProtocolError("a frame of %d bytes" % length)
			stop = start + 4 + length
			if stop > end:
				break
			# PyPy counts a part until it is given back
			with view[start:stop] as part:
				frames.append(bytes(part))
			start = stop
	del data[:start]
	return frames


def decode_outcome(frame: bytes) -> Outcome:
	"""The value of an ``outcome``. The caller has checked the frame's size."""
	fields = _WHOLE_OUTCOME.unpack(frame)
	if fields[0] != OUTCOME_SIZE - 4 or fields[1] != 0x84:
		raise ProtocolError("not an outcome")
	outcome = Outcome._make(fields[2:])
	if outcome.verdict > 3 or outcome.step > PARKED:
		raise ProtocolError("outcome with verdict %d, step %d" % (outcome.verdict, outcome.step))
	return outcome


def decode(frame: bytes) -> Message:
	"""The value of one whole frame from the engine."""
	if len(frame) < 5 or measure(frame) != len(frame):
		raise ProtocolError("not a whole frame")
	return decode_whole(frame)


def decode_whole(frame: bytes) -> Message:
	"""The value of a frame that ``take_frames`` has returned."""
	decoder = _DECODERS.get(frame[4])
	if decoder is None:
		raise ProtocolError("a frame of the unknown kind %#x" % frame[4])
	try:
		return decoder(frame)
	except struct.error:
		raise ProtocolError("a frame of the kind %#x with a body of %d bytes" % (frame[4], len(frame) - 5)) from None


def _rest_text(frame: bytes, start: int) -> bytes:
	"""The text that reaches from ``start`` to the end of the frame."""
	(length,) = _U32.unpack_from(frame, start)
	if start + 4 + length != len(frame):
		raise ProtocolError("a text of %d bytes where there are %d" % (length, len(frame) - start - 4))
	return frame[start + 4 :]


def _decode_welcome(frame: bytes) -> Welcome:
	version, pid, slots = _WELCOME.unpack_from(frame, 5)
	engine = _rest_text(frame, 5 + _WELCOME.size)
	return Welcome(version, pid, slots, engine.decode("utf-8", "replace"))


def _decode_refused(frame: bytes) -> Refusal:
	return Refusal(frame[5] if len(frame) > 5 else 0, _rest_text(frame, 6).decode("utf-8", "replace"))


def _decode_output(frame: bytes) -> Output:
	number, stream = _OUTPUT.unpack_from(frame, 5)
	data = _rest_text(frame, 5 + _OUTPUT.size)
	if stream not in (1, 2) or len(data) > OUTPUT_CAP:
		raise ProtocolError("output of stream %d, %d bytes" % (stream, len(data)))
	return Output(number, stream, data)


def _decode_report(frame: bytes) -> Report:
	return Report(_rest_text(frame, 5))


def _decode_told(frame: bytes) -> Told:
	number, known = _TOLD.unpack_from(frame, 5)
	start = 5 + _TOLD.size
	if known == HIT:
		(processor,) = _U64.unpack(frame[start:])
		return Told(number, known, processor=processor)
	if known > MISS:
		raise ProtocolError("an answer %d of the cache" % known)
	why, size = _REASON.unpack_from(frame, start)
	if not why:
		raise ProtocolError("an answer of the cache without a reason")
	start += _REASON.size
	if known == UNCACHED:
		return Told(number, known, why, _decode_words(_rest_text(frame, start - 4)))
	words = _decode_words(frame[start : start + size])
	unstored, more = _REASON.unpack_from(frame, start + size)
	start += size + _REASON.size
	unstored_words = _decode_words(frame[start : start + more])
	if unstored_words and not unstored:
		raise ProtocolError("words why nothing was stored, without a reason")
	(saved,) = _U64.unpack(frame[start + more :])
	return Told(number, known, why, words, unstored, unstored_words, saved=saved)


def _decode_words(words: bytes) -> str:
	try:
		return words.decode()
	except UnicodeDecodeError:
		raise ProtocolError("words that are not UTF-8") from None


def _decode_inputs(frame: bytes) -> Inputs:
	number, first, count, size = _INPUTS.unpack_from(frame, 5)
	start = 5 + _INPUTS.size
	strings = frame[start : start + size]
	if len(strings) != size or strings.count(0) != count or (count and strings[-1]):
		raise ProtocolError("texts of inputs that are not as announced")
	start += size
	result = frame[start : start + RESULT_SIZE]
	(count,) = _U32.unpack_from(frame, start + RESULT_SIZE)
	start += RESULT_SIZE + 4
	if len(frame) - start != 4 * count:
		raise ProtocolError("%d inputs in %d bytes" % (count, len(frame) - start))
	numbers = array.array("I", frame[start:])
	if sys.byteorder != "little":
		numbers.byteswap()
	return Inputs(number, first, strings.split(b"\0")[:-1] if strings else [], result, numbers)


def _decode_elsewhere(frame: bytes) -> Elsewhere:
	number, after, there, here, size = _ELSEWHERE.unpack_from(frame, 5)
	end = 5 + _ELSEWHERE.size + size
	address, words = _decode_words(frame[end - size : end]), _decode_words(_rest_text(frame, end))
	return Elsewhere(number, after, there, here, address, words)


_DECODERS: Dict[int, Callable[[bytes], Message]] = {
	0x81: _decode_welcome,
	0x82: _decode_refused,
	0x83: _decode_output,
	0x84: decode_outcome,
	0x85: _decode_report,
	0x87: _decode_told,
	0x88: _decode_inputs,
	0x89: _decode_elsewhere,
}
