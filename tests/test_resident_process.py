"""The process of the resident: refused callers, signals, unplanned ends, and how it is stopped."""

import _socket
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, Callable, Dict, List

import pytest
from conftest import on_cpython
from resident_support import TRIES, Resident, by_python

from waflib_extras.launcher import caller, residents
from waflib_extras.resident import child

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is none elsewhere")

FILES = {
	"wscript": """\
import os, sys, time
top = '.'
out = 'out'
def options(opt):
	opt.load('resident')
def configure(conf):
	pass
def build(bld):
	bld(rule='cp ${SRC} ${TGT}', source='a.txt', target='a.out')
def inherit(ctx):
	print(open('/dev/fd/9').read())
def wait(ctx):
	ctx.exec_command(['sh', '-c', 'echo $$ > pids; exec sleep 300'], stdout=None, stderr=None)
def fail(ctx):
	sys.exit(7)
def say(ctx):
	sys.exit('said at the end')
def shot(ctx):
	os.kill(os.getpid(), 9)
def tell(ctx):
	print('umask %o' % os.umask(0o22), os.getcwd(), sys.argv[1:], os.environ.get('PWD'), os.getppid())
""",
	"a.txt": "a",
}


def start(made: Resident, *args: str, **kw: Any) -> "subprocess.Popen[str]":
	return subprocess.Popen(
		made.command(*args),
		cwd=made.folder,
		env=made.environ(),
		stdin=subprocess.DEVNULL,
		stdout=subprocess.PIPE,
		stderr=subprocess.PIPE,
		encoding="utf-8",
		**kw,
	)


def read_pid(made: Resident) -> int:
	"""The process that runs the command ``wait``, when its own command runs."""

	def find() -> int:
		with contextlib.suppress(FileNotFoundError, ValueError):
			return os.getpgid(int((made.folder / "pids").read_text()))
		return 0

	return int(made.wait(find))


def is_alive(pid: int) -> bool:
	"""Tell whether a process of this group runs."""
	try:
		os.killpg(pid, 0)
	except OSError:
		return False
	return True


def finish(process: "subprocess.Popen[str]") -> List[Any]:
	with process:
		out, err = process.communicate(timeout=30)
		return [process.returncode, out, err]


@by_python
@pytest.mark.parametrize(
	"number, status",
	[
		(signal.SIGINT, 68),
		pytest.param(signal.SIGTERM, -15, marks=on_cpython),
		pytest.param(signal.SIGHUP, -1, marks=on_cpython),
	],
)
def test_signals(resident: Callable[..., Resident], number: int, status: int) -> None:
	"""A signal to the client reaches the build and its commands, and the client ends as the build does."""
	made = resident(FILES)
	process = start(made, "wait")
	pid = read_pid(made)
	process.send_signal(number)
	assert finish(process)[0] == status
	made.wait(lambda: not is_alive(pid))


@by_python
def test_stopped_and_continued(resident: Callable[..., Resident]) -> None:
	"""Ctrl-Z stops the client and the build; both go on together."""
	made = resident(FILES)
	process = start(made, "wait", start_new_session=True)
	pid = read_pid(made)

	def state(pid: int) -> str:
		return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

	process.send_signal(signal.SIGTSTP)
	made.wait(lambda: state(process.pid) == "T" and state(pid) == "T")
	process.send_signal(signal.SIGCONT)
	made.wait(lambda: state(process.pid) != "T" and state(pid) != "T")
	process.send_signal(signal.SIGINT)
	assert finish(process)[0] == 68
	made.wait(lambda: not is_alive(pid))


@by_python
def test_killed_client(resident: Callable[..., Resident]) -> None:
	"""The end of the client, even by -9, ends the build and its commands; the resident stays."""
	made = resident(FILES)
	process = start(made, "wait")
	pid = read_pid(made)
	process.kill()
	finish(process)
	made.wait(lambda: not is_alive(pid))
	assert made.run("build").returncode == 0
	assert made.count("forked") == 2


