"""
Has the engine answer commands from its cache, and tell Waf what they depend on.

::

	def options(opt):
		opt.load('prefork wafcc')

Each compile, and each small static library, is looked up in the cache first, and a hit starts no process. The engine
tells Waf which files a compile has read, so Waf neither scans the sources nor hashes these files again.
``docs/waf-cache.md`` has the details.

Other tasks are cached with ``cache = True`` on a task class, a task or a task generator. ``nocache = True`` on any of
them, or in ``env``, excludes tasks. The commands of cached tasks must depend on files, links, folders and variables
only.

Options: ``--no-wafcc``, ``--wafcc-dir``, ``--wafcc-read-only``, ``--wafcc-recache``, ``--wafcc-base-dir``,
``--wafcc-share-checkouts``, ``--wafcc-namespace``, ``--remote``. Without them, the settings of the program ``wafcc``
are used: its variables, such as ``WAFCC_DIR``, and its files (``docs/wafcc.md``).

To troubleshoot, ``waf --zones=wafcc`` tells of each task whether it was a hit, and if not, why.
"""

if "." in __name__:
	from .tool import build, configure, options, setup
else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)

__all__ = ["build", "configure", "options", "setup"]
