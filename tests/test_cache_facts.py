"""wafcc in front of commands that are not compiles: they are cached by what they are observed to use, or not at all."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Tuple

import pytest
from cache_support import PATIENCE, Lab, Trace

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = "/usr/bin/python3"  # with -S: modules that its users have installed may do anything


class Facts(Lab):
	"""A lab in which commands are cached by their facts."""

	@classmethod
	def make(cls, engine: str, tmp_path: pathlib.Path, **files: str) -> "Facts":
		"""Make the folder with these files."""
		folder = tmp_path / "sandbox"
		folder.mkdir()
		sandbox = cls(engine, folder, tmp_path / "home")
		for name, text in files.items():
			sandbox.write(name, text)
		return sandbox

	def run_by_facts(self, line: str, **env: str) -> subprocess.CompletedProcess:
		"""The output of a command. Its files stay."""
		return self.run_argv(line.split(), True, **env)

	def run_argv(self, argv: List[str], is_cached: bool, **env: str) -> subprocess.CompletedProcess:
		"""The same for the words of a command, by its facts or plainly."""
		return subprocess.run(
			[self.wafcc, "run", "--", *argv] if is_cached else argv,
			cwd=self.folder,
			env={**self.environ, **env},
			stdin=subprocess.DEVNULL,
			capture_output=True,
			timeout=PATIENCE,
			check=False,
		)

	def check(self, line: str, output: str, cwd: str = ".", umask: int = 0o022, **env: str) -> str:
		"""Run a command by its facts and plainly; both must have the same effects. Returns wafcc's verdict."""
		return self.check_against(self.run_plain(line, cwd, umask, **env), line, output, cwd, umask, **env)

	def check_against(
		self, plain: Trace, line: str, output: str, cwd: str = ".", umask: int = 0o022, **env: str
	) -> str:
		"""Run a command by its facts; it must have the effects of the plain one. Returns wafcc's verdict."""
		found = self.run(f"{self.wafcc} run -- {line}", False, cwd, umask, **env)
		said = self.explain(self.folder / cwd / output)
		assert found == plain, f"{line}: {said}"
		return said

	def check_until_hit(self, line: str, output: str, cwd: str = ".", umask: int = 0o022, **env: str) -> None:
		"""A file that was written just before is not trusted yet."""
		deadline = time.monotonic() + PATIENCE
		plain = self.run_plain(line, cwd, umask, **env)
		said = ""
		while not said.startswith("hit"):
			assert time.monotonic() < deadline, f"{line} is never a hit: {said}"
			said = self.check_against(plain, line, output, cwd, umask, **env)

	def statistics(self) -> Dict[str, Any]:
		done = subprocess.run(
			[self.wafcc, "--show-stats", "--json"], env=self.environ, capture_output=True, timeout=PATIENCE, check=True
		)
		return json.loads(done.stdout)

	def hits(self) -> int:
		return self.statistics()["hits"]

	def reasons(self) -> Dict[str, int]:
		"""The reasons why commands were not looked up, or not stored."""
		told = self.statistics()
		return {**told["uncached"], **told["not_stored"]}


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	"""A folder with a source, two objects, scripts and the like."""
	sandbox = Facts.make(engine, tmp_path, **FILES)
	subprocess.run(["gcc", "-c", "a.c", "b.c"], cwd=sandbox.folder, check=True, timeout=PATIENCE)
	return sandbox


FILES = {
	"a.c": "int f(void) { return 1; }\n",
	"b.c": "int f(void);\nint main(void) { return f(); }\n",
	"x.l": "%%\n[a-z] ;\n%%\n",
	"x.y": "%{\nint yylex(void); void yyerror(const char *s);\n%}\n%token A\n%%\ns: A ;\n%%\n",
	"m.proto": 'syntax = "proto3";\nmessage M { int32 a = 1; }\n',
	"m.f90": "module m\n integer :: i = 1\nend module\n",
	"m.cc": "export module m;\nexport int f() { return 1; }\n",
	"u.cc": "import m;\nint g() { return f(); }\n",
	"in.txt": "one\n",
	"tool/gen.sh": "sed s/one/two/ in.txt > made.c\ncat made.c a.c >> more.c\n",
	"tool/gen.py": "import sys\nopen(sys.argv[1], 'w').write(open('in.txt').read() * 2)\n",
	"tool/say.sh": 'echo "$WORD" > made.c\n',
	"tool/here.sh": "pwd > made.c\n",
	"tool/list.sh": "for name in src/*; do echo $name; done > made.c\n",
	"tool/mode.sh": "umask 022\n: > made.c\n",
	"src/one": "",
}


