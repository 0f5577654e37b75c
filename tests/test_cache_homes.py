"""Clients of one runtime folder with different homes: each has its own store, whichever client started the engine."""

import json
import os
import pathlib
import subprocess
from typing import Dict, Iterator

import pytest
from cache_support import COMPILERS, PATIENCE, Lab
from conftest import wait_until_gone

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a compiler")


class Tenant(Lab):
	"""A lab that knows where its store is, and its engine."""

	def ask(self, *options: str) -> str:
		argv = [self.wafcc, *options]
		return subprocess.run(
			argv, env=self.environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
		).stdout.strip()

	@property
	def place(self) -> pathlib.Path:
		return pathlib.Path(self.ask("--get-config", "runtime_dir"))

	@property
	def store(self) -> pathlib.Path:
		return pathlib.Path(self.environ["HOME"]) / ".cache" / "wafcc"

	def counts(self) -> Dict[str, int]:
		found = json.loads(self.ask("--show-stats", "--json"))
		return {name: found[name] for name in ("hits", "entries")}


@pytest.fixture
def first(lab: Lab) -> Tenant:
	lab.write("x.c", "int f;\n")
	return Tenant(lab.engine, lab.folder, pathlib.Path(lab.environ["HOME"]))


@pytest.fixture
def second(first: Tenant, tmp_path: pathlib.Path) -> Iterator[Tenant]:
	tenant = Tenant(first.engine, first.folder, tmp_path / "another home")
	yield tenant
	place = tenant.place
	tenant.ask("--shutdown")
	assert not wait_until_gone(place)


LINE = COMPILERS[0] + " -c x.c" if COMPILERS else ""


def test_each_home_has_a_store_and_an_engine(first: Tenant, second: Tenant, runtime: pathlib.Path) -> None:
	"""The first one has the usual engine, and the other one none of its entries, though their folders are the same."""
	assert (first.place, second.place) == (runtime, runtime)
	first.until_hit(LINE)
	assert first.place == runtime and second.place.parent == runtime
	assert second.same(LINE).startswith("miss: it was not seen before")
	second.until_hit(LINE)
	assert (first.counts(), second.counts()) == ({"hits": 1, "entries": 1}, {"hits": 1, "entries": 1})
	subprocess.run([first.engine, "stop"], env=first.environ, timeout=PATIENCE, check=True)
	assert second.same(LINE).startswith("hit")
	assert second.place.parent == runtime and first.same(LINE).startswith("hit")


def test_an_engine_keeps_the_store_that_is_asked_for(first: Tenant, second: Tenant, runtime: pathlib.Path) -> None:
	"""A client that starts the engine without a command for the cache has not chosen the store."""
	subprocess.run([first.engine, "start"], env=first.environ, stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True)
	second.until_hit(LINE)
	assert second.place == runtime and second.store.exists() and not first.store.exists()
	assert first.place.parent == runtime
	first.ask("--shutdown")
	first.environ["XDG_CACHE_HOME"] = str(second.store.parent)
	assert first.place == runtime and first.same(LINE).startswith("hit")


def test_an_engine_refuses_clients_of_another_store(first: Tenant, second: Tenant, runtime: pathlib.Path) -> None:
	"""The command also runs, without any store, if the client cannot tell any more which store it wants."""
	first.until_hit(LINE)
	before = first.counts()
	(link,) = runtime.glob("wafd-*.store")
	assert os.readlink(link) == str(first.store)
	link.unlink()
	assert second.place == runtime
	assert second.run(LINE, True) == second.run(LINE, False)
	link.symlink_to(first.store)
	assert not second.store.exists() and first.counts() == before
