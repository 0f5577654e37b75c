#!/usr/bin/env python3
"""
Writes the list of the tests that ``./waf check`` leaves for ``--all``, from how long they took.

::

	PYTEST_ADDOPTS=--junitxml=build/tests.xml ./waf check --all --only=cpython
	utils/slow_tests.py build/tests.xml

A test with parameters counts by the slowest of them. Of several reports, the quickest run of a test counts, since
others may have used the machine. Files that are left for ``--all`` as a whole are named in ``tests/conftest.py``.
"""

import argparse
import pathlib
import sys
import xml.etree.ElementTree
from typing import Dict, List

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "slow.txt"


def read_times(report: pathlib.Path) -> Dict[str, float]:
	"""How long the slowest run of each test took, by its name without parameters."""
	times: Dict[str, float] = {}
	for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
		_, file, *classes = case.get("classname", "").split(".")
		name = "::".join([file + ".py", *classes, case.get("name", "").partition("[")[0]])
		times[name] = max(times.get(name, 0), float(case.get("time", 0)))
	return times


def merge(reports: List[Dict[str, float]]) -> Dict[str, float]:
	"""The quickest run of each test."""
	times = reports[0]
	for each in reports[1:]:
		for name, time in each.items():
			times[name] = min(times.get(name, time), time)
	return times


def choose(times: Dict[str, float], seconds: float) -> List[str]:
	return sorted(name for name, time in times.items() if time >= seconds)


def main() -> int:
	parser = argparse.ArgumentParser(
		description=(__doc__ or "").strip().splitlines()[0],
		epilog="example: slow_tests.py --seconds 3 build/tests.xml",
	)
	parser.add_argument("reports", type=pathlib.Path, nargs="+", help="what pytest has written with --junitxml")
	parser.add_argument("--seconds", type=float, default=1.75, help="tests that take longer are slow (%(default)s)")
	args = parser.parse_args()
	reports = []
	for report in args.reports:
		try:
			reports.append(read_times(report))
		except (OSError, ValueError, xml.etree.ElementTree.ParseError) as e:
			print("slow_tests: %s: %s: write one with pytest --junitxml" % (report, e), file=sys.stderr)
			return 1
	times = merge(reports)
	chosen = choose(times, args.seconds)
	LIST.write_text("".join(name + "\n" for name in chosen), encoding="utf-8")
	share = sum(times[name] for name in chosen) / max(sum(times.values()), 1e-9)
	print("%d of %d tests are slow, and take %.0f %% of the time" % (len(chosen), len(times), 100 * share))
	return 0


if __name__ == "__main__":
	sys.exit(main())
