"""
Gathers the tasks of a build that may run now, and makes calls for as many of them as possible.

It knows nothing of compilers, nor which targets take part.
"""

import atexit
import collections
import os
import shutil
import threading
import time
from typing import Dict, List, Tuple

from waflib import Build, Errors, Logs, Runner

from .joining import Key, LeftAlone, find_plan
from .membership import ALONE, MADE, NEW, TAKEN, WAITING, Member
from .outputs import FOLDERS, accept, find_doubted, remove, show, sweep, write_names

GRACE = 0.005
"""A call that waits for more tasks looks every so many seconds whether the scheduler still hands them out."""
MADE_HERE = "made"
"""In the folder of a call: the folder for outputs, if the command can be told where to put them."""


class Pool:
	"""The tasks of one build that may run now, from which calls take theirs."""

	def __init__(self, bld: Build.BuildContext) -> None:
		self.bld = bld
		self.for_all = False
		"""Whether all targets take part."""
		self.turn = threading.Condition()
		self.waiting: Dict[Key, List[Member]] = collections.OrderedDict()
		"""The tasks by what their commands have in common."""
		self.held: Dict[str, Member] = {}
		"""The paths in the build folder to which running calls write."""
		self.under_way = 0
		self.number = 0
		self.calls = 0
		self.shared = 0
		"""The number of tasks that were done in a call with others."""
		self.again = 0
		"""The number of tasks that had to be done again alone."""
		self.reasons: Dict[str, int] = collections.Counter()
		"""How many tasks were left alone, by reason."""
		self.is_swept = False
		if Logs.verbose:
			atexit.register(self.finish)

	def leave(self, reason: str) -> None:
		with self.turn:
			self.reasons[reason] += 1

	def enlist(self, member: Member) -> None:
		"""Add a task that may run now."""
		try:
			member.plan, key = find_plan(member.task)
			member.key = member.size, key
		except LeftAlone as e:
			self.leave(str(e))
			member.state = ALONE
		except Exception as e:
			# if its command is wrong, its own run tells the error
			self.leave("its command cannot be told: %s" % e)
			member.state = ALONE
		else:
			with self.turn:
				member.state = WAITING
				self.waiting.setdefault(member.key, []).append(member)
				self.turn.notify_all()

	def settle(self, member: Member) -> None:
		"""Make calls until this task was in one, or has to be done alone."""
		if self.bld.producer.numjobs == 1:
			self.poll(member)
		while True:
			with self.turn:
				if member.state == WAITING:
					self.wait_for_more(member)
				# the state may have changed while we waited
				if member.state == WAITING:
					crew = self.choose(member)
				elif member.state == TAKEN:
					crew = self.choose_other()
					if not crew:
						self.turn.wait()
						continue
				else:
					return
				if not crew:
					return
				self.under_way += 1
			try:
				self.call(crew)
			except OSError as e:
				self.leave("their call failed: %s" % e)
			finally:
				with self.turn:
					self.under_way -= 1
					for other in crew:
						if other.state == TAKEN:
							other.state = ALONE
						self.let_go(other)
					self.turn.notify_all()

	def poll(self, member: Member) -> None:
		"""Look at the tasks that follow. With one slot, Waf would not do so before it has run this one."""
		for task in sorted(self.bld.producer.outstanding):
			if len(self.waiting[member.key]) >= member.size:
				break
			other = task.__dict__.get("batch_member")
			if other is not None and other.state == NEW and not task.hasrun:
				try:
					other.runnable_status()
				except Exception:  # Waf will come to this task, and report the error
					continue

	def wait_for_more(self, member: Member) -> None:
		"""Let tasks gather while the scheduler is handing them out."""
		producer = self.bld.producer
		end = time.monotonic() + member.plan.patience
		while member.state == WAITING and len(self.waiting[member.key]) < member.size:
			is_handing_out = producer.outstanding and producer.count <= producer.numjobs * Runner.GAP
			left = end - time.monotonic()
			if producer.numjobs == 1 or producer.stop or not is_handing_out or left <= 0:
				break
			self.turn.wait(min(left, GRACE))

	def choose(self, member: Member) -> List[Member]:
		"""Take this task and others for a call; none if it has to be done alone."""
		mates = self.waiting[member.key]
		free = max(1, self.bld.producer.numjobs - self.under_way)
		count = min(member.size, -(-len(mates) // free))
		crew: List[Member] = []
		names: Dict[str, None] = {}
		for other in [member] + [mate for mate in mates if mate is not member]:
			if len(crew) == count:
				break
			if names.keys().isdisjoint(other.plan.names) and self.hold(other):
				names.update(dict.fromkeys(other.plan.names))
				crew.append(other)
			elif other is member:
				break
		if len(crew) < 2:
			for other in crew:
				self.let_go(other)
			self.reasons["nothing to share a call with" if crew else "a file of that name is in the way"] += 1
			self.take(member, ALONE)
			return []
		for other in crew:
			self.take(other, TAKEN)
		return crew

	def choose_other(self) -> List[Member]:
		"""Take other tasks for a call, if several of them fit together."""
		for mates in list(self.waiting.values()):
			if len(mates) > 1:
				return self.choose(mates[0])
		return []

	def take(self, member: Member, state: int) -> None:
		member.state = state
		mates = self.waiting[member.key]
		mates.remove(member)
		if not mates:
			del self.waiting[member.key]

	def hold(self, member: Member) -> bool:
		"""Reserve the path that the compiler will write where it runs. Tell whether it was free."""
		if member.plan.is_placed:
			return True
		folder = member.plan.kwargs["cwd"]
		path = os.path.join(folder.abspath(), member.plan.names[0])
		known = member.plan.names[0] in getattr(folder, "children", ())
		if known or path in self.held or os.path.lexists(path):
			return False
		self.held[path] = member
		return True

	def let_go(self, member: Member) -> None:
		if not member.plan.is_placed:
			path = os.path.join(member.plan.kwargs["cwd"].abspath(), member.plan.names[0])
			if self.held.get(path) is member:
				del self.held[path]

	# ---- one call

	def call(self, crew: List[Member]) -> None:
		"""Do these tasks with one command, move their outputs to their places, and show the command's output."""
		plan = crew[0].plan
		folder = self.make_folder()
		made: List[List[str]] = []
		try:
			place = os.path.join(folder, MADE_HERE) if plan.is_placed else plan.kwargs["cwd"].abspath()
			made = [[os.path.join(place, name) for name in member.plan.names] for member in crew]
			if plan.is_placed:
				os.mkdir(place)
			else:
				write_names(folder, [path for paths in made for path in paths])
			code, said = self.execute(crew, folder)
			doubted = find_doubted(crew, made, code, b"".join(said))
			accept(crew, made, doubted)
			if not code:
				show(self.bld, said)
			self.note(crew, doubted, code)
		finally:
			if not plan.is_placed:
				remove([path for paths in made for path in paths])
			shutil.rmtree(folder, ignore_errors=True)

	def note(self, crew: List[Member], doubted: List[Member], code: int) -> None:
		"""Let the threads of these tasks go on, and count the tasks."""
		with self.turn:
			self.calls += 1
			self.shared += len(crew) - len(doubted)
			self.again += len(doubted)
			for member in crew:
				member.state = ALONE if member in doubted else MADE
		if Logs.verbose:
			made = len(crew) - len(doubted)
			paths = " ".join(member.plan.paths[0] for member in crew)
			Logs.debug("batch: status %s, made %d of %d: %s", code, made, len(crew), paths)

	def execute(self, crew: List[Member], folder: str) -> Tuple[int, List[bytes]]:
		"""Run the command. Returns its status and the output of its two streams."""
		plan = crew[0].plan
		command = plan.make(crew, os.path.join(folder, MADE_HERE))
		paths = [os.path.join(folder, name) for name in ("stdout", "stderr")]
		with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
			try:
				code = crew[0].task.exec_command(command, **dict(plan.kwargs, stdout=out, stderr=err))
			except Errors.WafError as e:
				Logs.debug("batch: %s", e)
				code = -1
		said = []
		for path in paths:
			with open(path, "rb") as f:
				said.append(f.read())
		return code, said

	def make_folder(self) -> str:
		"""A new folder for one call, in the build folder."""
		build = self.bld.bldnode.abspath()
		with self.turn:
			if not self.is_swept:
				self.is_swept = True
				sweep(build)
			self.number += 1
			path = os.path.join(build, "%s%d" % (FOLDERS, self.number))
		os.mkdir(path)
		return path

	def finish(self) -> None:
		"""Called at exit: tell for ``--zones=batch`` how the tasks were done."""
		if Logs.log and (self.calls or self.reasons):
			Logs.debug("batch: %d tasks in %d calls, %d done again alone", self.shared, self.calls, self.again)
			for reason, count in sorted(self.reasons.items()):
				Logs.debug("batch: %d left alone: %s", count, reason)
