#!/usr/bin/env python3
"""
Run our tests on other releases of Debian, with their compilers, libc and Pythons, on several file systems.

For each suite a root folder is made once with debootstrap, from the mirror that apt uses on this machine. Our wheel is
installed in it, and the tests run there: as root and as an ordinary user, with CPython and, where Waf is what is
tested, with PyPy. Tests see the root read-only. They work on a file system of their own. All processes and mounts end
with them. This needs root, and room for about 1.5 GB for each suite.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import shutil
import sys
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from benchmark.interrupt import INTERRUPTS, Interrupted
from benchmark.mistake import Failed, Mistake
from benchmark.record import Parser
from debian.chamber import USER, WORK
from debian.disks import KINDS, Disk
from debian.groups import GROUPS, Group, choose_groups
from debian.mirror import find_mirror
from debian.root import SUITES, Python, Root, build_wheel, take_wheel

TREE = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = """\
examples:
  utils/systems.py                                   all suites, all groups of tests, as root and as a user, in memory
  utils/systems.py --suites trixie --few             what CI runs: less than three minutes when the root is there
  utils/systems.py --suites sid --tests parking,observing --disks ext4,overlayfs,xfs,btrfs
  utils/systems.py --suites trixie,sid --bench --repeat 5
                                                     what prefork gains there: full builds against ninja, in turn
  utils/systems.py --suites sid --shell              look around in a root
  utils/systems.py --only-make                       make the roots, and end

