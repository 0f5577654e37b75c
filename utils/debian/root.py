"""A root folder with another release of Debian: made once, and then only looked at.

Beside Debian's packages it holds an environment for each Python, with pytest and our wheel. Nothing is fetched from
inside: packages for Python are fetched by this machine's pip, as that is configured.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional

from benchmark.mistake import Failed, Mistake

from .chamber import USER, WORK, Chamber
from .disks import Disk

# in the order of their age
SUITES = ("bullseye", "bookworm", "trixie", "sid")
PACKAGES = (
	*("gcc", "g++", "clang", "musl-tools", "make", "ninja-build"),
	*("python3", "python3-venv", "pypy3"),
	*("ca-certificates", "git", "procps", "strace"),
)
TESTING = ("pytest>=8", "pytest-timeout", "pytest-xdist", "waflib>=2.0")
# what pytest asks for with some Pythons only, which a pip of another Python does not see
CONDITIONAL = ("exceptiongroup", "tomli", "typing-extensions")
PYTHONS = {"cpython": "python3", "pypy": "pypy3"}
LIMIT = 1800.0  # seconds until a root is made

# what a system is made of, a line each
VERSIONS = """\
version() { "$1" $2 2>/dev/null | head -1 | grep -oE '[0-9]+(\\.[0-9]+)+' | head -1 || true; }
echo gcc $(version gcc -dumpfullversion)
echo clang $(version clang --version)
echo glibc $(version ldd --version)
echo python $(version python3 --version)
echo pypy $(pypy3 -c 'import sys; print("%d.%d.%d" % sys.pypy_version_info[:3])' 2>/dev/null)
"""


class Python(NamedTuple):
	"""An interpreter of the root, and where its environment is in there."""

	name: str
	version: str  # as pip takes it
	environment: str

	@property
	def path(self) -> str:
		return "%s/bin/python" % self.environment


def unmount_below(folder: pathlib.Path) -> None:
	"""Unmount what a debootstrap that was killed has left mounted: its ``/proc`` is this machine's."""
	mounted = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
	for path in sorted((path for path in mounted if path.startswith("%s/" % folder.resolve())), reverse=True):
		done = subprocess.run(["umount", path], capture_output=True, encoding="utf-8", check=False)
		if done.returncode:
			raise Failed("unmount %s before it is made anew" % path, done.stderr.strip())


class Root:
	"""A suite below a folder."""

	def __init__(self, suite: str, folder: pathlib.Path) -> None:
		self.suite, self.folder = suite, folder
		self.path = folder / "roots" / suite
		self.log = folder / ("%s.log" % suite)

	def make(self, mirror: str) -> None:
		"""Make it, if it is not there yet. It gets its name when it is complete."""
		wanted = " ".join(PACKAGES)
		note = self.path / "etc" / "made-of"
		if note.is_file() and note.read_text() == wanted:
			return
		fresh = self.path.with_name(self.suite + ".new")
		for old in (fresh, self.path):
			if old.exists():
				unmount_below(old)
				shutil.rmtree(str(old))
		fresh.parent.mkdir(parents=True, exist_ok=True)
		command = ["debootstrap", "--variant=minbase", "--include=%s" % ",".join(PACKAGES)]
		self.do([*command, self.suite, str(fresh), mirror], "make a root of %s" % self.suite)
		self.do(["chroot", str(fresh), "useradd", "--user-group", "--no-create-home", USER], "add a user")
		(fresh / "etc" / "made-of").write_text(wanted)
		fresh.rename(self.path)

	def do(self, command: List[str], what: str) -> None:
		with self.log.open("ab") as log:
			done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=LIMIT, check=False)
		if done.returncode:
			tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
			raise Failed("%s: status %d, see %s" % (what, done.returncode, self.log), "\n".join(tail))

	def ask_versions(self) -> Dict[str, str]:
		"""The versions of its compilers, its libc and its Pythons."""
		told = self.open([]).run(["sh", "-c", VERSIONS])
		pairs = [line.split(" ", 1) for line in told.stdout.splitlines() if " " in line]
		return dict(pairs)  # type: ignore[arg-type]

	def open(self, seen: List[pathlib.Path], disk: Optional[Disk] = None, is_writable: bool = False) -> Chamber:
		return Chamber(self.path, seen, disk or Disk("tmpfs", self.folder), is_writable)

	def find_pythons(self) -> List[Python]:
		tell = "import sys; print('%d.%d' % sys.version_info[:2])"
		found = []
		for name, program in PYTHONS.items():
			told = self.open([]).run([program, "-c", tell])
			if told.returncode == 0:
				found.append(Python(name, told.stdout.strip(), "/opt/%s" % name))
		return found

	def install(self, wheel: pathlib.Path) -> List[Python]:
		"""Have our wheel and pytest in an environment of each Python."""
		pythons = self.find_pythons()
		wheels = self.folder / "wheels"
		digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
		note = self.path / "opt" / "wheel"
		if note.is_file() and note.read_text() == digest and all((self.path / p.path[1:]).exists() for p in pythons):
			return pythons
		chamber = self.open([wheels], is_writable=True)
		ours = WORK + "/" + wheel.name
		for python in pythons:
			stock = fetch_packages(python, wheels / python.version)
			fresh = self.path / python.environment[1:]
			if fresh.exists():
				shutil.rmtree(str(fresh))
			script = "cp %s %s\n" % (wheels / "ours" / wheel.name, ours)
			script += "%s -m venv --without-pip %s\n" % (PYTHONS[python.name], python.environment)
			# the pip in its own wheel serves every Python, also one that Debian ships without any
			pip = "%s %s/pip" % (python.path, next(stock.glob("pip-*.whl")))
			names = " ".join("'%s'" % name for name in TESTING)
			script += "%s install -q --no-index --find-links %s %s %s\n" % (pip, stock, names, ours)
			made = chamber.run(["sh", "-euc", script], timeout=LIMIT)
			if made.returncode:
				raise Failed("install into %s of %s" % (python.name, self.suite), made.stdout[-2000:])
		note.write_text(digest)
		return pythons


def fetch_packages(python: Python, folder: pathlib.Path) -> pathlib.Path:
	"""The folder with wheels that a Python of another version takes."""
	if not (folder / "complete").exists():
		folder.mkdir(parents=True, exist_ok=True)
		pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--dest", str(folder)]
		pip += ["--only-binary=:all:", "--python-version", python.version, "--implementation", "py", "--abi", "none"]
		done = subprocess.run([*pip, "--platform", "any", "pip", *TESTING, *CONDITIONAL], check=False)
		if done.returncode:
			raise Mistake("pip cannot fetch what Python %s needs for the tests" % python.version)
		(folder / "complete").touch()
	return folder


def build_wheel(tree: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
	"""Our wheel, made of this tree. Cargo compiles again only what has changed."""
	place = folder / "wheels" / "ours"
	if place.exists():
		shutil.rmtree(str(place))
	pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
	done = subprocess.run([*pip, "--wheel-dir", str(place), str(tree)], env=dict(os.environ), check=False)
	made = list(place.glob("*.whl"))
	if done.returncode or not made:
		raise Mistake("pip could not make the wheel (pip wheel %s)" % tree)
	return made[0]


def take_wheel(given: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
	"""A wheel that was made before."""
	if not given.is_file():
		raise Mistake("%s: no such wheel" % given)
	place = folder / "wheels" / "ours"
	place.mkdir(parents=True, exist_ok=True)
	kept = place / given.name
	if not (kept.exists() and kept.samefile(given)):
		shutil.copy(str(given), str(kept))
	return kept
