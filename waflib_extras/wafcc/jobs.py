"""
How many tasks of Waf run at once if some of their commands run on a cluster, and the user has not said how many.
"""

import os

from waflib import Options


class Usual(int):
	"""The number of jobs that Waf has chosen. A number that was given with ``-j`` is no such object."""

	pass  # waf-light removes the docstring


def mark_default(opt: Options.OptionsContext) -> None:
	"""Have the number of jobs tell whether it was given. The variable ``JOBS`` counts as given."""
	parser = opt.parser
	# optparse has the defaults in its parser, argparse in each option
	in_parser = getattr(parser, "defaults", None)
	usual = in_parser.get("jobs") if in_parser else parser.get_default("jobs")
	if isinstance(usual, int) and not os.environ.get("JOBS"):
		parser.set_defaults(jobs=Usual(usual))


def raise_usual(elsewhere: int) -> None:
	"""If the number of jobs was not given, add to it how many commands may run elsewhere."""
	usual = getattr(Options.options, "jobs", None)
	if isinstance(usual, Usual) and elsewhere:
		Options.options.jobs = int(usual) + elsewhere
