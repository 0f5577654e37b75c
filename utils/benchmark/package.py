"""
The C code that ``bench.py sources`` builds, and the C++ code of ``bench.py project``: packages of a registry,
or folders of the user's own.

Cargo, which the engine needs anyway, fetches the packages of the registry. Its own configuration says from where, and
it checks them against the lock file. They are kept below ``build/``, so one fetch is enough.
"""

import hashlib
import os
import re
import shutil
import subprocess
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from .interpreter import ROOT
from .mistake import Mistake

HERE = os.path.dirname(os.path.abspath(__file__))
CRATES = os.path.join(HERE, "projects", "crates")
KEPT = os.path.join(ROOT, "build", "bench", "sources")
COMPILED = {"c": (".c",), "c++": (".cc", ".cpp", ".cxx")}
HEADERS = {"c": (".h", ".inc", ".def"), "c++": (".h", ".hh", ".hpp", ".hxx", ".inc", ".def")}
TITLES = {"c": "C", "c++": "C++"}
PATIENCE = 300  # seconds that cargo has to fetch a few megabytes
REMEDY = "or name a folder with sources with --sources"


class Package(NamedTuple):
	"""A folder of sources of one language that become one static library."""

	name: str
	origin: str
	root: str
	files: Sequence[str]  # relative to the root
	defines: Sequence[str] = ()
	includes: Sequence[str] = (".",)  # where its own headers are looked for
	language: str = "c"

	@property
	def sources(self) -> List[str]:
		return [path for path in self.files if path.endswith(COMPILED[self.language])]

	@property
	def summary(self) -> str:
		"""The origin and the number of files, for the report."""
		return "%s (%d files)" % (self.origin, len(self.sources))

	def copy(self, folder: str) -> None:
		for path in self.files:
			target = os.path.join(folder, path)
			os.makedirs(os.path.dirname(target), exist_ok=True)
			shutil.copyfile(os.path.join(self.root, path), target)


class Crate(NamedTuple):
	"""A package of the registry with code that needs no configure step, and how its own build compiles that."""

	package: str
	name: str
	version: str
	inside: str  # where the sources are in the crate
	folders: Sequence[str]  # with the sources that are compiled
	defines: Sequence[str]
	language: str = "c"
	includes: Sequence[str] = (".",)
	headers: Sequence[str] = ()  # folders that hold nothing else
	without: Optional[str] = None  # matches the names of files that are left out

	@property
	def title(self) -> str:
		"""The folder that ``cargo vendor`` makes for it."""
		return "%s-%s" % (self.name, self.version)

	def found_in(self, vendored: str) -> Package:
		"""The package, in a folder that ``cargo vendor`` has made."""
		root = os.path.join(vendored, self.title, self.inside)
		files = []
		for folder in (*self.folders, *self.headers):
			path = os.path.join(root, folder)
			names = sorted(os.listdir(path)) if os.path.isdir(path) else []
			names = [name for name in names if not (self.without and re.search(self.without, name))]
			files += [os.path.join(folder, name) for name in names if name.endswith(suffixes(self.language))]
		return Package(self.package, self.title, root, files, self.defines, self.includes, self.language)


# SQLite is left out: its one file of a quarter of a million lines takes longer than all others, and would hide them
CRATES_USED = (
	Crate(
		"zstd",
		"zstd-sys",
		"2.0.13+zstd.1.5.6",
		"zstd/lib",
		("", "common", "compress", "decompress", "dictBuilder"),
		("XXH_NAMESPACE=ZSTD_", "ZSTD_LEGACY_SUPPORT=0", "ZSTD_MULTITHREAD", "ZSTD_DISABLE_ASM"),
	),
	Crate(
		"lua",
		"lua-src",
		"547.0.0",
		"lua-5.4.7",
		("",),
		("LUA_USE_LINUX",),
	),
	Crate(
		"zlib",
		"libz-sys",
		"1.1.20",
		"src/zlib",
		("",),
		("STDC", "_LARGEFILE64_SOURCE", "_POSIX_SOURCE"),
	),
	# both use the system's headers a lot: containers, strings, streams, threads
	Crate(
		"cadical",
		"cadical",
		"0.1.16",
		"cadical/src",
		("",),
		("NBUILD", "NUNLOCKED", "NTRACING", "QUIET", "NDEBUG"),
		"c++",
		without="^version.cpp$",  # tells when it was compiled
	),
	Crate(
		"leveldb",
		"leveldb-sys",
		"2.0.9",
		"deps/leveldb-1.22",
		("db", "table", "util", "helpers/memenv"),
		("LEVELDB_PLATFORM_POSIX=1", "LEVELDB_IS_BIG_ENDIAN=0"),
		"c++",
		(".", "include"),
		("port", "include/leveldb"),
		r"_test\.c|^test|windows|^db_bench",
	),
)


