"""Runs that the resident begins before their calls: they go on if nothing changed, and have no effect before."""

import contextlib
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

import pytest
from conftest import on_cpython
from resident_support import Pair, Resident, by_python, said

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is none elsewhere")

PYPY = sys.implementation.name == "pypy"

FILES = {
	"wscript": """\
import os
import tool
top = '.'
out = 'out'
setting = 'one'

def options(opt):
	opt.load('resident')
	opt.add_option('--shout', action='store_true', default=False)

def configure(conf):
	pass

def build(bld):
	print('wscript')
	bld.env.SETTING = setting + os.environ.get('EXTRA', '') + (bld.options.shout and '!' or '')
	bld(rule='cat ${SRC} > ${TGT} && echo ${SETTING} >> ${TGT}', source='a.txt', target='a.out')
	bld(rule=tool.RULE, source='a.out b.txt', target='b.out')
	bld.add_group()
	for node in bld.path.ant_glob('many/*.txt'):
		bld(rule='cp ${SRC} ${TGT}', source=node, target=node.change_ext('.out'))
	for path, _, names in sorted(os.walk(bld.path.abspath() + '/many')):
		bld(rule='echo %d > ${TGT}' % len(names), target='count.out')
	bld.env.READ = bld.path.find_node('read.txt').read()
	bld(rule='echo ${READ} > ${TGT}', target='read.out')
""",
	"tool.py": "RULE = 'cat ${SRC} > ${TGT}'\n",
	"a.txt": "aaaa\n",
	"b.txt": "bbbb\n",
	"read.txt": "read",
	"many/1.txt": "1\n",
	"many/2.txt": "2\n",
}


BEING = "not yet, it is being begun"


def is_drawn(made: Resident) -> bool:
	"""Tell whether a run has been begun, and waits for its call."""
	told = made.told()
	return told.get("sketch") == "" and told["known"] >= 0


def children(pid: int) -> List[int]:
	return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def draw(made: Resident, *args: str) -> int:
	"""Have a run begun, and return its process."""
	made.serve(*(args or ("build",)))
	made.wait(lambda: is_drawn(made))
	(pid,) = children(made.told()["pid"])
	return pid


def start_build(made: Resident) -> "subprocess.Popen[bytes]":
	return subprocess.Popen(
		made.command("build"), cwd=made.folder, env=made.environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
	)


def test_every_edit(pair: Callable[..., Pair]) -> None:
	"""A begun run goes on after an edit of a source. After a change of what the wscripts read, it is begun anew."""
	both = pair(FILES)
	draw(both.ours)

	def write(path: str, text: str) -> Callable[[pathlib.Path], Any]:
		return lambda folder: (folder / path).write_text(text)

	def link(folder: pathlib.Path) -> None:
		(folder / "many" / "4.txt").symlink_to("1.txt")

	edits: Tuple[Tuple[bool, Callable[[pathlib.Path], Any], Tuple[str, ...], Dict[str, str]], ...] = (
		(True, write("a.txt", "other\n"), (), {}),
		(True, lambda folder: (folder / "out" / "b.out").unlink(), (), {}),
		(True, write("many/1.txt", "other\n"), (), {}),
		(True, lambda folder: (folder / "a.txt").chmod(0o600), (), {}),
		(False, write("read.txt", "other"), (), {}),
		(False, write("many/3.txt", "new"), (), {}),
		(False, link, (), {}),
		(False, lambda folder: (folder / "many" / "2.txt").unlink(), (), {}),
		(False, write("tool.py", "RULE = 'cat -u ${SRC} > ${TGT}'\n"), (), {}),
		(False, write("wscript", FILES["wscript"].replace("'one'", "'two'")), (), {}),
		(False, lambda folder: None, ("--shout",), {}),
		(False, lambda folder: (folder / "a.txt").unlink(), (), {}),
		(True, write("a.txt", "again\n"), (), {}),
	)
	for number, (goes_on, edit, args, env) in enumerate(edits[3:6] if PYPY else edits):
		both.ours.wait(lambda: is_drawn(both.ours))
		before = both.ours.count("thawed")
		both.change(edit)
		both.run_alike("build", *args, env=env)
		assert both.ours.count("thawed") == before + goes_on, (number, both.ours.told()["reason"])
		if not (both.ours.folder / "a.txt").exists():
			both.ours.wait(lambda: "before its first task" in both.ours.told()["sketch"])
			both.change(write("a.txt", "back\n"))
			both.run_alike("build")


