"""The sources of Debian's packages, as their authors wrote them, with no patch of Debian's but those that are named."""

import os
import pathlib
import re
import shutil
import subprocess
from typing import Callable, Iterator, Mapping, Optional, Sequence

from benchmark.mistake import Failed, Mistake

from .mirror import find_mirror

PATIENCE = 900  # seconds for all of apt
LISTS = pathlib.Path("/etc/apt")
KEYS = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keys of Debian's releases, of later ones, too."""


def fetch(
	packages: Sequence[str],
	folder: pathlib.Path,
	say: Callable[[str], None],
	suite: str = "",
	patches: Optional[Mapping[str, Sequence[str]]] = None,
) -> None:
	"""
	Download source packages into a folder, and unpack them there. Those that are there already stay as they are.

	They are of this machine's release of Debian, or of the one that is named; that has a folder of its own there. Some
	packages get these patches of Debian's.
	"""
	if not shutil.which("apt-get"):
		raise Mistake("there is no apt-get, which fetches the sources of %s" % ", ".join(packages))
	place = folder / suite
	archives = place / "debian"
	wanted = [package for package in packages if not find_archive(package, archives)]
	if wanted:
		say("fetching the sources of %s (once)" % ", ".join(wanted))
		apt = Apt(folder.parent / ("apt-" + suite if suite else "apt"), suite)
		archives.mkdir(parents=True, exist_ok=True)
		# a repository of somebody else may have no sources: what is needed is told by the next command
		apt.run("update", "-q")
		done = apt.run("source", "-q", "--download-only", *wanted, cwd=archives)
		if done.returncode:
			raise Failed("apt-get source failed", "\n".join(done.stdout.splitlines()[-15:]))
	for package in packages:
		wanted_patches = (patches or {}).get(package, ())
		texts = [read_patch(name, find_archive(package, archives, "debian")) for name in wanted_patches]
		unpack(find_archive(package, archives), place, texts)


def find_archive(package: str, archives: pathlib.Path, whose: str = "orig") -> str:
	"""The archive of its authors' sources, or of what Debian adds to them; empty if it is not there yet."""
	for description in archives.glob("%s_*.dsc" % package):
		for name in re.findall(r"\S+\.%s\.tar\.\w+$" % whose, description.read_text(errors="replace"), re.M):
			if (archives / name).exists():
				return str(archives / name)
	return ""


def read_patch(name: str, archive: str) -> bytes:
	"""The text of one of Debian's patches."""
	argv = ["tar", "-xOf", archive, "debian/patches/" + name]
	found = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
	if found.returncode:
		raise Mistake("there is no patch %s in %s: is it another release?" % (name, archive or "Debian's part"))
	return found.stdout


def apply(patch: bytes, folder: pathlib.Path) -> None:
	if not shutil.which("patch"):
		raise Mistake("patch is missing: apt-get install patch")
	argv = ["patch", "-d", str(folder), "-p1", "-s", "-f"]
	done = subprocess.run(argv, input=patch, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
	if done.returncode:
		raise Failed("a patch of Debian's does not fit %s" % folder, done.stdout.decode(errors="replace"))


def unpack(archive: str, folder: pathlib.Path, patches: Sequence[bytes] = ()) -> None:
	"""Unpack an archive and apply these patches, unless its topmost folder is there."""
	listed = subprocess.run(["tar", "-tf", archive], stdout=subprocess.PIPE, encoding="utf-8", check=False)
	if listed.returncode:
		raise Mistake("%s is damaged: remove it, and try again" % archive)
	top = listed.stdout.partition("/")[0].strip()
	if not (folder / top).is_dir():
		part = folder / ("%s.%d.part" % (top, os.getpid()))
		part.mkdir(parents=True)
		subprocess.run(["tar", "-C", str(part), "-xf", archive], check=True)
		for patch in patches:
			apply(patch, part / top)
		os.rename(part / top, folder / top)
		part.rmdir()


class Apt:
	"""
	apt with a copy of the machine's settings, in which sources are asked for, too.

	The machine's own settings stay as they are, whether they are written in the one-line or in the newer format. For
	another release of Debian, the machine's mirror is asked, and no other repository.
	"""

	def __init__(self, folder: pathlib.Path, suite: str = "") -> None:
		self.folder = folder
		for name in ("sources.list.d", "lists/partial", "cache/archives/partial"):
			(folder / name).mkdir(parents=True, exist_ok=True)
		if suite:
			keys = "[signed-by=%s] " % KEYS if KEYS.exists() else ""
			line = "deb-src %s%s %s main\n" % (keys, find_mirror(), suite)
			(folder / "sources.list.d" / (suite + ".list")).write_text(line, encoding="utf-8")
			return
		for file in (LISTS / "sources.list", *LISTS.glob("sources.list.d/*")):
			lines = list(sources_of(file))
			if lines:
				(folder / "sources.list.d" / file.name).write_text("\n".join(lines) + "\n", encoding="utf-8")

	def run(self, *args: str, cwd: pathlib.Path = pathlib.Path()) -> "subprocess.CompletedProcess[str]":
		options = {
			"Dir::Etc::SourceList": "/dev/null",
			"Dir::Etc::SourceParts": str(self.folder / "sources.list.d"),
			"Dir::State::Lists": str(self.folder / "lists"),
			"Dir::Cache": str(self.folder / "cache"),
			"APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
		}
		argv = ["apt-get"]
		for name, value in options.items():
			argv += ["-o", "%s=%s" % (name, value)]
		pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
		try:
			return subprocess.run(
				[*argv, *args], cwd=cwd, timeout=PATIENCE, encoding="utf-8", errors="replace", check=False, **pipes
			)
		except subprocess.TimeoutExpired:
			raise Failed("apt-get %s took longer than %d s" % (args[0], PATIENCE)) from None


def sources_of(file: pathlib.Path) -> Iterator[str]:
	"""The lines of a file of apt's, changed so that they ask for sources."""
	if not file.is_file() or file.suffix not in (".list", ".sources"):
		return
	for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
		if file.suffix == ".sources":
			yield re.sub(r"^Types:.*", "Types: deb-src", line)
		elif re.match(r"deb\s", line):
			yield "deb-src" + line[3:]
