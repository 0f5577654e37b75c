"""Real projects, by the names of their source packages in Debian, and how each is configured and built."""

import pathlib
import shutil
import sys
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from benchmark.mistake import Mistake


class Setup(NamedTuple):
	"""What a build has from its contender."""

	folder: str
	"""The checkout."""
	flags: str
	jobs: int
	launcher: str
	"""The program that goes before the compiler; empty if there is none."""
	waf: Sequence[str] = ()
	"""What goes before a project's own Waf."""


Lines = List[List[str]]


class Real(NamedTuple):
	"""A project."""

	package: str
	sources: str
	"""A pattern for the folder that its archive holds."""
	header: str
	"""What is edited: a header that many of its sources include."""
	configure: Callable[[Setup], Lines]
	build: Callable[[Setup], Lines]
	needs: Tuple[str, ...] = ()
	"""Programs."""
	packages: str = ""
	"""Debian's packages that it needs beside a compiler."""
	variables: Tuple[Tuple[str, str], ...] = ()
	has_waf: bool = False
	"""Whether it brings a Waf of its own."""
	patches: Tuple[str, ...] = ()
	"""Debian's patches without which it cannot be built."""

	def missing(self) -> Optional[str]:
		lacks = [program for program in self.needs if not shutil.which(program)]
		return "%s is missing: apt-get install %s" % (lacks[0], self.packages) if lacks else None

	def find_sources(self, folder: pathlib.Path) -> pathlib.Path:
		found = sorted(path for path in folder.glob(self.sources) if path.is_dir())
		if not found:
			raise Mistake("no %s in %s: its archive has another name" % (self.sources, folder))
		return found[-1]

	def environment(self, setup: Setup) -> Dict[str, str]:
		"""The variables of all its commands."""
		compilers = {"CC": join(setup.launcher, "gcc"), "CXX": join(setup.launcher, "g++")}
		return {**dict(self.variables), **compilers, "CFLAGS": setup.flags, "CXXFLAGS": setup.flags}


def join(*words: str) -> str:
	return " ".join(word for word in words if word)


def with_cmake(*options: str) -> Callable[[Setup], Lines]:
	def configure(setup: Setup) -> Lines:
		argv = ["cmake", "-G", "Ninja", "-S", setup.folder, "-B", setup.folder + "/out", "-DCMAKE_BUILD_TYPE="]
		for language, compiler in (("C", "gcc"), ("CXX", "g++")):
			argv.append("-DCMAKE_%s_COMPILER=%s" % (language, compiler))
			if setup.launcher:
				argv.append("-DCMAKE_%s_COMPILER_LAUNCHER=%s" % (language, setup.launcher))
		return [[*argv, *options]]

	return configure


def with_ninja(setup: Setup) -> Lines:
	return [["ninja", "-C", setup.folder + "/out", "-j%d" % setup.jobs]]


def with_configure(*options: str) -> Callable[[Setup], Lines]:
	return lambda setup: [["./configure", *options]]


def with_make(*words: str) -> Callable[[Setup], Lines]:
	return lambda setup: [["make", "-j%d" % setup.jobs, *words]]


def with_waf(script: str, *words: str, python: str = "") -> Callable[[Setup], Lines]:
	return lambda setup: [[*setup.waf, python or sys.executable, script, *words]]


def waf_builds(script: str, *words: str, python: str = "") -> Callable[[Setup], Lines]:
	return lambda setup: [[*setup.waf, python or sys.executable, script, "build", "-j%d" % setup.jobs, *words]]


SAMBA_WITHOUT = (
	*("ad-dc", "acl-support", "ldap", "ads", "pam", "json", "libarchive", "systemd", "gettext", "winbind", "gpgme"),
	*("ldb-lmdb", "dmapi", "fam"),
)
SAMBA = (
	"configure",
	*("--without-%s" % part for part in SAMBA_WITHOUT),
	*("--disable-%s" % part for part in ("cups", "iprint", "python", "avahi", "glusterfs", "cephfs")),
	"--with-shared-modules=!vfs_snapper",
)
JACK = ("configure", *("--%s=no" % part for part in ("alsa", "db", "opus", "samplerate", "sndfile", "zalsa")))
STEADY = (("PYTHONHASHSEED", "1"), ("SOURCE_DATE_EPOCH", "1600000000"))

PROJECTS = (
	Real(
		"leveldb",
		"leveldb-*",
		"include/leveldb/slice.h",
		with_cmake("-DLEVELDB_BUILD_TESTS=OFF", "-DLEVELDB_BUILD_BENCHMARKS=OFF"),
		with_ninja,
		("cmake", "ninja"),
		"cmake ninja-build",
	),
	Real(
		"yaml-cpp",
		"yaml-cpp-*",
		"include/yaml-cpp/exceptions.h",
		with_cmake("-DYAML_CPP_BUILD_TESTS=OFF", "-DYAML_CPP_BUILD_TOOLS=OFF"),
		with_ninja,
		("cmake", "ninja"),
		"cmake ninja-build",
	),
	Real(
		"libarchive",
		"libarchive-*",
		"libarchive/archive_private.h",
		with_configure("--without-xml2", "--without-expat"),
		with_make("--no-print-directory"),
		("make",),
		"make",
	),
	Real(
		"libzstd",
		"zstd-*",
		"lib/common/mem.h",
		lambda setup: [],
		with_make("-C", "lib", "BUILD_DIR=obj"),
		("make",),
		"make",
	),
	Real(
		"ntpsec",
		"ntpsec-*",
		"include/ntp.h",
		with_waf("./waf", "configure"),
		waf_builds("./waf", "--notests"),
		("bison",),
		"bison python3-dev libssl-dev",
		STEADY,
		has_waf=True,
	),
	Real(
		"jackd2",
		"jack2-*",
		"common/jack/types.h",
		with_waf("./waf", *JACK, python="pypy3"),
		waf_builds("./waf", python="pypy3"),
		("pypy3",),
		"pypy3",  # its Waf 2.0.12 is too old for Python 3.11
		STEADY,
		has_waf=True,
	),
	Real(
		"samba",
		"samba-*",
		"lib/talloc/talloc.h",
		with_waf("./buildtools/bin/waf", *SAMBA),
		waf_builds("./buildtools/bin/waf", "--targets=smbclient"),
		("flex", "bison", "xsltproc", "patch"),
		"flex bison xsltproc docbook-xsl patch libgnutls28-dev libparse-yapp-perl libjansson-dev libreadline-dev "
		"zlib1g-dev",
		STEADY,
		has_waf=True,
		# Debian removes a file whose licence it does not accept, and adds the table from it
		patches=("heimdal-rfc3454.txt",),
	),
)
