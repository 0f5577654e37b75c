"""`wafd dashboard` in a real browser: its content, updates, keys, and errors."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from typing import Any, Callable, List

import pytest
from browser_support import PICTURES, wait
from dashboard_support import PATIENCE, Held, Serve, control, tell_status, wait_until
from serve_support import Server

Look = Callable[..., Any]


def is_as_wide_as_its_window(page: Any) -> bool:
	return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def focused(page: Any) -> str:
	"""The key of the card that has the focus."""
	return str(page.evaluate("document.activeElement.closest('li')?.dataset.key ?? document.activeElement.id"))


def test_a_build_is_seen_while_it_runs(dashboard: Serve, held: Held, look: Look, engine: str) -> None:
	"""A build's commands are in slots, waiting or done. The page follows without being loaded again."""
	control(engine, "start")
	page = look(dashboard().url)
	wait(page, "#state[data-state=running]", "live")
	wait(page, "#builds .none", "no build runs")
	build = held("jack", jobs=2)
	for name in ("one", "two", "three"):
		build.hold(name)
	wait(page, "#builds li", "-j2, 2 running, 1 waiting, 0 done")
	wait(page, "#slots .note", "2 of 2 in use, 1 command waits")
	assert page.locator("#slots li .bar:visible").count() == 2
	assert page.locator("#tile-slots .value").text_content() == "2 / 2"
	assert page.title() == "2/2 · wafd"
	card = page.locator("#slots li").first
	card.locator("summary").click()
	wait(page, "#slots li:first-child pre", "read line < gate")
	wait(page, "#slots li:first-child dl", str(build.folder))
	build.let_go()
	wait(page, "#builds li", "0 running, 0 waiting, 3 done")
	assert page.locator("#slots li[data-tone=free]").count() == 2
	build.close()
	wait(page, "#builds .none", "no build runs")


def test_names_are_text_whatever_they_are(dashboard: Serve, held: Held, look: Look, engine: str) -> None:
	"""A command line, or a folder, that looks like HTML is shown as it is, and does nothing."""
	control(engine, "start")
	evil = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
	build = held(evil.replace("/", "_"), jobs=1)
	build.hold(evil)
	page = look(dashboard().url)
	wait(page, "#builds li .name", "<img src=x")
	wait(page, "#slots li summary").click()
	assert evil in wait(page, "#slots pre", "<script>").text_content().replace("'\\''", "'")
	assert page.locator("main img, main script").count() == 0
	assert page.title() == "1/1 · wafd"


def test_keys_are_enough(dashboard: Serve, held: Held, look: Look, engine: str) -> None:
	"""Sections, lists, what is in them, the filter, pause and help are reached without a mouse."""
	control(engine, "start")
	build = held(jobs=3)
	for name in ("first", "second", "third"):
		build.hold(name)
	page = look(dashboard().url)
	wait(page, "#slots .note", "3 of 3 in use")
	keys = page.keyboard

	def press(*names: str) -> str:
		for name in names:
			keys.press(name)
		return focused(page)

	assert press("2") == "slot 0"
	assert press("ArrowDown") == "slot 1"
	assert press("ArrowDown", "ArrowDown", "ArrowDown") == "slot 2"
	assert press("Home", "End", "ArrowUp") == "slot 1"
	press("Enter")
	wait(page, "#slots li:nth-child(2) details[open] pre", "read line")
	assert press("1").startswith("build ")
	assert press("Tab") == "slot 1", "a list is left by one key, and come back to where it was left"
	assert press("Shift+Tab").startswith("build ")
	assert press("/") == "filter"
	keys.type("third")
	wait(page, "#slots .note", "1 of 3 shown")
	assert page.locator("#slots li").count() == 1
	press("Escape")
	wait(page, "#slots li:nth-child(3)")
	press("?")
	wait(page, "dialog#help")
	press("Escape")
	page.locator("dialog#help").wait_for(state="hidden")
	press("p")
	wait(page, "#state", "paused")
	build.let_go()
	wait_until("all is done", lambda: tell_status(engine)["slots"]["running"] == 0)
	assert page.locator("#slots li .bar:visible").count() == 3, "a paused page stays"
	press("p")
	wait(page, "#slots .note", "0 of 3 in use")


def test_what_is_open_and_focused_stays_so(dashboard: Serve, held: Held, look: Look, engine: str) -> None:
	"""The focus stays on a slot whose command is replaced by another one."""
	control(engine, "start")
	build = held(jobs=1)
	build.hold("before")
	page = look(dashboard().url)
	wait(page, "#slots li summary")
	page.keyboard.press("2")
	page.keyboard.press("Enter")
	wait(page, "#slots details[open] pre", "before")
	build.let_go()
	wait(page, "#slots li[data-tone=free]")
	assert focused(page) == "slot 0"
	build.hold("after")
	wait(page, "#slots li summary", "after")
	assert focused(page) == "slot 0"


