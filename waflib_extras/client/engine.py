"""
Finding the engine, starting it, and running commands through it, as ``docs/protocol.md`` says.

Knows nothing of Waf: a ``Session`` takes encoded commands from any number of threads and gives back outcomes.
"""

import array
import contextlib
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from typing import Dict, List, Optional, Sequence, Set, Tuple, Union

from ..version import VERSION
from . import protocol
from .protocol import (
	Elsewhere,
	EngineError,
	Environment,
	Inputs,
	Lost,
	Outcome,
	Output,
	ProtocolError,
	Refused,
	Told,
	Unsendable,
	Welcome,
)

UNIX = "unix"
TCP = "tcp"

PATIENCE = 1.5  # seconds, the same as in engine/src/client/mod.rs
MOST_PATIENCE = 600.0
LOOK = 0.25  # seconds between two looks whether an engine that does not greet was stopped
PACE = 0.5  # seconds between two looks whether an engine that runs our commands was stopped
MOST_DEATHS = 3  # if more engines than these end under a build, it goes on without
ENVIRONMENTS = 16  # that a connection remembers
NAME_CAP = 1000  # of the greeting's 4096 bytes
RECEIVE = 1 << 16
# Linux's; PyPy 3.9 does not name them
SO_PEERCRED = getattr(socket, "SO_PEERCRED", 17)
MSG_NOSIGNAL = getattr(socket, "MSG_NOSIGNAL", 0x4000)

Answer = Tuple[Outcome, bytes, bytes]
Learned = Tuple[List[bytes], Inputs]
"""The texts of a connection, and the numbers of those that a command depended on."""
Heard = Union[Told, Learned, Elsewhere]
"""A message about a command from the engine, beside the outcome."""


def find_patience() -> float:
	"""The seconds that a build waits, once, for an engine that does not answer or does not start."""
	try:
		patience = float(os.environ.get("WAFD_PATIENCE") or PATIENCE)
	except ValueError:
		patience = PATIENCE
	return patience if 0 < patience <= MOST_PATIENCE else PATIENCE


# ---- where the engine is


class Chosen:
	"""The runtime folder of the engine with the store that the settings name, where that is not the usual one."""

	folder = ""
	environ: Optional[Dict[str, str]] = None
	"""The variables that such an engine is started with."""

	@classmethod
	def choose(cls, folder: str, environ: Dict[str, str]) -> None:
		cls.folder = folder
		cls.environ = dict(environ, WAFD_RUNTIME_DIR=folder)

	@classmethod
	def forget(cls) -> None:
		cls.folder = ""
		cls.environ = None


def runtime_folder() -> str:
	"""The folder that holds the engine's socket, token, locks and log."""
	if Chosen.folder:
		return Chosen.folder
	folder = os.environ.get("WAFD_RUNTIME_DIR")
	if folder:
		return folder
	folder = os.environ.get("XDG_RUNTIME_DIR")
	if folder:
		return os.path.join(folder, "wafd")
	return "/tmp/wafd-%d" % os.geteuid()


def runtime_file(ending: str) -> str:
	"""A file of the engine that has our version."""
	return os.path.join(runtime_folder(), "wafd-%s.%s" % (VERSION, ending))


def check_folder() -> None:
	"""Refuse a runtime folder in which another user could have put the socket. It need not exist yet."""
	folder = runtime_folder()
	if not os.path.isabs(folder):
		raise EngineError("runtime folder %s: not an absolute path; set WAFD_RUNTIME_DIR to one" % folder)
	try:
		found = os.lstat(folder)
	except FileNotFoundError:
		return
	except OSError as e:
		raise EngineError("runtime folder %s: %s; set WAFD_RUNTIME_DIR to another" % (folder, e.strerror)) from None
	if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
		raise EngineError("runtime folder %s: not a folder of this user; set WAFD_RUNTIME_DIR to one" % folder)
	if found.st_mode & 0o077:
		raise EngineError("runtime folder %s: open to others; chmod 700 it" % folder)


