"""utils/genbench.py: the trees it writes, what it refuses, and that every build system builds what it wrote."""

import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
from typing import Callable, Dict, List, Set

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "utils" / "genbench.py"
sys.path.insert(0, str(SCRIPT.parent))

import genbench  # noqa: E402
from generator import piece  # noqa: E402

Project = genbench.Project

WAF = """\
import os, waflib
from waflib import Context, Scripting
Scripting.waf_entry_point(os.getcwd(), Context.WAFVERSION, os.path.dirname(os.path.dirname(waflib.__file__)))
"""
STRICT = "-Wall -Wextra -Werror"
FOREIGN = re.compile(r"(CC|CXX|AR|JOBS|DESTDIR|.*FLAGS|MAKE.*|CMAKE_.*|NINJA_.*|WAF.*|GENBENCH_.*)")

# What the trees of version 1.0 are: when one of these changes, so must genbench.VERSION, and then these literals.
DIGESTS = {
	("c++", "light"): "0081d6472790e90b834f68844ea15b41934c66750f5867945cabccc83550b5d1",
	("c", "light"): "7817912c0f224cc755026012e63b661ac7e851e5940afa1feca4b8a93d233c9d",
	("both", "light"): "c21d86a02db6b9976ee7c538a1fb8718fe17b4c4e789004f83c3f681eae813d7",
	("c++", "realistic"): "0359e8a9582f072291a30745cbf4dc6e859ab65eef4cc41801943def28a9bf92",
	("c", "realistic"): "fcf2d216025f6abda9df0f894aeee9fd1c5d8cd26daf644a1ddbc7f7996d6502",
	("both", "realistic"): "f8af9315148827538d9cd8d76833afbfa268fb7cd185e1a0c4557b4482e6feb4",
	("c++", "heavy"): "4eba7f86635a0011ca353210562cfb654860d8ea98addb7487f4c6904723fbe7",
	("c", "heavy"): "587b7fe04261fd516c846cf362d94a5345db0e6f47cd14d1566854e0b537d906",
	("both", "heavy"): "75703a993312c7359059aef6d629fd77261d54454148d52f23f8c690205a5a4b",
}

# What the programs of those trees print.
CHECKSUMS = {
	("c++", "light"): "c7859497",
	("c", "light"): "e541cd44",
	("both", "light"): "7f5fb660",
	("c++", "realistic"): "de98140a",
	("c", "realistic"): "4e521a56",
	("both", "realistic"): "46a3dc22",
	("c++", "heavy"): "6c515d31",
	("c", "heavy"): "a13207b8",
	("both", "heavy"): "380721e7",
}


def small(language: str, weight: str, **more: object) -> Project:
	"""The project that DIGESTS and CHECKSUMS are about."""
	numbers = (2, 2, 1, 1) if weight == "heavy" else (2, 4, 2, 1)
	return Project(*numbers, language=language, weight=weight, program=True, **more)


def run_genbench(*args: object) -> subprocess.CompletedProcess:
	command = [sys.executable, str(SCRIPT), *map(str, args)]
	return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def read_tree(root: pathlib.Path) -> Dict[str, str]:
	"""Every file below a folder, by its relative path."""
	return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def digest_of(project: Project) -> str:
	digest = hashlib.sha256()
	for path, text in project.files():
		digest.update(("%s\n%d\n%s" % (path, len(text), text)).encode())
	return digest.hexdigest()


def need(*programs: str) -> None:
	"""Without a program the facts below are not shown: no test is green then, and in CI it is red."""
	missing = [program for program in programs if not shutil.which(program)]
	if missing:
		say = pytest.fail if os.environ.get("CI") else pytest.skip
		say("%s not found" % " ".join(missing))


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Callable:
	"""Run a command in the generated project and return what it printed; it sees no flags but those given."""
	clean = {key: value for key, value in os.environ.items() if not FOREIGN.fullmatch(key)}

	def run_command(*command: str, **variables: str) -> str:
		env = {**clean, "LC_ALL": "C", **variables}
		out, error = subprocess.PIPE, subprocess.STDOUT
		done = subprocess.run(
			command, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=error, text=True
		)
		assert done.returncode == 0, "%s\n%s" % (" ".join(command), done.stdout)
		return done.stdout

	return run_command


