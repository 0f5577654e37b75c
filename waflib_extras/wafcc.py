"""
Has the engine answer commands from its cache, and tell Waf what they depend on.

::

	def options(opt):
		opt.load('prefork wafcc')

Each compile is asked of the cache first, and a hit starts no process. Waf then knows from the engine which files a
task has read: it neither scans sources for them nor hashes what the engine has hashed. ``docs/waf-cache.md`` has the
details.

Other tasks join with ``cache = True`` on a task class, a task or a task generator; ``nocache = True`` on any of them,
or in ``env``, keeps out. What they run must depend on files, links, folders and variables only.

Options: ``--no-wafcc``, ``--wafcc-dir``, ``--wafcc-read-only``, ``--wafcc-recache``, ``--wafcc-base-dir``,
``--wafcc-namespace``. Where they are not given, the settings of the program ``wafcc`` hold: its variables, such as
``WAFCC_DIR``, and its files (``docs/wafcc.md``).

To troubleshoot, ``waf --zones=wafcc`` tells of each task whether it was a hit, and if not, why.
"""

import atexit
import hashlib
import os
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from waflib import Build, Logs, Options, Runner, Task, Utils
from waflib.Tools import c_preproc, ccroot

if __package__:
	from . import engine, inputs, prefork, protocol, runner
else:
	# loaded with tooldir=, which makes a module without a package of this file
	import importlib

	_folder = os.path.dirname(os.path.abspath(__file__))
	sys.path.append(os.path.dirname(_folder))
	_package = os.path.basename(_folder)
	engine = importlib.import_module(_package + ".engine")
	inputs = importlib.import_module(_package + ".inputs")
	prefork = importlib.import_module(_package + ".prefork")
	protocol = importlib.import_module(_package + ".protocol")
	runner = importlib.import_module(_package + ".runner")

SAVED = "wafcc_inputs"
"""The attribute of a build context that Waf keeps for us with its own."""
DEADLINE = 15.0
GAP = 20
KNOWN = ("uncached", "hit", "miss")
COMPILES = ("asm", "c", "cxx", "d", "fc", "gas", "gchx", "nasm", "winrc")
LOCK = threading.Lock()
OBJECTS = (".o", ".obj", ".os")
COARSE = 5 if sys.platform.startswith("linux") else None
"""On Linux, the clock by which files are stamped; Python has no name for it."""

# of Task.Task: who has replaced one of them decides by other means than we do what a task depends on
METHODS = (
	"are_implicit_nodes_ready",
	"compute_sig_implicit_deps",
	"post_run",
	"runnable_status",
	"sig_explicit_deps",
	"sig_implicit_deps",
	"signature",
	"uid",
)
OWN = frozenset((*METHODS, "scan", "sig_vars", "run", "process", "exec_command"))

OPTIONS = (
	("--no-wafcc", "WAFCC_DISABLE", None, "run compilers, and ask no cache"),
	("--wafcc-dir", "WAFCC_DIR", "FOLDER", "the folder of the cache"),
	("--wafcc-read-only", "WAFCC_READONLY", None, "add nothing to the cache"),
	("--wafcc-recache", "WAFCC_RECACHE", None, "take nothing from the cache, and replace what is in it"),
	("--wafcc-base-dir", "WAFCC_BASEDIR", "FOLDER", "paths below it may differ between two checkouts"),
	("--wafcc-namespace", "WAFCC_NAMESPACE", "NAME", "share the cache only with builds of the same name"),
)


# ---- settings


class Settings(NamedTuple):
	disable: bool
	read_only: bool
	recache: bool
	bases: Tuple[bytes, ...]
	namespace: bytes
	extra: bytes
	"""Of the files that every command depends on."""
	folder: str
	"""Of the engine that keeps the store."""
	store: bytes


def find_variables(options: Any, environ: Mapping[str, str]) -> Dict[str, str]:
	"""The environment in which the settings are what the options say."""
	variables = dict(environ)
	for _, variable, metavar, _ in OPTIONS:
		value = getattr(options, variable.lower(), None)
		if value:
			variables[variable] = os.path.abspath(value) if metavar == "FOLDER" else str(value)
	return variables


