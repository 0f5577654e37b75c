"""
What a batch of ``unity`` does when it is compiled: it compiles, or is parted until the rest of it does.
"""

import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Pattern, Sequence, TextIO, Tuple

from waflib import Context, Logs, Options, Task, Utils

if TYPE_CHECKING:
	from waflib.Build import BuildContext

	from .unit import Unit

AUTO = "auto"
SAMPLE = 3
"""So many files of a target are compiled alone as well, to find out what it gains."""
TICK = 12 * 10**6
"""Nanoseconds after which the time of a file tells that it was not changed again."""
ERROR = re.compile(r"^(.*?):\d+(?::\d+)?: (?:fatal )?error\b", re.MULTILINE)
PLACE = re.compile(r"^(?:In file included from |\s+from )?([^\s:][^:\n]*):\d+", re.MULTILINE)


Given = Dict[str, Any]
"""What a task gives to ``Popen`` for its command."""


class Attempt:
	"""What came of a compile, which is not shown before it is known to be the last one."""

	def __init__(self, task: Task.Task, cmd: List[str], kw: Given) -> None:
		self.lines: List[Tuple[str, str]] = []
		began = time.monotonic()
		self.code: int = Task.Task.exec_command(Standin(task, self), cmd, **kw)
		self.seconds = time.monotonic() - began

	@property
	def text(self) -> str:
		return "".join(text for _, text in self.lines)

	def show(self, bld: "BuildContext") -> None:
		"""As Waf does it."""
		for stream, text in self.lines:
			if bld.logger:
				if stream == "out":
					bld.logger.debug("out: %s", text)
				else:
					bld.logger.error("err: %s" % text)
			else:
				stand = sys_stream(stream)
				Logs.info(text, extra={"stream": stand, "c1": ""})


def sys_stream(name: str) -> TextIO:
	return sys.stdout if name == "out" else sys.stderr


class Standin:
	"""A task for Waf's ``exec_command``, which runs its command for a context that only listens."""

	def __init__(self, task: Task.Task, attempt: Attempt) -> None:
		self.__dict__.update(task=task, generator=self, bld=self, logger=self, attempt=attempt)

	def __getattr__(self, name: str) -> Any:
		return getattr(self.task, name)

	def exec_command(self, cmd: List[str], **kw: Any) -> int:
		status: int = Context.Context.exec_command(self, cmd, **kw)
		return status

	def log_command(self, cmd: List[str], kw: Given) -> None:
		self.task.generator.bld.log_command(cmd, kw)

	def info(self, *args: object, **kwargs: object) -> None:
		pass

	def debug(self, form: str, text: str) -> None:
		self.attempt.lines.append(("out", text))

	def error(self, text: str) -> None:
		self.attempt.lines.append(("err", text[len("err: ") :]))


