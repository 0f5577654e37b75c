"""
The phases of scenarios: they choose a folder, measure, and check.

Each is a function of a run, and knows nothing of the scenario that it belongs to.
"""

import glob
import hashlib
import itertools
import os
import subprocess
import time
from typing import Callable, Sequence

from .boards import BOARDS, Boards
from .boards import PARTS as BOARD_PARTS
from .editing import Edits
from .foreground import Foreground
from .headers import EDITS, Header
from .hit import PARTS
from .large import Sizes, check_done
from .mistake import Failed
from .precompiled import PARTS as BUILDS
from .precompiled import Checkouts
from .price import Prices
from .project import NAP, Answers, digest_of, source_of
from .run import Run

ALONE = 2.0  # seconds for which a job is watched alone

Phase = Callable[[Run], None]


def take_new_folder(run: Run) -> None:
	"""Go to a new folder, and wait until earlier files are on the disk."""
	run.new_folder()
	os.sync()


def take_warm_folder(run: Run) -> None:
	"""Go to a new folder, after the lane's cache was filled by a build in another one."""
	run.new_folder()
	run.aside("fill", run.lane.contender.builder.command(run))
	take_next_folder(run)


def take_second_machine(run: Run) -> None:
	"""Go to a machine with an empty cache, after another machine has filled the server."""
	hosts = run.workshop.hosts()
	lane = run.lane.names
	if lane not in run.workshop.filled:
		folder = os.path.join(run.workshop.path, "servers", run.lane.label)
		run.server = run.workshop.start_server(run.lane.contender.cache.server, folder, hosts[0])
		run.host = hosts[1]
		run.new_folder()
		run.aside("fill", run.lane.contender.builder.command(run))
		run.cache.settle()
		run.workshop.filled[lane] = run.server
	run.server = run.workshop.filled[lane]
	run.host = hosts[2]
	run.new_folder()
	os.sync()


def take_next_folder(run: Run) -> None:
	"""Go to another new folder, and keep the lane's cache."""
	run.another_folder()
	os.sync()


def take_bare_folder(run: Run) -> None:
	"""Go to a folder that is not configured."""
	run.folder = run.project.new_folder(run.lane.label)
	os.sync()


def take_built_folder(run: Run) -> None:
	"""Go to the folder in which this lane has built everything, or build it now."""
	standing = run.standing_folder()
	if standing:
		run.folder = standing
	else:
		run.new_folder()
		# an earlier lane may have made the edit of this turn
		run.project.edit(run.version - 1)
		run.aside("build", run.lane.contender.builder.command(run))
		run.built(run.folder)


def catch_up(run: Run) -> None:
	"""Build what other lanes have edited since this lane was here."""
	run.aside("build", run.lane.contender.builder.command(run))


def settle(run: Run) -> None:
	"""Let daemons see a build with nothing to do."""
	run.lane.contender.builder.settle(run)


def rest(run: Run) -> None:
	"""Let daemons become idle, as they are when a person edits a source."""
	run.lane.contender.builder.rest(run)


def edit_one_source(run: Run) -> None:
	run.project.edit(run.version)


def configure(run: Run) -> None:
	"""Configure, and measure it."""
	count = str(run.settings["commands"]["configure"])
	run.keep(run.execute(run.lane.contender.builder.configure(run, "-j%d" % run.jobs, BENCH_COMMANDS=count)))


def compare_answers(run: Run) -> None:
	"""Fail unless this configure found what the first one did."""
	found = Answers(run.lane.label, {name: read_answers(run.path(name)) for name in ("answers", "config.h")})
	if not run.project.answers:
		run.project.answers = found
	first = run.project.answers
	for name, text in first.texts.items():
		ours, theirs = found.texts[name].splitlines(), text.splitlines()
		odd = next((pair for pair in itertools.zip_longest(ours, theirs) if pair[0] != pair[1]), None)
		if odd:
			raise Failed("its %s has %r where that of %s has %r" % (name, odd[0], first.who, odd[1]))


def read_answers(path: str) -> str:
	try:
		with open(path, encoding="utf-8") as f:
			return f.read()
	except OSError as e:
		raise Failed("it wrote no %s: %s" % (os.path.basename(path), e.strerror)) from None


def look_at_objects(run: Run) -> None:
	"""Remember the objects that are there."""
	run.before = run.project.objects(run.folder)


def build(run: Run) -> None:
	"""Build, and measure it."""
	run.keep(run.execute(run.lane.contender.builder.command(run)))


def build_from_cache(run: Run) -> None:
	"""Build, and keep the hits for each hundred sources, if the cache counts them."""
	before = run.cache.hits() if run.cache else None
	build(run)
	if before is not None:
		sources = len(run.project.sources())
		# there are more of them where it answers for libraries, too
		run.results[-1][1]["hits"] = 100 * min(run.cache.hits() - before, sources) / sources


