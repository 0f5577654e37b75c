"""Commands that ask for the time or for random numbers are hits if a second run, at another time, has made the same."""

import pathlib
import shutil
import socket
import subprocess
import time
from typing import Any, Dict

import pytest
from cache_support import PATIENCE
from test_cache_facts import Facts

pytestmark = pytest.mark.timeout(4 * PATIENCE)

WAITS = "has not been run a second time yet"
OTHER = "a second run at another time made something else"
TEXT = "two\none\ntwo\n"
FILES = {
	"in.txt": TEXT,
	"plain.sh": 'while read -r line; do echo "$line"; done < in.txt > out\n',
	"folder.sh": "cat > out <<END\n$(sort in.txt)\nEND\n",
	"pieces.sh": "for i in 1 2 3; do (echo $i; cat in.txt) > out.$i; done; cat out.1 out.2 out.3 > out\n",
	"Makefile": "out: in.txt\n\tsort in.txt > out\n",
	"plain.pl": 'my %n; $n{$_}++ for (1, 2, 2); open(my $o, ">", "out"); print $o join(" ", sort keys %n);\n',
	"seeded.py": (
		"import random, tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'x')\n"
		"random.seed(1)\nopen('out', 'w').write(str(random.random()))\n"
	),
	"date.sh": "printf '%(%F %T)T' -1 > out\n",
	"year.sh": "printf '%(%Y)T' -1 > out\n",
	"day.sh": "printf '%(%A)T' -1 > out\n",
	"epoch.sh": "echo $((EPOCHSECONDS / 86400)) > out\n",
	"chance.sh": "echo $RANDOM$RANDOM > out\n",
	"number.sh": "echo $BASHPID > out\n",
	"chance.pl": 'open(my $o, ">", "out"); print $o rand();\n',
	"time.pl": 'open(my $o, ">", "out"); print $o int(time() / 86400);\n',
	"date.pl": 'open(my $o, ">", "out"); print $o scalar(localtime());\n',
	"today.py": "import random, datetime\nopen('out', 'w').write(str(datetime.date.today()))\n",
	"name.sh": "printf '%(%Y)T' -1 > name-$(printf '%(%Y)T' -1); echo > out\n",
	"own.pl": 'open(my $o, ">", "out"); close $o; my $t = (stat "out")[9]; open($o, ">", "out"); print $o $t;\n',
	"says.sh": "echo $SRANDOM; echo > out\n",
}
ALIKE = {
	"bash": "bash plain.sh",
	"a text in the script": "bash folder.sh",
	"forks": "bash pieces.sh",
	"make": "make -s",
	"mawk": 'mawk {{print($1)>"out"}} in.txt',
	"perl": "perl plain.pl",
	"python": "/usr/bin/python3 -S -B seeded.py",
}
DIFFERENT = [
	*("bash date.sh", "bash year.sh", "bash day.sh", "bash epoch.sh", "bash chance.sh", "bash number.sh"),
	*("bash name.sh", "bash says.sh", "perl chance.pl", "perl time.pl", "perl date.pl", "perl own.pl"),
	"/usr/bin/python3 -S -B today.py",
]


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	sandbox = Facts.make(engine, tmp_path, **FILES)
	prove(sandbox)
	time.sleep(0.1)  # what was written just before a command is not trusted
	return sandbox


def prove(sandbox: Facts) -> None:
	"""Have commands run a second time, where that is possible."""
	at = sandbox.folder.parent / "apart"
	at.mkdir()
	tried = [sandbox.engine, "apart", str(at), "1048576", "1", str(sandbox.folder), "0", "0", "0", "true"]
	done = subprocess.run(tried, capture_output=True, text=True, check=False, timeout=PATIENCE)
	if done.returncode:
		pytest.skip("nothing can run apart here: %s" % done.stderr.strip())
	configure(sandbox, "prove_commands=yes")


def configure(sandbox: Facts, setting: str) -> None:
	subprocess.run([sandbox.wafcc, "--set-config", setting], env=sandbox.environ, check=True)


