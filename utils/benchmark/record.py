"""A record of all values as JSON, which grows while a program runs."""

import json
import os
import pathlib
from typing import Any, Dict

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
