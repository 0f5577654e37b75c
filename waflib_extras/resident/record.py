"""
Writes answers down for the native ``waf``, which compares the facts itself and needs no Python for that.

A record holds the facts of a memo and those of our own start. Its form is that of ``engine/src/launcher/record.rs``.
What the native program cannot compare is not written down: then Python asks the resident, as before.
"""

import contextlib
import hashlib
import marshal
import os
import site
import struct
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..facts import answers
from ..launcher import caller
from . import child, memo, process_context, witness

FORM = b"waf-record-2"
MAGIC = b"wafans02"
SUFFIX = ".answer"
MOST = 64  # records of one user
INSTALLED = ("site-packages", "dist-packages")
"""Folders whose ``.pth`` files the interpreter reads at its start."""
NUMBER = struct.Struct("<q")
SIZE = struct.Struct("<I")
STATUS = struct.Struct("<9q")
EMPTY = b""
NOTHING, THERE = b"\0", b"\1"
TERMINAL, TERMINAL_OF_SIZE, NO_TERMINAL = b"terminal", b"%dx%d", b"-"
HALF, WHOLE = 1 << 63, 1 << 64


class Unwritable(Exception):
	"""Raised if the native program could not compare something. The text is the reason."""

	pass


class Place(NamedTuple):
	"""Where a record is written, and what it answers for."""

	path: str
	key: bytes


def find_place(folder: str, request: "child.Request", shapes: Sequence[object]) -> Place:
	"""The file for a command line, whose key has all that an answer depends on besides files."""
	environ = [name + "=" + value for name, value in request.environ.items() if name not in caller.HARMLESS]
	variables = sorted(map(os.fsencode, environ))
	words = [FORM, *map(os.fsencode, (request.argv[0], request.cwd, str(len(request.argv) - 1), *request.argv[1:]))]
	words += [b"%d" % len(variables), *variables, *map(name_shape, shapes)]
	key = b"".join(map(text, words))
	name = "%s%s%s" % (caller.PREFIX, hashlib.sha256(key).hexdigest()[:32], SUFFIX)
	return Place(os.path.join(folder, name), key)


def name_shape(shape: object) -> bytes:
	"""A stream that is a terminal has its size, if it has one."""
	if isinstance(shape, tuple):
		return TERMINAL_OF_SIZE % shape
	return TERMINAL if shape else NO_TERMINAL


class Written(NamedTuple):
	"""What a record has of a run."""

	serial: int
	facts: memo.Facts
	keys: List[memo.FactKey]
	"""By the numbers that the facts have in the record."""


def write(
	place: Place, request: "child.Request", facts: Sequence[memo.Memo], path: Sequence[str], serial: int
) -> Written:
	"""
	Write the record of a run whose facts are the last ones, in one step. The others are those of our own start.

	``path`` is Python's. Raises ``Unwritable`` or ``OSError``.
	"""
	note = marshal.dumps(("answered", os.path.basename(place.path)))
	run = facts[-1]
	start = list(pack_start(request, path))
	for each in facts[:-1]:
		start += pack_facts(each, True)
	socket = os.path.join(os.path.dirname(place.path), caller.name_socket(request.described, run.project))
	rights = [os.fsencode(line) for line in process_context.read_rights(os.getpid())]
	parts = [
		MAGIC,
		text(place.key),
		many([text(line) for line in rights]),
		text(os.fsencode(run.project) + b"\0"),
		text(os.fsencode(socket)),
		text(len(note).to_bytes(caller.NUMBERS, "big") + note),
		numbers(serial),
		many([pack_piece(fd, data) for fd, data in run.pieces]),
		many(start),
		many(list(pack_facts(run, False))),
	]
	part = "%s.%d" % (place.path, os.getpid())
	try:
		with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as f:
			f.write(b"".join(parts))
		os.replace(part, place.path)
	except OSError:
		with contextlib.suppress(OSError):
			os.unlink(part)
		raise
	return Written(serial, run.told, list(list_keys(run)))


def remove_old(folder: str) -> None:
	"""Remove the oldest records if there are too many."""
	found: List[Tuple[float, str]] = []
	for name in os.listdir(folder):
		if name.startswith(caller.PREFIX) and SUFFIX in name:
			path = os.path.join(folder, name)
			try:
				found.append((os.stat(path).st_mtime, path))
			except OSError:
				pass  # another resident has removed it
	for _, path in sorted(found)[: max(len(found) - MOST, 0)]:
		try:
			os.unlink(path)
		except OSError:
			pass


# ---- the parts


def text(data: bytes) -> bytes:
	return SIZE.pack(len(data)) + data


def many(parts: Sequence[bytes]) -> bytes:
	return SIZE.pack(len(parts)) + EMPTY.join(parts)


def numbers(*values: int) -> bytes:
	return EMPTY.join(NUMBER.pack(fold(value)) for value in values)


def fold(value: int) -> int:
	"""A number of 64 bits with a sign, as the native program has it."""
	return (value + HALF) % WHOLE - HALF


def status(found: Optional[witness.Signature]) -> bytes:
	return NOTHING if found is None else THERE + STATUS.pack(*map(fold, found))


def pack_piece(fd: int, data: Optional[bytes]) -> bytes:
	if fd not in (1, 2):
		raise Unwritable("it has written to descriptor %d" % fd)
	return bytes((fd,)) + (NOTHING if data is None else THERE + text(data))


def fact(kind: bytes, place: str, seen: bytes, is_near: bool = False) -> bytes:
	path = os.fsencode(place)
	if NOTHING in path:
		raise Unwritable("it has looked for a name that no file can have")
	return kind + (THERE if is_near else NOTHING) + text(path + b"\0") + seen