def proofs(sandbox: Facts) -> Dict[str, Any]:
	told: Dict[str, Any] = sandbox.statistics()["proofs"]
	return told


def wait(sandbox: Facts) -> Dict[str, Any]:
	"""Wait until no command is to be run a second time."""
	deadline = time.monotonic() + 2 * PATIENCE
	while True:
		told = proofs(sandbox)
		if not told["waiting"]:
			return told
		assert time.monotonic() < deadline, told
		time.sleep(0.1)


def remove_made(sandbox: Facts) -> Dict[str, bytes]:
	"""Remove what was made, and return it."""
	made = {name: text for name, text in sandbox.look().items() if name not in FILES}
	for name in made:
		(sandbox.folder / name).unlink()
	return made


def need(line: str) -> None:
	program = line.split()[0]
	if not shutil.which(program):
		pytest.skip("there is no %s" % program)


def run(sandbox: Facts, line: str) -> str:
	"""Run a command by its facts, and return the verdict."""
	done = sandbox.run_by_facts(line.replace("{{", "{").replace("}}", "}"))
	assert done.returncode == 0, done.stderr
	return sandbox.explain(sandbox.folder / "out")


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_made_alike_is_a_hit(name: str, sandbox: Facts) -> None:
	"""Not before a second run has shown it. The results are those of the plain command."""
	line = ALIKE[name]
	need(line)
	assert "miss" in run(sandbox, line)
	made = remove_made(sandbox)
	told = wait(sandbox)
	assert (told["proved"], told["refuted"], told["unproved"]) == (1, 0, {}), told
	assert run(sandbox, line).startswith("hit")
	assert remove_made(sandbox) == made
	sandbox.check(line, "out")
	sandbox.write("in.txt", TEXT + "three\n")
	time.sleep(0.1)
	if "in.txt" in FILES.get(line.split()[-1], "in.txt"):
		assert "miss" in sandbox.check(line, "out")


@pytest.mark.parametrize("line", DIFFERENT)
def test_what_shows_the_time_or_chance_is_none(line: str, sandbox: Facts) -> None:
	"""Neither on the same day, nor later. It is not tried again."""
	need(line)
	assert "miss" in run(sandbox, line)
	remove_made(sandbox)
	told = wait(sandbox)
	assert (told["proved"], told["refuted"], told["unproved"]) == (0, 1, {}), told
	assert OTHER in run(sandbox, line)
	remove_made(sandbox)
	assert OTHER in run(sandbox, line)
	told = wait(sandbox)
	assert told["refuted"] == 1 and sandbox.hits() == 0
	assert OTHER in run(sandbox, line)


def test_no_hit_before_the_second_run(sandbox: Facts) -> None:
	assert "it is no hit before it has been run a second time" in run(sandbox, ALIKE["bash"])
	(sandbox.folder / "out").unlink()
	assert WAITS in run(sandbox, ALIKE["bash"])


def test_switched_off(sandbox: Facts) -> None:
	"""It is as ever: the command is not stored."""
	configure(sandbox, "prove_commands=no")
	assert "asks for" in run(sandbox, ALIKE["bash"])
	assert wait(sandbox)["proved"] == 0 and sandbox.reasons()


def test_other_programs(sandbox: Facts) -> None:
	"""A program of the user's own is believed only if a setting names it, and so is a program that tells the time."""
	shutil.copy(shutil.which("bash") or "bash", sandbox.folder / "shell")
	time.sleep(0.1)
	assert "asks for" in run(sandbox, "./shell plain.sh")
	assert "asks for" in run(sandbox, "bash -c date>out")
	configure(sandbox, "prove_programs=other shell")
	assert "not stored" not in run(sandbox, "./shell plain.sh")
	(sandbox.folder / "out").unlink()
	assert wait(sandbox)["proved"] == 1
	assert run(sandbox, "./shell plain.sh").startswith("hit")


