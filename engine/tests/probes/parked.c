/* Works so long before main that parking is worth while. Then it prints its context, or does what its first argument says. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "probe 1"
#endif

extern char *program_invocation_name, *program_invocation_short_name;
extern char **environ;

__attribute__((constructor)) static void work(void) {
	volatile unsigned long sum = 0;
	for (unsigned long i = 0; i < 2000000; i++)
		sum += i;
#ifdef BEFORE
	BEFORE;
#endif
}

static void show_file(const char *path) {
	char text[8192];
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = file < 0 ? 0 : read(file, text, sizeof text - 1);
	if (file >= 0)
		close(file);
	text[size > 0 ? size : 0] = 0;
	printf("%s:\n%s\n", path, text);
}

static void show_status(void) {
	static const char *const wanted[] = {"Name",   "Umask",  "State",  "Threads", "NoNewPrivs", "Seccomp", "ShdPnd",
	                                     "SigBlk", "SigIgn", "SigCgt", "CapEff",  "Uid",        "Gid",     "Groups"};
	char line[1024];
	FILE *file = fopen("/proc/self/status", "re");
	while (file && fgets(line, sizeof line, file))
		for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
			if (!strncmp(line, wanted[i], strlen(wanted[i])))
				fputs(line, stdout);
	if (file)
		fclose(file);
}

static void show_strings(const char *name, char **list) {
	for (int i = 0; list[i]; i++) {
		printf("%s[%d]=", name, i);
		for (const char *at = list[i]; *at; at++)
			(*at >= 32 && *at < 127) ? putchar(*at) : printf("\\x%02x", (unsigned char)*at);
		putchar('\n');
	}
}

static void show_files(void) {
	int open_files[64], count = 0;
	for (int fd = 0; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0 && count < 64)
			open_files[count++] = fd;
	for (int i = 0; i < count; i++) {
		struct stat found;
		fstat(open_files[i], &found);
		printf("fd %d: type %o flags %o close %d\n", open_files[i], found.st_mode & S_IFMT, fcntl(open_files[i], F_GETFL),
		       fcntl(open_files[i], F_GETFD));
	}
}

/* Prints the lines of a file in /proc that contain a word, if there is such a file. */
static void show_lines(const char *path, const char *word) {
	char line[256];
	FILE *file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		if (strstr(line, word))
			fputs(line, stdout);
	if (file)
		fclose(file);
}

static void show_scheduling(void) {
	cpu_set_t set;
	struct sched_param param;
	CPU_ZERO(&set);
	sched_getaffinity(0, sizeof set, &set);
	sched_getparam(0, &param);
	errno = 0;
	printf("nice %d policy %d priority %d io %ld cpus", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
	       param.sched_priority, syscall(SYS_ioprio_get, 1, 0));
	for (int i = 0; i < 64; i++)
		if (CPU_ISSET(i, &set))
			printf(" %d", i);
	putchar('\n');
	show_lines("/proc/self/sched", "se.slice");
}

static int show(char **argv, char **env) {
	char folder[4096], exe[4096] = "", parent[64];
	show_strings("argv", argv);
	show_strings("env", env);
	printf("environ is env: %d\n", environ == env);
	show_files();
	printf("cwd %s\n", getcwd(folder, sizeof folder) ? folder : "none");
	show_status();
	show_scheduling();
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit limit;
		getrlimit(i, &limit);
		printf("limit %d: %lu %lu\n", i, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
	}
	for (int i = 1; i < 65; i++) {
		struct sigaction action;
		if (sigaction(i, NULL, &action) == 0 && (action.sa_handler != SIG_DFL || action.sa_flags))
			printf("signal %d: %s %x\n", i, action.sa_handler == SIG_IGN ? "ignored" : "handled", action.sa_flags);
	}
	show_file("/proc/self/oom_score_adj");
	show_file("/proc/self/comm");
	show_file("/proc/self/timerslack_ns");
	show_file("/proc/self/personality");
	if (readlink("/proc/self/exe", exe, sizeof exe - 1) < 0)
		strcpy(exe, "none");
	printf("exe %s\nfull name %s\nshort name %s\nexecfn %s\n", exe, program_invocation_name, program_invocation_short_name,
	       (char *)getauxval(AT_EXECFN));
	printf("group is own %d, session is own %d, tid is pid %d\n", getpgrp() == getpid(), getsid(0) == getpid(),
	       (int)syscall(SYS_gettid) == getpid());
	snprintf(parent, sizeof parent, "/proc/%d/comm", getppid());
	FILE *file = fopen(parent, "re");
	printf("parent %s", file && fgets(parent, sizeof parent, file) ? parent : "none\n");
	printf("GETENV %s\n", getenv("TWICE") ? getenv("TWICE") : "none");
	return 0;
}

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static int sum;

