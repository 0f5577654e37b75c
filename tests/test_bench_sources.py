"""utils/bench.py sources: where C code comes from, and real builds of it."""

import os
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List

import pytest
from conftest import leave_out
from test_bench_campaign import Done, finish, need, start

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "utils"))

from benchmark import package  # noqa: E402
from benchmark.compiler import both_commands  # noqa: E402
from benchmark.mistake import Mistake  # noqa: E402
from benchmark.package import CRATES_USED, Crate, find_packages, packages_in  # noqa: E402
from benchmark.project import Project, source_of  # noqa: E402
from benchmark.sources import commands_text, write_sources  # noqa: E402

FILES = {
	"one/one.c": '#include <assert.h>\n#include "inner/two.h"\nint one(int x) { assert(x); return two(x); }\n',
	"one/inner/two.c": '#include "inner/two.h"\nint two(int x) { return x + TWO; }\n',
	"one/inner/two.h": "#define TWO 2\nint two(int x);\n",
	"three/three.c": "int three(void) { return 3; }\n",
	"words/README": "no C here\n",
}


@pytest.fixture
def code(project: Callable[..., pathlib.Path]) -> pathlib.Path:
	"""A folder with two packages of C code, and one of something else."""
	return project(FILES, "code")


# ---- folders of the user's own


def test_packages_in_a_folder(code: pathlib.Path) -> None:
	"""Each folder with C sources is a package, with all sources and headers below it; others are none."""
	found = packages_in(str(code))
	assert [(one.name, one.sources) for one in found] == [
		("one", ["one.c", os.path.join("inner", "two.c")]),
		("three", ["three.c"]),
	]
	assert os.path.join("inner", "two.h") in found[0].files


def test_a_folder_that_is_a_package(code: pathlib.Path) -> None:
	"""A folder in which C sources lie is one package with all that is below it."""
	(one,) = packages_in(str(code / "one"))
	assert (one.name, len(one.sources)) == ("one", 2)


@pytest.mark.parametrize(
	("files", "words"),
	[
		({}, "cannot read"),
		({"code/a.h": ""}, "holds no C sources"),
		({"code/a b.c": ""}, "make cannot build a b.c"),
		({"code/a$b/c.c": ""}, "make cannot build a$b"),
	],
)
def test_folders_that_cannot_be_built(project: Callable[..., pathlib.Path], files: dict, words: str) -> None:
	"""A folder without C sources, or with names that some build system cannot take, is refused by name."""
	with pytest.raises(Mistake) as refused:
		packages_in(str(project(files) / "code"))
	assert words in str(refused.value)


# ---- crates


def fake_cargo(folder: pathlib.Path, script: str, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
	"""Put a script in the place of cargo, and nothing else; the file that it is to write its arguments to."""
	programs = folder / "bin"
	programs.mkdir()
	calls = folder / "calls"
	if script:
		(programs / "cargo").write_text('#!/bin/sh\necho "$@" >> %s\n%s\n' % (calls, script))
		(programs / "cargo").chmod(0o755)
	monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % programs if script else str(programs))
	monkeypatch.setenv("CARGO_HOME", str(folder))
	return calls


def use_crate(monkeypatch: pytest.MonkeyPatch) -> None:
	"""Let a crate of our own be all that is used."""
	crate = Crate("tiny", "tiny-sys", "1.0.0", "inside", ("", "core"), ("TINY=1",))
	monkeypatch.setattr(package, "CRATES_USED", (crate,))


# what `cargo vendor … FOLDER` would leave there
VENDOR = """
for last; do :; done
mkdir -p $last/tiny-sys-1.0.0/inside/core $last/tiny-sys-1.0.0/inside/other
echo 'int tiny(void);' > $last/tiny-sys-1.0.0/inside/tiny.h
echo 'int tiny(void) { return TINY; }' > $last/tiny-sys-1.0.0/inside/core/tiny.c
echo 'not to be compiled' > $last/tiny-sys-1.0.0/inside/other/other.c
"""