def suffixes(language: str) -> Tuple[str, ...]:
	"""How the names of files end that belong to a language."""
	return COMPILED[language] + HEADERS[language]


def find_packages(
	folder: Optional[str], say: Callable[[str], None], kept: str = KEPT, language: str = "c"
) -> List[Package]:
	"""The packages in a folder of the user's, or those of the registry, which are fetched unless they are kept."""
	if folder:
		return packages_in(folder, language)
	with open(os.path.join(CRATES, "Cargo.lock"), "rb") as f:
		vendored = os.path.join(kept, hashlib.sha256(f.read()).hexdigest()[:16])
	if not os.path.isdir(vendored):
		say("fetching the sources of %s (once)" % ", ".join(crate.package for crate in CRATES_USED))
		vendor(vendored)
	return [crate.found_in(vendored) for crate in CRATES_USED if crate.language == language]


def packages_in(folder: str, language: str = "c") -> List[Package]:
	"""A package for each folder in this one that holds sources; or one for all, where some lie in this one itself."""
	try:
		names = sorted(os.listdir(folder))
	except OSError as e:
		raise Mistake("cannot read %s: %s: name a folder with --sources" % (folder, e.strerror)) from None
	folder = os.path.abspath(folder)
	roots = [os.path.join(folder, name) for name in names if not name.startswith(".")]
	roots = [root for root in roots if os.path.isdir(root)]
	if any(name.endswith(COMPILED[language]) for name in names):
		roots = [folder]
	packages = []
	for root in roots:
		name = os.path.basename(root)
		packages.append(Package(name, name, root, files_below(root, suffixes(language)), language=language))
	packages = [package for package in packages if package.sources]
	if not packages:
		raise Mistake("%s holds no %s sources: name another folder with --sources" % (folder, TITLES[language]))
	for package in packages:
		for path in [package.name, *package.files]:
			if not re.fullmatch(r"[\w.+/-]+", path, re.ASCII):
				raise Mistake("make cannot build %s: only letters, digits and . _ + - may be in its name" % path)
	return packages


def files_below(root: str, endings: Tuple[str, ...]) -> List[str]:
	"""The files with these endings below a folder; not what is hidden, nor behind a link to a folder."""
	found = []
	for path, folders, names in os.walk(root):
		folders[:] = sorted(name for name in folders if not name.startswith("."))
		paths = [os.path.join(path, name) for name in sorted(names) if name.endswith(endings)]
		found += [os.path.relpath(one, root) for one in paths if os.path.isfile(one)]
	return found


def vendor(folder: str) -> None:
	"""Let cargo fetch and unpack the crates of the lock file into a new folder, which appears in one step."""
	part = "%s.%d.part" % (folder, os.getpid())
	args = ["vendor", "--locked", "--versioned-dirs", "--manifest-path"]
	args += [os.path.join(CRATES, "Cargo.toml"), os.path.join(part, "vendored")]
	try:
		os.makedirs(part)
		fetch("real sources", args, REMEDY)
		os.rename(os.path.join(part, "vendored"), folder)
	except OSError as e:
		if not os.path.isdir(folder):  # another campaign may have been faster
			raise Mistake("cannot write %s: %s: make it writable, %s" % (folder, e.strerror, REMEDY)) from None
	finally:
		shutil.rmtree(part, ignore_errors=True)


def fetch(what: str, args: Sequence[str], remedy: str) -> bytes:
	"""Let cargo fetch what it needs for something, and return its output."""
	cargo = find_cargo()
	if not cargo:
		raise Mistake("%s: cargo is missing: install Rust, %s" % (what, remedy))
	pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
	# it asks rustc for its version, which must not start the user's cache
	env = {**os.environ, "RUSTC_WRAPPER": ""}
	try:
		# where the engine is built, so that the same settings of cargo hold
		done = subprocess.run([cargo, *args], cwd=ROOT, env=env, timeout=PATIENCE, **pipes)
	except subprocess.TimeoutExpired as e:
		raise Mistake("%s: cargo could not fetch the crates: %s: try again, %s" % (what, e, remedy)) from None
	if done.returncode:
		lines = done.stderr.decode("utf-8", "replace").split("\n")
		reason = [line.strip() for line in lines if line.strip()] or ["it said nothing"]
		told = "cargo could not fetch the crates (%s): connect to the registry" % reason[-1]
		raise Mistake("%s: %s, %s" % (what, told, remedy))
	return done.stdout


def find_cargo() -> Optional[str]:
	"""The path of cargo; rustup's own folder counts even when the shell does not know it yet."""
	home = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
	return shutil.which("cargo") or shutil.which("cargo", path=os.path.join(home, "bin"))
