"""The chains and idle slots of a picture, for invented builds."""

import random
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence, Tuple

import pytest

from waflib_extras.client import protocol
from waflib_extras.timeline import analysis, chains, idle


class Task:
	def __init__(self, *before: Any) -> None:
		self.run_after = set(before)


def find_chain(times: Dict[Any, Tuple[float, float]], stages: Any = None, **more: Any) -> chains.Chains:
	stages = stages or {}
	ran = [chains.Ran(task, start, end, stages.get(task, 0), end - start) for task, (start, end) in times.items()]
	return chains.Chains(ran, more.get("groups", {}), more.get("heirs", ()), more.get("makers", {}))


def test_longest_chain_of_a_diamond() -> None:
	"""The longer one of two ways counts, even if the other one has ended later."""
	top = Task()
	left, right = Task(top), Task(top)
	bottom = Task(left, right)
	found = find_chain({top: (0, 1), left: (1, 5), right: (6, 8), bottom: (8, 9)})
	assert found.longest() == [0, 1, 3]
	assert found.link(3).length == 6
	assert (found.link(3).blocker, found.link(3).ready) == (2, 8)
	assert found.link(0).blocker == -1


def test_chain_goes_through_what_did_not_run() -> None:
	"""A task that was up to date passes its waiting on."""
	first = Task()
	skipped = Task(first)
	last = Task(skipped)
	found = find_chain({first: (0, 2), last: (2, 3)})
	assert found.longest() == [0, 1] and found.link(1).blocker == 0


def test_chain_goes_through_groups_that_waf_has_taken_apart() -> None:
	"""A task that waited for a group waited for each of its tasks, though Waf has dropped the group by the end."""
	quick, slow, one, other = Task(), Task(), Task(), Task()
	group = object()
	heirs = [(group, {one, other})]
	times = {quick: (0, 1), slow: (0, 4), one: (4, 5), other: (4, 7)}
	found = find_chain(times, groups={group: (quick, slow)}, heirs=heirs)
	assert found.longest() == [1, 3] and found.link(2).blocker == 1


def test_chain_goes_from_build_group_to_build_group() -> None:
	"""The next build group begins when all of the last one have ended."""
	a, b, c = Task(), Task(), Task()
	found = find_chain({a: (0, 1), b: (0, 3), c: (3, 4)}, {c: 1})
	assert found.longest() == [1, 2] and found.link(2).blocker == 1 and found.link(2).ready == 3


def test_chain_goes_from_maker_to_made() -> None:
	"""A task that another one has made while it ran comes after that one."""
	maker, made = Task(), Task()
	assert find_chain({maker: (0, 2), made: (2, 3)}, makers={made: maker}).longest() == [0, 1]


def test_long_chains_and_circles_end() -> None:
	"""A chain may be longer than Python's stack. A cycle, which only an unfinished build can have, is left."""
	tasks = [Task()]
	for _ in range(20000):
		tasks.append(Task(tasks[-1]))
	found = find_chain({task: (n, n + 1) for n, task in enumerate(tasks)})
	assert found.longest() == list(range(20001)) and found.link(20000).length == 20001
	one, other = Task(), Task()
	one.run_after.add(other)
	other.run_after.add(one)
	assert len(find_chain({one: (0, 1), other: (1, 2)}).longest()) == 2


# ---- idle slots


def scene(jobs: int = 2, end: float = 10.0, **more: Any) -> idle.Circumstances:
	"""A build with a second before its scheduler and one after it, whose main thread always waits."""
	fields: Dict[str, Any] = {
		"begun": 0.0,
		"ended": end,
		"jobs": jobs,
		"schedules": [(1.0, end - 1)],
		"posts": [],
		"waits": [(1.0, end - 1)],
		"others": [],
	}
	return idle.Circumstances(**{**fields, **more})


def span(number: int, start: float, end: float, blocker: int = -1, sent: float = -1, pauses: Any = ()) -> idle.Span:
	return idle.Span(start, end, start if sent < 0 else sent, number, blocker, pauses)


def reasons(where: idle.Circumstances, spans: Sequence[idle.Span]) -> List[Tuple[int, int, float]]:
	found = idle.find_idle(where, list(spans))
	all_slots = where.jobs * (where.ended - where.begun)
	assert abs(found.busy + sum(spent for _, _, spent in idle.sum_reasons(found)) - all_slots) < 1e-6
	return [(reason, who, round(spent, 6)) for reason, who, spent in sorted(idle.sum_reasons(found))]


