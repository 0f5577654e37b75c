"""A Python that runs Waf."""

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional, Sequence

from .mistake import Mistake

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

PYTHONS = re.compile(r"(python|pypy)3(\.\d+)?")

# has an interpreter describe itself, and the waflib that it finds without help
QUESTION = """
import json, os, platform, sys
answer = {"version": "%s %s" % (platform.python_implementation(), platform.python_version()), "waflib": None}
answer["program"], answer["path"] = os.path.realpath(sys.executable), sys.executable
if hasattr(sys, "pypy_version_info"):
	answer["version"] = "PyPy %d.%d.%d (Python %s)" % (tuple(sys.pypy_version_info[:3]) + (platform.python_version(),))
try:
	from waflib import Context
	answer["waflib"], answer["waf"] = Context.__file__, Context.WAFVERSION
except ImportError:
	pass
print(json.dumps(answer))
"""


class Interpreter(NamedTuple):
	"""An interpreter with what it needs to find Waf and our tools."""

	name: str
	path: str
	version: str
	waf: str
	search: str  # where it looks for modules first
	compiled: str  # where it keeps compiled ones: a foreign waflib may be unwritable, and be compiled at every start

	@property
	def environment(self) -> Dict[str, str]:
		"""The variables with which it finds Waf and our tools."""
		return {"PYTHONPATH": self.search, "PYTHONPYCACHEPREFIX": self.compiled}


def find_interpreter(name: str, label: str, room: str, base: Dict[str, str]) -> Interpreter:
	"""
	Find an interpreter and its waflib: its own, or else that of the Python that runs us.

	Files that this needs go into the folder ``room``. ``base`` is the environment of all measured commands.
	"""
	path = shutil.which(name)
	if not path:
		raise Mistake("interpreter %s was not found: give a command or a path with --interpreters" % name)
	compiled = os.path.join(room, "pycache")
	base = dict(base, PYTHONPYCACHEPREFIX=compiled)
	answer = ask(path, name, base)
	paths = [ROOT]
	if not answer["waflib"]:
		paths.append(borrow_waflib(name, room))
		answer = ask(path, name, dict(base, PYTHONPATH=paths[-1]))
	if not answer["waflib"]:
		raise Mistake("interpreter %s cannot load waflib: run %s -m pip install waflib" % (name, name))
	# a script may stand before it in PATH, which would be measured, too
	return Interpreter(
		label, answer["path"] or path, answer["version"], answer["waf"], os.pathsep.join(paths), compiled
	)


def discover_interpreters(base: Dict[str, str]) -> List[str]:
	"""The Pythons in PATH that could run Waf, each program once, under the first name that leads to it."""
	found: Dict[str, str] = {}
	for folder in os.get_exec_path(base):
		for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
			path = os.path.join(folder, name)
			if PYTHONS.fullmatch(name) and shutil.which(name, path=base.get("PATH")) == path:
				try:
					program = ask(path, name, base, subprocess.DEVNULL)["program"]
				except Mistake:
					continue  # for example a shim for a version that is not installed
				found.setdefault(program, name)
	return list(found.values())


def labels_of(names: Sequence[str]) -> List[str]:
	"""Short names for interpreters that may be given by their paths; the paths where short names say too little."""
	short = [os.path.basename(name) for name in names]
	return short if len(set(short)) == len(short) else list(names)


def ask(path: str, name: str, environment: Dict[str, str], errors: Optional[int] = None) -> Dict[str, str]:
	"""Let an interpreter describe itself; ``errors`` is its standard error."""
	argv = [path, "-c", QUESTION]
	try:
		done = subprocess.run(
			argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd="/"
		)
		return json.loads(done.stdout.decode())
	except (OSError, ValueError):
		raise Mistake(
			"interpreter %s does not work: give a Python of at least 3.8 with --interpreters" % name
		) from None


def borrow_waflib(name: str, room: str) -> str:
	"""
	A folder that holds the waflib of the Python that runs us, and nothing else.

	Its ``site-packages`` cannot be put on the path: another interpreter would find all of its packages there.
	"""
	try:
		import waflib
	except ImportError:
		raise Mistake("waflib was not found by %s nor by %s: pip install waflib" % (name, sys.executable)) from None
	folder = os.path.join(room, "borrowed")
	os.makedirs(folder, exist_ok=True)
	link = os.path.join(folder, "waflib")
	if not os.path.islink(link):
		os.symlink(os.path.dirname(os.path.abspath(waflib.__file__)), link)
	return folder
