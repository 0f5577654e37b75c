"""Waf skips a task with cache=True only while all facts of its command hold."""

import os
import pathlib
import subprocess
from typing import Any, Callable, Dict

import pytest
from conftest import on_cpython

KINDS: Dict[str, str] = {
	"size": "stat -c %%s d/size > ${TGT}",
	"mode": "stat -c %%a d/mode > ${TGT}",
	"time": "stat -c %%Y d/time > ${TGT}",
	"kind": "(test -f d/kind && echo file || echo other) > ${TGT}",
	"target": "readlink d/target > ${TGT}",
	"behind": "cat d/behind > ${TGT}",
	"resolved": "(basename $$(readlink -f d/resolved)) > ${TGT}",
	"listing": "ls d/listing > ${TGT}",
	"found": "echo d/found/* > ${TGT}",
	"absent": "(test -e d/absent && echo there || echo no) > ${TGT}",
	"dangling": "(test -e d/dangling && echo there || echo no) > ${TGT}",
	"within": "(test -e d/size/within && echo there || echo no) > ${TGT}",
	"variable": "(printenv FACT_VARIABLE || echo none) > ${TGT}",
	"names": "(env | grep -c ^FACT_) > ${TGT}",
	"unseen": "cat d/unseen > ${TGT}",
	"newer": "(test d/newer -nt d/older && echo newer || echo older) > ${TGT}",
}
WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	pass
def configure(conf):
	pass
def build(bld):
	for name, rule in %r.items():
		bld(rule=rule.replace(" d/", " ../d/"), target=name, cache=True)
	bld(rule="cat ${SRC} > ${TGT}", source="listing", target="next")
