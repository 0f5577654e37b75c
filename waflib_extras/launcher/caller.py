"""
The client of a resident process: it looks for the one of this project, and has it run the command line.

Each call of ``waf`` pays for what is imported here, so it is little: importing ``_socket`` takes a tenth of the time of
``socket``. ``docs/resident.md`` has the exchange. It knows nothing of Waf.
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
CALLED_BY = "WAF_CALLED_BY"
"""The variable with the name of the record that the native ``waf`` has looked for before it started us."""
PREFIX = "resident-"
SUFFIX = ".sock"

ANSWER = b"A"  # what the command prints, and its status
REFUSAL = b"R"  # why the caller has to run the command line itself
STARTED = b"S"  # the process that runs the command line
ENDED = b"E"  # the status of that process
HEAD = 5  # a letter and a length
REQUEST_CAP = 1 << 24
NUMBERS = 4  # of bytes, for a length
MOST_DESCRIPTORS = 250  # in one message; the kernel takes no more

SO_PEERCRED = getattr(_socket, "SO_PEERCRED", 17)  # PyPy 3.9 does not name it
TAKEN = 100  # seconds without an answer until we run the command line ourselves
HARMLESS = frozenset(("_", "OLDPWD", "SHLVL", "WINDOWID"))
"""Variables that shells and terminals change all the time, and on which no build depends."""

# commands that change what a resident has read, and options that need a terminal or a process of their own
OWN_COMMANDS = ("configure", "dist", "distclean", "distcheck")
OWN_OPTIONS = ("--no-resident", "--pdb", "--profile", "--help", "-h", "--version", "--top", "-t", "--out", "-o")


class Start(NamedTuple):
	"""How this process was started. Waf and wscripts change these values later."""

	environ: Dict[str, str]
	path: List[str]
	argv: List[str]
	waflib: str
	"""The folder with the ``waflib`` that is used instead of the installed one; empty if there is none."""
	called_by: str
	"""The record that the native ``waf`` has looked for; empty if another program has started this process."""


class CallResult:
	"""The result of the call to the resident, for the end of this run."""

	start: Optional[Start] = None
	refusal = ""


# ---- where a resident is


def find_folder() -> str:
	"""The folder of sockets, which is the engine's; empty if it does not exist or other users can write to it."""
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
	"""All properties of this process that a resident must share to run its command lines."""
	environ = sorted(item for item in start.environ.items() if item[0] not in HARMLESS and item[0] != "PWD")
	flags = [str(value) for value in (sys.flags, sorted(sys._xoptions.items()), sys.warnoptions)]
	same = (VERSION, sys.executable, sys.prefix, sys.hexversion, start.waflib, list(start.path), flags, environ)
	return repr(same).encode("utf-8", "surrogateescape")


def name_socket(described: bytes, project: str) -> str:
	"""The file name of a project's socket. It has checksums only, so the resident compares the values."""
	text = described + os.fsencode(project)
	return "%s%08x%08x%s" % (PREFIX, zlib.crc32(text), zlib.adler32(text), SUFFIX)


def dial(path: str) -> Optional[_socket.socket]:
	"""A connection to the resident with this socket; None if no process of our user listens."""
	sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
	try:
		sock.settimeout(TAKEN)  # it does not wait if too many others do
		sock.connect(path)
		peer = sock.getsockopt(_socket.SOL_SOCKET, SO_PEERCRED, 12)
		if int.from_bytes(peer[4:8], sys.byteorder) == os.geteuid():
			return sock
	except OSError:
		pass
	sock.close()
	return None


def find_resident(start: Start, cwd: str) -> Optional[_socket.socket]:
	"""A connection to the resident of this folder, or else of the nearest one above that has a resident."""
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
	"""The next message. Its letter is empty if the other end has closed the connection."""
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
	"""The descriptors that our commands inherit: the streams, and others such as those of make's jobserver."""
	found = [0, 1, 2]
	for name in os.listdir("/proc/self/fd"):
		try:
			if int(name) > 2 and os.get_inheritable(int(name)):
				found.append(int(name))
		except OSError:
			pass  # this was the descriptor of /proc/self/fd itself
	return found[:MOST_DESCRIPTORS]


def send_request(sock: _socket.socket, start: Start, cwd: str) -> None:
	inherited = find_inherited()
	request = marshal.dumps((describe(start), cwd, start.argv, start.environ, inherited, start.called_by))
	data = len(request).to_bytes(NUMBERS, "big") + request
	streams = b"".join(fd.to_bytes(4, sys.byteorder) for fd in inherited)
	sent = sock.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
	if sent < len(data):  # an empty message fails if the resident has answered already and has closed the connection
		sock.sendall(data[sent:])


def call(cwd: str, waflib: str) -> Optional[int]:
	"""Have the project's resident run the command line. Returns its status, or None if this process has to run it."""
	called_by = os.environ.pop(CALLED_BY, "")  # no command gets to see it
	CallResult.start = start = Start(dict(os.environ), list(sys.path), list(sys.argv), waflib, called_by)
	if os.environ.get(OFF) or not all(map(is_for_resident, sys.argv[1:])):
		return None
	sock = find_resident(start, cwd)
	if sock is None:
		return None
	try:
		send_request(sock, start, cwd)
		kind, value = receive(sock)
	except (OSError, ValueError, EOFError) as e:
		CallResult.refusal = "the exchange failed: %s" % e
		return None
	if kind == ANSWER:
		chunks, status = value
		write_out(chunks)
		return int(status)
	if kind == STARTED:
		return attend(sock, value)
	CallResult.refusal = value or "it left"
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
				return  # the reader has gone


# ---- while a process of the resident runs the command


def attend(sock: _socket.socket, child: int) -> int:
	"""Pass signals on to the process until it ends, and end in the same way."""
	import _signal  # type: ignore[import-not-found]  # the stubs have it as signal only

	def send(number: int, _frame: object) -> None:
		try:
			sock.sendall(bytes((number,)))
		except OSError:
			pass  # it has ended already, which is noticed below

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
	return 128 - status  # we have survived the signal


def end_group(child: int) -> None:
	"""End the processes that a lost resident has left."""
	import _signal

	try:
		os.killpg(child, _signal.SIGKILL)
	except OSError:
		pass  # it has ended already
