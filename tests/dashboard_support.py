"""A `wafd dashboard` for one test, and builds whose commands run until the test ends them."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from serve_support import end_process

from waflib_extras.client import engine as client
from waflib_extras.client import protocol

PATIENCE = 60  # seconds


def wait_until(what: str, holds: Callable[[], Any]) -> Any:
	"""Wait until a value is there, and return it."""
	deadline = time.monotonic() + PATIENCE
	while True:
		found = holds()
		if found:
			return found
		assert time.monotonic() < deadline, "never: %s" % what
		time.sleep(0.02)


class Dashboard:
	"""The process, its address, and requests to it."""

	def __init__(self, wafd: str, folder: pathlib.Path, *options: str, env: Optional[Dict[str, str]] = None) -> None:
		self.argv = [wafd, "dashboard", *options]
		self.environ = dict(os.environ, **(env or {}))
		self.log = folder / "dashboard.log"
		self.start()

	def start(self) -> None:
		with self.log.open("ab") as log:
			self.process = subprocess.Popen(
				self.argv, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
			)
		assert self.process.stdout
		line = self.process.stdout.readline().decode()
		assert line.startswith("serves http://127.0.0.1:"), self.log.read_text()
		self.url = line.split()[1]
		place, self.token = self.url[len("http://") :].rstrip("/").split("/")
		self.port = int(place.split(":")[1])

	def end(self, how: int = signal.SIGTERM) -> int:
		"""End it, and return its exit status."""
		return end_process(self.process, how)

	def ask(self, path: str, method: str = "GET", **headers: str) -> Tuple[int, Dict[str, str], str]:
		"""Status, head and body of an answer."""
		connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
		connection.request(method, path, headers=headers)
		answer = connection.getresponse()
		found = answer.status, dict(answer.getheaders()), answer.read().decode()
		connection.close()
		return found

	def news(self) -> Iterator[Dict[str, Any]]:
		"""The news for a page, line by line. Closing the connection is like leaving the page."""
		connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
		connection.request("GET", "/%s/news" % self.token)
		answer = connection.getresponse()
		try:
			for line in answer:
				yield json.loads(line.decode())
		finally:
			answer.close()
			connection.close()


class Build:
	"""A session of the engine with commands that run until they are let go."""

	def __init__(self, folder: pathlib.Path, jobs: int) -> None:
		folder.mkdir(parents=True, exist_ok=True)
		self.folder = folder
		self.gate = folder / "gate"
		os.mkfifo(str(self.gate))
		self.session = client.Session(str(folder), jobs)
		self.threads: List[threading.Thread] = []

	def hold(self, *words: str) -> None:
		"""Start a command with these words at its end."""
		self.run("sh", "-c", "read line < gate; true", *words)

	def run(self, *argv: str) -> None:
		command = protocol.encode_command(0, 0, 1, 1, 0, os.fsencode(self.folder), argv)
		thread = threading.Thread(target=self.session.execute, args=(command,), daemon=True)
		thread.start()
		self.threads.append(thread)

	def let_go(self) -> None:
		"""End all commands of the session, also those that start only now."""

		def is_done() -> bool:
			try:
				# this opens only if a command waits to read
				gate = os.open(str(self.gate), os.O_WRONLY | os.O_NONBLOCK)
			except OSError:
				pass
			else:
				os.close(gate)
			return not any(thread.is_alive() for thread in self.threads)

		wait_until("all commands end", is_done)

	def close(self) -> None:
		self.let_go()
		self.session.close()


def tell_status(wafd: str) -> Dict[str, Any]:
	done = subprocess.run([wafd, "status", "--json"], stdout=subprocess.PIPE, timeout=PATIENCE, check=True)
	report: Dict[str, Any] = json.loads(done.stdout.decode())
	return report


def control(wafd: str, *words: str) -> None:
	"""Start or stop the engine."""
	subprocess.run([wafd, *words], stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True)


Serve = Callable[..., Dashboard]
Held = Callable[..., Build]


@pytest.fixture
def dashboard(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Serve]:
	"""A function that starts one with options; each ends when the test does."""
	all_of_them = []

	def start(*options: str, **env: str) -> Dashboard:
		all_of_them.append(Dashboard(engine, tmp_path, "--no-open", *options, env=env))
		return all_of_them[-1]

	yield start
	for one in all_of_them:
		one.end()


@pytest.fixture
def held(runtime: pathlib.Path, engine: str, tmp_path: pathlib.Path) -> Iterator[Held]:
	"""A function that makes builds in folders of their own, which end when the test does."""
	made = []

	def make(name: str = "project", jobs: int = 2) -> Build:
		made.append(Build(tmp_path / name, jobs))
		return made[-1]

	yield make
	for one in made:
		one.close()
