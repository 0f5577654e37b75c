"""Names that lead to other things: links that turn, libraries and plugins by relative paths, and the processor."""

import os
from typing import Callable, List

from .kind import Kind, Special, find_program
from .project import CHECKOUTS, Project
from .wrappers import SHOWN

VALUE = "int value(void) { return %d; }\n"
TELL = """\
#include <stdio.h>
#include <stdlib.h>
int value(void);
int main(int argc, char **argv) {
	FILE *file = fopen(argv[1], "w");
	fprintf(file, "%d\\n", value());
	return fclose(file);
}
"""
COMPILE = """\
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int value(void);
int main(int argc, char **argv) {
	char word[64], **args = calloc(argc + 3, sizeof *args);
	int n = 0;
	snprintf(word, sizeof word, "-DFLAG=%%d", value());
	args[n++] = "%s";
	args[n++] = word;
	for (int i = 1; i < argc; i++)
		args[n++] = argv[i];
	unsetenv("LD_LIBRARY_PATH");
	execv(args[0], args);
	return 127;
}
"""
# neither compiler needs its headers for a plugin that only says that it is there
PLUGIN = """\
#include <stdio.h>
int plugin_is_GPL_compatible;
int plugin_init(void *one, void *two) { return 0; }
__attribute__((constructor)) static void say(void) { fprintf(stderr, "plugin %d\\n"); }
"""
VARIANTS = 3


class Links(Kind):
	name = "links"
	about = "links that are turned between commands, or by the command itself"

	def prepare(self) -> None:
		for checkout in CHECKOUTS:
			folder = self.project.root / checkout
			(folder / "inc" / "turn").symlink_to("x")
			(folder / "inc" / "deep").symlink_to("turn")
			(folder / "turning.h").symlink_to("inc/x/h0.h")
		compiler = find_program("gcc")
		text = '#!/bin/sh\nln -sfn y inc/turn\n%s "$@"\nstatus=$?\nln -sfn x inc/turn\nexit $status\n' % compiler
		self.write("bin/turning/gcc", text, 0o755, is_everywhere=True)

	def turn(self, project: Project) -> str:
		target = self.rng.choice(("x", "y", "nowhere", "../src"))
		for folder in project.some_checkouts():
			relink(str(folder / "inc" / "turn"), target)
		return "inc/turn leads to %s" % target

	def turn_header(self, project: Project) -> str:
		target = self.rng.choice(("inc/x/h0.h", "inc/y/h0.h", "inc/turn/h1.h", "src/h2.h"))
		for folder in project.some_checkouts():
			relink(str(folder / "turning.h"), target)
		return "turning.h leads to %s" % target

	def exchange_folders(self, project: Project) -> str:
		"""Two folders change their names; no link is touched, and neither is a file."""
		for folder in project.some_checkouts():
			x, y, between = (str(folder / "inc" / name) for name in ("x", "y", "between"))
			os.rename(x, between)
			os.rename(y, x)
			os.rename(between, y)
		return "inc/x and inc/y are exchanged"

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [self.turn, self.turn, self.turn_header, self.exchange_folders]

	def draw(self) -> Special:
		compiler = self.rng.choice(("gcc", "gcc", "bin/turning/gcc"))
		more = self.rng.choice((("-Iinc/turn",), ("-Iinc/deep", "-Iinc/y"), ("-include", "turning.h")))
		return self.compile(compiler, "-w", *more)


def relink(path: str, target: str) -> None:
	"""Replace a link in one step, so that it is never missing."""
	draft = path + ".draft"
	os.symlink(target, draft)
	os.replace(draft, path)


class Libraries(Kind):
	name = "libraries"
	about = "libraries and plugins that are named by relative paths"

	def prepare(self) -> None:
		self.write("shown.h", SHOWN, is_everywhere=True)
		self.values = [self.build("libvalue-%d.so" % n, VALUE % n, "-shared", "-fPIC") for n in range(VARIANTS)]
		self.plugins = [self.build("plugin-%d.so" % n, PLUGIN % n, "-shared", "-fPIC") for n in range(VARIANTS)]
		self.exchange(self.project, True)
		library = str(self.made / "libvalue-0.so")
		soname = self.made / "libvalue.so"
		if not soname.exists():
			soname.symlink_to(library)
		flags = ("-L%s" % self.made, "-lvalue")
		self.put("bin/tell", self.build("tell", TELL, *flags), True)
		self.put("bin/linked/gcc", self.build("linked-gcc", COMPILE % find_program("gcc"), *flags), True)

	def exchange(self, project: Project, is_everywhere: bool = False) -> str:
		number = self.rng.randrange(VARIANTS)
		self.put("lib/libvalue.so", self.values[number], is_everywhere)
		self.put("lib/p.so", self.plugins[number], is_everywhere)
		return "libraries of number %d" % number

	def shadow(self, project: Project) -> str:
		"""Put a library of the same name into an earlier folder of the search path, or remove it."""
		for folder in project.some_checkouts():
			path = folder / "first" / "libvalue.so"
			if path.exists():
				path.unlink()
			else:
				path.parent.mkdir(exist_ok=True)
				path.write_bytes(self.values[1].read_bytes())
		return "first/libvalue.so"

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [self.exchange, self.exchange, self.shadow]

	def draw(self) -> Special:
		way = self.rng.randrange(4)
		path = self.rng.choice(("lib", "first:lib", "{cwd}/lib", "./lib", "lib:"))
		if way == 0:
			words = ("bin/tell", "{output}")
			return Special(words, "told.txt", {"LD_LIBRARY_PATH": path}, self.rng.choice(CHECKOUTS), ("run", "--"))
		if way == 1:
			return self.compile("bin/linked/gcc", "-include", "shown.h", LD_LIBRARY_PATH=path)
		compilers = [name for name in ("gcc", "clang") if name in self.project.compilers]
		return self.compile(self.rng.choice(compilers or ["gcc"]), "-fplugin=%s" % self.rng.choice(PLUGINS))


PLUGINS = ("lib/p.so", "./lib/p.so", "{cwd}/lib/p.so")


class Processors(Kind):
	name = "processors"
	about = "commands that ask for the processor, on machines with different ones"

	def prepare(self) -> None:
		self.number = 0

	def draw(self) -> Special:
		return self.compile("gcc", self.rng.choice(("-march=native", "-mtune=native")))

	def choose(self) -> Special:
		"""Now and then a command on a machine without earlier results, which the cache must not answer."""
		chosen = super().choose()
		if self.rng.random() < 0.3:
			self.number += 1
			chosen = self.before = chosen._replace(env={**chosen.env, "WAFCC_PROCESSOR": "machine%d" % self.number})
			return chosen._replace(is_new=True)
		return chosen
