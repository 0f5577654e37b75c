"""A folder in which a compiler is run plainly and by the engine, and what both leave is compared."""

import dataclasses
import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pytest

SOURCES = {
	"a.c": '#include <stdio.h>\n#include "sub/a.h"\n#ifndef NAME\n#define NAME "none"\n#endif\n'
	"int twice(int n) { return TWO * n; }\nconst char *name(void) { puts(NAME); return NAME; }\n",
	"main.c": "int twice(int);\nint main(void) { return twice(0); }\n",
	"sub/a.h": "#define TWO 2\n",
	"b.cc": "#include <initializer_list>\nint total(std::initializer_list<int> v) {\n"
	"int n = 0; for (int i : v) n += i; return n; }\n",
	"main.cc": "template <class T> T same(T t) { return t; }\nint main() { return same(0); }\n",
	"warn.c": "int f(int a) { int unused; if (a = 1) return 2; }\n",
	"wrong.c": "int f(void) { return missing + ; }\nint g( {\n",
	"wrong.cc": "template <class T> struct A { typename T::x y; };\nA<int> a;\n",
	"asm.s": "\t.globl here\nhere:\n\tret\n",
	"asm2.S": "#define RETURN ret\n\t.globl there\nthere:\n\tRETURN\n",
	"bad.s": "\tno such instruction\n",
	"f.f90": "subroutine add(a, b)\n  integer :: a, b\n  a = a + b\nend subroutine\n",
	"bad.f90": "subroutine add(a\n  integer :: \nend\n",
	"lib.rs": "pub fn add(a: u32, b: u32) -> u32 { a.wrapping_add(b) }\n",
	"bad.rs": "pub fn add(a: u32) -> u32 { b }\n",
	"pre.h": "#include <stddef.h>\n#include <string.h>\nstruct pre { int a; };\n",
	"usepre.c": '#include "pre.h"\nint use(struct pre *p) { return p->a; }\n',
	"options": '-O2 -DNAME="\\"from a file\\""\n-c a.c\n',
	"badasm.c": 'void f(void) { __asm__("no such instruction"); }\n',
	"sub/a.b.c": "int dots(void) { return 1; }\n",
	"endless.c": "#define A(x) x x x x x x x x\n#define B(x) A(A(A(A(x))))\n"
	"int f(int n) {\nB(B(n *= n + 1;))\nreturn n; }\n",
	"endlessasm.c": 'void f(void) { __asm__(".rept 50000000\\n nop\\n .endr"); }\n',
	"undefined.c": "int nowhere(void);\nint main(void) { return nowhere(); }\n",
}
SURVEYED = 5.0  # seconds in which a driver has been surveyed
STDIN = "int from_stdin(void) { return 1; }\n"


@dataclasses.dataclass
class Trace:
	"""All effects of a command that are compared."""

	status: int
	stdout: str
	stderr: str
	files: Dict[str, bytes]
	temporary: List[str]


def even_out(text: str) -> str:
	"""Take out what differs between any two runs: names of temporary files, and times."""
	text = re.sub(r"cc[A-Za-z0-9]{6}\b", "ccXXXXXX", text)
	text = re.sub(r"-[0-9a-f]{6}\.(o|s|out)\b", r"-XXXXXX.\1", text)
	return re.sub(r"^(# \S+) [\d.]+ [\d.]+$", r"\1", text, flags=re.M)


class Comparison:
	"""A folder in which a command is run plainly, or by the engine, each time with fresh sources."""

	def __init__(self, base: pathlib.Path, wafcc: str) -> None:
		self.base, self.wafcc = base, wafcc
		self.environ = dict(os.environ, TMPDIR=str(base / "tmp"), LC_ALL="C")
		self.environ.pop("WAFCC_DISABLE", None)
		self.prepare: Optional[Callable[[], None]] = None  # what a process changes before it becomes the compiler

	def run(self, argv: List[str], env: Dict[str, str], parked: bool, stdin: str = STDIN) -> Trace:
		# a path means the same program to both, whatever stands in PATH
		argv = [shutil.which(argv[0]) or argv[0], *argv[1:]]
		work, temporary = self.base / "work", self.base / "tmp"
		for folder in (work, temporary):
			shutil.rmtree(folder, ignore_errors=True)
			folder.mkdir(parents=True)
		for name, text in SOURCES.items():
			path = work / name
			path.parent.mkdir(exist_ok=True)
			path.write_text(text)
			os.utime(path, (10**9, 10**9))
		done = subprocess.run(
			[self.wafcc, "run", "--no-cache", "--", *argv] if parked else argv,
			cwd=work,
			env=dict(self.environ, **env),
			input=stdin,
			capture_output=True,
			encoding="utf-8",
			errors="surrogateescape",
			timeout=60,
			check=False,
			preexec_fn=self.prepare,
		)
		files = {str(p.relative_to(work)): p.read_bytes() for p in work.rglob("*") if p.is_file()}
		left = list_left(temporary)
		stderr = even_out(done.stderr)
		if "-pipe" in argv:  # two programs write at a time, even within a line
			stderr = "".join(sorted(stderr))
		return Trace(done.returncode, even_out(done.stdout), stderr, files, left)

	def find_difference(self, argv: List[str], env: Dict[str, str]) -> str:
		"""The differences between a parked run and plain ones. A file that varies between plain runs may differ."""
		found, wanted = self.run(argv, env, True), self.run(argv, env, False)
		for name in ("status", "stdout", "stderr", "temporary"):
			if getattr(found, name) != getattr(wanted, name):
				return f"{name}: {tell_lines(getattr(wanted, name), getattr(found, name))}"
		if sorted(found.files) != sorted(wanted.files):
			return f"files: {sorted(wanted.files)}, but parked {sorted(found.files)}"
		differ = [name for name in found.files if found.files[name] != wanted.files[name]]
		if not differ:
			return ""
		again = self.run(argv, env, False)
		return ", ".join(name for name in differ if again.files[name] == wanted.files[name])


