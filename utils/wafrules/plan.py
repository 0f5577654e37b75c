"""
Random projects: a wscript with rules of shell commands, and the files that they look at.

Only what stock Waf makes the same in each folder, and what docs/waf-cache.md promises: a rule that looks at more than
its sources says ``cache=True``. Knows nothing of how a project is built.
"""

import random
from typing import List, NamedTuple

FOLDERS = ("d0", "d1", "d1/sub")
NAMES = ("f0", "f1", "f2")
LINKS = ("l0", "l1")
SCRIPTS = ("s0.sh", "s1.sh")
SOURCES = ("c0.c", "c1.c", "c2.c")
VARIABLES = ("FUZZ_A", "FUZZ_B")
STATICS = ("aaaa", "bbbb", "cccc")

# commands of rules and scripts: {f} and {g} are files, {d} a folder, {l} a link, {v} a variable, {t} a file to write
LOOKS = (
	"cat {f}",
	"cat {f} {g} | tr a-m n-z",
	"cat {d}/*",
	"cat {l}",
	"cmp {f} {g} && echo same",
	"cp {f} {t} && cat {t}",
	"find {d} | sort",
	"find {d} -type f -size -40c | sort | xargs cat",
	"find {d} -type l | sort",
	"grep -c a {f}",
	"head -c 3 {f}",
	"ls {d}",
	"ls -a {d} | wc -l",
	"printenv {v}",
	'echo "${{{v}:-none}}" {v}',
	"python3 -c 'import os; print(sorted(os.listdir(\"{d}\")))'",
	'python3 -c \'import os; print(os.path.getsize("{f}"), os.path.islink("{f}"))\'',
	'python3 -c \'import os; print(os.environ.get("{v}"), os.path.exists("{g}"))\'',
	"readlink {l}",
	'readlink -f {l} | sed "s,.*/d,d,"',
	"sed s/a/b/g {f}",
	"sort {f} {g}",
	"stat -c %s {f}",
	"stat -c %a {f}",
	"stat -c %Y {f}",
	"test -d {l} || stat -L -c %s.%a.%Y {l}",  # times of folders do not count (docs/cacheable.md)
	"test -e {f}",
	"test -f {f} -a ! -h {f}",
	"test -x {f} && echo runs",
	"test -d {f}",
	"test {f} -nt {g} && echo newer",
	"wc -c {f}",
	"wc -l < {f}",
)
# of a rule without cache=True: its sources alone
PLAIN = ("cat ${SRC} > ${TGT}", "sort ${SRC} > ${TGT}", "sed s/a/b/g ${SRC} > ${TGT}", "wc -c < ${SRC} > ${TGT}")

HEAD = """\
import os
top = "."
out = "build"
def options(opt):
	opt.load("compiler_c")
	tools = os.environ.get("FUZZ_TOOLS")
	if tools:
		opt.load(tools)
def configure(conf):
	conf.load("compiler_c")
def build(bld):
	bld.program(source=%r, target="app", includes="inc .", cflags="-w", ldflags="-w")
"""


class Rule(NamedTuple):
	"""One task of the wscript."""

	text: str
	sources: List[str]
	target: str
	is_cached: bool

	def write(self) -> str:
		more = ", cache=True" if self.is_cached else ""
		if self.target.endswith(".h"):
			more += ', ext_out=[".h"]'
		return "\tbld(rule=%r, source=%r, target=%r%s)\n" % (self.text, self.sources, self.target, more)


def choose_look(rng: random.Random, start: str, target: str) -> str:
	"""A command that looks at something that may be there."""

	def file() -> str:
		return "%s%s/%s" % (start, rng.choice(FOLDERS), rng.choice(NAMES))

	return rng.choice(LOOKS).format(
		f=file(),
		g=file(),
		d=start + rng.choice(FOLDERS),
		l="%s%s/%s" % (start, rng.choice(FOLDERS), rng.choice(LINKS)),
		v=rng.choice(VARIABLES),
		t=target + ".part",
	)


def choose_rules(rng: random.Random) -> List[Rule]:
	rules = [Rule("(echo '#define G ' 1$(cat ../d0/f0 2>/dev/null | wc -c)) > ${TGT}", [], "gen.h", True)]
	made: List[str] = []
	for number in range(rng.randint(5, 9)):
		target = "r%d.txt" % number
		kind = rng.random()
		sources = [rng.choice(made)] if made and rng.random() < 0.5 else []
		if kind < 0.15:
			rules.append(Rule(rng.choice(PLAIN), sources or ["base.txt"], target, False))
		elif kind < 0.3:
			script = rng.choice(SCRIPTS)
			rules.append(Rule("sh ../%s > ${TGT}" % script, [script, *sources], target, True))
		else:
			looks = [choose_look(rng, "../", "build") for _ in range(rng.randint(1, 2))]
			looks = [look for look in looks if ".part" not in look] or ["ls ../d0"]
			text = "; ".join("(%s) 2>/dev/null || echo no" % look for look in looks)
			text = "(%s%s) > ${TGT}" % (text, "; cat ${SRC}" if sources else "")
			if rng.random() < 0.2 and "$" not in looks[0]:
				text = "(%s) > ${TGT} 2>/dev/null || echo no > ${TGT}" % looks[0]
			text = text.replace("${FUZZ", "$${FUZZ").replace("%", "%%")
			rules.append(Rule(text, sources, target, True))
		made.append(target)
	return rules


def write_script(rng: random.Random) -> str:
	return "".join("(%s) 2>/dev/null || echo no\n" % choose_look(rng, "../", "/dev/null") for _ in range(2))


def write_source(rng: random.Random, number: int) -> str:
	name = rng.choice(STATICS)
	header = rng.choice(("h.h", "gen.h", "more.h"))
	return '#include "%s"\nstatic int %s;\nint f%d(void) { return ++%s + G; }\n' % (header, name, number, name)


def write_main() -> str:
	calls = ", ".join("f%d()" % number for number in range(len(SOURCES)))
	text = "int printf(const char *, ...);\nint f0(void), f1(void), f2(void);\n"
	return text + 'int main(void) { return printf("%%d %%d %%d\\n", %s) < 0; }\n' % calls


def write_wscript(rules: List[Rule]) -> str:
	return HEAD % (["main.c", *SOURCES],) + "".join(rule.write() for rule in rules)
