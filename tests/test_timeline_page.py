"""The page of a build as a person sees it, in a real browser: zoom, hover, filter, tables, on a phone, by night."""

import os
import pathlib
import random
from typing import Any, List, Tuple

import pytest
from browser_support import PICTURES, wait
from timeline_support import check_trace

from waflib_extras.timeline import analysis, idle, picture
from waflib_extras.timeline.meter import Sample

JOBS = 4


def make_rows(count: int, seed: int = 7) -> Tuple[List[analysis.Row], float]:
	"""Rows in four slots, one after the other, with a hit now and then; and the end of the last one."""
	draw = random.Random(seed)
	free = [0.2] * JOBS
	rows = []
	for number in range(count):
		slot = free.index(min(free))
		took = draw.choice((0.004, 0.02, 0.05, 0.3))
		kind = draw.choice((analysis.HIT, analysis.MISS, analysis.PARKED, analysis.SPAWNED, analysis.PARKED))
		row = analysis.Row(None, free[slot], free[slot] + (0 if kind == analysis.HIT else took), kind)
		row.lane = 0 if kind == analysis.HIT else 1 + slot
		row.name = "lib/part%d/file_%d.c.o" % (number % 40, number)
		row.what, row.target = ("cxx", "part%d" % (number % 40)) if number % 3 else ("c", "core")
		row.words = "the content of head.h is another one" if kind == analysis.MISS else ""
		row.way = {analysis.PARKED: 1, analysis.HIT: 0}.get(kind, 2)
		row.peak, row.processor, row.queued = 30000 + number % 5000, took / 2, 0.0005
		row.ready = row.start - 0.001
		row.blocker = number - 4 if number > 4 else -1
		free[slot] = row.end
		rows.append(row)
	return rows, max(free)


