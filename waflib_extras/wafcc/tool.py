"""Installs the cache, and adds its options."""

import atexit

from waflib import Options

from .. import prefork
from ..hooks import entry, lifecycle
from . import dependencies, jobs, policy, settings


def install() -> None:
	"""Install the cache once per process, even if the tool is loaded again or under another name."""
	prefork.install()
	build = lifecycle.find()
	if build.runner is None or build.cache is not None:
		return
	build.cache = cacher = policy.Cacher()
	build.on_outcome.append(cacher.hear)
	dependencies.install()
	atexit.register(cacher.finish)
	if hasattr(Options.options, "jobs"):
		build.runner.begin_anew()


def add_options(opt: Options.OptionsContext) -> None:
	prefork.options(opt)
	group = opt.add_option_group("Cache options")
	for name, variable, metavar, text in settings.OPTIONS:
		kind = {"metavar": metavar} if metavar else {"action": "store_true"}
		group.add_option(name, dest=variable.lower(), help=text, **kind)
	group.add_option("--remote", dest=settings.REMOTE.lower(), metavar="ADDRESS", help=settings.REMOTE_HELP)
	jobs.mark_default(opt)


options, setup = entry.make_entries("--no-wafcc", add_options, install)
configure = build = setup
