"""What is seen of compiles on a cluster: in the picture of a build, the dashboard, the status and the statistics."""

import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
from typing import Any, Dict, Iterator, List

import pytest
from browser_support import wait
from cache_support import PATIENCE
from cluster_support import Cluster
from dashboard_support import Serve
from execute_support import (
	LINE,
	LONG,
	Impostor,
	ask_status,
	count_there,
	finish,
	needs_compiler,
	needs_root,
	slots_taken,
	start,
	stop_compilers,
	until,
)
from tier_support import Machine, Make
from timeline_support import Picture, Row, check_trace, read_picture

pytestmark = needs_compiler
NOWHERE = "grpc://127.0.0.1:1/none"
CLUSTER = "the commands are on a cluster: -j counts them, too"
HELD = "compiles wait for a processor here, or for the cluster"
OTHERS = "other builds have the slots"
WSCRIPT = """\
def options(opt):
	opt.load('compiler_c prefork wafcc')
def configure(conf):
	conf.load('compiler_c')
def build(bld):
	bld.program(source=bld.path.ant_glob('*.c', excl='held*'), target='app')
"""
MAIN = "int main(void) { return 0; }\n"


class Project:
	"""A Waf project in the folder of a machine, with pictures of its builds."""

	def __init__(self, waf: Any, here: Machine, sources: Dict[str, str]) -> None:
		self.waf, self.here, self.folder = waf, here, here.folder
		for name, text in {"wscript": WSCRIPT, **sources}.items():
			here.write(name, text)
		self.run("configure")
		# what the engine has learned of the compiler's time must not count
		here.ask("--shutdown")

	def run(self, *args: str) -> None:
		self.waf(self.folder, *args, env={**self.here.environ, "WAFD": self.here.engine})

	def draw(self, *options: str) -> Picture:
		"""Build, and check that its sums are complete and its trace well formed."""
		jobs = "-j%d" % ((os.cpu_count() or 1) + 4)
		self.run("build", jobs, "--timeline=picture", *options)
		picture = read_picture(self.folder / "picture.html")
		build = picture.build
		assert abs(build["busy"] + picture.idle() - build["jobs"] * picture.wall) < 1000 + 2 * len(build["reasons"])
		return picture

	@contextlib.contextmanager
	def begun(self, *options: str) -> Iterator["concurrent.futures.Future[Picture]"]:
		"""A build that has begun, and ends with the block."""
		with concurrent.futures.ThreadPoolExecutor(1) as thread:
			yield thread.submit(self.draw, *options)


def find_compile(picture: Picture, name: str = "x.c") -> Row:
	(found,) = [row for row in picture.rows if row.name.startswith(name) and row.owner == -1]
	return found


def find_vain(picture: Picture, owner: Row) -> List[Row]:
	return [row for row in picture.rows if row.kind == "in vain" and row.owner == owner.number]


def name_threads(path: pathlib.Path) -> List[str]:
	return [event["args"]["name"] for event in check_trace(path) if event["name"] == "thread_name"]


