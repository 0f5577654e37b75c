"""One thread for all slots: real builds with the tool prefork, compared with Waf's own scheduler and its threads."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Tuple

import pytest
from conftest import on_cpython

PATIENT = 60  # seconds; only a failing test waits this long
LOAD = "def options(opt):\n\topt.load('prefork')\ndef configure(conf):\n\tpass\n"

# a task for each way to run: plain, two commands, Python code; and special cases of plain tasks
MIXED = """\
from waflib import Task
from waflib.TaskGen import feature
class several(Task.Task):
	run_str = ["echo first > ${TGT}", "echo second >> ${TGT}"]
@feature("several")
def make_several(g):
	g.create_task("several", [], g.bld.bldnode.make_node("b"))
def build(bld):
	for i in range(12):
		bld(rule="echo out%d; echo err%d >&2; echo %d > ${TGT}" % (i, i, i), target="a%d" % i)
	bld(features="several")
	def own(task):
		task.outputs[0].write(task.inputs[0].read() * 2)
		return task.exec_command("echo from python")
	bld(rule=own, source="a1", target="c")
	bld(rule="cat ${SRC} > ${TGT}", source="c a2 b", target="d")
	bld(rule="echo $VALUE > ${TGT}", target="e").env.env = {"VALUE": "given"}
	bld.add_group()
	bld(rule="cat ${SRC} > ${TGT}", source="d e", target="f")
"""


def read_files(folder: pathlib.Path) -> Dict[str, bytes]:
	files = (folder / "build").glob("*")
	return {path.name: path.read_bytes() for path in files if path.is_file() and path.name[0] not in ".c"}


def sort_lines(text: str) -> List[str]:
	"""The lines without those properties that differ between runs: order, times and numbers."""
	text = re.sub(r"\d+\.\d+s|/stock/|/ours/", "", text)
	return sorted(re.sub(r"^\[ *-?\d+/", "[N/", line) for line in text.splitlines())


def build_twice(waf: Any, project: Any, wscript: str, *args: str, **kwargs: Any) -> Tuple[Any, Any]:
	"""Build Waf's own way and through the engine, and check that the files are the same."""
	done = []
	found = []
	for name, env in (("stock", {"WAF_NO_PREFORK": "1"}), ("ours", {})):
		folder = project({"wscript": LOAD + wscript}, name)
		waf(folder, "configure", env=env, wafdir=kwargs.get("wafdir"))
		done.append(waf(folder, "build", *args, env=env, **kwargs))
		found.append(read_files(folder))
	assert found[0] == found[1]
	return done[0], done[1]


# -j1 has a way of its own, which the next test looks at on 2.1
@pytest.mark.parametrize(
	("version", "jobs"), [pytest.param("2.1", "-j2", marks=on_cpython), ("2.1", "-j9"), ("2.0", "-j1"), ("2.0", "-j9")]
)
def test_a_build_says_and_makes_the_same(waf: Any, project: Any, version: str, jobs: str, request: Any) -> None:
	"""Files, messages and output are the same: for tasks with one command, several, or Python code, on both Wafs."""
	wafdir = request.getfixturevalue("waf20") if version == "2.0" else None
	stock, ours = build_twice(waf, project, MIXED, jobs, wafdir=wafdir)
	assert sort_lines(stock.stdout) == sort_lines(ours.stdout)
	assert sort_lines(stock.stderr) == sort_lines(ours.stderr)


@on_cpython
def test_alone_the_order_is_the_same(waf: Any, project: Any) -> None:
	"""With -j1 every line comes in Waf's order."""
	stock, ours = build_twice(waf, project, MIXED, "-j1", "-v")
	lines = [re.sub(r"\d+\.\d+s|\d\d:\d\d:\d\d|stock|ours", "", done.stdout + done.stderr) for done in (stock, ours)]
	assert lines[0] == lines[1]


THREADS = """\
import threading
from waflib import Task
main = threading.current_thread()
seen = set()
barrier = threading.Barrier(3)
class plain(Task.Task):
	run_str = "touch ${TGT}"
	def post_run(self):
		assert threading.current_thread() is main, "another thread"
		super().post_run()
def meet(task):
	barrier.wait(50)
	seen.add(threading.get_ident())
def build(bld):
	def make(g):
		for i in range(60):
			g.create_task("plain", [], bld.bldnode.make_node("t%d" % i))
	from waflib.TaskGen import taskgen_method, feature
	feature("many")(make)
	bld(features="many")
	for i in range(9):
		bld(rule=meet, name="m%d" % i, always=True)
	bld.add_post_fun(lambda bld: print("threads %d, alive %d" % (len(seen), threading.active_count())))
"""


