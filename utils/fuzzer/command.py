"""
Commands that a cache is asked for: compiles, links, archives and scripts, and which of them comes next.

Knows nothing of how they are run.
"""

import os
import pathlib
import random
import sys
from typing import Dict, List, NamedTuple, Optional

from .project import CHECKOUTS, SOURCES

FLAGS = (
	"-O0",
	"-O1",
	"-g",
	"-Wall",
	"-DONE=1",
	"-DONE=2",
	"-Iinc/x -Iinc/y",
	"-Iinc/y -Iinc/x",
	"-iquote inc/x",
	"-isystem inc/y",
	"-include h0.h -Isrc",
	"-MD",
	"-MMD -MF out.d -MT target",
	"-MD -MQ other.o -MP",
	"-fmacro-prefix-map={cwd}=A",
	"-fmacro-prefix-map={cwd}=B",
	"-ffile-prefix-map={cwd}=.",
	"-I{cwd}/inc/x",
	"-DTIME=__DATE__",
	"-fstack-usage",
	"-gsplit-dwarf",
	"--coverage",
	"-fdiagnostics-color=always",
	"-pipe",
	"-save-temps",
	"-save-temps=obj",
	"-fsyntax-only",
)
OUTPUTS = ("a.o", "src/b.o", "/dev/null")
# commands for `wafcc run --`
TOOLS = (
	"gcc -shared obj/a.o obj/b.o -o {cwd}/{output}",
	"gcc -shared obj/b.o -Wl,-M -o{cwd}/{output}",
	"gcc -shared obj/a.o -lnowhere -o {cwd}/{output}",
	"cat inc/x/h1.h none.h {output}",
	"gcc -shared -o {output} obj/a.o",
	"gcc -O1 -shared -fPIC -Iinc/x -Iinc/y -o {output} src/b.c",
	"gcc -O1 -flto -shared -fPIC -Iinc/y -o {output} src/a.c",
	"gcc -save-temps -Iinc/x -c src/c.c -o {output}",
	"ld -r obj/b.o -o {output}",
	"ar rcs {output} obj/a.o obj/b.o",
	"ar rcUS {output} obj/a.o",
	"ar qcS {output} obj/b.o",
	"cp inc/x/h1.h {output}",
	"cp -p src/a.c {output}",
	"tar cf {output} inc",
	"sh gen.sh {output}",
	"sh gen.sh {output}",
	"sh gen.sh {output}",
	"python gen.py {output}",
	"python gen.py {output}",
)
VARIABLES = (
	("CPATH", ("inc/x", "inc/y", "inc/y:inc/x")),
	("C_INCLUDE_PATH", ("inc/y",)),
	("LC_ALL", ("C", "C.UTF-8")),
	("SOURCE_DATE_EPOCH", ("1", "1000000000")),
	("GCC_COLORS", ("", "error=01;31")),
	("UNRELATED", ("a", "b")),
	("PATH", ("{cwd}/../tools:/usr/bin:/bin", "/usr/bin:/bin", "{cwd}/inc/x:/usr/bin:/bin", "inc:/usr/bin:/bin")),
)


class Command(NamedTuple):
	"""A compile, with the fields that vary from step to step."""

	compiler: str
	source: str
	output: str
	flags: List[str]
	env: Dict[str, str]
	checkout: str
	folder: str  # below the checkout, where it runs

	def argv(self, root: pathlib.Path) -> List[str]:
		cwd = str(root / self.checkout)
		up = os.path.relpath(cwd, os.path.join(cwd, self.folder))
		words = [word.format(cwd=cwd) for flag in self.flags for word in flag.split()]
		source, output = (os.path.normpath(os.path.join(up, name)) for name in (self.source, self.output))
		return [self.compiler, *words, "-c", source, "-o", output]

	options = ()  # of the wrapper


class Tool(NamedTuple):
	"""A link, an archive or a script, to be cached by its facts alone."""

	words: str
	output: str
	env: Dict[str, str]
	checkout: str
	folder: str = "."

	def argv(self, root: pathlib.Path) -> List[str]:
		words = self.words.format(output=self.output, cwd=root / self.checkout).split()
		return [os.path.realpath(sys.executable) if word == "python" else word for word in words]

	options = ("run", "--")


def choose_command(rng: random.Random, compilers: List[str], before: Optional[Command]) -> Command:
	"""Often the one before, perhaps with one change: otherwise the cache would never have a hit."""
	if before is None or rng.random() < 0.1:
		flags = rng.sample(FLAGS, rng.randint(0, 4))
		return Command(rng.choice(compilers), rng.choice(SOURCES), "a.o", flags, {}, rng.choice(CHECKOUTS), ".")
	change = rng.random()
	if change < 0.55:
		return before
	if change < 0.65:
		return before._replace(checkout=rng.choice(CHECKOUTS))
	if change < 0.75:
		return before._replace(flags=rng.sample(FLAGS, rng.randint(0, 4)))
	if change < 0.8:
		return before._replace(compiler=rng.choice(compilers))
	if change < 0.85:
		return before._replace(output=rng.choice(OUTPUTS))
	if change < 0.9:
		return before._replace(folder=rng.choice((".", "src")))
	if change < 0.95:
		return before._replace(source=rng.choice(SOURCES))
	name, values = rng.choice(VARIABLES)
	return before._replace(env={**before.env, name: rng.choice(values)} if name not in before.env else {})


def choose_tool(rng: random.Random, before: Optional[Tool]) -> Tool:
	"""Often the one before, as in ``choose_command``."""
	if before is None or rng.random() < 0.2:
		return Tool(rng.choice(TOOLS), rng.choice(("made.out", "src/made.out")), {}, rng.choice(CHECKOUTS))
	change = rng.random()
	if change < 0.7:
		return before
	if change < 0.85:
		return before._replace(checkout=rng.choice(CHECKOUTS))
	name, values = rng.choice((*VARIABLES, ("ONE", ("1", "2"))))
	return before._replace(env={**before.env, name: rng.choice(values)} if name not in before.env else {})
