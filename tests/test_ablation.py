"""``utils/bench.py ablation``: the patches that take parts out, and the table that judges them. No engine is built."""

import pathlib
import re
import subprocess
import sys
from typing import Any, Dict, List

import pytest
from test_bench_campaign import BENCH, finish, need, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import ablation, arguments, contender, report, scenario, verdict
from benchmark.mistake import Mistake
from test_bench import filled_record

ROOT = BENCH.parent.parent


@pytest.mark.parametrize("part", ablation.PARTS)
def test_each_patch_applies(tmp_path: pathlib.Path, part: str) -> None:
	"""A patch takes its part out of a copy of this tree, and changes a file that is there."""
	need("git")
	for name in ("engine", "waflib_extras"):
		ablation.copy_tree(str(tmp_path), name)
	ablation.apply_patch(str(tmp_path), part)
	patch = (pathlib.Path(ablation.HERE) / (part + ".patch")).read_text()
	changed = re.findall(r"^\+\+\+ b/(.+)$", patch, re.MULTILINE)
	assert changed
	assert all((tmp_path / name).read_bytes() != (ROOT / name).read_bytes() for name in changed)
	others = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if path.is_file()} - set(changed)
	assert all((tmp_path / name).read_bytes() == (ROOT / name).read_bytes() for name in others)


def test_every_patch_has_a_part() -> None:
	"""There is a patch for each part and a part for each patch, and what measures them is there."""
	assert {path.stem for path in pathlib.Path(ablation.HERE).iterdir()} == set(ablation.PARTS)
	for part in ablation.PARTS:
		for name, whole, without in ablation.pairs_of(part):
			assert name in scenario.SCENARIOS
			labels = {ablation.WHOLE: "somewhere", ablation.WITHOUT + part: "elsewhere"}
			one, other = (contender.find_contender(text, labels) for text in (whole, without))
			assert scenario.SCENARIOS[name].needs in one.abilities & other.abilities
			assert (one.name, one.programs) != (other.name, other.programs)


def test_patch_that_does_not_apply(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
	"""A patch of code that is another by now is told of in one line, with the remedy."""
	need("git")
	ablation.copy_tree(str(tmp_path), "waflib_extras")
	target = tmp_path / "waflib_extras" / "resident" / "sketch.py"
	target.write_text(target.read_text().replace("words = argv", "others = argv"))
	with pytest.raises(Mistake, match=r"does not apply any more .*take the part out in a copy") as told:
		ablation.apply_patch(str(tmp_path), "prestart")
	assert "\n" not in str(told.value)


def test_patch_that_does_not_apply_ends_the_benchmark(tmp_path: pathlib.Path) -> None:
	"""The benchmark ends with a status that is not zero then, and measures nothing."""
	need("git")
	for name in ("utils", "engine", "waflib_extras"):
		ablation.copy_tree(str(tmp_path), name)
	(tmp_path / "engine" / "build.rs").write_text("fn main() {}\n")
	done = subprocess.run(
		[sys.executable, str(tmp_path / "utils" / "bench.py"), "ablation", "--parts", "front"],
		cwd=str(tmp_path),
		capture_output=True,
		encoding="utf-8",
		timeout=60,
	)
	assert done.returncode == 2 and done.stdout == ""
	assert done.stderr.startswith("bench.py: utils/benchmark/ablation/front.patch does not apply any more")
	assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
	("args", "said"),
	[
		(["--parts", "roof"], "part roof is not known: choose from front, lead"),
		(["full"], "ablation chooses its scenarios itself"),
		(["--contenders", "waf"], "ablation chooses its contenders itself"),
	],
)
def test_mistakes(args: List[str], said: str) -> None:
	"""Parts that are not there, and what follows from the parts, are refused."""
	with pytest.raises(Mistake, match=said):
		arguments.parse_ablation(args)


def test_what_takes_part() -> None:
	"""Contenders and scenarios follow from the parts, each once."""
	options = arguments.parse_ablation(["--parts", "front,lead"])
	assert options.scenarios == ["warm", "hit"]
	assert options.contenders[:3] == ["single+wafcc@whole", "ninja+wafcc@whole", "socket@whole"]
	assert sorted(options.contenders) == sorted(set(options.contenders))
	assert "socket@without-front" not in options.contenders and "socket@without-lead" in options.contenders


def judged(whole: List[float], without: List[float]) -> Dict[str, Any]:
	"""A record with one part that was measured so."""
	record = filled_record()
	record["settings"]["ablation"] = [
		{"part": "porch", "title": "porch.c", "scenario": "spin", "with": "slow@whole", "without": "slow@without-porch"}
	]
	names = {"slow@whole": whole, "slow@without-porch": without}
	record["runs"] = [
		dict(record["runs"][0], contender=name, part="round", repetition=n, values={"wall": value})
		for name, values in names.items()
		for n, value in enumerate(values)
	]
	return record


def test_table() -> None:
	"""The table has medians, the paired ratio, what is saved and how often; below it is what becomes of the part."""
	text = verdict.show_verdicts(judged([9.0, 18.0, 10.0], [10.0, 20.0, 9.0]))
	lines = text.splitlines()
	assert lines[0] == "ablation: what each part saves; below 5 % of anything it goes"
	assert " ".join(lines[2].split()) == "porch.c spin, round, g++, slow s 10.00 10.00 0.90 10.0 % 2 of 3"
	assert lines[4] == "  porch.c: stays: it saves 10.0 % in spin, round, g++, slow"
	assert text in report.report(judged([9.0, 18.0, 10.0], [10.0, 20.0, 9.0]))


@pytest.mark.parametrize(
	("whole", "without", "said"),
	[
		([1.0, 1.0, 1.0], [1.04, 1.04, 1.04], "goes: at most it saves 3.8 %"),
		([2.0, 2.0, 2.0], [1.0, 1.0, 1.0], "goes: at most it saves -100.0 %"),
		([1.0, 1.0], [9.0, 9.0], "undecided: 2 repetitions are too few"),
	],
)
def test_verdicts(whole: List[float], without: List[float], said: str) -> None:
	"""A part that saves less than a twentieth goes, and few repetitions say nothing."""
	assert said in verdict.show_verdicts(judged(whole, without))


def test_campaign(tmp_path: pathlib.Path) -> None:
	"""The resident process is measured with and without builds that are begun ahead, and judged."""
	need("git", "g++")
	args = ("ablation", "--parts", "prestart", "--size", "1,2,2,1", "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args))
	assert done.status == 0, done.err
	assert {run["contender"] for run in done.record["runs"]} == {"resident", "resident-without-prestart"}
	assert "prestart.py, sketch.py: undecided" in done.out
	assert done.left == [] and list(done.work.iterdir()) == []
