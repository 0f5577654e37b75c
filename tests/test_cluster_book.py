"""docs/cluster.md: its commands make a cluster from nothing, and what is beside it is well formed."""

import os
import pathlib
from typing import Dict, Iterator

import pytest

if not os.environ.get("CI"):
	pytest.importorskip("myst_parser", reason="pip install -r docs/requirements.txt")
import book_pages
from cluster_support import BUILDGRID, OWNER, Database, call_buildgrid
from conftest import ROOT
from test_book import reader  # noqa: F401
from tier_support import free_port

PAGE = ROOT / "docs" / "cluster.md"
FILES = ROOT / "playground" / "cluster"


@pytest.fixture
def administrator(reader: Dict[str, str], database: Database) -> Iterator[Dict[str, str]]:  # noqa: F811
	"""A reader who may make databases, and has BuildGrid."""
	path = os.pathsep.join([os.path.dirname(str(BUILDGRID)), database.programs, reader["PATH"]])
	first = reader["PATH"].split(os.pathsep)[0]
	yield {
		**reader,
		"PATH": os.pathsep.join([first, path]),
		"PGHOST": str(database.folder),
		"PGUSER": OWNER,
	}
	database.ask("dropdb", "-h", str(database.folder), "-U", OWNER, "--force", "--if-exists", "buildgrid")


@pytest.mark.timeout(240)
def test_commands(administrator: Dict[str, str], tmp_path: pathlib.Path) -> None:
	"""A reader who types all commands of the page has a cluster that compiles."""
	notes = tmp_path / "notes"
	notes.mkdir()
	work = pathlib.Path(administrator["HOME"]) / "work"
	wrong = book_pages.follow(PAGE, work, notes, administrator, free_port())
	assert not wrong, "\n" + "\n".join(wrong)


def test_configuration(database: Database) -> None:
	"""BuildGrid accepts the configuration that users copy."""
	assert "passed validation" in call_buildgrid("server", "lint", str(FILES / "config.yml"))
