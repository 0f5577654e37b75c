/* The functions by which programs come to know of files: each does what libc's does, and is noted.
 *
 * Where libc does nothing but a system call, ours does the same call; the rest forwards to libc's own. */
#define _GNU_SOURCE
#include "park.h"
#include "record.h"
#include "system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* The functions that are forwarded. */
#define FORWARDED(each)                                                                                                      \
	each(open) each(open64) each(openat) each(openat64) each(creat) each(creat64) each(__open_2) each(__open64_2)            \
	each(__openat_2) each(__openat64_2) each(fopen) each(fopen64) each(freopen) each(freopen64) each(faccessat)              \
	each(eaccess) each(euidaccess) each(realpath) each(__realpath_chk) each(canonicalize_file_name) each(opendir)            \
	each(fdopendir) each(scandir) each(scandir64) each(getdents64) each(mkstemp) each(mkstemp64) each(mkostemp)              \
	each(mkostemp64) each(mkstemps) each(mkstemps64) each(mkostemps) each(mkostemps64) each(mkdtemp) each(remove)            \
	each(glob) each(glob64) each(getcwd) each(getwd) each(get_current_dir_name) each(fchmodat) each(utimes) each(utime)      \
	each(utimensat) each(__readlink_chk) each(__readlinkat_chk) each(__getcwd_chk) each(__getwd_chk) each(ftw) each(ftw64)   \
	each(nftw) each(nftw64) each(fts_open) each(fts64_open) each(wordexp)

#define NUMBER(name) number_of_##name,
#define NAME(name) #name,
enum { FORWARDED(NUMBER) count_of_forwarded };
static const char *const forwarded_names[] = {FORWARDED(NAME)};
static void *forwarded[count_of_forwarded];

static void *find(int number) {
	if (!forwarded[number])
		forwarded[number] = wafpark_find(forwarded_names[number]);
	return forwarded[number];
}

HIDDEN void wafpark_find_watched(void) {
	for (int i = 0; i < count_of_forwarded; i++)
		find(i);
}

