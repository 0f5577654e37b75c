"""A folder in which compilers run through wafcc and without it, and what both leave is compared."""

import contextlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import time
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import pytest

PATIENCE = 60  # seconds
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]

BLANK = "\u2423"
"""Stands for a blank within a word of a command line."""

each = pytest.mark.parametrize("cc", COMPILERS)

by_one = pytest.mark.parametrize("cc", COMPILERS[:1])
"""For what wafcc does in the same way for each compiler."""


def in_turn(names: str, values: Sequence[Any], by_each: Sequence[Any] = ()) -> "pytest.MarkDecorator":
	"""
	Each value with one compiler: the first value with the first compiler, the next value with the next one, and so on.

	With values for which wafcc has code of its own for each compiler, all compilers run.
	"""
	cases = [(COMPILERS[n % len(COMPILERS)], value) for n, value in enumerate(values if COMPILERS else [])]
	cases += [(cc, value) for value in by_each for cc in COMPILERS]
	flat = [(cc, *value) if "," in names else (cc, value) for cc, value in cases]
	return pytest.mark.parametrize(f"cc, {names}", flat)


class Trace(NamedTuple):
	"""All effects of a command that are compared."""

	status: int
	stdout: bytes
	stderr: bytes
	files: Dict[str, bytes]
	modes: Dict[str, int]


class Lab:
	"""A folder in which commands run through wafcc and without it, with a store of its own."""

	def __init__(self, engine: str, folder: pathlib.Path, home: pathlib.Path) -> None:
		self.folder = folder
		self.engine = engine
		self.wafcc = str(pathlib.Path(engine).with_name("wafcc"))
		self.prefix: List[str] = []  # what goes before each command of ours
		self.plain: Dict[Any, Trace] = {}
		names = [name for name in os.environ if not name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG"))]
		self.environ = dict({name: os.environ[name] for name in names}, HOME=str(home), LC_ALL="C")

	def write(self, name: str, text: str) -> pathlib.Path:
		path = self.folder / name
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_text(text)
		return path

	def look(self) -> Dict[str, bytes]:
		return {str(p.relative_to(self.folder)): p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}

	def run(self, line: str, cached: bool, cwd: str = ".", umask: int = 0o022, **env: str) -> Trace:
		"""Run a command and return its effects. Its files are removed again."""
		argv = [word.replace(BLANK, " ") for word in line.format(here=self.folder / cwd).split()]
		before = self.look()
		mask = os.umask(umask)  # set here, since a function for the child would have Python copy its whole memory
		try:
			done = subprocess.run(
				[*self.prefix, self.wafcc, *argv] if cached else argv,
				cwd=self.folder / cwd,
				env={**self.environ, **env},
				stdin=subprocess.DEVNULL,
				capture_output=True,
				timeout=PATIENCE,
				check=False,
			)
		finally:
			os.umask(mask)
		made = {name: content for name, content in self.look().items() if before.get(name) != content}
		modes = {name: (self.folder / name).stat().st_mode for name in made}
		for name in made:
			(self.folder / name).unlink()
		return Trace(done.returncode, done.stdout, done.stderr, made, modes)

	def run_plain(self, line: str, cwd: str = ".", umask: int = 0o022, **env: str) -> Trace:
		"""
		Run a command without wafcc and return its effects.

		A second time, with no file, time or variable changed, it would do the same: the first effects are returned.
		A test that changes anything else, like limits of the process, clears `plain`.
		"""
		variables = tuple(sorted({**self.environ, **env}.items()))
		case = (line, cwd, umask, variables, self.list_state(), tuple(sorted(self.look().items())))
		if case not in self.plain:
			self.plain[case] = self.run(line, False, cwd, umask, **env)
		return self.plain[case]

	def list_state(self) -> Tuple[Any, ...]:
		"""
		The inode, rights and times of each file in the folder and beside it. The cache, which is at home, is left out.

		A file that is written or touched has another time of change, which no program can set.
		"""
		state: List[Tuple[Any, ...]] = []
		for folder, folders, names in os.walk(self.folder.parent):
			folders[:] = sorted(name for name in folders if name != "home")
			state.append((folder, os.lstat(folder).st_mode))
			for name in sorted({*names, *folders}):
				with contextlib.suppress(FileNotFoundError):  # a server that runs there may remove its own files
					path = os.path.join(folder, name)
					found = os.lstat(path)
					if not stat.S_ISDIR(found.st_mode):  # that of a folder changes with each output
						state.append((path, found.st_ino, found.st_mode, found.st_mtime_ns, found.st_ctime_ns))
		return tuple(state)

	def same(self, line: str, cwd: str = ".", umask: int = 0o022, **env: str) -> str:
		"""Run a compile through wafcc and without it; both must have the same effects. Returns wafcc's verdict."""
		found = self.run(line, True, cwd, umask, **env)
		said = self.explain(self.folder / cwd / self.output(line))
		assert found == self.run_plain(line, cwd, umask, **env), f"{line}: {said}"
		return said

	@staticmethod
	def output(line: str) -> str:
		named = re.search(r"-o (\S+)", line)
		source = re.search(r"(\S+)\.(?:c|cc|s)(?= |$)", line)
		name = named.group(1) if named else os.path.basename(source.group(1)) + ".o" if source else ""
		return name.replace(BLANK, " ")

	def explain(self, output: pathlib.Path) -> str:
		done = subprocess.run(
			[*self.prefix, self.wafcc, "--explain", str(output)],
			env=self.environ,
			capture_output=True,
			text=True,
			timeout=PATIENCE,
		)
		return done.stdout.partition(": ")[2].strip()

	def until_hit(self, line: str, cwd: str = ".", umask: int = 0o022, **env: str) -> None:
		"""Compile until it is a hit. A file that was written just before is not trusted yet."""
		deadline = time.monotonic() + PATIENCE
		plain = self.run_plain(line, cwd, umask, **env)
		said = ""
		while not said.startswith("hit"):
			assert time.monotonic() < deadline, f"{line} is never a hit: {said}"
			found = self.run(line, True, cwd, umask, **env)
			said = self.explain(self.folder / cwd / self.output(line))
			assert found == plain, f"{line}: {said}"


@pytest.fixture
def lab(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Lab:
	"""An empty folder."""
	folder = tmp_path / "lab"
	folder.mkdir()
	return Lab(engine, folder, tmp_path / "home")