def make_built(rows: List[analysis.Row], end: float, **more: Any) -> analysis.Built:
	lanes = [analysis.Lane("cache", 1), *(analysis.Lane("slot", n + 1) for n in range(JOBS))]
	spans = [idle.Span(row.start, row.end, row.start, n, row.blocker) for n, row in enumerate(rows)]
	scene = idle.Circumstances(0.0, end + 0.3, JOBS, [(0.1, end + 0.2)], [(0.1, 0.2)], [(0.2, end)], [])
	chain = list(range(0, len(rows), max(1, len(rows) // 9)))
	fields = {
		"name": "build",
		"outcome": "succeeded",
		"begun": 0.0,
		"ended": end + 0.3,
		"jobs": JOBS,
		"total": len(rows) + 5,
		"processor": 0.4,
		"rows": rows,
		"lanes": lanes,
		"chain": chain,
		"chain_seconds": 0.0,
		"idle": idle.find_idle(scene, spans),
		"main": idle.find_main(scene),
		"samples": [Sample(at * end / 20, 3000 + 100 * at, 40 + at, 2.5, 0) for at in range(21)],
		"doings": [(0.3, "scanning sources"), (0.5, "waiting"), (0.7, "waiting")],
		"about": {"made": "now", "waf": "2", "python": "CPython", "arguments": "build", "project": "<b>demo</b>"},
	}
	return analysis.Built(**{**fields, **more})


@pytest.fixture
def open_page(look: Any, tmp_path: pathlib.Path) -> Any:
	"""A function that writes the page of such builds and opens it."""

	def opened(builds: List[analysis.Built], **kwargs: Any) -> Any:
		picture.write(str(tmp_path / "build"), builds)
		return look((tmp_path / "build.html").as_uri(), **kwargs)

	return opened


def span(seen: Any) -> float:
	return seen.evaluate("page.to - page.from")


def settle(seen: Any) -> None:
	"""Wait until what was asked for is drawn."""
	seen.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def spot(seen: Any, row: int) -> Tuple[float, float]:
	"""The middle of a row on the page."""
	x, y = seen.evaluate(
		"row => [xOf((page.rows.start[row] + page.rows.end[row]) / 2), yOf(page.rows.lane[row]) + laneHeight / 2]", row
	)
	box = seen.locator("#lanes").bounding_box()
	return box["x"] + x, box["y"] + y


def color_at(seen: Any, row: int) -> str:
	"""The color in the middle of a row, low enough to miss its name."""
	settle(seen)
	script = """row => {
	const ratio = window.devicePixelRatio || 1, x = xOf((page.rows.start[row] + page.rows.end[row]) / 2);
	const y = yOf(page.rows.lane[row]) + laneHeight - 4;
	const [...parts] = pen.getImageData(x * ratio, y * ratio, 1, 1).data.slice(0, 3);
	return "#" + parts.map(part => part.toString(16).padStart(2, "0")).join("");
}"""
	return seen.evaluate(script, row)


def long_row(rows: List[analysis.Row], kind: int = analysis.PARKED) -> int:
	return next(n for n, row in enumerate(rows) if row.kind == kind and row.end - row.start > 0.2)


def test_zoom_and_hover(open_page: Any) -> None:
	"""Wheel, buttons, keys and marking zoom to where they should; what is under the mouse is told."""
	rows, end = make_rows(60)
	seen = open_page([make_built(rows, end)])
	whole = span(seen)
	row = long_row(rows)
	x, y = spot(seen, row)
	seen.mouse.move(x, y)
	tip = seen.locator("#tip")
	tip.wait_for(state="visible")
	told = tip.inner_text()
	assert rows[row].name in told and "forked from a parked program" in told and "took 300 ms" in told
	assert "MiB" in told and "in the engine" in told
	at = seen.evaluate("x => timeOf(x - canvas.getBoundingClientRect().left)", x)
	seen.mouse.wheel(0, -300)
	seen.wait_for_function("most => page.to - page.from < most", arg=whole / 2)
	assert abs(seen.evaluate("x => timeOf(x - canvas.getBoundingClientRect().left)", x) - at) < whole / 500
	before = span(seen)
	seen.click("#in")
	assert abs(span(seen) - 0.6 * before) < 2
	seen.focus("#lanes")
	start = seen.evaluate("page.from")
	seen.keyboard.press("ArrowRight")
	assert seen.evaluate("page.from") > start
	seen.keyboard.press("-")
	assert abs(span(seen) - before) < 2
	seen.keyboard.press("0")
	assert span(seen) == whole
	# mark a stretch, and drag the rest
	box = seen.locator("#lanes").bounding_box()
	seen.keyboard.down("Shift")
	seen.mouse.move(box["x"] + 300, box["y"] + 40)
	seen.mouse.down()
	seen.mouse.move(box["x"] + 500, box["y"] + 40)
	seen.mouse.up()
	seen.keyboard.up("Shift")
	marked = span(seen)
	assert abs(marked / whole - 200 / seen.evaluate("inner()")) < 0.01
	start = seen.evaluate("page.from")
	seen.mouse.move(box["x"] + 600, box["y"] + 40)
	seen.mouse.down()
	seen.mouse.move(box["x"] + 400, box["y"] + 40)
	seen.mouse.up()
	assert seen.evaluate("page.from") > start and abs(span(seen) - marked) < 2
	seen.focus("#lanes")
	seen.keyboard.press("Escape")
	seen.keyboard.press("n")
	wait(seen, "#tip", rows[0].name)


def test_tasks_of_a_cluster_are_told_from_others(open_page: Any) -> None:
	"""They are in a lane of the cluster, with where they ran. The filter finds them, and they are summed."""
	rows, end = make_rows(30)
	for row in rows[3:6]:
		row.start, row.end, row.kind, row.way, row.lane = row.start, row.start + 0.5, analysis.MISS, 3, JOBS + 1
		row.place = "on grpcs://build.example.com:50051/team"
	for before, row in zip(rows[3:], rows[4:6]):
		row.start, row.end = before.end, before.end + 0.5
	rows.sort(key=lambda row: row.start)
	built = make_built(rows, max(end, *(row.end for row in rows)))
	seen = open_page([built._replace(lanes=[*built.lanes, analysis.Lane("cluster", 1)])])
	there = [n for n, row in enumerate(rows) if row.way == 3]
	seen.mouse.move(*spot(seen, there[0]))
	wait(seen, "#tip", "where: on grpcs://build.example.com:50051/team")
	wait(seen, "#tip", "run on a cluster")
	summary = seen.locator("#summary div", has_text="on a cluster")
	assert "3" in summary.locator("dd").inner_text() and "1.50 s there" in summary.inner_text()
	seen.fill("#filter", "run on a cluster")
	seen.wait_for_function("$('matches').textContent.startsWith('3 tasks')")
	seen.select_option("#colors", "way")
	assert color_at(seen, there[1]) == seen.evaluate("palette.cluster")


def test_filter_tables_and_chain(open_page: Any) -> None:
	"""The filter's tasks are summed and listed, the rest is dim; tables lead to their rows; the chain is drawn."""
	rows, end = make_rows(60)
	seen = open_page([make_built(rows, end)])
	assert seen.locator("#title").inner_text() == "waf build in <b>demo</b>: succeeded"
	core = [row for row in rows if row.target == "core"]
	spent = sum(row.end - row.start for row in core)
	row = next(n for n, each in enumerate(rows) if each.end - each.start > 0.2 and each.target != "core")
	before = color_at(seen, row)
	seen.fill("#filter", "CORE .c.o")
	seen.wait_for_function("count => $('matches').textContent.startsWith(count + ' tasks')", arg=len(core))
	told = seen.locator("#matches").inner_text()
	assert f"{spent:.2f} s of" in told
	assert color_at(seen, row) != before and color_at(seen, row) == seen.evaluate("palette.dim")
	listed = seen.locator("#longest button").all_inner_texts()
	assert set(listed) <= {each.name for each in core}
	seen.fill("#filter", "")
	seen.wait_for_function("count => $('matches').textContent.startsWith(count + ' tasks')", arg=len(rows))
	longest = [row.name for row in rows if row.end - row.start > 0.2]
	first = seen.locator("#longest button").first.inner_text()
	assert first in longest and "300 ms" in seen.locator("#longest tr:nth-child(2)").inner_text()
	seen.locator("#longest button").first.focus()
	seen.keyboard.press("Enter")
	wait(seen, "#tip", first)
	assert span(seen) < 2e6
	seen.click("#fit")
	plain = seen.evaluate("canvas.toDataURL()")
	seen.check("#chain-on")
	settle(seen)
	assert seen.evaluate("canvas.toDataURL()") != plain
	names = seen.locator("#chain button").all_inner_texts()
	assert names == [rows[n].name for n in make_built(rows, end).chain]
	idle_words = seen.locator("#idle").inner_text()
	assert "Waf makes tasks" in idle_words and "before the first task" in idle_words
	assert "scanning sources" in seen.locator("#main").inner_text()
	summary = seen.locator("#summary").inner_text()
	assert "hits" in summary and "cannot take less than" in summary and "65" in summary


def test_phone_by_night(open_page: Any) -> None:
	"""On a phone nothing is wider than the screen, two fingers zoom, a touch tells more; by night the page is dark."""
	rows, end = make_rows(60)
	second = make_built(rows[:5], end, name="build_release", outcome="failed")
	seen = open_page([make_built(rows, end), second], size="phone", dark=True)
	assert seen.evaluate("document.documentElement.scrollWidth") <= 390
	red, green, blue = seen.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
	assert max(red, green, blue) < 80
	assert "failed" in seen.locator("#title").inner_text()
	seen.select_option("#builds", "0")
	wait(seen, "#title", "succeeded")
	whole = span(seen)
	touch = seen.context.new_cdp_session(seen)
	seen.locator("#lanes").scroll_into_view_if_needed()
	box = seen.locator("#lanes").bounding_box()
	left, right, y = box["x"] + 150, box["x"] + 220, box["y"] + 60

	def send(kind: str, *spots: float) -> None:
		points = [{"x": x, "y": y, "id": n} for n, x in enumerate(spots)]
		touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

	touch.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
	send("touchStart", left, right)
	send("touchMove", left - 30, right + 30)
	send("touchMove", left - 60, right + 60)
	send("touchEnd")
	seen.wait_for_function("most => page.to - page.from < most", arg=whole / 1.5)
	seen.click("#fit")
	row = long_row(rows)
	x, y = spot(seen, row)
	send("touchStart", x)
	send("touchEnd")
	wait(seen, "#tip", "took")


def test_a_hundred_thousand_tasks(open_page: Any, tmp_path: pathlib.Path) -> None:
	"""The page of 100,000 is below 6 MB, drawn whole and in detail, and filtered; the trace is well formed."""
	rows, end = make_rows(100000)
	seen = open_page([make_built(rows, end)])
	assert (tmp_path / "build.html").stat().st_size < 6e6
	assert seen.evaluate("page.rows.n") == 100000
	drawn = seen.evaluate("page.drawn")
	seen.focus("#lanes")
	for _ in range(25):
		seen.keyboard.press("+")
	settle(seen)
	assert seen.evaluate("page.drawn") > drawn and span(seen) < 1e6 * end / 1000
	seen.fill("#filter", "file_77777.c.o")
	seen.wait_for_function("() => $('matches').textContent.startsWith('1 task,')")
	events = check_trace(tmp_path / "build.json")
	assert sum(event["ph"] in "Xi" and event.get("cat") in ("c", "cxx") for event in events) == 100000


HOSTILE = "</script><script>document.title='broken'</script><!--<script>\\u2028'\"&"


def test_names_are_text(open_page: Any) -> None:
	"""The name of a file is shown unchanged, also if it looks like HTML."""
	rows, end = make_rows(3)
	rows[0].name = rows[0].target = rows[1].words = HOSTILE
	rows[0].end = rows[0].start + 1
	seen = open_page([make_built(rows, end + 1)])
	assert seen.title() == "waf build: <b>demo</b>"
	assert seen.locator("#longest button").first.inner_text() == HOSTILE


def test_picture_of_a_real_build(
	look: Any, waf: Any, project: Any, engine: str, monkeypatch: Any, tmp_path: Any
) -> None:
	"""The page of C++ compiled with a cache in reach, as the documents show it."""
	monkeypatch.setenv("HOME", str(tmp_path))
	for name in [name for name in os.environ if name.startswith(("WAFCC_", "XDG_CACHE", "XDG_CONFIG"))]:
		monkeypatch.delenv(name)
	files = {"wscript": WSCRIPT}
	for lib in range(3):
		for n in range(4):
			head = "#include <vector>\n" if n % 2 else "#include <cstdio>\n"
			files["lib%d/part%d.cpp" % (lib, n)] = head + "int f%d_%d() { return %d; }\n" % (lib, n, n)
	files["main.cpp"] = "int main() { return 0; }\n"
	folder = project(files)
	waf(folder, "configure", "build", "--targets=lib0")
	for n in range(2):
		(folder / "lib0" / ("part%d.cpp" % n)).write_text("int g%d() { return 1; }\n" % n)
	waf(folder, "clean", "build", "-j3", "--timeline=picture")
	seen = look((folder / "picture.html").as_uri())
	legend = seen.locator("#legend").inner_text()
	assert "hit: " in legend and "miss: " in legend
	seen.check("#chain-on")
	assert "main.cpp" in seen.locator("#chain").inner_text() or "lib" in seen.locator("#chain").inner_text()
	settle(seen)
	if os.environ.get("WAF_PICTURES"):
		PICTURES.mkdir(exist_ok=True)
		row = seen.evaluate("page.build.chain[0]")
		seen.mouse.move(*spot(seen, row))
		settle(seen)
		seen.screenshot(path=str(PICTURES / "timeline.png"))


WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_cxx prefork wafcc")
def configure(conf):
	conf.load("compiler_cxx")
def build(bld):
	for lib in ("lib0", "lib1", "lib2"):
		bld.stlib(source=bld.path.ant_glob(lib + "/*.cpp"), target=lib)
	def note(task):
		import time
		time.sleep(0.1)
		task.outputs[0].write("made by Python")
	bld(rule=note, target="notes.txt")
	bld.program(source="main.cpp", target="app", use="lib0 lib1 lib2")
"""
