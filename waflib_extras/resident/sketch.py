"""
Decides when a run is begun ahead of its call, and for which command line.

There is at most one such run, a *sketch*. It is of the command line that ran last, and begins as soon as the files that
this has written are old enough to be trusted. ``prestart`` has the code that runs in the sketch's process.
"""

import array
import contextlib
import marshal
import os
import signal
import socket
import time
from typing import Container, Dict, List, NamedTuple, Optional, Set, Tuple

from ..launcher import caller
from . import child, prestart, process_context, records, witness
from .records import Key

REST = 0.12  # seconds after a build, within which a change of what it has written might not show
TRIES = 5  # the pause before each is twice as long as the one before
PATIENCE = 2.0  # seconds for a message that has begun to arrive
REMEMBERED = 8  # command lines that cannot be begun ahead

Files = Dict[str, Optional[witness.Signature]]


class Compared(NamedTuple):
	"""What the native ``waf`` has found to be changed when it compared a record."""

	serial: int
	numbers: List[int]
	"""Those of the changed facts in the record."""


class Sketch(NamedTuple):
	"""A command line that is to be begun ahead of its call."""

	key: Key
	request: child.Request
	due: float
	tries: int


class Sketcher:
	def __init__(self, project: str, digests: child.Digests, known: records.Records) -> None:
		self.project = project
		self.digests = digests
		self.records = known
		self.wanted: Optional[Sketch] = None
		self.last: Optional[Tuple[Key, child.Request]] = None
		"""The last command line that was begun. It is begun again after another one has run."""
		self.pid = 0
		self.sock: Optional[socket.socket] = None
		"""The connection to the process of the sketch; None if there is none."""
		self.order_of: Optional[Sketch] = None
		"""The command line that this process has begun."""
		self.is_ready = False
		self.serial = 0
		"""The record that it knows; 0 if there is none."""
		self.report = -1
		"""The report of the call that it was told of; -1 before."""
		self.going: Optional[socket.socket] = None
		"""The connection to a process that has just accepted a call."""
		self.ended: Set[int] = set()
		self.hopeless: Dict[Key, Tuple[str, Files]] = {}
		"""By command line that cannot be begun ahead: the reason, and the code that is the reason, which may change."""
		self.blind: Dict[Key, str] = {}
		"""By command line whose tasks are not asked before the call: the reason."""
		self.known = 0
		"""How many tasks were found to be up to date before the call; -1 while they are asked."""
		self.reason = "nothing was built yet"

	# ---- whether and when

	def order(self, key: Key, request: child.Request) -> None:
		"""Begin this command line soon; or the one before, if this is not to be begun ahead."""
		if not may_begin(request.argv):
			if self.last is None:
				return
			key, request = self.last
		self.last = key, request
		self.wanted = Sketch(key, request, time.monotonic() + REST, 0)

	def left(self) -> float:
		"""The seconds until a run is to be begun."""
		return self.wanted.due - time.monotonic() if self.wanted else float(1 << 20)

	def has(self, key: Key) -> bool:
		"""Tell whether this command line was begun or will be."""
		orders = (self.wanted, self.order_of)
		return any(order is not None and order.key == key for order in orders) or self.is_hopeless(key)

	def is_hopeless(self, key: Key) -> bool:
		"""Tell whether a command line could not be begun ahead, for a reason that has not changed."""
		if key not in self.hopeless:
			return False
		reason, files = self.hopeless[key]
		if any(witness.signature_of(path) != signature for path, signature in files.items()):
			del self.hopeless[key]
			return False
		self.reason = reason
		return True

	def give_up(self, reason: str) -> None:
		self.wanted = None
		self.reason = reason

	# ---- the process

	def begin(self, answered: Container[Key]) -> bool:
		"""Begin the run that is due, if possible. Given are the command lines whose records still answer."""
		self.drop()
		order, self.wanted = self.wanted, None
		if order is None or self.is_hopeless(order.key):
			return False
		written = self.records.find(order.key) if order.key in answered else None
		self.serial = written.serial if written is not None else self.records.take_serial()
		try:
			ours, theirs = socket.socketpair()
			pid = os.fork()
		except OSError as e:  # too many files or processes, or too little memory
			self.give_up("it cannot be begun: %s" % e.strerror)
			return False
		if pid == 0:
			ahead = records.Ahead(self.records, order.key, order.request, self.serial, written)
			asks = order.key not in self.blind
			shapes = order.key[records.SHAPES]
			prestart.run_ahead(order.request, shapes, self.digests, theirs.detach(), self.project, asks, ahead)
		theirs.close()
		with contextlib.suppress(OSError):
			os.setpgid(pid, pid)
		ours.settimeout(PATIENCE)
		self.pid, self.sock, self.order_of = pid, ours, order
		self.is_ready = False
		self.reason = "not yet, it is being begun"
		return True

	def drop(self) -> None:
		"""End the run that was begun."""
		if self.sock is None:
			return
		with contextlib.suppress(OSError):
			os.killpg(self.pid, signal.SIGKILL)
		self.forget()

	def forget(self) -> None:
		if self.sock is not None:
			self.sock.close()
			self.sock = None
			self.ended.add(self.pid)
		if self.report >= 0:
			os.close(self.report)
			self.report = -1
		self.order_of = None
		self.is_ready = False
		self.reason = "not yet"

	def reap(self) -> None:
		for pid in list(self.ended):
			with contextlib.suppress(ChildProcessError):
				if not os.waitpid(pid, os.WNOHANG)[0]:
					continue
			self.ended.discard(pid)

	# ---- calls

	def is_fit(self) -> bool:
		"""Tell whether the sketch's process still has our rights and limits, which the caller has, too."""
		try:
			return self.is_ready and process_context.read_burdens(self.pid) == process_context.read_burdens(os.getpid())
		except (OSError, IndexError):
			return False

	def call(self, key: Key, request: child.Request, fds: List[int], report: int, compared: Optional[Compared]) -> bool:
		"""Give a call to the process, if it has begun this command line. Its answer is read later."""
		if not self.is_ready or self.sock is None or self.order_of is None or self.order_of.key != key:
			os.close(report)
			return False
		harmless = {name: value for name, value in request.environ.items() if name in caller.HARMLESS}
		is_same = compared is not None and compared.serial == self.serial
		message = marshal.dumps((harmless, request.numbers, compared.numbers if compared and is_same else None))
		data = len(message).to_bytes(caller.NUMBERS, "big") + message
		try:
			rights = array.array("i", [report, *fds])
			self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
		except OSError:
			os.close(report)
			self.drop()
			return False
		self.is_ready = False
		self.report = report
		return True

	def hear(self) -> Optional[str]:
		"""Read what the process tells. If it was called, returns why it does not go on; empty if it does."""
		assert self.sock is not None and self.order_of is not None
		try:
			kind, value = caller.receive(self.sock)
		except (OSError, ValueError, EOFError, TypeError):
			kind, value = b"", None
		was_called = self.report >= 0
		if kind == prestart.READY:
			# it tells so twice, and may have been called meanwhile
			self.is_ready = not was_called
			self.known, unwritten = value
			if unwritten == "":
				self.records.add(records.Kept(self.order_of.key, self.order_of.request, self.serial, None))
			elif unwritten is not None:
				self.records.reason = unwritten
			self.reason = ""
			return None
		if kind == prestart.GOING:
			# report, process and connection belong to the caller from now on
			self.going, self.sock = self.sock, None
			self.report = -1
			self.forget()
			return ""
		if was_called:
			self.drop()
			return str(value) if kind == prestart.GIVEN_UP else "the process that was to go on has ended"
		order = self.order_of
		self.drop()
		if kind == prestart.HINDERED:
			self.note(order, *value)
		else:
			self.note(order, "it was ended, or took too long", prestart.NEXT, {})
		return None

	def note(self, order: Sketch, reason: str, again: int, files: Files) -> None:
		"""Remember why a command line could not be begun. Try again if the reason may vanish soon."""
		self.reason = reason
		if again == prestart.LATER:
			self.hopeless[order.key] = reason, files
			while len(self.hopeless) > REMEMBERED:
				del self.hopeless[next(iter(self.hopeless))]
		elif again == prestart.BLIND:
			self.blind[order.key] = reason
			while len(self.blind) > REMEMBERED:
				del self.blind[next(iter(self.blind))]
			self.wanted = self.wanted or order._replace(due=time.monotonic())
		elif again == prestart.SOON and order.tries < TRIES and self.wanted is None:
			tries = order.tries + 1
			self.wanted = order._replace(due=time.monotonic() + REST * 2**tries, tries=tries)

	def tell(self) -> str:
		"""Why no run is begun ahead; empty if one is."""
		return "" if self.is_ready else self.reason

	def tell_unasked(self) -> str:
		"""Why the tasks of this run were not asked before the call; empty if they were."""
		return self.blind.get(self.order_of.key, "") if self.order_of is not None else ""


def may_begin(argv: List[str]) -> bool:
	"""Tell whether this is a build without options such as ``-v`` that change its messages."""
	words = argv[1:]
	return all(
		not (word.startswith("--zones") or word == "--verbose" or (word[1:2] != "-" and "v" in word))
		if word.startswith("-")
		else word.startswith("build") or "=" in word
		for word in words
	)
