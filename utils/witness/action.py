"""The actions that ``pieces/`` defines, and what may be given to them."""

import pathlib
import re
from typing import Dict, List, NamedTuple

PIECE_NAMES = ("files.c", "calls.c", "children.c", "own.c", "bare.c")
PIECES = pathlib.Path(__file__).resolve().parent / "pieces"
ACTION = re.compile(r"^ACTION\((\w+), (\w+)\)", re.M)

# below the yard, or nowhere: some actions move and change what they are given
FILES = [
	*["a.txt", "b.txt", "./a.txt", "dir/c.txt", "dir/../b.txt", "link", "dirlink/c.txt", "deep", "hard"],
	*["odd name", "dangling", "loop", "absent", "dir/absent", "none/x", "a.txt/x", "dir", "//a", "@/yard/a.txt"],
	*["@/yard/dirlink/c.txt", "@/yard/absent", "dir//sub/./d.txt", "@/yard/dir/../hard"],
]
NEW = [
	*["new1", "new2", "./new3", "dir/new1", "dirlink/new2", "none/new", "a.txt", "hard", "dangling", "link"],
	*["@/yard/new1"],
]
FOLDERS = [".", "dir", "./dir/", "dirlink", "dir/sub", "dir/..", "none", "a.txt", "@/yard/dir", "@/yard/dirlink/sub"]
BELOW = ["a.txt", "c.txt", "../a.txt", "sub/d.txt", "absent", "sub", ".", "..", "@/yard/b.txt", "up"]
LIBRARIES = [
	*["lib/libpart.so", "./lib/libpart.so", "./liblink.so", "@/yard/lib/libpart.so", "lib/absent.so", "libm.so.6"],
]
LINKS = ["link", "dirlink", "deep", "dangling", "loop", "a.txt", "absent", "dirlink/../link", "@/yard/link", "dir/up"]

# the values of each argument; @ is the folder of the programs
ARGUMENTS: Dict[str, List[List[str]]] = {
	"NONE": [],
	"FILE": [FILES],
	"NEW": [NEW],
	"FOLDER": [FOLDERS],
	"LIBRARY": [LIBRARIES],
	"LINK": [LINKS],
	"FILE_NEW": [FILES, NEW],
	"FOLDER_FILE": [FOLDERS, BELOW],
	"FOLDER_NEW": [FOLDERS, ["new4", "sub/new5", "c.txt", "../new1", "@/yard/new1"]],
	"FOLDER_FILE_NEW": [FOLDERS, BELOW, NEW],
	"START": [],
}
PARAMETERS = {
	"NONE": "void",
	"START": "char *const *, enum environment",
	**{role: ", ".join(["const char *"] * len(drawn)) for role, drawn in ARGUMENTS.items() if drawn},
}


class Action(NamedTuple):
	"""One way to come to know of files, or to start a program."""

	name: str
	role: str

	@property
	def is_start(self) -> bool:
		return self.role == "START"

	@property
	def is_bare(self) -> bool:
		"""It needs no C library."""
		return self.name.startswith("bare_")

	@property
	def is_own(self) -> bool:
		"""It makes system calls by instructions of its own."""
		return self.name.startswith(("own_", "old_")) or self.name.endswith("_own")

	@property
	def is_raw(self) -> bool:
		"""It goes around the C library, and so most programs with it cannot be observed."""
		return self.name.split("_")[0] in ("call", "own", "old")

	def declare(self) -> str:
		return "void %s(%s);\n" % (self.name, PARAMETERS[self.role])


def list_actions() -> List[Action]:
	"""In an order that does not depend on the machine."""
	texts = [(PIECES / name).read_text() for name in PIECE_NAMES]
	return [Action(name, role) for text in texts for name, role in ACTION.findall(text)]
