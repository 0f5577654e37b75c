"""Compiles that run on a cluster: BuildGrid with a worker of ours, and what becomes of them when something is wrong."""

import json
import pathlib
import shutil
import signal
import subprocess
from typing import Callable, List

import pytest
from cache_support import COMPILERS, PATIENCE
from cluster_support import Cluster
from conftest import ROOT
from execute_support import (
	CC,
	LINE,
	LONG,
	Impostor,
	ask_status,
	count_there,
	finish,
	needs_compiler,
	needs_root,
	slots_taken,
	start,
	stop_compilers,
	until,
)
from forge_support import MISSING, forge
from tier_support import Machine, Make

pytestmark = needs_compiler
OTHER = f"{shutil.which(CC)} -c y.c -o y.o"
"""For a compiler of another name, it is not known how long its runs take."""
OWN_COMPILER = "its compiler is none of the system"
AUDITED = "it was compiled here, too, to be compared"


def move_gcc(to: pathlib.Path) -> pathlib.Path:
	"""A gcc of one's own: it finds what is beside it. The folder of its headers and its compiler is returned."""

	def ask(what: str) -> pathlib.Path:
		asked = subprocess.run(["gcc", what], capture_output=True, encoding="utf-8", timeout=PATIENCE, check=True)
		return pathlib.Path(asked.stdout.strip())

	inside = ask("-print-file-name=include").resolve().parent
	own = to / inside.relative_to("/usr")
	for folder in (to / "bin", own):
		folder.mkdir(parents=True)
	shutil.copy(str(shutil.which("gcc")), to / "bin" / "gcc")
	shutil.copy(ask("-print-prog-name=cc1"), own / "cc1")
	shutil.copytree(inside / "include", own / "include")
	return own


def run_short_of_slots(machine: Machine, line: str) -> "subprocess.Popen[bytes]":
	"""Start a command while no slot is free, and wait for a reason why it stays here."""
	with slots_taken(machine):
		process = start(machine, line)
		until(lambda: machine.remote()["not_executed"], "a reason")
	return process


