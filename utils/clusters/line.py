"""
A line between a cluster's server and those who call it: it can be slow, silent or cut, and change what it carries.

It is a server of gRPC that passes on every call, whatever its service is.
"""

import concurrent.futures
import time
from typing import Any, Callable, Iterator, Optional

from benchmark.mistake import Failed
from benchmark.servers import LOOPBACK, free_port

OPTIONS = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
THREADS = 200  # calls at once; a worker that waits for work is one
LONGEST = 3600.0  # seconds; a deadline that is further away is none
LOOK = 0.02  # seconds

Change = Callable[[str, bytes], bytes]
"""What becomes of a request of this method."""


def unchanged(method: str, request: bytes) -> bytes:
	return request


class Line:
	"""It listens on a port of its own, which stays the same when it is cut."""

	def __init__(self, port: int) -> None:
		import grpc  # BuildGrid brings it

		self.grpc = grpc
		self.port = free_port()
		self.channel = grpc.insecure_channel("%s:%d" % (LOOPBACK, port), OPTIONS)
		self.server: Optional[Any] = None
		self.heal()

	def heal(self) -> None:
		"""Carry everything at once and unchanged."""
		self.delay = 0.0
		self.is_silent = False
		self.change: Change = unchanged
		if self.server is None:
			self.open()

	def open(self) -> None:
		threads = concurrent.futures.ThreadPoolExecutor(THREADS)
		server = self.grpc.server(threads, handlers=[self], options=OPTIONS)
		if not server.add_insecure_port("%s:%d" % (LOOPBACK, self.port)):
			raise Failed("the port %d of a line is taken" % self.port)
		server.start()
		self.server = server

	def cut(self) -> None:
		"""End all calls, and take no more."""
		server, self.server = self.server, None
		if server:
			server.stop(None).wait()

	def close(self) -> None:
		self.is_silent = False
		self.cut()
		self.channel.close()

	def service(self, call: Any) -> Any:
		"""What gRPC asks for each call; with any number of messages in both directions, it fits every method."""
		return self.grpc.stream_stream_rpc_method_handler(
			lambda requests, context: self.carry(call.method, requests, context)
		)

	def hold(self, context: Any) -> None:
		"""Keep a message for as long as the line does."""
		time.sleep(self.delay)
		while self.is_silent and context.is_active():
			time.sleep(LOOK)

	def carry(self, method: str, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
		def there() -> Iterator[bytes]:
			for request in requests:
				self.hold(context)
				yield self.change(method, request)

		told = [(key, value) for key, value in context.invocation_metadata() if key != "user-agent"]
		left = context.time_remaining()
		seconds = left if left is not None and left < LONGEST else None
		onward = self.channel.stream_stream(method)(there(), timeout=seconds, metadata=told)
		context.add_callback(onward.cancel)
		try:
			for answer in onward:
				self.hold(context)
				yield answer
		except self.grpc.RpcError as e:
			context.set_trailing_metadata(tuple(onward.trailing_metadata() or ()))
			context.abort(e.code(), e.details() or "")
