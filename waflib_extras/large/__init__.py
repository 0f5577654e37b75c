"""
Keeps Waf quick where there are very many tasks.

::

	def options(opt):
		opt.load('large')

What takes longer in Waf than it need, and most of all what grows faster than the number of tasks, is replaced by
*patches*, each of which has a name and is for one thing. ``docs/large.md`` has them all. What a build does, and in
which order its tasks have to run, stays the same.

The option ``--no-large=NAME,...`` leaves patches out, ``--no-large=all`` all of them. The command ``waf large`` lists
them.

A patch looks whether what it replaces is the code that it knows, and leaves any other alone. To troubleshoot,
``waf --zones=large`` tells which patches are in place, and why others are not.
"""

if "." in __name__:
	from .tool import PATCHES, build, configure, options, setup
else:
	# Waf has loaded this folder alone, with tooldir=: the tool is the one of the package around it
	import importlib
	import os
	import sys

	_folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
	sys.path.append(os.path.dirname(_folder))
	sys.modules[__name__] = importlib.import_module("%s.%s" % (os.path.basename(_folder), __name__))

__all__ = ["PATCHES", "build", "configure", "options", "setup"]
