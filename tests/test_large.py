"""The patches of `large` against Waf as it is, on random graphs of tasks."""

import gc
import os
import random
import sys
from typing import Any, List

import large_support
import pytest
from conftest import on_cpython

from waflib_extras import large

COUNT = int(os.environ.get("LARGE_SEEDS", "8"))
WITHOUT = [] if hasattr(gc, "freeze") else ["collector"]
NAMES = [patch.name for patch in large.PATCHES]


def draw_seeds(count: int = COUNT) -> List[int]:
	"""Random seeds; pytest shows them if a test fails."""
	seeds = [random.SystemRandom().randrange(1 << 30) for _ in range(count)]
	print("seeds", *seeds)
	return seeds


def compare(stock: Any, ours: Any, what: str) -> None:
	"""Check that builds of the same graphs have the same results, and that ours kept the order."""
	for seed, graph in stock.items():
		odd = large_support.differences(graph, ours[seed])
		assert not odd, f"seed {seed}, {what}: other {', '.join(odd)}"
		assert not large_support.disorders(ours[seed]), f"seed {seed}, {what}"


def compare_twice(waf: Any, project: Any, seeds: List[int], tools: str = "large", **kwargs: Any) -> None:
	"""Build random graphs with Waf as it is and with our tools, each from nothing and again."""
	folder = large_support.lay_out(project)
	stock = large_support.build_twice(waf, folder, seeds, **kwargs)
	ours = large_support.build_twice(waf, folder, seeds, tools=tools, **kwargs)
	compare(stock[0], ours[0], "first build")
	compare(stock[1], ours[1], "second build")


def list_left_out(waf: Any, project: Any, **kwargs: Any) -> List[str]:
	"""The patches that do not fit this Waf."""
	done = waf(project({"wscript": "def options(opt):\n\topt.load('large')\n"}, "listed"), "large", **kwargs)
	return [line.split()[0] for line in (done.stdout + done.stderr).splitlines() if "left out:" in line]


def without_others(name: str) -> str:
	"""The option that leaves only one patch, with those that it needs."""
	needs = {patch.name: patch.needs for patch in large.PATCHES}
	return "--no-large=" + ",".join(other for other in NAMES if other != name and other not in needs[name])


def test_random_graphs_are_built_alike(waf: Any, project: Any) -> None:
	"""Constraints, priorities, tasks, outcomes, signatures and files are the same; also when there is little to do."""
	compare_twice(waf, project, draw_seeds())
	assert list_left_out(waf, project) == WITHOUT


@on_cpython
def test_each_patch_alone_changes_nothing(waf: Any, project: Any) -> None:
	"""Each patch is tried with all others left out."""
	seeds = draw_seeds(COUNT // 4)
	folder = large_support.lay_out(project)
	stock = large_support.build_twice(waf, folder, seeds)
	for name in NAMES:
		ours = large_support.build_twice(waf, folder, seeds, without_others(name), tools="large")
		compare(stock[0], ours[0], f"{name}, first build")
		compare(stock[1], ours[1], f"{name}, second build")


@on_cpython
def test_waf20_gives_the_same(waf: Any, project: Any, waf20: Any) -> None:
	"""Waf 2.0.24, without comments in its code, gives the same."""
	compare_twice(waf, project, draw_seeds(COUNT // 2), wafdir=waf20)
	assert list_left_out(waf, project, wafdir=waf20) == WITHOUT


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="Waf 2.0.12 is older than this Python")
def test_waf2012_gives_the_same(waf: Any, project: Any, jack_sources: Any) -> None:
	"""Waf 2.0.12, whose scheduler has one more step, gives the same."""
	compare_twice(waf, project, draw_seeds(COUNT // 2), wafdir=jack_sources)
	assert list_left_out(waf, project, wafdir=jack_sources) == WITHOUT


@on_cpython
@pytest.mark.parametrize("tools", ["prefork large", "large prefork wafcc"])
def test_other_tools_beside_it(waf: Any, project: Any, engine: str, tools: str) -> None:
	"""The order in which the tools are loaded has no effect."""
	compare_twice(waf, project, draw_seeds(COUNT // 4), tools)


@on_cpython
def test_each_reads_the_database_of_the_other(waf: Any, project: Any) -> None:
	"""A build of one is up to date for the other, and later changes have the same effects."""
	seeds = draw_seeds(COUNT // 4)
	folder = large_support.lay_out(project)
	_, stock = large_support.build_twice(waf, folder, seeds)
	large_support.build(waf, folder, seeds)
	compare(stock, large_support.build(waf, folder, seeds, tools="large"), "ours after stock")
	compare(stock, large_support.build(waf, folder, seeds), "stock after ours")
	(folder / "base.txt").write_text("other\n")
	ours = large_support.build(waf, folder, seeds, tools="large")
	(folder / "build").rename(folder / "ours")
	(folder / "base.txt").write_text("base\n")
	large_support.build(waf, folder, seeds)
	(folder / "base.txt").write_text("other\n")
	compare(large_support.build(waf, folder, seeds), ours, "an edit")
