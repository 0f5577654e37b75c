"""All kinds of faults, and which of them a trial has."""

import random
from typing import Dict, List, Sequence, Type

from hunt import Mistake

from . import circumstances, disks, files, signals
from .builders import Builder
from .fault import Fault

KINDS: Dict[str, Type[Fault]] = {
	kind.name: kind for kind in (*signals.KINDS, *disks.KINDS, *files.KINDS, *circumstances.KINDS)
}


def find_kinds(names: Sequence[str], is_root: bool) -> List[str]:
	"""The kinds with these names or beginnings of names; without names, all that are possible here."""
	chosen = []
	for name in names:
		found = [kind for kind in KINDS if kind == name] or [kind for kind in KINDS if kind.startswith(name)]
		if not found:
			raise Mistake("no kind of fault %s: --list shows them" % name)
		chosen += [kind for kind in found if kind not in chosen]
	can = [kind for kind in chosen or KINDS if is_root or not KINDS[kind].needs_root]
	if not can:
		raise Mistake("only root can make faults of the kind %s" % ", ".join(chosen))
	return can


def choose_faults(rng: random.Random, kinds: Sequence[str], builder: Builder, is_python_for_all: bool) -> List[Fault]:
	"""One to three that do not exclude each other."""
	able = [KINDS[name] for name in kinds if builder.system in KINDS[name].systems]
	if builder.system == "waf" and not is_python_for_all:
		able = [kind for kind in able if kind.group != "user"]
	chosen: List[Fault] = []
	for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
		taken = {one.group for one in chosen if one.group} | {one.name for one in chosen}
		left = [kind for kind in able if kind.group not in taken and kind.name not in taken]
		if left:
			chosen.append(rng.choice(left)(random.Random(rng.random())))
	return chosen
