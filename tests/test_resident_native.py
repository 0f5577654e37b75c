"""The engine's ``waf``: it answers from records of the resident process, and else starts the ``waf`` of Python."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Callable, List, NamedTuple

import pytest
from conftest import on_cpython
from resident_support import Resident, install, said
from test_resident_sketch import is_drawn

from waflib_extras.launcher import caller
from waflib_extras.resident import record

pytestmark = pytest.mark.parametrize("client", ["native"], indirect=True)
Make = Callable[..., Resident]

FILES = {
	"wscript": """\
def options(opt):
	opt.load('resident')

def configure(conf):
	pass

def build(bld):
	bld(rule='cp ${SRC} ${TGT}', source='a.txt', target='a.out')
	for node in bld.path.ant_glob('many/*.txt'):
		bld(rule='cp ${SRC} ${TGT}', source=node, target=node.change_ext('.out'))
""",
	"a.txt": "a\n",
	"many/1.txt": "1\n",
	"many/2.txt": "2\n",
}


def find_records(runtime: pathlib.Path) -> List[pathlib.Path]:
	return sorted(runtime.glob("resident-*" + record.SUFFIX))


@pytest.fixture
def built(resident: Make, runtime: pathlib.Path) -> Resident:
	"""A project with nothing to do, of which there is a record."""
	made = resident(FILES)
	made.settle("build")
	made.wait(lambda: find_records(runtime))
	return made


def stop(made: Resident) -> int:
	"""Stop the resident process, so that it cannot answer. Returns its number."""
	pid: int = made.told()["pid"]
	os.kill(pid, signal.SIGSTOP)
	return pid


def test_python_is_not_asked(built: Resident) -> None:
	"""With the resident process stopped, the answer is the same as before. It hears of that later."""
	before = said(built.run("build"), built.folder)
	count = built.count("answered")
	pid = stop(built)
	try:
		assert said(built.run("build"), built.folder) == before
	finally:
		os.kill(pid, signal.SIGCONT)
	assert built.count("answered") == count + 1


@on_cpython
def test_a_resident_that_was_killed(built: Resident) -> None:
	"""The record is right all the same. After an edit, Python runs Waf, and leaves another resident process."""
	before = said(built.run("build"), built.folder)
	os.kill(built.told()["pid"], signal.SIGKILL)
	built.wait(lambda: not built.told())
	assert said(built.run("build"), built.folder) == before
	assert not built.told()
	(built.folder / "a.txt").write_text("b\n")
	built.run("build")
	assert (built.folder / "build" / "a.out").read_text() == "b\n"
	built.wait(built.told)


@on_cpython
def test_a_resident_that_is_told_to_leave(built: Resident, runtime: pathlib.Path) -> None:
	"""It takes its records with it."""
	assert "stopped" in built.run("--resident-stop").stdout
	built.wait(lambda: not built.told())
	assert not find_records(runtime)


def damage_cut(path: pathlib.Path) -> None:
	path.write_bytes(path.read_bytes()[:-20])


def damage_text(path: pathlib.Path) -> None:
	path.write_bytes(path.read_bytes().replace(b"finished", b"perished"))


def damage_counts(path: pathlib.Path) -> None:
	data = bytearray(path.read_bytes())
	data[8:12] = b"\xff" * 4
	path.write_bytes(data)


def damage_fifo(path: pathlib.Path) -> None:
	path.unlink()
	os.mkfifo(path)


def damage_link(path: pathlib.Path) -> None:
	path.unlink()
	path.symlink_to("/dev/zero")


def damage_folder(path: pathlib.Path) -> None:
	path.unlink()
	path.mkdir()


@on_cpython
def test_what_is_no_record(built: Resident, runtime: pathlib.Path) -> None:
	"""Python runs the command line, and nothing waits for ever."""
	before = said(built.run("build"), built.folder)
	(path,) = find_records(runtime)
	record = path.read_bytes()
	for damage in (damage_cut, damage_counts, damage_fifo, damage_link, damage_folder):
		path.write_bytes(record)
		count = built.count("answered")
		damage(path)
		assert said(built.run("build"), built.folder) == before, damage
		assert built.count("answered") > count, damage
		shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@on_cpython
def test_a_folder_that_others_can_write_to(built: Resident, runtime: pathlib.Path) -> None:
	"""What lies there may be a stranger's, so it does not count."""
	for path in find_records(runtime):
		damage_text(path)
	assert "perished" in built.run("build").stdout
	runtime.chmod(0o777)
	try:
		assert "finished" in built.run("build").stdout
	finally:
		runtime.chmod(0o700)


