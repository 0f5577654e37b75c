"""
The functions through which Waf enters a tool.

Waf calls ``options``, ``configure`` and ``build`` where a wscript loads the tool. In a build it calls ``setup`` of each
tool that ``configure`` has loaded. Whichever comes first installs the tool.
"""

from typing import TYPE_CHECKING, Callable, Tuple

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Configure import ConfigurationContext
	from waflib.Options import OptionsContext


def make_entries(
	first: str, add_options: "Callable[[OptionsContext], None]", install: Callable[[], None]
) -> "Tuple[Callable[[OptionsContext], None], Callable[[ConfigurationContext], None], Callable[[BuildContext], None]]":
	"""
	The functions ``options``, ``configure`` and ``setup`` of a tool that has this first option.

	A wscript may load a tool several times. The options are added once; ``install`` has to see to itself.
	These are functions and not methods, since Waf runs anything else as rules of its own.
	"""

	def options(opt: "OptionsContext") -> None:
		if not opt.parser.get_option(first):
			add_options(opt)
		install()

	def configure(conf: "ConfigurationContext") -> None:
		install()

	def setup(bld: "BuildContext") -> None:
		install()

	return options, configure, setup
