"""Programs that stand before a compiler or one of its parts, under the same name: scripts and static programs."""

from typing import Callable, List

from .kind import Kind, Special, find_part, find_program, lines_of
from .project import Project

# each adds a flag that depends on something
SHELL = (
	'set -- -DFROM_VARIABLE="${ONE-none}" "$@"',
	'[ -z "$UNRELATED" ] || set -- -Wno-unused "$@"',
	'set -- $(cat bin/flags) "$@"',
	'read -r word < bin/flags && set -- $word "$@"',
	'[ -e bin/optional ] && set -- -DOPTIONAL=1 "$@"',
	'[ bin/flags -nt inc/x/h1.h ] && set -- -DNEWER=1 "$@"',
	'[ -L inc/y/h0.h ] && set -- -DLINK=1 "$@"',
	'set -- -DONE=$(date +%s) "$@"',
	'set -- -DONE=$(wc -c < inc/x/h1.h) "$@"',
	'set -- -DONE=$(ls inc/y | wc -l) "$@"',
	'set -- -DONE=0x$(umask) "$@"',
	'set -- -DWHERE="$PWD" "$@"',
	". bin/settings",
)
BASH = (*SHELL, 'set -- -DONE=$EPOCHSECONDS "$@"', 'mapfile -t more < bin/flags; set -- ${more[0]} "$@"')
PYTHON = (
	'args.append("-DONE=" + os.environ.get("ONE", "7"))',
	'args.append("-D" + ("UNRELATED" if "UNRELATED" in os.environ else "RELATED"))',
	'args += open("bin/flags").read().split()',
	'args.append("-DONE=%d" % time.time())',
	'args.append("-DONE=%d" % os.path.getsize("inc/x/h1.h")) if os.path.exists("inc/x/h1.h") else None',
	'args.append("-DONE=%d" % len(os.listdir("inc/y")))',
	'args.append("-DOPTIONAL=1") if os.path.exists("bin/optional") else None',
)
SHOW = "#ifdef %s\nstatic const %s __attribute__((used)) = %s;\n#endif\n"
# a header that is included in each compile, so that these macros change the object
SHOWN = "".join(
	(
		"#define TEXT(x) #x\n#define SHOW(x) TEXT(x)\n",
		SHOW % ("FROM_VARIABLE", "char from_variable[]", "SHOW(FROM_VARIABLE)"),
		SHOW % ("ONE", "long one_is", "ONE"),
		SHOW % ("WHERE", "char where_is[]", "SHOW(WHERE)"),
		*(SHOW % (name, "int %s_is" % name.lower(), name) for name in ("OPTIONAL", "NEWER", "LINK", "FLAG")),
		SHOW % ("UNRELATED", "int unrelated_is", "1"),
		"#undef ONE\n",
	)
)
STATIC = """\
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
	char one[64] = "-DONE=7", flags[64] = "-DFLAG=0", **args = calloc(argc + 4, sizeof *args);
	const char *variable = getenv("ONE");
	int fd = open("bin/flags", O_RDONLY), n = 0, way = %(way)d;
	if (way == 0 && variable)
		snprintf(one, sizeof one, "-DONE=%%s", variable);
	if (way == 1)
		snprintf(one, sizeof one, "-DONE=%%ld", (long)time(NULL));
	if (way != 2 && fd >= 0) {
		ssize_t got = read(fd, flags, sizeof flags - 1);
		flags[got > 0 ? got : 0] = 0;
		flags[strcspn(flags, " \\n")] = 0;
	}
	args[n++] = "%(program)s";
	if (%(is_compiler)d) {
		args[n++] = one;
		args[n++] = *flags ? flags : "-DFLAG=0";
	} else {
		args[n++] = "--defsym";
		args[n++] = *flags ? strchr(flags, 'D') + 1 : "FLAG=0";
	}
	for (int i = 1; i < argc; i++)
		args[n++] = argv[i];
	execv(args[0], args);
	return 127;
}
"""
STATIC_WAYS = 3


class Flags(Kind):
	"""A kind whose wrappers read a file of flags."""

	def write_flags(self, project: Project, is_everywhere: bool = False) -> str:
		return self.write("bin/flags", "-DFLAG=%d\n" % self.rng.randint(10, 99), is_everywhere=is_everywhere)

	def prepare(self) -> None:
		self.write_flags(self.project, True)
		self.write("bin/settings", 'set -- -DONE=5 "$@"\n', is_everywhere=True)
		self.write("shown.h", SHOWN, is_everywhere=True)

	def change_settings(self, project: Project) -> str:
		return self.write("bin/settings", 'set -- -DONE=%d "$@"\n' % self.rng.randint(1, 9))

	def turn_optional(self, project: Project) -> str:
		"""A file that is looked for comes or goes."""
		for folder in project.some_checkouts():
			path = folder / "bin" / "optional"
			if path.exists():
				path.unlink()
			else:
				path.write_text("")
		return "bin/optional"

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [self.write_flags, self.change_settings, self.turn_optional]


