#!/usr/bin/env python3
"""
Draws which room of the house imports from which, and fails if one imports from above.

A room is a folder of ``waflib_extras/`` or of ``engine/src/``, or a file that lies there alone. In a large folder, each
folder is a room too. Rooms lie on floors: a room imports from floors below its own only, so that there can be no
circles. The floors are written down here, and ``docs/design.md`` says why they are as they are.
"""

import argparse
import ast
import pathlib
import re
import sys
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = """
examples:
  utils/rooms.py                        both trees: their floors, arrows and lines
  utils/rooms.py --tree engine --why    the files behind each arrow
  utils/rooms.py --svg docs/            a picture of each tree, rooms-NAME.svg in that folder
  utils/rooms.py --check                print only what is wrong; status 1 if something is
"""
PYTHON_FLOORS = (
	("version", "waflib_extras_alone"),
	("client", "facts"),
	("hooks",),
	("console", "timeline"),
	("launcher",),
	("prefork",),
	("batch", "large", "pch", "resident", "stale", "unity", "wafcc"),
	("wafx",),
)
"""From the ground up."""
ENGINE_FLOORS = (
	("bytes",),
	("cluster", "files", "http", "observe", "room", "wire"),
	("facts", "process", "trust", "witness"),
	("report", "settings"),
	("cache/store", "cache/story"),
	("cache/compiler",),
	("cache/lookup",),
	("cache/preamble", "cache/remote"),
	("cache",),
	("park", "tier"),
	("server",),
	("client",),
	("completion", "dashboard", "launcher", "team", "wafcc", "worker"),
	("wafd",),
)
NESTED = ("cache",)
"""Large folders. Each folder in them is a room, and the files beside these are another one."""


class Arrow(NamedTuple):
	"""A room has a file that imports from another room."""

	source: str
	target: str


class House(NamedTuple):
	name: str
	floors: Tuple[Tuple[str, ...], ...]
	arrows: Dict[Arrow, Set[str]]
	"""With the files that import, and what."""
	lines: Dict[str, int]

	def floor_of(self, room: str) -> int:
		return next((number for number, rooms in enumerate(self.floors) if room in rooms), -1)

	def find_homeless(self) -> List[str]:
		return sorted(room for room in self.lines if self.floor_of(room) < 0)

	def find_empty(self) -> List[str]:
		"""Rooms of a floor that are not there."""
		return sorted(room for rooms in self.floors for room in rooms if room not in self.lines)

	def find_upwards(self) -> List[Arrow]:
		"""Arrows that do not lead downwards."""
		return sorted(x for x in self.arrows if self.floor_of(x.source) <= self.floor_of(x.target))


# ---- what imports what


def read_python(root: pathlib.Path) -> Iterator[Tuple[str, str, str]]:
	"""Room, file and imported room, for each import of ``waflib_extras/``."""
	for path in sorted(root.rglob("*.py")):
		file = path.relative_to(root)
		if file.name == "__init__.py" and len(file.parts) == 1:
			continue  # the door of the house
		room = file.parts[0] if len(file.parts) > 1 else file.stem
		package = list(file.parts[:-1])
		for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
			for name in list_modules(node, package):
				yield room, str(file), name


def list_modules(node: ast.AST, package: List[str]) -> Iterator[str]:
	if isinstance(node, ast.Import):
		names = [alias.name.split(".") for alias in node.names]
	elif isinstance(node, ast.ImportFrom):
		module = node.module.split(".") if node.module else []
		if node.level:
			module = ["waflib_extras", *package[: len(package) - node.level + 1], *module]
		names = [module] if len(module) > 1 else [[*module, alias.name] for alias in node.names]
	else:
		return
	for words in names:
		if words[0] == "waflib_extras" and len(words) > 1:
			yield words[1]


COMMENT = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"', re.S)
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", re.S)
PATH = re.compile(r"\b(?:crate|super)(?:::\w+)+")
GROUP = re.compile(r"\b((?:crate|super)(?:::\w+)*)::\{")


