"""Programs of any libc that are parked know their thread, their locks and their signals like started ones."""

import pathlib
import shutil
import subprocess
from typing import List

import pytest
from compiler_support import Comparison, read_parking

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((constructor)) static void work(void) {
	volatile unsigned long sum = 0;
	for (unsigned long i = 0; i < 2000000; i++)
		sum += i;
}

static int holds(const pthread_mutex_t *mutex) {
	const int *words = (const int *)mutex;
	for (unsigned i = 0; i < sizeof *mutex / sizeof *words; i++)
		if ((words[i] & 0x3fffffff) == (int)syscall(SYS_gettid))
			return 1;
	return 0;
}

static void lock(const char *name, int kind, int robust) {
	pthread_mutex_t mutex;
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, kind);
	if (robust)
		pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&mutex, &attributes);
	int first = pthread_mutex_lock(&mutex), held = holds(&mutex), second = pthread_mutex_lock(&mutex);
	printf("%s: %d %d %d\n", name, first, held, second);
	if (second == 0)
		pthread_mutex_unlock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static volatile sig_atomic_t got;
static void handle(int number) {
	got = number;
}

static pthread_t first;
static void *join(void *given) {
	/* The first thread ends, and the others go on. */
	printf("joined: %d\n", pthread_join(first, NULL));
	fflush(stdout);
	_exit(7);
	return given;
}

static void *wait_long(void *given) {
	for (;;)
		pause();
	return given;
}

int main(int argc, char **argv) {
	pthread_t other;
	void *result;
	if (argc > 1 && !strcmp(argv[1], "--version"))
		return puts("program 1") < 0;
	lock("recursive", PTHREAD_MUTEX_RECURSIVE, 0);
	lock("checked", PTHREAD_MUTEX_ERRORCHECK, 0);
	lock("robust", PTHREAD_MUTEX_ERRORCHECK, 1);
	signal(SIGUSR1, handle);
	printf("raise %d", raise(SIGUSR1));
	printf(" %d\n", got == SIGUSR1);
	got = 0;
	printf("kill %d", pthread_kill(pthread_self(), SIGUSR1));
	printf(" %d\n", got == SIGUSR1);
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		lock("in a child", PTHREAD_MUTEX_ERRORCHECK, 1);
		fflush(stdout);
		_exit(raise(SIGTERM));
	}
	int status;
	waitpid(child, &status, 0);
	printf("child %x\n", status);
	pthread_create(&other, NULL, wait_long, NULL);
	pthread_cancel(other);
	pthread_join(other, &result);
	printf("cancelled %d\n", result == PTHREAD_CANCELED);
	first = pthread_self();
	pthread_create(&other, NULL, join, NULL);
	pthread_exit(NULL);
}
"""


def build(compiler: List[str], folder: pathlib.Path) -> pathlib.Path:
	if not shutil.which(compiler[0]):
		pytest.skip("apt-get install musl-tools")
	source, program = folder / "program.c", folder / "programs" / "program"
	program.parent.mkdir()
	source.write_text(PROGRAM)
	subprocess.run([*compiler, "-pthread", "-w", str(source), "-o", str(program)], check=True, timeout=60)
	return program


@pytest.fixture
def programs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
	"""A folder of this test, whose programs may be tried like installed ones."""
	monkeypatch.setenv("WAFD_PARK_FOLDERS", str(tmp_path.resolve() / "programs"))
	return tmp_path


@pytest.mark.parametrize("compiler", ["gcc", "gcc -static-pie", "musl-gcc", "musl-gcc -static"])
def test_threads_and_signals(compiler: str, programs: pathlib.Path, comparison: Comparison, engine: str) -> None:
	"""Parked or not, it tells the same; what is linked to its libc statically is not parked."""
	program = build(compiler.split(), programs)
	for _ in range(100):
		comparison.run([str(program), "--version"], {}, True)
		told = read_parking(engine).get("program", {})
		if told.get("state") in ("parked", "refused"):
			break
	assert told["state"] == ("refused" if "static" in compiler else "parked"), told
	before = told["commands"]
	found, wanted = (comparison.run([str(program)], {}, parked) for parked in (True, False))
	assert (found.stdout, found.stderr, found.status) == (wanted.stdout, wanted.stderr, wanted.status)
	assert found.stdout.splitlines()[:3] == ["recursive: 0 1 0", "checked: 0 1 35", "robust: 0 1 35"]
	assert found.stdout.splitlines()[-1] == "joined: 0"
	assert read_parking(engine)["program"]["commands"] == before + ("static" not in compiler)