def pack_start(request: "child.Request", path: Sequence[str]) -> Iterator[bytes]:
	"""What decides how Python starts before we see it: the folders of its modules, and files that it reads there."""
	began = witness.real_time_ns()
	yield pack_now(request.argv[0], began)
	for folder in dict.fromkeys(path):
		if not os.path.isabs(folder):
			raise Unwritable("Python looks for modules in %s" % (folder or "the current folder"))
		signature = witness.signature_of(folder)
		try:
			names: Optional[List[str]] = [os.fsdecode(name) for name in witness.real_listdir(folder)]
		except OSError:
			names = None
		fresh = signature is not None and witness.is_fresh(signature, began)
		yield pack_names(folder, (None if fresh else signature, names), True)
		if os.path.basename(folder) in INSTALLED:
			for name in names or ():
				if name.endswith(".pth"):
					yield pack_now(os.path.join(folder, name), began)
	own = os.path.join(request.cwd, request.environ.get("WAFDIR", ""), "waflib")
	places = [own, site.getusersitepackages()] if site.ENABLE_USER_SITE else [own]
	for place in places:
		yield fact(b"K", place, numbers(witness.kind_of(place)))


def pack_now(place: str, began: int) -> bytes:
	signature = witness.signature_of(place)
	if signature is not None and witness.is_fresh(signature, began):
		raise Unwritable("%s was just changed" % place)
	return fact(b"S", place, status(signature))


def pack_names(place: str, seen: witness.Listed, is_of_modules: bool) -> bytes:
	signature, names = seen
	listed = NOTHING if names is None else THERE + many([text(os.fsencode(name)) for name in names])
	return fact(b"N", place, (THERE if is_of_modules else NOTHING) + status(signature) + listed)


def pack_facts(seen: memo.Memo, is_of_start: bool) -> Iterator[bytes]:
	for is_near, files, kinds in ((False, seen.files, seen.kinds), (True, seen.near_files, seen.near_kinds)):
		for place, signature in files.items():
			yield fact(b"S", place, status(signature), is_near)
		for place, kind in kinds.items():
			yield fact(b"K", place, numbers(kind), is_near)
	for place, signature in seen.own.items():
		yield fact(b"s", place, status(signature))
	for place, found in seen.folders.items():
		yield fact(b"F", place, numbers(*found))
	for place, kind in seen.links.items():
		yield fact(b"k", place, numbers(kind))
	for place, listed in seen.lists.items():
		yield pack_names(place, listed, is_of_start)
	for (name, args), answer in seen.asked.items():
		pack = QUESTIONS.get(name)
		if pack is None:
			raise Unwritable("it has asked for %s" % name)
		yield pack(args, answer)


def list_keys(seen: memo.Memo) -> Iterator[memo.FactKey]:
	"""The keys of all facts, in the order in which ``pack_facts`` writes them."""
	start = seen.project + os.sep
	for folder, files, kinds in (("", seen.files, seen.kinds), (start, seen.near_files, seen.near_kinds)):
		yield from (("files", folder + place) for place in files)
		yield from (("kinds", folder + place) for place in kinds)
	for kind in ("own", "folders", "links", "lists", "asked"):
		yield from ((kind, key) for key in getattr(seen, kind))


# ---- questions


def pack_access(args: Sequence[object], answer: object) -> bytes:
	if len(args) != 2 or not isinstance(args[0], str) or not isinstance(args[1], int) or not isinstance(answer, bool):
		raise Unwritable("it has asked for access in another way")
	return fact(b"A", args[0], numbers(args[1]) + bytes((answer,)))


def pack_target(args: Sequence[object], answer: object) -> bytes:
	if len(args) != 1 or not isinstance(args[0], str) or not isinstance(answer, str):
		raise Unwritable("it has asked where a link leads in another way")
	return fact(b"T", args[0], text(os.fsencode(answer)))


def pack_system(args: Sequence[object], answer: object) -> bytes:
	if args or not isinstance(answer, tuple):
		raise Unwritable("it has asked for the system in another way")
	return fact(b"U", "/", many([text(os.fsencode(word)) for word in answer]))


def pack_setting(args: Sequence[object], answer: object) -> bytes:
	name = os.sysconf_names.get(args[0], -1) if isinstance(args[0], str) else args[0]
	if not isinstance(name, int) or name < 0 or not isinstance(answer, int):
		raise Unwritable("it has asked for a setting of the system in another way")
	return fact(b"C", "/", numbers(name, answer))


def pack_processors(args: Sequence[object], answer: object) -> bytes:
	if args or answer != os.sysconf("SC_NPROCESSORS_ONLN") or "PYTHON_CPU_COUNT" in os.environ:
		raise Unwritable("it has asked for processors in another way")
	return pack_setting(("SC_NPROCESSORS_ONLN",), answer)


def pack_program(args: Sequence[object], answer: object) -> bytes:
	call = answers.ProgramCall(*args)  # type: ignore[arg-type]  # as the witness has noted it
	if not isinstance(answer, tuple) or len(answer) != len(answers.Answer._fields):
		raise Unwritable("%s was not asked" % call.command[0])
	code, out, err = answer
	if not os.path.isabs(call.command[0]):
		raise Unwritable("%s is looked for along PATH" % call.command[0])
	words = many([text(os.fsencode(word)) for word in call.command])
	variables = many([text(os.fsencode("%s=%s" % item)) for item in call.environ])
	return fact(b"P", call.cwd, words + variables + numbers(code) + text(out) + text(err))


QUESTIONS: Dict[str, Callable[[Sequence[object], object], bytes]] = {
	"access": pack_access,
	"cpu_count": pack_processors,
	"readlink": pack_target,
	"sysconf": pack_setting,
	"uname": pack_system,
	witness.PROGRAM: pack_program,
}