def find_wafd() -> str:
	"""The engine's program."""
	given = os.environ.get("WAFD")
	if given:
		if _is_program(given):
			return given
		raise EngineError("WAFD=%s is no program: set it to the path of wafd" % given)
	beside = os.path.join(os.path.dirname(sys.executable or ""), "wafd")
	if _is_program(beside):
		return beside
	import sysconfig  # slow to import, and hardly ever needed

	for scheme in (None, "posix_user"):
		scripts = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
		if _is_program(os.path.join(scripts, "wafd")):
			return os.path.join(scripts, "wafd")
	found = shutil.which("wafd")
	if found:
		return found
	raise EngineError("there is no wafd beside %s or along PATH: install waflib-extras, or set WAFD" % sys.executable)


def _is_program(path: str) -> bool:
	return os.path.isfile(path) and os.access(path, os.X_OK)


def find_engine(transport: str) -> None:
	"""Raise an exception if no engine listens and there is no program to start one."""
	if not os.path.exists(runtime_file("tcp" if transport == TCP else "sock")):
		find_wafd()


def start(transport: str, seconds: float) -> None:
	"""Run ``wafd start``, which ends when an engine of our version listens."""
	wafd = find_wafd()
	command = [wafd, "start"] + (["--tcp"] if transport == TCP else [])
	try:
		process = subprocess.Popen(
			command,
			env=Chosen.environ,
			stdin=subprocess.DEVNULL,
			stdout=subprocess.PIPE,
			stderr=subprocess.PIPE,
			close_fds=True,
		)
	except OSError as e:
		raise EngineError("%s: %s" % (wafd, e.strerror)) from None
	with process:
		try:
			out, err = process.communicate(timeout=seconds)
		except BaseException as e:
			process.kill()
			if isinstance(e, subprocess.TimeoutExpired):
				raise EngineError("%s start is not done after %g seconds" % (wafd, seconds)) from None
			raise
	if process.returncode != 0:
		reason = os.fsdecode(err).strip() or "it ends with the status %d" % process.returncode
		raise EngineError("%s start: %s" % (wafd, reason))
	ready = os.fsdecode(out).rstrip("\n").split(" ", 3 if transport == TCP else 2)
	expected = runtime_file("tcp" if transport == TCP else "sock")
	if ready[:2] != ["ready", transport]:
		raise EngineError("%s start: not understood: %r" % (wafd, out))
	if ready[-1] != expected:
		raise EngineError("%s is of another version than waflib_extras %s: install both anew" % (wafd, VERSION))


def dial(transport: str, seconds: float) -> Tuple[Optional[socket.socket], bytes]:
	"""A socket that is connected to the engine, or None if no engine listens; and the token for the greeting."""
	check_folder()
	if transport == TCP:
		return _dial_tcp(runtime_file("tcp"), seconds)
	return _dial_unix(runtime_file("sock"), seconds), b""


def _dial_unix(path: str, seconds: float) -> Optional[socket.socket]:
	sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
	try:
		# the kernel's time-out: with Python's own, connecting fails at once while the listener's queue is full
		sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(seconds))
		sock.connect(path)
		_, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, SO_PEERCRED, 12))
		if uid != os.geteuid():
			raise EngineError("%s: its listener is the user %d" % (path, uid))
		sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(0))
	except (FileNotFoundError, ConnectionRefusedError):
		sock.close()
		return None
	except BlockingIOError:
		sock.close()
		raise EngineError("%s: its listener takes no connection within %g seconds" % (path, seconds)) from None
	except OSError as e:
		sock.close()
		reason = e.strerror or str(e)
		raise EngineError("connect to %s: %s; set WAFD_RUNTIME_DIR to another folder" % (path, reason)) from None
	except BaseException:
		sock.close()
		raise
	return sock


