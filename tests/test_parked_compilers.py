"""Parked compilers have the same effects, to the byte, as started ones, with any options."""

import os
import pathlib
import shutil
import subprocess

import pytest
from compiler_support import Comparison, compare, find_program, judge_programs, read_parking, split

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


@pytest.mark.parametrize("compiler", ["gcc", "g++", "clang", "clang++", "gfortran"])
def test_options(compiler: str, comparison: Comparison, engine: str) -> None:
	"""Status, output, messages and files are the same over the whole corpus, run by parked programs."""
	if not shutil.which(compiler):
		pytest.skip(f"{compiler} is not installed")
	cases = [(name, options) for name, options in CORPUS if name == compiler]
	source = {"g++": "b.cc", "clang++": "b.cc", "gfortran": "f.f90"}.get(compiler, "a.c")
	warm = [[compiler, "-c", source], [compiler, "main.c", "-o", "prog"]]
	parts = PARTS.get(compiler, ())
	known = judge_programs(comparison, engine, warm, parts)
	compiler_file = os.path.basename(os.path.realpath(shutil.which(compiler) or ""))
	assert known[compiler_file]["state"] == "parked", known[compiler_file]
	compare(comparison, [([compiler, *split(options)], {}) for _, options in cases])
	# only what is parked with this environment counts; every case may run there
	ran = read_parking(engine)[compiler_file]["commands"] - known[compiler_file]["commands"]
	assert ran == len(cases)
	now = read_parking(engine)
	for part in parts:
		program = find_program(known, part)
		if known[program]["state"] == "parked":
			assert now[program]["commands"] > known[program]["commands"], now[program]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_environments(compiler: str, comparison: Comparison, engine: str) -> None:
	"""Locales, include paths and other variables mean the same to a parked compiler."""
	judge_programs(comparison, engine, [[compiler, "-c", "a.c"]])
	options = ["-c a.c", "-c wrong.c", "-Wall -c warn.c", "-v -E a.c"]
	compare(comparison, [([compiler, *split(o)], env) for o in options for env in ENVIRONMENTS])


def test_missing_temporary_folder(comparison: Comparison, engine: str) -> None:
	"""A compiler without a folder for temporary files behaves as usual."""
	judge_programs(comparison, engine, [["gcc", "-c", "a.c"]])
	compare(comparison, [(["gcc", "-c", "a.c"], {"TMPDIR": str(comparison.base / "work" / "sub")})])
	compare(comparison, [(["gcc", "-c", "a.c"], {"TMPDIR": "/no/such/folder"})])


def test_links(comparison: Comparison, engine: str) -> None:
	"""A compiler behind a link of another name behaves as that name says."""
	links = comparison.base / "links"
	links.mkdir()
	for name, target in (("cc1-like-gcc", "gcc"), ("x86_64-linux-gnu-clang", "clang"), ("my-clang++", "clang++")):
		(links / name).symlink_to(shutil.which(target) or target)
	names = [str(link) for link in sorted(links.iterdir())]
	tasks = (["-c", "a.c"], ["main.cc", "-o", "prog"])
	judge_programs(comparison, engine, [[name, *task] for name in names for task in tasks])
	options = ["-c a.c", "-c wrong.c", "-v -c a.c", "-### -c a.c", "main.cc -o prog", "--version"]
	compare(comparison, [([name, *split(o)], {}) for name in names for o in options])


@pytest.mark.parametrize("compiler, variable", [("gcc", "DEPENDENCIES_OUTPUT"), ("gcc", "SUNPRO_DEPENDENCIES")])
def test_trials_leave_no_traces(compiler: str, variable: str, comparison: Comparison, engine: str) -> None:
	"""A variable by which compilers write into a file of the client's does not have a trial write there."""
	noted = comparison.base / "noted"
	comparison.environ[variable] = str(noted)
	judge_programs(comparison, engine, [[compiler, "-c", "a.c"]])
	found = noted.read_text()
	assert "a.o:" in found
	assert "t.o:" not in found


def test_a_replaced_compiler(comparison: Comparison, engine: str) -> None:
	"""A driver that is upgraded in place is the new one for the next command."""
	folder = comparison.base / "bin"
	folder.mkdir()
	driver = str(folder / "gcc")
	shutil.copy(os.path.realpath(shutil.which("gcc") or ""), driver)
	# it finds its parts by its own place, so their place is given
	parts = subprocess.run(["gcc", "-print-prog-name=cc1"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
	comparison.environ["GCC_EXEC_PREFIX"] = parts.split("x86_64")[0] if "x86_64" in parts else parts.split("aarch64")[0]
	known = judge_programs(comparison, engine, [[driver, "-c", "a.c"]])["gcc"]
	assert known["state"] == "parked", known
	other = folder / "fresh"
	shutil.copy(os.path.realpath(shutil.which("g++") or ""), other)
	other.rename(driver)
	compare(comparison, [([driver, "-v", "-c", "b.cc"], {}), ([driver, "main.cc", "-o", "prog"], {})])


def test_rustc(comparison: Comparison, engine: str) -> None:
	"""The compiler behind the proxy of rustup is the same when it is parked."""
	proxy = shutil.which("rustc")
	if not proxy:
		pytest.skip("rustc is not installed")
	root = subprocess.run([proxy, "--print", "sysroot"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
	rustc = str(pathlib.Path(root.strip()) / "bin" / "rustc")
	known = judge_programs(comparison, engine, [[rustc, "--crate-type=lib", "--emit=metadata", "lib.rs"]])
	compare(comparison, [([rustc, *split(options)], {}) for options in RUST])
	if known["rustc"]["state"] == "parked":
		assert read_parking(engine)["rustc"]["commands"] >= known["rustc"]["commands"] + len(RUST)
