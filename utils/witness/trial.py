"""Programs, one after the other, in as many folders as there are jobs, until one did more than was noted."""

import functools
import pathlib
import queue
import random
import re
import shutil
import threading
from collections import Counter
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

from .action import Action
from .comparison import compare
from .observer import Observation, Observer
from .program import FLAVOURS, Chooser, Node
from .source import Text, Writer
from .workshop import Workshop

BATCH = 50  # programs in one binary
SMALL = 2  # smaller programs stay as they are
CRASH = re.compile(r"--- SIG(?:SEGV|ILL|BUS|ABRT|FPE|SYS|TRAP) .*")
ROUNDS = 12  # of making a program smaller


class Result(NamedTuple):
	"""The result of a program."""

	number: int
	program: Node
	blind: List[str]
	missed: List[str]
	observation: Observation


class Bench:
	"""A folder, the observer for it, and the programs that are made there."""

	def __init__(
		self,
		root: pathlib.Path,
		observer: str,
		actions: List[Action],
		forgotten: Sequence[str] = (),
		is_traced: bool = False,
	) -> None:
		root.mkdir()
		self.is_traced = is_traced
		self.actions, self.forgotten = actions, forgotten
		self.workshop = Workshop(root)
		self.observer = Observer(observer, self.workshop.root)

	def close(self) -> None:
		self.observer.close()

	def try_all(self, programs: Dict[int, Node]) -> Iterator[Result]:
		"""The results of some programs."""
		text = Writer(self.actions).write(list(programs.values()))
		self.workshop.make(text)
		for slot, (number, program) in enumerate(programs.items()):
			observation = self.run(text, slot)
			crashes_alone = functools.partial(self.crashes_alone, text, slot)
			yield self.judge(number, program, observation, crashes_alone)

	def run(self, text: Text, slot: int) -> Observation:
		found = self.observe(text, slot, "plain" if self.is_traced else "")
		if self.is_traced:
			# a process has one tracer: strace has seen the same program in a yard like this one
			traced = self.observe(text, slot, "traced")
			found = traced._replace(trace=found.trace, is_traced=True)
		return found._replace(accesses=[access for access in found.accesses if access.path not in self.forgotten])

	def crashes_alone(self, text: Text, slot: int) -> bool:
		"""A few do: they write over a file that they have mapped, or convert text where there are no modules for it."""
		return bool(CRASH.search(self.observe(text, slot, "plain").trace))

	def observe(self, text: Text, slot: int, how: str) -> Observation:
		root = str(self.workshop.root)
		self.workshop.prepare_yard({name: script for name, (script, whose) in text.scripts.items() if whose == slot})
		argv = [word.replace("@", root) for word in text.calls[slot].words]
		return self.observer.observe(argv, self.workshop.yard, self.workshop.environment(), how)

	def judge(self, number: int, program: Node, observation: Observation, crashes_alone: Callable[[], bool]) -> Result:
		crash = CRASH.search(observation.trace)
		missed: List[str] = []
		if observation.status is None:
			missed = ["it did not end"]
		elif crash:
			missed = [] if crashes_alone() else ["it crashed: %s" % crash.group(0)]
		else:
			misses = compare(observation, str(self.workshop.yard), self.observer.exceptions)
			missed = [miss.tell().replace(str(self.workshop.root), "@") for miss in misses]
		return Result(number, program, observation.blind, missed, observation)

	def shrink(self, result: Result) -> Result:
		"""The smallest program that still does more than was noted, as far as leaving things out leads there."""
		for _ in range(ROUNDS):
			smaller = sorted(list_smaller(result.program), key=Node.size)[:BATCH]
			found = (one for one in self.try_all(dict(enumerate(smaller))) if one.missed)
			best = next(found, None) if smaller else None
			if best is None:
				break
			result = best._replace(number=result.number)
		return result


def list_smaller(program: Node) -> List[Node]:
	"""It without one step, or one that it starts instead of it."""
	found = [step.child for step in program.steps if step.child]
	for at, step in enumerate(program.steps):
		before, after = program.steps[:at], program.steps[at + 1 :]
		found.append(program._replace(steps=before + after))
		for child in list_smaller(step.child) if step.child else ():
			found.append(program._replace(steps=(*before, step._replace(child=child), *after)))
	return found


