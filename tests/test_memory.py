"""Commands that start only when they fit into memory: real commands that take it, with real Waf and the real engine."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import pytest
from waflib import Errors

from waflib_extras.console import summary
from waflib_extras.prefork import politeness

TOOLS = str(pathlib.Path(politeness.__file__).parents[1])
WSCRIPT = """\
	def options(opt):
		opt.load("prefork", tooldir=%r)
	def configure(conf):
		pass
	def build(bld):
		for name in %r:
			bld(rule="../eat %%s ${TGT}" %% name, target=name)
"""
# takes the MiB that a file of its name says, holds them for a moment, and notes when it began and ended
EAT = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void note(int log, const char *what, int size) {
	char line[64];
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	int n = snprintf(line, sizeof line, "%ld.%09ld %s %d\n", (long)now.tv_sec, now.tv_nsec, what, size);
	if (write(log, line, n) != n)
		exit(3);
}

int main(int argc, char **argv) {
	char path[256];
	int size = 0, log = open("../log", O_WRONLY | O_APPEND | O_CREAT, 0600);
	snprintf(path, sizeof path, "../sizes/%s", argv[1]);
	FILE *sizes = fopen(path, "r");
	if (argc < 3 || log < 0 || !sizes || fscanf(sizes, "%d", &size) != 1)
		return 2;
	note(log, "+", size);
	char *memory = malloc((size_t)size << 20);
	for (int part = 0; part < 10; part++) {
		memset(memory + ((size_t)size << 20) / 10 * part, part + 1, ((size_t)size << 20) / 10);
		usleep(20000);
	}
	note(log, "-", memory[size] ? size : size);
	close(open(argv[2], O_WRONLY | O_CREAT, 0600));
	return 0;
}
"""
SIZES = {"a": 80, "b": 5, "c": 60, "d": 70, "e": 10, "f": 40, "g": 75, "h": 20, "i": 50, "j": 5, "k": 65, "l": 30}


class Run(NamedTuple):
	"""A build, and the sums of what its commands held at the same time, in MiB."""

	said: str
	status: int
	most: int


class Eaters:
	"""A project of commands that take memory."""

	def __init__(self, folder: pathlib.Path, waf: Callable[..., Any], env: Dict[str, Optional[str]]) -> None:
		self.folder = folder
		self.waf = waf
		self.env = env
		self.interpreter: Optional[str] = None

	def set_sizes(self, sizes: Dict[str, int]) -> None:
		(self.folder / "sizes").mkdir(exist_ok=True)
		for name, size in sizes.items():
			(self.folder / "sizes" / name).write_text(str(size))

	def build(self, *args: str, status: Optional[int] = 0, **env: str) -> Run:
		log = self.folder / "log"
		log.write_text("")
		done = self.waf(self.folder, *args, env={**self.env, **env}, interpreter=self.interpreter, status=status)
		held = most = 0
		for line in sorted(log.read_text().splitlines(), key=lambda line: float(line.split()[0])):
			_, what, size = line.split()
			held += int(what + size)
			most = max(most, held)
		return Run(done.stdout + done.stderr, done.returncode, most)

	def report(self, engine: str) -> Any:
		told = subprocess.run([engine, "status", "--json"], capture_output=True, check=True).stdout
		return json.loads(told)


@pytest.fixture
def eaters(
	project: Callable[..., pathlib.Path],
	waf: Callable[..., Any],
	engine: str,
	tmp_path: pathlib.Path,
	monkeypatch: pytest.MonkeyPatch,
) -> Eaters:
	"""A project whose twelve commands take 5 to 80 MiB, in a home of its own."""
	monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
	folder = project({"wscript": WSCRIPT % (TOOLS, sorted(SIZES)), "eat.c": EAT})
	subprocess.run(["cc", "-O1", "-w", "-o", "eat", "eat.c"], cwd=folder, check=True)
	env: Dict[str, Optional[str]] = {"WAFD": engine, "MAKEFLAGS": None, "WAF_PREFORK_SUMMARY": None}
	found = Eaters(folder, waf, env)
	found.set_sizes(SIZES)
	return found


def test_commands_together_stay_within_the_size(eaters: Eaters) -> None:
	"""Known commands run at once if they fit into memory. The last line says how many have waited."""
	eaters.build("configure", "build", "-j8", "--memory=200M")
	run = eaters.build("clean", "build", "-j8", "--memory=200M")
	assert 100 < run.most <= 200
	assert re.search(r"prefork: \d+ commands? waited for memory, .* in all", run.said), run.said
	free = eaters.build("clean", "build", "-j8")
	assert free.most > 200, "the limit would have been needed"
	assert "waited for memory" not in free.said


