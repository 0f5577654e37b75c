"""Compilers that are parked do to the byte what they do when they are started, whatever their options."""

import dataclasses
import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Dict, Iterator, List, Tuple

import pytest

SOURCES = {
	"a.c": '#include <stdio.h>\n#include "sub/a.h"\n#ifndef NAME\n#define NAME "none"\n#endif\n'
	"int twice(int n) { return TWO * n; }\nconst char *name(void) { puts(NAME); return NAME; }\n",
	"main.c": "int twice(int);\nint main(void) { return twice(0); }\n",
	"sub/a.h": "#define TWO 2\n",
	"b.cc": "#include <vector>\nint total(const std::vector<int> &v) {\n"
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
	"undefined.c": "int nowhere(void);\nint main(void) { return nowhere(); }\n",
}
STDIN = "int from_stdin(void) { return 1; }\n"
SEED = "-frandom-seed=1"

GNU_C = [
	"-c a.c",
	"-c a.c -o sub/out.o",
	"-c a.c -o missing/out.o",
	"-S a.c -o -",
	"-E a.c",
	"-E -dM a.c",
	"-E -P -C a.c -o a.i",
	"-v -c a.c",
	"-### -c a.c",
	"-### a.c main.c -o prog",
	"-save-temps -c a.c",
	"-save-temps=obj -c a.c -o sub/a.o",
	"-pipe -c a.c",
	"-pipe -v -c a.c",
	"-g -c a.c",
	"-g3 -gdwarf-5 -c a.c",
	"-g -gsplit-dwarf -c a.c",
	f"--coverage {SEED} -c a.c",
	f"-flto {SEED} -c a.c",
	f"-flto {SEED} a.c main.c -o prog",
	"-M a.c",
	"-MM a.c",
	"-MD -c a.c",
	"-MMD -MP -MF dep/../a.d -MT target -c a.c",
	"-MMD -MP -MF a.d -MT target -c a.c",
	"@options",
	"-x c -c - -o in.o",
	"-x c -E -",
	"-c a.c main.c",
	"a.c main.c -o prog",
	"-v a.c main.c -o prog",
	"-shared -fPIC a.c -o liba.so",
	"-r main.c -o all.o",
	"undefined.c -o prog",
	"-print-search-dirs",
	"-print-prog-name=as",
	"-dumpmachine",
	"--version",
	"--help",
	"-Wall -Wextra -c warn.c",
	"-Wall -Werror -c warn.c",
	"-Wall -fdiagnostics-color=always -c warn.c wrong.c",
	"-c wrong.c",
	"-c no-such-file.c",
	"-fno-such-option -c a.c",
	"",
	"-c asm.s",
	"-c asm2.S",
	"-c bad.s",
	"-c ./sub/../a.c -o ./sub/../x.o",
	"-O2 '-DNAME=\"a b\"' -c a.c",
	"pre.h",
	"-O0 -o /dev/null -c a.c",
]
GCC_ONLY = [
	"-time -c a.c",
	"-wrapper env,MARK=1 -c a.c",
	"-fdiagnostics-format=json -c wrong.c",
	"-specs=no-such-specs -c a.c",
	"-fuse-ld=no-such -c a.c",
	"-B sub -c a.c",
	"-no-integrated-cpp -c a.c",
	"-ftime-report -fsyntax-only no-such.c",
	"-no-pie -static a.c main.c -o prog",
]
CXX = [
	"-c b.cc",
	"-O2 -g -c b.cc",
	"-S b.cc -o -",
	"-v -c b.cc",
	"-save-temps -c b.cc",
	"-pipe -c b.cc",
	"main.cc -o prog",
	"-c wrong.cc",
	"-fdiagnostics-color=always -c wrong.cc",
	"-x c++ -c - -o in.o",
	"-std=c++20 -MMD -c b.cc",
]
FORTRAN = ["-c f.f90", "-O2 -g -c f.f90 -o x.o", "-c bad.f90", "-v -c f.f90", "-cpp -DX=1 -S f.f90 -o -"]
RUST = [
	"--crate-type=lib lib.rs",
	"--crate-type=lib --emit=metadata lib.rs",
	"--crate-type=lib -O -g --emit=obj,dep-info lib.rs",
	"--crate-type=lib bad.rs",
	"--version --verbose",
	"--no-such-option",
]
CORPUS = [
	*[("gcc", options) for options in GNU_C + GCC_ONLY],
	*[("clang", options) for options in GNU_C],
	*[(name, options) for name in ("g++", "clang++") for options in CXX],
	*[("gfortran", options) for options in FORTRAN],
]
ENVIRONMENTS = [
	{"LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"},
	{"LC_ALL": "C.UTF-8"},
	{"CPATH": "sub", "GCC_COLORS": ""},
]


