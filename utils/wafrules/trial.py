"""
Edits one project after the other, builds it with our tools, and compares it with a build from nothing by stock Waf.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
from typing import Callable, Dict, List, Optional, Tuple

from hunt import run

from . import edits, plan

PATIENCE = 300
"""Seconds for one build."""
TOOLS = ("unity", "large", "resident", "batch")
LAUNCH = """\
#!%s
import sys
sys.path.insert(0, %r)
from waflib_extras import launcher
launcher.main()
"""
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CALM = (0.0, 0.3, 0.3, 0.3)
"""The seconds before a build, and before more of them, which have nothing to do."""
MOMENTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.9)
"""The seconds before an edit that follows a build, and before the build after it."""
KEPT = ("HOME", "PATH", "TMPDIR")
"""Variables of ours that a build has, too."""


class Failed(Exception):
	"""A build that should have succeeded, with what it said."""


class Yard:
	"""Two folders: a project, and where it is built anew each time; and an engine of our own."""

	def __init__(self, root: pathlib.Path, wafd: str, rng: random.Random, tools: Optional[str] = None) -> None:
		self.root = root
		self.wafd = wafd
		self.rng = rng
		self.tools = tools
		self.waf = install(root / "bin", pathlib.Path(wafd).resolve().parent / "waf")
		self.runtime = root / "run"
		self.runtime.mkdir(mode=0o700)
		self.environ = {name: os.environ[name] for name in KEPT if name in os.environ}
		self.environ.update(LC_ALL="C", WAFD=wafd, WAFD_RUNTIME_DIR=str(self.runtime), WAFCC_DIR=str(root / "store"))
		self.environ.update(XDG_RUNTIME_DIR=str(self.runtime), WAF_PREFORK_SUMMARY="no")
		self.number = 0
		self.was_disabled = False
		"""Whether a build of this project was made without the cache."""
		self.answered = 0
		"""Builds that a resident process has answered."""
		self.continued = 0
		"""Builds that resident processes had begun ahead."""
		self.last: Optional[Tuple[str, int]] = None
		"""The tools and the number of jobs of the build before, if it may have left a resident process."""
		self.history: List[str] = []

	def begin(self) -> None:
		"""A new project, built once."""
		self.number += 1
		self.was_disabled = False
		self.end_residents()
		for name in ("ours", "plain"):
			shutil.rmtree(self.root / name, ignore_errors=True)
		folder = self.root / "ours" / "project"
		folder.mkdir(parents=True)
		self.project = edits.Project(folder, self.rng)
		self.project.prepare()
		self.history = ["project %d" % self.number]
		plain = self.root / "plain" / "project"
		shutil.copytree(folder, plain, symlinks=True)
		self.run(plain, "", "configure")
		shutil.copytree(plain / "build", self.root / "plain" / "configured")
		self.run(folder, "wafcc", "configure")

	def run(self, folder: pathlib.Path, tools: str, *args: str, **more: str) -> None:
		environ = {**self.environ, **self.project.environ, **more, "PWD": str(folder)}
		if tools:
			environ["FUZZ_TOOLS"] = tools
		else:
			environ["WAF_NO_PREFORK"] = "1"
		done = run([*self.waf, *args], folder, environ, PATIENCE)
		if done.returncode:
			raise Failed("%s with %s\n%s" % (" ".join(args), tools or "no tools", done.stdout))

	def step(self) -> Optional[str]:
		"""One edit and a build; the difference, if there is one."""
		self.edit()
		tools, jobs = self.last if self.last and self.rng.random() < 0.7 else (self.choose_tools(), 0)
		jobs, more = jobs or self.rng.choice((1, 2)), {}
		chance = self.rng.random()
		if chance < 0.05:
			more["WAFCC_DISABLE"] = "1"
			self.was_disabled = True
		elif chance < 0.1:
			self.stop()
			self.history.append("the engine was stopped")
		self.history.append("build with %s %s %s" % (tools, more or "", self.project.environ))
		# what is built again has nothing to do, so it is answered by a resident process
		self.last = (tools, jobs) if "resident" in tools.split() and not more else None
		try:
			command = ["build", "-j%d" % jobs]
			for rest in CALM[: len(CALM) if self.last and self.rng.random() < 0.6 else 1]:
				time.sleep(rest)
				self.run(self.project.folder, tools, *command, **more)
			if self.last and self.rng.random() < 0.5:
				# the run that is begun ahead may see this edit, or may be under way when it is made
				time.sleep(self.rng.choice(MOMENTS))
				self.edit()
				time.sleep(self.rng.choice(MOMENTS))
				self.history.append("build once more")
				self.run(self.project.folder, tools, *command)
			found = look(self.project, self.project.folder)
			wanted = self.build_anew()
		except (Failed, subprocess.TimeoutExpired) as e:
			return str(e)
		wrong = [name for name in wanted if found.get(name) != wanted[name]]
		return "; ".join("%s: %r instead of %r" % (name, found.get(name), wanted[name]) for name in wrong) or None

	def edit(self) -> None:
		# what was compiled without the cache knows no more than with stock Waf, which misses headers that come first
		known = [edit for edit in edits.EDITS if edit is not edits.shadow_header or not self.was_disabled]
		edit = self.rng.choice(known)
		self.history.append("%s: %s" % (edit.__name__, edit(self.project) or "-"))

	def choose_tools(self) -> str:
		if self.tools:
			return self.tools
		return " ".join(["prefork", "wafcc", *(tool for tool in TOOLS if self.rng.random() < 0.4)])

	def build_anew(self) -> Dict[str, bytes]:
		"""Build with stock Waf from nothing but its configuration; the results."""
		plain = self.root / "plain" / "project"
		lock = next(plain.glob(".lock-waf*"))
		kept = lock.read_bytes(), lock.name
		shutil.rmtree(plain)
		subprocess.run(["cp", "-a", str(self.project.folder), str(plain)], check=True, timeout=PATIENCE)
		shutil.rmtree(plain / "build")
		for path in plain.glob(".lock-waf*"):
			path.unlink()
		(plain / kept[1]).write_bytes(kept[0])
		shutil.copytree(self.root / "plain" / "configured", plain / "build", symlinks=True)
		self.run(plain, "", "build")
		return look(self.project, plain)

	def end(self) -> None:
		"""Leave no process behind."""
		self.end_residents()
		self.stop()

	def end_residents(self) -> None:
		"""End the resident processes, and count what they have answered."""
		told = run([*self.waf, "--resident-list"], env=self.environ, seconds=PATIENCE)
		self.answered += sum(map(int, re.findall(r"(\d+) answered", told.stdout)))
		self.continued += sum(map(int, re.findall(r"(\d+) thawed", told.stdout)))
		self.last = None
		run([*self.waf, "--resident-stop-all"], env=self.environ, seconds=PATIENCE)

	def stop(self) -> None:
		run([self.wafd, "stop", "--now"], env=self.environ, seconds=PATIENCE)


def install(folder: pathlib.Path, native: pathlib.Path) -> List[str]:
	"""Make a ``waf`` as an installation has it: the engine's, if there is one, and Python's beside it."""
	folder.mkdir()
	script = folder / "waf-python"
	script.write_text(LAUNCH % (sys.executable, str(ROOT)))
	script.chmod(0o755)
	if not os.access(native, os.X_OK):
		return [str(script)]
	(folder / "waf").symlink_to(native)
	return [str(folder / "waf")]


def look(project: edits.Project, folder: pathlib.Path) -> Dict[str, bytes]:
	"""The outputs of rules, and the output of the program."""
	found = {rule.target: (folder / "build" / rule.target).read_bytes() for rule in project.rules}
	argv = [str(folder / "build" / "app")]
	found["app"] = subprocess.run(argv, stdout=subprocess.PIPE, timeout=PATIENCE, check=True).stdout
	return found


def fuzz(yard: Yard, steps: int, each: int, say: Callable[[int, int], None]) -> Optional[str]:
	"""The first difference with the steps that led to it, or None. Each project gets ``each`` edits."""
	for step in range(steps):
		try:
			if step % each == 0:
				yard.begin()
			wrong = yard.step()
		except Failed as e:
			wrong = str(e)
		if wrong:
			return "\n".join(["edit %d: %s" % (step, wrong), *yard.history])
		say(step + 1, steps)
	return None


__all__ = ["Failed", "Yard", "fuzz", "plan"]