@by_python
def test_killed_resident(resident: Callable[..., Resident]) -> None:
	"""The end of the resident ends the build; the client says so, and the next build makes another resident."""
	made = resident(FILES)
	first = made.told()["pid"]
	process = start(made, "wait")
	pid = read_pid(made)
	os.kill(first, signal.SIGKILL)
	status, _, err = finish(process)
	assert status == 1
	assert "run it again" in err
	made.wait(lambda: not is_alive(pid))
	made.run("build")
	assert made.wait(made.told)["pid"] != first


@by_python
def test_ends(resident: Callable[..., Resident]) -> None:
	"""The client ends in the same way as its command."""
	made = resident(FILES)
	for name, status in (("fail", 7), ("say", 1), ("shot", -9)):
		done = made.run(name, status=None)
		assert done.returncode == status
	assert made.count("forked") == 3
	assert "said at the end" in made.run("say", status=None).stderr


@by_python
def test_circumstances(resident: Callable[..., Resident]) -> None:
	"""A child has the folder, arguments and variables of its caller."""
	made = resident(FILES)
	(made.folder / "below").mkdir()
	done = made.run("tell", "--targets=x", cwd="below", env={"PWD": "/somewhere"})
	line = next(line for line in done.stdout.splitlines() if line.startswith("umask"))
	assert line.split()[-1] == str(made.told()["pid"])
	assert f"{made.folder} ['tell', '--targets=x'] /somewhere" in line


@by_python
def test_other_descriptors(resident: Callable[..., Resident]) -> None:
	"""Descriptors that a caller passes on besides the streams, as make does, reach the command."""
	made = resident(FILES)
	(made.folder / "handed").write_text("handed on")
	command = 'exec 9<handed; exec "$@"'
	done = subprocess.run(
		["sh", "-c", command, "sh", *made.command("inherit")],
		cwd=made.folder,
		env=made.environ(),
		capture_output=True,
		timeout=60,
		check=True,
	)
	assert b"handed on" in done.stdout
	assert made.count("forked") == 1


@by_python
def test_other_limits(resident: Callable[..., Resident]) -> None:
	"""A command of a caller with another priority, umask or limit is not forked, but runs in the calling process."""
	made = resident(FILES)
	pid = str(made.told()["pid"])
	for change in ("umask 077", "ulimit -n 99", "renice -n 5 $$ >/dev/null"):
		command = ["sh", "-c", change + '; exec "$@"', "sh", *made.command("tell")]
		done = subprocess.run(command, cwd=made.folder, env=made.environ(), capture_output=True, timeout=60, check=True)
		text = done.stdout.decode()
		assert not any(line.endswith(f" {pid}") for line in text.splitlines()), change
		if "umask" in change:
			assert "umask 77" in text


def test_changed_waf(resident: Callable[..., Resident], tmp_path: pathlib.Path) -> None:
	"""When an imported module changes, the resident leaves, and the next one has the new module."""
	import shutil

	import waflib

	folder = tmp_path / "other"
	shutil.copytree(pathlib.Path(waflib.__file__).parent, folder / "waflib")
	made = resident(FILES, start=False)
	env = {"WAFDIR": str(folder)}
	made.run("configure", "build", env=env)
	first = made.wait(made.told)["pid"]
	made.settle("build", env=env)
	path = folder / "waflib" / "Build.py"
	path.write_text(path.read_text().replace("Entering directory", "Coming into"))
	assert "Coming into" in made.run("build", env=env).stdout
	made.wait(lambda: made.told().get("pid", first) != first)
	assert "Coming into" in made.settle("build", env=env).stdout


def test_where_compiled_modules_are(monkeypatch: pytest.MonkeyPatch) -> None:
	"""Beside their sources, or in the folder of ``PYTHONPYCACHEPREFIX``. Sources in such a folder's neighbour count."""
	from waflib_extras.resident import server

	assert server.is_compiled("/tree/__pycache__")
	assert not server.is_compiled("/compiled/tree")
	monkeypatch.setattr(sys, "pycache_prefix", "/compiled")
	assert server.is_compiled("/tree/__pycache__")
	assert server.is_compiled("/compiled") and server.is_compiled("/compiled/tree")
	assert not server.is_compiled("/compiled-not/tree")


