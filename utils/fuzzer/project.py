"""
A project in two checkouts: its files, and the texts that they may have.

Knows nothing of what is done with it.
"""

import pathlib
import random
from typing import Dict, List

CHECKOUTS = ("one", "two")
FOLDERS = ("src", "inc/x", "inc/y")
HEADERS = tuple("h%d.h" % n for n in range(6))
SOURCES = ("src/a.c", "src/b.c", "src/c.c")
DATA = "src/data.bin"
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


class Project:
	"""Two checkouts, and what was in their files before."""

	def __init__(self, root: pathlib.Path, rng: random.Random) -> None:
		self.root, self.rng = root, rng
		self.past: Dict[pathlib.Path, List[bytes]] = {}
		self.compilers: List[str] = []  # that are tried
		for checkout in CHECKOUTS:
			for folder in FOLDERS:
				(root / checkout / folder).mkdir(parents=True)
		for name in SOURCES:
			self.write_everywhere(name, self.source_text())
		for name in HEADERS[:4]:
			self.write_everywhere("%s/%s" % (rng.choice(FOLDERS), name), self.header_text(name))
		self.write_everywhere(DATA, b"\1\2\3\4")

	def prepare_tools(self) -> None:
		for checkout in CHECKOUTS:
			(self.root / checkout / "obj").mkdir()
		self.write_everywhere("importable.py", b"VALUE = 1\n")
		self.write_everywhere("gen.sh", self.shell_text())
		self.write_everywhere("gen.py", self.python_text())

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
		"""Write a file, which replaces a link. The old content can be restored later."""
		mode = path.stat().st_mode & 0o777 if path.exists() else None
		if path.exists():
			self.past.setdefault(path, []).append(path.read_bytes())
		if path.is_symlink():
			path.unlink()
		path.parent.mkdir(parents=True, exist_ok=True)
		path.write_bytes(content)
		if mode is not None:  # a link's program is one still
			path.chmod(mode)

	def write_everywhere(self, name: str, content: bytes) -> None:
		for checkout in CHECKOUTS:
			self.write(self.root / checkout / name, content)

	def some_checkouts(self) -> List[pathlib.Path]:
		chosen = self.rng.choice((CHECKOUTS[:1], CHECKOUTS[1:], CHECKOUTS))
		return [self.root / checkout for checkout in chosen]

	def some_headers(self) -> List[pathlib.Path]:
		"""One header in some checkouts, if it exists there."""
		name = "%s/%s" % (self.rng.choice(FOLDERS), self.rng.choice(HEADERS))
		return [path for path in (checkout / name for checkout in self.some_checkouts()) if path.exists()]


def symbol_of(header: str) -> str:
	return header.replace(".", "_").upper()
