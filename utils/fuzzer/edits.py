"""Edits of a project: each says what it did, or nothing where there was nothing to do."""

import os
from typing import Callable, List

from hunt import run

from .project import CHECKOUTS, DATA, FOLDERS, HEADERS, SOURCES, Project


def change_header(project: Project) -> str:
	paths = project.some_headers()
	text = project.header_text(paths[0].name) if paths else b""
	for path in paths:
		project.write(path, text)
	return " ".join(map(str, paths))


def change_header_unseen(project: Project) -> str:
	"""Change a header at the same size and time."""
	paths = project.some_headers()
	for path in paths:
		before = path.stat()
		content = path.read_bytes()
		digit = project.rng.choice(b"123456789")
		at = next(i for i, byte in enumerate(content) if chr(byte).isdigit() and content[i + 1 : i + 3].isdigit())
		project.write(path, content[:at] + bytes([digit]) + content[at + 1 :])
		os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
	return " ".join(map(str, paths))


def add_header(project: Project) -> str:
	"""Add a header, which may shadow another one, or be one that a compile has looked for in vain."""
	folder, name = project.rng.choice(FOLDERS), project.rng.choice(HEADERS)
	text = project.header_text(name)
	paths = [checkout / folder / name for checkout in project.some_checkouts()]
	paths = [path for path in paths if not path.exists()]
	for path in paths:
		project.write(path, text)
	return " ".join(map(str, paths))


def remove_header(project: Project) -> str:
	paths = project.some_headers()
	for path in paths:
		project.past.setdefault(path, []).append(path.read_bytes())
		path.unlink()
	return " ".join(map(str, paths))


def rename_header(project: Project) -> str:
	"""Give the content, inode and times of a header another name."""
	paths = project.some_headers()
	name = "%s/%s" % (project.rng.choice(FOLDERS), project.rng.choice(HEADERS))
	for path in paths:
		checkout = next(parent for parent in path.parents if parent.name in CHECKOUTS)
		os.replace(path, checkout / name)
	return "%s to %s" % (" ".join(map(str, paths)), name) if paths else ""


def link_header(project: Project) -> str:
	"""Replace a header by a link to another one."""
	paths = project.some_headers()
	target = "../%s" % project.rng.choice(("src", "x", "y", "inc/x"))
	for path in paths:
		path.unlink()
		path.symlink_to("%s/%s" % (target, project.rng.choice(HEADERS)))
	return " ".join(map(str, paths))


def change_assembler(project: Project) -> str:
	"""Put another assembler into a folder that may be in `PATH`, or take it away, or forbid to execute it."""
	path = project.root / "tools" / "as"
	if path.exists() and project.rng.random() < 0.5:
		path.unlink()
		return "no %s" % path
	text = '#!/bin/sh\nexec /usr/bin/as --defsym found=%d "$@"\n' % project.rng.randint(1, 9)
	project.write(path, text.encode())
	path.chmod(project.rng.choice((0o755, 0o755, 0o644)))
	return str(path)


def restore_file(project: Project) -> str:
	"""Restore an earlier content, perhaps with an old time."""
	known = sorted(path for path, past in project.past.items() if past)
	if not known:
		return ""
	path = project.rng.choice(known)
	content = project.rng.choice(project.past[path])
	project.write(path, content)
	if project.rng.random() < 0.5:
		os.utime(path, (10**9, 10**9))
	return str(path)


def touch_file(project: Project) -> str:
	paths = project.some_headers()
	for path in paths:
		os.utime(path)
	return " ".join(map(str, paths))


def change_source(project: Project) -> str:
	name = project.rng.choice(SOURCES)
	text = project.source_text()
	for checkout in project.some_checkouts():
		project.write(checkout / name, text)
	return name


def change_data(project: Project) -> str:
	for checkout in project.some_checkouts():
		project.write(checkout / DATA, bytes(project.rng.randrange(256) for _ in range(4)))
	return DATA


def make_objects(project: Project) -> str:
	"""Compile objects without the cache, as far as the sources can be compiled."""
	for checkout in project.some_checkouts():
		for name in ("a", "b"):
			line = "gcc -fPIC -w -Iinc/x -Iinc/y -c src/%s.c -o obj/%s.o" % (name, name)
			run(line.split(), checkout)
	return "objects"


def change_scripts(project: Project) -> str:
	shell, python = project.shell_text(), project.python_text()
	value = b"VALUE = %d\n" % project.rng.randint(1, 9)
	for checkout in project.some_checkouts():
		for name, text in (("gen.sh", shell), ("gen.py", python), ("importable.py", value)):
			project.write(checkout / name, text)
	return "scripts"


def touch_nothing(project: Project) -> str:
	return "nothing"


EDITS: List[Callable[[Project], str]] = [
	*(change_header, change_header_unseen, add_header, remove_header, rename_header, link_header, restore_file),
	*(touch_file, change_source, change_data, change_assembler, touch_nothing, touch_nothing, touch_nothing),
]

TOOL_EDITS = [*EDITS, make_objects, make_objects, change_scripts]
