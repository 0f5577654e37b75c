"""Whole builds with the tool prefork, beside the same without it."""

import os
import pathlib
import re
import shutil
import sys
from typing import Any, Dict, Tuple

import pytest
from conftest import on_cpython
from prefork_probes import read_status

ROOT = pathlib.Path(__file__).resolve().parent.parent

WSCRIPT = """\
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c")
def configure(conf):
	conf.load("compiler_c")
	conf.check_cc(fragment="int main(void) { return 0; }", execute=True, msg="Checking whether programs run")
	conf.check_cc(header_name="no/such/header.h", mandatory=False)
	conf.check_cc(lib="m", uselib_store="M")
	conf.multicheck(
		{"header_name": "stdio.h", "msg": "first"},
		{"header_name": "no/such.h", "msg": "second", "mandatory": False},
		{"header_name": "string.h", "msg": "third"},
	)
	print("configured with %s" % conf.cmd_and_log(conf.env.CC + ["-dumpversion"]).strip())
	conf.write_config_header("config.h")
def build(bld):
	bld(rule='echo "int answer(void) { return 42; }" > ${TGT}', target="answer.c")
	bld.stlib(source="answer.c", target="answer")
	for n in range(6):
		bld.program(source="main.c", target="app%d" % n, use="answer M", defines=["N=%d" % n], idx=n + 10)
	bld(rule="./app3 > ${TGT}", source="app3", target="said.txt")
	bld(rule="cat ${SRC} ${SRC} > ${TGT}; echo note; echo warning >&2", source="said.txt", target="twice.txt")
"""
PROJECT = {
	"wscript": WSCRIPT,
	"main.c": """\
	#include <stdio.h>
	int answer(void);
	int main(void) { printf("%d %d\\n", N, answer()); return 0; }
	""",
}


def unite(text: str) -> str:
	"""A build's messages without times, the order of what runs at once, and the calls within a traceback."""
	text = re.sub(r"\(\d+(m\d+)?\.\d+s\)", "(TIME)", text)
	text = re.sub(r"\[ *-?\d+/(\d+)\]", r"[N/\1]", text)
	text = re.sub(r'(?m)^  File "[^\n]*\n(    [^\n]*\n)*', "", text)
	return "\n".join(sorted(text.splitlines()))


def read_tree(folder: pathlib.Path) -> Dict[str, bytes]:
	"""The outputs of a build. Waf's own records hold absolute paths and environments: they are not outputs."""
	found = {}
	for path in sorted((folder / "build").rglob("*")):
		name = str(path.relative_to(folder))
		if path.is_file() and not re.search(r"c4che|\.wafpickle|\.conf_check|\.lock-waf", name):
			found[name] = path.read_bytes()
	found.pop("build/config.log", None)
	if "build/config.h" in found:
		# tests of multicheck are entered in the order in which they end
		found["build/config.h"] = b"".join(sorted(found["build/config.h"].splitlines()))
	return found


def build_both_ways(waf: Any, folder: pathlib.Path, *args: str, **kwargs: Any) -> Tuple[Any, Any]:
	"""Build Waf's own way and through the engine, in the same folder, and check that nothing differs."""
	done = []
	for way in ({"env": {"WAF_NO_PREFORK": "1"}}, {"tools": "prefork"}):
		shutil.rmtree(folder / "build", ignore_errors=True)
		for lock in folder.glob(".lock-waf*"):
			lock.unlink()
		done.append((waf(folder, *args, **way, **kwargs), read_tree(folder)))
	(stock, stock_tree), (ours, our_tree) = done
	assert ours.returncode == stock.returncode
	assert unite(ours.stdout) == unite(stock.stdout)
	assert unite(ours.stderr) == unite(stock.stderr)
	assert our_tree == stock_tree
	return stock, ours


@pytest.mark.parametrize("jobs", [pytest.param("-j1", marks=on_cpython), "-j4"])
def test_a_project_builds_the_same(waf: Any, project: Any, engine: str, jobs: str) -> None:
	"""Compilers, rules and configuration tests have the same outputs, messages and configuration."""
	folder = project(PROJECT)
	_, ours = build_both_ways(waf, folder, "configure", "build", jobs)
	assert "configured with" in ours.stdout
	assert (folder / "build" / "twice.txt").read_text() == "3 42\n3 42\n"
	assert read_status(engine)["totals"]["succeeded"] > 20


