"""
The client of a resident Waf: it asks whether one holds this project, and has it run the command line.

Whoever types ``waf`` waits for what is imported here, so this is little: ``_socket`` is what ``socket`` is made of and
takes a tenth of its time. ``docs/resident.md`` has the exchange. Knows nothing of Waf.
"""

import _socket
import marshal
import os
import stat
import sys
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..version import VERSION

OFF = "WAF_NO_RESIDENT"
PREFIX = "resident-"
SUFFIX = ".sock"

ANSWER = b"A"  # what the command prints, and its status
REFUSAL = b"R"  # why it is left to the caller
STARTED = b"S"  # the process that runs it
ENDED = b"E"  # its status
HEAD = 5  # a letter and a length
REQUEST_CAP = 1 << 24
NUMBERS = 4  # of bytes, for a length
MOST_DESCRIPTORS = 250  # that the kernel takes at once

SO_PEERCRED = getattr(_socket, "SO_PEERCRED", 17)  # PyPy 3.9 does not name it
TAKEN = 100  # seconds without a word until we do it ourselves
HARMLESS = frozenset(("_", "OLDPWD", "SHLVL", "WINDOWID"))
"""Variables that shells and terminals set anew all the time, and nothing in a build depends on."""

# commands that change what a resident is made from, and options that want a terminal or a process of their own
OWN_COMMANDS = ("configure", "dist", "distclean", "distcheck")
OWN_OPTIONS = ("--no-resident", "--pdb", "--profile", "--help", "-h", "--version", "--top", "-t", "--out", "-o")


class Start(NamedTuple):
	"""How this process was started, before Waf and wscripts have changed anything."""

	environ: Dict[str, str]
	path: List[str]
	argv: List[str]
	waflib: str
	"""The folder with a ``waflib`` that goes before the installed one, or nothing."""


class Told:
	"""What came of the call."""

	start: Optional[Start] = None
	refusal = ""


# ---- where a resident is


def find_folder() -> str:
	"""The folder of sockets, which is the engine's; nothing if it is not there, or could be somebody else's."""
	folder = os.environ.get("WAFD_RUNTIME_DIR") or ""
	if not folder:
		folder = os.environ.get("XDG_RUNTIME_DIR") or ""
		folder = os.path.join(folder, "wafd") if folder else "/tmp/wafd-%d" % os.geteuid()
	try:
		found = os.lstat(folder)
	except OSError:
		return ""
	safe = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
	return folder if safe and os.path.isabs(folder) else ""


def describe(start: Start) -> bytes:
	"""Whatever a resident must have been started with to stand for this process."""
	environ = sorted(item for item in start.environ.items() if item[0] not in HARMLESS and item[0] != "PWD")
	flags = [str(value) for value in (sys.flags, sorted(sys._xoptions.items()), sys.warnoptions)]
	same = (VERSION, sys.executable, sys.prefix, sys.hexversion, start.waflib, list(start.path), flags, environ)
	return repr(same).encode("utf-8", "surrogateescape")


def name_socket(described: bytes, project: str) -> str:
	"""The file name of the socket of a project's resident; the resident compares what this only sums up."""
	text = described + os.fsencode(project)
	return "%s%08x%08x%s" % (PREFIX, zlib.crc32(text), zlib.adler32(text), SUFFIX)


def dial(path: str) -> Optional[_socket.socket]:
	"""A connection to the resident with this socket, which must be of our user; none if nobody listens."""
	sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
	try:
		sock.connect(path)
		peer = sock.getsockopt(_socket.SOL_SOCKET, SO_PEERCRED, 12)
		if int.from_bytes(peer[4:8], sys.byteorder) == os.geteuid():
			return sock
	except OSError:
		pass
	sock.close()
	return None


def find_resident(start: Start, cwd: str) -> Optional[_socket.socket]:
	"""A connection to the resident of the nearest folder, this one or one above, that has one."""
	folder = find_folder()
	if not folder:
		return None
	described = describe(start)
	while True:
		path = os.path.join(folder, name_socket(described, cwd))
		sock = dial(path) if os.path.exists(path) else None
		above = os.path.dirname(cwd)
		if sock is not None or above == cwd:
			return sock
		cwd = above


# ---- the exchange


def pack(kind: bytes, value: Any) -> bytes:
	data = marshal.dumps(value)
	return kind + len(data).to_bytes(NUMBERS, "big") + data