@on_cpython
def test_a_record_of_another_user(built: Resident, runtime: pathlib.Path) -> None:
	if os.geteuid():
		pytest.skip("only root can give files away")
	for path in find_records(runtime):
		damage_text(path)
		os.chown(path, 1, 1)
	assert "finished" in built.run("build").stdout


@pytest.mark.parametrize("way", ["module", pytest.param("path", marks=on_cpython)])
def test_a_python_that_starts_in_another_way(
	way: str, resident: Make, runtime: pathlib.Path, tmp_path: pathlib.Path
) -> None:
	"""A new module where Python looks for modules is noticed, also one that it loads by itself."""
	folder = tmp_path / "modules"
	folder.mkdir()
	made = resident(FILES, start=False)
	path = os.pathsep.join([str(pathlib.Path(caller.__file__).parents[2]), str(folder)])
	env = {"PYTHONPATH": path}
	made.run("configure", "build", env=env)
	made.wait(made.told)
	made.settle("build", env=env)
	made.wait(lambda: find_records(runtime))
	assert "custom" not in made.run("build", env=env).stderr
	if way == "module":
		(folder / "sitecustomize.py").write_text("import sys\nsys.stderr.write('custom')\n")
		assert "custom" in made.run("build", env=env).stderr
	else:
		pid = stop(made)
		script = tmp_path / "bin" / "waf-python"
		script.write_text(script.read_text().replace("import main", "import main\nprint('custom')"))
		try:
			with pytest.raises(subprocess.TimeoutExpired) as late:
				subprocess.run(
					made.command("build"), cwd=made.folder, env=made.environ(env), timeout=2, stdout=subprocess.PIPE
				)
			assert late.value.stdout is None or b"finished" not in late.value.stdout
		finally:
			os.kill(pid, signal.SIGCONT)


@on_cpython
def test_other_rights(built: Resident) -> None:
	"""In another namespace, other files may be there, so the record does not count."""
	if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
		pytest.skip("mount namespaces cannot be made here")
	count = built.count("answered")
	argv = ["unshare", "--mount", *built.command("build")]
	done = subprocess.run(argv, cwd=built.folder, env=built.environ(), capture_output=True, timeout=60, check=True)
	assert b"finished" in done.stdout
	assert built.count("answered") == count


@on_cpython
def test_commands_do_not_see_who_was_called(resident: Make) -> None:
	files = dict(FILES, wscript=FILES["wscript"] + "\tprint('called by', bld.cmd_and_log('echo $WAF_CALLED_BY.'))\n")
	made = resident(files, start=False)
	for _ in range(3):
		assert "called by ." in made.run("configure", "build").stdout


def install_copy(folder: pathlib.Path) -> pathlib.Path:
	"""Install it so that its own path is no link. Returns the path."""
	waf = install(folder, True)
	native = waf.resolve()
	waf.unlink()
	shutil.copy(native, waf)
	return waf


@on_cpython
def test_without_python(tmp_path: pathlib.Path, client: str) -> None:
	"""One line names what is missing, and how to get it."""
	waf = install_copy(tmp_path / "bin")
	(waf.parent / "waf-python").unlink()
	done = subprocess.run([waf, "build"], capture_output=True, encoding="utf-8", timeout=60, check=False)
	assert done.returncode == 127
	assert done.stderr == "waf: there is no waf-python beside it: install waflib-extras again\n"


