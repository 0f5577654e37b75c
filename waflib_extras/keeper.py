"""
The resident process: Waf, imported and ready, that answers for command lines of one project or forks to run them.

One thread and one loop. A child is forked for each command line that is not answered from a memo, and has all that the
caller has: its streams, folder, environment and arguments; where it cannot have it, the caller is refused and does it
itself. ``docs/resident.md`` tells what is compared.
"""

import array
import atexit
import contextlib
import gc
import importlib
import io
import marshal
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import caller, memo, witness

IDLE = 1800.0  # seconds without a call until it leaves
TICK = 5.0  # seconds between looks at whether it is still wanted
PATIENCE = 2.0  # seconds for a request to arrive
SCARCE = 0.05  # of the machine's memory: with less available it leaves
MEMOS = 8
MOST_RESIDENTS = 8
UNFIT = 3  # refusals in a row until it leaves to one that fits
LETHAL = (signal.SIGTERM, signal.SIGKILL)
LINGER = 2.0  # seconds from the first of these to the second
DIGESTS = 200_000  # digests of files that are kept

# of the caller, as it must be for an answer to be right, and for a child to be what the caller would be
RIGHTS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
BURDENS = ("Umask", "SigBlk", "SigIgn", "Cpus_allowed")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


TOLD_OF_INPUT = frozenset(("__class__", "closed", "encoding", "errors", "flush", "isatty", "mode", "name"))


class Unfit(Exception):
	"""Why a call is refused."""

	pass


class Request(NamedTuple):
	described: bytes
	cwd: str
	argv: List[str]
	environ: Dict[str, str]
	numbers: List[int]
	"""Of the descriptors that come with it, the streams first."""


# ---- whom we stand for


def read_status(pid: int, names: Tuple[str, ...]) -> List[str]:
	with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as f:
		return [line for line in f if line.partition(":")[0] in names]


def read_rights(pid: int) -> List[str]:
	"""What decides which files a process can see."""
	links = ["ns/" + name for name in NAMESPACES] + ["root"]
	return read_status(pid, RIGHTS) + [os.readlink("/proc/%d/%s" % (pid, link)) for link in links]


def read_burdens(pid: int) -> List[str]:
	"""What a process hands on to the commands that it starts, besides what a child of ours is given."""
	texts = read_status(pid, BURDENS)
	for name in ("limits", "cgroup", "oom_score_adj"):
		with open("/proc/%d/%s" % (pid, name), encoding="utf-8", errors="replace") as f:
			texts.append(f.read())
	with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
		fields = f.read().rpartition(")")[2].split()
	return [*texts, fields[16], fields[38]]  # nice, policy


def is_memory_scarce() -> bool:
	try:
		with open("/proc/meminfo", encoding="utf-8") as f:
			fields = {line.partition(":")[0]: int(line.split()[1]) for line in f}
		return fields["MemAvailable"] < SCARCE * fields["MemTotal"]
	except (OSError, KeyError, ValueError, IndexError):
		return False


# ---- what a child does


class Stream(io.FileIO):
	"""A standard stream that remembers what goes through it."""

	chunks: List[Tuple[int, bytes]] = []

	def write(self, data: Any) -> Any:
		if witness.Witness.active is not None:
			Stream.chunks.append((self.fileno(), bytes(data)))
		return super().write(data)


class Input(io.TextIOWrapper):
	"""Standard input, of which only some may be asked without a word."""

	def __getattribute__(self, name: str) -> Any:
		if name not in TOLD_OF_INPUT:
			witness.hinder("uses its standard input: %s" % name)
		return super().__getattribute__(name)

	def __next__(self) -> str:
		line = self.readline()
		if not line:
			raise StopIteration
		return line


def open_stream(fd: int, model: Any) -> Any:
	"""A stream of Python as the interpreter makes it at its start; ``model`` is our own."""
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
	stream.mode = "r" if fd == 0 else "w"
	return stream