def read_rust(root: pathlib.Path) -> Iterator[Tuple[str, str, str]]:
	"""Room, file and imported room, for each import of ``engine/src/``. Programs and tests do not count."""
	texts: Dict[Tuple[str, ...], Tuple[str, str]] = {}
	for path in sorted(root.rglob("*.rs")):
		file = path.relative_to(root)
		if file.parts[0] in ("bin", "lib.rs"):
			continue
		module = file.parts[:-1] if file.name == "mod.rs" else (*file.parts[:-1], file.stem)
		text = "" if file.name == "tests.rs" else TESTS.sub("", COMMENT.sub("", path.read_text(encoding="utf-8")))
		texts[module] = (str(file), text)
	rooms = {module: find_room(pathlib.PurePath(file)) for module, (file, _) in texts.items()}
	for module, (name, text) in texts.items():
		for words in list_paths(text):
			start = () if words[0] == "crate" else module
			while words and words[0] in ("crate", "super"):
				start = start[:-1] if words[0] == "super" else start
				words = words[1:]
			target = (*start, *words)
			while target and target not in rooms:
				target = target[:-1]  # the rest is a name within the module
			if target:
				yield rooms[module], name, rooms[target]


def list_paths(text: str) -> Iterator[Tuple[str, ...]]:
	"""Paths that are not those of a crate; each of a group, such as ``crate::{a, b::c}``, by itself."""
	for match in PATH.finditer(text):
		yield tuple(match.group().split("::"))
	for match in GROUP.finditer(text):
		yield from list_group(tuple(match.group(1).split("::")), text[match.end() :])


def list_group(start: Tuple[str, ...], rest: str) -> Iterator[Tuple[str, ...]]:
	"""The paths of a group that begins here, also of those within it."""
	stack = [start]
	for match in re.finditer(r"(\w+(?:::\w+)*)(::\{)?|\}", rest):
		if match.group() == "}":
			stack.pop()
			if not stack:
				return
			continue
		path = (*stack[-1], *match.group(1).split("::"))
		yield path
		if match.group(2):
			stack.append(path)


def find_room(file: pathlib.PurePath) -> str:
	if len(file.parts) == 1:
		return file.stem
	if file.parts[0] in NESTED and len(file.parts) > 2:
		return "/".join(file.parts[:2])
	return file.parts[0]


def count_lines(root: pathlib.Path, pattern: str) -> Dict[str, int]:
	lines: Dict[str, int] = {}
	for path in root.rglob(pattern):
		file = path.relative_to(root)
		room = find_room(file)
		if room not in ("__init__", "lib", "bin"):
			lines[room] = lines.get(room, 0) + len(path.read_text(encoding="utf-8").splitlines())
	return lines


def read_house(name: str) -> House:
	root, floors, read, pattern = {
		"python": (ROOT / "waflib_extras", PYTHON_FLOORS, read_python, "*.py"),
		"engine": (ROOT / "engine" / "src", ENGINE_FLOORS, read_rust, "*.rs"),
	}[name]
	lines = count_lines(root, pattern)
	arrows: Dict[Arrow, Set[str]] = {}
	for room, file, target in read(root):
		if target != room and target in lines:
			arrows.setdefault(Arrow(room, target), set()).add(file)
	return House(name, floors, arrows, lines)


# ---- what is told


def describe(house: House, why: bool) -> Iterator[str]:
	"""The floors from the top down."""
	yield "%s: %d rooms, %d lines, %d arrows, %d upwards" % (
		house.name,
		len(house.lines),
		sum(house.lines.values()),
		len(house.arrows),
		len(house.find_upwards()),
	)
	homeless = house.find_homeless()
	for number, rooms in reversed(list(enumerate((*house.floors, homeless) if homeless else house.floors))):
		for room in rooms:
			targets = sorted(x.target for x in house.arrows if x.source == room)
			floor = "-" if rooms is homeless else number + 1
			line = "%4s  %-14s %6d  %s" % (floor, room, house.lines.get(room, 0), " ".join(targets))
			yield line.rstrip()
			for target in targets if why else ():
				yield "%28s ◄ %s" % (target, " ".join(sorted(house.arrows[Arrow(room, target)])))