def test_an_engine_that_goes_and_one_that_comes_are_seen(dashboard: Serve, look: Look, engine: str) -> None:
	"""The page says that there is none, and recovers by itself."""
	page = look(dashboard().url)
	wait(page, "#trouble", "No engine runs. Any build starts one")
	wait(page, "#slots .none", "no engine runs")
	control(engine, "start")
	wait(page, "#state[data-state=running]")
	assert page.locator("#trouble").is_hidden()
	os.kill(tell_status(engine)["pid"], signal.SIGTERM)
	wait(page, "#state[data-state=absent]", "no engine")
	assert page.locator("#trouble").is_visible()
	control(engine, "start")
	wait(page, "#state[data-state=running]")
	assert page.locator("#trouble").is_hidden()


def test_a_dashboard_that_goes_is_seen(dashboard: Serve, look: Look, engine: str) -> None:
	"""The page tells a planned end, a crash as a lost connection, and a wrong token."""
	control(engine, "start")
	one = dashboard("--port", "0")
	page = look(one.url, troubled=True)
	wait(page, "#state[data-state=running]")
	one.end()
	wait(page, "#trouble", "The dashboard has ended")
	assert page.locator("#state").text_content() == "ended"

	one.argv[-1] = str(one.port)
	one.start()
	page = look(one.url, troubled=True)
	wait(page, "#state[data-state=running]")
	one.end(signal.SIGKILL)
	wait(page, "#trouble", "does not answer")
	one.start()
	wait(page, "#trouble", "not valid any more")
	page.reload()
	wait(page, "p", "open the one that wafd dashboard prints")
	page.goto(one.url)
	wait(page, "#state[data-state=running]")


def test_the_engine_is_not_asked_for_a_hidden_page(dashboard: Serve, look: Look, engine: str) -> None:
	"""A hidden tab closes its connection, and opens it when it is shown again."""
	control(engine, "start")
	page = look(dashboard().url)
	wait(page, "#state[data-state=running]")
	tell = """(hidden) => {
		Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
		document.dispatchEvent(new Event("visibilitychange"));
	}"""
	page.evaluate(tell, True)
	wait_until("the engine is let go", lambda: tell_status(engine)["connections"] == 1)
	page.evaluate(tell, False)
	wait_until("it is asked again", lambda: tell_status(engine)["connections"] == 2)


def test_it_fits_and_can_be_read(dashboard: Serve, held: Held, look: Look, engine: str) -> None:
	"""No window is too narrow for a long name, and text has contrast by day and by night."""
	control(engine, "start")
	build = held("a-" + "very-" * 30 + "long-name", jobs=2)
	build.hold("x" * 400)
	build.hold("-I/usr/include " * 20)
	page = look(dashboard().url, size="phone", dark=True)
	wait(page, "#slots li:nth-child(2) summary").click()
	wait(page, "#slots details[open] pre")
	assert is_as_wide_as_its_window(page)
	for colors in ("dark", "light"):
		page.emulate_media(color_scheme=colors, reduced_motion="reduce")
		contrast = page.evaluate(CONTRAST)
		assert contrast and min(contrast.values()) >= 4.5, contrast
		back = page.evaluate("getComputedStyle(document.body).backgroundColor")
		assert (sum(map(int, re.findall(r"\d+", back)[:3])) < 200) == (colors == "dark")
	assert page.evaluate("getComputedStyle(document.querySelector('.bar i')).transitionDuration") == "0s"
	for width in (320, 600, 1280):
		page.set_viewport_size({"width": width, "height": 700})
		assert is_as_wide_as_its_window(page), width


# of every text that is seen, against what is behind it, as WCAG counts it
CONTRAST = """() => {
	const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
		.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
		.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (place) => {
		for (; place; place = place.parentElement) {
			const color = numbers(getComputedStyle(place).backgroundColor);
			if (color.length < 4 || color[3] > 0) return color;
		}
		return [255, 255, 255];
	};
	const found = {};
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const place = walk.currentNode.parentElement;
		if (!walk.currentNode.textContent.trim() || !place.checkVisibility()) continue;
		const [one, other] = [light(numbers(getComputedStyle(place).color)), light(behind(place))];
		const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
		const name = place.className || place.id || place.tagName;
		found[name] = Math.min(found[name] ?? 99, ratio);
	}
	return found;
}"""


