"""The engine's ``waf``: it answers from records of the resident process, and else starts the ``waf`` of Python."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Callable, List

import pytest
from resident_support import Resident, install, said

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


@pytest.mark.parametrize("damage", [damage_cut, damage_counts, damage_fifo, damage_link, damage_folder])
def test_what_is_no_record(damage: Callable[[pathlib.Path], None], built: Resident, runtime: pathlib.Path) -> None:
	"""Python runs the command line, and nothing waits for ever."""
	before = said(built.run("build"), built.folder)
	for path in find_records(runtime):
		damage(path)
	assert said(built.run("build"), built.folder) == before
	for path in find_records(runtime):
		shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


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


def test_a_record_of_another_user(built: Resident, runtime: pathlib.Path) -> None:
	if os.geteuid():
		pytest.skip("only root can give files away")
	for path in find_records(runtime):
		damage_text(path)
		os.chown(path, 1, 1)
	assert "finished" in built.run("build").stdout


@pytest.mark.parametrize("way", ["module", "path"])
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


def test_other_rights(built: Resident) -> None:
	"""In another namespace, other files may be there, so the record does not count."""
	if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
		pytest.skip("mount namespaces cannot be made here")
	count = built.count("answered")
	argv = ["unshare", "--mount", *built.command("build")]
	done = subprocess.run(argv, cwd=built.folder, env=built.environ(), capture_output=True, timeout=60, check=True)
	assert b"finished" in done.stdout
	assert built.count("answered") == count


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