@needs_root
class TestRunsThere:
	@pytest.fixture
	def here(self, machine: Make, engine: str, buildgrid: Cluster) -> Machine:
		"""A machine whose cluster has a worker."""
		buildgrid.worker(engine)
		found = machine(buildgrid.address + "|execute")
		found.environ["PWD"] = str(ROOT)  # compilers look at it, and builds may be started anywhere
		return found

	@pytest.mark.parametrize("cc", COMPILERS)
	def test_a_compile_without_a_slot_runs_there(self, here: Machine, buildgrid: Cluster, cc: str) -> None:
		"""What it makes and prints is the same, and its second run is a hit of this machine's own store."""
		here.write("inc/f.h", "#define F 7\n")
		(here.folder / "way").symlink_to("inc")
		here.write("x.c", '#warning hear this\n#include <stdio.h>\n#include "f.h"\nint f = F;\n')
		line = f"{cc} -g -Iway -MD -c x.c -o x.o"
		with slots_taken(here):
			said = here.same(line)
		assert f"compiled by grpc://127.0.0.1:{buildgrid.port}/team" in said, said
		remote = here.remote()
		assert (remote["executed"], remote["not_executed"]) == (1, {})
		assert here.same(line).startswith("hit")

	def test_a_compiler_in_a_folder_of_its_own_is_sent(self, here: Machine) -> None:
		"""After its first run here, its programs and headers go with the commands."""
		own = move_gcc(here.folder / "toolchain")
		(own / "include" / "mine.h").write_text("enum { MINE = 3 };\n")
		cc = here.folder / "toolchain" / "bin" / "gcc"
		for name in ("x", "y"):
			here.write(f"{name}.c", f"#include <stddef.h>\n#include <mine.h>\nsize_t {name} = MINE;\n{LONG}")
		here.same(f"{cc} -c x.c -o x.o")
		with slots_taken(here):
			said = here.same(f"{cc} -c y.c -o y.o")
		assert "compiled by" in said, said

	def test_what_was_not_foreseen_is_sent_when_it_was_missed(self, here: Machine) -> None:
		"""The name of a header that is only asked for is made by a macro, so that no scan finds it."""
		here.write("f.h", "int there;\n")
		text = (
			"#define NAME(x) <x.h>\n#define HAS __has_include(NAME(f))\n#if HAS\nint is;\n#else\nint is_not;\n#endif\n"
		)
		here.write("x.c", text)
		with slots_taken(here):
			said = here.same(f"{CC} -I. -c x.c -o x.o")
		assert "compiled by" in said, said

	def test_what_fails_there_runs_here(self, here: Machine) -> None:
		"""Its messages are those of this machine."""
		here.write("x.c", "int f(\n")
		process = run_short_of_slots(here, LINE)
		said, _ = process.communicate(timeout=PATIENCE)
		assert process.returncode == 1
		assert b"x.c:1" in said
		remote = here.remote()
		assert (remote["executed"], remote["not_executed"]) == (0, {"the worker has no entry of it": 1})

	def test_an_edit_is_sent_and_short_commands_stay(self, here: Machine) -> None:
		"""The last run of a command tells how long it takes. After an edit of its header, it goes there again."""
		here.write("x.c", '#include "f.h"\n' + LONG)
		here.write("y.c", '#include "f.h"\n')
		for number in range(2):
			here.write("f.h", f"#define F {number}\n")
			with slots_taken(here):
				assert "compiled by" in here.same(LINE)
		here.same(LINE.replace("x", "y"))
		here.write("f.h", "#define F 2\n")
		finish(run_short_of_slots(here, LINE.replace("x", "y")))
		remote = here.remote()
		assert (remote["executed"], remote["not_executed"]) == (2, {"it takes too little time": 1})

	def test_what_is_sooner_done_there_ends_here(self, machine: Make, engine: str, buildgrid: Cluster) -> None:
		"""A command runs in both places, and the compiler of this machine does not go on."""
		here = machine(buildgrid.address + "|execute")
		here.write("x.c", LONG)
		with slots_taken(here):
			process = start(here, LINE)
			until(lambda: count_there(here) == 1, "the command is there")
		until(lambda: stop_compilers(here), "it runs here, too")
		buildgrid.worker(engine)
		finish(process)
		assert "compiled by" in here.explain(here.folder / "x.o")
		made = (here.folder / "x.o").read_bytes()
		assert made == here.run(LINE, False).files.get("x.o", made)
		assert not stop_compilers(here)
		remote = here.remote()
		assert (remote["executed"], remote["not_executed"]) == (1, {})

	def test_a_build_without_a_session_of_its_own_is_held_back(self, here: Machine) -> None:
		"""A wrapper below a shell is a build by itself, which would always get a slot."""
		here.write("x.c", "int f;\n")
		with slots_taken(here):
			command = ["sh", "-c", f"{here.wafcc} {LINE}; exit $?"]
			subprocess.run(command, cwd=here.folder, env=here.environ, timeout=PATIENCE, check=True)
		assert "compiled by" in here.explain(here.folder / "x.o")


