"""
Commands of 50 to 800 MiB within a control group's limit: the contenders of the scenario ``memory``.

Some numbers of jobs, chosen by hand, against ``--memory=auto``, which knows the commands from its first build on. Each
build is Waf with ``prefork`` and ``-k``, in a control group and with an engine of its own, and counts what was killed.
"""

import os
import random
import re
import subprocess
import time
from typing import TYPE_CHECKING, Dict, Iterator, Optional, Tuple

from .builder import MEMORY, Builder
from .meter import Command
from .mistake import Failed
from .project import C_COMPILER
from .service import Engine, missing_engine

if TYPE_CHECKING:
	from .run import Run

LIMIT = 1600 << 20
SIZES = (50, 800)  # MiB
TIMES = (0.2, 1.2)  # seconds in which a command takes its memory
AUTO = 16  # jobs of the build that the memory limits
JOBS = (1, 2, 3, 4, 6, 8)
PATIENCE = 30.0  # seconds for an engine to leave its group
EAT = r"""
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv) {
	size_t part = ((size_t)atoi(argv[1]) << 20) / 20;
	long pause = atof(argv[2]) * 1e9 / 20;
	char *memory = malloc(20 * part);
	for (int n = 0; argc > 2 && memory && n < 20; n++) {
		memset(memory + n * part, n + 1, part);
		nanosleep(&(struct timespec){pause / 1000000000, pause % 1000000000}, 0);
	}
	return memory ? memory[part] - 2 : 1;
}
"""
WSCRIPT = """\
def options(opt):
	opt.load("prefork")
def configure(conf):
	pass
def build(bld):
	for number, (size, seconds) in enumerate(%r):
		bld(rule="../eat %%d %%s && touch ${TGT}" %% (size, seconds), target="out-%%d" %% number)
"""


class Group:
	"""A control group with a limit, below that of this process."""

	def __init__(self) -> None:
		self.folder = ""
		with open("/proc/self/cgroup", encoding="utf-8") as f:
			groups = [line.rstrip("\n").split(":", 2) for line in f]
		for _, controllers, path in groups:
			base = "/sys/fs/cgroup" + ("/memory" if "memory" in controllers.split(",") else "")
			folder = "%s%s/bench-memory-%d" % (base, path.rstrip("/"), os.getpid())
			for name in ("memory.limit_in_bytes", "memory.max"):
				if os.path.exists(os.path.join(base + path, name)) and not self.folder:
					os.mkdir(folder)
					self.folder = folder
					with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
						f.write(str(LIMIT))
		if not self.folder:
			raise OSError("no control group counts memory")

	def read(self, *names: str) -> str:
		path = next(path for path in (os.path.join(self.folder, name) for name in names) if os.path.exists(path))
		with open(path, encoding="utf-8") as f:
			return f.read()

	def kills(self) -> int:
		(count,) = re.findall(r"^oom_kill (\d+)", self.read("memory.events", "memory.oom_control"), re.MULTILINE)
		return int(count)

	def close(self) -> None:
		"""Remove the group when its processes have ended."""
		deadline = time.monotonic() + PATIENCE
		while self.read("cgroup.procs") and time.monotonic() < deadline:
			time.sleep(0.05)
		os.rmdir(self.folder)


class Eating(Builder):
	"""Waf with this number of jobs; with ``--memory=auto`` twice."""

	runs_python = True
	abilities = frozenset((MEMORY,))

	def __init__(self, jobs: int, *options: str) -> None:
		self.jobs = jobs
		self.options = options
		self.note = "-j%d %s" % (jobs, " ".join(options))

	def missing(self) -> Optional[str]:
		try:
			Group().close()
		except OSError as e:
			return "no control group can be made: %s: run it as root, where control groups can be written" % e
		return missing_engine()

	def take(self, run: "Run") -> Iterator[Tuple[str, Dict[str, float]]]:
		"""Build from nothing, and once more."""
		count, drawn = run.settings["commands"]["memory"], random.Random(run.settings["seed"])
		sizes = [(drawn.randint(*SIZES), round(drawn.uniform(*TIMES), 2)) for _ in range(count)]
		for name, text in (("wscript", WSCRIPT % sizes), ("eat.c", EAT)):
			with open(run.path(name), "w", encoding="utf-8") as f:
				f.write(text)
		subprocess.run([C_COMPILER, "-O1", "-o", run.path("eat"), run.path("eat.c")], check=True)
		group = Group()
		engine = Engine(run.path(""), run.environment, "engine")
		try:
			for part in ("first", "again"):
				yield part, self.build(run, group, engine)
		finally:
			engine.stop()
			group.close()
			engine.remove()

	def build(self, run: "Run", group: Group, engine: Engine) -> Dict[str, float]:
		before = group.kills()
		waf = [run.lane.interpreter.path, "-m", "waflib_extras.launcher"]
		words = [*waf, "distclean", "configure", "build", "-k", "-j%d" % self.jobs, *self.options]
		# an engine that this build starts is in the group, too
		enter = 'echo 0 > %s/cgroup.procs; "$@" || test $? = 1' % group.folder
		env = dict(run.environment, **engine.environment, XDG_CACHE_HOME=run.path("cache"))
		reading = run.execute(Command(["sh", "-c", enter, "sh", *words], run.path(""), env))
		kills = group.kills() - before
		made = [name for name in os.listdir(run.path("build")) if name.startswith("out-")]
		if not kills and len(made) != run.settings["commands"]["memory"]:
			raise Failed("it made %d outputs, and nothing was killed" % len(made))
		return {"wall": reading.wall, "kills": kills}


MEMORIES = {
	**{"by-hand-j%d" % jobs: Eating(jobs) for jobs in JOBS},
	"memory-auto": Eating(AUTO, "--memory=auto"),
}
