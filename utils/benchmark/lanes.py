"""Lanes: contenders with their compilers and interpreters, and the versions of all of these."""

import argparse
from typing import Collection, Dict, Iterable, List, Optional, Sequence, Tuple, Type

from .compiler import Compiler, find_compiler
from .contender import Contender
from .interpreter import Interpreter, find_interpreter, labels_of
from .machine import version_of
from .mistake import Mistake
from .run import Lane
from .served import Served
from .servers import Server
from .service import find_engine


def sort_out(
	reasons: Iterable[Tuple[Contender, Optional[str]]], asked: Collection[str]
) -> Tuple[List[Contender], List[Tuple[str, str]]]:
	"""The contenders that take part, and those that were not named and cannot, each with the reason."""
	chosen, left_out = [], []
	for one, reason in reasons:
		if not reason:
			chosen.append(one)
		elif one.name in asked:
			raise Mistake("contender %s cannot take part: %s" % (one.name, reason))
		else:
			left_out.append((one.name, reason))
	return chosen, left_out


def lanes_of(
	options: argparse.Namespace,
	contenders: Sequence[Contender],
	languages: Collection[str],
	folder: str,
	environment: Dict[str, str],
) -> List[Lane]:
	"""All combinations; an interpreter or a compiler is looked for only where one is needed."""
	compilers: List[Optional[Compiler]] = [None]
	if languages:
		compilers = [find_compiler(name, languages) for name in options.compilers]
	interpreters: List[Interpreter] = []
	if any(one.builder.runs_python for one in contenders):
		labels = labels_of(options.interpreters)
		for name, label in zip(options.interpreters, labels):
			interpreters.append(find_interpreter(name, label, folder, environment))
	return [
		Lane(one, compiler, interpreter)
		for compiler in compilers
		for one in contenders
		for interpreter in (interpreters if one.builder.runs_python else [None])
	]


def versions_of(lanes: Iterable[Lane]) -> Dict[str, str]:
	versions = {}
	for lane in dict.fromkeys(lanes):
		if lane.interpreter:
			versions[lane.interpreter.name] = "%s, Waf %s" % (lane.interpreter.version, lane.interpreter.waf)
		elif lane.contender.builder.program:
			versions[lane.contender.builder.program] = version_of(lane.contender.builder.program, "--version")
		if lane.compiler:
			versions[lane.compiler.name] = lane.compiler.version
		if lane.contender.cache:
			cache = lane.contender.cache
			if cache.program:  # Waf's own has none
				versions[cache.program] = version_of(cache.find() or cache.program, "--version")
		server = server_of(lane.contender)
		if server:
			versions[server.program] = version_of(server.find() or server.program, server.tells_version)
		if lane.contender.builder.needs_engine:
			versions["wafd"] = version_of(find_engine() or "wafd", "--version")
		if lane.contender.programs:
			versions[lane.contender.programs] = version_of(find_engine(lane.contender.programs) or "wafd", "--version")
	return versions


def server_of(one: Contender) -> Optional[Type[Server]]:
	if isinstance(one.builder, Served):
		return one.builder.server
	return one.cache.server if one.cache else None
