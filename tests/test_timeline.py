"""The picture of a build: what ran, when, beside what, after what, and why slots were idle."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List

import pytest
from conftest import on_cpython
from resident_support import by_python
from timeline_support import Picture, Row, check_trace, read_data, read_picture

DEADLINE = 30.0
ENGINE = "the engine has commands, and starts them or asks its cache"
DEPENDENCY = "nothing is ready: all wait for others"
TAIL = "nothing is left but the last ones"

# two that run only together, one with Python code beside a command of its own, and a chain with a fork
MEETING = """\
import os
def options(opt):
	opt.load('%(tool)s')
def configure(conf):
	pass
def own(task):
	import time
	time.sleep(0.1)
	return task.exec_command(['sh', '-c', 'echo $0 > $1', 'python', task.outputs[0].abspath()])
def build(bld):
	for name in ('to', 'fro'):
		path = bld.bldnode.make_node(name).abspath()
		if not os.path.exists(path):
			os.mkfifo(path)
	bld(rule='echo a > to && cat fro > ${TGT} && sleep 0.3', target='one.txt', always=True)
	bld(rule='cat to > ${TGT} && echo b > fro && sleep 0.3', target='two.txt', always=True)
	bld(rule='cat ${SRC} > ${TGT} && sleep 0.3', source='one.txt two.txt', target='slow.txt')
	bld(rule='cat ${SRC} > ${TGT} && sleep 0.2', source='slow.txt', target='last.txt')
	bld(rule=own, target='own.txt', name='by hand')
"""


def overlap(one: Row, other: Row) -> int:
	"""The microseconds in which both ran."""
	return min(one.end, other.end) - max(one.start, other.start)


def draw(waf: Any, folder: pathlib.Path, *args: str, **kwargs: Any) -> Picture:
	"""Build with a picture, and check that its sums are complete and its trace well formed."""
	done = waf(folder, *(args or ("configure", "build")), "--timeline=picture", **kwargs)
	picture = read_picture(folder / "picture.html")
	assert "Timeline: " in done.stdout + done.stderr
	check_trace(folder / "picture.json")
	check_sums(picture)
	return picture


def check_sums(picture: Picture) -> None:
	"""Used and idle slots add up to all slots, and nothing ran outside of the build."""
	build = picture.build
	assert abs(build["busy"] + picture.idle() - build["jobs"] * picture.wall) < 1000 + 2 * len(build["reasons"])
	assert all(build["begun"] <= row.start <= row.end <= build["ended"] for row in picture.rows)
	lanes: Dict[str, List[Row]] = {}
	for row in picture.rows:
		lanes.setdefault(row.lane, []).append(row)
	for rows in lanes.values():
		assert all(one.end <= other.start + 1 for one, other in zip(rows, rows[1:])), rows


@pytest.mark.parametrize(
	("tool", "options", "lane"),
	[
		("prefork", ["-j2"], "slot"),
		pytest.param("prefork", ["-j2", "--threads"], "slot", marks=on_cpython),
		("timeline", ["-j2"], "thread"),
	],
)
def test_what_happened(waf: Any, project: Any, engine: str, tool: str, options: List[str], lane: str) -> None:
	"""Tasks that meet overlap, in two lanes; a waiting task makes a slot idle; the chain is the longest one."""
	folder = project({"wscript": MEETING % {"tool": tool}})
	picture = draw(waf, folder, "configure", "build", *options)
	one, two, slow, last, own = (picture[name + ".txt"] for name in ("one", "two", "slow", "last", "own"))
	assert overlap(one, two) > 0 and one.lane != two.lane
	assert {row.lane.split()[0] for row in (one, two, slow, last)} == {lane}
	assert slow.start >= max(one.end, two.end) and last.start >= slow.end
	assert slow.blocker in (one.number, two.number) and last.blocker == slow.number
	# that it has begun may be heard late on a busy machine
	assert slow.end - slow.start >= 0.7 * 300000 and last.end - last.start >= 0.7 * 200000
	assert (own.kind, own.target, own.lane.split()[0]) == ("Python", "by hand", "thread")
	assert picture.chain() in (["one.txt", "slow.txt", "last.txt"], ["two.txt", "slow.txt", "last.txt"])
	reasons = picture.reasons()
	# one of the two slots is free while these run, but for what a busy machine lets come late
	for row, reason in ((slow, DEPENDENCY), (last, TAIL)):
		alone = row.end - row.start - max(0, overlap(own, row))
		assert reasons.get(reason, {}).get(row.name, 0) >= 0.5 * alone
	if tool == "prefork":
		assert {row.kind for row in (one, two, slow, last)} <= {"parked", "spawned"}
		assert all(row.peak > 0 for row in (one, two, slow, last))
		(command,) = [row for row in picture.rows if row.owner == own.number]
		assert own.start <= command.start <= command.end <= own.end and command.lane.startswith("slot")
	else:
		assert {row.kind for row in (one, two, slow, last)} == {"Waf's own way"}


@on_cpython
def test_one_after_the_other(waf: Any, project: Any, engine: str) -> None:
	"""With -j1 nothing overlaps, and each task with one command is one row."""
	text = "def options(opt):\n\topt.load('prefork')\ndef configure(conf):\n\tpass\ndef build(bld):\n"
	text += "\tfor n in range(4):\n\t\tbld(rule='echo > ${TGT}', target='%d.txt' % n)\n"
	picture = draw(waf, project({"wscript": text}), "configure", "build", "-j1")
	assert sorted(picture.kinds()) == ["0.txt", "1.txt", "2.txt", "3.txt"]
	assert {row.lane for row in picture.rows} == {"slot 1"} and len(picture.rows) == 4


PLAIN = """\
top = '.'
out = 'build'
def options(opt):
	opt.load('compiler_c prefork %s')
