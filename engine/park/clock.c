/* Functions that may give a command a different result each time: clocks, dates, randomness, and communication with other processes. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <netdb.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static void note_event(enum wafpark_kind kind) {
	if (wafpark_watch)
		wafpark_note_word(kind, 0, "");
}

static int set_errno(long result) {
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return (int)result;
}

#define REAL(result, name, parameters)                                                                                       \
	static result(*real) parameters;                                                                                         \
	if (!real)                                                                                                               \
		*(void **)(&real) = wafpark_find(#name);

/* ---- clocks. libc selects its `time` and `gettimeofday` when it is loaded, so they cannot be found by name. */

static int is_calendar(clockid_t clock) {
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI || clock == CLOCK_REALTIME_ALARM;
}

static int read_clock(clockid_t clock, struct timespec *now) {
	REAL(int, clock_gettime, (clockid_t, struct timespec *))
	const int result = real ? real(clock, now) : set_errno(SYSTEM(SYS_clock_gettime, clock, now));
	if (result == 0 && is_calendar(clock))
		now->tv_sec += wafpark_ahead();
	return result;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
	note_event(is_calendar(clock) ? WAFPARK_TIME : WAFPARK_MEASURE);
	return read_clock(clock, now);
}

EXPORT time_t time(time_t *place) {
	struct timespec now;
	note_event(WAFPARK_TIME);
	read_clock(CLOCK_REALTIME_COARSE, &now);
	if (place)
		*place = now.tv_sec;
	return now.tv_sec;
}

EXPORT int gettimeofday(struct timeval *restrict place, void *restrict zone) {
	note_event(WAFPARK_TIME);
	const int result = set_errno(SYSTEM(SYS_gettimeofday, place, zone));
	if (result == 0 && place)
		place->tv_sec += wafpark_ahead();
	return result;
}

/* glibc has this function for programs that were linked long ago. No header declares it. */
struct timeb_of_old {
	time_t seconds;
	unsigned short milliseconds;
	short zone, is_summer;
};
EXPORT int ftime(struct timeb_of_old *place);
EXPORT int ftime(struct timeb_of_old *place) {
	struct timespec now;
	note_event(WAFPARK_TIME);
	read_clock(CLOCK_REALTIME, &now);
	*place = (struct timeb_of_old){now.tv_sec, (unsigned short)(now.tv_nsec / 1000000), 0, 0};
	return 0;
}

EXPORT int timespec_get(struct timespec *now, int base) {
	note_event(WAFPARK_TIME);
	return base == TIME_UTC && read_clock(CLOCK_REALTIME, now) == 0 ? base : 0;
}

/* ---- dates. Compilers call these only when they are about to write the time into an output. */

/* Whether a time is the one that SOURCE_DATE_EPOCH gives to compilers. Then its date in UTC follows from that variable, and not from the clock.
 * Clang 14 does not heed the variable, but it makes its dates by localtime, as gcc does of the clock. */
static int is_given_time(const time_t *when) {
	const char *text = wafpark_find_value("SOURCE_DATE_EPOCH");
	uint64_t given = 0;
	if (!text || !*text)
		return 0;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || given > (uint64_t)1 << 40)
			return 0;
		given = given * 10 + (uint64_t)(*text - '0');
	}
	return *when >= 0 && (uint64_t)*when == given;
}

static void note_date_in_utc(const time_t *when) {
	if (is_given_time(when))
		wafpark_note_word(WAFPARK_ASK, 0, "SOURCE_DATE_EPOCH");
	else
		note_event(WAFPARK_DATE);
}

#define DATE(result, name, parameters, arguments, note)                                                                            \
	EXPORT result name parameters {                                                                                          \
		REAL(result, name, parameters)                                                                                       \
		note;                                                                                                                \
		wafpark_note_zone();                                                                                                 \
		return real arguments;                                                                                               \
	}
DATE(struct tm *, localtime, (const time_t *when), (when), note_event(WAFPARK_DATE))
DATE(struct tm *, localtime_r, (const time_t *restrict when, struct tm *restrict date), (when, date), note_event(WAFPARK_DATE))
DATE(struct tm *, gmtime, (const time_t *when), (when), note_date_in_utc(when))
DATE(struct tm *, gmtime_r, (const time_t *restrict when, struct tm *restrict date), (when, date), note_date_in_utc(when))
DATE(char *, ctime, (const time_t *when), (when), note_event(WAFPARK_DATE))
DATE(char *, ctime_r, (const time_t *restrict when, char *restrict text), (when, text), note_event(WAFPARK_DATE))

