/* Shared by the actions of programs with a C library. */
#ifndef STEPS_H
#define STEPS_H

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char room[70000];
static struct stat status;

static void read_all(int file) {
	while (file >= 0 && read(file, room, sizeof room) > 0)
		;
}

static void read_and_close(int file) {
	read_all(file);
	if (file >= 0)
		close(file);
}

static void wait_for(pid_t child) {
	if (child > 0)
		waitpid(child, NULL, __WALL);
}

/* A child that does this, and is waited for. */
#define IN_FORK(fork, call)                                                                                                  \
	pid_t child = fork;                                                                                                      \
	if (child == 0) {                                                                                                        \
		call;                                                                                                                \
		_exit(99);                                                                                                           \
	}                                                                                                                        \
	wait_for(child);

/* Something is done with a folder, or a file, that is open meanwhile: as `at`, or as `file`, if it could be opened. */
#define AT(flags, call)                                                                                                      \
	int at = open(folder, flags);                                                                                            \
	call;                                                                                                                    \
	close(at)
#define WITH(flags, call)                                                                                                    \
	int file = open(path, flags);                                                                                            \
	if (file >= 0) {                                                                                                         \
		call;                                                                                                                \
		close(file);                                                                                                         \
	}

#endif