class Bisection:
	"""One batch: compiles it, and finds out who does not go with the others if it fails."""

	def __init__(self, task: Task.Task, cmd: List[str], kw: Given) -> None:
		self.task = task
		self.cmd = cmd
		self.kw = kw
		self.unit: Unit = task.unity
		self.bld = task.generator.bld
		self.kept: List[int] = []
		self.apart: List[int] = []
		self.last: Tuple[List[int], Optional[Attempt]] = ([], None)
		self.broken: Optional[Attempt] = None
		"""A source does not compile even alone, and the build is to stop at that."""

	def compile(self) -> int:
		members = self.task.members
		times = self.sample(members) if self.is_sampled() else []
		attempt = self.run()
		if not attempt.code and times:
			alone = sum(times) / len(times) * len(members)
			self.unit.target.note_times(alone, attempt.seconds, len(members))
		if not attempt.code or len(members) < 2 or self.is_stopped():
			return self.end(attempt)
		self.find_kept(members, attempt)
		if self.broken or not self.kept:
			self.write(members)
			return self.end(self.broken or attempt)
		if self.last[0] != self.kept or self.last[1] is None or self.last[1].code:
			self.attempt(self.kept)
		self.settle(attempt)
		last = self.last[1]
		assert last is not None  # there was an attempt
		return self.end(last)

	def end(self, attempt: Attempt) -> int:
		attempt.show(self.bld)
		return attempt.code

	def is_stopped(self) -> bool:
		return bool(getattr(self.bld.producer, "stop", False))

	def sort(self, members: Sequence[int]) -> List[int]:
		"""In the order of the batch."""
		return [i for i in self.task.members if i in members]

	def attempt(self, members: Sequence[int]) -> bool:
		"""Compile these; tell whether that worked."""
		members = self.sort(members)
		self.write(members)
		attempt = self.run()
		self.last = members, attempt
		return not attempt.code

	def write(self, members: Sequence[int]) -> None:
		node = self.task.inputs[0]
		node.write(self.unit.write(members, self.task.writer))
		if "wafcc_began" in self.task.__dict__:
			# the cache's tool would take it for an input that somebody changed under the compiler
			self.task.wafcc_began = os.stat(node.abspath()).st_ctime_ns

	def run(self) -> Attempt:
		"""Run the command; where it is cached not in the tick in which its input was written, or it is not kept."""
		if "wafcc_began" in self.task.__dict__:
			written = os.stat(self.task.inputs[0].abspath()).st_ctime_ns
			left = (written + TICK - time.time_ns()) / 1e9
			if 0 < left <= TICK / 1e9:
				time.sleep(left)
		return Attempt(self.task, self.cmd, dict(self.kw))

	def find_kept(self, members: List[int], whole: Attempt) -> None:
		"""Sort the members into those that compile together and those that are set apart."""
		suspects = self.find_named(whole.text, ERROR)
		if suspects and self.is_broken(suspects[0]):
			return
		others = [i for i in members if i not in suspects]
		if suspects and others and len(suspects) * 2 <= len(members) and self.attempt(others):
			self.kept = others
			self.try_parts(suspects)
		else:
			self.try_parts(members)

	def try_parts(self, members: List[int]) -> None:
		"""They do not all compile with what is kept: try each half of them."""
		if self.broken:
			return
		if len(members) == 1:
			self.set_apart(members[0])
			return
		half = len(members) // 2
		for part in (members[:half], members[half:]):
			if self.broken:
				return
			if self.is_stopped():
				self.apart += part
			elif self.attempt(self.kept + part):
				self.kept = self.sort(self.kept + part)
			elif len(part) > 1:
				self.try_parts(part)
			elif self.kept or not self.note_broken():
				self.set_apart(part[0])

	def is_broken(self, member: int) -> bool:
		"""A source does not compile alone either, and that is what is to be shown."""
		return not self.attempt([member]) and self.note_broken()

	def note_broken(self) -> bool:
		"""The last attempt was of a single source: stop at its error, unless the build goes on after errors."""
		if not self.bld.keep:
			self.broken = self.last[1]
		return self.broken is not None

	def set_apart(self, member: int) -> None:
		if member not in self.apart:
			self.apart.append(member)

	def find_named(self, text: str, pattern: Pattern[str]) -> List[int]:
		"""The members that messages of the compiler name in such positions, or the headers of which they name."""
		spelled = {self.unit.spell(i): i for i in self.task.members}
		spelled.update({"./" + path: i for path, i in list(spelled.items())})
		found: Dict[int, None] = {}
		for place in pattern.finditer(text):
			if place.group(1) in spelled:
				found[spelled[place.group(1)]] = None
		return list(found)

	def settle(self, whole: Attempt) -> None:
		"""Remember who was set apart, and have Waf's records say what was compiled in the end."""
		task, bld = self.task, self.bld
		starts = self.unit.starts
		early = [i for i in self.apart if i in starts]
		if early:
			# what comes later of this may not run before it
			self.apart += [i for i in self.kept if i in starts and i > min(early)]
			kept = [i for i in self.kept if i not in self.apart]
			if kept != self.kept:
				self.kept = kept
				self.attempt(kept)
		named = self.find_named(whole.text, PLACE)
		for i in sorted(self.apart):
			others = [self.unit.nodes[k].abspath() for k in named if k != i]
			self.unit.target.set_apart(self.unit.nodes[i].abspath(), others)
			Logs.info("unity: %s does not compile with others: it is compiled alone" % self.unit.spell(i))
		task.writer.text = self.unit.write(self.kept, task.writer)
		task.apart = sorted(self.apart)
		task.kept = self.kept
		bld.cache_sig.pop(task.inputs[0], None)
		sign_again(task.writer)
		bld.task_sigs[task.writer.uid()] = task.writer.cache_sig
		if "cache_sig" in task.__dict__:
			sign_again(task)

	# ---- what a target gains

	def is_sampled(self) -> bool:
		"""Nobody knows yet, and it is to be known."""
		if getattr(Options.options, "unity", None) != AUTO or self.unit.target.times:
			return False
		with self.unit.remembered.lock:
			if self.unit.sampled:
				return False
			self.unit.sampled = True
			return True

	def sample(self, members: List[int]) -> List[float]:
		"""The seconds that some members take alone."""
		step = max(len(members) // SAMPLE, 1)
		times: List[float] = []
		for member in members[::step][:SAMPLE]:
			worked, last = self.attempt([member]), self.last[1]
			if not worked or last is None:
				times = []
				break
			times.append(last.seconds)
		self.write(members)
		return times


def sign_again(task: Task.Task) -> None:
	"""
	Have the signature of a task say what its input is by now.

	What a batch depends on beside it is not scanned again: that it is what more files depended on does no harm, and we
	are in a thread.
	"""
	bld = task.generator.bld
	task.m = Utils.md5(task.hcode)
	task.sig_explicit_deps()
	task.sig_vars()
	if task.scan:
		bld.imp_sigs[task.uid()] = task.compute_sig_implicit_deps()
	task.cache_sig = task.m.digest()
