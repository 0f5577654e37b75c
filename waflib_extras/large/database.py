"""
Patches for Waf's database, and for Python's collector while it is read and written.
"""

import gc
import os
from typing import Dict, Iterator, List

from waflib import Build, Context, Node, Task, Utils

from ..hooks import gc_pause, patch


class Database(patch.Patch):
	"""
	The database that Waf writes after each build in which a task has run.

	Waf first makes the whole content of the file in memory, beside all tasks. Here it is written while it is made. The
	file is the same.
	"""

	name = "database"
	topic = "what a build keeps for the next one"
	known = {"Build.BuildContext.store": ("86a2ad0199b4",), "Utils.writef": ("1b83dcc98298",)}

	def install(self) -> None:
		self.replace("Build.BuildContext.store", store)


def store(self: Build.BuildContext) -> None:
	data = {name: getattr(self, name) for name in Build.SAVED_ATTRS}
	path = os.path.join(self.variant_dir, Context.DBFILE)
	with open(path + ".tmp", "wb") as f, Node.pickle_lock:
		Node.Nod3 = self.node_class
		Build.cPickle.dump(data, f, Build.PROTOCOL)
	try:
		before = os.stat(path)
		os.remove(path)
		if not Utils.is_win32:
			os.chown(path + ".tmp", before.st_uid, before.st_gid)
	except (AttributeError, OSError):
		pass
	os.rename(path + ".tmp", path)


class Collected(patch.Patch):
	"""
	Python's cyclic collector.

	It walks through all tasks and nodes again and again, though none of them becomes garbage before the build ends.
	Here it runs less often, and not at all while the database is read or written. When all tasks are made, it skips
	them. It still collects everything else, so that memory stays bounded.
	"""

	name = "collector"
	topic = "Python's cyclic collector"

	def __init__(self) -> None:
		self.collector = gc_pause.Collector()
		self.may_freeze = False

	def obstacle(self, sources: patch.Sources) -> str:
		return super().obstacle(sources) if hasattr(gc, "freeze") else "this Python has another kind of collector"

	def install(self) -> None:
		iterate = Build.BuildContext.get_build_iterator
		restore, store = Build.BuildContext.restore, Build.BuildContext.store

		def read(bld: Build.BuildContext) -> None:
			with gc_pause.without_collector():
				restore(bld)
			self.freeze()

		def write(bld: Build.BuildContext) -> None:
			with gc_pause.without_collector():
				store(bld)

		def get_build_iterator(bld: Build.BuildContext) -> Iterator[List[Task.Task]]:
			for tasks in iterate(bld):
				if tasks:
					self.freeze()
				yield tasks

		self.replace("Build.BuildContext.get_build_iterator", get_build_iterator)
		self.replace("Build.BuildContext.restore", read)
		self.replace("Build.BuildContext.store", write)

	def begin(self, bld: Build.BuildContext) -> None:
		self.collector.slow_down()
		# not if the project has set thresholds of its own
		self.may_freeze = bool(self.collector.thresholds) and not gc.get_freeze_count()
		if self.may_freeze:
			gc.callbacks.append(self.watch)

	def watch(self, phase: str, info: Dict[str, int]) -> None:
		"""Freeze what has survived a full collection, since it is likely to stay."""
		if phase == "stop" and info["generation"] == 2:
			self.freeze()

	def freeze(self) -> None:
		"""Let the collector skip all objects that exist now."""
		if self.may_freeze:
			self.collector.froze = True
			gc.freeze()

	def end(self, bld: Build.BuildContext) -> None:
		if self.may_freeze:
			self.may_freeze = False
			gc.callbacks.remove(self.watch)
		self.collector.restore()