def configure(conf):
	conf.load('compiler_c')
def build(bld):
	bld.objects(source='a.c b.c', target='both')
	bld(rule='echo "int c;" > ${TGT}', target='c.txt')
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
	"""A home with a store and settings of the test's own."""
	for name in list(os.environ):
		if name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG")):
			monkeypatch.delenv(name)
	monkeypatch.setenv("HOME", str(tmp_path))
	return tmp_path


SOURCES = {"a.c": "int a(void) { return 1; }\n", "b.c": "int b(void) { return 2; }\n"}


@on_cpython
def test_hits_and_misses(waf: Any, project: Any, home: pathlib.Path, engine: str) -> None:
	"""The first build has misses with reasons, the second hits, which need no slot."""
	folder = project({"wscript": PLAIN % "wafcc", **SOURCES})
	first = draw(waf, folder, "configure", "build")
	compiled = [row for row in first.rows if row.what == "c"]
	assert [row.kind for row in compiled] == ["miss", "miss"] and all(row.words for row in compiled)
	assert first["c.txt"].kind in ("parked", "spawned")
	second = draw(waf, folder, "clean", "build")
	hits = [row for row in second.rows if row.what == "c"]
	assert [row.kind for row in hits] == ["hit", "hit"]
	assert {row.lane for row in hits} == {"cache 1"} and all(row.start == row.end for row in hits)
	events = check_trace(folder / "picture.json")
	assert sum(event["ph"] == "i" for event in events) == 2
	nothing = draw(waf, folder, "build")
	assert nothing.rows == [] and nothing.build["total"] == 3 and nothing.chain() == []


@on_cpython
def test_parked_commands_are_told_from_others(waf: Any, project: Any, engine: str) -> None:
	"""An engine without parking spawns all; one with parking parks some, when it has seen enough."""
	text = "def options(opt):\n\topt.load('prefork')\ndef configure(conf):\n\tpass\ndef build(bld):\n"
	text += "\tfor n in range(30):\n\t\tbld(rule='sleep 0.01 && echo > ${TGT}', target='%d.txt' % n, always=True)\n"
	folder = project({"wscript": text})
	deadline = time.monotonic() + DEADLINE
	waf(folder, "configure")
	while "parked" not in draw(waf, folder, "build").kinds().values():
		assert time.monotonic() < deadline
	subprocess.run([os.environ.get("WAFD", "wafd"), "stop"], check=True, timeout=DEADLINE)
	assert set(draw(waf, folder, "build", env={"WAFD_PARK": "no"}).kinds().values()) == {"spawned"}