def take_streams() -> None:
	"""Have streams of the caller's where ours were, and what Waf makes of a terminal when it is imported."""
	sys.stdin = sys.__stdin__ = open_stream(0, sys.__stdin__)
	sys.stdout = sys.__stdout__ = open_stream(1, sys.__stdout__)
	sys.stderr = sys.__stderr__ = open_stream(2, sys.__stderr__)
	if os.isatty(1) or os.isatty(2):
		from waflib import Logs, ansiterm

		importlib.reload(ansiterm)
		importlib.reload(Logs)


class Digests:
	"""Digests of files by their signatures, which spare reading those again that have not changed."""

	def __init__(self) -> None:
		self.known: Dict[str, Tuple[Any, bytes]] = {}
		self.new: Dict[str, Tuple[Any, bytes]] = {}
		self.mounts: Optional[memo.Mounts] = None
		self.devices: Dict[int, bool] = {}

	def install(self) -> None:
		"""Have Waf ask here first."""
		from waflib import Utils

		stock, algorithm = Utils.h_file, Utils.md5

		def h_file(fname: Any) -> bytes:
			if Utils.md5 is not algorithm or not isinstance(fname, str) or not fname.startswith("/"):
				return stock(fname)
			signature = witness.signature_of(fname)
			if signature is None or not self.trusts(signature[2], fname):
				return stock(fname)
			known = self.known.get(fname)
			if known is not None and known[0] == signature:
				seen = witness.Witness.active
				if seen is not None:
					seen.keep(seen.files, fname, signature)
				return known[1]
			now = witness.real_time_ns()
			digest = stock(fname)
			if not witness.is_fresh(signature, now):
				self.new[fname] = (signature, digest)
			return digest

		h_file.__doc__ = stock.__doc__
		Utils.h_file = h_file

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
	"""The process that runs a command line as the caller's own would."""

	def __init__(self, request: Request, digests: Digests, why: str) -> None:
		self.request = request
		self.digests = digests
		self.why = why
		self.seen = witness.Witness()
		self.times: List[str] = []

	def run(self) -> int:
		"""The exit status."""
		self.take_place()
		from waflib import Context, Scripting

		wafdir = os.path.dirname(os.path.dirname(os.path.abspath(Context.__file__)))
		self.seen.begin()
		try:
			Scripting.waf_entry_point(self.request.cwd, Context.WAFVERSION, wafdir)
			status: Any = 0
		except SystemExit as e:
			status = e.code
		except KeyboardInterrupt:
			status = caller_interrupted()
		except BaseException:
			traceback.print_exc()
			status = 1
		finally:
			threading._shutdown()  # type: ignore[attr-defined]
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

		self.digests.mounts = memo.Mounts.read()
		self.digests.install()
		Utils.alloc_process_pool = lambda n, force=False: None  # a worker is made for the first command that wants one
		show = Utils.Timer.__str__

		def note(timer: Any) -> str:
			text = show(timer)
			self.times.append(text)
			return text

		Utils.Timer.__str__ = note

	def tell(self, status: int) -> Dict[str, Any]:
		"""What the resident shall know."""
		from waflib import Logs

		told: Dict[str, Any] = {"digests": self.digests.new}
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


def caller_interrupted() -> int:
	from . import launcher

	return launcher.INTERRUPTED


def is_trusted(path: str) -> bool:
	"""Tell whether code is the interpreter's, ours, or Waf's but for its extras."""
	import waflib

	waf = os.path.dirname(os.path.abspath(waflib.__file__)) + os.sep
	ours = os.path.dirname(os.path.abspath(__file__)) + os.sep
	of_waf = path.startswith(waf) and not path.startswith(waf + "extras")
	return witness.is_standard(path) or of_waf or path.startswith(ours)


def run_child(request: Request, digests: Digests, why: str, report: int, fds: List[int]) -> None:
	"""All that a forked process does."""
	status = 1
	try:
		os.setpgid(0, 0)
		report = take_descriptors(report, fds, request.numbers)
		for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
			signal.signal(number, signal.SIG_DFL)
		signal.signal(signal.SIGINT, signal.default_int_handler)
		signal.set_wakeup_fd(-1)
		child = Child(request, digests, why)
		status = child.run()
		told = child.tell(status)
		try:
			data = marshal.dumps(told)
		except ValueError:
			data = marshal.dumps({"reason": "it asked the system with what cannot be kept"})
		with open(report, "wb") as f:
			f.write(data)
	except BaseException:
		with contextlib.suppress(BaseException):
			os.write(2, traceback.format_exc().encode())
		status = status or 1
	finally:
		os._exit(status)