def read_settings(variables: Dict[str, str]) -> Settings:
	"""What the program ``wafcc`` says that holds; an ``EngineError`` if there is none."""
	program = os.path.join(os.path.dirname(engine.find_wafd()), "wafcc")
	command = [program, "--show-config"]
	try:
		done = subprocess.run(
			command,
			env=variables,
			stdin=subprocess.DEVNULL,
			capture_output=True,
			timeout=DEADLINE,
			check=False,
		)
	except OSError as e:
		raise engine.EngineError("%s: %s; install waflib-extras anew" % (program, e.strerror)) from None
	except subprocess.TimeoutExpired:
		raise engine.EngineError("%s does not tell its settings" % program) from None
	if done.returncode:
		# a mistake in a setting; those that are right hold
		Logs.warn("wafcc: %s", os.fsdecode(done.stderr).strip())
	return parse_settings(done.stdout)


def parse_settings(text: bytes) -> Settings:
	"""The settings of ``wafcc --show-config``."""
	values: Dict[str, str] = {}
	for line in os.fsdecode(text).split("\n"):
		name, equals, value = line.rpartition(") ")[2].partition(" = ") if line.startswith("(") else ("", "", "")
		if equals:
			values[name] = value
	if "runtime_dir" not in values:
		raise engine.EngineError("wafcc does not tell its settings: install waflib-extras anew")
	base = values.get("base_dir", "")
	return Settings(
		values.get("disable", "").lower() in YES,
		values.get("read_only", "").lower() in YES,
		values.get("recache", "").lower() in YES,
		(os.fsencode(base),) if os.path.isabs(base) else (),
		os.fsencode(values.get("namespace", "")),
		read_extra(values.get("extra_files", "")),
		values["runtime_dir"],
		os.fsencode(values.get("store", "")) if os.path.isabs(values.get("store", "")) else protocol.EMPTY,
	)


def read_extra(paths: str) -> bytes:
	"""Something that is another if one of these files is."""
	told = protocol.EMPTY
	for path in filter(None, paths.split(os.pathsep)):
		try:
			with open(path, "rb") as f:
				said = hashlib.sha256(f.read()).digest()
		except OSError as e:
			said = os.fsencode(e.strerror or str(e))
		told += b"\0%b\0%b" % (os.fsencode(path), said)
	return told


YES = frozenset(("yes", "true", "on", "1"))


def find_terminal() -> Optional[Tuple[int, int]]:
	"""Columns and rows of the terminal that messages go to with colours, if they do."""
	if not Logs.colors_lst["USE"]:
		return None
	try:
		return tuple(os.get_terminal_size(sys.stderr.fileno())) if sys.stderr.isatty() else None
	except (AttributeError, OSError, ValueError):
		return None


# ---- which tasks, and what becomes of them


