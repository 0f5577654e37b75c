"""
The forked process that runs a command line as its caller would.

First it takes over what the caller has: streams, descriptors, folder, environment and arguments. When the command line
has ended, it tells the resident what it has looked at and printed.
"""

import array
import atexit
import contextlib
import importlib
import io
import marshal
import os
import signal
import socket
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, TextIO, Tuple, TypedDict

from ..launcher import caller
from . import memo, witness

if TYPE_CHECKING:
	from _typeshed import ReadableBuffer

TOOL = "resident"
TOLD_OF_INPUT = frozenset(("__class__", "closed", "encoding", "errors", "flush", "isatty", "mode", "name"))


class Request(NamedTuple):
	described: bytes
	cwd: str
	argv: List[str]
	environ: Dict[str, str]
	numbers: List[int]
	"""The numbers of the descriptors that come with the request, those of the streams first."""
	called_by: str
	"""The record that the native ``waf`` has looked for; empty if another program was called."""


class ChildReport(TypedDict, total=False):
	"""The report of a child to the resident, at its end."""

	digests: Dict[str, Tuple[witness.Signature, bytes]]
	memo: memo.Facts
	reason: str
	"""Why there is no memo."""


class Stream(io.FileIO):
	"""A standard stream that remembers what is written to it."""

	chunks: List[Tuple[int, bytes]] = []
	is_held = False
	"""Whether output is held back, since there is no caller yet."""

	def write(self, data: "ReadableBuffer") -> int:
		if witness.Witness.active is not None or Stream.is_held:
			Stream.chunks.append((self.fileno(), bytes(data)))
		if Stream.is_held:
			return len(bytes(data))
		return super().write(data)


class Input(io.TextIOWrapper):
	"""Standard input. If a run reads it, there is no memo of that run."""

	def __getattribute__(self, name: str) -> object:
		if name not in TOLD_OF_INPUT:
			witness.hinder("uses its standard input: %s" % name)
		return super().__getattribute__(name)

	def __next__(self) -> str:  # type: ignore[override]  # the stubs do so for every stream of text
		line = self.readline()
		if not line:
			raise StopIteration
		return line


def open_stream(fd: int, model: TextIO) -> TextIO:
	"""A stream such as the interpreter makes it at its start, like ``model``, which is our own one."""
	raw = Stream(fd, "rb" if fd == 0 else "wb", closefd=False)
	raw.name = model.name
	direct = getattr(model, "write_through", False)
	buffered: Any = io.BufferedReader(raw) if fd == 0 else raw if direct else io.BufferedWriter(raw)
	stream = (Input if fd == 0 else io.TextIOWrapper)(
		buffered,
		encoding=model.encoding,
		errors=model.errors,
		newline=None if fd == 0 else "\n",
		line_buffering=raw.isatty() or (fd == 2 and sys.version_info >= (3, 9)),
		write_through=direct,
	)
	stream.mode = "r" if fd == 0 else "w"  # type: ignore[misc]  # as the interpreter does it
	return stream


def take_streams() -> None:
	"""Replace our streams by the caller's, and import those modules of Waf's again that look for a terminal."""
	for fd, name in enumerate(("stdin", "stdout", "stderr")):
		stream = open_stream(fd, getattr(sys, "__%s__" % name))
		setattr(sys, name, stream)
		setattr(sys, "__%s__" % name, stream)
	if os.isatty(1) or os.isatty(2):
		from waflib import Logs, ansiterm

		importlib.reload(ansiterm)
		importlib.reload(Logs)