def receive(sock: _socket.socket) -> Tuple[bytes, Any]:
	"""The next message, with an empty letter when the other end is gone."""
	gone = (b"", None)
	head = receive_all(sock, HEAD)
	if len(head) < HEAD:
		return gone
	size = int.from_bytes(head[1:], "big")
	data = receive_all(sock, size)
	return (head[:1], marshal.loads(data)) if len(data) == size else gone


def receive_all(sock: _socket.socket, size: int) -> bytes:
	data = b""
	while len(data) < size:
		try:
			more = sock.recv(min(size - len(data), 1 << 20))
		except ConnectionError:
			break
		if not more:
			break
		data += more
	return data


def find_inherited() -> List[int]:
	"""The descriptors that our commands get: the streams, and what we were given, as those of make's jobserver."""
	found = [0, 1, 2]
	for name in os.listdir("/proc/self/fd"):
		try:
			if int(name) > 2 and os.get_inheritable(int(name)):
				found.append(int(name))
		except OSError:
			pass  # that of the folder itself
	return found[:MOST_DESCRIPTORS]


def send_request(sock: _socket.socket, start: Start, cwd: str) -> None:
	inherited = find_inherited()
	request = marshal.dumps((describe(start), cwd, start.argv, start.environ, inherited))
	data = len(request).to_bytes(NUMBERS, "big") + request
	streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in inherited)
	sent = sock.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
	sock.sendall(data[sent:])


def call(cwd: str, waflib: str) -> Optional[int]:
	"""Have the project's resident do it; the exit status, or none if this process is to do it itself."""
	Told.start = start = Start(dict(os.environ), list(sys.path), list(sys.argv), waflib)
	if os.environ.get(OFF) or not all(map(is_for_resident, sys.argv[1:])):
		return None
	sock = find_resident(start, cwd)
	if sock is None:
		return None
	sock.settimeout(TAKEN)
	try:
		send_request(sock, start, cwd)
		kind, value = receive(sock)
	except (OSError, ValueError, EOFError) as e:
		Told.refusal = "the exchange failed: %s" % e
		return None
	if kind == ANSWER:
		chunks, status = value
		write_out(chunks)
		return int(status)
	if kind == STARTED:
		return attend(sock, value)
	Told.refusal = value or "it left"
	return None


def is_for_resident(word: str) -> bool:
	"""Tell whether a command line with this word may be run by a resident."""
	if word.startswith("-"):
		option = word.partition("=")[0]
		return not (option in OWN_OPTIONS or word[:2] in ("-t", "-o", "-h") or option.startswith("--resident-"))
	return not word.startswith(OWN_COMMANDS) and os.path.basename(word) != "wscript"


def write_out(chunks: List[Tuple[int, bytes]]) -> None:
	for fd, data in chunks:
		while data:
			try:
				data = data[os.write(fd, data) :]
			except OSError:
				return  # nobody reads it


# ---- while a process of the resident runs the command


def attend(sock: _socket.socket, child: int) -> int:
	"""Pass signals on until the process ends, and end as it has."""
	import _signal  # type: ignore[import-not-found]  # the stubs have it as signal only

	def send(number: int, _frame: object) -> None:
		try:
			sock.sendall(bytes((number,)))
		except OSError:
			pass  # its end is seen below

	def stop(number: int, frame: object) -> None:
		send(number, frame)
		os.kill(os.getpid(), _signal.SIGSTOP)
		send(_signal.SIGCONT, frame)

	for number in (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2):
		if _signal.getsignal(number) != _signal.SIG_IGN:
			_signal.signal(number, send)
	_signal.signal(_signal.SIGTSTP, stop)
	sock.settimeout(None)
	status: int
	kind, status = receive(sock)
	if kind != ENDED:
		end_group(child)
		sys.stderr.write("waf: the resident process was ended in the middle of the command: run it again\n")
		return 1
	if status >= 0:
		return status
	if -status != _signal.SIGKILL:
		_signal.signal(-status, _signal.SIG_DFL)
	os.kill(os.getpid(), -status)
	return 128 - status  # a signal that does not end us


def end_group(child: int) -> None:
	"""End what a resident that is gone has left."""
	import _signal

	try:
		os.killpg(child, _signal.SIGKILL)
	except OSError:
		pass  # it has ended
