#!/usr/bin/env python3
"""
Fetch the copies of Waf that projects carry, for the tests that run ``wafx`` with each of them.

They come with the sources of Debian's packages, of this machine's release and of others, and stay in build/sources.
"""

import argparse
import pathlib
import sys
from typing import Dict, List

from benchmark.mistake import Failed, Mistake
from benchmark.progress import Progress
from debian.sources import fetch
from debian.wafs import CARRIERS

TREE = pathlib.Path(__file__).resolve().parent.parent


def main() -> int:
	parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
	parser.add_argument("--sources", type=pathlib.Path, default=TREE / "build" / "sources", metavar="DIR")
	parser.add_argument("--list", action="store_true", help="list versions, packages and releases, and end")
	options = parser.parse_args()
	if options.list:
		for one in CARRIERS:
			print(one.version, one.package or "waflib, by ./waf check", one.suite)
		return 0
	packages: Dict[str, List[str]] = {}
	for one in CARRIERS:
		if one.package:
			packages.setdefault(one.suite, []).append(one.package)
	status = 0
	for suite, names in packages.items():
		try:
			fetch(names, options.sources, Progress(sys.stderr).say, suite)
		except (Failed, Mistake) as e:
			print("wafs: %s" % "\n".join([str(e), *(e.quote() if isinstance(e, Failed) else [])]), file=sys.stderr)
			status = 1
	return status


if __name__ == "__main__":
	sys.exit(main())
