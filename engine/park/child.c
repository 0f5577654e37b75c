/* Turns a fresh child of a parked program into the command that was requested.
 *
 * All steps that can fail come first. Then the child takes its ticket in the roster, and enters main only if it got the ticket. An engine
 * that has given up waiting takes the ticket itself, and starts the command in another way. So a command never runs twice. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define NOT_ENTERED 127

extern char **environ;
extern char *program_invocation_name __attribute__((weak));
extern char *program_invocation_short_name __attribute__((weak));

HIDDEN void wafpark_answer(int control, int32_t pid) {
	const struct wafpark_answer answer = {WAFPARK_MAGIC, pid};
	SYSTEM(SYS_sendto, control, &answer, sizeof answer, MSG_NOSIGNAL, NULL, 0);
}

static int control_socket;

static void end_with_error(long why) {
	wafpark_answer(control_socket, (int32_t)why);
	leave(NOT_ENTERED);
}

static void require(long result) {
	if (result < 0)
		end_with_error(result);
}

static void set_score(int score) {
	char text[8], *end = text + sizeof text, *start = end;
	int file, rest = score < 0 ? -score : score;
	do
		*--start = (char)('0' + rest % 10);
	while (rest /= 10);
	if (score < 0)
		*--start = '-';
	file = (int)SYSTEM(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC, 0);
	require(file);
	require(SYSTEM(SYS_write, file, start, end - start));
	SYSTEM(SYS_close, file);
}

static void adopt_limits(const struct wafpark_context *wanted) {
	for (int i = 0; i < WAFPARK_LIMITS; i++) {
		uint64_t current[2];
		require(SYSTEM(SYS_prlimit64, 0, i, NULL, current));
		if (current[0] != wanted->limits[i][0] || current[1] != wanted->limits[i][1])
			require(SYSTEM(SYS_prlimit64, 0, i, wanted->limits[i], NULL));
	}
}

/* Sets only what differs from the parked program: setting a value may require a right, even if it is the same value. */
static void adopt_scheduling(const struct wafpark_context *wanted) {
	int priority = wanted->priority;
	if (SYSTEM(SYS_sched_getscheduler, 0) != wanted->policy || wanted->priority)
		require(SYSTEM(SYS_sched_setscheduler, 0, wanted->policy, &priority));
	if (20 - SYSTEM(SYS_getpriority, 0, 0) != wanted->nice)
		require(SYSTEM(SYS_setpriority, 0, 0, wanted->nice));
	if (SYSTEM(SYS_ioprio_get, 1, 0) != wanted->io_priority)
		require(SYSTEM(SYS_ioprio_set, 1, 0, wanted->io_priority));
	uint64_t current[WAFPARK_PROCESSORS / 8] = {0};
	const uint64_t *set = (const uint64_t *)(const void *)wanted->processors;
	require(SYSTEM(SYS_sched_getaffinity, 0, sizeof current, current));
	for (size_t i = 0; i < WAFPARK_PROCESSORS / 8; i++)
		if (current[i] != set[i]) {
			require(SYSTEM(SYS_sched_setaffinity, 0, WAFPARK_PROCESSORS, set));
			break;
		}
}

/* The array is the kernel's struct sigaction: handler, flags, restorer, mask. Parked programs handle no signal and ignore none. */
static void adopt_signals(const struct wafpark_context *wanted) {
	const uint64_t ignore[4] = {(uint64_t)(uintptr_t)SIG_IGN, 0, 0, 0};
	for (int signal = 1; signal <= 64; signal++)
		if (wanted->ignored >> (signal - 1) & 1)
			SYSTEM(SYS_rt_sigaction, signal, ignore, NULL, sizeof(uint64_t));
	SYSTEM(SYS_rt_sigprocmask, SIG_SETMASK, &wanted->blocked, NULL, sizeof wanted->blocked);
}

static void adopt_streams(const struct wafpark_child *child) {
	for (int i = 0; i < 3; i++)
		require(SYSTEM(SYS_dup3, child->streams[i], i, 0));
	for (int i = 0; i < 3; i++)
		SYSTEM(SYS_close, child->streams[i]);
}

static char *base_name(char *path) {
	char *name = path;
	for (char *at = path; *at; at++)
		if (*at == '/')
			name = at + 1;
	return name;
}

/* Sets the names and the environment that the kernel and libc would have got from execve. */
static void adopt_names(const struct wafpark_child *child) {
	char **entry = wafpark_first_environment;
	SYSTEM(SYS_prctl, PR_SET_NAME, base_name(child->path), 0, 0, 0);
	if (&program_invocation_name) {
		program_invocation_name = child->argv[0];
		program_invocation_short_name = base_name(child->argv[0]);
	}
	/* The auxiliary vector follows the environment that the program was started with. */
	while (*entry)
		entry++;
	for (ElfW(auxv_t) *item = (void *)(entry + 1); item->a_type != AT_NULL; item++)
		if (item->a_type == AT_EXECFN)
			item->a_un.a_val = (uintptr_t)child->path;
	environ = child->env;
}

static void take_ticket(const struct wafpark_child *child) {
	int32_t asked = WAFPARK_ASKED, self = (int32_t)SYSTEM(SYS_getpid);
	volatile int32_t *ticket = child->roster + child->request->entry;
	if (!__atomic_compare_exchange_n(ticket, &asked, self, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		leave(NOT_ENTERED);
	SYSTEM(SYS_munmap, child->roster, child->roster_size);
}

/* Asks the kernel to kill this process when the engine ends. */
HIDDEN void wafpark_end_with_engine(int engine) {
	SYSTEM(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	long parent = SYSTEM(SYS_getppid);
	/* If the kernel refuses to name the parent, the child goes on. */
	if (parent > 0 && parent != engine)
		leave(NOT_ENTERED);
}

HIDDEN void wafpark_adopt_command(const struct wafpark_child *child) {
	const struct wafpark_request *request = child->request;
	control_socket = child->control;
	require(SYSTEM(SYS_chdir, child->folder));
	adopt_streams(child);
	adopt_scheduling(&request->context);
	if (request->flags & WAFPARK_SCORE)
		set_score(request->context.score);
	adopt_limits(&request->context);
	SYSTEM(SYS_umask, request->context.umask);
	adopt_signals(&request->context);
	take_ticket(child);
	if (request->flags & WAFPARK_SESSION)
		SYSTEM(SYS_setsid);
	else
		SYSTEM(SYS_setpgid, 0, request->flags & WAFPARK_JOIN ? request->group : 0);
	wafpark_answer(child->control, (int32_t)SYSTEM(SYS_getpid));
	SYSTEM(SYS_close, child->control);
	adopt_names(child);
	wafpark_enlarge_pages();
	wafpark_watch_child(child);
	if (request->flags & WAFPARK_ROUTE)
		wafpark_route(child->route, request);
}
