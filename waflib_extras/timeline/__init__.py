"""
Draws a picture of a build: who ran what in which slot, what was a hit, who waited for whom, and which slots were idle.

::

	waf build --timeline=FILE

writes ``FILE.html``, a page that needs nothing but a browser, and ``FILE.json``, which Perfetto and ``chrome://tracing``
open. A project that loads ``prefork`` has the option; others say ``opt.load('timeline')``, with or without an engine.
``docs/timeline.md`` tells what is on the page and how it is measured.

What is recorded is a few numbers per task; all else is done when the build is over, however it ended. Without the
option nothing of this is loaded.
"""

if "." in __name__:
	from .tool import build, configure, options, setup
else:
	# Waf has loaded this folder alone, with tooldir=: the tool is the one of the package around it
	import importlib
	import os
	import sys

	_folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
	sys.path.append(os.path.dirname(_folder))
	sys.modules[__name__] = importlib.import_module("%s.%s" % (os.path.basename(_folder), __name__))

__all__ = ["build", "configure", "options", "setup"]