def test_commands_need_no_thread_and_python_few(waf: Any, project: Any) -> None:
	"""Plain tasks are finished in the main thread. Up to -j tasks of Python code run at once, in as many threads."""
	folder = project({"wscript": LOAD + THREADS})
	waf(folder, "configure")
	done = waf(folder, "build", "-j3")
	(counts,) = re.findall(r"threads (\d+), alive (\d+)", done.stdout)
	assert counts[0] == "3" and int(counts[1]) <= 4
	assert len(list((folder / "build").glob("t*"))) == 60


FAILING = """\
def build(bld):
	bld(rule="echo ran >> ${bld.path.abspath()}/count; exit 3", name="bad", weight=100)
	for i in range(40):
		bld(rule="echo ran >> ${bld.path.abspath()}/count; sleep 0.05; touch ${TGT}", target="t%d" % i)
"""


@pytest.mark.parametrize("keep", [(), pytest.param(("-k",), marks=on_cpython)])
def test_what_runs_after_a_failure(waf: Any, project: Any, keep: Tuple[str, ...]) -> None:
	"""Without -k at most -j commands are begun beside the one that fails; with it all are."""
	folder = project({"wscript": LOAD + FAILING})
	waf(folder, "configure")
	done = waf(folder, "build", "-j4", *keep, status=1)
	assert "task in 'bad' failed with exit status 3" in done.stderr
	ran = (folder / "count").read_text().count("ran")
	shown = len(re.findall(r"^\[", done.stdout, re.M))
	if keep:
		assert ran == 41
	else:
		assert 1 <= ran <= 1 + 2 * 4 and ran - 1 <= shown <= ran + 1
	again = waf(folder, "build", "-j4", "-k", status=1)
	assert "task in 'bad' failed" in again.stderr
	assert len(list((folder / "build").glob("t*"))) == 40


@on_cpython
def test_errors_read_the_same(waf: Any, project: Any) -> None:
	"""Missing programs, failing ones and mistakes in the rule have the same status and last line."""
	wscript = "import os\ndef build(bld):\n\tbld(rule=os.environ['RULE'], shell=False, name='x', always=True)\n"
	folders = {name: project({"wscript": LOAD + wscript}, name) for name in ("stock", "ours")}
	for folder in folders.values():
		waf(folder, "configure")
	for rule in ("no-such-program x", "cp", "${no.such.name}"):
		for verbose in ((), ("-v",)):
			tail = []
			for name, folder in folders.items():
				env = {"RULE": rule, "WAF_NO_PREFORK": "1" if name == "stock" else None}
				done = waf(folder, "build", "-j2", *verbose, env=env, status=1)
				tail.append(re.sub(r"stock|ours|0x[0-9a-f]+|\d{9,}", "", done.stderr).splitlines()[-1])
			assert tail[0] == tail[1], (rule, verbose)


DYNAMIC = """\
import os
from waflib import Task
class made(Task.Task):
	run_str = "cp ${SRC} ${TGT}"
class maker(Task.Task):
	run_str = "echo x > ${TGT}"
	shell = True
	def post_run(self):
		super().post_run()
		self.more_tasks = [self.make(i) for i in range(30)]
	def make(self, i):
		t = self.generator.create_task("made", self.outputs[0], self.generator.bld.bldnode.make_node("m%d" % i))
		return t
def build(bld):
	from waflib.TaskGen import feature
	@feature("dyn")
	def go(g):
		g.create_task("maker", [], bld.bldnode.make_node("x"))
	bld(features="dyn")
"""


@on_cpython
def test_tasks_made_by_tasks_run(waf: Any, project: Any) -> None:
	"""more_tasks of a plain task."""
	stock, ours = build_twice(waf, project, DYNAMIC, "-j3")
	assert sort_lines(stock.stdout) == sort_lines(ours.stdout)
	assert "31/31" in ours.stdout


SEMAPHORE = """\
from waflib import Task
class one(Task.Task):
	run_str = "mkdir lock && sleep 0.02 && rmdir lock && touch ${TGT}"
	shell = True
	semaphore = Task.TaskSemaphore(1)
class other(Task.Task):
	run_str = "touch ${TGT}"
def build(bld):
	from waflib.TaskGen import feature
	@feature("sem")
	def go(g):
		for i in range(8):
			g.create_task("one", [], bld.bldnode.make_node("s%d" % i))
			g.create_task("other", [], bld.bldnode.make_node("o%d" % i))
	bld(features="sem")
"""


@on_cpython
def test_semaphores_hold(waf: Any, project: Any) -> None:
	"""Two tasks at once would fail to make the folder; tasks without a semaphore do not wait."""
	build_twice(waf, project, SEMAPHORE, "-j6")


PATCHED = """\
from waflib import Task, Context, Build
def note(what):
	print("patched " + what, flush=True)
WHERE
def build(bld):
	for i in range(5):
		bld(rule="touch ${TGT}", target="t%d" % i)
"""
WHERE = {
	"process": "old = Task.Task.process\ndef new(self):\n\tnote('call')\n\told(self)\nTask.Task.process = new",
	"task": "old = Task.Task.exec_command\ndef new(self, cmd, **kw):\n\tret = old(self, cmd, **kw)\n\tnote('call')\n"
	"\treturn ret\nTask.Task.exec_command = new",
	"context": "old = Context.Context.exec_command\ndef new(self, cmd, **kw):\n\tret = old(self, cmd, **kw)\n"
	"\tnote('call')\n\treturn ret\nContext.Context.exec_command = new",
}


