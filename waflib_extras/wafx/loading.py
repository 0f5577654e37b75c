"""
Loads our tools into a project's own Waf, so that the project cannot tell.

A wscript that loads a tool wants it; here it may know nothing of it. So what the project has under a name of ours (a
tool, an option, a command) stays the project's, and what it saves of its options has none of ours.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List

from waflib import Context, Logs, Options

import waflib_extras

from ..hooks import lifecycle
from . import choice

if TYPE_CHECKING:
	from waflib.Options import OptionsContext

OLDEST, TOO_NEW = 0x2000000, 0x2020000
PREFIX = "waflib_extras."
RESIDENT = "resident is left out: it keeps a Waf of its own ready, and not that of a project"


def begin(ctx: "OptionsContext", is_ours: bool) -> None:
	"""
	Load the tools that are wanted. Whatever goes wrong is told in one line, and Waf runs without the tool.

	``is_ours``: the project has not imported our package by itself.
	"""
	if is_ours:
		step_behind()
	version = getattr(Context, "HEXVERSION", 0)
	if not OLDEST <= version < TOO_NEW:
		say("the tools are for Waf 2.0 and 2.1, and this is Waf %s: it runs without them" % Context.WAFVERSION)
		return
	try:
		tools, _ = choice.find(os.environ, Context.run_dir)
	except choice.Mistake as e:
		say("%s: Waf runs without tools" % e)
		return
	if "resident" in tools:
		say(RESIDENT)
		tools.remove("resident")
	if tools:
		Own(ctx).load(tools)


def say(text: str) -> None:
	Logs.warn("wafx: %s", text)


def step_behind() -> None:
	"""
	Have our tools found by their short names only where the project has none of that name.

	Waf itself has a ``prefork`` and a ``unity`` among its extras, and a project that loads them means those.
	"""
	for finder in [one for one in sys.meta_path if isinstance(one, waflib_extras.ToolFinder)]:
		sys.meta_path.remove(finder)
		sys.meta_path.append(finder)


class Own:
	"""
	The options that our tools add, kept apart from those of the project.

	Tools add some before the project adds its own, and some right before the command line is parsed. So the parsing is
	wrapped twice: outside of what the tools wrap around it, and within.
	"""

	def __init__(self, ctx: "OptionsContext") -> None:
		self.ctx = ctx
		self.defaults: Dict[str, Any] = {}
		"""By the name that our tools use."""
		self.others: Dict[int, Any] = {}
		"""Options that are not ours, by identity. They are kept, since another one could get the identity otherwise."""
		self.note_others()
		stock = ctx.parse_args

		def parse_args(*args: Any, **kw: Any) -> None:
			self.claim()
			stock(*args, **kw)
			leave_commands()
			self.settle()

		ctx.parse_args = parse_args

	def load(self, tools: Iterable[str]) -> None:
		"""Load the tools, except those that do not fit here."""
		for tool in tools:
			try:
				importlib.import_module(PREFIX + tool).options(self.ctx)
			except Exception as e:  # the build has to succeed without the tool
				say("%s: %s: %s (going on without)" % (tool, e.__class__.__name__, e))
				lifecycle.find().restore(tool)
		self.claim()
		wrapped = self.ctx.parse_args

		def parse_args(*args: Any, **kw: Any) -> None:
			self.note_others()
			wrapped(*args, **kw)

		self.ctx.parse_args = parse_args

	def note_others(self) -> None:
		self.others.update((id(option), option) for option in list_options(self.ctx.parser))

	def claim(self) -> None:
		"""Rename what tools have added since the others were noted."""
		for option in list_options(self.ctx.parser):
			if id(option) not in self.others:
				self.rename(option)
		self.note_others()

	def rename(self, option: Any) -> None:
		"""Give an option of ours a place that no option of the project has."""
		name: str = option.dest
		option.dest = PREFIX + name
		if name not in self.defaults:
			# optparse has the defaults in its parser, argparse in each option
			in_parser = getattr(self.ctx.parser, "defaults", {})
			self.defaults[name] = in_parser.pop(name) if name in in_parser else option.default
		# the help would show the new name as that of the value
		if option.metavar is None and (hasattr(option, "takes_value") or not option.choices):
			option.metavar = name.upper()

	def settle(self) -> None:
		"""
		Move the values of our options to the class of Waf's object, where tools read them as before.

		The dict of that object is what Waf saves and projects compare: a build with our tools, of what was configured
		without them, has the same options.
		"""
		values = Options.options
		found = vars(values)
		members: Dict[str, Any] = {}
		for name, default in self.defaults.items():
			value = found.pop(PREFIX + name, default)
			members[name] = Shared(name, value) if name in found else value
		cls = values.__class__
		values.__class__ = type(cls.__name__, (cls,), members)


class Shared:
	"""An option that the project has, too: our modules get our value, all others that of the project."""

	def __init__(self, name: str, value: Any) -> None:
		self.name = name
		self.value = value

	def __get__(self, values: Any, owner: type) -> Any:
		caller = sys._getframe(1).f_globals.get("__name__", "")
		if caller.startswith(PREFIX):
			return self.value
		try:
			return vars(values)[self.name]
		except KeyError:
			raise AttributeError(self.name) from None

	def __set__(self, values: Any, value: Any) -> None:
		vars(values)[self.name] = value


def list_options(parser: Any) -> Iterator[Any]:
	"""The options of a parser of Waf, which is one of ``optparse`` up to 2.0 and of ``argparse`` from 2.1 on."""
	if hasattr(parser, "_actions"):
		yield from parser._actions
		return
	yield from parser.option_list
	for group in parser.option_groups:
		yield from group.option_list


def leave_commands() -> None:
	"""Take back commands of ours that the project has, too."""
	classes: List[Any] = Context.classes
	for cls in [one for one in classes if one.__module__.startswith(PREFIX)]:
		is_taken = any(other.cmd == cls.cmd and not other.__module__.startswith(PREFIX) for other in classes)
		# the classes that replace those of Waf have its names, too, and are of no use here
		if cls.cmd and (is_taken or hasattr(Context.g_module, cls.cmd)):
			classes.remove(cls)
