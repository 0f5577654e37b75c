"""
Keeps Waf ready in a resident process, which answers at once if a build has nothing to do.

::

	def options(opt):
		opt.load('resident')

The first build leaves a process behind. The next time the ``waf`` command of this package has it run the command line.
It forks a process, which has imported Waf already. If nothing has changed that the last such run has looked at, it
answers without running anything. ``docs/resident.md`` tells what is compared, and how.

Options: ``--no-resident``; ``waf --resident-list`` shows the processes of this user, and ``waf --resident-stop`` ends
those of this project (``--resident-stop-all``: all).

Environment variables: ``WAF_NO_RESIDENT`` (builds without it), ``WAF_RESIDENT_IDLE`` (seconds without a call until it
ends).

To troubleshoot, ``waf --zones=resident`` tells why the process did not answer, and ``waf --resident-list`` how often it
did.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
	from waflib.Options import OptionsContext

if "." in __name__:

	def options(opt: "OptionsContext") -> None:
		# imported here, since the resident process imports other modules of this folder before there is a Waf
		from . import tool

		tool.options(opt)

else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)