# what the drivers of gcc start, which is routed to parked copies
PARTS = {"gcc": ("cc1", "as"), "g++": ("cc1plus", "as"), "gfortran": ("f951", "as")}


@dataclasses.dataclass
class Trace:
	"""All that a command leaves."""

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


class Yard:
	"""A folder in which a command is run plainly, or by the engine, each time with fresh sources."""

	def __init__(self, base: pathlib.Path, wafcc: str) -> None:
		self.base, self.wafcc = base, wafcc
		self.environ = dict(os.environ, TMPDIR=str(base / "tmp"), LC_ALL="C")
		self.environ.pop("WAFCC_DISABLE", None)

	def run(self, argv: List[str], env: Dict[str, str], parked: bool, stdin: str = STDIN) -> Trace:
		# wafcc looks for the program itself, and so says its whole path
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
			[self.wafcc, *argv] if parked else argv,
			cwd=work,
			env=dict(self.environ, **env),
			input=stdin,
			capture_output=True,
			encoding="utf-8",
			errors="surrogateescape",
			timeout=60,
			check=False,
		)
		files = {str(p.relative_to(work)): p.read_bytes() for p in work.rglob("*") if p.is_file()}
		left = sorted(even_out(p.name) for p in temporary.iterdir())
		stderr = even_out(done.stderr)
		if "-pipe" in argv:  # two programs write at a time
			stderr = "\n".join(sorted(stderr.splitlines()))
		return Trace(done.returncode, even_out(done.stdout), stderr, files, left)

	def find_difference(self, argv: List[str], env: Dict[str, str]) -> str:
		"""What a parked run leaves that plain ones do not; a file that two plain runs make differently may differ."""
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


def tell_lines(wanted: object, found: object) -> str:
	"""The lines in which two texts differ, and any other values as they are."""
	if not isinstance(wanted, str) or not isinstance(found, str):
		return f"{wanted}, but parked {found}"
	lines = difflib.unified_diff(wanted.splitlines(), found.splitlines(), "plain", "parked", n=0, lineterm="")
	return "\n\t".join(line[:300] for line in lines)


def read_parking(engine: str) -> Dict[str, dict]:
	"""What the engine says of each program, by its name."""
	said = subprocess.run([engine, "status", "--json"], stdout=subprocess.PIPE, check=True, timeout=30)
	return {os.path.basename(p["path"]): p for p in json.loads(said.stdout)["parking"]["programs"]}


def judge_programs(yard: Yard, engine: str, commands: List[List[str]]) -> Dict[str, dict]:
	"""Run commands until the engine has made up its mind about every program that they have it run."""
	# a trial may run beside the commands that follow
	other = yard.base / "other"
	other.mkdir(exist_ok=True)
	known: Dict[str, dict] = {}
	for _ in range(100):
		for command in commands:
			yard.run(command, {"TMPDIR": str(other)}, True)
		before, known = known, read_parking(engine)
		if sorted(before) == sorted(known) and all(p["state"] in ("parked", "refused") for p in known.values()):
			return known
	pytest.fail(f"the engine does not make up its mind: {known}")


