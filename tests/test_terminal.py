"""The terminal output of a build: the line of -p, and the savings at the end."""

import fcntl
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
from conftest import on_cpython

from waflib_extras.console import history, progress, summary

SPEAKING: Dict[str, Any] = {"WAF_PREFORK_SUMMARY": None}
DEADLINE = 60
ERASE = "\r\x1b[K"

WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("prefork wafcc")
def configure(conf):
	pass
def build(bld):
	for number in range(6):
		bld(rule="cat ${SRC} > ${TGT}", source="in.txt", target="%d.txt" % number, cache=True)
"""
PROJECT = {"wscript": WSCRIPT, "in.txt": "some text\n"}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
	"""A store of the test's own."""
	for name in list(os.environ):
		if name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG")):
			monkeypatch.delenv(name)
	monkeypatch.setenv("HOME", str(tmp_path))


def last_line(done: Any) -> str:
	return done.stdout.splitlines()[-1]


# ---- what was saved


@on_cpython
def test_the_last_line_tells_what_was_saved(waf: Any, project: Any) -> None:
	"""The line has the hits with the time that their commands took, and the number of commands that ran."""
	folder = project(PROJECT)
	assert re.match(
		r"prefork: 6 commands: 6 misses( \(\d+ not stored\))?( \(|$)",
		last_line(waf(folder, "configure", "build", env=SPEAKING)),
	)
	saved = last_line(waf(folder, "clean", "build", env=SPEAKING))
	assert re.match(r"prefork: 6 commands: 6 hits \(about [\d.]+ m?s of processor time saved\)$", saved)
	assert "prefork" not in waf(folder, "build", env=SPEAKING).stdout
	(folder / "in.txt").write_text("other text\n")
	assert "prefork" not in waf(folder, "build", "--quiet", env=SPEAKING).stdout
	assert "1 Waf's own way" not in saved


@on_cpython
def test_a_project_keeps_its_own_quiet(waf: Any, project: Any) -> None:
	"""Options of these names belong to the project, wherever it adds them. Otherwise both are ours."""
	wscript = """\
	from waflib import Options
	def options(opt):
		opt.load("prefork")
		opt.add_option("-q", "--quiet", dest="mine", action="store_true")
	def show(ctx):
		print("mine", Options.options.mine)
	"""
	assert "mine True" in waf(project({"wscript": wscript}), "show", "-q").stdout
	shown = waf(project(PROJECT, "other"), "--help").stdout
	assert re.search(r"-q, --quiet\b", shown)


@pytest.mark.parametrize(
	("counts", "expected"),
	[
		((summary.Counts(0), None), ""),
		((summary.Counts(1), None), "prefork: 1 command: 1 run"),
		(
			(summary.Counts(3, hits=1, saved=0.04, own=2), None),
			"prefork: 5 commands: 1 hit (about 40 ms of processor time saved), 2 run, 2 Waf's own way",
		),
		(
			(summary.Counts(312, hits=298, misses=12, unstored=1, saved=41.2), summary.Parking(312, 14, 0.3)),
			"prefork: 312 commands: 298 hits (about 41 s of processor time saved),"
			" 12 misses (1 not stored), 2 run (14 programs parked: about 300 ms saved)",
		),
		((summary.Counts(1, misses=1), None), "prefork: 1 command: 1 miss"),
		((summary.Counts(2), summary.Parking(2, 1, 0.001)), "prefork: 2 commands: 2 run (1 program parked)"),
		(
			(summary.Counts(9, hits=9, saved=7300.0), summary.Parking(9, 1, 0.0)),
			"prefork: 9 commands: 9 hits (about 121 min of processor time saved)",
		),
	],
)
def test_the_line_has_only_what_is_known(counts: Any, expected: str) -> None:
	"""The line leaves out everything that is not known."""
	assert summary.describe(*counts) == expected


def test_compiles_that_began_after_their_headers_have_a_line() -> None:
	"""It says how many there were, and what that saved."""
	assert summary.describe_begun(summary.Counts(3, misses=3)) == ""
	one, many = summary.Counts(3, misses=3, begun=1, gained=0.81), summary.Counts(20, misses=12, begun=12, gained=9.4)
	assert summary.describe_begun(one) == "wafcc: 1 compile began after its headers: about 810 ms saved"
	assert summary.describe_begun(many) == "wafcc: 12 compiles began after their headers: about 9.4 s saved"


