"""
Packs Waf's database before a run is called. After the run only what has changed is packed, and put behind that.

The database is a pickle, which is a program that makes objects one after the other. A pickler that goes on can name
all objects that it has packed before. So a change becomes a few more instructions: take that dict, and set this key.
If a change cannot be told so, all is packed anew, as Waf does it.

A node tells its state as Waf has defined it: its name, its folder, and the nodes in it.
"""

import contextlib
import io
import pickle
from typing import IO, Any, Dict, List, NamedTuple, Optional, Set

from waflib import Build, Node

from ..hooks import lifecycle

TOOL = "database"
PROTOCOL = 3  # the last one that does not divide a pickle into frames
EMPTY = b""
HEAD = 2  # the bytes with the protocol, before each object
GET = (b"h", b"j")  # the instructions that name an object of before
MARK, SET_ITEMS, SET_STATE, POP, STOP = b"(", b"u", b"b", b"0", b"."
PLAIN = frozenset((bytes, str, int, float, bool, type(None)))
FLAT = (list, set)  # what holds values that cannot change
STATE = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")
MISSING = object()


class Unfit(Exception):
	"""Raised if something cannot be told as a change."""

	pass


class Known(NamedTuple):
	"""A dict as it was packed."""

	packed: Dict[Any, Any]
	"""The object, which may have changed since."""
	copied: Dict[Any, Any]
	"""What it had in it."""
	inner: "Dict[Any, Known]"
	"""The dicts in it."""


class PackedDatabase:
	"""The database of a build, packed."""

	def __init__(self, bld: Build.BuildContext) -> None:
		"""Pack the database, or raise ``Unfit`` if it has objects that we do not know."""
		data = {name: getattr(bld, name) for name in Build.SAVED_ATTRS}
		self.node_class = bld.node_class
		if any(getattr(self.node_class, name, None) is not getattr(Node.Node, name, None) for name in STATE):
			raise Unfit("nodes are packed in another way")
		self.root = data.pop("root")
		self.folders: Dict[Node.Node, Dict[str, Node.Node]] = {}
		"""By folder: the nodes in it."""
		self.leaves: Set[Node.Node] = set()
		"""All other nodes."""
		self.look_at_nodes()
		self.tables = self.copy(data)
		data["root"] = self.root
		self.tables = self.tables._replace(packed=data)
		self.buffer = io.BytesIO()
		self.pickler = pickle.Pickler(self.buffer, PROTOCOL)
		self.begin = self.pack_all(data)

	def look_at_nodes(self) -> None:
		left = [self.root]
		while left:
			node = left.pop()
			children = getattr(node, "children", None)
			if children is None:
				self.leaves.add(node)
			else:
				self.folders[node] = dict(children)
				left.extend(children.values())

	def copy(self, value: Dict[Any, Any]) -> Known:
		"""A copy of a dict, and of those in it, and the lists and sets."""
		copied: Dict[Any, Any] = {}
		inner = {}
		for key, one in value.items():
			self.check(key)
			if type(one) is dict:
				inner[key] = self.copy(one)
				copied[key] = inner[key].copied
			elif type(one) in FLAT:
				self.check(tuple(one))
				copied[key] = one.copy()
			else:
				self.check(one)
				copied[key] = one
		return Known(value, copied, inner)

	def check(self, value: object) -> None:
		"""Raise ``Unfit`` if a value can change."""
		if type(value) is tuple:
			for one in value:
				self.check(one)
		elif type(value) not in PLAIN and not self.is_node(value):
			raise Unfit("an object of %s" % type(value))

	def is_node(self, value: object) -> bool:
		return type(value) is self.node_class and (value in self.leaves or value in self.folders)

	# ---- packing

	def pack_all(self, data: Dict[str, Any]) -> bytes:
		with Node.pickle_lock:
			before = Node.Nod3
			Node.Nod3 = self.node_class
			try:
				self.pickler.dump(data)
			finally:
				Node.Nod3 = before
		return self.buffer.getvalue()[: -len(STOP)]

	def pack(self, value: object) -> bytes:
		"""The instructions that make this object, or name it."""
		self.buffer.seek(0)
		self.buffer.truncate()
		self.pickler.dump(value)
		return self.buffer.getvalue()[HEAD : -len(STOP)]

	def name(self, value: object) -> bytes:
		"""The instruction that names an object of before."""
		packed = self.pack(value)
		if packed[:1] not in GET:
			raise Unfit("an object that was not packed")
		return packed

	def finish(self, data: Dict[str, Any]) -> bytes:
		"""The whole database. This can be called once. Raises ``Unfit`` if all must be packed anew."""
		if data.get("root") is not self.root or Node.Nod3 is not self.node_class:
			raise Unfit("this is another build")
		parts = [self.begin]
		changed = [node for node in self.leaves if hasattr(node, "children")]
		changed += [node for node, before in self.folders.items() if node.children != before]
		for node in changed:
			state = node.name, node.parent, dict(node.children)
			parts += [self.name(node), self.pack(state), SET_STATE, POP]
		tables = {name: value for name, value in data.items() if name != "root"}
		if tables.keys() != self.tables.copied.keys():
			raise Unfit("something else is stored")
		self.add_changes(self.tables, tables, parts)
		return EMPTY.join([*parts, STOP])

	def add_changes(self, known: Known, now: Dict[Any, Any], parts: List[bytes]) -> None:
		"""Add the instructions that make of a dict as it was packed what it is now."""
		copied = known.copied
		if now == copied:
			return
		before = copied.get
		changed = {
			key: value
			for key, value in now.items()
			if before(key, MISSING) is not value and before(key, MISSING) != value
		}
		if len(now) - sum(key not in copied for key in changed) < len(copied):
			raise Unfit("something was removed")
		for key in [key for key in changed if key in known.inner and type(changed[key]) is dict]:
			with contextlib.suppress(Unfit):  # then it is packed as a whole
				self.add_changes(known.inner[key], changed[key], parts)
				del changed[key]
		if changed:
			# what is packed first stands first, since the rest may name it
			parts += [self.name(known.packed), MARK]
			for key, value in changed.items():
				parts += [self.pack(key), self.pack(renew(value))]
			parts += [SET_ITEMS, POP]