/* libc's own `name`; where it has none, the caller fails. */
#define REAL(result, name, parameters, failure)                                                                              \
	result(*real) parameters = (result(*) parameters)(uintptr_t)find(number_of_##name);                                      \
	if (!real) {                                                                                                             \
		errno = ENOSYS;                                                                                                      \
		return failure;                                                                                                      \
	}

/* What a call came to, as of a system call. */
static long outcome(int failed) {
	return failed ? -errno : 0;
}

static long settle(long result) {
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

/* ---- opening */

static mode_t mode_of(int flags, va_list *list) {
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(*list, mode_t) : 0;
}

/* What is to be made if it is not there, and kept if it is: whether it is there. Whoever looks so shortly before it is opened sees
 * what libc will see. */
static uint32_t tell_new(int folder, const char *path, int flags) {
	const int makes = O_CREAT, others = O_EXCL | O_TRUNC;
	const int may_be_new = wafpark_watch && path && (flags & makes) && !(flags & others);
	const int is_new = may_be_new && SYSTEM(SYS_faccessat, folder, path, F_OK) == -ENOENT;
	return (uint32_t)(is_new ? flags | O_EXCL : flags);
}

#define OPEN(name)                                                                                                           \
	EXPORT int name(const char *path, int flags, ...) {                                                                      \
		va_list list;                                                                                                        \
		va_start(list, flags);                                                                                               \
		mode_t mode = mode_of(flags, &list);                                                                                 \
		va_end(list);                                                                                                        \
		REAL(int, name, (const char *, int, ...), -1)                                                                        \
		const uint32_t told = tell_new(AT_FDCWD, path, flags);                                                               \
		int file = real(path, flags, mode);                                                                                  \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(WAFPARK_OPEN, outcome(file < 0), told, AT_FDCWD, path);                                             \
		return file;                                                                                                         \
	}
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                         \
	EXPORT int name(int folder, const char *path, int flags, ...) {                                                          \
		va_list list;                                                                                                        \
		va_start(list, flags);                                                                                               \
		mode_t mode = mode_of(flags, &list);                                                                                 \
		va_end(list);                                                                                                        \
		REAL(int, name, (int, const char *, int, ...), -1)                                                                   \
		const uint32_t told = tell_new(folder, path, flags);                                                                 \
		int file = real(folder, path, flags, mode);                                                                          \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(WAFPARK_OPEN, outcome(file < 0), told, folder, path);                                               \
		return file;                                                                                                         \
	}
OPENAT(openat)
OPENAT(openat64)

/* An int function of a path that is noted as one thing. */
#define PATH(kind, detail, folder, name, parameters, arguments)                                                              \
	EXPORT int name parameters;                                                                                              \
	EXPORT int name parameters {                                                                                             \
		REAL(int, name, parameters, -1)                                                                                      \
		int result = real arguments;                                                                                         \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(kind, outcome(result < 0), (uint32_t)(detail), folder, path);                                       \
		return result;                                                                                                       \
	}

#define CREATES (O_WRONLY | O_CREAT | O_TRUNC)
#define FRESH (O_RDWR | O_CREAT | O_EXCL)
PATH(WAFPARK_OPEN, CREATES, AT_FDCWD, creat, (const char *path, mode_t mode), (path, mode))
PATH(WAFPARK_OPEN, CREATES, AT_FDCWD, creat64, (const char *path, mode_t mode), (path, mode))
PATH(WAFPARK_OPEN, flags, AT_FDCWD, __open_2, (const char *path, int flags), (path, flags))
PATH(WAFPARK_OPEN, flags, AT_FDCWD, __open64_2, (const char *path, int flags), (path, flags))
PATH(WAFPARK_OPEN, flags, folder, __openat_2, (int folder, const char *path, int flags), (folder, path, flags))
PATH(WAFPARK_OPEN, flags, folder, __openat64_2, (int folder, const char *path, int flags), (folder, path, flags))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkstemp, (char *path), (path))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkstemp64, (char *path), (path))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkostemp, (char *path, int flags), (path, flags))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkostemp64, (char *path, int flags), (path, flags))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkstemps, (char *path, int suffix), (path, suffix))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkstemps64, (char *path, int suffix), (path, suffix))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkostemps, (char *path, int suffix, int flags), (path, suffix, flags))
PATH(WAFPARK_OPEN, FRESH, AT_FDCWD, mkostemps64, (char *path, int suffix, int flags), (path, suffix, flags))
PATH(WAFPARK_FIND, 0, folder, faccessat, (int folder, const char *path, int mode, int flags), (folder, path, mode, flags))
PATH(WAFPARK_FIND, 0, AT_FDCWD, eaccess, (const char *path, int mode), (path, mode))
PATH(WAFPARK_FIND, 0, AT_FDCWD, euidaccess, (const char *path, int mode), (path, mode))
PATH(WAFPARK_REMOVE, 0, AT_FDCWD, remove, (const char *path), (path))
/* A file that is changed in another way than by its content is one that is written. */
PATH(WAFPARK_OPEN, O_WRONLY, folder, fchmodat, (int folder, const char *path, mode_t mode, int flags), (folder, path, mode, flags))
struct timeval;
struct timespec;
struct utimbuf;
PATH(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, utimes, (const char *path, const struct timeval times[2]), (path, times))
PATH(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, utime, (const char *path, const struct utimbuf *times), (path, times))
PATH(WAFPARK_OPEN, O_WRONLY, folder, utimensat, (int folder, const char *path, const struct timespec times[2], int flags),
     (folder, path, times, flags))

static int flags_of(const char *mode) {
	int flags = *mode == 'r' ? O_RDONLY : *mode == 'w' ? CREATES : O_WRONLY | O_CREAT | O_APPEND;
	for (; *mode; mode++) {
		if (*mode == '+')
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		if (*mode == 'x')
			flags |= O_EXCL;
	}
	return flags;
}