@by_python
def test_modules_that_are_compiled_again(resident: Callable[..., Resident], tmp_path: pathlib.Path) -> None:
	"""The resident stays when other processes write or remove the compiled form of unchanged modules."""
	import shutil

	import waflib

	folder = tmp_path / "other"
	shutil.copytree(pathlib.Path(waflib.__file__).parent, folder / "waflib")
	made = resident(FILES, start=False)
	env = {"WAFDIR": str(folder), "PYTHONPYCACHEPREFIX": ""}
	compiling = [sys.executable, "-m", "compileall", "-q", str(folder)]
	subprocess.run(compiling, env={**os.environ, **env}, check=True)
	made.run("configure", "build", env=env)
	made.serve("build", env=env)
	pid = made.told()["pid"]
	compiled = list((folder / "waflib" / "__pycache__").glob("Build.*.pyc"))
	assert compiled
	for path in compiled:
		path.with_suffix(".new").write_bytes(path.read_bytes())
		path.with_suffix(".new").rename(path)
	made.run("build", env=env)
	assert made.told().get("pid") == pid
	shutil.rmtree(folder / "waflib" / "__pycache__")
	made.run("build", env=env)
	assert made.told().get("pid") == pid


@on_cpython
@by_python
def test_why_it_has_left(resident: Callable[..., Resident]) -> None:
	"""The next run tells in the zone why the resident has left."""
	made = resident(FILES)
	first = made.told()["pid"]
	made.run("--resident-stop")
	done = made.run("build", "--zones=resident")
	assert f"the one before has left: process {first}: it was told to" in done.stdout
	second = made.wait(made.told)["pid"]
	os.kill(second, signal.SIGKILL)
	made.wait(lambda: not is_alive(second))
	assert "the one before was killed" in made.run("build", "--zones=resident").stdout


@on_cpython
def test_older_waf(resident: Callable[..., Resident], waf20: pathlib.Path) -> None:
	"""Waf 2.0 is kept ready, too, as another Waf than the installed one."""
	made = resident(FILES, start=False)
	env = {"WAFDIR": str(waf20)}
	made.run("configure", "build", env=env)
	made.wait(made.told)
	made.settle("build", env=env)
	(made.folder / "a.txt").write_text("b")
	assert "a.txt" in made.run("build", env=env).stdout


@on_cpython
@by_python
def test_two_at_once(resident: Callable[..., Resident]) -> None:
	"""Two clients of a project run at once, as without a resident."""
	made = resident(FILES)
	both = [start(made, "wait"), start(made, "wait")]
	made.wait(lambda: made.count("forked") == 2)
	for process in both:
		process.kill()
		finish(process)


@on_cpython
@by_python
def test_moved_project(resident: Callable[..., Resident]) -> None:
	"""The resident leaves when its project's folder is gone."""
	made = resident(FILES)
	made.folder.rename(made.folder.parent / "moved")
	made.wait(lambda: not made.told())


@on_cpython
@by_python
def test_idle(resident: Callable[..., Resident]) -> None:
	"""It leaves when no call comes for some time."""
	made = resident(FILES, start=False)
	idle = {"WAF_RESIDENT_IDLE": "1"}
	made.run("configure", env=idle)
	made.wait(made.told)
	# a question would be a call
	made.wait(lambda: not list(pathlib.Path(os.environ["WAFD_RUNTIME_DIR"]).glob("resident-*.sock")))


@on_cpython
def test_list_and_stop(resident: Callable[..., Resident]) -> None:
	"""It is listed with its counts, and ends on request."""
	made = resident(FILES)
	made.settle("build")
	listed = made.run("--resident-list").stdout
	assert str(made.folder) in listed
	assert "answered" in listed
	assert "stopped" in made.run("--resident-stop").stdout
	assert not made.told()
	wrong = made.run("--resident-nonsense", status=1)
	assert "--resident-list" in wrong.stderr


