"""
Removes files that an earlier build has made and that this build does not make any more.

::

	def options(opt):
		opt.load('stale')

At the end of a build that made all that the project declares, files are removed that earlier builds have made and that
no task declares now. ``waf install`` also removes what it installed earlier and does not install any more.

The option ``--stale=dry`` names these files and removes none. With ``--stale=off`` the tool does nothing. The command
``waf stale`` tells how many files are known, and names them with ``-v``. ``docs/stale.md`` tells when a file is kept.
"""

if "." in __name__:
	from .tool import build, configure, options, setup
else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)

__all__ = ["build", "configure", "options", "setup"]
