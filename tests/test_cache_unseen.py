"""Results of programs that ran unobserved are not stored: those before and below a compiler, and misleading names."""

import contextlib
import ctypes
import os
import pathlib
import resource
import shutil
import subprocess
import time
from typing import Callable, Dict, Iterator, Tuple

import pytest
from cache_support import PATIENCE
from test_cache_facts import Facts

SOURCE = '#include "cur/x.h"\nconst char *flavour = FLAVOUR;\nint x = X;\n'
LINE = "tool/gcc -c a.c -o a.o"


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	"""A folder with a source that needs a macro, which a wrapper called gcc gives."""
	files = {"a.c": SOURCE, "one/x.h": "#define X 1\n", "two/x.h": "#define X 2\n"}
	sandbox = Facts.make(engine, tmp_path, **files)
	(sandbox.folder / "cur").symlink_to("one")
	sandbox.write("flag", "one")
	return sandbox


def script(sandbox: Facts, text: str, name: str = "tool/gcc") -> None:
	sandbox.write(name, text).chmod(0o755)


def program(sandbox: Facts, code: str, name: str, *options: str) -> None:
	"""Compile a program of this `main`."""
	source = sandbox.write(
		f"{name}.c",
		"#define _GNU_SOURCE\n#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
		"#include <sys/random.h>\n#include <sys/stat.h>\n#include <time.h>\n"
		"#include <unistd.h>\nint main(int argc, char **argv) {\n%s\n}\n" % code,
	)
	line = ["gcc", "-w", "-o", name, str(source), *options]
	subprocess.run(line, cwd=sandbox.folder, check=True, timeout=PATIENCE)
	source.unlink()


# Executes the real compiler with a macro that a variable gives.
BY_VARIABLE = """
	char flavour[99], *list[99] = {"gcc", flavour};
	snprintf(flavour, sizeof flavour, "-DFLAVOUR=\\"%s\\"", getenv("FLAVOUR"));
	for (int i = 1; i <= argc; i++) list[i + 1] = argv[i];
	return execv("/usr/bin/gcc", list);"""

WRAPPERS = {
	"sh": '#!/bin/sh\nexec /usr/bin/gcc "-DFLAVOUR=\\"$FLAVOUR\\"" "$@"\n',
	"sh, no exec": '#!/bin/sh\n/usr/bin/gcc "-DFLAVOUR=\\"$FLAVOUR\\"" "$@"\n',
	"bash": '#!/bin/bash\nexec /usr/bin/gcc "-DFLAVOUR=\\"$FLAVOUR\\"" "$@"\n',
	"env": '#!/usr/bin/env sh\nexec /usr/bin/gcc "-DFLAVOUR=\\"$FLAVOUR\\"" "$@"\n',
	"python": "#!/usr/bin/python3 -S\nimport os, sys\n"
	"os.execv('/usr/bin/gcc', ['gcc', '-DFLAVOUR=\"%s\"' % os.environ['FLAVOUR'], *sys.argv[1:]])\n",
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_variables_of_a_script_that_is_called_like_a_compiler(name: str, sandbox: Facts) -> None:
	"""The variables of a wrapper count: with another value the result is the wrapper's for that value."""
	script(sandbox, WRAPPERS[name])
	for _ in range(3):
		for flavour in ("sweet", "sour"):
			sandbox.same(LINE, FLAVOUR=flavour)


@pytest.mark.parametrize("name", ["sh", "sh, no exec", "env", "python"])
def test_a_script_that_is_called_like_a_compiler_hits(name: str, sandbox: Facts) -> None:
	"""A repeated command is a hit, and with another value of a variable that it may have read it is a miss."""
	script(sandbox, WRAPPERS[name])
	sandbox.until_hit(LINE, FLAVOUR="sweet")
	assert sandbox.same(LINE, FLAVOUR="sour").startswith("miss")


def test_files_of_a_script_that_is_called_like_a_compiler(sandbox: Facts) -> None:
	"""A file that only the wrapper reads is a fact."""
	script(sandbox, '#!/bin/sh\nread -r flavour <flag\nexec /usr/bin/gcc "-DFLAVOUR=\\"$flavour\\"" "$@"\n')
	sandbox.until_hit(LINE)
	sandbox.write("flag", "two")
	assert sandbox.same(LINE).startswith("miss")


def test_the_time_of_a_script_that_is_called_like_a_compiler(sandbox: Facts) -> None:
	"""A wrapper that writes the time into the result is never a hit."""
	script(sandbox, '#!/bin/sh\nexec /usr/bin/gcc "-DFLAVOUR=\\"$(date +%N)\\"" "$@"\n')
	for _ in range(3):
		assert sandbox.run(LINE, True).status == 0
		time.sleep(0.1)
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {"reads the clock"})


