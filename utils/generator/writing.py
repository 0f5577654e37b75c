"""Writing a project into a folder, which may hold one already."""

import os
import re
from typing import Callable, Optional

from .marker import INCOMPLETE, MARKER, find_marker, marker_text
from .plan import BUILD_FILES
from .project import Project


class Refused(Exception):
	"""The folder is not to be written; the message is one line that says why, and what to do."""


def generate(
	project: Project, root: str, force: bool = False, report: Callable[[int], None] = lambda written: None
) -> None:
	"""
	Write a project into a folder, and make the folder if need be. `report` is told the number of files written so far.

	However it ends, the folder has the marker if the project is complete, and the incomplete marker if it is not: so
	that what is there can be replaced. Raises `Refused` when the folder is not empty and `force` is not given, and
	OSError.
	"""
	found = find_marker(root)
	if not force:
		refuse_overwriting(root, found)
	elif found:
		remove_generated(root, found)
	os.makedirs(root, exist_ok=True)
	write_file(os.path.join(root, INCOMPLETE), marker_text(project))
	for folder in project.folders():
		os.makedirs(os.path.join(root, folder), exist_ok=True)
	for written, (path, text) in enumerate(project.files(), 1):
		if path == MARKER:
			os.replace(os.path.join(root, INCOMPLETE), os.path.join(root, MARKER))
		else:
			write_file(os.path.join(root, path), text)
		report(written)


def write_file(path: str, text: str) -> None:
	with open(path, "wb") as file:
		file.write(text.encode("ascii"))


def refuse_overwriting(root: str, found: Optional[str]) -> None:
	if found == MARKER:
		raise Refused("%s holds a project that genbench made: replace it with --force, or name another folder" % root)
	if found == INCOMPLETE:
		raise Refused("%s holds a part of a project: begin again with --force, or name another folder" % root)
	try:
		taken = bool(os.listdir(root))
	except FileNotFoundError:
		return
	if taken:
		raise Refused("%s is not empty: name another folder, or write into it with --force" % root)


def remove_generated(root: str, found: str) -> None:
	"""
	Remove files with names that genbench writes, of any version. Files of builds and of people stay.

	First of all the folder is marked as incomplete, which it is from then on, and stays so.
	"""
	if found == MARKER:
		os.replace(os.path.join(root, MARKER), os.path.join(root, INCOMPLETE))
	for name in ["commands.txt", *BUILD_FILES.values()]:
		remove_file(os.path.join(root, name))
	with os.scandir(root) as entries:
		folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
	for folder in folders:
		if folder.name == "program" or re.fullmatch(r"lib_\d+", folder.name):
			for name in os.listdir(folder.path):
				if re.fullmatch(r"class_\d+\.(h|c|cpp)|(main|lib_\d+)\.(c|cpp)", name):
					remove_file(os.path.join(folder.path, name))
			if not os.listdir(folder.path):
				os.rmdir(folder.path)


def remove_file(path: str) -> None:
	try:
		os.remove(path)
	except FileNotFoundError:
		pass
