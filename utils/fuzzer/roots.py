"""Checkouts and builds whose folders are left out of results: absolute arguments, and texts that name a folder."""

import pathlib
from typing import Callable, List

from .kind import Kind, Special
from .project import CHECKOUTS, HEADERS, SOURCES, Project, symbol_of

BUILD = "{cwd}-build"
"""A build's folder. Its name begins like that of the checkout, and it is not in the checkout."""
BASES = (
	("{cwd}",),
	("{cwd}", BUILD),
	(BUILD, "{cwd}"),
	(BUILD,),
	("{cwd}", "{cwd}/inc"),
	("{cwd}/src", BUILD, "{cwd}"),
)
FLAGS = ("-O1", "-g", "-I{cwd}/inc/x", "-I{cwd}/inc/y", "-Iinc/x", "-I../inc", "-MD", "-Wall", "-I%s/inc" % BUILD)


class Checkouts(Kind):
	name = "checkouts"
	about = "absolute names of checkouts and builds, which results leave out"

	def prepare(self) -> None:
		for checkout in CHECKOUTS:
			(self.project.root / checkout / "build").mkdir()
			self.build_of(checkout).mkdir(parents=True)
			self.project.write(self.build_of(checkout) / "made.h", self.header("made.h"))

	def build_of(self, checkout: str) -> pathlib.Path:
		return self.project.root / ("%s-build" % checkout) / "inc"

	def header(self, name: str) -> bytes:
		lines = (
			"#define %s %d" % (symbol_of(name), self.rng.randint(100, 999)),
			"static const char *own_%s = __FILE__;" % name[:-2],
			"// %s/inc" % (self.project.root / self.rng.choice(CHECKOUTS)),
			'#if __has_include("{0}")\n#include "{0}"\n#endif'.format(self.named()),
		)
		count = self.rng.randint(1, len(lines))
		return "\n".join(["#pragma once", *lines[:1], *self.rng.sample(lines[1:], count - 1), ""]).encode()

	def named(self) -> str:
		"""The absolute name of a header in one of the checkouts."""
		folder = self.project.root / self.rng.choice(CHECKOUTS)
		return str(folder / self.rng.choice(("inc/x", "inc/y")) / self.rng.choice(HEADERS))

	def rewrite(self, project: Project) -> str:
		"""A header that may name a checkout, in one checkout or in both."""
		name = self.rng.choice(HEADERS)
		path = "%s/%s" % (self.rng.choice(("inc/x", "inc/y")), name)
		text = self.header(name)
		for folder in project.some_checkouts():
			project.write(folder / path, text)
		return "%s: %r" % (path, text)

	def make_anew(self, project: Project) -> str:
		"""The header of a build."""
		checkout, text = self.rng.choice(CHECKOUTS), self.header("made.h")
		project.write(self.build_of(checkout) / "made.h", text)
		return "made.h of %s: %r" % (checkout, text)

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [self.rewrite, self.make_anew]

	def draw(self) -> Special:
		compiler = self.rng.choice(self.project.compilers)
		bases = self.rng.choice(BASES)
		maps = ["-ffile-prefix-map=%s=.%d" % (base, number) for number, base in enumerate(bases)]
		flags = self.rng.sample(FLAGS, self.rng.randint(1, 5))
		folder = self.rng.choice((".", "build", "../ONE-build"))
		source = "{cwd}/" + self.rng.choice(SOURCES)
		include = ("-include", BUILD + "/inc/made.h") if self.rng.random() < 0.5 else ()
		words = (compiler, *maps, *flags, *include, "-c", source, "-o", "{cwd}/a.o")
		env = {"WAFCC_BASEDIR": ":".join(bases)} if self.rng.random() < 0.5 else {}
		return Special(words, "a.o", env, self.rng.choice(CHECKOUTS), (), False, folder)

	def choose(self) -> Special:
		chosen = super().choose()
		return chosen._replace(folder=chosen.folder.replace("ONE", chosen.checkout))
