"""The files of a release: the wheel, the source distribution, Debian's packages."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import Callable, Dict, List

import pytest
from clone_support import build_quickly, copy_tree, run, share_crates
from conftest import ROOT

import waflib_extras

# each file is made once, and the first test that needs it waits until crates are copied and the engine is compiled
pytestmark = pytest.mark.timeout(600)

VERSION = waflib_extras.__version__
PROJECT = """\
def options(opt):
	opt.load('compiler_c prefork wafcc')

def configure(conf):
	conf.load('compiler_c')

def build(bld):
	bld.program(source='main.c', target='app')
"""
FILES = {"wscript": PROJECT, "main.c": "int main(void) { return 0; }\n"}


@pytest.fixture(scope="module")
def make(environ: Dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], pathlib.Path]:
	"""A function that makes a file of a release with ./waf in a clone. The engine is not built for that."""
	clone = copy_tree(tmp_path_factory.mktemp("clone") / "tree")

	def make(what: str) -> pathlib.Path:
		share_crates(pathlib.Path(environ["CARGO_TARGET_DIR"]) / "wheel")
		done = run([sys.executable, str(clone / "waf"), what], environ, clone)
		assert "building the engine" not in done.stderr
		(line,) = re.findall(r"^(build/\S+), [\d.]+ MB\. To install it: pip install \1$", done.stdout, re.M)
		return clone / line

	return make


@pytest.fixture(scope="module")
def sdist(make: Callable[[str], pathlib.Path]) -> pathlib.Path:
	return make("sdist")


@pytest.fixture(scope="module")
def wheel(make: Callable[[str], pathlib.Path]) -> pathlib.Path:
	return make("wheel")


@pytest.fixture(scope="module")
def python(sdist: pathlib.Path) -> str:
	"""The python of the environment in which the files are made."""
	(found,) = sdist.parents[2].glob("build/release-*/bin/python")
	return str(found)


def find(program: str, package: str) -> str:
	path = shutil.which(program)
	if not path:
		pytest.skip("there is no %s: apt-get install %s" % (program, package))
	return path


def test_one_version() -> None:
	"""Python, the engine, the newest heading of the changelog and Debian's package have the same version."""

	def read(path: str, pattern: str) -> str:
		return re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.M).group(1)

	assert read("engine/Cargo.toml", r'^version = "(.*)"') == VERSION
	assert read("CHANGELOG.md", r"^## \[?([\d.]+)") == VERSION
	assert read("debian/changelog", r"^waflib-extras \((.*?)\)") == VERSION


class TestSdist:
	def test_content(self, sdist):
		"""The source distribution has all that the engine is built from, every crate, and nothing that was built."""
		with tarfile.open(sdist) as archive:
			names = {x.partition("/")[2] for x in archive.getnames()}
		crates = (ROOT / "engine" / x / "src" for x in ("", "cluster"))
		sources = {str(x.relative_to(ROOT)) for crate in crates for x in crate.rglob("*.rs")}
		named = {"engine/Cargo.toml", "engine/Cargo.lock", "pyproject.toml", "LICENSE", "waf", "debian/rules"}
		assert {*sources, *named, ".cargo/config.toml"} <= names
		assert not [x for x in names if x.startswith(("engine/target", "build/"))]
		lock = (ROOT / "engine" / "Cargo.lock").read_text(encoding="utf-8")
		crates = re.findall(r'^name = "(.*)"\nversion = "(.*)"\nsource = ', lock, re.M)
		assert {f"engine/vendor/{name}-{version}/Cargo.toml" for name, version in crates} <= names

	def test_without_cargo(self, python, environ, tmp_path):
		"""Without cargo the package has the Python tools only, is for any platform, and says so."""
		(tmp_path / "bin").mkdir()
		poor = {**environ, "PATH": str(tmp_path / "bin")}
		tree = copy_tree(tmp_path / "tree")
		done = run([python, "setup.py", "-q", "bdist_wheel", "-d", str(tmp_path)], poor, tree)
		assert "waflib-extras: the engine is left out: cargo is missing" in done.stderr
		(wheel,) = tmp_path.glob("*.whl")
		assert wheel.name.endswith("-py3-none-any.whl")
		with zipfile.ZipFile(wheel) as archive:
			assert not [x for x in archive.namelist() if "/scripts/" in x]
			assert "waflib_extras/launcher/__init__.py" in archive.namelist()

	def test_older_rust(self, python, environ, tmp_path):
		"""With a Rust that is too old for it, the program for clusters is left out, which is said."""
		cargo = tmp_path / "cargo"
		cargo.write_text("#!/bin/sh\necho 'cargo 1.80.1 (0123456 2024-08-01)'\n")
		cargo.chmod(0o755)
		done = run([python, "setup.py", "--version"], {**environ, "CARGO": str(cargo)}, copy_tree(tmp_path / "tree"))
		assert "waflib-extras: wafd-cluster is left out" in done.stderr
		assert done.stdout.split()[-1] == VERSION


