"""
Which macros of others a header sees. A header that asks for a macro may mean something else if one that comes before it
defines that macro. If sources are compiled together, such a header is read once, as the first of them reads it.
"""

from typing import TYPE_CHECKING, Dict, FrozenSet, NamedTuple, Sequence, Set

if TYPE_CHECKING:
	from .grouping import File, Source


class View(NamedTuple):
	"""What a header sees of others when it is read."""

	definers: FrozenSet[str]
	"""The headers of the project that come before it and define macros for which it asks."""
	foreign: FrozenSet[str]
	"""The macros of the system's headers for which it asks."""


NOTHING = View(frozenset(), frozenset())


class Views:
	"""The headers of a plan that ask for macros of others. What a header includes itself is not another one."""

	def __init__(self, sources: Sequence["Source"]) -> None:
		self.definers: Dict[str, Set[str]] = {}
		"""By macro: the headers of the project that define it."""
		self.foreign: Set[str] = set()
		"""The macros of all included headers of the system."""
		self.asked: Dict[str, View] = {}
		"""By header: all that it could see of others."""
		self.places: Dict[str, Dict[str, int]] = {}
		"""By source: its headers in the order in which they are read."""
		known: Set[str] = set()
		systems: Set[str] = set()
		for source in sources:
			for path in source.headers.keys() - known:
				known.add(path)
				for name in source.headers[path].facts.macros:
					self.definers.setdefault(name, set()).add(path)
			for include in source.systems.keys() - systems:
				systems.add(include)
				self.foreign |= source.systems[include]

	def find(self, source: "Source", file: "File") -> View:
		"""All that a header could see of others. The source is one that includes it."""
		found = self.asked.get(file.path)
		if found is None:
			headers, systems = source.inner(file)
			names = file.words | file.members
			definers = set().union(*(self.definers[name] for name in names & self.definers.keys()))
			own = frozenset().union(*(source.systems[include] for include in systems))
			found = View(
				frozenset(path for path in definers if path not in headers and path != file.path),
				frozenset(names & self.foreign) - own,
			)
			self.asked[file.path] = found
		return found

	def see(self, source: "Source", file: "File") -> View:
		"""What a header sees of others in a source that is compiled alone."""
		asked = self.find(source, file)
		if not any(asked):
			return NOTHING
		foreign = frozenset().union(*(asked.foreign & macros for macros in source.systems.values()))
		before = frozenset(path for path in asked.definers if self.comes_before(source, path, file.path))
		return View(before, foreign)

	def comes_before(self, source: "Source", path: str, other: str) -> bool:
		"""Tell whether a source reads one file before another one. Its own text comes after all headers."""
		places = self.places.get(source.file.path)
		if places is None:
			places = self.places[source.file.path] = {each: i for i, each in enumerate(source.headers)}
		return path in places and (other not in places or places[path] < places[other])
