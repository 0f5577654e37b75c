"""
Reads a trace of strace: which process accessed which path in which way, and which programs began.

Paths are as they were given, with the folder from which they are meant. A name below ``/proc/self/fd`` and the like is
replaced by what the descriptor was at that time.
"""

import ast
import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

# by call, pairs of arguments: the descriptor of a folder (-1: none), and the path
PLAIN, AT = ((-1, 0),), ((0, 1),)
WORDS: Dict[Tuple[Tuple[int, int], ...], str] = {
	PLAIN: """
		open creat stat lstat stat64 lstat64 access readlink chdir mkdir rmdir unlink truncate truncate64 chmod chown
		lchown chown32 lchown32 execve mknod utime utimes statfs statfs64 getxattr lgetxattr listxattr llistxattr
		setxattr lsetxattr removexattr lremovexattr chroot acct swapon swapoff uselib quotactl umount umount2 oldstat
		oldlstat
	""",
	AT: """
		openat openat2 newfstatat fstatat64 statx faccessat faccessat2 fchmodat fchmodat2 readlinkat mkdirat unlinkat
		utimensat futimesat fchownat execveat mknodat open_tree name_to_handle_at inotify_add_watch utimensat_time64
	""",
	((-1, 0), (-1, 1)): "rename link mount pivot_root",
	((0, 1), (2, 3)): "renameat renameat2 linkat move_mount",
	((3, 4),): "fanotify_mark",
	((-1, 1),): "symlink",
	((1, 2),): "symlinkat",
}
PATHS = {name: places for places, names in WORDS.items() for name in names.split()}
STATUS = ("stat", "lstat", "stat64", "lstat64", "newfstatat", "fstatat64", "statx", "oldstat", "oldlstat")
CHANGES = """
	creat mkdir rmdir unlink truncate truncate64 chmod chown lchown chown32 lchown32 mknod utime utimes setxattr
	lsetxattr removexattr lremovexattr fchmodat fchmodat2 mkdirat unlinkat utimensat futimesat fchownat mknodat
	utimensat_time64 rename renameat renameat2 symlink symlinkat
"""
UNWATCHED = ("inotify_add_watch",)  # its descriptor is no folder
NOTHING = ("EBADF", "EFAULT")  # the kernel has not come to look at a path
NAMELESS = ("memfd_create", "getcwd")  # their texts are no paths that they were given
PARENTS = ("fork", "vfork", "clone", "clone3")
MAGIC = re.compile(r"^/proc/(self|thread-self|\d+)/(?:task/\d+/)?(?:fd/(\d+)|(cwd)|(root)|(exe))(/.*)?$")
DEVICE = re.compile(r"^/dev/(?:fd/(\d+)|(stdin)|(stdout)|(stderr))(/.*)?$")
GONE = "(deleted)"
ANNOTATED = re.compile(r"^(AT_FDCWD|-?\d+)<(.*)>(\(deleted\))?$", re.S)
RESULT = re.compile(r"\) += (-?\d+|\?)(?:<([^>]*)>(\(deleted\))?)?(?: (E[A-Z0-9]+)\b)?", re.S)


class Seen(NamedTuple):
	"""A path that the kernel was given."""

	process: int
	need: str  # the kind of note that it needs
	base: str  # the folder from which it is meant
	path: str
	is_found: bool
	is_file: bool  # the path is that of an open file, and so one without links
	line: str


class Begun(NamedTuple):
	"""A program that the kernel has started."""

	process: int
	base: str
	path: str
	folder: str  # of the process
	line: str


class Place:
	"""From where paths are meant; processes may share it."""

	def __init__(self, folder: str, root: str = "") -> None:
		self.folder, self.root = folder, root


class Process:
	"""The state that a process shares with its children, or copies for them."""

	def __init__(self, leader: int, place: Place, files: Dict[int, str]) -> None:
		self.leader, self.place, self.files = leader, place, files
		self.program = ""

	def leave_others(self) -> None:
		self.place = Place(self.place.folder, self.place.root)

	def fork(self, number: int, flags: str) -> "Process":
		files = self.files if "CLONE_FILES" in flags else dict(self.files)
		child = Process(self.leader if "CLONE_THREAD" in flags else number, self.place, files)
		if "CLONE_FS" not in flags:
			child.leave_others()
		child.program = self.program
		return child