class Cacher:
	"""What decides which commands are cached, and hears what came of them; one per process."""

	def __init__(self) -> None:
		self.settings: Optional[Settings] = None
		self.active = False
		self.failure = ""
		"""Why the settings are not known."""
		self.told = False
		self.kinds: Dict[type, int] = {}
		"""The flags of a task class."""
		self.counts = [0, 0, 0]
		self.solo: Any = None
		"""With -j1, the task that runs next."""

	def decide(self) -> None:
		"""Now that there are options: find out whether and how commands are to be cached."""
		self.active = False
		self.failure = ""
		engine.Chosen.forget()
		variables = find_variables(Options.options, os.environ)
		try:
			self.settings = settings = read_settings(variables)
		except engine.EngineError as e:
			self.failure = str(e)
			return
		if settings.disable:
			return
		if settings.folder != engine.runtime_folder():
			engine.Chosen.choose(settings.folder, variables)
		self.active = True

	def tell_failure(self) -> None:
		"""Once, and only if there is an engine: otherwise that is told."""
		if self.failure and not self.told:
			self.told = True
			Logs.warn("wafcc: %s (going on without the cache)", self.failure)

	def introduce(self) -> bytes:
		"""The frame that a connection begins with."""
		settings = self.settings
		if settings is None or not self.active:
			return protocol.EMPTY
		terminal = find_terminal()
		flags = protocol.READ_ONLY if settings.read_only else 0
		flags |= protocol.RECACHE if settings.recache else 0
		flags |= protocol.TERMINAL if terminal else 0
		columns, rows = terminal or (0, 0)
		namespace = settings.namespace + settings.extra
		return protocol.encode_caching(flags, columns, rows, settings.bases, namespace, settings.store)

	def find_flags(self, task: Any) -> int:
		"""How the command of this task is to be cached; once for each, when all tasks are there."""
		flags = task.__dict__.get("wafcc_flags")
		if flags is None:
			flags = task.wafcc_flags = self.find_new_flags(task)
		return flags

	def find_new_flags(self, task: Any) -> int:
		cls = task.__class__
		kind = self.kinds.get(cls)
		if kind is None:
			kind = self.kinds[cls] = find_kind(cls)
		if "cache" in task.__dict__ or "cache" in task.generator.__dict__:
			asked = task.__dict__.get("cache", task.generator.__dict__.get("cache"))
			kind |= find_joining(cls) if asked else 0
		if not kind or is_kept_out(task):
			return 0
		return kind if OWN.isdisjoint(task.__dict__) else kind & ~protocol.INPUTS

	def mark(self, task: Any, command: bytes) -> bytes:
		"""The command of this task with its flags."""
		flags = self.find_flags(task) if self.active else 0
		return bytes((command[0] | flags,)) + command[1:] if flags else command

	def hear(self, task: Any, told: Any, learned: Any = None) -> None:
		"""What the cache did for this task."""
		self.counts[told.known] += 1
		if Logs.verbose:
			Logs.debug("wafcc: %s: %s%s", task, KNOWN[told.known], told.words and ": " + told.words)
		if learned is not None:
			task.wafcc_learned = learned

	def finish(self) -> None:
		"""At exit: say for ``--zones=wafcc`` what became of the commands."""
		if Logs.verbose and Logs.log and sum(self.counts):
			uncached, hits, misses = self.counts
			Logs.debug("wafcc: %d hits, %d misses, %d uncached", hits, misses, uncached)


def find_kind(cls: Any) -> int:
	"""How commands of a task class are cached, apart from what single tasks say."""
	if getattr(cls, "cache", False):
		return find_joining(cls)
	if cls.scan is not c_preproc.scan and cls.__name__ not in COMPILES:
		return 0
	return protocol.CACHED | find_learning(cls)


def find_joining(cls: Any) -> int:
	"""The flags of a task that asked to be cached."""
	return protocol.CACHED | protocol.FACTS | find_learning(cls)


def find_learning(cls: Any) -> int:
	"""We can say what a task depends on if it runs one command, and asks nobody else."""
	if not runner.is_compiled(cls.run) or (cls.scan is not None and cls.scan is not c_preproc.scan):
		return 0
	is_usual = all(getattr(cls, name) is getattr(Task.Task, name) for name in METHODS)
	return protocol.INPUTS if is_usual else 0


def is_kept_out(task: Any) -> bool:
	generator = task.generator
	return bool(getattr(task, "nocache", False) or getattr(generator, "nocache", False) or task.env.nocache)


# ---- what stands in for methods of Waf


class Stock:
	"""Waf as it was when we came."""

	status = Task.Task.runnable_status
	post_run = Task.Task.post_run
	iterate = Build.BuildContext.get_build_iterator
	store = Build.BuildContext.store


def find_cacher() -> "Cacher":
	return Utils.prefork.cache


def find_book(bld: Any) -> "inputs.Book":
	book = bld.__dict__.get("wafcc_book")
	if book is None:
		book = bld.wafcc_book = inputs.Book(getattr(bld, SAVED, None))
		if not hasattr(bld, "cache_sig"):
			bld.cache_sig = {}
	return book