/* ---- randomness */

EXPORT ssize_t getrandom(void *place, size_t size, unsigned flags) {
	note_event(WAFPARK_RANDOM);
	long result = SYSTEM(SYS_getrandom, place, size, flags);
	return result < 0 ? set_errno(result) : result;
}

EXPORT int getentropy(void *place, size_t size) {
	note_event(WAFPARK_RANDOM);
	if (size > 256) {
		errno = EIO;
		return -1;
	}
	for (size_t have = 0; have < size;) {
		long more = SYSTEM(SYS_getrandom, (char *)place + have, size - have, 0);
		if (more < 0 && more != -EINTR)
			return set_errno(more);
		have += more > 0 ? (size_t)more : 0;
	}
	return 0;
}

/* In glibc since 2.36. Only programs whose libc has these functions call them. */
EXPORT uint32_t arc4random(void);
EXPORT uint32_t arc4random(void) {
	uint32_t number = 0;
	getentropy(&number, sizeof number);
	return number;
}
EXPORT void arc4random_buf(void *place, size_t size);
EXPORT void arc4random_buf(void *place, size_t size) {
	for (size_t have = 0; have < size; have += 256)
		getentropy((char *)place + have, size - have < 256 ? size - have : 256);
}
EXPORT uint32_t arc4random_uniform(uint32_t bound);
EXPORT uint32_t arc4random_uniform(uint32_t bound) {
	if (bound < 2)
		return 0;
	const uint32_t unfair = -bound % bound; /* this many of the lowest numbers would favor some results */
	for (;;) {
		uint32_t number = arc4random();
		if (number >= unfair)
			return number % bound;
	}
}

/* ---- other processes */

/* A command that is run a second time must not reach anyone. The first time it did not talk, or there would be no second time. */
static int may_talk(int is_talk) {
	if (!wafpark_watch || !is_talk)
		return 1;
	wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_TALK, "");
	if (!wafpark_ahead())
		return 1;
	errno = EPERM;
	return 0;
}

EXPORT int connect(int socket, __CONST_SOCKADDR_ARG address, socklen_t size) {
	REAL(int, connect, (int, __CONST_SOCKADDR_ARG, socklen_t))
	return may_talk(1) && real ? real(socket, address, size) : -1;
}

#define TALK(result, name, parameters, arguments, is_talk, failure)                                                           \
	EXPORT result name parameters {                                                                                          \
		REAL(result, name, parameters)                                                                                       \
		return may_talk(is_talk) && real ? real arguments : failure;                                                         \
	}
TALK(int, bind, (int socket, __CONST_SOCKADDR_ARG address, socklen_t size), (socket, address, size), 1, -1)
TALK(ssize_t, sendto,
     (int socket, const void *data, size_t length, int flags, __CONST_SOCKADDR_ARG address, socklen_t size),
     (socket, data, length, flags, address, size), size != 0, -1)
TALK(int, kill, (pid_t process, int signal), (process, signal), signal != 0 && process != (int)SYSTEM(SYS_getpid), -1)
TALK(int, getaddrinfo,
     (const char *restrict name, const char *restrict service, const struct addrinfo *restrict wish,
      struct addrinfo **restrict found),
     (name, service, wish, found), 1, EAI_SYSTEM)
TALK(struct hostent *, gethostbyname, (const char *name), (name), 1, NULL)
TALK(struct hostent *, gethostbyname2, (const char *name, int family), (name, family), 1, NULL)

/* libc's system log, which other processes read. */
#define LOG(name, parameters, last, forwarded, more, arguments)                                                               \
	void forwarded more;                                                                                                     \
	EXPORT void forwarded more {                                                                                             \
		REAL(void, forwarded, more)                                                                                          \
		if (wafpark_watch)                                                                                                   \
			wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_TALK, "");                                                        \
		if (real)                                                                                                            \
			real arguments;                                                                                                  \
	}                                                                                                                        \
	void name parameters;                                                                                                    \
	EXPORT void name parameters {                                                                                            \
		va_list list;                                                                                                        \
		va_start(list, last);                                                                                                \
		forwarded arguments;                                                                                                 \
		va_end(list);                                                                                                        \
	}
LOG(syslog, (int level, const char *last, ...), last, vsyslog, (int level, const char *last, va_list list), (level, last, list))
LOG(__syslog_chk, (int level, int flag, const char *last, ...), last, __vsyslog_chk,
    (int level, int flag, const char *last, va_list list), (level, flag, last, list))

/* System calls that tell a program nothing that is not recorded elsewhere: about open files, its own memory, threads, signals and rights.
 * A call that is not in this list is not known to be harmless. */
