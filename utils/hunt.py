"""
Shared by the programs that look for wrong answers and for harm.

These are ``fuzzcache.py``, ``fuzzedits.py``, ``fuzzwaf.py``, ``fuzzobserve.py`` and ``faults.py``.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
from typing import Any, Callable, Dict, Optional, Sequence

from benchmark import record
from benchmark.mistake import Mistake

PATIENCE = 60  # seconds for one command
BUILT = pathlib.Path(__file__).resolve().parent.parent / "engine" / "target" / "release"


class Parser(record.Parser):
	"""A parser with the options that they all have."""

	def __init__(self, description: str, examples: str, keep: str) -> None:
		super().__init__(description, examples)
		self.add_argument("--seed", type=int, metavar="N", help="of everything that is drawn (default a fresh one)")
		self.add_argument("--work", metavar="DIR", help="where to work, in a new folder (default the system's)")
		self.add_argument("--keep", action="store_true", help=keep)

	def add_faults(self, trials: int, patience: float, programs: str) -> None:
		"""The options of those that disturb builds."""
		self.add_argument("--trials", type=int, default=trials, metavar="N", help="how many (default %d)" % trials)
		self.add_argument("--only", type=int, metavar="N", help="the trial of this number alone")
		self.add_argument(
			"--kinds", metavar="A,B", help="of faults, by their names or by how these begin (default all)"
		)
		waits = "seconds that a build may take (default %d)" % patience
		self.add_argument("--patience", type=float, default=patience, metavar="S", help=waits)
		self.add_argument("--programs", metavar="DIR", help=programs)
		self.add_argument("--json", metavar="FILE", help="write what came of every trial")
		self.add_argument("--list", action="store_true", help="show all kinds of faults, and end")


def choose_seed(options: argparse.Namespace, is_told: bool = True) -> int:
	"""The seed of all random choices. It is printed, so that a run can be repeated."""
	seed: int = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
	if is_told:
		print("seed %d" % seed, flush=True)
	return seed


def find_program(name: str, option: str, *places: Optional[str]) -> str:
	"""One of our programs, at the first place that is not None."""
	found = next(filter(None, places), None)
	if not found or not os.access(found, os.X_OK):
		raise Mistake("%s: no such program: build the engine, or name one with %s" % (found or name, option))
	return os.path.abspath(found)


def find_built(name: str) -> Optional[str]:
	"""A program of this tree, if it is built."""
	return str(BUILT / name) if (BUILT / name).is_file() else None


def run(
	argv: Sequence[str],
	cwd: Optional[pathlib.Path] = None,
	env: Optional[Dict[str, str]] = None,
	seconds: float = PATIENCE,
) -> "subprocess.CompletedProcess[str]":
	"""Run a command to its end; ``stdout`` is its output and its errors."""
	return subprocess.run(
		argv,
		cwd=cwd,
		env=env,
		stdin=subprocess.DEVNULL,
		stdout=subprocess.PIPE,
		stderr=subprocess.STDOUT,
		encoding="utf-8",
		errors="replace",
		timeout=seconds,
		check=False,
	)


def need_waflib() -> None:
	try:
		import waflib  # noqa: F401
	except ImportError:
		hint = "pip install waflib, or run a Python that has it, such as build/check-*/bin/python"
		raise Mistake("%s finds no waflib: %s" % (sys.executable, hint)) from None


def tell_progress(what: str, rarely: int) -> Callable[[int, int], None]:
	"""A function that shows progress: each step on a terminal, in a log only now and then."""
	is_shown = sys.stderr.isatty()

	def say(done: int, total: int) -> None:
		if is_shown:
			print("\r%d of %d %s\r" % (done, total, what), end="", file=sys.stderr, flush=True)
		elif done % rarely == 0:
			print("%d of %d %s" % (done, total, what), file=sys.stderr, flush=True)

	return say


def write_json(name: Optional[str], record: Dict[str, Any]) -> None:
	"""Write a record, if a file for it is named."""
	if name:
		with open(name, "w", encoding="utf-8") as file:
			json.dump(record, file, indent=1)
			file.write("\n")


def conclude(wrong: Optional[str], done: str, root: pathlib.Path, keep: bool) -> int:
	"""Print the result and return the exit status. The folder is kept if something differs."""
	if wrong:
		print("%s\nkept in %s" % (wrong, root))
		return 1
	print("%s, nothing differs" % done)
	if not keep:
		shutil.rmtree(root)
	return 0