class TestWheel:
	def test_content(self, wheel):
		"""There is one wheel per machine, for every Python 3, with our modules, all programs and their documents."""
		assert re.fullmatch(rf"waflib_extras-{re.escape(VERSION)}-py3-none-manylinux_2_28_\w+\.whl", wheel.name)
		with zipfile.ZipFile(wheel) as archive:
			names = {x for x in archive.namelist() if ".dist-info/" not in x}
			metadata = archive.read(f"waflib_extras-{VERSION}.dist-info/METADATA").decode()
		modules = {str(x.relative_to(ROOT)) for x in (ROOT / "waflib_extras").rglob("*.py")}
		scripts = {f"waflib_extras-{VERSION}.data/scripts/{x}" for x in ("wafd", "wafcc", "waf", "wafd-cluster")}
		pages = {f"data/share/man/man{x.suffix[1:]}/{x.name}" for x in (ROOT / "docs" / "man").iterdir()}
		for shell, place in (
			("bash", "bash-completion/completions"),
			("zsh", "zsh/site-functions"),
			("fish", "fish/vendor_completions.d"),
		):
			pages |= {f"data/share/{place}/{x.name}" for x in (ROOT / "engine" / "completions" / shell).iterdir()}
		shared = {f"waflib_extras-{VERSION}.data/{x}" for x in pages}
		assert {x for x in names if not x.endswith("/")} == modules | scripts | shared
		assert re.search(r"^Requires-Python: >=3\.8$", metadata, re.M)
		assert re.search(r"^Requires-Dist: waflib ?>=2\.0$", metadata, re.M)

	def test_libraries(self, wheel, tmp_path):
		"""Only two programs take libraries from the system, of glibc alone and none newer than 2.28."""
		with zipfile.ZipFile(wheel) as archive:
			for name in ("wafd", "wafd-cluster", "wafcc", "waf"):
				(tmp_path / name).write_bytes(archive.read(f"waflib_extras-{VERSION}.data/scripts/{name}"))
		read = [find("readelf", "binutils"), "--dynamic", "--version-info", "--wide"]
		glibc = r"(lib(c|m|dl|rt|util|pthread)|ld-linux-[\w-]+)\.so\.\d"
		for name in ("wafd", "wafd-cluster"):
			told = run([*read, name], dict(os.environ), tmp_path).stdout
			needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", told))
			assert [x for x in needed if not re.fullmatch(glibc, x)] == []
			versions = {tuple(map(int, x.split("."))) for x in re.findall(r"Name: GLIBC_([\d.]+)", told)}
			assert (2, 2, 5) <= max(versions) <= (2, 28)
		for name in ("wafcc", "waf"):
			assert "There is no dynamic section" in run([*read, name], dict(os.environ), tmp_path).stdout

	def test_install(self, wheel, python, environ, tmp_path, project, runtime):
		"""Installed where there is no cargo, it gives its commands, and a build by its engine has hits."""
		(tmp_path / "venv").mkdir()
		run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], environ, tmp_path)
		commands = tmp_path / "venv" / "bin"
		plain = {**environ, "PATH": "%s:/usr/bin:/bin" % commands, "WAFD_RUNTIME_DIR": str(runtime)}
		plain["XDG_CACHE_HOME"] = str(tmp_path / "cache")
		pip = [python, "-m", "pip", "--python", str(commands / "python"), "install", "-q"]
		run([*pip, str(wheel)], plain, tmp_path)
		assert run(["waf", "--version"], plain, tmp_path).stdout.startswith("waf 2.")
		for command in ("wafd", "wafcc", "wafx", "waf-extras"):
			assert VERSION in run([command, "--version"], plain, tmp_path).stdout
		folder = project(FILES)
		del plain["WAF_PREFORK_SUMMARY"]
		plain.pop("WAFD", None)
		run(["waf", "configure", "build"], plain, folder)
		assert "2 hits" in run(["waf", "clean", "build"], plain, folder).stdout


