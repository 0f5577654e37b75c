"""
Build a project twice at one and the same path, and tell in what the two builds differ.

It knows what a Waf build prints and leaves behind, not what makes the two builds different: that is in the environment
that the caller gives to each.
"""

import collections
import fnmatch
import io
import os
import pathlib
import re
import shutil
import stat
import subprocess
import time
import zipfile
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

# ---- what counts as the same

# Waf's own memory: pickles of sets and of files' times, and a lock file with the environment and the arguments
STATE = (".wafpickle-*", ".lock-waf*")

CHECKED = r"(?<=\.conf_check_)[0-9a-f]{32}"
"""In folders of configuration tests: a digest of objects as text, and so of their addresses."""

# what no two runs of the very same Waf have in common
PASSING = (
	(re.compile(rb"finished successfully \([0-9hms.]+\)"), b"finished successfully (TIME)"),
	(re.compile(rb"\b\d\d:\d\d:\d\d (?=\w+ )"), b"TIME "),  # before each line of -v and --zones
	(re.compile(rb"^(# project .* configured on ).* by$", re.M), rb"\1DATE by"),
	(re.compile(rb"\{task \d+:"), b"{task ADDRESS:"),
	(re.compile(rb"(?<=/)cc\w{6}(?=\.\w)"), b"ccNAME"),  # temporary files of gcc, which it shows with -v
	(re.compile(CHECKED.encode()), b"DIGEST"),
	# the frames of a traceback name the code that it passed through; what is to be the same is the exception
	(re.compile(rb"^(?P<in>\s*)File \".*\", line \d+, in .*\n(?:(?P=in)  .*\n)*", re.M), b""),
)
PROGRESS = re.compile(rb"^\[ *-?\d+/\d+\] ", re.M)  # below nought where threads of stock Waf race

View = Callable[[bytes], Any]


def sort_lines(content: bytes) -> bytes:
	"""The lines in a fixed order, without the numbers that show the original order."""
	return b"\n".join(sorted(PROGRESS.sub(b"", content).split(b"\n")))


def list_members(content: bytes) -> List[Tuple[str, bytes]]:
	"""The files of a jar, without their times; a jar among them may be this very one, half-written."""
	with zipfile.ZipFile(io.BytesIO(content)) as archive:
		return [(name, b"" if name.endswith(".jar") else archive.read(name)) for name in archive.namelist()]


def blur(pattern: str) -> View:
	"""A view that does not see what a regular expression matches."""
	compiled = re.compile(pattern.encode(), re.M)
	return lambda content: compiled.sub(b"", content)


def close_eyes(content: bytes) -> None:
	"""A view that ignores the content: the file only has to exist."""


class Exemption(NamedTuple):
	"""A known difference between two runs of the same build, and its reason."""

	where: str  # a pattern for paths below the folder, or MESSAGES
	view: View  # turns a content into what can be compared
	reason: str
	parallel: bool = False  # only when several jobs run at once


MESSAGES = "messages"


class Standard(NamedTuple):
	"""The rules by which two builds are compared."""

	ordered: bool = True  # whether the order of messages counts
	exemptions: Sequence[Exemption] = ()
	ignored: Sequence[str] = STATE

	def see_messages(self, content: bytes) -> Any:
		"""The view for an output."""
		return self._see_text(MESSAGES, content)

	def see_file(self, path: str, content: bytes) -> Any:
		"""The view for a file."""
		if path.endswith(".log"):  # Waf's own
			return self._see_text(path, content)
		return self._see(path, content)

	def _see_text(self, where: str, content: bytes) -> Any:
		for pattern, instead in PASSING:
			content = pattern.sub(instead, content)
		seen = self._see(where, content)
		return seen if self.ordered or not isinstance(seen, bytes) else sort_lines(seen)

	def _see(self, where: str, content: Any) -> Any:
		for exemption in self.exemptions:
			if fnmatch.fnmatchcase(where, exemption.where) and not (exemption.parallel and self.ordered):
				content = exemption.view(content)
		return content


# ---- building


class Run(NamedTuple):
	"""One command of a build, and its result."""

	command: Tuple[str, ...]
	status: int
	stdout: bytes
	stderr: bytes
	seconds: float = 0.0

	def __str__(self) -> str:
		output = (self.stdout + self.stderr).decode(errors="replace")
		return f"$ {' '.join(self.command)}\n{output}-> {self.status}"


