"""
Finds the package of a tool that Waf has loaded without it, from the folder that ``tooldir=`` names.

Waf puts that folder into ``sys.path``, so the tool finds this file under a name that no project has.
"""

import importlib
import os
import sys
from typing import Sequence


def stand_in(tool: str, path: Sequence[str]) -> None:
	"""Have the tool of the package stand for the module of this name, which was loaded from this folder alone."""
	package = os.path.dirname(os.path.abspath(path[0]))
	sys.path.append(os.path.dirname(package))
	sys.modules[tool] = importlib.import_module("%s.%s" % (os.path.basename(package), tool))
