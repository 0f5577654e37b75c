"""The first steps of wafcc, before libc has begun: it ends there when the engine's answer is all there is to do, and
leaves all else to the program."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from typing import Dict, List, Sequence, Tuple

import pytest
from cache_support import Lab

SOURCE = "int f(void) { return 1; }\n"
LINE = ["gcc", "-c", "a.c", "-o", "a.o"]


@pytest.fixture
def lab(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Lab:
	"""A folder with a source that was compiled once, in a home of its own."""
	home = tmp_path / "home"
	(home / ".config" / "wafcc").mkdir(parents=True)
	folder = tmp_path / "folder"
	folder.mkdir()
	lab = Lab(engine, folder, home)
	lab.write("a.c", SOURCE)
	call(lab, LINE)
	return lab


def cards(runtime: pathlib.Path) -> List[pathlib.Path]:
	return sorted(runtime.glob("wafd-*.card-????????????????"))


def call(lab: Lab, argv: List[str], before: Sequence[str] = (), **env: str) -> "subprocess.CompletedProcess[bytes]":
	return subprocess.run(
		[*before, lab.wafcc, *argv],
		cwd=lab.folder,
		env={**lab.environ, **env},
		stdin=subprocess.DEVNULL,
		capture_output=True,
		timeout=60,
		check=False,
	)


def follow(lab: Lab, argv: List[str]) -> Tuple[int, List[str]]:
	"""The status of a call and its system calls: those of libc's beginning among them, if it began."""
	if not shutil.which("strace"):
		pytest.skip("strace is not installed")
	trace = lab.folder.parent / "trace"
	done = call(lab, argv, ["strace", "-o", str(trace)])
	names = re.findall(r"^(\w+)\(", trace.read_text(errors="replace"), re.M)
	return done.returncode, names


def needs_libc(names: List[str]) -> bool:
	return "brk" in names or "set_robust_list" in names


def stats(lab: Lab) -> Dict[str, int]:
	"""Hits, misses and calls that were not cacheable."""
	shown = call(lab, ["--show-stats"]).stdout.decode()
	words = {"hits": "Hits", "misses": "Misses", "uncacheable": "Uncacheable calls"}
	return {name: int(re.search(rf"{word}:\s+(\d+)", shown).group(1)) for name, word in words.items()}


def test_a_hit_needs_no_libc(lab: Lab, runtime: pathlib.Path) -> None:
	"""The first call leaves a card. The hit of the second call is over before libc begins."""
	made = (lab.folder / "a.o").read_bytes()
	(lab.folder / "a.o").unlink()
	assert len(cards(runtime)) == 1
	if b"/ld-" in pathlib.Path(lab.wafcc).read_bytes()[:4096]:
		pytest.skip("wafcc is not linked statically here, and so begins with libc")
	status, names = follow(lab, LINE)
	assert status == 0 and (lab.folder / "a.o").read_bytes() == made
	assert needs_libc(follow(lab, ["--version"])[1])
	assert not needs_libc(names), names
	assert stats(lab)["hits"] == 1


def test_a_miss_and_a_failure_are_the_compilers(lab: Lab) -> None:
	"""Status and messages are the compiler's, and there is no word of a file that was not made."""
	lab.write("wrong.c", "int f(void) { return nothing; }\n")
	lab.write("other.c", "int g(void) { int unused; return 2; }\n")
	for line in (["gcc", "-c", "wrong.c"], ["gcc", "-Wall", "-c", "other.c"], ["gcc", "-c", "missing.c"]):
		assert lab.run(" ".join(line), True) == lab.run(" ".join(line), False)


def test_many_messages_come_whole(lab: Lab) -> None:
	"""The output is larger than the front's first buffer: some hundred kilobytes, on a miss and on a hit."""
	lab.write("long.c", "".join(f"#warning {'x' * 90} {i}\n" for i in range(1500)))
	line = "gcc -c long.c"
	plain = lab.run(line, False)
	assert len(plain.stderr) > 200_000
	assert lab.run(line, True) == plain == lab.run(line, True)


def test_what_the_cache_cannot_tell_runs_as_ever(lab: Lab) -> None:
	"""Commands that only look like compiles are left to the program, with their descriptors, and are counted once."""
	lab.write("b.c", "int g(void) { return 2; }\n")
	before = stats(lab)
	for line in ("gcc -c a.c b.c", "gcc -c a.c -fdump-tree-gimple", "gcc -c a.c -o a.o -v", "no-such-compiler -c a.c"):
		if shutil.which(line.split()[0]):
			assert lab.run(line, True).files.keys() == lab.run(line, False).files.keys()
		else:
			assert call(lab, line.split()).returncode == 127
	assert stats(lab) == dict(before, uncacheable=before["uncacheable"] + 3)


