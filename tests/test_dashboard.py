"""`wafd dashboard`: who gets an answer, and with which content; test_dashboard_page.py tests how it looks."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from typing import Any, Callable, Dict, Iterator

import pytest
from dashboard_support import PATIENCE, Dashboard, Held, Serve, control, tell_status, wait_until
from serve_support import OTHER, TOKEN, Server, write_tokens


def until(news: Iterator[Dict[str, Any]], holds: Callable[[Dict[str, Any]], Any]) -> Dict[str, Any]:
	"""The first news for which a condition holds."""
	deadline = time.monotonic() + PATIENCE
	while True:
		told = next(news)
		if told["kind"] == "news" and holds(told):
			return told
		assert time.monotonic() < deadline, "never told; at last: %s" % told


def test_nothing_is_shown_without_the_token(dashboard: Serve) -> None:
	"""Without the token, or with a wrong one, the page only says how to get it."""
	page = dashboard()
	right = "/%s/" % page.token
	wrong = "/%s/" % (page.token[:-1] + ("0" if page.token[-1] != "0" else "1"))
	for path in ["/", wrong, wrong + "news", wrong + "page.js", right[:-2] + "/", "/" + right, "/favicon.ico"]:
		status, _, body = page.ask(path)
		assert (status, "wafd dashboard</code> prints" in body) == (403, True), path
		assert page.token not in body
	assert page.ask(right)[0] == 200
	status, head, _ = page.ask(right[:-1])
	assert (status, head["Location"]) == (308, right)
	assert page.ask(right + "nothing")[0] == 404
	assert page.ask(right, "POST")[0] == 405
	status, head, body = page.ask(right, "HEAD")
	assert (status, body) == (200, "") and int(head["Content-Length"]) > 1000


def test_another_name_of_this_machine_is_refused(dashboard: Serve) -> None:
	"""DNS rebinding: the owner of a name that leads here would control the page's origin."""
	page = dashboard()
	path = "/%s/" % page.token
	for host in ["evil.example", "evil.example:%d" % page.port, "127.0.0.1.evil.example", "0.0.0.0"]:
		assert page.ask(path, Host=host)[0] == 421, host
	for host in ["127.0.0.1:9", "localhost:%d" % page.port]:
		assert page.ask(path, Host=host)[0] == 200, host


def test_a_browser_is_led_to_it_by_a_file_and_reads_nothing_from_elsewhere(
	dashboard: Serve, chromium: Any, tmp_path: pathlib.Path
) -> None:
	"""`wafd dashboard` gives this file to the desktop's browser; a page of that origin may not ask by itself."""
	page = dashboard()
	door = tmp_path / "door.html"
	door.write_text('<!doctype html><meta http-equiv="refresh" content="0; url=%s">' % page.url)
	empty = tmp_path / "empty.html"
	empty.write_text("<!doctype html>")
	context = chromium.new_context()
	try:
		shown = context.new_page()
		shown.goto(door.as_uri())
		shown.wait_for_url(page.url)
		shown.locator("h1, h2").first.wait_for()
		shown.goto(empty.as_uri())
		ask = "url => fetch(url).then(answer => answer.status, () => 'refused')"
		assert shown.evaluate(ask, page.url + "page.js") == "refused"
		shown.goto("http://evil.example:%d/%s/" % (page.port, page.token))
		assert "asked by a name that is not its own" in shown.content()
	finally:
		context.close()


