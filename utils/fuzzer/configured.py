"""Headers and options that name their checkout, as configuring makes them, and sources that use these, or do not."""

import pathlib
import re
import shutil
from typing import Callable, Dict, List

from .kind import Kind, Special
from .project import CHECKOUTS, Project

MACROS = ('#define SRCDIR "{value}"', '# define  PREFIX\t"{value}" ')
DEFINITIONS = (
	'#define BOTH "{place}:{other}"',
	'#define SRCDIR "{place}*/ int odd; /*"',
	'#define SRCDIR "{place}" // here',
	'#define SRCDIR "{place}" \\\n  "/src"',
	"#define SRC DIR",
	"#define VERSION %d",
	"/* made in {place} */",
	"/* made in {place}\n at %d */",
	"// {place} at %d, falls through",
	"static int never; /* {place} */",
	"/* {place}",
	"// made in {place} \\\n   by hand",
	"#define MORE(a) \\\n  (a)",
	"#define MADE S ## RC ## DIR",
	"*/",
	"#define ALIAS SRCDIR",
	"#if 0",
	"#endif",
	'R"(',
	')"',
)
VALUES = ("{place}/src", "{place}", "{place}/{place}", "nowhere")
SIZES = (
	"int j = sizeof SRCDIR;",
	"int k = sizeof PREFIX;",
	"int v = sizeof JOIN(SRC, DIR);",
	"int w = sizeof GIVEN;",
	"int x = sizeof ALIAS;",
)
"""An object with the name of its checkout is a hit there only. One with the length of the name may hit elsewhere."""
USES = (
	"const char *a = SRCDIR;",
	"const char *b = PREFIX;",
	"const char *c = GIVEN;",
	"#ifdef SRCDIR\nint d;\n#endif",
	"#ifndef BOTH\nint e;\n#endif",
	"const char *f = JOIN(SRC, DIR);",
	"const char *g = JOIN(JOIN_2(S, RC), DIR);",
	"const char *h = SRC\\\nDIR;",
	"const char *i = ALIAS;",
	'_Pragma("push_macro(\\"SRCDIR\\")")',
	"// it's SRCDIR",
	"/* don't use SRCDIR \" */ int k;",
	'const char *l = "SRCDIR PREFIX";',
	'const char *m = R"(/* )"; const char *n = SRCDIR; // */',
	"int o = '/*'; const char *p = PREFIX; /* '*/",
	'const char *q = "/*"; const char *r = PREFIX; // */',
	"int s = VERSION;",
	"static int unused;",
	"int ad(int x) { switch (x) { case 1: x++; // in {place}\n case 2: x++; } return x; }",
	"int ae(int x) { switch (x) { case 1: x++; // falls through: {place}\n case 2: x++; } return x; }",
	"#undef SRCDIR",
	"#ifdef YY{theirs}_H_INCLUDED\nint t;\n#endif",
	"const char *u = TEXT(JOIN(YY{theirs}_H_, INCLUDED));",
	"const char *aa = MADE;",
	'__asm__(".data\\nraw: .incbin \\"config.h\\"\\n.text");',
)
USES_OF_OPTIONS = (
	"const char *a = HERE;",
	"const char *b = JOIN(HE, RE);",
	"int c = sizeof HERE;",
	"#ifdef HERE\nint d;\n#endif",
	"#undef HERE\nint e;",
	'#if __has_include("deep.h")\n#include "deep.h"\n#endif',
	'#if __has_include("../deep.h")\n#include "../deep.h"\n#endif',
	'#if __has_include("../../../deep.h")\n#include "../../../deep.h"\n#endif',
)
GUARD = (
	"#ifndef YY{guard}_H_INCLUDED\n# define YY{guard}_H_INCLUDED",
	"#endif /* !YY{guard}_H_INCLUDED */",
)
"""As bison makes it."""
TEXTS = "#define TEXT_2(a) #a\n#define TEXT(a) TEXT_2(a)\n"
JOINS = (
	"#define JOIN_2(a, b) a##b\n#define JOIN(a, b) JOIN_2(a, b)\n",
	"#ifndef JOIN\n# define JOIN_2(a, b) a ## b\n# define JOIN(a, b) a ## b\n#endif\n",
	"#define JOIN_2(a, b) a ## b\n#define JOIN(a, b) S ## a ## b\n",
	"#define JOIN_2(a, b) b\n#define JOIN(a, b) a ## DIR\n",
	"%:define JOIN_2(a, b) a%:%:b\n#define JOIN(a, b) JOIN_2(a, b)\n",
	"#define JOIN_2(a, b) x ## a\n#define JO_IN(a, b) a \\\n ## b\n#define JOIN_3(a, b) a ## b\n"
	"#define JOIN(a, b) JOIN_3(JO_, IN)(a, b)\n",
)
"""Macros that join words, some of which nothing names."""
FLAGS = (
	"-O1",
	"-g",
	"-g3",
	"-I{cwd}/src",
	"-MD",
	"-DGIVEN=SRCDIR",
	"-DGIVEN=1",
	"-DS=PREFIX",
	"-include config.h",
	"-H",
	"-Wall",
	"-Wextra",
	"-ansi",
	"-w",
)
NAMING = (
	'-DHERE="{cwd}/src"',
	"-DHERE={cwd}",
	"-DHERE=1",
	'-D HERE="{cwd}:{cwd}"',
	"-Isub{cwd}/inc",
	"-isystem sub{cwd}",
)
"""What names the checkout, in the command line."""


