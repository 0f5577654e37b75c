/*
 * Measures how long a program runs, when one runs at a time.
 *
 *     repeat FIRST COUNT RESULT PROGRAM ARGUMENT...
 *
 * Runs PROGRAM COUNT times. In each ARGUMENT, `{}` stands for the number of the run, from FIRST on. Writes into the file RESULT
 * the time of one run in microseconds: the median by the clock, the 99th percentile, and the mean of the processor time.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "times.h"

static void fail(const char *what) {
	fprintf(stderr, "repeat: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The text with the number in place of `{}`, if there is one. */
static char *number_text(char *text, long number) {
	char *hole = strstr(text, "{}"), *filled;

	if (!hole)
		return text;
	if (asprintf(&filled, "%.*s%ld%s", (int)(hole - text), text, number, hole + 2) < 0)
		fail("memory");
	return filled;
}

static char **number_all(char **argv, long number) {
	size_t count = 0;

	while (argv[count])
		count++;
	char **filled = calloc(count + 1, sizeof *filled);
	if (!filled)
		fail("memory");
	for (size_t i = 0; i < count; i++)
		filled[i] = number_text(argv[i], number);
	return filled;
}

static double run(char **argv) {
	pid_t pid;
	int status;
	double started = read_clock();

	errno = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
	if (errno)
		fail(argv[0]);
	if (waitpid(pid, &status, 0) != pid)
		fail("wait");
	double took = read_clock() - started;
	if (status) {
		fprintf(stderr, "repeat: the program ended with the status %#x\n", (unsigned)status);
		exit(1);
	}
	return took;
}

int main(int argc, char **argv) {
	if (argc < 5 || atol(argv[2]) < 1) {
		fprintf(stderr, "usage: repeat FIRST COUNT RESULT PROGRAM ARGUMENT...\n");
		return 2;
	}
	long first = atol(argv[1]);
	size_t count = (size_t)atol(argv[2]);
	double *walls = calloc(count, sizeof *walls);
	struct rusage used;

	if (!walls)
		fail("memory");
	for (size_t i = 0; i < count; i++)
		walls[i] = run(number_all(argv + 4, first + (long)i));
	if (getrusage(RUSAGE_CHILDREN, &used))
		fail("getrusage");
	if (!write_times(argv[3], walls, count, &used))
		fail(argv[3]);
	return 0;
}