"""


class Project:
	"""A rule of each kind, and one that reads an output of another."""

	def __init__(self, waf: Any, folder: pathlib.Path, tools: str) -> None:
		self.waf, self.folder, self.tools = waf, folder, tools
		self.environ: Dict[str, str] = {"FACT_VARIABLE": "1"}
		self.waf(folder, "configure", tools=tools)

	def build(self, **environ: str) -> Dict[str, str]:
		"""Build, and return the outputs of the rules."""
		self.waf(self.folder, "build", tools=self.tools, env={**self.environ, **environ})
		return {name: (self.folder / "build" / name).read_text() for name in [*KINDS, "next"]}

	def __truediv__(self, name: str) -> pathlib.Path:
		return self.folder / "d" / name


@pytest.fixture
def made(waf: Any, project: Any, engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Callable:
	monkeypatch.setenv("HOME", str(tmp_path / "home"))

	def make(tools: str = "wafcc") -> Project:
		names = ("size", "mode", "time", "kind", "newer", "older", "unseen", "one", "two", "listing/a", "found/a")
		folder = project({"wscript": WSCRIPT % KINDS, **{"d/" + name: "12345" for name in names}})
		(folder / "d" / "two").write_text("54321")
		for name, target in (("target", "one"), ("behind", "one"), ("resolved", "one"), ("dangling", "nowhere")):
			(folder / "d" / name).symlink_to(target)
		for name in ("size", "time", "newer", "older", "unseen"):
			os.utime(folder / "d" / name, (10**9, 10**9))
		return Project(waf, folder, tools)

	return make


def change_all(project: Project) -> None:
	"""One edit for each kind. Most of them leave size and time of everything else."""
	for name, text in (("size", "123456"), ("unseen", "54321")):
		(project / name).write_text(text)
		os.utime(project / name, (10**9, 10**9))
	(project / "mode").chmod(0o600)
	os.utime(project / "time", (10**9 + 1, 10**9 + 1))
	(project / "kind").unlink()
	(project / "kind").mkdir()
	for name in ("target", "behind", "resolved"):
		(project / name).unlink()
		(project / name).symlink_to("two")
	(project / "listing" / "b").write_text("")
	(project / "found" / "b").write_text("")
	(project / "absent").write_text("")
	(project / "nowhere").write_text("")
	os.utime(project / "newer", (10**9 + 9, 10**9 + 9))
	project.environ.update(FACT_VARIABLE="2", FACT_OTHER="1")


CHANGED = {
	**{"size": "6\n", "mode": "600\n", "time": "1000000001\n", "kind": "other\n", "target": "two\n", "behind": "54321"},
	**{"resolved": "two\n", "listing": "a\nb\n", "found": "../d/found/a ../d/found/b\n"},
	**{"absent": "there\n", "dangling": "there\n", "within": "no\n", "variable": "2\n", "names": "2\n"},
	**{"unseen": "54321", "newer": "newer\n", "next": "a\nb\n"},
}


@pytest.mark.parametrize("tools", ["wafcc", pytest.param("wafcc large", marks=on_cpython)])
def test_each_kind_of_fact_makes_a_task_run(made: Any, tools: str) -> None:
	"""Size, mode, time, link, listing, absence, variable: each is seen by the next build; nothing runs after that."""
	project = made(tools)
	first = project.build()
	assert all(first[name] != CHANGED[name] for name in CHANGED if name != "within")
	change_all(project)
	assert project.build() == CHANGED
	done = project.waf(project.folder, "build", "--zones=wafcc", tools=tools, env=project.environ)
	assert ": miss" not in done.stdout and ": hit" not in done.stdout


@on_cpython
def test_what_cannot_be_observed_runs_in_each_build(waf: Any, project: Any, engine: str) -> None:
	"""A task that asked for the cache and reads the clock has no facts, so it always runs."""
	rule = "(date +%%N; cat ../seen) > ${TGT}"
	script = WSCRIPT.replace("%r.items", '{"made": %r}.items' % rule).replace("listing", "made")
	folder = project({"wscript": script, "seen": "1"})
	waf(folder, "configure", "build", tools="wafcc")
	before = (folder / "seen").stat()
	(folder / "seen").write_text("2")
	os.utime(folder / "seen", ns=(before.st_atime_ns, before.st_mtime_ns))
	waf(folder, "build", tools="wafcc")
	assert (folder / "build" / "next").read_text().endswith("\n2")


@on_cpython
def test_facts_hold_without_an_engine(made: Any) -> None:
	"""With the cache off each change is seen as well, and a task that ran so runs again until its facts are known."""
	project = made()
	project.build()
	change_all(project)
	assert project.build(WAFCC_DISABLE="1") == CHANGED
	(project / "listing" / "c").write_text("")
	assert project.build(WAFCC_DISABLE="1")["listing"] == "a\nb\nc\n"
	(project / "listing" / "d").write_text("")
	assert project.build()["listing"] == "a\nb\nc\nd\n"


@on_cpython
def test_facts_hold_after_a_restart_of_the_engine(made: Any, engine: str) -> None:
	"""Another engine with the same store, or no store, finds the same changes."""
	project = made()
	project.build()
	subprocess.run([engine, "stop", "--now"], check=True, timeout=60, capture_output=True)
	change_all(project)
	assert project.build() == CHANGED


@on_cpython
def test_what_was_built_without_the_tool_is_asked_for_once(made: Any, waf: Any) -> None:
	"""Stock Waf may have missed a change of a file that it does not look at."""
	project = made()
	waf(project.folder, "build", env=project.environ)
	change_all(project)
	assert project.build() == CHANGED


@on_cpython
def test_another_variable_alone_makes_nothing_run_that_does_not_ask(made: Any) -> None:
	"""A shell is given all variables, so that they count there; a compiler or a lone program is not."""
	project = made()
	project.build()
	project.environ["SHLVL"] = "17"
	done = project.waf(project.folder, "build", "--zones=wafcc", tools="wafcc", env=project.environ)
	assert ": miss" not in done.stdout and ": hit" not in done.stdout
