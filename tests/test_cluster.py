"""The cluster that other tests use: what they rely on."""

import pathlib

import pytest
from benchmark.mistake import Failed
from cluster_support import INSTANCE, Build, Cluster, Papers


def store(cluster: Cluster, folder: pathlib.Path, text: str) -> str:
	"""Let BuildGrid's own client put a file there, and compare it with what it gets back."""
	file = folder / "text"
	file.write_text(text)
	return cluster.ask("cas", "upload-file", "--verify", str(file))


class TestServer:
	def test_contents(self, buildgrid: Cluster, tmp_path: pathlib.Path) -> None:
		"""Another client keeps a file in the server, before and after a crash of the server and one of PostgreSQL."""
		assert buildgrid.bare_address == f"grpc://127.0.0.1:{buildgrid.port}/{INSTANCE}"
		assert "Success" in store(buildgrid, tmp_path, "some text")
		buildgrid.restart()
		assert "Success" in store(buildgrid, tmp_path, "some text")
		buildgrid.database.restart()
		assert "Success" in store(buildgrid, tmp_path, "other text")

	def test_tokens(self, build_cluster: Build, cluster_papers: Papers, tmp_path: pathlib.Path) -> None:
		"""Clients need a certificate and a token that has not expired."""
		cluster = build_cluster(papers=cluster_papers, is_mutual=True, has_tokens=True)
		assert cluster.token_file is not None
		assert "Success" in store(cluster, tmp_path, "some text")
		for wrong in (cluster.sign(-60), cluster.sign(60, secret="another" * 8)):
			cluster.token_file.write_text(wrong)
			with pytest.raises(Failed) as refused:
				store(cluster, tmp_path, "some text")
			assert "UNAUTHENTICATED" in refused.value.tail
		cluster.token_file.write_text(cluster.sign(60))
		cluster.is_mutual = False
		with pytest.raises(Failed):
			store(cluster, tmp_path, "some text")