# ---- One way to build per build file; each ends with the program


def build_waf(run: Callable) -> str:
	run(sys.executable, "-c", WAF, "configure", "build", "-j2")
	return run("out/checksum")


def build_cmake(run: Callable) -> str:
	need("cmake", "ninja")
	run("cmake", "-G", "Ninja", "-S", ".", "-B", "out-cmake")
	run("cmake", "--build", "out-cmake", "-j2")
	return run("out-cmake/checksum")


def build_ninja(run: Callable) -> str:
	need("ninja")
	run("ninja", "-j2")
	return run("out-ninja/checksum")


def build_make(run: Callable) -> str:
	need("make")
	run("make", "-j2")
	return run("out-make/checksum")


def build_commands(run: Callable) -> str:
	need("xargs")
	run("xargs", "-P2", "-L1", "-a", "commands.txt", "env")
	run("sh", "-c", "g++ -o checksum out-xargs/program/*.o out-xargs/lib_1/*.o out-xargs/lib_0/*.o")
	return run("./checksum")


BUILDS = [build_waf, build_cmake, build_ninja, build_make, build_commands]
MIXTURES = [("c++", "light"), ("c", "realistic"), ("both", "realistic")]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("language, weight", MIXTURES)
def test_each_build_system_builds_the_same_program(
	tmp_path: pathlib.Path, run: Callable, language: str, weight: str, build: Callable
) -> None:
	"""Whatever builds it, stock Waf, CMake, ninja, make or no build system, the program prints the same checksum."""
	need("g++", "gcc", "ar")
	genbench.generate(small(language, weight), str(tmp_path))
	assert build(run).strip() == CHECKSUMS[language, weight]


@pytest.mark.parametrize("language, weight", sorted(set(CHECKSUMS) - set(MIXTURES)))
def test_every_weight_compiles_without_warnings(
	tmp_path: pathlib.Path, run: Callable, language: str, weight: str
) -> None:
	"""Sources of every weight are clean with -Wall -Wextra, and their program prints what it does everywhere."""
	need("g++", "gcc", "ar")
	genbench.generate(small(language, weight, flags=STRICT), str(tmp_path))
	assert build_ninja(run).strip() == CHECKSUMS[language, weight]


@pytest.mark.parametrize("language, weight", MIXTURES)
def test_the_mixtures_compile_without_warnings(
	tmp_path: pathlib.Path, run: Callable, language: str, weight: str
) -> None:
	"""The same for the trees that the build systems are tried on, and for another seed: another program."""
	need("g++", "gcc", "ar")
	genbench.generate(small(language, weight, flags=STRICT, seed=7), str(tmp_path))
	assert re.fullmatch(r"[0-9a-f]{8}", build_ninja(run).strip())
	assert run("out-ninja/checksum").strip() != CHECKSUMS[language, weight]


def test_heavier_files_are_longer() -> None:
	"""A heavier weight has more text in its files, and more system headers."""
	for language in ("c", "c++"):
		projects = [Project(2, 4, 2, 1, language=language, weight=weight) for weight in genbench.WEIGHTS]
		texts = ["".join(text for _, text in project.files()) for project in projects]
		systems = [len(set(re.findall(r"#include <\w+(?:\.h)?>", text))) for text in texts]
		assert len(texts[0]) * 3 < len(texts[1]) < len(texts[2]) / 1.5
		assert systems[0] < systems[1] < systems[2]


# ---- The tree


@pytest.mark.parametrize("language, weight", sorted(DIGESTS))
def test_the_same_arguments_give_the_same_bytes(language: str, weight: str) -> None:
	"""The tree is the one that every other Python wrote: its digest is a literal."""
	assert digest_of(small(language, weight)) == DIGESTS[language, weight]


