"""The headers of a library, from Debian's package, which is unpacked and not installed."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Callable

import hunt
from benchmark.mistake import Mistake

NAMED = "libboost-dev"
"""It holds nothing, and needs the package of the version that this release of Debian has."""
REMEDY = "apt-get install " + NAMED
PATIENCE = 300  # seconds for some megabytes


def unpack_boost(folder: pathlib.Path, say: Callable[[str], None]) -> str:
	"""Download Boost's headers, unless they are there; the folder for the compiler's ``-isystem``."""
	place = folder / "boost"
	if not place.is_dir():
		if not shutil.which("apt-get"):
			raise Mistake("Boost's headers are missing, and there is no apt-get to fetch them: install them")
		say("fetching the headers of Boost (once)")
		folder.mkdir(parents=True, exist_ok=True)
		with tempfile.TemporaryDirectory(prefix="boost-", dir=folder) as name:
			part = pathlib.Path(name)
			needed = run(part, "dpkg-deb", "-f", download(NAMED, part), "Depends")
			found = re.search(r"libboost[\d.]+-dev", needed)
			if not found:
				raise Mistake("Boost's headers: %s needs no package that we know: %s" % (NAMED, REMEDY))
			run(part, "dpkg-deb", "-x", download(found.group(), part), "root")
			os.rename(str(part / "root"), str(place))
	return str(place / "usr" / "include")


def download(package: str, folder: pathlib.Path) -> str:
	"""The name of a package's file, which is now in the folder."""
	# without a sandbox, since apt's own user may not write into the folder
	options = ["-q", "-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else ["-q"]
	run(folder, "apt-get", *options, "download", package)
	return next(file.name for file in folder.glob("%s_*.deb" % package))


def run(folder: pathlib.Path, *argv: str) -> str:
	try:
		done = hunt.run(argv, folder, seconds=PATIENCE)
	except (OSError, subprocess.TimeoutExpired) as e:
		raise Mistake("Boost's headers: %s: %s" % (e, REMEDY)) from None
	if done.returncode:
		lines = [line for line in done.stdout.splitlines() if line.strip()] or ["it said nothing"]
		raise Mistake("Boost's headers: %s failed (%s): run apt-get update, or %s" % (argv[0], lines[-1], REMEDY))
	return done.stdout