def _find_stopped(sock: socket.socket) -> int:
	"""The process of the engine at the other end, if it was stopped (``SIGSTOP``); else 0."""
	if sock.family != socket.AF_UNIX:
		return 0
	try:
		pid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, SO_PEERCRED, 12))[0]
		with open("/proc/%d/stat" % pid, "rb") as f:
			state = f.read().rsplit(b") ", 1)[1][:1]
	except (OSError, IndexError):
		return 0
	return pid if state == b"T" else 0


def _end_stopped(sock: socket.socket) -> bool:
	"""
	End the engine if it was stopped, and tell whether it was.

	Its guardian ends the commands that it ran. Another engine starts when they are gone.
	"""
	pid = _find_stopped(sock)
	if pid:
		with contextlib.suppress(OSError):
			os.kill(pid, signal.SIGKILL)
	return bool(pid)


def _timeval(seconds: float) -> bytes:
	return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def _dial_tcp(path: str, seconds: float) -> Tuple[Optional[socket.socket], bytes]:
	try:
		with open(path, "rb") as f:
			port, token = f.read().split()
		sock = socket.create_connection(("127.0.0.1", int(port)), timeout=seconds)
	except (FileNotFoundError, ConnectionRefusedError):
		return None, b""
	except (OSError, ValueError, OverflowError) as e:
		raise EngineError("connect by %s: %s" % (path, e)) from None
	sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
	return sock, token


# ---- one connection


