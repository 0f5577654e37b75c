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
	import waflib_extras_alone  # Waf has loaded this folder without its package, with tooldir=

	waflib_extras_alone.stand_in(__name__, __path__)

__all__ = ["PATCHES", "build", "configure", "options", "setup"]