@on_cpython
def test_waf_2_0_builds_the_same(waf: Any, project: Any, engine: str, waf20: pathlib.Path) -> None:
	"""Waf 2.0.24, which hands its arguments to other parsers, builds the same."""
	build_both_ways(waf, project(PROJECT), "configure", "build", "-j4", wafdir=waf20)
	assert read_status(engine)["totals"]["succeeded"] > 20


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="Waf 2.0.12 is older than this Python")
def test_waf_2_0_12_builds_the_same(waf: Any, project: Any, engine: str, jack_sources: pathlib.Path) -> None:
	"""Waf 2.0.12, the oldest supported Waf, builds the same."""
	build_both_ways(waf, project(PROJECT), "configure", "build", wafdir=jack_sources)
	assert read_status(engine)["totals"]["succeeded"] > 20


@pytest.mark.parametrize(
	"keep",
	[
		pytest.param((), marks=on_cpython),
		("-k",),
		*(pytest.param(x, marks=on_cpython) for x in (("-kk",), ("-k", "-j1"))),
	],
)
def test_a_build_that_fails_fails_the_same(waf: Any, project: Any, keep: Tuple[str, ...]) -> None:
	"""Status, messages of compilers and summary are the same. With -k everything else is built."""
	rules = """
	bld(rule="echo kept > ${TGT}", target="kept.txt")
	bld.objects(source="broken.c", target="broken")
	bld(rule="echo why >&2; exit 3", name="three")
	bld(rule="kill -SEGV $$$$", name="segv")
	bld(rule="no-such-command-here", name="missing", shell=False)
	"""
	wscript = "def options(opt):\n\topt.load('compiler_c')\ndef configure(conf):\n\tconf.load('compiler_c')\n"
	folder = project(
		{"wscript": wscript + "def build(bld):" + rules, "broken.c": "int main(void) { return nothing; }\n"}
	)
	jobs = () if "-j1" in keep else ("-j2",)
	if keep:
		build_both_ways(waf, folder, "configure", "build", *keep, *jobs, status=1)
		assert (folder / "build" / "kept.txt").exists()
	else:
		# the order of tasks after a failure is random, so the first task is the one that fails
		done = waf(folder, "configure", "build", "-j1", "--targets=three", tools="prefork", status=1)
		assert "why" in done.stderr + done.stdout
		assert "failed with exit status 3" in done.stderr


def test_a_command_can_write_as_it_runs(waf: Any, project: Any) -> None:
	"""With stdout=None a command has Waf's own streams, and the order of the output is kept."""
	wscript = """\
	import os
	def options(opt):
		opt.load("prefork")
	def build(bld):
		bld.add_pre_fun(lambda bld: os.write(1, b"first\\n"))
		bld(rule="echo second; echo error >&2; cat", stdout=None, stderr=None)
		bld.add_post_fun(lambda bld: os.write(1, b"third\\n"))
	def configure(conf):
		pass
	"""
	done = waf(project({"wscript": wscript}), "configure", "build", "--zones=prefork")
	assert [line for line in done.stdout.split() if line in ("first", "second", "third")] == [
		"first",
		"second",
		"third",
	]
	assert "error\n" in done.stderr
	assert "own way" not in done.stdout + done.stderr


