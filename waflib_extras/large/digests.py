"""
Patches for the digests of files and for the search for outputs, which do not look at each file in each build.
"""

import os
import struct
import tempfile
from typing import Any, Callable, Dict, List, Optional, Set, Union

from waflib import Build, Errors, Logs, Node, Task, Utils

from ..hooks import lifecycle, patch

SAVED = "large_digests"
"""The attribute of a build context that Waf stores for us in its database."""
STAMP = struct.Struct("=QQQqq")
FEW = 8
"""A folder is listed if more outputs than these are looked for in it."""


class Clock:
	"""The clock by which the file system of a folder stamps files."""

	def __init__(self, folder: str) -> None:
		self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # for as long as the build
		self.device = os.fstat(self.file.fileno()).st_dev
		self.time = self.ask()

	def ask(self) -> int:
		"""The present time of this clock."""
		os.utime(self.file.fileno())
		self.time = os.fstat(self.file.fileno()).st_ctime_ns
		return self.time

	def is_settled(self, found: os.stat_result) -> bool:
		"""Tell whether any change of this file from now on gives it another time."""
		if found.st_dev != self.device:
			return False  # another clock stamps it
		return found.st_ctime_ns < self.time or found.st_ctime_ns < self.ask()

	def close(self) -> None:
		self.file.close()