def test_crates_are_fetched_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""Cargo is asked once, for what the lock file says; then what was kept is used."""
	use_crate(monkeypatch)
	calls = fake_cargo(tmp_path, VENDOR, monkeypatch)
	said: List[str] = []
	(first,) = find_packages(None, said.append, str(tmp_path / "kept"))
	assert first.sources == [os.path.join("core", "tiny.c")]
	assert find_packages(None, said.append, str(tmp_path / "kept")) == [first] and len(said) == 1
	assert calls.read_text().count("vendor --locked") == 1
	assert len(os.listdir(str(tmp_path / "kept"))) == 1


@pytest.mark.parametrize(
	("script", "words"),
	[
		("", "cargo is missing"),
		("echo 'error: failed to sync' >&2; echo >&2; echo '  could not connect' >&2; exit 101", "(could not connect)"),
		("exit 3", "(it said nothing)"),
	],
)
def test_crates_that_cannot_be_had(
	tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
	"""Without cargo, or without a network, there is one line with the remedy, and nothing is kept."""
	use_crate(monkeypatch)
	fake_cargo(tmp_path, script, monkeypatch)
	with pytest.raises(Mistake) as refused:
		find_packages(None, lambda line: None, str(tmp_path / "kept"))
	assert words in str(refused.value) and "--sources" in str(refused.value) and "\n" not in str(refused.value)
	assert not (tmp_path / "kept").exists() or os.listdir(str(tmp_path / "kept")) == []


def test_place_where_nothing_can_be_kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""Where the crates cannot be kept, the place is named."""
	use_crate(monkeypatch)
	fake_cargo(tmp_path, VENDOR, monkeypatch)
	(tmp_path / "kept").write_text("in the way")
	with pytest.raises(Mistake, match=r"cannot write .*kept/"):
		find_packages(None, lambda line: None, str(tmp_path / "kept"))


def test_manifest_names_the_crates() -> None:
	"""Cargo is told to fetch the versions that are used, and the lock file has them."""
	manifest = (ROOT / "utils" / "benchmark" / "projects" / "crates" / "Cargo.toml").read_text()
	lock = (ROOT / "utils" / "benchmark" / "projects" / "crates" / "Cargo.lock").read_text()
	for crate in CRATES_USED:
		assert '%s = "=%s"' % (crate.name, crate.version) in manifest or (
			'%s = { version = "=%s"' % (crate.name, crate.version.split("+")[0]) in manifest
		)
		assert 'name = "%s"\nversion = "%s"' % (crate.name, crate.version) in lock


# ---- the project


