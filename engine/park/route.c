/* Sends what a command would exec to the engine, which may have that program parked: the gcc driver's cc1plus and as.
 *
 * The process that would have become the program waits instead, and ends as the program did. This is done only if no process can notice the
 * difference: in drivers of compilers, which pass on no process numbers of their children, without pipes between the parts of a command, in
 * the same session, with one thread that waits. In all other cases, and whenever the engine says so, the real exec happens. The code runs in
 * a child of vfork, which shares its parent's memory: it changes nothing there. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct {
	int on, engine, command, has_score, runs_nothing;
	int32_t score;
	uint32_t length;
	struct sockaddr_un address;
	struct stat streams[3];
} router;

#define NOT_RUN 127

/* A request that is being put together. */
struct packet {
	struct wafpark_request *request;
	char *at, *end;
};

static int is_pipe(const struct stat *stream) {
	return S_ISFIFO(stream->st_mode) || S_ISSOCK(stream->st_mode);
}

static int read_status(int stream, struct stat *found) {
#ifdef SYS_fstat
	return SYSTEM(SYS_fstat, stream, found) == 0;
#else
	return SYSTEM(SYS_newfstatat, stream, "", found, AT_EMPTY_PATH) == 0;
#endif
}

HIDDEN void wafpark_route(const char *address, const struct wafpark_request *request) {
	uint32_t length = request->route;
	router.runs_nothing = !!(request->flags & WAFPARK_RUN_NOTHING);
	if (length < 2 || length > sizeof router.address.sun_path)
		return;
	router.address.sun_family = AF_UNIX;
	for (uint32_t i = 0; i < length; i++)
		router.address.sun_path[i] = address[i];
	for (int i = 0; i < 3; i++)
		if (!read_status(i, &router.streams[i]))
			return;
	router.length = length;
	router.engine = request->engine;
	router.command = (int)SYSTEM(SYS_getpid);
	router.score = request->context.score;
	router.has_score = request->flags & WAFPARK_SCORE;
	router.on = 1;
}

/* False if a stream is a pipe that the command did not have at its start. Such a pipe connects parts of the command, which must then run at the
 * same time. */
static int are_streams_plain(void) {
	for (int i = 0; i < 3; i++) {
		struct stat now;
		if (!read_status(i, &now))
			return 0;
		int is_known = 0;
		for (int j = 0; j < 3; j++)
			is_known |= now.st_dev == router.streams[j].st_dev && now.st_ino == router.streams[j].st_ino;
		if (is_pipe(&now) && !is_known)
			return 0;
	}
	return 1;
}

static int add_text(struct packet *packet, const char *text, uint32_t *size) {
	do {
		if (packet->at == packet->end)
			return 0;
		*packet->at++ = *text;
		++*size;
	} while (*text++);
	return 1;
}

static int add_list(struct packet *packet, char *const *list, uint32_t *count, uint32_t *size) {
	for (; *list; list++, ++*count)
		if (!add_text(packet, *list, size))
			return 0;
	return 1;
}

static int add_folder(struct packet *packet) {
	long size = SYSTEM(SYS_getcwd, packet->at, packet->end - packet->at);
	if (size <= 0 || packet->at[0] != '/')
		return 0;
	packet->at += size;
	packet->request->folder = (uint32_t)size;
	return 1;
}

/* Reads what exec would pass on. An exec resets handled signals to their default; ignored ones stay ignored. */
static int read_context(struct wafpark_context *context) {
	for (int i = 0; i < WAFPARK_LIMITS; i++)
		if (SYSTEM(SYS_prlimit64, 0, i, NULL, context->limits[i]) < 0)
			return 0;
	for (int signal = 1; signal <= 64; signal++) {
		uint64_t action[4] = {0};
		if (SYSTEM(SYS_rt_sigaction, signal, NULL, action, sizeof(uint64_t)) == 0 && action[0] == (uintptr_t)SIG_IGN)
			context->ignored |= (uint64_t)1 << (signal - 1);
	}
	SYSTEM(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &context->blocked, sizeof context->blocked);
	context->nice = 20 - (int32_t)SYSTEM(SYS_getpriority, PRIO_PROCESS, 0);
	context->policy = (int32_t)SYSTEM(SYS_sched_getscheduler, 0);
	SYSTEM(SYS_sched_getparam, 0, &context->priority);
	context->io_priority = (int32_t)SYSTEM(SYS_ioprio_get, 1, 0);
	/* No compiler changes its own score. */
	context->score = router.score;
	context->umask = (uint32_t)SYSTEM(SYS_umask, 0777);
	SYSTEM(SYS_umask, context->umask);
	return SYSTEM(SYS_sched_getaffinity, 0, WAFPARK_PROCESSORS, context->processors) > 0;
}

static int compose(struct packet *packet, const char *path, char *const *argv, char *const *env, uint32_t token, int asker) {
	struct wafpark_request *request = packet->request;
	request->magic = WAFPARK_MAGIC;
	request->flags = WAFPARK_JOIN | (uint32_t)router.has_score;
	request->group = (int32_t)SYSTEM(SYS_getpgid, 0);
	request->asker = asker ? asker : (int32_t)SYSTEM(SYS_getpid);
	wafpark_tell_log(request, token);
	packet->at = (char *)(request + 1);
	packet->end = (char *)request + WAFPARK_PACKET;
	if (!add_text(packet, path, &request->path) || !add_folder(packet) ||
	    !add_list(packet, argv, &request->argc, &request->argv) || !add_list(packet, env, &request->envc, &request->env) ||
	    request->argc + request->envc > WAFPARK_STRINGS || !read_context(&request->context))
		return 0;
	request->size = (uint32_t)(packet->at - (char *)request);
	return 1;
}

