"""Commands run through the wrapper and without it, after one edit each, until they leave something else."""

import json
import os
import pathlib
import random
import subprocess
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from hunt import PATIENCE, Mistake, run

from .command import Command, Tool, choose_command, choose_tool
from .edits import EDITS, TOOL_EDITS, make_objects
from .kind import Kind, Special
from .kinds import COMPILES, KINDS
from .project import CHECKOUTS, Project

Step = Union[Command, Tool, Special]
MADE = (
	".o",
	".d",
	".s",
	".i",
	".ii",
	".bc",
	".su",
	".dwo",
	".gcno",
	".out",
	".txt",
	".line",
	".bin",
	".tmp",
)  # by commands only
TICK = 1.1  # seconds; a result with the time in it is another one afterwards
LINK = b"leads to "  # before the target of a link, which has no content


class Trace(NamedTuple):
	"""All that a command leaves."""

	status: int
	stdout: bytes
	stderr: bytes
	files: Dict[str, bytes]


class Stuck(Exception):
	"""A command through wafcc that does not end."""


def wait(child: "subprocess.Popen[bytes]", is_cached: bool) -> Tuple[bytes, bytes]:
	"""The output of a command, which is killed if it takes too long."""
	try:
		return child.communicate(timeout=PATIENCE)
	except subprocess.TimeoutExpired:
		child.kill()
		child.communicate()
	if is_cached:
		raise Stuck("it was not done after %d s" % PATIENCE)
	raise Mistake("a plain compile was not done after %d s: this machine is too busy to try anything" % PATIENCE)


class Fuzzer:
	"""Runs commands through wafcc and without it."""

	def __init__(self, root: pathlib.Path, wafcc: str, rng: random.Random) -> None:
		self.root, self.wafcc, self.rng = root, wafcc, rng
		self.environ = {name: os.environ[name] for name in ("PATH", "HOME", "WAFD_RUNTIME_DIR") if name in os.environ}
		self.ours = {
			"WAFCC_DIR": str(root / "store"),
			"WRAPPER": wafcc,
			"WAFCC_COMPARETEXTS": "yes",
			"WAFCC_CACHEFAILURES": "yes",
		}
		self.project = Project(root, rng)

	def start(self, command: Step, is_cached: bool) -> "subprocess.Popen[bytes]":
		argv = command.argv(self.root)
		cwd = str(self.root / command.checkout)
		env = {name: value.replace("{cwd}", cwd) for name, value in command.env.items()}
		# with this option of its own, the command runs as it is: without it, the engine would add one
		if is_cached and any(word.startswith("-ffile-prefix-map=") for word in argv) and self.rng.random() < 0.5:
			env.setdefault("WAFCC_BASEDIR", cwd)
		return subprocess.Popen(
			[self.wafcc, *command.options, *argv] if is_cached else argv,
			cwd=self.root / command.checkout / command.folder,
			env={**self.environ, **(self.ours if is_cached else {}), **env},
			stdin=subprocess.DEVNULL,
			stdout=subprocess.PIPE,
			stderr=subprocess.PIPE,
		)

	def look(self) -> Dict[str, bytes]:
		"""All files and links of both checkouts."""
		found = {}
		for name in CHECKOUTS:
			for path in (self.root / name).rglob("*"):
				if path.is_symlink():
					found[str(path)] = LINK + os.fsencode(os.readlink(str(path)))
				elif path.is_file():
					found[str(path)] = path.read_bytes()
		return found

	def run(self, command: Step, is_cached: bool) -> Trace:
		"""Run a command; all that it leaves. Its files are removed again."""
		before = self.look()
		child = self.start(command, is_cached)
		stdout, stderr = wait(child, is_cached)
		made = {path: content for path, content in self.look().items() if before.get(path) != content}
		for path in made:
			os.unlink(path)
			if before.get(path, b"").startswith(LINK):  # a link that was turned
				os.symlink(before[path][len(LINK) :], path)
		return Trace(child.returncode, stdout, stderr, made)

	def disturb(self, command: Step, edits: Sequence[Callable[[Project], str]]) -> None:
		"""Edit files while a command runs. Its own result is not compared."""
		before = self.look()
		child = self.start(command, True)
		for _ in range(self.rng.randint(1, 3)):
			time.sleep(self.rng.uniform(0, 0.015))
			self.rng.choice(edits)(self.project)
		wait(child, True)
		for path in self.look():
			if path not in before and path.endswith(MADE):
				os.unlink(path)

	def is_hit(self, command: Step) -> bool:
		"""Tell whether the cache says that the last request for this output was a hit."""
		output = str(self.root / command.checkout / command.output)
		return ": hit" in run([self.wafcc, "--explain", output], env={**self.environ, **self.ours}).stdout

	def tell_hits(self) -> str:
		"""How many commands were hits, if the wrapper tells that."""
		shown = run([self.wafcc, "--show-stats", "--json"], env={**self.environ, **self.ours})
		try:
			told = json.loads(shown.stdout)
			return "%d hits, %d of them by what the preprocessor leaves" % (told["hits"], told["texts"]["hits"])
		except (ValueError, KeyError):
			return ""

	def is_seeded(self, command: Command) -> bool:
		"""Tell whether results differ only by random numbers of the compiler, which may come from the cache."""
		seeded = command._replace(flags=[*command.flags, "-frandom-seed=1"])
		one = self.run(seeded, False)
		time.sleep(TICK)
		return one == self.run(seeded, False)

	def difference(self, command: Step) -> str:
		"""The difference between wafcc and two plain runs; empty if there is none."""
		found = self.run(command, True)
		if isinstance(command, Special) and command.is_new and self.is_hit(command):
			return "it was a hit, and nothing like it was run before"
		wanted = self.run(command, False)
		if found == wanted:
			return ""
		time.sleep(TICK)
		again = self.run(command, False)
		wrong = compare(found, wanted, again)
		if wrong:
			return wrong
		if isinstance(command, Command) and self.is_seeded(command):
			return ""
		# plain runs differ from each other, and so must runs of wafcc
		later = self.run(command, True)
		return compare(found, later, later, (wanted, again))