def test_nothing_is_ready() -> None:
	"""A slot is idle while the next task waits for one that runs, and while the last task runs alone."""
	found = reasons(scene(), [span(0, 1, 5), span(1, 5, 9, blocker=0)])
	assert found == [(idle.BEFORE, -1, 2), (idle.DEPENDENCY, 0, 4), (idle.TAIL, 1, 4), (idle.AFTER, -1, 2)]


def test_waf_itself_is_busy() -> None:
	"""Time in which Waf's own thread posts, or does not wait, is counted for that thread."""
	where = scene(jobs=1, posts=[(1, 2)], waits=[(3, 9)])
	assert reasons(where, [span(0, 3, 9)]) == [
		(idle.BEFORE, -1, 1),
		(idle.POSTING, -1, 1),
		(idle.BUSY, -1, 1),
		(idle.AFTER, -1, 1),
	]


@pytest.mark.parametrize(
	("others", "reason"), [([(4.0, 0)], idle.ENGINE), ([(4.0, 3)], idle.OTHERS), ([], idle.ENGINE)]
)
def test_the_engine_has_it(others: Any, reason: int) -> None:
	"""A sent command has not begun: other builds have the slots, or the engine is slow."""
	found = reasons(scene(jobs=1, others=others), [span(0, 5, 9, sent=4), span(1, 1, 4)])
	assert (reason, -1, 1.0) in found and {each[0] for each in found} == {idle.BEFORE, idle.AFTER, reason}


def test_python_that_waits_for_a_slot_uses_none() -> None:
	"""While a task of Python code waits in the engine, its slot is idle for that reason."""
	found = reasons(scene(jobs=1), [span(0, 1, 9, pauses=[(3, 5)])])
	assert (idle.ENGINE, -1, 2.0) in found


def test_more_than_slots_is_not_more_than_all() -> None:
	"""Tasks of Python code run beside the slots: used slots are never more than all slots."""
	found = idle.find_idle(scene(jobs=2), [span(n, 1, 9) for n in range(5)])
	assert found.busy == 16


def test_sums_hold_for_random_builds() -> None:
	"""Used and idle slots add up to all slots, and what is drawn of very many has the same sum."""
	seed = random.SystemRandom().randrange(1 << 30)
	print("seed", seed)
	draw = random.Random(seed)
	for _ in range(30):
		spans = []
		for number in range(draw.randrange(60)):
			start = draw.uniform(1, 8)
			sent = start - draw.choice((0, 0, draw.uniform(0, 1)))
			spans.append(span(number, start, draw.uniform(start, 9), draw.randrange(-1, max(1, number)), sent))
		where = scene(jobs=draw.randrange(1, 6), waits=[(1 + n, 1.5 + n) for n in range(7)], posts=[(1, 1.2)])
		reasons(where, spans)
		found = idle.find_idle(where, spans)
		thinned = idle.thin(found.segments, where.begun, where.ended, 90)
		assert len(thinned) <= 90

		def area(segments: Any) -> float:
			return sum((end - begin) * slots for begin, end, slots, _, _ in segments)

		assert abs(area(found.segments) - area(thinned)) < 1e-6 * max(1, area(thinned))
		main = idle.find_main(where)
		assert main[0][0] == where.begun and main[-1][1] == where.ended
		assert all(one[1] == other[0] for one, other in zip(main, main[1:]))


# ---- commands of a cluster

ADDRESS = "grpcs://build.example.com:50051/team"


def went(after: float, there: float, here: float = 0, words: str = "") -> protocol.Elsewhere:
	return protocol.Elsewhere(1, int(after * 1e6), int(there * 1e6), int(here * 1e6), ADDRESS, words)


def run(queued: float, wall: float) -> protocol.Outcome:
	return protocol.Outcome(1, protocol.RAN, 0, 0, int(queued * 1e6), int(wall * 1e6), 0, 0, 0)


def collect(*commands: Tuple[float, float, protocol.Outcome, Any]) -> List[analysis.Row]:
	"""The rows of commands that the engine was sent: when, when the outcome came, the outcome, where it ran."""
	told = protocol.Told(1, protocol.MISS, 1, "it was not seen before")
	tasks: List[Any] = [SimpleNamespace(hasrun=9) for _ in commands]
	noted = [(task, sent, heard, out, told, where) for task, (sent, heard, out, where) in zip(tasks, commands)]
	return analysis.collect(SimpleNamespace(commands=noted, calls=[], tasks=[], sent={}))  # type: ignore[arg-type]


