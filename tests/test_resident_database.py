"""Waf's database, packed ahead: together with what has changed, it is what Waf would have packed."""

import io
import pickle
import random
from typing import Any, Callable, Dict, List

import pytest
from conftest import on_cpython
from resident_support import Resident, by_python
from test_resident_sketch import FILES, draw
from waflib import Build, Node

from waflib_extras.resident import database

TABLES = ["node_sigs", "task_sigs", "imp_sigs", "raw_deps", "node_deps"]


class Context:
	"""What a build has in its database."""

	def __init__(self) -> None:
		self.node_class = type("Nod3", (Node.Node,), {"__module__": "waflib.Node", "__qualname__": "Nod3"})
		self.root = self.node_class("", None)
		self.files: List[Any] = []
		for name in TABLES:
			setattr(self, name, {})

	def data(self) -> Dict[str, Any]:
		return {name: getattr(self, name) for name in Build.SAVED_ATTRS}


def fill(made: Context) -> None:
	for number in range(100):
		node = made.root.make_node(f"project/folder_{number % 4}/file_{number}")
		made.files.append(node)
		uid = b"%d" % number
		made.node_sigs[node] = uid  # type: ignore[attr-defined]
		made.task_sigs[uid] = made.imp_sigs[uid] = uid * 3  # type: ignore[attr-defined]
		made.node_deps[uid] = made.files[-3:]  # type: ignore[attr-defined]
		made.raw_deps[uid] = ["a.h", "b.h"]  # type: ignore[attr-defined]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Context:
	monkeypatch.setattr(Build, "SAVED_ATTRS", ["root", *TABLES, "own"])
	context = Context()
	fill(context)
	context.own = {"format": 1, "texts": [b"x", b"y"], "doubts": {1}, "records": {b"1": (b"a", 1)}}  # type: ignore[attr-defined]
	monkeypatch.setattr(Node, "Nod3", context.node_class, raising=False)
	return context


def tell(value: Any) -> Any:
	"""A value that can be compared, with the paths of nodes."""
	if isinstance(value, Node.Node):
		inside = [child.name for child in value.children.values()] if hasattr(value, "children") else None
		assert not inside or all(child.parent is value for child in value.children.values())
		return value.abspath(), inside, value.parent.abspath() if value.parent else None
	if isinstance(value, dict):
		return [(tell(key), tell(one)) for key, one in value.items()]
	return type(value)(map(tell, value)) if isinstance(value, (list, tuple)) else value


def tell_all(packed: bytes) -> Any:
	data = pickle.loads(packed)
	left, nodes = [data["root"]], []
	while left:
		nodes.append(left.pop())
		left += getattr(nodes[-1], "children", {}).values()
	return sorted((name, tell(value)) for name, value in data.items()), [tell(node) for node in nodes]


def edit_tables(made: Any, chance: random.Random) -> None:
	for _ in range(chance.randrange(5)):
		uid = b"%d" % chance.randrange(50)
		node = chance.choice(made.files)
		made.node_sigs[node] = uid
		made.task_sigs[uid] = bytes([chance.randrange(200)])
		made.node_deps[uid] = chance.sample(made.files, 3)


def edit_in_place(made: Any, chance: random.Random) -> None:
	made.node_deps[b"7"].append(made.files[0])
	made.raw_deps[b"8"].clear()
	made.own["texts"].append(b"z")
	made.own["doubts"].add(2)
	made.own["records"][b"2"] = (b"b", 2)


def edit_whole(made: Any, chance: random.Random) -> None:
	made.imp_sigs = {b"1": b"new"}
	made.own = {"format": 2, "texts": [], "doubts": set(), "records": dict(made.own["records"], more=(None, True))}


def remove_entries(made: Any, chance: random.Random) -> None:
	del made.own["records"][b"1"]
	for uid in chance.sample(sorted(made.task_sigs), 3):
		del made.task_sigs[uid]


def add_nodes(made: Any, chance: random.Random) -> None:
	for number in range(3):
		node = made.root.make_node(f"project/folder_{number}/new_{chance.randrange(9)}/below/{number}")
		made.files.append(node)
		made.node_deps[b"9"] = [node, node.parent]


def remove_nodes(made: Any, chance: random.Random) -> None:
	chance.choice(made.files).evict()
	made.root.make_node("project").children.pop("folder_3")


