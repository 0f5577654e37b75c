"""
One connection to the engine that carries many commands at once, driven by one thread.

Knows nothing of Waf. It never waits until it can send while there is something to receive, since an engine does not
read from a client that does not read.
"""

import select
from typing import Dict, List, NamedTuple, Optional, Set

from . import protocol
from .engine import MSG_NOSIGNAL, PACE, RECEIVE, Connection, Learned, Session
from .protocol import Elsewhere, EngineError, Environment, Inputs, Lost, Outcome, Output, ProtocolError, Told

NOTHING = b""
MSG_DONTWAIT = 0x40  # Linux's; PyPy 3.9 does not name it
AT_ONCE = 1 << 18  # bytes that one system call is given


class Order:
	"""A command that was submitted and has no outcome yet. ``subject`` is any object of the caller's."""

	__slots__ = ("cancelled", "command", "elsewhere", "env", "err", "inputs", "lost_by", "out", "subject", "told")

	def __init__(self, subject: object, command: bytes, env: Optional[Environment]) -> None:
		self.subject = subject
		self.command = command
		self.env = env
		self.out: List[bytes] = []
		self.err: List[bytes] = []
		self.cancelled = False
		self.lost_by: Optional[Set[int]] = None
		self.told: Optional[Told] = None
		self.inputs: Optional[Learned] = None
		self.elsewhere: Optional[Elsewhere] = None


class Answered(NamedTuple):
	"""An order that is done. There is no outcome if no engine can run it any more."""

	subject: object
	outcome: Optional[Outcome]
	out: bytes
	err: bytes
	told: Optional[Told] = None
	inputs: Optional[Learned] = None
	elsewhere: Optional[Elsewhere] = None


