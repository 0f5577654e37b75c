"""
A kind of commands beyond plain compiles: the files that it adds to a project, edits of them, and its commands.

Knows nothing of how commands are run.
"""

import os
import pathlib
import random
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from hunt import Mistake, run

from .project import CHECKOUTS, SOURCES, Project

FLAGS = ("-O0", "-O1", "-g", "-Wall", "-DONE=1", "-Iinc/x -Iinc/y", "-Iinc/y -Iinc/x", "-MD", "-DTIME=1")
VARIABLES: Sequence[Tuple[str, Sequence[str]]] = (
	("ONE", ("1", "2")),
	("UNRELATED", ("a", "b")),
	("LC_ALL", ("C", "C.UTF-8")),
	("CPATH", ("inc/x", "inc/y")),
)


class Special(NamedTuple):
	"""A command of a kind. `{cwd}` is its checkout, also in the values of variables."""

	words: Tuple[str, ...]
	output: str
	env: Dict[str, str]
	checkout: str
	options: Tuple[str, ...] = ()  # of the wrapper
	is_new: bool = False  # the cache must not answer it
	folder: str = "."

	def argv(self, root: pathlib.Path) -> List[str]:
		cwd = str(root / self.checkout)
		return [word.format(cwd=cwd, output=self.output) for word in self.words]


class Kind:
	"""Commands of one kind, in both checkouts of a project."""

	name = ""
	about = ""
	pause = 0.0
	"""Seconds after a miss: what the engine does in idle times is done then."""

	def __init__(self, project: Project, made: pathlib.Path) -> None:
		"""`made` is a folder for what is compiled once."""
		self.project, self.rng, self.made = project, project.rng, made
		made.mkdir(parents=True, exist_ok=True)
		self.before: Optional[Special] = None
		self.prepare()

	def prepare(self) -> None:
		"""Write what its commands need."""

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		"""Edits of these files. Each returns what it did."""
		return []

	def draw(self) -> Special:
		raise NotImplementedError

	def choose(self) -> Special:
		"""Often the one before, perhaps with one change: otherwise the cache would never have a hit."""
		chance = self.rng.random()
		if self.before is None or chance < 0.15:
			self.before = self.draw()
		elif chance > 0.9:
			self.before = self.before._replace(checkout=self.rng.choice(CHECKOUTS))
		elif chance > 0.75:
			name, values = self.rng.choice(VARIABLES)
			env = {key: value for key, value in self.before.env.items() if key != name}
			if name not in self.before.env:
				env[name] = self.rng.choice(values)
			self.before = self.before._replace(env=env)
		return self.before

	# ---- for kinds

	def compile(self, compiler: str, *more: str, **env: str) -> Special:
		"""A compile of one of the sources, with some flags."""
		flags = [word for flag in self.rng.sample(FLAGS, self.rng.randint(0, 3)) for word in flag.split()]
		words = (compiler, *more, *flags, "-c", self.rng.choice(SOURCES), "-o", "{output}")
		return Special(words, "a.o", env, self.rng.choice(CHECKOUTS))

	def places(self, name: str, is_everywhere: bool) -> List[pathlib.Path]:
		"""The paths of a file in some checkouts, or in both; makes their folders."""
		folders = [self.project.root / one for one in CHECKOUTS] if is_everywhere else self.project.some_checkouts()
		for folder in folders:
			(folder / name).parent.mkdir(parents=True, exist_ok=True)
		return [folder / name for folder in folders]

	def write(self, name: str, text: str, mode: int = 0o644, is_everywhere: bool = False) -> str:
		for path in self.places(name, is_everywhere):
			self.project.write(path, text.encode())
			path.chmod(mode)
		return name

	def put(self, name: str, source: pathlib.Path, is_everywhere: bool = False) -> str:
		"""Put a copy of a file into some checkouts, in the place of what was there: with another inode."""
		for path in self.places(name, is_everywhere):
			draft = path.with_name(path.name + ".draft")
			draft.write_bytes(source.read_bytes())
			draft.chmod(0o755)
			os.replace(str(draft), str(path))
		return name

	def build(self, name: str, text: str, *flags: str) -> pathlib.Path:
		program = self.made / name
		if not program.exists():
			source = self.made / ("%s.c" % name)
			source.write_text(text)
			argv = ["gcc", "-w", "-o", str(program), str(source), *flags]
			done = run(argv)
			if done.returncode:
				raise Mistake("kind %s: %s: %s" % (self.name, " ".join(argv), done.stdout.strip()))
		return program


def find_part(compiler: str, part: str) -> str:
	found = run([compiler, "-print-prog-name=%s" % part]).stdout.strip()
	return found if os.path.isabs(found) else find_program(found or part)


def find_program(name: str) -> str:
	"""A program by its whole path, with no link to a cache in between."""
	for folder in os.get_exec_path():
		path = os.path.join(folder, name)
		if os.access(path, os.X_OK) and "wafcc" not in os.path.basename(os.path.realpath(path)):
			return path
	raise Mistake("%s: no such program" % name)


def lines_of(rng: random.Random, lines: Sequence[str], least: int = 1) -> str:
	"""Some lines, in any order."""
	return "".join("%s\n" % line for line in rng.sample(lines, rng.randint(least, 3)))