def list_left(folder: pathlib.Path) -> List[str]:
	"""The names that stay in a folder: the engine may be surveying a driver, which has an empty file there for that."""
	deadline = time.monotonic() + SURVEYED
	while True:
		left = sorted(even_out(path.name) for path in folder.iterdir())
		if not left or time.monotonic() > deadline:
			return left
		time.sleep(0.02)


def tell_lines(wanted: object, found: object) -> str:
	"""The lines in which two texts differ, and any other values as they are."""
	if not isinstance(wanted, str) or not isinstance(found, str):
		return f"{wanted}, but parked {found}"
	lines = difflib.unified_diff(wanted.splitlines(), found.splitlines(), "plain", "parked", n=0, lineterm="")
	return "\n\t".join(line[:300] for line in lines)


def read_report(engine: str) -> Dict[str, Any]:
	"""The engine's report about parked programs."""
	said = subprocess.run([engine, "status", "--json"], stdout=subprocess.PIPE, check=True, timeout=30)
	return json.loads(said.stdout)["parking"]


def read_parking(engine: str) -> Dict[str, dict]:
	"""The engine's report about each program, by the program's name."""
	return {os.path.basename(p["path"]): p for p in read_report(engine)["programs"]}


def find_program(known: Dict[str, dict], name: str) -> str:
	"""The name of a program's file, which may have a prefix for the machine that it is for; empty if there is none."""
	return next((file for file in known if re.fullmatch(rf"(\S+-)?{re.escape(name)}", file)), "")


def judge_programs(
	comparison: Comparison, engine: str, commands: List[List[str]], parts: Sequence[str] = ()
) -> Dict[str, dict]:
	"""Run commands until the engine has made up its mind about all programs that they have it run, and about the parts
	of a driver, which are seen when it runs parked."""
	# a trial may run beside the commands that follow
	other = comparison.base / "other"
	other.mkdir(exist_ok=True)
	known: Dict[str, dict] = {}
	for _ in range(100):
		for command in commands:
			comparison.run(command, {"TMPDIR": str(other)}, True)
		before, known = known, read_parking(engine)
		seen = sorted(before) == sorted(known) and all(find_program(known, part) for part in parts)
		if seen and all(p["state"] in ("parked", "refused") for p in known.values()):
			return known
	pytest.fail(f"the engine does not make up its mind: {known}")


@pytest.fixture
def comparison(
	engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Comparison:
	"""A folder for compilers, and an engine that parks every program at once, even if that saves nothing."""
	monkeypatch.setenv("WAFD_PARK", "proved")
	monkeypatch.setenv("WAFD_PARK_AFTER", "1")
	subprocess.run([engine, "start"], check=True, timeout=30, stdout=subprocess.DEVNULL)
	return Comparison(tmp_path, str(pathlib.Path(engine).with_name("wafcc")))


def split(options: str) -> List[str]:
	"""The words of a line of options."""
	return [word.strip("'") for word in re.findall(r"'[^']*'|\S+", options)]


def compare(comparison: Comparison, cases: List[Tuple[List[str], Dict[str, str]]]) -> None:
	"""Fail with all commands that leave something else when they are run parked."""
	found = [(argv, env, comparison.find_difference(argv, env)) for argv, env in cases]
	wrong = [f"{' '.join(argv)} {env or ''}: {words}" for argv, env, words in found if words]
	assert not wrong, f"{len(wrong)} of {len(found)}:\n" + "\n".join(wrong)
