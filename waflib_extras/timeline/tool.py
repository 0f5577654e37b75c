"""Has builds recorded and drawn whose user asks for it."""

import errno
import gc
import os
from typing import TYPE_CHECKING, List, Optional

from waflib import Build, Context, Errors, Logs, Options

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

	def begin(self, bld: Build.BuildContext) -> "Optional[Recording]":
		"""The recording of a build that is to be drawn; none for others, as those within a build."""
		given = getattr(Options.options, "timeline", None)
		if not given or self.recording is not None:
			return None
		if not self.base:
			self.base = find_base(given)
		from . import recording

		self.recording = recording.Recording(bld)
		self.recording.begin()
		return self.recording

	def end(self, outcome: str) -> None:
		"""A build is over: write what there is of it, beside those before it."""
		recording, self.recording = self.recording, None
		if recording is None:
			return
		recording.end(outcome)
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
	if hasattr(Build, "timeline"):
		return
	Build.timeline = timeline = Timeline()
	stock = Build.BuildContext.execute

	def execute(bld: Build.BuildContext) -> None:
		if timeline.begin(bld) is None:
			stock(bld)
			return
		outcome = "interrupted"
		try:
			stock(bld)
			outcome = "succeeded"
		except Exception:
			outcome = "failed"
			raise
		finally:
			timeline.end(outcome)

	Build.BuildContext.execute = execute


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