class Wrappers(Flags):
	name = "wrappers"
	about = "scripts of sh, bash and Python named gcc, and links to them"

	def prepare(self) -> None:
		super().prepare()
		self.change_wrapper(self.project, True)

	def change_wrapper(self, project: Project, is_everywhere: bool = False) -> str:
		compiler = find_program("gcc")
		shell = self.rng.choice(("sh", "bash", "python"))
		if shell == "python":
			# -S -E: neither what its users have installed nor what their variables say
			first = "#!%s -SE\nimport os, sys, time\nargs = []\n" % find_program("python3")
			text = first + lines_of(self.rng, PYTHON)
			text += 'os.execv("%s", ["gcc", *args, *sys.argv[1:]])\n' % compiler
		else:
			lines = lines_of(self.rng, BASH if shell == "bash" else SHELL)
			text = '#!%s\n%sexec %s "$@"\n' % (find_program(shell), lines, compiler)
		self.write("bin/real/gcc", text, 0o755, is_everywhere)
		name = "bin/gcc"
		if self.rng.random() < 0.3:
			folders = [self.project.root / one for one in ("one", "two")]
			for folder in folders:
				path = folder / name
				if path.exists() or path.is_symlink():
					path.unlink()
				path.symlink_to("real/gcc")
			return "bin/gcc is a link"
		return self.write(name, text, 0o755, is_everywhere)

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [*super().edits, self.change_wrapper]

	def draw(self) -> Special:
		if self.rng.random() < 0.5:
			return self.compile("bin/gcc", "-include", "shown.h")
		return self.compile("gcc", "-include", "shown.h", PATH="{cwd}/bin:/usr/bin:/bin")


class Helpers(Flags):
	name = "helpers"
	about = "static programs named gcc or as, which read a variable, a file or the clock"

	def prepare(self) -> None:
		super().prepare()
		self.exchange(self.project, True)

	def exchange(self, project: Project, is_everywhere: bool = False) -> str:
		way = self.rng.randrange(STATIC_WAYS)
		words = {"way": way, "program": find_program("gcc"), "is_compiler": 1}
		self.put("bin/static/gcc", self.build("static-gcc-%d" % way, STATIC % words, "-static"), is_everywhere)
		words = {"way": way, "program": find_part("gcc", "as"), "is_compiler": 0}
		self.put("bin/parts/as", self.build("static-as-%d" % way, STATIC % words, "-static"), is_everywhere)
		return "static helpers of way %d" % way

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [*super().edits, self.exchange]

	def draw(self) -> Special:
		if self.rng.random() < 0.5:
			return self.compile("bin/static/gcc", "-include", "shown.h")
		return self.compile("gcc", self.rng.choice(("-Bbin/parts", "-B{cwd}/bin/parts/")))


class Parts(Flags):
	name = "tools"
	about = "scripts in the place of as and cc1, found by -B"

	def prepare(self) -> None:
		super().prepare()
		self.write("bin/extra.s", "\t.data\n\t.long 1\n", is_everywhere=True)
		self.change_part(self.project, True)

	def change_extra(self, project: Project) -> str:
		return self.write("bin/extra.s", "\t.data\n\t.long %d\n" % self.rng.randint(1, 9))

	def change_part(self, project: Project, is_everywhere: bool = False) -> str:
		assembler, compiler = find_part("gcc", "as"), find_part("gcc", "cc1")
		more = self.rng.choice(
			(
				'"$@" bin/extra.s',
				'--defsym ONE_IS=${ONE-7} "$@"',
				'--defsym NOW=$(date +%s) "$@"',
				'--defsym THERE=$([ -e bin/optional ] && echo 1 || echo 0) "$@"',
			)
		)
		self.write("bin/as/as", "#!/bin/sh\nexec %s %s\n" % (assembler, more), 0o755, is_everywhere)
		# a part's own variables and files, behind a driver that knows nothing of them
		more = self.rng.choice(('-DONE=${ONE-7} "$@"', '$(cat bin/flags) "$@"', '"$@" -DWHERE=$PWD'))
		self.write("bin/cc1/cc1", "#!/bin/sh\nexec %s %s\n" % (compiler, more), 0o755, is_everywhere)
		return "scripts named as and cc1"

	@property
	def edits(self) -> List[Callable[[Project], str]]:
		return [*super().edits, self.change_part, self.change_extra]

	def draw(self) -> Special:
		part = self.rng.choice(("as", "cc1"))
		folder = self.rng.choice(("-Bbin/%s", "-B{cwd}/bin/%s/")) % part
		return self.compile("gcc", folder, "-include", "shown.h")