class TestRunsHere:
	@pytest.mark.parametrize(
		("answer", "why"),
		[
			("put(stream, 0x83, id, b'\\x01it is away')", "the cluster did not answer"),
			("put(stream, 0x83, id, b'\\x02it is broken')", "the cluster failed"),
			("put(stream, 0x83, id, b'\\x03it is not permitted')", "the cluster declined it"),
			("put(stream, 0x83, id, b'\\x05f.h changed')", "a file changed while it was sent"),
			("put(stream, 0x82, id, b'\\0' * 32 + b'no entry')", "the worker takes it for another command"),
			("stream.sendall(b'\\xff' * 100)", "the cluster failed"),
			("put(stream, 0x77, id, b'')", "the cluster failed"),
			("os._exit(1)", "the cluster failed"),
			("stream.close()", "the cluster failed"),
		],
	)
	def test_a_cluster_at_fault_costs_no_build(self, impostor: Impostor, answer: str, why: str) -> None:
		"""The command waits for a slot here, and is compiled and stored as ever."""
		here = impostor(answer)
		here.write("x.c", "int f;\n")
		finish(run_short_of_slots(here, LINE))
		assert here.remote()["not_executed"] == {why: 1}
		assert f"not compiled by grpc://127.0.0.1:1/none: {why}" in here.explain(here.folder / "x.o")
		here.until_hit(LINE)

	def test_a_cluster_that_never_answers_is_overtaken(self, impostor: Impostor) -> None:
		"""As soon as a slot is free here, the command runs here, too, and is done."""
		here = impostor("pass")
		here.write("x.c", "int f;\n")
		with slots_taken(here):
			process = start(here, LINE)
			until(lambda: count_there(here) == 1, "the command is there")
		finish(process)
		assert here.remote()["not_executed"] == {"it was sooner done here": 1}
		here.until_hit(LINE)

	def test_a_silent_cluster_is_left_alone(self, impostor: Impostor) -> None:
		"""After one time-out, no further command goes there for a while."""
		here = impostor("put(stream, 0x83, id, b'\\x01it did not answer within 200 ms')")
		for name in ("x", "y", "z"):
			here.write(f"{name}.c", f"int {name};\n")
		with slots_taken(here):
			first = start(here, LINE)
			until(lambda: here.remote()["not_executed"], "a reason")
			others = [start(here, LINE.replace("x", name)) for name in ("y", "z")]
			until(lambda: ask_status(here)["slots"]["waiting"] == 3, "all wait")
		for process in (first, *others):
			finish(process)
		assert here.remote()["not_executed"] == {"the cluster did not answer": 1}

	def test_a_client_that_is_gone_gets_nothing(self, impostor: Impostor) -> None:
		"""A compile that was interrupted while it was on the cluster makes no output, and holds up no other."""
		here = impostor("pass")
		here.write("x.c", "int f;\n")
		with slots_taken(here):
			process = start(here, LINE)
			until(lambda: count_there(here) == 1, "the command is there")
			process.send_signal(signal.SIGTERM)
			process.communicate(timeout=PATIENCE)
			until(lambda: count_there(here) == 0, "the command is called off")
		assert not (here.folder / "x.o").exists()
		here.until_hit(LINE)

	def test_the_same_command_goes_there_once(self, impostor: Impostor) -> None:
		"""A second request for it waits for the first one, wherever that runs."""
		here = impostor("pass")
		here.write("x.c", "int f;\n")
		with slots_taken(here):
			processes = [start(here, LINE) for _ in range(3)]
			until(lambda: count_there(here) == 1, "the command is there")
			assert ask_status(here)["cluster"]["sent"] == 1
		for process in processes:
			finish(process)
		assert here.remote()["not_executed"] == {"it was sooner done here": 1}

	def test_without_the_program_all_runs_here(self, impostor: Impostor) -> None:
		here = impostor("pass")
		pathlib.Path(here.engine).with_name("wafd-cluster").unlink()
		here.write("x.c", "int f;\n")
		finish(run_short_of_slots(here, LINE))
		assert "there is no program wafd-cluster beside wafd" in here.explain(here.folder / "x.o")

	def test_a_compiler_of_ones_own_runs_here_first(self, impostor: Impostor) -> None:
		"""A worker has the compilers of its system only. What else one needs is known after a run."""
		here = impostor("pass")
		here.write("x.c", "int f;\n")
		own = here.folder / "own" / CC
		own.parent.mkdir()
		shutil.copy(str(shutil.which(CC)), own)
		process = run_short_of_slots(here, f"{own} -c x.c -o x.o")
		process.communicate(timeout=PATIENCE)
		assert here.remote()["not_executed"] == {OWN_COMPILER: 1}
		assert "known when it has run here once" in here.explain(here.folder / "x.o")

	def test_a_compiler_that_is_a_script_runs_here(self, impostor: Impostor) -> None:
		"""Its shell asks for limits of the machine, so that what a worker makes could not be used."""
		here = impostor("pass")
		here.write("tools/our-gcc", '#!/bin/sh\nexec gcc "$@"\n')
		(here.folder / "tools" / "our-gcc").chmod(0o755)
		here.write("x.c", "int f;\n")
		finish(run_short_of_slots(here, "tools/our-gcc -c x.c -o x.o"))
		assert here.remote()["not_executed"] == {OWN_COMPILER: 1}
		assert "it is a script" in here.explain(here.folder / "x.o")


DISTRUSTED = "left alone, since a result of it was not what the same command makes here"


@pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
class TestAudits:
	"""A share of what a cluster has made is compiled here, too, and compared."""

	ANSWER = "give(stream, id, {!r})"

	@pytest.fixture
	def given(self, machine: Make, tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
		"""A function that writes what the cluster gives for a command: an honest entry with these acts of a forger."""

		def make(line: str, *acts: List[str]) -> pathlib.Path:
			folder = tmp_path / "given"
			honest = machine("")
			assert honest.run(line, True, WAFCC_EXPORT=str(folder)).status == 0
			key, entry = (folder / "key").read_text().strip(), (folder / "entry").read_bytes()
			forged = forge(key, {"entry": entry.hex()}, list(acts))
			(folder / "entry").write_bytes(bytes.fromhex(forged["entry"]))
			for digest, blob in forged["blobs"].items():
				assert blob["coding"] == 0
				(folder / "blobs" / digest).write_bytes(bytes.fromhex(blob["bytes"]))
			return folder

		return make

	@pytest.fixture
	def audited(self, impostor: Impostor, tmp_path: pathlib.Path) -> Callable[..., Machine]:
		"""A function that makes a machine which gets that of its cluster, and audits so many percent of it."""

		def make(percent: int) -> Machine:
			here = impostor(self.ANSWER.format(str(tmp_path / "given")))
			here.environ["WAFCC_AUDIT"] = str(percent)
			return here

		return make

	def run(self, here: Machine, line: str, is_compared: bool) -> bytes:
		"""Run a command while all slots are taken; the object that it leaves."""
		with slots_taken(here):
			process = start(here, line)
			if is_compared:
				until(lambda: here.remote()["not_executed"], "a result of the cluster")
			else:
				finish(process)
		if is_compared:
			finish(process)
		return (here.folder / "x.o").read_bytes()

	def test_what_is_the_same(self, given: Callable[..., pathlib.Path], audited: Callable[..., Machine]) -> None:
		"""It is counted, and the next command goes there, too."""
		here = audited(100)
		here.write("x.c", "int f;\n")
		given(LINE)
		made = self.run(here, LINE, True)
		assert made == here.run(LINE, False).files.get("x.o", made)
		until(lambda: json.loads(here.ask("--show-stats", "--json"))["audited"], "both are compared")
		counts = json.loads(here.ask("--show-stats", "--json"))
		assert (counts["audited"], counts["different"], counts["not_audited"]) == (1, 0, {}), counts
		remote = counts["remote"]
		assert (remote["executed"], remote["not_executed"]) == (0, {AUDITED: 1})
		assert "compiled by grpc://127.0.0.1:1/none, and here, too" in here.explain(here.folder / "x.o")
		here.write("y.c", "int g;\n")
		with slots_taken(here):
			process = start(here, OTHER)
			until(lambda: ask_status(here)["cluster"]["sent"] == 2, "the second command is sent")
		finish(process)

	def test_a_lie(self, given: Callable[..., pathlib.Path], audited: Callable[..., Machine]) -> None:
		"""The user gets what is made here. The lie is reported, and no command goes there any more."""
		here = audited(100)
		here.write("x.c", "int f;\n")
		given(LINE, ["no outputs"], ["main", "a lie"])
		made = self.run(here, LINE, True)
		assert made == here.run(LINE, False).files.get("x.o", made)
		until(lambda: json.loads(here.ask("--show-stats", "--json"))["different"], "the lie is known")
		counts = json.loads(here.ask("--show-stats", "--json"))
		assert (counts["audited"], counts["different"], counts["not_audited"]) == (1, 1, {}), counts
		remote = counts["remote"]
		assert (remote["executed"], remote["not_executed"]) == (
			0,
			{AUDITED: 1, "what came back is not what is made here": 1},
		)
		assert [(tier["asked"], tier["state"]) for tier in remote["tiers"]] == [(False, DISTRUSTED)]
		report = subprocess.run(
			[here.wafcc, "--audit-report"], env=here.environ, capture_output=True, text=True, timeout=PATIENCE
		)
		assert report.returncode == 1
		assert f"made by grpc://127.0.0.1:1/none: files: {LINE}" in report.stdout, report
		here.write("y.c", "int g;\n")
		with slots_taken(here):
			process = start(here, OTHER)
			until(lambda: ask_status(here)["slots"]["waiting"] == 1, "the second command waits")
			assert ask_status(here)["cluster"]["sent"] == 1
		finish(process)
		here.until_hit(LINE)

	def test_a_lie_of_which_no_sample_is_taken(
		self, given: Callable[..., pathlib.Path], audited: Callable[..., Machine]
	) -> None:
		"""Without audits the same lie is believed, so that the tests above show something."""
		here = audited(0)
		here.write("x.c", "int f;\n")
		given(LINE, ["no outputs"], ["main", "a lie"])
		assert self.run(here, LINE, False) == b"a lie"

	@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
	def test_a_compiler_that_draws_lots(
		self, given: Callable[..., pathlib.Path], audited: Callable[..., Machine]
	) -> None:
		"""What differs from run to run here is no fault of the cluster."""
		here = audited(100)
		here.write("x.c", "int f(void) { return 1; }\n")
		line = "gcc -flto -c x.c -o x.o"
		given(line)
		self.run(here, line, True)
		until(lambda: json.loads(here.ask("--show-stats", "--json"))["not_audited"], "a second run")
		counts = json.loads(here.ask("--show-stats", "--json"))
		assert (counts["different"], counts["not_audited"]) == (0, {"its results differ from run to run": 1})
		# its store does not answer, so it may be left alone for a while
		assert counts["remote"]["tiers"][0]["state"] != DISTRUSTED