def test_any_moment(pair: Callable[..., Pair]) -> None:
	"""Whenever the call comes, before a run is begun, during that or later, the result is that of Waf."""
	both = pair(FILES)
	chance = random.Random(20)
	for step in range(3 if PYPY else 8):
		name = chance.choice(("a.txt", "b.txt", "many/1.txt", "many/2.txt", "read.txt", "tool.py", "wscript"))
		text = {"tool.py": "RULE = 'cat ${SRC} > ${TGT} # %d'\n" % step}.get(name, "%d\n" % step)
		if name == "wscript":
			text = FILES["wscript"].replace("'one'", "'%d'" % step)
		pause = chance.choice((0.0, 0.05, 0.13, 0.2, 0.3, -1.0))
		if pause < 0:
			both.ours.wait(lambda: is_drawn(both.ours) or both.ours.count("forked") + both.ours.count("thawed") == 0)
		else:
			time.sleep(pause)

		def change(folder: pathlib.Path, name: str = name, text: str = text) -> None:
			(folder / name).write_text(text)

		both.change(change)
		both.run_alike(*chance.choice((("build",), ("build",), ("build", "--shout"))))
	draw(both.ours)
	both.change(lambda folder: (folder / "a.txt").write_text("last\n"))
	both.run_alike("build")
	assert both.ours.count("thawed")


DOES = {
	"writes a file": ("", "bld.path.make_node('log').write('x', 'a')"),
	"starts a process": ("", "bld.cmd_and_log('echo x >> log', quiet=0)"),
	"makes a folder": ("import os", "n = len(os.listdir('.')); os.mkdir('new%d' % n)"),
	"touches a file": ("import os", "os.utime('other')"),
	"calls the system": ("import ctypes", "ctypes.CDLL(None).mkdir(b'by-c', 0o777)"),
	"starts a thread": (
		"import threading",
		"t = threading.Thread(target=bld.path.make_node('log').write, args=('x', 'a')); t.start(); t.join()",
	),
	"ends by itself": ("import sys", "sys.exit(0)"),
	"keeps a file open": ("", "bld.kept = open('other')"),
}
DOING = """\
%s
top = '.'
out = 'out'
def options(opt):
	opt.load('resident')
def configure(conf):
	pass
def build(bld):
	%s
	bld(rule='echo x > ${TGT}', target='x.out')
"""


def is_over(made: Resident) -> bool:
	"""Tell whether a run was begun and has ended for a lasting reason."""
	reason = made.told()["sketch"]
	return reason not in ("", BEING, "not yet") and "just before" not in reason


@by_python
def test_nothing_is_done_ahead(resident: Callable[..., Resident]) -> None:
	"""A run that is begun ends before it writes, starts or removes anything, and is not begun again."""
	made = resident({"wscript": DOING % ("", "pass"), "other": ""})
	for name, lines in list(DOES.items())[: 3 if PYPY else None]:
		(made.folder / "wscript").write_text(DOING % lines)
		(made.folder / "log").write_text("")
		count = made.count("sketched")
		made.run("build", status=None)
		before = sorted((path.name, path.stat().st_mtime_ns) for path in made.folder.iterdir())
		made.wait(lambda count=count: made.count("sketched") > count and is_over(made))
		assert before == sorted((path.name, path.stat().st_mtime_ns) for path in made.folder.iterdir()), name
		made.wait(lambda: not children(made.told()["pid"]))
		count = made.count("sketched")
		made.run("build")
		if name != "ends by itself":
			assert made.count("sketched") == count, name
		assert made.told()["counts"].get("thawed", 0) == 0, name


SLOW = """\
import hashlib, os
top = '.'
out = 'out'
def options(opt):
	opt.load('resident')
def configure(conf):
	pass
def build(bld):
	bld.env.READ = bld.path.find_node('read.txt').read()
	if os.path.exists('slow'):
		os.chdir('slow')
		for i in range(80):
			hashlib.sha256(bytes(10000000)).digest()
		os.chdir(bld.path.abspath())
	bld(rule='echo ${READ} > ${TGT}', target='read.out')
	bld(rule='cp ${SRC} ${TGT}', source='a.txt', target='a.out')
"""