# ---- the loop


class Reader(witness.Witness):
	"""A witness of our own start, of which only the files count: it may do what it likes besides."""

	def hinder(self, reason: str) -> None:
		pass

	def find_fresh(self) -> str:
		"""A file that was changed so late that a further change might not show."""
		return next((place for place, found in self.files.items() if found and witness.is_fresh(found, self.began)), "")


class Work(NamedTuple):
	"""A child and its caller."""

	pid: int
	sock: socket.socket
	key: Any
	report: int
	buried: List[float]
	"""When it was told to end, its caller being gone."""


class Keeper:
	def __init__(self, spec: Dict[str, Any]) -> None:
		self.spec = spec
		self.project: str = spec["project"]
		self.described: bytes = spec["described"]
		self.folder: str = spec["folder"]
		self.path = os.path.join(self.folder, caller.name_socket(self.described, self.project))
		self.base: Optional[memo.Memo] = None
		self.memos: Dict[Any, memo.Memo] = {}
		self.works: Dict[int, Work] = {}
		self.digests = Digests()
		self.counts: Dict[str, int] = {}
		self.reason = ""
		self.unfit = 0
		self.leaving = ""
		self.last = time.monotonic()
		self.listener: Optional[socket.socket] = None

	# ---- its life

	def prepare(self) -> None:
		"""Import Waf, and note which files that took."""
		seen = Reader()
		seen.begin()
		if self.spec["waflib"]:
			sys.path.insert(0, self.spec["waflib"])
		from waflib import Build, Configure, Context, Options, Scripting  # noqa: F401

		import waflib_extras

		waflib_extras.offer_tools()
		seen.end()
		for module in list(sys.modules.values()):
			file = getattr(module, "__file__", None)
			if file:
				seen.files.setdefault(os.path.abspath(file), witness.signature_of(file))
		for place in (sys.executable, os.path.join(sys.prefix, "pyvenv.cfg")):
			seen.files[place] = witness.signature_of(place)
		fresh = seen.find_fresh()
		if fresh:
			raise Unfit("%s was just changed" % fresh)
		facts = memo.pack_facts(seen, memo.Mounts.read())
		facts["pieces"] = []
		self.base = memo.Memo(facts, self.project)
		found = os.stat(self.project)
		self.identity = found.st_dev, found.st_ino

	def listen(self) -> None:
		make_room(self.folder)
		self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
		new = "%s.%d" % (self.path, os.getpid())
		old = os.umask(0o177)
		try:
			self.listener.bind(new)
		finally:
			os.umask(old)
		self.listener.listen(16)
		self.listener.setblocking(False)
		self.inode = os.stat(new).st_ino
		os.rename(new, self.path)

	def serve(self) -> None:
		bell, rope = os.pipe()
		for fd in (bell, rope):
			os.set_blocking(fd, False)
		signal.set_wakeup_fd(rope)
		signal.signal(signal.SIGCHLD, lambda *_: None)
		signal.signal(signal.SIGINT, signal.SIG_DFL)
		signal.signal(signal.SIGTERM, lambda *_: self.leave("it was told to"))
		gc.collect()
		if hasattr(gc, "freeze"):
			gc.freeze()
		assert self.listener is not None
		while not self.leaving or self.works:
			poll = select.poll()
			poll.register(bell, select.POLLIN)
			if not self.leaving:
				poll.register(self.listener, select.POLLIN)
			for work in self.works.values():
				if not work.buried:
					poll.register(work.sock, select.POLLIN)
			burying = any(work.buried for work in self.works.values())
			for fd, _ in poll.poll((LINGER if burying else TICK) * 1000):
				if fd == bell:
					os.read(bell, 4096)
				elif fd == self.listener.fileno():
					self.accept()
				else:
					self.hear(fd)
			self.reap()
			self.bury()
			self.look_around()

	def look_around(self) -> None:
		"""Leave when nobody wants us any more."""
		if self.leaving:
			return
		try:
			found = os.stat(self.project)
			here = (found.st_dev, found.st_ino) == self.identity
			ours = os.stat(self.path).st_ino == self.inode
		except OSError:
			here = ours = False
		if not (here and ours):
			self.leave("its folder or its socket is gone")
		elif not self.works and time.monotonic() - self.last > self.spec.get("idle", IDLE):
			self.leave("nobody called")
		elif is_memory_scarce():
			self.leave("memory is short")

	def leave(self, why: str) -> None:
		self.leaving = why
		try:
			if os.stat(self.path).st_ino == self.inode:
				os.unlink(self.path)
		except OSError:
			pass

	# ---- calls

	def accept(self) -> None:
		assert self.listener is not None
		try:
			sock, _ = self.listener.accept()
		except OSError:
			return
		fds: List[int] = []
		try:
			sock.settimeout(PATIENCE)
			pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, caller.SO_PEERCRED, 12))
			if uid != os.geteuid():
				return
			data, fds = receive_request(sock)
			self.last = time.monotonic()
			value = marshal.loads(data)
			if value[0] == "list":
				sock.sendall(caller.pack(caller.ANSWER, self.tell()))
			elif value[0] == "stop":
				self.leave("it was told to")
				sock.sendall(caller.pack(caller.ANSWER, self.tell()))
			else:
				self.respond(sock, pid, Request(*value), fds)
		except (OSError, ValueError, EOFError, TypeError):
			pass
		finally:
			for fd in fds:
				os.close(fd)
			if all(work.sock is not sock for work in self.works.values()):
				sock.close()

	def respond(self, sock: socket.socket, pid: int, request: Request, fds: List[int]) -> None:
		"""Answer from a memo, or fork; refuse where neither would be what the caller itself does."""
		began = time.perf_counter()
		try:
			if request.described != self.described or len(fds) != len(request.numbers):
				raise Unfit("it was started otherwise")
			if read_rights(pid) != read_rights(os.getpid()):
				raise Unfit("the caller has other rights")
			key = make_key(request, fds[:3])
			known = self.memos.pop(key, None)
			changed = self.base.find_change() if self.base else "everything"
			if changed:
				self.leave("%s changed" % changed)
				raise Unfit("%s changed" % changed)
			if known is not None:
				changed = known.find_change()
				if not changed:
					self.memos[key] = known
					self.count("answered")
					answer = known.answer(time.perf_counter() - began)
					sock.sendall(caller.pack(caller.ANSWER, (answer, 0)))
					return
				self.reason = "%s changed" % changed
			if read_burdens(pid) != read_burdens(os.getpid()):
				raise Unfit("the caller has other limits, priorities or groups")
		except Unfit as e:
			self.count("refused")
			self.reason = str(e)
			self.unfit += 1
			if self.unfit >= UNFIT:
				self.leave("it is not what callers want")
			sock.sendall(caller.pack(caller.REFUSAL, str(e)))
			return
		self.unfit = 0
		if is_gone(sock):
			return
		self.count("forked")
		self.fork(sock, key, request, fds)

	def fork(self, sock: socket.socket, key: Any, request: Request, fds: List[int]) -> None:
		report, name = tempfile.mkstemp(dir=self.folder, prefix=caller.PREFIX)
		os.unlink(name)
		pid = os.fork()
		if pid == 0:
			run_child(request, self.digests, self.reason or "nothing is known of it yet", report, fds)
		with contextlib.suppress(OSError):
			os.setpgid(pid, pid)
		self.works[pid] = Work(pid, sock, key, report, [])
		sock.sendall(caller.pack(caller.STARTED, pid))

	def hear(self, fd: int) -> None:
		"""Signals from a caller, or its end."""
		for work in self.works.values():
			if work.sock.fileno() == fd and not work.buried:
				try:
					numbers = work.sock.recv(64)
				except OSError:
					numbers = b""
				for number in numbers:
					send_signal(work.pid, number)
				if not numbers:
					send_signal(work.pid, LETHAL[0])
					send_signal(work.pid, signal.SIGCONT)
					work.buried.append(time.monotonic())

	def bury(self) -> None:
		"""End what has not ended by itself."""
		for work in self.works.values():
			if work.buried and time.monotonic() - work.buried[0] > LINGER:
				send_signal(work.pid, LETHAL[1])

	def reap(self) -> None:
		for pid, work in list(self.works.items()):
			done, status = os.waitpid(pid, os.WNOHANG)
			if not done:
				continue
			del self.works[pid]
			self.last = time.monotonic()
			code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
			if work.buried:
				send_signal(pid, LETHAL[1])  # what it has left behind
			with contextlib.suppress(OSError):
				work.sock.sendall(caller.pack(caller.ENDED, code))
			work.sock.close()
			self.learn(work)

	def learn(self, work: Work) -> None:
		"""Keep what a child has found out."""
		with open(work.report, "rb") as f:
			f.seek(0)
			data = f.read()
		try:
			told = marshal.loads(data) if data else {"reason": "it was ended"}
		except (ValueError, EOFError, TypeError):
			told = {"reason": "its report is not understood"}
		self.digests.known.update(told.get("digests", {}))
		while len(self.digests.known) > DIGESTS:
			del self.digests.known[next(iter(self.digests.known))]
		facts = told.get("memo")
		self.reason = told.get("reason", "")
		if facts:
			self.memos[work.key] = memo.Memo(facts, self.project)
			while len(self.memos) > MEMOS:
				del self.memos[next(iter(self.memos))]

	# ---- what it tells

	def count(self, what: str) -> None:
		self.counts[what] = self.counts.get(what, 0) + 1

	def tell(self) -> Dict[str, Any]:
		return {
			"project": self.project,
			"pid": os.getpid(),
			"python": sys.executable,
			"counts": self.counts,
			"reason": self.reason,
			"memos": len(self.memos),
			"digests": len(self.digests.known),
		}