@needs_root
class TestPictureOfTheCluster:
	@pytest.mark.parametrize(
		("options", "sources"),
		[((), {"x.c": LONG, "y.c": "int y;\n", "main.c": MAIN}), (("--threads",), {"x.c": LONG + MAIN})],
		ids=["pipeline", "threads"],
	)
	def test_tasks_have_lanes_of_the_cluster(
		self, waf: Any, machine: Make, engine: str, buildgrid: Cluster, options: Any, sources: Dict[str, str]
	) -> None:
		"""They use no slot here, and other builds are not blamed for it. The link runs in a slot as ever."""
		buildgrid.worker(engine)
		here = machine(buildgrid.address + "|execute")
		there = Project(waf, here, sources)
		with slots_taken(here):
			picture = there.draw(*options)
		compiles = [find_compile(picture, name) for name in sources]
		assert {row.lane.split()[0] for row in compiles} == {"cluster"}, compiles
		assert {row.place for row in compiles} == {f"on grpc://127.0.0.1:{buildgrid.port}/team"}
		assert {row.kind for row in compiles} == {"miss"} and all(row.end > row.start for row in compiles)
		assert picture["app"].lane.split()[0] == "slot" and not picture["app"].place
		reasons = {why: sum(by.values()) for why, by in picture.reasons().items()}
		spent = sum(row.end - row.start for row in compiles)
		assert abs(reasons[CLUSTER] - spent) < 1000, (reasons, spent)
		assert "cluster 1" in name_threads(there.folder / "picture.json")
		# what was sent before may wait for an answer of the engine
		assert reasons.get(OTHERS, 0) < spent
		cluster = here.remote()["clusters"][f"grpc://127.0.0.1:{buildgrid.port}/team"]
		assert cluster == {"executed": len(sources), "not_executed": {}}

	def test_a_task_that_is_sooner_done_there_has_a_row_here_too(
		self, waf: Any, machine: Make, engine: str, buildgrid: Cluster
	) -> None:
		"""The task is in a lane of the cluster, and its run here, which was ended, in a slot."""
		here = machine(buildgrid.address + "|execute")
		both = Project(waf, here, {"x.c": LONG + MAIN})
		with both.begun() as build:
			with slots_taken(here):
				until(lambda: count_there(here) == 1 or build.done(), "the command is there")
			until(lambda: stop_compilers(here) or build.done(), "it runs here, too")
			buildgrid.worker(engine)
			picture = build.result()
		row = find_compile(picture)
		assert row.lane == "cluster 1", row
		assert row.place == f"on grpc://127.0.0.1:{buildgrid.port}/team, and here, too, until that was done"
		(vain,) = find_vain(picture, row)
		assert vain.lane.split()[0] == "slot" and row.start <= vain.start < vain.end <= row.end + 1
		check_trace(both.folder / "picture.json")


class TestPictureOfThisMachine:
	def test_a_task_that_is_sooner_done_here_has_a_row_there_too(self, waf: Any, impostor: Impostor) -> None:
		"""The task is in a slot, and its time on the cluster in a lane of that."""
		here = impostor("pass")
		both = Project(waf, here, {"x.c": MAIN})
		with both.begun() as build, slots_taken(here):
			until(lambda: count_there(here) == 1 or build.done(), "the command is there")
		picture = build.result()
		row = find_compile(picture)
		assert (row.lane.split()[0], row.kind) == ("slot", "miss"), row
		assert row.place == f"was on {NOWHERE}, too: it was sooner done here"
		(vain,) = find_vain(picture, row)
		assert vain.lane == "cluster 1" and vain.start <= row.start < vain.end
		assert "cluster 1" in name_threads(both.folder / "picture.json")

	def test_why_a_task_has_no_result_of_the_cluster(self, waf: Any, impostor: Impostor) -> None:
		"""The reason is that of `--explain`. Until a slot is free, the processors are what is waited for."""
		here = impostor("put(stream, 0x83, id, b'\\x02it is broken')")
		failed = Project(waf, here, {"x.c": MAIN})
		with failed.begun() as build, slots_taken(here):
			until(lambda: here.remote()["not_executed"] or build.done(), "a reason")
		row = find_compile(build.result())
		assert row.lane.split()[0] == "slot", row
		assert row.place == f"was on {NOWHERE}, too: the cluster failed: it is broken"
		assert find_vain(build.result(), row)[0].lane == "cluster 1"

	def test_why_a_task_does_not_go_to_the_cluster(self, waf: Any, impostor: Impostor) -> None:
		"""A compile whose last run was short stays here, and has no lane of the cluster."""
		here = impostor("pass")
		short = Project(waf, here, {"x.c": '#include "x.h"\n' + MAIN, "x.h": "#define X 1\n"})
		short.run("build")
		here.write("x.h", "#define X 2\n")
		with short.begun() as build, slots_taken(here):
			until(lambda: here.remote()["not_executed"] or build.done(), "a reason")
		picture = build.result()
		row = find_compile(picture)
		assert row.place == f"not on {NOWHERE}: it takes too little time", row
		assert row.lane.split()[0] == "slot" and not find_vain(picture, row)
		assert "cluster 1" not in name_threads(short.folder / "picture.json")