def split_arguments(text: str) -> List[str]:
	"""At commas that are in no text, no list and no path of a descriptor."""
	found, start, depth, at = [], 0, 0, 0
	while at < len(text):
		char = text[at]
		if char == '"':
			at += 1
			while at < len(text) and text[at] != '"':
				at += 2 if text[at] == "\\" else 1
		elif char == "<" and at and (text[at - 1].isdigit() or text[at - 1] == "D"):
			at = text.find(">", at) if text.find(">", at) >= 0 else len(text)
		elif char in "([{":
			depth += 1
		elif char in ")]}":
			depth -= 1
		elif char == "," and depth == 0:
			found.append(text[start:at].strip())
			start = at + 1
		at += 1
	return [*found, text[start:].strip()]


def unquote(word: str) -> Optional[str]:
	if not word.startswith('"'):
		return None
	return bytes(ast.literal_eval("b" + word[: word.rindex('"') + 1])).decode("latin-1")


class Call(NamedTuple):
	process: int
	name: str
	arguments: List[str]
	result: int
	error: str
	file: str  # the file of the descriptor that it returned
	line: str


def read_calls(log: str) -> List[Call]:
	"""Each when it was done."""
	pending: Dict[str, str] = {}
	found = []
	for line in log.split("\n"):
		number, _, rest = line.partition(" ")
		rest = rest.strip()
		changed = re.search(r"<pid changed to (\d+) \.\.\.>$", rest)
		if changed:
			# a thread that executes a program becomes its whole process
			pending[changed.group(1)] = rest[: changed.start()]
			continue
		if rest.endswith("<unfinished ...>"):
			pending[number] = rest[: -len("<unfinished ...>")]
			continue
		resumed = re.match(r"<\.\.\. \w+ resumed>", rest)
		if resumed:
			rest = pending.pop(number, "") + rest[resumed.end() :]
		name = re.match(r"(\w+)\(", rest)
		results = list(RESULT.finditer(rest))
		if not name or not results or results[-1].group(1) == "?":
			continue
		result, file, gone, error = results[-1].groups()
		if error in NOTHING:
			continue
		file = GONE if gone else file
		arguments = split_arguments(rest[name.end() : results[-1].start()])
		found.append(Call(int(number), name.group(1), arguments, int(result), error or "", file or "", rest))
	return found


