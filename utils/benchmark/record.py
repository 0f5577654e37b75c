"""What a program measures: a record of all values as JSON, which grows while it runs, and the end of what it prints."""

import argparse
import json
import os
import pathlib
import sys
import tempfile
from typing import Any, Dict, List, Optional

from .machine import describe_machine
from .mistake import Failed, Mistake
from .progress import Progress


class Parser(argparse.ArgumentParser):
	"""The command line of a program that keeps a record. Description and examples are shown as they were written."""

	def __init__(self, description: Optional[str], examples: str) -> None:
		look = argparse.RawDescriptionHelpFormatter
		super().__init__(description=(description or "").strip(), epilog=examples, formatter_class=look)


def add_places(parser: argparse.ArgumentParser, work: str, each: str) -> None:
	"""Options for a folder, and for the record, which is written after each of these."""
	parser.add_argument("--work", metavar="DIR", help="where to %s (default the system's temporary folder)" % work)
	parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all values after each %s" % each)


class Record:
	"""Values, what failed, and what was left out. The options need ``work``, a folder, and ``json``, a path or None."""

	def __init__(self, options: argparse.Namespace, versions: Optional[Dict[str, str]] = None) -> None:
		self.options = options
		self.progress = Progress(sys.stderr)
		self.values: List[Dict[str, Any]] = []
		self.left_out: List[str] = []
		self.failed: List[str] = []
		self.machine = describe_machine(options.work or tempfile.gettempdir(), sys.argv, versions or {})

	def leave_out(self, name: str, why: str) -> None:
		self.left_out.append("%s: %s" % (name, why))
		self.progress.say("left out: %s" % self.left_out[-1])

	def fail(self, name: str, error: Failed) -> None:
		self.failed.append("%s: %s" % (name, "\n".join([str(error), *error.quote()])))
		self.progress.say("failed: %s" % self.failed[-1])

	def write(self, **more: Any) -> None:
		"""Write it in one step, so that a reader finds the old record or the new one."""
		if not self.options.json:
			return
		lists = {"left_out": self.left_out, "failed": self.failed}
		record = {"machine": self.machine, "runs": self.values, **lists, **more}
		part = self.options.json.with_suffix(".part")
		part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
		os.replace(part, self.options.json)

	def tell(self) -> None:
		"""Print what was measured."""

	def finish(self) -> int:
		"""Print all that came of it, and on which machine. Returns the exit status."""
		self.tell()
		for title, lines in (("failed", self.failed), ("left out", self.left_out)):
			for line in lines:
				print("%s: %s" % (title, line))
		print("%s, %s, load before it %s" % tuple(self.machine[key] for key in ("processor", "system", "load")))
		return 0 if self.is_good() else 1

	def is_good(self) -> bool:
		"""Whether something was measured, nothing failed, and nothing was wrong."""
		return bool(self.values) and not self.failed and not any(value.get("wrong") for value in self.values)


def check_places(options: argparse.Namespace) -> None:
	"""Complain about places for work and a record in which nothing can be made."""
	places = {"--work": options.work, "--json": options.json and options.json.absolute().parent}
	for option, folder in places.items():
		if folder and not os.access(folder, os.W_OK | os.X_OK):
			raise Mistake("%s: %s is no folder to write in" % (option, folder))