@on_cpython
@by_python
def test_nonsense_on_the_socket(resident: Callable[..., Resident]) -> None:
	"""A malformed request ends only its connection; the socket is for its user alone."""
	made = resident(FILES)
	folder = pathlib.Path(caller.find_folder())
	(path,) = folder.glob("resident-*.sock")
	assert path.stat().st_mode & 0o077 == 0
	for data in (b"", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01x", (5).to_bytes(4, "big") + b"12345"):
		with socket.socket(socket.AF_UNIX) as sock:
			sock.settimeout(20)
			sock.connect(str(path))
			sock.sendall(data)
			sock.shutdown(socket.SHUT_WR)
			assert sock.recv(1) == b""
	assert made.told()


@on_cpython
@by_python
def test_open_folder(resident: Callable[..., Resident], runtime: pathlib.Path) -> None:
	"""A folder of sockets that is open to others is not used."""
	made = resident(FILES)
	runtime.chmod(0o755)
	try:
		assert list(residents.find_all()) == []
		made.run("build")
	finally:
		runtime.chmod(0o700)
	assert made.count("forked") == 0


def test_terminal(resident: Callable[..., Resident]) -> None:
	"""On a terminal, an answer has the colors that Waf uses there."""
	import pty

	made = resident(FILES)

	def see() -> bytes:
		ours, theirs = pty.openpty()
		environ: Dict[str, str] = dict(made.environ(), TERM="xterm")
		with subprocess.Popen(
			made.command("build"), cwd=made.folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
		) as process:
			os.close(theirs)
			text = b""
			with contextlib.suppress(OSError):
				while True:
					text += os.read(ours, 4096)
			os.close(ours)
			assert process.wait(30) == 0
		return text.partition(b"(")[0]

	plain = see()
	assert b"\x1b[" in plain
	made.wait(made.told)
	for _ in range(TRIES):
		assert see() == plain
		if made.count("answered"):
			return
	pytest.fail(f"it is never answered: {made.told()}")


@on_cpython
@by_python
def test_what_its_processes_replace_can_be_listed(resident: Callable[..., Resident]) -> None:
	"""A process of the resident names the functions of Waf that it replaces, as any tool does."""
	done = resident(FILES).run("build", "--zones=hooks")
	said = " ".join((done.stdout + done.stderr).split())
	assert "hooks resident replaces waflib.Utils.h_file" in said
	assert "replaced once more" not in said


class Late(_socket.socket):
	"""The connection of a caller that is held up until the resident has answered and has closed its end."""

	closed: threading.Event

	def sendmsg(self, *args: Any) -> int:
		sent = super().sendmsg(*args)
		assert self.closed.wait(30)
		return sent


def test_an_answer_to_a_caller_that_is_held_up() -> None:
	"""The caller reads it. Otherwise it would run the command line a second time."""
	ours, theirs = socket.socketpair()
	sock = Late(fileno=ours.detach())
	sock.closed = threading.Event()

	def answer() -> None:
		_, fds = child.receive_request(theirs)
		theirs.sendall(caller.pack(caller.STARTED, 5))
		theirs.close()
		for fd in fds:
			os.close(fd)
		sock.closed.set()

	resident = threading.Thread(target=answer)
	resident.start()
	caller.send_request(sock, caller.Start(dict(os.environ), [], ["waf", "build"], "", ""), "/")
	assert caller.receive(sock) == (caller.STARTED, 5)
	resident.join()
	sock.close()


def test_a_caller_does_not_wait_for_the_childs_memory() -> None:
	"""A child tells its status, and gives back the caller's descriptors, before it ends."""
	out, into = os.pipe()
	ours, theirs = socket.socketpair()
	pid = os.fork()
	if pid == 0:
		child.tell_end(theirs.fileno(), [into], 3)
		signal.pause()
		os._exit(1)
	try:
		os.close(into)
		theirs.close()
		assert ours.recv(2) == b"\3"
		assert os.read(out, 1) == b""
		assert os.waitpid(pid, os.WNOHANG) == (0, 0)
	finally:
		os.kill(pid, signal.SIGKILL)
		os.waitpid(pid, 0)
		os.close(out)
		ours.close()
