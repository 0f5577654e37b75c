#!/usr/bin/env python3
"""
Run Waf with tools loaded before a project's own options, without a change to the project.

	WAF_WITH=prefork python3 utils/waf_with.py configure build

$WAF_WITH names the tools as `opt.load` takes them; empty or unset, Waf runs as it is, and none of our code is in reach.
$WAFDIR names a folder that holds another `waflib`; a project that carries its own is built with `WAFDIR=.` from its
folder. Both reach the Wafs that a build starts in its turn, if it does so through `sys.argv[0]`.

The tools come first, as if the first line of the project's `options` loaded them: a class that says `cmd = "options"`
is what Waf then makes its options with. That is Waf's own way to extend a command, the same in 2.0 and 2.1.

`waf_with.py --help` alone prints this; `waf_with.py build --help` prints the help of the project.
"""

import os
import sys


def find_waflib() -> None:
	"""Make Python find the `waflib` below $WAFDIR before an installed one."""
	folder = os.environ.get("WAFDIR", "")
	if folder:
		sys.path.insert(0, os.path.abspath(folder))


def load_first(tools: str) -> None:
	"""Make Waf load `tools` in its options before those of the project."""
	from waflib import Options

	try:
		import waflib_extras
	except ImportError:  # from a checkout that is not installed
		sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
		import waflib_extras
	waflib_extras.offer_tools()

	class ToolsFirst(Options.OptionsContext):
		cmd = "options"

		def execute(self) -> None:
			self.load(tools)
			super().execute()


def main() -> None:
	"""Run Waf in the current folder with the arguments of this process."""
	if sys.argv[1:] in (["--help"], ["-h"]):
		print((__doc__ or "").strip())
		return
	cwd = os.getcwd()
	find_waflib()
	try:
		from waflib import Context, Scripting
	except ImportError:
		sys.exit("waf_with: no waflib in %s: set WAFDIR, or pip install waflib" % os.environ.get("WAFDIR", "reach"))
	tools = os.environ.get("WAF_WITH", "")
	if tools:
		load_first(tools)
	wafdir = os.path.dirname(os.path.dirname(os.path.abspath(Context.__file__)))
	Scripting.waf_entry_point(cwd, Context.WAFVERSION, wafdir)


if __name__ == "__main__":
	main()
