"""
The folder of a trial and what is in it: files, store, runtime folder, temporary files, and the processes started there.

The folder is at the same path for every trial, so that a plain build of the same files is made only once.
"""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from typing import Callable, Dict, List, Optional, Tuple

from hunt import Mistake, run

from .processes import Process, describe, kill, list_processes, look_at, wait_until_gone

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CLONE_NEWNS = 0x20000
LEAVE = 4  # seconds after which idle daemons of ours end
ORPHANS = 12.0  # seconds that processes of ours have to end; more than LEAVE, as not all can be reached
ANSWER = 20.0  # seconds that `wafd stop` and its like may take
OTHER_USER = 50000  # no real user has this number, so limits per user count our processes alone
WAF = "from waflib_extras import launcher\nlauncher.main()\n"
BETWEEN_LINKERS = re.compile(r"/cc\w{6}\.(cdtor\.[co]|res|ld|le)$")

# calls that the system may refuse; seeds depend on their order
CALLS = """
access accept4 bind capget chmod clock_gettime clone clone3 close_range connect copy_file_range dup3 epoll_create1
epoll_ctl epoll_pwait epoll_wait eventfd2 execveat faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat
fcntl fdatasync flock fstat fstatfs fsync ftruncate futimesat get_mempolicy getcwd getdents64 getgroups getpeername
getpriority getrandom getrlimit getsockname getsockopt getxattr inotify_init1 io_uring_setup ioctl ioprio_get
ioprio_set kcmp kill lgetxattr link linkat listen lseek madvise memfd_create membarrier mincore mkdir mkdirat mlock
mremap msync name_to_handle_at openat2 personality pidfd_getfd pidfd_open pidfd_send_signal pipe2 poll ppoll prctl
pread64 prlimit64 process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev2 readlink readlinkat readv
recvfrom recvmsg rename renameat renameat2 rmdir rseq sched_get_priority_max sched_getaffinity sched_getattr
sched_getparam sched_getscheduler sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield select
sendfile sendmsg sendto set_robust_list setitimer setpgid setpriority setrlimit setsid setsockopt shutdown sigaltstack
signalfd4 socket socketpair splice statfs statx symlink symlinkat sysinfo tgkill timer_create timerfd_create
timerfd_settime truncate umask uname unlinkat unshare utimensat vfork wait4 waitid
"""


class Tools:
	"""The programs that trials need, made or found once."""

	def __init__(self, root: pathlib.Path, wafd: str, wafcc: str) -> None:
		self.root = root
		# copies, which no build replaces meanwhile, and which other users can reach
		root.chmod(0o755)
		programs = root / "bin"
		programs.mkdir()
		self.wafd, self.wafcc = (str(programs / name) for name in ("wafd", "wafcc"))
		shutil.copy2(wafd, self.wafd)
		shutil.copy2(wafcc, self.wafcc)
		self.handicap = str(root / "handicap")
		self.calls = self.make_handicap()
		self.links = root / "links"
		self.links.mkdir()
		for name in ("gcc", "g++"):
			(self.links / name).symlink_to(self.wafcc)
		self.script = root / "waf"
		self.script.write_text(WAF)
		self.is_root = os.geteuid() == 0 and own_mounts()
		question = [self.handicap, "--user", str(OTHER_USER), "--", sys.executable, "-c", "import waflib"]
		self.is_python_for_all = self.is_root and not run(question).returncode

	def make_handicap(self) -> List[str]:
		"""Compile what lays limits on programs; the calls that it can refuse, as a processor may lack some."""
		asked = ["gcc", "-dM", "-E", "-include", "sys/syscall.h", "-xc", os.devnull]
		known = run(asked).stdout
		calls = [name for name in CALLS.split() if "#define SYS_%s " % name in known]
		(self.root / "calls.h").write_text("".join('{"%s", SYS_%s},\n' % (name, name) for name in calls))
		argv = ["gcc", "-O1", "-I%s" % self.root, "-o", self.handicap, str(HERE / "handicap.c")]
		done = run(argv)
		if done.returncode:
			raise Mistake("gcc does not compile handicap.c: %s" % done.stdout.strip())
		return calls


def own_mounts() -> bool:
	"""Enter a mount namespace of our own; tell whether that is possible."""
	try:
		if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
			return False
		return not run(["mount", "--make-rprivate", "/"]).returncode
	except (AttributeError, OSError):
		return False


