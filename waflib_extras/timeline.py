"""
Draws a picture of a build: who ran what in which slot, what was a hit, who waited for whom, and which slots were idle.

::

	waf build --timeline=FILE

writes ``FILE.html``, a page that needs nothing but a browser, and ``FILE.json``, which Perfetto and ``chrome://tracing``
open. A project that loads ``prefork`` has the option; others say ``opt.load('timeline')``, with or without an engine.
``docs/timeline.md`` tells what is on the page and how it is measured.

What is recorded is a few numbers per task; all else is done when the build is over, however it ended. Without the
option nothing of this is loaded.
"""

import errno
import gc
import importlib
import os
import sys
from typing import Any, List, Optional

from waflib import Build, Context, Errors, Logs, Options

ENDINGS = (".html", ".json")


def find_module(name: str) -> Any:
	"""One of our own modules, loaded when it is needed."""
	if __package__:
		return importlib.import_module("%s.%s" % (__package__, name))
	# loaded with tooldir=, which makes a module without a package of this file
	folder = os.path.dirname(os.path.abspath(__file__))
	if os.path.dirname(folder) not in sys.path:
		sys.path.append(os.path.dirname(folder))
	return importlib.import_module("%s.%s" % (os.path.basename(folder), name))


class Timeline:
	"""The picture of this process's builds; one per process, as ``Build.timeline``."""

	def __init__(self) -> None:
		self.base = ""
		"""What the files are called, without their endings."""
		self.finished: List[Any] = []
		"""One for each build that is over, oldest first."""
		self.recording: Any = None
		"""Of the build that is under way."""

	def begin(self, bld: Any) -> Optional[Any]:
		"""The recording of a build that is to be drawn; none for others, as those within a build."""
		given = getattr(Options.options, "timeline", None)
		if not given or self.recording is not None:
			return None
		if not self.base:
			self.base = find_base(given)
		self.recording = find_module("recording").Recording(bld)
		self.recording.begin()
		return self.recording

	def end(self, outcome: str) -> None:
		"""A build is over: write what there is of it, beside those before it."""
		recording, self.recording = self.recording, None
		recording.end(outcome)
		# nothing of all that is made here is garbage, and the graph of tasks is large
		is_collecting = gc.isenabled()
		gc.disable()
		try:
			self.finished.append(find_module("account").make_build(recording))
			Logs.info(find_module("picture").write(self.base, self.finished))
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

	def execute(bld):
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


def options(opt):
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


def configure(conf):
	install()


def setup(bld):
	"""Called in the build when the tool was loaded in ``configure`` only."""
	install()


def build(bld):
	install()