class Campaign:
	"""The options of a run, and its results so far."""

	def __init__(
		self,
		root: pathlib.Path,
		observer: str,
		actions: List[Action],
		say: Callable[[int, int], None],
		goes_on: bool = False,
		forgotten: Sequence[str] = (),
		is_traced: bool = False,
	) -> None:
		self.is_traced = is_traced
		self.root, self.observer, self.actions, self.say = root, observer, actions, say
		self.goes_on, self.forgotten = goes_on, forgotten
		self.done = self.compared = self.total = 0
		self.blind: Counter[str] = Counter()
		self.misses: Dict[str, Result] = {}  # by what is left when they were made smaller
		self.counts: Counter[str] = Counter()
		self.missing: List[str] = []  # flavours that cannot be made here
		self.error: Optional[BaseException] = None
		self.lock = threading.Lock()

	@property
	def is_over(self) -> bool:
		return self.error is not None or (bool(self.misses) and not self.goes_on)

	def run(self, programs: Callable[[List[str]], Dict[int, Node]], jobs: int) -> None:
		"""All that are drawn for the flavours that can be had here."""
		first = self.open_bench(0)
		self.missing = [flavour.name for flavour in FLAVOURS if flavour.name not in first.workshop.flavours]
		drawn = list(programs(first.workshop.flavours).items())
		self.total = len(drawn)
		work: queue.SimpleQueue[Dict[int, Node]] = queue.SimpleQueue()
		for at in range(0, len(drawn), BATCH):
			work.put(dict(drawn[at : at + BATCH]))
		threads = [
			threading.Thread(target=self.work_off, args=(work, n, first if n == 0 else None)) for n in range(jobs)
		]
		for thread in threads:
			thread.start()
		for thread in threads:
			thread.join()
		if self.error:
			raise self.error

	def open_bench(self, number: int) -> Bench:
		return Bench(self.root / ("job%d" % number), self.observer, self.actions, self.forgotten, self.is_traced)

	def work_off(self, work: "queue.SimpleQueue[Dict[int, Node]]", number: int, bench: Optional[Bench]) -> None:
		try:
			bench = bench or self.open_bench(number)
			while not self.is_over:
				# all of them first, because shrinking replaces the programs in this folder
				for result in list(bench.try_all(work.get_nowait())):
					self.count(result, bench)
					if self.is_over:
						break
		except queue.Empty:
			pass
		except BaseException as e:  # whatever ends a job ends them all
			self.error = e
		finally:
			if bench:
				bench.close()

	def count(self, result: Result, bench: Bench) -> None:
		smallest = bench.shrink(result) if result.missed and result.program.size() > SMALL else result
		with self.lock:
			self.done += 1
			self.compared += not result.blind
			self.blind.update(set(result.blind))
			self.say(self.done, self.total)
			if not result.missed:
				return
			kind = smallest.program.tell_kind()
			self.counts[kind] += 1
			if kind not in self.misses:
				self.misses[kind] = smallest
				self.keep(result, smallest)

	def keep(self, result: Result, smallest: Result) -> None:
		"""Keep a miss for the person who repairs it."""
		folder = self.root / ("miss-%d" % result.number)
		folder.mkdir(exist_ok=True)
		for name, one in (("whole", result), ("smallest", smallest)):
			text = "%s\n\n%s\n" % (one.program.tell(), "\n".join(one.missed))
			(folder / (name + ".txt")).write_text(text, "utf-8", "replace")
			(folder / (name + ".strace")).write_text(one.observation.trace, "utf-8", "replace")
			accesses = "\n".join("%d %s %d %s" % access for access in one.observation.accesses)
			(folder / (name + ".accesses")).write_text(accesses + "\n", "utf-8", "replace")

	def clear(self) -> None:
		"""Remove the folders in which programs ran."""
		for folder in self.root.glob("job*"):
			shutil.rmtree(folder)


def draw(seed: int, numbers: Sequence[int], actions: List[Action]) -> Callable[[List[str]], Dict[int, Node]]:
	"""Each program has a seed of its own, so that it can be had alone."""

	def choose(flavours: List[str]) -> Dict[int, Node]:
		chooser = Chooser(actions, flavours)
		return {number: chooser.choose_program(random.Random("%d:%d" % (seed, number))) for number in numbers}

	return choose