def build_cold_and_warm(run: Run) -> None:
	"""Build with an empty cache, and then into another folder with the cache of the first build."""
	for part, go in (("cold", take_new_folder), ("warm", take_next_folder)):
		go(run)
		build_from_cache(run)
		run.results[-1] = (part, run.results[-1][1])
		check_all_objects(run)
		check_same_objects(run)


def build_with_precompiled_header(run: Run) -> None:
	"""Build with an empty cache, once more in the same folder, and in another checkout."""
	checkouts = Checkouts(run)
	try:
		for part in BUILDS:
			checkouts.enter(part)
			before = run.cache.hits() if run.cache else None
			build(run)
			values = run.results[-1][1]
			run.results[-1] = (part, values)
			if before is not None:
				# the header is a command, too
				values["hits"] = 100 * (run.cache.hits() - before) / (len(run.project.sources()) + 1)
			values["of cold"] = 100 * values["wall"] / run.results[0][1]["wall"]
			check_all_objects(run)
			expect_same(*checkouts.find_different())
	finally:
		checkouts.close()


def build_after_edits_of_a_header(run: Run) -> None:
	"""Edit a header that most sources include again and again, and build after each edit."""
	header = Header(run.project)
	take_new_folder(run)
	run.aside("fill", run.lane.contender.builder.command(run))
	check_all_objects(run)
	try:
		for part in EDITS:
			header.add(part)
			rest(run)
			before = run.cache.hits() if run.cache else None
			build(run)
			values = run.results[-1][1]
			run.results[-1] = (part, values)
			if before is not None:
				values["hits"] = 100 * min(run.cache.hits() - before, header.users) / header.users
			check_all_objects(run)
			check_same_objects(run)
	finally:
		header.restore()


def build_boards(run: Run) -> None:
	"""Build one board of a project after the other, each into a new folder."""
	boards = Boards(run.project)
	digests, take = {}, take_new_folder
	try:
		for part, board in zip(BOARD_PARTS, BOARDS):
			boards.choose(board)
			take(run)
			take = take_next_folder  # the cache stays
			build_from_cache(run)
			run.results[-1] = (part, run.results[-1][1])
			check_all_objects(run)
			for path in run.project.objects(run.folder):
				name = source_of(os.path.relpath(path, run.path("")))
				digests["%s of the %s" % (name, part)] = digest_of(path)
	finally:
		boards.restore()
	expect_same(*run.project.compare_digests(digests, run.lane.text))


def build_edits(run: Run) -> None:
	"""Edit sources again and again, and build after each edit."""
	Edits(run).take()


def take_prices(run: Run) -> None:
	"""Build with one set of flags after the other, with an empty cache and with a full one."""
	Prices(run, build_from_cache, check_all_objects).take()


def build_together(run: Run) -> None:
	"""Build everything, then edit one source twice and build after each edit."""
	for edit, part in enumerate(("full", "first edit", "second edit")):
		if edit:
			rest(run)
		run.project.edit(3 * run.version + edit)
		if not edit:
			take_new_folder(run)
		build(run)
		run.results[-1] = (part, run.results[-1][1])
		check_same_symbols(run)


