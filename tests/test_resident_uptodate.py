"""Tasks that were asked before the call: they count as up to date only as long as nothing has changed for them."""

import os
import pathlib
import shutil
import sys
from typing import Any, Callable, Dict, Tuple

import pytest
from conftest import on_cpython
from resident_support import Pair, Resident, by_python
from test_resident_sketch import is_drawn

from waflib_extras.launcher import caller

pytestmark = [
	pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is none elsewhere"),
	pytest.mark.skipif(not any(map(shutil.which, ("gcc", "clang"))), reason="needs a compiler of C"),
]

FILES = {
	"wscript": """\
import own
top = '.'
out = 'out'

def options(opt):
	opt.load('compiler_c TOOLS resident')

def configure(conf):
	conf.load('compiler_c')

def build(bld):
	print('the wscript prints')
	bld(rule='(echo "#define MADE \\\\\\\\"; cat ${SRC}) > ${TGT}', source='made.txt', target='made.h', ext_out=['.h'])
	bld.stlib(source='a.c b.c', target='low', includes='. first inc')
	bld.program(source='main.c', target='app', includes='. first inc', use='low')
	bld(rule='${SRC[0].abspath()} > ${TGT}', source='app', target='said.txt')
	bld(features='own', source='own.txt')
""",
	"own.py": """\
from waflib import Task, TaskGen

class own(Task.Task):
	def runnable_status(self):
		status = super().runnable_status()
		if status == Task.SKIP_ME and self.inputs[0].read() == 'run':
			return Task.RUN_ME
		return status

	def run(self):
		self.outputs[0].write(self.inputs[0].parent.find_node('beside.txt').read())

@TaskGen.feature('own')
@TaskGen.before('process_source')
def make_own(self):
	node = self.path.find_resource(self.source)
	self.create_task('own', [node], [node.change_ext('.out')])
	self.source = []
""",
	"a.c": '#include "h.h"\nint a(void) { return H; }\n',
	"b.c": '#include "made.h"\nint b(void) { return MADE; }\n',
	"main.c": '#include <stdio.h>\n#include "h.h"\nint a(void), b(void);\n'
	'int main(void) { printf("%d %d %d\\n", a(), b(), H); return 0; }\n',
	"first/real.h": "#define H 66\n",
	"inc/h.h": "#define H 1\n",
	"made.txt": "10\n",
	"own.txt": "rest",
	"beside.txt": "one",
}

COUNTING = """\
import own
from waflib import Build
asked = []
stock = Build.BuildContext.hash_env_vars

def hash_env_vars(self, *args):
	asked.append(args)
	return stock(self, *args)

Build.BuildContext.hash_env_vars = hash_env_vars

def tell(bld):
	print('asked: %d' % len(asked))

"""

PRINTING = """\
import own
from waflib import Build
stock = Build.BuildContext.hash_env_vars

def hash_env_vars(self, *args):
	print('asked')
	return stock(self, *args)

Build.BuildContext.hash_env_vars = hash_env_vars

"""

REPLACING = """\
import own
from waflib import Task
stock = Task.Task.signature
asked = []

def signature(self):
	asked.append(self)
	return stock(self)

Task.Task.signature = signature

"""

Edit = Callable[[pathlib.Path], Any]
CACHED = "prefork wafcc large"
on_both = pytest.mark.parametrize(
	("client", "tools"),
	[("python", ""), pytest.param("native", CACHED, marks=on_cpython)],
	indirect=["client"],
)


def write(path: str, text: str) -> Edit:
	return lambda folder: (folder / path).write_text(text)


def both_of(*edits: Edit) -> Edit:
	return lambda folder: [edit(folder) for edit in edits]


def turn_link(folder: pathlib.Path) -> None:
	(folder / "inc" / "h.h").unlink()
	(folder / "inc" / "h.h").symlink_to("../first/real.h")


def tamper(folder: pathlib.Path) -> None:
	"""An object has the content of another one."""
	shutil.copyfile(find_object(folder, "b"), find_object(folder, "a"))


def find_object(folder: pathlib.Path, source: str) -> pathlib.Path:
	(found,) = (folder / "out").glob(f"{source}.c.*.o")
	return found


EDITS: Tuple[Tuple[str, Edit], ...] = (
	("a source", write("a.c", FILES["a.c"] + "/* other */ int c(void) { return 2; }\n")),
	("a header", write("inc/h.h", "#define H 22\n")),
	("what a header is made of", write("made.txt", "33\n")),
	("two sources", both_of(write("a.c", FILES["a.c"]), write("b.c", FILES["b.c"] + "int d;\n"))),
	("a time", lambda folder: os.utime(folder / "a.c")),
	("a mode", lambda folder: (folder / "main.c").chmod(0o600)),
	("an object is gone", lambda folder: find_object(folder, "a").unlink()),
	("a library is gone", lambda folder: (folder / "out" / "liblow.a").unlink()),
	("what a task of another kind looks at", both_of(write("own.txt", "run"), write("beside.txt", "two"))),
	("what it looks at by itself", write("beside.txt", "three")),
	("a header that comes first", write("first/h.h", "#define H 44\n")),
	("it is edited", write("first/h.h", "#define H 55\n")),
	("it is gone", lambda folder: (folder / "first" / "h.h").unlink()),
	("another file in a folder", write("inc/.h.h.swp", "")),
	("a mistake", write("a.c", "no C\n")),
	("it is mended", write("a.c", FILES["a.c"])),
	("a header becomes a link", turn_link),
	("the header behind it", write("first/real.h", "#define H 77\n")),
	("nothing", lambda folder: None),
)