def test_what_parking_saved_is_not_told_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
	"""If the engine also ran commands of others, it is not known which of them were parked."""
	before = summary.Parking(10, 4, 0.1)
	answers = [before, summary.Parking(15, 7, 0.4), before, summary.Parking(16, 7, 0.4)]
	monkeypatch.setattr(summary, "ask_status", lambda session: b"report")
	monkeypatch.setattr(summary, "parse", lambda report: answers.pop(0))
	session = SimpleNamespace(engine=7, dead=set(), idle=[None])
	counted = summary.Savings()
	counted.begin(session)
	found = counted.find_parked(session, 5)
	assert found is not None
	assert (found.parked, round(found.gained, 3)) == (3, 0.3)
	assert counted.find_parked(session, 5) is None


def test_the_engine_tells_what_parking_saves(waf: Any, project: Any, runtime: pathlib.Path, engine: str) -> None:
	"""The engine's words about a parked program have the number that we look for."""
	status = {
		"on": True,
		"commands": 2,
		"programs": [{"words": "parked, it saves 19.1 ms of 31.0 ms (62 %)", "commands": 2}],
	}
	parking = summary.read_parking({"parking": status, "totals": {"succeeded": 3, "failed": 1}})
	assert parking == summary.Parking(4, 2, pytest.approx(0.0382))
	source = pathlib.Path(__file__).parent.parent / "engine" / "src" / "park" / "trial.rs"
	assert len(re.findall(r"it saves \{words\}", source.read_text())) == 2
	assert '"{:.1} ms of {:.1} ms"' in source.read_text()
	assert summary.read_parking({"parking": {"on": False}}) is None


# ---- the line of -p


class Screen:
	"""A terminal on which Waf runs."""

	def __init__(self, runtime: pathlib.Path) -> None:
		self.script = "import sys\nfrom waflib_extras import launcher\nlauncher.main()\n"
		self.runtime = runtime

	def run(self, folder: pathlib.Path, *args: str, columns: int = 80, env: Any = ()) -> str:
		"""All bytes that were written to the terminal."""
		master, slave = pty.openpty()
		fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
		environ = {**os.environ, "TERM": "xterm", **dict(env)}
		command = [sys.executable, "-c", self.script, *args]
		process = subprocess.Popen(
			command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
		)
		os.close(slave)
		shown: List[bytes] = []
		deadline = time.monotonic() + DEADLINE
		while time.monotonic() < deadline:
			if select.select([master], [], [], 1)[0]:
				try:
					data = os.read(master, 1 << 16)
				except OSError:  # all writers have closed it
					break
				if not data:
					break
				shown.append(data)
		os.close(master)
		assert process.wait(DEADLINE) == 0, b"".join(shown)
		return b"".join(shown).decode("utf-8", "replace")


@pytest.fixture
def screen(runtime: pathlib.Path) -> Screen:
	return Screen(runtime)


def strip(text: str) -> str:
	"""The text without colors and control sequences of the cursor."""
	return re.sub(r"\x1b\[[0-9;?]*[a-zA-JL-Z]", "", text)


def test_the_line_fits_the_terminal(screen: Screen, project: Any) -> None:
	"""Every line is shorter than the terminal is wide, and the last one is complete."""
	shown = strip(screen.run(project(PROJECT), "configure", "build", "-p", columns=60))
	lines = re.findall(re.escape(ERASE) + r"(\[\d[^\r\n]*)", shown)
	assert lines
	assert all(len(line) < 60 for line in lines)
	assert lines[-1].startswith("[6/6] [")
	assert re.search(r"\[6/6\] \[=+>\] 100% .*\d s\r\n", shown)


