"""utils/bench.py: its parts, without a campaign."""

import argparse
import io
import os
import pathlib
import re
import signal
import sys
from typing import Any, Dict, List, Optional

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCH = ROOT / "utils" / "bench.py"
sys.path.insert(0, str(BENCH.parent))

import bench  # noqa: E402
from benchmark import arguments, campaign, contender, ledger, report, scenario, summary, table, workshop  # noqa: E402
from benchmark.compiler import both_commands  # noqa: E402
from benchmark.interpreter import Interpreter, labels_of  # noqa: E402
from benchmark.interrupt import Interrupted, Interrupts  # noqa: E402
from benchmark.mistake import Failed, Mistake  # noqa: E402
from benchmark.progress import Progress, duration  # noqa: E402
from benchmark.project import Project, program_of, rebind  # noqa: E402
from benchmark.run import Lane  # noqa: E402

# ---- statistics


@pytest.mark.parametrize(
	("values", "expected"),
	[
		([7.0], (7.0, 7.0, 7.0, 7.0, 7.0, 1)),
		([5.0, 1.0, 2.0, 3.0, 4.0], (3.0, 1.0, 2.0, 4.0, 5.0, 5)),
		([1.0, 9.0, 2.0], (2.0, 1.0, 1.5, 5.5, 9.0, 3)),
		([1.0, 2.0, 3.0, 8.0], (2.5, 1.0, 1.75, 4.25, 8.0, 4)),
	],
)
def test_summary(values: List[float], expected: tuple) -> None:
	"""A summary is the median, the least, the quartiles, the most and the number of values, for odd and even ones."""
	assert summary.summarize(values) == expected


def test_spread() -> None:
	"""The spread is relative to the median, and nothing is said where that is zero."""
	assert summary.summarize([2.0, 4.0, 5.0]).spread == 0.75
	assert summary.summarize([0.0, 0.0]).spread is None


def test_paired_ratio() -> None:
	"""Pairs are made within a repetition, what only one of both has is left out, and their median is taken."""
	base = {0: 1.0, 1: 10.0, 2: 2.0, 4: 7.0}
	assert summary.paired_ratio({0: 2.0, 1: 20.0, 2: 6.0, 3: 1.0}, base) == 2.0
	assert summary.paired_ratio({3: 1.0}, base) is None
	assert summary.ratio(3.0, 2.0) == 1.5
	assert summary.ratio(3.0, 0.0) is None


# ---- tables


@pytest.mark.parametrize(
	("value", "text"),
	[(None, "-"), (0.00312, "0.0031"), (0.5, "0.500"), (9.8765, "9.877"), (47.712, "47.71"), (1203.55, "1203.5")],
)
def test_number(value: Optional[float], text: str) -> None:
	"""Small values keep more digits behind the point than large ones."""
	assert table.number(value) == text


def test_layout() -> None:
	"""Words are aligned to the left and numbers to the right, each column as wide as its widest cell."""
	text = table.layout(["name", "s"], [["waf", "10.5"], ["waf-nopool", "9.25"]], words=1)
	assert text.splitlines() == ["  name           s", "  waf         10.5", "  waf-nopool  9.25"]


def test_bold_only_on_request() -> None:
	"""Escape sequences are written only where they were asked for."""
	assert "\033" not in report.report(filled_record())
	assert "\033[1m" in report.report(filled_record(), bold=True)


# ---- the record and its report


def run_of(contender_name: str, repetition: int, wall: float, **changes: Any) -> Dict[str, Any]:
	"""A run as a record holds it."""
	base = {
		"scenario": "spin",
		"part": "",
		"contender": contender_name,
		"compiler": "g++",
		"interpreter": None,
		"repetition": repetition,
		"values": {"wall": wall, "peak": 8.0},
		"aside": {},
	}
	return {**base, **changes}


def filled_record() -> Dict[str, Any]:
	"""A record with a scenario that this bench.py does not know."""
	settings = {
		"contenders": ["slow", "fast"],
		"interpreters": [],
		"baseline": "slow",
		"size": "1,2,3,4",
		"jobs": None,
		"cores": 2,
		"repeat": 2,
		"language": "c",
		"weight": None,
		"flags": None,
		"seed": 0,
		"commands": {},
		"real": {},
		"notes": {"fast": "cuts corners"},
	}
	machine = {"versions": {"make": "GNU Make 4.3"}, "memory_gib": 2.0}
	machine.update(dict.fromkeys(("processor", "cores", "system", "kernel", "filesystem", "load", "date"), "some"))
	machine["command"] = "bench.py spin"
	about = {"title": "round and round", "measures": [["wall", "s"], ["peak", "MiB"]], "compiles": True}
	about["baseline"] = "slow"
	filled = ledger.new_record(settings, machine, {"spin": about}, [["sccache", "is not installed"]])
	filled["runs"] = [run_of("fast", 0, 1.0), run_of("slow", 0, 2.0), run_of("slow", 1, 4.0), run_of("fast", 1, 3.0)]
	filled["finished"] = True
	return filled


