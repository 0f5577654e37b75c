"""The file systems on which tests and benchmarks work: in memory, over another one, or in a file of this machine."""

import pathlib
import shlex
import shutil
import subprocess
from typing import Dict, List

SIZE = "1500M"  # of a file system; only what is written takes room
MAKERS: Dict[str, List[str]] = {
	"ext4": ["mkfs.ext4", "-q", "-F"],
	"xfs": ["mkfs.xfs", "-q", "-f"],
	"btrfs": ["mkfs.btrfs", "-q", "-f"],
}
PACKAGES = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}
ALONE = ["unshare", "--mount", "--propagation", "private"]  # in front of a command whose mounts end with it
KINDS = ("ext4", "tmpfs", "overlayfs", "xfs", "btrfs")


class Disk:
	"""A file system of a kind and a size; `folder` is where a file for it may be."""

	def __init__(self, kind: str, folder: pathlib.Path, size: str = SIZE) -> None:
		self.kind, self.image, self.size = kind, folder / ("%s.image" % kind), size

	def find_obstacle(self) -> str:
		"""Why it cannot be had here; nothing if it can."""
		if self.kind in MAKERS and not shutil.which(MAKERS[self.kind][0]):
			return "apt-get install %s" % PACKAGES[self.kind]
		script = "\n".join(["mkdir -p %s" % shlex.quote(self.place()), *self.list_mounts(self.place())])
		try:
			self.make()
			tried = subprocess.run(
				[*ALONE, "sh", "-euc", script],
				stdin=subprocess.DEVNULL,
				capture_output=True,
				encoding="utf-8",
				check=False,
			)
		except subprocess.CalledProcessError as e:
			return "it cannot be made: %s" % e.output.strip()
		finally:
			self.remove()
		return tried.stderr.strip().replace("\n", " ") if tried.returncode else ""

	def place(self) -> str:
		return "%s.mounted" % self.image

	def make(self) -> None:
		"""Make it empty."""
		if self.kind in MAKERS:
			self.image.parent.mkdir(parents=True, exist_ok=True)
			self.remove()
			subprocess.run(["truncate", "--size", self.size, str(self.image)], check=True)
			subprocess.run(
				[*MAKERS[self.kind], str(self.image)],
				check=True,
				stdout=subprocess.PIPE,
				stderr=subprocess.STDOUT,
				encoding="utf-8",
			)

	def remove(self) -> None:
		if self.image.exists():
			self.image.unlink()
		place = pathlib.Path(self.place())
		if place.is_dir():
			place.rmdir()

	def list_mounts(self, place: str) -> List[str]:
		"""The lines of a shell that mount it. A loop device goes away together with its mount."""
		quoted = shlex.quote(place)
		if self.kind in MAKERS:
			return ["mount -o loop %s %s" % (shlex.quote(str(self.image)), quoted)]
		lines = ["mount -t tmpfs -o size=%s tmpfs %s" % (self.size, quoted)]
		if self.kind == "overlayfs":
			parts = " ".join(shlex.quote("%s/%s" % (place, name)) for name in ("lower", "upper", "work"))
			layers = "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work".format(place)
			lines += ["mkdir %s" % parts, "mount -t overlay -o %s overlay %s" % (shlex.quote(layers), quoted)]
		return lines
