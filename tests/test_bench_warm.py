"""The scenario ``warm`` of utils/bench.py, and the contenders that ask their caches themselves."""

import pathlib
import sys

import pytest
from test_bench_campaign import BENCH, TINY, finish, need, start

sys.path.insert(0, str(BENCH.parent))

from benchmark import contender
from benchmark.mistake import Mistake
from benchmark.project import Project


def test_warm_builds_are_answered(tmp_path: pathlib.Path, engine: str) -> None:
	"""A warm build gets all its objects from the cache that another build has filled, into a folder that is new."""
	need("g++", "ninja", "ccache")
	names = ["ninja+ccache", "ninja+wafcc", "waf+wafcache", "ninja"]
	args = ("warm", "--contenders", ",".join(names), *TINY, "--repeat", "1", "--keep")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert {name: [one.get("hits") for one in ones] for name, ones in done.values("warm").items()} == {
		"ninja+ccache": [100],
		"ninja+wafcc": [100],
		"waf+wafcache": [None],
		"ninja": [None],
	}
	(builds,) = done.work.glob("bench-*/generated-g++/builds")
	(folder,) = builds.glob("*-waf+wafcache-*-before")
	linked = [path for path in folder.rglob("*.o") if path.samefile(str(path).replace("-before", ""))]
	assert len(linked) == len(list(folder.rglob("*.o"))) > 0
	assert len(list(builds.glob("*-ninja+ccache-*"))) == 2
	assert done.left == []


def test_cold_builds_are_not(tmp_path: pathlib.Path, engine: str) -> None:
	"""The cache of a full build knows nothing, though the same was built before."""
	need("g++", "ninja")
	args = ("full", "warm", "--contenders", "ninja+wafcc", *TINY, "--repeat", "2", "--keep")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	caches = sorted(path.name for path in done.work.glob("bench-*/caches/*"))
	assert caches == ["00%d-ninja+wafcc" % number for number in (1, 2, 3, 4)]
	assert [one["hits"] for one in done.values("warm")["ninja+wafcc"]] == [100, 100]


def test_two_builds_of_the_engine(tmp_path: pathlib.Path, engine: str) -> None:
	"""A contender with the name of an engine runs the programs of its folder, and the other those it ran before."""
	need("g++", "ninja")
	other = tmp_path / "other"
	other.mkdir()
	for name in ("wafd", "wafcc"):
		program = pathlib.Path(engine).with_name(name)
		# the shell would export the folder as PWD, which compilers look at
		script = f'#!/bin/sh\nunset PWD\necho "$1" >> {other}/{name}.calls\nexec {program} "$@"\n'
		(other / name).write_text(script)
		(other / name).chmod(0o755)
	names = ["ninja+wafcc", "ninja+wafcc@other", "prefork@other"]
	args = ("full", "warm", "--engine", f"other={other}", "--contenders", ",".join(names), *TINY, "--repeat", "1")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	assert [done.values("warm")[name][0]["hits"] for name in names[:2]] == [100, 100]
	calls = (other / "wafcc.calls").read_text().split()
	objects = 6
	assert calls.count("g++") == 3 * objects, "a build for each of the two scenarios, and one from the cache"
	assert "start" in (other / "wafd.calls").read_text().split()
	assert str(other) in done.out
	assert done.left == []


def test_folder_that_is_moved_aside(tmp_path: pathlib.Path) -> None:
	"""What was built stays, as deleting it would cost whoever comes next, and there is an empty folder in its place."""
	project = Project(str(tmp_path))
	folder = project.new_folder("any")
	(tmp_path / folder / "a.o").write_text("x")
	project.move_aside(folder)
	assert list((tmp_path / folder).iterdir()) == []
	assert (tmp_path / (folder + "-before") / "a.o").read_text() == "x"


def test_contenders_with_caches_of_their_own() -> None:
	"""Waf's tools for caching are contenders, with a cache of their own and no wrapper."""
	for name, cache, more in (
		("waf+wafcc", "EngineCache", {"edit", "precompile", "price"}),
		("waf+wafcache", "Wafcache", set()),
	):
		found = contender.find_contender(name)
		assert found.cache is not None and found.cache.__name__ == cache and not found.cache.wraps
		assert found.abilities == {"build", "rebuild"} | more
	wrapped = contender.find_contender("waf+ccache").cache
	assert wrapped is not None and wrapped.wraps
	for name in ("ninja+wafcache", "ninja+", "+ccache"):
		with pytest.raises(Mistake, match="is not known"):
			contender.find_contender(name)
