"""
What each Python below ``wafx`` runs at its start: it waits until Waf is imported, and has our tools loaded then.

``PYTHONPATH`` leads every Python to this file, also Python 2, and Pythons that run no Waf. So there is no newer syntax
here, and nothing is imported before there is a Waf.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "waflib_extras"
ROOT = HERE[: -len(os.path.join("", PACKAGE, "wafx", "start"))]
VARIABLE = "PYTHONPATH"
LAST = "waflib.Scripting"
"""The module of Waf that imports all others that matter. Each ``waf`` script imports it before Waf runs."""


def say(text):
	sys.stderr.write("wafx: %s\n" % (text,))


class Watcher:
	"""The first of all finders. It finds our own package only, and lets others find Waf."""

	def find_spec(self, name, path=None, target=None):
		if name == PACKAGE and sys.version_info >= (3, 8):
			from importlib.machinery import PathFinder

			# a folder in sys.path would also offer what is installed beside our package
			return PathFinder.find_spec(name, [ROOT])
		if name == LAST:
			sys.meta_path.remove(self)
			try:
				return self.find_waf(name, path, target)
			finally:
				sys.meta_path.insert(0, self)
		return None

	def find_module(self, name, path=None):
		if name == LAST and sys.version_info < (3,):
			refuse_python()

	def find_waf(self, name, path, target):
		if sys.version_info < (3, 8):
			refuse_python()
			return None
		import importlib.util

		spec = importlib.util.find_spec(name)
		if spec is not None and hasattr(spec.loader, "exec_module"):
			spec.loader = Loader(spec.loader)
		return spec


class Loader:
	"""Loads Waf's last module as its own loader does, and then prepares Waf for our tools."""

	def __init__(self, loader):
		self.loader = loader

	def create_module(self, spec):
		return self.loader.create_module(spec)

	def exec_module(self, module):
		module.__loader__ = module.__spec__.loader = self.loader
		self.loader.exec_module(module)
		prepare_waf(module)


def refuse_python():
	version = ".".join(str(number) for number in sys.version_info[:3])
	say("the tools need Python 3.8 or newer, and this Waf runs on Python %s: it runs without them" % version)


def prepare_waf(scripting):
	"""Have our tools loaded when Waf asks for options, before it asks the project for its own."""
	hide_variable()
	context = scripting.Options.OptionsContext
	stock = context.execute

	def execute(self):
		is_ours = PACKAGE not in sys.modules
		try:
			from waflib_extras.wafx import loading

			loading.begin(self, is_ours)
		except Exception as e:  # a build that succeeds without us has to succeed
			say("the tools cannot be loaded: %s: %s: Waf runs without them" % (e.__class__.__name__, e))
		stock(self)

	execute.__doc__ = stock.__doc__
	context.execute = execute


def hide_variable():
	"""
	Have the project see ``PYTHONPATH`` as it was, since some look at it. What it starts inherits it with our folder.

	The variable of the process itself stays, and so does what is below ``os.environ``, which the engine is told.
	"""
	full = os.environ.get(VARIABLE, "")
	rest = os.pathsep.join(folder for folder in full.split(os.pathsep) if folder != HERE)
	if rest == full:
		return

	class Environ(os.environ.__class__):
		def __getitem__(self, name):
			value = super().__getitem__(name)
			if name != VARIABLE or value != full:
				return value
			if not rest:
				raise KeyError(name)
			return rest

		def __iter__(self):
			for name in super().__iter__():
				if name != VARIABLE or name in self:
					yield name

		def __len__(self):
			return sum(1 for _ in self)

	os.environ.__class__ = Environ


def step_aside():
	"""Leave ``sys.path``, and run the ``sitecustomize`` that this Python would have run without us."""
	sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != HERE]
	ours = sys.modules.pop(__name__)
	# Python 2 empties a module that nothing refers to
	Watcher.module = ours
	try:
		__import__(__name__)
	except ImportError as e:
		# a missing one is the usual case; site tells of all other errors
		if not str(e).endswith("sitecustomize") and not str(e).endswith("'sitecustomize'"):
			raise
	sys.modules.setdefault(__name__, ours)


if __name__ == "sitecustomize":
	sys.meta_path.insert(0, Watcher())
	step_aside()
