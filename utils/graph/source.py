"""Where the crates come from: a published one with its own lock file, or a folder of the user's."""

import json
import os
import re
import shutil
import tempfile
from typing import Callable, NamedTuple

from benchmark.mistake import Mistake
from benchmark.package import KEPT, fetch

LOCK = "Cargo.lock"
REMEDY = "or name a folder with --project"
NEEDS = """[package]
name = "needs"
version = "0.0.0"

[workspace]

[dependencies]
"%s" = "=%s"
"""
LEFT = shutil.ignore_patterns("target", ".git")


class Source(NamedTuple):
	"""A folder with a package or a workspace, and its title."""

	title: str
	folder: str

	def copy(self, folder: str) -> None:
		try:
			shutil.copytree(self.folder, folder, symlinks=True, ignore=LEFT)
		except (OSError, shutil.Error) as e:
			raise Mistake("cannot copy %s: %s" % (self.folder, e)) from None


def find_project(folder: str) -> Source:
	"""A folder of the user's."""
	for name in ("Cargo.toml", LOCK):
		if not os.path.isfile(os.path.join(folder, name)):
			remedy = "run cargo generate-lockfile there" if name == LOCK else "name a folder that cargo builds"
			raise Mistake("--project: there is no %s in %s: %s" % (name, folder, remedy))
	return Source(os.path.basename(os.path.abspath(folder)), folder)


def find_crate(text: str, say: Callable[[str], None], kept: str = KEPT) -> Source:
	"""A published crate, by NAME=VERSION. It is kept, so that one download is enough."""
	if not re.fullmatch(r"[A-Za-z0-9_-]+=\d[\w.+-]*", text):
		raise Mistake("--crate: %s is not NAME=VERSION such as tokei=12.1.2" % text)
	name, _, version = text.partition("=")
	title = "%s %s" % (name, version)
	folder = os.path.join(kept, "crates", "%s-%s" % (name, version))
	if not os.path.isdir(folder):
		say("fetching %s (once)" % title)
		keep(Source(title, download(name, version)), folder)
	if not os.path.isfile(os.path.join(folder, LOCK)):
		raise Mistake("--crate: %s has no %s of its own: choose a program, %s" % (title, LOCK, REMEDY))
	return Source(title, folder)


def keep(source: Source, folder: str) -> None:
	"""Copy it into a new folder, which appears in one step."""
	part = "%s.%d.part" % (folder, os.getpid())
	try:
		os.makedirs(os.path.dirname(folder), exist_ok=True)
		source.copy(part)
		os.rename(part, folder)
	except OSError as e:
		if not os.path.isdir(folder):  # another campaign may have been faster
			raise Mistake("cannot write %s: %s: make it writable, %s" % (folder, e.strerror, REMEDY)) from None
	finally:
		shutil.rmtree(part, ignore_errors=True)


def download(name: str, version: str) -> str:
	"""Let cargo download a crate, as a dependency of a project that has nothing else, and tell its folder."""
	with tempfile.TemporaryDirectory(prefix="needs-") as needs:
		manifest = os.path.join(needs, "Cargo.toml")
		with open(manifest, "w", encoding="utf-8") as f:
			f.write(NEEDS % (name, version))
		os.mkdir(os.path.join(needs, "src"))
		with open(os.path.join(needs, "src", "lib.rs"), "w", encoding="utf-8"):
			pass
		told = fetch("%s %s" % (name, version), ["metadata", "--format-version=1", "--manifest-path", manifest], REMEDY)
	for package in json.loads(told.decode())["packages"]:
		if (package["name"], package["version"]) == (name, version):
			return os.path.dirname(package["manifest_path"])
	raise Mistake("--crate: cargo found no %s %s: choose another, %s" % (name, version, REMEDY))
