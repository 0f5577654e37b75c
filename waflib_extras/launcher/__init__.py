"""
The ``waf`` command: the ``waflib`` of PyPI, which has no command of its own, with our tools by their short names.

Apart from the tools it behaves as Waf's own script ``waf-light``. A ``waflib`` in the folder ``$WAFDIR``, or in the
current folder if that is not set, is used instead of the installed one. If the project has a resident process, that
runs the command line.
"""

import os
import sys

INTERRUPTED = 68  # the status with which Waf itself answers Ctrl-C


def find_own_waflib() -> str:
	"""The folder with a ``waflib`` that is used instead of the installed one; empty if there is none."""
	folder = os.environ.get("WAFDIR", "")
	return os.path.abspath(folder) if os.path.exists(os.path.join(folder, "waflib")) else ""


def prefer_own_waflib() -> None:
	"""Use the ``waflib`` of ``$WAFDIR``, or of the current folder, if there is one."""
	folder = find_own_waflib()
	if folder:
		sys.path.insert(0, folder)


def call_resident(cwd: str) -> None:
	"""If the project has a resident process, have it run the command line, and exit with its status."""
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
	# Waf compares the version of the script with that of the library: we have none, and give the library's
	wafdir = os.path.dirname(os.path.dirname(os.path.abspath(Context.__file__)))
	Scripting.waf_entry_point(cwd, Context.WAFVERSION, wafdir)