def compare(found: Trace, wanted: Trace, again: Trace, others: Sequence[Trace] = ()) -> str:
	"""
	The first difference between `found` and two equal runs.

	With `others`, two runs of wafcc are wrong if they are equal while the plain runs all differ.
	"""

	def is_wrong(parts: Sequence[object], more: Sequence[object]) -> bool:
		one, two, three = parts
		if more:
			return one == two and len({repr(part) for part in (one, *more)}) == 1 + len(more)
		return two == three != one

	for field in ("status", "stdout", "stderr"):
		parts = [getattr(trace, field) for trace in (found, wanted, again)]
		if is_wrong(parts, [getattr(trace, field) for trace in others]):
			if others:
				return "%s: always %r, which differs from run to run without the cache" % (field, parts[0])
			return "%s: %r instead of %r" % (field, parts[0], parts[1])
	if not others and sorted(found.files) != sorted(wanted.files) == sorted(again.files):
		return "files: %s instead of %s" % (sorted(found.files), sorted(wanted.files))
	wrong = []
	for path in found.files:
		parts = [trace.files.get(path) for trace in (found, wanted, again)]
		if is_wrong(parts, [trace.files.get(path) for trace in others]):
			wrong.append(path)
	if wrong and others:
		return "always the same, which differs from run to run without the cache: %s" % ", ".join(wrong)
	return "other content: %s" % ", ".join(wrong) if wrong else ""


def fuzz(
	fuzzer: Fuzzer,
	steps: int,
	compilers: List[str],
	say: Callable[[int, int], None],
	tools: int = 0,
	names: Sequence[str] = (COMPILES,),
) -> Optional[str]:
	"""The first difference with the steps that led to it; None if there is none."""
	command: Optional[Command] = None
	tool: Optional[Tool] = None
	chosen: Step
	history: List[str] = []
	fuzzer.project.compilers = compilers
	if tools:
		fuzzer.project.prepare_tools()
		make_objects(fuzzer.project)
	kinds: Dict[str, Kind] = {
		name: KINDS[name](fuzzer.project, fuzzer.root / "made") for name in names if name in KINDS
	}
	for step in range(steps):
		is_tool = tools > 0 and fuzzer.rng.random() * 100 < tools
		kind = None if is_tool else kinds.get(names[fuzzer.rng.randrange(len(names))] if kinds else COMPILES)
		edits = choose_edits(fuzzer, is_tool, kind)
		edit = fuzzer.rng.choice(edits)
		history.append("%d %s: %s" % (step, edit.__name__, edit(fuzzer.project) or "-"))
		if kind:
			chosen = kind.choose()
		elif is_tool:
			chosen = tool = choose_tool(fuzzer.rng, tool)
		else:
			chosen = command = choose_command(fuzzer.rng, compilers, command)
		wrong = try_out(fuzzer, step, chosen, edits, history)
		if wrong:
			return wrong
		if kind and kind.pause and not fuzzer.is_hit(chosen):
			time.sleep(kind.pause)
		say(step + 1, steps)
	return None


def choose_edits(fuzzer: Fuzzer, is_tool: bool, kind: Optional[Kind]) -> Sequence[Callable[[Project], str]]:
	"""The edits that may come before a command; a kind often uses its own."""
	if kind and kind.edits and fuzzer.rng.random() < 0.5:
		return kind.edits
	return TOOL_EDITS if is_tool else EDITS


def try_out(
	fuzzer: Fuzzer, step: int, command: Step, edits: Sequence[Callable[[Project], str]], history: List[str]
) -> Optional[str]:
	"""A difference with the steps that led to it, or None."""
	try:
		if fuzzer.rng.random() < 0.05:
			fuzzer.disturb(command, edits)
			history.append("%d disturbed" % step)
			if isinstance(command, Special):  # it has just been run
				command = command._replace(is_new=False)
		wrong = fuzzer.difference(command)
	except Stuck as e:
		wrong = str(e)
	argv = " ".join(command.argv(fuzzer.root))
	history.append("%d (cd %s/%s && %s %s)" % (step, command.checkout, command.folder, command.env or "", argv))
	return "\n".join(["step %d: %s" % (step, wrong), *history[-12:]]) if wrong else None
