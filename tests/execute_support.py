"""Machines whose compiles go to a cluster: slots that are taken, and a program that stands for `wafd-cluster`."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Callable, Iterator, List

import pytest
from cache_support import COMPILERS, PATIENCE
from tier_support import Machine, Make

needs_compiler = pytest.mark.skipif(not COMPILERS, reason="needs a compiler")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="workers need namespaces, and those need root")
CC = COMPILERS[0] if COMPILERS else ""
LINE = f"{CC} -c x.c -o x.o"
ADDRESS = "grpc://127.0.0.1:1/none|execute|pause=600000"

LONG = "".join(f"int f{n}(int *a, int b) {{ return a[b] * {n} + b / (a[{n % 9}] | 1); }}\n" for n in range(1000))
"""It takes longer than what is called short."""

PROGRAM = """\
#!{python}
# Stands for wafd-cluster: it takes commands, and answers in its own way.
import os, socket, struct, sys, threading

def receive(stream, count):
	bytes = b""
	while len(bytes) < count:
		more = stream.recv(count - len(bytes))
		if not more:
			sys.exit()
		bytes += more
	return bytes

def serve(stream):
	while True:
		length = struct.unpack("<I", receive(stream, 4))[0]
		frame = receive(stream, length)
		kind, id = struct.unpack("<BI", frame[:5])
		if kind == 1:
			answer(stream, id)

def put(stream, kind, id, body):
	stream.sendall(struct.pack("<IBI", 5 + len(body), kind, id) + body)

def give(stream, id, folder):
	# the entry that is in a folder, as WAFCC_EXPORT leaves it there
	read = lambda *names: open(os.path.join(folder, *names), "rb").read()
	for name in os.listdir(os.path.join(folder, "blobs")):
		put(stream, 0x81, id, read("blobs", name))
	put(stream, 0x82, id, bytes.fromhex(read("key").decode()) + read("entry"))

def answer(stream, id):
	{answer}

control = socket.socket(fileno=0)
while True:
	kind, sockets, _, _ = socket.recv_fds(control, 1, 1)
	if not kind:
		os._exit(0)
	stream = socket.socket(fileno=sockets[0])
	if kind == b"X":
		threading.Thread(target=serve, args=(stream,), daemon=True).start()
	else:
		stream.close()
"""


def until(is_so: Callable[[], object], what: str) -> None:
	deadline = time.monotonic() + PATIENCE
	while not is_so():
		assert time.monotonic() < deadline, f"never: {what}"
		time.sleep(0.02)


def ask_status(machine: Machine) -> dict:
	done = subprocess.run(
		[machine.engine, "status", "--json"],
		env=machine.environ,
		stdout=subprocess.PIPE,
		stderr=subprocess.DEVNULL,
		text=True,
		timeout=PATIENCE,
		check=False,
	)
	# without an engine there is no status
	return json.loads(done.stdout or '{"slots": {"running": 0}}')


def start(machine: Machine, line: str) -> "subprocess.Popen[bytes]":
	return subprocess.Popen(
		[machine.wafcc, *line.split()],
		cwd=machine.folder,
		env=machine.environ,
		stdin=subprocess.DEVNULL,
		stdout=subprocess.PIPE,
		stderr=subprocess.STDOUT,
	)


def finish(process: "subprocess.Popen[bytes]") -> None:
	said, _ = process.communicate(timeout=PATIENCE)
	assert (process.returncode, said) == (0, b"")


@contextlib.contextmanager
def slots_taken(machine: Machine) -> Iterator[None]:
	"""Until the end of the block, every slot has a compile that waits for the content of a header."""
	count = os.cpu_count() or 1
	headers: List[pathlib.Path] = []
	processes = []
	try:
		for number in range(count):
			headers.append(machine.folder / f"held{number}.h")
			os.mkfifo(headers[-1])
			machine.write(f"held{number}.c", f'#include "held{number}.h"\n')
			processes.append(start(machine, f"{CC} -c held{number}.c -o held{number}.out"))
		until(lambda: ask_status(machine)["slots"]["running"] == count, "all slots are taken")
		yield
	finally:
		for header in headers:
			# a compile that has been ended reads no more
			threading.Thread(target=header.write_text, args=("int held;\n",), daemon=True).start()
		for process in processes:
			process.communicate(timeout=PATIENCE)
		for header in headers:
			header.unlink()


def stop_compilers(machine: Machine) -> int:
	"""Stop the compilers that run in the folder of the machine or below it, and count them."""
	count = 0
	for process in pathlib.Path("/proc").glob("[0-9]*"):
		with contextlib.suppress(OSError):
			is_compiler = (process / "comm").read_text().startswith(("cc1", "clang"))
			folder = (process / "cwd").readlink()
			if is_compiler and machine.folder in (folder, *folder.parents):
				os.kill(int(process.name), signal.SIGSTOP)
				count += 1
	return count


def count_there(machine: Machine) -> int:
	cluster = ask_status(machine).get("cluster")
	return cluster["there"] if cluster else 0


Impostor = Callable[[str], Machine]


@pytest.fixture
def impostor(machine: Make, engine: str, tmp_path: pathlib.Path) -> Impostor:
	"""A function that makes a machine whose program `wafd-cluster` answers in this way."""

	def make(answer: str) -> Machine:
		folder = tmp_path / "programs"
		folder.mkdir()
		for name in ("wafd", "wafcc"):
			shutil.copy(pathlib.Path(engine).with_name(name), folder / name)
		program = folder / "wafd-cluster"
		program.write_text(PROGRAM.format(python=sys.executable, answer=answer))
		program.chmod(0o755)
		found = machine(ADDRESS)
		found.engine, found.wafcc = str(folder / "wafd"), str(folder / "wafcc")
		return found

	return make
