"""
The functions through which Waf enters a tool.

Waf calls ``options``, ``configure`` and ``build`` where a wscript loads the tool. In a build it calls ``setup`` of each
tool that ``configure`` has loaded. Whichever comes first installs the tool.
"""

from typing import Callable, Tuple

from waflib import Context, Options

AddOptions = Callable[[Options.OptionsContext], None]
Prepare = Callable[[Context.Context], None]


def make_entries(first: str, add_options: AddOptions, install: Callable[[], None]) -> Tuple[AddOptions, Prepare]:
	"""
	The function ``options`` of a tool with this first option, and the one for ``configure``, ``setup`` and ``build``.

	A wscript may load a tool several times. The options are added once; ``install`` has to see to itself.
	These are functions and not methods, since Waf runs anything else as rules of its own.
	"""

	def options(opt: Options.OptionsContext) -> None:
		if not opt.parser.get_option(first):
			add_options(opt)
		install()

	def prepare(ctx: Context.Context) -> None:
		install()

	return options, prepare
