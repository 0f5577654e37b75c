"""Single patches of `large`: their purpose, the cases in which they do nothing, and difficult cases."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import time
import types
from typing import Any, List

import pytest
from conftest import on_cpython
from waflib import Build, Runner, Task, Utils

from waflib_extras.hooks import patch
from waflib_extras.large import digests, lookup, ordering, scheduling

ROOT = pathlib.Path(__file__).resolve().parent.parent
TASKS = """\
	import json
	import sys
	from waflib import Logs, Runner, Task
	def options(opt):
		opt.load("large")
	def configure(conf):
		pass
	def touch(task):
		task.generator.bld.ran.append(task.outputs[0].name)
		task.outputs[0].write("".join(node.read() for node in task.inputs))
	class toucher(Task.Task):
		run = touch
	def note(bld):
		bld.ran = []
		bld.add_post_fun(lambda bld: bld.path.make_node("ran.json").write_json(bld.ran))
"""


def ran(folder: pathlib.Path) -> List[str]:
	"""The names of the outputs of the last build."""
	return json.loads((folder / "ran.json").read_text())


def test_a_long_chain_is_built(waf: Any, project: Any) -> None:
	"""A chain with more tasks than Python allows nested calls; stock Waf fails on it."""
	wscript = """\
	def build(bld):
		note(bld)
		chain = bld(features="chain", name="chain")
	from waflib import TaskGen
	@TaskGen.feature("chain")
	def make_chain(self):
		for number in range(3000):
			task = self.create_task("toucher", None, self.bld.path.find_or_declare("f%d" % number))
			if number:
				task.set_run_after(self.tasks[-2])
	"""
	folder = project({"wscript": TASKS + wscript})
	failed = waf(folder, "configure", "build", "-j1", "--no-large=all", status=None)
	assert failed.returncode and "recursion" in (failed.stdout + failed.stderr).lower()
	waf(folder, "build", "-j2")
	assert ran(folder) == ["f%d" % number for number in range(3000)]
	waf(folder, "build", "-j2")
	assert ran(folder) == []


@on_cpython
def test_kinds_are_not_compared_with_each_other(waf: Any, project: Any) -> None:
	"""Waf compares two hundred rules without constraints 19,900 times, and our patch never does."""
	wscript = """\
	def build(bld):
		note(bld)
		bld.compared = 0
		is_before = Task.is_before
		def count(*args):
			bld.compared += 1
			return is_before(*args)
		Task.is_before = count
		for number in range(200):
			bld(rule=touch, target="f%d" % number)
		bld.add_post_fun(lambda bld: print("compared", bld.compared))
	"""
	folder = project({"wscript": TASKS + wscript})
	stock = waf(folder, "configure", "build", "--no-large=precedence").stdout
	assert "compared %d" % (200 * 199) in stock
	assert "compared 0" in waf(folder, "build").stdout


@on_cpython
def test_a_cycle_is_named(waf: Any, project: Any) -> None:
	"""The message is Waf's, wherever the cycle begins."""
	wscript = """\
	from waflib import TaskGen
	def build(bld):
		note(bld)
		bld(features="circle", name="circle")
	@TaskGen.feature("circle")
	def make_circle(self):
		for number in range(5):
			self.create_task("toucher", None, self.bld.path.find_or_declare("f%d" % number))
		for first, second in ((0, 1), (1, 2), (2, 3), (3, 1), (3, 4)):
			self.tasks[second].set_run_after(self.tasks[first])
	"""
	folder = project({"wscript": TASKS + wscript})
	for option in ("--no-large=all", "--no-large="):
		failed = waf(folder, "configure", "build", option, status=None)
		text = failed.stdout + failed.stderr
		assert failed.returncode and "Task dependency cycle" in text
		assert all("-> f%d}" % number in text for number in (1, 2, 3)) and "-> f0}" not in text


def test_a_task_that_ends_its_thread(waf: Any, project: Any) -> None:
	"""The others are still run, and the build ends."""
	wscript = """\
	def leave(task):
		touch(task)
		sys.exit(1)
	def build(bld):
		note(bld)
		for number in range(20):
			bld(rule=leave if number % 2 else touch, target="f%d" % number, name="r%d" % number)
	"""
	folder = project({"wscript": TASKS + wscript})
	waf(folder, "configure", "build", "-j3", "-k", status=None)
	assert len(list((folder / "build").glob("f*"))) == 20


