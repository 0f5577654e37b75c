"""Programs into which no library can be loaded: the second witness observes them, and changes nothing for them."""

import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time
from typing import List

import pytest
from cache_support import PATIENCE
from test_cache_facts import Facts
from test_cache_unseen import program

GO = """package main
import ("os"; "time")
func main() {
	text, _ := os.ReadFile("in.txt")
	if len(os.Args) > 1 { text = []byte(time.Now().String()) }
	done := make(chan string)
	for i := 0; i < 8; i++ { go func() { done <- string(text) }() }
	made := ""
	for i := 0; i < 8; i++ { made += <-done }
	os.WriteFile("made", []byte(made + os.Getenv("FLAVOUR")), 0644)
}
"""
MAKE = 'FILE *made = fopen("made", "w"); '


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	"""A folder with a file to read."""
	return Facts.make(engine, tmp_path, **{"in.txt": "one\n"})


def static(sandbox: Facts, code: str, name: str = "tool") -> None:
	program(sandbox, code, name, "-static", "-pthread")


READS = {
	"content": 'char text[9] = ""; read(open("in.txt", O_RDONLY), text, 8); fputs(text, made);',
	"absence": 'fprintf(made, "%d", access("later", F_OK));',
	"size": 'struct stat found; stat("in.txt", &found); fprintf(made, "%ld", found.st_size);',
	"link": 'char text[99] = ""; readlink("link", text, 98); fputs(text, made);',
	"variable": 'fputs(getenv("FLAVOUR"), made);',
	"below a fork": 'fflush(made); if (!fork()) { char text[9] = ""; read(open("in.txt", O_RDONLY), text, 8); '
	"write(fileno(made), text, 8); _exit(0); } wait(0);",
	"in another folder": 'chdir("folder"); fprintf(made, "%d", access("../later", F_OK));',
	"by a program that it starts": 'fflush(made); dup2(fileno(made), 1); execlp("cat", "cat", "in.txt", NULL);',
	"by its number": 'char text[9] = ""; dup2(open("in.txt", O_RDONLY), 9); '
	'read(open("/proc/self/fd/9", O_RDONLY), text, 8); fputs(text, made);',
}


@pytest.mark.parametrize("how", READS)
def test_what_a_static_program_learns_is_a_fact(how: str, sandbox: Facts) -> None:
	"""A static program is a hit as long as all that it has read is unchanged, and runs again otherwise."""
	(sandbox.folder / "folder").mkdir()
	(sandbox.folder / "link").symlink_to("one")
	static(sandbox, "int wait(int *); " + MAKE + READS[how] + " return 0;")
	sandbox.check_until_hit("./tool", "made", FLAVOUR="sweet")
	sandbox.write("in.txt", "another\n")
	sandbox.write("later", "")
	(sandbox.folder / "link").unlink()
	(sandbox.folder / "link").symlink_to("another")
	assert sandbox.check("./tool", "made", FLAVOUR="sour").startswith("miss")
	sandbox.check_until_hit("./tool", "made", FLAVOUR="sour")


DRAWS = {
	"clock": ("struct timespec now; clock_gettime(CLOCK_REALTIME, &now); long drawn = now.tv_nsec;", "reads the clock"),
	"seconds": ("long drawn = time(NULL);", "reads the clock"),
	"counter": ("long drawn = __builtin_ia32_rdtsc();", "reads the clock"),
	"random": ("unsigned drawn; getrandom(&drawn, sizeof drawn, 0);", "reads random numbers"),
	"key": ("long drawn; getrandom(&drawn, sizeof drawn, GRND_NONBLOCK);", "reads random numbers"),
	"number": ("long drawn = getpid();", "reads random numbers"),
}


@pytest.mark.parametrize("what", DRAWS)
def test_what_a_static_program_draws_is_never_stored(what: str, sandbox: Facts) -> None:
	"""The kernel's object for reading clocks without a call is hidden from it."""
	code, reason = DRAWS[what]
	if what == "counter" and os.uname().machine != "x86_64":
		pytest.skip("needs an x86-64 processor")
	static(sandbox, "free(malloc(9)); " + code + MAKE + 'fprintf(made, "%ld", (long)drawn); return 0;')
	for _ in range(3):
		assert sandbox.run_by_facts("./tool").returncode == 0
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {reason})


