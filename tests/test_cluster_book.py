"""docs/cluster.md: its commands make a cluster from nothing, and what is beside it is well formed."""

import configparser
import os
import pathlib
import shlex
import subprocess
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
	if os.geteuid():
		pytest.skip("the page has root start workers")
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


def test_rights(database: Database) -> None:
	"""The requests in rights.yml are those that BuildGrid knows."""
	import yaml  # BuildGrid brings it
	from buildgrid.server.auth.config import parse_auth_config

	asked = {x for rule in parse_auth_config(FILES / "rights.yml")["team"].allow for x in rule.requests or []}
	sources = pathlib.Path(str(yaml.__file__)).parents[1] / "buildgrid" / "server"
	known = "".join(path.read_text(encoding="utf-8") for path in sources.rglob("*service*.py"))
	assert len(asked) > 12
	assert [x for x in sorted(asked) if f"def {x}(" not in known] == []


def test_compose(database: Database) -> None:
	"""What the containers are given is in the folder, or the page makes it there."""
	import yaml  # BuildGrid brings it

	services = yaml.safe_load((FILES / "compose.yml").read_text(encoding="utf-8"))["services"]
	made = PAGE.read_text(encoding="utf-8").replace("$subject", "worker")
	given = [x.split(":")[0] for each in services.values() for x in each.get("volumes", []) if x.startswith("./")]
	assert services.keys() == {"queue", "server", "worker"}
	assert [x for x in given if pathlib.Path(x).name not in made] == []


@pytest.mark.parametrize("unit", sorted(FILES.glob("*.service")), ids=lambda path: path.stem)
def test_units(unit: pathlib.Path, engine: str) -> None:
	"""Each unit starts a program of ours or BuildGrid's with options that it has."""
	parser = configparser.ConfigParser(strict=False, interpolation=None)
	parser.optionxform = str  # type: ignore[assignment,method-assign]
	parser.read_string(unit.read_text(encoding="utf-8").replace("\\\n", " "))
	command = shlex.split(parser["Service"]["ExecStart"])
	if command[0].endswith("/bgd"):
		assert command[1:] == ["server", "start", "config.yml"]
		return
	assert command[:2] == ["/usr/bin/wafd", "worker"]
	shown = subprocess.run([engine, "worker", "--help"], capture_output=True, encoding="utf-8", check=True).stdout
	assert [x for x in command if x.startswith("--") and x not in shown] == []
