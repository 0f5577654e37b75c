"""The stock tools, each ccache that is here, and ours."""

import os
import shutil
import sys
from typing import Dict, List, Optional, Tuple

from benchmark.cache import Ccache, CompilerCache, Wafcc
from benchmark.interpreter import ROOT
from benchmark.machine import version_of
from benchmark.mistake import Mistake

WAFX = "import sys; sys.path.append(%r); from waflib_extras import wafx; wafx.main()" % ROOT


class Contender:
	"""The stock tools: the compiler without a cache."""

	name = "stock"
	has_cache = False
	references: Tuple[str, ...] = ("stock",)
	"""The contenders that make the bytes that are right: of each file those of one of them."""
	waf: List[str] = []

	def missing(self) -> Optional[str]:
		return None

	def open(self, folder: str, env: Dict[str, str]) -> Optional[CompilerCache]:
		"""A cache of its own, empty at first."""
		return None

	def launcher(self) -> str:
		return ""

	def environment(self, checkout: str) -> Dict[str, str]:
		"""The variables of builds in a checkout."""
		return {}

	def flags(self, checkout: str) -> str:
		"""The compiler's flags beside those that are asked for."""
		return ""


class Mapped(Contender):
	"""The stock tools with the prefix map that ours adds: what the results of ours must be equal to."""

	name = "stock, mapped"
	references = ("stock, mapped",)

	def flags(self, checkout: str) -> str:
		return "-ffile-prefix-map=%s=." % checkout


class AnyCcache(Contender):
	"""ccache, set up for several checkouts."""

	has_cache = True

	def __init__(self, program: str, name: str) -> None:
		self.program = program
		self.name = name

	def open(self, folder: str, env: Dict[str, str]) -> Optional[CompilerCache]:
		chosen = type("Chosen", (Ccache,), {"program": self.program})
		return chosen(folder, env)

	def launcher(self) -> str:
		return self.program

	def environment(self, checkout: str) -> Dict[str, str]:
		return Ccache.share_checkout(checkout)


class Ours(Contender):
	"""Our wrapper before the compiler; where a project has its own Waf, our tools in that."""

	name = "wafcc"
	has_cache = True
	references = (Mapped.name, "stock")  # a compile that links as well gets no map
	waf = [sys.executable, "-c", WAFX]

	def missing(self) -> Optional[str]:
		return Wafcc.missing()

	def open(self, folder: str, env: Dict[str, str]) -> Optional[CompilerCache]:
		return Wafcc(folder, env)

	def launcher(self) -> str:
		return Wafcc.find() or "wafcc"

	def environment(self, checkout: str) -> Dict[str, str]:
		return Wafcc.share_checkout(checkout)


def find_contenders(ccaches: List[str]) -> Dict[str, Contender]:
	"""All that are here, by name: the stock tools first, then ccache from the newest on."""
	found: Dict[str, Contender] = {"stock": Contender()}
	beside = os.path.join(os.path.dirname(sys.executable), "ccache")
	programs = [shutil.which(path) or path for path in ccaches] or [beside, shutil.which("ccache") or ""]
	known = {}
	for program in programs:
		if os.access(program, os.X_OK):
			known[version_of(program, "--version").split()[-1]] = os.path.realpath(program)
		elif ccaches:
			raise Mistake("--ccache: %s is no program" % program)
	for version in sorted(known, key=lambda text: [int(x) for x in text.split(".") if x.isdigit()], reverse=True):
		found["ccache-" + version] = AnyCcache(known[version], "ccache-" + version)
	found["wafcc"] = Ours()
	return found