exit status: 0 all passed, 1 some test failed, 2 it could not begin, 128 and more: a signal
"""
PATIENCE = 1800.0  # seconds for one group of tests
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|errors?|deselected)")


class Options(Parser):
	"""All that can be asked for."""

	def __init__(self) -> None:
		super().__init__(__doc__, EXAMPLES)
		self.add_argument("--suites", type=words, metavar="A,B", help="default %s" % ",".join(SUITES))
		self.add_argument("--disks", type=words, metavar="A,B", help="of %s (default tmpfs)" % ",".join(KINDS))
		self.add_argument("--tests", type=words, metavar="A,B", help="of %s (default all)" % ",".join(GROUPS))
		self.add_argument("--users", type=words, metavar="A,B", help="of root, user (default both)")
		self.add_argument("--pythons", type=words, metavar="A,B", help="of cpython, pypy (default both)")
		self.add_argument("--few", action="store_true", help="only those tests of a group that say most in little time")
		self.add_argument("--expression", metavar="EXPR", help="only these tests, as pytest -k takes them")
		self.add_argument("--bench", action="store_true", help="measure full builds against ninja instead of testing")
		self.add_argument("--size", default="10,50,15,5", help="of the project that is built (default 10,50,15,5)")
		self.add_argument("--repeat", type=int, default=3, metavar="N", help="rounds of --bench (default 3)")
		self.add_argument("--folder", type=pathlib.Path, default=TREE / "build" / "systems", metavar="DIR")
		self.add_argument("--mirror", metavar="URL", help="of Debian (default that of apt)")
		self.add_argument("--wheel", type=pathlib.Path, metavar="FILE", help="made before (default made of this tree)")
		self.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results")
		self.add_argument("--only-make", action="store_true", help="make the roots, install the wheel, and end")
		self.add_argument("--shell", action="store_true", help="a shell in the first root, and end")

	def read(self) -> argparse.Namespace:
		options = self.parse_args()
		for name, known in (
			("suites", SUITES),
			("disks", KINDS),
			("tests", tuple(GROUPS)),
			("users", ("root", "user")),
			("pythons", ("cpython", "pypy")),
		):
			unknown = [x for x in getattr(options, name) or () if x not in known]
			if unknown:
				self.error("--%s: no %s: there are %s" % (name, unknown[0], ", ".join(known)))
		return options


def words(text: str) -> List[str]:
	return [x for x in text.split(",") if x]


class Result(NamedTuple):
	"""What came of a group of tests."""

	suite: str
	disk: str
	user: str
	python: str
	group: str
	counts: Dict[str, int]
	seconds: float
	output: str

	@property
	def is_good(self) -> bool:
		return bool(self.counts.get("passed")) and not self.counts.get("failed") and not self.counts.get("error")


class LeftOut(NamedTuple):
	"""What was not tried, and why."""

	what: str
	why: str


class Campaign:
	"""All that was asked for, suite by suite."""

	def __init__(self, options: argparse.Namespace) -> None:
		self.options = options
		self.results: List[Result] = []
		self.left_out: List[LeftOut] = []
		self.versions: Dict[str, Dict[str, str]] = {}
		self.benches: List[Dict[str, Any]] = []
		self.disks = [disk for disk in self.find_disks() if disk]

	def find_disks(self) -> Iterator[Optional[Disk]]:
		for kind in self.options.disks or ["tmpfs"]:
			disk = Disk(kind, self.options.folder)
			why = disk.find_obstacle()
			if why:
				self.leave_out(kind, why)
			yield None if why else disk

	def leave_out(self, what: str, why: str) -> None:
		self.left_out.append(LeftOut(what, why))
		print("%s is left out: %s" % (what, why), file=sys.stderr, flush=True)

	def run(self, wheel: pathlib.Path, mirror: str) -> None:
		for suite in self.options.suites or SUITES:
			root = Root(suite, self.options.folder)
			try:
				root.make(mirror)
				pythons = root.install(wheel)
			except Failed as e:
				self.leave_out(suite, "\n".join([str(e), *e.quote()]))
				continue
			self.versions[suite] = root.ask_versions()
			print("%s: %s" % (suite, ", ".join("%s %s" % x for x in self.versions[suite].items())), flush=True)
			why = find_obstacle(root, pythons[0])
			if why:
				self.leave_out(suite, why)
			elif self.options.bench:
				self.measure(root, pythons[0])
			elif not self.options.only_make:
				self.test(root, pythons)

	def test(self, root: Root, pythons: Sequence[Python]) -> None:
		users = self.options.users or ["root", "user"]
		groups = choose_groups(self.options.tests or ())
		for disk, user, (name, group) in itertools.product(self.disks, users, groups.items()):
			for python in pythons:
				if python.name in group.pythons and python.name in (self.options.pythons or (python.name,)):
					self.try_group(root, disk, user, python, (name, group))

	def try_group(self, root: Root, disk: Disk, user: str, python: Python, named: Tuple[str, Group]) -> None:
		name, group = named
		command = [python.environment + "/bin/pytest", "-q", "-n", str(os.cpu_count() or 2), "--tb=short"]
		command += ["--rootdir", str(TREE), "-c", str(TREE / "pyproject.toml"), "-o", "cache_dir=%s/tmp/cache" % WORK]
		expression = self.options.expression or (group.few if self.options.few else "")
		command += ["-k", expression] if expression else []
		command += [str(TREE / "tests" / file) for file in group.files]
		start = time.monotonic()
		disk.make()
		try:
			chamber = root.open([TREE], disk)
			done = chamber.run(
				command,
				user=USER if user == "user" else "root",
				timeout=PATIENCE,
				WAFD=python.environment + "/bin/wafd",
				PYTHONDONTWRITEBYTECODE="1",
			)
		finally:
			disk.remove()
		counts = read_counts(done.stdout)
		if done.returncode == 124:
			counts["error"] = counts.get("error", 0) + 1
		took = time.monotonic() - start
		result = Result(root.suite, disk.kind, user, python.name, name, counts, took, done.stdout)
		self.results.append(result)
		print("%-9s %-9s %-4s %-7s %-10s %s  %.0f s" % (*result[:5], tell_counts(counts), took), flush=True)
		if not result.is_good:
			print(done.stdout[-6000:], flush=True)

	def measure(self, root: Root, python: Python) -> None:
		"""Full builds of generated small files, by ninja and by prefork in turn; the ratios of their medians."""
		record = WORK + "/bench.json"
		bench = [python.path, str(TREE / "utils" / "bench.py"), "full", "--contenders", "ninja,prefork"]
		bench += [
			"--baseline",
			"ninja",
			"--compilers",
			"g++,clang++",
			"--size",
			self.options.size,
			"--repeat",
			str(self.options.repeat),
		]
		bench += ["--work", WORK + "/tmp", "--json", record]
		for disk in self.disks:
			disk.make()
			try:
				chamber = root.open([TREE], disk)
				script = "%s >&2; echo; cat %s" % (" ".join(bench), record)
				done = chamber.run(["sh", "-euc", script], timeout=PATIENCE, PYTHONDONTWRITEBYTECODE="1")
			finally:
				disk.remove()
			head, _, text = done.stdout.partition("\n{")
			print(head, flush=True)
			if done.returncode or not text:
				self.leave_out("bench of %s" % root.suite, done.stdout[-2000:])
				continue
			told = {"suite": root.suite, "disk": disk.kind, "load": os.getloadavg(), "record": json.loads("{" + text)}
			self.benches.append(told)

	def is_good(self) -> bool:
		has_done = bool(self.results or self.benches or self.options.only_make)
		return has_done and all(result.is_good for result in self.results)

	def to_json(self) -> Dict[str, Any]:
		results = [dict(result._asdict(), output="" if result.is_good else result.output) for result in self.results]
		left_out = [left._asdict() for left in self.left_out]
		return {"systems": self.versions, "results": results, "benches": self.benches, "left_out": left_out}


def find_obstacle(root: Root, python: Python) -> str:
	"""Why our programs do not run there."""
	done = root.open([]).run([python.environment + "/bin/wafd", "--version"])
	words = done.stdout.strip().splitlines() or ["it says nothing"]
	return "" if done.returncode == 0 else "wafd does not run: %s" % words[-1]


def read_counts(output: str) -> Dict[str, int]:
	"""The numbers in the last line of pytest."""
	lines = [line for line in output.splitlines() if COUNTS.search(line) and " in " in line]
	found = COUNTS.findall(lines[-1]) if lines else []
	counts = {name.rstrip("s") if name.startswith("error") else name: int(number) for number, name in found}
	return counts or {"error": 1}


def tell_counts(counts: Dict[str, int]) -> str:
	wanted = ("passed", "failed", "error", "skipped")
	return ", ".join("%d %s" % (counts[name], name) for name in wanted if counts.get(name))


def make_table(campaign: Campaign) -> str:
	"""A row for each system and file system, with what its groups came to."""
	groups = list(dict.fromkeys(result.group for result in campaign.results))
	rows = [["suite", "disk", "user", "python", *groups]]
	keys = list(dict.fromkeys(result[:4] for result in campaign.results))
	for key in keys:
		cells = {result.group: tell_counts(result.counts) for result in campaign.results if result[:4] == key}
		rows.append([*key, *(cells.get(group, "") for group in groups)])
	widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
	return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main() -> int:
	options = Options().read()
	INTERRUPTS.listen()
	options.folder = options.folder.resolve()
	try:
		if os.geteuid():
			raise Mistake("it needs root: it makes root folders, and mounts file systems in them")
		for program, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux")):
			if not shutil.which(program):
				raise Mistake("there is no %s: apt-get install %s" % (program, package))
		mirror = options.mirror or find_mirror()
		if options.shell:
			root = Root((options.suites or SUITES)[-1], options.folder)
			root.make(mirror)
			os.environ["TERM"] = os.environ.get("TERM", "dumb")
			command = root.open([TREE]).wrap(["bash"], "root", {"TERM": os.environ["TERM"]})
			os.execvp(command[0], command)
		wheel = take_wheel(options.wheel, options.folder) if options.wheel else build_wheel(TREE, options.folder)
		campaign = Campaign(options)
		campaign.run(wheel, mirror)
	except Mistake as e:
		print("systems: %s" % e, file=sys.stderr)
		return 2
	except Interrupted as e:
		print("systems: %s" % e, file=sys.stderr)
		return e.exit_status
	if options.json:
		options.json.write_text(json.dumps(campaign.to_json(), indent=1) + "\n", encoding="utf-8")
	if campaign.results:
		print(make_table(campaign))
	for left in campaign.left_out:
		print("left out: %s: %s" % left)
	return 0 if campaign.is_good() else 1


if __name__ == "__main__":
	sys.exit(main())
