"""Edits of a source and of the headers that it reads. Each keeps what it needs to be taken back."""

import pathlib
import random
import re
import shutil
from typing import Callable, Dict, List

STANDARD = ("array", "bitset", "deque", "functional", "iomanip", "list", "numeric", "queue", "sstream", "tuple")
MARK = "// fuzzed\n"
BODIES = (
	"int fuzzed_{n}(int a) {{ return a * {n} + {m}; }}\n",
	"#include <vector>\nint fuzzed_{n}() {{ std::vector<int> v({m}, {n}); return v[0]; }}\n",
	"namespace {{ struct Fuzzed{n} {{ int a = {m}; }}; }}\nint fuzzed_{n}() {{ return Fuzzed{n}().a; }}\n",
	"template <typename T> T fuzzed_{n}(T a) {{ return a + {m}; }}\ntemplate int fuzzed_{n}(int);\n",
	"#include <cassert>\nvoid fuzzed_{n}(int a) {{ assert(a != {m}); }}\n",
	"const char *fuzzed_{n}() {{ return __FILE__; }}\nint fuzzed_line_{n}() {{ return __LINE__; }}\n",
	"static int next_{n}() {{ static int once = {m}; return once++; }}\nint fuzzed_{n}() {{ return next_{n}(); }}\n",
)
SAID = (
	"int broken_{n}( {{\n",
	"#warning said {n}\n",
	"#error said {n}\n",
	"int fuzzed_{n}() {{ int unused = {m}; }}\n",
)


class Tree:
	"""The files of a project, and states to which they can go back."""

	def __init__(self, root: pathlib.Path, source: str, headers: List[str], rng: random.Random) -> None:
		self.root, self.rng = root, rng
		self.source = root / source
		self.headers = [root / name for name in headers]
		self.shadows: List[pathlib.Path] = []
		self.number = 0
		self.states = [self.take_state()]

	def draw(self) -> str:
		"""Make an edit, and tell what it was."""
		self.number += 1
		edits: Dict[Callable[[], str], int] = {
			self.edit_body: 50,
			self.say_something: 8,
			self.add_include: 8,
			self.remove_include: 4,
			self.add_macro: 6,
			self.edit_header: 8,
			self.touch_header: 4,
			self.shadow_header: 4,
			self.go_back: 8,
		}
		(edit,) = self.rng.choices(list(edits), list(edits.values()))
		told = edit()
		if self.rng.random() < 0.1:
			self.states = [*self.states[-4:], self.take_state()]
		return told

	# ---- the edits

	def edit_body(self) -> str:
		self.write_tail(self.rng.choice(BODIES))
		return "body"

	def say_something(self) -> str:
		self.write_tail(self.rng.choice(SAID))
		return "body that says something"

	def write_tail(self, text: str) -> None:
		"""Replace what an earlier edit has put at the end of the source."""
		whole = self.source.read_text(errors="surrogateescape").partition(MARK)[0]
		text = text.format(n=self.number, m=self.rng.randrange(1, 1000))
		self.source.write_text(whole + MARK + text, errors="surrogateescape")

	def add_include(self) -> str:
		line = "#include <%s>\n" % self.rng.choice(STANDARD)
		self.write_head(lambda lines, at: lines.insert(at, line))
		return "include"

	def remove_include(self) -> str:
		def remove(lines: List[str], _at: int) -> None:
			added = [i for i, line in enumerate(lines) if line in {"#include <%s>\n" % name for name in STANDARD}]
			if added:
				del lines[self.rng.choice(added)]

		self.write_head(remove)
		return "include removed"

	def add_macro(self) -> str:
		line = "#define FUZZED_%d %d\n" % (self.rng.randrange(5), self.number)
		name = line.split()[1]
		self.write_head(lambda lines, at: lines.__setitem__(slice(at, at), ["#undef %s\n" % name, line]))
		return "macro"

	def write_head(self, change: Callable[[List[str], int], None]) -> None:
		lines = self.source.read_text(errors="surrogateescape").splitlines(True)
		places = [i for i, line in enumerate(lines) if re.match(r"#include", line)] or [0]
		change(lines, self.rng.choice(places))
		self.source.write_text("".join(lines), errors="surrogateescape")

	def edit_header(self) -> str:
		header = self.rng.choice(self.headers)
		text = header.read_text(errors="surrogateescape").partition(MARK)[0]
		more = "#ifndef FUZZED_H_{n}\n#define FUZZED_H_{n}\ninline int header_{n}() {{ return {n}; }}\n#endif\n"
		header.write_text(text + MARK + more.format(n=self.number), errors="surrogateescape")
		return "header " + header.name

	def touch_header(self) -> str:
		header = self.rng.choice(self.headers)
		header.write_bytes(header.read_bytes())
		return "header %s written again" % header.name

	def shadow_header(self) -> str:
		"""Put a copy of a header where it is found first, or take such a copy away."""
		if self.shadows:
			self.shadows.pop().unlink()
			return "shadow removed"
		header = self.rng.choice(self.headers)
		shadow = self.root / "first" / header.relative_to(self.root)
		shadow.parent.mkdir(parents=True, exist_ok=True)
		shutil.copyfile(header, shadow)
		self.shadows.append(shadow)
		return "shadow of " + header.name

	def go_back(self) -> str:
		for path, content in self.rng.choice(self.states).items():
			if path.read_bytes() != content:
				path.write_bytes(content)
		return "earlier state"

	def take_state(self) -> Dict[pathlib.Path, bytes]:
		return {path: path.read_bytes() for path in (self.source, *self.headers)}
