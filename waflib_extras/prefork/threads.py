"""
Runs tasks of Python code in a few threads.

It knows nothing of commands. A task that has ended is given to the dispatcher, and a bell (a pipe) wakes it.
"""

import os
import select
import threading
import time
from typing import TYPE_CHECKING, List, Set, Union

from waflib import Runner

from ..hooks.lifecycle import Ended

if TYPE_CHECKING:
	from waflib.Task import Task

	from .dispatcher import Dispatcher

WORTH = 0.001
"""In seconds. The time of a task that takes less is not noted."""


class Threads:
	"""The threads: up to -j, each started when a task comes and none is idle, and kept until the build ends."""

	def __init__(self, dispatcher: "Dispatcher") -> None:
		self.dispatcher = dispatcher
		self.heap = Runner.PriorityTasks()
		self.shown: Set[Task] = set()
		"""Tasks whose message is written already."""
		self.lock = threading.Lock()
		self.work = threading.Condition(self.lock)
		self.alive = 0
		self.idle = 0
		self.count = 0
		"""The number of tasks that were put and not given back."""
		self.closed = False
		self.waiting = False
		self.eager = False
		self.bell, self.rope = os.pipe()
		os.set_blocking(self.bell, False)
		os.set_blocking(self.rope, False)
		self.poll = select.poll()
		self.poll.register(self.bell, select.POLLIN)

	def put(self, task: "Task", shown: bool) -> None:
		with self.lock:
			self.count += 1
			if shown:
				self.shown.add(task)
			self.heap.append(task)
			if len(self.heap) <= self.idle:
				self.work.notify()
				return
			if self.alive >= self.dispatcher.jobs:
				return
			self.alive += 1
		self.start_thread()

	def start_thread(self) -> None:
		thread = threading.Thread(target=self.work_on)
		thread.daemon = True
		thread.start()

	def replace_thread(self) -> None:
		"""Start another thread for waiting tasks when a task has ended its thread, as by ``sys.exit``."""
		with self.lock:
			needed = bool(self.heap)
			if not needed:
				self.alive -= 1
		if needed:
			self.start_thread()

	def work_on(self) -> None:
		"""The body of a thread."""
		while True:
			with self.lock:
				while not self.heap:
					if self.closed:
						self.alive -= 1
						self.close_bell()
						return
					self.idle += 1
					self.work.wait()
					self.idle -= 1
				task = self.heap.pop()
			try:
				self.run(task)
			except BaseException:
				self.replace_thread()
				raise

	def run(self, task: "Task") -> None:
		dispatcher = self.dispatcher
		try:
			if not dispatcher.master.stop:
				if task in self.shown:
					self.shown.discard(task)
				else:
					dispatcher.show(task)
				dispatcher.write()
				dispatcher.prefork.running[threading.get_ident()] = task
				began = time.monotonic()
				recording = dispatcher.recording
				if recording is None:
					dispatcher.master.process_task(task)
				else:
					# not in a function of its own, whose call would double the cost
					entry: List[Union[Task, float]] = [task, recording.clock(), 0.0]
					recording.tasks.append(entry)
					try:
						dispatcher.master.process_task(task)
					finally:
						entry[2] = recording.clock()
				took = time.monotonic() - began
				if took > WORTH:
					dispatcher.build.tell(Ended(task, int(took * 1e6)))
		finally:
			dispatcher.prefork.running.pop(threading.get_ident(), None)
			with self.lock:
				self.count -= 1
				dispatcher.done.append(task)
				ring = self.waiting and (self.eager or not self.heap)
				if ring:
					self.waiting = False
			if ring:
				os.write(self.rope, b"!")

	def start_waiting(self, eager: bool) -> bool:
		"""Have the bell rung when a task ends: with ``eager`` for any, else if no other waits for a thread."""
		with self.lock:
			if self.dispatcher.done:
				return False
			self.eager = eager
			self.waiting = True
			return True

	def stop_waiting(self) -> None:
		with self.lock:
			self.waiting = False
		try:
			os.read(self.bell, 64)
		except BlockingIOError:
			pass

	def close(self) -> None:
		"""Have the threads end. The last one closes the bell."""
		with self.lock:
			self.closed = True
			self.work.notify_all()
			self.close_bell()

	def close_bell(self) -> None:
		if not self.alive:
			os.close(self.bell)
			os.close(self.rope)
