"""
Runs scripts in forks of a Python that has started already.

Tests start Waf thousands of times, and half of each start is the same: the interpreter, modules of the standard
library, regular expressions. Here this is done once. Waf and our own modules are imported anew in each fork, so a
script sees what it sees in a process of its own, except for what /proc says of it.

As a program, this file is the process that forks.
"""

import contextlib
import gc
import importlib
import os
import pathlib
import pickle
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

MAXIMUM = 1 << 20  # bytes of a request
EXAMPLES = (
	"waflib.Scripting",
	*("waflib.Tools." + x for x in ("compiler_c", "compiler_cxx", "gcc", "gxx")),
	*("waflib_extras." + x for x in ("launcher", "prefork.tool", "wafcc.tool")),
)
"""What these modules import of the standard library, nearly all scripts need."""

AT_START = re.compile("PYTHON|PYPY|LD_|LC_|LANG|MALLOC_|GLIBC_|TZ$")
"""Variables that are read when a process starts."""


class Job(NamedTuple):
	"""A script with its arguments, its folder and its environment."""

	argv: List[str]
	cwd: str
	environ: Dict[str, str]


class ReadyPython:
	"""The process that forks, as tests see it. The first script starts it, and it ends when the tests do."""

	def __init__(self) -> None:
		self.is_allowed = True
		self.lock = threading.Lock()  # it runs one script at a time
		self.channel: Optional[socket.socket] = None
		self.process: Optional[subprocess.Popen[bytes]] = None
		self.environ: Dict[str, str] = {}  # those variables that it has read

	def run(
		self, argv: List[str], cwd: pathlib.Path, environ: Dict[str, str], timeout: float
	) -> "Optional[subprocess.CompletedProcess[str]]":
		"""Run a script as ``subprocess.run`` would; nothing if it needs a process of its own."""
		done = self.run_for_bytes(argv, cwd, environ, timeout)
		if done is None:
			return None
		return subprocess.CompletedProcess(argv, done.returncode, decode(done.stdout), decode(done.stderr))

	def run_for_bytes(
		self, argv: List[str], cwd: pathlib.Path, environ: Dict[str, str], timeout: float
	) -> "Optional[subprocess.CompletedProcess[bytes]]":
		"""The same with what it says as it is."""
		if not self.is_allowed or not self.lock.acquire(blocking=False):
			return None
		try:
			if self.process and self.process.poll() is not None:
				self.end()  # a test has ended all processes that its own has started
			if not self.channel:
				self.begin(environ)
			if select(environ) != self.environ:
				return None
			return fork(self.channel, Job(argv, os.fspath(cwd), environ), timeout)
		except BaseException:
			self.end()  # it may still have something to say of this script
			raise
		finally:
			self.lock.release()

	def begin(self, environ: Dict[str, str]) -> None:
		"""Start the process that forks. It ends when its channel is closed."""
		self.environ = select(environ)
		neutral = {name: value for name, value in environ.items() if not name.startswith("WAF")}
		self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
		self.channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAXIMUM)
		with theirs:
			command = [sys.executable, __file__, str(theirs.fileno())]
			apart = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
			self.process = subprocess.Popen(command, env=neutral, pass_fds=[theirs.fileno()], **apart)

	def end(self) -> None:
		"""End the process that forks, if there is one."""
		if self.channel and self.process:
			self.channel.close()
			self.channel = None
			self.process.wait(60)


def select(environ: Mapping[str, str]) -> Dict[str, str]:
	"""The variables that are read when a process starts."""
	return {name: value for name, value in environ.items() if AT_START.match(name)}


def fork(channel: socket.socket, job: Job, timeout: float) -> "subprocess.CompletedProcess[bytes]":
	"""Have a script run in a fork; what it has said, and how it has ended."""
	pipes = [os.pipe(), os.pipe()]
	try:
		socket.send_fds(channel, [pickle.dumps(tuple(job))], [theirs for _, theirs in pipes])
	finally:
		for _, theirs in pipes:
			os.close(theirs)
	pid = int(channel.recv(MAXIMUM))
	try:
		texts = read_all([ours for ours, _ in pipes], time.monotonic() + timeout)
		if texts is None:
			raise subprocess.TimeoutExpired(job.argv, timeout)
	except BaseException:
		os.kill(pid, signal.SIGKILL)
		raise
	status = int(channel.recv(MAXIMUM))
	return subprocess.CompletedProcess(job.argv, status, *texts)


