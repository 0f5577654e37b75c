"""Commands as the engine observes them: a conversation with ``engine/examples/observe.rs``."""

import json
import pathlib
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional

from hunt import Mistake

# beside calls with paths: lists of folders, changes of the current folder, descriptors, children
CALLS = """
	%file getdents getdents64 fchdir fork vfork clone clone3 unshare dup dup2 dup3
	fcntl memfd_create inotify_add_watch fanotify_mark connect bind open_by_handle_at
"""
STRACE = ["strace", "-f", "-y", "-qq", "-s", "4096", "-e", "trace=" + ",".join(CALLS.split()), "-o"]
PATIENCE = 60  # seconds for one program


class Access(NamedTuple):
	"""One thing that a command noted."""

	process: int
	kind: str
	error: int
	detail: Dict[str, Any]

	@property
	def path(self) -> str:
		return str(self.detail.get("path", ""))


class Observation(NamedTuple):
	"""The notes of a command, and its trace by strace."""

	status: Optional[int]  # None if it took too long
	accesses: List[Access]
	blind: List[str]
	trace: str
	own: List[str]  # files that are the observation's own
	is_traced: bool = False  # by the second witness, and strace saw another run of it


class Observer:
	"""Runs one command at a time."""

	def __init__(self, program: str, folder: pathlib.Path) -> None:
		self.log = folder / "strace.log"
		self.process = subprocess.Popen(
			[program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
		)
		greeting = self.read()
		self.library = str(greeting["library"])
		self.exceptions = [str(path) for path in greeting["exceptions"]]

	def read(self) -> Dict[str, Any]:
		assert self.process.stdout
		line = self.process.stdout.readline()
		if not line:
			raise Mistake("%s ended: see above" % self.process.args[0])  # type: ignore[index]
		found = json.loads(line)
		assert isinstance(found, dict)
		return found

	def observe(self, argv: List[str], folder: pathlib.Path, environment: List[str], how: str = "") -> Observation:
		"""`how`: by the library, if it is empty; traced, which strace cannot see; or plain: not observed."""
		wish = {
			"argv": argv,
			"folder": str(folder),
			"environment": environment,
			"tracer": [] if how == "traced" else [*STRACE, str(self.log)],
			"how": how,
			"seconds": PATIENCE,
		}
		assert self.process.stdin
		self.process.stdin.write(json.dumps(wish).encode() + b"\n")
		told = self.read()
		accesses = [Access(one.pop("process"), one.pop("kind"), one.pop("error"), one) for one in told["accesses"]]
		trace = self.log.read_bytes().decode("latin-1")
		return Observation(told["status"], accesses, told["blind"], trace, [self.library, told["arena"]])

	def close(self) -> None:
		assert self.process.stdin and self.process.stdout
		self.process.stdin.close()
		self.process.stdout.close()
		self.process.wait()
