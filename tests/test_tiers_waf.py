"""A project that Waf builds on two machines which share a store: the second one compiles nothing."""

import shutil
from typing import Any, Callable

import pytest
from cache_support import COMPILERS
from test_waf_wafcc import ALL, PROJECT, read_tree, verdicts
from tier_support import Machine, RedisServer

pytestmark = [
	pytest.mark.skipif(not COMPILERS, reason="needs a compiler"),
	pytest.mark.skipif(not shutil.which("redis-server"), reason="apt-get install redis-server"),
]


def test_a_second_machine_compiles_nothing(
	waf: Any, project: Any, machine: Callable[[str], Machine], redis: RedisServer
) -> None:
	"""All files of stock Waf are there, byte by byte, and the static library is shared too."""
	folder = project(PROJECT)

	def build(at: Machine) -> Any:
		shutil.rmtree(folder / "build", ignore_errors=True)
		names = ("HOME", "LC_ALL", "WAFD_RUNTIME_DIR", "WAFCC_REMOTE")
		env = {name: at.environ[name] for name in names}
		waf(folder, "configure", tools="wafcc", env=env)
		found = verdicts(waf(folder, "build", "--zones=wafcc", tools="wafcc", env=env))
		return {name: words.partition(":")[0] for name, words in found.items() if name in ALL}

	first, second = machine(redis.address), machine(redis.address)
	assert build(first) == dict.fromkeys(ALL, "miss")
	first.until_uploaded(3)
	assert build(second) == dict.fromkeys(ALL, "hit")
	assert second.remote()["hits"] >= len(ALL)
	ours = read_tree(folder / "build")
	shutil.rmtree(folder / "build")
	waf(folder, "configure", "build", env={"WAF_NO_PREFORK": "1", "HOME": second.environ["HOME"], "LC_ALL": "C"})
	assert read_tree(folder / "build") == ours
