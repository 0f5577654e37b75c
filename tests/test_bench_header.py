"""utils/bench.py header: builds after edits of a header that change no object."""

import pathlib
import sys

import pytest
from test_bench_campaign import BENCH, compare_texts

sys.path.insert(0, str(BENCH.parent))

from benchmark.headers import EDITS, Header
from benchmark.mistake import Failed
from benchmark.project import Project

PATIENCE = 240


def make(root: pathlib.Path) -> Project:
	(root / "lib_0").mkdir()
	for name, text in {
		"a.cpp": '#include "common.h"\n#include "a.h"\n#include "a.h"\n',
		"b.cpp": '#include "lib_0/common.h"\n',
		"a.h": "int a;\n",
		"common.h": "#ifndef C\n#define C\n\nint b;\n\n#endif\n",
	}.items():
		(root / "lib_0" / name).write_text(text)
	return Project(str(root), "c++")


def test_edits_come_amid_the_header_and_go(tmp_path: pathlib.Path) -> None:
	"""The header that most sources include gets one line after the other, and is what it was at the end."""
	header = Header(make(tmp_path))
	assert (pathlib.Path(header.path).name, header.users) == ("common.h", 2)
	path = tmp_path / "lib_0/common.h"
	before = path.read_text()
	texts = [before]
	for part, text in EDITS.items():
		header.add(part)
		texts.append(path.read_text())
		assert text in texts[-1] and texts[-1].startswith("#ifndef C\n") and texts[-1].endswith("#endif\n")
	assert len(set(texts)) == len(texts)
	header.restore()
	assert path.read_text() == before


def test_a_project_without_headers(tmp_path: pathlib.Path) -> None:
	(tmp_path / "lib_0").mkdir()
	(tmp_path / "lib_0/a.cpp").write_text("int a;\n")
	with pytest.raises(Failed, match="no source includes a header"):
		Header(Project(str(tmp_path), "c++"))


@pytest.mark.timeout(PATIENCE + 60)
def test_campaign(tmp_path: pathlib.Path, engine: str) -> None:
	"""With texts compared, all sources are hits after the first edits. A declaration has them compiled."""
	hits = compare_texts(tmp_path, engine, "header", "1,2,1,0", PATIENCE)
	assert list(hits["ninja+wafcc-texts"]) == list(EDITS)
	assert list(hits["ninja+wafcc-texts"].values()) == [100, 100, 100, 0]
	assert set(hits["ninja+wafcc"].values()) == {0} and set(hits["ninja"].values()) == {None}
