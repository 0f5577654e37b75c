"""
The C code that ``bench.py sources`` builds, and the C++ code of ``bench.py project``: packages of a registry,
or folders of the user's own.

The registry's come by cargo, which the engine needs anyway: cargo's own configuration decides from where, and its lock
file which bytes they are. They are kept below ``build/`` and looked at before each use, so that one fetch is enough.
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
		"""What is compiled."""
		return [path for path in self.files if path.endswith(COMPILED[self.language])]

	@property
	def summary(self) -> str:
		"""What a reader of the numbers must know."""
		return "%s (%d files)" % (self.origin, len(self.sources))

	def copy(self, folder: str) -> None:
		"""Copy all files into a folder."""
		for path in self.files:
			target = os.path.join(folder, path)
			os.makedirs(os.path.dirname(target), exist_ok=True)
			shutil.copyfile(os.path.join(self.root, path), target)

	def digest(self) -> str:
		"""One digest of the names and contents of all files."""
		whole = hashlib.sha256()
		for path in self.files:
			with open(os.path.join(self.root, path), "rb") as f:
				whole.update(b"%s %s\n" % (hashlib.sha256(f.read()).hexdigest().encode(), path.encode()))
		return whole.hexdigest()


class Crate(NamedTuple):
	"""A package of the registry with code that needs no configure step, and how its own build compiles that."""

	package: str
	name: str
	version: str
	inside: str  # where the sources are in the crate
	folders: Sequence[str]  # those that are compiled
	defines: Sequence[str]
	digest: str
	language: str = "c"
	includes: Sequence[str] = (".",)
	headers: Sequence[str] = ()  # folders that hold nothing else
	without: Optional[str] = None  # what is in the names of files that are left out

	@property
	def title(self) -> str:
		"""The folder that ``cargo vendor`` makes for it, and ours."""
		return "%s-%s" % (self.name, self.version)

	def found_in(self, root: str) -> Package:
		"""The package whose files lie in a folder."""
		files = []
		for folder in (*self.folders, *self.headers):
			path = os.path.join(root, folder)
			names = sorted(os.listdir(path)) if os.path.isdir(path) else []
			names = [name for name in names if not (self.without and re.search(self.without, name))]
			files += [os.path.join(folder, name) for name in names if name.endswith(suffixes(self.language))]
		return Package(self.package, self.title, root, files, self.defines, self.includes, self.language)

	def kept(self, folder: str) -> Optional[Package]:
		"""The package as it was kept, if it was, and is still what it ought to be."""
		package = self.found_in(os.path.join(folder, self.title))
		try:
			return package if package.digest() == self.digest else None
		except OSError:
			return None


# SQLite is left out: its one file of a quarter of a million lines takes longer than all others, and would hide them
CRATES_USED = (
	Crate(
		"zstd",
		"zstd-sys",
		"2.0.13+zstd.1.5.6",
		"zstd/lib",
		("", "common", "compress", "decompress", "dictBuilder"),
		("XXH_NAMESPACE=ZSTD_", "ZSTD_LEGACY_SUPPORT=0", "ZSTD_MULTITHREAD", "ZSTD_DISABLE_ASM"),
		"d5ea9ec44960c751bbac87d19d93e9a149f31a4fce9d6e2d1a11484c265a39e4",
	),
	Crate(
		"lua",
		"lua-src",
		"547.0.0",
		"lua-5.4.7",
		("",),
		("LUA_USE_LINUX",),
		"dd6a16e4da1ec9bfb39c7d3a3f686c609fdf5a38658349888f3382e3a7cc1457",
	),
	Crate(
		"zlib",
		"libz-sys",
		"1.1.20",
		"src/zlib",
		("",),
		("STDC", "_LARGEFILE64_SOURCE", "_POSIX_SOURCE"),
		"22c725bf750c3865c08485806e7e7f9ee6f3a78f7349d17798657a17b56daff3",
	),
	# both use the system's headers a lot: containers, strings, streams, threads
	Crate(
		"cadical",
		"cadical",
		"0.1.16",
		"cadical/src",
		("",),
		("NBUILD", "NUNLOCKED", "NTRACING", "QUIET", "NDEBUG"),
		"9931005200042f7231d1dc01cd32f3b6848a8edcd9326fc6439f4fb519b706dc",
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
		"48b55e500fbb619a0ff39996b6277531d44a0d061acbb7a18b14a2aba2cddd94",
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
	folder: Optional[str], room: str, say: Callable[[str], None], kept: str = KEPT, language: str = "c"
) -> List[Package]:
	"""The packages in a folder of the user's, or those of the registry: fetched into `room` unless they are kept."""
	if folder:
		return packages_in(folder, language)
	used = [crate for crate in CRATES_USED if crate.language == language]
	missing = [crate for crate in used if not crate.kept(kept)]
	if missing:
		say("fetching the %s code of %s (once)" % (TITLES[language], ", ".join(crate.package for crate in missing)))
		vendored = vendor(room)
		for crate in missing:
			keep(crate, os.path.join(vendored, crate.title, crate.inside), kept)
	return [crate.found_in(os.path.join(kept, crate.title)) for crate in used]


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


def vendor(room: str) -> str:
	"""Let cargo fetch and unpack the crates of the lock file; the folder in which they are."""
	cargo = find_cargo()
	if not cargo:
		raise Mistake("real sources: cargo is missing: install Rust, %s" % REMEDY)
	project, vendored = os.path.join(room, "crates"), os.path.join(room, "vendored")
	shutil.copytree(CRATES, project)
	argv = [cargo, "vendor", "--locked", "--versioned-dirs"]
	argv += ["--manifest-path", os.path.join(project, "Cargo.toml"), vendored]
	try:
		# where the engine is built, so that the same settings of cargo hold
		done = subprocess.run(
			argv,
			cwd=ROOT,
			stdin=subprocess.DEVNULL,
			stdout=subprocess.DEVNULL,
			stderr=subprocess.PIPE,
			timeout=PATIENCE,
		)
	except (OSError, subprocess.TimeoutExpired) as e:
		raise Mistake("real sources: cargo could not fetch the crates: %s: try again, %s" % (e, REMEDY)) from None
	if done.returncode:
		lines = done.stderr.decode("utf-8", "replace").split("\n")
		reason = [line.strip() for line in lines if line.strip()] or ["it said nothing"]
		raise Mistake(
			"real sources: cargo could not fetch the crates (%s): connect to the registry, %s" % (reason[-1], REMEDY)
		)
	return vendored


def find_cargo() -> Optional[str]:
	"""The path of cargo; rustup's own folder counts even when the shell does not know it yet."""
	home = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
	return shutil.which("cargo") or shutil.which("cargo", path=os.path.join(home, "bin"))


def keep(crate: Crate, root: str, kept: str) -> None:
	"""Take what belongs to a crate's package into the folder of those that are kept, in one step."""
	package = crate.found_in(root)
	if package.digest() != crate.digest:
		raise Mistake(
			"real sources: the code of %s is not what it was: give the registry's own crate, %s" % (crate.title, REMEDY)
		)
	part = os.path.join(kept, "%s.%d.part" % (crate.title, os.getpid()))
	target = os.path.join(kept, crate.title)
	try:
		package.copy(part)
		if os.path.isdir(target):
			shutil.rmtree(target)
		os.rename(part, target)
	except OSError as e:
		shutil.rmtree(part, ignore_errors=True)
		if not crate.kept(kept):  # another campaign has not been faster either
			raise Mistake("cannot write %s: %s: make it writable, %s" % (target, e.strerror, REMEDY)) from None
