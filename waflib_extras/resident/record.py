"""
The form of a record, which the native ``waf`` reads. It compares the facts itself, and needs no Python for that.

A record holds what a run has looked at, and what our own start has. Its form is that of
``engine/src/launcher/record.rs``. What the native program cannot compare is not written down: then Python asks the
resident, as before.
"""

import hashlib
import marshal
import os
import re
import site
import stat
import struct
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from ..facts import answers
from ..facts.files import replace
from ..launcher import caller
from . import child, memo, process_context, witness

FORM = b"waf-record-3"
MAGIC = b"wafans03"
SUFFIX = ".answer"
INSTALLED = ("site-packages", "dist-packages")
"""Folders whose ``.pth`` files the interpreter reads at its start."""
NUMBER = struct.Struct("<q")
SIZE = struct.Struct("<I")
STATUS = struct.Struct("<9q")
EMPTY = b""
NOTHING, THERE = b"\0", b"\1"
TERMINAL, TERMINAL_OF_SIZE, NO_TERMINAL = b"terminal", b"%dx%d", b"-"
TURNING = re.compile(r"/\.{0,2}(/|$)")
"""Parts of a path by which it says less than it seems."""
HALF, WHOLE = 1 << 63, 1 << 64


Shape = Union[bool, Tuple[int, ...]]
"""The kind of a stream: the size of its terminal, or whether it is a terminal at all."""


class Unwritable(Exception):
	"""Raised if the native program could not compare something. The text is the reason."""

	pass


class Place(NamedTuple):
	"""Where a record is written, and what it answers for."""

	path: str
	key: bytes


def find_place(folder: str, request: "child.Request", shapes: Sequence[Shape]) -> Place:
	"""The file for a command line, whose key has all that an answer depends on besides files."""
	environ = [name + "=" + value for name, value in request.environ.items() if name not in caller.HARMLESS]
	variables = sorted(map(os.fsencode, environ))
	words = [FORM, *map(os.fsencode, (request.argv[0], request.cwd, str(len(request.argv) - 1), *request.argv[1:]))]
	words += [b"%d" % len(variables), *variables, *map(name_shape, shapes)]
	key = b"".join(map(text, words))
	name = "%s%s%s" % (caller.PREFIX, hashlib.sha256(key).hexdigest()[:32], SUFFIX)
	return Place(os.path.join(folder, name), key)


def name_shape(shape: Shape) -> bytes:
	"""A stream that is a terminal has its size, if it has one."""
	if isinstance(shape, tuple):
		return TERMINAL_OF_SIZE % shape
	return TERMINAL if shape else NO_TERMINAL


Keys = Tuple[memo.FactKey, ...]
"""The facts that are compared at once."""


class Written(NamedTuple):
	"""What a record has of a run."""

	serial: int
	facts: memo.Facts
	keys: List[Keys]
	"""By the numbers in the record: which facts have changed if that has."""


def write(
	place: Place,
	request: "child.Request",
	start: memo.Memo,
	run: memo.Memo,
	path: Sequence[str],
	serial: int,
	answers: bool,
) -> Written:
	"""
	Write the record of a run in one step. It answers if the run has ended.

	``start`` has the facts of our own start, and ``path`` is Python's. Raises ``Unwritable`` or ``OSError``.
	"""
	note = marshal.dumps(("answered", os.path.basename(place.path)))
	pieces = [pack_piece(fd, data) for fd, data in run.pieces]
	facts = list(pack_facts(run, False))
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
		THERE + many(pieces) if answers else NOTHING,
		many([*pack_start(request, path), *(fact for _, fact in pack_facts(start, True))]),
		many([fact for _, fact in facts]),
	]
	replace(place.path, b"".join(parts), 0o600)
	return Written(serial, run.told, [keys for keys, _ in facts])


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


def pack_facts(seen: memo.Memo, is_of_start: bool) -> Iterator[Tuple[Keys, bytes]]:
	"""All facts, each with its key. Facts of one path that follow from another one are compared at once."""
	start = seen.project + os.sep
	files: Dict[str, Tuple[Optional[witness.Signature], List[memo.FactKey]]] = {}
	"""By path: files that are no links, so that one look tells their status and that they are none."""
	kinds: Dict[str, List[memo.FactKey]] = {}
	folders: Dict[str, bool] = {}
	turned: Dict[str, List[memo.FactKey]] = {}
	"""By folder: the files that were found by a path through it and back. It must be no link."""
	for folder, found in (("", seen.files), (start, seen.near_files)):
		for place, signature in found.items():
			key: memo.FactKey = ("files", folder + place)
			through, path = straighten(folder + place)
			if through and through not in folders:
				folders[through] = witness.link_of(through) == stat.S_IFDIR
			if through and not folders[through]:
				through, path = "", folder + place
			is_file = witness.is_plain(signature) and seen.links.get(path) == stat.S_IFREG
			if is_file and files.setdefault(path, (signature, []))[0] == signature:
				files[path][1].append(key)
				if through:
					turned.setdefault(through, []).append(key)
			else:
				yield (key,), fact(b"S", place, status(signature), bool(folder))
	for folder, known in (("", seen.kinds), (start, seen.near_kinds)):
		for place, kind in known.items():
			path, key = folder + place, ("kinds", folder + place)
			if seen.links.get(path) != kind:
				yield (key,), fact(b"K", place, numbers(kind), bool(folder))
			else:
				kinds.setdefault(path, []).append(key)
	for path, kind in (*seen.links.items(), *((path, stat.S_IFDIR) for path in turned)):
		keys = [("links", path), *kinds.get(path, ()), *turned.get(path, ())]
		is_near = path.startswith(start) and path != start
		place = path[len(start) :] if is_near else path
		if path in files:
			signature, others = files[path]
			yield (*keys, *others), fact(b"s", place, status(signature), is_near)
		else:
			yield tuple(keys), fact(b"k", place, numbers(kind), is_near)
	for place, signature in seen.own.items():
		yield (("own", place),), fact(b"s", place, status(signature))
	for place, numbered in seen.folders.items():
		yield (("folders", place),), fact(b"F", place, numbers(*numbered))
	for place, listed in seen.lists.items():
		yield (("lists", place),), pack_names(place, listed, is_of_start)
	for (name, args), answer in seen.asked.items():
		pack = QUESTIONS.get(name)
		if pack is None:
			raise Unwritable("it has asked for %s" % name)
		yield (("asked", (name, args)),), pack(args, answer)


def straighten(path: str) -> Tuple[str, str]:
	"""The folder through which a path goes and back, such as ``out`` of ``out/../a.c``, and the path without that."""
	through, back, rest = path.partition("/../")
	if not through or not back or TURNING.search(through) or TURNING.search("/" + rest):
		return "", path
	return through, os.path.join(os.path.dirname(through), rest)


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
