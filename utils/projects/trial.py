"""What is done with a project: it is built, edited, and built again in the same folder and in another checkout."""

import os
import pathlib
import shutil
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from benchmark.cache import CompilerCache
from benchmark.meter import Command, measure
from benchmark.mistake import Failed
from benchmark.project import digest_of

from .contender import Contender
from .project import Lines, Real, Setup

STEPS = {
	"cold": "with an empty cache",
	"warm": "the same sources once more in the same folder",
	"edit": "a declaration was added to a header that many sources include",
	"back": "that edit was taken back",
	"other": "the same sources in another checkout",
}
SAME = {"warm": "cold", "back": "cold"}
"""Steps whose outputs are those of another one, so that the stock tools need not take them for the comparison."""
LINKED = (b"\x7fELF", b"!<arch>\n")
"""How objects, libraries and programs begin."""
EDIT = "\nstruct edited_by_a_benchmark;\n"
DRAWN = "CMakeDetermineCompilerABI_"
"""CMake compiles such probes in folders whose names it draws, and debug information has these names."""
AT = "one"
ELSEWHERE = "another/place"

Digests = Dict[str, str]


class Done(NamedTuple):
	"""One step of one contender."""

	step: str
	wall: float
	processor: float
	configure: float
	"""Seconds of configuring before it, which are not in ``wall``."""
	hits: Optional[int]
	misses: Optional[int]
	outputs: int
	differing: List[str]
	"""The outputs that are not as the stock tools make them in the same place."""


class Trial:
	"""All steps of a project with some flags."""

	def __init__(
		self, real: Real, sources: pathlib.Path, flags: str, work: str, jobs: int, begin: Callable[[str], None]
	) -> None:
		self.real = real
		self.sources = sources
		self.flags = flags
		self.work = os.path.join(work, real.package + flags.replace(" ", ""))
		self.jobs = jobs
		self.begin = begin
		self.made: Dict[str, Dict[str, Digests]] = {}
		"""By contender and step: the outputs."""

	def run(self, contender: Contender) -> List[Done]:
		"""Do all steps with an empty cache; the folder is empty before and after."""
		steps = [step for step in STEPS if contender.has_cache or step not in SAME]
		shutil.rmtree(self.work, ignore_errors=True)
		os.makedirs(self.work)
		env = {k: v for k, v in os.environ.items() if not k.startswith(("CCACHE_", "WAFCC_", "WAFD", "JOBS"))}
		cache = contender.open(os.path.join(self.work, "cache"), env)
		try:
			return [self.take(Builds(self, contender, cache, env), step) for step in steps]
		finally:
			if cache:
				cache.stop()
			shutil.rmtree(self.work, ignore_errors=True)

	def take(self, builds: "Builds", step: str) -> Done:
		self.begin("%s %s, %s, %s" % (self.real.package, self.flags, builds.contender.name, step))
		place = ELSEWHERE if step == "other" else AT
		header = pathlib.Path(self.work, place, self.real.header)
		configured = 0.0
		if step in ("cold", "warm", "other"):
			configured = builds.configure(place)
		elif step == "edit":
			header.write_bytes(header.read_bytes() + EDIT.encode())
		else:
			header.write_bytes(header.read_bytes()[: -len(EDIT)])
		values = builds.build(place)
		digests = digests_of(pathlib.Path(self.work, place))
		self.made.setdefault(builds.contender.name, {})[step] = digests
		right = [made.get(step) or made[SAME[step]] for made in map(self.made.__getitem__, builds.contender.references)]
		names = sorted({*digests, *(name for one in right for name in one)})
		differing = [name for name in names if digests.get(name) not in [one.get(name) for one in right]]
		return Done(step=step, configure=configured, outputs=len(digests), differing=differing, **values)


class Builds:
	"""The builds of one contender."""

	def __init__(self, trial: Trial, contender: Contender, cache: Optional[CompilerCache], env: Dict[str, str]) -> None:
		self.trial = trial
		self.contender = contender
		self.cache = cache
		self.env = {**env, **(cache.environment if cache else {})}

	def configure(self, place: str) -> float:
		"""Make a checkout in which all is new, and configure it; the seconds that this took."""
		folder = os.path.join(self.trial.work, place)
		shutil.rmtree(folder, ignore_errors=True)
		shutil.copytree(self.trial.sources, folder, symlinks=True, copy_function=Copy().copy)
		return sum(value.wall for value in self.do(place, self.trial.real.configure(self.setup(place))))

	def build(self, place: str) -> Dict[str, Any]:
		hits, misses = self.count()
		readings = self.do(place, self.trial.real.build(self.setup(place)))
		if hits is not None and misses is not None:
			later = self.count()
			hits, misses = (later[0] or 0) - hits, (later[1] or 0) - misses
		used = sum(value.used.user + value.used.system for value in readings)
		return {"wall": sum(value.wall for value in readings), "processor": used, "hits": hits, "misses": misses}

	def setup(self, place: str) -> Setup:
		folder = os.path.join(self.trial.work, place)
		flags = " ".join([self.trial.flags, self.contender.flags(folder)]).strip()
		return Setup(folder, flags, self.trial.jobs, self.contender.launcher(), self.contender.waf)

	def count(self) -> Tuple[Optional[int], Optional[int]]:
		"""The hits and the misses so far."""
		return (self.cache.hits(), self.cache.misses()) if self.cache else (None, None)

	def do(self, place: str, lines: Lines) -> List[Any]:
		setup = self.setup(place)
		# our tools are in a project's own Waf, so no wrapper is before the compiler
		is_inside = bool(setup.waf) and self.trial.real.has_waf
		variables = self.trial.real.environment(setup._replace(launcher="") if is_inside else setup)
		env = {**self.env, **variables, **self.contender.environment(setup.folder)}
		output = os.path.join(self.trial.work, "output")
		pids = self.cache.pids if self.cache else list
		return [measure(Command(argv, setup.folder, env), output, pids) for argv in lines]


class Copy:
	"""
	A checkout that is made now: all its files have one time.

	With times of their own, make would take what the authors have generated for older than what it was made of.
	"""

	def __init__(self) -> None:
		self.now = time.time()

	def copy(self, source: str, target: str) -> None:
		shutil.copyfile(source, target)
		shutil.copymode(source, target)
		os.utime(target, (self.now, self.now))


def digests_of(folder: pathlib.Path) -> Digests:
	"""The digests of all objects, libraries and programs below a folder."""
	found: Digests = {}
	for path, _, names in os.walk(folder):
		for name in names:
			file = os.path.join(path, name)
			if os.path.islink(file) or not os.path.isfile(file) or name.startswith(DRAWN):
				continue
			with open(file, "rb") as f:
				is_linked = f.read(len(LINKED[1])).startswith(LINKED)
			if is_linked:
				found[os.path.relpath(file, folder)] = digest_of(file)
	if not found:
		raise Failed("nothing was built in %s" % folder)
	return found
