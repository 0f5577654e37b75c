"""The answers of a resident are those of Waf: each kind of change, compared with a project without a resident."""

import os
import pathlib
import random
import shutil
import subprocess
import sys
from typing import Callable, Dict, NamedTuple, Tuple

import pytest
from conftest import on_cpython
from resident_support import Pair, by_python, said

from waflib_extras.launcher import caller
from waflib_extras.resident import memo, witness

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is none elsewhere")

FILES = {
	"wscript": """\
import os
import tool
from waflib import Utils

top = '.'
out = 'out'
setting = 'one'

def options(opt):
	opt.load('resident')
	opt.add_option('--shout', action='store_true', default=False)

def configure(conf):
	conf.env.WORD = 'word'

def build(bld):
	bld.env.SETTING = setting + os.environ.get('EXTRA', '') + (bld.options.shout and '!' or '')
	bld(rule='cat ${SRC} > ${TGT} && echo ${WORD} ${SETTING} >> ${TGT}', source='a.txt', target='a.out')
	bld(rule=tool.RULE, source='a.out b.txt', target='b.out')
	for node in bld.path.ant_glob('many/*.txt'):
		bld(rule='cp ${SRC} ${TGT}', source=node, target=node.change_ext('.out'))
	if os.path.exists(bld.path.abspath() + '/switch'):
		bld(rule='echo on > ${TGT}', target='switched.out')
	bld(rule='cp ${SRC} ${TGT}', source='link.txt', target='link.out')
	bld(features='looks', source='scanned.src', target='scanned.out')
	bld.install_files('${PREFIX}/share', 'a.out')
	bld.recurse('sub')

def hello(ctx):
	print('hello')

from waflib.Build import BuildContext
class other(BuildContext):
	cmd = 'other'
	variant = 'other'

from waflib import Task, TaskGen
class look(Task.Task):
	run_str = 'cat ${SRC} > ${TGT}'
	def scan(self):
		words = self.inputs[0].read().split()
		return [x for x in (self.inputs[0].parent.find_node(w) for w in words) if x], []

@TaskGen.feature('looks')
@TaskGen.before_method('process_source')
def looks(self):
	self.create_task('look', self.path.find_resource(self.source), self.path.find_or_declare(self.target))
	self.source = []
""",
	"tool.py": "RULE = 'cat ${SRC} > ${TGT}'\n",
	"sub/wscript": "def build(bld):\n\tbld(rule='tr a-z A-Z < ${SRC} > ${TGT}', source='c.txt', target='c.out')\n",
	"sub/c.txt": "cccc\n",
	"a.txt": "aaaa\n",
	"b.txt": "bbbb\n",
	"many/1.txt": "1\n",
	"many/2.txt": "2\n",
	"here.txt": "here\n",
	"link.txt": "",
	"scanned.src": "dep1.inc dep2.inc\n",
	"dep1.inc": "dep\n",
}


def link(folder: pathlib.Path, to: str) -> None:
	path = folder / "link.txt"
	path.unlink()
	path.symlink_to(to)


def set_back(folder: pathlib.Path) -> None:
	"""Write another content of the same size, and restore the times."""
	path = folder / "a.txt"
	found = path.stat()
	path.write_text("AAAA\n")
	os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def replace(path: str, old: str, new: str) -> Callable[[pathlib.Path], None]:
	def change(folder: pathlib.Path) -> None:
		file = folder / path
		text = file.read_text()
		assert old in text
		file.write_text(text.replace(old, new))

	return change


def write(path: str, text: str) -> Callable[[pathlib.Path], None]:
	def change(folder: pathlib.Path) -> None:
		(folder / path).write_text(text)

	return change


def remove(path: str) -> Callable[[pathlib.Path], None]:
	return lambda folder: (folder / path).unlink()


def move_away_and_back(folder: pathlib.Path) -> None:
	"""Replace the whole folder by another one with the same content."""
	shutil.copytree(folder / "many", folder / "copy")
	shutil.rmtree(folder / "many")
	(folder / "copy").rename(folder / "many")


def nothing(folder: pathlib.Path) -> None:
	pass


class Change(NamedTuple):
	name: str
	change: Callable[[pathlib.Path], None]
	args: Tuple[str, ...] = ("build",)
	env: Dict[str, str] = {}
	builds: str = ""
	"""A word of the output that shows that the change was seen."""
	cwd: str = ""
	settles: bool = True
	"""Whether to make the change when the resident would answer from memory."""