#define FOPEN(name)                                                                                                          \
	EXPORT FILE *name(const char *path, const char *mode) {                                                                  \
		REAL(FILE *, name, (const char *, const char *), NULL)                                                               \
		wafpark_see_obstacle(WAFPARK_FILES);                                                                                 \
		const uint32_t told = tell_new(AT_FDCWD, path, flags_of(mode));                                                      \
		FILE *file = real(path, mode);                                                                                       \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(WAFPARK_OPEN, outcome(!file), told, AT_FDCWD, path);                                                \
		return file;                                                                                                         \
	}
FOPEN(fopen)
FOPEN(fopen64)

#define FREOPEN(name)                                                                                                        \
	EXPORT FILE *name(const char *path, const char *mode, FILE *old) {                                                       \
		REAL(FILE *, name, (const char *, const char *, FILE *), NULL)                                                       \
		FILE *file = real(path, mode, old);                                                                                  \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(WAFPARK_OPEN, outcome(!file), (uint32_t)flags_of(mode), AT_FDCWD, path);                            \
		return file;                                                                                                         \
	}
FREOPEN(freopen)
FREOPEN(freopen64)

/* ---- looking */

/* Without a path it is the open file that is asked for. */
static int settle_look(long result, int folder, const char *path, int flags) {
	if (wafpark_watch && path && result != -EFAULT && path[0])
		wafpark_note(WAFPARK_LOOK, result, !(flags & AT_SYMLINK_NOFOLLOW), folder, path);
	return (int)settle(result);
}

static int look(int folder, const char *path, void *status, int flags) {
	return settle_look(SYSTEM(SYS_newfstatat, folder, path, status, flags), folder, path, flags);
}

