"""
Extras for Waf that remove what makes builds slow.

``import waflib_extras`` in a wscript is enough to load the tools by their short names, ``opt.load('prefork')``, with
any Waf. The ``waf`` command of this package does it by itself.
"""

import importlib
import importlib.machinery
import sys
from types import ModuleType
from typing import Optional, Sequence

from .version import VERSION as __version__

TOOLS = (
	"batch",
	"large",
	"pch",
	"prefork",
	"resident",
	"stale",
	"timeline",
	"unity",
	"wafcc",
)  # what has a short name; our other modules keep out of the way of a project's own tools


class ToolFinder:
	"""
	Lets ``waflib.extras.TOOL``, which is where Waf looks for a tool, be the very module that we have.

	Our folder in ``waflib.extras.__path__`` would do so too, but with all our modules: a project's own tool ``engine``
	would never be found again. It is a finder and loader by what it does: to import ``importlib.abc`` only to say so
	would cost milliseconds at each start of Waf.
	"""

	def __init__(self) -> None:
		self.modules = {"waflib.extras." + tool: "%s.%s" % (__name__, tool) for tool in TOOLS}

	def find_spec(
		self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
	) -> Optional[importlib.machinery.ModuleSpec]:
		if name not in self.modules:
			return None
		return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]  # the stubs want a class of abc

	def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
		module = importlib.import_module(self.modules[spec.name])
		self.own_spec = module.__spec__
		return module

	def exec_module(self, module: ModuleType) -> None:
		# it is imported already; only its own name for itself was changed by the import under ours
		module.__spec__ = self.own_spec


def offer_tools() -> bool:
	"""Let Waf find our tools by their short names; tell whether there is a Waf to find them."""
	try:
		import waflib.extras  # noqa: F401
	except ImportError:
		return False
	if not any(isinstance(finder, ToolFinder) for finder in sys.meta_path):
		sys.meta_path.insert(0, ToolFinder())
	return True


# only when Waf runs already: the launcher imports us before it has chosen which waflib is to run
if "waflib" in sys.modules:
	offer_tools()

__all__ = ["TOOLS", "__version__", "offer_tools"]