CHANGES = {
	"sources and wscripts": (
		Change("an edited source", write("a.txt", "other\n"), builds="a.out"),
		Change("a dependency that a scanner found", write("dep1.inc", "other\n"), builds="scanned"),
		Change("a dependency that was not there", write("dep2.inc", "other\n")),
		Change("the wscript", replace("wscript", "setting = 'one'", "setting = 'two'"), builds="a.out"),
		Change("a module that the wscript imports", replace("tool.py", "cat", "cat -u"), builds="b.out"),
		Change(
			"the wscript of a folder below", replace("sub/wscript", "tr a-z A-Z", "tr a-z B-ZA"), builds="sub/c.txt"
		),
	),
	"files and options": (
		Change("a new file for a pattern", write("many/3.txt", "3\n"), builds="3.txt"),
		Change("a file for a pattern that is gone", remove("many/1.txt")),
		Change("an output that is gone", remove("out/b.out"), builds="b.out"),
		Change("an output that was changed", write("out/a.out", "broken\n"), builds="b.out"),
		Change("an option", nothing, args=("build", "--shout"), builds="a.out"),
		Change("a variable", nothing, env={"EXTRA": "extra"}, builds="a.out"),
	),
	"status and links": (
		Change("what configure found", replace("out/c4che/_cache.py", "'word'", "'byword'"), builds="a.out"),
		Change("a touched source", lambda folder: os.utime(folder / "a.txt")),
		Change("permissions", lambda folder: (folder / "a.txt").chmod(0o600)),
		Change("a link to another file", lambda folder: link(folder, "a.txt"), builds="link"),
		Change("other content of the same time and size", set_back, builds="a.out"),
	),
	"folders and variants": (
		Change("a file that the wscript looks for", write("switch", ""), builds="switched"),
		Change("a folder that is replaced", move_away_and_back),
		Change("a clean build folder", nothing, args=("clean",)),
		Change("all built again", nothing, builds="a.out"),
		Change("another variant", nothing, args=("other",), builds="a.out"),
	),
	"commands": (
		Change("two commands", nothing, args=("build", "other")),
		Change("a command of the wscript", nothing, args=("hello",), builds="hello"),
		Change("a target", nothing, args=("build", "--targets=a.out")),
		Change("a progress bar", nothing, args=("build", "-p")),
		Change("from a folder below", nothing, cwd="sub"),
		Change("a list of targets", nothing, args=("list",), builds="a.out"),
		Change("a command that there is not", nothing, args=("nonsense",), builds="nonsense"),
	),
	"ends": (
		Change("a source that is gone", remove("sub/c.txt"), builds="c.txt"),
		Change("the source back", write("sub/c.txt", "CC\n"), settles=False),
		Change("configured again", nothing, args=("configure",)),
		Change("built after that", nothing),
		Change("all removed", nothing, args=("distclean",)),
		Change("nothing configured", nothing),
	),
}


ON_PYPY = ("sources and wscripts", "ends")  # what they compare is data, which is the same with any interpreter


@pytest.mark.parametrize("part", [x if x in ON_PYPY else pytest.param(x, marks=on_cpython) for x in CHANGES])
def test_every_change(pair: Callable[..., Pair], part: str) -> None:
	"""After each kind of change, output and results are those of Waf without a resident."""
	both = pair(FILES)
	for change in CHANGES[part]:
		if change.settles and change.change is not nothing:
			both.ours.settle(*change.args, env=change.env, cwd=change.cwd)
		both.change(change.change)
		text = both.run_alike(*change.args, env=change.env, cwd=change.cwd)
		assert change.builds in text, change.name


UNSEEN = {
	"the clock": ("import time\n", "bld.env.X = str(time.time_ns())"),
	"the date": ("import datetime\n", "bld.env.X = str(datetime.datetime.now())"),
	"chance": ("import random\n", "bld.env.X = str(random.random())"),
	"a command": ("", "bld.env.X = bld.cmd_and_log('cat outside', quiet=0)"),
	"a process": ("import subprocess\n", "bld.env.X = subprocess.check_output(['cat', 'outside']).decode()"),
	"the number of the process": ("import os\n", "bld.env.X = str(os.getpid())"),
	"a file that it writes": ("", "bld.path.make_node('written').write('x'); bld.env.X = 'x'"),
	"what it writes to itself": ("import os\n", "os.write(1, b'raw'); bld.env.X = 'x'"),
	"standard input": ("import sys\n", "bld.env.X = sys.stdin.read()"),
	"a socket": ("import socket\n", "socket.socket().close(); bld.env.X = 'x'"),
	"the system's numbers": ("", "bld.env.X = open('/proc/self/stat').read()[:1]"),
}
UNSEEN_FILES = {
	"outside": "outside",
	"wscript": """\
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
""",
}


