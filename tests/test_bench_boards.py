"""utils/bench.py boards: builds of two boards, which differ in macros."""

import pathlib
import sys
from typing import Dict

import pytest
from test_bench_campaign import BENCH, compare_texts

sys.path.insert(0, str(BENCH.parent))

from benchmark.boards import PARTS, Boards
from benchmark.mistake import Failed
from benchmark.project import Project

PATIENCE = 240
NINJA = "cxx = g++\ncxxflags = -O0\nrule cxx\n  command = $cxx $cxxflags -c $in\n"


def make(root: pathlib.Path, users: int) -> Project:
	(root / "lib_0").mkdir()
	(root / "build.ninja").write_text(NINJA)
	(root / "lib_0/common.h").write_text("#pragma once\n")
	for number in range(9):
		text = '#include "common.h"\n' if number < users else ""
		(root / ("lib_0/source_%d.cpp" % number)).write_text(text)
	return Project(str(root), "c++")


def test_boards_differ_and_go(tmp_path: pathlib.Path) -> None:
	"""In the command line, in a header, and in what some sources make of it."""
	project = make(tmp_path, 9)

	def look() -> Dict[str, str]:
		return {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}

	before = look()
	boards = Boards(project)
	seen = []
	for board in (1, 2, 1):
		boards.choose(board)
		seen.append(look())
	assert seen[0] == seen[2] != seen[1]
	changed = {name for name in seen[0] if seen[0][name] != seen[1][name]}
	assert changed == {"build.ninja", "board.h"}
	assert "cxxflags = -O0 -DBOARD=2 " in seen[1]["build.ninja"]
	using = [name for name in seen[0] if "BOARD_PIN" in seen[0][name] and name != "board.h"]
	assert sorted(using) == ["lib_0/source_0.cpp", "lib_0/source_8.cpp"]
	assert seen[0]["lib_0/common.h"] == '#include "board.h"\n#pragma once\n'
	boards.restore()
	assert look() == before


def test_a_project_in_which_not_all_sources_include_a_header(tmp_path: pathlib.Path) -> None:
	with pytest.raises(Failed, match="use --common, and one library"):
		Boards(make(tmp_path, 8))


@pytest.mark.timeout(PATIENCE + 60)
def test_campaign(tmp_path: pathlib.Path, engine: str) -> None:
	"""With texts compared, the second board shares all sources but those that use what differs."""
	hits = compare_texts(tmp_path, engine, "boards", "1,2,1,0", PATIENCE)
	assert list(hits["ninja+wafcc-texts"]) == list(PARTS)
	assert list(hits["ninja+wafcc-texts"].values()) == [0, 50, 100]
	assert list(hits["ninja+wafcc"].values()) == [0, 0, 100]