@pytest.mark.parametrize("where", ["process", *(pytest.param(x, marks=on_cpython) for x in ("context", "task"))])
def test_patches_are_called(waf: Any, project: Any, where: str) -> None:
	"""A function that a project puts in the place of process or exec_command is called once per task."""
	stock, ours = build_twice(waf, project, PATCHED.replace("WHERE", WHERE[where]), "-j3")
	assert stock.stdout.count("patched call") == ours.stdout.count("patched call") == 5


KILLED = """\
import os, signal, time
from waflib import Context
def build(bld):
	def kill(task):
		while not os.path.exists(task.generator.bld.bldnode.find_or_declare("began").abspath()):
			time.sleep(0.01)
		os.kill(Context.waflib_extras_build.runner.session.engine, signal.SIGKILL)
	bld(rule=kill, always=True, weight=100)
	bld(rule="touch began; sleep 0.5; echo 0 > ${TGT}", target="t0")
	for i in range(1, 40):
		bld(rule="sleep 0.02; echo %d; echo %d > ${TGT}" % (i, i), target="t%d" % i)
"""


def test_a_build_survives_its_engine(waf: Any, project: Any) -> None:
	"""Commands that ran when the engine was killed run in another one; every task is done and shown once."""
	folder = project({"wscript": LOAD + KILLED})
	waf(folder, "configure")
	done = waf(folder, "build", "-j4")
	assert [(folder / "build" / ("t%d" % i)).read_text() for i in range(40)] == ["%d\n" % i for i in range(40)]
	assert sorted(map(int, re.findall(r"^(\d+)$", done.stdout, re.M))) == list(range(1, 40))
	assert "going on without" not in done.stderr


def test_interrupt_ends_commands(waf: Any, project: Any, runtime: pathlib.Path, engine: str) -> None:
	"""After Ctrl-C, Waf says so, and its commands have ended."""
	wscript = "def build(bld):\n\tfor i in range(9):\n\t\tbld(rule='echo $$$$ > ${TGT}; sleep 77', target='t%d' % i)\n"
	folder = project({"wscript": LOAD + wscript})
	waf(folder, "configure")
	script = "from waflib_extras import launcher; launcher.main()"
	process = subprocess.Popen(
		[sys.executable, "-c", "import sys; sys.argv[0] = 'waf'\n" + script, "build", "-j2"],
		cwd=folder,
		env=dict(os.environ, WAFD=engine),
		stderr=subprocess.PIPE,
		stdout=subprocess.DEVNULL,
	)
	deadline = time.monotonic() + PATIENT
	texts: List[str] = []
	while len([text for text in texts if text.strip()]) < 2:
		assert time.monotonic() < deadline and process.poll() is None
		time.sleep(0.02)
		texts = [path.read_text() for path in (folder / "build").glob("t*")]
	process.send_signal(signal.SIGINT)
	process.communicate(timeout=PATIENT)
	assert process.returncode == 68
	left = {text.strip() for text in texts}
	while any(os.path.exists("/proc/" + pid) for pid in left):
		assert time.monotonic() < deadline, "commands are left"
		time.sleep(0.02)


@on_cpython
def test_progress_counts_up(waf: Any, project: Any) -> None:
	"""Each task is shown once, and the numbers rise to the total."""
	folder = project({"wscript": LOAD + MIXED})
	waf(folder, "configure")
	done = waf(folder, "build", "-j3", "-pp")
	found = re.findall(r"\|Total \d+\|Current (\d+)\|", done.stdout)
	assert list(map(int, found)) == list(range(1, 18))


@on_cpython
def test_much_output_of_many_commands(waf: Any, project: Any) -> None:
	"""More output than the engine buffers, in both directions at once, arrives complete."""
	wscript = """\
def build(bld):
	for i in range(8):
		rule = "head -c 1500000 /dev/zero | tr '\\\\0' %s; : %s" % (chr(97 + i), "x" * 90000)
		bld(rule=rule, name="n%d" % i, always=True)
"""
	folder = project({"wscript": LOAD + wscript})
	waf(folder, "configure")
	done = waf(folder, "build", "-j8")
	for i in range(8):
		assert chr(97 + i) * 1500000 in done.stdout


@on_cpython
def test_threads_on_request(waf: Any, project: Any) -> None:
	"""--threads gives Waf's own scheduler, with the same result."""
	folder = project({"wscript": LOAD + THREADS})
	waf(folder, "configure")
	done = waf(folder, "build", "-j3", "--threads", status=1)
	assert "another thread" in done.stderr
