"""utils/compare.py: real comparisons of tiny projects, going on after an interruption, and what is shown of them."""

import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List

import pytest
from browser_support import PICTURES, wait
from test_bench_campaign import ROOT, await_file, need, processes_marked

COMPARE = ROOT / "utils" / "compare.py"
MARK = "TEST_OF_BENCH"
sys.path.insert(0, str(COMPARE.parent))

from benchmark import courses, figures, ledger  # noqa: E402
from benchmark.contender import find_contender  # noqa: E402
from benchmark.interpreter import discover_interpreters  # noqa: E402
from benchmark.mistake import Mistake  # noqa: E402
from benchmark.plot import Scale  # noqa: E402
from benchmark.progress import Progress  # noqa: E402
from benchmark.table import number  # noqa: E402

SMALL = ("--contenders", "ninja,make", "--scenarios", "full,noop", "--tasks", "2,4", "--repeat", "2,2")


def start(folder: pathlib.Path, *args: str) -> "subprocess.Popen[str]":
	"""Start a comparison whose ledger and builds are in a folder."""
	argv = [sys.executable, str(COMPARE), *args, "--json", str(folder / "r.jsonl"), "--folder", str(folder / "work")]
	env = {**os.environ, MARK: str(folder)}
	pipe = subprocess.PIPE
	return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, encoding="utf-8")


class Done:
	"""A comparison, or ``show``, that has ended."""

	def __init__(self, started: "subprocess.Popen[str]") -> None:
		try:
			self.out, self.err = started.communicate(timeout=100)
		finally:
			started.kill()
		self.status = started.returncode


def run(folder: pathlib.Path, *args: str) -> Done:
	"""A comparison from begin to end."""
	return Done(start(folder, *args))


def show(*args: Any) -> Done:
	"""Show ledgers."""
	argv = [sys.executable, str(COMPARE), "show", *map(str, args)]
	pipe = subprocess.PIPE
	return Done(subprocess.Popen(argv, stdout=pipe, stderr=pipe, encoding="utf-8"))


def lines_of(path: pathlib.Path, kind: str = "run") -> List[Dict[str, Any]]:
	"""The lines of one kind of a ledger."""
	return [line for line in map(json.loads, path.read_text().splitlines()) if line["kind"] == kind]


MADE = ("--contenders", "ninja,make", "--scenarios", "full,noop", "--language", "c", "--compilers", "gcc")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
	"""The folder of a comparison of two contenders in two sizes, with its page."""
	need("ninja", "make", "gcc")
	folder = tmp_path_factory.mktemp("made")
	args = [*MADE, "--tasks", "2,20"]
	done = run(folder, *args, "--repeat", "3,1", "--html", str(folder / "r.html"))
	assert done.status == 0, done.err
	(folder / "out").write_text(done.out)
	assert os.listdir(str(folder / "work")) == [] and processes_marked(folder) == []
	return folder


# ---- what is measured


def test_every_round_is_measured(made: pathlib.Path) -> None:
	"""Each contender builds each size in each round, from nothing and once more; lanes take turns in coming first."""
	runs = lines_of(made / "r.jsonl")
	found = {(r["contender"], r["scenario"], r["tasks"], r["round"]) for r in runs}
	rounds = [(2, 0), (2, 1), (2, 2), (20, 0)]
	assert found == {(c, s, *r) for c in ("ninja", "make") for s in ("full", "noop") for r in rounds}
	order = [r["contender"] for r in runs if r["scenario"] == "full" and r["tasks"] == 2]
	assert order == ["ninja", "make", "make", "ninja", "ninja", "make"]
	assert all(r["values"]["wall"] > 0 and r["values"]["processor"] > 0 for r in runs)