def test_commands_need_no_folder_of_ours(code: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""Every path in the build files is relative: the name of a folder shall not get into an object."""
	packages = packages_in(str(code))
	assert commands_text(packages[1:], ["gcc", "-O1"]) == (
		"gcc -O1 -Ipackages/three -c packages/three/three.c -o out-xargs/packages/three/three.c.o\n"
	)
	root = tmp_path / "written"
	written = write_sources(str(root), packages, both_commands("gcc"), "-O1")
	for name in ("build.ninja", "Makefile", "commands.txt", "packages.json"):
		assert str(tmp_path) not in (root / name).read_text()
	assert len(written.sources()) == 3 and all((root / source).is_file() for source in written.sources())


def test_objects_are_compared(tmp_path: pathlib.Path) -> None:
	"""Objects of the same source are compared whatever the build system calls them; a missing one is different."""
	assert [source_of(name) for name in ("a.c.o", "a.c.12.o", "b/c.cpp.1.o")] == ["a.c", "a.c", "b/c.cpp"]
	project = Project(str(tmp_path))
	for folder, names in (("x", {"a.c.o": "1", "b.c.o": "2"}), ("y", {"a.c.1.o": "1", "b.c.1.o": "0"}), ("z", {})):
		(tmp_path / folder).mkdir()
		for name, text in names.items():
			(tmp_path / folder / name).write_text(text)
	assert project.compare("x", "first") == ("first", [])
	assert project.compare("y", "second") == ("first", ["b.c"])
	assert project.compare("z", "third") == ("first", ["a.c", "b.c"])


# ---- real campaigns


def run(folder: pathlib.Path, *args: str, **variables: str) -> Done:
	"""A campaign of the scenario, once."""
	folder.mkdir(exist_ok=True)
	return finish(folder, start(folder, "sources", "--repeat", "1", *args, **variables))


def test_everybody_builds_the_same(tmp_path: pathlib.Path, code: pathlib.Path, engine: str) -> None:
	"""All build systems make the same objects, assertions and debug information included, and it is told of what."""
	need("gcc", "ninja", "make", "xargs")
	names = ["waf-nopool", "prefork", "ninja", "make", "xargs"]
	args = ("--sources", str(code), "--contenders", ",".join(names), "--compilers", "gcc", "--flags=-O1 -g")
	done = run(tmp_path / "run", *args, "--keep", WAFD=engine)
	assert done.status == 0, done.err
	assert sorted(done.values("sources")) == sorted(names)
	assert done.record["settings"]["real"]["sources"]["packages"] == ["one (2 files)", "three (1 files)"]
	assert "one (2 files), three (1 files), compiled with -O1 -g" in done.out and "genbench" not in done.out
	archives = {path.name for path in done.work.glob("bench-*/sources-gcc/builds/*-make-gcc/*.a")}
	assert archives == {"libone.a", "libthree.a"}
	assert done.left == []


def test_who_makes_another_object_is_out(tmp_path: pathlib.Path, code: pathlib.Path) -> None:
	"""A contender whose object differs from that of the first one is reported, and not compared."""
	need("gcc", "ninja", "xargs")
	odd = tmp_path / "odd-gcc"
	odd.write_text('#!/bin/sh\ncase "$*" in *three.c*002-ninja*) exec gcc -DODD "$@" -g ;; *) exec gcc "$@" ;; esac\n')
	odd.chmod(0o755)
	args = ("--sources", str(code), "--contenders", "xargs,ninja", "--compilers", str(odd))
	done = run(tmp_path / "run", *args)
	assert done.status == 1, done.err
	assert list(done.values("sources")) == ["xargs"]
	(failure,) = done.record["failures"]
	assert failure["contender"] == "ninja"
	assert failure["reason"].startswith("1 of its objects differ from those of xargs")
	assert failure["reason"].endswith("three.c")


def test_without_cargo_it_is_refused(tmp_path: pathlib.Path) -> None:
	"""Whoever asks for the scenario where there is neither cargo nor what it once fetched gets one line."""
	tree = tmp_path / "tree"
	shutil.copytree(str(ROOT / "utils"), str(tree / "utils"), ignore=shutil.ignore_patterns("__pycache__"))
	(tmp_path / "bin").mkdir()
	os.symlink(shutil.which("xargs") or "", str(tmp_path / "bin" / "xargs"))
	argv = [sys.executable, str(tree / "utils" / "bench.py"), "sources", "--contenders", "xargs", "--work"]
	environ = {**os.environ, "PATH": str(tmp_path / "bin"), "CARGO_HOME": str(tmp_path)}
	done = subprocess.run(
		[*argv, str(tmp_path / "work")], env=environ, capture_output=True, encoding="utf-8", timeout=60
	)
	assert done.returncode == 2, done.stderr
	complaints = [line for line in done.stderr.splitlines() if line.startswith("bench.py: ")]
	assert complaints == [
		"bench.py: real sources: cargo is missing: install Rust, or name a folder with sources with --sources"
	]
	assert "Traceback" not in done.stderr and os.listdir(str(tmp_path / "work")) == []


def test_the_real_packages(tmp_path: pathlib.Path) -> None:
	"""What the registry gives is what is expected, and all of it compiles."""
	need("gcc", *([] if package.find_cargo() else ["cargo"]))
	try:
		found = find_packages(None, lambda line: None)
	except Mistake as e:
		if "could not fetch" not in str(e):
			raise
		leave_out(str(e))
	assert [one.summary for one in found] == [
		"zstd-sys-2.0.13+zstd.1.5.6 (29 files)",
		"lua-src-547.0.0 (32 files)",
		"libz-sys-1.1.20 (15 files)",
	]
	written = write_sources(str(tmp_path / "project"), found, both_commands("gcc"), "-fsyntax-only")
	with ThreadPoolExecutor(2) as pool:
		done = list(pool.map(lambda line: subprocess.run(line.split(), cwd=written.root, timeout=60), written.commands))
	assert [one.returncode for one in done] == [0] * 76
