"""Makes the programs, and the folder that each one has to itself."""

import os
import pathlib
import shutil
import subprocess
from typing import Dict, List, Sequence

from hunt import Mistake, run

from .action import PIECES
from .program import FLAVOURS
from .source import Text

PATIENCE = 120  # seconds for a compiler
LOADER = "/lib64/ld-linux-x86-64.so.2"
BARE = ("-O0", "-w", "-fno-stack-protector", "-fcf-protection=none", "-ffreestanding")
LIBRARIES = ("-ldl", "-lpthread")


def cc(folder: pathlib.Path, *words: str) -> "subprocess.CompletedProcess[str]":
	return run(["gcc", "-I%s" % PIECES, *words], folder, seconds=PATIENCE)


def must(done: "subprocess.CompletedProcess[str]") -> None:
	if done.returncode:
		raise Mistake("%s: %s" % (" ".join(map(str, done.args)), done.stdout.strip()))


class Workshop:
	"""A folder for one program at a time: programs in `bin`, objects in `made`, and the yard in which they run."""

	def __init__(self, root: pathlib.Path) -> None:
		self.root = root.resolve()
		self.yard, self.made, self.bin = self.root / "yard", self.root / "made", self.root / "bin"
		for folder in (self.made, self.bin):
			folder.mkdir(parents=True)
		self.defines = ['-DROOT="%s"' % self.root]
		for name in ("files", "calls", "children", "own", "main"):
			must(
				cc(self.made, "-O0", "-w", "-fPIE", *self.defines, "-c", str(PIECES / (name + ".c")), "-o", name + ".o")
			)
		must(cc(self.made, "-O0", "-w", "-shared", "-fPIC", str(PIECES / "part.c"), "-o", "libpart.so"))
		self.flavours = [flavour.name for flavour in FLAVOURS if self.can_make(flavour.name)]

	def can_make(self, flavour: str) -> bool:
		if flavour == "setuid":
			return os.getuid() == 0
		if flavour not in ("static", "static-pie", "bare32"):
			return True
		text = "void _start(void) {}\n" if flavour == "bare32" else "int main(void) { return 0; }\n"
		(self.made / "try.c").write_text(text)
		words = ["-m32", "-nostdlib", "-static"] if flavour == "bare32" else ["-" + flavour]
		return cc(self.made, *words, "try.c", "-o", "try").returncode == 0

	def make(self, text: Text) -> None:
		objects = [name + ".o" for name in ("main", "files", "calls", "children")]
		self.link("", text.libc, objects)
		self.link("-own", text.own, [*objects, "own.o"])
		self.make_bare(text.bare)
		if "setuid" in self.flavours:
			for kind in ("", "-own"):
				path = self.fresh("setuid" + kind)
				shutil.copy(self.bin / ("dynamic" + kind), path)
				os.chown(path, 65534, 65534)
				path.chmod(0o4755)

	def link(self, kind: str, scenes: str, objects: List[str]) -> None:
		(self.made / "scenes.c").write_text(scenes)
		must(cc(self.made, "-O0", "-w", "-fPIE", *self.defines, "-c", "scenes.c", "-o", "scenes.o"))
		folders = "%s/none:lib:%s/lib" % (self.yard, self.yard)
		how: Dict[str, Sequence[str]] = {
			"dynamic": ["-pie"],
			"linked": ["-pie", "-Wl,--no-as-needed", "-L.", "-lpart", "-Wl,-rpath," + folders],
			"static": ["-static"],
			"static-pie": ["-static-pie"],
		}
		for flavour in self.flavours:
			words = how.get(flavour, [])
			if words:
				program = str(self.fresh(flavour + kind))
				must(cc(self.made, *words, "scenes.o", *objects, "-o", program, *LIBRARIES))

	def make_bare(self, scenes: str) -> None:
		(self.made / "bare.c").write_text(
			'#include "%s"\n%s' % (PIECES / "bare.c", scenes.replace('#include "action.h"', ""))
		)
		for flavour, words in (
			("bare", ["-fno-pie", "-no-pie", "-static"]),
			("bare32", ["-m32", "-fno-pie", "-no-pie", "-static"]),
			("free", ["-fPIE", "-pie", "-Wl,--dynamic-linker=" + LOADER]),
		):
			if flavour in self.flavours:
				must(cc(self.made, *BARE, *self.defines, *words, "-nostdlib", "bare.c", "-o", str(self.fresh(flavour))))

	def fresh(self, flavour: str) -> pathlib.Path:
		"""A path for a new program; the old one is removed, because it may still be running."""
		path = self.bin / flavour
		if path.exists():
			path.unlink()
		return path

	def prepare_yard(self, scripts: Dict[str, str]) -> None:
		"""Restore the folder in which every program starts."""
		while self.yard.exists():  # an orphaned process may still write there
			shutil.rmtree(self.yard, ignore_errors=True)
		for path in self.root.glob("new*"):  # files that programs have made beside it
			shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
		for name in ("dir/sub", "lib"):
			(self.yard / name).mkdir(parents=True)
		for name in ("a.txt", "b.txt", "odd name", "dir/c.txt", "dir/sub/d.txt"):
			(self.yard / name).write_text("text of %s\n" % name)
		for name, target in (
			*(("link", "a.txt"), ("dirlink", "dir"), ("deep", "dirlink/up"), ("dangling", "nowhere"), ("loop", "loop")),
			*(("dir/up", "../b.txt"), ("bin", "../bin"), ("dir/bin", "../../bin"), ("liblink.so", "lib/libpart.so")),
		):
			(self.yard / name).symlink_to(target)
		os.link(self.yard / "b.txt", self.yard / "hard")
		shutil.copy(self.made / "libpart.so", self.yard / "lib")
		for name, script in scripts.items():
			(self.yard / name).write_text(script.replace("@", str(self.root)))
			(self.yard / name).chmod(0o755)

	def environment(self) -> List[str]:
		return ["PATH=%s/bin:/usr/bin:/bin" % self.root, "HOME=%s" % self.root, "TMPDIR=%s" % self.yard]