def test_nothing_from_elsewhere_and_no_address_to_elsewhere(dashboard: Serve) -> None:
	"""All answers, errors included, have the security headers for browsers."""
	page = dashboard()
	for path in ["/", "/%s/" % page.token, "/%s/page.js" % page.token]:
		_, head, _ = page.ask(path)
		assert head["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
		assert "unsafe" not in head["Content-Security-Policy"]
		assert (head["Referrer-Policy"], head["Cache-Control"]) == ("no-referrer", "no-store")
		assert (head["X-Content-Type-Options"], head["X-Frame-Options"]) == ("nosniff", "DENY")


def test_it_listens_on_loopback_only(dashboard: Serve) -> None:
	"""The kernel's list of listeners has its port at 127.0.0.1 only."""
	port = "%04X" % dashboard().port
	lines = [line for name in ("tcp", "tcp6") for line in pathlib.Path("/proc/net", name).read_text().splitlines()]
	listeners = [line.split()[1] for line in lines if line.split()[3] == "0A"]
	assert [place for place in listeners if place.endswith(":" + port)] == ["0100007F:" + port]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_pages_are_told(dashboard: Serve, how: int) -> None:
	"""A signal is no error, and a page can tell it from a lost connection."""
	page = dashboard()
	news = page.news()
	assert next(news)["kind"] == "past"
	assert page.end(how) == 0
	assert [told["kind"] for told in news][-1] == "over"
	assert page.log.read_text() == ""


@pytest.mark.parametrize(
	("options", "words"),
	[
		(["--port", "many"], "dashboard: --port many: it is a number from 0 to 65535; see wafd dashboard --help"),
		(["--bogus"], "dashboard: there is no option --bogus; see wafd dashboard --help"),
		(
			["--server", "s3://b"],
			"dashboard: --server s3://b: only a wafd serve tells how it does; write tcp://HOST:PORT",
		),
	],
)
def test_mistakes_are_one_line(engine: str, runtime: pathlib.Path, options: Any, words: str) -> None:
	"""The line names the thing and the remedy."""
	done = subprocess.run([engine, "dashboard", *options], stderr=subprocess.PIPE, timeout=PATIENCE)
	said = done.stderr.decode()
	assert (done.returncode, said.count("\n")) == (1, 1)
	assert said.startswith("wafd: " + words), said


def test_a_port_in_use_is_one_line(dashboard: Serve, engine: str) -> None:
	"""The line names the thing and the remedy here, too."""
	port = str(dashboard().port)
	done = subprocess.run([engine, "dashboard", "--port", port], stderr=subprocess.PIPE, timeout=PATIENCE)
	assert done.returncode == 1
	said = done.stderr.decode()
	assert said.startswith("wafd: listen on 127.0.0.1:%s: Address already in use" % port), said
	assert "choose another --port" in said and said.count("\n") == 1


def test_connections_that_ask_nothing_keep_no_visitor_out(dashboard: Serve) -> None:
	"""With 200 idle connections each visitor is answered at once: the oldest idle one is closed for the next."""
	page = dashboard()
	with contextlib.ExitStack() as idle:
		peers = [
			idle.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE)) for _ in range(200)
		]
		for path in ("", "page.js", "style.css", "icon.svg"):
			assert page.ask("/%s/%s" % (page.token, path))[0] == 200, path
		assert peers[0].recv(1) == b"", "the oldest has made room"
		for peer in peers[-20:]:
			with contextlib.suppress(ConnectionError):
				peer.sendall(b"GET / HTTP/1.1\r\n")
		assert page.ask("/%s/" % page.token)[0] == 200


def test_pages_that_are_open_keep_their_places_and_one_too_many_is_told(dashboard: Serve) -> None:
	"""There are 32 pages at most. The next one tells the reason, and is shown when another one is closed."""
	page = dashboard()
	open_pages = [page.news() for _ in range(32)]
	for news in open_pages:
		assert next(news)["kind"] == "past"
	with contextlib.ExitStack() as idle:
		for _ in range(100):
			idle.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE))
		status, _, body = page.ask("/%s/" % page.token)
		assert (status, "close some" in body) == (503, True)
		assert next(open_pages[-1])["kind"] == "news", "an open page goes on"
	for news in open_pages:
		news.close()
	wait_until("it has room again", lambda: page.ask("/%s/" % page.token)[0] == 200)


def test_a_proxy_may_lead_to_it_by_a_name_that_was_given(dashboard: Serve) -> None:
	"""Requests by that name and by the names of this machine are answered, and no others."""
	page = dashboard("--host", "board.example")
	path = "/%s/" % page.token
	for host, status in [("board.example", 200), ("localhost", 200), ("other.example", 421)]:
		assert page.ask(path, Host=host)[0] == status, host


