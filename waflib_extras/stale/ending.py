"""
The end of a build: what it has made goes into the record, and what only earlier builds have made is removed.
"""

import os
import re
from typing import Callable, Dict, List, Optional, Set, Tuple

from waflib import Build, Logs, Options, Task, TaskGen

from . import record, removal

SHOWN = 3
"""So many files are named in one line. With ``-v``, each is named."""
DONE = (Task.SKIPPED, Task.SUCCESS)
Status = Tuple[int, int, int]
"""Of an installed file: each installation that writes it changes one of these."""


class Watch:
	"""The notes about a build that is under way."""

	def __init__(self, bld: Build.BuildContext) -> None:
		self.bld = bld
		self.asked: List[Task.Task] = []
		"""The tasks that were run or found up to date, also those that no task generator lists."""
		self.is_broken = False
		self.before: Dict[str, Optional[Status]] = {}
		"""The files at the places of an installation, before it."""
		self.folders: Set[str] = set()
		"""The folders that are made for installed files."""

	def note(self, task: Task.Task, status: int) -> None:
		"""Note what the scheduler was told about a task."""
		if status == Task.EXCEPTION:
			self.is_broken = True
		elif status != Task.ASK_LATER:
			self.asked.append(task)
			if isinstance(task, Build.inst):
				for node in task.outputs:
					self.note_place(node.abspath())

	def note_place(self, path: str) -> None:
		self.before[path] = find_status(path)
		folder = os.path.dirname(path)
		while folder not in self.folders and not os.path.isdir(folder):
			self.folders.add(folder)
			folder = os.path.dirname(folder)

	def list_tasks(self) -> List[Task.Task]:
		"""All tasks of the build, each once."""
		listed = [task for group in self.bld.groups for one in group for task in getattr(one, "tasks", (one,))]
		return [task for task in dict.fromkeys(listed + self.asked) if hasattr(task, "outputs")]

	def is_whole(self, tasks: List[Task.Task]) -> bool:
		"""Tell whether the build went through all that the project declares."""
		bld = self.bld
		return (
			not self.is_broken
			and bld.targets in ("", "*", None)
			and all(task.hasrun in DONE for task in tasks)
			and all(
				getattr(one, "posted", False)
				for group in bld.groups
				for one in group
				if isinstance(one, TaskGen.task_gen)
			)
		)


