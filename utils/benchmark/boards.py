"""Two boards of a generated project, as firmware has them: for the scenario ``boards``."""

import os
import re
from typing import Dict, List

from .headers import Header
from .mistake import Failed
from .project import Project, write_files

BOARDS = (1, 2, 1)
PARTS = ("first board", "second board", "first board again")
PINS = 240
SHARE = 8  # of so many sources, one uses what differs between the boards
GENERATED = "board.h"
FLAGS = re.compile(r"^(cxxflags|cflags) = (.*)$", re.MULTILINE)


class Boards:
	"""
	A project with two boards.

	Each has macros of its own on the command line, and a generated header that all sources include. Most of its macros
	have another value for each board, and some sources use one of them.
	"""

	def __init__(self, project: Project) -> None:
		self.project = project
		self.header = Header(project)
		self.originals: Dict[str, str] = {}
		sources = project.sources()
		if self.header.users < len(sources):
			raise Failed("no header is included by all sources: use --common, and one library")
		self.change(self.header.path, '#include "%s"\n' % GENERATED, at_end=False)
		self.change(os.path.join(project.root, "build.ninja"), "", at_end=True)
		self.users: List[str] = sources[::SHARE]
		for number, source in enumerate(self.users):
			text = "\nint pin_of_board_%d(void) { return BOARD_PIN_%d; }\n" % (number, number % PINS)
			self.change(os.path.join(project.root, source), text, at_end=True)

	def change(self, path: str, text: str, at_end: bool) -> None:
		with open(path, encoding="utf-8") as f:
			original = self.originals[path] = f.read()
		self.write(path, original + text if at_end else text + original)

	def write(self, path: str, text: str) -> None:
		write_files("", {path: text})

	def choose(self, board: int) -> None:
		"""Generate the header of a board, and put its macros on the command line."""
		pins = "".join("#define BOARD_PIN_%d %d\n" % (n, (7 * n + 13 * board) % 97) for n in range(PINS))
		name = '#define BOARD_NAME "board-%d"\n#define BOARD_FOLDER "/firmware/build/board-%d"\n' % (board, board)
		self.write(os.path.join(self.project.root, GENERATED), "#pragma once\n" + name + pins)
		path = os.path.join(self.project.root, "build.ninja")
		macros = "-DBOARD=%d -DBOARD_%d -DCLOCK_MHZ=%d" % (board, board, 100 * board + 68)
		self.write(path, FLAGS.sub(r"\1 = \2 " + macros, self.originals[path]))

	def restore(self) -> None:
		for path, text in self.originals.items():
			self.write(path, text)
		os.unlink(os.path.join(self.project.root, GENERATED))
