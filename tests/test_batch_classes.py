"""The tool batch with task classes that say how one command does several tasks, and the words of commands."""

import pathlib
import re
import shutil
import sys
from typing import Any, Dict, List

import pytest
from test_batch import told
from test_prefork_builds import read_tree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from waflib_extras.batch import invocation  # noqa: E402

WSCRIPT = """\
from waflib import Task, TaskGen
top = "."
out = "build"
class number(Task.Task):
	run_str = "${TOOL} ${OPTION} ${TGT[0].abspath()} ${SRC}"
	batch_run_str = "${TOOL} ${OPTION} ${tsk.batch_folder()}/ ${SRC}"
	batch_size = 9
	batch_keeps = KEEPS
@TaskGen.extension(".n")
def add_number(self, node):
	self.create_task("number", node, node.change_ext(".out"))
def options(opt):
	opt.load("batch")
def configure(conf):
	conf.env.TOOL = conf.path.find_node("tool.sh").abspath()
def build(bld):
	bld.env.OPTION = "plain"
	bld(source=bld.path.ant_glob("*.n"))
	bld(source=bld.path.ant_glob("more/*.n"), env=bld.env.derive())
"""
# writes a line for each call, and only a part of a source with "bad", as a careless compiler does
TOOL = """\
#! /bin/sh
echo "$@" >> "$(dirname "$0")/calls"
place=$2
shift 2
status=0
for source; do
	case $place in
		*/) target=$place$(basename "$source" .n).out ;;
		*) target=$place ;;
	esac
	if grep -q bad "$source"; then
		echo part > "$target"
		echo "$source: bad" >&2
		status=3
		[ -n "$CAREFUL" ] && rm "$target"
	else
		cp "$source" "$target"
	fi
done
exit $status
"""


def write_numbers(project: Any, keeps: bool, **files: str) -> pathlib.Path:
	sources = {"%s.n" % name: name for name in "abcde"}
	sources.update({"more/a.n": "other a", "more/f.n": "f"})
	sources.update({name + ".n": text for name, text in files.items()})
	folder = project(dict(sources, **{"wscript": WSCRIPT.replace("KEEPS", str(keeps)), "tool.sh": TOOL}))
	(folder / "tool.sh").chmod(0o755)
	return folder


def read_calls(folder: pathlib.Path) -> List[List[str]]:
	"""The sources of each call since the last question."""
	calls = [
		[word for word in line.split() if word.endswith(".n")] for line in (folder / "calls").read_text().splitlines()
	]
	(folder / "calls").unlink()
	return sorted(calls, key=len)


def test_a_class_says_how_several_are_one(waf: Any, project: Any) -> None:
	"""One call makes the outputs of all tasks, in their places. Outputs with the same name go into different calls."""
	folder = write_numbers(project, keeps=False)
	waf(folder, "configure", "build", "--batch=0")
	tree = read_tree(folder)
	assert len(read_calls(folder)) == 7
	waf(folder, "clean", "build", "-j1")
	assert [len(call) for call in read_calls(folder)] == [1, 6]
	assert read_tree(folder) == tree
	(folder / "c.n").write_text("new")
	waf(folder, "build")
	assert [len(call) for call in read_calls(folder)] == [1]
	assert (folder / "build" / "c.out").read_text() == "new"


@pytest.mark.parametrize("careful", ["", "yes"])
def test_what_fails_is_done_again_alone(waf: Any, project: Any, careful: str) -> None:
	"""All tasks of a failed call are done again alone, unless the class says that existing outputs are complete."""
	folder = write_numbers(project, keeps=bool(careful), b="bad")
	waf(folder, "configure")
	done = waf(folder, "build", "-j1", "-k", env={"CAREFUL": careful}, status=1)
	assert (done.stdout + done.stderr).count("b.n: bad") == 1
	assert (done.stdout + done.stderr).count("failed with exit status 3") == 1
	calls = read_calls(folder)
	assert [len(call) for call in calls] == ([1, 1, 6] if careful else [1] * 7 + [6])
	made = {path.name for path in (folder / "build").rglob("*.out")}
	assert {"a.out", "c.out", "d.out", "e.out", "f.out"} <= made
	assert not list((folder / "build").glob(".batch-*"))
	(folder / "b.n").write_text("good")
	waf(folder, "build")
	assert [len(call) for call in read_calls(folder)] == [1]


def test_the_playground_works(waf: Any, tmp_path: pathlib.Path) -> None:
	"""The playground's costly compiler, clang-cl and gcc make the same outputs in shared and in single calls."""
	folder = pathlib.Path(shutil.copytree(ROOT / "playground" / "batch", tmp_path / "playground"))
	# starting javac as often as the plain build does takes longer than everything else
	shutil.rmtree(folder / "java")
	env = {"COSTLY_START": "0"}
	waf(folder, "configure", "build", "--batch=0", env=env)
	tree = read_tree(folder)
	done = waf(folder, "clean", "build", "-j1", "--zones=batch", env=env)
	counts = told(done)
	languages = 1 + bool(shutil.which("clang"))
	assert (counts["calls"], counts["again"]) == (1 + languages, 0)
	assert read_tree(folder) == tree
	(folder / "shapes" / "s3.shape").write_text("x\n")
	done = waf(folder, "build", "-k", env=env, status=1)
	assert "s3.shape: invalid literal" in done.stdout + done.stderr
	assert len(re.findall(r"Compiling shapes", done.stdout)) == 1


FORMS: Dict[str, Any] = {
	"gcc -O2 a.c -c -o/b/a.o": ("gcc -O2 SOURCE -c", False),
	"gcc -c a.c -o /b/a.o -DX": ("gcc -c SOURCE -DX", False),
	"cl /O2 a.c /c /Fo/b/a.o": ("cl /O2 SOURCE /c /FoFOLDER/", True),
	"clang --driver-mode=cl -EHsc a.c -c -Fo/b/a.o": ("clang --driver-mode=cl -EHsc SOURCE -c -FoFOLDER/", True),
	"gcc -MD a.c -c -o/b/a.o": "-MD may concern more files than its object",
	"gcc @flags a.c -c -o/b/a.o": "@flags may concern more files than its object",
	"gcc a.c -c -o/b/a.o -MF/b/a.o.d": "its source or its output is not named once",
	"gcc a.c -o/b/a.o": "it is not compiled with -c",
	"cc a.c -c --output=/b/a.o": "its output is not named by -o or /Fo",
	"cl /Zi a.c /c /Fo/b/a.o": "/Zi may concern more files than its object",
	"gcc -include a.c a.c -c -o/b/a.o": "its source or its output is not named once",
}


@pytest.mark.parametrize("command", FORMS)
def test_forms_of_commands(command: str) -> None:
	"""A command without its source and output, or the reason why it is not taken apart."""
	found = invocation.find_form(command.split(), "a.c", "/b/a.o")
	if isinstance(FORMS[command], str):
		assert found == FORMS[command]
	else:
		text = " ".join(found.words).replace(invocation.SOURCE, "SOURCE").replace(invocation.FOLDER, "FOLDER")
		assert (text, found.is_placed) == FORMS[command]
		assert found.make(["x.c", "y.c"], "/f") == text.replace("SOURCE", "x.c y.c").replace("FOLDER", "/f").split()
