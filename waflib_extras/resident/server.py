"""
The resident process of a project. It has imported Waf, and answers command lines or forks to run them.

It has one thread and one loop. If no memo answers a command line, it forks a child, which gets what the caller has:
streams, folder, environment and arguments. If that is not possible, it refuses the call, and the caller runs the
command line itself. ``docs/resident.md`` tells what is compared.
"""

import contextlib
import gc
import marshal
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, TypedDict

from ..launcher import caller, residents
from . import child, memo, process_context, record, records, sketch, witness

if TYPE_CHECKING:
	from ..launcher.residents import Status

IDLE = 1800.0  # seconds without a call until it ends
TICK = 5.0  # seconds between two looks whether it is still needed
PATIENCE = 2.0  # seconds for a request to arrive
MEMOS = 8
MOST_RESIDENTS = 8
UNFIT = 3  # refusals in succession until it ends, so that one that fits can start
LETHAL = (signal.SIGTERM, signal.SIGKILL)
LINGER = 2.0  # seconds between these two signals
DIGESTS = 200_000  # digests of files that are kept


class Unfit(Exception):
	"""Raised if a call is refused. The text is the reason."""

	pass


# ---- the loop


class Reader(witness.Witness):
	"""A witness of our own start. Only the files count; nothing that the start does is a hindrance."""

	def hinder(self, reason: str) -> None:
		pass

	def find_fresh(self) -> str:
		"""A file that was changed so lately that another change might not show; None if there is none."""
		fresh = (place for place, found in self.files.items() if found and witness.is_fresh(found, self.began))
		return next((place for place in fresh if not is_compiled(os.path.dirname(place))), "")


class Start(memo.Memo):
	"""
	The facts of our own start. Compiled modules (``.pyc``) are not among them, nor are the folders that hold these.

	Any process may write such a file again, or be the first one to make the folder. The sources decide.
	"""

	def __init__(self, told: memo.Facts, project: str) -> None:
		files = {place: seen for place, seen in told["files"].items() if not is_compiled(os.path.dirname(place))}
		lists = {place: (signature, leave_out(names)) for place, (signature, names) in told["lists"].items()}
		super().__init__({**told, "files": files, "lists": lists}, project)

	def list_names(self, place: str) -> Optional[List[str]]:
		return leave_out(super().list_names(place))


def is_compiled(path: str) -> bool:
	"""Tell whether this is the name of a folder with compiled modules. ``PYTHONPYCACHEPREFIX`` may move them."""
	moved = sys.pycache_prefix
	is_moved = moved and (path + os.sep).startswith(os.path.join(os.path.abspath(moved), ""))
	return bool(is_moved) or os.path.basename(path) == "__pycache__"


def leave_out(names: Optional[List[str]]) -> Optional[List[str]]:
	"""The names in a folder where modules are searched, without that of compiled modules. Their order has no effect."""
	return None if names is None else sorted(name for name in names if not is_compiled(name))


class Spec(TypedDict):
	"""The parameters with which a resident is started."""

	project: str
	described: bytes
	"""The result of ``caller.describe`` in the process that has started it."""
	folder: str
	"""The folder of its socket."""
	path: List[str]
	waflib: str
	idle: float
	"""The seconds without a call until it ends."""


class Work(NamedTuple):
	"""A child and its caller."""

	pid: int
	sock: Optional[socket.socket]
	"""The caller's connection; None if it knows how the child has ended."""
	wire: Optional[socket.socket]
	"""The child's connection; None if it tells no more."""
	key: records.Key
	request: child.Request
	report: int
	buried: List[float]
	"""When it was sent signals to end, since its caller is gone."""


class Call(NamedTuple):
	"""A command line that has to be run."""

	sock: socket.socket
	key: records.Key
	request: child.Request
	fds: List[int]
	compared: Optional[sketch.Compared]


