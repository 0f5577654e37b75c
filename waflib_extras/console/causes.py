"""
What made a task run: what its signature was made of when it ran last, held against what it is made of now.

Pure but for asking Waf's objects. Records are plain tuples: there are as many as tasks, and ``past`` writes them.
"""

import os
import time
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from waflib import Context, Node, Utils

from ..client import protocol
from ..facts import checks

if TYPE_CHECKING:
	from waflib.Build import BuildContext
	from waflib.ConfigSet import ConfigSet
	from waflib.Task import Task

MOST = 10
"""Reasons are told; of more there is the number."""
LONGEST = 60
"""Characters of a value that is shown whole."""

Environment = Dict[str, Union[str, List[str]]]
"""The values of variables, as texts."""


Parts = Tuple[bytes, bytes, Tuple[Tuple[str, bytes], ...], bytes, bool]
"""
Of a signature: the text of the rule or function, what the values of its variables are kept under, paths and digests of
files, a digest of what was added by hand, whether the engine knows what it read, so that the files are none of those.
"""

Record = Tuple[float, Parts, Tuple[str, ...], Tuple[int, str]]
"""Of a task that has run: when, its parts, why it ran, and what the cache said; -1 if it was not asked."""


Kind = Tuple[int, type]
"""The number of an environment, and a class of tasks."""


class Begun(NamedTuple):
	"""What there was when it was decided to run a task."""

	is_known: bool
	"""Waf has a signature of it."""
	is_empty: bool
	"""Waf had none of any task."""
	missing: str
	"""An output that is not there, or of another task, in words."""


NEW = Begun(False, False, "")
FORGOTTEN = Begun(False, True, "")
KNOWN = Begun(True, False, "")
FIRST = ("it was not built before",)
AGAIN = ("Waf had forgotten all of this build folder, as after waf clean",)


def begin(task: "Task") -> Begun:
	"""To be called before the task runs, which makes Waf forget its signature."""
	bld = task.generator.bld
	uid = task.uid()
	if uid not in bld.task_sigs:
		return NEW
	for node in task.outputs:
		path = node.abspath()
		if not os.path.exists(path):
			return Begun(True, False, "its output %s is not there" % show(path))
		if bld.node_sigs.get(node) != uid:
			return Begun(True, False, "its output %s was made by another task" % show(path))
	return KNOWN


class Recorder:
	"""Makes records of tasks of one build context; files and environments are the same objects for all of them."""

	def __init__(self, bld: "BuildContext", envs: Dict[bytes, Environment]) -> None:
		self.bld = bld
		self.envs = envs
		self.pairs: Dict[Node.Node, Tuple[str, bytes]] = {}
		self.digests: Dict[Node.Node, bytes] = getattr(bld, "cache_sig", {})
		self.codes: Dict[type, bytes] = {}
		self.numbers: Dict[Kind, Tuple[bytes, object]] = {}
		self.firsts: Dict[Kind, Tuple[Record, object]] = {}
		self.now = time.time()

	def measure(self, task: "Task", is_learned: bool) -> Parts:
		"""What the signature of a task is made of now; what it has ``learned`` is compared by who has told it."""
		bld = self.bld
		nodes = task.dep_nodes
		if not is_learned:
			nodes = nodes + task.inputs
			if task.scan:
				nodes = nodes + bld.node_deps.get(task.uid(), [])
		files = tuple([self.pairs.get(node) or self.pair(node) for node in nodes]) if nodes else ()
		manual = self.manual(task) if bld.deps_man else protocol.EMPTY
		return self.code(task), self.environment(task), files, manual, is_learned

	def is_plain(self, task: "Task") -> bool:
		"""Nothing of its own is in its signature but what the engine knows."""
		return not task.dep_nodes and not self.bld.deps_man

	def first(self, task: "Task", told: Tuple[int, str]) -> Record:
		"""The record of a plain task that was not built before, and of which the engine knows what it read."""
		env = find_env(task)
		known = self.firsts.get((id(env), task.__class__))
		if known is None:
			record: Record = self.now, self.measure(task, True), FIRST, told
			# with the environment, so that its number stays its own
			known = self.firsts[id(env), task.__class__] = record, env
		return known[0]

	def code(self, task: "Task") -> bytes:
		code = self.codes.get(task.__class__)
		if code is None:
			code = task.hcode if isinstance(task.hcode, bytes) else str(task.hcode).encode("utf-8", "replace")
			self.codes[task.__class__] = code
		return code

	def pair(self, node: Node.Node) -> Tuple[str, bytes]:
		pair = self.pairs[node] = node.abspath(), self.digests.get(node, protocol.EMPTY)
		return pair

	def environment(self, task: "Task") -> bytes:
		"""The number of the values of its variables."""
		env = find_env(task)
		# this keeps them, so that their numbers stay their own
		key = env, task.__class__
		known = self.numbers.get((id(env), task.__class__))
		if known is None:
			digest = self.bld.hash_env_vars(task.env, task.vars)
			if digest not in self.envs:
				self.envs[digest] = {name: plain(task.env[name]) for name in task.vars}
			known = self.numbers[id(env), task.__class__] = digest, key
		return known[0]

	def manual(self, task: "Task") -> bytes:
		found = Utils.md5()
		for node in task.inputs + task.outputs:
			for value in self.bld.deps_man.get(node, ()):
				value = value.get_bld_sig() if isinstance(value, Node.Node) else value() if callable(value) else value
				found.update(value if isinstance(value, bytes) else str(value).encode("utf-8", "replace"))
		digest: bytes = found.digest()
		return digest