def test_report_compares_with_the_baseline() -> None:
	"""Rows stand in the order of the request, with the ratio of medians and the median of paired ratios."""
	lines = report.report(filled_record()).splitlines()
	assert lines[0] == "spin, g++: round and round"
	rows = [line.split() for line in lines[2:4]]
	assert rows[0] == ["slow", "-", "3.000", "2.000", "4.000", "67", "%", "8.000", "1.00", "1.00", "2"]
	assert rows[1] == ["fast", "-", "2.000", "1.000", "3.000", "100", "%", "8.000", "0.67", "0.62", "2"]


def test_report_says_what_is_missing() -> None:
	"""What was left out, what failed, what a contender does not do and an early end are told below the tables."""
	filled = filled_record()
	filled["finished"] = False
	filled["failures"] = [dict(run_of("fast", 1, 0.0), reason="exit status 1: g++ -c")]
	text = report.report(filled)
	assert "left out: sccache: is not installed" in text
	assert "FAILED: spin (fast, g++), repetition 2: exit status 1: g++ -c" in text
	assert "fast: cuts corners" in text
	assert "not finished" in text
	assert "version    make: GNU Make 4.3" in text


def test_report_without_the_baseline() -> None:
	"""Where the baseline measured nothing, no ratio is printed, and the rest is."""
	filled = filled_record()
	filled["runs"] = [run for run in filled["runs"] if run["contender"] == "fast"]
	row = report.report(filled).splitlines()[2].split()
	assert row[-3:] == ["-", "-", "2"]


def test_tables_are_split_by_compiler_and_part() -> None:
	"""Runs of two compilers, or two parts of one scenario, are never mixed in one table."""
	runs = [run_of("a", 0, 1.0), run_of("a", 0, 1.0, compiler="clang++"), run_of("a", 0, 1.0, part="2 threads")]
	assert [key for key, _ in report.tables_of(runs)] == [
		("spin", "", "g++"),
		("spin", "", "clang++"),
		("spin", "2 threads", "g++"),
	]


def test_record_round_trip(tmp_path: pathlib.Path) -> None:
	"""What is written is read back the same, and no partial file stays beside it."""
	path = tmp_path / "r.json"
	ledger.write_record(filled_record(), str(path))
	assert ledger.read_record(str(path)) == filled_record()
	assert os.listdir(str(tmp_path)) == ["r.json"]


@pytest.mark.parametrize(
	("content", "message"),
	[
		("{", "is not JSON"),
		("[]", "is not a record of bench.py"),
		('{"format": "other"}', "is not a record of bench.py"),
		('{"format": "waflib-extras-bench", "version": 99}', "has version 99"),
	],
)
def test_foreign_records_are_refused(
	tmp_path: pathlib.Path, capsys: pytest.CaptureFixture, content: str, message: str
) -> None:
	"""``show`` answers a file that it cannot show with one line that names it."""
	path = tmp_path / "r.json"
	path.write_text(content)
	assert bench.main(["show", str(path)]) == 2
	error = capsys.readouterr().err
	assert message in error and str(path) in error and error.count("\n") == 1


# ---- the order of runs


def lane(name: str, compiler: Optional[str] = "g++", interpreter: Optional[str] = None) -> Lane:
	"""A lane that is never run."""
	python = Interpreter(interpreter, interpreter, "", "", "", "") if interpreter else None
	return Lane(contender.find_contender(name), both_commands(compiler) if compiler else None, python)


def test_rotation() -> None:
	"""In as many repetitions as there are lanes, each is the first one once, and the others follow in their order."""
	turns = [campaign.rotated("abc", n) for n in range(4)]
	assert turns == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
	assert campaign.rotated([], 3) == []


def test_plan_alternates() -> None:
	"""Lanes of one scenario stand side by side, in each repetition from another one on; xargs has no second build."""
	lanes = [lane("waf", interpreter="python3"), lane("ninja"), lane("xargs")]
	wanted = [scenario.SCENARIOS["full"], scenario.SCENARIOS["noop"]]
	steps = campaign.plan(wanted, lanes, 2)
	assert [(s.repetition, s.scenario.name, s.lane.contender.name) for s in steps] == [
		*((0, "full", name) for name in ("waf", "ninja", "xargs")),
		*((0, "noop", name) for name in ("waf", "ninja")),
		*((1, "full", name) for name in ("ninja", "xargs", "waf")),
		*((1, "noop", name) for name in ("ninja", "waf")),
	]