def test_seeds_differ() -> None:
	"""Another seed gives another project, in what files include and in what they compute."""
	trees = [dict(Project(2, 9, 4, 2, seed=seed).files()) for seed in (0, 1)]
	assert trees[0]["lib_1/class_3.cpp"] != trees[1]["lib_1/class_3.cpp"]
	assert trees[0].keys() == trees[1].keys()


def test_draws_are_splitmix64() -> None:
	"""The first numbers are those that the sequence is published with, and a sample takes each number once."""
	draws = genbench.Draws()
	assert [draws.next() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
	for count in range(8):
		drawn = genbench.Draws(count).sample(7, count)
		assert len(set(drawn)) == count and set(drawn) <= set(range(7))


def test_every_piece_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
	"""Each file below generator/pieces/ is in some project: none was forgotten in generator/weights.py."""
	used = set()
	load = piece.load

	def load_and_note(name: str) -> str:
		used.add(name + ".in")
		return load(name)

	monkeypatch.setattr(piece, "load", load_and_note)
	for weight in genbench.WEIGHTS:
		list(Project(2, 20, 10, 10, language="both", weight=weight, program=True).files())
	assert used == set(read_tree(pathlib.Path(piece.FOLDER)))


def test_the_command_line_writes_the_plan(tmp_path: pathlib.Path) -> None:
	"""The five arguments of Waf's own genbench write just the files that the project yields, and need no option."""
	done = run_genbench(tmp_path / "new" / "folder", 3, 5, 2, 1)
	assert (done.returncode, done.stderr) == (0, "")
	assert done.stdout == "15 classes in 3 libraries, 36 files. How to build them: --help\n"
	project = Project(3, 5, 2, 1)
	tree = read_tree(tmp_path / "new" / "folder")
	assert tree == dict(project.files())
	assert len(tree) == project.count() == 36
	assert set(project.sources()) == {path for path in tree if path.endswith(".cpp")}


def test_the_options_reach_the_project(tmp_path: pathlib.Path) -> None:
	"""Each option sets the parameter of its name, and genbench.json tells them all."""
	options = "--seed 5 --language both --weight heavy --program --build-files ninja,make --cxx clang++ --cc clang"
	done = run_genbench(tmp_path, 2, 3, 1, 1, *options.split(), "--flags", "-O2", "--quiet")
	assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
	made = json.loads((tmp_path / "genbench.json").read_text())
	assert made["generator"] == "genbench" and made["version"] == genbench.VERSION
	asked = {"language": "both", "weight": "heavy", "seed": 5, "program": True, "build_files": ["ninja", "make"]}
	written = {"cxx": "clang++", "cc": "clang", "flags": "-O2"}
	numbers = {"libs": 2, "classes": 3, "internal": 1, "external": 1}
	assert made["project"] == {**numbers, **asked, **written}
	assert read_tree(tmp_path) == dict(Project(**made["project"]).files())
	assert not {"wscript", "CMakeLists.txt"} & {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("language", genbench.LANGUAGES)
@pytest.mark.parametrize("weight", genbench.WEIGHTS)
@pytest.mark.parametrize("numbers", [(3, 6, 4, 2), (3, 3, 3, 3), (2, 2, 0, 0), (1, 4, 1, 4)])
def test_include_counts_are_exact(language: str, weight: str, numbers: tuple) -> None:
	"""A source includes its own header, so many of its library and so many of lower ones; the first has no lower."""
	project = Project(*numbers, language=language, weight=weight)
	files = dict(project.files())
	for source in project.sources():
		lib, own = re.fullmatch(r"lib_(\d+)/class_(\d+)\.(?:c|cpp)", source).groups()
		near = re.findall(r'^#include "class_(\d+)\.h"$', files[source], re.M)
		far = re.findall(r"^#include <lib_(\d+)/class_(\d+)\.h>$", files[source], re.M)
		assert near[0] == own
		assert len(near) - 1 == len(set(near[1:])) == project.internal
		assert len(far) == len({number for _, number in far}) == (project.external if int(lib) else 0)
		assert all(int(other) < int(lib) for other, _ in far)
		assert all("lib_%s/class_%s.h" % place in files for place in far)


@pytest.mark.parametrize("language", genbench.LANGUAGES)
def test_a_common_beginning(language: str, tmp_path: pathlib.Path, run: Callable) -> None:
	"""With --common, all sources of a library include one header first, with those of so many classes."""
	project = Project(2, 4, 2, 1, language=language, weight="realistic", program=True, flags=STRICT, common=3)
	files = dict(project.files())
	assert len(files) == project.count()
	assert "--common 3" in project.summary()
	for source in project.sources():
		begins = files[source].startswith('#include "common.h"\n')
		assert begins == source.startswith("lib_"), source
	for lib in range(2):
		included = re.findall(r'^#include "class_(\d+)\.h"$', files["lib_%d/common.h" % lib], re.M)
		assert included == ["0", "1", "2"]
	genbench.generate(project, str(tmp_path))
	assert build_ninja(run).strip() == CHECKSUMS[language, "realistic"]
	with pytest.raises(genbench.Impossible, match="common is 5"):
		Project(2, 4, 2, 1, common=5)


def test_half_of_a_mixed_project_is_c() -> None:
	"""With --language both, every library has as many C as C++ classes, and the same ones each time."""
	names = list(Project(3, 6, 2, 2, language="both").sources())
	for lib in range(3):
		held = [name for name in names if name.startswith("lib_%d/" % lib)]
		assert sorted(name.rpartition(".")[2] for name in held) == ["c"] * 3 + ["cpp"] * 3
	assert names == list(Project(3, 6, 2, 2, language="both", seed=9).sources())


def test_sources_do_not_depend_on_the_program() -> None:
	"""--program adds files and changes no class, so that times with and without it can be compared."""
	without, with_it = (dict(Project(2, 3, 1, 1, program=program).files()) for program in (False, True))
	assert {path for path in with_it if path not in without} == {
		"program/main.cpp",
		"program/lib_0.cpp",
		"program/lib_1.cpp",
	}
	for path in without:
		if path.startswith("lib_"):
			assert without[path] == with_it[path]


# ---- What the build files know


def sources_in(printed: str) -> Set[str]:
	"""The sources that commands compile."""
	return set(re.findall(r" -c (\S+)", printed))


@pytest.mark.parametrize("tool, again", [("ninja", ["ninja", "-n", "-v"]), ("make", ["make", "-n"])])
def test_a_changed_header_compiles_just_its_users(
	tmp_path: pathlib.Path, run: Callable, tool: str, again: List[str]
) -> None:
	"""After a build there is nothing to do; after a header changed, what includes it is to do, and no more."""
	need(tool, "gcc", "ar")
	project = Project(2, 6, 2, 2, language="c", program=True)
	genbench.generate(project, str(tmp_path))
	run(tool, "-j2")
	assert sources_in(run(*again)) == set()

	header = tmp_path / "lib_0" / "class_2.h"
	newest = max(path.stat().st_mtime for path in tmp_path.rglob("*"))
	os.utime(header, (newest + 10, newest + 10))
	changed = project.class_at(0, 2)
	users = {changed.source, "program/lib_0.c"}
	for lib in range(2):
		for unit in project.library(lib):
			internal, external = project.includes(unit)
			if changed in internal + external:
				users.add(unit.source)
	assert len(users) < 14
	assert sources_in(run(*again)) == users


def commands_of_waf(run: Callable, **variables: str) -> str:
	return run(sys.executable, "-c", WAF, "configure", "build", "-v", **variables)


def commands_of_cmake(run: Callable, **variables: str) -> str:
	need("cmake", "ninja")
	run("cmake", "-G", "Ninja", "-S", ".", "-B", "out-cmake", **variables)
	return run("ninja", "-C", "out-cmake", "-t", "commands")


def commands_of_make(run: Callable, **variables: str) -> str:
	need("make")
	return run("make", "-n", **variables)


@pytest.mark.parametrize("commands", [commands_of_waf, commands_of_cmake, commands_of_make])
def test_compiler_and_flags_come_from_the_environment(
	tmp_path: pathlib.Path, run: Callable, commands: Callable
) -> None:
	"""CC and CFLAGS of the environment are taken by Waf, CMake and make instead of those that genbench wrote."""
	need("gcc", "ar")
	compiler = tmp_path / "own-cc"
	compiler.symlink_to(shutil.which("gcc"))
	genbench.generate(Project(1, 1, 0, 0, language="c", flags="-DWRITTEN"), str(tmp_path), force=True)
	printed = commands(run, CC=str(compiler), CFLAGS="-DGIVEN")
	assert "own-cc" in printed and "-DGIVEN" in printed and "-DWRITTEN" not in printed


@pytest.mark.parametrize("commands", [commands_of_waf, commands_of_cmake, commands_of_make])
def test_written_flags_are_the_default(tmp_path: pathlib.Path, run: Callable, commands: Callable) -> None:
	"""When the environment says nothing, Waf, CMake and make compile with what --cc and --flags wrote."""
	need("gcc", "ar")
	compiler = tmp_path / "own-cc"
	compiler.symlink_to(shutil.which("gcc"))
	genbench.generate(Project(1, 1, 0, 0, language="c", cc=str(compiler), flags="-DA  -DB"), str(tmp_path), force=True)
	printed = commands(run)
	assert "own-cc" in printed and re.search("-DA\\W+-DB\\b", printed)


def test_ninja_and_commands_have_what_was_written(tmp_path: pathlib.Path, run: Callable) -> None:
	"""ninja and commands.txt cannot look at the environment: they have the compilers and flags given to genbench."""
	need("ninja")
	project = Project(1, 2, 0, 0, language="both", cxx="ccache clang++", cc="tcc", flags="-O1 -g")
	genbench.generate(project, str(tmp_path))
	printed = run("ninja", "-t", "commands", CXX="other", CFLAGS="-O3").splitlines()
	assert sum(line.startswith("ccache clang++ -O1 -g -I.") for line in printed) == 1
	assert sum(line.startswith("tcc -O1 -g -I.") for line in printed) == 1
	assert (tmp_path / "commands.txt").read_text() == (
		"ccache clang++ -O1 -g -I. -c lib_0/class_0.cpp -o out-xargs/lib_0/class_0.cpp.o\n"
		"tcc -O1 -g -I. -c lib_0/class_1.c -o out-xargs/lib_0/class_1.c.o\n"
	)
	assert (tmp_path / "out-xargs" / "lib_0").is_dir()


def test_build_files_can_be_written_for_another_folder() -> None:
	"""The texts for ninja and xargs are functions of the output folder, as neither takes it on its command line."""
	project = Project(1, 1, 0, 0)
	assert "\nfolder = elsewhere\n" in genbench.ninja_text(project, "elsewhere")
	assert genbench.commands_text(project, "there") == "g++ -I. -c lib_0/class_0.cpp -o there/lib_0/class_0.cpp.o\n"


def test_waf_loads_the_tools_that_the_environment_names(tmp_path: pathlib.Path, run: Callable) -> None:
	"""GENBENCH_TOOLS names Waf tools, separated by blanks, that are loaded in options without editing the wscript."""
	need("g++", "ar")
	root = tmp_path
	genbench.generate(Project(1, 1, 0, 0), str(root))
	tools = root / "tools"
	tools.mkdir()
	for name in ("tool_one", "tool_two"):
		(tools / (name + ".py")).write_text("def options(opt):\n\tprint('options of %s')\n" % name)
	loaded = run(
		*(sys.executable, "-c", WAF, "configure", "build"), PYTHONPATH=str(tools), GENBENCH_TOOLS=" tool_one  tool_two"
	)
	assert "options of tool_one\noptions of tool_two\n" in loaded
	assert "options of" not in run(sys.executable, "-c", WAF, "configure", "build", PYTHONPATH=str(tools))


# ---- What is refused

IMPOSSIBLE = [
	(["0", "5", "1", "1"], "libs is 0, give 1 to 10000"),
	(["-2", "5", "1", "1"], "libs is -2, give 1 to 10000"),
	(["10001", "5", "1", "1"], "libs is 10001, give 1 to 10000"),
	(["2", "0", "0", "0"], "classes is 0, give 1 to 10000"),
	(["2", "10001", "0", "0"], "classes is 10001, give 1 to 10000"),
	(["2", "5", "6", "1"], "internal is 6, give 0 to 5: a library has 5 classes"),
	(["2", "5", "1", "6"], "external is 6, give 0 to 5: at most one of each of the 5 class numbers"),
	(["1", "5", "1", "6"], "external is 6, give 0 to 5"),
	(["2", "5", "-1", "1"], "internal is -1, give 0 to 5"),
	(["2", "5", "1", "-1"], "external is -1, give 0 to 5"),
	(["2", "many", "1", "1"], "argument classes: 'many' is not a whole number, give digits"),
	(["2", "5", "1.5", "1"], "argument internal: '1.5' is not a whole number"),
	(["2", "5", "1", ""], "argument external: '' is not a whole number"),
	(["9000", "9000", "1", "1"], "libs x classes is 81000000, give at most 1000000: take fewer of either"),
	(["1000", "1000", "200", "1"], "libs x classes x (internal + external) is 201000000, give at most 100000000"),
	(["2", "5", "1"], "the following arguments are required: external"),
	(["2", "5", "1", "1", "1"], "unrecognized arguments: 1"),
	(["2", "5", "1", "1", "--seed", "-1"], "seed is -1, give 0 to 18446744073709551615"),
	(["2", "5", "1", "1", "--seed", "x"], "argument --seed: 'x' is not a whole number"),
	(["2", "5", "1", "1", "--language", "d"], "language does not know 'd', choose of: c c++ both"),
	(["2", "5", "1", "1", "--weight", "fat"], "weight does not know 'fat', choose of: light realistic heavy"),
	(["2", "5", "1", "1", "--build-files", "waf,scons"], "build-files does not know 'scons', choose of: waf cmake"),
	(["2", "5", "1", "1", "--build-files", "waf,waf"], "build-files names something twice: name each once"),
	(["2", "5", "1", "1", "--cxx", ""], "cxx is empty, name a compiler"),
	(["2", "5", "1", "1", "--flags", "-DA='b'"], "flags is \"-DA='b'\", give plain words"),
	(["2", "5", "1", "1", "--prog"], "unrecognized arguments: --prog"),
]


@pytest.mark.parametrize("arguments, says", IMPOSSIBLE)
def test_impossible_numbers_get_one_line(tmp_path: pathlib.Path, arguments: List[str], says: str) -> None:
	"""Numbers and words that describe no project get one line that says which and what would do, and make nothing."""
	done = run_genbench(tmp_path / "root", *arguments)
	assert (done.returncode, done.stdout) == (2, "")
	assert done.stderr.startswith("genbench: " + says)
	assert done.stderr.endswith("; see genbench.py --help\n") and done.stderr.count("\n") == 1
	assert list(tmp_path.iterdir()) == []


def test_an_empty_root_gets_one_line() -> None:
	"""An empty name is no folder."""
	done = run_genbench("", 1, 1, 0, 0)
	assert (done.returncode, done.stderr) == (2, "genbench: root is empty, name a folder; see genbench.py --help\n")


@pytest.mark.parametrize("below", ["", "new", "new/er"])
def test_a_root_that_cannot_be_written_gets_one_line(tmp_path: pathlib.Path, below: str) -> None:
	"""Where no folder can be made, one line names the path and the reason."""
	file = tmp_path / "file"
	file.write_text("mine")
	done = run_genbench(file / below, 1, 1, 0, 0)
	assert (done.returncode, done.stdout) == (1, "")
	assert re.fullmatch("genbench: cannot write %s\\S*: .+; name a folder that can be written\n" % file, done.stderr)
	assert file.read_text() == "mine"


def test_a_folder_of_others_is_not_touched(tmp_path: pathlib.Path) -> None:
	"""A folder with files in it is left alone without --force, which then adds the project and removes nothing."""
	for path in ("notes.txt", "lib_0/class_99.h"):
		(tmp_path / path).parent.mkdir(exist_ok=True)
		(tmp_path / path).write_text("mine")
	before = read_tree(tmp_path)
	done = run_genbench(tmp_path, 1, 1, 0, 0)
	remedy = "name another folder, or write into it with --force"
	assert (done.returncode, done.stderr) == (1, "genbench: %s is not empty: %s\n" % (tmp_path, remedy))
	assert read_tree(tmp_path) == before
	assert run_genbench(tmp_path, 1, 1, 0, 0, "--force").returncode == 0
	assert read_tree(tmp_path) == {**dict(Project(1, 1, 0, 0).files()), **before}


def test_a_project_is_replaced_only_with_force(tmp_path: pathlib.Path) -> None:
	"""What genbench made is replaced with --force and then wholly, while what others put there stays."""
	genbench.generate(Project(4, 4, 1, 1, language="both", program=True), str(tmp_path))
	before = read_tree(tmp_path)
	done = run_genbench(tmp_path, 1, 2, 1, 0)
	remedy = "replace it with --force, or name another folder"
	line = "genbench: %s holds a project that genbench made: %s\n" % (tmp_path, remedy)
	assert (done.returncode, done.stderr) == (1, line)
	assert read_tree(tmp_path) == before

	mine = {"out-ninja/old.o": "built", "lib_3/notes.txt": "mine"}
	for path, text in mine.items():
		(tmp_path / path).parent.mkdir(exist_ok=True)
		(tmp_path / path).write_text(text)
	assert run_genbench(tmp_path, 1, 2, 1, 0, "--build-files", "waf", "--force").returncode == 0
	assert read_tree(tmp_path) == {**dict(Project(1, 2, 1, 0, build_files=["waf"]).files()), **mine}
	assert not (tmp_path / "lib_2").exists() and not (tmp_path / "program").exists()


def stop_after(files: int) -> Callable[[int], None]:
	"""What `generate` reports to, and is interrupted by."""

	def stop(written: int) -> None:
		if written == files:
			raise KeyboardInterrupt

	return stop


def test_an_incomplete_project_has_no_marker(tmp_path: pathlib.Path) -> None:
	"""genbench.json is written last and removed first: where it is, the whole project is."""
	project = Project(2, 3, 1, 1)
	genbench.generate(project, str(tmp_path))
	with pytest.raises(KeyboardInterrupt):
		genbench.generate(project, str(tmp_path), force=True, report=stop_after(5))
	assert len(read_tree(tmp_path)) == 5 + 1
	assert (tmp_path / "genbench.json.incomplete").exists() and not (tmp_path / "genbench.json").exists()
	genbench.generate(project, str(tmp_path), force=True)
	assert read_tree(tmp_path) == dict(project.files())


def test_an_interrupted_project_is_replaced_wholly(tmp_path: pathlib.Path) -> None:
	"""What an interrupt left is known as genbench's own: said so without --force, and with it none of it stays."""
	with pytest.raises(KeyboardInterrupt):
		genbench.generate(Project(4, 4, 1, 1), str(tmp_path), report=stop_after(28))
	(tmp_path / "lib_0" / "notes.txt").write_text("mine")
	before = read_tree(tmp_path)
	assert "lib_3/class_1.cpp" in before and "lib_3/class_2.h" not in before
	done = run_genbench(tmp_path, 1, 2, 1, 0)
	line = "genbench: %s holds a part of a project: begin again with --force, or name another folder\n" % tmp_path
	assert (done.returncode, done.stderr) == (1, line)
	assert read_tree(tmp_path) == before

	assert run_genbench(tmp_path, 1, 2, 1, 0, "--force").returncode == 0
	assert read_tree(tmp_path) == {**dict(Project(1, 2, 1, 0).files()), "lib_0/notes.txt": "mine"}


def test_a_project_that_cannot_be_removed_wholly_is_incomplete(tmp_path: pathlib.Path) -> None:
	"""When removing fails in the middle, one line names the file, and --force goes on when the cause has gone."""
	genbench.generate(Project(4, 4, 1, 1), str(tmp_path))
	obstacle = tmp_path / "lib_2" / "class_1.h"
	obstacle.unlink()
	obstacle.mkdir()
	done = run_genbench(tmp_path, 1, 2, 1, 0, "--force")
	assert done.returncode == 1
	assert done.stderr.startswith("genbench: cannot write %s: " % obstacle) and done.stderr.count("\n") == 1
	assert (tmp_path / "genbench.json.incomplete").exists() and not (tmp_path / "genbench.json").exists()

	obstacle.rmdir()
	assert run_genbench(tmp_path, 1, 2, 1, 0, "--force").returncode == 0
	assert read_tree(tmp_path) == dict(Project(1, 2, 1, 0).files())


# ---- Talking


def test_help_shows_examples() -> None:
	"""--help explains the five arguments, shows examples, and says how to build with each build file."""
	done = run_genbench("--help")
	assert (done.returncode, done.stderr) == (0, "")
	for words in ("root libs classes internal external", "examples:", "genbench.py /tmp/bench 50 100 15 5"):
		assert words in done.stdout
	for words in ("waf configure build", "cmake -B", "ninja", "make -j2", "xargs -P2", "GENBENCH_TOOLS", "--force"):
		assert words in done.stdout
	assert run_genbench("--version").stdout == "genbench %s\n" % genbench.VERSION


@pytest.mark.parametrize("options, shown", [((), True), (("--quiet",), False)])
def test_a_large_project_shows_progress_on_a_terminal(tmp_path: pathlib.Path, options: tuple, shown: bool) -> None:
	"""While thousands of files are written, a terminal sees how far it is, unless --quiet is given."""
	ours, theirs = pty.openpty()
	command = [sys.executable, str(SCRIPT), str(tmp_path), "4", "250", "0", "0", *options]
	done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
	os.write(theirs, b"end")
	os.close(theirs)
	with open(ours, "rb", buffering=0) as terminal:
		seen = b""
		while not seen.endswith(b"end"):
			seen += terminal.read(4096)
	assert done.returncode == 0
	assert (b"500 of 2006 files\r1000 of 2006 files\r" in seen) is shown
	assert (b"\r2006 of 2006 files\r\n" in seen) is shown


def test_an_interrupt_gets_one_line(tmp_path: pathlib.Path) -> None:
	"""Ctrl-C ends it with one line that says what to do about the half of a project that is there."""
	ours, theirs = pty.openpty()
	command = [sys.executable, str(SCRIPT), str(tmp_path), "100", "100", "9", "9"]
	process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
	with open(ours, "rb", buffering=0) as terminal:
		seen = b""
		while b"500 of 20006 files\r" not in seen:
			seen += terminal.read(4096)
		process.send_signal(signal.SIGINT)
		assert process.wait(timeout=60) == 130
		os.write(theirs, b"end")
		os.close(theirs)
		while not seen.endswith(b"end"):
			seen += terminal.read(4096)
	said = "files\rgenbench: interrupted, %s is incomplete; --force begins again\r\nend" % tmp_path
	assert seen.decode().endswith(said)
	assert "Traceback" not in seen.decode()