def test_what_is_not_waf_s_own_is_left_alone(waf: Any, project: Any) -> None:
	"""A function that other code has replaced stays, and patches that need ours are left out."""
	wscript = """\
	def build(bld):
		note(bld)
		bld(rule=touch, target="f")
	def mine(self, task):
		print("mine")
		stock(self, task)
	stock, Runner.Parallel.mark_finished = Runner.Parallel.mark_finished, mine
	"""
	folder = project({"wscript": TASKS + wscript})
	done = waf(folder, "configure", "build", "--zones=large")
	text = done.stdout + done.stderr
	assert "finished is left out: Runner.Parallel.mark_finished is not one that we know" in text
	assert "more is left out: it needs finished" in text
	assert "in place: precedence files recursion heap threads" in text
	assert "mine" in done.stdout


@on_cpython
def test_it_may_be_loaded_in_configure_only(waf: Any, project: Any) -> None:
	"""The patches are in place when the build reads its configuration."""
	wscript = TASKS.replace('\tdef options(opt):\n\t\topt.load("large")\n', "").replace("pass", 'conf.load("large")')
	files = {
		"wscript": wscript + '\tdef build(bld):\n\t\tnote(bld)\n\t\tbld(rule=touch, source="s", target="f")\n',
		"s": "",
	}
	folder = project(files)
	waf(folder, "configure")
	done = waf(folder, "build", "--zones=large")
	assert "in place: precedence" in done.stdout + done.stderr
	assert ran(folder) == ["f"]
	waf(folder, "build")
	assert ran(folder) == []


@on_cpython
def test_many_tasks_that_write_one_file(waf: Any, project: Any) -> None:
	"""As in Waf's playground/compress, all tasks run each time, and readers of the file wait for all of them."""
	wscript = """\
	import threading
	lock = threading.Lock()
	def add(task):
		with lock:
			task.outputs[0].write("x", "a")
			task.generator.bld.ran.append("add")
	def build(bld):
		note(bld)
		archive = bld.bldnode.make_node("archive")
		for _ in range(300):
			bld(rule=add, target=archive, always=True)
		bld(rule=touch, source=archive, target="summary", always=True)
	"""
	folder = project({"wscript": TASKS + wscript})
	for option, times in (("--no-large=all", 1), ("", 2), ("--no-large=all", 3)):
		waf(folder, *(["configure"] if times == 1 else []), "build", "-j3", *([option] if option else []))
		assert ran(folder) == ["add"] * 300 + ["summary"]
		assert (folder / "build" / "summary").read_text() == "x" * 300 * times


@on_cpython
def test_the_playground_works(waf: Any, tmp_path: pathlib.Path) -> None:
	"""A chain that is too long for Waf packs all files, in their order, and each of them once."""
	folder = pathlib.Path(shutil.copytree(ROOT / "playground" / "large", tmp_path / "playground"))
	waf(folder, "configure", "build", "--files=700")
	packed = (folder / "build" / "all.txt").read_text()
	assert packed == "".join("text of %d.txt\n" % number for number in range(700))
	assert "[" not in waf(folder, "build", "--files=700").stdout


@on_cpython
def test_names_of_patches(waf: Any, project: Any) -> None:
	"""The patches are listed, and an unknown name is an error that names it."""
	folder = project({"wscript": TASKS + "\tdef build(bld):\n\t\tnote(bld)\n"})
	listed = waf(folder, "large", "--no-large=heap,names")
	text = listed.stdout + listed.stderr
	assert "\nrecursion " in text
	assert text.count("left out: --no-large") == 2
	waf(folder, "configure")
	failed = waf(folder, "build", "--no-large=heaps", status=None)
	assert "there is no patch heaps: waf large lists them" in failed.stdout + failed.stderr


def test_every_function_is_known() -> None:
	"""All patches fit the Waf of this environment."""
	for cls in scheduling.Finished, scheduling.More, scheduling.Heap, scheduling.Threads, ordering.Recursion:
		assert cls().obstacle(patch.Sources()) == ""


def test_sources_are_told_apart() -> None:
	"""Comments, docstrings and blanks make no difference; any other character does."""
	with_words = 'def f(a):\n\t"""\n\tText.\n\t"""\n\t# why\n\treturn a < 1 # so\n'
	assert patch.digest_of(with_words) == patch.digest_of("def f(a):\n\treturn a<1\n")
	assert patch.digest_of(with_words) != patch.digest_of("def f(a):\n\treturn a<=1\n")
	lines = "class A:\n\tdef f(self):\n\t\tif 1:\n\n\t\t\tpass\n\tdef g(self):\n\t\tpass".splitlines()
	assert patch.block(lines, 1).splitlines() == lines[1:5]


