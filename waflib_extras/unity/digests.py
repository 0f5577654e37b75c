"""
Tells whether the digests that Waf makes of files are those that ``unity`` has stored.

A project may replace Waf's functions, for example to use times instead of contents. Then Waf makes all digests itself.
"""

import os

from waflib import Utils

from ..hooks import lifecycle

PLACES = ("Node.Node.h_file", "Node.Node.get_bld_sig", "Utils.h_file")
SAME = ("large", "resident")
"""Our tools whose functions give the same digests as Waf's."""


def are_known() -> bool:
	"""Tell whether Waf's digest of a file is the MD5 of its content."""
	if os.name != "posix":
		return False  # this system has no times of changes
	ours = {one.path for one in lifecycle.find().replaced if one.tool in SAME and one.is_in_place()}
	return getattr(Utils.md5(), "name", "") == "md5" and all(path in ours or is_stock(path) for path in PLACES)


def is_stock(path: str) -> bool:
	"""Tell whether Waf's own function is in a place."""
	return getattr(lifecycle.find_in_waf(path), "__module__", "") == "waflib." + path.partition(".")[0]
