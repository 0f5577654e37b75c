"""The time limit of a command."""

import subprocess
from typing import Tuple

from hunt import Mistake

PATIENCE = 60  # seconds for one compile


class Stuck(Exception):
	"""A command through wafcc that does not end."""


def wait(child: "subprocess.Popen[bytes]", is_cached: bool) -> Tuple[bytes, bytes]:
	"""The output of a command, which is killed if it takes too long."""
	try:
		return child.communicate(timeout=PATIENCE)
	except subprocess.TimeoutExpired:
		child.kill()
		child.communicate()
	if is_cached:
		raise Stuck("it was not done after %d s" % PATIENCE)
	raise Mistake("a plain compile was not done after %d s: this machine is too busy to try anything" % PATIENCE)
