"""
One answer of a cache at a time: the contenders of the scenario ``hit``.

The work is done by ``projects/spawn``: ``spawn.c`` runs a command again and again as a build system would, with a cache
before the compiler; ``ask.c`` asks our engine for the same over its socket, as our tools for Waf do. Both compile a
small file with twenty headers of its own, and one with the system's.
"""

import os
import shutil
import sys
from typing import TYPE_CHECKING, Dict, Iterable, List, Sequence

from .builder import HIT, Builder
from .interpreter import ROOT
from .machine import cores
from .meter import NONE_USED, Command, grown, used_by
from .mistake import Failed
from .project import C_COMPILER
from .service import Engine

if ROOT not in sys.path:
	sys.path.append(ROOT)

from waflib_extras import version
from waflib_extras.client import protocol

if TYPE_CHECKING:
	from .run import Run

PARTS = {"20 headers": "small.cpp", "800 facts": "system.cpp"}
RARELY = 25  # times fewer compiles where no cache answers
MANY = 64  # commands that are on their way at once


def measure(run: "Run", program: str, *args: str) -> Dict[str, float]:
	"""Run a program of the project that measures, and read its answer."""
	values = run.ask("hit", Command([os.path.join(run.root, program), *args], run.root, run.environment))
	values["client"] = values["user"] + values["system"]
	return values


class Single(Builder):
	"""One compile after the other, each a process of its own."""

	program = C_COMPILER
	abilities = frozenset((HIT,))

	def time_part(self, run: "Run", source: str) -> Dict[str, float]:
		"""Compile a source many times; the time of one compile, in microseconds."""
		count = self.count(run)
		os.makedirs(run.path(source))
		argv = self.argv(run, source, os.path.join(run.folder, source, "{}.o"))
		free = count // 10 + 2  # the first one fills the cache
		self.repeat(run, argv, 0, free)
		hits = run.cache.hits() if run.cache else 0
		before = {pid: used_by(pid) for pid in run.daemons()}
		values = self.repeat(run, argv, free, count)
		used = [grown(before.get(pid, NONE_USED), used_by(pid)) for pid in run.daemons()]
		if run.cache and run.cache.hits() - hits < count:
			raise Failed("only %d of %d compiles of %s were hits" % (run.cache.hits() - hits, count, source))
		if used:
			values["daemon"] = sum(1e6 * (one.user + one.system) for one in used) / count
		return values

	def count(self, run: "Run") -> int:
		wanted = run.settings["commands"]["hit"]
		return wanted if run.cache else max(wanted // RARELY, 2)

	def argv(self, run: "Run", source: str, target: str) -> List[str]:
		return [*run.wrapped, run.lane.compiler.cxx, "-c", source, "-o", target]

	def repeat(self, run: "Run", argv: List[str], first: int, count: int) -> Dict[str, float]:
		"""Run ``count`` commands one by one, with numbers in their arguments; the time of one."""
		argv = [shutil.which(argv[0]) or argv[0], *argv[1:]]
		return measure(run, "spawn", "posix_spawn", "0", str(first), "0", str(count), "0", run.answer, *argv)


class Nothing(Single):
	"""A program that does nothing, for scale."""

	note = "the program true in the place of the compiler: the least that any wrapper takes"

	def argv(self, run: "Run", source: str, target: str) -> List[str]:
		return ["true", "-c", source, "-o", target]

	def count(self, run: "Run") -> int:
		return run.settings["commands"]["hit"]


class Socket(Single):
	"""Our engine, asked over its socket, with no process for a command."""

	def __init__(self, window: int, note: str) -> None:
		self.window = window
		self.note = note

	def prepare(self, run: "Run") -> None:
		run.cache.engine.start()

	def repeat(self, run: "Run", argv: List[str], first: int, count: int) -> Dict[str, float]:
		numbers = range(first, first + count + 1)  # the first one of a connection counts for nothing
		write_frames(run.path("frames"), run.environment, run.root, argv, numbers)
		socket = socket_of(run.cache.engine)
		values = measure(run, "ask", socket, run.path("frames"), str(self.window), run.answer)
		if self.window > 1:
			del values["p99"]  # how long one waited for its answer says nothing
		return values


# ---- frames of docs/protocol.md, made before anything is measured


def socket_of(engine: Engine) -> str:
	"""The socket of an engine of this tree's version."""
	return os.path.join(engine.folder, "wafd-%s.sock" % version.VERSION)


def write_frames(
	path: str, environment: Dict[str, str], folder: str, argv: Sequence[str], numbers: Iterable[int]
) -> None:
	"""Write a greeting, and a cached command for each number, which replaces ``{}`` in the arguments."""
	session = os.urandom(protocol.SESSION_SIZE)
	cwd = os.fsencode(folder)
	pipe = protocol.PIPE
	with open(path, "wb") as f:
		f.write(protocol.encode_hello(protocol.VERSIONS, session, cores(), 0, os.getpid(), b"", b"bench.py"))
		f.write(protocol.encode_environment(0, environment))
		f.write(protocol.encode_caching(0, 0, 0, [], b"", b""))
		for number in numbers:
			words = [word.replace("{}", str(number)) for word in argv]
			command = protocol.encode_command(protocol.CACHED, protocol.NULL, pipe, pipe, 0, cwd, words)
			f.write(protocol.encode_execute(number, 0, command))
