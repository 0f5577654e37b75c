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

/* Calls that are refused by name; a processor may lack some. */
static const struct name calls_known[] = {
#ifdef SYS_access
	{"access", SYS_access},
#endif
#ifdef SYS_accept4
	{"accept4", SYS_accept4},
#endif
#ifdef SYS_bind
	{"bind", SYS_bind},
#endif
#ifdef SYS_capget
	{"capget", SYS_capget},
#endif
#ifdef SYS_chmod
	{"chmod", SYS_chmod},
#endif
#ifdef SYS_clock_gettime
	{"clock_gettime", SYS_clock_gettime},
#endif
#ifdef SYS_clone
	{"clone", SYS_clone},
#endif
#ifdef SYS_clone3
	{"clone3", SYS_clone3},
#endif
#ifdef SYS_close_range
	{"close_range", SYS_close_range},
#endif
#ifdef SYS_connect
	{"connect", SYS_connect},
#endif
#ifdef SYS_copy_file_range
	{"copy_file_range", SYS_copy_file_range},
#endif
#ifdef SYS_dup3
	{"dup3", SYS_dup3},
#endif
#ifdef SYS_epoll_create1
	{"epoll_create1", SYS_epoll_create1},
#endif
#ifdef SYS_epoll_ctl
	{"epoll_ctl", SYS_epoll_ctl},
#endif
#ifdef SYS_epoll_pwait
	{"epoll_pwait", SYS_epoll_pwait},
#endif
#ifdef SYS_epoll_wait
	{"epoll_wait", SYS_epoll_wait},
#endif
#ifdef SYS_eventfd2
	{"eventfd2", SYS_eventfd2},
#endif
#ifdef SYS_execveat
	{"execveat", SYS_execveat},
#endif
#ifdef SYS_faccessat
	{"faccessat", SYS_faccessat},
#endif
#ifdef SYS_faccessat2
	{"faccessat2", SYS_faccessat2},
#endif
#ifdef SYS_fadvise64
	{"fadvise64", SYS_fadvise64},
#endif
#ifdef SYS_fallocate
	{"fallocate", SYS_fallocate},
#endif
#ifdef SYS_fchdir
	{"fchdir", SYS_fchdir},
#endif
#ifdef SYS_fchmod
	{"fchmod", SYS_fchmod},
#endif
#ifdef SYS_fchmodat
	{"fchmodat", SYS_fchmodat},
#endif
#ifdef SYS_fcntl
	{"fcntl", SYS_fcntl},
#endif
#ifdef SYS_fdatasync
	{"fdatasync", SYS_fdatasync},
#endif
#ifdef SYS_flock
	{"flock", SYS_flock},
#endif
#ifdef SYS_fstat
	{"fstat", SYS_fstat},
#endif
#ifdef SYS_fstatfs
	{"fstatfs", SYS_fstatfs},
#endif
#ifdef SYS_fsync
	{"fsync", SYS_fsync},
#endif
#ifdef SYS_ftruncate
	{"ftruncate", SYS_ftruncate},
#endif
#ifdef SYS_futimesat
	{"futimesat", SYS_futimesat},
#endif
#ifdef SYS_get_mempolicy
	{"get_mempolicy", SYS_get_mempolicy},
#endif
#ifdef SYS_getcwd
	{"getcwd", SYS_getcwd},
#endif
#ifdef SYS_getdents64
	{"getdents64", SYS_getdents64},
#endif
#ifdef SYS_getgroups
	{"getgroups", SYS_getgroups},
#endif
#ifdef SYS_getpeername
	{"getpeername", SYS_getpeername},
#endif
#ifdef SYS_getpriority
	{"getpriority", SYS_getpriority},
#endif
#ifdef SYS_getrandom
	{"getrandom", SYS_getrandom},
#endif
#ifdef SYS_getrlimit
	{"getrlimit", SYS_getrlimit},
#endif
#ifdef SYS_getsockname
	{"getsockname", SYS_getsockname},
#endif
#ifdef SYS_getsockopt
	{"getsockopt", SYS_getsockopt},
#endif
#ifdef SYS_getxattr
	{"getxattr", SYS_getxattr},
#endif
#ifdef SYS_inotify_init1
	{"inotify_init1", SYS_inotify_init1},
#endif
#ifdef SYS_io_uring_setup
	{"io_uring_setup", SYS_io_uring_setup},
#endif
#ifdef SYS_ioctl
	{"ioctl", SYS_ioctl},
#endif
#ifdef SYS_ioprio_get
	{"ioprio_get", SYS_ioprio_get},
#endif
#ifdef SYS_ioprio_set
	{"ioprio_set", SYS_ioprio_set},
#endif
#ifdef SYS_kcmp
	{"kcmp", SYS_kcmp},
#endif
#ifdef SYS_kill
	{"kill", SYS_kill},
#endif
#ifdef SYS_lgetxattr
	{"lgetxattr", SYS_lgetxattr},
#endif
#ifdef SYS_link
	{"link", SYS_link},
#endif
#ifdef SYS_linkat
	{"linkat", SYS_linkat},
#endif
#ifdef SYS_listen
	{"listen", SYS_listen},
#endif
#ifdef SYS_lseek
	{"lseek", SYS_lseek},
#endif
#ifdef SYS_madvise
	{"madvise", SYS_madvise},
#endif
#ifdef SYS_memfd_create
	{"memfd_create", SYS_memfd_create},
#endif
#ifdef SYS_membarrier
	{"membarrier", SYS_membarrier},
#endif
#ifdef SYS_mincore
	{"mincore", SYS_mincore},
#endif
#ifdef SYS_mkdir
	{"mkdir", SYS_mkdir},
#endif
#ifdef SYS_mkdirat
	{"mkdirat", SYS_mkdirat},
#endif
#ifdef SYS_mlock
	{"mlock", SYS_mlock},
#endif
#ifdef SYS_mremap
	{"mremap", SYS_mremap},
#endif
#ifdef SYS_msync
	{"msync", SYS_msync},
#endif
#ifdef SYS_name_to_handle_at
	{"name_to_handle_at", SYS_name_to_handle_at},
#endif
#ifdef SYS_openat2
	{"openat2", SYS_openat2},
#endif
#ifdef SYS_personality
	{"personality", SYS_personality},
#endif
#ifdef SYS_pidfd_getfd
	{"pidfd_getfd", SYS_pidfd_getfd},
#endif
#ifdef SYS_pidfd_open
	{"pidfd_open", SYS_pidfd_open},
#endif
#ifdef SYS_pidfd_send_signal
	{"pidfd_send_signal", SYS_pidfd_send_signal},
#endif
#ifdef SYS_pipe2
	{"pipe2", SYS_pipe2},
#endif
#ifdef SYS_poll
	{"poll", SYS_poll},
#endif
#ifdef SYS_ppoll
	{"ppoll", SYS_ppoll},
#endif
#ifdef SYS_prctl
	{"prctl", SYS_prctl},
#endif
#ifdef SYS_pread64
	{"pread64", SYS_pread64},
#endif
#ifdef SYS_prlimit64
	{"prlimit64", SYS_prlimit64},
#endif
#ifdef SYS_process_vm_readv
	{"process_vm_readv", SYS_process_vm_readv},
#endif
#ifdef SYS_process_vm_writev
	{"process_vm_writev", SYS_process_vm_writev},
#endif
#ifdef SYS_pselect6
	{"pselect6", SYS_pselect6},
#endif
#ifdef SYS_ptrace
	{"ptrace", SYS_ptrace},
#endif
#ifdef SYS_pwrite64
	{"pwrite64", SYS_pwrite64},
#endif
#ifdef SYS_pwritev2
	{"pwritev2", SYS_pwritev2},
#endif
#ifdef SYS_readlink
	{"readlink", SYS_readlink},
#endif
#ifdef SYS_readlinkat
	{"readlinkat", SYS_readlinkat},
#endif
#ifdef SYS_readv
	{"readv", SYS_readv},
#endif
#ifdef SYS_recvfrom
	{"recvfrom", SYS_recvfrom},
#endif
#ifdef SYS_recvmsg
	{"recvmsg", SYS_recvmsg},
#endif
#ifdef SYS_rename
	{"rename", SYS_rename},
#endif
#ifdef SYS_renameat
	{"renameat", SYS_renameat},
#endif
#ifdef SYS_renameat2
	{"renameat2", SYS_renameat2},
#endif
#ifdef SYS_rmdir
	{"rmdir", SYS_rmdir},
#endif
#ifdef SYS_rseq
	{"rseq", SYS_rseq},
#endif
#ifdef SYS_sched_get_priority_max
	{"sched_get_priority_max", SYS_sched_get_priority_max},
#endif
#ifdef SYS_sched_getaffinity
	{"sched_getaffinity", SYS_sched_getaffinity},
#endif
#ifdef SYS_sched_getattr
	{"sched_getattr", SYS_sched_getattr},
#endif
#ifdef SYS_sched_getparam
	{"sched_getparam", SYS_sched_getparam},
#endif
#ifdef SYS_sched_getscheduler
	{"sched_getscheduler", SYS_sched_getscheduler},
#endif
#ifdef SYS_sched_setaffinity
	{"sched_setaffinity", SYS_sched_setaffinity},
#endif
#ifdef SYS_sched_setattr
	{"sched_setattr", SYS_sched_setattr},
#endif
#ifdef SYS_sched_setparam
	{"sched_setparam", SYS_sched_setparam},
#endif
#ifdef SYS_sched_setscheduler
	{"sched_setscheduler", SYS_sched_setscheduler},
#endif
#ifdef SYS_sched_yield
	{"sched_yield", SYS_sched_yield},
#endif
#ifdef SYS_select
	{"select", SYS_select},
#endif
#ifdef SYS_sendfile
	{"sendfile", SYS_sendfile},
#endif
#ifdef SYS_sendmsg
	{"sendmsg", SYS_sendmsg},
#endif
#ifdef SYS_sendto
	{"sendto", SYS_sendto},
#endif
#ifdef SYS_set_robust_list
	{"set_robust_list", SYS_set_robust_list},
#endif
#ifdef SYS_setitimer
	{"setitimer", SYS_setitimer},
#endif
#ifdef SYS_setpgid
	{"setpgid", SYS_setpgid},
#endif
#ifdef SYS_setpriority
	{"setpriority", SYS_setpriority},
#endif
#ifdef SYS_setrlimit
	{"setrlimit", SYS_setrlimit},
#endif
#ifdef SYS_setsid
	{"setsid", SYS_setsid},
#endif
#ifdef SYS_setsockopt
	{"setsockopt", SYS_setsockopt},
#endif
#ifdef SYS_shutdown
	{"shutdown", SYS_shutdown},
#endif
#ifdef SYS_sigaltstack
	{"sigaltstack", SYS_sigaltstack},
#endif
#ifdef SYS_signalfd4
	{"signalfd4", SYS_signalfd4},
#endif
#ifdef SYS_socket
	{"socket", SYS_socket},
#endif
#ifdef SYS_socketpair
	{"socketpair", SYS_socketpair},
#endif
#ifdef SYS_splice
	{"splice", SYS_splice},
#endif
#ifdef SYS_statfs
	{"statfs", SYS_statfs},
#endif
#ifdef SYS_statx
	{"statx", SYS_statx},
#endif
#ifdef SYS_symlink
	{"symlink", SYS_symlink},
#endif
#ifdef SYS_symlinkat
	{"symlinkat", SYS_symlinkat},
#endif
#ifdef SYS_sysinfo
	{"sysinfo", SYS_sysinfo},
#endif
#ifdef SYS_tgkill
	{"tgkill", SYS_tgkill},
#endif
#ifdef SYS_timer_create
	{"timer_create", SYS_timer_create},
#endif
#ifdef SYS_timerfd_create
	{"timerfd_create", SYS_timerfd_create},
#endif
#ifdef SYS_timerfd_settime
	{"timerfd_settime", SYS_timerfd_settime},
#endif
#ifdef SYS_truncate
	{"truncate", SYS_truncate},
#endif
#ifdef SYS_umask
	{"umask", SYS_umask},
#endif
#ifdef SYS_uname
	{"uname", SYS_uname},
#endif
#ifdef SYS_unlinkat
	{"unlinkat", SYS_unlinkat},
#endif
#ifdef SYS_unshare
	{"unshare", SYS_unshare},
#endif
#ifdef SYS_utimensat
	{"utimensat", SYS_utimensat},
#endif
#ifdef SYS_vfork
	{"vfork", SYS_vfork},
#endif
#ifdef SYS_wait4
	{"wait4", SYS_wait4},
#endif
#ifdef SYS_waitid
	{"waitid", SYS_waitid},
#endif
};

static int fail(const char *what) {
	fprintf(stderr, "handicap: %s: %s\n", what, strerror(errno));
	return 125;
}

/* NAME=NUMBER, both limits. */
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

/* The number of a call. */
static long find(const char *name) {
	for (size_t i = 0; i < sizeof calls_known / sizeof *calls_known; i++)
		if (!strcmp(calls_known[i].name, name))
			return calls_known[i].number;
	errno = ENOSYS;
	return -1;
}

/* The numbers of calls, each answered with one error. */
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
	/* without the privilege for it, a filter may only be had by giving up others */
	if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 0;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
	long calls[MOST];
	int count = 0, error = EPERM, i;
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t n = 0; n < sizeof calls_known / sizeof *calls_known; n++)
			puts(calls_known[n].name);
		return 0;
	}
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
