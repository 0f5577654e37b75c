"""The file that says that genbench made a folder, and from what."""

import json
import os
from dataclasses import asdict
from typing import Optional

from . import VERSION
from .plan import Plan

MARKER = "genbench.json"
INCOMPLETE = MARKER + ".incomplete"  # the marker until all files are there; then it is renamed


def marker_text(plan: Plan) -> str:
	# What was not asked for leaves no trace, so that the same arguments give the same bytes as before.
	project = {name: value for name, value in asdict(plan).items() if name != "common" or value}
	made = {"generator": "genbench", "version": VERSION, "project": project}
	return json.dumps(made, indent=1, sort_keys=True) + "\n"


def find_marker(root: str) -> Optional[str]:
	"""The marker that a folder has: `MARKER`, `INCOMPLETE`, or none when genbench did not make what is there."""
	for name in (MARKER, INCOMPLETE):
		try:
			with open(os.path.join(root, name), encoding="utf-8") as file:
				made = json.load(file)
		except (FileNotFoundError, NotADirectoryError, ValueError):
			continue
		if isinstance(made, dict) and made.get("generator") == "genbench":
			return name
	return None