@contextlib.contextmanager
def fewer_descriptors() -> Iterator[None]:
	soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
	resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 7, hard))
	try:
		yield
	finally:
		resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def one_processor() -> Iterator[None]:
	all_of_them = os.sched_getaffinity(0)
	if len(all_of_them) < 2:
		pytest.skip("needs two processors")
	os.sched_setaffinity(0, {min(all_of_them)})
	try:
		yield
	finally:
		os.sched_setaffinity(0, all_of_them)


@contextlib.contextmanager
def older_machine() -> Iterator[None]:
	"""As `linux32` and builds for another architecture do it."""
	libc = ctypes.CDLL(None)
	before = libc.personality(0xFFFFFFFF)
	libc.personality(0x0008)
	try:
		yield
	finally:
		libc.personality(before)


CIRCUMSTANCES = {
	"ulimit -n": fewer_descriptors,
	"nproc": one_processor,
	"uname -m": older_machine,
}


@pytest.mark.parametrize("question", CIRCUMSTANCES)
def test_the_circumstances_of_a_script_that_is_called_like_a_compiler(question: str, sandbox: Facts) -> None:
	"""What its shell can ask about the process counts, as it is where the command is called."""
	script(sandbox, '#!/bin/sh\nexec /usr/bin/gcc "-DFLAVOUR=\\"$(%s)\\"" "$@"\n' % question)
	sandbox.until_hit(LINE)
	with CIRCUMSTANCES[question]():
		sandbox.plain.clear()
		assert sandbox.same(LINE).startswith("miss")
		sandbox.until_hit(LINE)
	sandbox.plain.clear()
	assert sandbox.same(LINE).startswith("hit")


def test_the_input_of_a_script_that_is_called_like_a_compiler(sandbox: Facts) -> None:
	"""A wrapper that reads its standard input gives what is there."""
	script(sandbox, '#!/bin/sh\nread -r flavour\nexec /usr/bin/gcc "-DFLAVOUR=\\"$flavour\\"" "$@"\n')
	made = []
	for flavour in ("one", "two") * 3:
		line = [sandbox.wafcc, *LINE.split()]
		subprocess.run(
			line, cwd=sandbox.folder, env=sandbox.environ, input=flavour.encode(), check=True, timeout=PATIENCE
		)
		made.append(flavour.encode() in (sandbox.folder / "a.o").read_bytes())
	assert all(made)


def test_a_static_program_that_is_called_like_a_compiler(sandbox: Facts) -> None:
	"""A static program that starts an observed one, and is observed by the second witness, has facts of its own."""
	program(sandbox, BY_VARIABLE, "tool/gcc", "-static")
	for _ in range(3):
		for flavour in ("sweet", "sour"):
			sandbox.same(LINE, FLAVOUR=flavour)
	sandbox.until_hit(LINE, FLAVOUR="sweet")
	assert sandbox.same(LINE, FLAVOUR="bitter").startswith("miss")


# What a program may write into the result, and the reason why it is not stored.
DRAWN = {
	"random": ("unsigned drawn; getrandom(&drawn, sizeof drawn, 0);", "reads random numbers"),
	"device": (
		'unsigned drawn; int file = open("/dev/urandom", O_RDONLY); read(file, &drawn, 4);',
		"reads random numbers",
	),
	"clock": (
		"struct timespec now; clock_gettime(CLOCK_REALTIME, &now); unsigned drawn = now.tv_nsec;",
		"reads the clock",
	),
	"number": ("unsigned drawn = getpid();", "reads random numbers"),
}
BECOME_GCC = """
	char flavour[99], *list[99] = {"gcc", flavour};
	snprintf(flavour, sizeof flavour, "-DFLAVOUR=\\"%u\\"", drawn);
	for (int i = 1; i <= argc; i++) list[i + 1] = argv[i];
	return execv("/usr/bin/gcc", list);"""