def test_pages_from_elsewhere_may_link_to_it_and_nothing_else(dashboard: Serve) -> None:
	"""The file for the desktop's browser is elsewhere, too."""
	page = dashboard()
	path = "/%s/news" % page.token
	assert page.ask(path, Origin="http://evil.example")[0] == 403
	assert page.ask(path, **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"})[0] == 403
	link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
	assert page.ask("/%s/" % page.token, **link, **{"Sec-Fetch-Dest": "document"})[0] == 200
	assert page.ask("/%s/" % page.token, **link, **{"Sec-Fetch-Dest": "iframe"})[0] == 403


def test_what_can_be_read_in_two_ways_is_refused(dashboard: Serve) -> None:
	"""Such requests are refused, as by the team's server. A login is left to the proxy that asks for it."""
	page = dashboard()
	path = "/%s/" % page.token
	for headers, status in [
		({"Content-Length": "1", "content-length": "2"}, 400),
		({"Content-Length": "1", "Transfer-Encoding": "chunked"}, 400),
		({"Transfer-Encoding": "gzip"}, 501),
		({"Expect": "magic"}, 417),
		({"Authorization": "Digest x"}, 200),
	]:
		assert page.ask(path, **headers)[0] == status, headers
	for target, status in [(path + "../x", 400), ("http://127.0.0.1" + path, 400), ("/" + 2000 * "x", 414)]:
		assert page.ask(target)[0] == status, target
	status, head, _ = page.ask(path, "POST")
	assert (status, head["Allow"]) == (405, "GET, HEAD")


def test_a_page_that_does_not_read_delays_no_other(dashboard: Serve, engine: str) -> None:
	"""A page that never reads its news is dropped, and others get theirs."""
	control(engine, "start")
	page = dashboard()
	with socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE) as deaf:
		deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
		deaf.sendall(b"GET /%s/news HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % page.token.encode())
		news = page.news()
		first = until(news, lambda told: told["report"])
		assert until(news, lambda told: told["at"] > first["at"])
		news.close()


def test_it_waits_for_an_engine_and_survives_its_end(dashboard: Serve, engine: str) -> None:
	"""The page tells whether there is no engine, one, none any more, or another one."""
	news = dashboard().news()
	absent = until(news, lambda told: True)
	assert (absent["engine"]["state"], absent["report"]) == ("absent", None)
	assert "no engine runs" in absent["engine"]["words"]
	control(engine, "start")
	first = until(news, lambda told: told["engine"]["state"] == "running")["report"]["pid"]
	os.kill(first, signal.SIGTERM)
	until(news, lambda told: told["engine"]["state"] == "absent")
	control(engine, "start")
	second = until(news, lambda told: told["engine"]["state"] == "running")["report"]["pid"]
	assert second != first
	news.close()


def test_the_engine_is_not_asked_without_a_page(dashboard: Serve, engine: str) -> None:
	"""The engine's only client is then `wafd status` itself, so it may leave when it is idle."""
	control(engine, "start")
	page = dashboard()
	assert tell_status(engine)["connections"] == 1
	one, other = page.news(), page.news()
	until(one, lambda told: told["report"])
	until(other, lambda told: told["report"])
	assert tell_status(engine)["connections"] == 2, "one connection for all pages"
	one.close()
	other.close()
	wait_until("it lets go of the engine", lambda: tell_status(engine)["connections"] == 1)


def test_a_later_page_is_told_the_history(dashboard: Serve, engine: str) -> None:
	"""The numbers of the last minutes are there when a page is loaded again."""
	control(engine, "start")
	page = dashboard()
	first = page.news()
	assert next(first)["samples"] == []
	seen = [until(first, lambda told: told["report"])["sample"] for _ in range(2)]
	second = page.news()
	past = next(second)
	assert past["columns"][:3] == ["at", "running", "slots"]
	assert past["samples"][:2] == seen
	first.close()
	second.close()


def test_what_runs_is_told_with_its_build(dashboard: Serve, held: Held, engine: str) -> None:
	"""The page has the command, its place, its client, its start, and the outcomes of a build's commands."""
	control(engine, "start")
	project = held(jobs=2)
	for name in ("one", "two", "three"):
		project.hold(name)
	news = dashboard().news()

	def are_held(told: Dict[str, Any]) -> bool:
		# an engine that answers slowly is shown without a report
		slots = (told["report"] or {}).get("slots", {})
		return (slots.get("running"), slots.get("waiting")) == (2, 1)

	report = until(news, are_held)["report"]
	(session,) = report["sessions"]
	assert (session["name"], session["jobs"], session["running"]) == (str(project.folder), 2, 2)
	assert {command["session"] for command in report["commands"]} == {session["id"]}
	assert {command["folder"] for command in report["commands"]} == {str(project.folder)}
	assert len({command["id"] for command in report["commands"]}) == 2
	assert all(command["seconds"] >= 0 and command["pid"] > 0 for command in report["commands"])
	project.run("false")
	project.let_go()

	def are_done(told: Dict[str, Any]) -> bool:
		sessions = (told["report"] or {}).get("sessions", [])
		return any(session["succeeded"] + session["failed"] == 4 for session in sessions)

	(session,) = until(news, are_done)["report"]["sessions"]
	assert (session["succeeded"], session["failed"], session["hits"]) == (3, 1, 0)
	news.close()


def test_misses_are_told_with_why(dashboard: Serve, engine: str, tmp_path: pathlib.Path) -> None:
	"""The page has the explanations of `wafcc --explain` for the last misses, even if hits came later."""
	if not shutil.which("gcc"):
		pytest.skip("needs gcc")
	wafcc = str(pathlib.Path(engine).with_name("wafcc"))
	environ = dict(os.environ, HOME=str(tmp_path / "home"), LC_ALL="C")
	environ = {name: value for name, value in environ.items() if not name.startswith(("WAFCC_", "XDG_CACHE"))}

	def compile_it(*options: str) -> None:
		subprocess.run([wafcc, "gcc", *options, "-c", "x.c"], cwd=tmp_path, env=environ, timeout=PATIENCE, check=True)

	(tmp_path / "x.c").write_text("int x;\n")
	compile_it("-O1")
	compile_it("-O2")
	wait_until("a hit", lambda: compile_it("-O2") or tell_status(engine)["cache"]["statistics"]["hits"])
	news = dashboard().news()
	cache = until(news, lambda told: told["report"])["report"]["cache"]
	news.close()
	(miss,) = [miss for miss in cache["misses"] if miss["output"] == str(tmp_path / "x.o")]
	assert (miss["known"], miss["folder"]) == ("miss", str(tmp_path))
	assert "its argument is -O2, was -O1" in miss["why"] or "x.c" in miss["why"][0], miss
	assert miss["argv"] == ["gcc", "-O2", "-c", "x.c"]


def test_a_team_s_server_is_asked_with_its_token(
	dashboard: Serve, serve: Callable[..., Server], tmp_path: pathlib.Path
) -> None:
	"""The server is asked by the address in the setting `remote`. Without the right token the page says why."""
	tokens = write_tokens(tmp_path / "tokens", "dev read - " + TOKEN)
	server = serve("--tokens", str(tokens))
	place = "%s:%d" % server.address
	secret = tmp_path / "token"
	secret.write_text(TOKEN + "\n")
	for address in ["tcp://%s|token-file=%s" % (place, secret), "http://any:%s@%s" % (TOKEN, place)]:
		news = dashboard("--server", address).news()
		team = until(news, lambda told: told["team"])["team"]
		assert team["name"] == "http://" + place
		assert team["status"]["store_entries"] == 0 and team["status"]["connections"] >= 1, team
		assert TOKEN not in json.dumps(team)
		news.close()
	news = dashboard("--server", "tcp://%s@%s" % (OTHER, place)).news()
	team = until(news, lambda told: told["team"])["team"]
	assert "401" in team["words"], team
	news.close()
	server.end()
	news = dashboard("--server", "tcp://%s@%s" % (OTHER, place)).news()
	assert until(news, lambda told: told["team"])["team"]["words"]
	news.close()


def test_a_desktop_s_browser_is_given_a_file_that_only_we_can_read(
	engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path
) -> None:
	"""All users can see the arguments of programs, so these must not hold the token."""
	folder = tmp_path / "bin"
	folder.mkdir()
	opener = folder / "xdg-open"
	opener.write_text('#!/bin/sh\necho "$@" > %s/part && mv %s/part %s/opened\n' % (tmp_path, tmp_path, tmp_path))
	opener.chmod(0o755)
	env = {"DISPLAY": ":9", "PATH": "%s:%s" % (folder, os.environ["PATH"])}
	page = Dashboard(engine, tmp_path, env=env)
	try:
		given = tmp_path / "opened"
		wait_until("a browser is opened", given.exists)
		door = pathlib.Path(given.read_text().strip())
		assert page.token not in str(door)
		assert door.parent == runtime and door.stat().st_mode & 0o777 == 0o600
		assert 'url=%s"' % page.url in door.read_text()
	finally:
		assert page.end() == 0
	assert not door.exists()
	given.unlink()
	Dashboard(engine, tmp_path, env={**env, "DISPLAY": "", "WAYLAND_DISPLAY": ""}).end()
	Dashboard(engine, tmp_path, "--no-open", env=env).end()
	assert not given.exists()
