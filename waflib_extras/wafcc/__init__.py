"""
Has the engine answer commands from its cache, and tell Waf what they depend on.

::

	def options(opt):
		opt.load('prefork wafcc')

Each compile, and each small static library, is asked of the cache first, and a hit starts no process. Waf then knows
from the engine which files a compile has read: it neither scans sources for them nor hashes what the engine has hashed.
``docs/waf-cache.md`` has the details.

Other tasks join with ``cache = True`` on a task class, a task or a task generator; ``nocache = True`` on any of them,
or in ``env``, keeps out. What they run must depend on files, links, folders and variables only.

Options: ``--no-wafcc``, ``--wafcc-dir``, ``--wafcc-read-only``, ``--wafcc-recache``, ``--wafcc-base-dir``,
``--wafcc-namespace``. Where they are not given, the settings of the program ``wafcc`` hold: its variables, such as
``WAFCC_DIR``, and its files (``docs/wafcc.md``).

To troubleshoot, ``waf --zones=wafcc`` tells of each task whether it was a hit, and if not, why.
"""

if "." in __name__:
	from .tool import build, configure, options, setup
else:
	import waflib_extras_alone  # Waf has loaded this folder without its package, with tooldir=

	waflib_extras_alone.stand_in(__name__, __path__)

__all__ = ["build", "configure", "options", "setup"]