@pytest.fixture
def yard(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
	"""A folder for compilers, and an engine that tries every program at first sight."""
	monkeypatch.setenv("WAFD_PARK_AFTER", "1")
	subprocess.run([engine, "start"], check=True, timeout=30, stdout=subprocess.DEVNULL)
	yield Yard(tmp_path, str(pathlib.Path(engine).with_name("wafcc")))


def split(options: str) -> List[str]:
	return [word.strip("'") for word in re.findall(r"'[^']*'|\S+", options)]


def compare(yard: Yard, cases: List[Tuple[List[str], Dict[str, str]]]) -> None:
	"""Fail with all commands that leave something else when they are run parked."""
	found = [(argv, env, yard.find_difference(argv, env)) for argv, env in cases]
	wrong = [f"{' '.join(argv)} {env or ''}: {words}" for argv, env, words in found if words]
	assert not wrong, f"{len(wrong)} of {len(found)}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("compiler", ["gcc", "g++", "clang", "clang++", "gfortran"])
def test_options(compiler: str, yard: Yard, engine: str) -> None:
	"""Status, output, messages and files are the same over the whole corpus, run by parked programs."""
	if not shutil.which(compiler):
		pytest.skip(f"{compiler} is not installed")
	cases = [(name, options) for name, options in CORPUS if name == compiler]
	source = {"g++": "b.cc", "clang++": "b.cc", "gfortran": "f.f90"}.get(compiler, "a.c")
	warm = [[compiler, "-c", source], [compiler, "main.c", "-o", "prog"]]
	known = judge_programs(yard, engine, warm)
	compiler_file = os.path.basename(os.path.realpath(shutil.which(compiler) or ""))
	assert known[compiler_file]["state"] == "parked", known[compiler_file]
	compare(yard, [([compiler, *split(options)], {}) for _, options in cases])
	# only what is parked with this environment counts; every case may run there
	ran = read_parking(engine)[compiler_file]["commands"] - known[compiler_file]["commands"]
	assert ran == len(cases)
	now = read_parking(engine)
	for part in PARTS.get(compiler, ()):
		program = next(name for name in known if re.fullmatch(rf"(\S+-)?{part}", name))
		if known[program]["state"] == "parked":
			assert now[program]["commands"] > known[program]["commands"], now[program]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_environments(compiler: str, yard: Yard, engine: str) -> None:
	"""Locales, include paths and other variables mean the same to a parked compiler."""
	judge_programs(yard, engine, [[compiler, "-c", "a.c"]])
	options = ["-c a.c", "-c wrong.c", "-Wall -c warn.c", "-v -E a.c"]
	compare(yard, [([compiler, *split(o)], env) for o in options for env in ENVIRONMENTS])


def test_missing_temporary_folder(yard: Yard, engine: str) -> None:
	"""A compiler that has nowhere to put its temporary files does the same as ever."""
	judge_programs(yard, engine, [["gcc", "-c", "a.c"]])
	compare(yard, [(["gcc", "-c", "a.c"], {"TMPDIR": str(yard.base / "work" / "sub")})])
	compare(yard, [(["gcc", "-c", "a.c"], {"TMPDIR": "/no/such/folder"})])


def test_links(yard: Yard, engine: str) -> None:
	"""A compiler behind a link of another name does what that name says."""
	links = yard.base / "links"
	links.mkdir()
	for name, target in (("cc1-like-gcc", "gcc"), ("x86_64-linux-gnu-clang", "clang"), ("my-clang++", "clang++")):
		(links / name).symlink_to(shutil.which(target) or target)
	names = [str(link) for link in sorted(links.iterdir())]
	tasks = (["-c", "a.c"], ["main.cc", "-o", "prog"])
	judge_programs(yard, engine, [[name, *task] for name in names for task in tasks])
	options = ["-c a.c", "-c wrong.c", "-v -c a.c", "-### -c a.c", "main.cc -o prog", "--version"]
	compare(yard, [([name, *split(o)], {}) for name in names for o in options])


@pytest.mark.parametrize("compiler, variable", [("gcc", "DEPENDENCIES_OUTPUT"), ("gcc", "SUNPRO_DEPENDENCIES")])
def test_trials_leave_no_traces(compiler: str, variable: str, yard: Yard, engine: str) -> None:
	"""A variable by which compilers write into a file of the client's does not have a trial write there."""
	noted = yard.base / "noted"
	yard.environ[variable] = str(noted)
	judge_programs(yard, engine, [[compiler, "-c", "a.c"]])
	found = noted.read_text()
	assert "a.o:" in found
	assert "t.o:" not in found


def test_a_replaced_compiler(yard: Yard, engine: str) -> None:
	"""A driver that is upgraded in its place is the new one with the very next command."""
	folder = yard.base / "bin"
	folder.mkdir()
	driver = str(folder / "gcc")
	shutil.copy(os.path.realpath(shutil.which("gcc") or ""), driver)
	# it finds its parts by its own place: so they are said to be where they were
	parts = subprocess.run(["gcc", "-print-prog-name=cc1"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
	yard.environ["GCC_EXEC_PREFIX"] = parts.split("x86_64")[0] if "x86_64" in parts else parts.split("aarch64")[0]
	known = judge_programs(yard, engine, [[driver, "-c", "a.c"]])["gcc"]
	assert known["state"] == "parked", known
	other = folder / "fresh"
	shutil.copy(os.path.realpath(shutil.which("g++") or ""), other)
	other.rename(driver)
	compare(yard, [([driver, "-v", "-c", "b.cc"], {}), ([driver, "main.cc", "-o", "prog"], {})])


def test_rustc(yard: Yard, engine: str) -> None:
	"""The compiler behind the proxy of rustup is the same when it is parked."""
	proxy = shutil.which("rustc")
	if not proxy:
		pytest.skip("rustc is not installed")
	root = subprocess.run([proxy, "--print", "sysroot"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
	rustc = str(pathlib.Path(root.strip()) / "bin" / "rustc")
	known = judge_programs(yard, engine, [[rustc, "--crate-type=lib", "--emit=metadata", "lib.rs"]])
	compare(yard, [([rustc, *split(options)], {}) for options in RUST])
	if known["rustc"]["state"] == "parked":
		assert read_parking(engine)["rustc"]["commands"] >= known["rustc"]["commands"] + len(RUST)
