"""Calls inside of libc that tell a program something are either facts, or nothing is stored."""

import pathlib
import shutil
import subprocess
import time

import pytest
from cache_support import PATIENCE
from test_cache_facts import PYTHON, Facts

HEAD = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <ifaddrs.h>
#include <mqueue.h>
#include <netdb.h>
#include <pwd.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
"""
MAIN = HEAD + "int main(void) {\n%s\n}\n"
WRITE = 'FILE *out = fopen("out", "w"); fprintf(out, %s); return fclose(out);'


def writes(text: str, before: str = "") -> str:
	"""A program that writes down its answers."""
	return before + WRITE % text


CLOCK, CHANCE, BLIND = "reads the clock", "reads random numbers", "not observed"
# The code of a program, and the reason why nothing of it is stored.
TOLD = {
	"monotonic clock": (writes('"%ld", t.tv_nsec', "struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);"), CLOCK),
	"clock by its number": (
		writes('"%ld", t.tv_nsec', "struct timespec t; syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);"),
		CLOCK,
	),
	"processor time": (writes('"%ld", (long)clock()'), CLOCK),
	"times": (writes('"%ld", (long)times(&t)', "struct tms t;"), CLOCK),
	"usage": (writes('"%ld", u.ru_utime.tv_usec', "struct rusage u; getrusage(RUSAGE_SELF, &u);"), CLOCK),
	"load": (writes('"%f", load[0]', "double load[3]; getloadavg(load, 3);"), CLOCK),
	"memory": (writes('"%lu", i.freeram', "struct sysinfo i; sysinfo(&i);"), CLOCK),
	"free pages": (writes('"%ld", sysconf(_SC_AVPHYS_PAGES)'), CLOCK),
	"free pages, by name": (writes('"%ld", get_avphys_pages()'), CLOCK),
	"its number": (writes('"%d", getpid()'), CHANCE),
	"its number, by the number of the call": (writes('"%ld", syscall(SYS_getpid)'), CHANCE),
	"its parent's number": (writes('"%d", getppid()'), CHANCE),
	"its thread's number": (writes('"%d", gettid()'), CHANCE),
	"its group": (writes('"%d", getpgrp()'), CHANCE),
	"its session": (writes('"%d", getsid(0)'), CHANCE),
	"a fork's number": ("if (!fork()) {" + writes('"%d", getpid()') + "} return wait(NULL) < 0;", CHANCE),
	"random bytes of the kernel": (writes('"%lx", *(long *)getauxval(AT_RANDOM)'), CHANCE),
	"a user that is in no file": (writes('"%d", getpwuid(54321) != 0'), BLIND),
	"all users": (writes('"%s", getpwent()->pw_name'), BLIND),
	"a service": (writes('"%p", getservbyname("http", "tcp")'), BLIND),
	"a protocol": (writes('"%p", getprotobyname("tcp")'), BLIND),
	"a host": (
		writes(
			'"%s", name',
			'struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000001)}}; char name[99] = "";'
			"getnameinfo((void *)&a, sizeof a, name, sizeof name, 0, 0, 0);",
		),
		BLIND,
	),
	"a host, into a buffer": (
		writes(
			'"%p", f',
			"struct hostent h, *f; char b[999]; int e; struct in_addr a = {htonl(0x7f000001)};"
			"gethostbyaddr_r(&a, sizeof a, AF_INET, &h, b, sizeof b, &f, &e);",
		),
		BLIND,
	),
	"interfaces": (writes('"%p", a->ifa_name', "struct ifaddrs *a; getifaddrs(&a);"), BLIND),
	"the host's number": (writes('"%lx", gethostid()'), BLIND),
	"shared memory": (writes('"%d", shm_open("/none-of-ours", O_RDONLY, 0) < 0'), BLIND),
	"shared memory of old": (writes('"%d", shmget(IPC_PRIVATE, 1, 0) < 0'), BLIND),
	"a terminal": (writes('"%d", posix_openpt(O_RDWR) < 0'), BLIND),
	"the system's log": (
		writes('"%d", 1', 'void syslog(int, const char *, ...); syslog(7, "%d of %s", 1, "test");'),
		BLIND,
	),
	"names of hosts": (writes('"%d", __res_init()', "int __res_init(void);"), BLIND),
	"a semaphore": (writes('"%p", sem_open("/none-of-ours", 0)'), BLIND),
	"a queue": (writes('"%d", mq_open("/none-of-ours", O_RDONLY) < 0'), BLIND),
	"attributes": (
		writes(
			'"%.*s", (int)n, b',
			'char b[99]; ssize_t n = getxattr("in.txt", "user.word", b, sizeof b); if (n < 0) n = 0;',
		),
		BLIND,
	),
	"another namespace": (writes('"%d", unshare(CLONE_FS)'), BLIND),
	"events of files": (writes('"%d", inotify_init()'), BLIND),
	"a call that is not known": (writes('"%ld", syscall(SYS_inotify_init1, 0)'), BLIND),
	"a status by the number of its call": (
		writes('"%ld", (long)s.st_mtim.tv_nsec', 'struct stat s; syscall(SYS_newfstatat, AT_FDCWD, "in.txt", &s, 0);'),
		BLIND,
	),
}
CXX = '#include <cstdio>\n#include <random>\nint main() { std::random_device d("%s"); ' + WRITE % '"%%u", d()' + "}\n"


@pytest.fixture
def sandbox(engine: str, runtime: pathlib.Path, tmp_path: pathlib.Path) -> Facts:
	return Facts.make(engine, tmp_path, **{"in.txt": "one\n"})


def build(sandbox: Facts, text: str, compiler: str = "gcc") -> None:
	source = sandbox.write("tool/teller." + ("cc" if "+" in compiler else "c"), text)
	line = [compiler, "-w", "-O1", "-o", "tool/teller", str(source)]
	subprocess.run(line, cwd=sandbox.folder, check=True, timeout=PATIENCE)


def run_often(sandbox: Facts, line: str) -> None:
	"""Run it often enough to be a hit, if it were stored."""
	time.sleep(0.1)
	for _ in range(3):
		assert sandbox.run_by_facts(line).returncode == 0


@pytest.mark.parametrize("name", TOLD)
def test_what_a_program_is_told_is_not_stored(name: str, sandbox: Facts) -> None:
	"""The reason is counted, and no run is a hit."""
	code, reason = TOLD[name]
	build(sandbox, MAIN % code)
	if name == "attributes":
		done = subprocess.run(
			[PYTHON, "-c", "import os; os.setxattr('in.txt', 'user.word', b'1')"], cwd=sandbox.folder, check=False
		)
		if done.returncode:
			pytest.skip("the file system has no attributes for users")
	run_often(sandbox, "tool/teller")
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {reason})


@pytest.mark.parametrize("token", ["default", "rdrand", "getentropy", "/dev/urandom"])
def test_a_random_device_is_not_stored(token: str, sandbox: Facts) -> None:
	"""C++'s way to random numbers asks the processor inside of its library."""
	build(sandbox, CXX % token, "g++")
	if sandbox.run_by_facts("tool/teller").returncode:
		pytest.skip("this libstdc++ knows no such device")
	run_often(sandbox, "tool/teller")
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {CHANCE})