def take_descriptors(report: int, fds: List[int], numbers: List[int]) -> int:
	"""In a child: have the caller's descriptors under its numbers, and of ours only the report; its new number."""
	above = max(*fds, *numbers, report) + 1
	high = [os.dup2(fd, above + count, inheritable=False) for count, fd in enumerate((report, *fds))]
	os.closerange(3, above)
	for fd, number in zip(high[1:], numbers):
		os.dup2(fd, number)
	for fd in high[1:]:
		os.close(fd)
	return high[0]


def send_signal(pid: int, number: int) -> None:
	"""Signal a child and its commands, as a terminal does."""
	try:
		os.killpg(pid, number)
	except (OSError, ValueError):
		pass  # it has ended


def is_gone(sock: socket.socket) -> bool:
	"""Tell whether a caller has given up, so that nothing must be begun for it."""
	sock.setblocking(False)
	try:
		return not sock.recv(1, socket.MSG_PEEK)
	except BlockingIOError:
		return False
	except OSError:
		return True
	finally:
		sock.settimeout(PATIENCE)


def make_key(request: Request, fds: List[int]) -> Any:
	"""What must be equal for an answer to be the same."""
	environ = tuple(sorted(item for item in request.environ.items() if item[0] not in caller.HARMLESS))
	shapes = []
	for fd in fds:
		shape: Any = os.isatty(fd)
		if shape:
			with contextlib.suppress(OSError):
				shape = tuple(os.get_terminal_size(fd))
		shapes.append(shape)
	return request.cwd, tuple(request.argv), environ, tuple(shapes)


def receive_request(sock: socket.socket) -> Tuple[bytes, List[int]]:
	space = socket.CMSG_SPACE(caller.MOST_DESCRIPTORS * array.array("i").itemsize)
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


def make_room(folder: str) -> None:
	"""Have the oldest of too many residents leave."""
	found = []
	for name in os.listdir(folder):
		if name.startswith(caller.PREFIX) and name.endswith(caller.SUFFIX):
			with contextlib.suppress(OSError):
				path = os.path.join(folder, name)
				found.append((os.stat(path).st_mtime, path))
	for _, path in sorted(found)[: max(len(found) - MOST_RESIDENTS + 1, 0)]:
		with contextlib.suppress(OSError):
			os.unlink(path)  # it sees that its socket is gone


def main(spec: Dict[str, Any]) -> None:
	"""Be the resident process of a project."""
	keeper = Keeper(spec)
	keeper.prepare()
	keeper.listen()
	keeper.serve()
