"""
Why a task runs: it compares the parts of the task's signature with those of its last run.

It changes nothing of Waf's. Records are plain tuples, since there is one per task and ``history`` writes them with
``marshal``.
"""

import os
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from waflib import Build, ConfigSet, Context, Node, Task, Utils

from ..client import protocol
from ..facts import checks

MOST = 10
"""How many reasons are told; further ones are only counted."""
LONGEST = 60
"""A value with more characters is cut when it is shown."""

Environment = Dict[str, Union[str, List[str]]]
"""The values of variables as texts, by name."""


Parts = Tuple[bytes, bytes, Tuple[Tuple[str, bytes], ...], bytes, bool]
"""
The parts of a signature: the text of the rule or function, the digest under which the values of its variables are
stored, paths and digests of files, a digest of manual dependencies, and whether the engine knows which files the task
has read. If it does, they are not among these files.
"""

Record = Tuple[float, Parts, Tuple[str, ...], Tuple[int, str]]
"""A task that has run: when, the parts of its signature, the reasons, and the cache's answer (-1: not asked)."""


Kind = Tuple[int, type]
"""The number of an environment, and a class of tasks."""


class Before(NamedTuple):
	"""Waf's knowledge of a task when it decided to run it."""

	is_known: bool
	"""Waf had a signature of it."""
	is_empty: bool
	"""Waf had no signature of any task."""
	missing: str
	"""Which output did not exist or was made by another task, in words; empty if none."""


NEW = Before(False, False, "")
FORGOTTEN = Before(False, True, "")
KNOWN = Before(True, False, "")
FIRST = ("it was not built before",)
AGAIN = ("Waf had forgotten all of this build folder, as after waf clean",)


def begin(task: Task.Task) -> Before:
	"""Waf's knowledge of a task. Waf forgets its signature when it runs, so this has to be called before."""
	bld = task.generator.bld
	uid = task.uid()
	if uid not in bld.task_sigs:
		return NEW
	for node in task.outputs:
		path = node.abspath()
		if not os.path.exists(path):
			return Before(True, False, "its output %s is not there" % show(path))
		if bld.node_sigs.get(node) != uid:
			return Before(True, False, "its output %s was made by another task" % show(path))
	return KNOWN


class Recorder:
	"""Makes the records of one build context's tasks. They share the objects for files and environments."""

	def __init__(self, bld: Build.BuildContext, envs: Dict[bytes, Environment]) -> None:
		self.bld = bld
		self.envs = envs
		self.pairs: Dict[Node.Node, Tuple[str, bytes]] = {}
		self.digests: Dict[Node.Node, bytes] = getattr(bld, "cache_sig", {})
		self.codes: Dict[type, bytes] = {}
		self.numbers: Dict[Kind, Tuple[bytes, object]] = {}
		self.firsts: Dict[Kind, Tuple[Record, object]] = {}
		self.now = time.time()

	def measure(self, task: Task.Task, is_learned: bool) -> Parts:
		"""The parts of a task's signature as they are now. ``is_learned``: the engine knows which files it has read."""
		bld = self.bld
		nodes = task.dep_nodes
		if not is_learned:
			nodes = nodes + task.inputs
			if task.scan:
				nodes = nodes + bld.node_deps.get(task.uid(), [])
		files = tuple([self.pairs.get(node) or self.pair(node) for node in nodes]) if nodes else ()
		manual = self.manual(task) if bld.deps_man else protocol.EMPTY
		return self.code(task), self.environment(task), files, manual, is_learned

	def is_plain(self, task: Task.Task) -> bool:
		"""Tell whether the signature has no part of the task's own, except the files that the engine knows."""
		return not task.dep_nodes and not self.bld.deps_man

	def first(self, task: Task.Task, told: Tuple[int, str]) -> Record:
		"""The record of a plain task that was not built before, and whose files the engine knows."""
		env = find_env(task)
		known = self.firsts.get((id(env), task.__class__))
		if known is None:
			record: Record = self.now, self.measure(task, True), FIRST, told
			# keeps a reference to the environment, so that no other object gets its id
			known = self.firsts[id(env), task.__class__] = record, env
		return known[0]

	def code(self, task: Task.Task) -> bytes:
		code = self.codes.get(task.__class__)
		if code is None:
			code = task.hcode if isinstance(task.hcode, bytes) else str(task.hcode).encode("utf-8", "replace")
			self.codes[task.__class__] = code
		return code

	def pair(self, node: Node.Node) -> Tuple[str, bytes]:
		pair = self.pairs[node] = node.abspath(), self.digests.get(node, protocol.EMPTY)
		return pair

	def environment(self, task: Task.Task) -> bytes:
		"""The digest under which the values of its variables are stored."""
		env = find_env(task)
		known = self.numbers.get((id(env), task.__class__))
		if known is None:
			digest = self.bld.hash_env_vars(task.env, task.vars)
			if digest not in self.envs:
				self.envs[digest] = {name: plain(task.env[name]) for name in task.vars}
			known = self.numbers[id(env), task.__class__] = (
				digest,
				env,
			)  # a reference, so that no other object gets its id
		return known[0]

	def manual(self, task: Task.Task) -> bytes:
		found = Utils.md5()
		for node in task.inputs + task.outputs:
			for value in self.bld.deps_man.get(node, ()):
				value = value.get_bld_sig() if isinstance(value, Node.Node) else value() if callable(value) else value
				found.update(value if isinstance(value, bytes) else str(value).encode("utf-8", "replace"))
		digest: bytes = found.digest()
		return digest


def find_env(task: Task.Task) -> ConfigSet.ConfigSet:
	"""The environment that has a task's variables."""
	env = task.env
	while not env.table and hasattr(env, "parent"):
		# the environment of most tasks has no variable of its own
		env = env.parent
	return env


def plain(value: object) -> Union[str, List[str]]:
	if isinstance(value, (list, tuple)):
		return [str(item) for item in value]
	return str(value)


# ---- what is different


def explain(
	task: Task.Task,
	begun: Optional[Before],
	old: Optional[Parts],
	new: Parts,
	changed: Sequence[bytes],
	envs: Dict[bytes, Environment],
) -> Sequence[str]:
	"""The reasons why a task runs, the most important one first."""
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
	words += [checks.tell(text, show) for text in changed]
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
	"""The differences between the parts of two signatures."""
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
	"""A new dependency is told only if no file has changed, since otherwise the change has brought it."""
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
	"""Compare arguments as ``wafcc --explain`` does: two that begin alike are an old and a new value of one option."""
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


def show(path: str) -> str:
	"""A path for the user: relative to the launch folder if it is in the project."""
	top = Context.top_dir or Context.run_dir or ""
	if top and (path + os.sep).startswith(os.path.join(top, "")):
		return os.path.relpath(path, Context.launch_dir or top)
	return path