class Build(NamedTuple):
	"""A folder in which a project was built, and the commands that did it."""

	folder: pathlib.Path
	runs: List[Run]

	@property
	def succeeded(self) -> bool:
		return all(run.status == 0 for run in self.runs)

	@property
	def seconds(self) -> float:
		return sum(run.seconds for run in self.runs)


def run_command(command: Sequence[str], cwd: pathlib.Path, env: Mapping[str, str], timeout: Optional[float]) -> Run:
	"""Run a command to its end, with its two outputs kept apart."""
	start = time.monotonic()
	done = subprocess.run(
		command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
	)
	return Run(tuple(command), done.returncode, done.stdout, done.stderr, time.monotonic() - start)


def build_aside(
	sources: Mapping[pathlib.Path, pathlib.Path],
	folder: pathlib.Path,
	aside: pathlib.Path,
	commands: Iterable[Sequence[str]],
	env: Mapping[str, str],
	start: str = ".",
	timeout: Optional[float] = None,
	run: Callable[..., Run] = run_command,
) -> Build:
	"""
	Copy `sources`, given as {from: to below folder}, into a new `folder`; run commands there, in `start`, up to the
	first that fails; and move all of it `aside`, so that the next build can have the same path.
	"""
	for source, copy in sources.items():
		shutil.copytree(source, folder / copy, symlinks=True)
	runs: List[Run] = []
	for command in commands:
		runs.append(run(command, folder / start, env, timeout))
		if runs[-1].status:
			break
	aside.parent.mkdir(parents=True, exist_ok=True)
	folder.rename(aside)
	return Build(aside, runs)


# ---- comparing


def list_tree(folder: pathlib.Path, ignored: Sequence[str]) -> Dict[str, os.stat_result]:
	"""Everything below a folder but what has an ignored name, by its path from there."""
	found = {}
	for base, folders, files in os.walk(folder):
		for name in folders + files:
			if not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored):
				path = os.path.join(base, name)
				found[os.path.relpath(path, folder)] = os.lstat(path)
	return found


def read_entry(folder: pathlib.Path, path: str, mode: int, standard: Standard) -> Any:
	"""The part of an entry that is compared: the content of a file, or the target of a link."""
	if stat.S_ISLNK(mode):
		return os.readlink(folder / path)
	if stat.S_ISREG(mode):
		return standard.see_file(path, (folder / path).read_bytes())
	return None


def compare_trees(one: pathlib.Path, other: pathlib.Path, standard: Standard) -> List[str]:
	"""The paths in which two folders differ, and how."""
	first, second = list_tree(one, standard.ignored), list_tree(other, standard.ignored)
	found = dict.fromkeys(first.keys() - second.keys(), "only in the first")
	found.update(dict.fromkeys(second.keys() - first.keys(), "only in the second"))
	for path in first.keys() & second.keys():
		modes = first[path].st_mode, second[path].st_mode
		if modes[0] != modes[1]:
			found[path] = f"mode {modes[0]:o}, mode {modes[1]:o}"
		elif read_entry(one, path, modes[0], standard) != read_entry(other, path, modes[1], standard):
			found[path] = "another content"
	return [f"{path}: {how}" for path, how in sorted(found.items())]


def split_lines(text: bytes) -> List[str]:
	"""The lines of an output, to be shown."""
	return text.decode(errors="backslashreplace").split("\n")


def compare_messages(one: bytes, other: bytes, standard: Standard) -> List[str]:
	"""The lines in which two outputs differ."""
	one, other = standard.see_messages(one), standard.see_messages(other)
	if one == other:
		return []
	first, second = split_lines(one), split_lines(other)
	lost = collections.Counter(first) - collections.Counter(second)
	more = collections.Counter(second) - collections.Counter(first)
	lines = [f"- {line}" for line in lost.elements()] + [f"+ {line}" for line in more.elements()]
	return lines or ["the same lines in another order:", *(f"  {line}" for line in second)]


def compare_builds(one: Build, other: Build, standard: Standard) -> List[str]:
	"""Every difference between two builds: files, exit statuses, messages."""
	found = compare_trees(one.folder, other.folder, standard)
	if len(one.runs) != len(other.runs):
		found.append(f"{len(one.runs)} commands, {len(other.runs)} commands")
	for first, second in zip(one.runs, other.runs):
		if first.status != second.status:
			found.append(f"status {first.status}, status {second.status}")
		for name in ("stdout", "stderr"):
			lines = compare_messages(getattr(first, name), getattr(second, name), standard)
			found += [f"{name} {line}" for line in lines]
	return found
