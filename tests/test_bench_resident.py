"""bench.py with residents: beside contenders that tell changes by times, and with a cache."""

import pathlib

from test_bench_campaign import TINY, finish, need, start


def test_beside_others(tmp_path: pathlib.Path, engine: str) -> None:
	"""Contenders that tell changes by times take part with residents, though these edit and edit back on their own."""
	need("g++", "ninja")
	lanes = "ninja,waf+wafcc-resident"
	args = ("noop", "onefile", "--contenders", lanes, *TINY, "--repeat", "2")
	done = finish(tmp_path, start(tmp_path, *args, WAFD=engine))
	assert done.status == 0, done.err
	for scenario in ("noop", "onefile"):
		values = done.values(scenario)
		assert {name: len(runs) for name, runs in values.items()} == dict.fromkeys(lanes.split(","), 2), done.err
	assert done.record["failures"] == []
