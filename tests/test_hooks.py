"""How tools take part in builds, and which functions of Waf they replace."""

from typing import Any, List

import pytest
from waflib import Build, Context

from waflib_extras.hooks import lifecycle

WSCRIPT = """\
from waflib import Context, Utils
def options(opt):
	opt.load('prefork')
def wrap(stock):
	def run_process(*args, **kwargs):
		print('wrapped')
		return stock(*args, **kwargs)
	return run_process
Utils.run_process = wrap(Utils.run_process)
def configure(conf):
	pass
def build(bld):
	bld(rule='echo 1 > ${TGT}', target='a')
"""
LATE = WSCRIPT.replace(
	"Utils.run_process = wrap(Utils.run_process)\ndef configure",
	"def init(ctx):\n\tUtils.run_process = wrap(Utils.run_process)\ndef configure",
)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
	"""The object of a process in which no tool of ours is loaded."""
	monkeypatch.setattr(Build.BuildContext, "execute", lambda bld: bld.append("runs"))
	monkeypatch.delattr(Context, lifecycle.PLACE, raising=False)
	yield lifecycle.find()
	delattr(Context, lifecycle.PLACE)


def test_there_is_one_object(build: lifecycle.Build) -> None:
	"""Each call gives the same object, and Waf's function is wrapped once."""
	assert lifecycle.find() is build
	assert [one.path for one in build.replaced] == ["Build.BuildContext.execute"]


def test_the_last_tool_is_called_first_and_told_of_the_end_last(build: lifecycle.Build) -> None:
	"""Each wraps the functions that were there before."""
	for name in ("a", "b"):
		build.on_begin.append(lambda bld, name=name: bld.append(name + " begins"))
		build.on_end.append(lambda bld, outcome, name=name: bld.append(name + " hears that it " + outcome))
	heard: List[str] = []
	Build.BuildContext.execute(heard)
	wanted = ["b begins", "a begins", "runs", "a hears that it succeeded", "b hears that it succeeded"]
	assert heard == wanted


@pytest.mark.parametrize("error, outcome", [(ValueError, "failed"), (KeyboardInterrupt, "interrupted")])
def test_the_end_is_told_however_it_comes(build: lifecycle.Build, error: type, outcome: str) -> None:
	"""All tools are told of the end, even if one of them raises an exception."""
	heard: List[str] = []

	def fail_at_the_end(bld: Any, outcome: str) -> None:
		raise OSError

	class Failing:
		def append(self, word: str) -> None:
			raise error

	build.on_end.append(lambda bld, outcome: heard.append(outcome))
	build.on_end.append(fail_at_the_end)
	build.on_end.append(lambda bld, outcome: heard.append(outcome))
	with pytest.raises(OSError):
		Build.BuildContext.execute(Failing())
	assert heard == [outcome, outcome]


def test_functions_are_put_back_unless_other_code_has_replaced_them(
	build: lifecycle.Build, monkeypatch: pytest.MonkeyPatch
) -> None:
	"""A wrap of the project stays in place."""
	monkeypatch.setattr(Context, "example", "stock", raising=False)
	assert build.replace("tool", "Context.example", "ours") == "stock"
	build.restore("tool")
	assert Context.example == "stock"
	build.replace("tool", "Context.example", "ours")
	Context.example = "theirs"
	build.restore("tool")
	assert Context.example == "theirs"


def test_all_that_is_replaced_can_be_listed(waf: Any, project: Any) -> None:
	"""Replaced functions are listed by tool and name when Waf ends."""
	folder = project({"wscript": WSCRIPT.replace("'prefork'", "'prefork wafcc large unity'")})
	done = waf(folder, "configure", "build", "--zones=hooks")
	said = " ".join((done.stdout + done.stderr).split())
	for tool, path in (
		("hooks", "Build.BuildContext.execute"),
		("prefork", "Runner.Spawner"),
		("wafcc", "Task.Task.runnable_status"),
		("unity", "Build.BuildContext.compile"),
		("console", "Build.BuildContext.progress_line"),
	):
		assert "hooks %s replaces waflib.%s" % (tool, path) in said


def test_a_project_that_has_wrapped_us_does_without_us_where_that_is_wanted(waf: Any, project: Any) -> None:
	"""With --no-prefork commands run Waf's own way, through the project's wrap, and no engine is started."""
	folder = project({"wscript": LATE})
	done = waf(folder, "configure", "build", "--no-prefork", "--zones=prefork,hooks")
	assert "wrapped" in done.stdout
	assert (folder / "build" / "a").read_text() == "1\n"
	said = done.stdout + done.stderr
	assert "hooks replaces" in said
	assert "sent to engine" not in said
	assert "prefork replaces" not in said
