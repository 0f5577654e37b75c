"""
Keeps Waf ready in a process of its own, which answers at once for a build that has nothing to do.

::

	def options(opt):
		opt.load('resident')

The first build leaves a process behind. The ``waf`` command of this package finds it the next time, and has it run the
command line: in a process that is forked from it and has Waf imported already, or, where all that such a run looked
at is as it was, without running anything. Whatever may change the answer is compared; ``docs/resident.md`` tells how.

Options: ``--no-resident``; ``waf --resident-list`` shows the processes of this user, and ``waf --resident-stop`` ends
those of this project (``--resident-stop-all``: all).

Environment variables: ``WAF_NO_RESIDENT`` (does without), ``WAF_RESIDENT_IDLE`` (seconds until it leaves).

To troubleshoot, ``waf --zones=resident`` tells why the process did not answer, and ``waf --resident-list`` how often it
did.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
	from waflib.Options import OptionsContext

if "." in __name__:

	def options(opt: "OptionsContext") -> None:
		# the resident process itself has our other modules, and must begin without Waf
		from . import tool

		tool.options(opt)

else:
	import waflib_extras_alone  # Waf has loaded this folder without its package, with tooldir=

	waflib_extras_alone.stand_in(__name__, __path__)
