"""A store on a file system that hangs, as after the loss of a server: commands wait briefly, and run without it."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time
from typing import Any, Callable, Iterator, List

import pytest
from cache_support import PATIENCE, Lab

COUNT = 12


class Sandbox(Lab):
	"""Sources, and a store on a file system of its own."""

	def compile(self, number: int, **how: int) -> "subprocess.CompletedProcess[str]":
		line = [self.wafcc, "gcc", "-c", f"f{number}.c", "-o", f"f{number}.o"]
		return subprocess.run(line, cwd=self.folder, env=self.environ, text=True, timeout=PATIENCE, check=True, **how)

	def compile_all(self, **how: int) -> None:
		for number in range(COUNT):
			self.compile(number, **how)
			assert (self.folder / f"f{number}.o").stat().st_size
			(self.folder / f"f{number}.o").unlink()

	def ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
		line = [self.wafcc, *words]
		return subprocess.run(line, env=self.environ, capture_output=True, text=True, timeout=PATIENCE, check=False)


def make_sandbox(engine: str, tmp_path: pathlib.Path, store: pathlib.Path) -> Sandbox:
	folder = tmp_path / "sandbox"
	folder.mkdir()
	sandbox = Sandbox(engine, folder, tmp_path / "home")
	sandbox.environ["WAFCC_DIR"] = str(store)
	for number in range(COUNT):
		sandbox.write(f"f{number}.c", f"int f{number}(void) {{ return {number}; }}\n")
	for number in range(COUNT // 2):
		sandbox.compile(number)
	return sandbox


@pytest.mark.skipif(not shutil.which("bindfs"), reason="needs bindfs")
def test_a_program_that_serves_the_store_is_stopped(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""Each call first asks whether the store answers, and only one call waits for that."""
	there, mount = tmp_path / "there", tmp_path / "mount"
	there.mkdir()
	mount.mkdir()
	served = subprocess.Popen(["bindfs", "-f", there, mount], stderr=subprocess.DEVNULL)
	try:
		deadline = time.monotonic() + PATIENCE
		while not os.path.ismount(mount):
			if served.poll() is not None:
				pytest.skip("needs to mount file systems of programs (FUSE)")
			assert time.monotonic() < deadline, "bindfs does not mount"
			time.sleep(0.02)
		sandbox = make_sandbox(engine, tmp_path, mount / "store")
		assert not list(runtime.glob("*.card-*")), "the front would look at the store by itself"
		served.send_signal(signal.SIGSTOP)
		deadline = time.monotonic() + PATIENCE
		sandbox.compile_all()
		told = sandbox.ask("--show-stats")
		assert told.returncode == 1 and told.stderr.startswith(f"wafcc: the store {mount}/store does not answer: ")
		assert sandbox.ask("--version").returncode == 0
		served.send_signal(signal.SIGCONT)
		# it is asked again after some seconds
		while sandbox.ask("--shutdown").returncode:
			assert time.monotonic() < deadline, "the store is not asked again"
			time.sleep(0.1)
	finally:
		served.send_signal(signal.SIGCONT)
		subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
		served.terminate()
		served.wait(PATIENCE)


@contextlib.contextmanager
def mounted(image: pathlib.Path, place: pathlib.Path) -> Iterator[None]:
	with open(image, "wb") as file:
		file.truncate(32 << 20)
	lines: List[List[str]] = [["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)]]
	for line in lines:
		if subprocess.run(line, capture_output=True, check=False).returncode:
			pytest.skip("needs to mount a file as a disk")
	try:
		yield
	finally:
		subprocess.run(["fsfreeze", "-u", place], check=False, stderr=subprocess.DEVNULL)
		subprocess.run(["umount", "-l", place], check=True)


IS_ABLE = os.getuid() == 0 and shutil.which("fsfreeze") and shutil.which("mkfs.ext4")
disk = pytest.mark.skipif(not IS_ABLE, reason="needs the superuser, fsfreeze and mkfs.ext4")


@disk
def test_the_disk_of_the_store_is_frozen(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""The engine gives up the threads that hang; when the disk is back, so is the cache."""
	place = tmp_path / "disk"
	place.mkdir()
	with mounted(tmp_path / "image", place):
		sandbox = make_sandbox(engine, tmp_path, place / "store")
		subprocess.run(["fsfreeze", "-f", place], check=True)
		# with a pipe it waits for the engine alone, without a limit
		with subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE) as sleep:
			try:
				assert sleep.stdout
				# large output is stored before its command is over; only one of the engine's threads hangs in that
				sandbox.write("f0.c", "char large[2 << 20] = {1};\n")
				sandbox.compile(0, stdin=sleep.stdout.fileno())
				sandbox.compile_all(stdin=sleep.stdout.fileno())
			finally:
				sleep.kill()
		told = sandbox.ask("--show-stats")
		assert told.returncode == 1
		assert told.stderr == "wafcc: the engine has no answer within 15 s: does its store answer?\n"
		subprocess.run(["fsfreeze", "-u", place], check=True)
		deadline = time.monotonic() + PATIENCE
		while True:
			sandbox.compile(0)
			if "hit" in sandbox.explain(sandbox.folder / "f0.o"):
				break
			assert time.monotonic() < deadline, "the cache does not come back"
		assert sandbox.ask("--shutdown").returncode == 0


WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c")
def configure(conf):
	conf.load("compiler_c")
def build(bld):
	bld.objects(source=bld.path.ant_glob("*.c"), target="all")
"""


@disk
def test_the_disk_is_frozen_while_waf_builds(
	waf: Callable[..., Any],
	project: Callable[..., pathlib.Path],
	runtime: pathlib.Path,
	tmp_path: pathlib.Path,
	monkeypatch: pytest.MonkeyPatch,
) -> None:
	"""A task waits for its facts, which are told when the result is stored, but not without end."""
	place = tmp_path / "disk"
	place.mkdir()
	monkeypatch.setenv("XDG_CACHE_HOME", str(place))
	sources = {f"f{number}.c": f"int f{number} = VALUE;\n" for number in range(COUNT)}
	with mounted(tmp_path / "image", place):
		folder = project({"wscript": WSCRIPT, **{name: text.replace("VALUE", "1") for name, text in sources.items()}})
		waf(folder, "configure", "build", tools="wafcc")
		project({name: text.replace("VALUE", "2") for name, text in sources.items()})
		subprocess.run(["fsfreeze", "-f", place], check=True)
		waf(folder, "build", tools="wafcc", timeout=PATIENCE)
		assert len(list(folder.rglob("*.o"))) == COUNT
		subprocess.run(["fsfreeze", "-u", place], check=True)
		waf(folder, "build", tools="wafcc", timeout=PATIENCE)
