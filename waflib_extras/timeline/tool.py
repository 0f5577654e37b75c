"""Has builds recorded and drawn whose user asks for it."""

import errno
import gc
import os
from typing import TYPE_CHECKING, List, Optional

from waflib import Build, Context, Errors, Logs, Options

from ..hooks import lifecycle

if TYPE_CHECKING:
	from waflib.Configure import ConfigurationContext

	from .analysis import Built
	from .recording import Recording

ENDINGS = (".html", ".json")


class Timeline:
	"""The picture of this process's builds; one per process, as ``Build.timeline``."""

	def __init__(self) -> None:
		self.base = ""
		"""What the files are called, without their endings."""
		self.finished: List[Built] = []
		"""One for each build that is over, oldest first."""
		self.recording: Optional[Recording] = None
		"""Of the build that is under way."""

	def begin(self, bld: Build.BuildContext) -> None:
		"""Record a build that is to be drawn. A build within another one is a part of that."""
		given = getattr(Options.options, "timeline", None)
		if not given or self.recording is not None:
			return
		if not self.base:
			self.base = find_base(given)
		from . import recording

		self.recording = recording.Recording(bld)
		self.recording.begin()

	def end(self, bld: Build.BuildContext, outcome: str) -> None:
		"""A build is over."""
		recording = self.recording
		if recording is None or recording.bld is not bld:
			return
		self.recording = None
		recording.end(outcome)
		self.draw(recording)

	def draw(self, recording: "Recording") -> None:
		"""Write what there is of a build that is over, beside those before it."""
		# nothing of all that is made here is garbage, and the graph of tasks is large
		is_collecting = gc.isenabled()
		gc.disable()
		try:
			from . import analysis, picture

			self.finished.append(analysis.make_build(recording))
			Logs.info(picture.write(self.base, self.finished))
		finally:
			if is_collecting:
				gc.enable()


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
	"""Have builds looked at for which the option is given, once per process, however this file is loaded."""
	build = lifecycle.find()
	if not hasattr(Build, "timeline"):
		Build.timeline = timeline = Timeline()
		build.on_begin.append(timeline.begin)
		build.on_end.append(timeline.end)


def options(opt: Options.OptionsContext) -> None:
	if not opt.parser.get_option("--timeline"):
		group = opt.add_option_group("Timeline options")
		group.add_option(
			"--timeline",
			dest="timeline",
			default="",
			metavar="FILE",
			help="draw what ran when: FILE.html for a browser, FILE.json for Perfetto",
		)
	install()


def configure(conf: "ConfigurationContext") -> None:
	install()


def setup(bld: Build.BuildContext) -> None:
	"""Called in the build when the tool was loaded in ``configure`` only."""
	install()


def build(bld: Build.BuildContext) -> None:
	install()