def test_commands_that_never_ran_are_tried_with_care(eaters: Eaters) -> None:
	"""The first build of all stays within the size, too: so long as nothing is known, one command runs."""
	run = eaters.build("configure", "build", "-j8", "--memory=200M")
	assert run.most <= 200


def test_the_next_engine_knows_the_commands(eaters: Eaters, engine: str, tmp_path: pathlib.Path) -> None:
	"""The peaks are in the user's cache folder. An engine that finds them damaged begins anew."""
	eaters.build("configure", "build", "-j8", "--memory=auto")
	assert eaters.report(engine)["memory_waits"]["known"] == len(SIZES)
	subprocess.run([engine, "stop"], check=True)
	run = eaters.build("clean", "build", "-j8", "--memory=200M")
	assert 100 < run.most <= 200
	assert eaters.report(engine)["memory_waits"]["known"] == len(SIZES)
	subprocess.run([engine, "stop"], check=True)
	(peaks,) = (tmp_path / "cache" / "wafd").iterdir()
	peaks.write_bytes(peaks.read_bytes()[:-1])
	eaters.build("clean", "build", "-j8", "--memory=200M")
	assert eaters.report(engine)["memory_waits"]["known"] == len(SIZES)


def test_without_the_option_nothing_is_remembered(eaters: Eaters, engine: str, tmp_path: pathlib.Path) -> None:
	"""The engine neither keeps peaks nor makes a file; with ``off`` the variable does not count."""
	eaters.build("configure", "build", "-j8")
	eaters.build("clean", "build", "-j8", "--memory=off", WAFCC_MEMORY="auto")
	assert eaters.report(engine)["memory_waits"] is None
	subprocess.run([engine, "stop"], check=True)
	assert not (tmp_path / "cache" / "wafd").exists()


def test_the_variable_of_the_setting_counts(eaters: Eaters, engine: str) -> None:
	"""Without the option, Waf takes the value of WAFCC_MEMORY. A mistake there is told, and stops nothing."""
	eaters.build("configure", "build", "-j8", WAFCC_MEMORY="200M")
	assert eaters.report(engine)["memory_waits"]["known"] == len(SIZES)
	run = eaters.build("clean", "build", "-j8", WAFCC_MEMORY="much")
	assert run.said.count("WAFCC_MEMORY=much: give auto, off, or a size such as 4G (going on without)") == 1


def test_commands_through_the_wrapper_wait_too(eaters: Eaters, engine: str) -> None:
	"""All commands of one parent are a build of wafcc's, and the setting limits them."""
	wafcc = pathlib.Path(engine).with_name("wafcc")
	(eaters.folder / "build").mkdir()
	each = " ".join("%s ../eat %s out-%s &" % (wafcc, name, name) for name in SIZES)
	env = dict(os.environ, WAFCC_MEMORY="200M")
	for _ in range(2):
		(eaters.folder / "log").write_text("")
		subprocess.run(["sh", "-c", each + " wait"], cwd=eaters.folder / "build", env=env, check=True, timeout=60)
	waits = eaters.report(engine)["memory_waits"]
	assert waits["known"] == len(SIZES)
	assert eaters.report(engine)["totals"]["failed"] == 0


# ---- control groups


def find_memory_group() -> Optional[pathlib.Path]:
	"""The folder of this process's control group that counts memory, where such folders usually are."""
	for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
		_, controllers, path = line.split(":", 2)
		if "memory" in controllers.split(","):
			return pathlib.Path("/sys/fs/cgroup/memory" + path)
		if not controllers and pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
			return pathlib.Path("/sys/fs/cgroup" + path)
	return None


class Group:
	"""A control group with a limit of memory."""

	def __init__(self, folder: pathlib.Path, limit: int) -> None:
		self.folder = folder
		for name in ("memory.max", "memory.limit_in_bytes"):
			if (folder / name).exists():
				(folder / name).write_text(str(limit))
				return
		raise OSError("it does not count memory")

	def enter(self) -> None:
		"""Move this process into the group, between fork and exec."""
		(self.folder / "cgroup.procs").write_text("0")

	def kills(self) -> int:
		texts = [self.folder / name for name in ("memory.events", "memory.oom_control")]
		(text,) = [text.read_text() for text in texts if text.exists()]
		(count,) = re.findall(r"^oom_kill (\d+)", text, re.MULTILINE)
		return int(count)