class Reader:
	"""Follows the processes."""

	def __init__(self, log: str, folder: str) -> None:
		self.calls = read_calls(log)
		self.seen: List[Seen] = []
		self.begun: List[Begun] = []
		self.parents = {call.result: call for call in self.calls if call.name in PARENTS and call.result > 0}
		self.first = self.calls[0].process if self.calls else 0
		self.processes: Dict[int, Process] = {self.first: Process(self.first, Place(folder), {})}

	def process(self, number: int) -> Process:
		if number not in self.processes:
			call = self.parents.get(number)
			if call is None:
				raise ValueError("strace shows no parent of process %d" % number)
			self.processes[number] = self.process(call.process).fork(number, " ".join(call.arguments))
		return self.processes[number]

	def read(self) -> None:
		for call in self.calls:
			process = self.process(call.process)
			if call.name in PARENTS and call.result > 0:
				self.process(call.result)  # now, because it inherits the present state
			self.learn(process, call)
			if call.name == "execve" or call.name == "execveat":
				self.execute(process, call)
			elif call.name in PATHS:
				self.look(process, call)
			elif call.name.startswith("getdents") and call.result >= 0:
				self.note(process, "list", "", self.file_of(process, call.arguments[0]), call)
			elif call.name == "fchdir" and call.result == 0:
				process.place.folder = self.file_of(process, call.arguments[0])
			elif call.name == "unshare" and "CLONE_FS" in call.line and call.result == 0:
				process.leave_others()
			elif call.name in ("connect", "bind"):
				path = re.search(r'sun_path=("(?:[^"\\]|\\.)*")', call.line)
				if path:
					self.note(process, "any", process.place.folder, unquote(path.group(1)) or "", call)
			elif call.name not in NAMELESS:
				# one that this does not know: each of its texts may be a path
				for word in call.arguments:
					self.note(process, "any", process.place.folder, unquote(word) or "", call)

	def learn(self, process: Process, call: Call) -> None:
		"""Learn the files of its descriptors."""
		for word in call.arguments:
			annotated = ANNOTATED.match(word)
			if annotated and annotated.group(1) == "AT_FDCWD":
				process.place.folder = annotated.group(2)
			elif annotated:
				process.files[int(annotated.group(1))] = GONE if annotated.group(3) else annotated.group(2)
		if call.file and call.result >= 0:
			process.files[call.result] = call.file

	def file_of(self, process: Process, word: str) -> str:
		annotated = ANNOTATED.match(word)
		if not annotated:
			return process.place.folder if word == "AT_FDCWD" else ""
		return GONE if annotated.group(3) else annotated.group(2)

	def execute(self, process: Process, call: Call) -> None:
		folder, at = AT[0] if call.name == "execveat" else PLAIN[0]
		path = unquote(call.arguments[at])
		if path is None:
			return
		base = self.file_of(process, call.arguments[folder]) if folder >= 0 else process.place.folder
		if not path:
			base, path = "", base
		# the first is strace's own
		if self.begun:
			self.note(process, "execute", base, path, call)
		if call.result == 0:
			base, path = self.follow(process, base, path)
			self.begun.append(Begun(process.leader, base, path, process.place.folder, call.line))
			process.program = path
			process.files = dict(process.files)

	def look(self, process: Process, call: Call) -> None:
		need = need_of(call)
		for folder, at in PATHS[call.name]:
			path = unquote(call.arguments[at]) if at < len(call.arguments) else None
			if path is None or (call.name == "mount" and at == 0 and "MS_BIND" not in call.line):
				continue
			is_watch = call.name in UNWATCHED
			base = process.place.folder if folder < 0 or is_watch else self.file_of(process, call.arguments[folder])
			if not path:
				if call.name == "readlinkat" and call.result >= 0:
					self.note(process, "link", "", base, call)
				continue
			self.note(process, need, base, path, call)
		if call.name in ("chdir", "chroot") and call.result == 0:
			base, path = self.follow(process, process.place.folder, unquote(call.arguments[0]) or "")
			whole = path if path.startswith("/") else "%s/%s" % (base, path)
			if call.name == "chdir":
				process.place.folder = whole
			else:
				process.place.root = "" if os.path.realpath(whole) == "/" else whole

	def follow(self, process: Process, base: str, path: str) -> Tuple[str, str]:
		"""The path outside of a chroot."""
		base, path = self.follow_magic(process, base, path)
		if process.place.root and base and path.startswith("/"):
			path = process.place.root + path
		return base, path

	def follow_magic(self, process: Process, base: str, path: str) -> Tuple[str, str]:
		"""Resolve names that differ for each process, such as `/proc/self/cwd`; the base is empty for an open file."""
		device = DEVICE.match(path)
		if device:
			number = device.group(1) or str([device.group(n) is not None for n in (2, 3, 4)].index(True))
			path = "/proc/self/fd/%s%s" % (number, device.group(5) or "")
		magic = MAGIC.match(path)
		if not magic:
			own = re.match(r"^/proc/(\d+)(/.*)?$", path)
			if own and int(own.group(1)) in self.processes:
				path = "/proc/self%s" % (own.group(2) or "/")
			return base, path
		who = process
		if magic.group(1).isdigit():
			if int(magic.group(1)) not in self.processes:
				return base, path
			who = self.processes[int(magic.group(1))]
		if magic.group(4):
			return base, magic.group(6) or "/"
		target = who.place.folder if magic.group(3) else who.program
		if magic.group(2):
			target = who.files.get(int(magic.group(2)), "")
		if not target.startswith("/"):
			return "", ""  # a pipe, or a file that is gone
		rest = magic.group(6)
		return (target, rest.lstrip("/") or ".") if rest else ("", target)

	def note(self, process: Process, need: str, base: str, path: str, call: Call) -> None:
		is_found = call.result >= 0
		is_itself = need in ("link", "itself") and MAGIC.match(path) and not MAGIC.match(path).group(6)  # type: ignore[union-attr]
		if is_itself:
			# which name it is, not what is there; where a process is must be noted all the same
			if not path.endswith("/cwd"):
				return
			need = "locate"
		else:
			base, path = self.follow(process, base, path)
		if path.startswith("/") or (base and path):
			is_file = not base
			self.seen.append(
				Seen(process.leader, need if is_found else "any", base or "/", path, is_found, is_file, call.line)
			)


def need_of(call: Call) -> str:
	"""The kind of note that an existing path needs."""
	name, flags = call.name, " ".join(call.arguments)
	if name in ("open", "openat", "openat2"):
		if "O_PATH" in flags or "O_TMPFILE" in flags or "O_DIRECTORY" in flags:
			return "any"
		return "write" if "O_WRONLY" in flags else "content"
	if name in STATUS:
		return "itself" if name in ("lstat", "lstat64", "oldlstat") or "AT_SYMLINK_NOFOLLOW" in flags else "status"
	if name in ("readlink", "readlinkat"):
		return "link"
	if name == "chdir":
		return "enter"
	return "write" if name in CHANGES.split() else "any"


def read_trace(log: str, folder: str) -> Tuple[List[Seen], List[Begun]]:
	reader = Reader(log, folder)
	reader.read()
	return reader.seen, reader.begun