def test_all_that_can_be_focused_has_a_name(dashboard: Serve, held: Held, look: Look, engine: str) -> None:
	"""A screen reader has a name for every control, list and picture, and is told of errors."""
	control(engine, "start")
	held(jobs=1).hold("one")
	page = look(dashboard().url)
	wait(page, "#slots summary")
	unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, summary, section, svg, dialog")]
		.filter((place) => !(place.getAttribute("aria-label") || place.textContent.trim()
			|| document.getElementById(place.getAttribute("aria-labelledby"))?.textContent))
		.map((place) => place.outerHTML)""")
	assert unnamed == []
	assert page.locator("#state[role=status]").count() == page.locator("#trouble[role=alert]").count() == 1


def fill_store(wafcc: str, folder: pathlib.Path, environ: Any) -> None:
	"""Hits, and misses for several reasons."""
	names = ["parse", "lex", "emit", "table", "main"]
	for name in names:
		(folder / (name + ".c")).write_text('#include "shared.h"\nint %s(int x) { return x + ONE; }\n' % name)
	(folder / "shared.h").write_text("#define ONE 1\n")

	def compile_all(*options: str, only: List[str] = names) -> None:
		for name in only:
			argv = [wafcc, "gcc", *options, "-c", name + ".c", "-o", name + ".o"]
			subprocess.run(argv, cwd=folder, env=environ, timeout=PATIENCE, check=True)

	compile_all("-O1")
	wait_until("hits", lambda: compile_all("-O1") or tell_status(environ["WAFD"])["cache"]["statistics"]["hits"] > 20)
	compile_all("-O2", only=["lex"])
	(folder / "shared.h").write_text("#define ONE 2\n")
	compile_all("-O1", only=["parse", "emit"])
	compile_all("-O1", "-fdump-tree-gimple", only=["main"])


def play(wafcc: str, folder: pathlib.Path, environ: Any, other: Any) -> None:
	"""Half a minute of different events, for a picture."""
	end = time.monotonic() + 40
	for turn in range(1000):
		if time.monotonic() > end:
			break
		if turn % 8 == 4:
			other.let_go()
		if turn % 8 == 0:
			other.hold("link")
		for name, option in [("parse", "-DTURN=%d" % (turn // 3)), ("lex", "-O2"), ("emit", "-O1")]:
			argv = [wafcc, "gcc", option, "-c", name + ".c", "-o", name + ".o"]
			subprocess.run(argv, cwd=folder, env=environ, timeout=PATIENCE, check=True)
		time.sleep(0.25)


def test_cache_and_shared_stores_are_shown(
	dashboard: Serve,
	held: Held,
	look: Look,
	engine: str,
	serve: Callable[..., Server],
	tmp_path: pathlib.Path,
) -> None:
	"""The page shows rates by reason, the last misses, and the servers. With WAF_PICTURES, pictures are made."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	server = serve()
	place = "%s:%d" % server.address
	environ = {name: value for name, value in os.environ.items() if not name.startswith(("WAFCC_", "XDG_CACHE"))}
	environ.update(HOME=str(tmp_path / "home"), LC_ALL="C", WAFCC_REMOTE="tcp://%s" % place, WAFD=engine)
	project = tmp_path / "compiler"
	project.mkdir()
	fill_store(str(pathlib.Path(engine).with_name("wafcc")), project, environ)
	compiles, link = held("compiler-build", jobs=4), held("tools", jobs=2)
	gate = compiles.gate.resolve()
	for name in ("parse", "optimize", "emit"):
		(compiles.folder / (name + ".c")).write_text("int %s;\n" % name)
		compiles.run("gcc", "-O2", "-Wall", "-include", str(gate), "-c", name + ".c", "-o", name + ".o")
	link.hold("link")
	address = dashboard("--server", "tcp://%s" % place).url
	page = look(address)
	miss = wait(page, "#misses li", "lex.o")
	assert re.search(r"its argument is -O2, was -O1|shared\.h", miss.text_content()), miss.text_content()
	miss.locator("summary").click()
	wait(page, "#misses details[open] pre", "gcc -O2 -c lex.c -o lex.o")
	wait(page, "#misses li", "parse.o")
	assert "shared.h" in page.locator("#misses li", has_text="parse.o").first.text_content()
	wait(page, "#cache li[data-tone=hit]", "hit")
	wait(page, "#cache li[data-tone=slow]", "not cached")
	assert page.locator("#cache li[data-tone=miss]").count() >= 2
	wait(page, "#tiers li[data-tone=hit]", "tcp://%s" % place)
	wait(page, "#tiers li[data-tone=hit]", "serves for")
	wait(page, "#tile-store .note", "entries, at most 5.0 GB")
	wait(page, "#engine dl", "available")
	wait(page, "#slots .note", "4 of 4 in use")
	assert page.locator("#slots li summary").count() == 4
	if os.environ.get("WAF_PICTURES"):
		play(str(pathlib.Path(engine).with_name("wafcc")), project, environ, link)
		page.evaluate("document.activeElement.blur()")
		PICTURES.mkdir(exist_ok=True)
		page.screenshot(path=str(PICTURES / "dashboard.png"))
		phone = look(address, size="phone", dark=True)
		wait(phone, "#slots summary")
		wait(phone, "#misses summary")
		phone.screenshot(path=str(PICTURES / "dashboard-phone.png"))
