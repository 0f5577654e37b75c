"""Plain builds, and the comparison of trials with them."""

import hashlib
import os
import pathlib
import stat
import subprocess
from typing import Dict, List, NamedTuple, Optional, Tuple

from hunt import Mistake, run

from .builders import Builder
from .project import OUT, Project, State, remove_outputs
from .scene import Scene

# files of the build systems themselves
KEPT = (".ninja_log", ".ninja_deps", ".ninja_lock", "config.log", ".unity-plans", ".unity-facts")
PATIENCE = 120  # seconds for a plain build, which nothing disturbs
PREFIXES = (".wafpickle", ".lock-waf", ".large-", "unity-", ".unity")

UNWANTED = "should not be there"

Made = Dict[str, Tuple[str, int]]


class Reference(NamedTuple):
	"""The results of a plain build of one state."""

	status: int
	files: Made  # by path below the build folder: digest and mode
	said: str  # by the program, if there is one
	complaint: str  # the compiler's, where a source is broken


class References:
	"""Plain builds that were made already."""

	def __init__(self) -> None:
		self.known: Dict[Tuple[str, int, State, str], Reference] = {}

	def find(self, scene: Scene, builder: Builder, project: Project, state: State) -> Reference:
		"""The reference of a state, made now if need be: in the scene's own folder, and nothing of it stays."""
		key = (builder.system, project.seed, state, str(scene.folder))
		if key not in self.known:
			self.known[key] = self.make(scene, builder, project, state)
		return self.known[key]

	def make(self, scene: Scene, builder: Builder, project: Project, state: State) -> Reference:
		project.write(scene.project, state)
		builder.prepare(scene, project)
		remove_outputs(scene.project)
		commands = [builder.argv(scene, True)]
		if builder.system == "waf":
			commands.insert(0, builder.argv(scene, True, "configure"))
		said = ""
		for argv in commands:
			done = run(argv, scene.project, scene.clean_environ(), PATIENCE)
			said = done.stdout
		if bool(done.returncode) != state.is_broken:
			raise Mistake("a plain build ended with status %d:\n%s" % (done.returncode, said))
		found = Reference(done.returncode, look(scene.project), run_program(scene), complaint_of(said))
		for path in (scene.project / OUT, *scene.project.glob(".lock-waf*")):
			subprocess.run(["rm", "-rf", str(path)], check=True)
		return found


def complaint_of(said: str) -> str:
	"""The compiler's message without the folder, which each build system gives in its own way."""
	lines = [line for line in said.splitlines() if " error: " in line]
	return lines[0].partition(" error: ")[2] if lines else ""


def look(folder: pathlib.Path) -> Made:
	found: Made = {}
	for base, folders, names in os.walk(str(folder / OUT)):
		if "c4che" in folders:
			folders.remove("c4che")
		for name in names:
			path = os.path.join(base, name)
			if name in KEPT or name.startswith(PREFIXES):
				continue
			mode = os.lstat(path).st_mode
			if not stat.S_ISREG(mode):
				found[os.path.relpath(path, str(folder))] = ("no file", mode)
				continue
			with open(path, "rb") as file:
				digest = hashlib.sha256(file.read()).hexdigest()
			found[os.path.relpath(path, str(folder))] = (digest, stat.S_IMODE(mode))
	return found


def run_program(scene: Scene) -> str:
	program = scene.project / OUT / "prog"
	try:
		done = run([str(program)])
	except (OSError, subprocess.TimeoutExpired):
		return ""
	return "%d %s" % (done.returncode, done.stdout.strip())


def compare(scene: Scene, builder: Builder, wanted: Reference, umask: Optional[int]) -> List[str]:
	"""The differences between the files of a build and those of a plain one."""
	troubles = []
	said = run_program(scene)
	is_executable = umask is None or not umask & 0o100
	if is_executable and said != wanted.said:
		troubles.append("the program says %r instead of %r" % (said, wanted.said))
	if not builder.is_same_objects:
		return troubles
	found = look(scene.project)
	for path in sorted(found.keys() | wanted.files.keys()):
		if path not in found:
			troubles.append("%s is missing" % path)
		elif path not in wanted.files:
			troubles.append("%s %s" % (path, UNWANTED))
		elif found[path][0] != wanted.files[path][0]:
			troubles.append("%s has other content than a plain build gives it" % path)
		else:
			usual = wanted.files[path][1]
			mode = usual if umask is None else (0o777 if usual & 0o111 else 0o666) & ~umask
			# a hard link into the store cannot be written to, and has one mode for all of its names
			if found[path][1] != mode and "WAFCC_HARDLINK" not in builder.settings:
				troubles.append("%s has mode %o instead of %o" % (path, found[path][1], mode))
	return troubles
