"""A project with a copy of Waf of its own, as projects carry it, which the command `wafx` runs."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest
from conftest import Completed

WAFX = [sys.executable, "-m", "waflib_extras.wafx"]
LONGEST = 300
EXTRAS = "gccdeps,clang_compilation_database,unity"
PRELUDE = "\timport sys; from waflib.Tools import c, compiler_c; sys.modules['compiler_cc'] = compiler_c\n"
"""What Samba's script does before Waf runs: a tool of Waf has another name."""


class Own:
	"""A folder of a project with its own Waf, and how to run that with ``wafx`` and without."""

	def __init__(self, folder: pathlib.Path, cache: pathlib.Path) -> None:
		self.folder = folder
		self.cache = cache

	def environ(self, env: Optional[Mapping[str, Optional[str]]] = None) -> Dict[str, str]:
		given = {"WAFCC_DIR": str(self.cache), **(env or {})}
		found = {**{k: v for k, v in os.environ.items() if not k.startswith("WAFX")}, **given}
		return {k: v for k, v in found.items() if v is not None}

	def run(
		self, *command: str, env: Optional[Mapping[str, Optional[str]]] = None, status: Optional[int] = 0
	) -> "Completed[str]":
		done = subprocess.run(
			command,
			cwd=self.folder,
			env=self.environ(env),
			stdin=subprocess.DEVNULL,
			capture_output=True,
			encoding="utf-8",
			errors="surrogateescape",
			timeout=LONGEST,
			check=False,
		)
		if status is not None and done.returncode != status:
			pytest.fail(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
		return done

	def plain(self, *words: str, **kw: Any) -> "Completed[str]":
		"""Run the project's Waf by itself."""
		return self.run("./waf", *words, **kw)

	def wafx(self, *words: str, **kw: Any) -> "Completed[str]":
		"""Run a program by ``wafx``; without one, the project's Waf."""
		return self.run(*WAFX, *words, **kw)

	def count(self, *words: str, **kw: Any) -> Tuple[int, int]:
		"""Run ``wafx ./waf`` with these words, and return the numbers of hits and misses, also of ``configure``."""
		done = self.wafx("./waf", *words, "--zones=wafcc", **kw)
		found = re.search(r"wafcc (\d+) hits, (\d+) misses", done.stdout + done.stderr)
		return (int(found.group(1)), int(found.group(2))) if found else (0, 0)

	def read_made(self) -> Dict[str, bytes]:
		"""All files, except the memory of Waf, and what it unpacks of itself."""
		found = {}
		for path in sorted(self.folder.rglob("*")):
			name = str(path.relative_to(self.folder))
			is_state = re.search(r"(^|/)(\.lock-waf|\.wafpickle|\.waf3?-|__pycache__|config\.log)", name)
			if path.is_file() and not is_state:
				found[name] = path.read_bytes()
		return found


def pack_waf(sources: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
	"""A script `waf` that has its waflib inside, some of Waf's extras, and a prelude."""
	tree = folder / "tree"
	shutil.copytree(sources, tree)
	command = [sys.executable, "waf-light", "--tools=" + EXTRAS, "--prelude=" + PRELUDE]
	subprocess.run(command, cwd=tree, capture_output=True, check=True, timeout=LONGEST)
	script = folder / "waf"
	first, _, rest = (tree / "waf").read_bytes().partition(b"\n")
	assert first.startswith(b"#!")
	script.write_bytes(b"#!" + os.fsencode(sys.executable) + b"\n" + rest)
	script.chmod(0o755)
	return script


def list_words(text: str) -> List[str]:
	"""The lines of ours."""
	return [line for line in text.splitlines() if line.startswith("wafx: ")]
