"""Commands that are put together without Waf's own code are equal to Waf's, word for word."""

from typing import Any

from conftest import on_cpython

LOAD = "def options(opt):\n\topt.load('prefork')\ndef configure(conf):\n\tpass\n"

# every task writes its arguments into its target; some fit a recipe, and others must be left to Waf
WORDS = """\
import os
from waflib import Task
from waflib.TaskGen import feature, taskgen_method
WRITE = 'printf "<%s>" "$@" > "$0"'
def make(name, text, **kw):
	return type(name, (Task.Task,), dict(kw, run_str="${SHELL} -c ${WRITE} ${TGT[0].abspath()} " + text))
class changed(Task.Task):
	run_str = "${SHELL} -c ${WRITE} ${TGT} ${FLAGS}"
changed.run = Task.compile_fun("${SHELL} -c ${WRITE} ${TGT} ${FLAGS} ${OTHER}")[0]
class own(Task.Task):
	run_str = "${SHELL} -c ${WRITE} ${TGT} ${I_ST:INCLUDES}"
	def colon(self, one, other):
		return ["own", one, other]
class elsewhere(Task.Task):
	run_str = "${SHELL} -c ${WRITE} ${TGT[0].abspath()} ${SRC}"
	def get_cwd(self):
		return self.inputs[0].parent
KINDS = [
	make("plain", "${FLAGS} text $$5 ${I_ST:INCLUDES} ${SRC} ${TGT}"),
	make("merged", "-o${TGT} ${BEFORE}${SRC}.x ${I_ST:NONE} ${EMPTY} ${SRC[0].abspath()}:${TGT[0].abspath()}"),
	make("ways", "${SRC[0].srcpath()} ${SRC[0].bldpath()} ${TGT[0].bldpath()}"),
	make("code", "${tsk.inputs[0].name} ${bld.bldnode.name} ${FLAGS?EMPTY} ${I_ST:SRC} ${gen.name}"),
	changed, own, elsewhere,
]
def build(bld):
	env = bld.env
	env.SHELL, env.WRITE = ["sh"], WRITE
	env.FLAGS, env.INCLUDES, env.OTHER = ["-a", "", "b c"], ["i", "j"], ["other"]
	env.I_ST, env.BEFORE, env.EMPTY = "-I%s", ["x", "y"], []
	@feature("words")
	def make_words(g):
		for kind in KINDS:
			for n, sources in enumerate((["a.txt"], ["in/b.txt"], ["a.txt", "in/b.txt"])):
				name = "%s-%s-%d" % (g.name, kind.__name__, n)
				nodes = [g.path.find_node(source) for source in sources]
				g.create_task(kind.__name__, nodes, [g.path.find_or_declare("in/" + name)])
	for name in ("first", "second", "third"):
		bld(features="words", name=name)
		if name == "second":
			bld.get_tgen_by_name(name).env.FLAGS = "-of-the-second"
		bld.add_group()
		def change(task):
			task.generator.bld.env.FLAGS.append("after-" + task.generator.name)
			task.generator.bld.env.table["I_ST"] = ["-isystem"]
		bld(rule=change, name="change-" + name, always=True)
		bld.add_group()
	environ = bld(features="words", name="environ")
	environ.env.env = dict(os.environ, EXTRA="1")
	path = bld(features="words", name="path")
	path.env.PATH = os.environ["PATH"].split(os.pathsep)
"""
FILES = {"a.txt": "a", "in/b.txt": "b"}


def test_commands_are_those_of_waf(waf: Any, project: Any) -> None:
	"""
	Arguments are the same, of all kinds of words, for one node and for many, when variables change while tasks run, and
	where a class or somebody else has replaced what Waf's own code would do.
	"""
	found = []
	for name, env in (("stock", {"WAF_NO_PREFORK": "1"}), ("ours", {})):
		folder = project({"wscript": LOAD + WORDS, **FILES}, name)
		waf(folder, "configure", env=env)
		waf(folder, "build", "-j3", env=env)
		written = sorted((folder / "build" / "in").iterdir())
		found.append({path.name: path.read_text().replace(str(folder), "FOLDER") for path in written})
	assert len(found[0]) == 5 * 7 * 3
	assert found[0] == found[1]
	assert "after-change-first" in found[0]["third-plain-0"] and "after-change" not in found[0]["first-plain-0"]


FEW_LOOKUPS = """\
from waflib import ConfigSet, Task
from waflib.TaskGen import feature
class many(Task.Task):
	run_str = "touch ${FLAGS} ${MORE} ${TGT}"
def build(bld):
	counts = []
	stock = ConfigSet.ConfigSet.__getitem__
	def count(env, key):
		if key in ("FLAGS", "MORE"):
			counts.append(key)
		return stock(env, key)
	ConfigSet.ConfigSet.__getitem__ = count
	@feature("many")
	def make(g):
		for i in range(100):
			g.create_task("many", [], g.path.find_or_declare("t%d" % i))
	bld(features="many")
	bld.add_post_fun(lambda bld: print("looked up %d times" % len(counts)))
"""


@on_cpython
def test_variables_are_not_looked_up_for_each_task(waf: Any, project: Any) -> None:
	"""Of a hundred tasks with one environment, Waf's code looks up the variables of a few."""
	folder = project({"wscript": LOAD + FEW_LOOKUPS})
	waf(folder, "configure")
	done = waf(folder, "build", "-j2")
	(line,) = [line for line in done.stdout.splitlines() if line.startswith("looked up ")]
	assert int(line.split()[2]) < 100
	assert len(list((folder / "build").glob("t*"))) == 100


FAILING = """\
from waflib import Task
class bad(Task.Task):
	run_str = "sh -c ${SCRIPT} ${TGT}"
	keep_last_cmd = True
def build(bld):
	bld.env.SCRIPT = ["exit 3"]
	from waflib.TaskGen import feature
	@feature("bad")
	def make(g):
		task = g.create_task("bad", [], g.path.find_or_declare("t"))
		import atexit
		atexit.register(lambda: print("last", task.last_cmd))
	bld(features="bad")
"""


@on_cpython
def test_last_command_is_told(waf: Any, project: Any) -> None:
	"""A task that has failed, or keeps its command, has the command that it ran, for Waf's messages and other tools."""
	folder = project({"wscript": LOAD + FAILING})
	waf(folder, "configure")
	done = waf(folder, "build", "-j2", status=1)
	assert "last ['sh', '-c', 'exit 3', 't']" in done.stdout
	assert "failed with exit status 3" in done.stderr
