"""
Edits of a project that Waf could miss: each says what it did, or nothing where there was nothing to do.

``Project`` is the folder, the random choices, and the variables of the next build.
"""

import contextlib
import os
import pathlib
import random
from typing import Callable, Dict, List

from . import plan


class Project:
	"""A folder with sources."""

	def __init__(self, folder: pathlib.Path, rng: random.Random) -> None:
		self.folder = folder
		self.rng = rng
		self.environ: Dict[str, str] = {}
		self.rules: List[plan.Rule] = []

	def prepare(self) -> None:
		"""Write a new project into an empty folder."""
		rng = self.rng
		self.rules = plan.choose_rules(rng)
		for name in plan.FOLDERS:
			(self.folder / name).mkdir(parents=True)
		(self.folder / "inc").mkdir()
		for name in plan.FOLDERS:
			for file in plan.NAMES:
				if rng.random() < 0.8:
					self.write("%s/%s" % (name, file), self.text())
		for link in plan.LINKS:
			(self.folder / "d0" / link).symlink_to(rng.choice(plan.NAMES))
		for script in plan.SCRIPTS:
			self.write(script, plan.write_script(rng))
		for number, source in enumerate(plan.SOURCES):
			self.write(source, plan.write_source(rng, number))
		self.write("main.c", plan.write_main())
		self.write("inc/h.h", "#define G 100\n")
		self.write("inc/more.h", '#include "h.h"\n')
		self.write("base.txt", self.text())
		self.write("wscript", plan.write_wscript(self.rules))

	def text(self) -> str:
		return "".join(self.rng.choice("abcdxyz \n") for _ in range(self.rng.choice((4, 4, 9, 30)))) + "\n"

	def write(self, name: str, text: str) -> None:
		(self.folder / name).write_text(text)

	def path(self) -> pathlib.Path:
		return self.folder / self.rng.choice(plan.FOLDERS) / self.rng.choice(plan.NAMES)

	def file(self) -> pathlib.Path:
		"""An existing file that tasks look at."""
		known = [path for folder in plan.FOLDERS for path in sorted((self.folder / folder).iterdir()) if is_plain(path)]
		others = [self.folder / name for name in ("base.txt", "inc/h.h", *plan.SCRIPTS)]
		return self.rng.choice(known * 3 + others)

	def name(self, path: pathlib.Path) -> str:
		return str(path.relative_to(self.folder))


def is_plain(path: pathlib.Path) -> bool:
	return path.is_file() and not path.is_symlink()


def put_back(path: pathlib.Path, before: os.stat_result) -> None:
	os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def vary(project: Project, content: bytes) -> bytes:
	"""Other bytes of the same size, with which a C file or script is still one."""
	places = [at for at, byte in enumerate(content) if byte in b"0123456789" and not content[at - 1 : at].isalpha()]
	plain = [at for at, byte in enumerate(content) if byte in b"abcdxyz"]
	if content[:1] in b"#(" or b"int " in content:
		if not places:
			return content
		at = project.rng.choice(places)
		return content[:at] + bytes([project.rng.choice(b"123456789")]) + content[at + 1 :]
	if not plain:
		return content
	at = project.rng.choice(plain)
	return content[:at] + bytes([project.rng.choice(b"abcdxyz")]) + content[at + 1 :]


def change_unseen(project: Project) -> str:
	"""Change a file at the same size and time, in place or by a rename."""
	path = project.file()
	if path.name.endswith(".sh"):
		return ""
	before = path.stat()
	content = vary(project, path.read_bytes())
	if project.rng.random() < 0.5:
		path.write_bytes(content)
	else:
		fresh = project.folder / "fresh"
		fresh.write_bytes(content)
		fresh.chmod(before.st_mode & 0o777)
		fresh.rename(path)
	put_back(path, before)
	return project.name(path)


def change_static(project: Project) -> str:
	"""A source's variable has the name of another one's, at the same size and time."""
	number = project.rng.randrange(len(plan.SOURCES))
	path = project.folder / plan.SOURCES[number]
	before, text = path.stat(), path.read_text()
	new = project.rng.choice(plan.STATICS)
	for name in plan.STATICS:
		text = text.replace(name, new)
	path.write_text(text)
	put_back(path, before)
	return "%s: %s" % (path.name, new)