class Scene:
	"""One trial's folder."""

	def __init__(self, tools: Tools, folder: pathlib.Path) -> None:
		self.tools = tools
		self.folder = folder
		self.project = folder / "project"
		self.temporary = folder / "tmp"
		self.runtime = folder / "run"
		self.store = folder / "store"
		self.home = folder / "home"
		self.variables: Dict[str, str] = {}  # of this trial alone
		self.handicap: List[str] = []  # of all commands of the build
		self.wrapper: List[str] = []  # before wafcc, within the build
		self.user = 0
		self.wants_user: Optional[int] = None
		self.mounts: List[pathlib.Path] = []
		self.stopped: List[int] = []

	def make(self) -> None:
		"""An empty folder, with all that is to be in it."""
		for path in (self.folder, self.project, self.temporary, self.runtime, self.home):
			path.mkdir(mode=0o700)

	def clean_environ(self) -> Dict[str, str]:
		return {
			"PATH": os.environ.get("PATH", os.defpath),
			"HOME": str(self.home),
			"LC_ALL": "C",
			"TMPDIR": str(self.temporary),
			"PYTHONPATH": str(ROOT),
			"PYTHONPYCACHEPREFIX": str(self.tools.root / "pycache"),
			# plain builds have it too: it marks their processes as ours
			"WAFD_RUNTIME_DIR": str(self.runtime),
		}

	def environ(self) -> Dict[str, str]:
		return {
			**self.clean_environ(),
			"WAFD": self.tools.wafd,
			"WAFD_IDLE": str(LEAVE),
			"WAF_RESIDENT_IDLE": str(LEAVE),
			"WAFCC_CONFIGPATH": str(self.home / "none"),
			"XDG_CACHE_HOME": str(self.folder / "cache"),
			**self.variables,
		}

	def give_away(self) -> None:
		"""Give the folder to the user that a fault asks for, who runs everything from now on."""
		if self.wants_user is None:
			return
		user = self.wants_user
		if not self.user:
			self.user = user
			self.handicap = ["--user", str(user), *self.handicap]
		for path in (self.folder, *self.folder.rglob("*")):
			os.chown(str(path), user, user, follow_symlinks=False)

	def with_handicap(self, argv: List[str], *more: str) -> List[str]:
		words = [*self.handicap, *more]
		return [self.tools.handicap, *words, "--", *argv] if words else argv

	def with_wrapper(self, argv: List[str]) -> List[str]:
		"""How a build calls wafcc."""
		return [*self.wrapper, *argv]

	def start(self, argv: List[str], environ: Dict[str, str], log: pathlib.Path) -> "subprocess.Popen[bytes]":
		"""Start a build in a session of its own. Its output goes into a file, so that we wait for no pipe."""
		with open(str(log), "wb") as file:
			return subprocess.Popen(
				argv,
				cwd=str(self.project),
				env=environ,
				stdin=subprocess.DEVNULL,
				stdout=file,
				stderr=subprocess.STDOUT,
				start_new_session=True,
			)

	def ask(self, *argv: str, seconds: float = ANSWER, **variables: str) -> Tuple[Optional[int], str]:
		"""A command of ours beside the build: its status, or none if it did not end in time."""
		pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
		environ = {**self.environ(), **variables}
		words = self.with_handicap(list(argv))
		try:
			done = subprocess.run(words, cwd=str(self.project), env=environ, timeout=seconds, check=False, **pipes)
		except subprocess.TimeoutExpired:
			return None, ""
		return done.returncode, done.stdout.decode(errors="replace")

	# ---- processes

	def processes(self) -> List[Process]:
		return look_at(list_processes(self.runtime, True))

	def engines(self) -> List[Process]:
		"""Guardians first: each is the parent of its engine."""
		found = [one for one in self.processes() if one.program == "wafd" and not is_asking(one)]
		pids = {one.pid for one in found}
		return sorted(found, key=lambda one: one.parent in pids)

	def runtimes(self) -> List[pathlib.Path]:
		"""The folder, and those of the engines of other stores in it."""
		if not self.runtime.is_dir():
			return []
		return [self.runtime, *(path for path in self.runtime.glob("[0-9a-f]" * 16) if path.is_dir())]

	def stop_engines(self) -> List[str]:
		"""End the engines as users do; processes that are left are a trouble."""
		if self.processes():
			if "resident" in self.variables.get("TRIAL_TOOLS", ""):
				self.ask(sys.executable, str(self.tools.script), "--resident-stop-all")
			for runtime in self.runtimes():
				self.ask(self.tools.wafd, "stop", "--now", WAFD_RUNTIME_DIR=str(runtime))
		left = wait_until_gone(self.runtime, ORPHANS, True)
		if not left:
			return []
		told = describe(left)
		kill(left)
		if not told:  # the last of them ended while we looked
			return []
		return ["processes were left:", *told]

	# ---- disks

	def mount(self, path: pathlib.Path, size: int) -> None:
		"""Put a small disk in the place of a folder; `size` in KiB."""
		path.mkdir(exist_ok=True, parents=True)
		owner = "uid=%d,gid=%d,mode=700" % (self.user, self.user)
		options = "size=%dk,%s" % (size, owner)
		subprocess.run(["mount", "-t", "tmpfs", "-o", options, "faults", str(path)], check=True)
		self.mounts.append(path)

	def remount(self, path: pathlib.Path, options: str) -> None:
		run(["mount", "-o", "remount,%s" % options, str(path)])

	def unmount(self) -> None:
		for path in reversed(self.mounts):
			run(["umount", "-l", str(path)])
		self.mounts = []

	# ---- the end

	def strays(self, may_leave_links: bool) -> List[str]:
		known = {"project", "tmp", "run", "store", "home", "cache", "aside"}
		found = [str(path) for path in self.folder.iterdir() if path.name not in known]
		found += [str(path) for folder in (self.temporary, self.home) for path in folder.rglob("*")]
		if may_leave_links:
			found = [path for path in found if not BETWEEN_LINKERS.search(path)]
		return ["files were left: %s" % " ".join(sorted(found))] if found else []

	def remove(self) -> None:
		kill(list_processes(self.runtime, True))
		self.unmount()
		shutil.rmtree(str(self.folder), ignore_errors=True)


def is_asking(one: Process) -> bool:
	"""A `wafd` that is a command: `wafd stop` and its like."""
	words = one.command.split()
	return len(words) > 1 and words[1] in ("stop", "status")


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
	"""Wait until something is true; whether it is."""
	deadline = time.monotonic() + seconds
	while not condition():
		if time.monotonic() > deadline:
			return False
		time.sleep(0.005)
	return True