# ---- what is there


@pytest.fixture
def sources(project: Any) -> pathlib.Path:
	"""A project that copies twenty files."""
	wscript = """\
	def build(bld):
		note(bld)
		for number in range(20):
			bld(rule=touch, source="s%d" % number, target="f%d" % number)
	"""
	files = {"s%d" % number: "text %d\n" % number for number in range(20)}
	return project(dict(files, wscript=TASKS + wscript))


@on_cpython
def test_outputs_that_went_are_made_anew(waf: Any, sources: pathlib.Path) -> None:
	"""A removed output is made again, and so is one that has become a broken link."""
	waf(sources, "configure", "build")
	assert len(ran(sources)) == 20
	(sources / "build" / "f7").unlink()
	(sources / "build" / "f15").unlink()
	(sources / "build" / "f15").symlink_to("nowhere")
	waf(sources, "build")
	assert sorted(ran(sources)) == ["f15", "f7"]
	waf(sources, "build")
	assert ran(sources) == []


@on_cpython
def test_edits_that_hide_are_seen(waf: Any, sources: pathlib.Path) -> None:
	"""Edits with the same size and the same time of modification are seen."""
	waf(sources, "configure", "build")
	source = sources / "s3"
	before = source.stat()
	source.write_text("TEXT 3\n")
	os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
	waf(sources, "build")
	assert ran(sources) == ["f3"]


@on_cpython
def test_files_that_did_not_change_are_not_read(waf: Any, sources: pathlib.Path) -> None:
	"""If no file has changed, none is read; without the patch, all are."""
	probe = """
from waflib import Utils
def count(path, *args):
	if path.endswith(".txt"):
		print("read", path)
	return open(path, *args)
Utils.open = count
"""
	wscript = sources / "wscript"
	wscript.write_text(wscript.read_text().replace('"s%d"', '"s%d.txt"') + probe)
	for number in range(20):
		(sources / ("s%d" % number)).rename(sources / ("s%d.txt" % number))
	assert waf(sources, "configure", "build").stdout.count("read ") >= 20
	assert waf(sources, "build").stdout.count("read ") == 0
	assert waf(sources, "build", "--no-large=digests").stdout.count("read ") == 20
	(sources / "s5.txt").write_text("other")
	assert 1 <= waf(sources, "build").stdout.count("read ") <= 2
	assert ran(sources) == ["f5"]


class Place(types.SimpleNamespace):
	"""A node, as far as a memory of digests uses it: as a key."""

	__hash__ = object.__hash__


def test_an_edit_within_a_tick_of_the_clock_is_seen(tmp_path: pathlib.Path) -> None:
	"""A change is seen however soon after the read it comes."""
	path, node = tmp_path / "file", Place()
	with contextlib.closing(digests.Memory(str(tmp_path), "md5", {})) as memory:
		for number in range(300):
			text = b"%03d" % number
			path.write_bytes(text)
			assert memory.digest(node, str(path)) == Utils.md5(text).digest()


