"""
What a build keeps for the next one, and Python's collector while that is read and written.
"""

import gc
import os
import pickle
from typing import Callable, Dict, Iterator, List

from waflib import Build, Context, Node, Task, Utils

from ..hooks import gc_pause, patch


class Database(patch.Patch):
	"""
	What Waf writes after each build in which a task has run.

	Waf makes one text of it in memory first, as large as the file, when all tasks are there, too. Here it is written
	while it is made. The file is the same.
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
		pickle.dump(data, f, Build.PROTOCOL)
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

	It walks through all tasks and nodes again and again while they are made, read and written, and none of them can go
	before the build has ended. Here it runs less often meanwhile, not at all while the database is read or written, and
	passes over the tasks when they are all there. It goes on with all else, so that memory stays bounded.
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
			without_collector(restore, bld)
			self.freeze()

		def write(bld: Build.BuildContext) -> None:
			without_collector(store, bld)

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
		# not if the project has its own wishes
		self.may_freeze = bool(self.collector.thresholds) and not gc.get_freeze_count()
		if self.may_freeze:
			gc.callbacks.append(self.watch)

	def watch(self, phase: str, info: Dict[str, int]) -> None:
		"""What has outlived a collection of everything is likely to stay."""
		if phase == "stop" and info["generation"] == 2:
			self.freeze()

	def freeze(self) -> None:
		"""Let the collector pass over all that is there now."""
		if self.may_freeze:
			self.collector.froze = True
			gc.freeze()

	def end(self, bld: Build.BuildContext) -> None:
		if self.may_freeze:
			self.may_freeze = False
			gc.callbacks.remove(self.watch)
		self.collector.restore()


def without_collector(function: Callable[[Build.BuildContext], None], bld: Build.BuildContext) -> None:
	is_enabled = gc.isenabled()
	gc.disable()
	try:
		function(bld)
	finally:
		if is_enabled:
			gc.enable()