def test_a_program_of_go(sandbox: Facts) -> None:
	"""Go's runtime reads clocks and random numbers; only the time that the program itself asks for counts."""
	go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
	if not go:
		pytest.skip("needs go")
	sandbox.write("tool.go", GO)
	environ = {**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(sandbox.folder.parent / "cache"), "GOFLAGS": "-mod=mod"}
	# this compiles Go's runtime, and optimizing it would take most of the time
	build = [go, "build", "-gcflags=all=-N -l -B -dwarf=false", "-ldflags=-s -w", "-o", "tool", "tool.go"]
	subprocess.run(build, cwd=sandbox.folder, env=environ, check=True, timeout=PATIENCE)
	sandbox.check_until_hit("./tool", "made", FLAVOUR="sweet")
	assert sandbox.check("./tool", "made", FLAVOUR="sour").startswith("miss")
	sandbox.write("in.txt", "two\n")
	assert sandbox.check("./tool", "made", FLAVOUR="sweet").startswith("miss")
	hits = sandbox.hits()
	for _ in range(2):
		assert sandbox.run_by_facts("./tool now", FLAVOUR="sweet").returncode == 0
	assert sandbox.hits() == hits
	assert "reads the clock" in sandbox.reasons()


# Properties by which a program could notice that it is observed.
SHOWN = {
	"environment": "extern char **environ; for (char **at = environ; *at; at++) puts(*at);",
	"children": 'int wait(int *); printf("%d", wait(0));',
	"files": 'for (int i = 0; i < 64; i++) printf("%d", fcntl(i, F_GETFD) >= 0);',
	"signals": 'char line[999]; FILE *file = fopen("/proc/self/status", "r"); '
	'while (fgets(line, 999, file)) if (!strncmp(line, "Sig", 3) && line[3] != 81) fputs(line, stdout);',
	"arguments": "for (int i = 0; i < argc; i++) puts(argv[i]);",
	"end": "return 7;",
	"stop": "int wait(int *), waitpid(int, int *, int), kill(int, int), raise(int); "
	"fflush(stdout); int child = fork(), status; if (!child) { raise(19); _exit(3); } "
	'waitpid(child, &status, 2); printf("%x ", status); kill(child, 18); wait(&status); printf("%x", status);',
	"forks": "int wait(int *); fflush(stdout); int count = 0; for (int i = 0; i < 100; i++) if (!fork()) _exit(0); "
	'while (wait(0) > 0) count++; printf("%d", count);',
	"program of a thread": "int pthread_create(long *, void *, int (*)(), void *); long thread; "
	'setvbuf(stdout, 0, 2, 0); int run() { execlp("echo", "echo", "from a thread", NULL); } '
	"pthread_create(&thread, 0, run, 0); sleep(9);",
	"alarm": "struct { long bits[16]; } set = {{1 << 13}}; "
	"int sigprocmask(int, void *, void *), sigwait(void *, int *), taken = 0; "
	'sigprocmask(0, &set, 0); alarm(1); sigwait(&set, &taken); printf("%d", taken);',
	"call of 32 bits": '#ifdef __x86_64__\n int found; __asm__ volatile("int $0x80" : "=a"(found) : "a"(24)); '
	'printf("%d", found == getuid());\n#endif\n',
	"trace": "long ptrace(int, ...); int wait(int *); fflush(stdout); "
	'if (!fork()) _exit(ptrace(0) == 0 ? 3 : 4); int status; wait(&status); printf("%x", status);',
}


@pytest.mark.parametrize("what", SHOWN)
def test_a_static_program_does_what_it_does_alone(what: str, sandbox: Facts) -> None:
	"""Prints and returns the same with and without the cache, and finds nothing of ours."""
	static(sandbox, SHOWN[what] + " return 0;")
	alone = subprocess.run(
		["./tool", "a", "b"],
		cwd=sandbox.folder,
		env=sandbox.environ,
		stdin=subprocess.DEVNULL,
		capture_output=True,
		timeout=PATIENCE,
		check=False,
	)
	for _ in range(3):
		found = sandbox.run_by_facts("./tool a b")
		assert (found.returncode, found.stdout, found.stderr) == (alone.returncode, alone.stdout, alone.stderr)