class Kind(NamedTuple):
	"""A command, one of its outputs, one of its inputs, and what is written into that."""

	line: str
	output: str
	source: str
	text: str


KINDS = {
	"link": Kind("gcc -o prog a.o b.o", "prog", "a.o", ""),
	"link by clang": Kind("clang -o prog a.o b.o", "prog", "a.o", ""),
	"compile and link": Kind("gcc -O1 -o prog a.c b.c", "prog", "a.c", "int f(void) { return 2; }\n"),
	"link with optimization": Kind("gcc -O1 -flto -o prog a.c b.c", "prog", "a.c", "int f(void) { return 2; }\n"),
	"shared library": Kind("gcc -shared -fPIC -o a.so a.c", "a.so", "a.c", "int f(void) { return 2; }\n"),
	"partial link": Kind("ld -r -o both.o a.o b.o", "both.o", "a.o", ""),
	"archive": Kind("ar rcs both.a a.o b.o", "both.a", "a.o", ""),
	"archive by gcc": Kind("gcc-ar qc both.a a.o b.o", "both.a", "b.o", ""),
	"intermediate files": Kind(
		"gcc -fdump-tree-gimple=a.gimple -c a.c", "a.gimple", "a.c", "int f(void) { return 2; }\n"
	),
	"scanner": Kind("flex x.l", "lex.yy.c", "x.l", "%%\n[0-9] ;\n%%\n"),
	"parser": Kind("bison -d x.y", "x.tab.h", "x.y", FILES["x.y"].replace("A", "B")),
	"messages": Kind("protoc --cpp_out=. m.proto", "m.pb.h", "m.proto", FILES["m.proto"].replace("a =", "b =")),
	"shell script": Kind("sh tool/gen.sh", "more.c", "in.txt", "none\n"),
	"Python script": Kind(f"{PYTHON} -S tool/gen.py made.c", "made.c", "in.txt", "none\n"),
	"Fortran module": Kind("gfortran -c m.f90", "m.o", "m.f90", FILES["m.f90"].replace("integer", "real")),
	"clang module": Kind(
		"clang++ -std=c++20 --precompile -x c++-module m.cc -o m.pcm", "m.pcm", "m.cc", FILES["m.cc"].replace("1", "2")
	),
}


def need(line: str) -> None:
	if not shutil.which(line.split()[0]):
		pytest.skip(f"needs {line.split()[0]}")


@pytest.mark.parametrize("name", KINDS)
def test_a_command_is_cached_by_its_facts(name: str, sandbox: Facts) -> None:
	"""A command is a hit with the same bytes and rights if its outputs are removed, and a miss if an input changed."""
	kind = KINDS[name]
	need(kind.line)
	sandbox.check_until_hit(kind.line, kind.output)
	assert sandbox.check(kind.line, kind.output).startswith("hit")
	before = (sandbox.folder / kind.source).read_bytes()
	text = kind.text.encode() or b"/* another */\n"
	if kind.source.endswith(".o"):
		source = kind.source.replace(".o", ".c")
		subprocess.run(["gcc", "-c", "-g", source, "-o", kind.source], cwd=sandbox.folder, check=True, timeout=PATIENCE)
	else:
		(sandbox.folder / kind.source).write_bytes(text)
	assert sandbox.check(kind.line, kind.output).startswith(f"miss: {kind.source}")
	assert before != (sandbox.folder / kind.source).read_bytes()
	sandbox.check_until_hit(kind.line, kind.output)


@pytest.mark.parametrize("name", ["link", "shared library", "archive", "scanner", "parser"])
def test_a_variable_that_is_not_asked_for(name: str, sandbox: Facts) -> None:
	"""Programs that ask for single variables depend on no others."""
	kind = KINDS[name]
	need(kind.line)
	sandbox.check_until_hit(kind.line, kind.output, UNRELATED="1")
	assert sandbox.check(kind.line, kind.output, UNRELATED="2").startswith("hit")


def test_a_variable_that_is_asked_for(sandbox: Facts) -> None:
	"""A link depends on the places where libraries are looked for; a script may have read any variable."""
	sandbox.check_until_hit(KINDS["link"].line, "prog")
	assert sandbox.check(KINDS["link"].line, "prog", LIBRARY_PATH=str(sandbox.folder)).startswith(
		"miss: LIBRARY_PATH is"
	)
	sandbox.check_until_hit("sh tool/say.sh", "made.c", WORD="one")
	assert sandbox.check("sh tool/say.sh", "made.c", WORD="two").startswith("miss: WORD is")
	assert sandbox.check("sh tool/say.sh", "made.c", WORD="one", OTHER="").startswith("miss: ")
	assert sandbox.check("sh tool/say.sh", "made.c", WORD="one").startswith("hit")