@pytest.mark.parametrize("name", ["gcc", "cc1", "x86_64-linux-gnu-gcc-12"])
@pytest.mark.parametrize("what", DRAWN)
def test_what_a_program_that_is_called_like_a_compiler_draws(what: str, name: str, sandbox: Facts) -> None:
	"""A file name does not tell whether a program uses clocks and random numbers: it has no text of a compiler."""
	code, reason = DRAWN[what]
	program(sandbox, code + BECOME_GCC, "tool/gcc")
	if name != "gcc":
		(sandbox.folder / "tool/gcc").rename(sandbox.folder / "tool" / name)
		(sandbox.folder / "tool/gcc").symlink_to(name)
	for _ in range(3):
		assert sandbox.run(LINE, True).status == 0
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {reason})


def test_the_time_of_a_file_that_a_program_like_a_compiler_asks_for(sandbox: Facts) -> None:
	"""A compiler ignores the times of files, but an unknown program with a compiler's name may use them."""
	code = 'struct stat found; stat("flag", &found); unsigned drawn = found.st_mtime;'
	program(sandbox, code + BECOME_GCC, "tool/gcc")
	sandbox.until_hit(LINE)
	for moment in (1_000_000_000, 1_000_000_001, 1_000_000_000):
		os.utime(sandbox.folder / "flag", (moment, moment))
		sandbox.same(LINE)


def test_a_compiler_outside_of_the_system_is_known(sandbox: Facts) -> None:
	"""A copy of the real driver is known as a compiler, wherever it is."""
	driver = pathlib.Path("/usr/bin/gcc").resolve()
	(sandbox.folder / "tool").mkdir()
	shutil.copy(driver, sandbox.folder / "tool/gcc")
	sandbox.until_hit(
		f"{LINE} -DFLAVOUR=1 -B{subprocess.check_output([driver, '-print-prog-name=cc1'], text=True).strip()[:-3]}"
	)


# The ways in which an assembler becomes the real one.
STATIC_AS = """
	char text[9] = "";
	int file = open("flag", O_RDONLY);
	read(file, text, 3);
	argv[0] = strcmp(text, "two") ? "as" : "-v";
	if (!strcmp(text, "two")) { argv[argc - 1] = "/dev/null"; }
	return execv("/usr/bin/as", argv);"""


@pytest.mark.parametrize("how", ["-static", "-static-pie", "-O0"])
def test_an_assembler_of_another_kind(how: str, sandbox: Facts) -> None:
	"""An assembler that becomes the real one is known with the file that it reads, however it is linked."""
	if (
		how == "-static-pie"
		and subprocess.run(["gcc", how, "-x", "c", "/dev/null", "-r", "-o", "/dev/null"], check=False).returncode
	):
		pytest.skip("needs -static-pie")
	program(sandbox, STATIC_AS, "parts/as", how)
	line = 'gcc -Bparts/ -DFLAVOUR="x" -c a.c -o a.o'
	for text in ("one", "one", "one", "two", "one", "two"):
		sandbox.write("flag", text)
		plain, cached = sandbox.run(line, False), sandbox.run(line, True)
		assert (plain.status, plain.files) == (cached.status, cached.files), text


@pytest.mark.parametrize("middle", ["static", "dynamic"])
def test_a_program_between_two_others(middle: str, sandbox: Facts) -> None:
	"""Actions of a program below a static one are not taken for those of the static one."""
	program(sandbox, 'FILE *file = fopen("made", "w"); return fputs("last", file) < 0;', "last")
	program(sandbox, 'if (access("flag", F_OK) == 0) return execl("./last", "last", NULL); return 3;', "middle",
		*(["-static"] if middle == "static" else []))  # fmt: skip
	program(sandbox, 'return execl("./middle", "middle", NULL);', "first")
	sandbox.check_until_hit("./first", "made")
	for _ in range(3):
		sandbox.check("./first", "made")
	(sandbox.folder / "flag").unlink()
	assert sandbox.check("./first", "made") is not None


WAYS = {
	"execve": 'execve("./last", argv, environ)',
	"execveat": 'execveat(open(".", O_RDONLY), "last", argv, environ, 0)',
	"execveat of a file": 'execveat(open("last", O_PATH), "", argv, environ, AT_EMPTY_PATH)',
	"fexecve": 'fexecve(open("last", O_RDONLY), argv, environ)',
	"its number": 'dup2(open("last", O_RDONLY), 9) < 0 ? 1 : execv("/proc/self/fd/9", argv)',
	"vfork": 'vfork() ? (wait(0), 0) : execv("./last", argv)',
	"posix_spawn": 'posix_spawn(&child, "./last", NULL, NULL, argv, environ) || (wait(0), 0)',
	"system": 'system("./last")',
	"the loader": 'execl("/lib64/ld-linux-x86-64.so.2", "ld", "./last", NULL)',
}


