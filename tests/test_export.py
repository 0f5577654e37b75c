"""Entries that a client gets in a folder (`WAFCC_EXPORT`)."""

import os
import pathlib
import subprocess
import time
from typing import Callable, Dict

import pytest

PATIENCE = 60  # seconds
CLOCK_REALTIME_COARSE = 5  # not in `time`


class Exporter:
	"""Compiles through the wrapper, and reads what is left in a folder."""

	def __init__(self, engine: str, folder: pathlib.Path) -> None:
		self.engine, self.folder, self.export = engine, folder, folder / "made" / "here"
		self.wafcc = str(pathlib.Path(engine).with_name("wafcc"))
		names = [name for name in os.environ if not name.startswith("WAFCC_")]
		self.environ = {name: os.environ[name] for name in names}
		self.environ.update(WAFCC_DIR=str(folder / "store"), WAFCC_EXPORT=str(self.export), LC_ALL="C")

	def run(self, *argv: str, status: int = 0, **variables: str) -> "subprocess.CompletedProcess[str]":
		done = subprocess.run(
			[self.wafcc, *argv],
			cwd=self.folder,
			env=dict(self.environ, **variables),
			capture_output=True,
			text=True,
			timeout=PATIENCE,
			check=False,
		)
		assert done.returncode == status, f"{argv}: {done.stdout}{done.stderr}"
		return done

	def files(self) -> Dict[str, bytes]:
		found = (path for path in self.export.rglob("*") if path.is_file())
		return {str(path.relative_to(self.export)): path.read_bytes() for path in found}

	def why(self) -> str:
		"""The reason why there is no entry, which must be alone."""
		files = self.files()
		assert list(files) == ["why"], files.keys()
		return files["why"].decode()


def wait_for_later(path: pathlib.Path) -> None:
	"""A file that was written in the present tick of the kernel's clock is not trusted."""
	changed = path.stat().st_ctime_ns
	while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= changed:
		time.sleep(0.001)


@pytest.fixture
def exporter(engine: str, runtime: pathlib.Path, project: Callable[..., pathlib.Path]) -> Exporter:
	sources = {"x.c": '#include "x.h"\nint x(void) { return X; }\n', "x.h": "#define X 1\n", "wrong.c": "int x = y;\n"}
	return Exporter(engine, project(sources))


def test_a_compile_leaves_its_entry_and_its_blobs(exporter: Exporter) -> None:
	exporter.run("gcc", "-c", "x.c", "-o", "x.o")
	files = exporter.files()
	key = files["key"].decode()
	assert len(key) == 65 and int(key, 16) and key.endswith("\n")
	blobs = {name: content for name, content in files.items() if name.startswith("blobs/")}
	assert (exporter.folder / "x.o").read_bytes() in blobs.values()
	assert set(files) == {"key", "entry", *blobs}


def test_a_hit_leaves_the_same(exporter: Exporter) -> None:
	exporter.run("gcc", "-c", "x.c", "-o", "x.o")
	first = exporter.files()
	(exporter.folder / "x.o").unlink()
	exporter.run("gcc", "-c", "x.c", "-o", "x.o")
	assert exporter.files() == first
	assert '"hits": 1' in exporter.run("--show-stats", "--json").stdout


def test_nothing_of_an_earlier_command_stays(exporter: Exporter) -> None:
	exporter.run("gcc", "-c", "x.c", "-o", "x.o")
	first = exporter.files()
	(exporter.folder / "x.h").write_text("#define X 2\n")
	wait_for_later(exporter.folder / "x.h")
	exporter.run("gcc", "-c", "x.c", "-o", "x.o")
	second = exporter.files()
	assert first["key"] == second["key"] and first["entry"] != second["entry"]
	assert not set(first) & {name for name in second if name.startswith("blobs/")}
	exporter.run("gcc", "-c", "wrong.c", status=1)
	assert exporter.why() == "it failed with status 1\n"
	exporter.run("gcc", "-c", "x.c", "-o", "x.o")
	assert exporter.files() == second


def test_a_failure_that_is_stored_is_not_given_away(exporter: Exporter) -> None:
	for _ in range(2):
		exporter.run("gcc", "-c", "wrong.c", status=1, WAFCC_CACHEFAILURES="yes")
		assert exporter.why() == "it failed with status 1\n"


def test_a_command_that_is_not_cached_says_why(exporter: Exporter) -> None:
	exporter.run("gcc", "-c", "x.c", "-o", "x.o", WAFCC_READONLY="yes")
	assert "the cache is only read" in exporter.why()
	exporter.run("gcc", "-c", "x.c", "--help")
	assert exporter.why() == "asks the compiler about itself\n"


def test_an_entry_is_sealed_by_the_signing_key(exporter: Exporter) -> None:
	key = exporter.folder / "key"
	exporter.run("--new-signing-key", str(key))
	exporter.run("gcc", "-c", "x.c", "-o", "x.o", WAFCC_SIGNINGKEY=str(key))
	sealed = exporter.files()["entry"]
	exporter.environ["WAFCC_DIR"] = str(exporter.folder / "other")
	exporter.run("gcc", "-c", "x.c", "-o", "x.o")
	plain = exporter.files()["entry"]
	assert len(sealed) > len(plain)


def test_a_relative_folder_belongs_to_the_folder_of_the_command(exporter: Exporter) -> None:
	exporter.run("gcc", "-c", "x.c", "-o", "x.o", WAFCC_EXPORT="out")
	assert (exporter.folder / "out" / "key").is_file()


def test_a_folder_that_cannot_be_written_disturbs_no_compile(exporter: Exporter) -> None:
	(exporter.folder / "file").write_text("")
	exporter.run("gcc", "-c", "x.c", "-o", "x.o", WAFCC_EXPORT="file/in/it")
	assert (exporter.folder / "x.o").is_file()
