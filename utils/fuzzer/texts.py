"""Edits of which the preprocessor leaves nothing, or something: comments, blank lines, macros, options, headers."""

from typing import Callable, List

from .kind import Kind, Special
from .project import CHECKOUTS, Project

HEADERS = ("inc/t.h", "inc/x/t.h", "inc/y/u.h")
LINES = (
	"#pragma once",
	"#define USED {n}",
	"#define UNUSED {n}",
	"#define USED USED_2\n#define USED_2 {n}",
	"#undef UNUSED",
	"// comment {n}",
	"/* comment\n * {n} */",
	"int /* {n} */ a{n}();",
	"",
	"\n",
	"\t",
	"inline int here() { return __LINE__; }",
	"inline int there() { return __builtin_LINE(); }",
	"inline const char *file() { return __FILE__; }",
	"static inline int s{n}() { return {n}; }",
	"static int warned() { return {n}; }",
	"static const int constant = {n};",
	"inline int b(int x) {\n  if (x)\n    x = {n};\n    x++;\n  return x;\n}",
	"inline int c(int x) {\n\tif (x)\n\t\tx = {n};\n\tx++;\n\treturn x;\n}",
	"inline int d(int x) {\n\tif (x)\n\t\tx = {n};\n \tx++;\n\treturn x;\n}",
	"inline int e(int x) { switch (x) { case 1: x++;\n// fall through\n case 2: x++; } return x; }",
	"inline int e(int x) { switch (x) { case 1: x++;\n\n case 2: x++; } return x; }",
	'inline const char *raw() { return R"(\n// {n}\n\n)"; }',
	'inline const char *raw() { return R"(\n// {n}\n)"; }',
	'inline const char *text() { return "/* {n} */"; }',
	"#if {n} > 1\nextern int conditional;\n#endif",
	"#ifdef GIVEN\nextern int given;\n#endif",
	"#ifdef NDEBUG\n#define CHECK(x)\n#else\n#define CHECK(x) check(__LINE__)\n#endif",
	'#line {n} "line.h"',
	'#pragma GCC diagnostic ignored "-Wunused-function"',
	"#pragma GCC system_header",
	'#if __has_include("u.h")\n#include "u.h"\n#endif',
	"#include <u.h>",
	"/* a /* b */",
	"// joined \\\n   line {n}",
	"inline int counted() { return __COUNTER__; }",
	'#define QUOTED "{n}"',
)
SOURCE = "#include <string>\n#include <vector>\n%sstd::string f(int x) { return std::to_string(x%s); }\n%s"
ENDS = (
	"int g() { return USED; }\n",
	"int h = sizeof QUOTED;\n",
	"#ifdef USED\nint i;\n#endif\n",
	"int j() { return here(); }\n",
	"const char *k = file();\n",
	"// {n}\n",
	"\n\n",
	"#include <cassert>\nvoid l(int x) { assert(x); }\n",
	"CHECK(1);\n",
)
FLAGS = (
	"-O1",
	"-g",
	"-Wall",
	"-Wextra",
	"-w",
	"-DGIVEN",
	"-DNOBODY=1",
	"-DNOBODY=2",
	"-DUSED=1",
	"-DQUOTED=2",
	"-DNDEBUG",
	"-Iinc/x",
	"-Iinc/y",
	"-isystem inc/x",
	"-include inc/t.h",
	"-MD",
	"-MMD -MP",
	"-MD -MT x.o",
	"-Wunused-macros",
	"-Wundef",
	"-fPIC",
	"-Wp,-MMD,t.d",
)


class Texts(Kind):
	name = "texts"
	about = "edits of which the preprocessor leaves nothing, or something"
	pause = 1.6

	def prepare(self) -> None:
		self.project.write_everywhere("configure", b"")  # it shows where a checkout is
		self.lines = {name: ["#pragma once"] for name in HEADERS}
		for name in HEADERS[:1]:
			self.lines[name].append("#define USED 1")
		for name in HEADERS:
			self.write(name, "\n".join(self.lines[name]) + "\n", is_everywhere=True)
		self.parts = ['#include "t.h"\n', " + 1", "int g() { return USED; }\n"]
		self.write_source(True)

	def write_source(self, is_everywhere: bool = False) -> str:
		return self.write("src/t.cc", SOURCE % tuple(self.parts), is_everywhere=is_everywhere)

	def number(self, text: str) -> str:
		return text.replace("{n}", str(self.rng.randint(1, 2)))

	def change_header(self, project: Project) -> str:
		"""Add, remove or replace one of the lines. Each is there once, since most would be errors the second time."""
		name = self.rng.choice(HEADERS[:1] * 3 + HEADERS)
		lines = self.lines[name]
		if self.rng.random() < 0.6 and len(lines) > 2:
			del lines[self.rng.randrange(len(lines))]
		new = self.rng.choice(LINES)
		if self.rng.random() < 0.7 and not any(new in known for known in self.lines.values()):
			lines.insert(self.rng.randint(0, len(lines)), new)
		text = "\n".join(self.number(line) for line in lines) + "\n"
		self.write(name, text, is_everywhere=self.rng.random() < 0.7)
		return "%s: %r" % (name, text)

	def change_source_of_texts(self, project: Project) -> str:
		choice = self.rng.randrange(4)
		if choice == 0:
			self.parts[0] = self.rng.choice(
				('#include "t.h"\n', "#include <t.h>\n", '\n#include "t.h"\n', '#include "t.h"\n// {n}\n')
			)
			self.parts[0] = self.number(self.parts[0])
		elif choice == 1:
			self.parts[1] = self.rng.choice(("", " + 1", " + 2", " /* {n} */", "\n + 1", " + __LINE__"))
			self.parts[1] = self.number(self.parts[1])
		else:
			chosen = self.rng.sample(ENDS, self.rng.randint(0, 2))
			self.parts[2] = self.number("".join(chosen))
		return "%s: %r" % (self.write_source(self.rng.random() < 0.7), self.parts)

	def leave_texts(self, project: Project) -> str:
		return ""

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [
			self.change_header,
			self.change_header,
			self.change_header,
			self.change_source_of_texts,
			self.leave_texts,
		]

	def choose(self) -> Special:
		"""Often the command before, with an option more or less."""
		if self.before is None or self.rng.random() < 0.1:
			self.before = self.draw()
		elif self.rng.random() < 0.4:
			more = self.rng.choice(FLAGS)
			*start, compile_only, source, out, output = self.before.words
			without = [word for word in start if word not in more.split()]
			words = (
				*(without if len(without) < len(start) else (*start, *more.split())),
				compile_only,
				source,
				out,
				output,
			)
			self.before = self.before._replace(words=words)
		elif self.rng.random() < 0.15:
			self.before = self.before._replace(checkout=self.rng.choice(CHECKOUTS))
		return self.before

	def draw(self) -> Special:
		flags = [word for flag in self.rng.sample(FLAGS, self.rng.randint(0, 2)) for word in flag.split()]
		compiler = self.rng.choice(self.project.compilers)
		words = (compiler, "-O0", "-Iinc", *flags, "-c", "src/t.cc", "-o", "{output}")
		return Special(words, "t.o", {}, self.rng.choice(CHECKOUTS))
