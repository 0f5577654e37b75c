"""Circumstances of programs: limits, refused system calls, the umask, another user, times of files."""

import errno
import os
import subprocess
import tempfile
from typing import List, Type

from hunt import run

from .fault import Fault, Stage
from .scene import OTHER_USER


class EngineHandicap(Fault):
	"""The engine is started with a handicap, before the build would start it."""

	group = "engine"
	lasts = True

	def words(self, stage: Stage) -> List[str]:
		raise NotImplementedError

	def prepare(self, stage: Stage) -> None:
		words = self.words(stage)
		scene = stage.scene
		stage.note("the engine is started with %s" % " ".join(words))
		argv = scene.with_handicap([scene.tools.wafd, "start"], *words)
		log = scene.tools.root / "start.log"
		child = scene.start(argv, scene.environ(), log)
		try:
			child.wait(30)
		except subprocess.TimeoutExpired:
			child.kill()
			child.wait()
			stage.note("wafd start did not end in 30 s")


def refuse_calls(self: Fault, stage: Stage) -> List[str]:
	"""Some calls, by chance, and the error that they get."""
	chosen = self.rng.sample(stage.scene.tools.calls, self.rng.choice((1, 1, 2, 5)))
	words = [word for call in chosen for word in ("--refuse", call)]
	return ["--error", str(self.rng.choice((errno.EPERM, errno.ENOSYS))), *words]


class RefusedEngine(EngineHandicap):
	name = "engine-refused"
	about = "the system refuses some calls to the engine, with EPERM or ENOSYS"
	words = refuse_calls


class LimitedEngine(EngineHandicap):
	name = "engine-limited"
	about = "the engine has low limits of files, memory or file sizes"

	def words(self, stage: Stage) -> List[str]:
		limit = self.rng.choice(("NOFILE=%d", "AS=%d", "FSIZE=%d", "STACK=%d", "MEMLOCK=%d"))
		amounts = {
			"NOFILE=%d": (8, 16, 24, 40, 80),
			"AS=%d": (1 << 24, 1 << 26, 1 << 28, 1 << 30),
			"FSIZE=%d": (0, 4096, 20000, 1 << 16, 1 << 19),
			"STACK=%d": (1 << 16, 1 << 18),
			"MEMLOCK=%d": (0,),
		}
		return ["--limit", limit % self.rng.choice(amounts[limit])]


class Handicapped(Fault):
	"""wafcc and the programs that it starts have a handicap."""

	group = "wafcc"
	systems = ("ninja",)

	def words(self, stage: Stage) -> List[str]:
		raise NotImplementedError

	def prepare(self, stage: Stage) -> None:
		words = self.words(stage)
		stage.scene.wrapper = [stage.scene.tools.handicap, *words, "--"]
		stage.note("wafcc is called with %s" % " ".join(words))
		# does a plain compiler work with this handicap?
		source = stage.scene.tools.root / "try.c"
		source.write_text("#include <stdio.h>\nint a;\n")
		argv = [*stage.scene.wrapper, "gcc", "-c", str(source), "-o", str(source.with_suffix(".o"))]
		environ = dict(stage.scene.clean_environ(), TMPDIR=tempfile.gettempdir())
		if run(argv, env=environ).returncode:
			# a driver that cannot wait for its parts leaves what they write after its end
			self.may_fail = self.may_leave_temporary = True
			stage.note("of which a plain compile fails, too")

	def relieve(self, stage: Stage) -> None:
		if stage.scene.wrapper:
			stage.scene.wrapper = []
			if stage.builder.system == "ninja":
				stage.builder.prepare(stage.scene, stage.project)


class RefusedClient(Handicapped):
	name = "wafcc-refused"
	about = "the system refuses some calls to wafcc and what it starts, with EPERM or ENOSYS"
	words = refuse_calls


class LimitedClient(Handicapped):
	name = "wafcc-limited"
	about = "wafcc and what it starts have low limits of files, memory or file sizes"

	def words(self, stage: Stage) -> List[str]:
		sizes = ("AS=%d" % (1 << 27), "AS=%d" % (1 << 29), "STACK=%d" % (1 << 18))
		return ["--limit", self.rng.choice(("NOFILE=32", "NOFILE=64", "FSIZE=400000", *sizes))]


class FewProcesses(Fault):
	name = "few-processes"
	about = "another user builds, who may have few processes"
	needs_root = True
	group = "user"
	lasts = True
	choices = (16, 18, 20, 24, 32, 64)

	def prepare(self, stage: Stage) -> None:
		stage.scene.handicap += ["--limit", "NPROC=%d" % self.drawn]
		stage.scene.wants_user = OTHER_USER
		stage.note("at most %d processes" % self.drawn)


class FewFiles(Fault):
	name = "few-files"
	about = "the whole build may open few files"
	group = "files"
	lasts = True
	choices = (24, 32, 48)

	def prepare(self, stage: Stage) -> None:
		stage.scene.handicap += ["--limit", "NOFILE=%d" % self.drawn]
		stage.note("at most %d open files" % self.drawn)


class OddUmask(Fault):
	name = "odd-umask"
	about = "the build has an unusual umask, and its files have the rights that this gives"
	group = "umask"
	choices = (0o077, 0o000, 0o027, 0o007, 0o177)

	def prepare(self, stage: Stage) -> None:
		stage.scene.handicap += ["--umask", "%o" % self.drawn]
		stage.note("umask %03o" % self.drawn)

	@property
	def umask(self) -> int:  # type: ignore[override]
		return self.drawn


class Times(Fault):
	"""Files of the project get other times than those at which they were written."""

	group = "times"
	wants_edit = True
	wants_outputs_gone = True
	choices = (3600, 86400 * 365, 86400 * 3650)  # seconds

	def seconds(self, path: str) -> float:
		raise NotImplementedError

	def prepare(self, stage: Stage) -> None:
		stage.note(self.about)

	def set_times(self, stage: Stage) -> None:
		for name in ("src", "inc"):
			for path in sorted((stage.scene.project / name).glob("*")):
				seconds = self.seconds(str(path))
				os.utime(str(path), (seconds, seconds))

	def begin(self, stage: Stage) -> None:
		self.set_times(stage)


class FutureSources(Times):
	name = "times-future"
	about = "sources have times of the future"

	def seconds(self, path: str) -> float:
		return os.stat(path).st_mtime + self.drawn


class PastSources(Times):
	name = "times-past"
	about = "sources have times of long ago, after an edit"

	def seconds(self, path: str) -> float:
		return self.rng.choice((0, 1, 10**9))


class KeptTimes(Times):
	name = "times-kept"
	about = "after an edit sources have the size and the times of before"

	def seconds(self, path: str) -> float:
		return 1.5e9 + len(path)

	def lay(self, stage: Stage) -> None:
		self.set_times(stage)


class BrokenSource(Fault):
	name = "broken-source"
	about = "a source cannot be compiled: the same error, and everything else is made"
	breaks = True


KINDS: List[Type[Fault]] = [
	*(RefusedEngine, LimitedEngine, RefusedClient, LimitedClient, FewProcesses, FewFiles, OddUmask),
	*(FutureSources, PastSources, KeptTimes, BrokenSource),
]