def check_same_symbols(run: Run) -> None:
	"""Fail unless the libraries define the symbols of the first contender's."""
	libraries = sorted(glob.glob(run.path("**/*.a"), recursive=True))
	done = subprocess.run(["nm", "-g", *libraries], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
	defined = {os.fsdecode(line.split()[-1]) for line in done.stdout.splitlines() if line.split()[-2:-1] == [b"T"]}
	digest = hashlib.sha256("\n".join(sorted(defined)).encode()).hexdigest()
	expect_same(*run.project.compare_digests({"all libraries": digest}, run.lane.text))


def build_beside_another(run: Run) -> None:
	"""Build while a job in the foreground keeps all processors busy, and measure the progress of that job."""
	with Foreground(run.path("counts"), run.settings["cores"], run.environment) as job:
		alone = job.rate(ALONE)
		started, before = time.monotonic(), job.count()
		reading = run.execute(run.lane.contender.builder.command(run))
		rate = (job.count() - before) / (time.monotonic() - started)
	values = {"work": 100 * rate / alone, "wall": reading.wall, "processor": reading.used.user + reading.used.system}
	run.results.append(("", values))


def check_all_objects(run: Run) -> None:
	"""Fail unless every source was compiled."""
	found, wanted = len(run.project.objects(run.folder)), len(run.project.sources())
	if found != wanted:
		raise Failed("it made %d objects of %d sources" % (found, wanted))
	run.built(run.folder)
	if run.cache:
		run.cache.rest()


def check_same_objects(run: Run) -> None:
	"""Fail unless the objects are, byte for byte, those of the first contender with this compiler."""
	expect_same(*run.project.compare(run.folder, run.lane.text))


def expect_same(first: str, different: Sequence[str]) -> None:
	"""Fail if some objects differ from those of the first contender."""
	if different:
		raise Failed("%d of its objects differ from those of %s: that of %s" % (len(different), first, different[0]))


def check_new_objects(wanted: int) -> Phase:
	"""A phase that fails unless exactly this number of objects was made since the last look."""

	def check(run: Run) -> None:
		now = run.project.objects(run.folder)
		new = [path for path, stamp in now.items() if run.before.get(path) != stamp]
		if len(new) != wanted:
			raise Failed("it made %d objects anew instead of %d" % (len(new), wanted))

	return check


def check_naps(run: Run) -> None:
	"""Fail if the commands took less time than they sleep, and keep the occupancy of the slots."""
	count = len(run.project.commands)
	least = -(-count // run.jobs) * NAP
	values = run.results[-1][1]
	if values["wall"] < least:
		said = (count, values["wall"], least)
		raise Failed("%d commands took %.3f s, which is less than the %.3f s that they sleep" % said)
	values["occupancy"] = 100 * count * NAP / (values["wall"] * run.jobs)


def check_sums(run: Run) -> None:
	"""Fail unless every source was translated."""
	found, wanted = len(run.project.found(run.folder, ".sum")), len(run.project.found(".", ".shape"))
	if found != wanted:
		raise Failed("it made %d outputs of %d sources" % (found, wanted))


def run_client(run: Run) -> None:
	"""Let Waf run the smallest command many times, from one thread and from two."""
	run.folder = run.project.new_folder(run.lane.label)
	for threads in (1, 2):
		counts = {"BENCH_COMMANDS": str(run.settings["commands"]["client"]), "BENCH_THREADS": str(threads)}
		command = run.lane.contender.builder.waf(run, "client", "-j2", BENCH_RESULT=run.answer, **counts)
		run.results.append(("%d thread%s" % (threads, "s" * (threads > 1)), run.ask("client", command)))


def run_spawns(run: Run) -> None:
	"""Start the smallest program many times, from parents that hold more and more memory."""
	run.new_folder()
	for parent in run.settings["parents"]:
		run.results.append(("parent of %d MiB" % parent, run.lane.contender.builder.spawn(run, parent)))


def take_hits(run: Run) -> None:
	"""Repeat a compile many times, of one source after the other."""
	run.new_folder()
	for part, source in PARTS.items():
		run.results.append((part, run.lane.contender.builder.time_part(run, source)))


def take_links(run: Run) -> None:
	"""Make links and archives of each size, and fail unless they are the same as the first contender's."""
	take_parts(run)
	expect_same(*run.project.compare_digests(run.lane.contender.builder.digests(run), run.lane.text))


def take_served(run: Run) -> None:
	"""Load a server over few connections and over many."""
	run.new_folder()
	run.results += run.lane.contender.builder.take_served(run)


def take_crowd(run: Run) -> None:
	"""Load a server over some connections, while more and more are idle."""
	run.new_folder()
	for count in run.settings["crowds"]:
		values = run.lane.contender.builder.take_crowd(run, count)
		run.results.append(("%d connections" % count, values))


def take_parts(run: Run) -> None:
	"""Have a store or a file system measured, part by part."""
	run.new_folder()
	run.results += [(part, {"value": value}) for part, value in run.lane.contender.builder.take(run)]


def take_memory(run: Run) -> None:
	"""Build commands that take much memory, from nothing and once more."""
	run.new_folder()
	run.results += run.lane.contender.builder.take(run)


def check_one_object(run: Run) -> None:
	"""Fail unless all compiles of a source gave the same object as the first contender's."""
	digests = {}
	for source in PARTS.values():
		found = sorted({digest_of(path) for path in run.project.objects(os.path.join(run.folder, source))})
		if len(found) > 1:
			raise Failed("its objects of %s are not the same" % source)
		if found:
			digests[source] = found[0]
	if digests:
		expect_same(*run.project.compare_digests(digests, run.lane.text))


def run_tasks(run: Run) -> None:
	"""Let Waf run tasks that do nothing, and fail if it did not run all of them."""
	count = run.settings["commands"]["tasks"]
	run.new_folder()
	variables = {"BENCH_COMMANDS": str(count), "BENCH_SHAPE": "nothing"}
	run.keep(run.execute(run.lane.contender.builder.waf(run, "build", "-j%d" % run.jobs, **variables)))
	check_done(run, count)


def build_sizes(scenario: str) -> Phase:
	"""A phase that builds more and more tasks, from nothing and once more."""
	return lambda run: Sizes(run, scenario).take()