@pytest.fixture
def alone(engine: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A store and settings of the test's own."""
	for name in list(os.environ):
		if name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG")):
			monkeypatch.delenv(name)
	monkeypatch.setenv("HOME", str(tmp_path / "home"))


def with_tools(tools: str) -> Dict[str, str]:
	return {**FILES, "wscript": FILES["wscript"].replace("TOOLS", tools)}


def draw(made: Resident) -> int:
	"""Wait until a run is begun. Returns how many tasks it has found to be up to date."""
	made.wait(lambda: is_drawn(made))
	told = made.told()
	assert told["unasked"] == "", told
	return int(told["known"])


@on_both
def test_every_edit(tools: str, pair: Callable[..., Pair], alone: None) -> None:
	"""After each edit, the same tasks run as with Waf alone, and the result is the same."""
	both = pair(with_tools(tools))
	both.ours.serve("build", "-k")
	for name, edit in EDITS:
		known = draw(both.ours)
		# all but the task of another kind
		assert known == 7 or name == "it is mended", (name, known)
		both.change(edit)
		begun = both.ours.count("thawed")
		both.run_alike("build", "-k")
		# wafcc looks at libraries before Waf asks the first task
		goes_on = name != "a library is gone" or tools != CACHED
		assert both.ours.count("thawed") == begun + goes_on, (name, both.ours.told())
	assert both.ours.result()["out/said.txt"] == b"77 33 77\n"


@on_cpython
@on_both
def test_edits_before_tasks_are_asked(tools: str, pair: Callable[..., Pair], alone: None) -> None:
	"""A task that was not up to date when it was asked runs after the call, whether or not more has changed since."""
	both = pair(with_tools(tools))
	both.ours.serve("build")
	for number in range(2):
		draw(both.ours)
		both.change(write("main.c", FILES["main.c"] + f"int e{number};\n"))
		both.twin.run("build", env={caller.OFF: "1"})
		both.ours.run("build")
		# at once, so that the run to come sees it
		both.change(write("a.c", FILES["a.c"] + f"int f{number};\n"))
		known = draw(both.ours)
		begun = both.ours.count("thawed")
		if number % 2:
			both.change(write("b.c", FILES["b.c"] + f"int g{number};\n"))
		both.run_alike("build")
		assert known < 7 and both.ours.count("thawed") == begun + 1, (known, both.ours.told())


@on_cpython
@on_both
def test_objects_of_others(tools: str, pair: Callable[..., Pair], alone: None) -> None:
	"""An object that was overwritten after tasks were asked counts as it does for Waf."""
	both = pair(with_tools(tools))
	both.ours.serve("build")
	draw(both.ours)
	both.change(tamper)
	both.run_alike("build")
	draw(both.ours)
	both.change(write("main.c", FILES["main.c"] + "int e;\n"))
	both.run_alike("build")


@by_python
def test_known_tasks_are_not_asked(resident: Callable[..., Resident]) -> None:
	"""After the call, only the tasks that an edit concerns are asked once more, and those of other kinds."""
	files = with_tools("")
	files["wscript"] = files["wscript"].replace("import own\n", COUNTING)
	files["wscript"] += "\tbld.add_post_fun(tell)\n"
	made = resident(files)
	made.serve("build")
	assert draw(made) == 7
	(made.folder / "own.txt").write_text("rest!")
	assert "asked: 8" in made.run("build").stdout
	assert draw(made) == 7
	(made.folder / "a.c").write_text(FILES["a.c"] + "int f;\n")
	# the compile, the library, the program, what it says, and the task of another kind
	assert "asked: 13" in made.run("build").stdout


@by_python
@pytest.mark.parametrize(
	("code", "reason"),
	[
		pytest.param(PRINTING, "it prints something", id="prints"),
		pytest.param(REPLACING, "Task.Task.signature is the project's own", id="replaces", marks=on_cpython),
	],
)
def test_tasks_that_cannot_be_asked(code: str, reason: str, resident: Callable[..., Resident]) -> None:
	"""If a task does something else when it is asked, no task is asked before the call, and nothing is done twice."""
	files = with_tools("")
	files["wscript"] = files["wscript"].replace("import own\n", code)
	made = resident(files)
	made.serve("build")
	made.wait(lambda: is_drawn(made) and made.told()["unasked"])
	assert reason in made.told()["unasked"]
	(made.folder / "a.c").write_text(FILES["a.c"] + "int f;\n")
	done = made.run("build")
	assert made.count("thawed") and done.stdout.count("asked\n") in (0, 8, 9)  # a.c perhaps once more
	assert done.stdout.count("Compiling a.c") == 1