def test_commands_have_input_and_time_limits(waf: Any, project: Any) -> None:
	"""Both work as with exec_command and cmd_and_log, and the messages are Waf's."""
	wscript = """\
	from waflib import Context, Errors
	def show(ctx):
		print(ctx.cmd_and_log(["cat"], input=b"some input", quiet=Context.BOTH))
		print(ctx.cmd_and_log("cat >&2", input=b"other input", output=Context.STDERR, quiet=Context.BOTH))
		print(ctx.exec_command("cat; exit 7", input=b"printed"))
		print(ctx.cmd_and_log(["cat", "\\udcff"], output=Context.BOTH, quiet=Context.BOTH))
		for function in (ctx.exec_command, ctx.cmd_and_log):
			for arguments in ({"timeout": 0.3}, {"cwd": "/no/such/folder"}):
				try:
					function(["sleep", "600"], **arguments)
				except Errors.WafError as e:
					print(e.msg.splitlines()[0])
		try:
			ctx.cmd_and_log("echo out; echo err >&2; exit 9", quiet=Context.BOTH)
		except Errors.WafError as e:
			print(e.returncode, e.stdout, e.stderr, e.msg.splitlines()[0])
	"""
	folder = project({"wscript": wscript, os.fsdecode(b"\xff"): b"\xe9"})
	_, ours = build_both_ways(waf, folder, "show", "--zones=none")
	assert "some input" in ours.stdout
	assert "timed out after 0.3 seconds" in ours.stdout


@pytest.mark.parametrize(
	"load",
	[
		"def options(opt):\n\topt.load('prefork')\n\topt.load('prefork')\n",
		"def options(opt):\n\topt.load('prefork')\n\topt.load('waflib_extras.prefork')\n",
		"def options(opt):\n\topt.load('prefork', tooldir=%r)\n" % str(ROOT / "waflib_extras"),
		"def options(opt):\n\topt.load('prefork')\n\topt.load('prefork', tooldir=%r)\n" % str(ROOT / "waflib_extras"),
		"def options(opt):\n\topt.load('prefork')\n\topt.recurse('sub')\n",
		"def options(opt):\n\tpass\n",
	],
	ids=["twice", "two names", "tooldir", "name and tooldir", "two wscripts", "only in configure"],
)
@pytest.mark.parametrize("version", ["2.1", "2.0"])
def test_it_can_be_loaded_in_any_way(waf: Any, project: Any, request: Any, load: str, version: str) -> None:
	"""If the tool is loaded several times, also under another name, there is one hook, one session, and no clash."""
	rest = """
def configure(conf):
	conf.load("prefork")
def build(bld):
	bld(rule="echo x > ${TGT}", target="x")
"""
	sub = "def options(opt):\n\topt.load('prefork')\n"
	folder = project({"wscript": load + rest, "sub/wscript": sub})
	wafdir = request.getfixturevalue("waf20") if version == "2.0" else None
	waf(folder, "configure", wafdir=wafdir)
	done = waf(folder, "build", "--zones=prefork", wafdir=wafdir)
	assert len(re.findall("status 0, waited", done.stderr + done.stdout)) == 1
	assert len(re.findall("1 commands sent to engine", done.stderr + done.stdout)) == 1


@on_cpython
def test_variants_can_be_built_in_one_go(waf: Any, project: Any) -> None:
	"""Several build contexts, each loading the tool again."""
	wscript = """\
	from waflib.Build import BuildContext
	def options(opt):
		opt.load("prefork")
	def configure(conf):
		for variant in ("debug", "release"):
			conf.setenv(variant)
			conf.load("prefork")
	def build(bld):
		bld.load("prefork")
		bld(rule="echo ${bld.variant} > ${TGT}", target="x")
	for variant in ("debug", "release"):
		type(variant, (BuildContext,), {"cmd": "build_" + variant, "variant": variant})
	"""
	folder = project({"wscript": wscript})
	done = waf(folder, "configure", "build_debug", "build_release", "--zones=prefork")
	assert (folder / "build/debug/x").read_text() == "debug\n"
	assert (folder / "build/release/x").read_text() == "release\n"
	assert "2 commands sent to engine" in done.stdout + done.stderr


@pytest.fixture
def playground(tmp_path: pathlib.Path) -> pathlib.Path:
	return pathlib.Path(shutil.copytree(ROOT / "playground" / "prefork", tmp_path / "playground"))


@on_cpython
def test_the_playground_works(waf: Any, playground: pathlib.Path) -> None:
	"""The playground works with and without the engine."""
	done = waf(playground, "configure", "build", "check", "--zones=prefork")
	shown = done.stdout + done.stderr
	for line in ("hello while it runs", "hello, somebody", "timed out after 0.5 seconds"):
		assert line in shown
	assert "own way" not in shown
	assert "hello, somebody" in waf(playground, "clean", "build", "check", "--no-prefork").stdout