@on_cpython
def test_without_colors_and_cursor(screen: Screen, project: Any) -> None:
	"""On a simple terminal there are few, complete lines. The locale need not be UTF-8."""
	environ = {"TERM": "dumb", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
	shown = screen.run(project(PROJECT), "configure", "build", "-p", env=environ)
	assert "\x1b" not in shown
	assert "\r" not in shown.replace("\r\n", "")
	assert shown.count("[6/6]") == 1
	assert shown.isascii()


@on_cpython
def test_what_is_printed_takes_the_place_of_the_line(screen: Screen, project: Any) -> None:
	"""The messages of a command begin at the margin, on a row without remains."""
	wscript = WSCRIPT.replace("cat ${SRC} > ${TGT}", "cat ${SRC} > ${TGT}; echo beware")
	shown = strip(screen.run(project({**PROJECT, "wscript": wscript}), "configure", "build", "-p", "--no-wafcc"))
	assert shown.count("beware") == 6
	assert not re.search(r"[^\nK]beware", shown)


@on_cpython
def test_no_line_without_a_terminal(waf: Any, project: Any) -> None:
	"""There is no line in a pipe; -pp for an IDE, and -p without the tool, are Waf's own."""
	folder = project(PROJECT)
	done = waf(folder, "configure", "build", "-p")
	assert "[6/6]" not in done.stdout + done.stderr
	(folder / "in.txt").write_text("other text\n")
	done = waf(folder, "build", "-pp")
	assert len(re.findall(r"^\|Total 6\|Current \d\|Inputs in.txt\|Outputs \d.txt\|Time ", done.stdout, re.M)) == 6


@on_cpython
def test_stock_waf_has_its_own_line(screen: Screen, project: Any) -> None:
	"""With --no-prefork -p is Waf's own."""
	shown = strip(screen.run(project(PROJECT), "configure", "build", "-p", "--no-prefork"))
	assert re.search(r"\[6/6\]\[[-\\|/]100%\]\[=+>\]\[\d", shown.replace(" ", "")) or "][100%][" in shown.replace(
		" ", ""
	)


@pytest.mark.parametrize("hits", [None, 0.925])
@pytest.mark.parametrize("left", [None, 4000.0])
def test_any_width_will_do(hits: Any, left: Any) -> None:
	"""The most important parts stay longest: the count, then the percentage, then the time."""
	view = progress.View(4120, 50000, 35.2, hits, left, 61.0)
	for columns in range(1, 200):
		assert len(progress.compose(view, columns)) < max(columns, 2)
	assert progress.compose(view, 13) == "[ 4120/50000]"[:12]
	assert progress.compose(view, 20) == "[ 4120/50000]   8%"
	wide = progress.compose(view, 120)
	assert "8% 35/s" in wide
	assert ("1:06:40 left" if left else "1:01") in wide
	assert ("92% hits" in wide) == (hits is not None)


class Task(SimpleNamespace):
	__hash__ = object.__hash__


def make_task(bld: Any, name: str, hasrun: int) -> Any:
	node = SimpleNamespace(abspath=lambda: "/p/build/" + name)
	return Task(outputs=[node], inputs=[], hasrun=hasrun, generator=SimpleNamespace(bld=bld))


def test_what_remains_is_weighed_by_what_tasks_took(tmp_path: pathlib.Path) -> None:
	"""A task that took nine seconds counts more than one that took one. A new task counts as the mean."""
	bld = SimpleNamespace(
		bldnode=SimpleNamespace(abspath=lambda: "/p/build"), out_dir=str(tmp_path), variant="", cmd="build", groups=[]
	)
	long, short, new = (make_task(bld, name, done) for name, done in (("long", 0), ("short", 9), ("new", 0)))
	history.keep_times(bld, {long: 9_000_000, short: 1_000_000})
	bld.groups = [[SimpleNamespace(tasks=[long, short]), new]]
	meter = progress.Meter(bld, 0.0)
	assert meter.weigh(3) == (1.0, 1, 15.0)
	long.hasrun = 9
	assert meter.weigh(3) == (10.0, 2, 15.0)


def test_what_tasks_took_is_kept(waf: Any, project: Any) -> None:
	"""Times are kept by all builds, also after clean and configure. A file that cannot be read counts as none."""
	wscript = WSCRIPT.replace("cat ${SRC}", "sleep 0.01; cat ${SRC}").replace("range(6)", "range(2)")
	folder = project({**PROJECT, "wscript": wscript})
	waf(folder, "configure", "build")
	(file,) = (folder / "build").glob(".lock-waf-times*")
	times = history.read(str(file))
	assert sorted(times) == ["0.txt", "1.txt"]
	assert all(micros >= 10_000 for micros in times.values())
	waf(folder, "clean", "configure")
	assert history.read(str(file)) == times
	file.write_bytes(b"rubbish")
	assert history.read(str(file)) == {}
	waf(folder, "build", "--no-wafcc")
	assert sorted(history.read(str(file))) == ["0.txt", "1.txt"]
