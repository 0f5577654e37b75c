"""
Compares the trace of strace with the notes: everything is noted, or the command is blind.

Two names are the same if the texts are, from folders that are the same.
"""

import os
import re
from typing import Dict, List, NamedTuple, Set, Tuple

from .observer import Access, Observation
from .strace import Begun, Seen, read_trace

# which kinds of accesses tell of what the kernel did
CONTENT = ("open", "load", "execute", "begin")
SERVES: Dict[str, Tuple[str, ...]] = {
	"any": (*CONTENT, "enter", "find", "look", "link", "resolve", "list", "rename", "remove", "make"),
	"content": CONTENT,
	"write": ("open", "rename", "remove", "make"),
	"status": ("look", *CONTENT, "list", "enter"),
	"itself": ("look", "link", "resolve", "remove", "rename", *CONTENT, "list"),
	"link": ("link", "resolve"),
	"list": ("list",),
	"enter": ("enter",),
	"execute": ("execute", "load"),
}
DEPTH = 20  # links and scripts that lead to each other


class Miss(NamedTuple):
	"""Something that was not noted."""

	need: str
	path: str
	line: str

	def tell(self) -> str:
		return "%s of %s: %s" % (self.need, self.path, self.line)


def tidy(path: str) -> str:
	"""A path without empty parts and dots. Parents (..) stay, because links may change their meaning."""
	parts = [part for part in path.split("/") if part not in ("", ".")]
	return "/" + "/".join(parts)


def names_of(base: str, path: str) -> Set[str]:
	if path.startswith("/"):
		return {tidy(path)}
	return {tidy("%s/%s" % (base, path)), tidy("%s/%s" % (os.path.realpath(base), path))}


def walk(path: str, found: Set[str], depth: int = 0) -> None:
	"""Links that the resolving of a path reads on its way, and the folders between."""
	at = "/"
	parts = [part for part in path.split("/") if part and part != "."]
	for n, part in enumerate(parts):
		at = os.path.dirname(at) if part == ".." else os.path.join(at, part)
		found.add(at)
		if os.path.islink(at) and depth < DEPTH:
			target = os.path.join(os.path.dirname(at), os.readlink(at))
			walk("/".join([target, *parts[n + 1 :]]), found, depth + 1)
			at = os.path.realpath(at)


class Known:
	"""The notes, by name."""

	def __init__(self, observation: Observation, exceptions: List[str]) -> None:
		self.exceptions, self.own = exceptions, observation.own
		self.kinds: Dict[str, List[Access]] = {}
		self.files: Dict[str, List[Access]] = {}  # by where their paths lead
		self.begins: Dict[int, List[str]] = {}
		self.resolved: Set[str] = set()
		self.homeless: List[Access] = []
		self.libraries: Set[str] = set()
		self.has_random = self.has_place = False
		folders: Dict[int, str] = {}
		for access in observation.accesses:
			self.add(access, folders)

	def add(self, access: Access, folders: Dict[int, str]) -> None:
		kind, path = access.kind, access.path
		self.has_random = self.has_random or kind == "random"
		self.has_place = self.has_place or kind in ("locate", "anchor")
		if kind == "begin":
			folders[access.process] = access.detail["folder"]
			self.begins.setdefault(access.process, []).append(path)
		if not path:
			return
		base = folders.get(access.process)
		for text in (path, access.detail.get("to", path)):
			if base is None and not text.startswith("/"):
				self.homeless.append(access)
				return
			for name in names_of(base or "/", text):
				self.kinds.setdefault(name, []).append(access)
			self.files.setdefault(os.path.realpath(os.path.join(base or "/", text)), []).append(access)
		whole = path if path.startswith("/") else "%s/%s" % (base, path)
		if kind == "resolve":
			walk(whole, self.resolved)
			# the process is gone, so its link is resolved here
			walk(re.sub("^/proc/self/cwd", base or "", whole), self.resolved)
		elif kind == "load":
			self.libraries.add(os.path.basename(path))
		elif kind == "enter" and access.error == 0:
			folders[access.process] = whole

	def is_excepted(self, names: Set[str], seen: Seen) -> bool:
		if any(name.startswith(one) for name in names for one in self.exceptions):
			return True
		if names & set(self.own) or (self.has_random and names & {"/dev/urandom", "/dev/random"}):
			return True
		# where the loader looks for a library that it finds elsewhere, and the folders that are for that alone
		name = next(iter(names))
		if not seen.is_found and os.path.basename(name) in self.libraries:
			return True
		return names <= self.resolved and seen.need in ("link", "itself", "any")

	def has(self, seen: Seen) -> bool:
		if seen.need == "locate":
			return self.has_place
		names = names_of(seen.base, seen.path)
		accesses = [access for name in names for access in self.kinds.get(name, [])]
		if seen.is_file:
			# by whatever links it was reached
			accesses = self.files.get(os.path.realpath(seen.path), [])
		return any(serves(access, seen) for access in accesses) or self.is_excepted(names, seen)


