"""
Has the engine answer commands from its cache, and tell Waf what they depend on.

::

	def options(opt):
		opt.load('prefork wafcc')

Each compile, and each small static library, is asked of the cache first, and a hit starts no process. Waf then knows
from the engine which files a compile has read: it neither scans sources for them nor hashes what the engine has hashed.
``docs/waf-cache.md`` has the details.

Other tasks join with ``cache = True`` on a task class, a task or a task generator; ``nocache = True`` on any of them,
or in ``env``, keeps out. What they run must depend on files, links, folders and variables only.

Options: ``--no-wafcc``, ``--wafcc-dir``, ``--wafcc-read-only``, ``--wafcc-recache``, ``--wafcc-base-dir``,
``--wafcc-namespace``. Where they are not given, the settings of the program ``wafcc`` hold: its variables, such as
``WAFCC_DIR``, and its files (``docs/wafcc.md``).

To troubleshoot, ``waf --zones=wafcc`` tells of each task whether it was a hit, and if not, why.
"""

import atexit
import os
import sys

from waflib import Options, Utils

if __package__:
	from . import cacher, dependencies, prefork, settings
else:
	# loaded with tooldir=, which makes a module without a package of this file
	import importlib

	_folder = os.path.dirname(os.path.abspath(__file__))
	sys.path.append(os.path.dirname(_folder))
	_package = os.path.basename(_folder)
	cacher = importlib.import_module(_package + ".cacher")
	dependencies = importlib.import_module(_package + ".dependencies")
	prefork = importlib.import_module(_package + ".prefork")
	settings = importlib.import_module(_package + ".settings")


def install() -> None:
	"""Put us in Waf's place, once per process, however often and under whatever name this file is loaded."""
	prefork.install()
	place = getattr(Utils, "prefork", None)
	if place is None or place.cache is not None:
		return
	place.cache = cacher.Cacher()
	place.cache.diary = place.diary
	dependencies.install()
	atexit.register(place.cache.finish)
	if hasattr(Options.options, "jobs"):
		place.begin_anew()


def options(opt):
	prefork.options(opt)
	if not opt.parser.get_option("--no-wafcc"):
		group = opt.add_option_group("Cache options")
		for name, variable, metavar, text in settings.OPTIONS:
			kind = {"metavar": metavar} if metavar else {"action": "store_true"}
			group.add_option(name, dest=variable.lower(), default=None, help=text, **kind)
	install()


def configure(conf):
	install()


def setup(bld):
	"""Called in the build when the tool was loaded in ``configure`` only."""
	install()


def build(bld):
	install()
