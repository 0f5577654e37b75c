"""
The words that shells offer after ``waf``: the commands and options of the project in this folder.

``waf --completion-words`` prints a word and its purpose on each line. The words are stored, and made anew when a file
has changed that they depend on.
"""

import contextlib
import io
import json
import os
import re
import sys
import time
import types
import zlib
from typing import Dict, List, Optional, Tuple

from ..facts import stamps
from ..facts.files import replace
from ..version import VERSION

FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
HEAD = re.compile(r" {2,4}(-\S.*?)(?: {2,}(\S.*))?$")
COMMAND = re.compile(r" {2}(\w[\w.-]*) *: (.*)$")
OTHERS = ("build", "configure", "init", "options", "shutdown")
"""Functions of a wscript that are no commands, or are among Waf's own."""

Words = List[Tuple[str, str]]


def find_file(cwd: str) -> str:
	"""The file with the words of a folder."""
	folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
	key = os.fsencode(cwd)
	return os.path.join(folder, "waflib-extras", "words-%08x%08x" % (zlib.crc32(key), zlib.adler32(key)))


def stamp(paths: List[str]) -> Dict[str, Optional[stamps.Stamp]]:
	"""The stamps of files; None for a file that does not exist."""
	return {path: stamps.of_file(path) for path in paths}


def read(cwd: str) -> Words:
	"""The stored words; nothing if they may have changed."""
	try:
		with open(find_file(cwd), encoding="utf-8") as f:
			kept = json.load(f)
		if kept["asked"] == [VERSION, sys.executable, cwd] and stamp(list(kept["files"])) == kept["files"]:
			words: Words = [(word, text) for word, text in kept["words"]]
			return words
	except (OSError, ValueError, KeyError, TypeError):
		pass
	return []


def write(cwd: str, words: Words, paths: List[str], began: int) -> None:
	"""Store the words, if possible. A file that was changed since ``began`` makes them invalid."""
	path = find_file(cwd)
	settled = {each: stamps.settle(found, began) for each, found in stamp(paths).items()}
	with contextlib.suppress(OSError, ValueError):
		content = json.dumps({"asked": [VERSION, sys.executable, cwd], "files": settled, "words": words})
		os.makedirs(os.path.dirname(path), exist_ok=True)
		replace(path, content.encode())


def parse(text: str) -> Words:
	"""The words of a help text, of Waf 2.0 or 2.1."""
	words: Dict[str, str] = {}
	pending: List[str] = []
	for line in text.splitlines():
		head = HEAD.match(line)
		command = COMMAND.match(line)
		if head:
			pending = []
			for flag in FLAG.findall(head.group(1)):
				takes_value = re.search(re.escape(flag) + r"[ =](?!-)\S", head.group(1)) and flag.startswith("--")
				word = flag + "=" if takes_value else flag
				words.setdefault(word, head.group(2) or "")
				if not head.group(2):
					pending.append(word)
		elif command:
			words.setdefault(command.group(1), command.group(2).strip())
			pending = []
		else:
			for word in pending:
				words[word] = line.strip()
			pending = []
	return list(words.items())


def ask_waf(cwd: str) -> Tuple[str, Words, List[str]]:
	"""The help text of Waf in this folder, the project's own commands, and the files that they depend on."""
	from waflib import Context, Scripting

	import waflib_extras

	waflib_extras.offer_tools()
	wafdir = os.path.dirname(os.path.dirname(os.path.abspath(Context.__file__)))
	sys.argv[1:] = ["--help"]
	heard = io.StringIO()
	# Waf ends with its help
	status: object = 1
	with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(io.StringIO()):
		try:
			Scripting.waf_entry_point(cwd, Context.WAFVERSION, wafdir)
		except SystemExit as e:
			status = e.code
	top = Context.run_dir or cwd
	paths = {os.path.abspath(path) for path in Context.cache_modules}
	# also if it does not exist: when it appears, the words change
	paths.add(os.path.join(cwd, Context.WSCRIPT_FILE))
	for module in list(sys.modules.values()):
		path = getattr(module, "__file__", None)
		if path and os.path.abspath(path).startswith(
			(os.path.join(top, ""), os.path.dirname(os.path.dirname(__file__)))
		):
			paths.add(os.path.abspath(path))
	# the words of a wscript that fails are not stored
	return heard.getvalue(), list_commands(Context.g_module), [] if status else sorted(paths)


def list_commands(module: Optional[types.ModuleType]) -> Words:
	"""The functions of a wscript that are commands. Waf's help names only those with a docstring."""
	if module is None:
		return []
	return [
		(name, ((value.__doc__ or "").strip().splitlines() or [""])[0])
		for name, value in vars(module).items()
		if isinstance(value, types.FunctionType) and name[:1] != "_" and name not in OTHERS
		if value.__globals__ is vars(module)
	]


def main(cwd: str) -> int:
	"""Print the words. The status is 1 if there are none."""
	words = read(cwd)
	if not words:
		began = time.time_ns()
		text, own, paths = ask_waf(cwd)
		words = parse(text)
		known = dict(words)
		words += [word for word in own if word[0] not in known]
		if words and paths:
			write(cwd, words, paths, began)
	sys.stdout.write("".join("%s\t%s\n" % (word, text) for word, text in words))
	return 0 if words else 1
