"""The option ``--stale`` and the command ``stale``, and how the tool takes part in builds."""

import os
from typing import Dict

from waflib import Build, Context, Errors, Logs, Options, Runner, Task

from ..hooks import entry, gc_pause, lifecycle
from . import ending, record

TOOL = "stale"
REMOVE, DRY, OFF = "remove", "dry", "off"


class Stale:
	"""The builds of this process that are under way."""

	def __init__(self) -> None:
		self.watches: Dict[Build.BuildContext, ending.Watch] = {}

	def begin(self, bld: Build.BuildContext) -> None:
		if find_choice() == OFF or isinstance(bld, Build.StepContext):
			return
		build = lifecycle.find()
		if not any(one.tool == TOOL for one in build.replaced):
			self.install(build)
		self.watches[bld] = ending.Watch(bld)

	def install(self, build: lifecycle.Build) -> None:
		"""Hear of each task that the scheduler asks, since tasks can make others that no task generator lists."""

		def task_status(master: Runner.Parallel, tsk: Task.Task) -> int:
			status: int = stock(master, tsk)
			watch = self.watches.get(master.bld)
			# other schedulers run nothing, as that of waf why
			if watch is not None and master.__class__ is Runner.Parallel:
				watch.note(tsk, status)
			return status

		stock = build.replace(TOOL, "Runner.Parallel.task_status", task_status)

	def end(self, bld: Build.BuildContext, outcome: str) -> None:
		watch = self.watches.pop(bld, None)
		if watch is not None and watch.asked:
			path = record.path_of(bld.out_dir, bld.variant or "")
			with gc_pause.without_collector():
				ending.Ending(watch, path, outcome == "succeeded", find_choice() == DRY).go()


def find_choice() -> str:
	return getattr(Options.options, "stale", None) or REMOVE


class StaleContext(Context.Context):
	"""tells which files stale knows from earlier builds; -v names them"""

	cmd = "stale"

	def execute(self) -> None:
		folder = Context.out_dir
		if not folder or not os.path.isdir(folder):
			raise Errors.WafError("stale: there is no build folder: run waf configure first")
		for name in sorted(os.listdir(folder)):
			if name == record.NAME or name.startswith(record.NAME + "-"):
				self.show(os.path.join(folder, name))

	def show(self, path: str) -> None:
		try:
			known = record.read(path)
		except (OSError, record.Damaged):
			Logs.warn("stale: %s cannot be read: the next build begins it anew", path)
			return
		variant = os.path.basename(path)[len(record.NAME) :]
		for kind, files in sorted(known.built.items()):
			tell(kind + (variant if kind == "build" else ""), files)
		for (destdir, prefix), installed in sorted(known.installed.items()):
			tell("install%s --prefix=%s%s" % (variant, prefix, destdir and " --destdir=" + destdir), installed.files)


def tell(made_by: str, files: record.Files) -> None:
	Logs.info("%s: %s", made_by, ending.count(len(files)))
	for name in sorted(files) if Logs.verbose else ():
		Logs.info("  %s", name)


def add_options(opt: Options.OptionsContext) -> None:
	group = opt.add_option_group("Options for stale files")
	group.add_option(
		"--stale",
		choices=(REMOVE, DRY, OFF),
		default=REMOVE,
		help="what becomes of files that only earlier builds have made: remove them, name them, or do nothing",
	)


def install() -> None:
	"""Have the tool take part in the builds that begin from now on."""
	lifecycle.find().join(TOOL, Stale)


options, configure = entry.make_entries("--stale", add_options, install)


def build(bld: Build.BuildContext) -> None:
	stale = lifecycle.find().join(TOOL, Stale)
	if bld not in stale.watches:
		# the wscript has loaded the tool after this build had begun
		stale.begin(bld)
		bld.add_post_fun(lambda ctx: stale.end(ctx, "succeeded"))


setup = build
