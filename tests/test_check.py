"""./waf check: what becomes of tests that fail now and then, and which tests are slow."""

import importlib.machinery
import importlib.util
import logging
import pathlib
import re
import sys
import types
from typing import Any, Callable, Dict, Iterator, List

import pytest
from conftest import ROOT, SLOW
from waflib import Logs, Options

sys.path.insert(0, str(ROOT / "utils"))

import slow_tests

# its first run fails, and those after it do not
UNLUCKY = """\
import os, pytest

@pytest.mark.parametrize("number", range({count}))
def test_unlucky(number):
	name = "seen %d" % number
	is_first = not os.path.exists(name)
	open(name, "w").close()
	assert not is_first or number >= {unlucky}

def test_wrong():
	assert {right}
"""
# the same for a test program of cargo
PROGRAM = """\
#!/bin/sh
echo "run" >> runs
if [ "$(wc -l < runs)" -gt {failures} ]; then exit 0; fi
echo "test folder::unlucky ... FAILED"
echo "test folder::lucky ... ok"
exit 101
"""


def load_wscript() -> types.ModuleType:
	loader = importlib.machinery.SourceFileLoader("wscript_of_the_tree", str(ROOT / "wscript"))
	module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
	loader.exec_module(module)
	return module


wscript = load_wscript()
Make = Callable[..., Any]