def sign(task: Any, result: bytes) -> bytes:
	"""What a task depends on, but for what its command reads; and what that made of it, for who depends on that."""
	bld = task.generator.bld
	task.m = Utils.md5(task.hcode)
	update = task.m.update
	for node in task.dep_nodes:
		update(node.get_bld_sig())
	if bld.deps_man:
		for value in find_manual(task, bld.deps_man):
			update(value)
	task.sig_vars()
	settings = find_cacher().settings
	if settings is not None and settings.extra:
		update(settings.extra)
	update(result)
	return task.m.digest()


def find_manual(task: Any, manual: Mapping[Any, Any]) -> Iterator[bytes]:
	"""The values of ``add_manual_dependency``: nodes, bytes, or functions that give bytes."""
	for node in task.inputs + task.outputs:
		for value in manual.get(node, ()):
			if hasattr(value, "get_bld_sig"):
				yield value.get_bld_sig()
			else:
				yield value() if callable(value) else value


def runnable_status(task: Any) -> int:
	"""In place of Waf's: a task of which we know what it depended on need not be scanned."""
	cacher = find_cacher()
	flags = cacher.find_flags(task)
	if not flags & protocol.INPUTS:
		if flags:
			cacher.solo = task
		return Stock.status(task)
	bld = task.generator.bld
	if bld.is_install < 0:
		return Task.SKIP_ME
	for other in task.run_after:
		if not other.hasrun:
			return Task.ASK_LATER
		if other.hasrun < Task.SKIPPED:
			return Task.CANCEL_ME
	book = find_book(bld)
	status = find_status(task, bld, book, task.uid())
	if status == Task.RUN_ME:
		task.wafcc_began = time.time_ns() if COARSE is None else time.clock_gettime_ns(COARSE)
		cacher.solo = task
	return status


def find_status(task: Any, bld: Any, book: "inputs.Book", uid: bytes) -> int:
	record = book.records.get(uid)
	if record is None:
		# it was not run yet, and may do so, unless it has to be found out for which of the generated files it must wait
		is_new = uid not in bld.task_sigs and book.is_in_order(task)
		return Task.RUN_ME if is_new and book.is_active else Stock.status(task)
	_, result, stamps = record
	holds = book.holds(record)
	if holds is None:
		return Task.ASK_LATER
	if not holds or bld.task_sigs.get(uid) != sign(task, result):
		if Logs.verbose:
			Logs.debug("wafcc: %s: %s", task, "its command is another" if holds else book.tell(record))
		return Task.RUN_ME if book.is_in_order(task) else Stock.status(task)
	for node, stamp in zip(task.outputs, stamps):
		if bld.node_sigs.get(node) != uid:
			return Task.RUN_ME
		try:
			found = os.stat(node.abspath())
		except OSError:
			return Task.RUN_ME
		if inputs.stamp(found) == stamp:
			bld.cache_sig[node] = result
	return Task.RUN_ME if task.always_run else Task.SKIP_ME


def post_run(task: Any) -> None:
	"""In place of Waf's: remember what the engine has told of a task."""
	learned = task.__dict__.pop("wafcc_learned", None)
	began = task.__dict__.pop("wafcc_began", None)
	if learned is None or not write_down(task, *learned):
		forget(task, began)


def write_down(task: Any, texts: List[bytes], told: Any) -> bool:
	"""Make a record of a task; not if it has not made what it should."""
	bld = task.generator.bld
	uid = task.uid()
	stamps = []
	result = told.result
	book = find_book(bld)
	for node in task.outputs:
		try:
			stamps.append(inputs.stamp(os.stat(node.abspath())))
		except OSError:
			return False
		bld.node_sigs[node] = uid
		bld.cache_sig[node] = result
	with LOCK:
		numbers = book.number_all(texts, told.numbers)
	book.records[uid] = (numbers, result, tuple(stamps))
	bld.task_sigs[uid] = sign(task, result)
	for table in (bld.imp_sigs, bld.node_deps, bld.raw_deps):
		if table:
			table.pop(uid, None)
	task.__dict__.pop("cache_sig", None)
	if not getattr(task, "keep_last_cmd", False):
		task.__dict__.pop("last_cmd", None)
	return True


