"""All everyday commands, by kind."""

from typing import Dict, Tuple

from . import archives, compilers, files, generators, others, scripts, shells, texts
from .command import Everyday

KINDS: Dict[str, Tuple[Everyday, ...]] = {
	"shells": shells.COMMANDS,
	"texts": texts.COMMANDS,
	"archives": archives.COMMANDS,
	"compilers": compilers.COMMANDS,
	"generators": generators.COMMANDS,
	"scripts": scripts.COMMANDS,
	"files": files.COMMANDS,
	"version-control": others.VERSION_CONTROL,
	"cmake": others.CMAKE,
	"languages": others.LANGUAGES,
	"static": others.STATIC,
}
COMMANDS = {command.name: command for commands in KINDS.values() for command in commands}
KIND_OF = {command.name: kind for kind, commands in KINDS.items() for command in commands}