class Connection:
	"""A connection that the engine has welcomed. It carries one command at a time."""

	def __init__(self, sock: socket.socket, hello: bytes, seconds: float) -> None:
		self.sock = sock
		self.count = 0
		"""The number of commands that were sent over it."""
		self.stopped_since = 0.0
		"""When the engine was first found stopped. Zero if it ran at the last look."""
		self.own_environment: Optional[Environment] = None
		"""Our own environment as the engine knows it, by the number 0."""
		self.environments: List[Tuple[int, Environment]] = []
		"""Numbers and copies of the environments that commands were given, the last used first."""
		welcome = self._greet(hello, seconds)
		self.engine = welcome.pid
		"""The engine's process."""
		self.texts: List[bytes] = []
		"""The texts of what commands depended on. The engine refers to them by their numbers on this connection."""

	def _greet(self, hello: bytes, seconds: float) -> Welcome:
		deadline = time.monotonic() + seconds
		data = b""
		try:
			self.sock.sendall(hello, MSG_NOSIGNAL)
			while not data or len(data) < (protocol.measure(data, protocol.GREETING_CAP) or 4):
				received = self._receive_greeting(deadline)
				if not received:
					raise Lost("the engine left before it answered the greeting")
				data += received
			self.sock.settimeout(None)
			for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
				# the kernel's: with Python's own, each call would be two
				self.sock.setsockopt(socket.SOL_SOCKET, option, _timeval(PACE))
		except socket.timeout:
			if _end_stopped(self.sock):
				raise Lost("the engine was stopped") from None
			text = "the engine does not answer the greeting within %g seconds; `wafd stop --now` ends it"
			raise EngineError(text % seconds) from None
		except OSError as e:
			raise Lost("the engine left before it answered the greeting: %s" % e.strerror) from None
		answer = protocol.decode(data)
		if isinstance(answer, protocol.Refusal):
			raise Refused(answer.why, answer.reason)
		if not isinstance(answer, Welcome) or answer.version not in protocol.VERSIONS:
			raise ProtocolError("the engine answers the greeting with %r" % (answer,))
		if answer.engine != VERSION:
			raise EngineError("the engine is of the version %s, not %s: install both anew" % (answer.engine, VERSION))
		return answer

	def _receive_greeting(self, deadline: float) -> bytes:
		"""Some bytes of the greeting. The wait ends early if the engine is found stopped twice in succession."""
		was_stopped = False
		while True:
			left = deadline - time.monotonic()
			self.sock.settimeout(min(max(left, 0.001), LOOK))
			try:
				return self.sock.recv(protocol.GREETING_CAP)
			except socket.timeout:
				is_stopped = bool(_find_stopped(self.sock))
				if left <= LOOK or (is_stopped and was_stopped):
					raise
				was_stopped = is_stopped

	def close(self) -> None:
		"""End the connection, and with it the command that it runs."""
		self.sock.close()

	def execute(
		self, command: bytes, env: Optional[Environment], fds: Sequence[int], heard: Optional[List[Heard]] = None
	) -> Answer:
		"""
		Run a command and wait for its end. ``env`` is None for our own environment.

		What the cache tells of the command is appended to ``heard``.
		"""
		number, frame = self.number_environment(env)
		self.count = count = (self.count + 1) & 0xFFFFFFFF
		request = protocol.encode_execute(count, number, command)
		try:
			if fds:
				self._send_with(frame, request, fds)
			else:
				self._send(frame + request)
			data = self._receive()
			if len(data) == protocol.OUTCOME_SIZE and data[4] == 0x84:
				outcome = protocol.decode_outcome(data)
				if outcome.id == count:
					return outcome, b"", b""
			return self._collect(count, command, bytearray(data), heard)
		except OSError as e:
			raise Lost("the connection to the engine ended: %s" % e.strerror) from None

	def ask_report(self, seconds: float) -> bytes:
		"""The engine's report about itself, in JSON. No command may be under way."""
		self.sock.settimeout(seconds)
		self.sock.sendall(protocol.encode_status(), MSG_NOSIGNAL)
		data = bytearray()
		while not data or len(data) < (protocol.measure(data) or 4):
			received = self.sock.recv(RECEIVE)
			if not received:
				raise Lost("the connection to the engine ended")
			data += received
		self.sock.settimeout(None)
		answer = protocol.decode(bytes(data))
		if not isinstance(answer, protocol.Report):
			raise ProtocolError("the engine answers with %.100r" % (answer,))
		return answer.json

	def _receive(self) -> bytes:
		"""The next bytes, however long that takes, unless the engine was stopped."""
		self.stopped_since = 0.0
		while True:
			try:
				return self.sock.recv(RECEIVE)
			except BlockingIOError:
				self.look()

	def _send(self, data: bytes) -> None:
		"""Send all of it. The engine reads it, since no answer is due that it would have to write first."""
		self.stopped_since = 0.0
		while data:
			try:
				data = data[self.sock.send(data, MSG_NOSIGNAL) :]
			except BlockingIOError:
				self.look()

	def look(self) -> None:
		"""
		Look whether a silent engine was stopped. One that stays stopped is ended, and ``Lost`` is raised.

		It would not answer, and no other engine could start.
		"""
		now = time.monotonic()
		if not _find_stopped(self.sock):
			self.stopped_since = 0.0
		elif not self.stopped_since:
			self.stopped_since = now
		elif now - self.stopped_since >= PACE * 0.9:
			_end_stopped(self.sock)
			raise Lost("the engine was stopped")

	def introduce(self, policy: bytes, fds: Sequence[int]) -> None:
		"""Tell the engine how the build shares the machine. If the connection is lost, the first command shows it."""
		with contextlib.suppress(OSError, Unsendable):
			if fds:
				self._send_with(b"", policy, fds)
			elif policy:
				self._send(policy)

	def _send_with(self, frame: bytes, request: bytes, fds: Sequence[int]) -> None:
		"""Send a request with descriptors. They belong to the frame whose first byte they come with."""
		if frame:
			self._send(frame)
		rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
		try:
			sent = self.sock.sendmsg([request], rights, MSG_NOSIGNAL)
		except (ConnectionError, BlockingIOError):
			raise
		except OSError as e:
			raise Unsendable("descriptor: %s" % e.strerror) from None
		self._send(request[sent:])

	def learn(self, inputs: Inputs) -> Learned:
		"""Add the new texts to those of the connection, and return all texts with the numbers of the command's."""
		if not inputs.first:
			self.texts = []
		texts = self.texts
		if inputs.first != len(texts):
			raise ProtocolError("texts from %d on, after %d" % (inputs.first, len(texts)))
		texts += inputs.new
		if inputs.numbers and max(inputs.numbers) >= len(texts):
			raise ProtocolError("the number of a text that was not told")
		return texts, inputs

	def _collect(self, number: int, command: bytes, buffer: bytearray, heard: Optional[List[Heard]]) -> Answer:
		"""Read the output up to the outcome. ``buffer`` holds the bytes that have come."""
		streams: Tuple[List[bytes], List[bytes]] = ([], [])
		while True:
			if not buffer:
				raise Lost("the connection to the engine ended")
			size = protocol.measure(buffer)
			while size == 0 or len(buffer) < size:
				received = self._receive()
				if not received:
					raise Lost("the connection to the engine ended within a frame")
				buffer += received
				size = size or protocol.measure(buffer)
			answer = protocol.decode(bytes(buffer[:size]))
			del buffer[:size]
			if isinstance(answer, Outcome) and answer.id == number and not buffer:
				return answer, b"".join(streams[0]), b"".join(streams[1])
			if heard is not None and isinstance(answer, (Told, Inputs, Elsewhere)) and answer.id == number:
				heard.append(self.learn(answer) if isinstance(answer, Inputs) else answer)
				buffer += b"" if buffer else self._receive()
				continue
			# the bytes of the command that say where its two streams go
			if not isinstance(answer, Output) or answer.id != number or command[1 + answer.stream] != protocol.PIPE:
				raise ProtocolError("the engine answers a command with %.100r" % (answer,))
			streams[answer.stream - 1].append(answer.data)
			buffer += b"" if buffer else self._receive()

	def number_environment(self, env: Optional[Environment]) -> Tuple[int, bytes]:
		"""The number of an environment (None: our own), and the frame to be sent before its first use."""
		return self._number_own() if env is None else self._number_given(env)

	def _number_own(self) -> Tuple[int, bytes]:
		# the dict below os.environ: comparing it with its copy takes a microsecond, os.environ itself thirty
		current = getattr(os.environ, "_data", None)
		if current is None:
			current = dict(os.environ)
		if current == self.own_environment:
			return 0, b""
		copy = dict(current)
		frame = protocol.encode_environment(0, copy)
		self.own_environment = copy
		return 0, frame

	def _number_given(self, env: Environment) -> Tuple[int, bytes]:
		known = self.environments
		for position, (number, copy) in enumerate(known):
			if env == copy:
				if position:
					known.insert(0, known.pop(position))
				return number, b""
		copy = dict(env)
		number = known[-1][0] if len(known) == ENVIRONMENTS - 1 else len(known) + 1
		frame = protocol.encode_environment(number, copy)
		del known[ENVIRONMENTS - 2 :]
		known.insert(0, (number, copy))
		return number, frame


