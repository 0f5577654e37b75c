"""``waf --resident-list`` and ``waf --resident-stop``: the resident processes of this user."""

import _socket
import marshal
import os
import sys
from typing import Dict, Iterator, List, Optional, Tuple, TypedDict

from . import caller

PATIENCE = 20.0  # seconds for an answer
FAREWELL = ".left"


class Status(TypedDict, total=False):
	"""The report of a resident; empty if it does not answer."""

	project: str
	pid: int
	python: str
	counts: Dict[str, int]
	reason: str
	"""Why the last run was not stored or not answered."""
	sketch: str
	"""Why no run is begun ahead; empty if one is."""
	known: int
	"""How many tasks of this run were found to be up to date before the call; -1 while they are asked."""
	unasked: str
	"""Why its tasks were not asked; empty if they were."""
	unwritten: str
	"""Why the native ``waf`` cannot answer by itself; empty if it can, or if it was not called."""
	before: str
	"""Why the resident before has left; empty if there was none, or if it was killed."""
	memos: int
	digests: int


def find_all() -> Iterator[Tuple[str, _socket.socket]]:
	"""The sockets of residents, with connections to those that listen."""
	folder = caller.find_folder()
	for name in sorted(os.listdir(folder)) if folder else []:
		if name.startswith(caller.PREFIX) and name.endswith(caller.SUFFIX):
			path = os.path.join(folder, name)
			sock = caller.dial(path)
			if sock is not None:
				yield path, sock


def farewell_of(path: str) -> str:
	"""The file beside a resident's socket in which it says why it has left."""
	return path[: -len(caller.SUFFIX)] + FAREWELL


def read_farewell(path: str) -> str:
	"""Why the resident with this socket has left; empty if there was none, or if it was killed."""
	try:
		with open(farewell_of(path), encoding="utf-8") as f:
			return f.read()
	except (OSError, ValueError):
		return ""


def ask(sock: _socket.socket, question: str) -> Status:
	"""The answer of a resident; empty if there is none."""
	request = marshal.dumps((question,))
	try:
		sock.settimeout(PATIENCE)
		sock.sendall(len(request).to_bytes(caller.NUMBERS, "big") + request)
		told: Optional[Status] = caller.receive(sock)[1]
		return told or {}
	except (OSError, ValueError, EOFError):
		return {}
	finally:
		sock.close()


def show(told: Status) -> str:
	counts = ", ".join("%d %s" % (number, what) for what, number in sorted(told["counts"].items())) or "not called yet"
	reason = "; last not kept or not answered: %s" % told["reason"] if told["reason"] else ""
	ahead = "; none begun ahead: %s" % told["sketch"]
	if not told["sketch"]:
		known, why = told.get("known", 0), told.get("unasked")
		ahead = "; 1 begun ahead and waits, and knows that %d tasks are up to date" % known
		if why:
			ahead = "; 1 begun ahead and waits, and has asked no task: %s" % why
		elif known < 0:
			ahead = "; 1 begun ahead, and asks its tasks"
	ahead += "; waf starts Python each time: %s" % told["unwritten"] if told.get("unwritten") else ""
	before = "; the one before has left: %s" % told["before"] if told["before"] else ""
	reason += ahead + before
	return "%s: process %d of %s: %s%s" % (told["project"], told["pid"], told["python"], counts, reason)


def is_above(project: str, cwd: str) -> bool:
	return os.path.commonpath((project, cwd)) == project


def main(words: List[str]) -> int:
	"""Run the options ``--resident-…``."""
	cwd = os.getcwd()
	for word in words:
		if word == "--resident-list":
			for _, sock in find_all():
				told = ask(sock, "list")
				if told:
					print(show(told))
		elif word in ("--resident-stop", "--resident-stop-all"):
			for path, sock in list(find_all()):
				told = ask(sock, "list")
				if told and (word.endswith("-all") or is_above(told["project"], cwd)):
					again = caller.dial(path)
					if again is not None and ask(again, "stop"):
						print("stopped: %s: process %d" % (told["project"], told["pid"]))
		else:
			sys.stderr.write("waf: %s: give --resident-list or --resident-stop alone\n" % word)
			return 1
	return 0
