"""
Compiles a batch of ``unity``. If that fails, sources are set apart until the rest compiles.
"""

import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Pattern, Sequence, Tuple

from waflib import Context, Logs, Options, Task, Utils

if TYPE_CHECKING:
	from waflib.Build import BuildContext

	from .unit import Unit

AUTO = "auto"
SAMPLE = 3
"""So many files of a target are also compiled alone, to measure what is gained."""
TICK = 12 * 10**6
"""In nanoseconds. A later change of a file gives it another time."""
ERROR = re.compile(r"^(.*?):\d+(?::\d+)?: (?:fatal )?error\b", re.MULTILINE)
PLACE = re.compile(r"^(?:In file included from |\s+from )?([^\s:][^:\n]*):\d+", re.MULTILINE)


Given = Dict[str, Any]
"""The arguments of a task's command for ``Popen``."""


class Attempt:
	"""The result of a compile. Only that of the last one is shown."""

	def __init__(self, task: Task.Task, cmd: List[str], kw: Given) -> None:
		self.lines: List[Tuple[str, str]] = []
		began = time.monotonic()
		self.code: int = Task.Task.exec_command(Standin(task, self), cmd, **kw)
		self.seconds = time.monotonic() - began

	@property
	def text(self) -> str:
		return "".join(text for _, text in self.lines)

	def show(self, bld: "BuildContext") -> None:
		"""Write the output as Waf does."""
		for stream, text in self.lines:
			if bld.logger:
				if stream == "out":
					bld.logger.debug("out: %s", text)
				else:
					bld.logger.error("err: %s" % text)
			else:
				Logs.info(text, extra={"stream": sys.stdout if stream == "out" else sys.stderr, "c1": ""})


class Standin:
	"""Stands in for a task and its context in Waf's ``exec_command``, and keeps the output."""

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
	"""Compiles one batch. If that fails, finds the sources that do not compile with the others."""

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
		"""The attempt with a source that does not compile even alone, if the build has to stop there."""

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
		assert last is not None  # there was at least one attempt
		return self.end(last)

	def end(self, attempt: Attempt) -> int:
		attempt.show(self.bld)
		return attempt.code

	def is_stopped(self) -> bool:
		return bool(getattr(self.bld.producer, "stop", False))

	def sort(self, members: Sequence[int]) -> List[int]:
		"""Sort members in the order of the batch."""
		return [i for i in self.task.members if i in members]

	def attempt(self, members: Sequence[int]) -> bool:
		"""Compile these members. Tell whether that has worked."""
		members = self.sort(members)
		self.write(members)
		attempt = self.run()
		self.last = members, attempt
		return not attempt.code

	def write(self, members: Sequence[int]) -> None:
		node = self.task.inputs[0]
		node.write(self.unit.write(members, self.task.writer))
		if "wafcc_began" in self.task.__dict__:
			# otherwise wafcc would take it for an input that was changed while the compiler ran
			self.task.wafcc_began = os.stat(node.abspath()).st_ctime_ns

	def run(self) -> Attempt:
		"""Run the command. If it is cached, wait until the input is old enough for its result to be stored."""
		if "wafcc_began" in self.task.__dict__:
			written = os.stat(self.task.inputs[0].abspath()).st_ctime_ns
			left = (written + TICK - time.time_ns()) / 1e9
			if 0 < left <= TICK / 1e9:
				time.sleep(left)
		return Attempt(self.task, self.cmd, dict(self.kw))

	def find_kept(self, members: List[int], whole: Attempt) -> None:
		"""Split the members into those that compile together and those that are set apart."""
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
		"""Try each half of members that do not all compile with the kept ones."""
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
		"""Tell whether a source does not compile even alone, and the build has to stop there."""
		return not self.attempt([member]) and self.note_broken()

	def note_broken(self) -> bool:
		"""Stop at the error of the last attempt, that of a single source, unless the build goes on after errors."""
		if not self.bld.keep:
			self.broken = self.last[1]
		return self.broken is not None

	def set_apart(self, member: int) -> None:
		if member not in self.apart:
			self.apart.append(member)

	def find_named(self, text: str, pattern: Pattern[str]) -> List[int]:
		"""The members that the compiler's messages name in such positions, or whose headers they name."""
		spelled = {self.unit.spell(i): i for i in self.task.members}
		spelled.update({"./" + path: i for path, i in list(spelled.items())})
		found: Dict[int, None] = {}
		for place in pattern.finditer(text):
			if place.group(1) in spelled:
				found[spelled[place.group(1)]] = None
		return list(found)

	def settle(self, whole: Attempt) -> None:
		"""Remember the sources that were set apart, and correct Waf's records of the batch."""
		task, bld = self.task, self.bld
		starts = self.unit.starts
		early = [i for i in self.apart if i in starts]
		if early:
			# later sources with such code may not run before it
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
		"""Tell whether the gain has still to be measured."""
		if getattr(Options.options, "unity", None) != AUTO or self.unit.target.times:
			return False
		with self.unit.remembered.lock:
			if self.unit.sampled:
				return False
			self.unit.sampled = True
			return True

	def sample(self, members: List[int]) -> List[float]:
		"""Measure how many seconds some members take alone."""
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
	Compute the signature of a task again, since its input was written again.

	Its headers are not scanned again: too many dependencies do no harm, and this is not Waf's own thread.
	"""
	bld = task.generator.bld
	task.m = Utils.md5(task.hcode)
	task.sig_explicit_deps()
	task.sig_vars()
	if task.scan:
		bld.imp_sigs[task.uid()] = task.compute_sig_implicit_deps()
	task.cache_sig = task.m.digest()