@on_cpython
def test_failed_build_is_drawn(waf: Any, project: Any, engine: str) -> None:
	"""Tasks before the failure are there, and the failed task is marked."""
	folder = project({"wscript": PLAIN % "", **SOURCES, "b.c": "#error no\n"})
	picture = draw(waf, folder, "configure", "build", "-j1", status=1)
	assert picture.build["outcome"] == "failed"
	(failed,) = [row for row in picture.rows if row.kind == "failed"]
	assert failed.name.startswith("b.c") and failed.code == 1


def test_interrupted_build_is_drawn(project: Any, engine: str, runtime: pathlib.Path) -> None:
	"""After Ctrl-C the picture has the unfinished tasks, as cut off, and the chain to them."""
	text = "def options(opt):\n\topt.load('prefork')\ndef configure(conf):\n\tpass\ndef build(bld):\n"
	text += "\tbld(rule='echo > ${TGT}', target='first.txt')\n"
	text += "\tbld(rule='echo > %s/begun && sleep 60', source='first.txt', target='never.txt')\n" % "${bld.bldnode}"
	folder = project({"wscript": text.replace("${bld.bldnode}", "..")})
	program = "from waflib_extras import launcher\nlauncher.main()\n"
	command = [sys.executable, "-c", program, "configure", "build", "--timeline=picture.html"]
	quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
	process = subprocess.Popen(command, cwd=folder, env=dict(os.environ), **quiet)
	deadline = time.monotonic() + DEADLINE
	while not (folder / "begun").exists():
		assert process.poll() is None and time.monotonic() < deadline
		time.sleep(0.01)
	process.send_signal(signal.SIGINT)
	out, _ = process.communicate(timeout=DEADLINE)
	assert process.returncode != 0, out
	picture = read_picture(folder / "picture.html")
	check_sums(picture)
	check_trace(folder / "picture.json")
	assert picture.build["outcome"] == "interrupted"
	assert picture["first.txt"].kind in ("parked", "spawned") and picture["never.txt"].kind == "cut off"
	assert picture.chain() == ["first.txt", "never.txt"]


@on_cpython
@pytest.mark.parametrize("name", ["no/such/folder/picture", "build.txt/picture", ".", "taken"])
def test_no_build_where_nothing_can_be_written(waf: Any, project: Any, engine: str, name: str) -> None:
	"""One line names the file, before any task runs."""
	folder = project({"wscript": PLAIN % "", **SOURCES, "build.txt": "", "taken.html/file": ""})
	done = waf(folder, "configure", "build", f"--timeline={name}", status=None)
	assert done.returncode not in (0, None)
	said = [line for line in (done.stdout + done.stderr).splitlines() if "--timeline" in line]
	assert len(said) == 1 and f"--timeline={name}: " in said[0] and "Traceback" not in done.stdout + done.stderr
	assert not list((folder / "build").glob("a.c*"))


VARIANTS = """\
top = '.'
out = 'build'
from waflib.Build import BuildContext
def options(opt):
	opt.load('prefork')
def configure(conf):
	pass
def build(bld):
	bld(rule='echo ${tsk.generator.bld.cmd} > ${TGT}', target='first.txt')
	bld.add_group()
	bld(rule='sleep 0.1; echo > ${TGT}', target='slow.txt')
	bld(rule='echo > ${TGT}', target='quick.txt')
	bld.add_group()
	bld(rule='echo > ${TGT}', target='last.txt')
for kind in 'debug release'.split():
	class each(BuildContext):
		cmd = 'build_' + kind
		variant = kind
"""


