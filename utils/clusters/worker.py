"""Workers of ours, each a process."""

import pathlib
import signal
import subprocess
import time
from typing import Dict, List, Optional

from benchmark.mistake import Failed

from .database import PATIENCE


class Worker:
	"""`wafd worker` as a process of its own, in a folder that is left when it has ended."""

	def __init__(self, command: List[str], folder: pathlib.Path, environ: Dict[str, str]) -> None:
		self.command, self.folder, self.environ = command, folder, environ
		self.log = folder / "worker.log"
		self.process: Optional[subprocess.Popen[bytes]] = None

	def start(self) -> None:
		with open(self.log, "ab") as log:
			self.process = subprocess.Popen(
				self.command, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
			)

	def until_said(self, words: str) -> str:
		"""Wait until its log has these words; the log."""
		deadline = time.monotonic() + PATIENCE
		while True:
			said = self.log.read_text(encoding="utf-8", errors="replace")
			if words in said:
				return said
			if self.process and self.process.poll() is not None:
				raise Failed("the worker has ended", said)
			if time.monotonic() > deadline:
				raise Failed(f"the worker does not say {words!r}", said)
			time.sleep(0.02)

	def stop(self) -> int:
		"""Let it finish what it does; its status."""
		return self.end(signal.SIGTERM)

	def kill(self) -> None:
		self.end(signal.SIGKILL)

	def end(self, number: int) -> int:
		process, self.process = self.process, None
		if process is None:
			return 0
		process.send_signal(number)
		try:
			return process.wait(PATIENCE)
		except subprocess.TimeoutExpired:
			process.kill()
			process.wait()
			raise Failed("the worker does not end", self.log.read_text(errors="replace")) from None