class Keeper:
	def __init__(self, spec: Spec) -> None:
		self.spec = spec
		self.project = spec["project"]
		self.described = spec["described"]
		self.folder = spec["folder"]
		self.path = os.path.join(self.folder, caller.name_socket(self.described, self.project))
		self.memos: Dict[records.Key, memo.Memo] = {}
		self.records = records.Records(self.folder, spec["path"])
		self.works: Dict[int, Work] = {}
		self.digests = child.Digests()
		self.counts: Dict[str, int] = {}
		self.reason = ""
		self.unfit = 0
		self.leaving = ""
		self.before = ""
		"""Why the resident before has left; empty if there was none."""
		self.pid = os.getpid()
		self.inode = 0
		"""That of our socket; 0 before there is one."""
		self.last = 0.0
		"""When the last call came, or when calls were possible at first."""
		self.listener: Optional[socket.socket] = None
		self.sketcher = sketch.Sketcher(self.project, self.digests, self.records)
		self.calls: List[Call] = []
		"""Calls that a sketch was told of and has not accepted yet."""

	# ---- its life

	def prepare(self) -> None:
		"""Import Waf, and note which files were read for it."""
		seen = Reader()
		seen.begin()
		if self.spec["waflib"]:
			sys.path.insert(0, self.spec["waflib"])
		from waflib import Build, Configure, Context, Options, Scripting  # noqa: F401

		import waflib_extras

		from ..hooks import lifecycle  # noqa: F401

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
		self.records.start = Start(memo.pack_facts(seen, memo.Mounts.read()), self.project)
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
		self.before = residents.read_farewell(self.path)
		with contextlib.suppress(OSError):
			os.unlink(residents.farewell_of(self.path))
		self.last = time.monotonic()

	def serve(self) -> None:
		bell, rope = os.pipe()
		for fd in (bell, rope):
			os.set_blocking(fd, False)
		signal.set_wakeup_fd(rope)
		signal.signal(signal.SIGCHLD, lambda *_: None)
		signal.signal(signal.SIGINT, signal.SIG_DFL)
		signal.signal(signal.SIGTERM, self.end)
		gc.collect()
		if hasattr(gc, "freeze"):
			gc.freeze()
		assert self.listener is not None
		while not self.leaving or self.works or self.calls:
			poll = select.poll()
			poll.register(bell, select.POLLIN)
			if not self.leaving:
				poll.register(self.listener, select.POLLIN)
			for work in self.works.values():
				if work.sock is not None and not work.buried:
					poll.register(work.sock, select.POLLIN)
				if work.wire is not None:
					poll.register(work.wire, select.POLLIN)
			for call in self.calls:
				poll.register(call.sock, select.POLLIN)
			if self.sketcher.sock is not None:
				poll.register(self.sketcher.sock, select.POLLIN)
			burying = any(work.buried for work in self.works.values())
			is_free = not self.works and not self.calls
			left = min(LINGER if burying else TICK, self.sketcher.left() if is_free else TICK)
			heard = []
			for fd, _ in poll.poll(max(left, 0) * 1000 + 1):
				if fd == bell:
					os.read(bell, 4096)
				elif fd == self.listener.fileno():
					self.accept()
				elif self.sketcher.sock is not None and fd == self.sketcher.sock.fileno():
					self.hear_sketch()
				else:
					self.hear(fd)
					self.forget_calls(fd)
					heard.append(fd)
			for fd in heard:
				self.hear_child(fd)
			self.reap()
			self.bury()
			self.look_around()
			if not self.works and not self.calls and not self.leaving and self.sketcher.left() <= 0:
				self.sketch()
		self.sketcher.drop()

	def look_around(self) -> None:
		"""Leave when the resident is not needed any more."""
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
			self.leave("no call came for a long time")
		elif process_context.is_memory_scarce():
			self.leave("memory is short")
		elif (
			not self.calls
			and self.sketcher.sock is not None
			and process_context.is_memory_scarce(2 * process_context.SCARCE)
		):
			self.sketcher.drop()
			self.sketcher.give_up("memory is short")

	def end(self, number: int, _frame: object) -> None:
		"""Handle SIGTERM, also in a child that has not replaced this handler yet."""
		if os.getpid() != self.pid:
			os._exit(128 + number)
		self.leave("it was told to")

	def leave(self, why: str) -> None:
		"""Take no more calls. The next run of the project can tell the user why, unless there is another resident."""
		self.leaving = why
		try:
			inode = os.stat(self.path).st_ino
		except OSError:
			inode = self.inode
		if inode == self.inode:
			with contextlib.suppress(OSError), open(residents.farewell_of(self.path), "w", encoding="utf-8") as f:
				f.write("process %d: %s" % (self.pid, why))
			with contextlib.suppress(OSError):
				os.unlink(self.path)
		self.records.remove()

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
			data, fds = child.receive_request(sock)
			self.last = time.monotonic()
			value = marshal.loads(data)
			if value[0] == "list":
				sock.sendall(caller.pack(caller.ANSWER, self.tell()))
			elif value[0] == "answered":
				self.hear_answered(self.records.kept[value[1]])
			elif value[0] == "called":
				_, name, numbers, variables, serial, changed = value
				known = self.records.kept[name]
				# what the record says has changed, so no memo answers
				self.memos.pop(known.key, None)
				told = sketch.Compared(serial, changed) if changed is not None else None
				self.respond(sock, pid, complete(known.request, numbers, variables), fds, told)
			elif value[0] == "stop":
				self.leave("it was told to")
				sock.sendall(caller.pack(caller.ANSWER, self.tell()))
			else:
				self.respond(sock, pid, child.Request(*value), fds)
		except (OSError, ValueError, EOFError, TypeError, LookupError, AttributeError):
			pass  # the caller has gone, or has sent what is no request
		finally:
			if all(call.fds is not fds for call in self.calls):
				self.let_go(sock, fds)

	def let_go(self, sock: socket.socket, fds: List[int]) -> None:
		for fd in fds:
			os.close(fd)
		if all(work.sock is not sock for work in self.works.values()):
			sock.close()

	def respond(
		self,
		sock: socket.socket,
		pid: int,
		request: child.Request,
		fds: List[int],
		compared: Optional[sketch.Compared] = None,
	) -> None:
		"""Answer from a memo, or fork. Refuse if neither would do what the caller would do."""
		began = time.perf_counter()
		try:
			if request.described != self.described or len(fds) != len(request.numbers):
				raise Unfit("it was started otherwise")
			if process_context.read_rights(pid) != process_context.read_rights(os.getpid()):
				raise Unfit("the caller has other rights")
			key = make_key(request, fds[:3])
			known = self.memos.pop(key, None)
			changed = ""
			if compared is None:  # the native waf has compared what we were made of, too
				changed = self.records.start.find_change() if self.records.start else "everything"
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
					sock.close()  # the caller does not wait for what comes now
					if not self.sketcher.has(key):
						self.sketcher.order(key, request)
					self.records.keep_answer(key, request, known)
					return
				self.reason = "%s changed" % changed
			if process_context.read_burdens(pid) != process_context.read_burdens(os.getpid()):
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
		self.begin(Call(sock, key, request, fds, compared))

	def hear_answered(self, known: records.Kept) -> None:
		"""Hear that the native ``waf`` has answered from a record."""
		self.count("answered")
		if known.key in self.memos:
			self.memos[known.key] = self.memos.pop(known.key)
		if not self.sketcher.has(known.key):
			self.sketcher.order(known.key, known.request)

	def begin(self, call: Call) -> None:
		"""Have a command line run, by the process that has begun it ahead or by a new one."""
		if self.sketcher.is_fit() and self.sketcher.call(
			call.key, call.request, call.fds, self.open_report(), call.compared
		):
			self.calls.append(call)
		else:
			if not self.calls:
				self.sketcher.drop()
			self.fork(call)

	def open_report(self) -> int:
		report, name = tempfile.mkstemp(dir=self.folder, prefix=caller.PREFIX)
		os.unlink(name)
		return report

	def fork(self, call: Call) -> None:
		self.count("forked")
		report = self.open_report()
		ours, theirs = socket.socketpair()
		try:
			pid = os.fork()
		except OSError:
			os.close(report)
			ours.close()
			theirs.close()
			raise
		if pid == 0:
			why = self.reason or "nothing is known of it yet"
			child.run_child(call.request, self.digests, why, report, theirs.detach(), call.fds)
		theirs.close()
		self.start(pid, report, ours, call)

	def start(self, pid: int, report: int, wire: Optional[socket.socket], call: Call) -> None:
		"""Note that a process runs the command line from now on."""
		with contextlib.suppress(OSError):
			os.setpgid(pid, pid)
		self.works[pid] = Work(pid, call.sock, wire, call.key, call.request, report, [])
		call.sock.sendall(caller.pack(caller.STARTED, pid))

	def sketch(self) -> None:
		"""Begin a run ahead of its call, if one is due."""
		if process_context.is_memory_scarce(2 * process_context.SCARCE):
			self.sketcher.give_up("memory is short")
		elif self.sketcher.begin(self.memos):
			self.count("sketched")

	def hear_sketch(self) -> None:
		"""Read what a sketch tells: it is ready, goes on, or has given up."""
		call = self.calls[0] if self.calls else None
		pid, report = self.sketcher.pid, self.sketcher.report
		changed = self.sketcher.hear()
		if changed is None or call is None:
			return
		self.calls.remove(call)
		try:
			if changed:
				self.reason = changed
				if not is_gone(call.sock):
					self.fork(call)
			else:
				self.count("thawed")
				self.start(pid, report, self.sketcher.going, call)
		except OSError:
			pass  # the caller has gone, which its process notices
		finally:
			self.let_go(call.sock, call.fds)

	def forget_calls(self, fd: int) -> None:
		"""Forget the calls of a caller that has gone before its command was begun."""
		for call in [call for call in self.calls if call.sock.fileno() == fd]:
			self.sketcher.drop()
			self.calls.remove(call)
			self.let_go(call.sock, call.fds)

	def hear(self, fd: int) -> None:
		"""Read signals from a caller, or notice its end."""
		for work in self.works.values():
			if work.sock is not None and work.sock.fileno() == fd and not work.buried:
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

	def hear_child(self, fd: int) -> None:
		"""Hear from a child how its run has ended. It may live on for a moment."""
		for pid, work in list(self.works.items()):
			if work.wire is not None and work.wire.fileno() == fd:
				try:
					told = work.wire.recv(1)
				except OSError:
					told = b""
				work.wire.close()
				work = self.works[pid] = work._replace(wire=None)
				if told and not work.buried:
					self.works[pid] = work._replace(sock=None)
					self.end_call(work, told[0])

	def end_call(self, work: Work, code: int) -> None:
		"""Tell the caller how its run has ended, and learn from it."""
		if work.sock is not None:
			with contextlib.suppress(OSError):
				work.sock.sendall(caller.pack(caller.ENDED, code))
			work.sock.close()
			self.learn(work)
			if not work.buried:
				self.sketcher.order(work.key, work.request)

	def bury(self) -> None:
		"""End those processes of lost callers that have not ended by themselves."""
		for work in self.works.values():
			if work.buried and time.monotonic() - work.buried[0] > LINGER:
				send_signal(work.pid, LETHAL[1])

	def reap(self) -> None:
		self.sketcher.reap()
		for pid, work in list(self.works.items()):
			done, status = os.waitpid(pid, os.WNOHANG)
			if not done:
				continue
			del self.works[pid]
			self.last = time.monotonic()
			code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
			if work.buried:
				send_signal(pid, LETHAL[1])  # ends the processes that it has left
			if work.wire is not None:
				work.wire.close()
			self.end_call(work, code)

	def learn(self, work: Work) -> None:
		"""Keep the memo and the digests of a child."""
		with open(work.report, "rb") as f:
			f.seek(0)
			data = f.read()
		try:
			told: child.ChildReport = marshal.loads(data) if data else {"reason": "it was ended"}
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
			if not self.leaving:
				self.records.keep_answer(work.key, work.request, self.memos[work.key])

	# ---- what it tells

	def count(self, what: str) -> None:
		self.counts[what] = self.counts.get(what, 0) + 1

	def tell(self) -> "Status":
		return {
			"project": self.project,
			"pid": os.getpid(),
			"python": sys.executable,
			"counts": self.counts,
			"reason": self.reason,
			"sketch": self.sketcher.tell(),
			"known": self.sketcher.known,
			"unasked": self.sketcher.tell_unasked(),
			"unwritten": self.records.reason,
			"before": self.before,
			"memos": len(self.memos),
			"digests": len(self.digests.known),
		}