def test_idle_tasks(tmp_path: pathlib.Path) -> None:
	"""Waf runs tasks that do nothing, with and without our tools, and nobody else takes part."""
	args = ("--work", "idle", "--contenders", "waf,large", "--interpreters", sys.executable, "--tasks", "10,300")
	done = run(tmp_path, *args, "--repeat", "1")
	assert done.status == 0, done.err
	runs = lines_of(tmp_path / "r.jsonl")
	found = {(r["contender"], r["scenario"], r["tasks"]) for r in runs}
	assert found == {(c, s, n) for c in ("waf", "large") for s in ("full", "noop") for n in (10, 300)}
	assert len(runs) == 8 and all(5 < r["values"]["peak"] < 500 for r in runs)
	assert all(r["compiler"] is None and r["interpreter"] for r in runs)


def test_memory_is_that_of_the_command(tmp_path: pathlib.Path) -> None:
	"""A small program seems small, although a large one starts it."""
	need("ninja", "g++")
	done = run(tmp_path, "--contenders", "ninja", "--scenarios", "noop", "--tasks", "2", "--repeat", "1")
	assert done.status == 0, done.err
	assert lines_of(tmp_path / "r.jsonl")[0]["values"]["peak"] < 12


def test_compiling(tmp_path: pathlib.Path) -> None:
	"""All five scenarios are measured of those who have them: cold and warm with a cache, full without one."""
	need("ninja", "g++")
	args = ("--contenders", "prefork,ninja,waf+wafcc,unity-prefork", "--interpreters", sys.executable)
	done = run(tmp_path, *args, "--tasks", "4", "--repeat", "1", "--baseline", "ninja")
	assert done.status == 0, done.err
	found: Dict[str, List[str]] = {}
	for line in lines_of(tmp_path / "r.jsonl"):
		found.setdefault(line["scenario"], []).append(line["contender"])
	assert found["full"] == ["prefork", "ninja", "unity-prefork"]
	assert found["cold"] == found["warm"] == ["waf+wafcc"]
	assert sorted(found["noop"]) == sorted(found["onefile"]) == ["ninja", "prefork", "unity-prefork", "waf+wafcc"]
	assert "base ninja (full)" in done.out and "too few runs" in done.out
	assert re.search(r"waf\+wafcc .* ≥ ", done.out), "a daemon runs its compilers"
	assert processes_marked(tmp_path) == []


def test_who_takes_too_long_is_left_out(tmp_path: pathlib.Path) -> None:
	"""A build that exceeds the limit ends; its lane takes no further part, and no session tries it again."""
	odd = tmp_path / "odd-g++"
	odd.write_text('#!/bin/sh\ncase "$*" in *-make-*) sleep 600 ;; esac\nexec g++ "$@"\n')
	odd.chmod(0o755)
	args = ("--contenders", "ninja,make", "--scenarios", "full,noop", "--tasks", "2,4", "--repeat", "1", "--limit", "2")
	done = run(tmp_path, *args, "--compilers", str(odd))
	assert done.status == 0, done.err
	assert "left out: make" in done.err and "from 2 tasks on: full took longer than the limit of 2 s" in done.err
	assert {line["contender"] for line in lines_of(tmp_path / "r.jsonl")} == {"ninja"}
	assert "full took longer than the limit" in done.out
	before = (tmp_path / "r.jsonl").read_bytes()
	assert run(tmp_path, *args, "--compilers", str(odd)).status == 0
	assert (tmp_path / "r.jsonl").read_bytes() == before


def test_failures_are_told(tmp_path: pathlib.Path) -> None:
	"""A build that fails is shown with its output, and makes the exit status 1; the others go on."""
	odd = tmp_path / "odd-g++"
	odd.write_text('#!/bin/sh\ncase "$*" in *-make-*) echo "broken on purpose" >&2; exit 3 ;; esac\nexec g++ "$@"\n')
	odd.chmod(0o755)
	args = ("--contenders", "ninja,make", "--scenarios", "full", "--tasks", "2", "--repeat", "1")
	done = run(tmp_path, *args, "--compilers", str(odd))
	assert done.status == 1, done.err
	assert "broken on purpose" in done.err and "full failed: exit status" in done.out
	assert [line["contender"] for line in lines_of(tmp_path / "r.jsonl")] == ["ninja"]