def complain(house: House) -> Iterator[str]:
	"""One line for each thing that is wrong, with the remedy."""
	for room in house.find_homeless():
		yield "%s: %s is on no floor: name it in utils/rooms.py" % (house.name, room)
	for room in house.find_empty():
		yield "%s: there is no room %s: take it out of utils/rooms.py" % (house.name, room)
	for arrow in house.find_upwards():
		if min(house.floor_of(arrow.source), house.floor_of(arrow.target)) >= 0:
			files = " ".join(sorted(house.arrows[arrow]))
			yield "%s: %s imports from %s, which is not below it: %s" % (house.name, arrow.source, arrow.target, files)


# ---- the picture

WIDTH, BOX, HEIGHT, STEP = 900, 112, 34, 84


def draw(house: House) -> str:
	"""Floors as rows, the ground at the bottom. An arrow that leads upwards is red."""
	floors = [*house.floors, house.find_homeless()] if house.find_homeless() else list(house.floors)
	places: Dict[str, Tuple[float, float]] = {}
	for number, rooms in enumerate(floors):
		for at, room in enumerate(rooms):
			places[room] = (WIDTH * (at + 0.5) / len(rooms), STEP * (len(floors) - number) - STEP / 2)
	upwards = set(house.find_upwards())
	shapes = []
	for arrow in sorted(house.arrows):
		(x, y), (to_x, to_y) = places[arrow.source], places[arrow.target]
		down = 1 if to_y > y else -1
		shapes.append(
			'<path d="M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f" stroke="%s"/>'
			% (
				*(x, y + down * HEIGHT / 2, x, y + down * STEP / 2, to_x, to_y - down * STEP / 2),
				*(to_x, to_y - down * HEIGHT / 2, "#d33" if arrow in upwards else "#8899aa"),
			)
		)
	for room, (x, y) in places.items():
		shapes.append(
			'<rect x="%.0f" y="%.0f" width="%d" height="%d" rx="5"/>' % (x - BOX / 2, y - HEIGHT / 2, BOX, HEIGHT)
		)
		shapes.append('<text x="%.0f" y="%.0f">%s</text>' % (x, y - 1, room))
		shapes.append('<text x="%.0f" y="%.0f" class="lines">%d lines</text>' % (x, y + 12, house.lines.get(room, 0)))
	return SVG % (WIDTH, STEP * len(floors), WIDTH, STEP * len(floors), "\n".join(shapes))


SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">
<style>
path { fill: none; marker-end: url(#head) }
rect { fill: #eef2f7; stroke: #667788 }
text { font: 13px sans-serif; text-anchor: middle; fill: #223344 }
.lines { font-size: 10px; fill: #667788 }
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 1L7 4L0 7" stroke="#8899aa" style="marker-end: none"/></marker></defs>
%s
</svg>
"""


def main() -> int:
	parser = argparse.ArgumentParser(
		description="Draw which room imports from which, and find arrows that lead upwards.",
		epilog=EXAMPLES,
		formatter_class=argparse.RawDescriptionHelpFormatter,
	)
	parser.add_argument("--tree", choices=("python", "engine"), help="only this one")
	parser.add_argument("--check", action="store_true", help="print only what is wrong; status 1 if something is")
	parser.add_argument("--why", action="store_true", help="name the files behind each arrow")
	parser.add_argument("--svg", metavar="FOLDER", type=pathlib.Path, help="write rooms-NAME.svg there")
	options = parser.parse_args()
	houses = [read_house(name) for name in ([options.tree] if options.tree else ("python", "engine"))]
	wrong = [line for house in houses for line in complain(house)]
	if options.svg:
		for house in houses:
			path = options.svg / ("rooms-%s.svg" % house.name)
			try:
				path.write_text(draw(house), encoding="utf-8")
			except OSError as e:
				sys.exit("rooms: %s: %s: name a folder that can be written" % (path, e.strerror))
			print(path)
	elif not options.check:
		print("\n\n".join("\n".join(describe(house, options.why)) for house in houses))
	if options.check:
		for line in wrong:
			print(line)
	return 1 if options.check and wrong else 0


if __name__ == "__main__":
	sys.exit(main())