TELLING = """\
#!%s
import sys
print(sys.argv[1:])
print(*(line for line in open("/proc/self/status") if line.startswith("SigIgn:")))
sys.exit(3)
"""


@on_cpython
def test_a_link_to_it(tmp_path: pathlib.Path, client: str) -> None:
	"""It finds Python's waf where the link leads, and passes all on: arguments, status and ignored signals."""
	waf = install_copy(tmp_path / "bin")
	(waf.parent / "waf-python").write_text(TELLING % sys.executable)
	link = tmp_path / "link"
	link.symlink_to(waf)
	ignore = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
	done = subprocess.run(
		[*ignore, str(link), "a b", ""], capture_output=True, encoding="utf-8", timeout=60, check=False
	)
	words, ignored = done.stdout.split("\n")[:2]
	assert (done.returncode, words, done.stderr) == (3, "['a b', '']", "")
	assert int(ignored.split()[1], 16) & 1 << signal.SIGHUP - 1


@on_cpython
def test_a_listener_that_is_in_the_way(built: Resident, runtime: pathlib.Path) -> None:
	"""A socket whose queue is full does not hold the answer up."""
	pid = stop(built)
	(path,) = runtime.glob("resident-*.sock")
	held: List[socket.socket] = []
	try:
		for _ in range(200):
			one = socket.socket(socket.AF_UNIX)
			one.setblocking(False)
			held.append(one)
			try:
				one.connect(str(path))
			except BlockingIOError:
				break
		started = time.monotonic()
		assert "finished" in built.run("build").stdout
		assert time.monotonic() - started < 30
	finally:
		for one in held:
			one.close()
		os.kill(pid, signal.SIGCONT)


# ---- after an edit

SCRIPT = """\
def options(opt):
	opt.load('resident')

def configure(conf):
	pass

def build(bld):
	bld(rule='sh ${SRC} > ${TGT}', source='run.sh', target='out.txt')
"""
LOGGING = """\
#!%s
with open(%r, "a") as log:
	log.write("started\\n")
from waflib_extras.launcher import main
main()
"""


class Edited(NamedTuple):
	"""A project with a record, whose only command has changed since."""

	made: Resident
	log: pathlib.Path
	"""A line for each start of Python's waf."""

	def edit(self, text: str) -> None:
		(self.made.folder / "run.sh").write_text(text)

	def starts(self) -> int:
		return len(self.log.read_text().splitlines())

	def begin(self, **kw: Any) -> "subprocess.Popen[bytes]":
		"""Start a build whose command tells its number in a file, and wait for it."""
		pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
		begun = subprocess.Popen(
			self.made.command("build"), cwd=self.made.folder, env=self.made.environ(), **pipes, **kw
		)
		self.made.wait(lambda: self.pid())
		return begun

	def pid(self) -> int:
		try:
			return int((self.made.folder / "pid").read_text() or 0)
		except FileNotFoundError:
			return 0

	def is_gone(self) -> bool:
		return not os.path.exists("/proc/%d" % self.pid())


@pytest.fixture
def edited(resident: Make, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Edited:
	log = tmp_path / "log"
	(tmp_path / "bin" / "waf-python").write_text(LOGGING % (sys.executable, str(log)))
	made = resident({"wscript": SCRIPT, "run.sh": "echo one"})
	made.settle("build")
	made.wait(lambda: find_records(runtime))
	return Edited(made, log)


WAIT = "echo $$ > ../pid; exec sleep 60"


def test_an_edit_needs_no_python(edited: Edited) -> None:
	"""The resident process runs the build, and Python's waf is not started, edit after edit."""
	made, starts = edited.made, edited.starts()
	for number in range(3):
		made.wait(lambda: is_drawn(made))
		edited.edit(f"echo {number}")
		assert "run.sh" in made.run("build").stdout
		assert (made.folder / "build" / "out.txt").read_text() == f"{number}\n"
	assert made.count("thawed") == 3
	assert edited.starts() == starts


@on_cpython
def test_an_edit_that_fails(edited: Edited) -> None:
	"""The exit status and the messages are those of Python's waf."""
	starts = edited.starts()
	edited.edit("echo wrong >&2; exit 3")
	ours = edited.made.run("build", status=1)
	assert edited.starts() == starts
	theirs = edited.made.run("build", env={caller.OFF: "1"}, status=1)
	assert edited.starts() == starts + 1
	assert said(ours, edited.made.folder) == said(theirs, edited.made.folder)


@on_cpython
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 68), (signal.SIGTERM, -15), (signal.SIGHUP, -1)])
def test_signals_after_an_edit(number: int, status: int, edited: Edited) -> None:
	"""A signal ends the command, and the caller as Python's waf would end."""
	starts = edited.starts()
	edited.edit(WAIT)
	begun = edited.begin()
	begun.send_signal(number)
	begun.communicate(timeout=60)
	assert begun.returncode == status
	edited.made.wait(edited.is_gone)
	assert edited.starts() == starts