static int send_packet(int connection, const struct wafpark_request *request) {
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(3 * sizeof(int))];
	} rights = {0};
	struct iovec part = {(void *)(uintptr_t)request, request->size};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &rights, .msg_controllen = sizeof rights};
	rights.header.cmsg_level = SOL_SOCKET;
	rights.header.cmsg_type = SCM_RIGHTS;
	rights.header.cmsg_len = CMSG_LEN(3 * sizeof(int));
	for (int i = 0; i < 3; i++)
		((int *)(void *)CMSG_DATA(&rights.header))[i] = i;
	return SYSTEM(SYS_sendmsg, connection, &message, MSG_NOSIGNAL) == request->size;
}

/* Ends this process like the program that ran in its place. */
static void end_like(int status) {
	int signal = status & 0x7f;
	if (signal) {
		const uint64_t action[4] = {0}, no_core[2] = {0, 0}, mask = 0;
		/* The program itself has already dumped its core. */
		SYSTEM(SYS_prlimit64, 0, RLIMIT_CORE, no_core, NULL);
		SYSTEM(SYS_rt_sigaction, signal, action, NULL, sizeof(uint64_t));
		SYSTEM(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
		SYSTEM(SYS_kill, SYSTEM(SYS_getpid), signal);
	}
	leave(signal ? 128 + signal : status >> 8 & 0xff);
}

/* Returns if the program must be executed here. If the engine ends after it has taken the command, its guardian ends the command and this
 * process, too. So if the connection ends without an answer while this process still lives, the engine runs nothing for it. */
static void ask_engine(const char *path, char *const *argv, char *const *env, uint32_t token, int asker) {
	struct packet packet;
	long place = SYSTEM(SYS_mmap, NULL, WAFPARK_PACKET, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (place < 0 && place > -4096)
		return;
	packet.request = (struct wafpark_request *)place;
	int connection = (int)SYSTEM(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connection >= 0 && compose(&packet, path, argv, env, token, asker) &&
	    SYSTEM(SYS_connect, connection, &router.address, offsetof(struct sockaddr_un, sun_path) + router.length) == 0 &&
	    send_packet(connection, packet.request)) {
		struct wafpark_routed routed;
		long size;
		do
			size = SYSTEM(SYS_recvfrom, connection, &routed, sizeof routed, 0, NULL, NULL);
		while (size == -EINTR);
		if (size == sizeof routed && routed.magic == WAFPARK_MAGIC && routed.ran) {
			/* The memory may be the parent's. */
			SYSTEM(SYS_munmap, place, WAFPARK_PACKET);
			end_like(routed.status);
		}
	}
	if (connection >= 0)
		SYSTEM(SYS_close, connection);
	SYSTEM(SYS_munmap, place, WAFPARK_PACKET);
}

static int has_argument(char *const *argv, const char *wanted) {
	for (; *argv; argv++) {
		const char *a = *argv, *b = wanted;
		while (*a && *a == *b)
			a++, b++;
		if (*a == *b)
			return 1;
	}
	return 0;
}

/* Only a child that the driver has made for this exec is routed. Its parent waits for it, and must not need its times (`-time`). The driver's own
 * process must become what it executes, because other processes know its number. */
static int can_be_routed(const char *path, char *const *argv, char *const *env) {
	return router.on && SYSTEM(SYS_getpid) != router.command && path && path[0] && argv && argv[0] && env && !has_argument(argv, "-time") &&
	       SYSTEM(SYS_getsid, 0) == SYSTEM(SYS_getsid, router.engine) && are_streams_plain();
}

HIDDEN int wafpark_is_routed(void) {
	return router.on;
}

HIDDEN int wafpark_runs_nothing(void) {
	return router.runs_nothing;
}

/* ccXXXXXX.s: a random name, as drivers make them for files between their parts. */
static int is_temporary_name(const char *path) {
	const char *name = strrchr(path, '/');
	name = name ? name + 1 : path;
	if (name[0] != 'c' || name[1] != 'c')
		return 0;
	for (int i = 2; i < 8; i++)
		if (!isalnum((unsigned char)name[i]))
			return 0;
	return name[8] == '.';
}

/* A driver whose part has failed removes its output. A driver that runs nothing has the file names of an earlier command, whose outputs it must
 * not remove. */
HIDDEN int wafpark_keeps_file(const char *path) {
	return router.runs_nothing && path && !is_temporary_name(path);
}

/* If the driver only has to report what it would run, it must never execute anything, even if the engine ends meanwhile: it has the file names of
 * an earlier command, and its parts would overwrite that command's outputs. */
HIDDEN void wafpark_offer_exec(const char *path, char *const *argv, char *const *env, uint32_t token, int asker) {
	if (can_be_routed(path, argv, env))
		ask_engine(path, argv, env, token, asker);
	if (router.runs_nothing)
		leave(NOT_RUN);
}
