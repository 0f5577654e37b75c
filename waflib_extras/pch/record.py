"""
What was found out about the targets of a build: ``pch.json`` in the build folder.

It is written under another name and renamed. A file that cannot be read counts as empty, since all in it can be found
out again.
"""

import contextlib
import json
import os
from typing import Dict, NamedTuple, Optional

from ..facts.files import replace
from . import weighing

FORMAT = 1
NAME = "pch.json"


class Entry(NamedTuple):
	"""A target in one language."""

	options: str
	"""A digest of the options with which its headers were weighed."""
	weighed: weighing.Weighed


class Record:
	"""The content of the file."""

	def __init__(self, folder: str) -> None:
		self.path = os.path.join(folder, NAME)
		self.entries: Dict[str, Entry] = {}
		with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
			with open(self.path, encoding="utf-8") as f:
				content = json.load(f)
			if content["format"] == FORMAT:
				self.entries = {
					name: Entry(entry["options"], weighing.Weighed(**entry["weighed"]))
					for name, entry in content["targets"].items()
					if isinstance(entry["weighed"]["headers"], list) and isinstance(entry["weighed"]["sources"], int)
				}

	def find(self, name: str, options: str, sources: int) -> Optional[weighing.Weighed]:
		"""What was found out about a target, if it has changed little since."""
		entry = self.entries.get(name)
		if entry is None or entry.options != options:
			return None
		known = entry.weighed.sources
		return entry.weighed if known <= sources * 2 and sources <= known * 2 else None

	def put(self, name: str, options: str, weighed: weighing.Weighed) -> None:
		self.entries[name] = Entry(options, weighed)
		targets = {
			name: {"options": entry.options, "saved": entry.weighed.saved, "weighed": entry.weighed._asdict()}
			for name, entry in self.entries.items()
		}
		content = json.dumps({"format": FORMAT, "targets": targets}, indent=1, sort_keys=True)
		# if it cannot be written, the next build weighs again
		with contextlib.suppress(OSError):
			replace(self.path, content.encode())