@on_cpython
def test_stopped_after_an_edit(edited: Edited) -> None:
	"""A caller that is stopped stops the command, too, and both go on together."""
	edited.edit(WAIT)
	begun = edited.begin()

	def state(pid: int) -> str:
		return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]

	begun.send_signal(signal.SIGTSTP)
	edited.made.wait(lambda: (state(begun.pid), state(edited.pid())) == ("T", "T"))
	begun.send_signal(signal.SIGCONT)
	edited.made.wait(lambda: "T" not in (state(begun.pid), state(edited.pid())))
	begun.send_signal(signal.SIGINT)
	begun.communicate(timeout=60)
	edited.made.wait(edited.is_gone)


@on_cpython
def test_a_caller_that_is_killed(edited: Edited) -> None:
	"""Its command ends with it."""
	edited.edit(WAIT)
	begun = edited.begin()
	begun.kill()
	begun.communicate(timeout=60)
	edited.made.wait(edited.is_gone)


@on_cpython
def test_a_resident_that_is_killed_in_a_command(edited: Edited) -> None:
	"""The caller says so, ends the command, and does not run it once more."""
	edited.edit(WAIT)
	begun = edited.begin()
	os.kill(edited.made.told()["pid"], signal.SIGKILL)
	_, err = begun.communicate(timeout=60)
	assert (begun.returncode, b"run it again" in err) == (1, True)
	edited.made.wait(edited.is_gone)


@on_cpython
def test_a_resident_that_is_killed_when_no_reader_is_left(edited: Edited) -> None:
	"""The command does not run once more, though the caller cannot say so."""
	starts = edited.starts()
	edited.edit(WAIT)
	begun = edited.begin()
	assert begun.stdout is not None and begun.stderr is not None
	begun.stdout.close()
	begun.stderr.close()
	os.kill(edited.made.told()["pid"], signal.SIGKILL)
	assert begun.wait(timeout=60) == 1
	edited.made.wait(edited.is_gone)
	assert edited.starts() == starts


READING = """\
import os

def options(opt):
	opt.load('resident')

def configure(conf):
	pass

def copy(task):
	task.outputs[0].write(os.read(int(task.inputs[0].read()), 100).decode())

def build(bld):
	bld(rule=copy, source='number', target='out.txt')
"""


def test_descriptors_after_an_edit(resident: Make, runtime: pathlib.Path) -> None:
	"""The build has the descriptors that the caller has."""
	made = resident({"wscript": READING, "number": "0"})
	made.settle("build")
	made.wait(lambda: find_records(runtime))
	ours, theirs = os.pipe()
	os.write(theirs, b"told by the caller")
	os.close(theirs)
	(made.folder / "number").write_text(str(ours))
	made.run("build", pass_fds=[ours])
	os.close(ours)
	assert (made.folder / "build" / "out.txt").read_text() == "told by the caller"