class Configured(Kind):
	name = "configured"
	about = "headers that define where their checkout is"

	def prepare(self) -> None:
		self.chosen: List[str] = []
		self.project.write_everywhere("configure", b"")  # it shows where a checkout is
		for name in ("config.h", "src/g.c"):
			self.put_into(name, self.project)

	def put_into(self, name: str, project: Project, is_everywhere: bool = True) -> str:
		"""The same lines in some checkouts, each with its own name."""
		if name == "config.h":
			if not self.chosen or self.rng.random() < 0.15:
				first, last = self.rng.choice((("#define FIRST", "#define LAST"), GUARD))
				others = self.rng.sample(DEFINITIONS, self.rng.randint(0, 2))
				self.chosen = [first, self.rng.choice(MACROS), *others, last, ""]
			text = "\n".join(self.chosen).replace("%d", str(self.rng.randint(1, 2)))
			text = text.replace("{value}", self.rng.choice(VALUES))
		else:
			uses = self.rng.choice((USES, USES_OF_OPTIONS))
			chosen = self.rng.sample(SIZES, self.rng.randint(0, 1)) + self.rng.sample(uses, self.rng.randint(0, 1))
			text = "\n".join(['#include "config.h"\n' + self.rng.choice(JOINS) + TEXTS, *chosen, "int last;", ""])
		others = dict(zip(CHECKOUTS, reversed(CHECKOUTS)))
		checkouts = CHECKOUTS if is_everywhere else [path.name for path in project.some_checkouts()]
		for checkout in checkouts:
			place, other = project.root / checkout, project.root / others[checkout]
			names = {"place": str(place), "other": str(other), "guard": in_capitals(place), "theirs": self.theirs}
			project.write(place / name, fill(text, names).encode())
		return "%s in %s: %r" % (name, ", ".join(checkouts), text)

	@property
	def theirs(self) -> str:
		"""The guard of one checkout, which any source may name."""
		return in_capitals(self.project.root / CHECKOUTS[1])

	def reconfigure(self, project: Project) -> str:
		return self.put_into("config.h", project, self.rng.random() < 0.7)

	def rewrite(self, project: Project) -> str:
		return self.put_into("src/g.c", project, self.rng.random() < 0.7)

	def search(self, project: Project) -> str:
		"""Make or remove a header in a folder with the name of its checkout amid its own, or in one around that."""
		up, text = self.rng.choice((0, 0, 1, 3)), "const char *deep_%d = __FILE__;\n" % self.rng.randint(1, 2)
		choice = self.rng.random()
		checkouts = CHECKOUTS if self.rng.random() < 0.6 else [self.rng.choice(CHECKOUTS)]
		for place in (project.root / checkout for checkout in checkouts):
			folder = place / ("sub%s/inc" % place)
			if choice < 0.2:
				shutil.rmtree(str(place / "sub"), ignore_errors=True)
				continue
			folder.mkdir(parents=True, exist_ok=True)
			if choice > 0.3:
				project.write([folder, *folder.parents][up] / "deep.h", text.encode())
		done = "nothing" if choice < 0.2 else "a folder" if choice <= 0.3 else "deep.h %d up: %r" % (up, text)
		return "%s in sub of %s" % (done, ", ".join(checkouts))

	def leave(self, project: Project) -> str:
		"""Edit nothing: a command hits in another checkout only if both are alike."""
		return ""

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [self.reconfigure, self.rewrite, self.search, self.leave, self.leave, self.leave]

	def choose(self) -> Special:
		"""Often the command before in the other checkout."""
		if self.before is None or self.rng.random() < 0.6:
			return super().choose()
		others = dict(zip(CHECKOUTS, reversed(CHECKOUTS)))
		self.before = self.before._replace(checkout=others[self.before.checkout])
		return self.before

	def draw(self) -> Special:
		known = (*FLAGS, "-DYY%s_H_INCLUDED" % self.theirs)
		chosen = self.rng.sample(known, self.rng.randint(0, 3)) + self.rng.sample(NAMING, self.rng.randint(0, 2))
		flags = [word for flag in chosen for word in flag.split()]
		compiler = self.rng.choice(self.project.compilers)
		maps, source = self.rng.choice(((("-ffile-prefix-map={cwd}=.",), "{cwd}/src/g.c"), ((), "src/g.c")))
		words = (compiler, *maps, "-I.", *flags, "-c", source, "-o", "{output}")
		env = {"WAFCC_BASEDIR": "{cwd}"} if maps and self.rng.random() < 0.5 else {}
		return Special(words, "a.o", env, self.rng.choice(CHECKOUTS))


def in_capitals(path: pathlib.Path) -> str:
	"""A path as a part of a macro's name."""
	return re.sub("[^A-Z0-9]", "_", str(path).upper())


def fill(text: str, names: Dict[str, str]) -> str:
	for name, value in names.items():
		text = text.replace("{%s}" % name, value)
	return text
