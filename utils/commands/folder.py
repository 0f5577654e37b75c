"""
A folder in which commands run: what is in it, and how it is put back.

One folder serves all contenders, and what a command has left alone is not touched. So all of them meet the same files,
by their numbers and times, too, and a command that prints these prints the same.
"""

import os
import pathlib
import shutil
import stat
import time
from typing import Dict, NamedTuple

from .command import Everyday

OLD, YOUNGER = 3600, 3000  # seconds before now: the times of inputs, and of what a setup makes of them
SETTLE = 0.05  # seconds after which a file counts as not being written just now


class Entry(NamedTuple):
	"""A file, a folder or a link."""

	kind: str
	mode: int
	content: bytes
	"""Of a file; of a link, where it leads."""
	twin: str
	"""The first name of the same file; empty if it has one name only."""
	time: int


State = Dict[str, Entry]
"""By path, with the folder itself as ``.``: a folder is before what is in it."""


def scan(folder: pathlib.Path) -> State:
	"""All that is there now."""
	state: State = {}
	firsts: Dict[int, str] = {}

	def look(path: pathlib.Path, name: str) -> None:
		info = path.lstat()
		kind, content = "other", b""
		if stat.S_ISDIR(info.st_mode):
			kind = "folder"
		elif stat.S_ISLNK(info.st_mode):
			kind, content = "link", os.fsencode(os.readlink(path))
		elif stat.S_ISREG(info.st_mode):
			kind, content = "file", path.read_bytes()
		twin = firsts.setdefault(info.st_ino, name) if kind == "file" and info.st_nlink > 1 else ""
		state[name] = Entry(kind, stat.S_IMODE(info.st_mode), content, twin, info.st_mtime_ns)
		if kind == "folder":
			for each in sorted(os.listdir(path)):
				look(path / each, each if name == "." else "%s/%s" % (name, each))

	look(folder, ".")
	return state


def write_inputs(folder: pathlib.Path, command: Everyday) -> None:
	"""A new folder with a command's inputs, all of which are old."""
	folder.mkdir(parents=True)
	for name, text in command.files.items():
		file = folder / name
		file.parent.mkdir(parents=True, exist_ok=True)
		file.write_text(text, encoding="utf-8")
		file.chmod(0o755 if text.startswith("#!") else 0o644)
	make_old(folder, OLD)


def make_old(folder: pathlib.Path, age: int) -> None:
	"""Give what is there, and is not old yet, a time before now."""
	now = int(time.time())
	for name in reversed(list(scan(folder))):
		path = folder / name
		if path.lstat().st_mtime > now - YOUNGER:
			os.utime(path, (now, now - age), follow_symlinks=False)


def settle(folder: pathlib.Path) -> State:
	"""What is there, when it is not new any more, and was read: the system notes the first time of reading a file."""
	time.sleep(SETTLE)
	return scan(folder)


def restore(folder: pathlib.Path, before: State) -> None:
	"""Put back what was there before, and remove what was not. What is as it was is left alone."""
	now = scan(folder)
	for name, entry in reversed(list(now.items())):
		old = before.get(name)
		if old is None or (entry.kind, entry.twin) != (old.kind, old.twin) or differs(entry, old, "link"):
			remove(folder / name)
			del now[name]
	for name, old in before.items():
		path = folder / name
		if name not in now or differs(now[name], old, "file"):
			make(folder, name, old)
		if old.kind != "link" and stat.S_IMODE(path.stat().st_mode) != old.mode:
			path.chmod(old.mode)
	for name, old in reversed(list(before.items())):
		path = folder / name
		info = path.lstat()
		if info.st_mtime_ns != old.time:
			os.utime(path, ns=(info.st_atime_ns, old.time), follow_symlinks=False)


def differs(entry: Entry, old: Entry, kind: str) -> bool:
	return old.kind == kind and entry.content != old.content


def remove(path: pathlib.Path) -> None:
	if path.is_dir() and not path.is_symlink():
		shutil.rmtree(path)
	else:
		path.unlink()


def make(folder: pathlib.Path, name: str, old: Entry) -> None:
	path = folder / name
	if old.kind == "folder":
		path.mkdir()
	elif old.kind == "link":
		path.symlink_to(os.fsdecode(old.content))
	elif old.twin and old.twin != name and not path.exists():
		os.link(folder / old.twin, path)
	else:
		if path.exists():
			path.chmod(old.mode | stat.S_IWUSR)
		path.write_bytes(old.content)