def test_links_in_front_of_the_compiler_are_passed_over(lab: Lab) -> None:
	"""If a name leads to wafcc itself, the program has to find the real compiler."""
	links = lab.folder.parent / "links"
	links.mkdir()
	(links / "gcc").symlink_to(lab.wafcc)
	path = f"{links}{os.pathsep}{lab.environ['PATH']}"
	for _ in range(2):
		done = call(lab, LINE, PATH=path)
		assert done.returncode == 0, done.stderr
		(lab.folder / "a.o").unlink()


@pytest.mark.parametrize("damage", ["empty", "cut", "other", "long", "folder", "fifo"])
def test_a_bad_card_is_no_card(lab: Lab, runtime: pathlib.Path, damage: str) -> None:
	"""With any other file in its place, the command runs. A good card is written again if possible."""
	(card,) = cards(runtime)
	text = card.read_bytes()
	card.unlink()
	if damage == "folder":
		card.mkdir()
	elif damage == "fifo":
		os.mkfifo(card)
	else:
		other = text[:8] + b"\xff" * 64
		bad = {"empty": b"", "cut": text[: len(text) // 2], "other": other, "long": text + b"x" * 20000}
		card.write_bytes(bad[damage])
	for _ in range(2):
		assert lab.run(" ".join(LINE), True) == lab.run(" ".join(LINE), False)
	if damage != "folder":
		assert card.read_bytes() == text


def test_every_cut_of_a_card_is_no_card(lab: Lab, runtime: pathlib.Path) -> None:
	"""If a card ends too early, nothing is read beyond its end."""
	(card,) = cards(runtime)
	text = card.read_bytes()
	for size in range(0, len(text), 7):
		card.write_bytes(text[:size])
		assert call(lab, LINE).returncode == 0, size


def test_settings_are_heeded_at_once(lab: Lab, runtime: pathlib.Path) -> None:
	"""A file of settings that appears or changes, and a variable, hold for the next call."""
	config = pathlib.Path(lab.environ["HOME"]) / ".config" / "wafcc" / "wafcc.conf"
	before = stats(lab)
	config.write_text("recache = yes\n")
	call(lab, LINE)
	assert stats(lab) == dict(before, misses=before["misses"] + 1)
	config.write_text("disable = yes\n")
	call(lab, LINE)
	assert stats(lab) == dict(before, misses=before["misses"] + 1)
	config.unlink()
	call(lab, LINE, WAFCC_DISABLE="1")
	assert stats(lab) == dict(before, misses=before["misses"] + 1)
	call(lab, LINE)
	assert stats(lab)["hits"] == before["hits"] + 1


def test_another_store_is_another_card(lab: Lab, runtime: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""An entry of one store is not served from another, for the same command."""
	for _ in range(2):
		call(lab, LINE, WAFCC_DIR=str(tmp_path / "other"))
	assert len(cards(runtime)) == 2
	done = call(lab, ["--show-stats"], WAFCC_DIR=str(tmp_path / "other")).stdout.decode()
	assert re.search(r"Hits:\s+1 ", done), done
	call(lab, ["--shutdown"], WAFCC_DIR=str(tmp_path / "other"))


def test_a_folder_that_is_open_to_others_has_no_card(lab: Lab, runtime: pathlib.Path) -> None:
	"""A card in a folder that others may write to is ignored."""
	runtime.chmod(0o770)
	try:
		status, names = follow(lab, LINE)
	finally:
		runtime.chmod(0o700)
	assert status == 0 and needs_libc(names)


def test_without_an_engine_another_is_started(lab: Lab) -> None:
	"""The card names an engine that is gone: the program starts one."""
	call(lab, ["--shutdown"])
	assert call(lab, LINE).returncode == 0
	assert stats(lab)["hits"] >= 1


def stop_wholly(pid: int) -> None:
	"""Stop a process, and wait until none of its threads does anything: one that has not heard of it yet may answer."""
	os.kill(pid, signal.SIGSTOP)
	deadline = time.monotonic() + 30

	def does_something(thread: pathlib.Path) -> bool:
		return (thread / "stat").read_text().rpartition(")")[2].split()[0] != "T"

	while any(does_something(thread) for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()):
		assert time.monotonic() < deadline, "it does not stop"
		time.sleep(0.01)


def test_a_long_wait_is_handed_on(lab: Lab, engine: str) -> None:
	"""If the engine does not answer in time, the program waits for it over the same connection."""
	report = subprocess.run([engine, "status"], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
	pid = int(re.search(r"process\s+(\d+)", report).group(1))
	stop_wholly(pid)
	waits = subprocess.Popen([lab.wafcc, *LINE], cwd=lab.folder, env=lab.environ, stdin=subprocess.DEVNULL)
	try:
		deadline = time.monotonic() + 30
		# libc has begun when there is a heap
		maps = pathlib.Path(f"/proc/{waits.pid}/maps")
		while "[heap]" not in maps.read_text() and time.monotonic() < deadline:
			time.sleep(0.05)
		assert "[heap]" in maps.read_text()
	finally:
		os.kill(pid, signal.SIGCONT)
	assert waits.wait(30) == 0
	assert stats(lab) == {"hits": 1, "misses": 1, "uncacheable": 0}
