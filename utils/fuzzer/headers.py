"""Precompiled headers and their users: both are made by one command, since gcc's header is never the same twice."""

import os
import pathlib
from typing import Callable, List, Sequence

from .kind import Kind, Special
from .project import CHECKOUTS, Project

# WRAPPER is the cache, and is not set for a plain run.
SCRIPT = """\
make=$1 use=$2
rm -f all.h.gch all.h.pch
$WRAPPER $make || exit
$WRAPPER $use
status=$?
rm -f all.h.gch all.h.pch
exit $status
"""
FORMS = {
	"gcc": (
		("-x c-header all.h -o all.h.gch", "-Winvalid-pch -include all.h"),
		("-x c-header -I. -MD -MF h.d all.h -o all.h.gch", "-I. -Winvalid-pch -include all.h -MD"),
		("-x c-header {cwd}/all.h -o all.h.gch", "-Winvalid-pch -include {cwd}/all.h"),
	),
	"clang": (
		("-x c-header all.h -o all.h.pch", "-include-pch all.h.pch"),
		("-x c-header all.h -o all.h.pch", "-include all.h -MD"),
		("-x c-header {cwd}/all.h -o all.h.pch", "-include-pch {cwd}/all.h.pch -MD"),
	),
}
MAYBE = " // perhaps"
TEXTS = {
	"all.h": (
		"#pragma once" + MAYBE,
		'#include "inc/p.h"',
		'#include "inc/q.h"' + MAYBE,
		"static inline const char *own(void) { return __FILE__; }" + MAYBE,
		"static inline const char *here(void) { return __builtin_FILE(); }" + MAYBE,
		"static inline int size(void) { return sizeof __FILE__ + P; }",
	),
	"inc/p.h": ("#pragma once", "#define P %d", "#define Q 1" + MAYBE),
	"inc/q.h": ("#pragma once", "#define P %d", "#define Q 1" + MAYBE),
	"src/p.c": (
		'#include "../inc/q.h"' + MAYBE,
		"int f(void) { return size() + P; }",
		"#ifdef Q\nint q = __COUNTER__;\n#endif",
		"int last = __COUNTER__, unused;",
	),
}
"""The files of this kind. Both headers may have the same content, and then their times count."""
FLAGS = ("-O1", "-g", "-Iinc", "-I{cwd}/inc", "-w", "-ffile-prefix-map={cwd}=.", "-DONE=1")
UNTIMED = "-Xclang -fno-pch-timestamp"


class Precompiled(Kind):
	name = "precompiled"
	about = "precompiled headers and their users"

	def prepare(self) -> None:
		self.script = self.made / "precompile.sh"
		self.script.write_text(SCRIPT)
		for name in TEXTS:
			self.put_into(name, [self.project.root / checkout for checkout in CHECKOUTS])

	def put_into(self, name: str, checkouts: Sequence[pathlib.Path]) -> str:
		lines = [line % self.rng.randint(100, 102) if "%d" in line else line for line in TEXTS[name]]
		kept = [line for line in lines if not line.endswith(MAYBE) or self.rng.random() < 0.5]
		text = "\n".join([*kept, ""])
		for checkout in checkouts:
			self.project.write(checkout / name, text.encode())
		return "%s: %r" % (name, text)

	def rewrite(self, project: Project) -> str:
		return self.put_into(self.rng.choice(sorted(TEXTS)), project.some_checkouts())

	def touch(self, project: Project) -> str:
		"""Give a file one of few times. The content may be another one."""
		name, second = self.rng.choice(sorted(TEXTS)), self.rng.choice((0, 10**9, 10**9 + 1))
		for checkout in project.some_checkouts():
			os.utime(str(checkout / name), (second, second))
		return "%s at %d" % (name, second)

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [self.rewrite, self.touch]

	def draw(self) -> Special:
		compiler = self.rng.choice([name for name in self.project.compilers if name in FORMS] or ["gcc"])
		make, use = self.rng.choice(FORMS[compiler])
		flags = " ".join([compiler, *self.rng.sample(FLAGS, self.rng.randint(0, 4))])
		if compiler == "clang" and self.rng.random() < 0.7:
			flags += " " + UNTIMED
		words = ("%s %s" % (flags, make), "%s %s -c src/p.c -o {output}" % (flags, use))
		# a command with a map of its own gets none from the engine, so it can be compared with a plain run
		is_set = "-ffile-prefix-map=" in flags and self.rng.random() < 0.5
		env = {"WAFCC_BASEDIR": "{cwd}"} if is_set else {}
		return Special(("sh", str(self.script), *words), "a.o", env, self.rng.choice(CHECKOUTS))