def test_usher(tmp_path: pathlib.Path) -> None:
	"""The program that commands are started through is clean under both compilers, and ends as the command does."""
	need("gcc", "clang")
	source = str(COMPARE.parent / "benchmark" / "usher.c")
	flags = ["-O2", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror"]
	for compiler in ("gcc", "clang"):
		subprocess.run([compiler, *flags, "-o", str(tmp_path / "usher"), source], check=True)
	report = tmp_path / "report"
	for script, status in (("exit 3", 3), ("kill -9 $$", -9), ("kill -15 $$", -15)):
		assert subprocess.call([str(tmp_path / "usher"), str(report), "sh", "-c", script]) == status
		assert 100 < int(report.read_text()) < 9000
	done = subprocess.run([str(tmp_path / "usher"), str(report), "no-such-program"], stderr=subprocess.PIPE)
	assert done.returncode == 127 and b"no-such-program" in done.stderr


# ---- going on


def killed(folder: pathlib.Path, runs: int, number: int = signal.SIGKILL) -> bytes:
	"""The ledger of a comparison that was ended when it had made so many runs."""
	started = start(folder, *SMALL)
	path = folder / "r.jsonl"
	try:
		await_file(path, started)
		deadline = time.monotonic() + 60
		while len([line for line in path.read_bytes().splitlines() if b'"run"' in line]) < runs:
			assert started.poll() is None and time.monotonic() < deadline, started.communicate()
			time.sleep(0.005)
		started.send_signal(number)
	finally:
		started.wait(60) if number != signal.SIGKILL else started.kill()
		started.communicate()
	return path.read_bytes()


def test_goes_on_after_kill(tmp_path: pathlib.Path) -> None:
	"""What was measured before SIGKILL stays as it is, a torn line is cut off, the rest is measured, no run twice."""
	need("ninja", "g++", "make")
	whole = killed(tmp_path, 3)
	with (tmp_path / "r.jsonl").open("ab") as f:
		f.write(b'{"kind": "run", "val')
	left = os.listdir(str(tmp_path / "work"))
	assert len(left) == 1
	done = run(tmp_path, *SMALL)
	assert done.status == 0, done.err
	assert (tmp_path / "r.jsonl").read_bytes().startswith(whole[: whole.rfind(b"\n") + 1])
	runs = [ledger.key_of(line) for line in lines_of(tmp_path / "r.jsonl")]
	assert len(runs) == len(set(runs)) == 16
	assert os.listdir(str(tmp_path / "work")) == [], "what was left behind is deleted, too"
	assert "runs are there" in done.err and left[0] in done.err
	assert len(lines_of(tmp_path / "r.jsonl", "machine")) == 2


def test_interrupted(tmp_path: pathlib.Path) -> None:
	"""Ctrl-C keeps what was measured, says how to go on, and leaves nothing behind."""
	need("ninja", "g++", "make")
	killed(tmp_path, 2, signal.SIGINT)
	assert 2 <= len(lines_of(tmp_path / "r.jsonl")) < 16
	assert os.listdir(str(tmp_path / "work")) == [] and processes_marked(tmp_path) == []
	shown = show(tmp_path / "r.jsonl")
	assert shown.status == 0 and "is not finished" in shown.out
	other = run(tmp_path, *SMALL, "--limit", "77")
	assert other.status == 2 and other.out == ""
	assert "was begun with other options (limit was 300 and is 77): name another file, or add --anyway" in other.err
	assert len(other.err.splitlines()) == 1 and os.listdir(str(tmp_path / "work")) == []
	other = run(tmp_path, *SMALL, "--limit", "77", "--anyway")
	assert other.status == 0 and "WARNING" not in other.out, "what a run is has not changed"
	assert len(lines_of(tmp_path / "r.jsonl")) == 16
	other = run(tmp_path, *SMALL[:-1], "3", "--contenders", "ninja", "--flags=-O1", "--limit", "77", "--anyway")
	assert other.status == 0, other.err
	assert "WARNING" in other.out and "flags was None and is -O1" in other.out and "  make  " in other.out
	assert len(lines_of(tmp_path / "r.jsonl")) == 16 + 4


def test_two_at_once_are_refused(tmp_path: pathlib.Path) -> None:
	"""Nobody writes into a ledger that is being written."""
	writer = ledger.Writer(str(tmp_path / "r.jsonl"))
	done = run(tmp_path, *SMALL)
	writer.close()
	assert done.status == 2 and "is being written by another compare.py" in done.err


# ---- mistakes


@pytest.mark.parametrize(
	("argv", "words"),
	[
		(["--contenders", "jam"], "contender jam is not known"),
		(
			["--contenders", "xargs", "--scenarios", "noop"],
			"contender xargs cannot take part: it has nothing to do in noop",
		),
		(["--work", "idle", "--contenders", "ninja"], "contender ninja cannot take part"),
		(["--scenarios", "fast"], "scenario fast is none of compile work"),
		(["--work", "idle", "--scenarios", "warm"], "scenario warm is none of idle work: choose from full, noop"),
		(["--tasks", "1001"], "1001 is no multiple of 50"),
		(["--tasks", "2,4", "--repeat", "1,2,3"], "--repeat names 3 sizes and --tasks 2"),
		(["--interpreters", "no-such-python"], "interpreter no-such-python was not found"),
		(["--baseline", "make", "--contenders", "ninja"], "baseline make takes no part"),
		(["--folder", "/dev/null/x"], "cannot work in /dev/null/x"),
		(["--html", "/dev/null/x/y.html"], "cannot make /dev/null/x"),
		(["--fast"], "see compare.py --help"),
	],
)
def test_mistakes(tmp_path: pathlib.Path, argv: List[str], words: str) -> None:
	"""Every mistake is answered with one line that says what to do, and exit status 2; nothing stays behind."""
	args = ["--json", str(tmp_path / "r.jsonl"), "--folder", str(tmp_path / "work"), *argv]
	done = Done(
		subprocess.Popen(
			[sys.executable, str(COMPARE), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
		)
	)
	assert (done.status, done.out) == (2, ""), done.err
	assert done.err.startswith("compare.py: ") and words in done.err and done.err.count("\n") == 1
	assert not (tmp_path / "r.jsonl").exists()
	assert not (tmp_path / "work").exists() or os.listdir(str(tmp_path / "work")) == []


def test_what_is_no_ledger(tmp_path: pathlib.Path, made: pathlib.Path) -> None:
	"""Another file is refused and stays as it is; a damaged line is named."""
	path = tmp_path / "r.jsonl"
	path.write_text("my thesis")
	done = run(tmp_path, *SMALL)
	assert done.status == 2 and "is not a record of compare.py" in done.err and path.read_text() == "my thesis"
	lines = (made / "r.jsonl").read_text().splitlines()
	path.write_text("\n".join([*lines[:3], "{", *lines[3:], ""]))
	assert "line 4, is damaged" in show(path).err
	path.write_text(lines[0].replace('"version": 1', '"version": 9') + "\n")
	assert "has version 9 and this compare.py reads version 1" in show(path).err


# ---- sessions


def test_resuming_elsewhere_is_refused(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
	"""A ledger of another machine is not gone on with."""
	lines = lines_of(made / "r.jsonl", "machine")
	text = (made / "r.jsonl").read_text()
	(tmp_path / "r.jsonl").write_text(text.replace(lines[0]["machine"]["processor"], "Abacus 9000"))
	done = run(tmp_path, *MADE, "--tasks", "2,20", "--repeat", "3,1")
	assert done.status == 2 and "was begun on another machine (processor" in done.err, done.err


# ---- what is said


def run_of(contender: str, wall: float, turn: int, **changes: Any) -> Dict[str, Any]:
	"""A run as figures take it."""
	base = {"work": "idle", "scenario": "full", "compiler": None, "interpreter": None, "tasks": 10, "machine": 0}
	return {**base, "contender": contender, "round": turn, "values": {"wall": wall}, "started": turn, **changes}


@pytest.mark.parametrize(
	("mine", "theirs", "words"),
	[
		((1.0, 1.1, 1.2), (2.0, 2.1, 2.2), "faster"),
		((2.0, 2.1, 2.2), (1.0, 1.1, 1.2), "slower"),
		((1.0, 1.1, 2.05), (2.0, 2.1, 2.2), "not distinguishable"),
		((1.0, 1.1), (2.0, 2.1, 2.2), "too few runs"),
	],
)
def test_verdicts(mine: Any, theirs: Any, words: str) -> None:
	"""Who is faster is said only where the ranges do not overlap, and of three runs of each at least."""
	both = [[run_of(name, wall, n) for n, wall in enumerate(walls)] for name, walls in (("a", mine), ("b", theirs))]
	row = figures.row_of(figures.Who("a", None), 10, *both)
	assert row.verdict == words


def test_pairs_stay_in_their_session() -> None:
	"""Rounds that an interruption lies between are no pairs."""
	mine = [run_of("a", 1.0, 0), run_of("a", 4.0, 1, machine=1)]
	base = [run_of("b", 2.0, 0), run_of("b", 2.0, 1)]
	assert figures.row_of(figures.Who("a", None), 10, mine, base).paired == 0.5


def test_shown_again(made: pathlib.Path) -> None:
	"""The terminal has the medians of the runs, and ``show`` has them again."""
	runs = [r for r in lines_of(made / "r.jsonl") if (r["contender"], r["scenario"], r["tasks"]) == ("make", "full", 2)]
	middle = sorted(r["values"]["wall"] for r in runs)[1]
	assert " %s " % number(middle) in (made / "out").read_text()
	again = show(made / "r.jsonl")
	assert again.out.strip() and (made / "out").read_text().startswith(again.out.rstrip("\n"))


# ---- the page


def test_page(made: pathlib.Path, look: Callable[..., Any]) -> None:
	"""Plots of time, processor time and memory are there, a dot says its numbers, a name hides its lane."""
	page = look((made / "r.html").as_uri())
	assert page.locator("figure svg").count() == 6
	assert page.locator("figure >> nth=0").locator(".point").count() == 4
	assert page.locator("table").count() == 2
	box = page.locator(".point .dot").first.bounding_box()
	assert page.locator("#tip").is_hidden()
	page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
	said = wait(page, "#tip", "ninja, 2 tasks").inner_text()
	assert re.search(r"ninja, 2 tasks\nmedian [\d.]+ s of 3 runs\nmin [\d.]+, max [\d.]+\nquartiles", said), said
	page.keyboard.press("Escape")
	page.locator("#tip").wait_for(state="hidden")
	page.locator(".point").nth(2).focus()
	wait(page, "#tip", "make")
	page.locator(".legend button").first.click()
	page.locator("figure >> nth=0").locator(".lane.hidden").wait_for(state="attached")
	assert "src=" not in (made / "r.html").read_text() and "@import" not in (made / "r.html").read_text()


@pytest.mark.parametrize("dark", [False, True])
def test_page_on_a_phone(made: pathlib.Path, look: Callable[..., Any], dark: bool) -> None:
	"""A phone need not scroll to the side, its words are not tiny, and the ground is as dark as it wants it."""
	page = look((made / "r.html").as_uri(), size="phone", dark=dark)
	assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
	assert page.evaluate("document.querySelector('figure text').getBoundingClientRect().height") > 10
	point = page.locator(".point").nth(3)
	point.scroll_into_view_if_needed()
	point.focus()
	box = wait(page, "#tip").bounding_box()
	assert box["x"] >= 0 and box["x"] + box["width"] <= 390
	ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
	assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark


def test_picture(made: pathlib.Path, look: Callable[..., Any]) -> None:
	"""The report that is kept in docs, or this one, is all in the window when its picture is taken."""
	kept = ROOT / "docs" / "compare.html"
	page = look((kept if kept.exists() else made / "r.html").as_uri())
	figure = page.locator("section").first
	assert figure.bounding_box()["width"] > 600
	if os.environ.get("WAF_PICTURES"):
		PICTURES.mkdir(exist_ok=True)
		page.screenshot(path=str(PICTURES / "compare.png"))


# ---- parts


def test_sizes() -> None:
	"""A project has as many sources as there are tasks."""
	for tasks in (1, 4, 50, 100, 10000):
		libraries, sources, *_ = map(int, courses.size_of(tasks).split(","))
		assert libraries * sources == tasks
	with pytest.raises(ValueError, match="multiple"):
		courses.size_of(51)


def test_courses() -> None:
	"""A cache is measured cold and warm in one go, a cold build alone where warm ones are not wanted."""

	def names(wanted: List[str], name: str) -> List[str]:
		return [course.name for course in courses.courses_of("compile", wanted, find_contender(name))]

	everything = list(courses.SCENARIOS)
	assert names(everything, "ninja+ccache") == ["cold and warm", "noop", "onefile"]
	assert names(["full"], "ninja+ccache") == ["cold"]
	assert names(everything, "ninja") == ["full", "noop", "onefile"]
	assert names(everything, "resident") == ["noop", "onefile"]
	assert names(everything, "xargs") == ["full"]


def test_estimates() -> None:
	"""What remains is judged by the same lane in smaller sizes, as a line through the last two; others by the mean."""
	ahead = Progress(io.StringIO())
	assert ahead.estimate([("waf", 10)]) is None
	ahead.learn("waf", 100, 2.0)
	assert ahead.estimate([("waf", 200), ("ninja", 100)]) == 4.0 + 2.0
	ahead.learn("waf", 200, 3.0)
	assert ahead.estimate([("waf", 400)]) == pytest.approx(5.0)


def test_interpreters_are_found_once(tmp_path: pathlib.Path) -> None:
	"""Several names of one program count once, what does not work and what is no Python not at all."""
	for name in ("python3", "python3.99"):
		(tmp_path / name).symlink_to(os.path.realpath(sys.executable))
	for name in ("pypy3", "python3-config"):
		(tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
		(tmp_path / name).chmod(0o755)
	assert discover_interpreters({"PATH": "%s:/nowhere" % tmp_path}) == ["python3"]


def test_axis_marks() -> None:
	"""An axis has at least two marks, all within it, also for a single value and for many powers of ten."""
	for values in ([3.0], [0.9, 1.1], [1, 100000], [0.004, 900]):
		scale = Scale(values, 0, 100)
		assert 2 <= len(scale.marks()) <= 12, values
		assert all(-0.01 <= scale.place(mark) <= 100.01 for mark in scale.marks())


def test_differences_are_named() -> None:
	"""What makes two machines different is named; programs that only one of them has are no difference."""
	one = {"processor": "A", "cores": 2, "memory_gib": 4.0, "kernel": "6", "versions": {"g++": "12", "ninja": "1"}}
	assert ledger.unlike(one, dict(one, versions={"g++": "12", "make": "4"})) == ""
	other = dict(one, kernel="7", versions={"g++": "13"})
	assert ledger.unlike(one, other) == "kernel 6 and 7; g++ is 12 and 13"
	with pytest.raises(Mistake, match="cannot read"):
		ledger.read_ledger("/no/such/file")
