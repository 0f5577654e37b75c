"""Random graphs of tasks, built by stock Waf and with the patches of `large`, and the results of both."""

import json
import pathlib
from typing import Any, Dict, Iterable, List, Sequence

Graph = Dict[str, Any]

WSCRIPT = '''\
import json
import os
import random
import threading

from waflib import Build, Context, Errors, Task, TaskGen

SEEDS = [int(seed) for seed in os.environ["SEEDS"].split()]
LOCK = threading.Lock()
# Waf 2.0.12 fails on a task that is skipped and did not get its semaphore
KINDS = ("kind%da", "kind%db", "kind%da", "limited" if Context.HEXVERSION > 0x2000C00 else "kind%db")


def options(opt):
	opt.load(os.environ.get("TOOLS", "").split())


def configure(conf):
	pass


def name_of(task):
	return "%s %s" % (task.__class__.__name__, " ".join(node.name for node in task.outputs))


def write(task):
	"""What all of them do: their inputs, and their own name."""
	bld = task.generator.bld
	with LOCK:
		bld.events.append(("begin", name_of(task)))
	text = "".join(node.read() for node in task.inputs)
	bad = bld.keep and name_of(task) in bld.bad
	if not bad:
		for node in task.outputs:
			node.write("%s(%s)" % (node.name, text))
	with LOCK:
		bld.events.append(("end", name_of(task)))
	return 1 if bad else 0


class writer(Task.Task):
	run = write


class maker(Task.Task):
	"""Makes more tasks, for which one waits that waited for it."""

	def run(self):
		write(self)
		generator = self.generator
		self.more_tasks = []
		for number in range(generator.more):
			task = generator.create_task("writer", self.outputs, self.outputs[0].change_ext(".%d" % number))
			if number:
				task.set_run_after(self.more_tasks[-1])
			self.more_tasks.append(task)
			generator.last.set_run_after(task)
			generator.last.inputs.append(task.outputs[0])

	def runnable_status(self):
		status = Task.Task.runnable_status(self)
		if status == Task.SKIP_ME:
			# for their outputs
			return Task.RUN_ME
		return status


class limited(Task.Task):
	semaphore = Task.TaskSemaphore(2)
	run = write


def declare_classes():
	for number in range(5):
		for kind in "ab":
			name = "kind%d%s" % (number, kind)
			type(Task.Task)(name, (Task.Task,), {
				"run": write,
				"ext_out": [".x%d" % number] if kind == "a" else [],
				"ext_in": [".x%d" % (number - 1)] if number and kind == "b" else [],
				"after": ["kind%da" % (number - 2)] if number > 1 else [],
				"before": ["kind%db" % (number + 1)] if kind == "a" else [],
			})


declare_classes()


@TaskGen.feature("several")
def make_several(self):
	for name in self.links:
		self.bld.get_tgen_by_name(name).post()
	for number in range(self.count):
		task = self.create_task(self.kind, None, self.path.find_or_declare("%s.%d" % (self.name, number)))
		for name in self.links:
			for other in self.bld.get_tgen_by_name(name).tasks:
				task.set_run_after(other)
		# its own one before it: a chain
		if self.chained and number:
			task.set_run_after(self.tasks[number - 1])


@TaskGen.feature("dynamic")
def make_dynamic(self):
	self.create_task("maker", None, self.path.find_or_declare(self.name + ".made"))
	self.last = self.create_task("writer", None, self.path.find_or_declare(self.name + ".last"))
	self.last.set_run_after(self.tasks[0])


def build(bld):
	draw = random.Random(bld.seed)
	bld.events, bld.bad, bld.graph = [], set(), {}
	bld.keep = draw.choice((0, 0, 1))
	bld.jobs = draw.choice((1, 4))
	made = []
	names = []
	links_of = {}
	for number in range(draw.randint(10, 40)):
		if draw.random() < 0.06:
			# what is in another group goes before: it may be linked to, but is not there to be waited for
			bld.add_group()
			made = []
		level = draw.randint(0, 4)
		name = "g%d" % number
		lower = [other for other, at in made if at < level]
		links = draw.sample(lower, min(len(lower), draw.choice((0, 0, 1, 2))))
		kind = draw.random()
		if kind < 0.4:
			files = [bld.get_tgen_by_name(other).target for other in links if bld.get_tgen_by_name(other).rule_like]
			generator = bld(
				rule=write, name=name, target=name + ".out", source=["base.txt", *files], rule_like=True,
				ext_out=[".w%d" % level] if draw.random() < 0.3 else [],
				ext_in=[".w%d" % draw.randrange(level)] if level and draw.random() < 0.4 else [],
				after=draw.sample(lower, min(len(lower), 1)) if draw.random() < 0.3 else [],
			)
			if draw.random() < 0.1:
				bld.bad.add("%s %s.out" % (name, name))
		elif kind < 0.9:
			generator = bld(
				features="several", name=name, count=draw.choice((1, 2, 5, 12)), links=links, rule_like=False,
				kind=draw.choice(KINDS).replace("%d", str(level)), chained=draw.random() < 0.3,
			)
			if draw.random() < 0.1:
				bld.bad.add("%s %s.0" % (generator.kind, name))
		else:
			generator = bld(features="dynamic", name=name, more=draw.randint(1, 4), rule_like=False)
		if draw.random() < 0.1:
			generator.name = name = name + "x"
		made.append((name, level))
		names.append(name)
		links_of[name] = links
		# as others do it between making generators
		assert bld.get_tgen_by_name(draw.choice(names)).name in names
	if draw.random() < 0.2:
		chosen = draw.sample(names, 3)
		for name in chosen:
			chosen += [other for other in links_of[name] if other not in chosen]
		bld.targets = ",".join(sorted(chosen, key=names.index))
	iterate = bld.get_build_iterator

	def get_build_iterator():
		for tasks in iterate():
			for task in tasks:
				bld.graph[name_of(task)] = sorted(describe(other) for other in task.run_after)
			yield tasks

	bld.get_build_iterator = get_build_iterator


def describe(other):
	if isinstance(other, Task.TaskGroup):
		return "group: " + ", ".join(sorted(map(name_of, other.prev)))
	return name_of(other)


def tasks_of(bld):
	for group in bld.groups:
		for generator in group:
			yield from generator.tasks


class Seeded(Build.BuildContext):
	cmd = "seeded"

	def execute(self):
		try:
			super().execute()
		except Errors.BuildError:
			if not self.keep:
				raise
		text = {
			"graph": self.graph,
			"events": self.events,
			"keep": self.keep,
			"status": {name_of(task): task.hasrun for task in tasks_of(self)},
			"priority": {name_of(task): task.prio_order for task in tasks_of(self)},
			"signatures": {uid.hex(): sig.hex() for uid, sig in self.task_sigs.items()},
			"makers": {node.bldpath(): uid.hex() for node, uid in self.node_sigs.items()},
			"files": {node.bldpath(): node.read() for node in self.bldnode.ant_glob("*", excl=".*", remove=False)},
		}
		with open(os.path.join(self.out_dir, "%s.json" % self.cmd), "w") as f:
			json.dump(text, f)


for seed in SEEDS:
	for cmd in ("s%d" % seed, "again%d" % seed):
		type(Build.BuildContext)("Seed", (Seeded,), {"cmd": cmd, "variant": "v%d" % seed, "seed": seed})
'''


