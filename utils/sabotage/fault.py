"""A fault: when it strikes, what it does, and which promises of a build it takes away."""

import pathlib
import random
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from .builders import Builder
from .project import Project
from .scene import Scene

Later = List[Tuple[float, Callable[[], None]]]


class Stage(NamedTuple):
	"""The build that a fault disturbs."""

	scene: Scene
	builder: Builder
	project: Project
	note: Callable[[str], None]  # adds a line to the report

	def folder(self, name: str) -> pathlib.Path:
		"""The folder of this name: the store, or one of the scene."""
		return self.builder.store_folder(self.scene) if name == "store" else getattr(self.scene, name)


class Fault:
	"""
	One fault of one trial. Everything random is drawn when it is made, so that a seed repeats it.

	The methods come in this order; each does nothing unless a kind says otherwise.
	"""

	name = ""
	about = ""
	needs_root = False
	may_fail = False  # a plain build could fail of it as well; the next one must not
	may_leave = False  # temporary files, as a plain compiler would
	may_leave_temporary = False  # files between the parts of a compiler that was killed with the engine
	may_leave_links = False  # files between the parts of a linker that was ended and that the engine did not start
	may_leave_beside = False  # outputs that are not whole, as ar does when it is ended
	lasts = False  # beyond the build: then the cache need not work
	wants_edit = False  # the files must be edited before
	wants_outputs_gone = False  # with ninja, which goes by times
	breaks = False  # a source cannot be compiled
	group = ""  # only one of a group takes part in a trial
	umask: Optional[int] = None  # of the build
	systems: Sequence[str] = ("ninja", "waf")
	strikes = 0  # so often while the build runs
	choices: Sequence[Any] = ()  # one of them is drawn

	def __init__(self, rng: random.Random) -> None:
		self.rng = rng
		# by how much is made, as a busy machine is slow: the share of outputs, and seconds after that
		count = self.strikes
		self.moments = sorted((rng.choice((0.0, rng.random())), rng.random() ** 3 * 0.3) for _ in range(count))
		self.drawn: Any = rng.choice(self.choices) if self.choices else None

	def prepare(self, stage: Stage) -> None:
		"""Before anything runs."""

	def lay(self, stage: Stage) -> None:
		"""Whenever sources were written, also before the first build."""

	def begin(self, stage: Stage) -> None:
		"""Right before the build that is disturbed."""

	def strike(self, stage: Stage, later: Later) -> bool:
		"""While the build runs; False if it must be tried again in a moment."""
		return True

	def relieve(self, stage: Stage) -> None:
		"""After the build: undo the harm that users would undo."""

	def end(self, stage: Stage) -> None:
		"""After everything: undo what would keep processes from ending."""