NUMBERS = ["echo $$ >out", "echo $PPID >out", "echo ${PPID} >out", "sleep 0 & echo $! >out; wait"]


@pytest.mark.parametrize("text", NUMBERS)
def test_a_shell_that_tells_the_number_of_a_process(text: str, sandbox: Facts) -> None:
	"""A script or command line that uses it is not stored."""
	sandbox.write("tool/say.sh", text + "\n")
	run_often(sandbox, "sh tool/say.sh")
	assert sandbox.hits() == 0
	for _ in range(3):
		line = [sandbox.wafcc, "run", "--", "sh", "-c", text]
		subprocess.run(
			line, cwd=sandbox.folder, env=sandbox.environ, check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
		)
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {CHANCE})


def test_a_number_in_a_file_that_a_shell_reads(sandbox: Facts) -> None:
	"""A script that another one reads counts as that script itself does."""
	sandbox.write("tool/say.sh", ". ./tool/part.sh\n")
	sandbox.write("tool/part.sh", "echo $$ >out\n")
	run_often(sandbox, "sh tool/say.sh")
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {CHANCE})


def test_a_grammar_that_a_shell_has_translated(sandbox: Facts) -> None:
	"""Files that other programs than shells read may have the same signs."""
	if not shutil.which("bison"):
		pytest.skip("needs bison")
	sandbox.write(
		"x.y", "%{\nint yylex(void); void yyerror(const char *s);\n%}\n%token A\n%%\ns: A { $$ = $1; } ;\n%%\n"
	)
	deadline = time.monotonic() + PATIENCE
	while not sandbox.hits():
		assert time.monotonic() < deadline, sandbox.reasons()
		line = [sandbox.wafcc, "run", "--", "sh", "-c", "bison -d x.y; sort in.txt >out"]
		subprocess.run(
			line, cwd=sandbox.folder, env=sandbox.environ, check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
		)


def test_a_python_script_that_tells_the_number_of_its_process(sandbox: Facts) -> None:
	sandbox.write("tool/say.py", "import os\nopen('out', 'w').write(str(os.getpid()))\n")
	run_often(sandbox, f"{PYTHON} -S tool/say.py")
	assert (sandbox.hits(), set(sandbox.reasons())) == (0, {CHANCE})


KEPT = {
	"a user": 'getpwuid(0)->pw_dir; getpwnam("root")->pw_uid;',
	"a group": 'getgrnam("root")->gr_gid; getgrgid(0)->gr_name;',
	"a user, into a buffer": 'struct passwd p, *q; char b[999]; getpwnam_r("root", &p, b, sizeof b, &q);',
	"no attribute": 'char b[9]; getxattr("in.txt", "user.none", b, sizeof b);',
	"the size of a page": "sysconf(_SC_PAGESIZE);",
	"what the processor has": "getauxval(AT_PAGESZ);",
	"harmless calls by their numbers": "syscall(SYS_sched_yield); syscall(SYS_getuid);",
	"dates of times that it was given": 'struct tm t = {.tm_year = 100}; setenv("TZ", "UTC", 1); mktime(&t);',
}


@pytest.mark.parametrize("name", KEPT)
def test_what_tells_nothing_is_stored(name: str, sandbox: Facts) -> None:
	"""A program that asks for what is the same in every run is a hit."""
	build(sandbox, MAIN % (KEPT[name] + writes('"one"')))
	deadline = time.monotonic() + PATIENCE
	while not sandbox.hits():
		assert time.monotonic() < deadline, sandbox.reasons()
		assert sandbox.run_by_facts("tool/teller").returncode == 0
		time.sleep(0.05)
