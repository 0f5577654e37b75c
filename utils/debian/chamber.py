"""A command in a root folder, with mounts and processes that end with it.

The root is mounted read-only. What is written goes to file systems in memory, and to the folder in which tests work,
which is on a file system of the wanted kind. All of it is in namespaces of its own: when the command ends, the kernel
ends what it has left running, and takes the mounts away.
"""

import pathlib
import shlex
import subprocess
from typing import Dict, List, Optional, Sequence

from .disks import Disk

WORK = "/trial"
USER = "builder"  # an ordinary user
SEARCH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class Chamber:
	"""A root folder, folders of this machine that are seen in it, and a file system to work on."""

	def __init__(self, root: pathlib.Path, seen: Sequence[pathlib.Path], disk: Disk, is_writable: bool = False) -> None:
		self.root, self.seen, self.disk, self.is_writable = root, seen, disk, is_writable

	def wrap(self, command: Sequence[str], user: str, environ: Dict[str, str]) -> List[str]:
		"""The command that runs one inside."""
		spaces = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private"]
		home = WORK + "/home"
		variables = {"PATH": SEARCH, "HOME": home, "TMPDIR": WORK + "/tmp", "LANG": "C.UTF-8", **environ}
		told = ["%s=%s" % item for item in sorted(variables.items())]
		inside = ["chroot", "--userspec=%s" % user, str(self.root), "env", "--ignore-environment", "--chdir=%s" % home]
		# su and sudo may leave out the folders in which chroot is
		search = 'PATH="$PATH:/usr/sbin:/sbin"'
		lines = [search, *self.list_mounts(), "exec %s" % shlex.join([*inside, *told, *command])]
		return [*spaces, "sh", "-euc", "\n".join(lines)]

	def list_mounts(self) -> List[str]:
		"""What is mounted, line by line as a shell takes it."""
		root, quote = str(self.root), shlex.quote

		def place(name: str) -> str:
			return quote(root + name)

		lines = ["mount --bind %s %s" % (quote(root), quote(root))]
		for path in self.seen:
			lines.append("mkdir -p %s" % place(str(path)))
			lines.append("mount --bind %s %s" % (quote(str(path)), place(str(path))))
			lines.append("mount -o remount,bind,ro %s" % place(str(path)))
		lines += ["mkdir -p %s" % place(WORK), *self.disk.list_mounts(root + WORK)]
		if not self.is_writable:
			lines.append("mount -o remount,bind,ro %s" % quote(root))
		lines += [
			"mount -t proc proc %s" % place("/proc"),
			"mount --rbind /dev %s" % place("/dev"),
			"mount -t tmpfs -o mode=1777 tmpfs %s" % place("/tmp"),
			"mount -t tmpfs -o mode=1777 tmpfs %s" % place("/dev/shm"),
			"mount -t tmpfs tmpfs %s" % place("/run"),
			"mkdir -p %s %s" % (place(WORK + "/tmp"), place(WORK + "/home")),
			"chmod 1777 %s %s" % (place(WORK + "/tmp"), place(WORK + "/home")),
		]
		return lines

	def run(
		self,
		command: Sequence[str],
		user: str = "root",
		timeout: Optional[float] = None,
		**environ: str,
	) -> "subprocess.CompletedProcess[str]":
		"""What came of a command: output and messages together. The status is 124 if it takes too long."""
		whole = self.wrap(command, user, environ)
		with subprocess.Popen(
			whole,
			stdin=subprocess.DEVNULL,
			stdout=subprocess.PIPE,
			stderr=subprocess.STDOUT,
			encoding="utf-8",
			errors="replace",
		) as process:
			try:
				output = process.communicate(timeout=timeout)[0]
				status = process.returncode
			except subprocess.TimeoutExpired:
				process.kill()
				output, status = process.communicate()[0], 124
			except BaseException:
				# all that runs inside ends with it
				process.kill()
				raise
		return subprocess.CompletedProcess(list(command), status, output)
