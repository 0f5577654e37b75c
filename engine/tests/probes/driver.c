/* A driver that starts its part by posix_spawn, and the part: the same file under two names. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

__attribute__((constructor)) static void work(void) {
	volatile unsigned long sum = 0;
	for (unsigned long i = 0; i < 2000000; i++)
		sum += i;
}

/* What a part has from its driver. */
static int tell(char **argv) {
	char line[256], folder[4096];
	FILE *status = fopen("/proc/self/status", "re");
	while (status && fgets(line, sizeof line, status))
		/* libc ignores its own two signals in what it spawns, 32 and 33; only this file shows that. */
		if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6) || !strncmp(line, "SigCgt", 6))
			printf("%.6s %lx\n", line, strtoul(line + 7, NULL, 16) & ~0x180000000ul);
	fclose(status);
	for (; *argv; argv++)
		printf("argument %s\n", *argv);
	printf("folder %s, leads a group %d, VARIABLE %s\n", getcwd(folder, sizeof folder), getpgrp() == getpid(), getenv("VARIABLE"));
	for (int file = 0; file < 64; file++) {
		struct stat found;
		if (fstat(file, &found) == 0)
			printf("file %d: type %o, flags %o\n", file, found.st_mode & S_IFMT, fcntl(file, F_GETFD));
	}
	fputs("told\n", stderr);
	return 0;
}

static void handle(int signal) {
	(void)signal;
}

/* A new actions object, and a file for the part's output. */
static posix_spawn_file_actions_t actions;
static posix_spawnattr_t attributes;
static int output;

static void redirect(void) {
	output = open("output", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	posix_spawn_file_actions_adddup2(&actions, output, 1);
	posix_spawn_file_actions_addclose(&actions, output);
}

static void set_flags(short flags) {
	posix_spawnattr_setflags(&attributes, flags);
}

static void prepare(const char *how) {
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 3);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	signal(SIGHUP, handle);
	signal(SIGUSR2, SIG_IGN);
	if (!strcmp(how, "files"))
		redirect();
	if (!strcmp(how, "same-file")) {
		output = open("output", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		posix_spawn_file_actions_adddup2(&actions, output, output);
	}
	if (!strcmp(how, "bad-file"))
		posix_spawn_file_actions_adddup2(&actions, 77, 1);
	if (!strcmp(how, "no-close"))
		posix_spawn_file_actions_addclose(&actions, 77);
	if (!strcmp(how, "folder"))
		posix_spawn_file_actions_addchdir_np(&actions, "/");
	if (!strcmp(how, "folder-number"))
		posix_spawn_file_actions_addfchdir_np(&actions, open("/", O_RDONLY | O_CLOEXEC));
	if (!strcmp(how, "open"))
		posix_spawn_file_actions_addopen(&actions, 1, "output", O_WRONLY | O_CREAT, 0666);
	if (!strcmp(how, "close-from")) {
		dup2(2, 40);
		redirect();
		posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	}
	if (!strcmp(how, "mask")) {
		posix_spawnattr_setsigmask(&attributes, &set);
		set_flags(POSIX_SPAWN_SETSIGMASK);
	}
	if (!strcmp(how, "defaults")) {
		sigaddset(&set, SIGUSR2);
		posix_spawnattr_setsigdefault(&attributes, &set);
		set_flags(POSIX_SPAWN_SETSIGDEF);
	}
	if (!strcmp(how, "group"))
		set_flags(POSIX_SPAWN_SETPGROUP);
	if (!strcmp(how, "session"))
		set_flags(POSIX_SPAWN_SETSID);
	if (!strcmp(how, "again")) {
		posix_spawn_file_actions_adddup2(&actions, 77, 1);
		posix_spawn_file_actions_destroy(&actions);
		posix_spawn_file_actions_init(&actions);
	}
	/* Bytes of one object in another: its contents were copied by no call that is noted. */
	if (!strcmp(how, "copied")) {
		static posix_spawn_file_actions_t other;
		posix_spawn_file_actions_init(&other);
		posix_spawn_file_actions_adddup2(&other, 2, 1);
		memcpy(&actions, &other, sizeof other);
	}
	if (!strcmp(how, "many"))
		for (int i = 0; i < 40; i++)
			posix_spawn_file_actions_adddup2(&actions, i % 2 ? 0 : 2, 50 + i % 10);
}

static int report(int error, pid_t child) {
	int status = -1;
	char text[4096];
	printf("error %d\n", error);
	if (!error && waitpid(child, &status, 0) == child)
		printf("status %x\n", status);
	errno = 0;
	int left = waitpid(-1, &status, WNOHANG);
	printf("left %d %d\n", left, errno);
	ssize_t size = output ? pread(output, text, sizeof text, 0) : 0;
	printf("output %.*s\n", (int)size, text);
	sigset_t now;
	sigprocmask(SIG_BLOCK, NULL, &now);
	printf("blocked %d, handled %d\n", sigismember(&now, SIGINT), signal(SIGHUP, SIG_DFL) == handle);
	return error;
}

/* spawn HOW PART WORD...: what the part told, and what the driver got. */
static int drive(char **argv) {
	pid_t child = -1;
	prepare(argv[0]);
	printf("driver\n");
	fflush(stdout);
	int is_searched = !strcmp(argv[0], "searched") || !strcmp(argv[0], "missing-searched");
	int error = (is_searched ? posix_spawnp : posix_spawn)(&child, argv[1], &actions, &attributes, argv + 1, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return report(error, child);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "--version"))
		return puts("driver 1") < 0;
	if (!strcmp(what, "spawn"))
		return drive(argv + 2);
	if (!strcmp(what, "plainly")) {
		pid_t child = -1;
		return report(posix_spawn(&child, argv[2], NULL, NULL, argv + 2, environ), child);
	}
	if (!strcmp(what, "tell"))
		return tell(argv);
	if (!strcmp(what, "raise"))
		return raise(atoi(argv[2]));
	if (!strcmp(what, "exit"))
		return atoi(argv[2]);
	if (!strcmp(what, "wait")) {
		FILE *noted = fopen(argv[2], "ae");
		fprintf(noted, "%d\n", getpid());
		fclose(noted);
		for (;;)
			pause();
	}
	return 98;
}
