"""Compiles that run on a cluster: BuildGrid with a worker of ours, and what becomes of them when something is wrong."""

import contextlib
import json
import os
import pathlib
import subprocess
import threading
import time
from typing import Callable, Iterator, List

import pytest
from cache_support import COMPILERS, PATIENCE
from cluster_support import Cluster
from tier_support import Handler, Machine, Make, Oddity

pytestmark = [
	pytest.mark.skipif(not COMPILERS, reason="needs a compiler"),
	pytest.mark.skipif(os.geteuid() != 0, reason="workers need namespaces, and those need root"),
]
CC = COMPILERS[0] if COMPILERS else ""
LINE = f"{CC} -c x.c -o x.o"


def until(is_so: Callable[[], bool], what: str) -> None:
	deadline = time.monotonic() + PATIENCE
	while not is_so():
		assert time.monotonic() < deadline, f"never: {what}"
		time.sleep(0.02)


def ask_status(machine: Machine) -> dict:
	done = subprocess.run(
		[machine.engine, "status", "--json"],
		env=machine.environ,
		stdout=subprocess.PIPE,
		text=True,
		stderr=subprocess.DEVNULL,
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


class TestRunsThere:
	def test_a_compile_without_a_slot_runs_there(self, machine: Make, engine: str, buildgrid: Cluster) -> None:
		"""What it makes and prints is the same, and its second run is a hit of this machine's own store."""
		buildgrid.worker(engine)
		here = machine(buildgrid.address + "|execute")
		here.write("inc/f.h", "#define F 7\n")
		here.write("x.c", '#warning hear this\n#include <stdio.h>\n#include "f.h"\nint f = F;\n')
		line = f"{CC} -g -Iinc -c x.c -o x.o"
		with slots_taken(here):
			said = here.same(line)
		assert f"compiled by grpc://127.0.0.1:{buildgrid.port}/team" in said, said
		remote = here.remote()
		assert (remote["executed"], remote["not_executed"]) == (1, {})
		assert here.same(line).startswith("hit")