def find_env(task: "Task") -> "ConfigSet":
	"""The environment that a task's values come from."""
	env = task.env
	while not env.table and hasattr(env, "parent"):
		# as most tasks have it: with no variable of its own
		env = env.parent
	return env


def plain(value: object) -> Union[str, List[str]]:
	if isinstance(value, (list, tuple)):
		return [str(item) for item in value]
	return str(value)


# ---- what is different


def explain(
	task: "Task",
	begun: Optional[Begun],
	old: Optional[Parts],
	new: Parts,
	changed: Sequence[bytes],
	envs: Dict[bytes, Environment],
) -> Sequence[str]:
	"""Why a task runs, the first reason first."""
	words: List[str] = []
	if begun is not None and not begun.is_known:
		if old is None:
			return FIRST
		if begun.is_empty:
			if old == new:
				return AGAIN
			words += AGAIN
		else:
			words.append("it was not built to its end the last time")
	elif begun is not None and begun.missing:
		words.append(begun.missing)
	words += [tell_input(text) for text in changed]
	if old is not None and old != new:
		words += compare(old, new, envs)
	if task.always_run:
		words.append("it is always run")
	if not words:
		if begun is None:
			return []
		if old is None or old[-1] != new[-1]:
			return ["something that its signature is made of has changed; what, is kept from now on"]
		return ["something has changed that its class adds to its signature"]
	if len(words) > MOST:
		words[MOST:] = ["and %d more" % (len(words) - MOST)]
	return words


def compare(old: Parts, new: Parts, envs: Dict[bytes, Environment]) -> List[str]:
	"""In what two signatures differ."""
	words: List[str] = []
	(code, env, files, manual, was_learned), (new_code, new_env, new_files, new_manual, is_learned) = old, new
	if code != new_code:
		words.append(compare_rules(code, new_code))
	if env != new_env:
		words += compare_environments(envs.get(env, {}), envs.get(new_env, {}))
	if files != new_files and was_learned == is_learned:
		words += compare_files(dict(files), dict(new_files))
	if manual != new_manual:
		words.append("what add_manual_dependency has added has changed")
	return words


def compare_rules(old: bytes, new: bytes) -> str:
	one, other = (code.decode("utf-8", "replace") for code in (old, new))
	if max(len(one), len(other)) <= 2 * LONGEST and one.isprintable() and other.isprintable():
		return "its rule is %s, was %s" % (other, one)
	return "its rule has changed"


def compare_files(old: Dict[str, bytes], new: Dict[str, bytes]) -> List[str]:
	"""A file that is new among them follows from one that has changed, unless none has."""
	changed = ["%s has changed" % show(path) for path in new if path in old and old[path] != new[path]]
	if changed:
		return changed
	return ["it depends on %s now" % show(path) for path in new if path not in old] + [
		"it does not depend on %s any more" % show(path) for path in old if path not in new
	]


def compare_environments(old: Environment, new: Environment) -> List[str]:
	words: List[str] = []
	for name in sorted({*old, *new}):
		before, now = old.get(name, []), new.get(name, [])
		if before == now:
			continue
		if isinstance(before, str) or isinstance(now, str):
			words.append("%s is %s, was %s" % (name, shorten(now), shorten(before)))
		else:
			words += ["%s: %s" % (name, word) for word in compare_words(before, now)]
	return words


def compare_words(before: Sequence[str], now: Sequence[str]) -> List[str]:
	"""As ``wafcc --explain`` says it of arguments: those that begin alike say the same thing differently."""
	gone = list(before)
	new = []
	for word in now:
		if word in gone:
			gone.remove(word)
		else:
			new.append(word)
	words = []
	for word in new:
		akin = next((other for other in gone if other[:2] == word[:2]), None)
		if akin is None:
			words.append("%s is new" % word)
		else:
			gone.remove(akin)
			words.append("%s, was %s" % (word, akin))
	words += ["%s is gone" % word for word in gone]
	return words or ["its words are in another order"]


def shorten(value: Union[str, List[str]]) -> str:
	text = " ".join(value) if isinstance(value, list) else str(value)
	text = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
	return text or "empty"


def tell_input(text: bytes) -> str:
	"""What has become of an input that the engine has told."""
	return checks.tell(text, show)


def show(path: str) -> str:
	"""A path as people here call it."""
	top = Context.top_dir or Context.run_dir or ""
	if top and (path + os.sep).startswith(os.path.join(top, "")):
		return os.path.relpath(path, Context.launch_dir or top)
	return path
