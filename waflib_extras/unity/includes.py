"""
Finds what sources include. Files of the project are searched as a compiler does it, and read once.

It knows nothing of Waf. Files outside of the project are known by name only. Files that the build makes are not looked
at, since they may not exist yet.
"""

import hashlib
import os
import subprocess
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple, Union

from ..facts import stamps
from . import grouping, names, pragmas, seen, tokens
from .foreign import Foreign, read_foreign

Include = Tuple[Optional[Tuple[str, str]], str]
"""The file and the folder where it was found; and the include as it is written, with the quote before it."""
Record = List[Any]
"""The stored record of a file: its stamp, its digest if it is of the project, and its facts."""
SEARCH_SECONDS = 30.0
PRAGMA = "pragma "
"""The beginning of a pragma among the directives of ``Facts.prelude``."""


class KnownFiles:
	"""The facts of files, which are stored from build to build."""

	def __init__(self, saved: Optional[Dict[str, Record]] = None) -> None:
		self.saved: Dict[str, Record] = {} if saved is None else saved
		"""By path: stamp, digest, facts."""
		self.open: Dict[str, grouping.File] = {}
		self.new: Dict[str, Record] = {}
		"""The records that are new."""

	def digest(self, path: str) -> str:
		self.file(path)
		return self.saved[path][1] if path in self.saved else ""

	def stamp(self, path: str) -> Optional[stamps.Stamp]:
		self.file(path)
		return self.saved[path][0] if path in self.saved else None

	def size(self, path: str) -> int:
		stamp = self.stamp(path)
		return stamp[stamps.SIZE] if stamp else 0

	def file(self, path: str) -> grouping.File:
		file = self.open.get(path)
		if file is None:
			file = self.open[path] = grouping.open_facts(path, self.read(path))
		return file

	def read(self, path: str) -> names.Facts:
		stamp = stamps.of_file(path)
		known = self.saved.get(path)
		if known and known[0] == stamp:
			return names.Facts(*known[2])
		stamp = stamps.settle(stamp)
		try:
			with open(path, "rb") as f:
				content = f.read()
		except OSError as e:
			return names.read_facts("")._replace(alone="cannot be read: %s" % e.strerror)
		digest = hashlib.md5(content).hexdigest()
		if known and known[1] == digest:
			facts = names.Facts(*known[2])
		else:
			facts = names.read_facts(content.decode("latin-1"))
		self.saved[path] = self.new[path] = [stamp, digest, list(facts)]
		return facts


def ask_search(compiler: List[str], language: str) -> List[str]:
	"""The folders in which a compiler searches headers of the system."""
	command = [*compiler, "-E", "-v", "-x", language, os.devnull]
	try:
		done = subprocess.run(
			command,
			stdin=subprocess.DEVNULL,
			stdout=subprocess.DEVNULL,
			stderr=subprocess.PIPE,
			timeout=SEARCH_SECONDS,
			check=False,
			env=dict(os.environ, LC_ALL="C"),
		)
	except (OSError, subprocess.TimeoutExpired):
		return []
	text = done.stderr.decode("utf-8", "surrogateescape")
	_, _, listed = text.partition("#include <...> search starts here:")
	listed, _, _ = listed.partition("End of search list")
	return [os.path.normpath(line.strip()) for line in listed.splitlines() if line.strip()]


class System:
	"""The headers of the system, as a compiler finds them in these folders."""

	def __init__(self, saved: Optional[Dict[str, Record]], folders: Sequence[str]) -> None:
		self.saved: Dict[str, Record] = {} if saved is None else saved
		self.folders = folders
		self.new: Dict[str, Record] = {}
		self.files: Dict[str, Foreign] = {}
		self.reached: Dict[str, FrozenSet[str]] = {}
		self.sets: Dict[Tuple[str, str], FrozenSet[str]] = {}

	def read(self, path: str) -> Foreign:
		if path not in self.files:
			stamp = stamps.of_file(path)
			known = self.saved.get(path)
			if not known or known[0] != stamp:
				stamp = stamps.settle(stamp)
				try:
					with open(path, encoding="latin-1") as f:
						foreign = read_foreign(f.read())
				except OSError:
					foreign = read_foreign("")
				known = self.saved[path] = self.new[path] = [stamp, list(foreign)]
			self.files[path] = Foreign(*known[1])
		return self.files[path]

	def reach(self, include: str) -> FrozenSet[str]:
		"""All files to which an include could lead, directly or through other headers."""
		found = self.reached.get(include)
		if found is None:
			seen: Set[str] = set()
			left = self.find("", include)
			while left:
				path = left.pop()
				if path not in seen:
					seen.add(path)
					for inner in self.read(path).includes:
						left.extend(self.find(os.path.dirname(path), inner))
			found = self.reached[include] = frozenset(seen)
		return found

	def find_stamps(self, includes: Iterable[str]) -> Dict[str, Optional[stamps.Stamp]]:
		"""The stamps of all files to which these could lead."""
		paths = frozenset().union(*map(self.reach, includes))
		return {path: self.saved[path][0] for path in sorted(paths)}

	def find(self, folder: str, include: str) -> List[str]:
		own = [folder] if folder and include[0] == '"' else []
		paths = [os.path.normpath(os.path.join(each, include[1:])) for each in [*own, *self.folders]]
		return [path for path in dict.fromkeys(paths) if self.exists(path)]

	def exists(self, path: str) -> bool:
		return path in self.files or os.path.isfile(path)

	def told(self, include: str, field: str) -> FrozenSet[str]:
		"""The ``macros``, ``asked`` or ``words`` of all headers to which an include leads."""
		key = include, field
		if key not in self.sets:
			texts = [getattr(self.read(path), field).split() for path in self.reach(include)]
			self.sets[key] = frozenset().union(*texts)
		return self.sets[key]


