"""
Decides which stale files may be removed, and removes them.

A stale file is one of the record that no task declares any more. It is removed only if it is still the file that the
build has made, and if nothing in this build names it.
"""

import os
from typing import Callable, Dict, Iterable, List, NamedTuple, Set

from waflib import Build, Node, Task

from . import record


class Removal(NamedTuple):
	"""The stale files by what became of them; by name, as the record has them."""

	removed: List[str]
	changed: List[str]
	"""They are not what the build has made any more."""
	refused: Dict[str, str]
	"""With the system's reason."""


class Guard:
	"""The files of a build that are not to be removed. Paths are compared with the links in their folders resolved."""

	def __init__(self, bld: Build.BuildContext, tasks: Iterable[Task.Task], others: Iterable[str]) -> None:
		self.bld = bld
		self.folders: Dict[str, str] = {}
		self.named = {self.resolve(path) for path in others}
		self.standing: Set[bytes] = set()
		"""The tasks that are up to date. Some add outputs only when they run, and Waf knows these by the task."""
		self.scanned: Set[str] = set()
		for task in tasks:
			for node in (*task.inputs, *task.dep_nodes, *task.outputs):
				self.named.add(self.resolve(node.abspath()))
			if task.hasrun == Task.SKIPPED:
				self.standing.add(task.uid())
		for node, values in bld.deps_man.items():
			named = (node, *(value for value in values if isinstance(value, Node.Node)))
			self.named.update(self.resolve(each.abspath()) for each in named)
		for env in bld.all_envs.values():
			self.named.update(map(self.resolve, env[Build.CFG_FILES]))

	def resolve(self, path: str) -> str:
		folder, name = os.path.split(path)
		if folder not in self.folders:
			self.folders[folder] = os.path.realpath(folder)
		return os.path.join(self.folders[folder], name)

	def is_named(self, path: str) -> bool:
		"""Tell whether a task, the configuration or another record names the file."""
		return self.resolve(path) in self.named

	def is_standing(self, path: str) -> bool:
		"""Tell whether a task that is up to date has made the file."""
		node = self.bld.root.search_node(path)
		return node is not None and self.bld.node_sigs.get(node) in self.standing

	def is_read(self, path: str) -> bool:
		"""Tell whether the scan of a task, or the engine, has found that the file is read."""
		if not self.scanned:
			self.scanned = {node.abspath() for nodes in self.bld.node_deps.values() for node in nodes}
		memory = self.bld.__dict__.get("wafcc_memory")
		name = os.fsencode(os.path.basename(path))
		return path in self.scanned or (memory is not None and any(name in text for text in memory.texts))


def remove(files: record.Files, base: str, is_dry: bool) -> Removal:
	"""Remove the files that are unchanged; ``base`` is the folder of relative names."""
	done = Removal([], [], {})
	for name, identity in sorted(files.items()):
		path = os.path.join(base, name)
		found = record.look(path)
		if found is None:
			continue
		if found != identity:
			done.changed.append(name)
			continue
		try:
			if not is_dry:
				os.remove(path)
			done.removed.append(name)
		except OSError as e:
			done.refused[name] = str(e.strerror)
	return done


def remove_folders(paths: Iterable[str], is_ours: Callable[[str], bool]) -> None:
	"""Remove the folders of these files that are empty now, and those above them, as far as they are ours."""
	for path in paths:
		folder = os.path.dirname(path)
		while is_ours(folder):
			try:
				os.rmdir(folder)
			except OSError:
				break
			folder = os.path.dirname(folder)
