"""
Runs the compiler of a task for trials: how long headers take, and whether an object with them is the same.

All that a trial writes goes to a temporary folder.
"""

import contextlib
import os
import subprocess
import threading
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set

from waflib import Task

from . import reading

DEADLINE = 300.0
"""Seconds after which a compiler is stopped."""
TIMES, ENOUGH = 3, 2.0
"""A command runs so often, or until its runs have taken so many seconds."""


class Command(NamedTuple):
	"""The command with which a task compiles its source."""

	words: List[str]
	source: str
	"""As the command names it."""
	output: str
	folder: str
	environ: Optional[Dict[str, str]]

	def change(self, source: str, output: str, before: Sequence[str] = (), after: Sequence[str] = ()) -> List[str]:
		"""The same command for another source and output, with words before the source and at the end."""
		changed: List[str] = []
		for word in self.words:
			if word == self.source:
				changed += [*before, source]
			elif word.endswith(self.output) and word[: -len(self.output)] in ("", "-o"):
				changed.append(word[: -len(self.output)] + output)
			else:
				changed.append(word)
		return changed + list(after)


def find_command(task: Task.Task) -> Command:
	"""The command of a task, without running it."""
	told: List[Any] = []

	def exec_command(cmd: object, **kw: Any) -> int:
		told.append((cmd, kw))
		return 0

	task.exec_command = exec_command
	try:
		task.run()
	finally:
		del task.exec_command
	(words, kw), folder = told[0], task.get_cwd()
	return Command(
		[str(word) for word in words],
		task.inputs[0].path_from(folder),
		task.outputs[0].abspath(),
		folder.abspath(),
		kw.get("env"),
	)


def time(words: Sequence[str], command: Command) -> Optional[float]:
	"""The least seconds of several runs, since other programs only make them longer; None as in `run`."""
	found: List[float] = []
	while len(found) < TIMES and sum(found) < ENOUGH:
		seconds = run(words, command)
		if seconds is None:
			return None
		found.append(seconds)
	return min(found)


def run(words: Sequence[str], command: Command) -> Optional[float]:
	"""The seconds of processor time of a compiler; None if it fails or says anything."""
	read_end, write_end = os.pipe()
	try:
		process = subprocess.Popen(
			words,
			cwd=command.folder,
			env=command.environ,
			stdin=subprocess.DEVNULL,
			stdout=write_end,
			stderr=write_end,
		)
	except OSError:
		os.close(read_end)
		return None
	finally:
		os.close(write_end)
	timer = threading.Timer(DEADLINE, process.kill)
	timer.start()
	try:
		with os.fdopen(read_end, "rb") as said:
			is_silent = not said.read()
		_, status, used = os.wait4(process.pid, 0)
		process.returncode = status
	except BaseException:
		process.kill()
		process.wait()
		raise
	finally:
		timer.cancel()
	return used.ru_utime + used.ru_stime if status == 0 and is_silent else None


def find_words(paths: Iterable[str]) -> FrozenSet[str]:
	"""All words in these files."""
	found: Set[str] = set()
	for path in paths:
		with contextlib.suppress(OSError), open(path, encoding="latin-1") as f:
			found.update(reading.WORD.findall(f.read()))
	return frozenset(found)


def find_files(dependencies: str) -> List[str]:
	"""The files of a rule that a compiler has written, without its target."""
	_, _, listed = dependencies.replace("\\\n", " ").partition(": ")
	names = listed.replace("\\ ", "\0").split()
	return [name.replace("\0", " ").replace("\\#", "#").replace("$$", "$") for name in names]
