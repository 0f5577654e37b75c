"""A record of all values as JSON, which grows while a program runs, and the end of what is printed of it."""

import json
import os
import pathlib
from typing import Any, Dict, Sequence

from .mistake import Mistake


def write_record(path: pathlib.Path, record: Dict[str, Any]) -> None:
	"""Write it in one step, so that a reader finds the old record or the new one."""
	part = path.with_suffix(".part")
	part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
	os.replace(part, path)


def check_folder(option: str, path: str) -> None:
	"""Complain about a folder in which nothing can be made."""
	if not os.access(path, os.W_OK | os.X_OK):
		raise Mistake("%s: %s is no folder to write in" % (option, path))


def print_end(machine: Dict[str, Any], failed: Sequence[str], left_out: Sequence[str]) -> None:
	"""Print what was not measured, and on which machine the rest was."""
	for title, lines in (("failed", failed), ("left out", left_out)):
		for line in lines:
			print("%s: %s" % (title, line))
	print("%s, %s, load before it %s" % tuple(machine[key] for key in ("processor", "system", "load")))