def test_plan_edits_in_step() -> None:
	"""All lanes of a scenario, compiler and repetition edit to the same version, and no two such groups do."""
	lanes = [lane(name, compiler) for compiler in ("g++", "clang++") for name in ("ninja", "make")]
	steps = campaign.plan([scenario.SCENARIOS["onefile"]], lanes, 2)
	groups = {(s.repetition, s.lane.compiler, s.version) for s in steps}
	assert len(steps) == 8 and len(groups) == 4 and len({version for _, _, version in groups}) == 4


def test_plan_without_compilers() -> None:
	"""What compiles nothing is run once for all compilers, and a cache for compilers takes no part in it."""
	lanes = [lane(n, c, "python3") for c in ("g++", "clang++") for n in ("waf", "waf+ccache")] + [lane("ninja")]
	steps = campaign.plan([scenario.SCENARIOS["client"], scenario.SCENARIOS["curve"]._replace(jobs=())], lanes, 1)
	assert [(s.scenario.name, *s.lane.names) for s in steps] == [
		("client", "waf", "", "python3"),
		("curve", "waf", "", "python3"),
		("curve", "ninja", "", ""),
	]


def test_progress_estimates_what_remains() -> None:
	"""A kind of step that was done counts as it took, an unknown one as the mean; at first nothing is said."""
	stream = io.StringIO()
	progress = Progress(stream)
	progress.begin("first", [("a", 1)])
	progress.learn("a", 1, 2.0)
	progress.learn("b", 1, 4.0)
	progress.begin("next", [("c", 1), ("a", 1)])
	assert stream.getvalue() == "first\nnext, about 5 s left\n"
	assert [duration(s) for s in (5.4, 65, 3720)] == ["5 s", "1 min 05 s", "1 h 02 min"]


# ---- the parts that touch files


def test_edit_is_the_same_for_all(tmp_path: pathlib.Path) -> None:
	"""A source is written once per version, however many contenders come, and never grows from edit to edit."""
	source = tmp_path / "lib_0" / "class_0.cpp"
	source.parent.mkdir()
	source.write_text("int zero;\n")
	project = Project(str(tmp_path))
	project.edit(7)
	os.utime(str(source), (1, 1))
	project.edit(7)
	assert source.stat().st_mtime == 1
	assert project.edit(8) == os.path.join("lib_0", "class_0.cpp")
	assert source.read_text() == "int zero;\n\nint edited_by_bench(void) { return 8; }\n"


def test_folders_are_new_and_empty_objects_do_not_count(tmp_path: pathlib.Path) -> None:
	"""Each build folder is another one, and an object without content is none."""
	project = Project(str(tmp_path))
	first, second = project.new_folder("waf"), project.new_folder("waf")
	assert first != second
	(tmp_path / second / "a.o").write_text("")
	(tmp_path / second / "b.o").write_text("x")
	assert [os.path.basename(path) for path in project.objects(second)] == ["b.o"]
	assert project.objects(first) == {}


def test_rebind() -> None:
	"""A variable of a ninja file is replaced where it is bound and nowhere else; one that is not bound is an error."""
	text = "folder = out-ninja\nbuilddir = $folder\n"
	assert rebind(text, "folder", r"b\1") == "folder = b\\1\nbuilddir = $folder\n"
	with pytest.raises(Failed, match="no variable named cxx"):
		rebind(text, "cxx", "g++")


def test_program_of() -> None:
	"""xargs can run the compiler itself only where all lines begin with the same one."""
	assert program_of(["g++ -I. -c a.cpp", "g++ -c b.cpp"]) == ["g++"]
	assert program_of(["ccache g++ -c a.cpp"]) == ["ccache", "g++"]
	assert program_of(["gcc -c a.c", "g++ -c b.cpp"]) is None
	assert program_of(["sleep 0.1"]) == ["sleep"]


@pytest.mark.parametrize(
	("name", "cc", "cxx"),
	[
		("g++", "gcc", "g++"),
		("clang", "clang", "clang++"),
		("/opt/bin/clang++-14", "/opt/bin/clang-14", "/opt/bin/clang++-14"),
		("aarch64-linux-gnu-gcc-12", "aarch64-linux-gnu-gcc-12", "aarch64-linux-gnu-g++-12"),
		("tcc", "tcc", "tcc"),
	],
)
def test_both_commands(name: str, cc: str, cxx: str) -> None:
	"""The C and the C++ command of a compiler are found from either, with version and target."""
	assert both_commands(name)[1:] == (cc, cxx)