def test_digests_are_remembered(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A digest is remembered if the file is older than the file system's clock, and for one kind of digest only."""
	path, node = tmp_path / "file", Place()
	path.write_bytes(b"text")
	deadline = time.monotonic() + 30
	with contextlib.closing(digests.Memory(str(tmp_path), "md5", {})) as memory:
		while not memory.files and time.monotonic() < deadline:
			digest = memory.digest(node, str(path))
		monkeypatch.setattr(Utils, "h_file", lambda path: b"read")
		assert memory.digest(node, str(path)) == digest
		path.write_bytes(b"TEXT")
		assert memory.digest(node, str(path)) == b"read"
		for kind, files in (("md5", memory.files), ("sha1", {})):
			with contextlib.closing(digests.Memory(str(tmp_path), kind, memory.saved)) as other:
				assert other.files == files


# ---- against Waf's own, one by one


class Named:
	"""A generator with a name."""

	def __init__(self, name: str) -> None:
		self.name = name


def draw_anew() -> random.Random:
	"""Random numbers; a failing test shows the seed."""
	seed = random.SystemRandom().randrange(1 << 30)
	print("seed", seed)
	return random.Random(seed)


@pytest.mark.parametrize("turn", range(5))
def test_names_are_found_as_by_waf(turn: int) -> None:
	"""Generators are added to any group, renamed, replaced and removed meanwhile."""
	draw = draw_anew()
	groups: List[List[Any]] = [[], []]
	stock = types.SimpleNamespace(groups=groups, task_gen_cache_names={})
	ours = types.SimpleNamespace(groups=groups, task_gen_cache_names={})
	find = Build.BuildContext.get_tgen_by_name
	for _ in range(600):
		group = draw.choice(groups)
		action = draw.random()
		if action < 0.4:
			group.append(Named("n%d" % draw.randrange(40)))
		elif action < 0.5 and group:
			draw.choice(group).name = "n%d" % draw.randrange(40)
			ours.__dict__.pop("large_index", None)  # as set_name does it
		elif action < 0.55 and group:
			group.pop()
		elif action < 0.57:
			groups.append([])
		if action < 0.57:
			stock.task_gen_cache_names = {}
			ours.task_gen_cache_names = {}
		name = "n%d" % draw.randrange(40)
		assert ask(find, stock, name) is ask(lookup.get_tgen_by_name, ours, name)


def ask(find: Any, bld: Any, name: str) -> Any:
	try:
		return find(bld, name)
	except Exception as e:
		assert "Could not find" in str(e)
		return None


def make_task(weight: int, index: int, cls: Any = None) -> Any:
	generator = types.SimpleNamespace(tg_idx_count=index)
	task = (cls or type("heaped", (Task.Task,), {"register": {}}))(env=None, generator=generator)
	task.weight = weight
	return task


@pytest.mark.parametrize("turn", range(5))
def test_tasks_come_in_the_same_order(turn: int) -> None:
	"""The order is that of Waf's heap, except among equal priorities; also with a task that compares in its own way."""
	draw = draw_anew()
	plain = type("plain", (Task.Task,), {"register": {}})
	own = type("own", (Task.Task,), {"register": {}, "priority": lambda self: (self.weight, 0)})
	stock = Runner.PriorityTasks()
	ours = scheduling.make_heap(Runner.PriorityTasks, Task.Task.priority, Task.Task.__lt__)()
	for turn in range(400):
		cls = own if turn > 300 and draw.random() < 0.1 else plain
		if draw.random() < 0.1:
			tasks = [make_task(draw.randrange(5), draw.randrange(5), cls) for _ in range(draw.randrange(20))]
			stock.extend(list(tasks))
			ours.extend(list(tasks))
		elif draw.random() < 0.5:
			task = make_task(draw.randrange(5), draw.randrange(5), cls)
			stock.append(task)
			ours.append(task)
		elif stock:
			assert stock.pop().priority() == ours.pop().priority()
		assert len(stock) == len(ours)
		assert bool(stock) == bool(ours)
	while stock:
		assert stock.pop().priority() == ours.pop().priority()
	with pytest.raises(IndexError):
		ours.pop()


def test_what_came_first_goes_first() -> None:
	"""The order among equal priorities."""
	ours = scheduling.make_heap(Runner.PriorityTasks, Task.Task.priority, Task.Task.__lt__)()
	cls = type("equal", (Task.Task,), {"register": {}})
	tasks = [make_task(0, 0, cls) for _ in range(30)]
	ours.extend(tasks[:10])
	for task in tasks[10:]:
		ours.append(task)
	assert list(ours) == tasks
	assert [ours.pop() for _ in tasks] == tasks


def test_a_task_that_waits_for_many_is_looked_at_once_for_each() -> None:
	"""A task with n dependencies that end in their order: Waf looks at them n²/2 times."""

	class Counted:
		looks = 0
		done = False

		@property
		def hasrun(self) -> int:
			Counted.looks += 1
			return Task.SUCCESS if self.done else Task.NOT_RUN

	count = 500
	cls = type("patient", (Task.Task,), {"register": {}})
	last = make_task(0, 0, cls)
	firsts = [Counted() for _ in range(count)]
	last.run_after = dict.fromkeys(firsts).keys()  # in their order, as PyPy has sets
	master = types.SimpleNamespace(
		revdeps=Utils.defaultdict(set), incomplete={last}, outstanding=[], ready=None, add_task=None
	)
	for first in firsts:
		master.revdeps[first].add(last)
	for first in firsts:
		assert not master.outstanding
		first.done = True
		scheduling.mark_finished(master, first)
	assert master.outstanding == [last]
	assert Counted.looks < 5 * count
