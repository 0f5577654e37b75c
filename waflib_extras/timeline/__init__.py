"""
Draws a picture of a build: what ran in which slot, what was a hit, which task waited for which, and idle slots.

::

	waf build --timeline=FILE

writes ``FILE.html``, a page that needs nothing but a browser, and ``FILE.json``, which Perfetto and ``chrome://tracing``
open. A project that loads ``prefork`` has the option; others say ``opt.load('timeline')``, with or without an engine.
``docs/timeline.md`` tells what is on the page and how it is measured.

A few numbers are recorded per task. Everything else is done when the build is over, however it ended. Without the
option no file of this folder but ``tool.py`` is loaded.
"""

if "." in __name__:
	from .tool import build, configure, options, setup
else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)

__all__ = ["build", "configure", "options", "setup"]