class Pipeline:
	"""Commands on a connection of a session. If its engine ends, they move to a connection to the next one."""

	def __init__(self, session: Session) -> None:
		self.session = session
		self.connection: Connection = session.take()
		self.orders: Dict[int, Order] = {}
		"""The orders by their numbers, in the order of submission."""
		self.unsent = bytearray()
		self.received = bytearray()
		self.failure: Optional[EngineError] = None
		"""Why no engine can be used any more."""

	def __len__(self) -> int:
		return len(self.orders)

	def submit(self, subject: object, command: bytes, env: Optional[Environment]) -> int:
		"""
		Add a command of ``protocol.encode_command`` to what ``flush`` sends, and return its number.

		Raises ``Unsendable`` if its environment cannot be sent, and another ``EngineError`` if no engine can be used.
		"""
		if self.failure:
			raise self.failure.with_traceback(None)
		return self._put(Order(subject, command, env))

	def _put(self, order: Order) -> int:
		connection = self.connection
		number, frame = connection.number_environment(order.env)
		count = connection.count = (connection.count + 1) & 0xFFFFFFFF
		self.orders[count] = order
		self.unsent += frame
		self.unsent += protocol.encode_execute(count, number, order.command)
		return count

	def cancel(self, subjects: Set[object]) -> None:
		"""Ask the engine not to run the commands of these subjects. It sends outcomes for them all the same."""
		for number, order in self.orders.items():
			if order.subject in subjects:
				order.cancelled = True
				self.unsent += protocol.encode_cancel(number)

	def flush(self) -> None:
		"""Send as much as the engine takes now."""
		while self.unsent:
			try:
				# given back at once: until PyPy has collected it, the bytes could not be removed
				with memoryview(self.unsent) as whole, whole[:AT_ONCE] as part:
					sent = self.connection.sock.send(part, MSG_NOSIGNAL | MSG_DONTWAIT)
			except BlockingIOError:
				return
			except OSError:
				# the end of the engine is noticed by receive(), after the answers that it has still sent
				self.unsent.clear()
				return
			del self.unsent[:sent]

	def receive(self, wait: bool, wake: Optional[int] = None, timeout: Optional[float] = None) -> List[Answered]:
		"""
		The answers that have come.

		With ``wait``, this returns when there is something to read, here or from ``wake``, or the time is up.
		"""
		self.flush()
		try:
			if wait and (wake is not None or self.unsent or timeout is not None):
				self._poll(wake, timeout)
				wait = False
			received = self._receive(wait)
			if received is None:
				return []
			if not received:
				raise Lost("the connection to the engine ended")
			self.connection.stopped_since = 0.0
			self.received += received
			return self._take_answers()
		except Lost as e:
			return self._move(e)
		except ProtocolError as e:
			self.session.drop(self.connection)
			return self._fail(self.session.give_up(e))

	def _receive(self, wait: bool) -> Optional[bytes]:
		"""The next bytes: None if there are none yet, and empty at the end of the connection."""
		connection = self.connection
		while True:
			try:
				return connection.sock.recv(RECEIVE, 0 if wait else MSG_DONTWAIT)
			except BlockingIOError:
				if not wait:
					return None
				connection.look()
			except OSError:
				return NOTHING

	def _poll(self, wake: Optional[int], timeout: Optional[float]) -> None:
		"""Wait until there is something to read or the time is up. Meanwhile look whether the engine was stopped."""
		connection = self.connection
		sock = connection.sock
		while True:
			poll = select.poll()
			poll.register(sock, select.POLLIN | (select.POLLOUT if self.unsent else 0))
			if wake is not None:
				poll.register(wake, select.POLLIN)
			events = poll.poll(1000 * (PACE if timeout is None else min(timeout, PACE)))
			if not events:
				connection.look()
				if timeout is None:
					continue
				timeout -= PACE
				if timeout > 0:
					continue
				return
			if any(event & ~select.POLLOUT for _, event in events):
				return
			self.flush()

	def _take_answers(self) -> List[Answered]:
		"""Decode the frames that have arrived whole."""
		orders = self.orders
		answers: List[Answered] = []
		for frame in protocol.take_frames(self.received):
			answer = protocol.decode_whole(frame)
			order = orders.get(getattr(answer, "id", -1))
			if order is None:
				raise ProtocolError("the engine says %.100r, which answers no command" % (answer,))
			# comparing classes is quicker than isinstance, and the type checker follows it
			if answer.__class__ is Outcome:
				del orders[answer.id]
				out, err = b"".join(order.out), b"".join(order.err)
				answers.append(Answered(order.subject, answer, out, err, order.told, order.inputs, order.elsewhere))
			elif answer.__class__ is Told and order.command[0] & protocol.CACHED:
				order.told = answer
			elif answer.__class__ is Elsewhere and order.command[0] & protocol.CACHED:
				order.elsewhere = answer
			elif answer.__class__ is Inputs and order.command[0] & protocol.INPUTS:
				order.inputs = self.connection.learn(answer)
			# the bytes of the command that say where its two streams go
			elif answer.__class__ is Output and order.command[1 + answer.stream] == protocol.PIPE:
				(order.out if answer.stream == 1 else order.err).append(answer.data)
			else:
				raise ProtocolError("the engine answers a command with %.100r" % (answer,))
		return answers

	def _move(self, lost: Lost) -> List[Answered]:
		"""Have the next engine run all commands without an outcome. It starts when nothing of the lost one is left."""
		orders = list(self.orders.values())
		ended = self.connection.engine
		self.session.bury(self.connection)
		for order in orders:
			order.lost_by = order.lost_by or set()
			if ended in order.lost_by:
				return self._fail(self.session.give_up(lost))
			order.lost_by.add(ended)
			del order.out[:], order.err[:]
			order.told = order.inputs = order.elsewhere = None
		try:
			self.connection = self.session.take()
		except EngineError as e:
			return self._fail(e)
		self.orders.clear()
		self.unsent.clear()
		self.received.clear()
		for order in orders:
			if not order.cancelled:
				self._put(order)
		self.flush()
		return [Answered(order.subject, None, b"", b"") for order in orders if order.cancelled]

	def _fail(self, failure: EngineError) -> List[Answered]:
		"""Return all orders without an outcome."""
		self.failure = failure
		orders = list(self.orders.values())
		self.orders.clear()
		self.unsent.clear()
		return [Answered(order.subject, None, b"", b"") for order in orders]

	def close(self) -> None:
		"""Give the connection back if no command is under way on it. Otherwise drop it, which ends its commands."""
		if self.failure:
			return
		if self.orders or self.unsent or self.received:
			self.session.drop(self.connection)
		else:
			self.session.give_back(self.connection)