def serves(access: Access, seen: Seen) -> bool:
	if access.kind not in SERVES[seen.need]:
		return False
	if seen.need == "any":
		return True
	if access.error:
		# a program that the kernel refuses was looked at before, to see how it would begin
		return access.kind == "execute"
	if access.kind == "open":
		wanted = {"content": "reads", "write": "writes"}.get(seen.need)
		return wanted is None or bool(access.detail[wanted])
	if access.kind == "look":
		return bool(access.detail["follows"]) == (seen.need == "status")
	return True


def compare(observation: Observation, folder: str, exceptions: List[str]) -> List[Miss]:
	"""The accesses that were not noted; none of a blind command, which is not cached."""
	if observation.blind:
		return []
	seen, begun = read_trace(observation.trace, folder)
	known = Known(observation, exceptions)
	searched = list_search_folders(seen, known)
	missed = [
		Miss(one.need, one.path, one.line) for one in seen if tidy(one.path) not in searched and not known.has(one)
	]
	missed += [Miss("folder", one.path, "process %d" % one.process) for one in known.homeless]
	return [*missed, *list_unbegun(begun, known, observation.is_traced)]


def list_search_folders(seen: List[Seen], known: Known) -> Set[str]:
	"""The folders in which the loader has looked for libraries in vain. It also checks whether these exist."""
	files = [tidy(one.path) for one in seen if not one.is_found and os.path.basename(one.path) in known.libraries]
	return {os.path.dirname(path) for path in files}


def list_unbegun(begun: List[Begun], known: Known, is_traced: bool) -> List[Miss]:
	"""Programs that were executed without having begun to note anything, in the order of each process."""
	missed = []
	left = {process: list(programs) for process, programs in known.begins.items()}
	if is_traced:
		# other numbers, and perhaps another order
		every = {program for programs in left.values() for program in programs}
		paths = [(one, one.path if one.path.startswith("/") else "%s/%s" % (one.base, one.path)) for one in begun]
		found = [(find_program(path, one.folder)[0], one.line) for one, path in paths]
		return [Miss("begin", program, line) for program, line in found if program and program not in every]
	for one in begun:
		path = one.path if one.path.startswith("/") else "%s/%s" % (one.base, one.path)
		program, interpreters = find_program(path, one.folder)
		noted = left.get(one.process) or []
		if not noted:
			missed.append(Miss("begin", path, one.line))
			continue
		begin = noted.pop(0)
		if program and begin != program:
			missed.append(Miss("begin", program, "%s began: %s" % (begin, one.line)))
		for interpreter in interpreters:
			names = names_of(one.folder, interpreter)
			if not any(known.kinds.get(name) for name in names):
				missed.append(Miss("interpreter", interpreter, one.line))
	for process, programs in left.items():
		missed += [
			Miss("exec", program, "process %d began it, and strace shows no exec" % process) for program in programs
		]
	return missed


def find_program(path: str, folder: str) -> Tuple[str, List[str]]:
	"""The file that runs when this is executed, if that can be said, and the interpreters on the way to it."""
	interpreters: List[str] = []
	while len(interpreters) < DEPTH:
		try:
			with open(path, "rb") as file:
				head = file.read(256)
		except OSError:
			return "", interpreters
		script = re.match(rb"#![ \t]*([^ \t\n]+)", head)
		if not script:
			return os.path.realpath(path), interpreters
		path = script.group(1).decode("latin-1")
		interpreters.append(path)
		path = os.path.join(folder, path)
	return "", interpreters