@on_cpython
def test_a_resident_that_refuses(edited: Edited) -> None:
	"""If the caller has other limits, Python's waf runs the build."""
	starts = edited.starts()
	edited.edit("umask")
	made = edited.made
	script = 'umask 077; exec "$@"'
	argv = ["sh", "-c", script, "sh", *made.command("build")]
	subprocess.run(argv, cwd=made.folder, env=made.environ(), timeout=60, check=True, capture_output=True)
	assert (made.folder / "build" / "out.txt").read_text() == "0077\n"
	assert edited.starts() == starts + 1


# ---- records of runs that were begun ahead


def answers(path: pathlib.Path) -> bool:
	"""Tell whether a record has an answer."""
	return b"finished" in path.read_bytes()


def test_a_record_without_an_answer(edited: Edited, runtime: pathlib.Path) -> None:
	"""After each build there is a record by which the native waf tells what has changed."""
	made = edited.made
	for number in range(2):
		edited.edit(f"echo {number}")
		made.run("build")
		made.wait(lambda: is_drawn(made))
		(path,) = find_records(runtime)
		assert not answers(path)
	assert not made.told()["unwritten"]
	starts = edited.starts()
	# nothing is to be done: the run goes on, and its record has an answer then
	thawed, answered = made.count("thawed"), made.count("answered")
	assert "run.sh" not in made.run("build").stdout
	assert made.count("thawed") == thawed + 1
	made.wait(lambda: all(map(answers, find_records(runtime))))
	made.run("build")
	assert made.count("answered") == answered + 1
	assert edited.starts() == starts


WITH_FACTS = """\
import os
top = '.'
out = 'out'

def options(opt):
	opt.load('resident')

def configure(conf):
	pass

def build(bld):
	for path in ('/out/../in/a.txt', '/in/a.txt'):
		os.stat(bld.srcnode.abspath() + path)
	assert not os.path.islink(bld.srcnode.abspath() + '/in/a.txt')
	bld(rule='cp ${SRC} ${TGT}', source='in/a.txt', target='a.out')
"""


@pytest.mark.parametrize("out", ["folder", pytest.param("link", marks=on_cpython)])
def test_paths_through_the_build_folder(out: str, resident: Make, runtime: pathlib.Path) -> None:
	"""A path through a folder and back is the path without it, unless the folder is a link."""
	made = resident(
		{"wscript": WITH_FACTS, "in/a.txt": "a\n", "else/here/a.txt": "b\n", "else/in/a.txt": "c\n"}, start=False
	)
	if out == "link":
		(made.folder / "out").symlink_to("else/here")
	made.run("configure", "build")
	made.wait(made.told)
	made.settle("build")
	made.wait(lambda: find_records(runtime))
	count = made.count("answered")
	assert "a.txt" not in made.run("build").stdout
	assert made.count("answered") == count + 1
	(made.folder / "in" / "a.txt").write_text("changed\n")
	assert "a.txt" in made.run("build").stdout
	assert (made.folder / "out" / "a.out").read_text() == "changed\n"
	made.settle("build")
	if out == "folder":
		# what was a folder leads elsewhere now, where the same is found
		os.rename(made.folder / "out", made.folder / "else" / "moved")
		(made.folder / "out").symlink_to("else/moved")
		count = made.count("answered")
		made.run("build")
		assert made.count("answered") == count


@pytest.mark.parametrize(
	("path", "through", "straight"),
	[
		("/p/out/../a.c", "/p/out", "/p/a.c"),
		("/out/../a.c", "/out", "/a.c"),
		("/p/..out/../a..c", "/p/..out", "/p/a..c"),
		("/p/a.c", "", "/p/a.c"),
		("/../a.c", "", "/../a.c"),
		("/p/./out/../a.c", "", "/p/./out/../a.c"),
		("/p//out/../a.c", "", "/p//out/../a.c"),
		("/p/out/../b/../a.c", "", "/p/out/../b/../a.c"),
		("/p/out/.././a.c", "", "/p/out/.././a.c"),
		("/p/out/../", "", "/p/out/../"),
	],
)
def test_paths_that_turn_back(path: str, through: str, straight: str, client: str) -> None:
	assert record.straighten(path) == (through, straight)
