"""Compiles of edited sources through wafcc with preambles and without it, until they leave something else."""

import json
import os
import pathlib
import random
import subprocess
import time
from collections import Counter
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from benchmark.package import Package
from hunt import PATIENCE, run

from .edit import Tree

SPELL = 12  # edits of one source in a row, in the mean
IDLE = 0.4  # part of the edits after which the engine gets time
QUIET = 20.0  # seconds that it gets at most
OUTPUT = "fuzzed.o"


class Trace(NamedTuple):
	"""All that a compile leaves."""

	status: int
	printed: str
	files: Dict[str, bytes]


class Trials:
	"""A copy of each package, whose sources are edited and compiled."""

	def __init__(
		self,
		root: pathlib.Path,
		wafcc: str,
		packages: Sequence[Package],
		compilers: Sequence[str],
		flags: Sequence[str],
		rng: random.Random,
	) -> None:
		self.root, self.wafcc, self.packages, self.rng = root, wafcc, packages, rng
		self.compilers, self.flags = compilers, flags
		names = ("PATH", "HOME", "WAFD_LOG")
		self.environ = {name: os.environ[name] for name in names if name in os.environ}
		self.environ.update(WAFCC_DIR=str(root / "store"), WAFD_RUNTIME_DIR=str(root / "runtime"), LC_ALL="C")
		self.environ["WAFCC_PREAMBLES"] = "auto"
		self.edits: Counter[str] = Counter()
		self.spells = 0
		(root / "runtime").mkdir(mode=0o700)

	def run(self, count: int, tell: Callable[[int, int], None]) -> Optional[str]:
		"""What differed first, if anything did."""
		done = 0
		while done < count:
			package = self.rng.choice(self.packages)
			tree = self.new_tree(package)
			argv = self.choose_command(package, tree)
			for _ in range(self.rng.randrange(2, 2 * SPELL)):
				told = tree.draw()
				self.edits[told.split()[0]] += 1
				if self.rng.random() < 0.05:
					argv, told = self.choose_command(package, tree), "other flags"
				wrong = self.compare(argv, tree)
				if wrong:
					return "after edit %d (%s): %s: %s" % (done, told, " ".join(argv), wrong)
				done += 1
				tell(done, count)
				if self.rng.random() < IDLE:
					self.wait()
		return None

	def new_tree(self, package: Package) -> Tree:
		self.spells += 1
		folder = self.root / ("%s-%d" % (package.name, self.spells))
		package.copy(str(folder))
		source = self.rng.choice(package.sources)
		headers = [name for name in package.files if name not in package.sources]
		return Tree(folder, source, headers, self.rng)

	def choose_command(self, package: Package, tree: Tree) -> List[str]:
		source = str(tree.source.relative_to(tree.root))
		words = [self.rng.choice(self.compilers), *self.rng.choice(self.flags).split(), "-Ifirst", "-Ifirst/include"]
		words += ["-I" + name for name in package.includes] + ["-D" + name for name in package.defines]
		# a source in the folder of the compiler has no preamble if it includes what lies beside it
		named = source if "/" in source or self.rng.random() < 0.3 else str(tree.root / source)
		dependencies = self.rng.choice((["-MD"], ["-MMD", "-MP"], ["-MD", "-MF", "fuzzed.d", "-MT", "other"]))
		return [*words, *dependencies, "-Wall", "-c", named, "-o", OUTPUT]

	def compare(self, argv: List[str], tree: Tree) -> Optional[str]:
		ours = self.compile([self.wafcc, *argv], tree)
		plain = self.compile(argv, tree)
		for name, one, other in zip(Trace._fields, ours, plain):
			if one != other:
				return "another %s than without wafcc" % name
		return None

	def compile(self, argv: List[str], tree: Tree) -> Trace:
		made = [tree.root / name for name in (OUTPUT, "fuzzed.d")]
		for path in made:
			path.unlink(missing_ok=True)
		done = run(argv, cwd=tree.root, env=self.environ)
		files = {path.name: path.read_bytes() for path in made if path.exists()}
		return Trace(done.returncode, done.stdout, files)

	def wait(self) -> None:
		"""Give the engine time, until it has prepared something or refused to, or seems to have nothing to do."""
		before, deadline = self.ask(), time.monotonic() + QUIET
		end = time.monotonic() + 2
		while time.monotonic() < min(deadline, end):
			time.sleep(0.2)
			now = self.ask()
			if self.is_at_work():
				end = deadline
			elif (now["made"], now["refused"]) != (before["made"], before["refused"]):
				return
			else:
				end = min(end, time.monotonic() + 2)

	def is_at_work(self) -> bool:
		"""A compiler runs in the store's folders for this."""
		store = self.root / "store"
		return any(store.glob("store-*/rerun")) or any(store.glob("store-*/preambles/*/text"))

	def ask(self) -> Dict[str, Any]:
		done = subprocess.run(
			[self.wafcc, "--show-stats", "--json"],
			env=self.environ,
			stdout=subprocess.PIPE,
			timeout=PATIENCE,
			check=True,
		)
		told: Dict[str, Any] = json.loads(done.stdout)["preambles"]
		return told

	def close(self) -> str:
		"""End the engine. A line for each thing that was counted."""
		told = self.ask()
		run([self.wafcc, "--shutdown"], env=self.environ)
		lines = ["%d compiles began after their headers, %d preambles were made" % (told["used"], told["made"])]
		lines += ["%6d  %s" % (count, why) for why, count in sorted(told["refused"].items())]
		lines += ["edits: " + ", ".join("%d %s" % (count, what) for what, count in self.edits.most_common())]
		return "\n".join(lines)