def test_a_command_of_the_cluster_has_its_time_there() -> None:
	"""It is in a lane of the cluster, from when it went there until its result had come."""
	(row,) = collect((1.0, 5.2, run(4.1, 0), went(0.5, 3.5)))
	assert (row.start, row.end, row.queued, row.kind) == (1.5, 5.0, 0.5, analysis.MISS)
	assert row.away == ((1.5, 5.0),) and row.place == "on " + ADDRESS
	lanes = analysis.place([row], 2)
	assert lanes[row.lane] == analysis.Lane("cluster", 1)


def test_a_command_that_ran_in_both_places_has_two_rows() -> None:
	"""The one whose result counts is the task's. The other one belongs to it."""
	there = collect((1.0, 5.0, run(4.0, 0), went(0.5, 3.5, 1.0)))
	assert [(row.start, row.end, row.kind, row.owner) for row in there] == [
		(1.5, 5.0, analysis.MISS, -1),
		(4.0, 5.0, analysis.IN_VAIN, 0),
	]
	assert there[0].away == ((1.5, 4.0),)
	here = collect((1.0, 5.0, run(3.0, 1.0), went(0.5, 3.5, 0, "it was sooner done here")))
	assert [(row.start, row.end, row.kind, row.owner) for row in here] == [
		(1.5, 5.0, analysis.IN_VAIN, 1),
		(4.0, 5.0, analysis.MISS, -1),
	]
	assert here[1].away == ((1.5, 4.0),) and here[1].place == "was on %s, too: it was sooner done here" % ADDRESS
	for rows in (there, here):
		lanes = analysis.place(rows, 2)
		assert sorted(lanes[row.lane].kind for row in rows) == ["cluster", "slot"]


def test_a_command_that_stayed_says_why() -> None:
	"""It never was on the cluster, and so has no time there."""
	(row,) = collect((1.0, 3.0, run(1.0, 1.0), went(0, 0, 0, "it takes too little time")))
	assert (row.start, row.end, row.away) == (2.0, 3.0, ())
	assert row.place == "not on %s: it takes too little time" % ADDRESS
	assert analysis.place([row], 1)[row.lane] == analysis.Lane("slot", 1)


def test_python_code_waits_for_a_command_of_the_cluster() -> None:
	"""The time of the command in the engine's queue, and that on the cluster, are no use of a slot by its task."""
	assert analysis.find_pauses(collect((1.0, 5.0, run(4.0, 0), went(0.5, 3.5)))[0]) == [(1.0, 1.5)]
	stayed = collect((1.0, 9.0, run(6.0, 2.0), went(0.5, 3.5, 0, "the worker has no entry of it")))
	(row,) = [row for row in stayed if row.is_task]
	assert analysis.find_pauses(row) == [(1.0, 1.5), (5.0, 7.0)]


def test_a_command_of_the_cluster_uses_no_slot() -> None:
	"""Its slot is idle for that reason, although another build runs something. What waits for it is told."""
	spans = [
		idle.Span(2.0, 5.0, 1.0, 0, -1, (), ((2.0, 5.0),)),
		idle.Span(5.0, 9.0, 5.0, 1, 0),
	]
	where = scene(others=[(float(at), 1) for at in range(10)])
	found = reasons(where, spans)
	assert (idle.CLUSTER, -1, 3.0) in found and (idle.DEPENDENCY, 0, 3.0) in found
	assert idle.find_idle(where, spans).busy == 4.0


def test_a_command_in_both_places_uses_a_slot_while_it_runs_here() -> None:
	"""First it was on the cluster alone; then it ran here, too, whichever was done first."""
	for start, away in ((1.0, (1.0, 4.0)), (4.0, (1.0, 4.0))):
		found = idle.find_idle(scene(jobs=1), [idle.Span(start, 9.0, 1.0, 0, -1, (), (away,))])
		assert found.busy == 5.0
		assert (idle.CLUSTER, -1, 3.0) in idle.sum_reasons(found)


def test_processors_hold_compiles_back_if_there_is_a_cluster() -> None:
	"""With a cluster, -j may be larger than the number of processors. Other builds are not the reason then."""
	spans = [span(0, 1, 9), span(1, 5, 9, sent=1)]
	others = [(float(at), 1) for at in range(10)]
	assert (idle.HELD, -1, 4.0) in reasons(scene(jobs=4, others=others, processors=1), spans)
	assert (idle.OTHERS, -1, 4.0) in reasons(scene(jobs=4, others=others), spans)
