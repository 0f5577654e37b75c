"""
The command ``wafx``: a project's own Waf, as it is, with our tools loaded and its wscript unchanged.

The command runs the program that it is given, with one folder more in ``PYTHONPATH``. By ``start/sitecustomize.py``
there, each Python below waits until it imports a Waf, and ``loading.py`` then loads the tools. So the project's script,
its Python, its prelude and its copy of waflib are those that would run without us.
"""

import os
import re
import shlex
import shutil
import sys
from typing import Dict, List, Mapping, NoReturn, Optional, Tuple

from .. import TOOLS
from ..version import VERSION
from . import choice

HELP = """\
usage: wafx [--with=TOOL,...] PROGRAM [ARGUMENT...]

Runs a program, and loads the tools of waflib-extras into each Waf that it is or that it starts. The project and its
wscript stay as they are, and so do its own copy of Waf, its Python and its tools.

  --with=TOOL,...  load these tools: %s;
                   none for no tool [default: %s]
  --help           print this text
  --version        print the version

To keep a choice, write the names into a file .wafx beside the wscript, or into the variable WAFX_WITH. The option comes
before the variable, and the variable before the file.

examples:
  wafx ./waf configure build                      with prefork and wafcc
  wafx --with=prefork,wafcc,large ./waf build     with others
  wafx python3.9 ./waf build                      with another Python
  wafx ./configure                                each Waf that a script starts (Samba)
  wafx make                                       the same for a Makefile
  wafx ./waf --help                               the project's own help, with the options of the tools
  echo prefork wafcc timeline > .wafx             this project's tools from now on
"""
MISTAKE = 2
NOT_FOUND, NOT_RUN = 127, 126
DEAF = re.compile(r"-[a-zA-Z]*[EIS]")
"""Options of Python with which it does not read ``PYTHONPATH``, or runs no ``sitecustomize``."""


def main() -> NoReturn:
	"""Run the program that the command line names, in place of this process."""
	words, tools = read_options(sys.argv[1:])
	environ = prepare(os.environ, tools)
	if tools is None:
		try:
			choice.find(environ, os.getcwd())
		except choice.Mistake as e:
			fail(str(e))
	command = make_command(words)
	try:
		os.execvpe(command[0], command, environ)
	except OSError as e:
		fail("%s: %s: name the project's Waf, as in: wafx ./waf build" % (words[0], e.strerror), NOT_RUN)


def fail(text: str, status: int = MISTAKE) -> NoReturn:
	sys.stderr.write("wafx: %s\n" % text)
	sys.exit(status)


def read_options(words: List[str]) -> Tuple[List[str], Optional[List[str]]]:
	"""The program with its arguments, and the tools of ``--with``. All options before the program are ours."""
	tools = None
	rest = list(words)
	while rest and rest[0].startswith("-"):
		option, equals, value = rest.pop(0).partition("=")
		if option in ("-h", "--help"):
			print((HELP % (", ".join(TOOLS), ", ".join(choice.DEFAULT))).rstrip())
			sys.exit(0)
		if option == "--version":
			print("wafx %s" % VERSION)
			sys.exit(0)
		if option != "--with":
			fail("there is no option %s: options of Waf come after the program; see wafx --help" % option)
		if not equals:
			value = rest.pop(0) if rest else ""
		try:
			tools = choice.parse(value, "--with")
		except choice.Mistake as e:
			fail(str(e))
	if not rest:
		fail("give the project's Waf and its commands, as in: wafx ./waf configure build; see wafx --help")
	return rest, tools


def prepare(given: Mapping[str, str], tools: Optional[List[str]]) -> Dict[str, str]:
	"""These variables with those by which Pythons below find our tools."""
	environ = dict(given)
	start = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start")
	path = [start] + [folder for folder in environ.get("PYTHONPATH", "").split(os.pathsep) if folder != start]
	environ["PYTHONPATH"] = os.pathsep.join(path) if path[1:] != [""] else start
	if tools is not None:
		environ[choice.VARIABLE] = " ".join(tools) or choice.NONE
	# a project's Python does not have the engine beside it
	wafd = find_engine()
	if wafd:
		environ.setdefault("WAFD", wafd)
	return environ


def find_engine() -> str:
	"""The engine of this installation; empty if the tools have to look for one."""
	for folder in (os.path.dirname(os.path.abspath(sys.argv[0])), os.path.dirname(sys.executable)):
		path = os.path.join(folder, "wafd")
		if os.path.isfile(path) and os.access(path, os.X_OK):
			return path
	return ""


def make_command(words: List[str]) -> List[str]:
	"""What to run: the words as they are, or a script that is not executable with the Python that it names."""
	program = words[0]
	found = program if os.sep in program else shutil.which(program)
	if found is None or not os.path.exists(found):
		fail("there is no program %s: name the project's Waf, as in: wafx ./waf build" % program, NOT_FOUND)
	interpreter = read_interpreter(found)
	options = interpreter[1:] if interpreter else words[1:2]
	python = os.path.basename((interpreter or words)[0])
	if python.startswith(("python", "pypy")) and options and DEAF.match(options[0]):
		clear = shlex.join([python, *(words if interpreter else words[2:])])
		sys.stderr.write("wafx: %s %s takes no tools: they come with: wafx %s\n" % (python, options[0], clear))
	if os.path.isfile(found) and not os.access(found, os.X_OK) and interpreter:
		return [*interpreter, found, *words[1:]]
	return words


def read_interpreter(path: str) -> List[str]:
	"""The words of a script's first line, without ``env``; empty if there are none."""
	try:
		with open(path, "rb") as f:
			line = f.readline(256)
	except OSError:
		return []
	words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
	if words and os.path.basename(words[0]) == "env":
		words = [word for word in words[1:] if not word.startswith("-")]
	return words