static int is_harmless(long number) {
	switch (number) {
	case SYS_read: case SYS_write: case SYS_readv: case SYS_writev: case SYS_pread64: case SYS_pwrite64:
	case SYS_lseek: case SYS_close: case SYS_fstat: case SYS_fsync: case SYS_fdatasync: case SYS_ftruncate:
	case SYS_dup: case SYS_dup3: case SYS_fcntl: case SYS_flock: case SYS_fallocate: case SYS_fadvise64:
	case SYS_sendfile: case SYS_splice: case SYS_tee: case SYS_vmsplice: case SYS_pipe2: case SYS_ppoll: case SYS_pselect6:
	case SYS_epoll_create1: case SYS_epoll_ctl: case SYS_epoll_pwait: case SYS_eventfd2:
#ifdef SYS_copy_file_range
	case SYS_copy_file_range:
#endif
#ifdef SYS_close_range
	case SYS_close_range:
#endif
#ifdef SYS_memfd_create
	case SYS_memfd_create:
#endif
#ifdef SYS_dup2
	case SYS_dup2: case SYS_pipe: case SYS_poll: case SYS_select: case SYS_epoll_wait: case SYS_arch_prctl:
#endif
	case SYS_mmap: case SYS_munmap: case SYS_mremap: case SYS_mprotect: case SYS_madvise: case SYS_msync: case SYS_brk:
	case SYS_mlock: case SYS_munlock: case SYS_mbind: case SYS_set_mempolicy: case SYS_get_mempolicy:
	case SYS_futex: case SYS_sched_yield: case SYS_set_robust_list: case SYS_get_robust_list: case SYS_set_tid_address:
	case SYS_nanosleep: case SYS_clock_nanosleep: case SYS_exit: case SYS_exit_group:
	case SYS_sched_getaffinity: case SYS_sched_setaffinity: case SYS_getpriority: case SYS_setpriority:
#ifdef SYS_membarrier
	case SYS_membarrier:
#endif
#ifdef SYS_rseq
	case SYS_rseq:
#endif
	case SYS_rt_sigaction: case SYS_rt_sigprocmask: case SYS_rt_sigreturn: case SYS_sigaltstack: case SYS_tgkill:
	case SYS_getuid: case SYS_geteuid: case SYS_getgid: case SYS_getegid: case SYS_getgroups: case SYS_prlimit64:
	case SYS_getrlimit: case SYS_setrlimit: case SYS_capget: case SYS_umask: case SYS_uname: case SYS_prctl: case SYS_wait4: case SYS_waitid:
		return 1;
	}
	return 0;
}

/* Records a system call as the function of libc does that makes the same call. False if there is none. */
static int note_call(long number) {
	switch (number) {
	case SYS_clock_getres:
	case SYS_getrusage:
	case SYS_times:
	case SYS_sysinfo:
		note_event(WAFPARK_MEASURE);
		return 1;
	case SYS_getrandom:
		note_event(WAFPARK_RANDOM);
		return 1;
	case SYS_getpid:
	case SYS_getppid:
	case SYS_gettid:
	case SYS_getpgid:
	case SYS_getsid:
		note_event(WAFPARK_NUMBER);
		return 1;
	}
	return 0;
}

/* Like libc's, this reads six arguments, whether the caller has passed that many or not. */
EXPORT long syscall(long number, ...) {
	va_list list;
	va_start(list, number);
	long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
	long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
	va_end(list);
	if (wafpark_runs_nothing() && (number == SYS_execve || number == SYS_execveat)) {
		errno = ENOSYS;
		return -1;
	}
	/* These note themselves, and the calendar may be ahead. */
	switch (number) {
#ifdef SYS_statx
	case SYS_statx:
		return statx((int)a, (const char *)b, (int)c, (unsigned)d, (struct statx *)e);
#endif
	case SYS_openat:
		return openat((int)a, (const char *)b, (int)c, (mode_t)d);
#ifdef SYS_open
	case SYS_open:
		return open((const char *)a, (int)b, (mode_t)c);
#endif
	case SYS_clock_gettime:
		return clock_gettime((clockid_t)a, (struct timespec *)b);
	case SYS_gettimeofday:
		return gettimeofday((struct timeval *)a, (void *)b);
#ifdef SYS_time
	case SYS_time:
		return time((time_t *)a);
#endif
	}
	if (wafpark_watch && !is_harmless(number) && !note_call(number))
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_CALL, "");
	long result = SYSTEM6(number, a, b, c, d, e, f);
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
