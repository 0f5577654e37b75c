"""The option ``--timeline``, by which builds are recorded and drawn."""

import errno
import os
from typing import TYPE_CHECKING, List, Optional

from waflib import Context, Errors, Logs, Options

from ..hooks import entry, gc_pause, lifecycle

if TYPE_CHECKING:
	from waflib.Build import BuildContext

	from .analysis import Built
	from .recording import Recording

ENDINGS = (".html", ".json")


class Timeline:
	"""The picture of the builds of this process."""

	def __init__(self) -> None:
		self.base = ""
		"""The path of the files, without their endings."""
		self.finished: List[Built] = []
		"""One for each build that is over, oldest first."""
		self.recording: Optional[Recording] = None
		"""That of the build that is under way."""

	def begin(self, bld: "BuildContext") -> None:
		"""Record a build that is to be drawn. A build within another one is a part of that."""
		given = getattr(Options.options, "timeline", None)
		if not given or self.recording is not None:
			return
		if not self.base:
			self.base = find_base(given)
		from . import recording

		self.recording = recording.Recording(bld)
		self.recording.begin()

	def end(self, bld: "BuildContext", outcome: str) -> None:
		"""Draw the build that is over, if it was recorded."""
		recording = self.recording
		if recording is None or recording.bld is not bld:
			return
		self.recording = None
		recording.end(outcome)
		self.draw(recording)

	def draw(self, recording: "Recording") -> None:
		"""Write the files anew, with the build that is over beside those before it."""
		from . import analysis, picture

		with gc_pause.without_collector():
			self.finished.append(analysis.make_build(recording))
			Logs.info(picture.write(self.base, self.finished))


def find_base(given: str) -> str:
	"""The path of the files without their endings; an error before the build if they cannot be written."""
	path = os.path.join(Context.launch_dir or os.getcwd(), given)
	base, ending = os.path.splitext(path)
	if ending not in ENDINGS:
		base = path
	try:
		if os.path.isdir(path) or not os.path.basename(path):
			raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
		for ending in ENDINGS:
			is_new = not os.path.exists(base + ending)
			with open(base + ending, "ab"):
				pass
			if is_new:
				os.remove(base + ending)
	except OSError as e:
		raise Errors.WafError(
			"--timeline=%s: cannot write %s%s: %s: give the name of a file in a folder of yours"
			% (given, base, ending, e.strerror)
		) from None
	return base


def install() -> None:
	"""Have each build recorded for which the option is given."""
	lifecycle.find().join("timeline", Timeline)


def add_options(opt: Options.OptionsContext) -> None:
	group = opt.add_option_group("Timeline options")
	group.add_option(
		"--timeline",
		default="",
		metavar="FILE",
		help="draw what ran when: FILE.html for a browser, FILE.json for Perfetto",
	)


options, setup = entry.make_entries("--timeline", add_options, install)
configure = build = setup
