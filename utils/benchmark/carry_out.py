"""How a program that starts many others does its work: it ends them all, and a mistake is one line."""

import sys
from typing import Callable

from .interrupt import INTERRUPTS, Interrupted
from .mistake import Failed, Mistake
from .session import adopt_orphans, end_children


def carry_out(program: str, do: Callable[[], int]) -> int:
	"""Do the work, end all processes that were started for it, and return the exit status."""
	INTERRUPTS.listen()
	adopt_orphans()
	try:
		return do()
	except (Mistake, Failed) as e:
		print("%s: %s" % (program, "\n".join([str(e), *(e.quote() if isinstance(e, Failed) else [])])), file=sys.stderr)
		return 2
	except Interrupted as e:
		print("%s: %s" % (program, e), file=sys.stderr)
		return e.exit_status
	finally:
		end_children()