def renew(value: Any) -> Any:
	"""An object that was not packed before, if the content of this one may have changed since it was."""
	if type(value) is dict:
		return {key: renew(one) for key, one in value.items()}
	return value.copy() if type(value) in FLAT else value


class Pickles:
	"""Stands in for Waf's module ``pickle``."""

	def __init__(self, stock: Any, packed: PackedDatabase) -> None:
		self.stock = stock
		self.packed: Optional[PackedDatabase] = packed

	def __getattr__(self, name: str) -> Any:
		return getattr(self.stock, name)

	def finish(self, data: Any) -> Optional[bytes]:
		"""The whole pickle of a database; None if it is not the one that was packed."""
		packed, self.packed = self.packed, None
		try:
			return packed.finish(data) if packed is not None else None
		except Exception:  # Waf packs it, and tells what is wrong with it
			return None

	def dumps(self, data: Any, *args: Any, **kw: Any) -> bytes:
		whole: bytes = self.finish(data) or self.stock.dumps(data, *args, **kw)
		return whole

	def dump(self, data: Any, file: IO[bytes], *args: Any, **kw: Any) -> None:
		whole = self.finish(data)
		if whole is None:
			self.stock.dump(data, file, *args, **kw)
		else:
			file.write(whole)


def prepare(bld: Build.BuildContext) -> str:
	"""Pack the database of a build now. Returns why this is not possible; empty if it is done."""
	try:
		packed = PackedDatabase(bld)
		lifecycle.find().replace(TOOL, "Build.cPickle", Pickles(Build.cPickle, packed))
	except Exception as e:  # Waf will pack it, and tell what is wrong with it
		return "%s: %s" % (type(e).__name__, e)
	return ""
