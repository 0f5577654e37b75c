"""Outputs that are folders or links, or whose time was set: commands that are cached by what they do."""

import os
import pathlib
import shutil
import time
from typing import Dict, NamedTuple, Optional

import pytest
from test_cache_facts import Facts


class Found(NamedTuple):
	"""What is at a path."""

	mode: int
	written: Optional[int]
	content: bytes


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	sandbox = Facts.make(engine, tmp_path, **{"in/a.txt": "a\n", "in/b.txt": "b\n"})
	for path in (sandbox.folder / "in").iterdir():
		os.utime(path, ns=(10**18, 10**18 + 123456789))
	time.sleep(0.1)
	return sandbox


def look(folder: pathlib.Path, has_times: bool) -> Dict[str, Found]:
	"""All that is in a folder. With times, those of files count."""
	found = {}
	for path in sorted(folder.rglob("*")):
		status = path.lstat()
		content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
		is_timed = has_times and path.is_file() and not path.is_symlink()
		found[str(path.relative_to(folder))] = Found(status.st_mode, status.st_mtime_ns if is_timed else None, content)
	return found


def clean(folder: pathlib.Path) -> None:
	for path in folder.iterdir():
		if path.name != "in":
			shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


COMMANDS = {
	"mkdir": ("mkdir out", "out", False),
	"mkdir -p": ("mkdir -p out/a/b out/c", "out/a/b", False),
	"a link": ("ln -s in/a.txt out", "out", False),
	"a dangling link": ("ln -s nothing/there out", "out", False),
	"a folder with files": (
		"sh -c mkdir${IFS}out;cp${IFS}in/a.txt${IFS}out/x;ln${IFS}-s${IFS}x${IFS}out/y",
		"out/x",
		False,
	),
	"cp -p": ("cp -p in/a.txt out", "out", True),
	"gzip -k": ("sh -c cp${IFS}-p${IFS}in/a.txt${IFS}out;gzip${IFS}-k${IFS}out", "out.gz", True),
	"install -p": ("install -m 755 -p in/a.txt out", "out", True),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_hit_makes_the_same(name: str, sandbox: Facts) -> None:
	"""Kinds, rights, contents, where links lead, and times that were set."""
	line, output, has_times = COMMANDS[name]
	argv = [word.replace("${IFS}", " ") for word in line.split()]
	if not shutil.which(argv[0]):
		pytest.skip("there is no %s" % argv[0])
	for is_cached in (False, True, True):
		clean(sandbox.folder)
		done = sandbox.run_argv(argv, is_cached)
		assert done.returncode == 0, done.stderr
		made = look(sandbox.folder, has_times)
		if not is_cached:
			plain = made
		assert made == plain
	assert sandbox.hits() == 1, sandbox.explain(sandbox.folder / output)
	if not has_times:
		# nothing is replaced: the command itself says what it thinks of that
		done = sandbox.run_argv(argv, True)
		assert done.returncode == sandbox.run_argv(argv, False).returncode
		assert sandbox.hits() == 1 and look(sandbox.folder, False) == plain


def test_another_time_of_an_input(sandbox: Facts) -> None:
	"""It is the time of the output, too."""
	line = ["cp", "-p", "in/a.txt", "out"]
	for _ in range(2):
		clean(sandbox.folder)
		sandbox.run_argv(line, True)
	assert sandbox.hits() == 1
	clean(sandbox.folder)
	os.utime(sandbox.folder / "in/a.txt", ns=(10**18, 2 * 10**18 // 2 + 7))
	sandbox.run_argv(line, True)
	assert (sandbox.folder / "out").stat().st_mtime_ns == 10**18 + 7
	assert sandbox.hits() == 1


def test_something_else_in_the_place_of_a_folder(sandbox: Facts) -> None:
	"""A link to a folder of others is not followed, and a file is not removed."""
	line = ["mkdir", "out"]
	for _ in range(2):
		clean(sandbox.folder)
		sandbox.run_argv(line, True)
	clean(sandbox.folder)
	for make in (lambda path: path.write_text("mine"), lambda path: path.symlink_to("in")):
		clean(sandbox.folder)
		make(sandbox.folder / "out")
		before = look(sandbox.folder, True)
		assert sandbox.run_argv(line, True).returncode == 1
		assert look(sandbox.folder, True) == before
	assert sandbox.hits() == 1


LISTING = {
	"before": ("sh listing.sh", "set -- *; echo $# > out\n"),
	"before, twice": ("sh listing.sh", "set -- *; set -- *; echo $# > out; echo > other\n"),
	"python": (
		"/usr/bin/python3 -S -B listing.py",
		"import os\nnames = sorted(os.listdir('.'))\nopen('out', 'w').write(str(names))\n",
	),
	"python imports a module beside it": (
		"/usr/bin/python3 -S -B listing.py",
		"import beside\nopen('out', 'w').write(beside.name)\n",
	),
}


@pytest.mark.parametrize("name", LISTING)
def test_a_folder_that_was_listed_before_something_was_made_in_it(name: str, sandbox: Facts) -> None:
	"""What was there before is the fact: a generator may write beside itself. Another file is a miss."""
	line, script = LISTING[name]
	made = ("out", "other")
	sandbox.write(line.split()[-1], script)
	sandbox.write("beside.py", "name = 'beside'\n")
	time.sleep(0.1)
	results = []
	for is_cached in (False, True, True):
		for output in made:
			(sandbox.folder / output).unlink(missing_ok=True)
		assert sandbox.run_argv(line.split(), is_cached).returncode == 0
		results.append((sandbox.folder / "out").read_text())
	assert sandbox.hits() == 1, sandbox.explain(sandbox.folder / "out")
	assert len(set(results)) == 1
	sandbox.write("new.txt", "")
	time.sleep(0.1)
	for output in made:
		(sandbox.folder / output).unlink(missing_ok=True)
	sandbox.run_argv(line.split(), True)
	assert sandbox.hits() == 1
	found = (sandbox.folder / "out").read_text()
	for output in made:
		(sandbox.folder / output).unlink(missing_ok=True)
	sandbox.run_argv(line.split(), False)
	assert found == (sandbox.folder / "out").read_text()


SEEN = {
	"after": "echo > out; set -- *; echo $#\n",
	"before and after": "set -- *; echo > out; set -- *; echo $#\n",
	"not to the end": "import os\nwith os.scandir('.') as names:\n\tnext(names)\nopen('out', 'w').write('x')\n",
	"what was there": "import os\nos.listdir('.')\nopen('in.old', 'w').write('x')\n",
}


@pytest.mark.parametrize("name", SEEN)
def test_a_folder_whose_listing_shows_results(name: str, sandbox: Facts) -> None:
	"""It may differ the next time, so nothing is stored."""
	script = SEEN[name]
	is_python = script.startswith("import")
	sandbox.write("listing", script)
	sandbox.write("in.old", "old")
	time.sleep(0.1)
	for _ in range(3):
		(sandbox.folder / "out").unlink(missing_ok=True)
		line = ["/usr/bin/python3", "-S", "-B", "listing"] if is_python else ["sh", "listing"]
		assert sandbox.run_argv(line, True).returncode == 0
	assert sandbox.hits() == 0 and "lists its results" in sandbox.reasons(), sandbox.reasons()