@by_python
def test_what_is_not_seen(resident: Callable[..., object]) -> None:
	"""A wscript that reads something that cannot be compared is run each time, and the reason is told."""
	made = resident(dict(UNSEEN_FILES, wscript=UNSEEN_FILES["wscript"] % ("", "pass")))
	made.settle("build")
	for name, lines in UNSEEN.items():
		(made.folder / "wscript").write_text(UNSEEN_FILES["wscript"] % lines)
		answered = made.count("answered")
		for _ in range(3):
			made.run("build")
		told = made.told()
		assert told["counts"]["answered"] == answered, name
		assert told["reason"], name


SEEN = {
	"a file that is read": "bld.path.find_node('outside').read()",
	"a file that is opened": "open(bld.path.abspath() + '/outside').read()",
	"a size": "str(os.stat(bld.path.abspath() + '/outside').st_size)",
	"a kind": "str(os.path.isfile(bld.path.abspath() + '/outside'))",
	"a listing": "str(os.listdir(bld.path.abspath() + '/folder'))",
	"a walk": "str(list(os.walk(bld.path.abspath() + '/folder')))",
	"a link": "os.readlink(bld.path.abspath() + '/link')",
	"pathlib": "str(sorted(pathlib.Path(bld.path.abspath(), 'folder').glob('*')))",
	"permissions": "str(os.access(bld.path.abspath() + '/outside', os.X_OK))",
	"a relative path": "open('outside').read()",
}


def change_all(folder: pathlib.Path) -> None:
	"""Change everything that the lines above look at."""
	(folder / "outside").unlink()
	(folder / "outside").mkdir()
	(folder / "folder" / "new").write_text("")
	(folder / "link").unlink()
	(folder / "link").symlink_to("elsewhere")


def change_back(folder: pathlib.Path) -> None:
	(folder / "outside").rmdir()
	(folder / "outside").write_text("outside")
	(folder / "folder" / "new").unlink()
	(folder / "link").unlink()
	(folder / "link").symlink_to("outside")


def test_what_is_seen(resident: Callable[..., object]) -> None:
	"""A wscript may read files, folders and links: it is answered from memory until one of them is another."""
	text = "import os\nimport pathlib\n" + UNSEEN_FILES["wscript"]
	made = resident(dict(UNSEEN_FILES, wscript=text % ("", "pass"), **{"folder/file": "", "link": ""}))
	change_all(made.folder)
	change_back(made.folder)
	for name in SEEN:
		(made.folder / "wscript").write_text(text % ("", f"print({SEEN[name]})"))
		before = said(made.settle("build"), made.folder)
		answered = made.count("answered")
		change_all(made.folder)
		after = said(made.run("build", status=None), made.folder)
		assert made.count("answered") == answered, name
		assert after != before, name
		change_back(made.folder)
		assert said(made.run("build"), made.folder) == before


@on_cpython
def test_random_edits(pair: Callable[..., Pair]) -> None:
	"""Any sequence of edits gives the same as Waf without a resident."""
	both = pair(FILES)
	draw = random.Random(6)
	texts = ("a.txt", "b.txt", "many/1.txt", "many/2.txt", "dep1.inc", "dep2.inc", "sub/c.txt", "scanned.src")
	all_kinds = ("edit", "edit", "touch", "output", "nothing", "file", "same", "wscript", "remove")
	for step in range(5):
		kinds = [draw.choice(all_kinds) for _ in range(draw.randint(1, 2))]
		for kind in kinds:
			name, output = draw.choice(texts), draw.choice(("a.out", "b.out", "sub/c.out", "link.out"))

			def change(
				folder: pathlib.Path, kind: str = kind, name: str = name, output: str = output, step: int = step
			) -> None:
				path = folder / name
				if kind == "edit":
					path.write_text(f"dep1.inc {step}\n")
				elif kind == "touch" and path.exists():
					os.utime(path)
				elif kind == "output":
					(folder / "out" / output).unlink()
				elif kind == "wscript":
					(folder / "tool.py").write_text("RULE = 'cat ${SRC} > ${TGT} && echo %d >> ${TGT}'\n" % step)
				elif kind == "remove" and name.startswith("many"):
					path.unlink()
				elif kind == "file":
					(folder / "many" / f"new{step}.txt").write_text(name)
				elif kind == "same" and path.exists():
					path.write_text(path.read_text())

			both.change(change)
		for args, env in ((draw.choice(((), ("--shout",))), {}), ((), draw.choice(({}, {}, {"EXTRA": "extra"})))):
			both.run_alike("build", *args, env=env)
	assert both.ours.count("forked")


