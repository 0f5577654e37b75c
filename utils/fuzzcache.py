#!/usr/bin/env python3
"""
Look for a wrong answer of the cache: random edits of a random project, and every result compared with a fresh compile.

Two checkouts of one project are edited, apart and together, in all the ways by which caches were seen to return a wrong
object: headers come, go, shadow others, change at the same size and time, are restored; flags, variables, folder and
compiler change; some edits happen while a compile runs. A step is one edit and one command, through wafcc and without
it. What differs between two plain runs as well is not compared. Any other wrapper, such as ccache, can be tried too.
With --by-facts some commands are links, archives and scripts of random lines, as `wafcc run --` caches them.
"""

import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, NamedTuple, Optional, TextIO, Tuple, Union

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = """\
examples:
  utils/fuzzcache.py                         1,000 steps with a seed of their own, which is told
  utils/fuzzcache.py --steps 10000 --seed 7
  utils/fuzzcache.py --by-facts 50           half of them are no compiles
  utils/fuzzcache.py --compilers gcc,clang --wafcc ./wafcc --keep

exit status: 0 nothing differed, 1 something did (the folder is kept), 2 it could not begin
"""
CHECKOUTS = ("one", "two")
FOLDERS = ("src", "inc/x", "inc/y")
HEADERS = tuple("h%d.h" % n for n in range(6))
SOURCES = ("src/a.c", "src/b.c", "src/c.c")
DATA = "src/data.bin"
PATIENCE = 60  # seconds for one compile

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
)
# what `wafcc run --` is given, all with its output last
TOOLS = (
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
SHELL_LINES = (
	"cat inc/x/h1.h",
	"cat inc/*/h2.h",
	"sed s/define/undef/ src/a.c",
	"[ inc/x/h1.h -nt inc/y/h1.h ] && echo newer",
	"[ -e inc/x/h3.h ] && echo there",
	"[ -L inc/y/h0.h ] && echo link",
	"[ -x gen.sh ] && echo program",
	"for f in inc/*/*.h; do echo $f; done",
	"ls inc/y",
	"ls -i -s inc/y/h1.h > /dev/null",
	"wc -c inc/x/h1.h src/a.c",
	"stat -c %s.%a.%Y src/b.c",
	"readlink inc/x/h1.h",
	"readlink -f inc/x/h1.h",
	'echo "$ONE" "$UNRELATED" "${LC_ALL-none}"',
	"pwd",
	"umask",
	"grep -c int src/a.c",
	"(cd inc && cat x/h0.h y/h0.h)",
	"cat < inc/x/h2.h",
	"sort inc/x/h1.h | head -n 3",
	"cp src/data.bin made.bin",
	"rm -f made.bin",
	"echo more >> made.txt",
	"uname -n",
	"date > /dev/null",
	"mkdir -p inc/x",
	"find inc -name '*.h'",
)
PYTHON_LINES = (
	'print(open("inc/x/h1.h").read())',
	'print(os.path.exists("inc/x/h2.h"), os.path.islink("inc/x/h2.h"))',
	'print(sorted(os.listdir("inc/x")))',
	'print(os.listdir("inc/y"))',
	'print(os.path.getmtime("src/a.c"), os.path.getsize("src/b.c"))',
	'print(os.environ.get("ONE"), os.environ.get("UNRELATED"))',
	"print(os.getcwd())",
	'print(os.path.realpath("inc/x/h1.h"))',
	'print([e.name for e in os.scandir("inc/y") if e.is_file()])',
	'print(oct(os.stat("src/a.c").st_mode), os.umask(0o22))',
	'sys.stdout.flush(), os.system("sed -n 1p src/c.c > made.line"), print(open("made.line").read())',
	'print(__import__("importable").VALUE)',
	'open("made.tmp", "w").close(), os.replace("made.tmp", "made.bin")',
)
VARIABLES = (
	("CPATH", ("inc/x", "inc/y", "inc/y:inc/x")),
	("C_INCLUDE_PATH", ("inc/y",)),
	("LC_ALL", ("C", "C.UTF-8")),
	("SOURCE_DATE_EPOCH", ("1", "1000000000")),
	("GCC_COLORS", ("", "error=01;31")),
	("UNRELATED", ("a", "b")),
)


class Mistake(Exception):
	"""The caller can mend this; the message says how."""


class Command(NamedTuple):
	"""A compile: what is varied from step to step."""

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
		words = self.words.format(output=self.output).split()
		return [os.path.realpath(sys.executable) if word == "python" else word for word in words]

	options = ("run", "--")


Step = Union[Command, Tool]


class Trace(NamedTuple):
	"""All that a command leaves."""

	status: int
	stdout: bytes
	stderr: bytes
	files: Dict[str, bytes]


class Project:
	"""Two checkouts, and what was in their files before."""

	def __init__(self, root: pathlib.Path, rng: random.Random) -> None:
		self.root, self.rng = root, rng
		self.past: Dict[pathlib.Path, List[bytes]] = {}
		for checkout in CHECKOUTS:
			for folder in FOLDERS:
				(root / checkout / folder).mkdir(parents=True)
		for name in SOURCES:
			self.write_everywhere(name, self.source_text())
		for name in HEADERS[:4]:
			self.write_everywhere("%s/%s" % (rng.choice(FOLDERS), name), self.header_text(name))
		self.write_everywhere(DATA, b"\1\2\3\4")

	def prepare_tools(self) -> None:
		"""Whatever tools need besides sources."""
		for checkout in CHECKOUTS:
			(self.root / checkout / "obj").mkdir()
		self.write_everywhere("importable.py", b"VALUE = 1\n")
		self.write_everywhere("gen.sh", self.shell_text())
		self.write_everywhere("gen.py", self.python_text())
		make_objects(self)

	def shell_text(self) -> bytes:
		lines = self.rng.sample(SHELL_LINES, self.rng.randint(1, 5))
		return "\n".join(["{", *lines, '} > "$1"', ""]).encode()

	def python_text(self) -> bytes:
		lines = self.rng.sample(PYTHON_LINES, self.rng.randint(1, 4))
		return "\n".join(["import os, sys", 'sys.stdout = open(sys.argv[1], "w")', *lines, ""]).encode()

	def source_text(self) -> bytes:
		"""A source that includes some headers in every way there is, and holds what they say."""
		lines = []
		for name in self.rng.sample(HEADERS, 4):
			form = self.rng.choice(('#include "%s"', "#include <%s>"))
			lines += ["#if __has_include(%s)" % (form % name).split(" ", 1)[1], form % name, "#endif"]
		for name in HEADERS:
			lines += ["#ifdef %s" % symbol_of(name), "int from_%s = %s;" % (name[:2], symbol_of(name)), "#endif"]
		lines += ["#ifdef TIME", "const char *built = TIME;", "#endif", "#ifdef ONE", "int one = ONE;", "#endif"]
		if self.rng.random() < 0.5:
			lines.append("const char *place(void) { return __FILE__; }")
		if self.rng.random() < 0.3:
			lines.append('__asm__(".section .rodata\\n .incbin   \\"" "src/" "data.bin\\"\\n .text");')
		if self.rng.random() < 0.3:
			lines.append("const char *stamp = __TIMESTAMP__;")
		lines.append("int warned(int x) { int unused; return x; }")
		return "\n".join([*lines, ""]).encode()

	def header_text(self, name: str) -> bytes:
		"""A header whose size does not tell its content."""
		symbol = symbol_of(name)
		lines = ["#ifndef %s" % symbol, "#define %s %d" % (symbol, self.rng.randint(100, 999))]
		later = [other for other in HEADERS if other > name]
		if later and self.rng.random() < 0.4:
			lines.append('#include "%s"' % self.rng.choice(later))
		if self.rng.random() < 0.2:
			lines += ["#if __has_include_next(<%s>)" % name, "#include_next <%s>" % name, "#endif"]
		return "\n".join([*lines, "#endif", ""]).encode()

	def write(self, path: pathlib.Path, content: bytes) -> None:
		"""Write a file, in the place of a link if there is one; what it held can be restored later."""
		if path.exists():
			self.past.setdefault(path, []).append(path.read_bytes())
		if path.is_symlink():
			path.unlink()
		path.write_bytes(content)

	def write_everywhere(self, name: str, content: bytes) -> None:
		for checkout in CHECKOUTS:
			self.write(self.root / checkout / name, content)

	def some_checkouts(self) -> List[pathlib.Path]:
		chosen = self.rng.choice((CHECKOUTS[:1], CHECKOUTS[1:], CHECKOUTS))
		return [self.root / checkout for checkout in chosen]

	def some_headers(self) -> List[pathlib.Path]:
		"""The same header in some checkouts, as far as it is there."""
		name = "%s/%s" % (self.rng.choice(FOLDERS), self.rng.choice(HEADERS))
		return [path for path in (checkout / name for checkout in self.some_checkouts()) if path.exists()]


def symbol_of(header: str) -> str:
	return header.replace(".", "_").upper()


# ---- edits: each says what it did, or nothing where there was nothing to do


def change_header(project: Project) -> str:
	paths = project.some_headers()
	text = project.header_text(paths[0].name) if paths else b""
	for path in paths:
		project.write(path, text)
	return " ".join(map(str, paths))


def change_header_unseen(project: Project) -> str:
	"""At the same size and time."""
	paths = project.some_headers()
	for path in paths:
		before = path.stat()
		content = path.read_bytes()
		digit = project.rng.choice(b"123456789")
		at = next(i for i, byte in enumerate(content) if chr(byte).isdigit() and content[i + 1 : i + 3].isdigit())
		project.write(path, content[:at] + bytes([digit]) + content[at + 1 :])
		os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
	return " ".join(map(str, paths))


def add_header(project: Project) -> str:
	"""Where there was none: it may shadow another, or be what was looked for in vain."""
	folder, name = project.rng.choice(FOLDERS), project.rng.choice(HEADERS)
	text = project.header_text(name)
	paths = [checkout / folder / name for checkout in project.some_checkouts()]
	paths = [path for path in paths if not path.exists()]
	for path in paths:
		project.write(path, text)
	return " ".join(map(str, paths))


def remove_header(project: Project) -> str:
	paths = project.some_headers()
	for path in paths:
		project.past.setdefault(path, []).append(path.read_bytes())
		path.unlink()
	return " ".join(map(str, paths))


def rename_header(project: Project) -> str:
	"""Its content, inode and times come under another name."""
	paths = project.some_headers()
	name = "%s/%s" % (project.rng.choice(FOLDERS), project.rng.choice(HEADERS))
	for path in paths:
		checkout = next(parent for parent in path.parents if parent.name in CHECKOUTS)
		os.replace(path, checkout / name)
	return "%s to %s" % (" ".join(map(str, paths)), name) if paths else ""


def link_header(project: Project) -> str:
	"""A header is a link to another one from now on."""
	paths = project.some_headers()
	target = "../%s" % project.rng.choice(("src", "x", "y", "inc/x"))
	for path in paths:
		path.unlink()
		path.symlink_to("%s/%s" % (target, project.rng.choice(HEADERS)))
	return " ".join(map(str, paths))


def restore_file(project: Project) -> str:
	"""What it held earlier, perhaps with the time of then."""
	known = sorted(path for path, past in project.past.items() if past)
	if not known:
		return ""
	path = project.rng.choice(known)
	content = project.rng.choice(project.past[path])
	project.write(path, content)
	if project.rng.random() < 0.5:
		os.utime(path, (10**9, 10**9))
	return str(path)


def touch_file(project: Project) -> str:
	paths = project.some_headers()
	for path in paths:
		os.utime(path)
	return " ".join(map(str, paths))


def change_source(project: Project) -> str:
	name = project.rng.choice(SOURCES)
	text = project.source_text()
	for checkout in project.some_checkouts():
		project.write(checkout / name, text)
	return name


def change_data(project: Project) -> str:
	for checkout in project.some_checkouts():
		project.write(checkout / DATA, bytes(project.rng.randrange(256) for _ in range(4)))
	return DATA


def make_objects(project: Project) -> str:
	"""By the compiler alone, as far as the sources can be compiled."""
	for checkout in project.some_checkouts():
		for name in ("a", "b"):
			line = "gcc -fPIC -w -Iinc/x -Iinc/y -c src/%s.c -o obj/%s.o" % (name, name)
			subprocess.run(line.split(), cwd=str(checkout), stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False)
	return "objects"


def change_scripts(project: Project) -> str:
	shell, python = project.shell_text(), project.python_text()
	value = b"VALUE = %d\n" % project.rng.randint(1, 9)
	for checkout in project.some_checkouts():
		for name, text in (("gen.sh", shell), ("gen.py", python), ("importable.py", value)):
			project.write(checkout / name, text)
	return "scripts"


def touch_nothing(project: Project) -> str:
	return "nothing"


EDITS: List[Callable[[Project], str]] = [
	*(change_header, change_header_unseen, add_header, remove_header, rename_header, link_header, restore_file),
	*(touch_file, change_source, change_data, touch_nothing, touch_nothing, touch_nothing),
]

TOOL_EDITS = [*EDITS, make_objects, make_objects, change_scripts]

# ---- commands


def choose_command(rng: random.Random, compilers: List[str], before: Optional[Command]) -> Command:
	"""Often the one before, or that with something else: otherwise nothing would ever be asked for twice."""
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
		return before._replace(output=rng.choice(("a.o", "src/b.o")))
	if change < 0.9:
		return before._replace(folder=rng.choice((".", "src")))
	if change < 0.95:
		return before._replace(source=rng.choice(SOURCES))
	name, values = rng.choice(VARIABLES)
	return before._replace(env={**before.env, name: rng.choice(values)} if name not in before.env else {})


def choose_tool(rng: random.Random, before: Optional[Step]) -> Tool:
	"""Likewise."""
	if not isinstance(before, Tool) or rng.random() < 0.2:
		return Tool(rng.choice(TOOLS), rng.choice(("made.out", "src/made.out")), {}, rng.choice(CHECKOUTS))
	change = rng.random()
	if change < 0.7:
		return before
	if change < 0.85:
		return before._replace(checkout=rng.choice(CHECKOUTS))
	name, values = rng.choice((*VARIABLES, ("ONE", ("1", "2"))))
	return before._replace(env={**before.env, name: rng.choice(values)} if name not in before.env else {})


class Stuck(Exception):
	"""A command through wafcc that does not end."""


def wait(child: "subprocess.Popen[bytes]", is_cached: bool) -> Tuple[bytes, bytes]:
	"""What a command says; it is killed when that takes too long."""
	try:
		return child.communicate(timeout=PATIENCE)
	except subprocess.TimeoutExpired:
		child.kill()
		child.communicate()
	if is_cached:
		raise Stuck("it was not done after %d s" % PATIENCE)
	raise Mistake("a plain compile was not done after %d s: this machine is too busy to try anything" % PATIENCE)


class Fuzzer:
	"""Runs commands through wafcc and without it."""

	def __init__(self, root: pathlib.Path, wafcc: str, rng: random.Random) -> None:
		self.root, self.wafcc, self.rng = root, wafcc, rng
		self.environ = {name: os.environ[name] for name in ("PATH", "HOME", "WAFD_RUNTIME_DIR") if name in os.environ}
		self.ours = {"WAFCC_DIR": str(root / "store"), "WAFCC_BASEDIR": str(root)}
		self.project = Project(root, rng)

	def start(self, command: Step, is_cached: bool) -> "subprocess.Popen[bytes]":
		argv = command.argv(self.root)
		return subprocess.Popen(
			[self.wafcc, *command.options, *argv] if is_cached else argv,
			cwd=self.root / command.checkout / command.folder,
			env={**self.environ, **(self.ours if is_cached else {}), **command.env},
			stdin=subprocess.DEVNULL,
			stdout=subprocess.PIPE,
			stderr=subprocess.PIPE,
		)

	def look(self) -> Dict[str, bytes]:
		"""All files of both checkouts."""
		paths = [path for name in CHECKOUTS for path in (self.root / name).rglob("*") if path.is_file()]
		return {str(path): path.read_bytes() for path in paths}

	def run(self, command: Step, is_cached: bool) -> Trace:
		"""What a command leaves; its files are removed again."""
		before = self.look()
		child = self.start(command, is_cached)
		stdout, stderr = wait(child, is_cached)
		made = {path: content for path, content in self.look().items() if before.get(path) != content}
		for path in made:
			os.unlink(path)
		return Trace(child.returncode, stdout, stderr, made)

	def disturb(self, command: Step) -> None:
		"""Edits while a command runs, whose own result may then be either."""
		before = self.look()
		child = self.start(command, True)
		for _ in range(self.rng.randint(1, 3)):
			time.sleep(self.rng.uniform(0, 0.015))
			self.rng.choice(EDITS)(self.project)
		wait(child, True)
		for path in self.look():
			if path not in before and not path.endswith((".h", ".c", ".sh", ".py")):
				os.unlink(path)

	def difference(self, command: Step) -> str:
		"""What wafcc leaves that a plain run does not, nor another one."""
		found, wanted = self.run(command, True), self.run(command, False)
		if found == wanted:
			return ""
		again = self.run(command, False)
		for field in ("status", "stdout", "stderr"):
			if getattr(wanted, field) == getattr(again, field) != getattr(found, field):
				return "%s: %r instead of %r" % (field, getattr(found, field), getattr(wanted, field))
		if sorted(found.files) != sorted(wanted.files):
			return "files: %s instead of %s" % (sorted(found.files), sorted(wanted.files))
		wrong = [path for path in wanted.files if wanted.files[path] == again.files.get(path) != found.files[path]]
		return "other content: %s" % ", ".join(wrong) if wrong else ""


def fuzz(
	fuzzer: Fuzzer, steps: int, compilers: List[str], say: Callable[[int, int], None], tools: int = 0
) -> Optional[str]:
	"""The first difference, with what led to it; nothing if there is none."""
	command, history = None, []  # type: Optional[Command], List[str]
	tool = None  # type: Optional[Tool]
	if tools:
		fuzzer.project.prepare_tools()
	for step in range(steps):
		is_tool = tools > 0 and fuzzer.rng.random() * 100 < tools
		edit = fuzzer.rng.choice(TOOL_EDITS if is_tool else EDITS)
		history.append("%d %s: %s" % (step, edit.__name__, edit(fuzzer.project) or "-"))
		if is_tool:
			chosen = tool = choose_tool(fuzzer.rng, tool)  # type: Step
		else:
			chosen = command = choose_command(fuzzer.rng, compilers, command)
		wrong = try_out(fuzzer, step, chosen, history)
		if wrong:
			return wrong
		say(step + 1, steps)
	return None


def try_out(fuzzer: Fuzzer, step: int, command: Step, history: List[str]) -> Optional[str]:
	"""A difference, with what led to it."""
	try:
		if fuzzer.rng.random() < 0.05:
			fuzzer.disturb(command)
			history.append("%d disturbed" % step)
		wrong = fuzzer.difference(command)
	except Stuck as e:
		wrong = str(e)
	argv = " ".join(command.argv(fuzzer.root))
	history.append("%d (cd %s/%s && %s %s)" % (step, command.checkout, command.folder, command.env or "", argv))
	return "\n".join(["step %d: %s" % (step, wrong), *history[-12:]]) if wrong else None


def find_wafcc(named: Optional[str]) -> str:
	"""The wrapper that is to be tried."""
	built = HERE.parent / "engine" / "target" / "release" / "wafcc"
	found = named or shutil.which("wafcc") or (str(built) if built.is_file() else None)
	if not found or not os.access(found, os.X_OK):
		raise Mistake("%s: no such program: build the engine, or name one with --wafcc" % (found or "wafcc"))
	return os.path.abspath(found)


def find_compilers(named: Optional[str]) -> List[str]:
	wanted = named.split(",") if named else [name for name in ("gcc", "clang") if shutil.which(name)]
	missing = [name for name in wanted if not shutil.which(name)]
	if missing or not wanted:
		raise Mistake("no compiler %s: name others with --compilers" % ", ".join(missing or ["gcc or clang"]))
	return wanted


def tell_progress(file: TextIO) -> Callable[[int, int], None]:
	"""Each step on a terminal; in a log now and then."""
	is_shown = file.isatty()

	def say(step: int, steps: int) -> None:
		if is_shown or step % 500 == 0:
			print("%s%d of %d steps" % ("\r" if is_shown else "", step, steps), end="" if is_shown else "\n", file=file)

	return say


def main() -> int:
	parser = argparse.ArgumentParser(
		description=(__doc__ or "").strip(), epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
	)
	parser.add_argument("--steps", type=int, default=1000, metavar="N", help="how many (default 1000)")
	parser.add_argument("--seed", type=int, metavar="N", help="of everything that is chosen (default a fresh one)")
	parser.add_argument("--compilers", metavar="A,B", help="default gcc and clang, as far as they are here")
	parser.add_argument(
		"--by-facts", type=int, default=0, metavar="PERCENT", help="of the commands are no compiles (default 0)"
	)
	parser.add_argument("--wafcc", metavar="FILE", help="the wrapper (default along PATH, or the one built here)")
	parser.add_argument("--work", metavar="DIR", help="where to work, in a new folder (default the system's)")
	parser.add_argument("--keep", action="store_true", help="keep the folder; it is kept where something differs")
	options = parser.parse_args()
	try:
		wafcc, compilers = find_wafcc(options.wafcc), find_compilers(options.compilers)
	except Mistake as e:
		print("fuzzcache: %s" % e, file=sys.stderr)
		return 2
	seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
	root = pathlib.Path(tempfile.mkdtemp(prefix="fuzzcache-", dir=options.work))
	print("seed %d" % seed, flush=True)
	fuzzer = Fuzzer(root, wafcc, random.Random(seed))
	try:
		wrong = fuzz(fuzzer, options.steps, compilers, tell_progress(sys.stderr), options.by_facts)
	except Mistake as e:
		print("fuzzcache: %s" % e, file=sys.stderr)
		return 2
	finally:
		subprocess.run(
			[wafcc, "--shutdown"],
			env={**fuzzer.environ, **fuzzer.ours},
			stdout=subprocess.DEVNULL,
			stderr=subprocess.DEVNULL,
			timeout=PATIENCE,
			check=False,
		)
	if wrong:
		print("%s\nkept in %s" % (wrong, root))
		return 1
	print("%d steps, nothing differs" % options.steps)
	if not options.keep:
		shutil.rmtree(root)
	return 0


if __name__ == "__main__":
	sys.exit(main())
