"""Edits of the header that most sources of a generated project include: for the scenario ``header``."""

import collections
import os
import re

from .mistake import Failed
from .project import Project

EDITS = {
	"comment": "// a comment that says nothing",
	"blank line": "\n" * 2,
	"unused macro": "#define UNUSED_IN_BENCH 1",
	"declaration": "extern int declared_in_bench;",
}
"""What is added amid the header. It changes the objects of no source."""
INCLUDE = re.compile(r'^#include "(?:.*/)?(.+)"$', re.MULTILINE)


class Header:
	"""The header, as it was at first and with all edits so far."""

	def __init__(self, project: Project) -> None:
		included = (set(INCLUDE.findall(project.read(source))) for source in project.sources())
		names = collections.Counter(name for names in included for name in names)
		if not names:
			raise Failed("no source includes a header of the project")
		# of those that are included as often always the same one
		name, self.users = max(sorted(names.items()), key=lambda found: found[1])
		self.path = next(path for path in project.found(".", name) if os.path.basename(path) == name)
		with open(self.path, encoding="utf-8") as f:
			self.original = f.read()
		self.lines = self.original.splitlines()

	def add(self, part: str) -> None:
		"""Make one more edit, amid the header and on a line of its own."""
		text = EDITS[part]
		middle = len(self.lines) // 2
		# neither within a class nor within an argument list
		at = next((n for n in range(middle, len(self.lines)) if self.lines[n].startswith(("#", "class", "struct"))), 1)
		self.lines.insert(at, text)
		self.write("\n".join([*self.lines, ""]))

	def restore(self) -> None:
		self.write(self.original)

	def write(self, text: str) -> None:
		with open(self.path, "w", encoding="utf-8") as f:
			f.write(text)
