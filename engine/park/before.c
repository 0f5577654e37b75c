/* What a program does before its main, when its command is not known yet.
 *
 * The variables that it reads decide for which commands the parked program may be used. It must not have asked for anything else that
 * depends on the command: files, the locale, its process number, its folder. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <sys/socket.h>
#include <sys/types.h>

#define NAMES 3072 /* bytes; clang reads two variables, rustc three */

extern char **environ;

HIDDEN int wafpark_before_main = 1;
static enum wafpark_obstacle obstacle;
static char names[NAMES];
static uint32_t names_size;

HIDDEN void wafpark_see_obstacle(enum wafpark_obstacle what) {
	if (wafpark_before_main && !obstacle)
		obstacle = what;
}

static size_t length_of(const char *text) {
	size_t length = 0;
	while (text[length])
		length++;
	return length;
}

static int is_equal(const char *a, const char *b, size_t length) {
	for (size_t i = 0; i < length; i++)
		if (a[i] != b[i])
			return 0;
	return 1;
}

static void note_name(const char *name, size_t length) {
	for (uint32_t at = 0; at < names_size; at += length_of(names + at) + 1)
		if (length_of(names + at) == length && is_equal(names + at, name, length))
			return;
	if (names_size + length + 1 > NAMES) {
		wafpark_see_obstacle(WAFPARK_MANY_VARIABLES);
		return;
	}
	for (size_t i = 0; i <= length; i++)
		names[names_size++] = name[i];
}

/* The FNV-1a digest of the environment, including the order of its entries. */
static uint64_t digest_environment(void) {
	uint64_t digest = 0xcbf29ce484222325u;
	for (char **entry = environ; entry && *entry; entry++)
		for (const char *at = *entry;; at++) {
			digest = (digest ^ (unsigned char)*at) * 0x100000001b3u;
			if (!*at)
				break;
		}
	return digest;
}

/* Records for a command the variables that its program read before it was parked. */
HIDDEN void wafpark_note_names(void) {
	for (uint32_t at = 0; at < names_size; at += length_of(names + at) + 1)
		wafpark_note_word(WAFPARK_ASK, 0, names + at);
}

/* Reports to the engine what was seen. After this, nothing more is noted here. */
HIDDEN void wafpark_report_ready(int control) {
	struct wafpark_ready ready = {WAFPARK_MAGIC, sizeof ready + names_size, obstacle, names_size, digest_environment()};
	struct iovec parts[] = {{&ready, sizeof ready}, {names, names_size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	wafpark_before_main = 0;
	if (SYSTEM(SYS_sendmsg, control, &message, MSG_NOSIGNAL) < 0)
		leave(127);
}

/* ---- the functions that are watched; each does the same as libc's */

EXPORT char *getenv(const char *name) {
	size_t length = length_of(name);
	if (wafpark_before_main)
		note_name(name, length);
	if (wafpark_watch)
		wafpark_note_word(WAFPARK_ASK, 0, name);
	if (!environ || !length)
		return NULL;
	for (char **entry = environ; entry && *entry; entry++)
		if (is_equal(*entry, name, length) && (*entry)[length] == '=')
			return *entry + length + 1;
	return NULL;
}

/* A program with more rights than its caller is never parked, so no variable needs to be hidden from it. */
EXPORT char *secure_getenv(const char *name) {
	return getenv(name);
}

EXPORT char *__secure_getenv(const char *name);
EXPORT char *__secure_getenv(const char *name) {
	return getenv(name);
}

EXPORT pid_t getpid(void) {
	if (wafpark_watch)
		wafpark_note_word(WAFPARK_NUMBER, 0, "");
	wafpark_see_obstacle(WAFPARK_PROCESS);
	return (pid_t)SYSTEM(SYS_getpid);
}
