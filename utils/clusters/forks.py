"""
BuildGrid's command `bgd`, in forks of a Python that has imported it already.

The imports take more than a second of processor time, and a campaign or the tests start dozens of servers and clients.
"""

import atexit
import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import threading
from typing import IO, List, Optional, Sequence

from benchmark.mistake import Failed

PROGRAM = pathlib.Path(__file__).with_name("start_buildgrid.py")
MAXIMUM = 64  # bytes of an answer
PATIENCE = 60  # seconds


class Fork:
	"""A process that another one has forked for us: what we use of a ``Popen``."""

	def __init__(self, pid: int, fd: int) -> None:
		self.pid = pid
		self.fd: Optional[int] = fd  # of the process, as long as it runs

	def poll(self) -> Optional[int]:
		"""Nothing as long as it runs. How it has ended is not known."""
		return 0 if self.has_ended(0) else None

	def wait(self, seconds: float) -> int:
		if not self.has_ended(1000 * seconds):
			raise subprocess.TimeoutExpired("bgd", seconds)
		return 0

	def has_ended(self, milliseconds: float) -> bool:
		if self.fd is not None:
			poll = select.poll()
			poll.register(self.fd, select.POLLIN)
			if not poll.poll(milliseconds):
				return False
			os.close(self.fd)
			self.fd = None
		return True

	def send_signal(self, number: int) -> None:
		if self.fd is not None:
			with contextlib.suppress(ProcessLookupError):
				signal.pidfd_send_signal(self.fd, number)

	def kill(self) -> None:
		self.send_signal(signal.SIGKILL)


class Ready:
	"""The process that forks. The first command starts it, and it ends when we do."""

	def __init__(self) -> None:
		self.lock = threading.Lock()
		self.channel: Optional[socket.socket] = None
		self.process: Optional[subprocess.Popen[bytes]] = None

	def begin(self, python: str) -> None:
		self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		self.channel.settimeout(PATIENCE)
		# its forks are no processes of the test or the trial during which it has been started
		environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("WAF")}
		with theirs:
			# -P: the folder of that script has modules of ours, and one is called like theirs
			self.process = subprocess.Popen(
				[python, "-P", str(PROGRAM), str(theirs.fileno())],
				env=environ,
				stdin=subprocess.DEVNULL,
				stdout=subprocess.DEVNULL,
				pass_fds=[theirs.fileno()],
				start_new_session=True,
			)
		atexit.register(self.end)

	def end(self) -> None:
		if self.channel and self.process:
			self.channel.close()
			self.channel = None
			try:
				self.process.wait(PATIENCE)
			except subprocess.TimeoutExpired:
				self.process.kill()
				self.process.wait()
			atexit.unregister(self.end)

	def start(self, python: str, words: Sequence[str], folder: pathlib.Path, files: List[int]) -> Fork:
		"""Start a command. The files are for its output, for its errors and, if there are three, for its status."""
		with self.lock:
			if self.process and self.process.poll() is not None:
				self.end()
			if not self.channel:
				self.begin(python)
			assert self.channel
			try:
				socket.send_fds(self.channel, [json.dumps({"words": words, "folder": str(folder)}).encode()], files)
				answer, fds, _, _ = socket.recv_fds(self.channel, MAXIMUM, 1)
			except OSError:
				answer, fds = b"", []
			if not answer:
				self.end()
				raise Failed(f"{python} does not start BuildGrid")
		return Fork(int(answer), fds[0])

	def call(self, python: str, words: Sequence[str], seconds: float) -> "subprocess.CompletedProcess[str]":
		"""Run a command to its end."""
		with contextlib.ExitStack() as stack:
			files: List[IO[bytes]] = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
			fork = self.start(python, words, pathlib.Path.cwd(), [file.fileno() for file in files])
			try:
				fork.wait(seconds)
			finally:
				fork.kill()
				fork.wait(seconds)
			out, error, status = (read(file) for file in files)
		return subprocess.CompletedProcess(["bgd", *words], int(status or -1), out, error)


def read(file: IO[bytes]) -> str:
	file.seek(0)
	return file.read().decode("utf-8", "replace")


READY = Ready()
