"""The environment of what is measured, without settings of the user's that would change it."""

import os
from typing import Dict

OTHERS = ("CCACHE_", "FB_", "FIREBUILD_", "SCCACHE_", "WAFCC_", "WAFD", "MAKEFLAGS", "MFLAGS")
"""How the names of variables begin that caches and make heed."""


def plain_environment(*others: str) -> Dict[str, str]:
	"""Our own environment without these variables, and without those whose names begin with one of ``others``."""
	return {name: value for name, value in os.environ.items() if not name.startswith((*OTHERS, *others))}
