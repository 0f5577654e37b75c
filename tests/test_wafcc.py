"""The wrapper in front of real compilers, started by real build systems, and its documents."""

import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Callable, Dict, Iterator, List

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 60  # seconds
FILES: Dict[str, str] = {
	"Makefile": """\
	CC = gcc
	main: main.o part.o
	\t$(CC) -o $@ main.o part.o
	%.o: %.c part.h
	\t$(CC) -O1 -c -o $@ $<
	""",
	"part.h": "int part(void);\n",
	"part.c": '#include "part.h"\nint part(void) { return 42; }\n',
	"main.c": '#include <stdio.h>\n#include "part.h"\nint main(void) { return printf("%d\\n", part()) < 0; }\n',
	"wrong.c": "int wrong(void) { return nothing; }\nint unused(void) { int x; }\n",
}


class Sandbox:
	"""Runs commands in a folder, with the wrapper and without, in a home of their own."""

	def __init__(self, engine: str, folder: pathlib.Path, home: pathlib.Path) -> None:
		self.engine, self.folder = engine, folder
		self.wafcc = str(pathlib.Path(engine).with_name("wafcc"))
		names = [name for name in os.environ if not name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG", "CCACHE_"))]
		self.environ = dict({name: os.environ[name] for name in names}, HOME=str(home), LC_ALL="C")

	def run(self, argv: List[str], status: int = 0, **variables: str) -> "subprocess.CompletedProcess[str]":
		environ = dict(self.environ, **variables)
		done = subprocess.run(
			argv, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
		)
		assert done.returncode == status, f"{argv}: {done.stdout}{done.stderr}"
		return done

	def count(self) -> int:
		"""The number of commands that the engine has handled, with any outcome."""
		report = self.run([self.engine, "status"]).stdout
		return sum(int(n) for n in re.findall(r"^(?:commands succeeded|\s+failed)\s+(\d+)$", report, re.M))

	def links(self, *names: str) -> str:
		"""A search path on which the wrapper stands in for these."""
		folder = self.folder / "links"
		folder.mkdir()
		for name in names:
			(folder / name).symlink_to(self.wafcc)
		return f"{folder}{os.pathsep}{self.environ['PATH']}"


@pytest.fixture
def sandbox(
	engine: str, runtime: pathlib.Path, project: Callable[..., pathlib.Path], tmp_path: pathlib.Path
) -> Iterator[Sandbox]:
	"""A small project in C, an engine, and the wrapper beside it."""
	folder = project({name: text.replace("\n\t", "\n") for name, text in FILES.items()})
	subprocess.run([engine, "start"], check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
	yield Sandbox(engine, folder, tmp_path / "home")


def build(sandbox: Sandbox, *args: str, **variables: str) -> Dict[str, bytes]:
	"""The files that make builds of the project, from nothing."""
	made = [sandbox.folder / name for name in ("main", "main.o", "part.o")]
	for path in made:
		path.unlink(missing_ok=True)
	sandbox.run(["make", "-j2", *args], **variables)
	return {path.name: path.read_bytes() for path in made}


def test_make_builds_the_same_through_the_wrapper(sandbox: Sandbox) -> None:
	"""Objects and program are the same byte for byte, and all commands went through the engine."""
	plain = build(sandbox)
	assert sandbox.count() == 0
	assert build(sandbox, f"CC={sandbox.wafcc} gcc") == plain
	assert sandbox.count() == 3


def test_make_builds_the_same_through_links(sandbox: Sandbox) -> None:
	"""A link called gcc, first in PATH, is enough; the Makefile is unchanged."""
	plain = build(sandbox)
	assert build(sandbox, PATH=sandbox.links("gcc")) == plain
	assert sandbox.count() == 3


@pytest.mark.skipif(not os.path.exists("/usr/lib/ccache/gcc"), reason="ccache's own links are not installed")
@pytest.mark.parametrize("is_first", [True, False], ids=["before ccache", "after ccache"])
def test_ccache_in_disguise_and_we_do_not_look_for_each_other(sandbox: Sandbox, is_first: bool) -> None:
	"""Either program may be first in PATH: the compile ends, with the right result."""
	plain = build(sandbox)
	ours, rest = sandbox.links("gcc").split(os.pathsep, 1)
	folders = [ours, "/usr/lib/ccache"] if is_first else ["/usr/lib/ccache", ours]
	path = os.pathsep.join([*folders, rest])
	assert build(sandbox, PATH=path, CCACHE_DIR=str(sandbox.folder / "ccache")) == plain


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_errors_are_the_compilers_own(sandbox: Sandbox, compiler: str) -> None:
	"""Status and messages of a compile that fails are the same as without us."""
	if not shutil.which(compiler):
		pytest.skip(f"no {compiler}")
	argv = [compiler, "-Wall", "-c", "wrong.c"]
	plain = sandbox.run(argv, status=1)
	ours = sandbox.run([sandbox.wafcc, *argv], status=1)
	assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)
	assert "nothing" in plain.stderr


def test_a_full_disk_is_the_compilers_own_error(sandbox: Sandbox) -> None:
	"""The compiler reports a file that cannot be written, with its status."""
	script = "{} gcc -E main.c > /dev/full"
	plain = sandbox.run(["sh", "-c", script.format("")], status=1)
	ours = sandbox.run(["sh", "-c", script.format(sandbox.wafcc)], status=1)
	assert ours.stderr == plain.stderr
	assert "No space left" in ours.stderr


def test_the_document_names_every_setting_and_option(sandbox: Sandbox) -> None:
	"""docs/wafcc.md, --help and the program itself have the same names."""
	document = (ROOT / "docs" / "wafcc.md").read_text(encoding="utf-8")
	shown = sandbox.run([sandbox.wafcc, "--show-config"]).stdout
	settings = re.findall(r"^\(default\) (\w+) = (.*)$", shown, re.M)
	assert len(settings) == len(shown.splitlines()) - 3, shown
	for name, default in settings:
		(row,) = re.findall(rf"^\| `{name}` .*$", document, re.M)
		assert not default or default in row, f"{name} is {default} by default, but: {row}"
	options = set(re.findall(r"--[a-z][a-z-]+(?!\w)", sandbox.run([sandbox.wafcc, "--help"]).stdout))
	assert options >= {"--explain", "--show-stats", "--max-size"}
	for option in options:
		assert f"`{option}" in document or f" {option}" in document, option


def test_settings_are_told_to_programs(sandbox: Sandbox) -> None:
	"""--show-config --json has the same content as --show-config, and a mistake is shown and is an error in both."""
	variables = {"WAFCC_READONLY": "1", "WAFCC_NAMESPACE": "a = (b) c", "WAFCC_MAXSIZE": "much"}
	text = sandbox.run([sandbox.wafcc, "--show-config"], status=1, **variables)
	told = sandbox.run([sandbox.wafcc, "--show-config", "--json"], status=1, **variables)
	assert told.stderr == text.stderr
	found = json.loads(told.stdout)
	assert len(found["mistakes"]) == 1 and found["mistakes"][0] in told.stderr
	settings = found["settings"]
	assert settings["read_only"] == {"value": True, "origin": "environment: WAFCC_READONLY"}
	assert settings["namespace"] == {"value": "a = (b) c", "origin": "environment: WAFCC_NAMESPACE"}
	assert settings["disable"] == {"value": False, "origin": "default"}
	lines = [
		f"({one['origin']}) {name} = {one['value']}"
		for name, one in settings.items()
		if one["value"] not in (True, False)
	]
	lines += [f"(place) {name} = {found['places'][name]}" for name in ("store", "runtime_dir", "config_path")]
	assert lines and not set(lines) - set(text.stdout.splitlines())
	assert found["places"]["store_bytes"] is None


def test_every_variable_of_the_document_works(sandbox: Sandbox) -> None:
	"""A variable from the table is the origin of its setting once it is set."""
	document = (ROOT / "docs" / "wafcc.md").read_text(encoding="utf-8")
	rows = re.findall(r"^\| `(\w+)` .*\| `(WAFCC_\w+)` \|", document, re.M)
	assert len(rows) == 23, rows
	others = {"remote": "redis://host", "signing_key": "/a/key", "trusted_keys": "ed25519:" + 64 * "1"}
	values = {name: others.get(name, "1") for name, _ in rows}
	shown = sandbox.run([sandbox.wafcc, "--show-config"], **{variable: values[name] for name, variable in rows}).stdout
	for name, variable in rows:
		assert f"(environment: {variable}) {name} = {values[name]}\n" in shown