def test_two_outputs_of_time() -> None:
	"""The time is cut out of the output. If it cannot be found there, nothing is kept."""
	pieces = memo.cut_pieces([(1, b"a (0.1"), (1, b"00s)\n"), (2, b"b"), (1, b"(0.200s)")], ["0.100s", "0.200s"])
	assert pieces == [(1, b"a ("), (1, None), (1, b")\n"), (2, b"b"), (1, b"("), (1, None), (1, b")")]
	with pytest.raises(memo.Unkept):
		memo.cut_pieces([(1, b"0.100s 0.100s")], ["0.100s"])
	with pytest.raises(memo.Unkept):
		memo.cut_pieces([(1, b"0.200s 0.100s")], ["0.100s", "0.200s"])


def test_other_file_systems() -> None:
	"""Files on a network file system are not trusted: its client may report an old status."""
	mounts = memo.Mounts("1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / /net rw shared:1 - nfs4 x rw\n")
	mounts.check("/home")
	with pytest.raises(memo.Unkept, match="nfs4"):
		mounts.check("/net/home")


def test_paths_below_the_project() -> None:
	"""Paths are shortened only if they begin with the project's folder."""
	facts = dict.fromkeys(("/p/a", "/p/b/../c", "/p//etc/passwd", "/p", "/p/", "/pq/a"), 1)
	far, near = memo.part(facts, "/p")
	assert set(near) == {"a", "b/../c"}
	assert set(far) == {"/p//etc/passwd", "/p", "/p/", "/pq/a"}


def test_a_file_of_the_last_moment() -> None:
	"""A file that was changed just before is not trusted, and for longer where times are whole seconds."""
	now = 10_500_000_001
	at = [0] * 9
	for changed, fresh in ((now, True), (now - 50_000_000, True), (now - 200_000_000, False), (9_000_000_000, True)):
		at[witness.CHANGED] = changed
		assert witness.is_fresh(tuple(at), now) == fresh


def test_names_that_reach_the_unseen() -> None:
	"""Code that names the clock or chance is found, however deep it is in functions."""
	for text, found in (("import datetime", True), ("def f():\n\tdef g(): return x.uuid", True), ("x.date", False)):
		assert bool(witness.find_unseen(compile(text, "f", "exec"))) == found


KEPT = """\
import pathlib, pwd, sys
from os import listdir
from waflib_extras.resident import watched, witness
watched.install()
seen = witness.Witness()
seen.begin()
pathlib.Path(sys.argv[1]).exists()
listdir(sys.argv[2])
seen.end()
assert sys.argv[1] in seen.files or sys.argv[1] in seen.kinds, vars(seen)
assert sys.argv[2] in seen.lists, vars(seen)
assert not seen.hindrance, seen.hindrance
seen.begin()
pwd.getpwuid(0)
assert "getpwuid" in seen.hindrance
"""


def test_functions_that_others_keep(tmp_path: pathlib.Path) -> None:
	"""A function of os that an imported module keeps is watched, too."""
	path = os.pathsep.join([str(pathlib.Path(caller.__file__).parent.parent), *sys.path])
	command = [sys.executable, "-c", KEPT, str(tmp_path / "file"), str(tmp_path)]
	subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True, timeout=60)


@on_cpython
def test_switched_off(resident: Callable[..., object]) -> None:
	"""With --no-resident, or with the variable, Waf runs in the calling process."""
	made = resident({"wscript": UNSEEN_FILES["wscript"] % ("", "print(os.getppid())"), "outside": ""}, start=False)
	(made.folder / "wscript").write_text("import os\n" + (made.folder / "wscript").read_text())
	made.run("configure", "build")
	made.wait(made.told)
	pid = str(made.told()["pid"])
	assert pid in made.run("build").stdout.split()
	assert pid not in made.run("build", "--no-resident").stdout.split()
	assert pid not in made.run("build", env={caller.OFF: "1"}).stdout.split()
