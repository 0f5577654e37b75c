/* Run a program with a handicap: limits, a umask, another user, system calls that the kernel refuses. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no such processor is known here"
#endif

#define MOST 32

struct name {
	const char *name;
	long number;
};

static const struct name limits[] = {
	{"AS", RLIMIT_AS}, {"FSIZE", RLIMIT_FSIZE}, {"NOFILE", RLIMIT_NOFILE}, {"NPROC", RLIMIT_NPROC},
	{"STACK", RLIMIT_STACK}, {"MEMLOCK", RLIMIT_MEMLOCK}, {"CORE", RLIMIT_CORE},
};

/* The calls that can be refused by name. scene.py writes calls.h, with those that this processor has. */
static const struct name calls_known[] = {
#include "calls.h"
};

static int fail(const char *what) {
	fprintf(stderr, "handicap: %s: %s\n", what, strerror(errno));
	return 125;
}

/* Sets a limit from NAME=NUMBER, both soft and hard. */
static int limit(char *text) {
	char *value = strchr(text, '=');
	if (!value)
		return -1;
	*value++ = 0;
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		if (!strcmp(limits[i].name, text)) {
			rlim_t most = strtoull(value, NULL, 10);
			struct rlimit both = {most, most};
			return setrlimit((__rlimit_resource_t)limits[i].number, &both);
		}
	}
	errno = EINVAL;
	return -1;
}

/* The number of a system call. */
static long find(const char *name) {
	for (size_t i = 0; i < sizeof calls_known / sizeof *calls_known; i++)
		if (!strcmp(calls_known[i].name, name))
			return calls_known[i].number;
	errno = ENOSYS;
	return -1;
}

/* Installs a filter that answers these system calls with an error. */
static int refuse(const long *calls, int count, int error) {
	struct sock_filter code[2 * MOST + 4];
	unsigned short n = 0;
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < count; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
	}
	code[n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {(unsigned short)(n + 1), code};
	/* without the privilege to install a filter, a process must give up gaining others */
	if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 0;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
	long calls[MOST];
	int count = 0, error = EPERM, i;
	for (i = 1; i + 1 < argc && strcmp(argv[i], "--"); i += 2) {
		char *value = argv[i + 1];
		if (!strcmp(argv[i], "--limit")) {
			if (limit(value))
				return fail(value);
		} else if (!strcmp(argv[i], "--umask")) {
			umask((mode_t)strtoul(value, NULL, 8));
		} else if (!strcmp(argv[i], "--user")) {
			uid_t user = (uid_t)strtoul(value, NULL, 10);
			if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
				return fail("become another user");
		} else if (!strcmp(argv[i], "--error")) {
			error = atoi(value);
		} else if (!strcmp(argv[i], "--refuse") && count < MOST) {
			calls[count] = find(value);
			if (calls[count++] < 0)
				return fail(value);
		} else {
			errno = EINVAL;
			return fail(argv[i]);
		}
	}
	if (i + 1 >= argc) {
		errno = EINVAL;
		return fail("no command");
	}
	if (count && refuse(calls, count, error))
		return fail("refuse system calls");
	execvp(argv[i + 1], argv + i + 1);
	return fail(argv[i + 1]);
}
