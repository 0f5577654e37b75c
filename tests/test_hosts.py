"""Machines and a server, each on its own host: the effects of a bad line, a cut line and killed processes on builds."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List

import pytest
from cache_support import COMPILERS
from conftest import list_processes
from host_support import HostLab
from serve_support import wait_until

pytestmark = pytest.mark.skipif(not COMPILERS, reason="needs a compiler")
MEGABYTE = 1 << 20
PAUSE = 1  # seconds for which a server that did not answer is left alone
SHORT = f"|timeout=2000|connect-timeout=2000|pause={PAUSE * 1000}"


def test_what_one_host_compiled_the_others_hit(host_support: HostLab) -> None:
	"""Three addresses get the same bytes."""
	first, *others = host_support.machines
	names = host_support.write_project(12)
	plain = first.build_plainly(names)
	assert first.fill(names) == plain
	for other in others:
		assert other.build(names) == plain
		remote = other.remote()
		assert (remote["hits"], remote["misses"], remote["errors"]) == (12, 0, {})
	assert host_support.line.say("counts")["lost"] == 0


def test_a_host_that_is_cut_off_goes_on_alone(host_support: HostLab) -> None:
	"""The line is cut during a build, which costs one time-out in all. When the line is back, it is used again."""
	first, second, _ = host_support.machines
	names = host_support.write_project(24)
	plain = first.fill(names)
	second.ask_of(host_support.server, SHORT)
	begun = time.monotonic()
	made: Dict[str, bytes] = second.build(names[:8])
	with ThreadPoolExecutor(4) as pool:
		running = {name: pool.submit(second.compile, name) for name in names[8:16]}
		host_support.line.say("cut", second.host.number)
		running.update((name, pool.submit(second.compile, name)) for name in names[16:])
		made.update((name, future.result()) for name, future in running.items())
	silences = told_silences(second.remote()["errors"])
	# a later attempt in the background delays no client, and is counted as well
	assert silences <= 1 + (time.monotonic() - begun) // PAUSE
	assert made == plain
	assert second.remote()["hits"] < 24 and second.remote()["tiers"][0]["state"].startswith("left alone")
	host_support.line.say("join", second.host.number)
	wait_until("it is asked again", lambda: second.remote()["tiers"][0]["state"].startswith("is asked"))
	more = host_support.write_project(4, name="later")
	plain, before = first.fill([*names, *more]), second.remote()["hits"]
	assert second.build(more) == {name: plain[name] for name in more}
	assert second.remote()["hits"] == before + 4


def told_silences(errors: Dict[str, int]) -> int:
	"""How often a client has waited in vain."""
	return sum(count for name, count in errors.items() if "did not answer" in name and "an upload" not in name)


def test_a_bad_line_changes_no_result(host_support: HostLab) -> None:
	"""With delay and loss, all results are found that were uploaded over the same line."""
	first, second, _ = host_support.machines
	host_support.line.delay(0.002)
	host_support.line.say("loss", 0.02, 7)
	names = host_support.write_project(12, noise=100_000)
	plain = first.build_plainly(names)
	assert first.fill(names) == plain
	assert second.build(names) == plain
	remote = second.remote()
	assert (remote["hits"], remote["errors"]) == (12, {})
	assert host_support.line.say("counts")["lost"] > 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_comes_again_has_what_it_acknowledged(host_support: HostLab, how: signal.Signals) -> None:
	"""The server ends and comes back while one host uploads and another one asks. Builds go on, with right results."""
	first, second, third = host_support.machines
	for machine in (first, second):
		machine.ask_of(host_support.server, SHORT)
	names = host_support.write_project(30, noise=300_000)
	plain = first.build_plainly(names)
	made: List[Dict[str, bytes]] = []
	host_support.line.delay(0.005)  # so that the server ends in the middle of it
	builds = [threading.Thread(target=lambda m=m: made.append(m.build(names))) for m in (first, second)]
	for build in builds:
		build.start()

	def is_over() -> bool:
		return not any(build.is_alive() or one.is_uploading() for build, one in zip(builds, host_support.machines))

	def has(count: int) -> bool:
		# uploads that fail meanwhile are dropped, so the expected number may never be reached
		return is_over() or host_support.server.counts()["store_entries"] >= count

	for count in (3, 12):
		wait_until("some is stored", lambda count=count: has(count))
		host_support.server.again(how)
	for build in builds:
		build.join()
	assert made == [plain, plain]
	wait_until("nothing is being uploaded", lambda: not any(one.is_uploading() for one in (first, second)))
	kept = max(machine.remote()["uploads"] for machine in (first, second))
	assert kept > 0
	assert third.build(names) == plain
	remote = third.remote()
	assert remote["hits"] >= kept and remote["errors"] == {}
	assert host_support.server.counts()["store_damaged_total"] == 0


def test_a_client_that_dies_in_an_upload_leaves_nothing_of_it(host_support: HostLab) -> None:
	"""The server keeps no partial value and has all its memory back. Other clients go on, also the killed one."""
	first, second, third = host_support.machines
	names = host_support.write_project(4)
	plain = second.fill(names)
	before = host_support.server.counts()
	(large,) = host_support.write_project(1, noise=16 * MEGABYTE, name="large")
	host_support.line.delay(0.1)  # which TCP needs many round trips to fill
	wait_until("it is kept, and uploaded", lambda: bool(first.compile(large)) and first.is_uploading())
	received = before["received_bytes_total"]
	wait_until("it comes", lambda: host_support.server.counts()["received_bytes_total"] > received + MEGABYTE)
	host_support.line.say("cut", first.host.number)
	first.kill()
	host_support.line.delay(0)
	host_support.line.say("join", first.host.number)
	assert third.build(names) == plain and third.remote()["hits"] == 4
	wait_until(
		"its connections are gone", lambda: host_support.server.counts()["connections"] <= before["connections"] + 1
	)
	after = host_support.server.counts()
	same = ("store_entries", "store_blobs", "uploads_free_bytes", "store_damaged_total")
	assert {name: after[name] for name in same} == {name: before[name] for name in same}
	assert first.build(names) == plain
	assert list_processes(first.runtime)