EXPORT int stat(const char *path, struct stat *status) {
	return look(AT_FDCWD, path, status, 0);
}
EXPORT int stat64(const char *path, struct stat64 *status) {
	return look(AT_FDCWD, path, status, 0);
}
EXPORT int lstat(const char *path, struct stat *status) {
	return look(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
EXPORT int lstat64(const char *path, struct stat64 *status) {
	return look(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
EXPORT int fstatat(int folder, const char *path, struct stat *status, int flags) {
	return look(folder, path, status, flags);
}
EXPORT int fstatat64(int folder, const char *path, struct stat64 *status, int flags) {
	return look(folder, path, status, flags);
}

/* As programs call them that were made for glibc before 2.33; on these machines there is only one version of it. */
#define OLD_STAT(name, flags)                                                                                                \
	EXPORT int name(int version, const char *path, void *status);                                                            \
	EXPORT int name(int version, const char *path, void *status) {                                                           \
		(void)version;                                                                                                       \
		return look(AT_FDCWD, path, status, flags);                                                                          \
	}
OLD_STAT(__xstat, 0)
OLD_STAT(__xstat64, 0)
OLD_STAT(__lxstat, AT_SYMLINK_NOFOLLOW)
OLD_STAT(__lxstat64, AT_SYMLINK_NOFOLLOW)

#define OLD_STATAT(name)                                                                                                     \
	EXPORT int name(int version, int folder, const char *path, void *status, int flags);                                     \
	EXPORT int name(int version, int folder, const char *path, void *status, int flags) {                                    \
		(void)version;                                                                                                       \
		return look(folder, path, status, flags);                                                                            \
	}
OLD_STATAT(__fxstatat)
OLD_STATAT(__fxstatat64)

EXPORT int statx(int folder, const char *path, int flags, unsigned mask, struct statx *status) {
	return settle_look(SYSTEM(SYS_statx, folder, path, flags, mask, status), folder, path, flags);
}

EXPORT int access(const char *path, int mode) {
	/* The call that libc would make: a system may refuse the one and not the other. */
#ifdef SYS_access
	long result = SYSTEM(SYS_access, path, mode);
#else
	long result = SYSTEM(SYS_faccessat, AT_FDCWD, path, mode);
#endif
	if (wafpark_watch)
		wafpark_note(WAFPARK_FIND, result, 0, AT_FDCWD, path);
	return (int)settle(result);
}

static long read_link(int folder, const char *path, char *buffer, size_t size) {
	long result = SYSTEM(SYS_readlinkat, folder, path, buffer, size);
	if (wafpark_watch && path && result != -EFAULT && path[0])
		wafpark_note(WAFPARK_LINK, result, 0, folder, path);
	return settle(result);
}

EXPORT ssize_t readlink(const char *path, char *buffer, size_t size) {
	return read_link(AT_FDCWD, path, buffer, size);
}
EXPORT ssize_t readlinkat(int folder, const char *path, char *buffer, size_t size) {
	return read_link(folder, path, buffer, size);
}

EXPORT ssize_t __readlink_chk(const char *path, char *buffer, size_t size, size_t room);
EXPORT ssize_t __readlink_chk(const char *path, char *buffer, size_t size, size_t room) {
	REAL(ssize_t, __readlink_chk, (const char *, char *, size_t, size_t), -1)
	ssize_t result = real(path, buffer, size, room);
	if (wafpark_watch && path && path[0])
		wafpark_note(WAFPARK_LINK, outcome(result < 0), 0, AT_FDCWD, path);
	return result;
}
EXPORT ssize_t __readlinkat_chk(int folder, const char *path, char *buffer, size_t size, size_t room);
EXPORT ssize_t __readlinkat_chk(int folder, const char *path, char *buffer, size_t size, size_t room) {
	REAL(ssize_t, __readlinkat_chk, (int, const char *, char *, size_t, size_t), -1)
	ssize_t result = real(folder, path, buffer, size, room);
	if (wafpark_watch && path && path[0])
		wafpark_note(WAFPARK_LINK, outcome(result < 0), 0, folder, path);
	return result;
}

EXPORT char *realpath(const char *path, char *resolved) {
	REAL(char *, realpath, (const char *, char *), NULL)
	char *result = real(path, resolved);
	if (wafpark_watch)
		wafpark_note(WAFPARK_RESOLVE, outcome(!result), 0, AT_FDCWD, path);
	return result;
}
EXPORT char *__realpath_chk(const char *path, char *resolved, size_t size);
EXPORT char *__realpath_chk(const char *path, char *resolved, size_t size) {
	REAL(char *, __realpath_chk, (const char *, char *, size_t), NULL)
	char *result = real(path, resolved, size);
	if (wafpark_watch)
		wafpark_note(WAFPARK_RESOLVE, outcome(!result), 0, AT_FDCWD, path);
	return result;
}
EXPORT char *canonicalize_file_name(const char *path) {
	REAL(char *, canonicalize_file_name, (const char *), NULL)
	char *result = real(path);
	if (wafpark_watch)
		wafpark_note(WAFPARK_RESOLVE, outcome(!result), 0, AT_FDCWD, path);
	return result;
}

/* ---- listing */

EXPORT DIR *opendir(const char *path) {
	REAL(DIR *, opendir, (const char *), NULL)
	DIR *result = real(path);
	if (wafpark_watch)
		wafpark_note(WAFPARK_LIST, outcome(!result), 0, AT_FDCWD, path);
	return result;
}

EXPORT DIR *fdopendir(int file) {
	REAL(DIR *, fdopendir, (int), NULL)
	DIR *result = real(file);
	if (wafpark_watch)
		wafpark_note_file(WAFPARK_LIST, outcome(!result), 0, file);
	return result;
}

EXPORT ssize_t getdents64(int file, void *buffer, size_t size) {
	REAL(ssize_t, getdents64, (int, void *, size_t), -1)
	ssize_t result = real(file, buffer, size);
	if (wafpark_watch)
		wafpark_note_file(WAFPARK_LIST, outcome(result < 0), 0, file);
	return result;
}

PATH(WAFPARK_LIST, 0, AT_FDCWD, scandir,
     (const char *path, struct dirent ***names, int (*choose)(const struct dirent *),
      int (*order)(const struct dirent **, const struct dirent **)),
     (path, names, choose, order))
PATH(WAFPARK_LIST, 0, AT_FDCWD, scandir64,
     (const char *path, struct dirent64 ***names, int (*choose)(const struct dirent64 *),
      int (*order)(const struct dirent64 **, const struct dirent64 **)),
     (path, names, choose, order))

#define GLOB(name, type)                                                                                                     \
	EXPORT int name(const char *pattern, int flags, int (*failed)(const char *, int), type *found) {                         \
		REAL(int, name, (const char *, int, int (*)(const char *, int), type *), GLOB_NOSYS)                                 \
		if (wafpark_watch)                                                                                                   \
			wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_WALK, "");                                                        \
		return real(pattern, flags, failed, found);                                                                          \
	}
GLOB(glob, glob_t)
GLOB(glob64, glob64_t)

/* Walks of the C library's own: with whatever arguments, all of them in registers. */
#define WALK(name)                                                                                                           \
	EXPORT void *name(void *a, void *b, void *c, void *d);                                                                   \
	EXPORT void *name(void *a, void *b, void *c, void *d) {                                                                  \
		REAL(void *, name, (void *, void *, void *, void *), NULL)                                                           \
		if (wafpark_watch)                                                                                                   \
			wafpark_note_word(WAFPARK_BLIND, WAFPARK_BLIND_WALK, "");                                                        \
		return real(a, b, c, d);                                                                                             \
	}
WALK(ftw)
WALK(ftw64)
WALK(nftw)
WALK(nftw64)
WALK(fts_open)
WALK(fts64_open)
WALK(wordexp)

/* ---- folders */

EXPORT int chdir(const char *path) {
	long result = SYSTEM(SYS_chdir, path);
	if (wafpark_watch)
		wafpark_note(WAFPARK_ENTER, result, 0, AT_FDCWD, path);
	return (int)settle(result);
}

EXPORT int fchdir(int file) {
	long result = SYSTEM(SYS_fchdir, file);
	if (wafpark_watch)
		wafpark_note_file(WAFPARK_ENTER, result, 0, file);
	return (int)settle(result);
}

static void note_locating(void) {
	wafpark_see_obstacle(WAFPARK_PROCESS);
	if (wafpark_watch)
		wafpark_note_word(WAFPARK_LOCATE, 0, "");
}

EXPORT char *getcwd(char *buffer, size_t size) {
	REAL(char *, getcwd, (char *, size_t), NULL)
	note_locating();
	return real(buffer, size);
}
EXPORT char *__getcwd_chk(char *buffer, size_t size, size_t room);
EXPORT char *__getcwd_chk(char *buffer, size_t size, size_t room) {
	REAL(char *, __getcwd_chk, (char *, size_t, size_t), NULL)
	note_locating();
	return real(buffer, size, room);
}
EXPORT char *__getwd_chk(char *buffer, size_t room);
EXPORT char *__getwd_chk(char *buffer, size_t room) {
	REAL(char *, __getwd_chk, (char *, size_t), NULL)
	note_locating();
	return real(buffer, room);
}
EXPORT char *get_current_dir_name(void) {
	REAL(char *, get_current_dir_name, (void), NULL)
	note_locating();
	return real();
}
EXPORT char *getwd(char *buffer);
EXPORT char *getwd(char *buffer) {
	REAL(char *, getwd, (char *), NULL)
	note_locating();
	return real(buffer);
}

/* ---- making, moving, removing */

#define CALL(kind, detail, folder, name, parameters, ...)                                                                    \
	EXPORT int name parameters {                                                                                             \
		long result = SYSTEM(__VA_ARGS__);                                                                                   \
		if (wafpark_watch)                                                                                                   \
			wafpark_note(kind, result, detail, folder, path);                                                                \
		return (int)settle(result);                                                                                          \
	}
CALL(WAFPARK_REMOVE, 0, AT_FDCWD, unlink, (const char *path), SYS_unlinkat, AT_FDCWD, path, 0)
CALL(WAFPARK_REMOVE, 0, folder, unlinkat, (int folder, const char *path, int flags), SYS_unlinkat, folder, path, flags)
CALL(WAFPARK_REMOVE, 0, AT_FDCWD, rmdir, (const char *path), SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)
CALL(WAFPARK_MAKE, 0, AT_FDCWD, mkdir, (const char *path, mode_t mode), SYS_mkdirat, AT_FDCWD, path, mode)
CALL(WAFPARK_MAKE, 0, folder, mkdirat, (int folder, const char *path, mode_t mode), SYS_mkdirat, folder, path, mode)
CALL(WAFPARK_MAKE, 0, AT_FDCWD, symlink, (const char *target, const char *path), SYS_symlinkat, target, AT_FDCWD, path)
CALL(WAFPARK_MAKE, 0, folder, symlinkat, (const char *target, int folder, const char *path), SYS_symlinkat, target, folder, path)
CALL(WAFPARK_MAKE, 0, AT_FDCWD, mknod, (const char *path, mode_t mode, dev_t device), SYS_mknodat, AT_FDCWD, path, mode, device)
CALL(WAFPARK_MAKE, 0, folder, mknodat, (int folder, const char *path, mode_t mode, dev_t device), SYS_mknodat, folder, path, mode, device)
CALL(WAFPARK_MAKE, 0, AT_FDCWD, mkfifo, (const char *path, mode_t mode), SYS_mknodat, AT_FDCWD, path, mode | S_IFIFO, 0)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, truncate, (const char *path, off_t size), SYS_truncate, path, size)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, truncate64, (const char *path, off64_t size), SYS_truncate, path, size)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, chmod, (const char *path, mode_t mode), SYS_fchmodat, AT_FDCWD, path, mode)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, chown, (const char *path, uid_t user, gid_t group), SYS_fchownat, AT_FDCWD, path, user, group, 0)
CALL(WAFPARK_OPEN, O_WRONLY, AT_FDCWD, lchown, (const char *path, uid_t user, gid_t group), SYS_fchownat, AT_FDCWD, path, user, group, AT_SYMLINK_NOFOLLOW)
CALL(WAFPARK_OPEN, O_WRONLY, folder, fchownat, (int folder, const char *path, uid_t user, gid_t group, int flags), SYS_fchownat, folder, path, user, group, flags)