@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_is_started_in_any_way_is_a_fact(way: str, sandbox: Facts) -> None:
	"""Replace the program that is started: its results are made anew."""
	more = "extern char **environ; int child, wait(int *);\n"
	more += "\tint posix_spawn(int *, const char *, void *, void *, char **, char **);\n"
	program(sandbox, more + f"\treturn {WAYS[way]};", "first")
	for text in ("one", "one", "one", "two", "one"):
		program(sandbox, 'FILE *file = fopen("made", "w"); return fputs("%s", file) < 0;' % text, "new")
		os.replace(sandbox.folder / "new", sandbox.folder / "last")
		sandbox.check("./first", "made")


# Copies the content of a name into `made`; the name is another one for `in.txt`.
COPY = """
	char buffer[99], name[99];
	{0}
	int from = open(name, O_RDONLY), to = open("made", O_WRONLY | O_CREAT | O_TRUNC, 0666);
	return from < 0 || write(to, buffer, read(from, buffer, sizeof buffer)) < 0;"""
NAMES = {
	"an open file": 'sprintf(name, "/proc/self/fd/%d", open("in.txt", O_PATH));',
	"/dev/fd": 'sprintf(name, "/dev/fd/%d", open("in.txt", O_PATH));',
	"this thread's": 'sprintf(name, "/proc/thread-self/fd/%d", open("in.txt", O_PATH));',
	"its process's": 'sprintf(name, "/proc/%d/fd/%d", getpid(), open("in.txt", O_PATH));',
	"below an open folder": 'sprintf(name, "/proc/self/fd/%d/in.txt", open(".", O_PATH));',
	"its folder": 'strcpy(name, "/proc/self/cwd/in.txt");',
	"its root": 'strcpy(name, "/proc/self/root"); getcwd(name + 15, 80); strcat(name, "/in.txt");',
	"a folder of the kernel's": 'chdir("/proc/self"); strcpy(name, "cwd/in.txt"); chdir(getenv("HERE"));',
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_elsewhere(name: str, sandbox: Facts) -> None:
	"""A file that is read by way of the process's own state is a fact, or nothing is stored."""
	sandbox.write("in.txt", "one")
	program(sandbox, COPY.format(NAMES[name]), "own")
	for text in ("one", "one", "one", "two", "one"):
		sandbox.write("in.txt", text)
		sandbox.check("./own", "made", HERE=str(sandbox.folder))


LIBRARIES = {
	"LD_LIBRARY_PATH": ("-Llib -llate", "extern int late(void); int got = late();", {"LD_LIBRARY_PATH": "lib"}),
	"LD_PRELOAD": ("", 'char *got = getenv("X");', {"LD_PRELOAD": "lib/liblate.so"}),
	"dlopen": ("-ldl", 'extern void *dlopen(const char *, int); void *got = dlopen("lib/liblate.so", 2);', {}),
}


@pytest.mark.parametrize("way", LIBRARIES)
def test_a_library_by_a_relative_path(way: str, sandbox: Facts) -> None:
	"""A library whose name begins like the kernel's own is a fact."""
	options, use, variables = LIBRARIES[way]

	def make(word: str) -> None:
		write = "extern int creat(const char *, int); extern long write(int, const char *, long);\n"
		write += "__attribute__((constructor))"
		sandbox.write(
			"late.c",
			f'{write} void init(void) {{ write(creat("made", 0666), "{word}", 3); }} int late(void) {{ return 0; }}\n',
		)
		(sandbox.folder / "lib").mkdir(exist_ok=True)
		line = ["gcc", "-w", "-shared", "-fPIC", "-o", "lib/new.so", "late.c"]
		subprocess.run(line, cwd=sandbox.folder, check=True, timeout=PATIENCE)
		os.replace(sandbox.folder / "lib/new.so", sandbox.folder / "lib/liblate.so")
		(sandbox.folder / "late.c").unlink()

	make("one")
	program(sandbox, f"{use} return got == (void *)1;", "own", *f"-Llib {options}".split())
	for word in ("one", "one", "one", "two", "one"):
		make(word)
		sandbox.check("./own", "made", **variables)


# The ways in which the loader is told of the folder `first`, which is still empty.
SEARCHES: Dict[str, Tuple[str, Dict[str, str]]] = {
	"variable": ("", {"LD_LIBRARY_PATH": "first:lib"}),
	"runpath": ("-Wl,--enable-new-dtags,-rpath,$ORIGIN/first:lib", {}),
	"rpath": ("-Wl,--disable-new-dtags,-rpath,first:$ORIGIN/lib/", {}),
}


@pytest.mark.parametrize("name", ["liblate.so", "glibc-hwcaps/x86-64-v2/liblate.so"])
@pytest.mark.parametrize("way", SEARCHES)
def test_a_library_that_newly_appears(way: str, name: str, sandbox: Facts) -> None:
	"""The new library is in a folder that the loader searches before the one with the old library."""
	options, variables = SEARCHES[way]
	for folder, number in (("lib", 1), ("draft", 2)):
		sandbox.write("late.c", f"int late(void) {{ return {number}; }}\n")
		(sandbox.folder / folder).mkdir()
		line = ["gcc", "-shared", "-fPIC", "-Wl,-soname,liblate.so", "-o", f"{folder}/liblate.so", "late.c"]
		subprocess.run(line, cwd=sandbox.folder, check=True, timeout=PATIENCE)
	(sandbox.folder / "first").mkdir()
	code = 'int late(void); FILE *made = fopen("made", "w"); fprintf(made, "%d", late()); return 0;'
	program(sandbox, code, "own", *f"-Llib -llate {options}".split())
	sandbox.check_until_hit("./own", "made", **variables)
	(sandbox.folder / "first" / name).parent.mkdir(parents=True, exist_ok=True)
	(sandbox.folder / "draft/liblate.so").rename(sandbox.folder / "first" / name)
	assert sandbox.check("./own", "made", **variables).startswith("miss")
	sandbox.check_until_hit("./own", "made", **variables)
	(sandbox.folder / "first" / name).unlink()
	sandbox.check("./own", "made", **variables)


def turn(sandbox: Facts, target: str) -> None:
	(sandbox.folder / "new").symlink_to(target)
	os.replace(sandbox.folder / "new", sandbox.folder / "cur")


def exchange(sandbox: Facts, target: str) -> None:
	"""`cur` is a folder here, and two folders change places."""
	(sandbox.folder / "cur").rename(sandbox.folder / "old")
	(sandbox.folder / target).rename(sandbox.folder / "cur")


@pytest.mark.parametrize("way", [turn, exchange])
def test_a_link_that_is_turned_while_the_compiler_runs(way: Callable[[Facts, str], None], sandbox: Facts) -> None:
	"""A header's path leads elsewhere when the compile is over: nothing is concluded from the present file."""
	if way is exchange:
		(sandbox.folder / "cur").unlink()
		(sandbox.folder / "one").rename(sandbox.folder / "cur")
	# the assembler waits after it has read the header, on a descriptor that is no file
	program(
		sandbox,
		'char x; read(atoi(getenv("GATE")), &x, 1); argv[0] = "as"; return execv("/usr/bin/as", argv);',
		"parts/as",
	)
	compile_it = 'gcc -Bparts/ -DFLAVOUR="x" -c a.c -o a.o'
	line = [sandbox.wafcc, *compile_it.split()]
	read, write = os.pipe()
	try:
		compiler = subprocess.Popen(
			line, cwd=sandbox.folder, env={**sandbox.environ, "GATE": "0"}, stdin=read, stdout=subprocess.DEVNULL
		)
		deadline = time.monotonic() + PATIENCE
		while not is_running(sandbox.folder / "parts/as"):
			assert time.monotonic() < deadline
			time.sleep(0.01)
		way(sandbox, "two")
		os.write(write, b"x")
		assert compiler.wait(PATIENCE) == 0
	finally:
		os.close(read)
		os.close(write)
	(sandbox.folder / "a.o").unlink()
	plain = sandbox.run(compile_it, False, GATE="99")
	cached = sandbox.run(compile_it, True, GATE="99")
	assert cached.files == plain.files


def is_running(program: pathlib.Path) -> bool:
	for link in pathlib.Path("/proc").glob("[0-9]*/exe"):
		try:
			if os.readlink(link) == str(program):
				return True
		except OSError:
			continue
	return False
