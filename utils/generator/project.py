"""A project: a plan with the text of every file."""

from typing import Iterator, Tuple

from .buildfiles import build_file_texts, commands_text
from .marker import MARKER, marker_text
from .plan import Plan
from .program import program_main_text, program_part_text
from .sources import common_text, header_text, source_text


class Project(Plan):
	"""
	A benchmark project, by its parameters; the same parameters always yield the same files.

	Raises `Impossible` when they describe none.
	"""

	def count(self) -> int:
		common = self.libs if self.common else 0
		return common + 2 * self.libs * self.classes + len(self.program_sources()) + len(self.build_files) + 2

	def files(self) -> Iterator[Tuple[str, str]]:
		"""Every file as (relative path, text), the marker last: where it is, everything else is."""
		for lib in range(self.libs):
			for unit in self.library(lib):
				yield unit.stem + ".h", header_text(self, unit)
				yield unit.source, source_text(self, unit)
			if self.common:
				yield "lib_%d/common.h" % lib, common_text(self, lib)
		for number, path in enumerate(self.program_sources()):
			yield path, program_part_text(self, number - 1) if number else program_main_text(self)
		yield from build_file_texts(self).items()
		yield "commands.txt", commands_text(self)
		yield MARKER, marker_text(self)
