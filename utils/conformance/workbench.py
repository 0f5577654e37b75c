"""Builds a project with stock Waf and then, at the same path, with tools loaded."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Callable, Iterator, List, Mapping, NamedTuple, Sequence

from . import twins
from .projects import Project

ROOT = pathlib.Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
	sys.path.append(str(ROOT))

from waflib_extras import wafx  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TOOL = "prefork"
LONGEST = 100  # seconds for one run of Waf


JOBS = twins.Exemption(
	"*config.log",
	twins.blur(r"(?<= )-j\d+(?= )"),
	"Waf writes its command line into it, and builds with other numbers of jobs are held against one stock build",
)


class Pair(NamedTuple):
	"""Both builds of a project."""

	stock: twins.Build
	ours: twins.Build
	jobs: int  # of ours
	wanted: int  # commands that stock Waf ran
	executed: int  # commands that the engine was given

	def find_differences(self, project: Project) -> List[str]:
		"""All differences. It is one of them if the engine was not given every command."""
		standard = twins.Standard(ordered=self.jobs == 1, exemptions=(JOBS, *project.exemptions))
		found = twins.compare_builds(self.stock, self.ours, standard)
		if self.executed != self.wanted:
			found.append(f"stock Waf ran {self.wanted} commands, the engine was given {self.executed}")
		return found


class Workbench:
	"""Builds projects of a tree of Waf's own, with one `waflib`, in a temporary folder."""

	def __init__(
		self,
		tree: pathlib.Path,
		waflib: pathlib.Path,
		folder: pathlib.Path,
		bytecode: pathlib.Path,
		longest: float = LONGEST,
		run: Callable[..., twins.Run] = twins.run_command,
	) -> None:
		self.tree = tree
		self.longest = longest
		self.run = run
		self.folder = folder
		self.tally = folder / "tally"
		waf = folder / "bin" / "waf"
		waf.parent.mkdir()
		# a script of its own, and not a link: projects start Waf again by its path
		waf.write_text(f"#!{sys.executable}\n{(HERE / 'start.py').read_text()}")
		waf.chmod(0o755)
		home = folder / "home"
		home.mkdir()
		self.env = {
			"PATH": os.pathsep.join([str(waf.parent), os.path.dirname(sys.executable), os.environ["PATH"]]),
			"HOME": str(home),
			"LANG": "C.UTF-8",
			"TZ": "UTC",
			"SOURCE_DATE_EPOCH": "1600000000",
			"PYTHONHASHSEED": "1",
			"PYTHONPATH": str(HERE / "site"),
			"PYTHONPYCACHEPREFIX": str(bytecode),
			"WAFDIR": str(waflib),
			"CONFORMANCE_TALLY": str(self.tally),
		}

	def build_stock(self, project: Project, jobs: int) -> twins.Build:
		"""Build a project with stock Waf."""
		return self._build(project, jobs, "stock", {} if project.pool else {"WAF_NO_PREFORK": "1"})

	def build_with(
		self,
		tools: Sequence[str],
		project: Project,
		jobs: int,
		side: str,
		variables: Mapping[str, str],
		is_verbose: bool = False,
	) -> twins.Build:
		"""Build a project with tools; the variables say which engine they use."""
		# stock Waf does not say what was saved
		changes = {**wafx.prepare(self.env, list(tools)), "WAF_PREFORK_SUMMARY": "no", **variables}
		return self._build(project, jobs, side, changes, is_verbose)

	def build_pairs(self, project: Project) -> Iterator[Pair]:
		"""Build a project stock, and with the tool by each number of jobs; nothing else may use the engine."""
		self.tally.write_bytes(b"")
		stock = self.build_stock(project, project.job_numbers[0])
		wanted = self.tally.stat().st_size
		engine = {name: os.environ[name] for name in ("WAFD", "WAFD_RUNTIME_DIR")}
		before = 0
		for jobs in project.job_numbers:
			# as the stock build, if that had one job
			is_verbose = project.job_numbers[0] == 1
			ours = self.build_with([TOOL], project, jobs, f"{TOOL}-j{jobs}", engine, is_verbose)
			executed = count_executed()
			yield Pair(stock, ours, jobs, wanted, executed - before)
			before = executed

	def _build(
		self, project: Project, jobs: int, side: str, changes: Mapping[str, str], is_verbose: bool = False
	) -> twins.Build:
		sources = {self.tree / path: pathlib.Path(path) for path in project.copied}
		env = dict(self.env, CONFORMANCE_HASTE=str(project.haste), **changes)
		lines = project.command_lines(jobs, is_verbose)
		work, aside = self.folder / "work", self.folder / side
		return twins.build_aside(sources, work, aside, lines, env, project.name, self.longest, self.run)


def count_executed() -> int:
	"""How many commands the engine was given; zero if no engine was started."""
	command = [os.environ["WAFD"], "status", "--json"]
	done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=30, check=False)
	totals = {} if done.returncode else json.loads(done.stdout)["totals"]
	return sum(totals.get(name, 0) for name in ("succeeded", "failed", "not_started", "timed_out", "cancelled"))
