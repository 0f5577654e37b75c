"""The options, variables and zones of the tool prefork."""

import json
import pathlib
import re
from typing import Any, Dict, Tuple

import pytest
from prefork_probes import SHOW_HOOKS, read_processors


def test_zones_show_what_happens(waf: Any, project: Any) -> None:
	"""Every command is shown, and in the end how many ran where and why. Without the zone nothing is shown."""
	wscript = """\
	import os
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		ctx.exec_command(["true"])
		ctx.exec_command(["true"], preexec_fn=os.getpid)
		ctx.exec_command(["true"], preexec_fn=os.getpid)
	"""
	folder = project({"wscript": wscript})
	done = waf(folder, "show", "--zones=prefork")
	shown = done.stdout + done.stderr
	assert re.search(r"status 0, waited .* MB: \['true'\]", shown)
	assert "Waf's own way: preexec_fn is given: ['true']" in shown
	assert re.search("1 commands sent to engine [0-9]+", shown)
	assert "2 commands Waf's own way: preexec_fn is given" in shown
	quiet = waf(folder, "show")
	assert "prefork" not in quiet.stdout + quiet.stderr


def test_the_options_are_explained(waf: Any, project: Any) -> None:
	"""The options are in a group of their own."""
	shown = waf(project({"wscript": SHOW_HOOKS}), "--help").stdout
	for option in ("Prefork options", "--no-prefork", "--pin-process", "--own-slots", "--prefork-transport"):
		assert option in shown


def read_session(waf: Any, project: Any, engine: str, *args: str, **kwargs: Any) -> Tuple[Dict[str, Any], str]:
	"""The engine's report about a build's session, asked for by a command of that build; and the build's output."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		ctx.exec_command("grep Cpus_allowed_list /proc/self/status > cpus; %s status --json > status")
	"""
	folder = project({"wscript": wscript % engine})
	done = waf(folder, "show", "--zones=prefork", *args, **kwargs)
	(session,) = json.loads((folder / "status").read_text())["sessions"]
	session["processors"] = (folder / "cpus").read_text().split()[1]
	return session, done.stdout + done.stderr


def test_the_engine_knows_the_build(waf: Any, project: Any, engine: str, tmp_path: pathlib.Path) -> None:
	"""The engine knows its folder, its process, and its jobs."""
	session, _ = read_session(waf, project, engine, "-j7")
	assert session["name"] == str(tmp_path / "project")
	assert session["jobs"] == 7


def test_commands_can_be_pinned(waf: Any, project: Any, engine: str) -> None:
	"""Each command runs on one of the processors that the build may use."""
	session, _ = read_session(waf, project, engine, "--pin-process")
	assert session["processors"].isdigit()
	assert int(session["processors"]) in read_processors()


def test_slots_can_be_ones_own(waf: Any, project: Any, engine: str) -> None:
	"""Slots are the build's own only if it asks for that."""
	assert read_session(waf, project, engine, "--own-slots")[0]["own_slots"] is True
	assert read_session(waf, project, engine)[0]["own_slots"] is False


@pytest.mark.parametrize("way", [{"args": ("--prefork-transport=tcp",)}, {"env": {"WAF_PREFORK_TRANSPORT": "tcp"}}])
def test_commands_can_go_over_tcp(waf: Any, project: Any, runtime: pathlib.Path, way: Dict[str, Any]) -> None:
	"""TCP is chosen by an option or a variable. Commands with descriptors then run Waf's own way."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
	def show(ctx):
		print(ctx.cmd_and_log("echo captured"))
		ctx.exec_command("echo streamed", stdout=None)
	"""
	done = waf(project({"wscript": wscript}), "show", "--zones=prefork", *way.get("args", ()), env=way.get("env"))
	shown = done.stdout + done.stderr
	assert "captured\n" in shown
	assert "streamed\n" in shown
	assert "1 commands sent to engine" in shown
	assert "1 commands Waf's own way: descriptors cannot go over TCP" in shown
	assert list(runtime.glob("*.tcp"))


def test_an_unknown_transport_is_one_line(waf: Any, project: Any) -> None:
	"""The line names the variable and the remedy."""
	done = waf(project({"wscript": SHOW_HOOKS}), "show", env={"WAF_PREFORK_TRANSPORT": "pigeon"}, status=1)
	assert done.stderr == "WAF_PREFORK_TRANSPORT is 'pigeon': set it to unix or tcp\n"


def test_commands_before_the_options_are_known_run_too(waf: Any, project: Any, engine: str) -> None:
	"""A command in options() runs. The session is made anew when -j is known."""
	wscript = """\
	def options(opt):
		opt.load("prefork")
		opt.cmd_and_log("echo early > early")
	def show(ctx):
		ctx.exec_command("%s status --json > status")
	"""
	folder = project({"wscript": wscript % engine})
	waf(folder, "show", "-j5")
	assert (folder / "early").read_text() == "early\n"
	(session,) = json.loads((folder / "status").read_text())["sessions"]
	assert session["jobs"] == 5