@pytest.fixture
def check(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
	"""A function that makes the `Check` of a tree which has tests of its own only."""

	def make(retry: bool = True, in_ci: bool = False) -> Any:
		monkeypatch.setattr(Logs, "log", logging.getLogger("check"))
		monkeypatch.setattr(Options, "options", types.SimpleNamespace(retry=retry, all=False, tests=""))
		if in_ci:
			monkeypatch.setenv("CI", "true")
		else:
			monkeypatch.delenv("CI", raising=False)
		monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
		for path in ("waf", "utils/programs.py"):
			(tmp_path / path).parent.mkdir(exist_ok=True)
			(tmp_path / path).symlink_to(ROOT / path)
		(tmp_path / "engine").mkdir()
		return wscript.Check(str(tmp_path))

	yield make


def write_tests(folder: pathlib.Path, unlucky: int, count: int = 20, right: bool = True) -> None:
	(folder / "test_it.py").write_text(UNLUCKY.format(count=count, unlucky=unlucky, right=right))


def run(check: Any) -> None:
	check.try_pytest(sys.executable, ["-n", "2"], ["-q", "-p", "no:randomly"])


class TestPython:
	@pytest.mark.parametrize("how", [{"retry": True}, {"retry": False, "in_ci": True}], ids=["option", "CI"])
	def test_second_try(self, check: Make, tmp_path: pathlib.Path, how: Dict[str, bool]) -> None:
		"""If few tests fail, and then do not, the step passes, and their names are kept for the summary."""
		write_tests(tmp_path, 10)
		made = check(**how)
		run(made)
		assert made.second_tries == sorted(f"test_it.py::test_unlucky[{n}]" for n in range(10))

	def test_not_asked(self, check: Make, tmp_path: pathlib.Path) -> None:
		"""Elsewhere a test that fails once fails."""
		write_tests(tmp_path, 1)
		made = check(retry=False)
		with pytest.raises(wscript.Failed):
			run(made)
		assert made.second_tries == []

	def test_many(self, check: Make, tmp_path: pathlib.Path) -> None:
		"""If more tests fail, none of them is run again."""
		write_tests(tmp_path, 11)
		made = check()
		with pytest.raises(wscript.Failed):
			run(made)
		assert made.second_tries == []

	def test_wrong_twice(self, check: Make, tmp_path: pathlib.Path) -> None:
		"""A test that fails again fails the step, though another one passes then."""
		write_tests(tmp_path, 1, right=False)
		made = check()
		with pytest.raises(wscript.Failed):
			run(made)
		assert made.second_tries == []

	def test_earlier_check(self, check: Make, tmp_path: pathlib.Path) -> None:
		"""What failed in an earlier check is not among those that are run again."""
		write_tests(tmp_path, 0, right=False)
		made = check()
		with pytest.raises(wscript.Failed):
			run(made)
		for mark in tmp_path.glob("seen *"):
			mark.unlink()
		write_tests(tmp_path, 1)
		run(made)
		assert made.second_tries == ["test_it.py::test_unlucky[0]"]

	def test_no_tests(self, check: Make, tmp_path: pathlib.Path) -> None:
		"""Tests that cannot even be loaded fail the step, and so does a pytest that finds none."""
		made = check()
		with pytest.raises(wscript.Failed):
			run(made)
		(tmp_path / "test_it.py").write_text("this is no Python\n")
		with pytest.raises(wscript.Failed):
			run(made)


class TestCargo:
	def programs(self, folder: pathlib.Path, failures: List[int]) -> Dict[str, List[str]]:
		"""A program for each number, which is how often it fails; its own folder counts."""
		commands = {}
		for number, count in enumerate(failures):
			place = folder / f"program {number}"
			place.mkdir()
			(place / "test").write_text(PROGRAM.format(failures=count).replace("runs", f"'{place}/runs'"))
			(place / "test").chmod(0o755)
			commands[f"tests/{number}.rs"] = [str(place / "test")]
		return commands

	def test_second_try(self, check: Make, tmp_path: pathlib.Path) -> None:
		"""A program that fails once is run again, whole; the others are not."""
		made = check()
		made.try_programs(self.programs(tmp_path, [0, 1]))
		assert made.second_tries == ["tests/1.rs: folder::unlucky"]
		assert [(tmp_path / f"program {n}" / "runs").read_text().count("run") for n in (0, 1)] == [1, 2]

	def test_wrong_twice(self, check: Make, tmp_path: pathlib.Path) -> None:
		"""One that fails twice fails the step, and the one that does not is told."""
		made = check()
		with pytest.raises(wscript.Failed, match=r"tests/1\.rs$"):
			made.try_programs(self.programs(tmp_path, [1, 2]))
		assert made.second_tries == ["tests/0.rs: folder::unlucky"]

	def test_not_asked(self, check: Make, tmp_path: pathlib.Path) -> None:
		"""Elsewhere a program that fails once fails."""
		made = check(retry=False)
		with pytest.raises(wscript.Failed, match=r"tests/0\.rs$"):
			made.try_programs(self.programs(tmp_path, [1]))


def test_summary(check: Make, caplog: pytest.LogCaptureFixture) -> None:
	"""The last lines of a check name what passed in its second try only."""
	made = check()
	made.second_tries = ["tests/test_it.py::test_unlucky"]
	made.run([], None)
	assert "passed only in its second try: tests/test_it.py::test_unlucky" in caplog.text


REPORT = """\
<testsuites><testsuite name="pytest">
<testcase classname="tests.test_a" name="test_quick" time="0.4" />
<testcase classname="tests.test_a" name="test_slow[one]" time="1.0" />
<testcase classname="tests.test_a" name="test_slow[two-a.b]" time="3.5" />
<testcase classname="tests.test_b.TestClass" name="test_slow" time="9" />
</testsuite></testsuites>
"""


class TestSlowTests:
	def test_list(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
		"""Tests are listed by the slowest of their parameters, and by the quickest of their runs."""
		reports = tmp_path / "one.xml", tmp_path / "other.xml"
		reports[0].write_text(REPORT)
		reports[1].write_text(REPORT.replace('"0.4"', '"9"').replace('"9"', '"12"'))
		monkeypatch.setattr(slow_tests, "LIST", tmp_path / "slow.txt")
		monkeypatch.setattr(sys, "argv", ["slow_tests", "--seconds=3", *map(str, reports)])
		assert slow_tests.main() == 0
		assert (tmp_path / "slow.txt").read_text() == "test_a.py::test_slow\ntest_b.py::TestClass::test_slow\n"
		assert capsys.readouterr().out == "2 of 3 tests are slow, and take 97 % of the time\n"

	@pytest.mark.parametrize("content", [None, "no report"])
	def test_mistakes(self, content: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
		"""Without a report, the list stays as it is."""
		report = tmp_path / "tests.xml"
		if content:
			report.write_text(content)
		monkeypatch.setattr(slow_tests, "LIST", tmp_path / "slow.txt")
		monkeypatch.setattr(sys, "argv", ["slow_tests", str(report)])
		assert slow_tests.main() == 1
		assert str(report) in capsys.readouterr().err
		assert not (tmp_path / "slow.txt").exists()

	def test_there_are_no_others(self) -> None:
		"""Each test in the list is there: one with a new name would be run by each check again."""
		assert len(SLOW) > 50
		for name in SLOW:
			file, *parts = name.split("::")
			text = (ROOT / "tests" / file).read_text(encoding="utf-8")
			assert [x for x in parts if not re.search(rf"^\t*(class|def) {x}\b", text, re.M)] == [], name