def change_content(project: Project) -> str:
	path = project.path()
	with contextlib.suppress(FileNotFoundError):
		path.unlink()
	path.write_text(project.text())
	return project.name(path)


def change_script(project: Project) -> str:
	name = project.rng.choice(plan.SCRIPTS)
	project.write(name, plan.write_script(project.rng))
	return name


def change_mode(project: Project) -> str:
	path = project.path()
	if not is_plain(path):
		return ""
	path.chmod(project.rng.choice((0o644, 0o755, 0o600, 0o711)))
	return project.name(path)


def change_time(project: Project) -> str:
	path = project.path()
	if not is_plain(path):
		return ""
	os.utime(path, ns=(10**18, project.rng.choice((10**18, 10**18 + 1, 2 * 10**18 // 2 + 10**9))))
	return project.name(path)


def touch(project: Project) -> str:
	path = project.file()
	os.utime(path)
	return project.name(path)


def turn_link(project: Project) -> str:
	path = project.folder / project.rng.choice(plan.FOLDERS) / project.rng.choice(plan.LINKS)
	with contextlib.suppress(FileNotFoundError):
		path.unlink()
	if project.rng.random() < 0.8:
		path.symlink_to(project.rng.choice((*plan.NAMES, "nowhere", "../d0/f1", "../d1/sub", "../d1/f2")))
	return project.name(path)


def add_file(project: Project) -> str:
	path = project.folder / project.rng.choice(plan.FOLDERS) / ("n%d" % project.rng.randrange(4))
	if path.exists() or path.is_symlink():
		return ""
	if project.rng.random() < 0.2:
		path.mkdir()
	else:
		path.write_text(project.text())
	return project.name(path)


def remove(project: Project) -> str:
	path = project.folder / project.rng.choice(plan.FOLDERS) / project.rng.choice(("n0", "n1", "n2", "n3", *plan.NAMES))
	if path.is_dir():
		path.rmdir()
	elif path.exists():
		path.unlink()
	else:
		return ""
	return project.name(path)


def move(project: Project) -> str:
	one, other = project.path(), project.path()
	if one == other or not is_plain(one) or other.is_dir():
		return ""
	one.rename(other)
	return "%s to %s" % (project.name(one), project.name(other))


def swap(project: Project) -> str:
	"""Two files have each other's names."""
	one, other = project.path(), project.path()
	if one == other or not is_plain(one) or not is_plain(other):
		return ""
	one.rename(project.folder / "fresh")
	other.rename(one)
	(project.folder / "fresh").rename(other)
	return "%s and %s" % (project.name(one), project.name(other))


def link_hard(project: Project) -> str:
	one, other = project.path(), project.path()
	if one == other or not is_plain(one) or other.is_dir():
		return ""
	with contextlib.suppress(FileNotFoundError):
		other.unlink()
	os.link(one, other)
	return "%s to %s" % (project.name(one), project.name(other))


def set_variable(project: Project) -> str:
	name = project.rng.choice(plan.VARIABLES)
	value = project.rng.choice(("", "1", "2", None))
	if value is None:
		project.environ.pop(name, None)
	else:
		project.environ[name] = value
	return "%s=%s" % (name, value)


def shadow_header(project: Project) -> str:
	"""A header appears where it is looked for first, or is gone from there."""
	path = project.folder / "h.h"
	if path.exists():
		path.unlink()
	else:
		path.write_text("static int %s;\n#define G 200\n" % project.rng.choice(plan.STATICS))
	return path.name


def change_nothing(project: Project) -> str:
	return "nothing"


EDITS: List[Callable[[Project], str]] = [
	*(change_unseen, change_unseen, change_unseen, change_static, change_static, change_content, change_script),
	*(change_mode, change_mode, change_time, touch, turn_link, turn_link, add_file, remove, move, swap, link_hard),
	*(set_variable, set_variable, shadow_header, change_nothing),
]