def lay_out(project: Any) -> pathlib.Path:
	return project({"wscript": WSCRIPT, "base.txt": "base\n"})


def build(waf: Any, folder: pathlib.Path, seeds: Iterable[int], *args: str, **kwargs: Any) -> Dict[int, Graph]:
	"""Build these graphs in a folder, and return the results."""
	return run(waf, folder, seeds, ["s%d"], *args, **kwargs)[0]


def build_twice(
	waf: Any, folder: pathlib.Path, seeds: Iterable[int], *args: str, **kwargs: Any
) -> List[Dict[int, Graph]]:
	"""Build from nothing, and again with little to do. Then the folder is free for another build at the same path."""
	found = run(waf, folder, seeds, ["s%d", "again%d"], *args, **kwargs)
	(folder / "build").rename(folder / ("build-%d" % len(list(folder.iterdir()))))
	return found


def run(
	waf: Any, folder: pathlib.Path, seeds: Iterable[int], commands: Sequence[str], *args: str, **kwargs: Any
) -> List[Dict[int, Graph]]:
	env = {"SEEDS": " ".join(map(str, seeds)), "TOOLS": kwargs.pop("tools", "")}
	configured = [] if (folder / "build").exists() else ["configure"]
	words = [command % seed for command in commands for seed in seeds]
	waf(folder, *configured, *words, *args, env=env, **kwargs)
	return [{seed: read(folder, command % seed) for seed in seeds} for command in commands]


def read(folder: pathlib.Path, command: str) -> Graph:
	return json.loads((folder / "build" / ("%s.json" % command)).read_text())


def disorders(graph: Graph) -> List[str]:
	"""The places where a task began before a task had ended for which it has to wait."""
	begun = {name: place for place, (what, name) in enumerate(graph["events"]) if what == "begin"}
	ended = {name: place for place, (what, name) in enumerate(graph["events"]) if what == "end"}
	found = []
	for name, others in graph["graph"].items():
		for words in others:
			for other in words[len("group: ") :].split(", ") if words.startswith("group: ") else [words]:
				if name in begun and other in ended and begun[name] < ended[other]:
					found.append("%s before %s" % (name, other))
	return found


def differences(one: Graph, other: Graph) -> List[str]:
	"""The differences between two builds of a graph."""
	keys = ("graph", "status", "priority", "signatures", "makers", "files", "keep")
	names = [key for key in keys if one[key] != other[key]]
	ran = [sorted(name for what, name in graph["events"] if what == "end") for graph in (one, other)]
	return names + (["tasks that ran"] if ran[0] != ran[1] else [])
