"""What a client of the engine sends, made before it is measured: the frames of ``docs/protocol.md`` in a file."""

import os
import sys
from typing import Dict, Iterable, Sequence

from .interpreter import ROOT
from .machine import cores
from .service import Engine

if ROOT not in sys.path:
	sys.path.append(ROOT)

from waflib_extras import version
from waflib_extras.client import protocol


def socket_of(engine: Engine) -> str:
	"""Where an engine of this tree's version listens."""
	return os.path.join(engine.folder, "wafd-%s.sock" % version.VERSION)


def write_frames(
	path: str, environment: Dict[str, str], folder: str, argv: Sequence[str], numbers: Iterable[int]
) -> None:
	"""Write a greeting and one cached command for each number, which stands in the place of ``{}`` in its arguments."""
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