class TestStatus:
	def test_the_status_has_the_commands_that_are_there(self, impostor: Impostor) -> None:
		"""It has the cluster's address, its limit, and each command with its build."""
		here = impostor("pass")
		here.write("x.c", "int f;\n")
		with slots_taken(here):
			process = start(here, LINE)
			until(lambda: count_there(here) == 1, "the command is there")
			cluster = ask_status(here)["cluster"]
			(command,) = cluster.pop("commands")
			assert cluster.pop("jobs") >= 4
			state = {"address": NOWHERE, "there": 1, "sent": 1, "raced": 0, "left_alone_s": None, "fault": None}
			assert cluster == state
			assert command.pop("seconds") >= 0 and command.pop("id") and command.pop("session")
			assert command == {"folder": str(here.folder), "argv": LINE.split(), "raced": False}
			assert f"{NOWHERE}: at most" in show_status(here)
		finish(process)

	def test_the_status_has_the_fault_for_which_it_is_left_alone(self, impostor: Impostor) -> None:
		"""The statistics tell of it by the cluster's address."""
		here = impostor("put(stream, 0x83, id, b'\\x01it did not answer within 200 ms')")
		here.write("x.c", "int f;\n")
		with slots_taken(here):
			process = start(here, LINE)
			until(lambda: here.remote()["not_executed"], "a reason")
		finish(process)
		cluster = ask_status(here)["cluster"]
		assert 0 < cluster["left_alone_s"] <= 600 and cluster["commands"] == []
		assert cluster["fault"] == "it did not answer within 200 ms"
		assert ", left alone for " in show_status(here)
		stayed = {"the cluster did not answer": 1}
		assert here.remote()["clusters"] == {NOWHERE: {"executed": 0, "not_executed": stayed}}
		shown = here.ask("--show-stats", "-v")
		assert f"{NOWHERE}: 0 run there, 1 run here" in shown
		assert shown.count("the cluster did not answer") == 1, shown


def show_status(machine: Machine) -> str:
	done = subprocess.run(
		[machine.engine, "status"], env=machine.environ, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
	)
	return done.stdout


class TestDashboard:
	def test_commands_of_the_cluster_are_seen_while_they_are_there(
		self, impostor: Impostor, dashboard: Serve, look: Any
	) -> None:
		"""A card for the cluster, one for each command there, and one for each reason why a command ran here."""
		here = impostor("pass")
		here.write("x.c", "int f;\n")
		with slots_taken(here):
			page = look(dashboard(WAFD_RUNTIME_DIR=str(here.runtime)).url)
			process = start(here, LINE)
			wait(page, "#cluster li[data-tone=hit]", NOWHERE)
			wait(page, "#cluster li[data-tone=hit]", "takes commands")
			wait(page, "#cluster .note", "1 sent, 0 of them run here, too")
			card = wait(page, "#cluster li", "x.c · ")
			card.locator("summary").click()
			wait(page, "#cluster pre", LINE)
		finish(process)
		wait(page, "#cluster li[data-tone=slow]", "it was sooner done here")
		wait(page, "#cluster .note", "0 were compiled there, 1 here")
		assert page.locator("#cluster li", has_text="x.c · ").count() == 0

	def test_a_cluster_that_is_left_alone_is_seen(self, impostor: Impostor, dashboard: Serve, look: Any) -> None:
		"""With its fault, and for how long."""
		here = impostor("put(stream, 0x83, id, b'\\x01it did not answer within 200 ms')")
		here.write("x.c", "int f;\n")
		page = look(dashboard(WAFD_RUNTIME_DIR=str(here.runtime)).url)
		wait(page, "#cluster .none", "no engine runs")
		with slots_taken(here):
			process = start(here, LINE)
			wait(page, "#cluster li[data-tone=bad]", "left alone for ")
			wait(page, "#cluster li[data-tone=bad]", "it did not answer within 200 ms")
		finish(process)