class Memory:
	"""The remembered digests of files, by node."""

	def __init__(self, folder: str, kind: str, saved: Dict[str, Any]) -> None:
		self.files: Dict[Node.Node, bytes] = saved.get("files", {}) if saved.get("kind") == kind else {}
		self.saved: Dict[str, Any] = {"kind": kind, "files": self.files}
		"""The part that Waf stores."""
		try:
			self.clock: Optional[Clock] = Clock(folder)
		except OSError:
			self.clock = None

	def digest(self, node: Node.Node, path: str) -> bytes:
		"""The digest of a file. An unchanged file is not read."""
		found = os.stat(path)
		stamp = STAMP.pack(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
		known = self.files.get(node)
		if known is not None and known[: STAMP.size] == stamp:
			return known[STAMP.size :]
		# asked before the file is read, so that any later change gives it another stamp
		is_settled = self.clock is not None and self.clock.is_settled(found)
		digest: bytes = Utils.h_file(path)
		if is_settled:
			self.files[node] = stamp + digest
		else:
			self.files.pop(node, None)
		return digest

	def tidy(self) -> None:
		"""Forget files for which Waf has no node any more."""
		for node in [node for node in self.files if not is_held(node)]:
			del self.files[node]

	def close(self) -> None:
		if self.clock is not None:
			self.clock.close()


def is_held(node: Node.Node) -> bool:
	"""Tell whether a node is still in the tree of nodes."""
	return node.parent is not None and node.parent.children.get(node.name) is node


class Digests(patch.Patch):
	"""
	The digests of files.

	Waf reads each source in each build. Here a file keeps its digest as long as device, inode, size and times are the
	same. A digest is not remembered if the file was changed so lately that another change could have the same times.
	That is judged by the clock of the build folder's file system, so files on other file systems are read each time.
	The digests are in Waf's own database; Waf without this patch removes them from it.
	"""

	name = "digests"
	topic = "what files contain"
	on_posix = True
	known = {
		"Node.Node.h_file": ("067a9d6a2910",),
		"Node.Node.get_bld_sig": ("e8a1e4a7c655",),
		"Utils.h_file": ("41711f3a8fa6",),
	}

	def install(self) -> None:
		hash_node, hash_file = Node.Node.h_file, Utils.h_file
		restore, store = Build.BuildContext.restore, Build.BuildContext.store
		Build.SAVED_ATTRS.append(SAVED)
		# for build contexts that exist already
		setattr(Build.BuildContext, SAVED, {})

		def h_file(node: Node.Node) -> bytes:
			memory = node.ctx.__dict__.get("large_memory")
			if memory is None or Utils.h_file is not hash_file:
				return hash_node(node)
			return memory.digest(node, node.abspath())

		def remember(bld: Build.BuildContext) -> None:
			restore(bld)
			kind = getattr(Utils.md5(), "name", "")
			bld.large_memory = Memory(bld.bldnode.abspath(), kind, getattr(bld, SAVED, {}))
			setattr(bld, SAVED, bld.large_memory.saved)

		def keep(bld: Build.BuildContext) -> None:
			memory = bld.__dict__.get("large_memory")
			# Waf replaces the dict to forget it
			if memory is not None and getattr(bld, SAVED, None) is memory.saved:
				memory.tidy()
			store(bld)

		self.replace("Node.Node.h_file", h_file)
		self.replace("Build.BuildContext.restore", remember)
		self.replace("Build.BuildContext.store", keep)

	def end(self, bld: Build.BuildContext) -> None:
		memory = bld.__dict__.pop("large_memory", None)
		if memory is not None:
			memory.close()


class Folders(patch.Patch):
	"""
	Folders of files that tasks write.

	Waf looks for the folder of each such file, and makes it if necessary. Here that is done once per folder while the
	tasks of a group are made. Wscripts must not remove folders meanwhile by other means than ``Node.delete``.
	"""

	name = "folders"
	topic = "folders of what tasks make"
	known = {"Node.Node.find_or_declare": ("2ec6eb6d21fb",)}

	def install(self) -> None:
		post_group, delete = Build.BuildContext.post_group, Node.Node.delete

		def post(bld: Build.BuildContext) -> None:
			bld.large_folders = set()
			try:
				post_group(bld)
			finally:
				del bld.large_folders

		def remove(self: Node.Node, *args: object, **kw: object) -> None:
			self.ctx.__dict__.get("large_folders", set()).clear()
			delete(self, *args, **kw)

		self.replace("Build.BuildContext.post_group", post)
		self.replace("Node.Node.delete", remove)
		self.replace("Node.Node.find_or_declare", find_or_declare)


def find_or_declare(self: Node.Node, lst: Union[str, List[str]]) -> Node.Node:
	if isinstance(lst, str) and os.path.isabs(lst):
		node = self.ctx.root.make_node(lst)
	else:
		node = self.get_bld().make_node(lst)
	made: Optional[Set[Node.Node]] = self.ctx.__dict__.get("large_folders")
	if made is None:
		node.parent.mkdir()
	elif node.parent not in made:
		node.parent.mkdir()
		made.add(node.parent)
	return node


class Listings:
	"""The names in those folders in which several files are looked for."""

	def __init__(self) -> None:
		self.counts: Dict[Node.Node, int] = {}
		self.nodes: Dict[Node.Node, Set[Node.Node]] = {}

	def has(self, node: Node.Node) -> bool:
		folder = node.parent
		nodes = self.nodes.get(folder)
		if nodes is None:
			count = self.counts[folder] = self.counts.get(folder, 0) + 1
			if count <= FEW:
				return node.exists()
			nodes = self.nodes[folder] = list_nodes(folder)
		return node in nodes or node.exists()


def list_nodes(folder: Node.Node) -> Set[Node.Node]:
	"""The nodes of all files in a folder except links, which may lead nowhere."""
	nodes = folder.children
	try:
		with os.scandir(folder.abspath()) as entries:
			return {nodes[entry.name] for entry in entries if entry.name in nodes and not entry.is_symlink()}
	except OSError:
		return set()


class Outputs(patch.Patch):
	"""
	Whether the outputs of a task still exist.

	Waf asks the system for each file. Here folders are listed as long as no task has run in this build. Later each file
	is looked for as Waf does it, since tasks may make and remove files.
	"""

	name = "outputs"
	topic = "whether outputs are still there"
	known = {"Task.Task.runnable_status": ("8e0e8c51c028",), "Node.Node.exists": ("4a983de79d4e",)}

	def install(self) -> None:
		self.replace("Task.Task.runnable_status", runnable_status)


def runnable_status(self: Task.Task) -> int:
	bld = self.generator.bld
	if bld.is_install < 0:
		return Task.SKIP_ME
	for other in self.run_after:
		if not other.hasrun:
			return Task.ASK_LATER
		if other.hasrun < Task.SKIPPED:
			return Task.CANCEL_ME
	try:
		signature = self.signature()
	except Errors.TaskNotReady:
		return Task.ASK_LATER
	key = self.uid()
	before = bld.task_sigs.get(key)
	if before is None:
		Logs.debug("task: task %r must run: it was never run before or the task code changed", self)
		return Task.RUN_ME
	if signature != before:
		Logs.debug("task: task %r must run: the task signature changed", self)
		return Task.RUN_ME
	has = choose_look(bld)
	for node in self.outputs:
		maker = bld.node_sigs.get(node)
		if not maker:
			Logs.debug("task: task %r must run: an output node has no signature", self)
			return Task.RUN_ME
		if maker != key:
			Logs.debug("task: task %r must run: an output node was produced by another task", self)
			return Task.RUN_ME
		if not has(node):
			Logs.debug("task: task %r must run: an output node does not exist", self)
			return Task.RUN_ME
	return Task.RUN_ME if self.always_run else Task.SKIP_ME


def choose_look(bld: Build.BuildContext) -> Callable[[Node.Node], bool]:
	"""The function that tells whether a file exists."""
	master = bld.producer
	if master.dirty or master.count:
		# a task has run, or runs now
		return exists
	key = bld.current_group, lifecycle.find().is_called
	listings = bld.__dict__.get("large_listings")
	if listings is None or listings[0] != key:
		listings = bld.large_listings = key, Listings()
	return listings[1].has


def exists(node: Node.Node) -> bool:
	return node.exists()