# ---- all connections of a build


class Session:
	"""
	The connections of one build, as many as commands run at once. If its engine ends, it connects to the next one.

	A command takes an idle connection from a list and puts it back. Both are atomic, so only connecting needs a lock.
	"""

	def __init__(
		self, name: str, jobs: int, wishes: int = 0, transport: str = UNIX, patience: Optional[float] = None
	) -> None:
		self.name = os.fsencode(name)[-NAME_CAP:]
		self.jobs = jobs
		self.wishes = wishes
		self.transport = transport
		self.patience = patience or find_patience()
		self.policy: Tuple[bytes, Sequence[int]] = (b"", ())
		"""The frame that is sent first on each connection, and its descriptors."""
		self.failure: Optional[EngineError] = None
		"""Why no engine can be used any more."""
		self.engine = 0
		"""The process of the last engine that has welcomed us."""
		self.closed_count = 0
		"""The number of commands that were sent over connections which are closed now."""
		self.closed = False
		self._become_new()
		os.register_at_fork(after_in_child=self._leave_to_parent)

	def _become_new(self) -> None:
		self.id = os.urandom(protocol.SESSION_SIZE)
		self.lock = threading.Lock()
		self.idle: List[Connection] = []
		self.connections: Set[Connection] = set()
		self.dead: Set[int] = set()

	def _leave_to_parent(self) -> None:
		"""Close the connections in a forked child, since the engine must see their end when the parent ends."""
		for connection in self.connections:
			connection.close()
		self._become_new()

	def execute(
		self,
		command: bytes,
		env: Optional[Environment] = None,
		fds: Sequence[int] = (),
		heard: Optional[List[Heard]] = None,
	) -> Answer:
		"""
		Run a command of ``protocol.encode_command``. If the engine dies meanwhile, another one runs it again.

		Raises ``Unsendable`` if this command cannot be sent, and another ``EngineError`` if no engine can run it.
		"""
		lost_by: Set[int] = set()
		while True:
			connection = self.take()
			try:
				if heard:
					heard.clear()
				answer = connection.execute(command, env, fds, heard)
			except Unsendable:
				self.give_back(connection)
				raise
			except Lost as e:
				self.bury(connection)
				if connection.engine in lost_by:
					raise self.give_up(e) from None
				lost_by.add(connection.engine)
				continue
			except ProtocolError as e:
				self.drop(connection)
				raise self.give_up(e) from None
			except BaseException:
				self.drop(connection)
				raise
			self.give_back(connection)
			return answer

	@property
	def sent(self) -> int:
		"""How many commands went to an engine."""
		return self.closed_count + sum(connection.count for connection in list(self.connections))

	def close(self) -> None:
		"""Close all idle connections now, and each other one when it becomes idle."""
		self.closed = True
		while self.idle:
			self.drop(self.idle.pop())

	def take(self) -> Connection:
		"""A connection that only the caller uses until it gives it back."""
		while True:
			try:
				connection = self.idle.pop()
			except IndexError:
				return self._connect()
			if connection.engine not in self.dead:
				return connection
			self.drop(connection)

	def give_back(self, connection: Connection) -> None:
		"""Give back a connection on which no command is under way."""
		if self.closed:
			self.drop(connection)
		else:
			self.idle.append(connection)

	def drop(self, connection: Connection) -> None:
		"""Close a connection, which ends its command."""
		connection.close()
		if connection in self.connections:
			self.connections.discard(connection)
			self.closed_count += connection.count

	def bury(self, connection: Connection) -> None:
		"""Drop a connection whose engine has ended, and note that engine."""
		self.drop(connection)
		with self.lock:
			self.dead.add(connection.engine)
			if len(self.dead) > MOST_DEATHS:
				self.failure = EngineError("%d engines ended in the middle of commands" % len(self.dead))

	def give_up(self, failure: EngineError) -> EngineError:
		"""Note a failure after which no connection is made, and return it."""
		self.failure = failure
		return failure

	def _connect(self) -> Connection:
		"""A new connection. One thread at a time makes one, so that all use the engine that the first one starts."""
		with self.lock:
			if self.failure:
				raise self.failure.with_traceback(None)
			try:
				connection = self._greeted()
			except EngineError as e:
				if not (isinstance(e, Refused) and e.why == protocol.CROWDED):
					self.failure = e
				raise
			connection.introduce(*self.policy)
			self.connections.add(connection)
			self.engine = connection.engine
			return connection

	def _greeted(self) -> Connection:
		"""Connect, and start an engine if none runs. Try once more if the engine was just leaving."""
		try:
			return self._dial(False)
		except Lost:
			pass
		except Refused as e:
			if e.why not in (protocol.LEAVING, protocol.TOKEN_REFUSED):
				raise
		return self._dial(True)

	def _dial(self, started: bool) -> Connection:
		seconds = self.patience
		sock, token = (None, b"") if started else dial(self.transport, seconds)
		if sock is None:
			check_folder()
			start(self.transport, seconds)
			sock, token = dial(self.transport, seconds)
		if sock is None:
			raise EngineError("wafd start says that an engine listens, but none does")
		try:
			pid = os.getpid()
			hello = protocol.encode_hello(protocol.VERSIONS, self.id, self.jobs, self.wishes, pid, token, self.name)
			return Connection(sock, hello, seconds)
		except BaseException:
			sock.close()
			raise