@on_cpython
def test_variants_and_groups(waf: Any, project: Any, engine: str) -> None:
	"""Two builds of one run are two pictures in one page; a group waits for all tasks of the group before."""
	folder = project({"wscript": VARIANTS})
	debug = draw(waf, folder, "configure", "build_debug", "build_release", "-j2")
	data = read_data(folder / "picture.html")
	assert [build["name"] for build in data["builds"]] == ["build_debug", "build_release"]
	assert data["builds"][0]["ended"] <= data["builds"][1]["begun"]
	for picture in (debug, Picture(data, 1)):
		assert picture.chain() == ["first.txt", "slow.txt", "last.txt"]
		assert picture["last.txt"].start >= picture["slow.txt"].end
		assert picture["last.txt"].blocker == picture["slow.txt"].number
		assert picture.reasons()[DEPENDENCY]["slow.txt"] > 50000
	assert {event["pid"] for event in check_trace(folder / "picture.json")} == {1, 2}


@on_cpython
def test_another_build_has_the_slots(waf: Any, project: Any, engine: str) -> None:
	"""If the engine gives its slots to another build, that is the reason."""
	text = "def options(opt):\n\topt.load('prefork')\ndef configure(conf):\n\tpass\ndef build(bld):\n"
	other = text + "\tfor n in range(2):\n\t\tbld(rule='echo > %d.txt; until test -e stop; do sleep 0.02; done' % n)\n"
	ours = text + "\tfor n in range(4):\n\t\tbld(rule='sleep 0.7; echo > ${TGT}', target='%d.txt' % n)\n"
	theirs, folder = project({"wscript": other}, "theirs"), project({"wscript": ours})
	for each in (theirs, folder):
		waf(each, "configure")
	program = "from waflib_extras import launcher\nlauncher.main()\n"
	quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
	process = subprocess.Popen([sys.executable, "-c", program, "build", "-j2"], cwd=theirs, **quiet)
	deadline = time.monotonic() + DEADLINE
	while len(list((theirs / "build").glob("?.txt"))) < 2:
		assert process.poll() is None and time.monotonic() < deadline
		time.sleep(0.01)
	try:
		picture = draw(waf, folder, "build", "-j2")
	finally:
		(theirs / "build" / "stop").write_text("")
		assert process.wait(DEADLINE) == 0
	assert picture.reasons()["other builds have the slots"][""] > 500000


@by_python
@on_cpython
def test_resident_runs_for_a_picture(resident: Any, tmp_path: pathlib.Path) -> None:
	"""The resident process does not answer from memory here: there is a picture each time."""
	text = "def options(opt):\n\topt.load('resident timeline')\ndef configure(conf):\n\tpass\ndef build(bld):\n"
	made = resident({"wscript": text + "\tbld(rule='echo > ${TGT}', target='a.txt')\n"})
	made.settle("build")
	for _ in range(2):
		done = made.run("build", "--timeline=picture")
		assert "nothing ran" in done.stdout + done.stderr
		picture = read_picture(made.folder / "picture.html")
		assert picture.rows == [] and picture.build["total"] == 1
		(made.folder / "picture.html").unlink()
	check_trace(made.folder / "picture.json")


@on_cpython
def test_nothing_is_there_without_the_option(waf: Any, project: Any, engine: str) -> None:
	"""Without the option no module is loaded, no function of Waf is replaced, and there is no file."""
	text = PLAIN % "" + "\tbld.add_post_fun(look)\n"
	text += "def look(bld):\n\timport sys\n\tfrom waflib import Runner\n"
	text += "\tnames = [x for x in sys.modules if x.split('.')[-1] in ('recording', 'meter', 'analysis', 'picture')]\n"
	text += "\tprint('looked', Runner.Parallel.start.__module__, names)\n"
	folder = project({"wscript": text, **SOURCES})
	done = waf(folder, "configure", "build")
	assert "looked waflib.Runner []" in done.stdout
	assert not list(folder.glob("*.html")) and not list(folder.glob("*.json"))


@on_cpython
def test_old_waf(waf: Any, project: Any, engine: str, waf20: Any) -> None:
	"""Waf 2.0 has another scheduler, and its builds are drawn as well."""
	folder = project({"wscript": PLAIN % "", **SOURCES})
	picture = draw(waf, folder, "configure", "build", wafdir=waf20)
	assert set(picture.kinds().values()) <= {"parked", "spawned"} and len(picture.rows) == 3
