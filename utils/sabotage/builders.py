"""
Ways to build a project through our programs, and the plain way beside each.

Knows nothing of faults.
"""

import pathlib
import random
import shutil
import sys
from typing import Dict, List, NamedTuple

from .project import Project
from .scene import Scene

JOBS = "3"


class Builder(NamedTuple):
	"""A build system, and how it finds the cache."""

	system: str  # ninja or waf
	style: str  # of ninja: launcher, links; of Waf: its tools
	store: str  # own or usual
	settings: Dict[str, str] = {}

	def __str__(self) -> str:
		words = [self.system, self.style.replace(" ", "+"), "%s-store" % self.store]
		return " ".join([*words, *("%s=%s" % item for item in sorted(self.settings.items()))])

	@property
	def is_same_objects(self) -> bool:
		"""Whether the objects equal those of a plain build. With unity they do not."""
		return "unity" not in self.style

	def variables(self, scene: Scene) -> Dict[str, str]:
		found = dict(self.settings)
		if self.store == "own":
			found["WAFCC_DIR"] = str(scene.store)
		if self.system == "waf":
			found["TRIAL_TOOLS"] = self.style
		elif self.style == "links":
			found["PATH"] = "%s:%s" % (scene.tools.links, scene.clean_environ()["PATH"])
		return found

	def prepare(self, scene: Scene, project: Project) -> None:
		"""Write the build files of ninja."""
		if self.system == "ninja":
			words = [] if self.style == "links" else scene.with_wrapper([scene.tools.wafcc])
			linker = [*words, "run", "--"] if words and "WAFCC_FACTS" in self.settings else []
			(scene.project / "build.ninja").write_text(project.ninja(" ".join(words), " ".join(linker)))
			(scene.project / "plain.ninja").write_text(project.ninja("", ""))

	def argv(self, scene: Scene, is_plain: bool, command: str = "build") -> List[str]:
		if self.system == "ninja":
			return ["ninja", "-j", JOBS, "-k", "0", "-f", "plain.ninja" if is_plain else "build.ninja"]
		words = ["configure"] if command == "configure" else ["build", "-j", JOBS, "-k"]
		return [sys.executable, str(scene.tools.script), *words]

	def is_done(self, said: str) -> bool:
		"""Whether the output of a build says that it had nothing to do."""
		if self.system == "ninja":
			return "no work to do" in said
		return "finished successfully" in said and "] " not in said

	def store_folder(self, scene: Scene) -> pathlib.Path:
		return scene.store if self.store == "own" else scene.folder / "cache" / "wafcc"


def choose_builder(rng: random.Random, systems: List[str]) -> Builder:
	"""A way to build that is often the usual one."""
	system = rng.choice(systems)
	store = rng.choice(("usual", "usual", "own"))
	settings: Dict[str, str] = {}
	if rng.random() < 0.2:
		settings["WAFCC_FACTS"] = "1"
	if rng.random() < 0.15:
		settings["WAFCC_HARDLINK"] = "1"
	if rng.random() < 0.15:
		settings["WAFCC_COMPRESSION"] = rng.choice(("no", "1"))
	if rng.random() < 0.1:
		settings["WAFD_PARK"] = "no"
	elif rng.random() < 0.7:
		settings["WAFD_PARK_AFTER"] = "1"  # or a small project would never park anything
	if system == "ninja":
		return Builder(system, rng.choice(("launcher", "launcher", "links")), store, settings)
	tools = ["prefork", "wafcc"]
	tools += [tool for tool in ("unity", "batch", "large", "resident") if rng.random() < 0.15]
	return Builder(system, " ".join(tools), store, settings)


class Configured:
	"""The files that `configure` of Waf has left, by tools and project, so that it runs once for each."""

	def __init__(self, folder: pathlib.Path) -> None:
		self.folder = folder

	def restore(self, builder: Builder, project: Project, scene: Scene) -> bool:
		kept = self.place(builder, project)
		if not kept.is_dir():
			return False
		shutil.copytree(str(kept), str(scene.project), symlinks=True, dirs_exist_ok=True)
		return True

	def keep(self, builder: Builder, project: Project, scene: Scene) -> None:
		kept = self.place(builder, project)
		if kept.exists():
			return
		(kept / "out").mkdir(parents=True)
		shutil.copytree(str(scene.project / "out" / "c4che"), str(kept / "out" / "c4che"))
		for path in scene.project.glob(".lock-waf*"):
			shutil.copy2(str(path), str(kept / path.name))

	def place(self, builder: Builder, project: Project) -> pathlib.Path:
		return self.folder / ("%s-%s-%d" % (builder.style.replace(" ", "+"), builder.store, project.seed))
