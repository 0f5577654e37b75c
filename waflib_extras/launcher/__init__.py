"""
The ``waf`` command: Waf as PyPI has it (``waflib``, which brings no command of its own) with our tools in reach.

It starts as Waf's own script ``waf-light`` does, and changes nothing else: ``$WAFDIR`` names a folder with another
``waflib``, and a ``waflib`` in the current folder, which a project carries along, goes before the installed one.
A project that loads ``resident`` has its command lines run by its resident process, if that is there.
"""

import os
import sys

INTERRUPTED = 68  # the status with which Waf itself answers Ctrl-C


def find_own_waflib() -> str:
	"""The folder whose ``waflib`` goes before the installed one, if there is one: that of ``$WAFDIR``, or this one."""
	folder = os.environ.get("WAFDIR", "")
	return os.path.abspath(folder) if os.path.exists(os.path.join(folder, "waflib")) else ""


def prefer_own_waflib() -> None:
	"""Let the ``waflib`` of ``$WAFDIR``, or of the current folder, be found before the installed one."""
	folder = find_own_waflib()
	if folder:
		sys.path.insert(0, folder)


def call_resident(cwd: str) -> None:
	"""Leave it to the resident process of the project, and end with it, if there is one."""
	if not sys.platform.startswith("linux"):
		return
	# not a relative import: Waf's "distcheck" runs this file once more by its path when started with "python -m"
	from waflib_extras.launcher import caller

	if any(word.startswith("--resident-") for word in sys.argv[1:]):
		from waflib_extras.launcher import residents

		sys.exit(residents.main(sys.argv[1:]))
	status = caller.call(cwd, find_own_waflib())
	if status is not None:
		sys.exit(status)


def main() -> None:
	"""Run Waf in the current folder with the arguments of this process."""
	try:
		cwd = os.getcwd()
		is_shell_asking = sys.argv[1:] == ["--completion-words"]
		if not is_shell_asking:
			call_resident(cwd)
		prefer_own_waflib()
		if is_shell_asking:
			from waflib_extras.console import completion

			sys.exit(completion.main(cwd))
		from waflib import Context, Scripting

		import waflib_extras

		waflib_extras.offer_tools()
	except KeyboardInterrupt:
		sys.exit(INTERRUPTED)
	except FileNotFoundError:
		sys.exit("waf: the current folder does not exist any more: change to one that does")
	except ImportError as e:
		if (e.name or "").split(".")[0] != "waflib":
			raise
		sys.exit("waf: there is no waflib for %s: run %s -m pip install waflib" % (sys.executable, sys.executable))
	# the version is the library's own, so that the check for a script and a library that differ holds for any of them
	wafdir = os.path.dirname(os.path.dirname(os.path.abspath(Context.__file__)))
	Scripting.waf_entry_point(cwd, Context.WAFVERSION, wafdir)
