"""
Keeps Waf quick in builds with very many tasks.

::

	def options(opt):
		opt.load('large')

Some functions of Waf's are slower than necessary, above all those whose time grows faster than the number of tasks.
*Patches* replace them. Each has a name and concerns one thing; ``docs/large.md`` describes them all. What a build does,
and the constraints on the order of its tasks, stay the same.

The option ``--no-large=NAME,...`` leaves patches out, ``--no-large=all`` all of them. The command ``waf large`` lists
them.

A patch replaces only code that it knows. To troubleshoot, ``waf --zones=large`` tells which patches are in place, and
why others are not.
"""

if "." in __name__:
	from .tool import PATCHES, build, configure, options, setup
else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)

__all__ = ["PATCHES", "build", "configure", "options", "setup"]