class Finder:
	"""Finds the includes that are in the project, as a compiler does that searches these folders."""

	def __init__(
		self,
		known_files: KnownFiles,
		system: System,
		folders: Sequence[str],
		top: str,
		out: str,
		made: Iterable[str],
		listed: Dict[str, FrozenSet[str]],
		asked: pragmas.Pragmas,
	) -> None:
		self.known_files = known_files
		self.system = system
		self.folders = folders
		self.top = top + os.sep
		self.out = out + os.sep
		self.made: FrozenSet[str] = frozenset(made)
		"""Files of the build folder that exist before the build."""
		self.found: Dict[Tuple[str, str], Optional[Tuple[str, str]]] = {}
		self.direct: Dict[str, List[Include]] = {}
		self.parted: Dict[str, Tuple[List[str], Set[str]]] = {}
		self.asked = asked
		self.listed = listed
		"""The names in folders, as they were when one was searched first."""
		self.systems: Set[str] = set()
		"""The includes that lead out of the project."""
		self.missed: Dict[str, Set[str]] = {}
		"""By folder: the names that were not found there. If one appears, it may be included instead."""

	def find(self, folder: str, include: str) -> Optional[Tuple[str, str]]:
		"""The path of an included file, and the folder where it was found; None if it is not of the project."""
		key = (folder if include[0] == '"' else "", include)
		try:
			return self.found[key]
		except KeyError:
			found = self.found[key] = self.look(([folder] if key[0] else []) + list(self.folders), include[1:])
			return found

	def look(self, folders: Sequence[str], name: str) -> Optional[Tuple[str, str]]:
		for folder in folders:
			path = folder + os.sep + name
			if "." + os.sep in name or os.sep * 2 in path:
				path = os.path.normpath(path)
			if self.is_there(path):
				is_ours = path in self.made if path.startswith(self.out) else path.startswith(self.top)
				return (path, folder) if is_ours else None
			above, _, last = path.rpartition(os.sep)
			self.missed.setdefault(above, set()).add(last)
		return None

	def is_there(self, path: str) -> bool:
		"""Tell whether a path leads to a file. Folders are listed once, since most paths do not."""
		folder, _, name = path.rpartition(os.sep)
		names = self.listed.get(folder)
		if names is None:
			names = self.listed[folder] = seen.list_folder(folder)
		return name in names and (path in self.known_files.open or os.path.isfile(path))

	def includes(self, file: grouping.File) -> List[Include]:
		"""For each include of a file, where it leads and how it is written."""
		if file.path not in self.direct:
			folder = os.path.dirname(file.path)
			self.direct[file.path] = [(self.find(folder, include), include) for include in file.facts.includes]
		return self.direct[file.path]

	def source(self, path: str, relative: str) -> grouping.Source:
		"""A source with what it includes. ``relative`` is the folder in which compilers run."""
		file = self.known_files.file(path)
		headers, systems = self.reach(file, self.includes(file))
		self.systems |= systems
		odd = [header for header in headers.values() if not header.is_plain]
		usings = {using for each in [file, *odd] for using in each.facts.usings}
		inner, left = self.find_pragmas(file, odd)
		early, is_early = self.find_early(file, relative) if usings else ([], False)
		return grouping.Source(
			file,
			headers,
			{include: self.system.told(include, "macros") for include in systems},
			all(self.system.reach(include) for include in systems),
			self.find_prelude(file),
			self.find_features(file, headers, systems),
			usings,
			early,
			is_early,
			odd,
			inner,
			left,
			self.inner,
		)

	def inner(self, file: grouping.File) -> Tuple[Dict[str, grouping.File], Set[str]]:
		"""What a header includes itself."""
		return self.reach(file, self.includes(file))

	def reach(self, file: grouping.File, includes: List[Include]) -> Tuple[Dict[str, grouping.File], Set[str]]:
		"""The headers of the project to which includes of a file lead, as they are read, and those of the system."""
		headers: Dict[str, grouping.File] = {}
		paths, systems = part_includes(includes)
		systems = set(systems)
		left = paths[::-1]
		while left:
			path = left.pop()
			if path not in headers and path != file.path:
				headers[path] = header = self.known_files.open.get(path) or self.known_files.file(path)
				if header.facts.includes:
					if path not in self.parted:
						self.parted[path] = part_includes(self.includes(header))
					paths, others = self.parted[path]
					left += reversed(paths)
					systems.update(others)
		return headers, systems

	def find_pragmas(self, file: grouping.File, odd: List[grouping.File]) -> Tuple[str, str]:
		"""Why the pragmas of a source's files forbid others beside it; and why they forbid others after it."""
		inner = left = ""
		obeyed = frozenset(self.asked.find_obeyed(text for each in [file, *odd] for text in each.facts.pragmas))
		for header in odd if obeyed else ():
			for part in header.facts.prelude:
				text = part[len(PRAGMA) :] if isinstance(part, str) and part.startswith(PRAGMA) else ""
				if text in obeyed and not names.MESSAGES.match(text):
					inner = inner or "reads files after #pragma %s (in a header)" % text
		for each in [*odd, file] if obeyed else ():
			for text in each.facts.pragmas:
				if text in obeyed:
					left = left or "leaves #pragma %s behind%s" % (text, "" if each is file else " (in a header)")
		return inner, left

	def find_prelude(self, file: grouping.File) -> str:
		"""The directives before an include that may change it, with the includes between them."""
		parts = file.facts.prelude
		if not any(part.__class__ is str for part in parts):
			return ""
		includes = self.includes(file)
		end = 0
		for i, part in enumerate(parts):
			if isinstance(part, str) and self.is_heeded(
				part, file, [includes[n] for n in parts[i:] if n.__class__ is int]
			):
				end = i + 1
		return "\n".join(
			each if isinstance(each, str) else file.facts.includes[each]
			for each in parts[:end]
			if not self.is_ignored(each)
		)

	def is_ignored(self, part: Union[str, int]) -> bool:
		"""Tell whether a part of a prelude is a pragma that the compiler ignores."""
		is_pragma = isinstance(part, str) and part.startswith(PRAGMA)
		return is_pragma and not self.asked.find_obeyed([str(part)[len(PRAGMA) :]])

	def is_heeded(self, directive: str, file: grouping.File, includes: List[Include]) -> bool:
		"""Tell whether a directive could change what is included after it."""
		includes = [each for each in includes if not self.is_text(each[0])]
		if directive.startswith(PRAGMA):
			return bool(includes and self.asked.find_obeyed([directive[len(PRAGMA) :]]))
		name = tokens.WORD.findall(directive)[1]
		headers, systems = self.reach(file, includes)
		return any(name in header.words or name in header.members for header in headers.values()) or any(
			name in self.system.told(include, "words") for include in systems
		)

	def is_text(self, found: Optional[Tuple[str, str]]) -> bool:
		"""Tell whether a file is made to be included several times, and includes nothing itself."""
		if found is None:
			return False
		facts = self.known_files.file(found[0]).facts
		return not facts.guard and not facts.includes

	def find_features(self, file: grouping.File, headers: Dict[str, grouping.File], systems: Set[str]) -> str:
		"""The macros of the project that headers of the system test, and whether these headers come first."""
		if not systems:
			return ""
		found = [
			"%s %s" % (name, path)
			for path, header in sorted(headers.items())
			for name in sorted(header.facts.macros)
			if name != header.facts.guard and any(name in self.system.told(include, "asked") for include in systems)
		]
		if found:
			found.append("first" if self.includes(file)[0][0] is not None else "later")
		return "\n".join(found)

	def find_early(self, file: grouping.File, relative: str) -> Tuple[List[str], bool]:
		"""The paths of headers that a source always includes, and whether these are all its includes."""
		early = []
		is_early = True
		for number, (found, include) in enumerate(self.includes(file)):
			if number in file.facts.optional:
				is_early = is_early and found is None
			elif found is not None:
				if not self.known_files.file(found[0]).facts.guard:
					is_early = False
				else:
					early.append(os.path.join(os.path.relpath(found[1], relative), include[1:]))
		return early, is_early


def part_includes(includes: List[Include]) -> Tuple[List[str], Set[str]]:
	"""Split includes: those that lead to files of the project, and the names of the others."""
	return [found[0] for found, _ in includes if found], {include for found, include in includes if not found}
