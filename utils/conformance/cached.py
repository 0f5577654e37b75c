"""
Builds a project with stock Waf, and then twice with each task class cached, and tells what came of each command.

The second of these builds begins with new copies of all sources, and with the store that the first one has left.
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Any, Counter, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from benchmark.cache import Wafcc
from benchmark.interrupt import INTERRUPTS
from benchmark.mistake import Failed

from . import twins
from .projects import Project
from .workbench import Workbench

TOOLS = ("prefork", "wafcc")
STOCK, FIRST, AGAIN = "stock", "first", "again"
LONGEST = 600  # seconds for one run of Waf; where few processors are shared, Java's first build takes minutes
UNCACHED, HIT, MISS = "not cached", "hit", "miss"
KNOWN = (UNCACHED, HIT, MISS)
"""By the numbers of the protocol."""
RULE = "rule"
"""All tasks of `bld(rule=...)` are one class here: Waf makes a class for each, and names it after the target."""


class Missing(Exception):
	"""Stock Waf does not build the project here."""


class Command(NamedTuple):
	"""A command of a task, and what the cache did for it."""

	cls: str
	"""The name of the task class. One that a project defines has the project's name beside its own."""
	task: str
	"""As Waf shows it: `Compiling main.c`."""
	outputs: Tuple[str, ...]
	"""Below the folder of the build."""
	known: str
	why: str = ""
	"""Why it was no hit."""
	unstored: str = ""
	"""Why its result was not stored."""


class Wrong(NamedTuple):
	"""Something that is not as stock Waf does it."""

	step: str
	cls: str
	"""The class of the task that made the file; empty for messages and exit statuses, and if it is not known."""
	what: str


class Done(NamedTuple):
	"""What came of a project."""

	seconds: Dict[str, float]
	"""By step."""
	commands: List[Command]
	"""Those of the second build, each with the reason if it was no hit."""
	asked_again: int
	"""Task lines that stock Waf does not have, of hits."""
	run_again: int
	"""Task lines that stock Waf does not have, of commands whose result is not stored: they run in each build."""
	past_engine: Dict[str, int]
	"""Commands of the second build that Waf has run its own way, by reason. Nothing else is known of them."""
	wrong: List[Wrong]

	def told(self) -> Dict[str, Any]:
		"""As the record keeps it."""
		keys = ("class", "task", "outputs", "known", "why", "unstored")
		commands = [dict(zip(keys, command)) for command in self.commands]
		wrong = [dict(zip(("step", "class", "what"), one)) for one in self.wrong]
		return {**self._asdict(), "commands": commands, "wrong": wrong}


class Trial:
	"""A project with a store of its own, which is empty at first."""

	def __init__(self, workbench: Workbench, project: Project) -> None:
		self.workbench = workbench
		self.project = project
		self.jobs = project.job_numbers[-1]
		self.journal = workbench.folder / "journal"
		self.step = STOCK
		self.past_engine: Counter[str] = collections.Counter()

	def run(self) -> Done:
		"""Build it three times; `Missing` if stock Waf cannot."""
		# a new name each time: an engine that is ending may still write into its folder
		folder = tempfile.mkdtemp(prefix="engine-", dir=self.workbench.folder)
		with INTERRUPTS.held():
			cache = Wafcc(os.path.join(folder, "cache"), self.workbench.env)
		try:
			cache.start()
			return self.build(cache)
		except subprocess.TimeoutExpired as e:
			words = " ".join(map(str, e.cmd))
			raise Failed("%s: it takes longer than %d s: %s" % (self.step, e.timeout, words)) from None
		finally:
			with INTERRUPTS.held():
				cache.stop()
				for name in (folder, "work", STOCK, FIRST, AGAIN):
					shutil.rmtree(self.workbench.folder / name, ignore_errors=True)

	def build(self, cache: Wafcc) -> Done:
		stock = self.workbench.build_stock(self.project, self.jobs)
		if not stock.succeeded:
			raise Missing(describe_failure(self.project, stock))
		seconds = {STOCK: stock.seconds}
		commands: Dict[str, List[Command]] = {}
		counts: Counter[str] = collections.Counter()
		wrong: List[Wrong] = []
		for self.step in (FIRST, AGAIN):
			step = self.step
			self.journal.write_bytes(b"")
			variables = {**cache.environment, "CONFORMANCE_JOURNAL": str(self.journal)}
			ours = self.workbench.build_with(TOOLS, self.project, self.jobs, step, variables)
			seconds[step] = ours.seconds
			commands[step] = self.read_journal()
			exemptions = (*self.project.exemptions, *self.project.by_cache)
			standard = twins.Standard(ordered=False, exemptions=exemptions)
			found = compare(stock, ours, commands[step], standard)
			counts.update({HIT: found.asked_again, UNCACHED: found.run_again})
			wrong += [Wrong(step, cls, what) for cls, what in found.wrong]
			cache.rest()
		told = give_reasons(commands[FIRST], commands[AGAIN])
		return Done(seconds, told, counts[HIT], counts[UNCACHED], self.past_engine, wrong)

	def read_journal(self) -> List[Command]:
		root = str(self.workbench.folder / "work")
		entries = [json.loads(line) for line in self.journal.read_text(encoding="utf-8").splitlines()]
		self.past_engine = collections.Counter()
		for entry in entries:
			self.past_engine.update(entry.get("past_engine", {}))
		return [read_command(entry, self.project.name, root) for entry in entries if "class" in entry]


