"""Where this machine gets Debian's packages from, as apt's own settings say."""

import shutil
import subprocess

from benchmark.mistake import Mistake

TARGETS = ("apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(SUITE)|$(COMPONENT)", "Created-By: Packages")


def find_mirror() -> str:
	"""The mirror that apt uses for Debian's main component; that of updates and security may be another one."""
	if not shutil.which("apt-get"):
		raise Mistake("there is no apt-get, whose settings say where packages are: name a mirror with --mirror")
	told = subprocess.run(TARGETS, stdout=subprocess.PIPE, encoding="utf-8", check=False)
	for line in told.stdout.splitlines():
		origin, address, suite, component = line.split("|")
		if origin == "Debian" and component == "main" and "-" not in suite:
			return address.rstrip("/")
	raise Mistake("apt knows no mirror of Debian: run apt-get update, or name a mirror with --mirror")