class Ending:
	"""Compares a build that is over with the record of earlier ones."""

	def __init__(self, watch: Watch, path: str, has_succeeded: bool, is_dry: bool) -> None:
		bld = watch.bld
		self.watch, self.path, self.is_dry = watch, path, is_dry
		self.bld = bld
		self.tasks = watch.list_tasks()
		self.is_whole = has_succeeded and watch.is_whole(self.tasks)
		self.kind = re.sub("^(un)?install", "build", bld.cmd)
		self.place: record.Place = (Options.options.destdir or "", str(bld.env.PREFIX or ""))
		self.base: str = bld.root.make_node(bld.out_dir).abspath()
		self.inner = self.base + os.sep
		self.source: str = bld.srcnode.abspath() + os.sep
		self.guard: Optional[removal.Guard] = None

	def go(self) -> None:
		try:
			self.record = record.read(self.path, self.base)
		except record.Damaged:
			Logs.warn("stale: %s is damaged, or of another version: it begins anew", self.path)
			self.record = record.Record(self.base)
		except OSError as e:
			Logs.warn("stale: %s: %s: nothing is removed", self.path, e.strerror)
			return
		if self.bld.is_install >= 0:
			self.end_build()
		if self.bld.is_install > 0:
			self.end_install()
		elif self.bld.is_install < 0:
			self.forget_installed()
		try:
			record.write(self.path, self.record)
		except OSError as e:
			Logs.warn("stale: %s: %s: a later build will not know what this one has made", self.path, e.strerror)

	# ---- what is built

	def end_build(self) -> None:
		known = self.record.built.get(self.kind, {})
		declared: Set[str] = set()
		made = dict(known)
		for task in self.tasks:
			if isinstance(task, Build.inst):
				continue
			for node in task.outputs:
				path = node.abspath()
				name = self.shorten(path)
				if name:
					declared.add(name)
					if task.hasrun == Task.SUCCESS or (task.hasrun == Task.SKIPPED and name not in known):
						keep(made, name, record.look(path))
		if self.is_whole:
			stale = {name: made.pop(name) for name in [name for name in made if name not in declared]}
			made.update(self.remove_built(stale) if stale else {})
		self.record.built[self.kind] = made

	def shorten(self, path: str) -> str:
		"""The name of a file in the record; empty for one that is neither in the build folder nor in the sources."""
		if path.startswith(self.inner):
			return path[len(self.inner) :]
		return path if path.startswith(self.source) else ""

	def is_inner(self, path: str) -> bool:
		"""Tell whether a path is in the build folder, and not in the sources."""
		return path.startswith(self.inner) and not self.source.startswith(self.inner)

	def remove_built(self, stale: record.Files) -> record.Files:
		"""Remove what is not made any more, and return what is to stay in the record."""
		guard = self.find_guard()
		chosen: record.Files = {}
		staying: record.Files = {}
		for name, identity in stale.items():
			path = os.path.join(self.base, name)
			if guard.is_standing(path):
				staying[name] = identity
			elif not guard.is_named(path) and (self.is_inner(path) or not guard.is_read(path)):
				chosen[name] = identity
		done = removal.remove(chosen, self.base, self.is_dry)
		if not self.is_dry:
			removal.remove_folders([os.path.join(self.base, name) for name in done.removed], self.is_inner)
		self.tell(done, "")
		return {**staying, **self.leave(chosen, done)}

	def find_guard(self) -> removal.Guard:
		"""What is not to be removed: what tasks name, and what other commands and installations have made."""
		if self.guard is None:
			others = [
				os.path.join(self.base, name)
				for files in (
					*(files for kind, files in self.record.built.items() if kind != self.kind),
					*(one.files for place, one in self.record.installed.items() if place != self.place),
				)
				for name in files
			]
			self.guard = removal.Guard(self.bld, self.tasks, others)
		return self.guard

	def leave(self, chosen: record.Files, done: removal.Removal) -> record.Files:
		"""What the next build is to try: everything after a dry run, otherwise what could not be removed."""
		return chosen if self.is_dry else {name: chosen[name] for name in done.refused}

	# ---- what is installed

	def end_install(self) -> None:
		known = self.record.installed.get(self.place, record.Installed({}, set()))
		declared: Set[str] = set()
		files = dict(known.files)
		for path in self.list_installed():
			declared.add(path)
			# a file that was there before and was not written is not ours, or was changed since
			if path in self.watch.before and self.watch.before[path] != find_status(path):
				keep(files, path, record.look(path))
		folders = known.folders | {folder for folder in self.watch.folders if os.path.isdir(folder)}
		if self.is_whole:
			stale = {path: files.pop(path) for path in [path for path in files if path not in declared]}
			chosen = {path: one for path, one in stale.items() if not self.find_guard().is_named(path)}
			done = removal.remove(chosen, self.base, self.is_dry)
			if not self.is_dry:
				removal.remove_folders(done.removed, folders.__contains__)
			self.tell(done, "installed ")
			files.update(self.leave(chosen, done))
		if files or folders:
			self.record.installed[self.place] = record.Installed(
				files, {each for each in folders if os.path.isdir(each)}
			)

	def list_installed(self) -> List[str]:
		return [
			node.abspath()
			for task in self.tasks
			if isinstance(task, Build.inst) and task.hasrun in DONE
			for node in task.outputs
		]

	def forget_installed(self) -> None:
		"""Forget what ``waf uninstall`` has removed; all of it if the command went through all targets."""
		known = self.record.installed.pop(self.place, None)
		if known is not None and not self.is_whole:
			gone = set(self.list_installed())
			files = {path: identity for path, identity in known.files.items() if path not in gone}
			self.record.installed[self.place] = record.Installed(files, known.folders)

	# ---- what is told

	def tell(self, done: removal.Removal, kind: str) -> None:
		"""One line for what was removed, and one for each kind of trouble."""
		ending = "would be removed" if self.is_dry else "removed"
		say(Logs.info, done.removed, kind, ending)
		say(Logs.warn, done.changed, kind, "kept, since not as the build has made it")
		for reason in sorted(set(done.refused.values())):
			names = [name for name, its in done.refused.items() if its == reason]
			say(Logs.warn, names, kind, "not removed: %s; the next one tries again" % reason)


def say(tell: Callable[..., None], names: List[str], kind: str, ending: str) -> None:
	if not names:
		return
	few = len(names) if Logs.verbose else SHOWN
	rest = ", and %d more (-v names them)" % (len(names) - few) if len(names) > few else ""
	tell("stale: %s %s: %s%s", count(len(names), kind), ending, ", ".join(names[:few]), rest)


def count(number: int, kind: str = "") -> str:
	return "%d %sfile%s" % (number, kind, "" if number == 1 else "s")


def keep(files: record.Files, name: str, identity: Optional[record.Identity]) -> None:
	"""Put a file into a table, or take it out if it does not exist."""
	if identity is None:
		files.pop(name, None)
	else:
		files[name] = identity


def find_status(path: str) -> Optional[Status]:
	try:
		found = os.lstat(path)
	except OSError:
		return None
	return found.st_ino, found.st_mtime_ns, found.st_ctime_ns
