"""Puts the cache in place, and its options."""

import atexit
from typing import TYPE_CHECKING

from waflib import Options

from .. import prefork
from ..hooks import lifecycle
from . import dependencies, policy, settings

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.Configure import ConfigurationContext


def install() -> None:
	"""Put us in Waf's place, once per process, however often and under whatever name this file is loaded."""
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


def options(opt: Options.OptionsContext) -> None:
	prefork.options(opt)
	if not opt.parser.get_option("--no-wafcc"):
		group = opt.add_option_group("Cache options")
		for name, variable, metavar, text in settings.OPTIONS:
			kind = {"metavar": metavar} if metavar else {"action": "store_true"}
			group.add_option(name, dest=variable.lower(), default=None, help=text, **kind)
	install()


def configure(conf: "ConfigurationContext") -> None:
	install()


def setup(bld: "BuildContext") -> None:
	"""Called in the build when the tool was loaded in ``configure`` only."""
	install()


def build(bld: "BuildContext") -> None:
	install()
