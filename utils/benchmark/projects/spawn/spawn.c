/*
 * Measures how long a program runs that is started again and again, one at a time.
 *
 *     spawn WAY PIPED FIRST WARM COUNT MIB RESULT PROGRAM ARGUMENT...
 *
 * Holds MIB MiB of memory. Starts PROGRAM in one of the ways that C has, WARM times to warm up and then COUNT times, and waits for the end
 * of each. In each ARGUMENT, `{}` stands for the number of the start, from FIRST on. Writes into the file RESULT the time of one start in
 * microseconds: the median by the clock, which other work on the machine hardly changes, the 99th percentile, and the mean of the processor
 * time of this program and its children. With PIPED 1, standard output and error of each program go through pipes, which are read to their
 * ends. With 0 they are inherited.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "times.h"

#define PAGE 4096

struct pipes {
	int out[2];
	int err[2];
};

/* Starts a program with these pipes as its output and error. Without pipes, it inherits ours. */
typedef pid_t starter(char **argv, const struct pipes *pipes);

static void fail(const char *what) {
	fprintf(stderr, "spawn: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- pipes */

static struct pipes open_pipes(void) {
	struct pipes pipes;

	if (pipe2(pipes.out, O_CLOEXEC) || pipe2(pipes.err, O_CLOEXEC))
		fail("pipe");
	return pipes;
}

/* Closes our ends for writing, so that only the program holds them, and reads both pipes to their ends. */
static void read_to_end(const struct pipes *pipes) {
	struct pollfd polled[2] = {{.fd = pipes->out[0], .events = POLLIN}, {.fd = pipes->err[0], .events = POLLIN}};
	char buffer[65536];

	close(pipes->out[1]);
	close(pipes->err[1]);
	while (polled[0].fd >= 0 || polled[1].fd >= 0) {
		if (poll(polled, 2, -1) < 0)
			fail("poll");
		for (int i = 0; i < 2; i++) {
			ssize_t size = 1;

			if (polled[i].fd >= 0 && polled[i].revents)
				size = read(polled[i].fd, buffer, sizeof buffer);
			if (size < 0)
				fail("read");
			if (size == 0)
				polled[i].fd = -1;
		}
	}
	close(pipes->out[0]);
	close(pipes->err[0]);
}

/* ---- the ways to start a program */

static void execute(char **argv, const struct pipes *pipes) {
	if (!pipes || (dup2(pipes->out[1], 1) >= 0 && dup2(pipes->err[1], 2) >= 0))
		execv(argv[0], argv);
	_exit(127);
}

static pid_t start_fork(char **argv, const struct pipes *pipes) {
	pid_t pid = fork();

	if (!pid)
		execute(argv, pipes);
	return pid;
}

static pid_t start_vfork(char **argv, const struct pipes *pipes) {
	pid_t pid = vfork();

	if (!pid)
		execute(argv, pipes);
	return pid;
}

static pid_t start_posix_spawn(char **argv, const struct pipes *pipes) {
	posix_spawn_file_actions_t actions;
	pid_t pid;

	errno = posix_spawn_file_actions_init(&actions);
	if (!errno && pipes)
		errno = posix_spawn_file_actions_adddup2(&actions, pipes->out[1], 1);
	if (!errno && pipes)
		errno = posix_spawn_file_actions_adddup2(&actions, pipes->err[1], 2);
	if (!errno)
		errno = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
	if (errno)
		pid = -1;
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

static starter *find_way(const char *name) {
	if (!strcmp(name, "vfork"))
		return start_vfork;
	if (!strcmp(name, "posix_spawn"))
		return start_posix_spawn;
	if (!strcmp(name, "fork"))
		return start_fork;
	fprintf(stderr, "spawn: there is no way %s\n", name);
	exit(2);
}

/* ---- what is measured */

/* The words, with the number in place of `{}` in each. */
static char **number_all(char **argv, long number) {
	size_t count = 0;

	while (argv[count])
		count++;
	char **filled = calloc(count + 1, sizeof *filled);
	if (!filled)
		fail("memory");
	for (size_t i = 0; i < count; i++) {
		char *hole = strstr(argv[i], "{}");

		filled[i] = argv[i];
		if (hole && asprintf(&filled[i], "%.*s%ld%s", (int)(hole - argv[i]), argv[i], number, hole + 2) < 0)
			fail("memory");
	}
	return filled;
}

/* Starts the program once. Returns the time by the clock until its end. */
static double run(starter *start, char **argv, int piped) {
	double started = read_clock();
	struct pipes pipes;
	int status;

	if (piped)
		pipes = open_pipes();
	pid_t pid = start(argv, piped ? &pipes : NULL);
	if (pid < 0)
		fail(argv[0]);
	if (piped)
		read_to_end(&pipes);
	if (waitpid(pid, &status, 0) != pid)
		fail("wait");
	double took = read_clock() - started;
	if (status) {
		fprintf(stderr, "spawn: the program ended with the status %#x\n", (unsigned)status);
		exit(1);
	}
	return took;
}

/* The memory must be written to: only then a fork has something to copy. */
static void hold_memory(size_t mib) {
	size_t size = mib << 20;
	volatile char *memory = malloc(size);

	if (!memory)
		fail("malloc");
	for (size_t i = 0; i < size; i += PAGE)
		memory[i] = 1;
}

/* The processor time of this process and of all children for which it has waited. */
static struct rusage read_used(void) {
	struct rusage own, theirs;

	if (getrusage(RUSAGE_SELF, &own) || getrusage(RUSAGE_CHILDREN, &theirs))
		fail("getrusage");
	timeradd(&own.ru_utime, &theirs.ru_utime, &own.ru_utime);
	timeradd(&own.ru_stime, &theirs.ru_stime, &own.ru_stime);
	return own;
}

int main(int argc, char **argv) {
	if (argc < 9 || atol(argv[5]) < 1) {
		fprintf(stderr, "usage: spawn WAY PIPED FIRST WARM COUNT MIB RESULT PROGRAM ARGUMENT...\n");
		return 2;
	}
	starter *start = find_way(argv[1]);
	int piped = atoi(argv[2]);
	long first = atol(argv[3]), warm = atol(argv[4]), count = atol(argv[5]);
	double *walls = calloc((size_t)count, sizeof *walls);

	if (!walls)
		fail("calloc");
	hold_memory((size_t)atol(argv[6]));
	for (long i = 0; i < warm; i++)
		run(start, number_all(argv + 8, first + i), piped);
	struct rusage before = read_used();
	for (long i = 0; i < count; i++)
		walls[i] = run(start, number_all(argv + 8, first + warm + i), piped);
	struct rusage after = read_used();
	timersub(&after.ru_utime, &before.ru_utime, &after.ru_utime);
	timersub(&after.ru_stime, &before.ru_stime, &after.ru_stime);
	if (!write_times(argv[7], walls, (size_t)count, &after))
		fail(argv[7]);
	return 0;
}
