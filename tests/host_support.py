"""Machines and a server, each on a host of its own: namespaces with a line between them that can be bad, or cut."""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import ContextManager, Dict, Iterator, List

import pytest
from cache_support import COMPILERS, PATIENCE
from conftest import ROOT, leave_out, list_processes
from serve_support import TOKEN, Server, wait_until
from tier_support import PATIENT, Machine

sys.path.insert(0, str(ROOT / "utils"))

from benchmark.hosts import Host, Hosts, missing_hosts

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def enter(namespace: str) -> None:
	"""This thread moves there; sockets stay on the host where they were made."""
	with open(namespace, "rb") as file:
		assert LIBC.setns(file.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


@contextlib.contextmanager
def entered(namespace: str) -> Iterator[None]:
	with open("/proc/thread-self/ns/net", "rb") as home:
		enter(namespace)
		try:
			yield
		finally:
			assert LIBC.setns(home.fileno(), CLONE_NEWNET) == 0


class HostServer(Server):
	"""A server on a host, always at one address. Clients with the token may write."""

	def __init__(self, engine: str, folder: pathlib.Path, host: Host, *options: str) -> None:
		self.host = host
		self.listen = f"{host.address}:0"
		super().__init__(engine, folder, *options, WAFD_SERVE_TOKEN=TOKEN)
		self.listen = "%s:%d" % self.address

	def prefix(self) -> List[str]:
		return self.host.enter([])

	def reached(self) -> ContextManager[None]:
		return entered(self.host.namespace)

	def counts(self) -> Dict[str, int]:
		return {name[len("wafd_serve_") :]: count for name, count in self.metrics(TOKEN).items()}


class HostMachine(Machine):
	"""A machine on a host: what is built there asks the server."""

	def __init__(self, engine: str, folder: pathlib.Path, place: pathlib.Path, host: Host) -> None:
		super().__init__(engine, folder, place, "")
		self.host = host
		self.prefix = host.enter([])

	def ask_of(self, server: Server, options: str = PATIENT) -> None:
		"""Let its engine ask this server from its start on."""
		self.environ["WAFCC_REMOTE"] = f"tcp://{TOKEN}@%s:%d{options}" % server.address

	def compile(self, name: str) -> bytes:
		"""The object of a source, made through the cache."""
		return self.make([*self.prefix, self.wafcc], name, f"{self.host.number}-{name}.o")

	def compile_plainly(self, name: str) -> bytes:
		"""The same with the compiler alone."""
		return self.make([], name, f"plain-{name}.o")

	def make(self, before: List[str], name: str, output: str) -> bytes:
		path = self.folder / output
		argv = [*before, COMPILERS[0], "-c", name, "-o", output]
		done = subprocess.run(
			argv, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
		)
		assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), argv
		return path.read_bytes()

	def build(self, names: List[str], parallel: int = 4) -> Dict[str, bytes]:
		"""The objects of many sources."""
		with ThreadPoolExecutor(parallel) as pool:
			return dict(zip(names, pool.map(self.compile, names)))

	def build_plainly(self, names: List[str]) -> Dict[str, bytes]:
		with ThreadPoolExecutor(4) as pool:
			return dict(zip(names, pool.map(self.compile_plainly, names)))

	def fill(self, names: List[str]) -> Dict[str, bytes]:
		"""Build until all is uploaded. A file that was written just before is not stored at once."""
		objects: List[Dict[str, bytes]] = []

		def is_there() -> bool:
			objects.append(self.build(names))
			return self.remote()["uploads"] >= len(names)

		wait_until("all is uploaded", is_there)
		return objects[-1]

	def is_uploading(self) -> bool:
		return any("uploads to do" in tier["state"] for tier in self.remote()["tiers"])

	def kill(self) -> None:
		"""End its engine at once."""
		for pid in list_processes(self.runtime):
			with contextlib.suppress(ProcessLookupError):
				os.kill(pid, signal.SIGKILL)


class HostLab:
	"""A line with a server and three machines that share one folder of sources."""

	def __init__(self, engine: str, path: pathlib.Path, hosts: Hosts, stack: contextlib.ExitStack) -> None:
		self.line = hosts
		self.folder = path / "lab"
		for folder in (self.folder, path / "server"):
			folder.mkdir()
		self.server = HostServer(engine, path / "server", hosts.hosts[0])
		stack.callback(self.end_server)
		self.machines: List[HostMachine] = []
		for host in hosts.hosts[1:]:
			self.machines.append(HostMachine(engine, self.folder, path / f"machine-{host.number}", host))
			self.machines[-1].ask_of(self.server)
			stack.callback(self.machines[-1].stop)

	def end_server(self) -> None:
		for client in self.server.clients:
			client.close()
		self.server.end()

	def write_project(self, count: int, noise: int = 0, name: str = "x") -> List[str]:
		"""Sources with a header in common; with noise, each object holds so many bytes that cannot be packed."""
		(self.folder / "common.h").write_text("static int twice(int n) { return n * 2; }\n")
		names = []
		for n in range(count):
			text = f'#include "common.h"\nint {name}{n}(void) {{ return twice({n}); }}\n'
			if noise:
				(self.folder / f"{name}{n}.noise").write_bytes(os.urandom(noise))
				text += f'__asm__(".section .rodata\\n.incbin \\"{name}{n}.noise\\"\\n.text");\n'
			names.append(f"{name}{n}.c")
			(self.folder / names[-1]).write_text(text)
		return names


@pytest.fixture
def host_support(engine: str, tmp_path: pathlib.Path) -> Iterator[HostLab]:
	"""A server and three machines on a line that is perfect; all of it is gone when the test ends."""
	reason = missing_hosts()
	if reason:
		leave_out(reason)
	with contextlib.ExitStack() as stack:
		hosts = Hosts(4)
		stack.callback(hosts.close)
		yield HostLab(engine, tmp_path, hosts, stack)
