"""The line about targets of which nothing is cached."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from waflib_extras.client.protocol import Told
from waflib_extras.wafcc import voided

UNCACHED, HIT, MISS = range(3)
CLOCK = Told(0, MISS, 1, "it was not seen before", 14, "it asks for the time")
STORED = Told(0, MISS, 1, "it was not seen before")
OPTION = Told(0, UNCACHED, 20, "unsupported option -da")


def describe(**targets: Any) -> str:
	"""The line for the answers of targets, by their names."""
	found = voided.Targets()
	for name, answers in targets.items():
		target = SimpleNamespace(name=name)
		key = type("Target", (), vars(target))()  # as a task generator, it is known by its identity
		for told in answers:
			found.hear(key, told)
	return found.describe()


def test_a_target_of_which_nothing_is_cached_is_named() -> None:
	"""The line has the targets with the most common reason, the number of their commands, the reason and the remedy."""
	line = describe(app=[CLOCK] * 4, lib=[CLOCK] * 3, other=[OPTION] * 5, fine=[STORED] * 9)
	assert line == (
		"wafcc: nothing of app, lib is cached (7 commands): it asks for the time; "
		"set SOURCE_DATE_EPOCH, or keep __DATE__ and __TIME__ out of shared headers"
	)
	many = describe(**{"t%d" % number: [OPTION] * 3 for number in range(5)})
	assert re.match(r"wafcc: nothing of t0, t1, t2 and 2 more targets is cached \(15 commands\): unsupported", many)


@pytest.mark.parametrize(
	"answers",
	[
		[CLOCK] * 2,
		[CLOCK] * 5 + [STORED],
		[Told(0, HIT)] + [CLOCK] * 5,
		[CLOCK] * 3 + [OPTION] * 3,
		[Told(0, MISS, 1, "", 3, "it failed")] * 5,
		[Told(0, UNCACHED, 22, "the cache is only read")] * 5,
	],
)
def test_nothing_is_said_where_it_would_not_help(answers: Any) -> None:
	"""A few commands, something that is cached, several reasons, failures, and what the user has asked for."""
	assert describe(app=answers) == ""