def test_labels() -> None:
	"""Interpreters are shown by their short names, unless two have the same."""
	assert labels_of(["/usr/bin/pypy3", "python3.8"]) == ["pypy3", "python3.8"]
	assert labels_of(["/a/python3", "/b/python3"]) == ["/a/python3", "/b/python3"]


def test_environment_of_the_measured() -> None:
	"""Variables that change how something is built, or how fast, do not reach the contenders; others do."""
	foreign = ("CXX", "CFLAGS", "MAKEFLAGS", "PYTHONDONTWRITEBYTECODE", "CCACHE_DIR", "WAF_NO_PREFORK", "NINJA_STATUS")
	found = workshop.clean_environment({**dict.fromkeys(foreign, "x"), "PATH": "/bin", "HOME": "/root"})
	assert found == {"PATH": "/bin", "HOME": "/root"}


def test_interrupts_wait_until_they_are_let_through() -> None:
	"""A signal that comes while they are held stops the benchmark right after, not in between."""
	interrupts = Interrupts()
	reached = False
	with pytest.raises(Interrupted) as stopped, interrupts.held():
		with interrupts.held():
			interrupts.handle(signal.SIGTERM, None)
		reached = True
	assert reached and stopped.value.exit_status == 143
	with pytest.raises(Interrupted):
		interrupts.handle(signal.SIGINT, None)


# ---- who takes part


def test_missing_program(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
	"""A contender whose program is missing is an error for who asked for it, and is left out for who did not."""
	monkeypatch.setenv("PATH", str(tmp_path))
	with pytest.raises(Mistake, match=r"contender ninja\+ccache cannot take part: ccache is not installed"):
		bench.choose_contenders(
			argparse.Namespace(scenarios=["full"], contenders=["ninja+ccache"], baseline=None, engines={})
		)
	chosen, left_out = bench.choose_contenders(
		argparse.Namespace(scenarios=["full"], contenders=None, baseline=None, engines={})
	)
	assert "waf-nopool" in contender.names_of(chosen)
	assert ("ninja", "ninja is not installed") in left_out
	with pytest.raises(Mistake, match="contender ninja cannot take part"):
		bench.choose_contenders(argparse.Namespace(scenarios=["full"], contenders=None, baseline="ninja", engines={}))


def test_list_names_everything() -> None:
	"""``--list`` names every scenario and every contender that is there by default."""
	text = arguments.listing()
	for name in (*scenario.SCENARIOS, *contender.DEFAULT):
		assert re.search(r"^  %s  " % re.escape(name), text, re.MULTILINE)


@pytest.mark.parametrize("name", scenario.SCENARIOS)
def test_a_scenario_alone_has_contenders(name: str) -> None:
	"""A command that names a scenario and no contender has some to run it with, if the machine has what they need."""
	needed = scenario.SCENARIOS[name].needs
	assert any(needed in contender.find_contender(one).abilities for one in contender.DEFAULT)


def test_an_empty_cache_knows_compilers(tmp_path: pathlib.Path) -> None:
	"""The next empty cache of a lane knows which compilers are parked, and nothing else of the one before."""
	place = workshop.Workshop(str(tmp_path), {})
	one, lane = contender.find_contender("waf+wafcc"), ("waf+wafcc", "", "")
	folders = []
	for _ in range(2):
		place.new_cache(one, lane)
		folders.append(pathlib.Path(place.caches[lane].engine.folder))
		(folders[-1] / "wafd.store").write_text("")
		if not folders[1:]:
			(folders[0] / "wafd.verdicts").write_text("[]")
			(folders[0] / "wafd.log").write_text("")
	assert sorted(os.listdir(str(folders[1]))) == ["wafd.store", "wafd.verdicts"]
	assert not folders[0].exists()
	assert place.close(keep=False) == []


def test_one_engine_for_each_environment(tmp_path: pathlib.Path) -> None:
	"""Lanes share an engine when they want the same of it; any other wish makes an engine in a folder of its own."""
	place = workshop.Workshop(str(tmp_path), {})
	plain = place.our_engine({"WAFD_PARK": "no"})
	assert place.our_engine({}) is place.our_engine({}) and place.our_engine({"WAFD_PARK": "no"}) is plain
	assert plain.folder != place.our_engine({}).folder
	assert plain.environment["WAFD_PARK"] == plain.env["WAFD_PARK"] == "no"
	assert "WAFD_PARK" not in place.our_engine({}).env
	assert place.close(keep=False) == [] and os.listdir(str(tmp_path)) == []