def forget(task: Any, began: Optional[int]) -> None:
	"""Let Waf find out what a task depends on that has run; what changed meanwhile makes it run again."""
	bld = task.generator.bld
	uid = task.uid()
	book = bld.__dict__.get("wafcc_book")
	if book is not None:
		book.records.pop(uid, None)
	is_late = began is not None and "cache_sig" not in task.__dict__
	Stock.post_run(task)
	if is_late and any(has_changed(node, began) for node in task.inputs + bld.node_deps.get(uid, [])):
		bld.task_sigs.pop(uid, None)


def has_changed(node: Any, began: int) -> bool:
	try:
		return os.stat(node.abspath()).st_ctime_ns > began
	except OSError:
		return True


def get_build_iterator(bld: Any) -> Iterator[List[Any]]:
	"""In place of Waf's: have generated files made before tasks run of which nobody knows whether they read them."""
	for tasks in Stock.iterate(bld):
		if tasks:
			prepare(bld, tasks)
		yield tasks


def prepare(bld: Any, tasks: List[Any]) -> None:
	cacher = find_cacher()
	book = find_book(bld)
	book.is_active = cacher.active
	if cacher.active:
		# how many tasks Waf hands out for each that may run
		Runner.GAP = max(Runner.GAP, GAP)
	users, makers = [], []
	for task in tasks:
		if cacher.find_flags(task) & protocol.INPUTS:
			users.append(task)
			if all(node.name.endswith(OBJECTS) for node in task.outputs):
				continue
		if task.outputs:
			makers.append(task)
	book.expect(makers)
	producers = [task for task in makers if not isinstance(task, ccroot.link_task)]
	book.begin_group(tasks if producers else None, find_ancestors(producers))
	if producers:
		waiting = [task for task in users if book.is_in_order(task)]
		if waiting:
			group = Task.TaskGroup(set(producers), set(waiting))
			for task in waiting:
				task.run_after.add(group)


def find_ancestors(tasks: List[Any]) -> Set[Any]:
	"""Tasks that have to run before one of these, and these."""
	found: Set[Any] = set()
	left = list(tasks)
	while left:
		task = left.pop()
		if task not in found:
			found.add(task)
			left.extend(task.prev if isinstance(task, Task.TaskGroup) else task.run_after)
	return found


def store(bld: Any) -> None:
	"""In place of Waf's: keep our records with it."""
	book = bld.__dict__.get("wafcc_book")
	if book is not None:
		setattr(bld, SAVED, book.save())
	Stock.store(bld)


def install() -> None:
	"""Put us in Waf's place, once per process, however often and under whatever name this file is loaded."""
	prefork.install()
	place = getattr(Utils, "prefork", None)
	if place is None or place.cache is not None:
		return
	place.cache = Cacher()
	Build.SAVED_ATTRS.append(SAVED)
	Task.Task.runnable_status = runnable_status
	Task.Task.post_run = post_run
	Build.BuildContext.get_build_iterator = get_build_iterator
	Build.BuildContext.store = store
	atexit.register(place.cache.finish)
	if hasattr(Options.options, "jobs"):
		place.begin_anew()


def options(opt):
	prefork.options(opt)
	if not opt.parser.get_option("--no-wafcc"):
		group = opt.add_option_group("Cache options")
		for name, variable, metavar, text in OPTIONS:
			kind = {"metavar": metavar} if metavar else {"action": "store_true"}
			group.add_option(name, dest=variable.lower(), default=None, help=text, **kind)
	install()


def configure(conf):
	install()


def setup(bld):
	"""Called in the build when the tool was loaded in ``configure`` only."""
	install()


def build(bld):
	install()
