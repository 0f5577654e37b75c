"""Chooses the patches that fit this Waf, and tells of them."""

from typing import Dict, Iterable, List, Optional, Sequence, Tuple, Type

from waflib import Build, Context, Errors, Logs, Options

from ..hooks import entry, lifecycle, patch
from . import database, digests, lookup, ordering, scheduling

PATCHES: Tuple[Type[patch.Patch], ...] = (
	ordering.Precedence,
	ordering.Files,
	ordering.Recursion,
	scheduling.Finished,
	scheduling.More,
	scheduling.Heap,
	scheduling.Threads,
	scheduling.Messages,
	lookup.Names,
	lookup.Rules,
	digests.Folders,
	digests.Outputs,
	# replaces the function that the two below wrap
	database.Database,
	digests.Digests,
	database.Collected,
)


class Large:
	"""The patches of this process."""

	def __init__(self) -> None:
		self.patches: Optional[List[patch.Patch]] = None
		"""Those in place. It is None until the first build begins, since only then are the options known."""

	def begin(self, bld: Build.BuildContext) -> None:
		if self.patches is None:
			self.patches = []
			chosen, reasons = choose(unwanted())
			for name, reason in reasons.items():
				Logs.debug("large: %s is left out: %s", name, reason)
			for one in chosen:
				one.install()
				self.patches.append(one)
			Logs.debug("large: in place: %s", " ".join(one.name for one in chosen))
			if is_strange(chosen, reasons):
				Logs.warn("large: does nothing with this copy of Waf, whose code it does not know (see: waf large)")
		for one in self.patches:
			one.begin(bld)

	def end(self, bld: Build.BuildContext, outcome: str) -> None:
		for one in reversed(self.patches or ()):
			one.end(bld)


def choose(without: Iterable[str]) -> Tuple[List[patch.Patch], Dict[str, str]]:
	"""The patches that fit this Waf, and for each other one, by its name, why it does not fit."""
	chosen: List[patch.Patch] = []
	reasons: Dict[str, str] = {}
	sources = patch.Sources()
	for one in [cls() for cls in PATCHES]:
		missing = [name for name in one.needs if name in reasons]
		if one.name in without:
			reason = "--no-large"
		elif missing:
			reason = "it needs %s" % missing[0]
		else:
			reason = one.obstacle(sources)
		if reason:
			reasons[one.name] = reason
		else:
			chosen.append(one)
	return chosen, reasons


def is_strange(chosen: Sequence[patch.Patch], reasons: Dict[str, str]) -> bool:
	"""Tell whether no patch that replaces code of Waf fits, though the user has not left them all out."""
	fits = any(one.known for one in chosen)
	return not fits and any(reasons.get(cls.name) not in (None, "--no-large") for cls in PATCHES if cls.known)


def unwanted() -> List[str]:
	"""The names of the patches that the option leaves out."""
	known = [cls.name for cls in PATCHES]
	wanted = [name for name in (getattr(Options.options, "no_large", None) or "").split(",") if name]
	for name in wanted:
		if name not in known and name != "all":
			raise Errors.WafError(
				"--no-large=%s: there is no patch %s: waf large lists them" % (",".join(wanted), name)
			)
	return known if "all" in wanted else wanted


class LargeContext(Context.Context):
	"""lists the patches for large builds"""

	cmd = "large"

	def execute(self) -> None:
		_, reasons = choose(unwanted())
		for cls in PATCHES:
			reason = " (left out: %s)" % reasons[cls.name] if cls.name in reasons else ""
			Logs.info("%-11s %s%s", cls.name, cls.topic, reason)


def install() -> None:
	"""Have the patches put in place when a build begins."""
	lifecycle.find().join("large", Large)


def add_options(opt: Options.OptionsContext) -> None:
	group = opt.add_option_group("Options for large builds")
	group.add_option(
		"--no-large",
		default="",
		metavar="NAME,...",
		help="leave out patches of Waf for large builds, or all; the command large lists them",
	)


options, configure = entry.make_entries("--no-large", add_options, install)


def build(bld: Build.BuildContext) -> None:
	large = lifecycle.find().join("large", Large)
	if large.patches is None:
		large.begin(bld)  # the wscript has loaded the tool after this build had begun


setup = build