@pytest.fixture
def group(engine: str, runtime: pathlib.Path) -> Iterator[Group]:
	"""A control group of 200 MiB; skips the test where none can be made. Its engine has ended before it is removed."""
	parent = find_memory_group()
	folder = parent / ("memory-test-%d" % os.getpid()) if parent else None
	try:
		if folder is None:
			pytest.skip("no control group counts memory here")
		folder.mkdir()
		made = Group(folder, 200 << 20)
		subprocess.run(["true"], preexec_fn=made.enter, check=True)
	except (OSError, subprocess.SubprocessError) as e:
		if folder is not None:
			with contextlib.suppress(OSError):
				folder.rmdir()
		pytest.skip("no control group can be made here: %s" % e)
	yield made
	subprocess.run([engine, "stop", "--now"], capture_output=True, check=False)
	# the last process of the engine, its guardian, may need a moment
	deadline = time.monotonic() + 30
	while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
		time.sleep(0.02)
	folder.rmdir()


@pytest.fixture
def confined(eaters: Eaters, group: Group, tmp_path: pathlib.Path) -> Eaters:
	"""The project, built in the control group."""
	python = tmp_path / "python"
	python.write_text('#!/bin/sh\necho 0 > %s/cgroup.procs && exec %s "$@"\n' % (group.folder, sys.executable))
	python.chmod(0o755)
	eaters.interpreter = str(python)
	return eaters


def test_a_build_in_a_control_group_has_no_kill(confined: Eaters, group: Group) -> None:
	"""Neither the first build nor the next gets above the group's limit. Without memory, the same build is killed."""
	for commands in (("configure", "build"), ("clean", "build")):
		run = confined.build(*commands, "-j8", "--memory=auto")
		assert run.most < 200
		assert group.kills() == 0
	assert confined.build("clean", "build", "-j8", status=None).status != 0
	assert group.kills() > 0


def test_a_kill_is_told_and_the_next_build_leaves_more_room(confined: Eaters, group: Group, engine: str) -> None:
	"""Commands that suddenly need much more than ever are killed. The line says what to do, and doing it helps."""
	confined.set_sizes(dict.fromkeys(SIZES, 5))
	confined.build("configure", "build", "-j8", "--memory=auto")
	confined.set_sizes(dict.fromkeys(SIZES, 60))
	run = confined.build("clean", "build", "-j8", "-k", "--memory=auto", status=1)
	assert re.search(r"\d+ commands? killed because memory ran out: build again", run.said), run.said
	kills = group.kills()
	assert confined.report(engine)["memory_waits"]["killed"] == kills
	confined.build("build", "-j8", "-k", "--memory=auto")
	assert group.kills() == kills


# ---- options


@pytest.mark.parametrize(
	("text", "size"),
	[
		(None, None),
		("off", None),
		("auto", 0),
		("4G", 4 * 10**9),
		("4", 4 * 10**9),
		("512MiB", 512 << 20),
		("1.5TiB", 3 << 39),
		("100kB", 100000),
		("7b", 7),
	],
)
def test_sizes_are_those_of_the_settings(text: Optional[str], size: Optional[int]) -> None:
	"""The option understands what the setting understands."""
	assert politeness.parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1G", "much", "4Q", "1e9", "99999999T"])
def test_a_wrong_size_is_refused(text: str) -> None:
	"""The line names the option and what it takes."""
	with pytest.raises(Errors.WafError, match=r"--memory=.*: give auto, off, or a size such as 4G"):
		politeness.parse_memory(text)


@pytest.mark.parametrize(
	("waits", "line"),
	[
		(None, ""),
		(summary.Waits(0, 0.0, 0), ""),
		(summary.Waits(4, 12.3, 0), "prefork: 4 commands waited for memory, 12 s in all"),
		(
			summary.Waits(1, 0.5, 1),
			"prefork: 1 command waited for memory, 500 ms in all; 1 command killed because memory ran out:"
			" build again, and the engine will leave more room",
		),
	],
)
def test_the_last_line_tells_of_memory(waits: Optional[summary.Waits], line: str) -> None:
	"""Only a build that waited gets a line."""
	assert summary.describe_waits(waits) == line


def test_without_a_wish_no_frame_is_sent() -> None:
	"""A build that wants nothing pays nothing; one that wants memory says so."""
	none: List[Any] = [types.SimpleNamespace(), {}, True]
	assert politeness.find_policy(*none).frame == b""
	assert politeness.find_policy(*none, memory=0).frame.hex() == "0e000000081000000000" + "00" * 8
