"""
The settings of the cache in a build: those of the program ``wafcc``, which Waf's options override.

It knows of Waf only how it writes to a terminal. ``docs/wafcc.md`` tells what each setting means.
"""

import hashlib
import json
import os
import subprocess
import sys
from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from waflib import Errors, Logs

from ..client import engine, protocol
from ..facts import answers

OPTIONS = (
	("--no-wafcc", "WAFCC_DISABLE", None, "run compilers, and ask no cache"),
	("--wafcc-dir", "WAFCC_DIR", "FOLDER", "the folder of the cache"),
	("--wafcc-read-only", "WAFCC_READONLY", None, "add nothing to the cache"),
	("--wafcc-recache", "WAFCC_RECACHE", None, "take nothing from the cache, and replace what is in it"),
	("--wafcc-base-dir", "WAFCC_BASEDIR", "FOLDERS", "paths below them may differ between two checkouts"),
	("--wafcc-share-checkouts", "WAFCC_SHARECHECKOUTS", None, "leave the folder of the checkout out of results"),
	("--wafcc-namespace", "WAFCC_NAMESPACE", "NAME", "share the cache only with builds of the same name"),
)
REMOTE = "WAFCC_REMOTE"
REMOTE_HELP = (
	"stores that machines share, and a cluster that compiles, for this build: an address as in the setting remote of"
	" wafcc (grpcs://HOST:PORT/NAME|execute=JOBS), or off; with execute and without -j, as many tasks run as there are"
	" processors and JOBS"
)
OFF = "off"
"""The value of ``--remote`` for no shared stores."""


class Settings(NamedTuple):
	disable: bool
	read_only: bool
	recache: bool
	share_checkouts: bool
	bases: Tuple[bytes, ...]
	namespace: bytes
	extra: bytes
	"""A digest of the files on which all commands depend."""
	folder: str
	"""The runtime folder of the engine that has the store."""
	store: bytes
	memory: str
	remote: str
	"""The shared stores, without secrets."""
	elsewhere: int
	"""How many commands may run on a cluster."""


def find_variables(options: object, environ: Mapping[str, str]) -> Dict[str, str]:
	"""The environment in which ``wafcc`` has the settings of the options."""
	variables = dict(environ)
	for _, variable, metavar, _ in OPTIONS:
		value = getattr(options, variable.lower(), None)
		if value:
			folders = str(value).split(os.pathsep) if metavar == "FOLDERS" else [str(value)]
			if metavar in ("FOLDER", "FOLDERS"):
				value = os.pathsep.join(os.path.abspath(folder) for folder in folders if folder)
			variables[variable] = str(value)
	return variables


def find_remote(options: object) -> Optional[str]:
	"""The shared stores that this build names for itself; empty for none. None if those of the engine are meant."""
	asked: Optional[str] = getattr(options, REMOTE.lower(), None)
	if asked is None:
		return None
	if not asked.strip():
		raise Errors.WafError("--remote has no address: write --remote=grpcs://HOST:PORT/NAME or --remote=off")
	return "" if asked == OFF else asked


def read_settings(variables: Dict[str, str], remote: Optional[str] = None) -> Settings:
	"""
	The settings that the program ``wafcc`` reports; an ``EngineError`` if there is no such program.

	``remote`` names shared stores in place of the setting. A mistake in it is a ``WafError``.
	"""
	if remote:
		variables = dict(variables, **{REMOTE: remote})
	program = os.path.join(os.path.dirname(engine.find_wafd()), "wafcc")
	try:
		told = answers.ask([program, "--show-config", "--json"], variables)
	except OSError as e:
		raise protocol.EngineError("%s: %s; install waflib-extras anew" % (program, e.strerror)) from None
	except subprocess.TimeoutExpired:
		raise protocol.EngineError("%s does not tell its settings" % program) from None
	if told.status and remote:
		check_remote(told.out)
	if told.status:
		# a mistake in a setting; those that are right hold
		Logs.warn("wafcc: %s", os.fsdecode(told.err).strip())
	return parse_settings(told.out)


def check_remote(text: bytes) -> None:
	"""Raise a ``WafError`` if ``wafcc --show-config --json`` reports a mistake in the variable for shared stores."""
	try:
		mistakes = json.loads(text.decode())["mistakes"]
	except (KeyError, TypeError, ValueError):
		return
	for mistake in mistakes:
		# the variable and the setting come first
		name, _, why = mistake.partition(": remote: ")
		if name == REMOTE:
			raise Errors.WafError("--remote: %s" % why)


def parse_settings(text: bytes) -> Settings:
	"""The settings of ``wafcc --show-config --json``."""
	try:
		told = json.loads(text.decode())
		values = {name: setting["value"] for name, setting in told["settings"].items()}
		places = told["places"]
		bases = values["base_dir"].split(os.pathsep)
		return Settings(
			values["disable"],
			values["read_only"],
			values["recache"],
			values["share_checkouts"],
			tuple(os.fsencode(os.path.normpath(name)) for name in bases if os.path.isabs(name)),
			os.fsencode(values["namespace"]),
			read_extra(values["extra_files"]),
			os.fsdecode(read_place(places, "runtime_dir")),
			read_place(places, "store"),
			values["memory"],
			values["remote"],
			told["elsewhere"],
		)
	except (AttributeError, KeyError, TypeError, ValueError):
		raise protocol.EngineError("wafcc does not tell its settings: install waflib-extras anew") from None


def read_place(places: Mapping[str, Optional[str]], name: str) -> bytes:
	"""The path of a place, empty if it is nowhere. One that is not UTF-8 is told by its bytes as well."""
	exact = places[name + "_bytes"]
	return bytes.fromhex(exact) if exact else os.fsencode(places[name] or "")


def read_extra(paths: str) -> bytes:
	"""A value that changes if one of these files changes."""
	told = protocol.EMPTY
	for path in filter(None, paths.split(os.pathsep)):
		try:
			with open(path, "rb") as f:
				said = hashlib.sha256(f.read()).digest()
		except OSError as e:
			said = os.fsencode(e.strerror or str(e))
		told += b"\0%b\0%b" % (os.fsencode(path), said)
	return told


def find_terminal() -> Optional[Tuple[int, int]]:
	"""Columns and rows of the terminal to which messages go with colors; zeros if they do not."""
	if not Logs.colors_lst["USE"]:
		return None
	try:
		return os.get_terminal_size(sys.stderr.fileno()) if sys.stderr.isatty() else None
	except (AttributeError, OSError, ValueError):
		return None