@pytest.mark.skipif(os.getuid() != 0, reason="needs the superuser, who gives rights to files")
@pytest.mark.parametrize("line", ["./tool", "sh start.sh"])
def test_a_program_with_rights_of_its_own_keeps_them(line: str, sandbox: Facts) -> None:
	"""A program with rights of its file loses them if it is traced, so it is not traced."""
	show = 'char line[999]; FILE *file = fopen("/proc/self/status", "r"); while (fgets(line, 999, file)) '
	static(sandbox, MAKE + show + 'if (!strncmp(line, "TracerPid", 9)) fputs(line, made); return 0;')
	sandbox.write("start.sh", "./tool\n")
	try:
		os.setxattr(sandbox.folder / "tool", "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
	except OSError as e:
		pytest.skip(f"needs a file system that keeps capabilities: {e}")
	for _ in range(2):
		assert sandbox.run_by_facts(line).returncode == 0
		assert (sandbox.folder / "made").read_text() == "TracerPid:\t0\n"
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {"not observed"})


def test_a_signal_ends_a_static_program(sandbox: Facts) -> None:
	"""The status says by which signal it ended."""
	static(sandbox, "int raise(int); raise(15); return 0;")
	alone = subprocess.run(["./tool"], cwd=sandbox.folder, check=False, timeout=PATIENCE).returncode
	assert sandbox.run_by_facts("./tool").returncode in (alone, 128 - alone) and alone == -signal.SIGTERM


def test_a_limit_on_addresses_holds_up_nothing(sandbox: Facts) -> None:
	"""A small static program runs where the witness could not begin; nothing is stored then."""
	static(sandbox, MAKE + 'fputs("done", made); return 0;')
	for line in ("./tool", "sh start.sh"):
		sandbox.write("start.sh", "./tool\n")
		limited = f"ulimit -v 200000; exec {sandbox.wafcc} run -- {line}"
		for _ in range(2):
			(sandbox.folder / "made").unlink(missing_ok=True)
			done = subprocess.run(
				["sh", "-c", limited],
				cwd=sandbox.folder,
				env=sandbox.environ,
				stdin=subprocess.DEVNULL,
				timeout=PATIENCE,
			)
			assert (done.returncode, (sandbox.folder / "made").read_text()) == (0, "done")
	assert sandbox.hits() == 0


def find_tracers(sandbox: Facts) -> List[int]:
	found = []
	for entry in pathlib.Path("/proc").iterdir():
		if entry.name.isdecimal():
			try:
				words = (entry / "cmdline").read_bytes().split(b"\0")
				is_ours = words[1:3] == [b"witness", b"./slow"] and os.getsid(int(entry.name)) == int(entry.name)
				found += [int(entry.name)] if is_ours and os.readlink(entry / "cwd") == "/" else []
			except (OSError, ProcessLookupError):
				continue
	return found


def test_a_tracer_that_is_killed_harms_nothing(sandbox: Facts) -> None:
	"""The program runs to its end, and its result is not stored."""
	static(sandbox, 'while (access("go", F_OK)) usleep(10000); ' + MAKE + 'fputs("done", made); return 0;', "slow")
	line = [sandbox.wafcc, "run", "--", "./slow"]
	child = subprocess.Popen(line, cwd=sandbox.folder, env=sandbox.environ, stdin=subprocess.DEVNULL)
	try:
		deadline = time.monotonic() + PATIENCE
		while not (tracers := find_tracers(sandbox)):
			assert time.monotonic() < deadline, "it is not traced"
			time.sleep(0.02)
		for tracer in tracers:
			os.kill(tracer, signal.SIGKILL)
		sandbox.write("go", "")
		assert child.wait(PATIENCE) == 0
	finally:
		child.kill()
		child.wait()
	assert (sandbox.folder / "made").read_text() == "done"
	assert "not observed" in sandbox.reasons()
