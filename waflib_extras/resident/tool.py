"""Starts the resident process of a project at the end of a run."""

import atexit
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from waflib import Context, Logs, Options

from ..launcher import caller

PROGRAM = """\
import marshal, sys
spec = marshal.load(sys.stdin.buffer)
sys.path[:] = spec["path"]
from waflib_extras.resident import watched
watched.install()
from waflib_extras.resident import server
server.main(spec)
"""
LONGEST = 96  # bytes of a socket's path; the kernel allows 107, and the socket has a longer name at first

if TYPE_CHECKING:
	from .server import Spec


def options(opt: Options.OptionsContext) -> None:
	if opt.parser.get_option("--no-resident"):
		return
	group = opt.add_option_group("resident options")
	group.add_option("--no-resident", action="store_true", help="run Waf here")
	# the launcher handles these; they are here for --help
	group.add_option("--resident-list", action="store_true", help="show the resident processes of this user")
	group.add_option("--resident-stop", action="store_true", help="end those of this folder and above")
	group.add_option("--resident-stop-all", action="store_true", help="end all of this user")
	if "waflib_extras.resident.server" not in sys.modules:
		atexit.register(leave_one)


def leave_one() -> None:
	"""Start the resident of this project at the end of a run that no resident has made."""
	start = caller.CallResult.start
	if caller.CallResult.refusal:
		Logs.debug("resident: done here: %s", caller.CallResult.refusal)
	wanted = not getattr(Options.options, "no_resident", False) and not os.environ.get(caller.OFF)
	if not wanted or not is_configured() or not sys.executable:
		return
	if start is None:
		if sys.platform.startswith("linux"):
			Logs.warn("resident: does nothing with this copy of Waf: call the waf command of waflib-extras instead")
		return
	folder = caller.find_folder() or make_folder()
	path = find_socket(folder, start) if folder else ""
	if not path or os.path.exists(path):
		return
	from ..launcher import residents

	farewell = residents.read_farewell(path)
	if farewell:
		Logs.debug("resident: the one before has left: %s", farewell)
	if len(os.fsencode(path)) > LONGEST:
		Logs.debug("resident: %s is too long for a socket: set WAFD_RUNTIME_DIR to a shorter folder", folder)
		return
	spec: Spec = {
		"project": Context.run_dir,
		"described": caller.describe(start),
		"folder": folder,
		"path": start.path,
		"waflib": start.waflib,
		"idle": read_idle(),
	}
	run_keeper(spec, start)


def is_configured() -> bool:
	return bool(Context.run_dir) and os.path.exists(os.path.join(Context.run_dir, Options.lockfile))


def find_socket(folder: str, start: "caller.Start") -> str:
	"""The path of the socket of this project's resident. A socket without a listener is removed."""
	path = os.path.join(folder, caller.name_socket(caller.describe(start), Context.run_dir))
	sock = caller.dial(path)
	if sock is not None:
		sock.close()
		return path
	try:
		os.unlink(path)
		Logs.debug("resident: the one before was killed")
	except OSError:
		pass
	return path


def make_folder() -> str:
	"""The folder of sockets, made for us alone."""
	from ..client import engine

	try:
		os.makedirs(engine.runtime_folder(), 0o700)
	except OSError:
		return ""
	return caller.find_folder()


def read_idle() -> float:
	try:
		return float(os.environ["WAF_RESIDENT_IDLE"])
	except (KeyError, ValueError):
		return 1800.0


def run_keeper(spec: "Spec", start: "caller.Start") -> None:
	import marshal

	flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # not in the stubs
	try:
		process = subprocess.Popen(
			[sys.executable, *flags, "-c", PROGRAM, "--resident", spec["project"]],
			cwd="/",
			env=start.environ,
			stdin=subprocess.PIPE,
			stdout=subprocess.DEVNULL,
			stderr=subprocess.DEVNULL,
			start_new_session=True,
		)
		assert process.stdin is not None  # it is a pipe
		with process.stdin:
			process.stdin.write(marshal.dumps(spec))  # type: ignore[arg-type]  # in the stubs a TypedDict is no dict
	except OSError as e:
		Logs.warn("resident: %s: %s (going on without)", sys.executable, e.strerror)
		return
	process.returncode = 0  # it outlives this process, which does not wait for it