def test_paths_that_a_program_has_as_descriptors_are_those_of_its_folder(sandbox: Facts) -> None:
	"""A file that `grep -r` opens below a folder that it has opened is another file in another checkout."""
	need("grep")
	for name in ("one", "two"):
		sandbox.write(f"{name}/inc/a", f"word {name}\n")
	line = [sandbox.wafcc, "run", "--", "grep", "-r", "word", "inc"]

	def ask(name: str) -> bytes:
		return subprocess.run(
			line,
			cwd=sandbox.folder / name,
			env=sandbox.environ,
			stdin=subprocess.DEVNULL,
			stdout=subprocess.PIPE,
			check=True,
		).stdout

	deadline = time.monotonic() + PATIENCE
	while sandbox.hits() < 1:
		assert ask("one") == b"inc/a:word one\n"
		assert time.monotonic() < deadline
	assert ask("two") == b"inc/a:word two\n"
	assert ask("one") == b"inc/a:word one\n"


REFUSED = {
	"ar rcU made a.o": "reads the clock",
	"ln a.c made": "makes what is no plain file",
	"mkfifo made": "makes what is no plain file",
	"/usr/bin/python3 -S -c open('made','w');print(__import__('os').stat('made'))": "sets times of files",
	"/usr/bin/python3 -S -c open('made','w').close();__import__('os').utime('made',(1,1))": "sets times of files",
	"touch in.txt": "updates a file in place",
	"rm a.o": "removes what it did not make",
	"mv a.o made": "removes what it did not make",
	"install -m 600 a.c made": "makes files of unusual rights",
	"date": "reads the clock",
	"cat /proc/uptime": "uses a device",
	"cat /proc/meminfo": "uses a device",
	"head -c 4 /dev/urandom": "reads random numbers",
	"false": "the command failed",
	"gcc -ftime-report -c a.c -o made": "asks how long the compiler takes",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_brought_back_is_named(line: str, sandbox: Facts) -> None:
	"""A command whose result is more than plain files, or that uses something that never repeats, is never a hit."""
	need(line)
	for _ in range(3):
		state = sandbox.look()
		sandbox.run_by_facts(line)
		for name, content in state.items():
			(sandbox.folder / name).write_bytes(content)
		made = sandbox.folder / "made"
		if made.is_dir():
			made.rmdir()
		elif os.path.lexists(made):
			made.unlink()
	assert REFUSED[line] in sandbox.reasons(), sandbox.reasons()


def test_an_archive_that_is_there(sandbox: Facts) -> None:
	"""A command that adds to an archive depends on the archive's content: it runs, and nothing is stored."""
	subprocess.run(["ar", "rcs", "both.a", "b.o"], cwd=sandbox.folder, check=True, timeout=PATIENCE)
	before = (sandbox.folder / "both.a").read_bytes()
	line = "ar rcs both.a a.o"
	for _ in range(2):
		assert sandbox.run_by_facts(line).returncode == 0
		said = sandbox.explain(sandbox.folder / "both.a")
		assert said.startswith("miss") and "not stored" in said
		listed = subprocess.run(
			["ar", "t", "both.a"], cwd=sandbox.folder, capture_output=True, check=True, timeout=PATIENCE
		)
		assert listed.stdout.split() == [b"b.o", b"a.o"]
		(sandbox.folder / "both.a").write_bytes(before)
	(sandbox.folder / "both.a").unlink()
	sandbox.check_until_hit(line, "both.a")
	(sandbox.folder / "both.a").write_bytes(before)
	sandbox.run_by_facts(line)
	listed = subprocess.run(
		["ar", "t", "both.a"], cwd=sandbox.folder, capture_output=True, check=True, timeout=PATIENCE
	)
	assert listed.stdout.split() == [b"b.o", b"a.o"]


def test_times_of_files(sandbox: Facts) -> None:
	"""An unknown program may depend on the times of files. A known program that does not, is a hit."""
	stranger, known = "cp a.o made", "ar rcs made a.o"
	for line in (stranger, known):
		sandbox.check_until_hit(line, "made")
	os.utime(sandbox.folder / "a.o", (10**9, 10**9))
	assert sandbox.check(stranger, "made").startswith("miss: a.o was written anew")
	assert sandbox.check(known, "made").startswith("hit")


def test_what_a_command_inherits(sandbox: Facts) -> None:
	"""A script depends on its umask and limits; a link only on those that have an effect."""
	sandbox.check_until_hit("sh tool/mode.sh", "made.c")
	assert sandbox.check("sh tool/mode.sh", "made.c", umask=0o077).startswith("miss: ")
	line = KINDS["link"].line
	sandbox.check_until_hit(line, "prog")
	assert sandbox.check(line, "prog", umask=0o077).startswith("hit")


def test_the_folder(sandbox: Facts) -> None:
	"""A script may use the name of its folder; a link with relative names is the same everywhere."""
	for checkout in ("one", "two"):
		for name in ("a.o", "b.o", "tool/here.sh"):
			path = sandbox.folder / checkout / name
			path.parent.mkdir(parents=True, exist_ok=True)
			shutil.copyfile(sandbox.folder / name, path)
	sandbox.check_until_hit("sh tool/here.sh", "made.c", cwd="one")
	assert sandbox.check("sh tool/here.sh", "made.c", cwd="two").startswith("miss")
	sandbox.check_until_hit(KINDS["link"].line, "prog", cwd="one")
	assert sandbox.check(KINDS["link"].line, "prog", cwd="two").startswith("hit")


def test_a_folder_that_is_listed(sandbox: Facts) -> None:
	"""A name that appears in a folder that was listed counts."""
	sandbox.check_until_hit("sh tool/list.sh", "made.c")
	sandbox.write("src/two", "")
	assert sandbox.check("sh tool/list.sh", "made.c").startswith("miss: what is in src/ has changed")
	sandbox.check_until_hit("sh tool/list.sh", "made.c")


def feed(sandbox: Facts, line: str, text: str) -> Tuple[int, str]:
	done = subprocess.run(
		[sandbox.wafcc, "run", "--", *line.split()],
		cwd=sandbox.folder,
		env=sandbox.environ,
		input=text,
		capture_output=True,
		text=True,
		timeout=PATIENCE,
	)
	return done.returncode, done.stdout


def test_what_it_is_given_to_read(sandbox: Facts) -> None:
	"""Data that comes through a pipe cannot be known before: the command runs, and reads it."""
	assert [feed(sandbox, "cat", text) for text in ("one", "two", "one")] == [(0, "one"), (0, "two"), (0, "one")]
	assert sandbox.reasons() == {"reads standard input": 3}


def test_the_wrapper_caches_links_only_if_it_is_set(sandbox: Facts) -> None:
	"""``wafcc gcc -o prog`` runs; with ``WAFCC_FACTS`` it is cached."""
	line = KINDS["link"].line
	for _ in range(2):
		sandbox.run(line, True)
		assert sandbox.explain(sandbox.folder / "prog").startswith("uncached: input for the linker")
	assert sandbox.reasons() == {"input for the linker": 2}
	deadline = time.monotonic() + PATIENCE
	while not sandbox.explain(sandbox.folder / "prog").startswith("hit"):
		assert time.monotonic() < deadline
		assert sandbox.run(line, True, WAFCC_FACTS="1") == sandbox.run(line, False)


def test_a_command_can_stay_off_the_cache(sandbox: Facts) -> None:
	"""``wafcc run --no-cache`` only runs, compilers too."""
	for _ in range(2):
		sandbox.run(f"{sandbox.wafcc} run --no-cache -- gcc -c a.c -o made.o", False)
	assert sandbox.explain(sandbox.folder / "made.o").startswith("not asked for")
	assert sandbox.reasons() == {}


def test_a_command_that_runs_itself(sandbox: Facts) -> None:
	"""A command that gives wafcc the same command again does not wait for itself."""
	script = '[ -n "$INNER" ] || INNER=1 {wafcc} run -- sh tool/again.sh\necho "$INNER" >> said\n'
	sandbox.write("tool/again.sh", script.format(wafcc=sandbox.wafcc))
	done = sandbox.run_by_facts("sh tool/again.sh")
	assert done.returncode == 0, done.stderr
	assert (sandbox.folder / "said").read_text() == "1\n\n"


NATIVE = {
	"march": "gcc -march=native -O2 -c a.c -o made.o",
	"mtune": "gcc -mtune=native -c a.c -o made.o",
	"response file": "gcc -c a.c -o made.o @native.args",
	"specs": "gcc -specs=native.specs -c a.c -o made.o",
	"assembly": "gcc -march=native -S a.c -o made.o",
	"g++": "g++ -march=native -x c++ -c a.c -o made.o",
	"gfortran": "gfortran -march=native -c m.f90 -o made.o",
	"clang": "clang -march=native -c a.c -o made.o",
	"configuration": "clang --config ./native.cfg -c a.c -o made.o",
	"link": "gcc -march=native -flto -o made.o a.c b.c",
	"script": "sh tool/run.sh",
}


@pytest.mark.parametrize("name", NATIVE)
def test_the_processor(name: str, sandbox: Facts) -> None:
	"""A compile for this processor is a miss on another one, and a hit on this one."""
	line = NATIVE[name]
	need(line)
	sandbox.write("native.args", "-O1 -march=native\n")
	sandbox.write("native.specs", "*cc1:\n+ -mtune=native\n")
	sandbox.write("native.cfg", "-march=native\n")
	sandbox.write("tool/run.sh", "cat a.c > made.o\n")
	sandbox.check_until_hit(line, "made.o", WAFCC_PROCESSOR="one")
	assert sandbox.check(line, "made.o", WAFCC_PROCESSOR="one").startswith("hit")
	assert sandbox.check(line, "made.o", WAFCC_PROCESSOR="two").startswith("miss: the processor is")
	sandbox.check_until_hit(line, "made.o", WAFCC_PROCESSOR="two")


def test_the_processor_is_all_the_same(sandbox: Facts) -> None:
	"""A compile for any processor is a hit on each."""
	for line in ("gcc -march=x86-64 -c a.c -o made.o", "gcc -o made.o a.o b.o"):
		sandbox.check_until_hit(line, "made.o", WAFCC_PROCESSOR="one")
		assert sandbox.check(line, "made.o", WAFCC_PROCESSOR="two").startswith("hit")


PRAGMAS = {
	"pragma": '#pragma GCC dependency "in.txt"\n',
	"spliced": '#pragma GCC depen\\\ndency "in.txt"\n',
	"operator": '_Pragma("GCC dependency \\"in.txt\\"")\n',
	"of clang": '#pragma clang dependency "in.txt"\n',
	"argument": "TOLD\n",
	"included": '#include "p.h"\n',
}


@pytest.mark.parametrize(
	("cc", "name", "by_facts"),
	# each form with both compilers, and both ways: a compile with one of them, any command with the other
	[(cc, name, (n + m) % 2 > 0) for n, name in enumerate(PRAGMAS) for m, cc in enumerate(("gcc", "clang"))],
)
def test_a_source_that_has_times_compared(cc: str, name: str, by_facts: bool, sandbox: Facts) -> None:
	"""``#pragma GCC dependency`` warns of files that are newer than the source: their times count."""
	need(cc)
	sandbox.write("p.h", PRAGMAS["pragma"])
	sandbox.write("p.c", PRAGMAS[name] + "int f;\n")
	sandbox.write("p.args", """'-DTOLD=_Pragma("GCC dependency \\\\"in.txt\\\\"")'\n""")
	for name_of_file in ("p.c", "p.h", "in.txt"):
		os.utime(sandbox.folder / name_of_file, (10**9, 10**9))
	unknown = "-save-temps=obj -save-temps=cwd" if by_facts else ""  # only together
	line = f"{cc} -Werror=comment {unknown} -c p.c -o made.o @p.args"
	sandbox.check_until_hit(line, "made.o")
	assert sandbox.check(line, "made.o").startswith("hit")
	os.utime(sandbox.folder / "in.txt", (10**9 + 9, 10**9 + 9))
	warned = sandbox.run(line, False).stderr
	assert (b"in.txt" in warned) == (cc == "clang" or name != "of clang")
	said = sandbox.check(line, "made.o")
	assert said.startswith("miss: in.txt was written anew") or not warned, said


def test_variables_that_libc_asks_for(sandbox: Facts) -> None:
	"""libc reads character sets by its own means, and they count for the order of words."""
	deadline = time.monotonic() + PATIENCE
	while sandbox.hits() < 1:
		assert time.monotonic() < deadline
		assert sandbox.run_by_facts("cat in.txt -n").stdout == b"     1\tone\n"
	assert sandbox.run_by_facts("cat in.txt -n", POSIXLY_CORRECT="1").returncode != 0
	sandbox.write("gconv/gconv-modules", "alias OURS// ISO-8859-15//\n")
	here, line = str(sandbox.folder / "gconv"), "gcc -finput-charset=OURS -c a.c -o made.o"
	assert sandbox.run(line, False).status != 0
	sandbox.check_until_hit(line, "made.o", GCONV_PATH=here)
	assert sandbox.check(line, "made.o").startswith("miss: what the C library is told is not set")
	sandbox.check_until_hit("gcc -c a.c -o made.o", "made.o")
	for name in ("GLIBC_TUNABLES", "LD_BIND_NOW", "MALLOC_PERTURB_", "LOCPATH"):
		assert sandbox.check("gcc -c a.c -o made.o", "made.o", **{name: "1"}).startswith("miss"), name


RAW_CALL = 'long n = 39, r; __asm__ volatile("{}" : "=a"(r) : "a"(n) : "rcx", "r11", "memory"); x = r;'
INSTRUCTIONS = {
	"a system call": (RAW_CALL.format("syscall"), "not observed"),
	"a system call of 32 bits": (RAW_CALL.format("int $0x80"), "not observed"),
	"the clock": ('__asm__ volatile("rdtsc" : "=a"(x) : : "edx");', "reads the clock"),
	"random numbers": ('if (x > 1) __asm__ volatile("rdrand %0" : "=r"(x));', "reads random numbers"),
}
QUIET_INSTRUCTIONS = {
	"wakes": '__asm__ volatile("mov $202, %%eax; syscall" : : "D"(&x), "S"(1), "d"(0)'
	' : "rax", "rcx", "r11", "memory");',
	"holds the bytes": "static const volatile char bytes[] = {0x0f, 0x05, 0xcd, 0x80}; x = bytes[0] + 0x050f;",
}


def build(sandbox: Facts, code: str, name: str = "own", *options: str) -> None:
	if os.uname().machine != "x86_64":
		pytest.skip("needs x86-64")
	sandbox.write(
		f"{name}.c",
		"#include <stdio.h>\nint main(int argc, char **argv) {\n\tint x = argc;\n\t%s\n"
		'\tFILE *file = fopen("made", "w");\n\treturn !file || fprintf(file, "%%d", x > 0) < 0;\n}\n' % code,
	)
	line = ["gcc", *options, "-o", name, f"{name}.c"]
	subprocess.run(line, cwd=sandbox.folder, check=True, timeout=PATIENCE)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_that_are_not_observed(name: str, sandbox: Facts) -> None:
	"""A program that makes system calls of its own, or asks the processor for time or chance, is never a hit."""
	code, reason = INSTRUCTIONS[name]
	build(sandbox, code)
	for _ in range(3):
		assert sandbox.run_by_facts("./own").returncode == 0
		(sandbox.folder / "made").unlink()
	assert (sandbox.hits(), sandbox.reasons()) == (0, {reason: 3})


@pytest.mark.parametrize("name", QUIET_INSTRUCTIONS)
def test_instructions_that_tell_nothing(name: str, sandbox: Facts) -> None:
	"""Waiting threads, and bytes that only look like an instruction, have no effect."""
	build(sandbox, QUIET_INSTRUCTIONS[name])
	sandbox.check_until_hit("./own", "made")


def test_users_of_modules(sandbox: Facts) -> None:
	"""A program that imports a module depends on the module's compiled form."""
	need("g++")
	make = "g++ -std=c++20 -fmodules-ts -x c++ -c m.cc -o m.o"
	use = "g++ -std=c++20 -fmodules-ts -x c++ -c u.cc -o u.o"
	subprocess.run(make.split(), cwd=sandbox.folder, check=True, timeout=PATIENCE)
	sandbox.check_until_hit(use, "u.o")
	sandbox.write("m.cc", FILES["m.cc"].replace("int f", "long f"))
	subprocess.run(make.split(), cwd=sandbox.folder, check=True, timeout=PATIENCE)
	assert sandbox.check(use, "u.o").startswith("miss")


def test_random_commands(sandbox: Facts, tmp_path: pathlib.Path) -> None:
	"""Links, archives and scripts of random lines, between random edits: no result differs from a fresh one."""
	fuzzer = [sys.executable, str(ROOT / "utils" / "fuzzcache.py"), "--wafcc", sandbox.wafcc, "--work", str(tmp_path)]
	options = ["--steps", "60", "--seed", "4", "--by-facts", "90", "--compilers", "gcc"]
	done = subprocess.run([*fuzzer, *options], capture_output=True, encoding="utf-8", timeout=5 * PATIENCE, check=False)
	assert done.returncode == 0, done.stdout + done.stderr
