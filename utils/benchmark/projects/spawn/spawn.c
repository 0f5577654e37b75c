/*
 * Measures what it costs to start a program, in each way that C has.
 *
 *     spawn WAY PIPED COUNT MIB RESULT PROGRAM
 *
 * Holds MIB MiB of memory. Starts PROGRAM COUNT times, after a tenth of that to warm up, and waits for the end of each. Writes
 * into the file RESULT the time of one start in microseconds: the median by the clock, which other work on the machine hardly changes,
 * and the mean of the processor time of this program and its children. With PIPED 1, standard output and error of each program go through
 * pipes, which are read to their ends. With 0 they are inherited.
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
#include <sys/wait.h>
#include <unistd.h>

#include "times.h"

#define PAGE 4096
#define LAST_OF_SHELL 9 /* some shells know no descriptors with two digits */

struct pipes {
	int out[2];
	int err[2];
};

struct used {
	double user;
	double system;
};

/* Starts a program with these pipes as its output and error. Without pipes, it inherits ours. */
typedef pid_t starter(char **argv, const struct pipes *pipes);

struct way {
	const char *name;
	starter *start;	       /* starts a process for which we wait ourselves, or ... */
	void (*call)(int piped); /* ... calls a function of libc that does everything */
};

static void fail(const char *what) {
	fprintf(stderr, "spawn: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* If the program fails, it was not started correctly. */
static void expect_success(int status) {
	if (status == -1)
		fail("wait");
	if (status) {
		fprintf(stderr, "spawn: the program ended with the status %#x\n", (unsigned)status);
		exit(1);
	}
}

/* ---- pipes */

static void open_pipe(int ends[2], int flags) {
	if (pipe2(ends, flags))
		fail("pipe");
}

static struct pipes open_pipes(int flags) {
	struct pipes pipes;

	open_pipe(pipes.out, flags);
	open_pipe(pipes.err, flags);
	return pipes;
}

/* Reads two pipes until no process holds their other ends any more. -1 means no pipe. */
static void drain(int first, int second) {
	struct pollfd polled[2] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
	char buffer[65536];

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
}

/* Closes our ends for writing, so that only the program holds them, and reads what it writes. */
static void read_to_end(const struct pipes *pipes) {
	close(pipes->out[1]);
	close(pipes->err[1]);
	drain(pipes->out[0], pipes->err[0]);
	close(pipes->out[0]);
	close(pipes->err[0]);
}

/* ---- the ways in which we wait ourselves */

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

static void run_started(starter *start, char *program, int piped) {
	char *argv[] = {program, NULL};
	struct pipes pipes;
	int status;

	if (piped)
		pipes = open_pipes(O_CLOEXEC);
	pid_t pid = start(argv, piped ? &pipes : NULL);
	if (pid < 0)
		fail(program);
	if (piped)
		read_to_end(&pipes);
	if (waitpid(pid, &status, 0) != pid)
		status = -1;
	expect_success(status);
}

/* ---- the ways with a shell: it inherits the pipes, and its command redirects the program's streams to them */

static void call_system(int piped) {
	struct pipes pipes;
	char command[64] = "\"$PROGRAM\"";

	if (piped) {
		pipes = open_pipes(0);
		snprintf(command, sizeof command, "\"$PROGRAM\" >&%d 2>&%d", pipes.out[1], pipes.err[1]);
	}
	int status = system(command); /* returns after the program's end, so its output must fit into the pipes */
	if (piped)
		read_to_end(&pipes);
	expect_success(status);
}

/* popen always has a pipe for the output. With PIPED, there is one for the errors, too. */
static void call_popen(int piped) {
	int err[2] = {-1, -1};
	char command[64] = "\"$PROGRAM\"";

	if (piped) {
		open_pipe(err, 0);
		snprintf(command, sizeof command, "\"$PROGRAM\" 2>&%d", err[1]);
	}
	FILE *stream = popen(command, "r");
	if (!stream)
		fail("popen");
	if (piped)
		close(err[1]);
	drain(fileno(stream), err[0]);
	if (piped)
		close(err[0]);
	expect_success(pclose(stream));
}

/* ---- what is measured */

static const struct way ways[] = {
	{"vfork", start_vfork, NULL},
	{"posix_spawn", start_posix_spawn, NULL},
	{"fork", start_fork, NULL},
	{"system", NULL, call_system},
	{"popen", NULL, call_popen},
};

static const struct way *find_way(const char *name) {
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (!strcmp(ways[i].name, name))
			return &ways[i];
	fprintf(stderr, "spawn: there is no way %s\n", name);
	exit(2);
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
static struct used read_used(void) {
	struct rusage own, theirs;

	if (getrusage(RUSAGE_SELF, &own) || getrusage(RUSAGE_CHILDREN, &theirs))
		fail("getrusage");
	return (struct used){
		microseconds(own.ru_utime) + microseconds(theirs.ru_utime),
		microseconds(own.ru_stime) + microseconds(theirs.ru_stime),
	};
}

static void run(const struct way *way, char *program, int piped, size_t count, double *walls) {
	for (size_t i = 0; i < count; i++) {
		double started = read_clock();

		if (way->start)
			run_started(way->start, program, piped);
		else
			way->call(piped);
		walls[i] = read_clock() - started;
	}
}

int main(int argc, char **argv) {
	if (argc != 7 || atol(argv[3]) < 1) {
		fprintf(stderr, "usage: spawn WAY PIPED COUNT MIB RESULT PROGRAM\n");
		return 2;
	}
	const struct way *way = find_way(argv[1]);
	int piped = atoi(argv[2]);
	size_t count = (size_t)atol(argv[3]);
	char *program = argv[6];
	double *walls = calloc(count, sizeof *walls);

	if (!walls)
		fail("calloc");

	for (int fd = 3; fd <= LAST_OF_SHELL; fd++)
		close(fd);
	if (setenv("PROGRAM", program, 1))
		fail("setenv");
	hold_memory((size_t)atol(argv[4]));
	run(way, program, piped, count / 10 + 1, walls);
	struct used before = read_used();
	run(way, program, piped, count, walls);
	struct used after = read_used();

	FILE *result = fopen(argv[5], "w");
	if (!result)
		fail(argv[5]);
	fprintf(result, "{\"wall\": %.3f, \"user\": %.3f, \"system\": %.3f}\n", median(walls, count),
		(after.user - before.user) / (double)count, (after.system - before.system) / (double)count);
	if (fclose(result))
		fail(argv[5]);
	return 0;
}
