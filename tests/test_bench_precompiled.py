"""utils/bench.py precompiled: C++ code that uses a precompiled header, with caches cold and warm."""

import os
import pathlib
import subprocess
import sys
from typing import Any, Dict

import pytest
from test_bench_campaign import BENCH, Done, finish, need, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import precompiled
from benchmark.compiler import both_commands
from benchmark.mistake import Mistake
from debian.headers import unpack_boost

PATIENCE = 600  # seconds; others use the machine, too
FAKE_APT = """\
#!/bin/sh
echo "$@" >> %(folder)s/calls
for package; do :; done
cp %(folder)s/$package"_1_all.deb" .
"""


def test_projects_of_compilers(tmp_path: pathlib.Path) -> None:
	"""Each source is compiled with the header. A header that cannot be used is an error, and holds no times."""
	code = precompiled.Code(precompiled.TEMPLATES, "/boost")
	for compiler, word in (("g++", "-Werror=invalid-pch"), ("clang++-14", "-fno-pch-timestamp")):
		root = tmp_path / compiler
		made = precompiled.write_precompiled(str(root), 3, "-O1", both_commands(compiler), code)
		assert made.sources() == ["src/part_1.cpp", "src/part_2.cpp", "src/part_3.cpp"]
		ninja = made.read("build.ninja")
		assert ninja.count("cxx src/") == 3 and "@" not in ninja
		assert ninja.count("-O1") == 2 and ninja.count("-isystem /boost") == 2 and ninja.count(word) == 2
		assert made.commands == [made.commands[0]] and made.commands[0].startswith(compiler + " -O1")
		assert "part_2 {" in made.read("src/part_2.cpp") and "@" not in made.read("src/part_2.cpp")
		assert sorted(os.listdir(str(root))) == [
			"build.ninja",
			"commands.txt",
			"flags.json",
			"pch.hpp",
			"src",
			"wscript",
		]


# ---- Boost's headers


@pytest.fixture
def apt(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
	"""A folder with the packages that an apt-get of ours finds. The file ``calls`` there has its calls."""
	need("dpkg-deb")
	folder = tmp_path / "archive"
	for name, needed in (("libboost-dev", "Depends: libboost1.74-dev\n"), ("libboost1.74-dev", "")):
		tree = folder / name
		(tree / "DEBIAN").mkdir(parents=True)
		fields = "Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a\n" % name
		(tree / "DEBIAN" / "control").write_text(fields + needed)
		if not needed:
			(tree / "usr" / "include" / "boost").mkdir(parents=True)
			(tree / "usr" / "include" / "boost" / "version.hpp").write_text("#define BOOST_VERSION 107400\n")
		subprocess.run(["dpkg-deb", "-b", str(tree), str(folder / (name + "_1_all.deb"))], check=True)
	programs = tmp_path / "bin"
	programs.mkdir()
	(programs / "apt-get").write_text(FAKE_APT % {"folder": folder})
	(programs / "apt-get").chmod(0o755)
	monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
	return folder


def test_headers_are_unpacked_once(apt: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""The package that the archive's release has is found by the one without a version. Nothing else is left."""
	place = tmp_path / "apt"
	for _ in range(2):
		found = pathlib.Path(unpack_boost(place, lambda text: None))
		assert (found / "boost" / "version.hpp").exists()
		assert os.listdir(str(place)) == ["boost"]
	assert len((apt / "calls").read_text().splitlines()) == 2


def test_headers_that_cannot_be_had(apt: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""One line says what to install, and nothing is left."""
	(apt / "libboost1.74-dev_1_all.deb").unlink()
	with pytest.raises(Mistake, match=r"apt-get failed \(.*run apt-get update, or apt-get install libboost-dev"):
		unpack_boost(tmp_path / "apt", lambda text: None)
	assert os.listdir(str(tmp_path / "apt")) == []


# ---- campaigns


def find_hits(done: Done) -> Dict[str, Dict[str, float]]:
	"""The hits of each contender, by part."""
	found: Dict[str, Dict[str, float]] = {}
	for run in done.record["runs"]:
		found.setdefault(run["contender"], {})[run["part"]] = run["values"].get("hits")
	return found


SMALL = {
	"pch.hpp": "#ifndef PCH_HPP\n#define PCH_HPP\n#include <utility>\n#endif\n",
	"part.cpp": "std::pair<int, int> part_@number@() { return {@number@, 1}; }\n",
}


@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_campaign(tmp_path: pathlib.Path, project: Any, engine: str, compiler: str) -> None:
	"""
	The header and its users are hits in the same folder, and with g++ in another checkout, if they have relative names.

	All objects are equal, and nothing is left.
	"""
	need(compiler, "ninja", "ccache")
	names = ("ninja", "ninja+ccache", "ninja+wafcc", "waf+wafcc")
	words = [
		"precompiled",
		"--commands",
		"2",
		"--repeat",
		"1",
		"--compilers",
		compiler,
		"--contenders",
		",".join(names),
	]
	done = finish(tmp_path, start(tmp_path, *words, "--sources", str(project(SMALL)), WAFD=engine), PATIENCE)
	assert done.status == 0, done.err
	hits = find_hits(done)
	assert sorted(hits) == sorted(names)
	for name in names[1:]:
		assert (hits[name]["cold"], hits[name]["warm"]) == (0, 100), name
	assert hits["ninja"]["warm"] is None
	# clang's header names its folder, and Waf's tool gives absolute names
	assert hits["ninja+wafcc"]["other checkout"] == (100 if compiler == "g++" else 0)
	assert hits["waf+wafcc"]["other checkout"] == 0
	shares = {run["part"]: run["values"]["of cold"] for run in done.record["runs"] if run["contender"] == "ninja"}
	assert list(shares) == list(precompiled.PARTS) and shares["cold"] == 100
	assert done.left == [] and list(done.work.iterdir()) == []


def test_the_real_code(tmp_path: pathlib.Path) -> None:
	"""Boost has all that our own header names, and our sources compile with it."""
	need("g++")
	if not os.path.exists("/usr/include/boost/version.hpp"):
		pytest.skip("apt-get install libboost-dev")
	code = precompiled.find_code(None, lambda text: None)
	made = precompiled.write_precompiled(str(tmp_path / "project"), 1, None, both_commands("g++"), code)
	command = made.commands[0].replace(" -c ", " -fsyntax-only ").split()
	done = subprocess.run(command, cwd=made.root, capture_output=True, encoding="utf-8", timeout=PATIENCE)
	assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_without_the_header(tmp_path: pathlib.Path) -> None:
	with pytest.raises(Mistake, match=r"holds no pch\.hpp: name another folder with --sources"):
		precompiled.find_code(str(tmp_path), lambda text: None)
