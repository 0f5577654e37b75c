/* Parks the program into which this library was preloaded: it waits at the entry of its main, and forks for each command.
 *
 * Without WAFPARK in its environment, a program runs as if the library were not there. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

#define CONTROL 3 /* the lowest number that the control socket may have once the program is parked */

extern char **environ;

typedef int main_function(int, char **, char **);
typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

HIDDEN char **wafpark_first_environment;
static main_function *real_main;

/* A request as it arrived, and pointers into it, which are the child's arguments and environment. */
static struct {
	char *packet;
	char **pointers;
} incoming;

static struct {
	volatile int32_t *entries;
	size_t size;
} roster;

static void *map(size_t size, int flags, int file) {
	long address = SYSTEM(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, flags, file, 0);
	if (address < 0 && address > -4096)
		leave(127);
	return (void *)address;
}

/* Receives a packet and up to three descriptors. Ends the process when the engine is gone. */
static long receive(int control, int files[3], int *count) {
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(3 * sizeof(int))];
	} rights;
	struct iovec part = {incoming.packet, WAFPARK_PACKET};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
	long size = SYSTEM(SYS_recvmsg, control, &message, MSG_CMSG_CLOEXEC);
	if (size <= 0)
		leave(0);
	*count = 0;
	for (struct cmsghdr *item = CMSG_FIRSTHDR(&message); item; item = NULL)
		if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS) {
			*count = (int)((item->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			for (int i = 0; i < *count; i++)
				files[i] = ((int *)(void *)CMSG_DATA(item))[i];
		}
	return size;
}

static void receive_welcome(int control) {
	int files[3], count;
	const struct wafpark_welcome *welcome = (const void *)incoming.packet;
	long size = receive(control, files, &count);
	if (size <= (long)sizeof *welcome || welcome->magic != WAFPARK_MAGIC || incoming.packet[size - 1] || !count)
		leave(127);
	roster.size = welcome->roster;
	roster.entries = map(roster.size, MAP_SHARED, files[0]);
	if (welcome->arena && count > 1)
		wafpark_take_arena(files[1], welcome->arena, incoming.packet + sizeof *welcome);
	for (int i = 0; i < count; i++)
		SYSTEM(SYS_close, files[i]);
}

/* The control socket came as standard input. While the program is parked, its standard streams are the null device. */
static int free_streams(void) {
	int control = (int)SYSTEM(SYS_fcntl, 0, F_DUPFD_CLOEXEC, CONTROL);
	int null = (int)SYSTEM(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
	if (control < 0 || null < 0)
		leave(127);
	for (int i = 0; i < 3; i++)
		SYSTEM(SYS_dup3, null, i, 0);
	SYSTEM(SYS_close, null);
	return control;
}

/* Writes pointers to `count` strings that follow each other. Returns where the strings end. */
static char *index_strings(char *at, const char *end, uint32_t count, char ***pointers) {
	for (uint32_t i = 0; i < count; i++) {
		*(*pointers)++ = at;
		while (at < end && *at)
			at++;
		at++;
	}
	*(*pointers)++ = NULL;
	return at;
}

static int is_valid(const struct wafpark_request *request, long size, int count) {
	if (size < (long)sizeof *request || request->magic != WAFPARK_MAGIC || request->size != size || count != 3)
		return 0;
	uint64_t strings = (uint64_t)request->path + request->folder + request->argv + request->env + request->route;
	return sizeof *request + strings == request->size && request->argc && request->argc + request->envc <= WAFPARK_STRINGS &&
	       incoming.packet[size - 1] == 0 && ((uint64_t)request->entry + 1) * sizeof(int32_t) <= roster.size;
}

static void read_request(struct wafpark_child *child) {
	const struct wafpark_request *request = child->request;
	char *at = incoming.packet + sizeof *request, **pointers = incoming.pointers;
	const char *end = incoming.packet + request->size;
	child->path = at;
	child->folder = at += request->path;
	at += request->folder;
	child->argv = pointers;
	index_strings(at, end, request->argc, &pointers);
	at += request->argv;
	child->env = pointers;
	index_strings(at, end, request->envc, &pointers);
	child->route = at + request->env;
}

/* Forks for each request. Returns in the children only.
 *
 * By CLONE_PARENT they are the engine's children, so that the kernel reports their status and resource use to the engine. */
static void serve(int control, struct wafpark_child *child) {
	int engine = (int)SYSTEM(SYS_getppid);
	for (;;) {
		int count;
		long size = receive(control, child->streams, &count);
		child->request = (const struct wafpark_request *)(void *)incoming.packet;
		if (!is_valid(child->request, size, count))
			leave(127);
		long pid = SYSTEM(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0) {
			wafpark_adopt_thread();
			wafpark_end_with_engine(engine);
			return;
		}
		if (pid < 0)
			wafpark_answer(control, (int32_t)pid);
		for (int i = 0; i < count; i++)
			SYSTEM(SYS_close, child->streams[i]);
	}
}

static int parked_main(int argc, char **argv, char **env) {
	struct wafpark_child child = {0};
	(void)argc, (void)argv, (void)env;
	if (environ != wafpark_first_environment)
		wafpark_see_obstacle(WAFPARK_ENVIRONMENT);
	incoming.packet = map(WAFPARK_PACKET, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	incoming.pointers = map((WAFPARK_STRINGS + 2) * sizeof(char *), MAP_PRIVATE | MAP_ANONYMOUS, -1);
	int control = free_streams();
	receive_welcome(control);
	wafpark_see_obstacle(wafpark_find_thread());
	wafpark_find_watched();
	if (!wafpark_mark_libraries())
		wafpark_see_obstacle(WAFPARK_MANY_LIBRARIES);
	wafpark_report_ready(control);
	child.control = control;
	child.roster = roster.entries;
	child.roster_size = roster.size;
	serve(control, &child);
	if (!wafpark_has_same_libraries()) {
		wafpark_answer(control, -ESTALE);
		leave(127);
	}
	read_request(&child);
	wafpark_adopt_command(&child);
	return real_main((int)child.request->argc, child.argv, child.env);
}

static int observed_main(int argc, char **argv, char **env) {
	wafpark_hide(env);
	if (environ != env)
		wafpark_hide(environ);
	return real_main(argc, argv, env);
}

static int must_park(void) {
	for (char **entry = environ; entry && *entry; entry++) {
		const char *at = *entry, *name = WAFPARK_VARIABLE "=";
		while (*name && *at == *name)
			at++, name++;
		if (!*name)
			return 1;
	}
	return 0;
}

/* Before glibc 2.34 `init` runs the program's own constructors, and musl passes other arguments. All are passed on unchanged. */
EXPORT int __libc_start_main(main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
                             void (*rtld_fini)(void), void *stack_end);
EXPORT int __libc_start_main(main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
                             void (*rtld_fini)(void), void *stack_end) {
	start_function *start;
	*(void **)(&start) = wafpark_find("__libc_start_main");
	if (!start)
		leave(127);
	real_main = program;
	wafpark_first_environment = argv + argc + 1;
	int parks = must_park();
	wafpark_before_main = parks;
	main_function *entry = parks ? parked_main : wafpark_is_observed() ? observed_main : program;
	return start(entry, argc, argv, init, fini, rtld_fini, stack_end);
}