def read_all(fds: List[int], deadline: float) -> Optional[List[bytes]]:
	"""Read these descriptors until they end, and close them; nothing if that is too late."""
	texts: Dict[int, List[bytes]] = {fd: [] for fd in fds}
	try:
		with selectors.DefaultSelector() as selector:
			for fd in fds:
				selector.register(fd, selectors.EVENT_READ)
			while selector.get_map():
				ready = selector.select(deadline - time.monotonic())
				if not ready and time.monotonic() > deadline:
					return None
				for key, _ in ready:
					data = os.read(key.fd, 1 << 16)
					texts[key.fd].append(data)
					if not data:
						selector.unregister(key.fd)
	finally:
		for fd in fds:
			os.close(fd)
	return [b"".join(texts[fd]) for fd in fds]


def decode(said: bytes) -> str:
	"""Text as a file in text mode would have it."""
	return said.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")


# ---- the process that forks


def learn() -> Tuple[List[str], List[Tuple[str, int]]]:
	"""The names of the standard library's modules that Waf imports, and the regular expressions that they make."""
	ours, theirs = os.pipe()
	pid = os.fork()
	if not pid:
		for name in EXAMPLES:
			importlib.import_module(name)
		patterns = [key[1:3] for key in getattr(re, "_cache", {})]
		with open(theirs, "wb") as file:
			file.write(pickle.dumps((list(filter(is_standard, sys.modules)), patterns)))
		os._exit(0)
	os.close(theirs)
	with open(ours, "rb") as file:
		learned: Tuple[List[str], List[Tuple[str, int]]] = pickle.loads(file.read())
	os.waitpid(pid, 0)
	return learned


def is_standard(name: str) -> bool:
	"""Whether this module came with Python."""
	place = getattr(sys.modules[name], "__file__", None) or ""
	return name != "__main__" and place.startswith(os.path.dirname(os.__file__)) and "site-packages" not in place


def prepare() -> None:
	"""Do what each start of Waf does, as far as it is the same for all."""
	modules, patterns = learn()
	for name in modules:
		importlib.import_module(name)
	for pattern, flags in patterns:
		re.compile(pattern, flags)
	gc.collect()
	if hasattr(gc, "freeze"):
		gc.freeze()


def serve(channel: socket.socket) -> Optional[Job]:
	"""Fork for each request; in the fork, the job that is to be done."""
	while True:
		message, fds, _, _ = socket.recv_fds(channel, MAXIMUM, 2)
		if not message:
			return None
		pid = os.fork()
		if not pid:
			channel.close()
			for number, fd in enumerate(fds, 1):
				os.dup2(fd, number)
				os.close(fd)
			return Job(*pickle.loads(message))
		for fd in fds:
			os.close(fd)
		with contextlib.suppress(OSError):  # a test that was interrupted does not wait for it
			channel.send(b"%d" % pid)
			_, status = os.waitpid(pid, 0)
			channel.send(b"%d" % (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)))


def become(job: Job) -> None:
	"""Be a Python that runs this script."""
	os.chdir(job.cwd)
	os.environ.clear()
	os.environ.update(job.environ)
	script = job.argv[0]
	sys.argv[:] = job.argv
	sys.path[0] = os.path.dirname(os.path.abspath(script))
	main = types.ModuleType("__main__")
	main.__file__ = script
	sys.modules["__main__"] = main
	exec(compile(pathlib.Path(script).read_bytes(), script, "exec"), main.__dict__)


if __name__ == "__main__":
	prepare()
	asked = serve(socket.socket(fileno=int(sys.argv[1])))
	if asked:
		become(asked)