class Digests:
	"""The digests of files by their signatures, so that unchanged files are not read again."""

	def __init__(self) -> None:
		self.known: Dict[str, Tuple[witness.Signature, bytes]] = {}
		self.new: Dict[str, Tuple[witness.Signature, bytes]] = {}
		self.mounts: Optional[memo.Mounts] = None
		self.devices: Dict[int, bool] = {}
		self.looked: Dict[str, Optional[witness.Signature]] = {}
		"""The signatures of files that were looked at just before the first task. They hold until a task has run."""

	def install(self) -> None:
		"""Have Waf's ``h_file`` ask here first."""
		from waflib import Utils

		from ..hooks import lifecycle

		stock: Callable[[object], bytes] = Utils.h_file
		algorithm = Utils.md5

		def h_file(fname: object) -> bytes:
			if Utils.md5 is not algorithm or not isinstance(fname, str) or not fname.startswith("/"):
				return stock(fname)
			seen = witness.Witness.active
			looked = self.looked.get(fname) if seen is not None else None
			signature = looked or witness.signature_of(fname)
			if signature is None or not self.trusts(signature[2], fname):
				return stock(fname)
			known = self.known.get(fname)
			if known is not None and known[0] == signature:
				if seen is not None and looked is None:
					seen.keep(seen.files, fname, signature)
				return known[1]
			now = witness.real_time_ns()
			signature = witness.signature_of(fname) if looked else signature
			digest = stock(fname)
			if signature and not witness.is_fresh(signature, now):
				self.new[fname] = (signature, digest)
			return digest

		h_file.__doc__ = stock.__doc__
		lifecycle.find().replace(TOOL, "Utils.h_file", h_file)

	def trusts(self, device: int, place: str) -> bool:
		"""Tell whether the times of files on this device can be trusted."""
		if device not in self.devices:
			seen = witness.Witness.look_away()
			try:
				(self.mounts or memo.Mounts.read()).check(place)
				self.devices[device] = True
			except memo.Unkept:
				self.devices[device] = False
			finally:
				witness.Witness.active = seen
		return self.devices[device]


class Child:
	"""Runs a command line as the caller's own process would."""

	def __init__(self, request: Request, digests: Digests, why: str, seen: Optional["witness.Witness"] = None) -> None:
		self.request = request
		self.digests = digests
		self.why = why
		self.seen = seen or witness.Witness()
		self.times: List[str] = []

	def run(self) -> int:
		"""Run the command line, and return its exit status."""
		self.take_place()
		from waflib import Context, Scripting

		wafdir = os.path.dirname(os.path.dirname(os.path.abspath(Context.__file__)))
		self.seen.begin()
		try:
			Scripting.waf_entry_point(self.request.cwd, Context.WAFVERSION, wafdir)
			status: object = 0
		except SystemExit as e:
			status = e.code
		except KeyboardInterrupt:
			from .. import launcher

			status = launcher.INTERRUPTED
		except BaseException:
			traceback.print_exc()
			status = 1
		finally:
			threading._shutdown()  # type: ignore[attr-defined]  # not in the stubs
			atexit._run_exitfuncs()
		for stream in (sys.stdout, sys.stderr):
			with contextlib.suppress(Exception):
				stream.flush()
		self.seen.end()
		if status is None:
			return 0
		if not isinstance(status, int):
			os.write(2, ("%s\n" % (status,)).encode(errors="backslashreplace"))
			return 1
		return status & 0xFF

	def take_place(self) -> None:
		request = self.request
		os.chdir(request.cwd)
		os.environ.clear()
		os.environ.update(request.environ)
		sys.argv[:] = request.argv
		importlib.invalidate_caches()
		take_streams()
		from waflib import Utils

		from ..hooks import lifecycle

		self.digests.mounts = memo.Mounts.read()
		self.digests.install()
		build = lifecycle.find()
		# Waf makes a worker process for the first command that needs one
		build.replace(TOOL, "Utils.alloc_process_pool", lambda n, force=False: None)
		show = Utils.Timer.__str__

		def note(timer: object) -> str:
			text: str = show(timer)
			self.times.append(text)
			return text

		build.replace(TOOL, "Utils.Timer.__str__", note)

	def tell(self, status: int) -> ChildReport:
		"""The report to the resident about this run."""
		from waflib import Logs

		told: ChildReport = {"digests": self.digests.new}
		seen = self.seen
		if status:
			seen.hinder("the status %d" % status)
		reason = seen.find_hindrance(is_trusted)
		if Logs.verbose:
			Logs.debug("resident: run by the process %d: %s", os.getppid(), self.why)
			Logs.debug(
				"resident: %s", "not kept: " + reason if reason else "it would be kept without messages as this one"
			)
			reason = reason or "messages for debugging"
		try:
			if reason:
				raise memo.Unkept(reason)
			facts = memo.pack_facts(seen, self.digests.mounts or memo.Mounts.read())
			facts["pieces"] = memo.cut_pieces(Stream.chunks, self.times)
			told["memo"] = facts
		except memo.Unkept as e:
			told["reason"] = str(e)
		return told


