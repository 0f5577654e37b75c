"""
Shows the gain of a part of ours, for ``bench.py ablation``: the same builds with the part and without it.

Each part has a patch in the folder ``ablation``, which takes it out. The patch is applied to a copy of the tree, never
to the tree, and the copy is built as ours is: so both are real programs, and nothing in them knows of the benchmark.
The program with all parts comes from such a copy too.
"""

import hashlib
import os
import shutil
import subprocess
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .interpreter import ROOT
from .mistake import Mistake
from .service import TARGET

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ablation")
KEPT = os.path.join(ROOT, "build", "bench", "ablation")
"""Where the copy and what cargo has made of it stay, so that the next time is quick."""
WHOLE, WITHOUT = "whole", "without-"
SKIPPED = ("target", "benches", "tests", "__pycache__")
PROGRAMS = ("wafd", "wafcc")
NOT_CRATES = shutil.ignore_patterns("examples", "incremental", "*wafengine*")

Pair = Tuple[str, str, str]
"""A scenario, and the contenders with the part and without it."""


class Part(NamedTuple):
	"""A part that can be taken out."""

	title: str
	measured: Sequence[Tuple[str, str]]
	"""The scenarios and contenders in which it is to gain something."""
	is_engine: bool = True
	"""Whether it is a part of the engine's programs, else of our tools in Python."""


PARTS = {
	"front": Part("front.c, card.rs", (("hit", "single+wafcc"), ("warm", "ninja+wafcc"))),
	"lead": Part("hand-over in lead.rs", (("hit", "single+wafcc"), ("hit", "socket"), ("warm", "ninja+wafcc"))),
	"paths": Part(
		"paths in file_view.rs",
		(("hit", "single+wafcc"), ("hit", "socket"), ("hit", "pipelined"), ("warm", "ninja+wafcc")),
	),
	"prestart": Part("prestart.py, sketch.py", (("onefile", "resident"),), is_engine=False),
}
"""By the names of their patches."""


def pairs_of(part: str) -> List[Pair]:
	found = PARTS[part]
	if not found.is_engine:
		return [(scenario, name, "%s-%s%s" % (name, WITHOUT, part)) for scenario, name in found.measured]
	return [(scenario, "%s@%s" % (name, WHOLE), "%s@%s%s" % (name, WITHOUT, part)) for scenario, name in found.measured]


def settings_of(parts: Sequence[str]) -> List[Dict[str, Any]]:
	"""The pairs of several parts, as the record keeps them."""
	return [
		{"part": part, "title": PARTS[part].title, "scenario": scenario, "with": whole, "without": without}
		for part in parts
		for scenario, whole, without in pairs_of(part)
	]


def contenders_of(parts: Sequence[str]) -> List[str]:
	pairs = [pair for part in parts for pair in pairs_of(part)]
	return list(dict.fromkeys([whole for _, whole, _ in pairs] + [without for _, _, without in pairs]))


def scenarios_of(parts: Sequence[str]) -> List[str]:
	return list(dict.fromkeys(scenario for part in parts for scenario, _, _ in pairs_of(part)))


# ---- trees without a part


def copy_tree(folder: str, name: str) -> None:
	"""Copy a part of the tree without what is built in it."""
	shutil.copytree(
		os.path.join(ROOT, name), os.path.join(folder, name), ignore=shutil.ignore_patterns(*SKIPPED), symlinks=True
	)


def apply_patch(folder: str, part: str) -> None:
	"""Take a part out of a copy of the tree."""
	path = os.path.join(HERE, part + ".patch")
	# else git would take the folder for a part of the repository around it, and leave out what that ignores
	environ = dict(os.environ, GIT_CEILING_DIRECTORIES=os.path.dirname(os.path.realpath(folder)))
	try:
		done = subprocess.run(
			["git", "apply", path], cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True
		)
	except OSError as e:
		raise Mistake("git apply: %s: install git" % e.strerror) from None
	if done.returncode:
		said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
		raise Mistake(
			"utils/benchmark/ablation/%s.patch does not apply any more (%s): take the part out in a copy of the tree "
			"and replace the patch by the output of git diff" % (part, said[0])
		)


def make_tools(folder: str, part: str) -> None:
	"""Our tools in Python without a part, in a new folder."""
	copy_tree(folder, "waflib_extras")
	apply_patch(folder, part)