def send_signal(pid: int, number: int) -> None:
	"""Send a signal to a child and its commands, as a terminal does."""
	try:
		os.killpg(pid, number)
	except (OSError, ValueError):
		pass  # it has ended already


def is_gone(sock: socket.socket) -> bool:
	"""Tell whether a caller has gone, so that nothing may be begun for it."""
	sock.setblocking(False)
	try:
		return not sock.recv(1, socket.MSG_PEEK)
	except BlockingIOError:
		return False
	except OSError:
		return True
	finally:
		sock.settimeout(PATIENCE)


def complete(request: child.Request, numbers: List[int], variables: List[bytes]) -> child.Request:
	"""A request of the native ``waf``, which has named its record, and sends only what is different each time."""
	environ = {name: value for name, value in request.environ.items() if name not in caller.HARMLESS}
	for variable in variables:
		name, _, value = os.fsdecode(variable).partition("=")
		environ[name] = value
	return request._replace(numbers=numbers, environ=environ)


def make_key(request: child.Request, fds: List[int]) -> records.Key:
	"""All values that must be equal for the same answer."""
	environ = tuple(sorted(item for item in request.environ.items() if item[0] not in caller.HARMLESS))
	shapes: List[record.Shape] = []
	for fd in fds:
		shape: record.Shape = os.isatty(fd)
		if shape:
			with contextlib.suppress(OSError):
				shape = tuple(os.get_terminal_size(fd))
		shapes.append(shape)
	return request.cwd, tuple(request.argv), environ, tuple(shapes)


def make_room(folder: str) -> None:
	"""If there are too many residents, have the oldest one end. Remove old farewells, too."""
	for ending in (caller.SUFFIX, residents.FAREWELL):
		found = []
		for name in os.listdir(folder):
			if name.startswith(caller.PREFIX) and name.endswith(ending):
				with contextlib.suppress(OSError):
					path = os.path.join(folder, name)
					found.append((os.stat(path).st_mtime, path))
		for _, path in sorted(found)[: max(len(found) - MOST_RESIDENTS + 1, 0)]:
			with contextlib.suppress(OSError):
				os.unlink(path)  # the process notices that its socket is gone, and ends


def main(spec: Spec) -> None:
	"""Be the resident process of a project."""
	keeper = Keeper(spec)
	try:
		keeper.prepare()
		keeper.listen()
		keeper.serve()
	except Unfit as e:
		keeper.leave(str(e))
	except Exception as e:
		place = traceback.extract_tb(e.__traceback__)[-1]
		keeper.leave("%s: %s (%s, line %s)" % (type(e).__name__, e, place.filename, place.lineno))
		raise