@pytest.fixture(scope="module")
def tree(sdist: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
	"""The content of the source distribution."""
	folder = tmp_path_factory.mktemp("debian")
	with tarfile.open(sdist) as archive:
		archive.extractall(folder)
	(tree,) = folder.glob("waflib_extras-*")
	return tree


@pytest.fixture(scope="module")
def packages(
	tree: pathlib.Path, environ: Dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> List[pathlib.Path]:
	"""
	Debian's packages of the source distribution, made without a network.

	They take the crates that the tree's own engine was built of. Cargo would compile those of the distribution anew.
	"""
	find("dh", "debhelper")
	find("dh_python3", "dh-python")
	copy = tmp_path_factory.mktemp("packages") / "tree"
	shutil.copytree(tree, copy, ignore=shutil.ignore_patterns("vendor", ".cargo"))
	build_quickly(copy)
	alone = {**environ, "DPKG_DEB_COMPRESSOR_TYPE": "gzip"}  # xz takes long for programs that are not optimized
	run([*without_network(), "dpkg-buildpackage", "-b", "-us", "-uc", "-d"], alone, copy)
	return sorted(x for x in copy.parent.glob("*.deb") if "-dbgsym" not in x.name)


def without_network() -> List[str]:
	return ["unshare", "--net", *(["--map-root-user"] if os.geteuid() else [])]


class TestDebian:
	def test_no_network(self, tree, environ, tmp_path):
		"""Without a network, and without what was fetched before, cargo finds every crate, and each is complete."""
		alone = {**environ, "CARGO_HOME": str(tmp_path)}
		command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", "engine/Cargo.toml"]
		told = json.loads(run([*without_network(), *command], alone, tree).stdout)
		crates = [pathlib.Path(x["manifest_path"]).parent for x in told["packages"] if x["source"]]
		assert len(crates) > 100
		for crate in crates:
			assert crate.parent == tree / "engine" / "vendor"
			listed = json.loads((crate / ".cargo-checksum.json").read_text(encoding="utf-8"))["files"]
			found = {name: hashlib.sha256((crate / name).read_bytes()).hexdigest() for name in listed}
			assert found == listed

	def test_policy(self, packages):
		"""lintian finds no mistake in them."""
		(changes,) = packages[0].parent.glob("*.changes")
		command = [find("lintian", "lintian"), "--allow-root", "--fail-on", "error", str(changes)]
		run(command, dict(os.environ), changes.parent)

	def test_compilers(self, packages, tmp_path, runtime):
		"""With the folder of links first in PATH, a compile is a hit the second time."""
		for package in packages:
			subprocess.run(["dpkg", "-x", str(package), str(tmp_path / "root")], check=True)
		usr = tmp_path / "root" / "usr"
		environ = {**os.environ, "PATH": "%s/lib/wafcc:%s" % (usr, os.environ["PATH"])}
		environ.update(WAFD_RUNTIME_DIR=str(runtime), XDG_CACHE_HOME=str(tmp_path / "cache"))
		environ.pop("WAFD", None)
		(tmp_path / "a.c").write_text("int a;\n")
		for verdict in ("miss", "hit"):
			run(["gcc", "-c", "a.c"], environ, tmp_path)
			told = run([str(usr / "bin" / "wafcc"), "--explain", "a.o"], environ, tmp_path).stdout
			assert f"a.o: {verdict}: " in told
		environ["PYTHONPATH"] = str(usr / "lib" / "python3" / "dist-packages")
		wafx = [sys.executable, str(usr / "bin" / "waf-extras"), "--version"]
		assert VERSION in run(wafx, environ, tmp_path).stdout