def build_engines(parts: Sequence[str], folder: str, say: Callable[[str], None]) -> Dict[str, str]:
	"""The engine with all parts, and without each of these: folders of its programs by the names of contenders'."""
	wanted = [part for part in parts if PARTS[part].is_engine]
	names = {WITHOUT + part: part for part in wanted}
	# all patches are tried before anything is built, which takes long
	trees = {name: engine_sources(os.path.join(folder, name), part) for name, part in names.items()}
	if wanted:
		trees[WHOLE] = engine_sources(os.path.join(folder, WHOLE))
	return {name: build_engine(name, sources, say) for name, sources in trees.items()}


def engine_sources(folder: str, part: Optional[str] = None) -> Dict[str, bytes]:
	"""The engine's files, with or without a part, by way of a new folder."""
	copy_tree(folder, "engine")
	if part:
		apply_patch(folder, part)
	return read_files(os.path.join(folder, "engine"))


def build_engine(name: str, sources: Dict[str, bytes], say: Callable[[str], None]) -> str:
	"""Build an engine, if its sources are not those of last time; the folder of its programs."""
	programs = os.path.join(KEPT, name)
	stamp = os.path.join(programs, "sources")
	digest = digest_of(sources)
	if read_text(stamp) == digest:
		return programs
	say("building the engine: %s" % name)
	refresh(sources, os.path.join(KEPT, "engine"))
	target = os.path.join(KEPT, "target")
	if not os.path.isdir(target):
		copy_crates(target)
	argv = ["cargo", "build", "--release", "--locked", "--target-dir", target]
	log = os.path.join(KEPT, name + ".log")
	os.makedirs(programs, exist_ok=True)
	try:
		with open(log, "wb") as f:
			status = subprocess.run(
				[*argv, *("--bin=" + program for program in PROGRAMS)],
				cwd=os.path.join(KEPT, "engine"),
				stdin=subprocess.DEVNULL,
				stdout=f,
				stderr=subprocess.STDOUT,
			).returncode
	except OSError as e:
		raise Mistake("cargo: %s: install it as CONTRIBUTING.md says" % e.strerror) from None
	if status:
		raise Mistake("the engine %s could not be built: %s tells why" % (name, log))
	for program in PROGRAMS:
		shutil.copy2(os.path.join(target, "release", program), os.path.join(programs, program))
	with open(stamp, "w", encoding="ascii") as f:
		f.write(digest)
	return programs


def copy_crates(target: str) -> None:
	"""Begin with what the tree has compiled of others' crates, if it has: cargo sees what of it is of use."""
	if os.path.isdir(os.path.join(TARGET, "release")):
		shutil.copytree(
			os.path.join(TARGET, "release"), os.path.join(target, "release"), ignore=NOT_CRATES, symlinks=True
		)


def read_files(folder: str) -> Dict[str, bytes]:
	"""All files below a folder, by their paths in it."""
	found = {}
	for path, _, names in os.walk(folder):
		for name in names:
			with open(os.path.join(path, name), "rb") as f:
				found[os.path.relpath(f.name, folder)] = f.read()
	return found


def digest_of(files: Dict[str, bytes]) -> str:
	digest = hashlib.sha256()
	for name, content in sorted(files.items()):
		digest.update(b"%s\0%d\0" % (os.fsencode(name), len(content)) + content)
	return digest.hexdigest()


def refresh(files: Dict[str, bytes], folder: str) -> None:
	"""
	Make the files of a folder these, and no others.

	What is the same is not written again: all engines are built in one folder, one after the other, and cargo compiles
	what is newer than before. With a folder for each it would compile all the crates for each.
	"""
	os.makedirs(folder, exist_ok=True)
	known = read_files(folder)
	for name in set(known) - set(files):
		os.unlink(os.path.join(folder, name))
	for name, content in files.items():
		path = os.path.join(folder, name)
		if known.get(name) != content:
			os.makedirs(os.path.dirname(path), exist_ok=True)
			with open(path, "wb") as f:
				f.write(content)
		is_program = os.access(os.path.join(ROOT, "engine", name), os.X_OK)
		os.chmod(path, 0o755 if is_program else 0o644)


def read_text(path: str) -> str:
	"""The text of a small file, empty where there is none."""
	try:
		with open(path, encoding="ascii") as f:
			return f.read()
	except OSError:
		return ""