@by_python
@on_cpython
def test_while_it_is_begun(resident: Callable[..., Resident]) -> None:
	"""The next build sees edits that were made while a run is begun. A call at that time does not wait for the run."""
	made = resident({"wscript": SLOW, "read.txt": "one", "a.txt": "a"})
	draw(made)
	(made.folder / "slow").mkdir()
	made.run("build")
	made.wait(lambda: made.told()["sketch"] == BEING)
	(pid,) = children(made.told()["pid"])
	made.wait(lambda: os.readlink(f"/proc/{pid}/cwd") == str(made.folder / "slow"))
	(made.folder / "read.txt").write_text("two")
	made.wait(lambda: is_drawn(made))
	thawed, forked = made.count("thawed"), made.count("forked")
	made.run("build")
	assert (made.folder / "out" / "read.out").read_text() == "two\n"
	made.wait(lambda: made.told()["sketch"] == BEING)
	(made.folder / "a.txt").write_text("b")
	made.run("build")
	assert (made.folder / "out" / "a.out").read_text() == "b"
	assert (made.count("thawed"), made.count("forked")) == (thawed, forked + 2)


@on_cpython
def test_killed(resident: Callable[..., Resident]) -> None:
	"""A run that waits and is killed is made good by another one; when the resident is killed, it ends, too."""
	made = resident(FILES)
	first = draw(made)
	assert os.readlink(f"/proc/{first}/cwd") == "/"
	os.kill(first, signal.SIGKILL)
	(made.folder / "a.txt").write_text("killed\n")
	made.run("build")
	assert "killed" in (made.folder / "out" / "a.out").read_text()
	second = draw(made)
	assert second != first
	os.kill(made.told()["pid"], signal.SIGKILL)
	made.wait(lambda: not pathlib.Path(f"/proc/{second}").exists())
	(made.folder / "a.txt").write_text("without\n")
	made.run("build")
	assert "without" in (made.folder / "out" / "a.out").read_text()


@on_cpython
def test_killed_at_any_moment(resident: Callable[..., Resident]) -> None:
	"""The resident survives its processes, whenever they are killed, and the build is right."""
	made = resident(FILES)
	chance = random.Random(3)
	draw(made)
	pid = made.told()["pid"]
	for step in range(12):
		if chance.random() < 0.5:
			made.wait(lambda: made.told()["sketch"] in ("", BEING))
		(made.folder / "a.txt").write_text("%d\n" % step)
		with start_build(made) as process:
			time.sleep(chance.random() * 0.15)
			for child in children(pid):
				with contextlib.suppress(ProcessLookupError):
					os.kill(child, signal.SIGKILL)
			process.communicate(timeout=60)
		assert process.returncode in (0, -signal.SIGKILL)
		made.run("build")
		assert (made.folder / "out" / "a.out").read_text().startswith("%d\n" % step)
		assert made.told().get("pid") == pid


@on_cpython
@by_python
def test_it_only_looks(resident: Callable[..., Resident]) -> None:
	"""A run that went on and had nothing to do is answered from memory, with all its output."""
	made = resident(FILES)
	(made.folder / "a.txt").write_text("edited")
	draw(made)
	thawed = said(made.run("build"), made.folder)
	assert made.count("thawed") == 1
	assert thawed.count("wscript") == 1
	assert said(made.settle("build"), made.folder) == thawed
	assert made.count("forked") <= 2


@on_cpython
def test_ignored_signals(resident: Callable[..., Resident]) -> None:
	"""A caller that ignores signals, as after `nohup` or in the background of a script, is served, too."""
	names = (signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)
	before = [signal.signal(name, signal.SIG_IGN) for name in names]
	try:
		made = resident(FILES)
		(made.folder / "a.txt").write_text("edited")
		draw(made)
		made.run("build")
		assert made.count("thawed") == 1
	finally:
		for name, handler in zip(names, before):
			signal.signal(name, handler)


WAITS = """\
top = '.'
out = 'out'
def options(opt):
	opt.load('resident')
def configure(conf):
	pass
def run(task):
	try:
		handed = open('/dev/fd/' + task.inputs[1].read()).read()
	except OSError:
		handed = ''
	task.outputs[0].write(handed)
	return task.exec_command(['sh', '../run.sh'], cwd=task.generator.bld.bldnode.abspath())
def build(bld):
	bld(rule=run, source='run.sh number', target='run.out')
"""


