"""
Extras for Waf that remove what makes builds slow.

``import waflib_extras`` in a wscript is enough to load the tools by their short names, ``opt.load('prefork')``, with
any Waf: our folder comes first among those of ``waflib.extras``. The ``waf`` command of this package does it by itself.
"""

import os
import sys

from .version import VERSION as __version__


def offer_tools() -> bool:
	"""Put our folder first where Waf looks for extras; tell whether there is a Waf to put it into."""
	try:
		from waflib import extras
	except ImportError:
		return False
	folder = os.path.dirname(os.path.abspath(__file__))
	if folder not in extras.__path__:
		extras.__path__.insert(0, folder)
	return True


# only when Waf runs already: the launcher imports us before it has chosen which waflib is to run
if "waflib" in sys.modules:
	offer_tools()

__all__ = ["__version__", "offer_tools"]