static void *add(void *given) {
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&recursive);
		pthread_mutex_lock(&recursive);
		sum++;
		pthread_mutex_unlock(&recursive);
		pthread_mutex_unlock(&recursive);
	}
	return given;
}

static pthread_mutex_t robust;
static void *die_holding(void *given) {
	pthread_mutex_lock(&robust);
	return given;
}

static int run_threads(void) {
	pthread_t threads[4], holder;
	pthread_mutexattr_t kind;
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &kind);
	printf("relock %d\n", (pthread_mutex_lock(&checked), pthread_mutex_lock(&checked)));
	printf("unlock %d again %d\n", pthread_mutex_unlock(&checked), pthread_mutex_unlock(&checked));
	for (int i = 0; i < 4; i++)
		pthread_create(threads + i, NULL, add, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	pthread_create(&holder, NULL, die_holding, NULL);
	pthread_join(holder, NULL);
	printf("sum %d robust %d\n", sum, pthread_mutex_lock(&robust));
	clockid_t clock;
	printf("clock %d kill %d name %d\n", pthread_getcpuclockid(pthread_self(), &clock), pthread_kill(pthread_self(), 0),
	       pthread_setname_np(pthread_self(), "renamed"));
	show_file("/proc/self/comm");
	fflush(stdout);
	int status = 0;
	pid_t child = fork();
	if (!child) {
		printf("child tid %d, sum %d\n", (int)syscall(SYS_gettid) == getpid(), (pthread_mutex_lock(&recursive), sum));
		fflush(stdout);
		abort();
	}
	waitpid(child, &status, 0);
	printf("child ended by %d\n", WTERMSIG(status));
	fflush(stdout);
	printf("system %d\n", system("exit 3"));
	printf("spawned at exit\n");
	return 0;
}

static void at_exit(void) {
	puts("at exit");
}

static int use_libc(void) {
	void *library = dlopen("libm.so.6", RTLD_NOW);
	double (*cosine)(double) = library ? (double (*)(double))dlsym(library, "cos") : NULL;
	printf("cos %f\n", cosine ? cosine(0) : -1);
	printf("locale %s\n", setlocale(LC_ALL, "C.UTF-8"));
	printf("locale of the environment %s\n", setlocale(LC_ALL, ""));
	setenv("NEW", "1", 1);
	setenv("TWICE", "changed", 1);
	unsetenv("PATH");
	putenv("PUT=2");
	show_strings("env", environ);
	clearenv();
	printf("cleared %s\n", getenv("NEW") ? "no" : "yes");
	atexit(at_exit);
	return 5;
}

static void mark(const char *path, const char *text) {
	int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (file < 0 || write(file, text, strlen(text)) < 0)
		exit(99);
	close(file);
}

static int flood(long mebibytes) {
	static char block[1 << 20];
	for (size_t i = 0; i < sizeof block; i++)
		block[i] = (char)('a' + i % 23);
	for (long i = 0; i < mebibytes; i++)
		fwrite(block, 1, sizeof block, i & 1 ? stderr : stdout);
	return 0;
}

static int copy(void) {
	char block[4096];
	ssize_t size;
	while ((size = read(0, block, sizeof block)) > 0)
		if (write(1, block, size) < 0)
			return 1;
	fputs("copied\n", stderr);
	return 0;
}

/* Writes the numbers of this process and a child to a file. Both wait for ever. */
static int nest(const char *path) {
	char text[64];
	pid_t child = fork();
	if (child) {
		snprintf(text, sizeof text, "%d %d\n", getpid(), child);
		mark(path, text);
	}
	for (;;)
		pause();
}

static int wait_at(const char *gate, const char *path) {
	mark(path, "x\n");
	flock(open(gate, O_RDONLY | O_CLOEXEC), LOCK_SH);
	return 0;
}

int main(int argc, char **argv, char **env) {
	const char *what = argc > 1 ? argv[1] : "show";
	const char *first = argc > 2 ? argv[2] : "";
	if (!strcmp(what, "--version"))
		return puts(VERSION) < 0;
	if (!strcmp(what, "show"))
		return show(argv, env);
	if (!strcmp(what, "exit"))
		return atoi(first);
	if (!strcmp(what, "raise"))
		return raise(atoi(first));
	if (!strcmp(what, "abort"))
		abort();
	if (!strcmp(what, "threads"))
		return run_threads();
	if (!strcmp(what, "libc"))
		return use_libc();
	if (!strcmp(what, "flood"))
		return flood(atol(first));
	if (!strcmp(what, "copy"))
		return copy();
	if (!strcmp(what, "count"))
		return printf("%d %zu\n", argc, strlen(argv[argc - 1])) < 0;
	if (!strcmp(what, "mark"))
		return mark(first, "x\n"), 0;
	if (!strcmp(what, "nest"))
		return nest(first);
	if (!strcmp(what, "wait"))
		return wait_at(first, argv[3]);
	return 98;
}