def describe_failure(project: Project, build: twins.Build) -> str:
	needs = "; it needs %s" % project.needs if project.needs else ""
	lines = (build.runs[-1].stdout + build.runs[-1].stderr).decode(errors="replace").strip().splitlines()
	return "stock Waf does not build it here%s (%s)" % (needs, lines[-1] if lines else "it said nothing")


def read_command(entry: Dict[str, Any], project: str, root: str) -> Command:
	name = entry["class"]
	if entry["is_rule"]:
		name = RULE
	elif entry["module"].split(".")[0] not in ("waflib", "waflib_extras"):
		name = "%s (%s)" % (name, project)
	# tests have folders of other names each time
	task = re.sub(twins.CHECKED, "DIGEST", entry["task"])
	outputs = tuple(re.sub(twins.CHECKED, "DIGEST", os.path.relpath(path, root)) for path in entry["outputs"])
	if entry["known"] is None:
		why = "the cache is not asked" if outputs else "its task declares no outputs"
		return Command(name, task, outputs, UNCACHED, why)
	# reasons name files
	words, unstored = (entry[key].replace(root + os.sep, "") for key in ("words", "unstored"))
	return Command(name, task, outputs, KNOWN[entry["known"]], words, unstored)


def give_reasons(first: Sequence[Command], again: Sequence[Command]) -> List[Command]:
	"""
	Those of the second build. One that was not stored in the first build has missed because of that.

	A command is the same one if its class, its task and the outputs are the same, and it is as far behind in the order
	of these.
	"""
	before: Dict[Tuple[str, str, Tuple[str, ...]], List[Command]] = {}
	for command in first:
		before.setdefault(command[:3], []).append(command)
	told = []
	for command in again:
		same = before.get(command[:3])
		earlier = same.pop(0) if same else None
		if command.known == MISS and earlier is not None and earlier.unstored:
			command = command._replace(why=earlier.unstored)
		told.append(command if command.known != HIT else command._replace(why=""))
	return told


# ---- what is right


class Found(NamedTuple):
	"""The differences between a build and the stock one."""

	wrong: List[Tuple[str, str]]
	"""By task class."""
	asked_again: int
	run_again: int


ALONE = {"only in the first": "it is missing", "only in the second": "stock Waf does not make it"}


def compare(stock: twins.Build, ours: twins.Build, commands: Sequence[Command], standard: twins.Standard) -> Found:
	"""
	Compare files, exit statuses and messages.

	It is wrong if a file is missing, is too much, or has another mode or content; if Waf runs fewer commands, or one
	has another exit status; and if the messages have another line, or lack one. It is not wrong if Waf shows a task
	that the stock build does not show again (its input was written anew with the same content, or its result is not
	stored), nor what such a task prints, if the stock build has printed the same.
	"""
	makers = {path: command.cls for command in commands for path in command.outputs}
	wrong = []
	for line in twins.compare_trees(stock.folder, ours.folder, standard):
		path, _, how = line.rpartition(": ")
		wrong.append((makers.get(path, ""), "%s: %s" % (path, ALONE.get(how, how))))
	if len(stock.runs) != len(ours.runs):
		wrong.append(("", "%d runs of Waf and not %d: %s" % (len(ours.runs), len(stock.runs), ours.runs[-1])))
	shown = Shown(stock, commands, standard)
	for one, other in zip(stock.runs, ours.runs):
		if one.status != other.status:
			words = " ".join(one.command)
			wrong.append(("", "exit status %d and not %d: %s" % (other.status, one.status, words)))
		wrong += [("", line) for line in shown.compare(one, other)]
	return Found(wrong, shown.counts[HIT], sum(shown.counts.values()) - shown.counts[HIT])


class Shown:
	"""The messages of a build beside those of the stock one, where it is known what the cache did for each task."""

	def __init__(self, stock: twins.Build, commands: Sequence[Command], standard: twins.Standard) -> None:
		self.standard = standard
		self.commands: Dict[str, List[str]] = {}
		"""By the line of a task: what the cache did for its commands, in their order."""
		for command in commands:
			self.commands.setdefault(command.task, []).append(command.known)
		self.printed = {line for run in stock.runs for text in (run.stdout, run.stderr) for line in self.count(text)}
		self.counts: Counter[str] = collections.Counter()
		"""Task lines that are additional, by what the cache did."""

	def count(self, text: bytes) -> Counter[str]:
		return collections.Counter(twins.split_lines(self.standard.see_messages(text)))

	def compare(self, one: twins.Run, other: twins.Run) -> Iterator[str]:
		"""The lines of a run that are wrong."""
		streams = {name: (self.count(getattr(one, name)), self.count(getattr(other, name))) for name in STREAMS}
		more = {name: second - first for name, (first, second) in streams.items()}
		both = [line for lines in more.values() for line in lines.elements()]
		tasks = [line for line in both if line in self.commands and line in self.printed]
		for line in dict.fromkeys(tasks):
			# the last ones of its commands are those that are additional
			self.counts.update(self.commands[line][-tasks.count(line) :])
		for name, (first, second) in streams.items():
			yield from ("%s - %s" % (name, line) for line in (first - second).elements())
			for line in more[name].elements():
				if not tasks or line not in self.printed:
					yield "%s + %s" % (name, line)


STREAMS = ("stdout", "stderr")


def make_workbench(tree: pathlib.Path, folder: pathlib.Path) -> Workbench:
	"""Builds the projects of a tree of Waf's own with the Waf of this tree, in a folder that is empty."""
	return Workbench(tree, tree, folder, folder / "bytecode", LONGEST)
