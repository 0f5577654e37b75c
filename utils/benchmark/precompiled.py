"""
The project of the scenario ``precompiled``: C++ sources that all use one precompiled header, made of Boost's headers.

It is built in checkouts of its own: with an empty cache, once more in the same folder after all that was made there is
removed, and in another checkout. Precompiled headers are large, so a run leaves neither them nor its cache behind.
"""

import json
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING, Callable, List, NamedTuple, Optional

from debian.headers import unpack_boost

from .compiler import Compiler
from .contender import XARGS_FOLDER
from .interpreter import ROOT
from .mistake import Mistake
from .project import HERE, Project, write_files
from .sources import FLAGS

if TYPE_CHECKING:
	from .run import Run

HEADER, PART = NAMES = ("pch.hpp", "part.cpp")
TEMPLATES = os.path.join(HERE, "projects", "precompiled")
KEPT = pathlib.Path(ROOT, "build", "apt")
INSTALLED = "/usr/include"
FOLDER = "build"  # of each checkout
PARTS = {"cold": "one", "warm": "one", "other checkout": "two"}
"""The checkout in which each part builds."""
SLOPPY = {"CCACHE_SLOPPINESS": "pch_defines,time_macros"}
"""Without it, ccache takes no part where there is a precompiled header."""
STRICT = {
	"gcc": ("-Winvalid-pch", "-Werror=invalid-pch"),  # or gcc reads all headers again without a word
	"clang": ("-Xclang", "-fno-pch-timestamp"),  # or a checkout whose files are newer can use no header from elsewhere
}


class PrecompiledProject(Project):
	"""A folder with sources, and the header that each of them is compiled with."""

	def sources(self) -> List[str]:
		return [os.path.join("src", name) for name in sorted(os.listdir(os.path.join(self.root, "src")))]


class Code(NamedTuple):
	"""What is compiled."""

	folder: str
	"""Where the header is, ``pch.hpp``, and the source that each source is made of, ``part.cpp``."""
	boost: Optional[str]
	"""The folder of Boost's headers; None if compilers find them by themselves."""


def find_code(folder: Optional[str], say: Callable[[str], None]) -> Code:
	"""The code of a folder of the user's, or ours with Boost's headers, which are fetched unless they are here."""
	if folder:
		for name in NAMES:
			if not os.path.isfile(os.path.join(folder, name)):
				raise Mistake("%s holds no %s: name another folder with --sources" % (folder, name))
		return Code(folder, None)
	is_installed = os.path.exists(os.path.join(INSTALLED, "boost", "version.hpp"))
	return Code(TEMPLATES, None if is_installed else unpack_boost(KEPT, say))


def write_precompiled(
	root: str, count: int, flags: Optional[str], compiler: Compiler, code: Code
) -> PrecompiledProject:
	"""Write this number of sources, and how ninja and Waf compile them."""
	words = (FLAGS["c++"] if flags is None else flags).split()
	words += STRICT["clang" if "clang" in compiler.cxx else "gcc"]
	words += ["-isystem", code.boost] if code.boost else []
	os.makedirs(os.path.join(root, "src"))
	shutil.copyfile(os.path.join(TEMPLATES, "wscript"), os.path.join(root, "wscript"))
	shutil.copyfile(os.path.join(code.folder, HEADER), os.path.join(root, HEADER))
	part = read_text(code.folder, PART)
	ninja = read_text(TEMPLATES, "build.ninja").replace("@compiler@", compiler.cxx).replace("@flags@", " ".join(words))
	sources = {os.path.join("src", "part_%d.cpp" % n): part.replace("@number@", str(n)) for n in range(1, count + 1)}
	build = "build $folder/%s.o: cxx %s | $folder/pch.hpp.gch\n"
	one = ["-include", HEADER, "-c", next(iter(sources)), "-o", XARGS_FOLDER + "/one.o"]
	files = {
		"build.ninja": ninja + "".join(build % (source, source) for source in sources),
		"flags.json": json.dumps(words),
		"commands.txt": " ".join([compiler.cxx, *words, *one]) + "\n",
	}
	write_files(root, {**sources, **files})
	return PrecompiledProject(root, "c++")


def read_text(folder: str, name: str) -> str:
	with open(os.path.join(folder, name), encoding="utf-8") as f:
		return f.read()


class Checkouts:
	"""The checkouts of a run. Its project is the one in the checkout that it has entered."""

	def __init__(self, run: "Run") -> None:
		self.run = run
		self.origin = run.project
		# beside the project's own folder: nothing above a checkout may look like the top of one
		self.folder = tempfile.mkdtemp(prefix=run.lane.label + "-", dir=run.workshop.path)
		run.workshop.new_cache(run.lane.contender, run.lane.names)

	def enter(self, part: str) -> None:
		"""Go to the checkout of a part, in which nothing is built, and let the contender prepare it."""
		run, root = self.run, os.path.join(self.folder, PARTS[part])
		if not os.path.isdir(root):
			# all files are new, as in a checkout
			shutil.copytree(self.origin.root, root, copy_function=shutil.copyfile)
		shutil.rmtree(os.path.join(root, FOLDER), ignore_errors=True)
		os.mkdir(os.path.join(root, FOLDER))
		run.project = PrecompiledProject(root, self.origin.language)
		run.folder = FOLDER
		run.variables = {**SLOPPY, **run.cache.share_checkout(root)} if run.cache else {}
		run.lane.contender.builder.prepare(run)
		os.sync()

	def find_different(self) -> "tuple[str, List[str]]":
		"""The contender whose objects were compared first, and the sources whose objects differ from those."""
		return self.origin.compare(os.path.join(self.run.root, FOLDER), self.run.lane.text)

	def close(self) -> None:
		run, cache = self.run, self.run.cache
		run.project, run.variables = self.origin, {}
		shutil.rmtree(self.folder, ignore_errors=True)
		if cache:
			run.workshop.end_cache(run.lane.names)
			shutil.rmtree(cache.folder, ignore_errors=True)