EXPORT char *mkdtemp(char *path) {
	REAL(char *, mkdtemp, (char *), NULL)
	char *result = real(path);
	if (wafpark_watch)
		wafpark_note(WAFPARK_MAKE, outcome(!result), 0, AT_FDCWD, path);
	return result;
}

static int move(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
	long result = SYSTEM(SYS_renameat2, from_folder, from, to_folder, to, flags);
	if (wafpark_watch)
		wafpark_note_two(WAFPARK_RENAME, result, from_folder, from, to_folder, to);
	return (int)settle(result);
}

EXPORT int rename(const char *from, const char *to) {
	return move(AT_FDCWD, from, AT_FDCWD, to, 0);
}
EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to) {
	return move(from_folder, from, to_folder, to, 0);
}
EXPORT int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
	return move(from_folder, from, to_folder, to, flags);
}

/* A second name for a file: as if one were read and the other written. */
static int join(int from_folder, const char *from, int to_folder, const char *to, int flags) {
	long result = SYSTEM(SYS_linkat, from_folder, from, to_folder, to, flags);
	if (wafpark_watch && from && from[0]) {
		wafpark_note(WAFPARK_OPEN, result, O_RDONLY, from_folder, from);
		wafpark_note(WAFPARK_OPEN, result, O_WRONLY | O_CREAT | O_EXCL, to_folder, to);
	} else if (wafpark_watch)
		wafpark_note(WAFPARK_OPEN, result, O_WRONLY | O_CREAT | O_EXCL, to_folder, to);
	return (int)settle(result);
}

EXPORT int link(const char *from, const char *to) {
	return join(AT_FDCWD, from, AT_FDCWD, to, 0);
}
EXPORT int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
	return join(from_folder, from, to_folder, to, flags);
}