def test_the_second_run_changes_nothing(sandbox: Facts) -> None:
	"""It writes neither where the first run did, nor elsewhere."""
	elsewhere = sandbox.folder.parent / "elsewhere"
	sandbox.write(
		"evil.sh",
		"echo made > out\n[ $(printf '%%(%%Y)T' -1) = %s ] || { echo > %s; rm in.txt; echo 2 > out; echo > more; }\n"
		% (time.strftime("%Y"), elsewhere),
	)
	time.sleep(0.1)
	run(sandbox, "bash evil.sh")
	before = sandbox.look()
	status = (sandbox.folder / "out").stat()
	assert wait(sandbox)["refuted"] == 1
	after = (sandbox.folder / "out").stat()
	assert sandbox.look() == before and not elsewhere.exists()
	assert (status.st_ino, status.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
	assert str(sandbox.folder) not in pathlib.Path("/proc/mounts").read_text()


def test_the_second_run_reaches_nobody(sandbox: Facts, tmp_path: pathlib.Path) -> None:
	"""Neither does it end other processes, nor talk to them."""
	other = subprocess.Popen(["sleep", "600"])
	listener = socket.socket(socket.AF_UNIX)
	try:
		listener.bind(str(tmp_path / "socket"))
		listener.listen()
		listener.setblocking(False)
		year = time.strftime("%Y")
		sandbox.write("kill.sh", "echo > out\n[ $(printf '%%(%%Y)T' -1) = %s ] || kill -9 %d\n" % (year, other.pid))
		talk = (
			"import socket, time, random\nopen('out', 'w')\nif time.gmtime().tm_year != %s:\n\ts = socket.socket(1)\n"
		)
		sandbox.write("talk.py", talk % year + "\ts.connect(%r)\n" % str(tmp_path / "socket"))
		time.sleep(0.1)
		for number, line in enumerate(["bash kill.sh", "/usr/bin/python3 -S -B talk.py"], start=1):
			assert "not stored" not in run(sandbox, line)
			(sandbox.folder / "out").unlink()
			assert wait(sandbox)["unproved"] == {"it could not be observed": number}
		assert other.poll() is None
		with pytest.raises(BlockingIOError):
			listener.accept()
	finally:
		listener.close()
		other.kill()
		other.wait()


def test_inputs_that_change_before_the_second_run(sandbox: Facts) -> None:
	"""The second run would say nothing about the first one."""
	run(sandbox, ALIKE["bash"])
	sandbox.write("in.txt", "other\n")
	(sandbox.folder / "out").unlink()
	told = wait(sandbox)
	assert told["unproved"] == {"its inputs have changed": 1} and not told["proved"] + told["refuted"]
	time.sleep(0.1)
	assert "miss" in run(sandbox, ALIKE["bash"])
	(sandbox.folder / "out").unlink()
	assert wait(sandbox)["proved"] == 1
	assert run(sandbox, ALIKE["bash"]).startswith("hit")


def test_a_command_that_waits_for_a_time_is_ended(sandbox: Facts) -> None:
	"""It would wait for a year. Nothing is concluded, and nothing of it is left."""
	sandbox.write(
		"wait.sh", "end=$((%d + 3600)); while ((EPOCHSECONDS > end)); do sleep 77; done; echo > out\n" % time.time()
	)
	time.sleep(0.1)
	run(sandbox, "bash wait.sh")
	(sandbox.folder / "out").unlink()
	assert wait(sandbox)["unproved"] == {"it took too long": 1}
	found = subprocess.run(["pgrep", "-f", "^sleep 77$"], stdout=subprocess.PIPE, check=False).stdout
	assert found == b""


def test_told(sandbox: Facts) -> None:
	run(sandbox, ALIKE["bash"])
	wait(sandbox)
	shown = subprocess.run([sandbox.wafcc, "-s"], env=sandbox.environ, capture_output=True, text=True, check=True)
	assert "Run a second time:" in shown.stdout and "  Made the same:" in shown.stdout
