"""The copies of Waf that projects carry, by the sources of Debian's packages that hold them, in several releases."""

from typing import List, NamedTuple


class Carrier(NamedTuple):
	"""A source package, and the Waf in it."""

	version: str
	package: str
	"""Empty for PyPI's waflib, which ./waf check fetches."""
	suite: str
	"""The release; empty for that of this machine, whose version may be another one."""
	sources: str
	"""A pattern for the folder that its archive holds."""
	place: str = "."
	"""The folder in it that holds ``waflib``."""
	is_old: bool = False
	"""Python 3.11 cannot run it: it opens files in a mode that was taken away."""


CARRIERS: List[Carrier] = [
	Carrier("2.0.12", "jackd2", "", "jack2-*", is_old=True),
	Carrier("2.0.14", "aubio", "trixie", "aubio-*", is_old=True),
	Carrier("2.0.20", "ntpsec", "bullseye", "ntpsec-*"),
	Carrier("2.0.24", "ntpsec", "", "ntpsec-*"),
	Carrier("2.0.25", "ntpsec", "trixie", "ntpsec-*"),
	Carrier("2.0.26", "samba", "trixie", "samba-*", "third_party/waf"),
	Carrier("2.1.4", "", "", "waflib-2.1.*", "submodules/waf"),
]
