"""A cluster for tests: BuildGrid with PostgreSQL as a server of the Remote Execution API, and workers of ours."""

import contextlib
import pathlib
import secrets
import sys
from typing import Callable, Iterator

import pytest
from conftest import ROOT, leave_out
from tier_support import PATIENT

sys.path.insert(0, str(ROOT / "utils"))

from clusters import buildgrid as server
from clusters.buildgrid import INSTANCE, Papers, make_papers
from clusters.database import BUILDGRID, OWNER, Database, call_buildgrid, missing
from clusters.worker import Worker

__all__ = [
	"BUILDGRID",
	"INSTANCE",
	"OWNER",
	"Build",
	"Cluster",
	"Database",
	"Papers",
	"Worker",
	"call_buildgrid",
]


class Cluster(server.Cluster):
	"""BuildGrid with the options of `clusters.buildgrid`, for clients that are patient with a busy machine."""

	@property
	def bare_address(self) -> str:
		"""The address with what is needed to be let in."""
		return super().address

	@property
	def address(self) -> str:
		"""The same with time-outs for a machine that may be busy with other tests."""
		return self.bare_address + PATIENT


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
	"""One PostgreSQL for all clusters of a session. A test that ends it starts it again."""
	lack = missing()
	if sys.version_info < (3, 11):
		pytest.skip(lack)
	if lack:
		leave_out(lack)
	postgresql = Database()
	with contextlib.ExitStack() as stack:
		stack.callback(postgresql.remove)
		postgresql.make()
		postgresql.start()
		yield postgresql


@pytest.fixture
def buildgrid(database: Database, tmp_path: pathlib.Path) -> Iterator[Cluster]:
	"""A server without TLS and tokens, empty at first."""
	with Cluster(database, tmp_path / "cluster").run() as cluster:
		yield cluster


Build = Callable[..., Cluster]


@pytest.fixture
def build_cluster(database: Database, tmp_path: pathlib.Path) -> Iterator[Build]:
	"""A function that starts a server with the options of `Cluster`."""
	with contextlib.ExitStack() as stack:

		def build(**options: object) -> Cluster:
			folder = tmp_path / f"cluster-{secrets.token_hex(4)}"
			return stack.enter_context(Cluster(database, folder, **options).run())  # type: ignore[arg-type]

		yield build


@pytest.fixture(scope="session")
def cluster_papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
	"""Certificates for loopback: a server's, and a client's."""
	return make_papers(tmp_path_factory.mktemp("papers"))
