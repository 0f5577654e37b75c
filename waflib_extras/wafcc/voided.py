"""
Finds the targets of a build that one reason keeps out of the cache: a date in a shared header, modules, an option …

It only counts answers of the cache. It does not import Waf.
"""

from typing import Any, Dict, List, Optional, Tuple

from ..client import protocol

UNCACHED, HIT, MISS = range(3)
LEAST = 3
"""Fewer commands are no target."""

Reason = Tuple[int, int]
"""What the cache did, and the number of the reason (``engine/src/wire/reason.rs``)."""

# reasons that say something about the options of a target, and what helps
REMEDIES: Dict[Reason, str] = {
	(UNCACHED, 3): "put no other cache before the compiler",
	(UNCACHED, 9): "build without modules",
	(UNCACHED, 15): "",
	(UNCACHED, 18): "",
	(UNCACHED, 20): "leave this option out",
	(UNCACHED, 21): "unset this variable",
	(MISS, 9): "use a compiler, plugin or wrapper that is not linked statically",
	(MISS, 12): "use a compiler, plugin or wrapper that is not linked statically",
	(MISS, 14): "set SOURCE_DATE_EPOCH, or keep __DATE__ and __TIME__ out of shared headers",
	(MISS, 15): "give the program a fixed seed, if it has an option for that",
	(MISS, 16): "give the commands an empty input",
	(MISS, 17): "",
	(MISS, 18): "",
	(MISS, 19): "",
	(MISS, 20): "",
	(MISS, 21): "leave out the option or plugin that writes this file",
	(MISS, 22): "",
	(MISS, 24): "",
	(MISS, 25): "",
	(MISS, 27): "precompile fewer headers, or do without the precompiled header",
	(MISS, 28): "",
	(MISS, 29): "",
	(MISS, 30): "",
}
USUAL = "waf --zones=wafcc says more"


class Targets:
	"""The targets of a build of which nothing is cached up to now."""

	def __init__(self) -> None:
		self.open: Dict[Any, Optional[Dict[Reason, List[str]]]] = {}
		"""By target, the words about its commands by reason; None if something of it is cached."""

	def hear(self, target: Any, told: protocol.Told) -> None:
		"""Note the cache's answer for a command of a target, which has a name."""
		reasons = self.open.setdefault(target, {})
		if reasons is None:
			return
		if told.known == HIT or (told.known == MISS and not told.unstored):
			self.open[target] = None
			return
		reason = (told.known, told.unstored if told.known == MISS else told.why)
		if reason in REMEDIES:
			words = told.unstored_words if told.known == MISS else told.words
			reasons.setdefault(reason, []).append(words)

	def describe(self) -> str:
		"""One line about the reason that keeps most commands out of the cache; empty if there is none."""
		found: Dict[Reason, List[Tuple[str, List[str]]]] = {}
		for target, reasons in self.open.items():
			if reasons is not None and len(reasons) == 1:
				((reason, words),) = reasons.items()
				if len(words) >= LEAST:
					found.setdefault(reason, []).append((str(target.name), words))
		if not found:
			return ""
		reason, targets = max(found.items(), key=lambda item: sum(len(words) for _, words in item[1]))
		targets.sort(key=lambda target: -len(target[1]))
		count = sum(len(words) for _, words in targets)
		remedy = REMEDIES[reason] or USUAL
		return "wafcc: nothing of %s is cached (%d commands): %s; %s" % (
			describe_names([name for name, _ in targets]),
			count,
			targets[0][1][0],
			remedy,
		)


def describe_names(names: List[str]) -> str:
	"""The first names, and how many more there are."""
	shown = ", ".join(names[:3])
	more = len(names) - 3
	return shown if more <= 0 else "%s and %d more target%s" % (shown, more, "" if more == 1 else "s")
