/* Users and groups. libc looks for them in files of the system, and asks servers. If the file is asked first, and has the entry, then the file
 * is all that counts. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>

#define ORDER "/etc/nsswitch.conf"
#define SERVER "/var/run/nscd/socket" /* answers in place of the files */
#define LONGEST 4096

/* An entry of a file: a user or a group, or the order in which a database is looked for. */
struct wanted {
	const char *name;
	uint64_t number;
};

static int is_blank(char letter) {
	return letter == ' ' || letter == '\t';
}

static int asks_file_first(const char *line, const struct wanted *wanted) {
	const char *rest = wafpark_after(line, wanted->name);
	if (!rest || *rest++ != ':')
		return 0;
	while (is_blank(*rest))
		rest++;
	rest = wafpark_after(rest, "files");
	return rest && (!*rest || is_blank(*rest));
}

static int is_entry(const char *line, const struct wanted *wanted) {
	const char *rest = wafpark_after(line, wanted->name);
	uint64_t number = 0;
	if (!rest || *rest++ != ':')
		return 0;
	while (*rest && *rest != ':')
		rest++;
	const char *digits = *rest ? ++rest : rest;
	while (*rest >= '0' && *rest <= '9')
		number = number * 10 + (uint64_t)(*rest++ - '0');
	return rest > digits && *rest == ':' && number == wanted->number;
}

/* Whether a file has a line that is wanted. */
static int has_line(const char *path, int (*is_meant)(const char *, const struct wanted *), const struct wanted *wanted) {
	char lines[LONGEST + 1];
	long have = 0, more;
	const int file = (int)SYSTEM(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	int found = 0;
	while (file >= 0 && !found && have < LONGEST && (more = SYSTEM(SYS_read, file, lines + have, LONGEST - have)) > 0) {
		long start = 0;
		have += more;
		for (long at = have - more; at < have && !found; at++)
			if (lines[at] == '\n') {
				lines[at] = 0;
				found = is_meant(lines + start, wanted);
				start = at + 1;
			}
		have -= start;
		for (long at = 0; at < have; at++)
			lines[at] = lines[start + at];
	}
	if (file >= 0)
		SYSTEM(SYS_close, file);
	return found;
}

static void note_entry(int found, const char *database, const char *path, struct wanted wanted) {
	const int error = errno;
	const struct wanted order = {database, 0};
	if (!wafpark_watch)
		return;
	if (found && SYSTEM(SYS_faccessat, AT_FDCWD, SERVER, 0) == -ENOENT && has_line(ORDER, asks_file_first, &order) &&
	    has_line(path, is_entry, &wanted)) {
		/* libc looks whether the root is still the same folder */
		wafpark_note(WAFPARK_LOOK, 0, 1, AT_FDCWD, "/");
		wafpark_note(WAFPARK_FIND, -ENOENT, 0, AT_FDCWD, SERVER);
		wafpark_note(WAFPARK_OPEN, 0, O_RDONLY, AT_FDCWD, ORDER);
		wafpark_note(WAFPARK_OPEN, 0, O_RDONLY, AT_FDCWD, path);
	} else
		wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_USERS, "");
	errno = error;
}

static void note_user(const struct passwd *user) {
	note_entry(user != NULL, "passwd", "/etc/passwd", user ? (struct wanted){user->pw_name, user->pw_uid} : (struct wanted){0});
}

static void note_group(const struct group *group) {
	note_entry(group != NULL, "group", "/etc/group", group ? (struct wanted){group->gr_name, group->gr_gid} : (struct wanted){0});
}

#define LOOK(type, note, name, parameter, argument)                                                                          \
	EXPORT struct type *name(parameter argument) {                                                                           \
		static struct type *(*real)(parameter);                                                                              \
		if (!real)                                                                                                           \
			*(void **)(&real) = wafpark_find(#name);                                                                         \
		struct type *found = real ? real(argument) : NULL;                                                                   \
		note(found);                                                                                                         \
		return found;                                                                                                        \
	}
#define LOOK_INTO(type, note, name, parameter, argument)                                                                     \
	EXPORT int name(parameter argument, struct type *place, char *texts, size_t size, struct type **found) {                 \
		static int (*real)(parameter, struct type *, char *, size_t, struct type **);                                        \
		if (!real)                                                                                                           \
			*(void **)(&real) = wafpark_find(#name);                                                                         \
		const int result = real ? real(argument, place, texts, size, found) : ENOSYS;                                        \
		/* with more room, it is asked again */                                                                              \
		if (result != ERANGE)                                                                                                \
			note(result == 0 ? *found : NULL);                                                                               \
		return result;                                                                                                       \
	}
LOOK(passwd, note_user, getpwnam, const char *, name)
LOOK(passwd, note_user, getpwuid, uid_t, number)
LOOK(group, note_group, getgrnam, const char *, name)
LOOK(group, note_group, getgrgid, gid_t, number)
LOOK_INTO(passwd, note_user, getpwnam_r, const char *, name)
LOOK_INTO(passwd, note_user, getpwuid_r, uid_t, number)
LOOK_INTO(group, note_group, getgrnam_r, const char *, name)
LOOK_INTO(group, note_group, getgrgid_r, gid_t, number)
