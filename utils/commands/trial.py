"""
What is done with a command: it is run twice plainly, and twice with each cache.

The plain runs tell what is right. If they differ from each other, the command is not steady: its result may be
any, but must not be an old one.
"""

import json
import pathlib
import shutil
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from benchmark.cache import CompilerCache, Wafcc
from benchmark.environment import plain_environment
from benchmark.meter import Command, explain, watch
from benchmark.mistake import Failed

from .command import Everyday
from .contender import PLAIN, Contender
from .folder import YOUNGER, Entry, State, make_old, restore, scan, settle, write_inputs

Caches = List[Tuple[Contender, CompilerCache]]


class Seen(NamedTuple):
	"""All that a run has left."""

	status: int
	output: bytes
	errors: bytes
	state: State


class Run(NamedTuple):
	wall: float
	seen: Seen


class Done(NamedTuple):
	"""What a contender did with a command."""

	cold: float
	warm: float
	hit: Optional[bool]
	"""None without a cache."""
	steady: bool
	wrong: str = ""
	"""What differs, in which run."""
	reason: str = ""
	"""Why there was no hit, if the cache tells."""


class Trial:
	"""A command in a folder of its own."""

	def __init__(self, command: Everyday, work: pathlib.Path) -> None:
		self.command = command
		self.work = work
		self.folder = work / command.name
		self.env = plain_environment()
		self.before: State = {}

	def run(self, caches: Caches) -> Dict[str, Done]:
		"""By the names of contenders: what came of it. The folder is removed then."""
		try:
			self.prepare()
			self.try_out()
			first = self.once(PLAIN, {})
			began = time.monotonic()
			runs = {contender.name: self.twice(contender, cache) for contender, cache in caches}
			time.sleep(max(began + self.command.again - time.monotonic(), 0))
			second = self.once(PLAIN, {})
			steady = not self.difference(first.seen, second.seen)
			done = {PLAIN.name: Done(first.wall, second.wall, None, steady)}
			for name, (cold, warm, hit, reason) in runs.items():
				wrong = self.judge(first.seen, cold.seen, warm.seen, hit, steady)
				done[name] = Done(cold.wall, warm.wall, hit, steady, wrong, "" if hit else reason)
			return done
		finally:
			shutil.rmtree(self.folder, ignore_errors=True)

	def prepare(self) -> None:
		write_inputs(self.folder, self.command)
		if self.command.setup:
			argv = ["sh", "-e", "-c", self.command.setup]
			_, seen = self.watch(argv, {})
			if seen.status:
				raise Failed("its setup: " + explain(argv, seen.status), text_of(seen))
			make_old(self.folder, YOUNGER)
		self.before = settle(self.folder)

	def try_out(self) -> None:
		"""A run that does not count: it brings the programs into memory, and shows whether the command works here."""
		_, seen = self.once(PLAIN, {})
		if seen.status != self.command.status:
			raise Failed(explain(self.command.argv, seen.status), text_of(seen))

	def once(self, contender: Contender, variables: Dict[str, str]) -> Run:
		"""Run it, and put the folder back."""
		run = self.watch(contender.argv(self.command), variables)
		restore(self.folder, self.before)
		if settle(self.folder) != self.before:
			raise Failed("its folder could not be put back")
		return run

	def watch(self, argv: List[str], variables: Dict[str, str]) -> Run:
		output, errors = self.work / "output", self.work / "errors"
		command = Command(argv, str(self.folder), {**self.env, **variables})
		wall, status, _ = watch(command, str(output), errors=str(errors))
		return Run(wall, Seen(status, output.read_bytes(), errors.read_bytes(), scan(self.folder)))

	def twice(self, contender: Contender, cache: CompilerCache) -> Tuple[Run, Run, bool, str]:
		"""Run it cold and warm: also whether it was a hit the second time, and if not, why."""
		reasons = Reasons(cache, str(self.folder))
		cold = self.once(contender, cache.environment)
		reasons.learn()
		cache.rest()
		hits = cache.hits()
		warm = self.once(contender, cache.environment)
		later = cache.hits()
		hit = hits is not None and later is not None and later > hits
		return cold, warm, hit, "" if hit else reasons.tell()

	# ---- what is right

	def judge(self, plain: Seen, cold: Seen, warm: Seen, hit: bool, steady: bool) -> str:
		"""What is wrong; empty if nothing is."""
		if not steady:
			is_old = hit and not self.difference(cold, warm)
			return "warm: the first result again, though plain runs differ" if is_old else ""
		for step, seen in (("cold", cold), ("warm", warm)):
			difference = self.difference(plain, seen)
			if difference:
				return "%s: %s" % (step, difference)
		return ""

	def difference(self, right: Seen, seen: Seen) -> str:
		"""The first thing that is not as it should be; empty if nothing is."""
		if seen.status != right.status:
			return "exit status %d and not %d" % (seen.status, right.status)
		for what, one, other in (("output", right.output, seen.output), ("messages", right.errors, seen.errors)):
			if one != other:
				return "the %s: %s and not %s" % (what, short(other), short(one))
		for name in sorted({*right.state, *seen.state}):
			if name not in right.state or name not in seen.state:
				return "%s is %s" % (name, "missing" if name in right.state else "too much")
			field = self.other_field(right.state[name], seen.state[name])
			if field:
				return "%s has another %s" % (name, field)
		return ""

	def other_field(self, right: Entry, seen: Entry) -> str:
		"""What of a file, folder or link is not as it should be; empty if nothing is."""
		fields = ["kind", "mode", "content", "twin"]
		if self.command.sets_times and right.kind == "file":
			fields.append("time")
		return next((field for field in fields if getattr(right, field) != getattr(seen, field)), "")


class Reasons:
	"""Why our cache did not answer."""

	def __init__(self, cache: CompilerCache, folder: str) -> None:
		self.cache = cache if isinstance(cache, Wafcc) else None
		self.folder = folder
		self.before = self.counts()
		self.reason = ""

	def counts(self) -> Dict[str, Any]:
		return self.cache.counts() if self.cache else {}

	def learn(self) -> None:
		"""Keep the reason for which nothing was stored in the first run."""
		after = self.counts()
		for kind in ("not_stored", "uncached"):
			told = after.get(kind, {})
			grown = [name for name, count in sorted(told.items()) if count > self.before[kind].get(name, 0)]
			self.reason = self.reason or ", ".join(grown)

	def tell(self) -> str:
		"""That reason, or that of the second run's miss."""
		if self.reason or not self.cache:
			return self.reason
		for request in json.loads(self.cache.ask("--explain", "--json")):
			if request["folder"] == self.folder:
				return "%s: %s" % (request["known"], "; ".join(request["why"]))
		return "not told"


def short(text: bytes, most: int = 60) -> str:
	shown = text.decode("utf-8", "replace")
	return repr(shown if len(shown) <= most else shown[: most - 3] + "...")


def text_of(seen: Seen) -> str:
	return (seen.output + seen.errors).decode("utf-8", "replace").strip()