@by_python
def test_caller(resident: Callable[..., Resident]) -> None:
	"""A run that goes on has the caller's descriptors, gets its signals, and ends with it."""
	made = resident({"wscript": WAITS, "run.sh": "true", "number": "none", "handed": "handed on"})
	draw(made)
	(made.folder / "run.sh").write_text("pwd >> run.out")
	with open(made.folder / "handed", encoding="utf-8") as handed:
		(made.folder / "number").write_text(str(handed.fileno()))
		made.run("build", pass_fds=[handed.fileno()])
	assert (made.folder / "out" / "run.out").read_text() == f"handed on{made.folder}/out\n"
	assert made.count("thawed") == 1
	for number, status in ((signal.SIGINT, 68), (signal.SIGKILL, -9)):
		made.wait(lambda: is_drawn(made))
		(made.folder / "run.sh").write_text("echo $$ > pid; exec sleep 300 # %d" % number)
		with start_build(made) as process:

			def find() -> int:
				with contextlib.suppress(FileNotFoundError, ValueError):
					return int((made.folder / "out" / "pid").read_text())
				return 0

			pid = made.wait(find)
			process.send_signal(number)
			process.communicate(timeout=30)
			assert process.returncode == status
			made.wait(lambda pid=pid: not pathlib.Path(f"/proc/{pid}").exists())
		(made.folder / "out" / "pid").unlink()
		(made.folder / "run.sh").write_text("true")
		made.run("build")
	assert made.count("thawed") >= 2


@on_cpython
def test_terminal(resident: Callable[..., Resident]) -> None:
	"""On a terminal the output is as without a resident. On a terminal of another size the run is begun anew."""
	import fcntl
	import pty
	import termios

	made = resident(FILES)

	def see(columns: int, text: str) -> bytes:
		(made.folder / "a.txt").write_text(text)
		ours, theirs = pty.openpty()
		fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
		environ = dict(made.environ(), TERM="xterm")
		with subprocess.Popen(
			made.command("build", "-p"), cwd=made.folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
		) as process:
			os.close(theirs)
			seen = b""
			with contextlib.suppress(OSError):
				while True:
					seen += os.read(ours, 4096)
			os.close(ours)
			assert process.wait(30) == 0
		made.wait(lambda: is_drawn(made) or not made.told().get("counts"))
		return seen.replace(b"\r", b"\n").splitlines()[0]

	plain = see(60, "one\n")
	made.wait(made.told)
	see(70, "two\n")
	made.wait(lambda: is_drawn(made))
	counts = [made.count("thawed")]
	for columns in (70, 90, 90):
		assert see(columns, "text %d %d\n" % (columns, len(counts))) == plain
		counts.append(made.count("thawed") - counts[0])
	assert counts[1:] == [1, 1, 2]


UNITY = {
	"wscript": """\
top = '.'
out = 'out'
def options(opt):
	opt.load('compiler_cxx resident large unity')
def configure(conf):
	conf.load('compiler_cxx')
def build(bld):
	bld.load('unity')
	bld.program(source=bld.path.ant_glob('*.cpp'), target='app', includes='.')
""",
	"main.cpp": "int one(); int two();\nint main() { return one() * 10 + two(); }\n",
	"one.cpp": '#include "own.h"\nint one() { return OWN; }\n',
	"two.cpp": "int two() { return 2; }\n",
	"own.h": "#define OWN 1\n",
}


@by_python
@on_cpython
def test_unity(resident: Callable[..., Resident]) -> None:
	"""With unity the second edit of a source goes on, and an edit that changes the plan begins anew."""
	made = resident(UNITY)
	draw(made)

	def edit(name: str, text: str, value: int) -> int:
		made.wait(lambda: is_drawn(made))
		before = made.count("thawed")
		(made.folder / name).write_text(text)
		made.run("build")
		assert subprocess.run([made.folder / "out" / "app"], check=False, timeout=30).returncode == value
		return made.count("thawed") - before

	assert edit("two.cpp", "int two() { return 3; }\n", 13) == 0
	assert edit("two.cpp", "int two() { return 4; }\n", 14) == 1
	assert edit("two.cpp", "int two() { return 5; } // once more\n", 15) == 1
	assert edit("own.h", "#define OWN 2\n", 25) == 0
	assert edit("two.cpp", "static int n = 6;\nint two() { return n; }\n", 26) == 1