def is_trusted(path: str) -> bool:
	"""Tell whether code is the interpreter's, ours, or Waf's own without its extras."""
	import waflib

	waf = os.path.dirname(os.path.abspath(waflib.__file__)) + os.sep
	ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
	of_waf = path.startswith(waf) and not path.startswith(waf + "extras")
	return witness.is_standard(path) or of_waf or path.startswith(ours)


def run_child(request: Request, digests: Digests, why: str, report: int, wire: int, fds: List[int]) -> None:
	"""The body of the forked process."""
	status = 1
	try:
		begin_group()
		report, wire = take_descriptors([report, wire], fds, request.numbers)
		child = Child(request, digests, why)
		status = child.run()
		write_report(report, child.tell(status))
		tell_end(wire, request.numbers, status)
	except BaseException:
		with contextlib.suppress(BaseException):
			os.write(2, traceback.format_exc().encode())
		status = status or 1
	finally:
		os._exit(status)


def begin_group() -> None:
	"""Begin a process group of our own, in which signals have their usual effect."""
	os.setpgid(0, 0)
	for number in (signal.SIGCHLD, signal.SIGTERM):
		signal.signal(number, signal.SIG_DFL)
	signal.signal(signal.SIGINT, signal.default_int_handler)
	signal.set_wakeup_fd(-1)


def write_report(report: int, told: ChildReport) -> None:
	try:
		data = marshal.dumps(told)  # type: ignore[arg-type]  # for the stubs, a TypedDict is no dict
	except ValueError:
		data = marshal.dumps({"reason": "it asked the system with what cannot be kept"})
	with open(report, "wb") as f:
		f.write(data)


def tell_end(wire: int, numbers: List[int], status: int) -> None:
	"""
	Tell the resident how the run has ended, and give back the descriptors of the caller.

	It is the last thing that is done. The caller need not wait until the system has taken back our memory.
	"""
	nothing = os.open(os.devnull, os.O_RDWR)
	for number in numbers:
		os.dup2(nothing, number)
	os.write(wire, bytes((status,)))


def take_descriptors(kept: List[int], fds: List[int], numbers: List[int]) -> List[int]:
	"""Give these descriptors their numbers, and close all others. Returns the new numbers of those that are kept."""
	above = max(*fds, *numbers, *map(int, os.listdir("/proc/self/fd"))) + 1
	high = [os.dup2(fd, above + count, inheritable=False) for count, fd in enumerate((*kept, *fds))]
	os.closerange(3, above)
	for fd, number in zip(high[len(kept) :], numbers):
		os.dup2(fd, number)
	for fd in high[len(kept) :]:
		os.close(fd)
	return high[: len(kept)]


def receive_request(sock: socket.socket) -> Tuple[bytes, List[int]]:
	"""A message that begins with its length, and the descriptors that came with it."""
	space = socket.CMSG_SPACE((caller.MOST_DESCRIPTORS + 1) * array.array("i").itemsize)
	data, ancillary, _, _ = sock.recvmsg(1 << 16, space, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
	fds = array.array("i")
	for level, kind, rights in ancillary:
		if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
			fds.frombytes(rights[: len(rights) - len(rights) % fds.itemsize])
	for fd in fds:
		os.set_inheritable(fd, False)
	try:
		while len(data) < caller.NUMBERS or len(data) < caller.NUMBERS + int.from_bytes(data[: caller.NUMBERS], "big"):
			if len(data) > caller.REQUEST_CAP:
				raise ValueError("a request that is too long")
			more = sock.recv(1 << 16)
			if not more:
				raise EOFError
			data += more
	except BaseException:
		for fd in fds:
			os.close(fd)
		raise
	return data[caller.NUMBERS :], list(fds)