def fill_a_file(made: Any, chance: random.Random) -> None:
	made.files[0].make_node("below/deep")


EDITS = [edit_tables, edit_in_place, edit_whole, remove_entries, add_nodes, remove_nodes, fill_a_file]


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(n, marks=on_cpython) for n in range(20, 100))])
def test_what_has_changed_is_added(made: Context, seed: int) -> None:
	"""It is what Waf would have packed, though it begins with what was packed before."""
	chance = random.Random(seed)
	packed = database.PackedDatabase(made)  # type: ignore[arg-type]  # it has what counts
	for edit in chance.sample(EDITS, chance.randrange(len(EDITS) + 1)):
		edit(made, chance)
	whole = packed.finish(made.data())
	assert whole.startswith(packed.begin)
	assert tell_all(whole) == tell_all(pickle.dumps(made.data()))
	# the same by the interpreter's other implementation
	assert tell_all(whole) == tell_all(pickle.dumps(pickle._loads(whole)))  # type: ignore[attr-defined]


def test_nothing_has_changed(made: Context) -> None:
	packed = database.PackedDatabase(made)  # type: ignore[arg-type]
	assert packed.finish(made.data()) == packed.begin + pickle.STOP


def remove_a_table(made: Any) -> None:
	Build.SAVED_ATTRS.remove("own")


def replace_the_root(made: Any) -> None:
	made.root = made.node_class("", None)


@pytest.mark.parametrize("edit", [remove_a_table, replace_the_root])
def test_what_is_packed_anew(made: Context, edit: Callable[[Any], None]) -> None:
	"""Waf's own pickle is made of changes that cannot be told."""
	pickles = database.Pickles(pickle, database.PackedDatabase(made))  # type: ignore[arg-type]
	edit(made)
	assert pickles.dumps(made.data(), -1) == pickle.dumps(made.data(), -1)


def test_it_is_used_once(made: Context) -> None:
	"""A build may store its database several times."""
	pickles = database.Pickles(pickle, database.PackedDatabase(made))  # type: ignore[arg-type]
	made.task_sigs[b"1"] = b"once"  # type: ignore[attr-defined]
	stream = io.BytesIO()
	pickles.dump(made.data(), stream, -1)
	assert stream.getvalue()[:2] == b"\x80\x03"
	assert tell_all(stream.getvalue()) == tell_all(pickle.dumps(made.data()))
	made.task_sigs[b"2"] = b"twice"  # type: ignore[attr-defined]
	assert pickles.dumps(made.data(), -1) == pickle.dumps(made.data(), -1)
	assert pickles.loads is pickle.loads


class Own:
	pass


@pytest.mark.parametrize("value", [Own(), {1, Own()}, bytearray(b"x"), [[1]], Node.Node])
def test_what_we_do_not_know(made: Context, value: Any) -> None:
	"""A tool may store objects of its own, which may change in ways that we would not see."""
	made.own["more"] = value  # type: ignore[attr-defined]
	with pytest.raises(database.Unfit):
		database.PackedDatabase(made)  # type: ignore[arg-type]


def test_nodes_with_a_state_of_their_own(made: Context) -> None:
	made.node_class.__getstate__ = lambda node: (node.name, None, None)
	with pytest.raises(database.Unfit, match="in another way"):
		database.PackedDatabase(made)  # type: ignore[arg-type]


@by_python
@pytest.mark.parametrize("tools", [pytest.param("", marks=on_cpython), "large"])
def test_waf_reads_it(resident: Callable[..., Resident], tools: str) -> None:
	"""A run that goes on adds to what was packed before its call, and any other Waf reads that."""
	made = resident({**FILES, "wscript": FILES["wscript"].replace("load('resident')", f"load('{tools} resident')")})
	(path,) = (made.folder / "out").glob(".wafpickle*")
	draw(made)
	assert path.read_bytes()[:2] != b"\x80\x03"
	(made.folder / "a.txt").write_text("edited\n")
	made.run("build")
	assert made.count("thawed") == 1
	assert path.read_bytes()[:2] == b"\x80\x03"
	built = made.result()
	assert "cat" not in made.run("build", "-v", env={"WAF_NO_RESIDENT": "1"}).stdout
	assert made.result() == built
